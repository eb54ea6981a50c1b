use proptest::prelude::*;

use super::*;
use crate::lvm::Words;
use crate::lvm::group::{ExtentRun, Group, Lv, Segment, ThinPoolSegment};

const DISK: &[u8] = include_bytes!("../../../tests/fixtures/metadata/linear-and-snapshot.bin");
const TEXT: &[u8] = include_bytes!("../../../tests/fixtures/metadata/linear-and-snapshot.txt");
const EVERY_KIND: &[u8] = include_bytes!("../../../tests/fixtures/metadata/every-kind.txt");
const WRAPPED: &[u8] = include_bytes!("../../../tests/fixtures/metadata/wrapped.bin");
const WRAPPED_TAIL: &[u8] = include_bytes!("../../../tests/fixtures/metadata/wrapped-tail.bin");
const TAIL_AT: usize = 65_024;

fn names(names: &[&str]) -> Words {
    names.iter().collect()
}

fn striped(start: u64, extents: u64, pieces: &[(&str, Range<u64>)]) -> Segment {
    Segment {
        start,
        extents,
        kind: "striped".to_owned(),
        pieces: pieces
            .iter()
            .map(|(pv, range)| ExtentRun { pv: (*pv).to_owned(), range: range.clone() })
            .collect(),
        volumes: [].into(),
        thin_pool: None,
    }
}

fn layered(extents: u64, kind: &str, volumes: &[(&str, &str)]) -> Segment {
    Segment {
        kind: kind.to_owned(),
        volumes: volumes
            .iter()
            .map(|(key, name)| ((*key).to_owned(), (*name).to_owned()))
            .collect(),
        ..striped(0, extents, &[])
    }
}

fn pv(uuid: &str) -> crate::lvm::PhysicalVolume {
    crate::lvm::PhysicalVolume {
        uuid: uuid.to_owned(),
        device: None,
        pe_start: 34_816,
        pe_count: 70,
        size: Bytes::mib(300),
        flags: names(&["ALLOCATABLE"]),
        tags: names(&[]),
    }
}

fn lv(
    name: &str,
    uuid: &str,
    flags: &[&str],
    tags: &[&str],
    segments: Vec<Segment>,
) -> (String, Lv) {
    let lv = Lv {
        name: name.to_owned(),
        uuid: uuid.to_owned(),
        flags: names(flags),
        tags: names(tags),
        segments,
    };
    (name.to_owned(), lv)
}

#[test]
fn a_label_names_the_volume_and_its_areas() {
    let label = Label {
        pv_uuid: "1WkGnh-zK2S-m2lo-Mi4Y-wd8j-UW73-OTUvNG".to_owned(),
        device_size: Bytes::mib(300),
        areas: vec![Area { offset: 4096, size: 17_821_696 }],
    };
    assert_eq!(find_label(&DISK[..2048]), Ok(Some(label)));
}

#[test]
fn no_label_is_no_error() {
    assert_eq!(find_label(&[0; 2048]), Ok(None));
    assert_eq!(find_label(&[]), Ok(None));
    assert_eq!(find_label(&DISK[..1023]), Ok(None));
}

#[test]
fn a_label_is_found_behind_a_damaged_one() {
    let mut disk = DISK[..2048].to_vec();
    let (before, label) = disk.split_at_mut(512);
    before[..8].copy_from_slice(&label[..8]);
    assert!(matches!(find_label(&disk), Ok(Some(_))));
}

#[test]
fn a_label_of_another_sector_or_kind_is_refused() {
    let moved = [&DISK[512..1024], &[0; 1536]].concat();
    assert!(matches!(find_label(&moved), Err(MetadataError::Malformed { .. })));
}

#[test]
fn a_label_may_be_in_each_of_four_sectors() {
    for sector in 0..5usize {
        let mut disk = vec![0; 5 * SECTOR];
        let label = &mut disk[sector * SECTOR..][..SECTOR];
        label.copy_from_slice(&DISK[512..1024]);
        label[8..16].copy_from_slice(&(sector as u64).to_le_bytes());
        let found = find_label(&disk).map(|label| label.is_some());
        assert_eq!(found, Ok(sector < 4), "{sector}");
    }
}

#[test]
fn an_area_is_full_when_a_quarter_of_half_its_ring_is_left() {
    for (text, full) in [(24_576, false), (24_577, true)] {
        let header = parse_area(&area(4096, 66_048, 512, text, 0), 4096).unwrap();
        assert_eq!(header.is_full(), full, "{text}");
    }
}

#[test]
fn an_area_header_leads_to_its_text() {
    let header = parse_area(&DISK[4096..], 4096).unwrap();
    let text = TextLocation { offset: 14_336, size: 2790, checksum: 0x9548_46e9 };
    let expected = AreaHeader {
        start: 4096,
        size: 17_821_696,
        ignored: false,
        text: Some(text),
        raw: DISK[4136..4160].try_into().unwrap(),
    };
    assert_eq!(header, expected);
    let (start, end) = (18_432, 21_222);
    assert_eq!(header.text_ranges(), [Range { start, end }]);
    assert!(check_text(TEXT, text.checksum));
    assert!(!check_text(&TEXT[1..], text.checksum));
}

#[test]
fn a_text_wraps_to_the_start_of_its_ring() {
    let header = parse_area(&WRAPPED[4096..], 4096).unwrap();
    assert_eq!(header.text_ranges(), [65_024..65_536, 4608..5656]);
    let text = [WRAPPED_TAIL, &WRAPPED[4608..5656]].concat();
    assert!(check_text(&text, header.text.unwrap().checksum));
    assert_eq!(TAIL_AT + WRAPPED_TAIL.len(), 65_536);
    let group = parse_group(&text).unwrap();
    assert_eq!((group.name.as_str(), group.lvs.len()), ("c", 2));
}

/// An area header of our own making, with the right checksum.
fn area(start: u64, size: u64, offset: u64, text: u64, flags: u32) -> Vec<u8> {
    let mut sector = vec![0; 512];
    sector[4..20].copy_from_slice(AREA_MAGIC);
    sector[20] = 1;
    for (at, number) in [(24, start), (32, size), (40, offset), (48, text)] {
        sector[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    sector[60..64].copy_from_slice(&flags.to_le_bytes());
    let crc = checksum(&sector[4..]);
    sector[..4].copy_from_slice(&crc.to_le_bytes());
    sector
}

#[test]
fn an_area_may_be_empty_or_ignored() {
    let empty = parse_area(&area(4096, 65_536, 0, 0, 1), 4096).unwrap();
    assert_eq!((empty.text, empty.ignored), (None, true));
    assert_eq!(empty.text_ranges(), []);
}

#[test]
fn an_area_whose_text_cannot_be_is_refused() {
    let beyond = [
        area(u64::MAX, 4096, 512, 1, 0),
        area(4096, 511, 512, 1, 0),
        area(4096, 65_536, 65_536, 1, 0),
        area(4096, 65_536, 511, 1, 0),
        area(4096, 65_536, 512, 65_025, 0),
        area(4096, u64::MAX - 4096, 512, MAX_TEXT + 1, 0),
        area(4096, 64 << 20, 512, (16 << 20) + 1, 0), // It would only cost memory.
    ];
    for sector in beyond {
        let at = u64::from_le_bytes(*sector[24..].first_chunk().unwrap());
        assert!(
            matches!(parse_area(&sector, at), Err(MetadataError::Malformed { .. })),
            "{:?}",
            &sector[..64]
        );
    }
    let fits = area(4096, 65_536, 65_535, 65_024, 0);
    assert!(parse_area(&fits, 4096).is_ok());
    let elsewhere = parse_area(&fits, 8192);
    assert!(matches!(elsewhere, Err(MetadataError::Malformed { .. })), "{elsewhere:?}");
}

#[test]
fn a_group_is_read_whole() {
    let flags = &["READ", "WRITE", "VISIBLE", "NOAUTOACTIVATE"];
    let tags = &["pliant.id=abcdefgh-aaaa", "pliant.name=a!20b&c#d:e", "pliant.state=ready"];
    let one = vec![striped(0, 10, &[("pv0", 0..10)]), striped(10, 7, &[("pv0", 12..19)])];
    let two = vec![striped(0, 5, &[("pv1", 3..8)]), striped(5, 4, &[("pv0", 19..23)])];
    let wide = vec![striped(0, 4, &[("pv0", 10..12), ("pv1", 0..2)])];
    let cow = vec![striped(0, 3, &[("pv0", 23..26)])];
    let link = layered(9, "snapshot", &[("cow_store", "pliant-one.safety"), ("origin", "two")]);
    let expected = Group {
        name: "a".to_owned(),
        uuid: "nIgEtv-1eoz-IRpt-fU8v-1ThI-QQSQ-PPdd0r".to_owned(),
        seqno: 8,
        extent_size: Bytes::mib(4),
        flags: names(&["RESIZEABLE", "READ", "WRITE"]),
        tags: names(&["pliant.pool=fast"]),
        system_id: None,
        lock_type: None,
        max_lv: None,
        max_pv: None,
        allocation: None,
        metadata_full: false,
        pvs: [
            ("pv0".to_owned(), pv("1WkGnh-zK2S-m2lo-Mi4Y-wd8j-UW73-OTUvNG")),
            ("pv1".to_owned(), pv("di0TAY-lHe7-8ttY-P0ov-ncI5-BkMY-ZqCkqk")),
        ]
        .into(),
        lvs: [
            lv("pliant-one", "wXD1t7-A3Xo-0Hhc-dl4E-39BS-tbP1-inLsst", flags, tags, one),
            lv("two", "shTXj2-3FEu-KlQ6-ppjt-7iNX-QY4c-bPt4Zs", flags, &[], two),
            lv("striped", "LDbvtS-zua8-8fwi-X2qB-ouBh-40K7-oPyfpe", flags, &[], wide),
            lv(
                "pliant-one.safety",
                "GW38Fa-NNJ8-qv5B-awEX-dTXD-oVry-rSbfDy",
                &["READ", "WRITE"],
                &["x"],
                cow,
            ),
            lv(
                "snapshot0",
                "SNMLd6-2bI0-SuRL-KckR-ZAd7-Snba-9BzO8Q",
                &["READ", "WRITE", "VISIBLE"],
                &[],
                vec![link],
            ),
        ]
        .into(),
    };
    assert_eq!(parse_group(TEXT), Ok(expected));
}

#[test]
fn a_text_alone_counts_as_an_array_of_one() {
    let text = std::str::from_utf8(TEXT).unwrap();
    let alone = text.replace("[\"pliant.pool=fast\"]", "\"pliant.pool=fast\"");
    assert_ne!(alone, text);
    assert_eq!(parse_group(alone.as_bytes()), parse_group(TEXT));
}

#[test]
fn layers_name_the_volumes_below_them() {
    let group = parse_group(EVERY_KIND).unwrap();
    let top = |name: &str| group.lvs[name].segments[0].clone();
    let raid1 = [
        ("raids.0", "mirrored_rmeta_0"),
        ("raids.1", "mirrored_rimage_0"),
        ("raids.2", "mirrored_rmeta_1"),
        ("raids.3", "mirrored_rimage_1"),
    ];
    assert_eq!(top("mirrored"), layered(5, "raid1", &raid1));
    let mirror = [("mirrors.0", "oldmirror_mimage_0"), ("mirrors.2", "oldmirror_mimage_1")];
    assert_eq!(top("oldmirror"), layered(3, "mirror", &mirror));
    let pool = [("metadata", "pool_tmeta"), ("pool", "pool_tdata")];
    let thin_pool = Some(ThinPoolSegment {
        chunk: Bytes::kib(64),
        transaction: 2,
        zeroes: true,
        messages: Vec::new(),
    });
    assert_eq!(top("pool"), Segment { thin_pool, ..layered(10, "thin-pool", &pool) });
    assert_eq!(top("thin"), layered(25, "thin", &[("thin_pool", "pool")]));
    let snapshot = [("origin", "thin"), ("thin_pool", "pool")];
    assert_eq!(top("thinsnap"), layered(25, "thin", &snapshot));
    let cached = [("origin", "slow_wcorig"), ("writecache", "fast_cvol")];
    assert_eq!(top("slow"), layered(3, "writecache", &cached));
    assert_eq!(top("mirrored_rimage_1"), striped(0, 5, &[("pv1", 1..6)]));
    assert_eq!(group.lvs.len(), 25);
}

#[test]
fn what_lvm_would_not_write_is_refused() {
    let text = std::str::from_utf8(TEXT).unwrap();
    for (right, wrong) in [
        ("extent_count = 7", "extent_count = 4294967296"),
        ("extent_count = 7", "extent_count = 70"),
        ("start_extent = 10", "start_extent = 9"),
        ("extent_size = 8192", "extent_size = 9223372036854775807"),
        ("seqno = 8", "seqno = -8"),
        ("\"pv0\", 12", "\"pv0\", -1"),
        ("two {", "pliant-one {"),
        ("id = ", "it = "),
        ("contents = ", "second { } contents = "),
        ("extent_size = 8192", "extent_size = 0"),
        ("extent_size = 8192", "extent_size = 4294967296"),
        ("pe_start = 34816", "pe_start = 9223372036854775807"),
        ("pliant-one {", "\"../../one\" {"),
        ("pliant-one {", "\"-f\" {"),
        ("pliant-one {", "\"one two\" {"),
        ("a {\nid", "\"../../etc/a\" {\nid"),
        ("id = \"", "id = \"\" # "),
        ("id = \"", "id = \"x"),
        ("SNMLd6-2bI0-SuRL-KckR-ZAd7-Snba-9BzO8Q", "GW38Fa-NNJ8-qv5B-awEX-dTXD-oVry-rSbfDy"),
    ] {
        assert!(text.contains(right));
        let group = parse_group(text.replace(right, wrong).as_bytes());
        assert!(matches!(group, Err(MetadataError::Malformed { .. })), "{wrong}");
    }
    let huge = text.replace("pe_count = ", "pe_count = 4294967295 # ");
    let huge = huge.replace("extent_size = 8192", "extent_size = 4294967295");
    assert!(parse_group(huge.as_bytes()).is_err(), "more bytes than can be counted");
}

#[test]
fn no_error_says_what_a_terminal_would_obey() {
    const NAME: &str = "\u{1b}[2J\r\n";
    let text = std::str::from_utf8(TEXT).unwrap();
    let named = |changes: &[(&str, &str)]| {
        let changed = changes.iter().fold(text.to_owned(), |text, (right, wrong)| {
            assert!(text.contains(right), "{right}");
            text.replace(right, wrong)
        });
        parse_group(changed.as_bytes()).unwrap_err().to_string()
    };
    let quoted = format!("\"{NAME}\"");
    let lv = format!("{quoted} {{");
    let pv = format!("{quoted} {{");
    for said in [
        named(&[("pliant-one {", &lv)]),
        named(&[("pliant-one {", &lv), ("start_extent = 10", "start_extent = 9")]),
        named(&[("pliant-one {", &lv), ("two {", &lv)]),
        named(&[("pv0 {", &pv), ("\"pv0\"", &quoted), ("extent_count = 7", "extent_count = 70")]),
    ] {
        assert!(!said.contains(char::is_control), "{said:?}");
    }
}

/// Bytes of `whole` from its start, some of them overwritten.
fn damaged(whole: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((0..whole.len(), any::<u8>()), 0..8);
    (changes, 0..=whole.len()).prop_map(move |(changes, length)| {
        let mut bytes = whole.to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(length);
        bytes
    })
}

proptest! {
    #[test]
    fn damaged_texts_are_read_or_refused(text in damaged(EVERY_KIND)) {
        if let Ok(group) = parse_group(&text) {
            let _ = (group.size_of(group.free_extents()), group.size_of(group.extents()));
            let _ = Bytes::new(1).div_ceil(group.extent_size);
            let _ = group.lvs.values().map(Lv::extents).sum::<u64>();
        }
    }

    #[test]
    fn damaged_labels_are_read_or_refused(disk in damaged(DISK)) {
        let _ = find_label(&disk);
    }

    #[test]
    fn area_headers_of_any_numbers_are_read_or_refused(
        start: u64, size: u64, offset: u64, text: u64, flags: u32,
    ) {
        if let Ok(header) = parse_area(&area(start, size, offset, text, flags), start) {
            for range in header.text_ranges() {
                prop_assert!(range.start < range.end);
                prop_assert!(range.end <= start + size);
            }
        }
    }

    #[test]
    fn one_changed_byte_in_an_area_header_is_noticed(at in 0..512usize, change in 1..=255u8) {
        let mut sector = DISK[4096..4608].to_vec();
        sector[at] ^= change;
        let noticed = Err(MetadataError::Checksum("metadata area header"));
        prop_assert_eq!(parse_area(&sector, 4096), noticed);
    }

    #[test]
    fn one_changed_byte_in_a_label_is_noticed(at in 528..1024usize, change in 1..=255u8) {
        let mut disk = DISK[..2048].to_vec();
        disk[at] ^= change;
        prop_assert_eq!(find_label(&disk), Err(MetadataError::Checksum("physical volume label")));
    }
}

#[test]
fn what_makes_lvm_refuse_a_group_is_read() {
    let text = std::str::from_utf8(TEXT).unwrap();
    let more = "max_lv = 5\nmax_pv = 7\nsystem_id = \"alpha\"\nlock_type = \"sanlock\"\n\
                allocation_policy = \"cling\"\n";
    let limited = text.replace("max_lv = 0\nmax_pv = 0\n", more);
    let group = parse_group(limited.as_bytes()).unwrap();
    assert_eq!((group.max_lv, group.max_pv), (Some(5), Some(7)));
    let words = [group.system_id, group.lock_type, group.allocation];
    assert_eq!(words, ["alpha", "sanlock", "cling"].map(|word| Some(word.to_owned())));
    let unshared = text.replace("max_lv = 0\n", "lock_type = \"none\"\nsystem_id = \"\"\n");
    let group = parse_group(unshared.as_bytes()).unwrap();
    assert_eq!((group.lock_type, group.system_id, group.max_lv), (None, None, None));
}

/// The bytes of all names in a group.
fn bytes_of(group: &Group) -> usize {
    let segments = group.lvs.values().flat_map(|lv| &lv.segments);
    let volumes = segments.clone().flat_map(|segment| &segment.volumes);
    let pieces = segments.flat_map(|segment| &segment.pieces);
    volumes.map(|(key, name)| key.len() + name.len()).sum::<usize>()
        + pieces.map(|piece| piece.pv.len()).sum::<usize>()
        + group.lvs.keys().chain(group.pvs.keys()).map(String::len).sum::<usize>()
}

#[test]
fn what_a_text_says_is_never_much_larger_than_the_text() {
    let text = std::str::from_utf8(TEXT).unwrap();
    let kind = "cow_store = \"pliant-one.safety\"";
    for length in [1, 127, 128, 64 << 10] {
        for name in ["two", "none-of-them"] {
            let items = vec![format!("\"{name}\""); 4096].join(",");
            let more = format!("{} = [{items}] {kind}", "k".repeat(length));
            let text = text.replace(kind, &more);
            match parse_group(text.as_bytes()) {
                Ok(group) => assert!(bytes_of(&group) < 32 * text.len(), "{length}: {name}"),
                Err(_) => assert!(length > 127, "{length}: {name}"),
            }
        }
    }
}
