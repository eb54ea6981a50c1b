//! Set the node up at its start: find or make its groups, heal what a crash left, go on with wipes.

use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use crate::causes;
use crate::host::{Host, HostError};
use crate::lvm::{Group, LvmError, Scan, Turn, VolumeGroup, scan, tags, undo_torn_commits};
use crate::mount::MountTable;
use crate::node::disks::{NewDisk, SetupError};
use crate::node::find::Found;
use crate::node::grow::Outcomes;
use crate::node::pools::Pool;
use crate::node::record::{self, Stage};
use crate::node::{Node, NodeSettings, wipe};
use crate::volume::PoolName;

/// What a pool is to be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan {
    /// Its name.
    pub name: PoolName,
    /// Where its groups come from.
    pub groups: Vec<GroupSource>,
    /// Disks that join a group when one is needed.
    pub spares: Vec<NewDisk>,
}

impl PoolPlan {
    /// Whether the plan speaks of this group on this disk.
    fn names(&self, group: &Group, disk: &Path) -> bool {
        self.groups.iter().any(|source| match source {
            GroupSource::Existing(name) => *name == group.name,
            GroupSource::Create(ours) => ours.path == disk,
        })
    }
}

/// Where a group of a pool comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupSource {
    /// It exists.
    Existing(String),
    /// It is made on this disk, once.
    Create(NewDisk),
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
            let error = causes::in_full(error);
            tracing::warn!(disk = %disk.display(), error, "the disk could not be read");
        }
        let mut pools = Vec::new();
        for plan in plans {
            pools.push(Arc::new(set_up(&host, &settings, plan, &scan).await));
        }
        let wipes = wipe::Wipes::new(host.clone(), settings.wipe_rate, settings.wipe_patience);
        let (growths, outcomes) = (Mutex::default(), Outcomes::default());
        let node = Arc::new(Node { settings, host, pools, wipes, growths, outcomes });
        node.unmount_private_mounts().await;
        for pool in &node.pools {
            for group in &pool.groups {
                if let Err(error) = node.recover(pool, group).await {
                    let error = causes::in_full(&error);
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
                tracing::warn!(
                    error = causes::in_full(&error),
                    "a private mount of an earlier run stays"
                );
            }
        }
    }

    /// Remove the directories at which a growth that was cut short had mounted volumes of a group.
    async fn remove_private_mount_points(&self, seen: &Group) {
        let private = self.settings.private_mounts();
        if let Ok(None) = self.host.path_kind(&private).await {
            return;
        }
        for (_, record) in record::volumes(seen) {
            let left = private.join(record.id.key().as_str());
            if let Err(error) = self.host.remove_path(&left).await {
                tracing::warn!(%error, "a directory of an earlier run stays");
            }
        }
    }

    /// Heal the groups on which an LVM command has died alone: a volume that it left suspended would
    /// hold up its workload, and an answer that nothing is left to do would be no help.
    pub(super) async fn heal_what_died(&self) {
        for group in self.groups() {
            if group.note_cut(false) {
                // To its end, also if the caller leaves: half-way something could stay suspended.
                let _ = tokio::spawn(heal_after_death(group.clone())).await;
            }
        }
    }

    /// Bring the kernel in line with the metadata, and go on with the wipes of deleted volumes.
    async fn recover(&self, pool: &Arc<Pool>, group: &Arc<VolumeGroup>) -> Result<(), LvmError> {
        let turn = group.turn().await?;
        let seen = heal(&turn).await?;
        for (_, record) in record::volumes(&seen) {
            // A growth that was cut short begins anew when it is asked for again.
            let more = record::more_name(record.id.key());
            if seen.lvs.contains_key(&more) {
                turn.remove(&more).await?;
            }
        }
        drop(turn);
        self.remove_private_mount_points(&seen).await;
        for (lv, record) in record::volumes(&seen).filter(|(_, r)| r.stage == Stage::Deleting) {
            let (pool, group, seen) = (pool.clone(), group.clone(), seen.clone());
            let found = Found { pool, group, seen, lv: lv.clone(), record };
            match self.last_wipe(&found).await {
                Ok(task) => self.wipes.start(task),
                Err(error) => {
                    let error = causes::in_full(&error);
                    tracing::warn!(lv = found.lv.name, error, "its wipe waits");
                }
            }
        }
        Ok(())
    }
}

async fn heal_after_death(group: Arc<VolumeGroup>) {
    let healed = async { heal(&group.turn().await?).await };
    if let Err(error) = healed.await {
        group.note_cut(true);
        let error = causes::in_full(&error);
        tracing::error!(group = group.name(), error, "the group could not be healed");
    }
}

/// Bring all disks of a group to the same state, and the kernel in line with it.
async fn heal(turn: &Turn) -> Result<Arc<Group>, LvmError> {
    turn.level().await?;
    let seen = turn.read().await?;
    turn.heal_all(record::healable(&seen)).await?;
    Ok(seen)
}

async fn set_up(
    host: &Arc<dyn Host>,
    settings: &NodeSettings,
    plan: PoolPlan,
    scan: &Scan,
) -> Pool {
    let mut pool = Pool { name: plan.name, groups: Vec::new(), spares: plan.spares, trouble: None };
    for source in plan.groups {
        let made = match source {
            GroupSource::Existing(name) => {
                let group = VolumeGroup::new(host.clone(), &name);
                if let Err(error) = group.accept(scan) {
                    tracing::error!(pool = %pool.name, error = causes::in_full(&error), "a group is away");
                }
                Ok(group)
            }
            GroupSource::Create(disk) => {
                ensure_group(host, settings, &pool.name, &disk, scan).await
            }
        };
        match made {
            Ok(group) => pool.groups.push(group),
            Err(error) => {
                let words = causes::in_full(&error);
                tracing::error!(pool = %pool.name, error = words, "the pool lacks a group");
                pool.trouble = Some(words);
            }
        }
    }
    pool
}

/// Find the group that was made for this pool on this disk, or make it on a free disk.
async fn ensure_group(
    host: &Arc<dyn Host>,
    settings: &NodeSettings,
    pool: &PoolName,
    disk: &NewDisk,
    scan: &Scan,
) -> Result<Arc<VolumeGroup>, SetupError> {
    let group = scan.on(&disk.path).and_then(|member| member.group.as_ref());
    let ours = |group: &&Group| tags::value(&group.tags, "pool").as_deref() == Some(pool.as_str());
    if let Some(group) = group.filter(ours) {
        let group = VolumeGroup::new(host.clone(), &group.name);
        group.accept(scan)?;
        return Ok(group);
    }
    disk.must_be_of_use(host.as_ref(), scan).await?;
    disk.make_free(host.as_ref(), scan).await?;
    let name = group_name(settings, pool, &disk.path);
    tracing::info!(%pool, disk = %disk.path.display(), group = name, "making a volume group");
    let group = VolumeGroup::new(host.clone(), &name);
    group.turn().await?.create_group(&disk.path, &[tags::tag("pool", pool.as_str())]).await?;
    group.flush().await?;
    Ok(group)
}

/// `pliant-<pool>-<6 letters of a digest>`: the same for the same node, pool and disk.
fn group_name(settings: &NodeSettings, pool: &PoolName, disk: &Path) -> String {
    let seed = format!("{}|{pool}|{}", settings.name, disk.display());
    let hash = Sha256::digest(seed.as_bytes());
    format!("pliant-{pool}-{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2])
}
