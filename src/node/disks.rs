//! Disks that may become part of a group. The only way from a disk to a physical volume, and it
//! begins with doubt.

use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::fs::{self, FsError, Probe};
use crate::host::{Cmd, Host, HostError};
use crate::lvm::{Group, LvmError, Scan, without_label};
use crate::node::record;

/// A disk that the administrator gave to a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDisk {
    /// The disk.
    pub path: PathBuf,
    /// Whether the administrator named it as one that may be wiped: what is on it is lost.
    pub wipe: bool,
}

/// Why a disk could not become part of a group.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The disk is not blank, so nothing was done to it.
    #[error("{} is not blank, it carries {found}; nothing was changed: name another disk, or allow this one to be wiped", disk.display())]
    NotBlank {
        /// The disk.
        disk: PathBuf,
        /// What was seen on it.
        found: String,
    },
    /// Volumes of this driver are on the disk or may be, so nothing was done to it.
    #[error("{} carries {found}, and volumes of this driver may be on it; nothing was changed, though it may be wiped: see `pvs` and `pvck {}`, or write zeroes over its first MiB if nothing on it is needed", disk.display(), disk.display())]
    MayHoldVolumes {
        /// The disk.
        disk: PathBuf,
        /// What was seen on it.
        found: String,
    },
    /// The disk could not be looked at.
    #[error("{} could not be looked at", disk.display())]
    Unreadable {
        /// The disk.
        disk: PathBuf,
        /// Why.
        source: FsError,
    },
    /// A program failed.
    #[error("`{command}` failed: {words}")]
    Program {
        /// The command as one would type it.
        command: String,
        /// Its own words.
        words: String,
    },
    /// LVM failed.
    #[error(transparent)]
    Lvm(#[from] LvmError),
    /// The machine failed a call.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl NewDisk {
    /// What keeps the disk from becoming part of a group; `None` if it is free.
    ///
    /// Free is a disk on which two witnesses find nothing, and one with the label of a physical volume
    /// without a group: a `vgcreate` or `vgextend` that was cut half-way leaves that.
    pub(super) async fn obstacle(
        &self,
        host: &dyn Host,
        scan: &Scan,
    ) -> Result<Option<String>, SetupError> {
        if let Some(member) = scan.on(&self.path) {
            return Ok(match scan.group_of(member) {
                Some(group) => Some(format!("volume group {}", group.name)),
                None if member.is_orphan() => None,
                None => Some("a physical volume whose metadata cannot be read".to_owned()),
            });
        }
        match fs::probe(host, &self.path).await {
            Err(source) => Err(SetupError::Unreadable { disk: self.path.clone(), source }),
            Ok(Probe::Known(superblock)) => Ok(Some(superblock.kind.to_string())),
            Ok(Probe::Foreign(what)) => Ok(Some(what)),
            Ok(Probe::Blank(_)) => {
                let signatures = run(host, Cmd::new("wipefs").arg("-n").arg(&self.path)).await?;
                let signatures = signatures.trim();
                Ok((!signatures.is_empty()).then(|| signatures.to_owned()))
            }
        }
    }

    /// Make the disk free, if it is or may be wiped.
    ///
    /// # Errors
    /// [`SetupError::NotBlank`] if it is not. A disk on which volumes of this driver may be is never
    /// wiped, whatever was allowed: [`SetupError::MayHoldVolumes`].
    pub(super) async fn make_free(&self, host: &dyn Host, scan: &Scan) -> Result<(), SetupError> {
        let Some(found) = self.obstacle(host, scan).await? else { return Ok(()) };
        let disk = self.path.clone();
        if !self.wipe {
            return Err(SetupError::NotBlank { disk, found });
        }
        if self.may_hold_volumes(host, scan).await? {
            return Err(SetupError::MayHoldVolumes { disk, found });
        }
        tracing::warn!(disk = %self.path.display(), found, "wiping the disk, as it was allowed");
        // Without force: a disk that is mounted or active is refused by the kernel.
        run(host, Cmd::new("wipefs").arg("-a").arg(&self.path)).await?;
        let end = host.device_size(&self.path).await?.min(Bytes::mib(1));
        host.write_zeroes(&self.path, 0..end.get()).await?;
        host.flush(&self.path).await?;
        Ok(())
    }

    /// Whether its metadata, or that of another disk of its group, tells of volumes of this driver, or
    /// can not be read. The permission to wipe it was given before they were made.
    async fn may_hold_volumes(&self, host: &dyn Host, scan: &Scan) -> Result<bool, SetupError> {
        let holds_volumes = |group: &Group| record::volumes(group).next().is_some();
        let Some(member) = scan.on(&self.path) else {
            return Ok(without_label(host, &self.path).await?.as_ref().is_some_and(holds_volumes));
        };
        Ok(scan.group_of(member).map_or(!member.is_orphan(), holds_volumes))
    }
}

async fn run(host: &dyn Host, cmd: Cmd) -> Result<String, SetupError> {
    let command = cmd.to_string();
    let output = host.run(cmd).await?;
    match output.code {
        0 => Ok(output.stdout),
        _ => Err(SetupError::Program { command, words: output.stderr }),
    }
}
