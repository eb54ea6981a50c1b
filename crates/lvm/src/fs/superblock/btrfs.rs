//! btrfs: the superblock at 64 KiB, little endian.

use super::facts::{FsFacts, Superblock};
use super::fields::{le32, le64, uuid};
use crate::bytes::Bytes;
use crate::volume::FsKind;

const OFFSET: usize = 64 << 10;
/// The item of this device inside the superblock.
const DEVICE_ITEM: usize = 0xc9;
/// Length of a superblock, in bytes.
pub const LENGTH: usize = 4096;
/// Where the superblock and its copies are, on a device that is large enough.
pub const PLACES: [u64; 3] = [OFFSET as u64, 64 << 20, 256 << 30];

const FSID: std::ops::Range<usize> = 0x20..0x30;
const LOG_ROOT: usize = 0x60;
const INCOMPAT: usize = 0xbc;
const CHECKSUM_TYPE: usize = 0xc4;
/// The uuid that all other blocks have, where it is not that of the superblock.
const METADATA_UUID: std::ops::Range<usize> = 0x23b..0x24b;
const INCOMPAT_METADATA_UUID: u64 = 1 << 10;

pub(super) fn parse(head: &[u8]) -> Option<Superblock> {
    let sb = head.get(OFFSET..OFFSET + 4096)?;
    if sb.get(0x40..0x48)? != b"_BHRfS_M" || le64(sb, 0x30)? != OFFSET as u64 {
        return None;
    }
    let sector = le32(sb, 0x90).filter(|size| size.is_power_of_two())?;
    if !(512..=65536).contains(&sector) {
        return None;
    }
    let sector = Bytes::new(u64::from(sector));
    let covers = le64(sb, DEVICE_ITEM + 8)
        .map(Bytes::new)
        .filter(|covers| *covers > Bytes::ZERO && *covers <= Bytes::MAX)?;
    Some(Superblock {
        kind: FsKind::Btrfs,
        block_size: sector,
        covers,
        slack: sector,
        uuid: uuid(sb, 0x20)?,
        facts: FsFacts::Btrfs { devices: le64(sb, 0x88)?, generation: le64(sb, 0x48)? },
    })
}

/// Returns whether it has a log of what was last made durable, which the next mount replays.
pub fn has_log(block: &[u8]) -> bool {
    le64(block, LOG_ROOT).is_some_and(|root| root != 0)
}

/// Returns this superblock with another uuid: nothing else in the file system has to change, nor its log. `None` if it is no
/// superblock of this place, is damaged, or has other checksums than crc32c.
///
/// # Source
/// `struct btrfs_super_block` in Linux, `include/uapi/linux/btrfs_tree.h`; `metadata_uuid` since Linux 5.0.
pub fn with_uuid(block: &[u8], place: u64, uuid: [u8; 16]) -> Option<Vec<u8>> {
    let mut block = block.get(..LENGTH)?.to_vec();
    let is_whole = block.get(0x40..0x48)? == b"_BHRfS_M"
        && le64(&block, 0x30)? == place
        && block.get(CHECKSUM_TYPE..CHECKSUM_TYPE + 2)? == [0, 0]
        && block.get(..4)? == crc32c(block.get(32..)?).to_le_bytes();
    if !is_whole {
        return None;
    }
    let flags = le64(&block, INCOMPAT)?;
    if flags & INCOMPAT_METADATA_UUID == 0 {
        block.copy_within(FSID, METADATA_UUID.start);
        block[INCOMPAT..INCOMPAT + 8]
            .copy_from_slice(&(flags | INCOMPAT_METADATA_UUID).to_le_bytes());
    }
    block[FSID].copy_from_slice(&uuid);
    let checksum = crc32c(&block[32..]).to_le_bytes();
    block[..4].copy_from_slice(&checksum);
    Some(block)
}

/// The checksum of Castagnoli, with all bits set at its begin and turned at its end.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}
