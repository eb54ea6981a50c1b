//! Which file system a volume has, and how it lies on its disks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

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
/// Striped and RAID layouts are further variants; `lvm/layout.rs` has the sizes of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// Extents of its own, one after the other.
    #[default]
    Linear,
    /// Chunks of a thin pool, which it gets when they are written.
    Thin,
}

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 2] = [Layout::Linear, Layout::Thin];

    /// The word of the class parameter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Layout::Linear => "linear",
            Layout::Thin => "thin",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_as_it_is_written() {
        for text in ["block", "ext4", "xfs", "btrfs", "ext3", "ext2"] {
            let mode: Mode = text.parse().unwrap();
            assert_eq!(mode.to_string(), text);
        }
        assert!("zfs".parse::<Mode>().is_err() && "".parse::<Mode>().is_err());
    }

    #[test]
    fn three_types_share_their_tools() {
        let ext: Vec<&str> =
            FsKind::ALL.into_iter().filter(|kind| kind.is_ext()).map(FsKind::as_str).collect();
        assert_eq!(ext.len(), 3, "{ext:?}");
        assert!(ext.iter().all(|name| name.starts_with("ext")), "{ext:?}");
    }
}
