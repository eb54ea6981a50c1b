//! Errors of operations on volumes. A variant exists because some caller handles it differently;
//! `csi/status.rs` gives each its code.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::PoolName;
use crate::bytes::Bytes;

/// Reason why an operation on a volume did not succeed.
///
/// Each message is for the owner of the claim: what, where, how much, what to do.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is no such volume, and its pools were all looked at.
    #[error("volume {id} does not exist on this node")]
    NotFound {
        /// The id as the caller wrote it.
        id: String,
    },
    /// There is no such snapshot, and its pools were all looked at.
    #[error("snapshot {id} does not exist on this node")]
    SnapshotNotFound {
        /// The id as the caller wrote it.
        id: String,
    },
    /// A volume of that name exists and is not what was asked for.
    #[error("volume {name:?} already exists and differs: {difference}")]
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
        /// What is wrong with it, and what is valid.
        reason: String,
    },
    /// The size cannot be had: below what the file system needs, between two extents, too large.
    #[error("{reason}")]
    SizeOutOfRange {
        /// The sizes and the rule.
        reason: String,
    },
    /// No volume group of the pool has enough free space for a new volume.
    #[error("{}{}", no_room(*.asked, *.free, *.largest, .pool), also(.hindrance.as_deref()))]
    InsufficientCapacity {
        /// The pool that was asked.
        pool: PoolName,
        /// The rounded size that was asked for.
        asked: Bytes,
        /// Free in all groups of the pool.
        free: Bytes,
        /// The largest volume that would succeed now.
        largest: Bytes,
        /// What prevents it besides a lack of free extents, and what to do about it.
        hindrance: Option<String>,
    },
    /// The volume's volume group does not have enough free space for the growth.
    #[error("{}{}", no_room_to_grow(*.asked, *.free, *.largest, .pool), also(.hindrance.as_deref()))]
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
    #[error("the volume may only be on {}, and this is node {here}", asked.join(" or "))]
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
        /// The user of the volume, and how to release it.
        holder: String,
    },
    /// The state of the device forbids it; doing it anyway could lose data.
    #[error("refused: {reason}")]
    PreconditionFailed {
        /// What was found, what was expected, what to do.
        reason: String,
    },
    /// The work goes on; asking again joins it.
    #[error("{what}: in progress, {progress}; retry")]
    InProgress {
        /// The work.
        what: String,
        /// Progress of the operation.
        progress: String,
    },
    /// A disk, a group or a pool cannot be reached now.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// What is unavailable, why, and the commands to run.
        reason: String,
    },
    /// A step failed for a reason that asking differently does not change.
    #[error("{what}")]
    Failed {
        /// The step and its causes.
        what: String,
    },
    /// An error of another node: its reason and its message.
    #[error("{message}")]
    Reported {
        /// Reason of the error.
        reason: Reason,
        /// The sentence.
        message: String,
    },
}

impl VolumeError {
    /// Returns the reason: the variant, or that of the other node.
    pub fn reason(&self) -> Reason {
        match self {
            VolumeError::NotFound { .. } | VolumeError::SnapshotNotFound { .. } => Reason::NotFound,
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

/// A [`VolumeError`] without its message: one word, for objects and events.
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
    hindrance.map_or_else(String::new, |hindrance| format!("; also, {hindrance}"))
}

fn no_room(asked: Bytes, free: Bytes, largest: Bytes, pool: &PoolName) -> String {
    let short = asked.saturating_sub(largest);
    format!(
        "insufficient capacity in pool {pool}: a new volume needs {asked}, {free} is free there and at \
         most {largest} is possible, so {short} is missing; {}delete volumes, or add a disk to the pool",
        a_smaller_one(largest)
    )
}

fn no_room_to_grow(asked: Bytes, free: Bytes, largest: Bytes, pool: &PoolName) -> String {
    let short = asked.saturating_sub(largest);
    format!(
        "insufficient capacity in pool {pool}: this volume needs {asked}, {free} is free in its volume group and \
         at most {largest} is possible, so {short} is missing; {}delete volumes, or add a disk to the volume group",
        a_smaller_one(largest)
    )
}

/// Nothing where none is possible.
fn a_smaller_one(largest: Bytes) -> String {
    if largest == Bytes::ZERO {
        String::new()
    } else {
        format!("request {} or less, ", largest.exact())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What, where, how much, what to do.
    #[test]
    fn a_lack_of_space_has_its_numbers() {
        let pool: PoolName = "fast".parse().unwrap();
        let (asked, free, largest) = (Bytes::gib(8), Bytes::gib(5), Bytes::mib(4076));
        let hindrance = Some("vg1 is not available".to_owned());
        let created = VolumeError::InsufficientCapacity {
            pool: pool.clone(),
            asked,
            free,
            largest,
            hindrance: hindrance.clone(),
        };
        let begin = "insufficient capacity in pool fast: ";
        assert_eq!(
            created.to_string(),
            begin.to_owned()
                + "a new volume needs 8 GiB, 5 GiB is free there and at most 3.98 GiB is possible, so 4.01 GiB is \
                   missing; request 4076Mi or less, delete volumes, or add a disk to the pool; also, vg1 is not \
                   available"
        );
        let none = VolumeError::InsufficientCapacity {
            pool: pool.clone(),
            asked,
            free,
            largest: Bytes::ZERO,
            hindrance: None,
        };
        assert!(
            none.to_string()
                .ends_with("so 8 GiB is missing; delete volumes, or add a disk to the pool"),
            "{none}"
        );
        let grown = |hindrance| VolumeError::ExpansionOutOfRange {
            pool: pool.clone(),
            asked,
            free,
            largest,
            hindrance,
        };
        let words = begin.to_owned()
            + "this volume needs 8 GiB, 5 GiB is free in its volume group and at most 3.98 GiB is possible, so \
               4.01 GiB is missing; request 4076Mi or less, delete volumes, or add a disk to the volume group";
        assert_eq!(grown(None).to_string(), words);
        assert_eq!(grown(hindrance).to_string(), words + "; also, vg1 is not available");
    }

    /// One word, which objects and metrics have.
    #[test]
    fn a_reason_is_the_name_of_its_variant() {
        let error = VolumeError::InUse { id: "x".to_owned(), holder: "y".to_owned() };
        assert_eq!(error.reason().to_string(), "InUse");
        let message = "z".to_owned();
        let reported = VolumeError::Reported { reason: Reason::TopologyMismatch, message };
        assert_eq!(reported.reason().to_string(), "TopologyMismatch");
    }
}
