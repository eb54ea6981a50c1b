//! The storage of a node, for a status. The names are those of the NodeStorage object.

use crate::bytes::Bytes;
use crate::volume::{Layout, PoolName, VolumeId};

/// Reason of a pool or a volume group with which nothing is wrong.
pub const HEALTHY: &str = "Healthy";

/// Reason of a pool that has no volume group yet.
pub const NO_VOLUME_GROUP: &str = "NoVolumeGroup";

/// Reason of a pool of which a disk is not initialized, because it is not blank.
pub const DISK_REJECTED: &str = "DiskRejected";

/// The storage of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// All extents of all pools.
    pub size: Bytes,
    /// Free extents of all pools.
    pub free: Bytes,
    /// Number of volumes.
    pub volumes: usize,
    /// The worst of the pools; at most degraded while one of them can be used.
    pub health: PoolHealth,
    /// The pools.
    pub pools: Vec<PoolReport>,
    /// Volume groups of the pools.
    pub groups: Vec<GroupReport>,
    /// The disks of the groups, and those that the plans name.
    pub disks: Vec<DiskReport>,
    /// Long operations that are running.
    pub operations: Vec<OperationReport>,
}

/// Health of a pool or volume group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolHealth {
    /// Healthy.
    #[default]
    Ok,
    /// Usable, not as it should be.
    Degraded,
    /// Not usable now.
    Unavailable,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReport {
    /// Name of the pool.
    pub name: PoolName,
    /// True if a plan names it; one that none names is retained while it has volumes.
    pub configured: bool,
    /// True if new volumes of classes that name no pool are created in it.
    pub default: bool,
    /// All extents of its groups.
    pub size: Bytes,
    /// Free extents of its groups that can be changed, the reserve among them.
    pub free: Bytes,
    /// The largest volume that can be made now, by layout; standby disks count, the reserve does not.
    pub largest: Vec<LargestVolume>,
    /// Size of an extent, the smallest of its groups; nothing without one.
    pub extent: Bytes,
    /// Number of volumes.
    pub volumes: usize,
    /// Health of the pool.
    pub health: PoolHealth,
    /// The worst that is wrong, in a word for programs; [`HEALTHY`] if nothing is.
    pub reason: &'static str,
    /// What is wrong, with the commands to run.
    pub message: Option<String>,
    /// Actions that would be done if its plan allowed to initialise disks, in order.
    pub plan: Vec<String>,
    /// What was rejected, with the reason and the commands to run.
    pub refused: Vec<String>,
}

/// The largest volume of one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargestVolume {
    /// The layout.
    pub layout: Layout,
    /// The largest volume.
    pub size: Bytes,
}

/// A volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReport {
    /// Name of the volume group.
    pub name: String,
    /// Pool of the volume group.
    pub pool: PoolName,
    /// All extents.
    pub size: Bytes,
    /// Free extents.
    pub free: Bytes,
    /// Its thin pool, if it has one.
    pub thin_pool: Option<ThinPoolReport>,
    /// Health of the volume group.
    pub health: PoolHealth,
    /// As [`PoolReport::reason`].
    pub reason: &'static str,
    /// What is wrong, with the commands to run.
    pub message: Option<String>,
}

/// The thin pool of a volume group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinPoolReport {
    /// Size of its data.
    pub size: Bytes,
    /// The most that its data may become, as the volume group is now.
    pub maximum: Bytes,
    /// Size of its metadata.
    pub metadata_size: Bytes,
    /// The most that its metadata may become, as the volume group is now.
    pub metadata_maximum: Bytes,
    /// The sizes of all volumes and snapshots in it together.
    pub provisioned: Bytes,
    /// The most that these may add up to.
    pub maximum_provisioned: Bytes,
    /// What is in use; `None` while it is inactive.
    pub now: Option<ThinUse>,
    /// The same in steps of a percent, so that what is published by it does not change with each write.
    pub steady: Option<ThinUse>,
}

/// What of a thin pool is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThinUse {
    /// Of its data.
    pub data: Bytes,
    /// Of its metadata, to the nearest block below.
    pub metadata: Bytes,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskReport {
    /// Path as its pool names it, else the kernel's; for a missing disk that no pool names, the id
    /// of its physical volume.
    pub device: String,
    /// Size, if the disk is present.
    pub size: Option<Bytes>,
    /// The group that it belongs to.
    pub group: Option<String>,
    /// State of the disk in the pools.
    pub state: DiskUse,
    /// Why it is rejected or missing, and the commands to run; for a standby disk what is wiped
    /// when it is used.
    pub message: Option<String>,
}

/// State of a disk in the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskUse {
    /// In a group.
    Used,
    /// Free, and waits to join a group or to become one.
    Standby,
    /// Named by a pool, and not to be taken.
    Refused,
    /// Known to a group or a pool, and not there.
    Missing,
}

/// A long operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationReport {
    /// The volume.
    pub volume: VolumeId,
    /// Type of the operation.
    pub r#type: OperationKind,
    /// Progress, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    pub progress: String,
}

/// Type of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// The extents of a deleted volume are erased.
    Wipe,
    /// The volume gets the content of its source, or its snapshot that of the volume.
    Copy,
}
