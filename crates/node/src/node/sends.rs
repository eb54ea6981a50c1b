//! What other nodes may read of this one: each permit is for one volume of another node, and for the key of that node's
//! plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{RwLock, watch};

use crate::bytes::Bytes;
use crate::host::{HeldDevice, Host};
use crate::node::error::failed;
use crate::node::rate::RateLimit;
use crate::volume::{Source, VolumeError, VolumeId, VolumeKey};

/// What another node may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendPermit {
    /// The volume of the other node that receives it.
    pub target: VolumeId,
    /// What it gets.
    pub source: Source,
    /// Fingerprint of the certificate of the other node's plugin.
    pub peer: String,
}

/// What is ready to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sendable {
    /// Size of the content.
    pub size: Bytes,
    /// True if there is none: the source was never shown to a workload.
    pub is_empty: bool,
}

/// All that may be read.
#[derive(Debug, Default)]
pub(super) struct Sends {
    permits: Mutex<BTreeMap<VolumeKey, Allowed>>,
    /// Told when they have changed.
    pub news: watch::Sender<()>,
    /// `group/name` of what was read for permits that have ended, until it is deactivated.
    unread: Mutex<BTreeSet<String>>,
    /// Taken while cuts are made and removed, and devices opened.
    pub turn: tokio::sync::Mutex<()>,
}

/// A permit, and what was opened for it.
#[derive(Debug)]
pub(super) struct Allowed {
    pub send: SendPermit,
    /// As long as a connection reads it.
    pub open: Weak<SentDevice>,
    /// `group/name` of what was opened, so that it is deactivated in the end.
    pub path: Option<String>,
}

/// A device that another node reads, until the permission ends.
pub struct SentDevice {
    host: Arc<dyn Host>,
    device: PathBuf,
    /// `group/name` of its logical volume.
    path: String,
    size: Bytes,
    limit: Arc<RateLimit>,
    /// None once the permission has ended.
    held: RwLock<Option<Box<dyn HeldDevice>>>,
}

impl fmt::Debug for SentDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SentDevice").field(&self.path).finish()
    }
}

impl SentDevice {
    /// Size of the content.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Reads past the page cache; short only at the end of the content.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] once it is not allowed any more, and errors of the disk.
    pub async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, VolumeError> {
        let left = usize::try_from(self.size.get().saturating_sub(at)).unwrap_or(usize::MAX);
        let length = length.min(left);
        // Before it is held: whoever ends the permission does not wait for this.
        self.limit.count(u64::try_from(length).unwrap_or(u64::MAX)).await;
        let held = self.held.read().await;
        if held.is_none() {
            return Err(no_more());
        }
        let read = self.host.read_at(&self.device, at, length).await;
        read.map_err(failed(format!("failed to read {}", self.path)))
    }

    /// What was opened at this path.
    pub(super) fn new(
        host: Arc<dyn Host>,
        (device, held): (PathBuf, Box<dyn HeldDevice>),
        path: String,
        size: Bytes,
        limit: Arc<RateLimit>,
    ) -> Self {
        SentDevice { host, device, path, size, limit, held: RwLock::new(Some(held)) }
    }

    /// Waits for reads under way, and lets go of the device.
    pub(super) async fn close(&self) {
        *self.held.write().await = None;
    }
}

/// The error of what is not allowed.
pub(super) fn no_more() -> VolumeError {
    VolumeError::Unavailable { reason: "the volume may not be read any more; retry".to_owned() }
}

impl Sends {
    /// All of them, by the key of the volume that receives.
    pub fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeKey, Allowed>> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be deactivated, by `group/name`.
    pub fn unread(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The permit for a volume.
    pub fn find(&self, target: &VolumeId) -> Option<SendPermit> {
        let all = self.all();
        all.get(target.key()).map(|one| one.send.clone()).filter(|send| send.target == *target)
    }

    /// Returns whether another node has this logical volume open.
    pub fn is_read(&self, path: &str) -> bool {
        let all = self.all();
        all.values().any(|one| one.path.as_deref() == Some(path) && one.open.strong_count() > 0)
    }
}
