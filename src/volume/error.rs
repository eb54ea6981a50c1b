//! What can be answered instead of an outcome. A variant exists because some caller does something
//! different with it; `csi/status.rs` gives each its code.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::volume::PoolName;

/// Why an operation on a volume did not succeed.
///
/// Each text is a sentence for the person who owns the claim: what, where, how much, what to do.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is no such volume, and its pools were all looked at.
    #[error("there is no volume {id} on this node")]
    NotFound {
        /// The id as the caller wrote it.
        id: String,
    },
    /// A volume of that name exists and is not what was asked for.
    #[error("volume {name:?} exists already and differs: {difference}")]
    AlreadyExists {
        /// The caller's name for it.
        name: String,
        /// What differs, with both values.
        difference: String,
    },
    /// The request can never succeed as it is written.
    #[error("{field}: {reason}")]
    InvalidArgument {
        /// The field, parameter or option.
        field: String,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// The size cannot be had: below what the file system needs, between two extents, too large.
    #[error("{reason}")]
    SizeOutOfRange {
        /// The sizes and the rule.
        reason: String,
    },
    /// No group of the pool has room for a new volume.
    #[error("{}{}", no_room("a new volume", *.asked, *.free, *.largest, .pool), also(.hindrance.as_deref()))]
    InsufficientCapacity {
        /// The pool that was asked.
        pool: PoolName,
        /// The rounded size that was asked for.
        asked: Bytes,
        /// Free in all groups of the pool.
        free: Bytes,
        /// The largest volume that would succeed now.
        largest: Bytes,
        /// What besides free extents is in the way, and what to do about it.
        hindrance: Option<String>,
    },
    /// The volume's group has no room for the growth.
    #[error("{}{}", no_room("this volume", *.asked, *.free, *.largest, .pool), also(.hindrance.as_deref()))]
    ExpansionOutOfRange {
        /// The volume's pool.
        pool: PoolName,
        /// The rounded size that was asked for.
        asked: Bytes,
        /// Free in the volume's group.
        free: Bytes,
        /// The largest size to which it can grow now.
        largest: Bytes,
        /// As for a new volume.
        hindrance: Option<String>,
    },
    /// A new volume is to be reachable only from nodes on which it cannot be made here.
    #[error("the volume may lie on {} only, and this is node {here}", asked.join(" or "))]
    TopologyMismatch {
        /// The nodes of the request.
        asked: Vec<String>,
        /// The node that was asked.
        here: String,
    },
    /// Something holds the volume.
    #[error("volume {id} is in use: {holder}")]
    InUse {
        /// The volume.
        id: String,
        /// Who or what holds it, and how to let go.
        holder: String,
    },
    /// The state of the device forbids it; doing it anyway could lose data.
    #[error("refused: {reason}")]
    PreconditionFailed {
        /// What was seen, what was expected, what to do.
        reason: String,
    },
    /// The work goes on; asking again joins it.
    #[error("{what}: still at work, {progress}; ask again")]
    InProgress {
        /// The work.
        what: String,
        /// How far it is.
        progress: String,
    },
    /// A disk, a group or a pool cannot be reached now.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// Which, why, and what to type.
        reason: String,
    },
    /// A step failed for a reason that asking differently does not change.
    #[error("{what}")]
    Failed {
        /// The step and its causes.
        what: String,
    },
    /// Another node said it: which of the above, and its sentence.
    #[error("{message}")]
    Reported {
        /// Which.
        reason: Reason,
        /// The sentence.
        message: String,
    },
}

impl VolumeError {
    /// Which variant it is, or was where it comes from.
    pub fn reason(&self) -> Reason {
        match self {
            VolumeError::NotFound { .. } => Reason::NotFound,
            VolumeError::AlreadyExists { .. } => Reason::AlreadyExists,
            VolumeError::InvalidArgument { .. } => Reason::InvalidArgument,
            VolumeError::SizeOutOfRange { .. } => Reason::SizeOutOfRange,
            VolumeError::InsufficientCapacity { .. } => Reason::InsufficientCapacity,
            VolumeError::ExpansionOutOfRange { .. } => Reason::ExpansionOutOfRange,
            VolumeError::TopologyMismatch { .. } => Reason::TopologyMismatch,
            VolumeError::InUse { .. } => Reason::InUse,
            VolumeError::PreconditionFailed { .. } => Reason::PreconditionFailed,
            VolumeError::InProgress { .. } => Reason::InProgress,
            VolumeError::Unavailable { .. } => Reason::Unavailable,
            VolumeError::Failed { .. } => Reason::Failed,
            VolumeError::Reported { reason, .. } => *reason,
        }
    }
}

/// A [`VolumeError`] without its sentence: one word, which records keep and events carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // Each is explained where it is a variant of `VolumeError`.
pub enum Reason {
    NotFound,
    AlreadyExists,
    InvalidArgument,
    SizeOutOfRange,
    InsufficientCapacity,
    ExpansionOutOfRange,
    TopologyMismatch,
    InUse,
    PreconditionFailed,
    InProgress,
    Unavailable,
    Failed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

fn also(hindrance: Option<&str>) -> String {
    hindrance.map_or_else(String::new, |hindrance| format!("; besides, {hindrance}"))
}

fn no_room(what: &str, asked: Bytes, free: Bytes, largest: Bytes, pool: &PoolName) -> String {
    let short = asked.saturating_sub(largest);
    format!(
        "no room in pool {pool}: {what} was asked to be {asked}, {free} is free there and at most \
         {largest} is possible, so {short} is missing; ask for {} bytes or less, delete volumes, or \
         add a disk to the pool",
        largest.get()
    )
}
