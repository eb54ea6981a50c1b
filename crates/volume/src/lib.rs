//! The domain types: what a volume is, the operations on it, and their results.
//!
//! Both providers of volumes (a node, and a whole cluster) use these types, and so does the
//! protocol above them. A value in here cannot be invalid: each is parsed once, at the edge.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

pub mod bytes;
mod class;
mod error;
pub mod error_chain;
mod fence;
mod id;
pub mod in_flight;
mod kind;
mod messages;
mod mkfs;
mod mount_options;
pub mod panics;
mod snapshot;
mod store;
mod thin;
mod trim;
mod workload;

pub use class::{Class, ClassError, Safety, Wipe};
pub use error::{Reason, VolumeError};
pub use fence::{Fence, Standing, Use};
pub use id::{ForeignId, NodeKey, PoolName, VolumeId, VolumeKey};
pub use kind::{FsKind, Layout, Mode, Shrinks};
pub use messages::{either, few, nearest};
pub use mkfs::MkfsOptions;
pub use mount_options::parse_mount_options;
pub use snapshot::{
    NewSnapshot, Snapshot, SnapshotId, SnapshotListing, SnapshotPage, Snapshots, Source,
};
pub use store::{
    Capacity, CapacityQuery, Grown, Growth, Listing, Page, PoolAilment, PoolSummary, Volumes,
};
pub use thin::{Discards, Part, Terms, ThinSettings, WhenFull, percent_of};
pub use trim::TrimInterval;
pub use workload::{Access, FsUsage, Inspection, NodeInfo, NodeVolumes, Publish, Stage, Stats};

/// The name of the driver, as StorageClasses and PersistentVolumes spell it.
pub const DRIVER: &str = "lvm.csi.pliant.io";

/// The topology key whose value is the node that holds a volume.
pub const TOPOLOGY: &str = "topology.lvm.csi.pliant.io/node";

/// A wanted size: at least this, and at most that if a limit was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedSize {
    /// The real size will not be below.
    pub at_least: Bytes,
    /// The real size will not be above.
    pub at_most: Option<Bytes>,
}

impl RequestedSize {
    /// Returns whether a volume of this size satisfies the request.
    pub fn admits(self, size: Bytes) -> bool {
        size >= self.at_least && self.at_most.is_none_or(|limit| size <= limit)
    }
}

impl fmt::Display for RequestedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at least {}", self.at_least.get())?;
        if let Some(limit) = self.at_most {
            write!(f, " and at most {}", limit.get())?;
        }
        write!(f, " bytes")
    }
}

/// A volume to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// The caller's name for it, 1 to 128 characters of any script.
    pub name: String,
    /// Requested size; [`RequestedSize::at_least`] is the default size if the caller set none.
    pub size: RequestedSize,
    /// Volume mode, and file system type.
    pub mode: Mode,
    /// Parameters of the class.
    pub class: Class,
    /// The nodes that it may be made on, the preferred ones first; empty: any.
    pub nodes: Vec<String>,
    /// What it begins with; `None`: it is empty.
    pub source: Option<Source>,
}

impl NewVolume {
    /// The key of its name.
    pub fn key(&self) -> VolumeKey {
        VolumeKey::of(&self.name)
    }
}

/// State of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its extents are allocated but not yet wiped; it must not be used.
    Creating,
    /// In use or ready for it; the file system covers the device, as far as it is known.
    Ready,
    /// The logical volume has its new size, the file system follows.
    Resizing,
    /// A growth has ended since the driver started.
    Resized,
    /// It is being wiped before it is removed.
    Deleting {
        /// Wiped so far.
        wiped: Bytes,
    },
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Creating => "creating",
            State::Ready => "ready",
            State::Resizing => "resizing",
            State::Resized => "resized",
            State::Deleting { .. } => "deleting",
        })
    }
}

/// One thing that is wrong with a volume or a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeCondition {
    /// Severity of the condition.
    pub severity: Severity,
    /// CamelCase, for machines.
    pub reason: &'static str,
    /// A sentence: what, where, the commands to run.
    pub message: String,
}

impl VolumeCondition {
    /// All reasons.
    pub const REASONS: [&'static str; 14] = [
        "DiskMissing",
        "DiskNotTrusted",
        "FilesystemErrors",
        "FilesystemReadOnly",
        "FilesystemResizePending",
        "VolumeGroupNotChangeable",
        "VolumeGroupUnavailable",
        "PoolNotConfigured",
        "PoolIncomplete",
        "ThinPoolDamaged",
        "ThinPoolMetadataNearlyFull",
        "ThinPoolNearlyFull",
        "VolumeSuspended",
        "VolumeUnreadable",
    ];

    /// Returns the reason that an object names; `Unknown` for one that only a newer version has.
    pub fn reason_of(word: &str) -> &'static str {
        VolumeCondition::REASONS.into_iter().find(|reason| *reason == word).unwrap_or("Unknown")
    }
}

/// Severity of an [`VolumeCondition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Usable, not as it should be.
    Degraded,
    /// Not usable now.
    Inaccessible,
    /// Data is known or suspected to be lost.
    DataLoss,
}

/// A volume as it was made, or has grown since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Id of the volume.
    pub id: VolumeId,
    /// The name that its creator gave.
    pub name: String,
    /// Pool of the volume.
    pub pool: PoolName,
    /// The node that holds it.
    pub node: String,
    /// Real size: whole extents.
    pub size: Bytes,
    /// The size that was asked for when it was made.
    pub requested: Bytes,
    /// Volume mode, and file system type.
    pub mode: Mode,
}

/// A volume and how it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatus {
    /// The volume.
    pub volume: Volume,
    /// State of the volume.
    pub state: State,
    /// True if a workload has it mounted or open on its node.
    pub published: bool,
    /// Allowed use of the volume.
    pub fence: Fence,
    /// The size beyond which it does not grow, while it is shrunk.
    pub limit: Option<Bytes>,
    /// Unhealthy conditions; empty for a healthy volume.
    pub ailments: Vec<VolumeCondition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requested_size_has_a_lower_bound_and_may_have_an_upper_one() {
        let of = |at_most: Option<u64>| RequestedSize {
            at_least: Bytes::new(5),
            at_most: at_most.map(Bytes::new),
        };
        let admitted = |size: RequestedSize| [4, 5, 9, 10].map(|it| size.admits(Bytes::new(it)));
        assert_eq!(admitted(of(None)), [false, true, true, true]);
        assert_eq!(admitted(of(Some(9))), [false, true, true, false]);
        assert_eq!(of(None).to_string(), "at least 5 bytes");
        assert_eq!(of(Some(9)).to_string(), "at least 5 and at most 9 bytes");
    }

    #[test]
    fn each_state_has_its_word() {
        let all = [State::Creating, State::Ready, State::Resizing, State::Resized];
        assert_eq!(all.map(|it| it.to_string()), ["creating", "ready", "resizing", "resized"]);
        assert_eq!(State::Deleting { wiped: Bytes::ZERO }.to_string(), "deleting");
    }

    #[test]
    fn a_reason_of_a_newer_version_is_unknown() {
        let known = VolumeCondition::REASONS.map(VolumeCondition::reason_of);
        assert_eq!(known, VolumeCondition::REASONS);
        assert_eq!(VolumeCondition::reason_of("DiskOnFire"), "Unknown");
    }
}
