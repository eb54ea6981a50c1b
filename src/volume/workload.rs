//! What a node shows to workloads: what it is asked, and what it tells of it.

use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::volume::{Ailment, FsKind, VolumeId, VolumeStatus};

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
    /// Whether the workload only reads: nothing is formatted or grown. Of a file system that was not
    /// unmounted, the kernel still replays the journal.
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

/// How a volume was when its node looked at it.
///
/// The fence that it had then tells which one the look came after: nobody whom that keeps out has begun
/// to use the volume since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The volume and how it is.
    pub status: VolumeStatus,
    /// How often its device is open, by whomever and in whatever mount namespace: a mounted file system
    /// counts as one. 0: nobody can write to it.
    pub open_count: u32,
    /// Of its file system; `None` if that is not mounted, or cannot be asked.
    pub usage: Option<Usage>,
    /// The smallest size that its file system could have; `None` if only a program could tell.
    pub smallest: Option<Bytes>,
}

/// How full a mounted file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
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
