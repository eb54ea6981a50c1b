//! What this machine can do with a volume.

use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::host::Usage;
use crate::volume::{Ailment, Growth, Mode, PoolName, Severity, VolumeError, VolumeId};

/// This machine: its pools, and the volumes in them.
#[derive(Debug)]
pub struct Node {}

/// What the node tells the cluster about itself, from memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's name.
    pub name: String,
    /// How many volumes it takes; 0: the caller decides.
    pub max_volumes: u32,
}

/// A volume to be staged: activated, formatted once, mounted, grown to its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The volume.
    pub id: VolumeId,
    /// The directory to mount a file system at; block volumes need no more than activation.
    pub staging: PathBuf,
    /// What the workload sees; `Filesystem` carries the type that the request names, if any.
    pub access: Access,
    /// Whether nothing may be written: no format, no growth, no log replay.
    pub read_only: bool,
}

/// What the workload asks to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The raw device.
    Block,
    /// A mounted file system.
    Mount {
        /// The file system that the request names; `None`: the one that the volume has.
        fs: Option<crate::volume::FsKind>,
        /// Mount options from the allow-list.
        options: Vec<String>,
    },
}

/// A staged volume to be shown to one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// The volume.
    pub id: VolumeId,
    /// Where it was staged.
    pub staging: PathBuf,
    /// Where the workload sees it: made here, a directory or a file for a device.
    pub target: PathBuf,
    /// What it sees.
    pub access: Access,
    /// Whether this workload may only read.
    pub read_only: bool,
    /// Whether no second target may be published at the same time (SINGLE_NODE_SINGLE_WRITER).
    pub alone: bool,
}

/// How full a published volume is, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The device's size; the only figure of a block volume.
    pub size: Bytes,
    /// Of the mounted file system; `None` for a block volume.
    pub usage: Option<Usage>,
    /// What is wrong with it.
    pub ailments: Vec<Ailment>,
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

impl Node {
    /// What the node tells about itself, from memory.
    pub fn info(&self) -> NodeInfo {
        todo!()
    }

    /// Make the volume usable at its staging path; again changes nothing.
    pub async fn stage(&self, _stage: &Stage) -> Result<(), VolumeError> {
        todo!()
    }

    /// Undo [`Node::stage`]; not staged, or no such volume, is success.
    pub async fn unstage(
        &self,
        _id: &VolumeId,
        _staging: &std::path::Path,
    ) -> Result<(), VolumeError> {
        todo!()
    }

    /// Show a staged volume at the target; again changes nothing.
    pub async fn publish(&self, _publish: &Publish) -> Result<(), VolumeError> {
        todo!()
    }

    /// Undo [`Node::publish`] and remove the target; not published is success.
    pub async fn unpublish(
        &self,
        _id: &VolumeId,
        _target: &std::path::Path,
    ) -> Result<(), VolumeError> {
        todo!()
    }

    /// Say how full the volume at `path` is; starts no process.
    pub async fn stats(
        &self,
        _id: &VolumeId,
        _path: &std::path::Path,
    ) -> Result<Stats, VolumeError> {
        todo!()
    }

    /// Grow the file system at `path` to its device, and the device if it is still too small;
    /// returns the device's size.
    pub async fn expand(
        &self,
        _id: &VolumeId,
        _path: &std::path::Path,
        _growth: Option<Growth>,
    ) -> Result<Bytes, VolumeError> {
        todo!()
    }

    /// Say what is wrong with a volume as seen from here.
    pub async fn volume_health(&self, _id: &VolumeId) -> Result<Vec<Ailment>, VolumeError> {
        todo!()
    }

    /// Say what is wrong with the pools.
    pub async fn storage_health(&self) -> Vec<PoolAilment> {
        let _ = Severity::Degraded;
        let _ = Mode::Block;
        todo!()
    }
}
