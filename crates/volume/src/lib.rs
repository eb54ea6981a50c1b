//! The domain types: what a volume is, the operations on it, and their results.
//!
//! Both providers of volumes (a node, and a whole cluster) use these types, and so does the
//! protocol above them. A value in here cannot be invalid: each is parsed once, at the edge.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

pub mod busy;
pub mod bytes;
mod class;
mod error;
pub mod error_chain;
mod fence;
mod id;
mod mkfs;
mod mount_options;
pub mod panics;
mod store;
mod words;
mod workload;

pub use class::{Class, ClassError, Safety, Wipe};
pub use error::{Reason, VolumeError};
pub use fence::{Fence, Standing, Use};
pub use id::{ForeignId, NodeKey, PoolName, VolumeId, VolumeKey};
pub use mkfs::MkfsOptions;
pub use mount_options::parse_mount_options;
pub use store::{
    Capacity, CapacityQuery, Grown, Growth, Listing, Page, PoolAilment, PoolSummary, Volumes,
};
pub use words::{either, few, nearest};
pub use workload::{Access, Inspection, NodeInfo, Publish, Stage, Stats, Usage};

/// The name of the driver, as StorageClasses and PersistentVolumes spell it.
pub const DRIVER: &str = "lvm.csi.pliant.io";

/// The topology key whose value is the node that holds a volume.
pub const TOPOLOGY: &str = "topology.lvm.csi.pliant.io/node";

/// A file system that this driver makes, checks and grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// xfs.
    Xfs,
    /// btrfs on one device.
    Btrfs,
}

/// When a file system can shrink in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shrinks {
    /// Never: what it holds has to be copied to a smaller one.
    Never,
    /// While it is mounted nowhere.
    Unmounted,
    /// While it is mounted, and only then.
    Mounted,
}

impl FsKind {
    /// All of them.
    pub const ALL: [FsKind; 5] =
        [FsKind::Ext2, FsKind::Ext3, FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];

    /// The kernel's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            FsKind::Ext2 => "ext2",
            FsKind::Ext3 => "ext3",
            FsKind::Ext4 => "ext4",
            FsKind::Xfs => "xfs",
            FsKind::Btrfs => "btrfs",
        }
    }

    /// The smallest device on which a file system of this kind is made.
    ///
    /// ext3 and ext4 get no journal below 8 MiB. mkfs.btrfs itself takes 109 MiB, but the kernel
    /// refuses every new size below 256 MiB, so a smaller one could not grow.
    pub const fn smallest(self) -> Bytes {
        match self {
            FsKind::Ext2 => Bytes::mib(2),
            FsKind::Ext3 | FsKind::Ext4 => Bytes::mib(8),
            FsKind::Xfs => Bytes::mib(300),
            FsKind::Btrfs => Bytes::mib(256),
        }
    }

    /// Returns when a file system of this type can shrink.
    pub const fn shrinks(self) -> Shrinks {
        match self {
            FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => Shrinks::Unmounted,
            FsKind::Xfs => Shrinks::Never,
            FsKind::Btrfs => Shrinks::Mounted,
        }
    }

    /// Returns whether it is one of the ext family, which share a superblock and their tools.
    pub const fn is_ext(self) -> bool {
        matches!(self, FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4)
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FsKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        FsKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            format!("`{text}` is not a supported file system: use ext4, xfs, btrfs, ext3 or ext2")
        })
    }
}

/// Volume mode: raw block, or a file system of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// A block device; its content is the tenant's own.
    Block,
    /// A mounted file system.
    Filesystem(FsKind),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Block => f.write_str("block"),
            Mode::Filesystem(kind) => kind.fmt(f),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "block" => Ok(Mode::Block),
            kind => kind.parse().map(Mode::Filesystem),
        }
    }
}

/// Layout of a logical volume on its disks.
///
/// Thin, striped and RAID layouts are further variants; `lvm/layout.rs` has the sizes and the
/// command of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// Extents one after the other.
    #[default]
    Linear,
}

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 1] = [Layout::Linear];

    /// The word of the class parameter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Layout::Linear => "linear",
        }
    }
}

/// A wanted size: at least this, and at most that if a limit was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The real size will not be below.
    pub at_least: Bytes,
    /// The real size will not be above.
    pub at_most: Option<Bytes>,
}

impl Wanted {
    /// Returns whether a volume of this size satisfies the request.
    pub fn admits(self, size: Bytes) -> bool {
        size >= self.at_least && self.at_most.is_none_or(|limit| size <= limit)
    }
}

impl fmt::Display for Wanted {
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
    /// Requested size; [`Wanted::at_least`] is the default size if the caller set none.
    pub size: Wanted,
    /// Volume mode, and file system type.
    pub mode: Mode,
    /// Parameters of the class.
    pub class: Class,
    /// The nodes that it may be made on, the preferred ones first; empty: any.
    pub nodes: Vec<String>,
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
pub struct Ailment {
    /// Severity of the condition.
    pub severity: Severity,
    /// CamelCase, for machines.
    pub reason: &'static str,
    /// A sentence: what, where, the commands to run.
    pub message: String,
}

impl Ailment {
    /// All reasons.
    pub const REASONS: [&'static str; 11] = [
        "DiskMissing",
        "DiskNotTrusted",
        "FilesystemErrors",
        "FilesystemReadOnly",
        "FilesystemResizePending",
        "VolumeGroupNotChangeable",
        "VolumeGroupUnavailable",
        "PoolNotConfigured",
        "PoolIncomplete",
        "VolumeSuspended",
        "VolumeUnreadable",
    ];

    /// Returns the reason that an object names; `Unknown` for one that only a newer version has.
    pub fn reason_of(word: &str) -> &'static str {
        Ailment::REASONS.into_iter().find(|reason| *reason == word).unwrap_or("Unknown")
    }
}

/// Severity of an [`Ailment`].
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
    pub ailments: Vec<Ailment>,
}
