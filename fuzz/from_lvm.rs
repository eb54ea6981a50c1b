//! Any bytes as what LVM wrote: shared by the fuzz targets and by the test that runs their corpus.

use pliant::bytes::Bytes;
use pliant::lvm::metadata::{
    AreaHeader, TextLocation, before_torn_commit, candidates, checksum, find_label, parse_area,
    parse_group,
};
use pliant::lvm::{Lv, Words, report};
use pliant::node::lv_tags::VolumeTags;

const SECTOR: usize = 512;

/// Parse bytes as the part of the on-disk metadata that the first of them picks; says whether it was
/// taken. Checksums are made right before: whoever can write to a disk can make them too.
pub fn metadata(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else {
        return false;
    };
    match kind % 3 {
        0 => {
            let mut sector = padded(bytes);
            let sum = checksum(&sector[20..]).to_le_bytes();
            sector[16..20].copy_from_slice(&sum);
            // It names the sector that it is in, which is the second.
            let start = [vec![0; SECTOR], sector].concat();
            find_label(&start).is_ok_and(|label| label.is_some())
        }
        1 => {
            let mut sector = padded(bytes);
            let sum = checksum(&sector[4..]).to_le_bytes();
            sector[..4].copy_from_slice(&sum);
            let at = sector[24..32].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            parse_area(&sector, at).is_ok_and(|area| {
                let ring = area.start..area.start + area.size;
                for range in area.text_ranges() {
                    assert!(ring.contains(&range.start) && range.end <= ring.end, "{area:?}");
                }
                true
            })
        }
        _ => parse_group(bytes).is_ok_and(|group| {
            assert!(!group.name.contains('/'), "{group:?}");
            for lv in group.lvs.values() {
                assert!(!lv.name.contains(['/', ' ']), "{lv:?}");
                assert!(group.dm_uuid(lv).len() == 68, "{lv:?}");
                assert!(group.size_of(lv.extents()) <= Bytes::MAX);
                VolumeTags::read(lv);
            }
            Bytes::new(1).div_ceil(group.extent_size);
            group.free_extents();
            true
        }),
    }
}

/// Search bytes for the text before a torn commit; says whether one was found.
///
/// The first two bytes say at which sector of the ring the named text should be, and how many sectors
/// it has. The rest is the ring, in which `~` stands for a zero, so that it can be read.
pub fn torn(bytes: &[u8]) -> bool {
    let Some(([at, sectors], ring)) = bytes.split_first_chunk::<2>() else {
        return false;
    };
    let mut area = [&[0; SECTOR][..], ring].concat();
    area.iter_mut().filter(|byte| **byte == b'~').for_each(|byte| *byte = 0);
    area.resize(area.len().next_multiple_of(SECTOR), 0);
    let in_sectors = |byte: u8| (u64::from(byte.wrapping_sub(b'0')) + 1) * SECTOR as u64;
    let text = TextLocation { offset: in_sectors(*at), size: in_sectors(*sectors), checksum: 0 };
    let (start, size, raw) = (4096, area.len() as u64, [0; 24]);
    let header = AreaHeader { start, size, ignored: false, text: Some(text), raw };
    let texts = candidates(&area, &header, |_| true);
    let parsed: usize = texts.iter().map(|text| text.length).sum();
    assert!(texts.len() <= 32 && parsed <= area.len(), "{parsed} bytes of {}", area.len());
    before_torn_commit(&area, &header, |_| true).is_some_and(|earlier| {
        assert!((start..start + size).contains(&earlier.offset), "{earlier:?}");
        true
    })
}

/// Parse bytes as a command's report, or as a volume's name and tags, one a line.
pub fn words(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else {
        return false;
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    if kind % 2 == 0 {
        return report::parse(text).is_ok();
    }
    let mut lines = text.lines().map(str::to_owned);
    let lv = Lv {
        name: lines.next().unwrap_or_default(),
        uuid: String::new(),
        flags: Words::default(),
        tags: lines.collect(),
        segments: Vec::new(),
    };
    VolumeTags::read(&lv).is_some_and(|record| {
        assert_eq!(record.lv_name(), lv.name);
        for pair in record.mkfs.words().chunks(2) {
            assert!(!pair[1].starts_with('-') && !pair[1].contains('/'), "{record:?}");
        }
        true
    })
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut sector = bytes.to_vec();
    sector.resize(SECTOR, 0);
    sector
}
