//! Transfers between nodes: what this one knows of the others. The connections are made elsewhere, with keys that are
//! known nowhere here.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::bytes::Bytes;
use crate::host::{Host, HostError};
use crate::node::rate::RateLimit;
use crate::volume::{VolumeError, VolumeId};

/// Where a node plugin answers others, and how they know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    /// Host and port.
    pub address: String,
    /// SHA-256 of its certificate, as `sha256:` and 64 hexadecimal digits.
    pub fingerprint: String,
}

/// The way to the node plugins of other nodes.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Where this node plugin answers others.
    fn own(&self) -> PeerAddress;

    /// The content that another node plugin lets this one read for a volume of this node.
    fn content(&self, from: &PeerAddress, target: &VolumeId) -> Arc<dyn RemoteContent>;
}

/// The content of a volume or a snapshot of another node.
#[async_trait]
pub trait RemoteContent: fmt::Debug + Send + Sync {
    /// Makes the beginning of the device this content, durably, and compares what can be read back. With `resumes` some of
    /// it may be there already.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if it did not come to its end, or the device does not have the content then. A repeated
    /// call goes on. [`Reason::NotFound`](crate::volume::Reason) if the other node plugin does not have it any more.
    async fn receive(
        &self,
        size: Bytes,
        resumes: bool,
        into: Arc<ReceivingDevice>,
    ) -> Result<(), VolumeError>;
}

/// What a volume of this node begins with, on another node.
#[derive(Debug, Clone)]
pub struct RemoteSource {
    /// The content.
    pub content: Arc<dyn RemoteContent>,
    /// Its size.
    pub size: Bytes,
    /// True if there is none: the source was never shown to a workload.
    pub is_empty: bool,
}

/// The device of a volume that receives its content.
#[derive(Debug)]
pub struct ReceivingDevice {
    pub(super) host: Arc<dyn Host>,
    pub(super) device: PathBuf,
    /// True if it may have zeroes without a block that is written: writing them would take space.
    pub(super) is_thin: bool,
    pub(super) limit: Arc<RateLimit>,
    /// Counts what was received, and what was compared.
    pub(super) done: Arc<AtomicU64>,
    pub(super) stop: CancellationToken,
}

impl ReceivingDevice {
    /// Reads from it past the page cache; short only at its end.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, HostError> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        self.wait_for(range.end - range.start).await;
        self.host.read_at(&self.device, range.start, length).await
    }

    /// Writes to it.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn write(&self, at: u64, bytes: Vec<u8>) -> Result<(), HostError> {
        self.wait_for(u64::try_from(bytes.len()).unwrap_or(u64::MAX)).await;
        self.host.write_blocks(&self.device, at, bytes).await
    }

    /// Makes a part of it zeroes.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn write_zeroes(&self, range: Range<u64>) -> Result<(), HostError> {
        if self.is_thin && self.host.is_zero(&self.device, range.clone()).await? {
            return Ok(());
        }
        self.host.write_zeroes(&self.device, range).await
    }

    /// Makes all of it durable.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn flush(&self) -> Result<(), HostError> {
        self.host.flush(&self.device).await
    }

    /// Waits until so much may be read or written, unless it is to stop.
    async fn wait_for(&self, bytes: u64) {
        self.stop.run_until_cancelled(self.limit.count(bytes)).await;
    }

    /// Counts bytes that were received, or compared.
    pub fn count(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits until it is stopped.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Returns whether it was stopped: its volume is being deleted.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }
}
