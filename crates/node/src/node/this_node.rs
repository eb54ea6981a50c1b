//! This node: its pools, and what its process remembers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use tokio::sync::watch;

use crate::host::{DeviceNumber, Host, Mount};
use crate::lvm::NamedDisks;
use crate::mount::MountTable;
use crate::node::copies::Copies;
use crate::node::found::FoundVolume;
use crate::node::lv_tags::StoredState;
use crate::node::outcomes::Outcomes;
use crate::node::pools::{Pool, default_pool, served};
use crate::node::refused_disks::RefusedDisks;
use crate::node::sends::Sends;
use crate::node::transfers::Peers;
use crate::node::trimming::Trimming;
use crate::node::{NewDisk, NodeSettings, formats, wipe};
use crate::volume::{Class, FsUsage, PoolName, State, VolumeError, VolumeId, VolumeKey};

/// This node: its pools, and the volumes in them.
pub struct Node {
    pub(super) settings: NodeSettings,
    pub(super) host: Arc<dyn Host>,
    /// As the plans of now have them; whoever works on a pool keeps the one that it began with.
    pub(super) pools: RwLock<Arc<[Arc<Pool>]>>,
    /// Taken while they are changed.
    pub(super) setting: tokio::sync::Mutex<()>,
    pub(super) wipes: wipe::Wipes,
    pub(super) copies: Copies,
    pub(super) sends: Sends,
    /// The way to other nodes, if there is one.
    pub(super) peers: OnceLock<Arc<dyn Peers>>,
    pub(super) formats: formats::Formats,
    /// How the growths of file systems ended since the start, by volume.
    pub(super) growths: Mutex<HashMap<VolumeKey, LastGrowth>>,
    pub(super) outcomes: Outcomes,
    /// How full the file systems were that answered when they were asked last.
    pub(super) usages: Mutex<BTreeMap<VolumeId, FsUsage>>,
    pub(super) trimming: Trimming,
    pub(super) refused_disks: RefusedDisks,
    /// Tells those who keep thin pools large enough that a group, or a thin pool, has come.
    pub(super) thin_news: watch::Sender<()>,
}

/// How the last growth of a volume's file system ended.
#[derive(Debug)]
pub(super) enum LastGrowth {
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
    /// Ends all waits for a wipe or a copy, since the process is about to exit: the callers get the progress
    /// so far.
    pub fn leave(&self) {
        self.wipes.leave();
        self.copies.leave();
    }

    /// The pools as they are set up now.
    pub(super) fn pools(&self) -> Arc<[Arc<Pool>]> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn replace_pools(&self, pools: Arc<[Arc<Pool>]>) {
        *self.pools.write().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    /// The pool that has the group of this name.
    pub(super) fn holder(&self, group: &str) -> Option<PoolName> {
        self.pools().iter().find(|pool| pool.has(group)).map(|pool| pool.name.clone())
    }

    /// The pool that a class asks for: the one it names, else the [default](default_pool).
    pub(super) fn pool_of(&self, class: &Class) -> Result<Arc<Pool>, VolumeError> {
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
    pub(super) async fn named(&self, disks: &[NewDisk]) -> NamedDisks {
        let mut named = BTreeSet::new();
        for disk in disks {
            named.extend(self.host.real_path(&disk.path).await.ok().flatten());
        }
        Arc::new(named)
    }

    /// The mounts of a device that workloads see: not those of ours for growing.
    pub(super) fn shown<'a>(&self, table: &'a MountTable, device: DeviceNumber) -> Vec<&'a Mount> {
        let private = self.settings.private_mounts();
        table.of(device).filter(|mount| !mount.target.starts_with(&private)).collect()
    }

    /// Makes all changes of all volume groups durable.
    pub(super) async fn flush_all(&self) -> Result<(), VolumeError> {
        for (_, group) in served(&self.pools()) {
            group.flush().await?;
        }
        Ok(())
    }

    pub(super) fn growths(&self) -> MutexGuard<'_, HashMap<VolumeKey, LastGrowth>> {
        self.growths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_growth(&self, key: &VolumeKey, growth: LastGrowth) {
        self.growths().insert(key.clone(), growth);
    }

    /// Why the file system is smaller than its device, if it was left so.
    pub(super) fn waits_to_grow(&self, key: &VolumeKey) -> Option<String> {
        match self.growths().get(key) {
            Some(LastGrowth::Waits(reason)) => Some(reason.clone()),
            Some(LastGrowth::Done) | None => None,
        }
    }

    pub(super) fn forget(&self, key: &VolumeKey) {
        self.growths().remove(key);
    }

    pub(super) fn state(&self, found: &FoundVolume) -> State {
        let key = found.record.id.key();
        match found.record.life {
            StoredState::New if self.wipes.runs(key) => State::Creating,
            StoredState::Copying => State::Creating,
            StoredState::Deleting => State::Deleting {
                wiped: self
                    .wipes
                    .progress(key)
                    .unwrap_or_default()
                    .max(found.record.wiped.unwrap_or_default()),
            },
            StoredState::Shown if self.wipes.runs(key) => State::Resizing,
            _ if found.has_snapshot() || found.is_shrinking() => State::Resizing,
            StoredState::New | StoredState::Restored | StoredState::Shown => {
                match self.growths().get(key) {
                    Some(LastGrowth::Done) => State::Resized,
                    Some(LastGrowth::Waits(_)) | None => State::Ready,
                }
            }
        }
    }
}
