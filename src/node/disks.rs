//! Disks that may become part of a group. The only way from a disk to a physical volume, and it
//! begins with doubt.

use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::fs::{self, FsError, Probe};
use crate::host::{Cmd, Host, HostError, PathKind};
use crate::lvm::{BEFORE_EXTENTS, EXTENT, Group, LvmError, Scan, without_label};
use crate::mount::MountTable;
use crate::node::record;
use crate::volume::few;

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
    #[error("{disk} is not blank, it carries {found}; nothing was changed: {take_group}name another disk, or give `--allow-wipe-disk {disk}`, and what is on it is lost", disk = disk.display())]
    NotBlank {
        /// The disk.
        disk: PathBuf,
        /// What was seen on it.
        found: String,
        /// How to take the volume group on it as it is; empty without one.
        take_group: String,
    },
    /// Somebody uses the disk, so nothing was done to it.
    #[error("{} is in use: {holder}; nothing was changed", disk.display())]
    InUse {
        /// The disk.
        disk: PathBuf,
        /// Who uses it, and what to type.
        holder: String,
    },
    /// The machine has no such disk.
    #[error("there is no disk {}; {blank}; see `lsblk`", disk.display())]
    Missing {
        /// The disk.
        disk: PathBuf,
        /// Which blank disks are here, in words.
        blank: String,
    },
    /// The disk holds a group's metadata and nothing else.
    #[error("{} has {size}, and a group needs a disk of at least {smallest} to hold any volume; nothing was changed: name a larger one", disk.display())]
    TooSmall {
        /// The disk.
        disk: PathBuf,
        /// Its size.
        size: Bytes,
        /// The smallest that is of use.
        smallest: Bytes,
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
        if let Some(holder) = self.mounted(host).await? {
            return Err(SetupError::InUse { disk, holder });
        }
        if !self.wipe {
            let group = scan.on(&disk).and_then(|member| scan.group_of(member));
            let take =
                |group: &Group| format!("take the group with `--pool NAME={}`, ", group.name);
            let take_group = group.map(take).unwrap_or_default();
            return Err(SetupError::NotBlank { disk, found, take_group });
        }
        if self.may_hold_volumes(host, scan).await? {
            return Err(SetupError::MayHoldVolumes { disk, found });
        }
        if host.is_claimed(&disk).await? {
            let holder = format!(
                "another device lies on it, or a part of it is mounted; see `lsblk {}`",
                disk.display()
            );
            return Err(SetupError::InUse { disk, holder });
        }
        tracing::warn!(disk = %self.path.display(), found, "wiping the disk, as it was allowed");
        // Without force: what was mounted or made active meanwhile is refused by the kernel.
        run(host, Cmd::new("wipefs").arg("-a").arg(&self.path)).await?;
        let end = host.device_size(&self.path).await?.min(Bytes::mib(1));
        host.write_zeroes(&self.path, 0..end.get()).await?;
        host.flush(&self.path).await?;
        Ok(())
    }

    /// Where the disk is mounted and what to type; `None` if that is nowhere in sight.
    async fn mounted(&self, host: &dyn Host) -> Result<Option<String>, SetupError> {
        let Some(PathKind::Block(number)) = host.path_kind(&self.path).await? else {
            return Ok(None);
        };
        let table = MountTable::read(host).await?;
        let targets: Vec<_> = table.of(number).map(|mount| mount.target.display()).collect();
        Ok(targets.first().map(|first| {
            format!("it is mounted at {}; `umount {first}` if it can go", few(&targets))
        }))
    }

    /// # Errors
    /// [`SetupError::Missing`], [`SetupError::TooSmall`].
    pub(super) async fn must_be_of_use(
        &self,
        host: &dyn Host,
        scan: &Scan,
    ) -> Result<(), SetupError> {
        let disk = self.path.clone();
        if host.path_kind(&disk).await?.is_none() {
            return Err(SetupError::Missing { disk, blank: blank_disks(host, scan).await? });
        }
        let smallest = BEFORE_EXTENTS + EXTENT;
        match host.device_size(&disk).await {
            Ok(size) if size < smallest => Err(SetupError::TooSmall { disk, size, smallest }),
            _ => Ok(()), // One that cannot be looked at is told with what is on it.
        }
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

/// Which disks of the machine are blank, for a message.
async fn blank_disks(host: &dyn Host, scan: &Scan) -> Result<String, SetupError> {
    let mut blank = Vec::new();
    for disk in host.disks().await? {
        let readable = scan.unreadable.iter().all(|(path, _)| *path != disk.path);
        let candidate = readable && !disk.partitioned && !disk.read_only;
        if candidate && matches!(fs::probe(host, &disk.path).await, Ok(Probe::Blank(_))) {
            blank.push(disk.path.display().to_string());
        }
    }
    if blank.is_empty() {
        return Ok("no blank disk is here".to_owned());
    }
    Ok(format!("blank here: {}", few(blank)))
}

async fn run(host: &dyn Host, cmd: Cmd) -> Result<String, SetupError> {
    let command = cmd.to_string();
    let output = host.run(cmd).await?;
    match output.code {
        0 => Ok(output.stdout),
        _ => Err(SetupError::Program { command, words: output.stderr }),
    }
}
