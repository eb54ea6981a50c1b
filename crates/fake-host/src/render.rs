//! What LVM writes: labels, metadata areas and texts.

use std::fmt::{self, Write};

use pliant_lvm::lvm::Words;
use pliant_lvm::lvm::group::{Group, Lv, PhysicalVolume, Segment};
use pliant_lvm::lvm::metadata::{AreaHeader, SECTOR, checksum};

/// Where the metadata area begins; it ends at the first extent.
const AREA: u64 = 4096;
/// Flags that LVM writes as `status`; it writes all others as `flags`.
const STATUS: [&str; 8] =
    ["RESIZEABLE", "EXPORTED", "ALLOCATABLE", "READ", "WRITE", "VISIBLE", "LOCKED", "PVMOVE"];

/// Writes: where, and what.
type Writes = Vec<(u64, Vec<u8>)>;

/// A physical volume that belongs to no group.
pub(super) fn empty_pv(pv: &PhysicalVolume) -> Writes {
    let mut sector = vec![0; SECTOR];
    sector[..8].copy_from_slice(b"LABELONE");
    put(&mut sector, 8, 1);
    put(&mut sector, 20, 32);
    sector[24..32].copy_from_slice(b"LVM2 001");
    sector[32..64].copy_from_slice(pv.uuid.replace('-', "").as_bytes());
    let data = pv.pe_start * SECTOR as u64;
    for (at, number) in [(64, pv.size.get()), (72, data), (104, AREA), (112, data - AREA)] {
        put(&mut sector, at, number);
    }
    // The header's extension: version 2, in use by a group.
    sector[136] = 2;
    sector[140] = 1;
    let crc = checksum(&sector[20..]);
    sector[16..20].copy_from_slice(&crc.to_le_bytes());
    vec![(SECTOR as u64, sector), (AREA, area_header(data - AREA, 0, 0, 0))]
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

fn area_header(size: u64, offset: u64, length: u64, crc: u32) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    sector[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    sector[20] = 1;
    for (at, number) in [(24, AREA), (32, size), (40, offset), (48, length)] {
        put(&mut sector, at, number);
    }
    sector[56..60].copy_from_slice(&crc.to_le_bytes());
    let crc = checksum(&sector[4..]);
    sector[..4].copy_from_slice(&crc.to_le_bytes());
    sector
}

/// A commit of a group behind the text that `header` points to.
pub(super) fn commit(header: &AreaHeader, group: &Group) -> Writes {
    let text = text(group);
    let length = text.len() as u64;
    let sector = SECTOR as u64;
    let mut offset =
        header.text.map_or(sector, |old| (old.offset + old.size).next_multiple_of(sector));
    if offset >= header.size {
        offset = offset - header.size + sector;
    }
    let first = length.min(header.size - offset);
    let (first, wrapped) = text.split_at(usize::try_from(first).expect("part of a text"));
    vec![
        (header.start + offset, first.to_vec()),
        (header.start + sector, wrapped.to_vec()),
        (header.start, area_header(header.size, offset, length, checksum(&text))),
    ]
    .into_iter()
    .filter(|(_, bytes)| !bytes.is_empty())
    .collect()
}

fn text(group: &Group) -> Vec<u8> {
    let mut text = String::new();
    write_group(&mut text, group).expect("a string takes everything");
    text.push_str(
        "# A fake wrote this\n\ncontents = \"Text Format Volume Group\"\nversion = 1\n\n",
    );
    text.push('\0');
    text.into_bytes()
}

fn write_group(out: &mut String, group: &Group) -> fmt::Result {
    writeln!(out, "{} {{\nid = \"{}\"\nseqno = {}", group.name, group.uuid, group.seqno)?;
    writeln!(out, "format = \"lvm2\"")?;
    write_flags(out, &group.flags, &group.tags)?;
    let sectors = group.extent_size.get() / SECTOR as u64;
    writeln!(out, "extent_size = {sectors}")?;
    for (key, most) in [("max_lv", group.max_lv), ("max_pv", group.max_pv)] {
        writeln!(out, "{key} = {}", most.unwrap_or(0))?;
    }
    for (key, word) in [
        ("system_id", &group.system_id),
        ("lock_type", &group.lock_type),
        ("allocation_policy", &group.allocation),
    ] {
        if let Some(word) = word {
            writeln!(out, "{key} = \"{word}\"")?;
        }
    }
    writeln!(out, "metadata_copies = 0\n")?;
    writeln!(out, "physical_volumes {{\n")?;
    for (name, pv) in &group.pvs {
        write_pv(out, name, pv)?;
    }
    writeln!(out, "}}\n")?;
    if !group.lvs.is_empty() {
        writeln!(out, "logical_volumes {{\n")?;
        for lv in group.lvs.values() {
            write_lv(out, lv)?;
        }
        writeln!(out, "}}\n")?;
    }
    writeln!(out, "}}")
}

fn write_flags(out: &mut String, flags: &Words, tags: &Words) -> fmt::Result {
    let (status, flags): (Vec<_>, Vec<_>) = flags.iter().partition(|flag| STATUS.contains(flag));
    writeln!(out, "status = {status:?}\nflags = {flags:?}")?;
    if tags.is_empty() {
        return Ok(());
    }
    writeln!(out, "tags = {:?}", tags.iter().collect::<Vec<_>>())
}

fn write_pv(out: &mut String, name: &str, pv: &PhysicalVolume) -> fmt::Result {
    writeln!(out, "{name} {{\nid = \"{}\"", pv.uuid)?;
    if let Some(device) = &pv.device {
        writeln!(out, "device = \"{}\"\n", device.display())?;
    }
    write_flags(out, &pv.flags, &pv.tags)?;
    writeln!(out, "dev_size = {}", pv.size.get() / SECTOR as u64)?;
    writeln!(out, "pe_start = {}\npe_count = {}\n}}\n", pv.pe_start, pv.pe_count)
}

fn write_lv(out: &mut String, lv: &Lv) -> fmt::Result {
    writeln!(out, "{} {{\nid = \"{}\"", lv.name, lv.uuid)?;
    write_flags(out, &lv.flags, &lv.tags)?;
    writeln!(out, "creation_time = 1\ncreation_host = \"fake\"")?;
    writeln!(out, "segment_count = {}\n", lv.segments.len())?;
    for (i, segment) in lv.segments.iter().enumerate() {
        writeln!(out, "segment{} {{", i + 1)?;
        write_segment(out, segment)?;
        writeln!(out, "}}")?;
    }
    writeln!(out, "}}\n")
}

fn write_segment(out: &mut String, segment: &Segment) -> fmt::Result {
    writeln!(out, "start_extent = {}\nextent_count = {}\n", segment.start, segment.extents)?;
    writeln!(out, "type = \"{}\"", segment.kind)?;
    if !segment.pieces.is_empty() {
        let stripes =
            segment.pieces.iter().map(|piece| format!("\"{}\", {}", piece.pv, piece.range.start));
        let stripes = stripes.collect::<Vec<_>>().join(",\n");
        writeln!(out, "stripe_count = {}\n\nstripes = [\n{stripes}\n]", segment.pieces.len())?;
    }
    if segment.kind == "snapshot" {
        writeln!(out, "chunk_size = 8")?;
    }
    if let Some(pool) = &segment.thin_pool {
        writeln!(out, "transaction_id = 0\nchunk_size = {}", pool.chunk.get() / SECTOR as u64)?;
        writeln!(out, "discards = \"passdown\"\nzero_new_blocks = {}", u8::from(pool.zeroes))?;
    }
    for (key, volume) in &segment.volumes {
        writeln!(out, "{key} = \"{volume}\"")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pliant_lvm::lvm::metadata::{check_text, parse_area, parse_group};
    use pliant_volume::bytes::Bytes;

    #[test]
    fn commits_go_round_the_ring_and_read_back() {
        let mut group = Group {
            name: "g".to_owned(),
            uuid: "nIgEtv-1eoz-IRpt-fU8v-1ThI-QQSQ-PPdd0r".to_owned(),
            seqno: 0,
            extent_size: Bytes::mib(4),
            flags: Words::default(),
            tags: ["t".repeat(700)].into(),
            system_id: None,
            lock_type: None,
            max_lv: None,
            max_pv: None,
            allocation: None,
            metadata_full: false,
            pvs: [].into(),
            lvs: [].into(),
        };
        let (size, mut wrapped) = (8192, 0);
        let mut disk = vec![0; 16 << 10];
        let mut write = |writes: Writes| {
            for (offset, bytes) in writes {
                let at = usize::try_from(offset).unwrap();
                disk[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            disk.clone()
        };
        let mut disk = write(vec![(AREA, area_header(size, 0, 0, 0))]);
        for seqno in 1..40 {
            group.seqno = seqno;
            let old = parse_area(&disk[4096..], AREA).unwrap();
            disk = write(commit(&old, &group));
            let header = parse_area(&disk[4096..], AREA).unwrap();
            let ranges = header.text_ranges();
            wrapped += ranges.len() - 1;
            let part = |range: &std::ops::Range<u64>| {
                let bytes = disk.iter().copied();
                let bytes = bytes.skip(usize::try_from(range.start).unwrap());
                bytes.take(usize::try_from(range.end - range.start).unwrap())
            };
            let text: Vec<u8> = ranges.iter().flat_map(part).collect();
            assert!(check_text(&text, header.text.unwrap().checksum));
            assert_eq!(parse_group(&text).as_ref(), Ok(&group));
        }
        assert!(wrapped > 1, "{wrapped}");
    }
}
