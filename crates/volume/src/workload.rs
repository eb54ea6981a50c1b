//! Staging and publishing of volumes on a node: the requests, and the statistics.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::{FsKind, Growth, PoolAilment, VolumeCondition, VolumeError, VolumeId, VolumeStatus};

/// Volumes of one host as its workloads use them.
///
/// Each call brings about what it says and may be repeated; one that is under way when its caller leaves runs to its end.
///
/// # Errors
/// [`VolumeError`]; its variants define what a caller can do.
#[async_trait]
pub trait NodeVolumes: Send + Sync + 'static {
    /// Activates the volume; formats it if it is new; mounts it at its staging path, grown to its device.
    async fn stage(&self, stage: &Stage) -> Result<(), VolumeError>;

    /// Undoes the staging; success if the volume is not staged there.
    async fn unstage(&self, id: &VolumeId, staging: &Path) -> Result<(), VolumeError>;

    /// Shows a staged volume to a workload.
    async fn publish(&self, publish: &Publish) -> Result<(), VolumeError>;

    /// Undoes the publishing; success if the volume is not published there.
    async fn unpublish(&self, id: &VolumeId, target: &Path) -> Result<(), VolumeError>;

    /// Grows the file system at this path to its volume; returns the real size.
    async fn expand(
        &self,
        id: &VolumeId,
        path: &Path,
        growth: Option<Growth>,
    ) -> Result<Bytes, VolumeError>;

    /// Reads the usage of the volume at this path.
    async fn stats(&self, id: &VolumeId, path: &Path) -> Result<Stats, VolumeError>;

    /// Returns the unhealthy conditions of a volume; none if it is healthy.
    async fn volume_health(&self, id: &VolumeId) -> Result<Vec<VolumeCondition>, VolumeError>;

    /// Returns the unhealthy conditions of the pools; none if they are healthy.
    async fn storage_health(&self) -> Vec<PoolAilment>;

    /// Returns the information about the host, from memory.
    fn info(&self) -> NodeInfo;
}

/// Information about the node, from memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's name.
    pub name: String,
    /// Maximum number of volumes; 0: the caller decides.
    pub max_volumes_per_node: u32,
}

/// A volume to be staged: activated, formatted once, mounted, grown to its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The volume.
    pub id: VolumeId,
    /// The directory to mount a file system at; block volumes need no more than activation.
    pub staging: PathBuf,
    /// Requested access; `Mount` carries the file system type that the request names, if any.
    pub access: Access,
    /// True if the workload only reads: nothing is formatted or grown. Of a file system that was
    /// not unmounted, the kernel still replays the journal.
    pub read_only: bool,
}

/// Access that a workload requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The raw block volume.
    Block,
    /// A mounted file system.
    Mount {
        /// The file system that the request names; `None`: the one that the volume has.
        fs: Option<FsKind>,
        /// Mount options from the allow-list.
        options: Vec<String>,
    },
}

/// A staged volume to be shown to one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// The volume.
    pub id: VolumeId,
    /// Staging path.
    pub staging: PathBuf,
    /// Target path, created here: a directory, or a file for a raw block volume.
    pub target: PathBuf,
    /// Requested access.
    pub access: Access,
    /// True if this workload may only read.
    pub read_only: bool,
    /// True if no second target may be published at the same time (SINGLE_NODE_SINGLE_WRITER).
    pub alone: bool,
}

/// Usage and health of a published volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Size of the device; the only value of a raw block volume.
    pub size: Bytes,
    /// Usage of the mounted file system; `None` for a raw block volume.
    pub usage: Option<FsUsage>,
    /// Unhealthy conditions.
    pub ailments: Vec<VolumeCondition>,
}

/// State of a volume when its node read it.
///
/// The fence at that time shows which change came before the reading: nothing that this fence
/// excludes has begun to use the volume since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The volume and how it is.
    pub status: VolumeStatus,
    /// Open count of its device, in any mount namespace: a mounted file system counts as one. 0:
    /// nothing can write to it.
    pub open_count: u32,
    /// Usage of its file system; `None` if that is not mounted, or cannot be read.
    pub usage: Option<FsUsage>,
    /// The smallest size that its file system could have; `None` if only a program could determine
    /// it.
    pub smallest: Option<Bytes>,
}

/// Usage of a mounted file system, as `statfs(2)` answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsUsage {
    /// Bytes that files can have in all.
    pub total: Bytes,
    /// Bytes that files have.
    pub used: Bytes,
    /// Bytes that an ordinary user can still write.
    pub available: Bytes,
    /// Inodes; 0 where they are not counted (btrfs).
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
}
