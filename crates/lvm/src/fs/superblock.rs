//! Superblocks: what the first bytes of a device contain about the file system on it.
//!
//! The bytes belong to tenants, so the parsers are total: any input gives an answer, and every
//! number is checked before something is computed from it. They read and compare; nothing else.

pub mod btrfs;
mod ext;
mod facts;
mod fields;
mod xfs;

pub use facts::{ExtFacts, FsFacts, Superblock};
pub use fields::uuid_text;

/// Number of bytes at the start of a device that hold every known superblock.
pub const HEAD: usize = 68 << 10;

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

#[cfg(test)]
mod tests;
