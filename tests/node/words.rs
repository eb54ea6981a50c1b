//! What the person reads who is refused: what, where, how much, and what to type.

use std::path::{Path, PathBuf};

use pliant::bytes::Bytes;
use pliant::fs::superblock;
use pliant::host::{Host, NewMount};
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, NewDisk, PoolPlan};
use pliant::testing::FakeHost;
use pliant::volume::{FsKind, Mode, NodeVolumes, Publish, RequestedSize, VolumeError, Volumes};

use crate::cuts::block_on;
use crate::machine::{
    Op, STAGING, Setup, TARGET, VOLUME, after, id_of, publish, settings, staging, type_in, want,
};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);
const XFS: Mode = Mode::Filesystem(FsKind::Xfs);

/// That all of these words are said.
fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is missing: {said}");
    }
}

/// What is wrong with a pool that comes from there.
async fn trouble(host: &FakeHost, source: GroupSource) -> String {
    let name = "fast".parse().expect("a name");
    let plan = PoolPlan::new(name, vec![source]);
    let node = Setup { settings: settings(), plans: vec![plan] }.start(host).await;
    node.storage_health().await.remove(0).ailment.message
}

fn create(disk: &Path, wipe: bool) -> GroupSource {
    GroupSource::Create(NewDisk { path: disk.to_owned(), wipe })
}

#[test]
fn a_mount_that_somebody_uses_is_in_use() {
    block_on(async {
        let ops = [Op::Create(EXT4), Op::Stage(EXT4), Op::Publish(EXT4)];
        let (host, _, node) = after(&ops).await;
        let inside = Path::new(TARGET).join("inside");
        host.make_dir(&inside).await.expect("a directory");
        host.bind(Path::new("/var"), &inside, &[]).await.expect("a mount in the volume");
        let error =
            node.unpublish(&id_of(VOLUME), Path::new(TARGET)).await.expect_err("it is busy");
        assert!(matches!(error, VolumeError::InUse { .. }), "{error:?}");
        assert_says(&error.to_string(), &[&format!("`fuser -vm {TARGET}`")]);
    });
}

#[test]
fn all_mounts_that_hold_a_volume_are_named_and_many_are_counted() {
    block_on(async {
        let (_host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        let target = |at: usize| PathBuf::from(format!("{TARGET}-{at}"));
        for at in 1..=2 {
            let publish = Publish { target: target(at), alone: false, ..publish(EXT4) };
            node.publish(&publish).await.expect("publish");
        }
        let both = format!("{TARGET}-1 and {TARGET}-2");
        let said = node.unstage(&id_of(VOLUME), Path::new(STAGING)).await.expect_err("it is shown");
        assert_says(&said.to_string(), &[&both]);
        let said = node.publish(&publish(EXT4)).await.expect_err("it is shown elsewhere");
        assert_says(&said.to_string(), &[&both]);

        for at in 3..=5 {
            let publish = Publish { target: target(at), alone: false, ..publish(EXT4) };
            node.publish(&publish).await.expect("publish");
        }
        let said = node.unstage(&id_of(VOLUME), Path::new(STAGING)).await.expect_err("it is shown");
        assert_says(&said.to_string(), &[&format!("{TARGET}-3 and 2 more")]);
    });
}

#[test]
fn a_mounted_disk_is_told_as_such_whether_or_not_it_may_be_wiped() {
    block_on(async {
        let (host, ..) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        let volume = host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("active");
        let disk = host.add_disk(Bytes::gib(1));
        let head = host.read_at(&volume, 0, superblock::HEAD).await.expect("read");
        host.write_at(&disk, 0, &head);
        let target = PathBuf::from("/var/lib");
        let (device, kind, options) = (disk.clone(), "ext4", Vec::new());
        host.mount(&NewMount { device, target, kind, options }).await.expect("it carries ext4");
        for wipe in [true, false] {
            let said = trouble(&host, create(&disk, wipe)).await;
            assert_says(
                &said,
                &["/dev/fake2 is in use", "mounted at /var/lib", "`umount /var/lib`"],
            );
        }
        // The disk from which its node runs.
        let target = PathBuf::from("/var");
        let (device, kind, options) = (disk.clone(), "ext4", Vec::new());
        host.mount(&NewMount { device, target, kind, options }).await.expect("again");
        let said = trouble(&host, create(&disk, true)).await;
        assert_says(&said, &["/dev/fake2 is in use", "the node itself uses it"]);
        assert!(!said.contains("umount"), "{said}");
    });
}

#[test]
fn a_disk_that_something_else_lies_on_is_in_use_also_if_it_may_be_wiped() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        host.set_foreign_signature(&disk, "swap");
        host.open(&disk);
        let said = trouble(&host, create(&disk, true)).await;
        assert_says(&said, &["/dev/fake0 is in use", "`lsblk /dev/fake0`", "nothing was changed"]);
        assert_eq!(host.effects(), [""; 0]);
    });
}

#[test]
fn a_disk_that_is_not_blank_comes_with_both_ways_on() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        host.set_foreign_signature(&disk, "swap");
        let said = trouble(&host, create(&disk, false)).await;
        assert_says(&said, &["swap", "`--allow-wipe-disk /dev/fake0`"]);
        assert!(!said.contains("--pool"), "{said}");

        let disk = host.add_disk(Bytes::gib(1));
        host.add_group("vg0", std::slice::from_ref(&disk));
        let said = trouble(&host, create(&disk, false)).await;
        assert_says(&said, &["`--pool NAME=vg0`", "`--allow-wipe-disk /dev/fake1`"]);
    });
}

#[test]
fn a_group_that_is_not_here_comes_with_those_that_are() {
    block_on(async {
        let host = FakeHost::new();
        let absent = || GroupSource::Existing("vg0".to_owned());
        assert_says(&trouble(&host, absent()).await, &["vg0", "the node has no volume groups"]);
        for name in ["data", "vg1"] {
            let disk = host.add_disk(Bytes::gib(1));
            host.add_group(name, &[disk]);
        }
        assert_says(&trouble(&host, absent()).await, &["vg0", "the node has data and vg1"]);
    });
}

#[test]
fn a_disk_that_is_not_here_comes_with_the_blank_ones_that_are() {
    block_on(async {
        let host = FakeHost::new();
        let missing = || create(Path::new("/dev/sdz"), false);
        assert_says(&trouble(&host, missing()).await, &["disk /dev/sdz does not exist", "`lsblk`"]);
        for name in ["swap", ""] {
            let disk = host.add_disk(Bytes::gib(1));
            if !name.is_empty() {
                host.set_foreign_signature(&disk, name);
            }
        }
        let said = trouble(&host, missing()).await;
        assert_says(&said, &["disk /dev/sdz does not exist", "blank disks: /dev/fake1;"]);
    });
}

#[test]
fn a_disk_without_room_for_an_extent_becomes_no_group() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::mib(20));
        let said = trouble(&host, create(&disk, false)).await;
        assert_says(&said, &["/dev/fake0 has 20 MiB", "at least 21 MiB"]);
        assert_eq!(host.effects(), [""; 0]);

        let disk = host.add_disk(Bytes::mib(21));
        let name = "fast".parse().expect("a name");
        let plan = PoolPlan::new(name, vec![create(&disk, false)]);
        let node = Setup { settings: settings(), plans: vec![plan] }.start(&host).await;
        node.ensure(&want(VOLUME, Mode::Block, 4)).await.expect("there is room for one extent");
    });
}

#[test]
fn a_limit_that_is_too_low_is_told_with_what_is_needed() {
    block_on(async {
        let (_host, _, node) = after(&[]).await;
        let size = RequestedSize { at_least: Bytes::mib(1), at_most: Some(Bytes::mib(10)) };
        let asked = pliant::volume::NewVolume { size, ..want(VOLUME, XFS, 1) };
        let said = node.ensure(&asked).await.expect_err("no xfs is so small").to_string();
        assert_says(&said, &["xfs", "314572800 bytes", "10485760 bytes"]);
    });
}

#[test]
fn what_differs_is_told_with_what_was_asked_for() {
    block_on(async {
        let (_host, _, node) = after(&[Op::Create(EXT4)]).await;
        let differs = |at_least, at_most| {
            let size = RequestedSize { at_least: Bytes::mib(at_least), at_most };
            let asked = pliant::volume::NewVolume { size, ..want(VOLUME, EXT4, 1) };
            let node = node.clone();
            async move { node.ensure(&asked).await.expect_err("it differs").to_string() }
        };
        let said = differs(400, None).await;
        assert_says(&said, &["has 335544320 bytes", "at least 419430400 bytes were requested"]);
        let said = differs(8, Some(Bytes::mib(9))).await;
        let asked = "at least 8388608 and at most 9437184 bytes were requested";
        assert_says(&said, &["has 335544320 bytes", asked]);
    });
}

#[test]
fn what_is_mounted_in_the_way_is_named() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        host.make_dir(Path::new(STAGING)).await.expect("a directory");
        host.bind(Path::new("/var"), Path::new(STAGING), &[]).await.expect("a foreign mount");
        let said = node.stage(&staging(EXT4)).await.map_err(|error| match error {
            VolumeError::Failed { what } => what,
            other => panic!("{other:?}"),
        });
        let (look, go) = (format!("`findmnt {STAGING}`"), format!("`umount {STAGING}`"));
        assert_says(&said.expect_err("it is not ours"), &["/var of device 0:1", &look, &go]);
        let said = node.unstage(&id_of(VOLUME), Path::new(STAGING)).await.expect_err("not ours");
        assert_says(&said.to_string(), &["nothing was unmounted", &go]);
    });
}

#[test]
fn a_file_system_that_is_not_there_is_called_by_its_name_alone() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(XFS), Op::Stage(XFS)]).await;
        let device = host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("active");
        node.unstage(&id_of(VOLUME), Path::new(STAGING)).await.expect("unstage");
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv_name(id_of(VOLUME).key())))
            .await;
        host.write_at(&device, 0, &[0; 4096]);
        let said = node.stage(&staging(XFS)).await.expect_err("it is not there").to_string();
        assert!(!said.contains("a xfs"), "{said}");
        assert_says(&said, &["xfs", "nothing was formatted", "`blkid -p /dev/dm-"]);
    });
}
