//! Superblocks: what the first bytes of a device contain about the file system on it.
//!
//! The bytes belong to tenants, so the parsers are total: any input gives an answer, and every
//! number is checked before something is computed from it. They read and compare; nothing else.

use crate::bytes::Bytes;
use crate::volume::FsKind;

mod btrfs;
mod ext;
mod xfs;

/// Number of bytes at the start of a device that hold every known superblock.
pub const HEAD: usize = 68 << 10;

/// A file system as its superblock describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Type of the file system.
    pub kind: FsKind,
    /// Block size.
    pub block_size: Bytes,
    /// Size of the device that the file system covers, from the device's start.
    pub covers: Bytes,
    /// Number of bytes, exclusive, that the device may be longer without the file system being able
    /// to use them: a block, or at a group's end the tables that another group would need.
    pub slack: Bytes,
    /// Its uuid in the usual notation with four hyphens.
    pub uuid: String,
    /// Facts that only this type has.
    pub facts: Facts,
}

/// Facts of a file system beyond its size, by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Facts {
    /// ext2, ext3 and ext4.
    Ext(ExtFacts),
    /// xfs.
    Xfs {
        /// mkfs has begun and not ended.
        in_progress: bool,
        /// The superblock has gone through the log, as it does at the latest at the first unmount.
        log_used: bool,
        /// Distance from the start of one allocation group, with its copy of the superblock, to the
        /// next.
        group: Bytes,
    },
    /// btrfs.
    Btrfs {
        /// Number of devices that it spans.
        devices: u64,
        /// Number of transactions; mkfs itself needs some.
        generation: u64,
    },
}

/// Facts of a superblock of the ext family beyond its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // They are flags of the format.
pub struct ExtFacts {
    /// Made with `sparse_super2`: the kernel refuses to grow it while it is mounted.
    pub sparse_super2: bool,
    /// Made with `64bit`: may grow beyond 2³² blocks.
    pub wide: bool,
    /// True if its journal has to be replayed.
    pub needs_recovery: bool,
    /// Unmounted in order and without known errors.
    pub clean: bool,
    /// The kernel has found errors in it.
    pub errors: bool,
    /// True if it was mounted for writing at least once.
    pub mounted_before: bool,
}

impl Superblock {
    /// Returns whether it was mounted for writing since it was created, so that it may hold data.
    ///
    /// `true` may be wrong for btrfs, where another version of mkfs may count further. `false` is
    /// certain for ext alone: xfs and btrfs show no trace of a first mount that was cut off early.
    pub fn mounted_before(&self) -> bool {
        match self.facts {
            Facts::Ext(ext) => ext.mounted_before,
            Facts::Xfs { log_used, .. } => log_used,
            Facts::Btrfs { generation, .. } => generation > btrfs::LAST_GENERATION_OF_MKFS,
        }
    }

    /// Returns whether its creation was interrupted; only xfs shows it, ext and btrfs write their
    /// superblock last.
    pub fn half_made(&self) -> bool {
        matches!(self.facts, Facts::Xfs { in_progress: true, .. })
    }

    /// Returns whether the kernel has found errors in it; only ext shows it.
    pub fn has_errors(&self) -> bool {
        matches!(self.facts, Facts::Ext(ext) if ext.errors)
    }

    /// Returns whether it covers a device of this size as far as it can.
    ///
    /// A superblock that claims more than the device has counts as covering it: growing does not
    /// help.
    pub fn fills(&self, device_size: Bytes) -> bool {
        device_size.saturating_sub(self.covers) < self.slack
    }
}

/// Detects a file system by the first bytes of its device. [`HEAD`] bytes are enough; with fewer it
/// detects fewer types.
///
/// `None` if there is none, if its numbers cannot be valid, or if two types claim the same bytes.
///
/// # Source
/// The kernel's `Documentation/filesystems/ext4/super.rst`, `xfs_format.h` and `btrfs_tree.h`;
/// kinds within the ext family are distinguished by their features as `blkid` does.
pub fn parse(head: &[u8]) -> Option<Superblock> {
    let mut found = [ext::parse(head), xfs::parse(head), btrfs::parse(head)].into_iter().flatten();
    let superblock = found.next()?;
    found.next().is_none().then_some(superblock)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_be_bytes)
}

fn uuid(bytes: &[u8], at: usize) -> Option<String> {
    array(bytes, at).map(u128::from_be_bytes).map(uuid_text)
}

/// A uuid in the usual notation with four hyphens.
pub fn uuid_text(raw: u128) -> String {
    let hex = format!("{raw:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| &hex[part]).join("-")
}

#[cfg(test)]
mod tests;
