//! Who has volumes, and what can be asked of them.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::volume::{
    Ailment, Class, ClassError, Fence, FsKind, Inspection, Mode, NewVolume, PoolName, Volume,
    VolumeError, VolumeId, VolumeStatus, Wanted,
};

/// A growth that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// The wanted size.
    pub size: Wanted,
    /// What the caller believes the workload sees, if it said so.
    pub block: Option<bool>,
}

/// The outcome of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grown {
    /// The real size now.
    pub size: Bytes,
    /// Whether the file system still has to be grown by the node.
    pub node_expansion_required: bool,
}

/// Whose capacity is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityQuery {
    /// What the class asks for; without a pool: the one that a volume would be made in.
    pub class: Class,
    /// What the workload would see, if the caller or the class says so.
    pub mode: Option<Mode>,
    /// The node; `None`: any.
    pub node: Option<String>,
}

impl CapacityQuery {
    /// What a caller asks that knows of the class only. One that names a file system is asked about for
    /// volumes with it: what is too small for those takes no claim of the class.
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

/// What can still be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// All free extents of usable groups, and blank spare disks, as they would count after joining.
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
    /// How many at most.
    pub most: Option<usize>,
    /// Whether healthy volumes are left out.
    pub only_ailing: bool,
}

/// One page of a list, in the order of the ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The volumes.
    pub volumes: Vec<VolumeStatus>,
    /// What the next page comes [`after`](Page::after); `None` on the last one.
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
    /// Its name.
    pub name: PoolName,
    /// All extents of its groups.
    pub size: Bytes,
    /// Free extents of the groups that can be changed.
    pub free: Bytes,
    /// The largest linear volume that could be made, spare disks not counted.
    pub largest: Bytes,
    /// Whether all of its groups were read and none hangs.
    pub available: bool,
    /// How long ago the group that was not read for longest was read; `None`: one never was.
    pub last_reading: Option<Duration>,
}

/// How a pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolAilment {
    /// The pool.
    pub pool: PoolName,
    /// What is wrong.
    pub ailment: Ailment,
    /// Whether the pool cannot be reached at all.
    pub unreachable: bool,
}

/// Makes, grows, shrinks, removes and tells of volumes: on this machine, or wherever in a cluster.
///
/// A changing verb runs to its end even if its caller leaves, so whoever implements it bounds its own
/// waits: with [`VolumeError::InProgress`] where asking again joins the work, with
/// [`VolumeError::Unavailable`] where nobody answers.
///
/// # Errors
/// [`VolumeError`]; its variants say what a caller can do.
#[async_trait]
pub trait Volumes: Send + Sync + 'static {
    /// Make the volume exist with at least the wanted size, wiped and ready; again changes nothing
    /// and returns the same volume.
    async fn ensure(&self, want: &NewVolume) -> Result<Volume, VolumeError>;

    /// Make the volume gone, its bytes unreadable; already gone is success.
    async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError>;

    /// Grow the volume, and its file system where that can be done here; at or beyond the size
    /// already is success, and the answer does not depend on how often it is asked. Of a volume on
    /// another machine [`find`](Volumes::find) may tell the size of before for a moment.
    async fn grow(&self, id: &VolumeId, growth: Growth) -> Result<Grown, VolumeError>;

    /// Shrink the volume and its file system to a size, rounded up to whole extents, and let it grow
    /// beyond that only after [`release`](Volumes::release); the real size. At or below it already is
    /// success.
    ///
    /// Kubernetes tells a claim of a smaller size in several steps; a growth to the size of before, asked
    /// for between two of them, would undo the shrink.
    async fn shrink(&self, id: &VolumeId, to: Bytes) -> Result<Bytes, VolumeError>;

    /// Let a volume grow again that was shrunk; again changes nothing.
    async fn release(&self, id: &VolumeId) -> Result<(), VolumeError>;

    /// Say, durably, who may use the volume; again changes nothing. Who has it in use already is not
    /// disturbed.
    ///
    /// It is [`VolumeError::PreconditionFailed`] if what was said before [does not give way](Fence::replaces).
    async fn fence(&self, id: &VolumeId, fence: Fence) -> Result<(), VolumeError>;

    /// Look at the volume now, not at what was told of it last; `None` only if it really is gone.
    async fn inspect(&self, id: &VolumeId) -> Result<Option<Inspection>, VolumeError>;

    /// Find one volume; `None` only if it really is gone.
    async fn find(&self, id: &VolumeId) -> Result<Option<VolumeStatus>, VolumeError>;

    /// List volumes in the order of their ids.
    async fn list(&self, page: &Page) -> Result<Listing, VolumeError>;

    /// Say what could be made.
    async fn capacity(&self, query: &CapacityQuery) -> Result<Capacity, VolumeError>;
}
