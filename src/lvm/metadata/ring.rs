//! The texts in the ring of a metadata area, beyond the one that its header names.
//!
//! LVM writes a text and then the header that names it, with no cache flush between: a disk that loses
//! its power may have kept the header and lost the text. The texts before it are still in the ring.

use crate::lvm::group::Group;
use crate::lvm::metadata::{AreaHeader, SECTOR, parse_group};

/// A whole text in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// Where on the device it begins, in bytes.
    pub offset: u64,
    /// What it says.
    pub group: Group,
}

/// Find the newest whole text of an area whose header names a text that never reached the disk.
///
/// `area` is all of the area, from its header on. `None` unless whole sectors of the named text are
/// visibly those of before: a text that is there and has merely gone bad is no torn commit, what it
/// said was promised perhaps, and only a person can tell.
pub fn before_torn_commit(area: &[u8], header: &AreaHeader) -> Option<Earlier> {
    let ring = area.get(SECTOR..usize::try_from(header.size).ok()?)?;
    let named = header.text?;
    let from = usize::try_from(named.offset).ok()?.checked_sub(SECTOR)?;
    let size = usize::try_from(named.size).ok()?;
    if !lacks_sectors(&part(ring, from, size)) {
        return None;
    }
    let into = |at: usize| (at + ring.len() - from) % ring.len() < size;
    let starts = (0..ring.len()).step_by(SECTOR).filter(|at| begins_text(&ring[*at..]));
    starts
        .filter(|at| !into(*at))
        .filter_map(|at| {
            let length = ring[at..].iter().chain(ring).position(|byte| *byte == 0)?;
            let group = parse_group(&part(ring, at, length)).ok()?;
            let offset = header.start + u64::try_from(SECTOR + at).ok()?;
            Some(Earlier { offset, group })
        })
        .max_by_key(|earlier| earlier.group.seqno)
}

/// Bytes of a ring, which go on at its start when its end is reached.
fn part(ring: &[u8], from: usize, length: usize) -> Vec<u8> {
    let bytes = ring.iter().cycle().skip(from).take(length.min(ring.len()));
    bytes.copied().collect()
}

/// Whether sectors of a text are not its own: no text begins with them, another begins in them, or
/// they hold zeroes, which stand only at a text's very end.
fn lacks_sectors(text: &[u8]) -> bool {
    let (body, _end) = text.split_at(text.len().saturating_sub(1));
    !begins_text(text) || body.contains(&0) || text.chunks(SECTOR).skip(1).any(begins_text)
}

/// Every text begins with the group's name and its id.
fn begins_text(bytes: &[u8]) -> bool {
    let line = bytes.iter().take(SECTOR).position(|byte| *byte == b'\n');
    line.is_some_and(|end| {
        bytes[..end].ends_with(b" {") && bytes[end + 1..].starts_with(b"id = \"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lvm::metadata::TextLocation;

    fn text(seqno: u64) -> Vec<u8> {
        let padding = "# a comment that fills a sector or two\n".repeat(20);
        let id = "id = \"rbZEfd-jZ2b-sKKM-Ev3N-u1I0-8DPP-2nEMS7\"";
        let mut text = format!(
            "vg0 {{\n{id}\nseqno = {seqno}\nstatus = [\"READ\"]\nflags = []\nextent_size = 8192\n{padding}}}\n"
        )
        .into_bytes();
        text.push(0);
        text
    }

    /// An area with texts 1 to 3 in it, and a header that names a fourth.
    fn area() -> (Vec<u8>, AreaHeader) {
        let mut area = vec![0; 16 * SECTOR];
        for seqno in 1..=3 {
            let (text, at) = (text(seqno), usize::try_from(seqno).unwrap() * 2 * SECTOR);
            area[at..at + text.len()].copy_from_slice(&text);
        }
        let location = TextLocation { offset: 8 * 512, size: text(4).len() as u64, checksum: 0 };
        let (start, size, raw) = (4096, 16 * 512, [0; 24]);
        (area, AreaHeader { start, size, ignored: false, text: Some(location), raw })
    }

    fn found(area: &[u8], header: &AreaHeader) -> Option<(u64, u64)> {
        before_torn_commit(area, header).map(|earlier| (earlier.offset, earlier.group.seqno))
    }

    #[test]
    fn the_newest_whole_text_is_found_when_the_named_one_is_not_there() {
        let (mut area, header) = area();
        assert_eq!(found(&area, &header), Some((4096 + 6 * 512, 3)));
        let fourth = text(4);
        area[8 * SECTOR..9 * SECTOR].copy_from_slice(&fourth[..SECTOR]);
        assert_eq!(found(&area, &header), Some((4096 + 6 * 512, 3)), "its end is missing");
        area[6 * SECTOR] = 0;
        assert_eq!(found(&area, &header), Some((4096 + 4 * 512, 2)), "the third is not whole");
    }

    #[test]
    fn what_lies_where_the_named_text_should_be_is_no_earlier_one() {
        let (mut area, mut header) = area();
        let ninth = text(9);
        area[10 * SECTOR..10 * SECTOR + ninth.len()].copy_from_slice(&ninth);
        header.text = header.text.map(|text| TextLocation { size: 6 * 512, ..text });
        assert_eq!(found(&area, &header), Some((4096 + 6 * 512, 3)));
    }

    #[test]
    fn a_text_that_is_there_and_bad_is_no_torn_commit() {
        let (mut area, header) = area();
        let fourth = text(4);
        area[8 * SECTOR..8 * SECTOR + fourth.len()].copy_from_slice(&fourth);
        area[8 * SECTOR + 600] ^= 1;
        assert_eq!(found(&area, &header), None);
    }

    #[test]
    fn a_text_that_wraps_is_whole() {
        let (mut area, header) = area();
        let fifth = text(5);
        area[15 * SECTOR..].copy_from_slice(&fifth[..SECTOR]);
        area[SECTOR..SECTOR + fifth.len() - SECTOR].copy_from_slice(&fifth[SECTOR..]);
        assert_eq!(found(&area, &header), Some((4096 + 15 * 512, 5)));
    }
}
