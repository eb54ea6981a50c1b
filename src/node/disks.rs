//! Disks that may become part of a group. The only way from a disk to a physical volume, and it
//! begins with doubt.

use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::fs::{self, FsError, Probe};
use crate::host::{Cmd, Host, HostError};
use crate::lvm::{LvmError, Scan};
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
            return Ok(match &member.group {
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
    /// [`SetupError::NotBlank`] if it is not. A disk whose group holds volumes of this driver is never
    /// wiped, whatever was allowed.
    pub(super) async fn make_free(&self, host: &dyn Host, scan: &Scan) -> Result<(), SetupError> {
        let Some(found) = self.obstacle(host, scan).await? else { return Ok(()) };
        let group = scan.on(&self.path).and_then(|member| member.group.as_ref());
        let holds_volumes = group.is_some_and(|group| record::volumes(group).next().is_some());
        if !self.wipe || holds_volumes {
            return Err(SetupError::NotBlank { disk: self.path.clone(), found });
        }
        tracing::warn!(disk = %self.path.display(), found, "wiping the disk, as it was allowed");
        // Without force: a disk that is mounted or active is refused by the kernel.
        run(host, Cmd::new("wipefs").arg("-a").arg(&self.path)).await?;
        let end = host.device_size(&self.path).await?.min(Bytes::mib(1));
        host.write_zeroes(&self.path, 0..end.get()).await?;
        host.flush(&self.path).await?;
        Ok(())
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
