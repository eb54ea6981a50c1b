//! Check an unmounted file system.

use std::path::Path;

use crate::fs::run::failed;
use crate::fs::{FsError, tools};
use crate::host::{Cmd, Host, Output};
use crate::volume::FsKind;

/// Permissions of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Look, write nothing.
    Look,
    /// Repair what can be repaired without a question. xfs and btrfs repair at the mount whatever they
    /// can, so for them this does nothing.
    Repair,
}

/// Checks a file system that is not mounted; success means that it is sound now.
///
/// A file system that waits for its journal to be replayed is not sound for [`Check::Look`].
///
/// # Errors
/// [`FsError::Damaged`] if errors are left, [`FsError::Failed`] if the checker could not do its work.
///
/// # Source
/// e2fsck(8), xfs_repair(8), btrfs-check(8) for the exit codes.
pub async fn check(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    how: Check,
) -> Result<(), FsError> {
    let cmd = match how {
        Check::Look => Some(tools::look(kind, device)),
        Check::Repair => tools::repair(kind, device),
    };
    match cmd {
        Some(cmd) => run(host, device, kind, cmd).await,
        None => Ok(()),
    }
}

async fn run(host: &dyn Host, device: &Path, kind: FsKind, cmd: Cmd) -> Result<(), FsError> {
    let command = cmd.to_string();
    let output = host.run(cmd).await?;
    match verdict(kind, &output) {
        FsckVerdict::Sound => Ok(()),
        FsckVerdict::Damaged(meaning) => Err(FsError::Damaged {
            device: device.to_owned(),
            meaning,
            repair: tools::repair_by_hand(kind, device),
        }),
        FsckVerdict::Unknown => Err(failed(command, &output)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum FsckVerdict {
    Sound,
    Damaged(String),
    Unknown,
}

fn verdict(kind: FsKind, output: &Output) -> FsckVerdict {
    let damaged = |meaning: &str| FsckVerdict::Damaged(meaning.to_owned());
    match (kind.is_ext(), output.code) {
        // 1: errors were corrected. 2: so were some that a running kernel may still have in memory,
        // which an unmounted file system has not.
        (_, 0) | (true, 1..=3) => FsckVerdict::Sound,
        // Bits: 4 uncorrected, 8 operational error, 16 usage, 32 cancelled, 128 library.
        (true, 4..=7) => damaged("errors were found that must be repaired manually"),
        (false, 1) => damaged("the check found corruption"),
        (false, 2) if kind == FsKind::Xfs => damaged("its log is dirty and was not replayed"),
        _ => FsckVerdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_meaning_of_their_manual() {
        let of = |kind, code| {
            verdict(kind, &Output { code, stdout: String::new(), stderr: String::new() })
        };
        for code in [0, 1, 2, 3] {
            assert_eq!(of(FsKind::Ext4, code), FsckVerdict::Sound, "{code}");
        }
        for code in [4, 5, 6] {
            assert!(matches!(of(FsKind::Ext3, code), FsckVerdict::Damaged(_)), "{code}");
        }
        for code in [8, 12, 16, 32, 128, 137] {
            assert_eq!(of(FsKind::Ext4, code), FsckVerdict::Unknown, "{code}");
        }
        assert_eq!(of(FsKind::Xfs, 0), FsckVerdict::Sound);
        assert!(matches!(of(FsKind::Xfs, 1), FsckVerdict::Damaged(_)));
        assert!(matches!(of(FsKind::Btrfs, 1), FsckVerdict::Damaged(_)));
        assert_eq!(of(FsKind::Btrfs, 2), FsckVerdict::Unknown);
    }
}
