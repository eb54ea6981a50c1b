//! A device that a pod sends.

use std::num::NonZeroU64;

use super::client::Remote;
use super::message::Job;
use super::prefetch::{PrefetchConnection, RemoteBytes};
use crate::copy::{CopyError, SourceDisk, Sum, Tick};

/// A device that a pod sends.
#[derive(Debug, Clone)]
pub struct RemoteDisk(pub Remote);

impl SourceDisk for RemoteDisk {
    type Bytes = RemoteBytes;

    fn open(&self) -> Result<(Self::Bytes, u64), CopyError> {
        PrefetchConnection::of(&self.0)?.disk()
    }

    fn sum(&self, size: u64, limit: Option<u64>, tick: Tick) -> Result<Sum, CopyError> {
        let limit = limit.and_then(NonZeroU64::new);
        self.0.connect(Job::Sum { size, limit })?.part(tick)
    }

    fn name(&self) -> String {
        format!("the device at {}", self.0.address)
    }
}
