//! Disks that may become part of a group. The only way from a disk to a physical volume, and it
//! begins with doubt.

use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::fs::{self, FsError, Probe};
use crate::host::{Cmd, Disk, Host, HostError, PathKind, Source};
use crate::lvm::{EXTENT, Group, LvmError, Scan, before_extents, without_label};
use crate::mount::MountTable;
use crate::node::record::{self, OtherNode};
use crate::panics::{Panicked, caught};
use crate::volume::{PoolName, few};

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
    #[error("{disk} is not blank, it carries {found}; nothing was changed: {take_group}name another disk, or let this one be wiped (`--allow-wipe-disk {disk}`, in a StoragePool `wipeExisting: true` beside it), and what is on it is lost", disk = disk.display())]
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
    /// The disk carries a group that a pool has, so nothing was done to it.
    #[error("{} carries volume group {group}, which pool {pool} has; nothing was changed: name another disk, or let the pool go of the group first", disk.display())]
    Taken {
        /// The disk.
        disk: PathBuf,
        /// The group on it.
        group: String,
        /// The pool that has it.
        pool: PoolName,
    },
    /// Another pool has the group.
    #[error("volume group {group} is in pool {pool} already; name it in one of both")]
    GroupTaken {
        /// The group.
        group: String,
        /// The pool that has it.
        pool: PoolName,
    },
    /// Another node has the group.
    #[error(
        "volume group {group} is that of node {node}, and this is node {here}; nothing was changed: name a group that this node alone has, or, if its disks were moved here for good and {node} sees them no more, type `vgchange --addtag pliant.node={here} {group}`{}",
        untag(node)
    )]
    OfAnotherNode {
        /// The group.
        group: String,
        /// The other node.
        node: OtherNode,
        /// This node's name.
        here: String,
    },
    /// What the plan names is no disk of the machine, so nothing was done to it.
    #[error("{} leads to {}, which is no disk: a volume, what is on one, a part of an array, or a loop device over what a workload writes; nothing was changed: name a disk, best by a link in /dev/disk/by-id", disk.display(), device.display())]
    NoDisk {
        /// As it was named.
        disk: PathBuf,
        /// Where that leads.
        device: PathBuf,
    },
    /// Who is to get the disk is not clear, so nothing was done to it.
    #[error("{} is named more than once, by pool {pools}; nothing was changed: name it once", disk.display())]
    NamedTwice {
        /// The disk.
        disk: PathBuf,
        /// The pools that name it, in words.
        pools: String,
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
    /// The disk is free, and LVM would not let it join the group.
    #[error("{} does not fit volume group {group}: {reason}", disk.display())]
    Misfit {
        /// The disk.
        disk: PathBuf,
        /// The group.
        group: String,
        /// Why, and what to do.
        reason: String,
    },
    /// LVM did not let the disk join a group that needed it, and the disk has not changed since.
    #[error("{} is free, and did not join a volume group when it was needed: {why}", disk.display())]
    NotTaken {
        /// The disk.
        disk: PathBuf,
        /// What LVM said.
        why: String,
    },
    /// The driver stumbled over it; the log says where.
    #[error("{what} is left as it is: {panicked}; report it with the log")]
    Fault {
        /// The disk or the group.
        what: String,
        /// What the driver said of itself.
        panicked: Panicked,
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

/// How to take away what says that another node has a group; nothing where only its volumes say so.
fn untag(node: &OtherNode) -> String {
    match node {
        OtherNode::Named(name) => format!(" and `--deltag pliant.node={name}` with it"),
        OtherNode::Keyed(_) => String::new(),
        OtherNode::Unreadable => {
            " and `--deltag` with it for each other tag that begins with pliant.node= (`vgs --options \
             vg_name,vg_tags` lists them)"
                .to_owned()
        }
    }
}

/// A disk that is here, by the name under which the kernel lists it: no link moves that to another
/// disk between a look and a change.
#[derive(Debug)]
pub(super) struct Located<'a> {
    /// As the administrator named it.
    pub disk: &'a NewDisk,
    /// The kernel's name.
    pub device: PathBuf,
}

/// What keeps a disk from becoming part of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It carries this.
    Carries(String),
    /// It carries nothing, and something has it to itself.
    Claimed,
}

impl NewDisk {
    /// Do what concerns this disk alone; a panic of it is the refusal of the disk.
    ///
    /// # Errors
    /// What the work says, or [`SetupError::Fault`].
    pub(super) async fn alone<T>(
        &self,
        work: impl Future<Output = Result<T, SetupError>>,
    ) -> Result<T, SetupError> {
        caught("disks", work).await.unwrap_or_else(|panicked| {
            Err(SetupError::Fault { what: self.path.display().to_string(), panicked })
        })
    }

    /// Find the disk, also behind a link.
    ///
    /// # Errors
    /// [`SetupError::Missing`], [`SetupError::NoDisk`].
    pub(super) async fn locate(
        &self,
        host: &dyn Host,
        scan: &Scan,
    ) -> Result<Located<'_>, SetupError> {
        if let Some(device) = host.real_path(&self.path).await? {
            // By its label, what a workload writes could call itself the disk that was meant.
            if host.disks().await?.iter().all(|disk| disk.path != device) {
                return Err(SetupError::NoDisk { disk: self.path.clone(), device });
            }
            return Ok(Located { disk: self, device });
        }
        Err(SetupError::Missing { disk: self.path.clone(), blank: blank_disks(host, scan).await? })
    }
}

impl Located<'_> {
    fn name(&self) -> PathBuf {
        self.disk.path.clone()
    }

    /// # Errors
    /// [`SetupError::Taken`] if a pool has the group on the disk: it may be without a volume only now.
    pub fn refuse_if_taken(
        &self,
        scan: &Scan,
        holder: impl Fn(&str) -> Option<PoolName>,
    ) -> Result<(), SetupError> {
        let group = scan.on(&self.device).and_then(|member| scan.group_of(member));
        let taken = group.and_then(|group| Some((group.name.clone(), holder(&group.name)?)));
        match taken {
            Some((group, pool)) => Err(SetupError::Taken { disk: self.name(), group, pool }),
            None => Ok(()),
        }
    }

    /// What keeps the disk from becoming part of a group; `None` if it is free.
    ///
    /// Free is a disk on which two witnesses find nothing, and one with the label of a physical volume
    /// without a group: a `vgcreate` or `vgextend` that was cut half-way leaves that. And the kernel
    /// keeps it for nothing else.
    pub async fn obstacle(
        &self,
        host: &dyn Host,
        scan: &Scan,
    ) -> Result<Option<Obstacle>, SetupError> {
        if let Some(found) = self.content(host, scan).await? {
            return Ok(Some(Obstacle::Carries(found)));
        }
        Ok(host.is_claimed(&self.device).await?.then_some(Obstacle::Claimed))
    }

    /// What is on the disk; `None` if that is nothing.
    async fn content(&self, host: &dyn Host, scan: &Scan) -> Result<Option<String>, SetupError> {
        if let Some(member) = scan.on(&self.device) {
            return Ok(match scan.group_of(member) {
                Some(group) => Some(format!("volume group {}", group.name)),
                None if member.is_orphan() => None,
                None => Some("a physical volume whose metadata cannot be read".to_owned()),
            });
        }
        match fs::probe(host, &self.device).await {
            Err(source) => Err(SetupError::Unreadable { disk: self.name(), source }),
            Ok(Probe::Known(superblock)) => Ok(Some(superblock.kind.to_string())),
            Ok(Probe::Foreign(what)) => Ok(Some(what)),
            Ok(Probe::Blank) => {
                let signatures = run(host, Cmd::new("wipefs").arg("-n").arg(&self.device)).await?;
                let signatures = signatures.trim();
                Ok((!signatures.is_empty()).then(|| signatures.to_owned()))
            }
        }
    }

    /// What has to be wiped before the disk is free, and may be; `None` if it is free. Changes
    /// nothing.
    ///
    /// # Errors
    /// [`SetupError::NotBlank`] if it may not. A disk on which volumes of this driver may be is never
    /// wiped, whatever was allowed: [`SetupError::MayHoldVolumes`].
    pub async fn to_wipe(
        &self,
        host: &dyn Host,
        scan: &Scan,
    ) -> Result<Option<String>, SetupError> {
        let found = match self.obstacle(host, scan).await? {
            None => return Ok(None),
            Some(Obstacle::Claimed) => return Err(self.claimed()),
            Some(Obstacle::Carries(found)) => found,
        };
        let disk = self.name();
        if let Some(holder) = self.mounted(host).await? {
            return Err(SetupError::InUse { disk, holder });
        }
        if !self.disk.wipe {
            let group = scan.on(&self.device).and_then(|member| scan.group_of(member));
            let take = |group: &Group| {
                let name = &group.name;
                format!(
                    "take the group (`--pool NAME={name}`, in a StoragePool `groups: [{name}]`), "
                )
            };
            let take_group = group.map(take).unwrap_or_default();
            return Err(SetupError::NotBlank { disk, found, take_group });
        }
        if self.may_hold_volumes(host, scan).await? {
            return Err(SetupError::MayHoldVolumes { disk, found });
        }
        if host.is_claimed(&self.device).await? {
            return Err(self.claimed());
        }
        Ok(Some(found))
    }

    fn claimed(&self) -> SetupError {
        let disk = self.name();
        let holder = format!(
            "another device lies on it, or a part of it is mounted; see `lsblk {}`",
            disk.display()
        );
        SetupError::InUse { disk, holder }
    }

    /// Make the disk free, if it is or may be wiped.
    ///
    /// # Errors
    /// As [`Located::to_wipe`].
    pub async fn make_free(&self, host: &dyn Host, scan: &Scan) -> Result<(), SetupError> {
        match self.to_wipe(host, scan).await? {
            Some(found) => self.wipe(host, &found).await,
            None => Ok(()),
        }
    }

    /// Wipe what [`Located::to_wipe`] has found.
    pub async fn wipe(&self, host: &dyn Host, found: &str) -> Result<(), SetupError> {
        let device = &self.device;
        tracing::warn!(disk = %device.display(), found, "wiping the disk, as it was allowed");
        // Without force: what was mounted or made active meanwhile is refused by the kernel.
        run(host, Cmd::new("wipefs").arg("-a").arg(device)).await?;
        let end = host.device_size(device).await?.min(Bytes::mib(1));
        host.write_zeroes(device, 0..end.get()).await?;
        host.flush(device).await?;
        Ok(())
    }

    /// Where the disk is mounted and what to type; `None` if that is nowhere in sight.
    async fn mounted(&self, host: &dyn Host) -> Result<Option<String>, SetupError> {
        let Some(PathKind::Block(number)) = host.path_kind(&self.device).await? else {
            return Ok(None);
        };
        let table = MountTable::read(host).await?;
        let targets: Vec<_> = table.of(number).map(|mount| mount.target.display()).collect();
        Ok(targets.first().map(|first| {
            format!("it is mounted at {}; `umount {first}` if it can go", few(&targets))
        }))
    }

    /// # Errors
    /// [`SetupError::TooSmall`].
    pub fn must_be_of_use(&self, disk: Option<&Disk>) -> Result<(), SetupError> {
        let Some(Disk { size, optimal_io, .. }) = disk else { return Ok(()) };
        let smallest = before_extents(*optimal_io) + EXTENT;
        if *size < smallest {
            return Err(SetupError::TooSmall { disk: self.name(), size: *size, smallest });
        }
        Ok(())
    }

    /// Whether its metadata, or that of another disk of its group, tells of volumes of this driver, or
    /// can not be read. The permission to wipe it was given before they were made.
    async fn may_hold_volumes(&self, host: &dyn Host, scan: &Scan) -> Result<bool, SetupError> {
        let Some(member) = scan.on(&self.device) else {
            let group = without_label(host, &self.device).await?;
            return Ok(group.as_ref().is_some_and(record::holds_volumes));
        };
        Ok(scan.group_of(member).map_or(!member.is_orphan(), record::holds_volumes))
    }
}

/// Which disks of the machine are blank, for a message.
async fn blank_disks(host: &dyn Host, scan: &Scan) -> Result<String, SetupError> {
    let mut blank = Vec::new();
    for disk in host.disks().await? {
        let readable = scan.unreadable.iter().all(|(path, _)| *path != disk.path);
        let local = disk.source == Source::Local;
        let candidate = readable && local && !disk.partitioned && !disk.read_only;
        if candidate && matches!(fs::probe(host, &disk.path).await, Ok(Probe::Blank)) {
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
