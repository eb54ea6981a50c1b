use std::path::Path;

use proptest::prelude::*;

use super::fields::{le32, uuid};
use super::*;
use crate::bytes::Bytes;
use crate::volume::FsKind;

/// A head from `fuzz/corpus`, made by the real mkfs.
fn real(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/superblock");
    std::fs::read(dir.join(name)).expect("the corpus is part of the repository")
}

fn parsed(name: &str) -> Superblock {
    parse(&real(name)).expect(name)
}

#[test]
fn reads_what_mkfs_writes() {
    let fresh = ExtFacts {
        sparse_super2: false,
        uuid_in_checksums: false,
        wide: false,
        needs_recovery: false,
        clean: true,
        errors: false,
        mounted_before: false,
    };
    let ext4 = parsed("ext4.made");
    let expected = Superblock {
        kind: FsKind::Ext4,
        block_size: Bytes::new(4096),
        covers: Bytes::mib(128),
        slack: ext4.slack,
        uuid: ext4.uuid.clone(),
        facts: FsFacts::Ext(ExtFacts { uuid_in_checksums: true, wide: true, ..fresh }),
    };
    assert_eq!(ext4, expected);
    for (name, kind) in [("ext2.made", FsKind::Ext2), ("ext3.made", FsKind::Ext3)] {
        let ext = parsed(name);
        assert_eq!((ext.kind, ext.covers), (kind, Bytes::mib(128)));
        assert_eq!(ext.facts, FsFacts::Ext(fresh));
    }
    let xfs = parsed("xfs.made");
    assert_eq!((xfs.kind, xfs.covers), (FsKind::Xfs, Bytes::mib(300)));
    let group = Bytes::mib(75);
    assert_eq!(xfs.facts, FsFacts::Xfs { in_progress: false, log_used: false, group });
    let btrfs = parsed("btrfs.made");
    assert_eq!((btrfs.kind, btrfs.covers), (FsKind::Btrfs, Bytes::mib(109)));
    assert_eq!(btrfs.facts, FsFacts::Btrfs { devices: 1, generation: 6 });
}

#[test]
fn sees_whether_it_was_mounted() {
    for kind in ["ext2", "ext3", "ext4", "xfs", "btrfs"] {
        assert!(!parsed(&format!("{kind}.made")).mounted_before(), "{kind}");
        assert!(parsed(&format!("{kind}.was")).mounted_before(), "{kind}");
    }
}

#[test]
fn sees_an_xfs_whose_format_was_cut_off() {
    let mut head = real("xfs.made");
    assert!(!parsed("xfs.made").half_made());
    head[126] = 1;
    assert!(parse(&head).expect("still an xfs").half_made());
}

#[test]
fn a_btrfs_gets_another_uuid_by_its_superblock_alone() {
    let head = real("btrfs.was");
    let place = btrfs::PLACES[0];
    let at = usize::try_from(place).unwrap()..usize::try_from(place).unwrap() + btrfs::LENGTH;
    let block = &head[at.clone()];
    let renamed = btrfs::with_uuid(block, place, [0xab; 16]).expect("a whole superblock");
    let mut copy = head.clone();
    copy[at].copy_from_slice(&renamed);
    let (before, after) = (parse(&head).unwrap(), parse(&copy).unwrap());
    assert_eq!(after.uuid, "abababab-abab-abab-abab-abababababab");
    assert_eq!(Superblock { uuid: before.uuid.clone(), ..after }, before);
    assert_eq!(renamed[0x23b..0x24b], block[0x20..0x30], "the uuid that its blocks have");
    // Again, to a third one: that of its blocks stays.
    let again = btrfs::with_uuid(&renamed, place, [0xcd; 16]).expect("its checksum is right");
    assert_eq!(again[0x23b..0x24b], block[0x20..0x30]);
    let mut damaged = renamed.clone();
    damaged[0x200] ^= 1;
    assert_eq!(btrfs::with_uuid(&damaged, place, [1; 16]), None);
    assert_eq!(btrfs::with_uuid(&renamed, btrfs::PLACES[1], [1; 16]), None, "of another place");
    assert!(!btrfs::has_log(block));
}

#[test]
fn sees_what_cannot_grow_online() {
    let FsFacts::Ext(facts) = parsed("sparse2.made").facts else {
        panic!("not ext");
    };
    assert!(facts.sparse_super2);
}

#[test]
fn a_mounted_ext_with_a_journal_needs_recovery() {
    let FsFacts::Ext(facts) = parsed("ext4.mounted").facts else {
        panic!("not ext");
    };
    assert!(facts.needs_recovery);
}

#[test]
fn a_tail_too_small_for_a_group_is_slack() {
    // 128 MiB are one whole group. Linux 6.1 and resize2fs 1.47.0 leave 8 MiB behind it alone: the
    // inode table of a group is that long.
    let ext4 = parsed("ext4.made");
    assert!(ext4.fills(Bytes::mib(128)));
    assert!(ext4.fills(Bytes::mib(136)));
    assert!(!ext4.fills(Bytes::mib(140)));
    let odd = Superblock { slack: ext4.block_size, ..ext4 };
    assert!(!odd.fills(Bytes::mib(132)));
}

#[test]
fn what_may_be_left_over_is_slack_and_no_byte_more() {
    let ext4 = parsed("ext4.made");
    let sized = |covers, slack| Superblock { covers, slack, ..ext4.clone() };
    let superblock = sized(Bytes::mib(100), Bytes::mib(8));
    assert!(superblock.fills(Bytes::new((108 << 20) - 1)));
    assert!(!superblock.fills(Bytes::mib(108)));
    assert!(superblock.fills(Bytes::mib(50)), "it claims more than there is");
    // Its tables, and 50 blocks of data, which a last group has to have.
    let tables = ext4.slack.get() / 4096 - 50;
    assert!((2048..2400).contains(&tables), "{tables}");
    let xfs = parsed("xfs.made");
    assert_eq!(xfs.slack, Bytes::new(64 * xfs.block_size.get()));
}

/// A head with these bits set in a 32-bit little-endian field of its ext superblock.
fn with_bits(name: &str, field: usize, bits: u32) -> Vec<u8> {
    let mut head = real(name);
    let at = 1024 + field;
    let old = le32(&head, at).unwrap();
    head[at..at + 4].copy_from_slice(&(old | bits).to_le_bytes());
    head
}

#[test]
fn an_ext_beyond_32_bits_of_blocks_is_as_large_as_it_says() {
    let wide = parse(&with_bits("ext4.made", 0x150, 1)).unwrap();
    assert_eq!(wide.covers, Bytes::mib(128) + Bytes::gib(16 << 10));
}

#[test]
fn what_is_no_file_system_of_its_own_is_none() {
    assert_eq!(parse(&with_bits("ext4.made", 0x60, 0x8)), None, "the journal of another");
    assert_eq!(parse(&with_bits("ext2.made", 0x60, 0x4)), None, "a journal that it has not");
    let mut copy = real("btrfs.made");
    copy[(64 << 10) + 0x30] ^= 1;
    assert_eq!(parse(&copy), None, "a superblock that belongs elsewhere");
}

#[test]
fn errors_and_checks_leave_their_trace() {
    assert!(!parsed("ext4.made").has_errors());
    assert!(parse(&with_bits("ext4.made", 0x38, 2 << 16)).unwrap().has_errors());
    // A check resets the count of mounts; its time tells.
    let checked = with_bits("ext2.made", 0x40, u32::MAX);
    assert!(parse(&checked).unwrap().mounted_before());
}

#[test]
fn two_kinds_in_one_head_are_none() {
    let mut both = real("btrfs.made");
    both[1024..2048].copy_from_slice(&real("ext4.made")[1024..2048]);
    assert_eq!(parse(&both), None);
}

#[test]
fn a_uuid_prints_as_others_print_it() {
    let raw: Vec<u8> = (0..16).collect();
    let text = "00010203-0405-0607-0809-0a0b0c0d0e0f";
    assert_eq!(uuid(&raw, 0).as_deref(), Some(text));
    assert_eq!(uuid(&raw, 1), None);
}

/// One of the real heads.
fn a_real_head() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec!["ext2.made", "ext4.was", "sparse2.made", "xfs.was", "btrfs.was"])
        .prop_map(real)
}

proptest! {
    #[test]
    fn any_bytes_are_answered(head in prop::collection::vec(any::<u8>(), 0..4096)) {
        let _ = parse(&head);
    }

    #[test]
    fn any_superblock_with_a_magic_is_answered(
        mut sb in prop::collection::vec(any::<u8>(), 1024),
        shift in 0_u8..8,
    ) {
        sb[0x38..0x3a].copy_from_slice(&0xef53_u16.to_le_bytes());
        sb[0x18..0x1c].copy_from_slice(&u32::from(shift).to_le_bytes());
        let head = [vec![0; 1024], sb].concat();
        if let Some(found) = parse(&head) {
            prop_assert!(found.covers <= Bytes::MAX);
            prop_assert!(found.slack >= found.block_size);
            found.fills(Bytes::MAX);
        }
    }

    #[test]
    fn any_change_of_a_real_head_is_answered(
        mut head in a_real_head(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        for (at, byte) in changes {
            // All that is read lies in the first 2 KiB or in the 4 KiB behind 64 KiB.
            let at = at.index(6144);
            let at = if at < 2048 { at } else { at - 2048 + (64 << 10) };
            if let Some(old) = head.get_mut(at) {
                *old = byte;
            }
        }
        if let Some(found) = parse(&head) {
            prop_assert!(found.covers > Bytes::ZERO);
            found.fills(found.covers);
        }
    }

    #[test]
    fn any_cut_of_a_real_head_is_answered(head in a_real_head(), cut in any::<prop::sample::Index>()) {
        let _ = parse(&head[..cut.index(head.len())]);
    }
}
