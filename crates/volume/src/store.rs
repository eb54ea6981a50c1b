//! Providers of volumes, and the operations on them.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::{
    Class, ClassError, Fence, FsKind, Inspection, Mode, NewVolume, PoolName, RequestedSize,
    Snapshots, Volume, VolumeCondition, VolumeError, VolumeId, VolumeStatus,
};

/// A growth that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// The wanted size.
    pub size: RequestedSize,
    /// True if the caller expects a raw block volume, false for a file system; `None` if it did not
    /// set it.
    pub block: Option<bool>,
}

/// The outcome of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grown {
    /// The real size now.
    pub size: Bytes,
    /// True if the node still has to expand the file system.
    pub node_expansion_required: bool,
}

/// Query for the available capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityQuery {
    /// Parameters of the class; without a pool: the one in which a volume would be created.
    pub class: Class,
    /// Volume mode, if the caller or the class sets it.
    pub mode: Option<Mode>,
    /// The node; `None`: any.
    pub node: Option<String>,
}

impl CapacityQuery {
    /// Creates the query of a caller that only knows the class. If the class has a file system
    /// type, the query is for volumes with it: a capacity below its minimum size is of no use to
    /// claims of the class.
    ///
    /// # Errors
    /// [`ClassError`], as [`Class::parse`] has it.
    pub fn of_class(
        parameters: &BTreeMap<String, String>,
        default: FsKind,
    ) -> Result<CapacityQuery, ClassError> {
        let class = Class::parse(parameters, None, default)?;
        let mode = Class::named_in(parameters).map(Mode::Filesystem);
        Ok(CapacityQuery { class, mode, node: None })
    }
}

/// Available capacity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// All free extents of usable groups, and blank standby disks, as they would count after joining.
    pub free: Bytes,
    /// The largest single volume that would succeed now.
    pub largest: Bytes,
    /// The smallest volume that is made: one extent, or what the file system needs.
    pub smallest: Bytes,
}

/// The part of a list that is asked for.
///
/// A list goes on behind an id, so that a page stays right when volumes come and go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The last id of the page before.
    pub after: Option<VolumeId>,
    /// Maximum number of entries.
    pub most: Option<usize>,
    /// True if healthy volumes are left out.
    pub only_ailing: bool,
}

/// One page of a list, in the order of the ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The volumes.
    pub volumes: Vec<VolumeStatus>,
    /// The value of [`after`](Page::after) for the next page; `None` on the last one.
    pub next: Option<VolumeId>,
}

impl Page {
    /// Cut the page out of all volumes, which come in the order of their ids.
    pub fn cut(&self, all: Vec<VolumeStatus>) -> Listing {
        let asked = |one: &VolumeStatus| {
            self.after.as_ref().is_none_or(|after| one.volume.id > *after)
                && !(self.only_ailing && one.ailments.is_empty())
        };
        let mut volumes: Vec<VolumeStatus> = all.into_iter().filter(asked).collect();
        let most = self.most.unwrap_or(usize::MAX);
        let more = volumes.len() > most;
        volumes.truncate(most);
        let last = volumes.last().filter(|_| more);
        Listing { next: last.map(|last| last.volume.id.clone()), volumes }
    }
}

/// A pool as it was at its last reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSummary {
    /// Name of the pool.
    pub name: PoolName,
    /// All extents of its groups.
    pub size: Bytes,
    /// Free extents of the groups that can be changed.
    pub free: Bytes,
    /// The largest linear volume that could be made, standby disks not counted.
    pub largest: Bytes,
    /// True if all of its volume groups were read and none hangs.
    pub available: bool,
    /// Time since the oldest last reading of its volume groups; `None`: one was never read.
    pub last_reading: Option<Duration>,
}

/// One unhealthy condition of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolAilment {
    /// The pool.
    pub pool: PoolName,
    /// The condition.
    pub ailment: VolumeCondition,
    /// True if the pool cannot be reached at all.
    pub unreachable: bool,
}

/// Creates, expands, shrinks, deletes and reports volumes: on this host, or anywhere in a cluster.
///
/// An operation that changes something runs to its end even if its caller leaves. So an
/// implementation bounds its own waits: with [`VolumeError::InProgress`] if a retry joins the
/// operation, with [`VolumeError::Unavailable`] if there is no response.
///
/// # Errors
/// [`VolumeError`]; its variants define what a caller can do.
#[async_trait]
pub trait Volumes: Snapshots {
    /// Creates the volume with at least the wanted size, wiped and ready; a repeated call changes nothing
    /// and returns the same volume.
    async fn ensure(&self, want: &NewVolume) -> Result<Volume, VolumeError>;

    /// Deletes the volume and makes its bytes unreadable; success if it does not exist.
    async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError>;

    /// Expands the volume, and its file system where that can be done here. At or beyond the size
    /// it does nothing, and the result does not depend on the number of calls. For a volume on
    /// another host, [`find`](Volumes::find) may return the previous size for a moment.
    async fn grow(&self, id: &VolumeId, growth: Growth) -> Result<Grown, VolumeError>;

    /// Shrinks the volume and its file system to a size, rounded up to whole extents, and allows
    /// growth beyond that only after [`release`](Volumes::release); returns the real size. At or
    /// below the size it does nothing.
    ///
    /// Kubernetes gives a claim a smaller size in several steps; an expansion to the previous size,
    /// requested between two of them, would undo the shrink.
    async fn shrink(&self, id: &VolumeId, to: Bytes) -> Result<Bytes, VolumeError>;

    /// Allows a volume to grow again that was shrunk. A repeated call changes nothing.
    async fn release(&self, id: &VolumeId) -> Result<(), VolumeError>;

    /// Records, durably, which use of the volume is allowed. A repeated call changes nothing.
    /// Current users of the volume are not disturbed.
    ///
    /// It is [`VolumeError::PreconditionFailed`] if the recorded fence [is not replaced](Fence::replaces) by
    /// this one.
    async fn fence(&self, id: &VolumeId, fence: Fence) -> Result<(), VolumeError>;

    /// Reads the volume now, and not its last reported state; `None` only if it really does not
    /// exist.
    async fn inspect(&self, id: &VolumeId) -> Result<Option<Inspection>, VolumeError>;

    /// Finds one volume; `None` only if it really is gone.
    async fn find(&self, id: &VolumeId) -> Result<Option<VolumeStatus>, VolumeError>;

    /// Lists volumes in the order of their ids.
    async fn list(&self, page: &Page) -> Result<Listing, VolumeError>;

    /// Returns the available capacity.
    async fn capacity(&self, query: &CapacityQuery) -> Result<Capacity, VolumeError>;
}
