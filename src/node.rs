//! The operations of this node on volumes: create, grow, shrink, publish to a workload, delete.
//!
//! The state of a volume is in the tags of its logical volume ([`record`]); nothing is stored
//! elsewhere. So each call reads, acts and reads again, and an interrupted call is finished by the
//! next.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::host::{DeviceNumber, Holder, Host, Mount};
use crate::mount::MountTable;
use crate::volume::{
    Capacity, CapacityQuery, Fence, Grown, Growth, Inspection, Listing, NewVolume, NodeInfo,
    NodeKey, Page, State, Usage, Volume, VolumeError, VolumeId, VolumeKey, VolumeStatus, Volumes,
    few,
};

mod create;
mod disks;
mod error;
mod fence;
mod find;
mod formats;
mod grow;
mod inspect;
mod leave;
mod make;
mod offline;
mod plan;
mod pools;
mod publish;
pub mod record;
mod remove;
mod room;
mod setup;
mod shrink;
mod stage;
mod standby;
mod stats;
pub mod storage;
mod usages;
mod wipe;

use error::failed;
use find::Found;
use plan::served;
use pools::Pool;

pub use disks::{NewDisk, SetupError};
pub use plan::{GroupSource, PoolPlan};

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
    outcomes: grow::Outcomes,
    /// How full the file systems were that answered when they were asked last.
    usages: Mutex<BTreeMap<VolumeId, Usage>>,
    refused_disks: standby::RefusedDisks,
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

/// Settings of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// The node's name.
    pub name: String,
    /// Its short stable hash, derived from the name.
    pub key: NodeKey,
    /// Maximum number of volumes; 0: the caller decides.
    pub max_volumes_per_node: u32,
    /// True if only the node step expands file systems, and not the growth of a volume.
    pub two_step: bool,
    /// True if the caller enforces read-only access to raw block volumes. A read-only bind mount
    /// does not. The kubelet does, by the container's rules for devices.
    pub guarded_devices: bool,
    /// Bytes a second that a wipe may write; `None`: no limit.
    pub wipe_rate: Option<Bytes>,
    /// Time that a call waits for a wipe before it returns an error and its caller retries.
    pub wipe_patience: Duration,
    /// Directory for what does not outlive a reboot.
    pub state_dir: PathBuf,
}

impl NodeSettings {
    /// Directory in which unmounted file systems are mounted while they are resized.
    pub fn private_mounts(&self) -> PathBuf {
        self.state_dir.join("grow")
    }
}

/// The node of a device-mapper device that devtmpfs keeps; never a link that may be stale.
fn device_node(number: DeviceNumber) -> PathBuf {
    PathBuf::from(format!("/dev/dm-{}", number.minor))
}

impl Node {
    /// Returns the information about the node, from memory.
    pub fn info(&self) -> NodeInfo {
        NodeInfo {
            name: self.settings.name.clone(),
            max_volumes_per_node: self.settings.max_volumes_per_node,
        }
    }

    /// Ends all waits for a wipe, since the process is about to exit: the callers get the progress
    /// so far.
    pub fn leave(&self) {
        self.wipes.leave();
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
        found: &Found,
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

    fn state(&self, found: &Found) -> State {
        let key = found.record.id.key();
        match found.record.life {
            record::Life::New if self.wipes.runs(key) => State::Creating,
            record::Life::Deleting => State::Deleting {
                wiped: self
                    .wipes
                    .progress(key)
                    .unwrap_or_default()
                    .max(found.record.wiped.unwrap_or_default()),
            },
            record::Life::Shown if self.wipes.runs(key) => State::Resizing,
            _ if found.has_snapshot() || found.is_shrinking() => State::Resizing,
            record::Life::New | record::Life::Shown => match self.growths().get(key) {
                Some(LastGrowth::Done) => State::Resized,
                Some(LastGrowth::Waits(_)) | None => State::Ready,
            },
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
