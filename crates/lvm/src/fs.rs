//! File systems: probe, create, check, grow, shrink. One table lists the tool for each operation
//! and file system.
//!
//! The content of a device and the size of its file system are read from its superblock, never from
//! a cache, an exit code or the text of a tool. A tool only acts, and its success is what a second
//! look sees.

use std::path::{Path, PathBuf};

use crate::bytes::Bytes;
use crate::host::{Cmd, Host, HostError, Output};
use crate::volume::FsKind;

mod behind;
mod check;
mod grow;
mod kernel;
mod make;
mod probe;
mod shrink;
pub mod superblock;
mod tools;

pub use check::{Check, check};
pub use grow::{Grew, fills, grow_mounted, grow_unmounted, leave};
pub use kernel::{Switch, made_without, refusal, switches};
pub use make::{Tried, known_of, make, taken_without, tried};
pub use probe::{Probe, probe};
pub use shrink::{covers, shrink_mounted, shrink_unmounted};
pub use superblock::{Facts, Superblock};
pub use tools::{always_mounted_with, driver, grows_online};

/// Error of an operation on a file system.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The device does not carry the file system that it should; nothing was changed.
    #[error("{} carries {found}, not {wanted}", device.display())]
    Unexpected {
        /// The device.
        device: PathBuf,
        /// Content of the device, as far as it is known.
        found: String,
        /// Expected content.
        wanted: FsKind,
    },
    /// The device is smaller than the smallest file system of the kind.
    #[error("{kind} needs at least {smallest}, {} has {size}", device.display())]
    TooSmall {
        /// The device.
        device: PathBuf,
        /// The kind.
        kind: FsKind,
        /// The device's size.
        size: Bytes,
        /// The smallest that is made.
        smallest: Bytes,
    },
    /// The check found errors that it may not repair: they have to be repaired manually.
    #[error("the file system on {} has errors: {meaning}; unmount it and run `{repair}`", device.display())]
    Damaged {
        /// The device.
        device: PathBuf,
        /// Result of the check.
        meaning: String,
        /// Command for the repair.
        repair: String,
    },
    /// It cannot grow while it is mounted.
    #[error("the file system on {} can only grow while it is not mounted; stop the workload, and it grows before the next use", device.display())]
    OnlyUnmounted {
        /// The device.
        device: PathBuf,
    },
    /// The growth has gone through and the file system still does not use its device.
    #[error("the file system on {} covers {covers} of {size} after growing", device.display())]
    NotFilled {
        /// The device.
        device: PathBuf,
        /// Size that the file system covers.
        covers: Bytes,
        /// The device's size.
        size: Bytes,
    },
    /// It cannot shrink so far, or not now; it is unchanged.
    #[error("the file system on {} cannot shrink to {to}: {why}", device.display())]
    CannotShrink {
        /// The device.
        device: PathBuf,
        /// The size that was asked for.
        to: Bytes,
        /// Reason.
        why: String,
    },
    /// A program ended without success.
    #[error("`{command}` exited with {code}: {stderr}")]
    Failed {
        /// The command as one would type it.
        command: String,
        /// Exit code of the command.
        code: i32,
        /// The tail of its standard error.
        stderr: String,
    },
    /// A call to the host failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Reads the superblock of a device; `None` if no kind known here is on it.
///
/// # Errors
/// [`FsError::Host`] if the device is missing or cannot be read.
pub async fn superblock_of(host: &dyn Host, device: &Path) -> Result<Option<Superblock>, FsError> {
    let head = host.read_at(device, 0, superblock::HEAD).await?;
    Ok(superblock::parse(&head))
}

/// The superblock of a device that must carry this kind.
async fn known(host: &dyn Host, device: &Path, kind: FsKind) -> Result<Superblock, FsError> {
    let found = superblock_of(host, device).await?;
    match found {
        Some(superblock) if superblock.kind == kind => Ok(superblock),
        other => Err(FsError::Unexpected {
            device: device.to_owned(),
            found: other.map_or("no known content".to_owned(), |sb| sb.kind.to_string()),
            wanted: kind,
        }),
    }
}

async fn run_to_success(host: &dyn Host, cmd: Cmd) -> Result<Output, FsError> {
    let command = cmd.to_string();
    let output = host.run(cmd).await?;
    if output.code == 0 { Ok(output) } else { Err(failed(command, &output)) }
}

fn failed(command: String, output: &Output) -> FsError {
    FsError::Failed { command, code: output.code, stderr: reason(&output.stderr) }
}

/// How many lines of what a program says are reported.
const REASON: usize = 3;

/// How long a line is at least that goes on in the next one.
const WRAPPED: usize = 60;

/// Why a program failed, by what it wrote to standard error: without its name and version, and without how it is
/// called, which mkfs writes behind its reason, or instead of one.
fn reason(stderr: &str) -> String {
    let is_banner = |line: &str| {
        let (program, version) = line.split_once(' ').unwrap_or((line, ""));
        ["mke2fs", "e2fsck", "resize2fs"].contains(&program)
            && version.starts_with(|first: char| first.is_ascii_digit())
    };
    let names_none = |line: &str| line == "Bad option(s) specified:";
    let said = |line: &&str| !line.is_empty() && !is_banner(line) && !names_none(line);
    let all: Vec<&str> = stderr.lines().map(str::trim).filter(said).collect();
    let explains = |line: &str| {
        line.to_ascii_lowercase().starts_with("usage:")
            || line.starts_with("Extended options are separated by commas")
    };
    let usage = all.iter().position(|line| explains(line));
    let told = match usage {
        // The reason is in front of it, and the newest words are the nearest to it.
        Some(0) => return "it does not accept these options".to_owned(),
        Some(usage) => &all[..usage],
        None => &all,
    };
    let told = &told[told.len().saturating_sub(REASON)..];
    let mut reason = String::new();
    for (at, line) in told.iter().enumerate() {
        let goes_on = at > 0
            && told[at - 1].len() >= WRAPPED
            && line.starts_with(|first: char| first.is_ascii_lowercase());
        reason += if at == 0 {
            ""
        } else if goes_on {
            " "
        } else {
            "; "
        };
        reason += line;
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_told_without_how_it_is_called() {
        for (stderr, told) in [
            (
                "mke2fs 1.47.0 (5-Feb-2023)\nmkfs.ext4: invalid inode ratio 1 (min 1024/max 67108864)\n",
                "mkfs.ext4: invalid inode ratio 1 (min 1024/max 67108864)",
            ),
            (
                "Illegal value 64k for -b size option. value is too large\nUsage: mkfs.xfs\n\
                 /* blocksize */\t\t[-b size=num]\n/* config file */\t[-c options=xxx]\n",
                "Illegal value 64k for -b size option. value is too large",
            ),
            (
                "Usage: mkfs.ext4 [-c|-l filename] [-b block-size]\n\t[-C cluster-size]\n",
                "it does not accept these options",
            ),
            (
                "The resize maximum must be greater than the filesystem size.\n\nBad option(s) specified: \n\n\
                 Extended options are separated by commas, and may take an argument which\n\tis set off\n\
                 \nValid extended options are:\n\tstride=<RAID per-disk data chunk in blocks>\n",
                "The resize maximum must be greater than the filesystem size.",
            ),
            (
                "\nThe total requested journal size is 25600000 blocks; it must be\n\
                 between 1024 and 10240000 blocks.  Aborting.\n",
                "The total requested journal size is 25600000 blocks; it must be between 1024 and 10240000 \
                 blocks.  Aborting.",
            ),
            ("a\nb\n\nc\nd\n", "b; c; d"),
            ("", ""),
        ] {
            assert_eq!(reason(stderr), told);
        }
    }
}
