//! The operations of this node on volumes: create, grow, shrink, publish to a workload, delete.
//!
//! The state of a volume is in the tags of its logical volume ([`lv_tags`]); nothing is stored
//! elsewhere. So each call reads, acts and reads again, and an interrupted call is finished by the
//! next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::host::{DeviceNumber, Holder, Host, Mount};
use crate::lvm::NamedDisks;
use crate::mount::MountTable;
use crate::volume::{
    Capacity, CapacityQuery, Class, Fence, FsUsage, Grown, Growth, Inspection, Listing, NewVolume,
    NodeInfo, NodeVolumes, Page, PoolAilment, PoolName, Publish, Stage, State, Stats, Volume,
    VolumeCondition, VolumeError, VolumeId, VolumeKey, VolumeStatus, Volumes, few,
};

mod create;
mod decommission;
mod disks;
mod error;
mod fence;
mod find;
mod formats;
mod found;
mod free_space;
mod grow;
mod inspect;
pub mod lv_tags;
mod outcomes;
mod pool_plan;
mod pool_setup;
mod pools;
mod publish;
mod refused_disks;
mod remove;
mod report;
mod resize_offline;
mod settings;
mod setup;
mod shrink;
mod stage;
mod standby;
mod stats;
pub mod storage;
mod survey;
mod usages;
mod wipe;

use error::failed;
use found::{FoundVolume, device_node};
use outcomes::Outcomes;
use pools::{Pool, default_pool, served};
use refused_disks::RefusedDisks;

pub use disks::{NewDisk, SetupError};
pub use pool_plan::{GroupSource, PoolPlan};
pub use settings::NodeSettings;

/// This node: its pools, and the volumes in them.
pub struct Node {
    settings: NodeSettings,
    host: Arc<dyn Host>,
    /// As the plans of now have them; whoever works on a pool keeps the one that it began with.
    pools: RwLock<Arc<[Arc<Pool>]>>,
    /// Taken while they are changed.
    setting: tokio::sync::Mutex<()>,
    wipes: wipe::Wipes,
    formats: formats::Formats,
    /// How the growths of file systems ended since the start, by volume.
    growths: Mutex<HashMap<VolumeKey, LastGrowth>>,
    outcomes: Outcomes,
    /// How full the file systems were that answered when they were asked last.
    usages: Mutex<BTreeMap<VolumeId, FsUsage>>,
    refused_disks: RefusedDisks,
}

/// How the last growth of a volume's file system ended.
#[derive(Debug)]
enum LastGrowth {
    /// It fills its device; told as the state `resized`.
    Done,
    /// It is used as it is, for this reason.
    Waits(String),
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Node {
    /// Ends all waits for a wipe, since the process is about to exit: the callers get the progress
    /// so far.
    pub fn leave(&self) {
        self.wipes.leave();
    }

    /// The pools as they are set up now.
    fn pools(&self) -> Arc<[Arc<Pool>]> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace_pools(&self, pools: Arc<[Arc<Pool>]>) {
        *self.pools.write().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    /// The pool that has the group of this name.
    fn holder(&self, group: &str) -> Option<PoolName> {
        self.pools().iter().find(|pool| pool.has(group)).map(|pool| pool.name.clone())
    }

    /// The pool that a class asks for: the one it names, else the [default](default_pool).
    fn pool_of(&self, class: &Class) -> Result<Arc<Pool>, VolumeError> {
        let pools = self.pools();
        let mut configured = pools.iter().filter(|pool| pool.configured);
        let found = match &class.pool {
            Some(name) => configured.find(|pool| pool.name == *name),
            None => default_pool(&pools),
        };
        found.cloned().ok_or_else(|| VolumeError::InvalidArgument {
            field: "class parameter pool".to_owned(),
            reason: match &class.pool {
                Some(name) => {
                    let all = pools.iter().filter(|pool| pool.configured);
                    let known: Vec<&str> = all.map(|pool| pool.name.as_str()).collect();
                    format!("this node has no pool {name}; it has: {}", known.join(", "))
                }
                None => "this node has no pool".to_owned(),
            },
        })
    }

    /// The kernel's names of disks that a plan names and that are here.
    async fn named(&self, disks: &[NewDisk]) -> NamedDisks {
        let mut named = BTreeSet::new();
        for disk in disks {
            named.extend(self.host.real_path(&disk.path).await.ok().flatten());
        }
        Arc::new(named)
    }

    /// The mounts of a device that workloads see: not those of ours for growing.
    fn shown<'a>(&self, table: &'a MountTable, device: DeviceNumber) -> Vec<&'a Mount> {
        let private = self.settings.private_mounts();
        table.of(device).filter(|mount| !mount.target.starts_with(&private)).collect()
    }

    /// # Errors
    /// [`VolumeError::InUse`] with the holders if the volume is open, or mounted elsewhere than at its
    /// staging path.
    async fn refuse_if_held(
        &self,
        found: &FoundVolume,
        staging: Option<&Path>,
    ) -> Result<(), VolumeError> {
        let Some((device, info)) = self.live_device(found).await? else {
            return Ok(());
        };
        let table = MountTable::read(self.host.as_ref()).await;
        let table = table.map_err(failed("failed to read the mount table"))?;
        // All mounts of a file system are one holder of its device.
        let staged = self.shown(&table, info.number).iter().any(|m| Some(&*m.target) == staging);
        let holder = if let Some(elsewhere) = self.mounted_elsewhere(&table, info.number, staging) {
            format!("it is mounted at {elsewhere}; unmount it there")
        } else if info.open_count > u32::from(staged) {
            let device = device.display();
            self.stacked_on(info.number)
                .await?
                .unwrap_or_else(|| format!("a process has {device} open; see `fuser -v {device}`"))
        } else {
            return Ok(());
        };
        Err(VolumeError::InUse { id: found.record.id.to_string(), holder })
    }

    /// Where a device, or its node, is mounted beside its staging path.
    fn mounted_elsewhere(
        &self,
        table: &MountTable,
        device: DeviceNumber,
        staging: Option<&Path>,
    ) -> Option<String> {
        let kernel_name = format!("dm-{}", device.minor);
        let mut elsewhere = self
            .shown(table, device)
            .into_iter()
            .chain(table.of_node(&kernel_name))
            .filter(|mount| Some(mount.target.as_path()) != staging)
            .map(|mount| mount.target.display())
            .peekable();
        elsewhere.peek().is_some().then(|| few(elsewhere))
    }

    /// Name what the kernel has stacked on a device, with the commands that stop it; `None` for nothing.
    ///
    /// No process has such a device open: the host's udev may have made it from what a tenant wrote.
    async fn stacked_on(&self, device: DeviceNumber) -> Result<Option<String>, VolumeError> {
        let above = self.host.holders(device).await;
        let above = above.map_err(failed("failed to read what holds the device"))?;
        let commands: Vec<String> = above.iter().map(Holder::command_to_stop).collect();
        Ok((!above.is_empty()).then(|| {
            format!(
                "{} on the node holds {}; if nothing uses it, run on the node: `{}`",
                few(&above),
                device_node(device).display(),
                commands.join(" && ")
            )
        }))
    }

    /// Makes all changes of all volume groups durable.
    async fn flush_all(&self) -> Result<(), VolumeError> {
        for (_, group) in served(&self.pools()) {
            group.flush().await?;
        }
        Ok(())
    }

    fn growths(&self) -> MutexGuard<'_, HashMap<VolumeKey, LastGrowth>> {
        self.growths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_growth(&self, key: &VolumeKey, growth: LastGrowth) {
        self.growths().insert(key.clone(), growth);
    }

    /// Why the file system is smaller than its device, if it was left so.
    fn waits_to_grow(&self, key: &VolumeKey) -> Option<String> {
        match self.growths().get(key) {
            Some(LastGrowth::Waits(reason)) => Some(reason.clone()),
            Some(LastGrowth::Done) | None => None,
        }
    }

    fn forget(&self, key: &VolumeKey) {
        self.growths().remove(key);
    }

    fn state(&self, found: &FoundVolume) -> State {
        let key = found.record.id.key();
        match found.record.life {
            lv_tags::StoredState::New if self.wipes.runs(key) => State::Creating,
            lv_tags::StoredState::Deleting => State::Deleting {
                wiped: self
                    .wipes
                    .progress(key)
                    .unwrap_or_default()
                    .max(found.record.wiped.unwrap_or_default()),
            },
            lv_tags::StoredState::Shown if self.wipes.runs(key) => State::Resizing,
            _ if found.has_snapshot() || found.is_shrinking() => State::Resizing,
            lv_tags::StoredState::New | lv_tags::StoredState::Shown => {
                match self.growths().get(key) {
                    Some(LastGrowth::Done) => State::Resized,
                    Some(LastGrowth::Waits(_)) | None => State::Ready,
                }
            }
        }
    }
}

#[async_trait]
impl Volumes for Node {
    async fn ensure(&self, want: &NewVolume) -> Result<Volume, VolumeError> {
        Ok(self.volume(&self.ensure_volume(want).await?))
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        self.remove_volume(id).await
    }

    async fn grow(&self, id: &VolumeId, growth: Growth) -> Result<Grown, VolumeError> {
        let grown = self.grow_volume(id, growth).await;
        self.outcomes.count(&grown);
        grown
    }

    async fn shrink(&self, id: &VolumeId, to: Bytes) -> Result<Bytes, VolumeError> {
        self.shrink_volume(id, to).await
    }

    async fn release(&self, id: &VolumeId) -> Result<(), VolumeError> {
        self.release_volume(id).await
    }

    async fn fence(&self, id: &VolumeId, fence: Fence) -> Result<(), VolumeError> {
        self.fence_volume(id, fence).await
    }

    async fn inspect(&self, id: &VolumeId) -> Result<Option<Inspection>, VolumeError> {
        self.inspect_volume(id).await
    }

    async fn find(&self, id: &VolumeId) -> Result<Option<VolumeStatus>, VolumeError> {
        match self.must_find(id).await {
            Ok(found) => Ok(Some(self.describe(&found, &self.look().await?))),
            Err(VolumeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, page: &Page) -> Result<Listing, VolumeError> {
        Ok(page.cut(self.list_volumes().await?))
    }

    async fn capacity(&self, query: &CapacityQuery) -> Result<Capacity, VolumeError> {
        self.capacity_of(query).await
    }
}

#[async_trait]
impl NodeVolumes for Node {
    async fn stage(&self, stage: &Stage) -> Result<(), VolumeError> {
        self.stage_volume(stage).await
    }

    async fn unstage(&self, id: &VolumeId, staging: &Path) -> Result<(), VolumeError> {
        self.unstage_volume(id, staging).await
    }

    async fn publish(&self, publish: &Publish) -> Result<(), VolumeError> {
        self.publish_volume(publish).await
    }

    async fn unpublish(&self, id: &VolumeId, target: &Path) -> Result<(), VolumeError> {
        self.unpublish_volume(id, target).await
    }

    async fn expand(
        &self,
        id: &VolumeId,
        path: &Path,
        growth: Option<Growth>,
    ) -> Result<Bytes, VolumeError> {
        self.expand_volume(id, path, growth).await
    }

    async fn stats(&self, id: &VolumeId, path: &Path) -> Result<Stats, VolumeError> {
        self.stats_of(id, path).await
    }

    async fn volume_health(&self, id: &VolumeId) -> Result<Vec<VolumeCondition>, VolumeError> {
        self.health_of(id).await
    }

    async fn storage_health(&self) -> Vec<PoolAilment> {
        self.health_of_pools().await
    }

    fn info(&self) -> NodeInfo {
        NodeInfo {
            name: self.settings.name.clone(),
            max_volumes_per_node: self.settings.max_volumes_per_node,
        }
    }
}
