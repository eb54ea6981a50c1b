//! btrfs: the superblock at 64 KiB, little endian.

use super::facts::{FsFacts, Superblock};
use super::fields::{le32, le64, uuid};
use crate::bytes::Bytes;
use crate::volume::FsKind;

const OFFSET: usize = 64 << 10;
/// The item of this device inside the superblock.
const DEVICE_ITEM: usize = 0xc9;

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
