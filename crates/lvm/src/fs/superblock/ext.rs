//! ext2, ext3 and ext4: one superblock at byte 1024, little endian.

use super::facts::{ExtFacts, FsFacts, Superblock};
use super::fields::{le16, le32, uuid};
use crate::bytes::Bytes;
use crate::volume::FsKind;

const OFFSET: usize = 1024;
const MAGIC: u16 = 0xef53;

const STATE_CLEAN: u16 = 1;
const STATE_ERRORS: u16 = 2;

const COMPAT_JOURNAL: u32 = 0x4;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_CHECKSUM_SEED: u32 = 0x2000;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const RO_COMPAT_METADATA_CHECKSUMS: u32 = 0x400;

/// What ext2 and ext3 know; anything beyond makes it ext4. Types of directory entries and meta
/// groups; sparse superblocks, large files and tree directories.
const INCOMPAT_OLD: u32 = 0x2 | 0x10;
const RO_COMPAT_OLD: u32 = 0x1 | 0x2 | 0x4;

/// mke2fs and resize2fs leave out a last group that would have fewer blocks of data than this.
const SMALLEST_GROUP_DATA: u64 = 50;

#[derive(Clone, Copy)]
struct Features {
    compat: u32,
    incompat: u32,
    ro_compat: u32,
}

pub(super) fn parse(head: &[u8]) -> Option<Superblock> {
    let sb = head.get(OFFSET..OFFSET + 1024)?;
    if le16(sb, 0x38)? != MAGIC {
        return None;
    }
    let features =
        Features { compat: le32(sb, 0x5c)?, incompat: le32(sb, 0x60)?, ro_compat: le32(sb, 0x64)? };
    let wide = features.incompat & INCOMPAT_64BIT != 0;
    let high = if wide { le32(sb, 0x150)? } else { 0 };
    let blocks = u64::from(high) << 32 | u64::from(le32(sb, 0x4)?);
    let block_size = match le32(sb, 0x18)? {
        shift @ 0..=6 => Bytes::new(1024 << shift),
        _ => return None,
    };
    let state = le16(sb, 0x3a)?;
    Some(Superblock {
        kind: kind(features)?,
        block_size,
        covers: block_size.checked_mul(blocks).filter(|_| blocks > 0)?,
        slack: block_size.checked_mul(slack(sb, features, blocks, block_size)?)?,
        uuid: uuid(sb, 0x68)?,
        facts: FsFacts::Ext(ExtFacts {
            sparse_super2: features.compat & COMPAT_SPARSE_SUPER2 != 0,
            uuid_in_checksums: features.ro_compat & RO_COMPAT_METADATA_CHECKSUMS != 0
                && features.incompat & INCOMPAT_CHECKSUM_SEED == 0,
            wide,
            needs_recovery: features.incompat & INCOMPAT_RECOVER != 0,
            clean: state & (STATE_CLEAN | STATE_ERRORS) == STATE_CLEAN,
            errors: state & STATE_ERRORS != 0,
            mounted_before: mounted_before(sb)?,
        }),
    })
}

fn kind(features: Features) -> Option<FsKind> {
    if features.incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        return None; // The journal of a file system that lies elsewhere.
    }
    let journal = features.compat & COMPAT_JOURNAL != 0;
    let recover = features.incompat & INCOMPAT_RECOVER != 0;
    let new = features.incompat & !(INCOMPAT_OLD | INCOMPAT_RECOVER) != 0
        || features.ro_compat & !RO_COMPAT_OLD != 0;
    match (new, journal, recover) {
        (true, _, _) => Some(FsKind::Ext4),
        (false, true, _) => Some(FsKind::Ext3),
        (false, false, false) => Some(FsKind::Ext2),
        (false, false, true) => None,
    }
}

/// ext2 keeps no time of its mounts and a check resets their count, but then the time of the last
/// check is no longer that of mkfs.
fn mounted_before(sb: &[u8]) -> Option<bool> {
    let mount_time = le32(sb, 0x2c)?;
    let mount_count = le16(sb, 0x34)?;
    Some(mount_time != 0 || mount_count != 0 || le32(sb, 0x40)? != le32(sb, 0x108)?)
}

/// How many blocks at the device's end cannot be used, plus one.
///
/// Kernel, mke2fs and resize2fs all stop at the end of the last group if a further one would hold
/// little more than its own tables.
fn slack(sb: &[u8], features: Features, blocks: u64, block_size: Bytes) -> Option<u64> {
    let first = u64::from(le32(sb, 0x14)?);
    let per_group = u64::from(le32(sb, 0x20)?);
    let behind_first = blocks.checked_sub(first)?;
    let whole_groups = behind_first.checked_rem(per_group)? == 0;
    if !whole_groups {
        return Some(1);
    }
    let group = behind_first / per_group;
    let inode_size = match le32(sb, 0x4c)? {
        0 => 128,
        _ => u64::from(le16(sb, 0x58)?),
    };
    let inode_bytes = u64::from(le32(sb, 0x28)?) * inode_size;
    let backup = if has_backup(sb, features, group)? {
        let descriptor = match le16(sb, 0xfe)? {
            0 => 32,
            size => u64::from(size),
        };
        // At most 2⁶⁴ / 2¹³ groups of 2¹⁶ bytes, so the product cannot wrap once it is capped.
        let table = (group + 1).min(1 << 40) * descriptor;
        1 + table.div_ceil(block_size.get()) + u64::from(le16(sb, 0xce)?)
    } else {
        0
    };
    Some(backup + 2 + inode_bytes.div_ceil(block_size.get()) + SMALLEST_GROUP_DATA)
}

/// Returns whether the group starts with a copy of the superblock and the group descriptors.
fn has_backup(sb: &[u8], features: Features, group: u64) -> Option<bool> {
    if features.compat & COMPAT_SPARSE_SUPER2 != 0 {
        return Some([le32(sb, 0x24c)?, le32(sb, 0x250)?].map(u64::from).contains(&group));
    }
    let power_of = |base: u64| {
        let mut rest = group;
        while rest > 1 && rest.is_multiple_of(base) {
            rest /= base;
        }
        rest == 1
    };
    Some(
        features.ro_compat & RO_COMPAT_SPARSE_SUPER == 0
            || group == 0
            || [3, 5, 7].into_iter().any(power_of),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_copies_are_in_the_first_groups_and_in_powers_of_3_5_and_7() {
        let features = Features { compat: 0, incompat: 0, ro_compat: RO_COMPAT_SPARSE_SUPER };
        let with_copy = (0..60).filter(|group| has_backup(&[], features, *group) == Some(true));
        assert_eq!(with_copy.collect::<Vec<_>>(), [0, 1, 3, 5, 7, 9, 25, 27, 49]);
    }
}
