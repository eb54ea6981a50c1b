//! The texts in the ring of a metadata area, beyond the one that its header names.
//!
//! LVM writes a text and then the header that names it, with no cache flush between: a disk that loses
//! its power may have kept the header and lost the text. The texts before it are still in the ring.

use std::ops::Range;

use crate::lvm::group::Group;
use crate::lvm::metadata::{AreaHeader, SECTOR, parse_group};

/// The most texts that are parsed: each was the newest once, and the one before the torn commit is mostly
/// the first of them.
const MOST_PARSED: usize = 32;

/// A whole text in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// The volume group that it describes.
    pub group: Group,
}

/// Bytes in a ring that begin as a text does and end as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextCandidate {
    /// Offset in the ring, in bytes.
    pub at: usize,
    /// Bytes before the zero that ends it.
    pub length: usize,
    seqno: u64,
}

/// Finds the newest complete text of an area whose header names a text that never reached the disk,
/// of a volume group that is wanted by its name.
///
/// `area` is the whole area, including its header. `None` unless whole sectors of the named text
/// are visibly older: a text that was written completely and is now damaged is not a torn commit,
/// its content may have been promised, and only an administrator can decide.
pub fn before_torn_commit(
    area: &[u8],
    header: &AreaHeader,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<Earlier> {
    let ring = ring(area, header)?;
    candidates(area, header, is_wanted).into_iter().find_map(|text| {
        let group = parse_group(&part(ring, text.at, text.length)).ok()?;
        let offset = header.start + u64::try_from(SECTOR + text.at).ok()?;
        Some(Earlier { offset, group })
    })
}

/// Returns the texts that [`before_torn_commit`] parses, in this order, until one is complete: the
/// newest first.
///
/// Whoever wrote the area controls what is found in it, so the work is bounded: no text extends
/// over the beginning of another one, all of them together are not longer than the ring, and there
/// are at most 32.
pub fn candidates(
    area: &[u8],
    header: &AreaHeader,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<TextCandidate> {
    torn(area, header).map_or_else(Vec::new, |(ring, named)| {
        let mut texts = texts(ring, is_wanted);
        let into_named = |at: usize| (at + ring.len() - named.start) % ring.len() < named.len();
        texts.retain(|text| !into_named(text.at));
        texts.sort_by_key(|text| std::cmp::Reverse(text.seqno));
        texts.truncate(MOST_PARSED);
        texts
    })
}

fn ring<'a>(area: &'a [u8], header: &AreaHeader) -> Option<&'a [u8]> {
    area.get(SECTOR..usize::try_from(header.size).ok()?)
}

/// The ring, and where in it the text should be that the header names; `None` if it is there.
fn torn<'a>(area: &'a [u8], header: &AreaHeader) -> Option<(&'a [u8], Range<usize>)> {
    let ring = ring(area, header)?;
    let named = header.text?;
    let from = usize::try_from(named.offset).ok()?.checked_sub(SECTOR)?;
    let size = usize::try_from(named.size).ok()?;
    let fits = from < ring.len() && size <= ring.len();
    (fits && lacks_sectors(&part(ring, from, size))).then(|| (ring, from..from + size))
}

/// The texts of the wanted groups that have an end, in the order of the ring, in one pass.
fn texts(ring: &[u8], is_wanted: impl Fn(&str) -> bool) -> Vec<TextCandidate> {
    let sectors = ring.chunks(SECTOR).enumerate();
    let begun: Vec<(usize, Beginning<'_>)> = sectors
        .filter_map(|(number, sector)| Some((number * SECTOR, Beginning::of(sector)?)))
        .collect();
    let next = begun.iter().skip(1).chain(begun.first()).map(|(at, _)| *at);
    let wanted = begun.iter().zip(next).filter(|((_, text), _)| is_wanted(text.group));
    let whole = wanted.filter_map(|((at, text), next)| {
        // LVM writes a text beside the one before, so none has more than half of the ring.
        let to_next = if next > *at { next - at } else { next + ring.len() - at };
        let length = zero_in(ring, *at, to_next.min(ring.len() / 2))?;
        Some(TextCandidate { at: *at, length, seqno: text.seqno })
    });
    whole.collect()
}

/// How many bytes before the first zero among so many bytes of a ring; `None` without a zero.
fn zero_in(ring: &[u8], from: usize, length: usize) -> Option<usize> {
    let (first, rest) = pieces(ring, from, length);
    first.iter().chain(rest).position(|byte| *byte == 0)
}

/// Bytes of a ring, which go on at its start when its end is reached.
fn part(ring: &[u8], from: usize, length: usize) -> Vec<u8> {
    let (first, rest) = pieces(ring, from, length);
    [first, rest].concat()
}

/// The same as the two pieces that they are.
fn pieces(ring: &[u8], from: usize, length: usize) -> (&[u8], &[u8]) {
    let first = &ring[from..ring.len().min(from + length)];
    (first, &ring[..length - first.len()])
}

/// Returns whether sectors of a text are not its own: no text begins with them, another begins in them, or
/// they hold zeroes, which stand only at a text's very end.
fn lacks_sectors(text: &[u8]) -> bool {
    let (body, _end) = text.split_at(text.len().saturating_sub(1));
    let begins = |sector: &[u8]| Beginning::of(sector).is_some();
    !begins(text) || body.contains(&0) || text.chunks(SECTOR).skip(1).any(begins)
}

/// The first lines of a text: the group's name, its id and its number. Those of a volume in it have no
/// number.
struct Beginning<'a> {
    group: &'a str,
    seqno: u64,
}

impl Beginning<'_> {
    fn of(text: &[u8]) -> Option<Beginning<'_>> {
        let sector = &text[..text.len().min(SECTOR)];
        let mut lines = sector.split(|byte| *byte == b'\n');
        let group = lines.next()?.strip_suffix(b" {")?;
        lines.next()?.strip_prefix(b"id = \"")?;
        let seqno = lines.next()?.strip_prefix(b"seqno = ")?;
        let group = std::str::from_utf8(group).ok()?;
        Some(Beginning { group, seqno: std::str::from_utf8(seqno).ok()?.parse().ok()? })
    }
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
        before_torn_commit(area, header, |_| true)
            .map(|earlier| (earlier.offset, earlier.group.seqno))
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

    #[test]
    fn a_text_of_another_group_is_none_and_a_volume_at_the_start_of_a_sector_is_no_text() {
        let (mut area, header) = area();
        let named = |name: &'static str| {
            before_torn_commit(&area, &header, |group| group == name).map(|e| e.group.seqno)
        };
        assert_eq!((named("vg0"), named("vg1")), (Some(3), None));
        let (at, fourth) = (8 * SECTOR, text(4));
        area[at..at + fourth.len()].copy_from_slice(&fourth);
        area[at + SECTOR..at + SECTOR + 17].copy_from_slice(b"lv {\nid = \"x\"\n#\n}");
        assert_eq!(found(&area, &header), None, "the named text is there, and has gone bad");
    }

    #[test]
    fn an_area_made_to_cost_much_is_searched_once() {
        let sectors = 1024;
        let mut area = vec![b'#'; sectors * SECTOR];
        for (number, sector) in area.chunks_mut(SECTOR).enumerate() {
            // The newest are the farthest from the only zero.
            let begin = format!("a {{\nid = \"x\"\nseqno = {}\n", sectors - number);
            sector[..begin.len()].copy_from_slice(begin.as_bytes());
        }
        area[(sectors - 1) * SECTOR + 100] = 0;
        let location = TextLocation { offset: 512, size: 2048, checksum: 0 };
        let (start, size, raw) = (4096, (sectors * SECTOR) as u64, [0; 24]);
        let header = AreaHeader { start, size, ignored: false, text: Some(location), raw };
        let read: usize = candidates(&area, &header, |_| true).iter().map(|c| c.length).sum();
        assert!(read <= area.len(), "{read} bytes are parsed of {}", area.len());

        for sector in area.chunks_mut(SECTOR) {
            sector[100] = 0;
        }
        area[SECTOR + 100] = b'#';
        let all = candidates(&area, &header, |_| true);
        assert_eq!(all.len(), MOST_PARSED);
        assert!(all.iter().all(|text| text.length == 100), "{all:?}");
    }
}
