//! xfs: the first sector of the device, big endian.

use super::facts::{FsFacts, Superblock};
use super::fields::{array, be32, be64, uuid};
use crate::bytes::Bytes;
use crate::volume::FsKind;

/// The kernel leaves out a last allocation group of fewer blocks (`XFS_MIN_AG_BLOCKS`).
const SMALLEST_GROUP: u64 = 64;

pub(super) fn parse(head: &[u8]) -> Option<Superblock> {
    let sb = head.get(..512)?;
    if !sb.starts_with(b"XFSB") {
        return None;
    }
    let block_size = be32(sb, 4).filter(|size| size.is_power_of_two())?;
    if !(512..=65536).contains(&block_size) {
        return None;
    }
    let block_size = Bytes::new(u64::from(block_size));
    let blocks = be64(sb, 8)?;
    Some(Superblock {
        kind: FsKind::Xfs,
        block_size,
        covers: block_size.checked_mul(blocks).filter(|_| blocks > 0)?,
        slack: block_size.checked_mul(SMALLEST_GROUP)?,
        uuid: uuid(sb, 32)?,
        facts: FsFacts::Xfs {
            in_progress: array::<1>(sb, 126)? != [0],
            log_used: be64(sb, 240)? != 0,
            group: block_size.checked_mul(u64::from(be32(sb, 84)?))?,
        },
    })
}
