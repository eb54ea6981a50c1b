//! The file system of a volume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// File system of a volume, as `mkfs` calls it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FsType {
    /// ext2, without a journal.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS, which cannot shrink.
    Xfs,
    /// Btrfs on one device.
    Btrfs,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl FsType {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            FsType::Ext2 => "ext2",
            FsType::Ext3 => "ext3",
            FsType::Ext4 => "ext4",
            FsType::Xfs => "xfs",
            FsType::Btrfs => "btrfs",
            FsType::Unknown => "(unknown)",
        }
    }
}
