//! Disks that may become part of a group. The only way from a disk to a physical volume, and it
//! begins with doubt.

use std::path::{Path, PathBuf};

use crate::bytes::Bytes;
use crate::fs::{self, FsError, Probe};
use crate::host::{Cmd, Disk, DiskBacking, Host, HostError, PathKind};
use crate::lvm::{EXTENT, Group, LvmError, Scan, before_extents, without_label};
use crate::mount::MountTable;
use crate::node::lv_tags::{self, OtherNode};
use crate::panics::{Panicked, caught};
use crate::volume::{PoolName, few};

/// Where the disk is mounted from which a host runs; the files are those that a container runtime mounts into each pod.
const OF_HOST: [&str; 10] = [
    "/",
    "/boot",
    "/boot/efi",
    "/home",
    "/usr",
    "/var",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/dev/termination-log",
];

/// A disk that the administrator gave to a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDisk {
    /// The disk.
    pub path: PathBuf,
    /// True if the administrator allows wiping it, which destroys its content.
    pub wipe: bool,
}

/// Reason why a disk could not become part of a volume group.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The disk is not blank, so nothing was done to it.
    #[error("{disk} is not blank, it carries {found}; nothing was changed: {take_group}use another \
             disk, or allow wiping this one, which destroys its content (`--allow-wipe-disk \
             {disk}`, or `wipeExisting: true` for it in a StoragePool)", disk = disk.display())]
    NotBlank {
        /// The disk.
        disk: PathBuf,
        /// Content of the disk.
        found: String,
        /// How to use the volume group on it as it is; empty without one.
        take_group: String,
    },
    /// The disk is in use, so nothing was done to it.
    #[error("{} is in use: {holder}; nothing was changed", disk.display())]
    InUse {
        /// The disk.
        disk: PathBuf,
        /// The user of the disk, and the commands to run.
        holder: String,
    },
    /// The host has no such disk.
    #[error("disk {} does not exist; {blank}; see `lsblk`", disk.display())]
    Missing {
        /// The disk.
        disk: PathBuf,
        /// The blank disks of the host, for people.
        blank: String,
    },
    /// The disk holds a group's metadata and nothing else.
    #[error("{} has {size}, but a volume group needs a disk of at least {smallest} to hold a \
             volume; nothing was changed: use a larger disk", disk.display())]
    TooSmall {
        /// The disk.
        disk: PathBuf,
        /// Size of the disk.
        size: Bytes,
        /// The smallest that is of use.
        smallest: Bytes,
    },
    /// The disk carries a group that a pool has, so nothing was done to it.
    #[error("{} carries volume group {group}, which belongs to pool {pool}; nothing was changed: \
             use another disk, or remove the volume group from that pool first", disk.display())]
    Taken {
        /// The disk.
        disk: PathBuf,
        /// The group on it.
        group: String,
        /// The pool that has it.
        pool: PoolName,
    },
    /// Another pool has the group.
    #[error("volume group {group} is already in pool {pool}; name it in only one pool")]
    GroupTaken {
        /// The group.
        group: String,
        /// The pool that has it.
        pool: PoolName,
    },
    /// Another node has the group.
    #[error(
        "volume group {group} belongs to node {node}, and this is node {here}; nothing was \
         changed: use a volume group that only this node has, or, if its disks were moved here \
         permanently and {node} no longer sees them, run `vgchange --addtag pliant.node={here} \
         {group}`{}",
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
    /// The path of the plan is not a disk of the host, so nothing was done to it.
    #[error("{} points to {}, which is not a usable disk but a volume, a device on one, a member \
             of an array, or a loop device over a file that a workload writes; nothing was \
             changed: use a disk, preferably by its link in /dev/disk/by-id", disk.display(), device.display())]
    NoDisk {
        /// Path as it was named.
        disk: PathBuf,
        /// Device to which the path points.
        device: PathBuf,
    },
    /// Several pools name the disk, so nothing was done to it.
    #[error("{} is named more than once, by pool {pools}; nothing was changed: name it once", disk.display())]
    NamedTwice {
        /// The disk.
        disk: PathBuf,
        /// The pools that name it, in words.
        pools: String,
    },
    /// Volumes of this driver are on the disk or may be, so nothing was done to it.
    #[error("{} carries {found}, and volumes of this driver may be on it; nothing was changed, \
             although wiping is allowed: see `pvs` and `pvck {}`, or write zeroes over its first \
             MiB if nothing on it is needed", disk.display(), disk.display())]
    MayHoldVolumes {
        /// The disk.
        disk: PathBuf,
        /// Content of the disk.
        found: String,
    },
    /// The disk could not be looked at.
    #[error("failed to inspect {}", disk.display())]
    Unreadable {
        /// The disk.
        disk: PathBuf,
        /// Cause.
        source: FsError,
    },
    /// The disk is free, and LVM would not let it join the group.
    #[error("{} does not fit volume group {group}: {reason}", disk.display())]
    Misfit {
        /// The disk.
        disk: PathBuf,
        /// The group.
        group: String,
        /// Reason, and what to do.
        reason: String,
    },
    /// LVM did not let the disk join a group that needed it, and the disk has not changed since.
    #[error("{} is free, but failed to join a volume group that needed it: {why}", disk.display())]
    NotTaken {
        /// The disk.
        disk: PathBuf,
        /// LVM's message.
        why: String,
    },
    /// The driver panicked; the log has the place.
    #[error("{what} was not changed: {panicked}; report this with the log")]
    Fault {
        /// The disk or the group.
        what: String,
        /// The panic message.
        panicked: Panicked,
    },
    /// A program failed.
    #[error("`{command}` failed: {words}")]
    Program {
        /// The command as one would type it.
        command: String,
        /// The program's own message.
        words: String,
    },
    /// LVM failed.
    #[error(transparent)]
    Lvm(#[from] LvmError),
    /// A call to the host failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// How to remove what says that another node has a group; nothing where only its volumes say so.
fn untag(node: &OtherNode) -> String {
    match node {
        OtherNode::Named(name) => format!(" together with `--deltag pliant.node={name}`"),
        OtherNode::Keyed(_) => String::new(),
        OtherNode::Unreadable => {
            " together with `--deltag` for each other tag that begins with pliant.node= (`vgs \
             --options vg_name,vg_tags` lists them)"
                .to_owned()
        }
    }
}

/// A disk that is here, by the name under which the kernel lists it: no link moves that to another
/// disk between a look and a change.
#[derive(Debug)]
pub(super) struct Located<'a> {
    /// The disk as the administrator named it.
    pub disk: &'a NewDisk,
    /// The kernel's name.
    pub device: PathBuf,
}

/// Reason why a disk cannot become part of a volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It carries this content.
    Carries(String),
    /// It has no content, but the kernel has claimed it for something else.
    Claimed,
}

impl NewDisk {
    /// Does the work on this disk alone; a panic becomes an error for the disk.
    ///
    /// # Errors
    /// The error of the work, or [`SetupError::Fault`].
    pub(super) async fn alone<T>(
        &self,
        work: impl Future<Output = Result<T, SetupError>>,
    ) -> Result<T, SetupError> {
        caught("disks", work).await.unwrap_or_else(|panicked| {
            Err(SetupError::Fault { what: self.path.display().to_string(), panicked })
        })
    }

    /// Finds the disk, also behind a link.
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

    /// Returns what prevents the disk from becoming part of a volume group; `None` if it is free.
    ///
    /// A disk is free if two independent checks find no content, or if it has only the label of a
    /// physical volume without a volume group, as an interrupted `vgcreate` or `vgextend` leaves
    /// it. And the kernel must not have claimed it for anything else.
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

    /// Returns what has to be wiped before the disk is free, and may be; `None` if it is free.
    /// Changes nothing.
    ///
    /// # Errors
    /// [`SetupError::NotBlank`] if it may not be wiped. A disk that may have volumes of this driver
    /// is never wiped, even if that is allowed: [`SetupError::MayHoldVolumes`].
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
                    "use the volume group (`--pool NAME={name}`, or `volumeGroups: [{name}]` in a \
                     StoragePool), "
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
            "another device is stacked on it, or a part of it is mounted; see `lsblk {}`",
            disk.display()
        );
        SetupError::InUse { disk, holder }
    }

    /// Frees the disk, if it is blank or may be wiped.
    ///
    /// # Errors
    /// As [`Located::to_wipe`].
    pub async fn make_free(&self, host: &dyn Host, scan: &Scan) -> Result<(), SetupError> {
        match self.to_wipe(host, scan).await? {
            Some(found) => self.wipe(host, &found).await,
            None => Ok(()),
        }
    }

    /// Wipes what [`Located::to_wipe`] has found.
    pub async fn wipe(&self, host: &dyn Host, found: &str) -> Result<(), SetupError> {
        let device = &self.device;
        tracing::warn!(disk = %device.display(), found, "wiping a disk that may be wiped");
        // Without force: what was mounted or made active meanwhile is refused by the kernel.
        run(host, Cmd::new("wipefs").arg("-a").arg(device)).await?;
        let end = host.device_size(device).await?.min(Bytes::mib(1));
        host.write_zeroes(device, 0..end.get()).await?;
        host.flush(device).await?;
        Ok(())
    }

    /// Where the disk is mounted and the commands to run; `None` if that is nowhere in sight.
    async fn mounted(&self, host: &dyn Host) -> Result<Option<String>, SetupError> {
        let Some(PathKind::Block(number)) = host.path_kind(&self.device).await? else {
            return Ok(None);
        };
        let table = MountTable::read(host).await?;
        let targets: Vec<_> = table.of(number).map(|mount| mount.target.display()).collect();
        let is_of_host = table
            .of(number)
            .any(|mount| OF_HOST.iter().any(|path| mount.target == Path::new(path)));
        Ok(targets.first().map(|first| {
            let all = few(&targets);
            if is_of_host {
                return format!(
                    "it is mounted at {all}: the node itself uses it, so choose another disk"
                );
            }
            format!("it is mounted at {all}; run `umount {first}` if it is not needed")
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

    /// Returns whether its metadata, or that of another disk of its group, tells of volumes of this driver, or
    /// can not be read. The permission to wipe it was given before they were made.
    async fn may_hold_volumes(&self, host: &dyn Host, scan: &Scan) -> Result<bool, SetupError> {
        let Some(member) = scan.on(&self.device) else {
            let group = without_label(host, &self.device).await?;
            return Ok(group.as_ref().is_some_and(lv_tags::holds_volumes));
        };
        Ok(scan.group_of(member).map_or(!member.is_orphan(), lv_tags::holds_volumes))
    }
}

/// Which disks of the host are blank, for a message.
async fn blank_disks(host: &dyn Host, scan: &Scan) -> Result<String, SetupError> {
    let mut blank = Vec::new();
    for disk in host.disks().await? {
        let readable = scan.unreadable.iter().all(|(path, _)| *path != disk.path);
        let local = disk.source == DiskBacking::Local;
        let candidate = readable && local && !disk.partitioned && !disk.read_only;
        if candidate && matches!(fs::probe(host, &disk.path).await, Ok(Probe::Blank)) {
            blank.push(disk.path.display().to_string());
        }
    }
    if blank.is_empty() {
        return Ok("this node has no blank disk".to_owned());
    }
    Ok(format!("blank disks: {}", few(blank)))
}

async fn run(host: &dyn Host, cmd: Cmd) -> Result<String, SetupError> {
    let command = cmd.to_string();
    let output = host.run(cmd).await?;
    match output.code {
        0 => Ok(output.stdout),
        _ => Err(SetupError::Program { command, words: output.stderr }),
    }
}
