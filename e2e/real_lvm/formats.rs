//! Options of mkfs: what it does not take is refused before a volume is made, and what is made is mounted.

use std::collections::BTreeMap;

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode};
use tonic::Code;

use crate::csi::{Rig, group, volumes_of};
use crate::machine::Disk;

fn options(text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("mkfsOptions".to_owned(), text.to_owned())])
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn options_that_mkfs_or_the_kernel_refuses_are_refused_before_a_volume_is_made() {
    let disk = Disk::of(2 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    for (kind, text, words) in [
        (FsKind::Ext4, "-i 1", "invalid inode ratio 1"),
        (FsKind::Ext4, "-N 4294967295", "too big"),
        (FsKind::Ext4, "-E resize=1", "resize maximum"),
        (FsKind::Ext4, "-J size=100000", "journal size"),
        (FsKind::Xfs, "-d agcount=1000", "too small"),
        (FsKind::Xfs, "-l size=4g", "too large"),
        (FsKind::Xfs, "-b size=64k", "larger than the page size of the node"),
        (FsKind::Btrfs, "-s 16k", "larger than the page size of the node"),
        (FsKind::Btrfs, "-n 128k", "nodesize"),
    ] {
        let (mode, size) = (Mode::Filesystem(kind), Bytes::mib(512));
        let made = rig.calls.create_with("bad", size, mode, &options(text));
        let error = made.expect_err("it is refused");
        let said = &error.message;
        assert_eq!(error.code, Code::InvalidArgument, "{kind} {text}: {error}");
        assert!(said.contains(words), "{kind} {text}: {said}");
        assert!(!said.contains('\n') && !said.contains("Usage"), "{kind} {text}: {said}");
        assert_eq!(volumes_of("vg0"), [""; 0], "{kind} {text}");
    }
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_is_made_with_options_is_mounted_by_this_kernel() {
    let disk = Disk::of(2 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    for (kind, text) in [
        (FsKind::Ext4, ""),
        (FsKind::Ext4, "-E stride=16 -O quota -m 0"),
        (FsKind::Xfs, ""),
        (FsKind::Xfs, "-i size=1024 -m reflink=0"),
        (FsKind::Btrfs, ""),
        (FsKind::Btrfs, "-n 16k -d single"),
    ] {
        let (mode, size) = (Mode::Filesystem(kind), Bytes::mib(512));
        let made = rig.calls.create_with("good", size, mode, &options(text));
        let volume = made.unwrap_or_else(|error| panic!("{kind} {text}: {error}"));
        rig.calls.show(&volume);
        rig.calls.hide(&volume);
        rig.calls.delete(&volume).expect("delete");
    }
}
