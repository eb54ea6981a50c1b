//! Pools from blank disks, and disks that join when they are needed.

use std::path::Path;

use pliant::bytes::Bytes;
use pliant::volume::Mode;
use tonic::Code;

use crate::csi::{EXT4, Rig, fill, group, holds, volumes_of};
use crate::machine::{Disk, attempt, run, sha256};

fn created_on(disk: &Disk) -> String {
    format!("default=create:{}", disk.device())
}

/// The group that a disk belongs to; empty if none.
fn group_on(disk: &Disk) -> String {
    let name = attempt("pvs", &["--noheadings", "-o", "vg_name", disk.device()]);
    name.unwrap_or_default().trim().to_owned()
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_pool_is_made_of_a_blank_disk_once() {
    let disk = Disk::of(256 << 20);
    let mut rig = Rig::with(&["--pool", &created_on(&disk)]);
    let made = group_on(&disk);
    let volume = rig.calls.create("kept", Bytes::mib(64), EXT4, "").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file("content"), 0..4);
    rig.calls.hide(&volume);

    rig.crash();

    assert!(made.starts_with("pliant-default-"), "{made}");
    assert_eq!(group_on(&disk), made);
    assert_eq!(rig.calls.ids(), [volume.id.clone()]);
    rig.calls.show(&volume);
    assert!(holds(&volume.file("content"), 0..4));
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_disk_that_carries_something_is_taken_only_when_it_is_named() {
    let (disk, other) = (Disk::of(256 << 20), Disk::of(256 << 20));
    group("vg0", &[&other]);
    run("mkfs.ext4", &["-q", disk.device()]);
    let before = sha256(Path::new(disk.device()));
    let pool = format!("made=create:{}", disk.device());
    let mut rig = Rig::with(&["--pool", &pool, "--pool", "default=vg0"]);

    let refused = rig.calls.create("v", Bytes::mib(8), Mode::Block, "pool=made");
    let refused = refused.expect_err("the disk is not blank");
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    for word in [disk.device(), "ext4"] {
        assert!(refused.message.contains(word), "{refused}");
    }
    let elsewhere = rig.calls.create("w", Bytes::mib(8), Mode::Block, "pool=default");
    let elsewhere = elsewhere.expect("the other pool serves");
    assert_eq!(sha256(Path::new(disk.device())), before);

    let words = ["--pool", &pool, "--pool", "default=vg0", "--allow-wipe-disk", disk.device()];
    rig.restart_with(&words);
    let made = rig.calls.create("v", Bytes::mib(8), Mode::Block, "pool=made").expect("create");
    rig.crash();
    // Wiped once: the group is found, and its volume with it.
    let mut ids = [made.id.clone(), elsewhere.id.clone()];
    ids.sort();
    assert_eq!(rig.calls.ids(), ids);
    rig.calls.delete(&made).expect("delete");
    rig.calls.delete(&elsewhere).expect("delete");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn standby_disks_join_when_a_create_or_a_growth_needs_them() {
    let disks = [Disk::of(128 << 20), Disk::of(129 << 20), Disk::of(129 << 20)];
    group("vg0", &[&disks[0]]);
    let mut words = vec!["--pool".to_owned(), "default=vg0".to_owned()];
    for standby in &disks[1..] {
        words.extend(["--standby-disk".to_owned(), format!("default={}", standby.device())]);
    }
    let mut rig = Rig::with(&words.iter().map(String::as_str).collect::<Vec<_>>());
    // 27 extents of 4 MiB, and 28 of each standby disk.
    let (free, largest) = rig.calls.room("").expect("room");
    assert_eq!((free, largest), (Bytes::mib(83 * 4), Bytes::mib(83 * 4)));

    let volume = rig.calls.create("v", Bytes::mib(112), EXT4, "").expect("create");
    assert_eq!([&disks[1], &disks[2]].map(group_on), ["vg0", ""]);
    rig.calls.show(&volume);
    fill(&volume.file("content"), 0..16);
    let grown = rig.calls.grow(&volume, largest).expect("grow");
    assert_eq!(grown, (largest, false));
    assert_eq!([&disks[1], &disks[2]].map(group_on), ["vg0", "vg0"]);
    assert_eq!(rig.calls.room("").expect("room"), (Bytes::ZERO, Bytes::ZERO));
    let refused =
        rig.calls.grow(&volume, largest + Bytes::new(1)).expect_err("no standby disk is left");
    assert_eq!(refused.code, Code::OutOfRange, "{refused}");

    assert!(holds(&volume.file("content"), 0..16));
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
    assert_eq!(volumes_of("vg0"), [""; 0]);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_standby_disk_that_carries_something_does_not_join() {
    let disks = [Disk::of(128 << 20), Disk::of(128 << 20)];
    group("vg0", &[&disks[0]]);
    run("mkswap", &[disks[1].device()]);
    let before = sha256(Path::new(disks[1].device()));
    let standby = format!("default={}", disks[1].device());
    let mut rig = Rig::with(&["--pool", "default=vg0", "--standby-disk", &standby]);

    assert_eq!(rig.calls.room("").expect("room").1, Bytes::mib(108));
    let refused = rig.calls.create("v", Bytes::mib(112), Mode::Block, "").expect_err("no room");

    assert_eq!(refused.code, Code::ResourceExhausted, "{refused}");
    assert_eq!(sha256(Path::new(disks[1].device())), before);
}

/// A `vgcreate` or `vgextend` that was cut half-way leaves a label that belongs to no group.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_disk_that_was_initialised_half_way_is_taken_up_again() {
    let disks = [Disk::of(128 << 20), Disk::of(128 << 20)];
    for disk in &disks {
        run("pvcreate", &["-y", disk.device()]);
    }
    let standby = format!("default={}", disks[1].device());
    let mut rig = Rig::with(&["--pool", &created_on(&disks[0]), "--standby-disk", &standby]);

    let volume = rig.calls.create("v", Bytes::mib(160), Mode::Block, "").expect("create");

    assert_eq!(group_on(&disks[0]), group_on(&disks[1]));
    rig.calls.delete(&volume).expect("delete");
}
