//! Set the node up at its start: find or make its groups, heal what a crash left, go on with wipes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use crate::fs::{self, FsError, Probe};
use crate::host::{Cmd, Host, HostError};
use crate::lvm::{Group, LvmError, Scan, VolumeGroup, scan, tags, undo_torn_commits};
use crate::mount::MountTable;
use crate::node::pools::Pool;
use crate::node::record::{self, Stage};
use crate::node::{Found, Node, NodeSettings, error, wipe};
use crate::volume::PoolName;

/// What a pool is to be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan {
    /// Its name.
    pub name: PoolName,
    /// Where its groups come from.
    pub groups: Vec<GroupSource>,
    /// Disks that join a group when one is needed.
    pub spares: Vec<PathBuf>,
}

impl PoolPlan {
    /// Whether the plan speaks of this group on this disk.
    fn names(&self, group: &Group, disk: &Path) -> bool {
        self.groups.iter().any(|source| match source {
            GroupSource::Existing(name) => *name == group.name,
            GroupSource::Create { disk: ours, .. } => ours == disk,
        })
    }
}

/// Where a group of a pool comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupSource {
    /// It exists.
    Existing(String),
    /// It is made on this disk, once.
    Create {
        /// The disk.
        disk: PathBuf,
        /// Whether the administrator named this disk as one that may be wiped.
        wipe: bool,
    },
}

/// Why a pool could not be set up. The driver starts all the same; the pool is unavailable.
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
    #[error("{} could not be looked at: {source}", disk.display())]
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
    #[error("{}", error::chain(.0))]
    Lvm(#[from] LvmError),
    /// The machine failed a call.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Node {
    /// Set up the pools and heal what an earlier run left.
    ///
    /// A pool whose group is away or whose disk is not blank is there and unavailable: one bad disk
    /// must not keep the driver from serving the others.
    ///
    /// # Errors
    /// [`HostError`] if the disks of the machine cannot be listed at all.
    pub async fn start(
        host: Arc<dyn Host>,
        settings: NodeSettings,
        plans: Vec<PoolPlan>,
    ) -> Result<Arc<Node>, HostError> {
        let scan = scan(&host).await?;
        let ours = |group: &Group, disk: &Path| plans.iter().any(|plan| plan.names(group, disk));
        let scan = undo_torn_commits(&host, scan, &settings.state_dir, ours).await?;
        for (disk, error) in &scan.unreadable {
            tracing::warn!(disk = %disk.display(), %error, "the disk could not be read");
        }
        let mut pools = Vec::new();
        for plan in plans {
            pools.push(Arc::new(set_up(&host, &settings, plan, &scan).await));
        }
        let wipes = wipe::Wipes::new(host.clone(), settings.wipe_rate, settings.wipe_patience);
        let resized = Mutex::default();
        let node = Arc::new(Node { settings, host, pools, wipes, resized });
        node.unmount_private_mounts().await;
        for pool in &node.pools {
            for group in &pool.groups {
                if let Err(error) = node.recover(pool, group).await {
                    let error = error::chain(&error);
                    tracing::error!(group = group.name(), error, "the group could not be healed");
                }
            }
        }
        Ok(node)
    }

    /// What a growth that was cut short left mounted for itself.
    async fn unmount_private_mounts(&self) {
        let private = self.settings.private_mounts();
        let Ok(table) = MountTable::read(self.host.as_ref()).await else {
            return;
        };
        for target in table.below(&private) {
            if let Err(error) = self.host.unmount(&target).await {
                tracing::warn!(%error, "a private mount of an earlier run stays");
            }
        }
    }

    /// Bring the kernel in line with the metadata, and go on with the wipes of deleted volumes.
    async fn recover(&self, pool: &Arc<Pool>, group: &Arc<VolumeGroup>) -> Result<(), LvmError> {
        let turn = group.turn().await?;
        turn.remove_orphans().await?;
        let seen = turn.read().await?;
        for (lv, _) in record::volumes(&seen) {
            turn.heal(lv).await?;
        }
        drop(turn);
        for (lv, record) in record::volumes(&seen).filter(|(_, r)| r.stage == Stage::Deleting) {
            let (pool, group, seen) = (pool.clone(), group.clone(), seen.clone());
            let found = Found { pool, group, seen, lv: lv.clone(), record };
            match self.last_wipe(&found).await {
                Ok(task) => self.wipes.start(task),
                Err(error) => tracing::warn!(lv = found.lv.name, %error, "its wipe waits"),
            }
        }
        Ok(())
    }
}

async fn set_up(
    host: &Arc<dyn Host>,
    settings: &NodeSettings,
    plan: PoolPlan,
    scan: &Scan,
) -> Pool {
    let mut pool = Pool { name: plan.name, groups: Vec::new(), spares: plan.spares, trouble: None };
    for source in plan.groups {
        let group = match source {
            GroupSource::Existing(name) => Ok(VolumeGroup::new(host.clone(), &name)),
            GroupSource::Create { disk, wipe } => {
                ensure_group(host, settings, &pool.name, &disk, wipe, scan).await
            }
        };
        match group {
            Ok(group) => pool.groups.push(group),
            Err(error) => {
                tracing::error!(pool = %pool.name, %error, "the pool lacks a group");
                pool.trouble = Some(error.to_string());
            }
        }
    }
    for group in &pool.groups {
        // A group that was just made is not in the scan; reading it looks again.
        if let Err(error) = group.read().await {
            tracing::error!(pool = %pool.name, error = error::chain(&error), "a group is away");
        }
    }
    pool
}

/// Find the group that was made for this pool on this disk, or make it on a blank disk.
async fn ensure_group(
    host: &Arc<dyn Host>,
    settings: &NodeSettings,
    pool: &PoolName,
    disk: &Path,
    wipe: bool,
    scan: &Scan,
) -> Result<Arc<VolumeGroup>, SetupError> {
    let member = scan.on(disk);
    if let Some(group) = member.and_then(|member| member.group.as_ref()) {
        if tags::value(&group.tags, "pool").as_deref() == Some(pool.as_str()) {
            return Ok(VolumeGroup::new(host.clone(), &group.name));
        }
        if !wipe {
            let found = format!("volume group {}", group.name);
            return Err(SetupError::NotBlank { disk: disk.to_owned(), found });
        }
    }
    // A label without a group is what a `vgcreate` that was cut half-way leaves.
    if !member.is_some_and(crate::lvm::Member::is_orphan) {
        must_be_blank(host.as_ref(), disk, wipe).await?;
    }
    let name = group_name(settings, pool, disk);
    tracing::info!(%pool, disk = %disk.display(), group = name, "making a volume group");
    let group = VolumeGroup::new(host.clone(), &name);
    group.turn().await?.create_group(disk, &[tags::tag("pool", pool.as_str())]).await?;
    group.flush().await?;
    Ok(group)
}

/// Two witnesses must find nothing, unless the administrator named the disk as one to wipe.
async fn must_be_blank(host: &dyn Host, disk: &Path, wipe: bool) -> Result<(), SetupError> {
    if wipe {
        run(host, Cmd::new("wipefs").arg("-a").arg("-f").arg(disk)).await?;
        let end = host.device_size(disk).await?.get().min(1 << 20);
        host.write_zeroes(disk, 0..end).await?;
        host.flush(disk).await?;
    }
    let probe = fs::probe(host, disk).await;
    let found = match probe {
        Err(source) => {
            return Err(SetupError::Unreadable { disk: disk.to_owned(), source });
        }
        Ok(Probe::Known(superblock)) => Some(superblock.kind.to_string()),
        Ok(Probe::Foreign(what)) => Some(what),
        Ok(Probe::Blank(_)) => {
            let signatures = run(host, Cmd::new("wipefs").arg("-n").arg(disk)).await?;
            let signatures = signatures.trim();
            (!signatures.is_empty()).then(|| signatures.to_owned())
        }
    };
    match found {
        Some(found) => Err(SetupError::NotBlank { disk: disk.to_owned(), found }),
        None => Ok(()),
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

/// `pliant-<pool>-<6 letters of a digest>`: the same for the same node, pool and disk.
fn group_name(settings: &NodeSettings, pool: &PoolName, disk: &Path) -> String {
    let seed = format!("{}|{pool}|{}", settings.name, disk.display());
    let hash = Sha256::digest(seed.as_bytes());
    format!("pliant-{pool}-{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2])
}
