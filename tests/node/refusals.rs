//! What is refused, with which words, and what is not.

use std::path::{Path, PathBuf};

use pliant::bytes::Bytes;
use pliant::fs::superblock;
use pliant::host::Host;
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, Node};
use pliant::testing::Failing;
use pliant::volume::{
    Access, FsKind, Mode, NodeKey, NodeVolumes, Publish, Safety, Stage, State, VolumeError,
    VolumeId, VolumeKey, Volumes,
};

use crate::cuts::block_on;
use crate::machine::{
    Disks, LARGE, LESS, MODES, Op, SMALL, VOLUME, after, growth, id_of, marks, readable, type_in,
    want, wrongs,
};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

#[test]
fn a_standby_disk_that_is_not_taken_is_named() {
    block_on(async {
        let (host, setup) = Disks::Standby.machine(false).await;
        host.set_foreign_signature(Path::new("/dev/fake1"), "swap");
        let node = setup.start(&host).await;
        Op::CreateFiller.ask(&host, &node).await.expect("it is made");
        let made = node.ensure(&want("large", Mode::Block, 390)).await.map(|_| ());
        let grown = node.grow(&id_of("neighbour"), growth(390)).await.map(|_| ());
        for answer in [made, grown] {
            let said = answer.expect_err("no room").to_string();
            assert!(said.contains("standby disk /dev/fake1 was not used: "), "{said}");
            assert!(said.contains("swap"), "{said}");
        }
    });
}

#[test]
fn a_standby_disk_that_was_taken_is_not_named() {
    block_on(async {
        let (host, setup) = Disks::Standby.machine(false).await;
        let node = setup.start(&host).await;
        Op::CreateFiller.ask(&host, &node).await.expect("it is made");
        node.grow(&id_of("neighbour"), growth(500)).await.expect("the standby disk joins");
        let error = node.grow(&id_of("neighbour"), growth(2000)).await.expect_err("no room");
        assert!(!error.to_string().contains("standby disk"), "{error}");
    });
}

#[test]
fn the_volume_of_that_name_on_another_node_is_not_this_one() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        Op::Create(EXT4).ask(&host, &node).await.expect("create");
        let elsewhere = VolumeId::new(NodeKey::of("beta"), VolumeKey::of(VOLUME));
        node.remove(&elsewhere).await.expect("it is none of this node's");
        assert!(node.grow(&elsewhere, growth(LARGE)).await.is_err(), "it is not here");
        assert_eq!(node.find(&elsewhere).await.expect("all groups can be read"), None);
        let here = node.find(&id_of(VOLUME)).await.expect("all groups can be read");
        assert_eq!(here.expect("it is still here").state, State::Ready);
    });
}

/// A volume that is used by nobody, and a growth of it that could not leave its private mount.
async fn left_privately_mounted(then: Op) -> Result<String, String> {
    let (host, setup) = Disks::Two.machine(false).await;
    let node = setup.start(&host).await;
    for op in [Op::CreateSafe(EXT4, Safety::Off), Op::Stage(EXT4), Op::Unstage] {
        op.ask(&host, &node).await.expect("it is made");
    }
    host.fail("umount /run/pliant", Failing::Once);
    Op::Grow(LARGE).ask(&host, &node).await.expect("the volume has grown");
    assert!(format!("{:?}", host.state().mounts).contains("/run/pliant"), "nothing was left");
    then.ask(&host, &node).await
}

#[test]
fn the_drivers_own_mount_is_no_use_of_a_volume() {
    for op in [Op::Delete, Op::Unstage] {
        let answer = block_on(left_privately_mounted(op));
        assert!(answer.is_ok(), "{op:?}: {answer:?}");
    }
}

#[test]
fn what_may_not_grow_without_a_snapshot_is_used_as_it_is() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        let id = id_of(VOLUME);
        Op::CreateSafe(EXT4, Safety::Required).ask(&host, &node).await.expect("create");
        node.ensure(&want("neighbour", Mode::Block, 200)).await.expect("create");
        Op::Stage(EXT4).ask(&host, &node).await.expect("it is formatted");
        Op::Sparse.ask(&host, &node).await.expect("the file system is changed");
        Op::Unstage.ask(&host, &node).await.expect("unstage");
        let grown = node.grow(&id, growth(1060)).await.expect("there is room for just that");
        assert!(grown.node_expansion_required);

        for _again in 0..2 {
            Op::Stage(EXT4).ask(&host, &node).await.expect("it is staged as it is");
            let ailments = node.volume_health(&id).await.expect("a look");
            assert_eq!(ailments[0].reason, "FilesystemResizePending");
            let told = &ailments[0].message;
            assert!(told.contains("a resize snapshot") && told.contains("0 B is free"), "{told}");
        }
        Op::Unstage.ask(&host, &node).await.expect("unstage");

        node.remove(&id_of("neighbour")).await.expect("room for a snapshot");
        Op::Stage(EXT4).ask(&host, &node).await.expect("stage");
        assert_eq!(node.volume_health(&id).await.expect("a look"), []);
        let device = host.device_of("vg0", &lv_name(id.key())).expect("it is active");
        let head = host.read_at(&device, 0, superblock::HEAD).await.expect("it can be read");
        let covers = superblock::parse(&head).expect("an ext4").covers;
        assert_eq!(covers, Bytes::mib(1060));
    });
}

fn lv() -> String {
    lv_name(&VolumeKey::of(VOLUME))
}

/// What a tenant of before has left in its extents is nobody's.
#[test]
fn a_volume_that_was_never_shown_is_formatted_whatever_its_extents_hold() {
    block_on(async {
        for found in ["swap", "crypto_LUKS", "VMFS", "promise_fasttrack_raid_member"] {
            let (host, _, node) = after(&[Op::Create(EXT4)]).await;
            type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv())).await;
            let device = host.device_of("vg0", &lv()).expect("it is active");
            host.set_foreign_signature(&device, found);
            for (at, bytes) in LEFT_BEHIND {
                let end = SMALL << 20;
                host.write_at(
                    &device,
                    if at < 0 { end.saturating_add_signed(at) } else { at.unsigned_abs() },
                    bytes,
                );
            }
            Op::Stage(EXT4).ask(&host, &node).await.expect("it is formatted");
            assert_eq!(wrongs(&host, false).await, [""; 0], "{found}");
        }
    });
}

/// Of VMFS twice, LUKS2's second header three times, and Promise's, from the end.
const LEFT_BEHIND: [(i64, &[u8]); 6] = [
    (1 << 20, b"\x0d\xd0\x01\xc0"),
    (2 << 20, b"\x5e\xf1\xab\x2f"),
    (1 << 20 | 512, b"SKUL\xba\xbe"),
    (2 << 20 | 512, b"SKUL\xba\xbe"),
    (4 << 20, b"SKUL\xba\xbe"),
    (-3087 * 512, b"Promise Technology, Inc."),
];

/// As restoring the metadata of the group from before its first use does.
#[test]
fn a_file_system_that_was_used_is_not_made_again_when_its_record_is_an_old_one() {
    block_on(async {
        for mode in MODES.into_iter().filter(|mode| *mode != Mode::Block) {
            let before = [Op::Create(mode), Op::Stage(mode), Op::Write, Op::Unstage];
            let (host, _, node) = after(&before).await;
            let old = "--deltag pliant.state=shown --addtag pliant.state=new";
            type_in(&host, "vg0", &format!("lvchange -y {old} vg0/{}", lv())).await;
            Op::Stage(mode).ask(&host, &node).await.expect("it is as it was");
            assert_eq!(wrongs(&host, true).await, [""; 0], "{mode}");
        }
    });
}

#[test]
fn a_file_system_that_was_used_is_not_cut_off_when_its_record_is_an_old_one() {
    block_on(async {
        for mode in [EXT4, Mode::Filesystem(FsKind::Btrfs)] {
            let before = [Op::Create(mode), Op::Stage(mode), Op::Write, Op::Unstage];
            let (host, _, node) = after(&before).await;
            let old = "--deltag pliant.state=shown --addtag pliant.state=new";
            type_in(&host, "vg0", &format!("lvchange -y {old} vg0/{}", lv())).await;
            Op::Shrink(LESS).ask(&host, &node).await.expect("there is enough");
            Op::Stage(mode).ask(&host, &node).await.expect("it is as it was");
            assert_eq!(wrongs(&host, true).await, [""; 0], "{mode}");
        }
    });
}

#[test]
fn a_volume_whose_file_system_is_not_seen_is_not_formatted() {
    block_on(async {
        let (host, _, node) =
            after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage]).await;
        let marks = marks(&host)[1..].to_vec();
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv())).await;
        let device = host.device_of("vg0", &lv()).expect("it is active");
        for other in [[0; 4096], [1; 4096]] {
            host.write_at(&device, 0, &other);
            let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it is not there");
            assert!(said.contains("nothing was formatted"), "{said}");
            assert_eq!(host.read_at(&device, 0, 4096).await.expect("read"), other);
            assert!(readable(&host, &marks).await);
        }
    });
}

#[test]
fn two_groups_of_one_name_and_two_copies_of_one_disk_are_named() {
    for copied in [false, true] {
        block_on(async {
            let (host, setup, _) = after(&[Op::Create(Mode::Block)]).await;
            let (disk, other) = (PathBuf::from("/dev/fake0"), host.add_disk(Bytes::mib(400)));
            if copied {
                let head = host.read_at(&disk, 0, 17 << 20).await.expect("read");
                host.write_at(&other, 0, &head);
            } else {
                host.add_group("vg0", &[other.clone()]);
            }
            let node = setup.start(&host).await;
            for op in [Op::Create(Mode::Block), Op::Grow(LARGE), Op::Delete] {
                let said = op.ask(&host, &node).await.expect_err("they can not be told apart");
                let both = [&disk, &other].map(|disk| disk.display().to_string());
                assert!(said.starts_with("Unavailable"), "{said}");
                assert!(both.iter().all(|disk| said.contains(disk)), "{said}");
            }
        });
    }
}

#[test]
fn of_two_volumes_with_one_name_none_is_touched() {
    block_on(async {
        let (host, mut setup, _) = after(&[Op::Create(Mode::Block)]).await;
        let other = host.add_disk(Bytes::mib(900));
        host.add_group("vg1", &[other]);
        let tags = host.group("vg0").expect("a group").lvs[&lv()].tags.clone();
        let tags: Vec<String> = tags.iter().map(|tag| format!("--addtag {tag}")).collect();
        let make = "lvcreate -y -Wn -Zn --setautoactivation n -ay -l 80 -n";
        type_in(&host, "vg1", &format!("{make} {} {} vg1", lv(), tags.join(" "))).await;
        setup.plans[0].groups.push(GroupSource::Existing("vg1".to_owned()));
        let node = setup.start(&host).await;
        let before = host.state().groups;
        for op in [Op::Create(Mode::Block), Op::Stage(Mode::Block), Op::Grow(LARGE), Op::Delete] {
            let said = op.ask(&host, &node).await.expect_err("they can not be told apart");
            assert!(said.starts_with("PreconditionFailed"), "{said}");
            assert!(said.contains("vg0") && said.contains("vg1"), "{said}");
        }
        assert_eq!(host.state().groups, before);
    });
}

#[test]
fn a_volume_whose_tags_make_no_sense_is_neither_absent_nor_touched() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        type_in(&host, "vg0", &format!("lvchange -y --deltag pliant.fstype=ext4 vg0/{}", lv()))
            .await;
        let before = host.state().groups;
        for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Grow(LARGE), Op::Delete] {
            let said = op.ask(&host, &node).await.expect_err("it does not say what it is");
            assert!(said.starts_with("PreconditionFailed") && said.contains(&lv()), "{said}");
        }
        assert_eq!(host.state().groups, before);
    });
}

#[test]
fn another_volume_of_the_same_name_is_not_taken_for_it() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        for mode in [Mode::Block, Mode::Filesystem(FsKind::Xfs)] {
            let said = Op::Create(mode).ask(&host, &node).await.expect_err("it differs");
            assert!(said.starts_with("AlreadyExists"), "{said}");
        }
    });
}

fn at(name: &str, place: &str, read_only: bool, access: &Access) -> Publish {
    Publish {
        id: id_of(name),
        staging: PathBuf::from("/var/lib/kubelet/staging").join(name),
        target: PathBuf::from("/var/lib/kubelet/pods").join(place),
        access: access.clone(),
        read_only,
        alone: true,
    }
}

const MOUNTED: Access = Access::Mount { fs: None, options: Vec::new() };

/// The volume and another, each staged at a path of its own.
async fn two_staged(node: &Node) {
    for name in [VOLUME, "other"] {
        node.ensure(&want(name, EXT4, 64)).await.expect("create");
        let at = at(name, name, false, &MOUNTED);
        let (id, staging, access) = (at.id, at.staging, at.access);
        node.stage(&Stage { id, staging, access, read_only: false }).await.expect("stage");
    }
}

#[test]
fn one_volume_is_never_shown_for_another() {
    block_on(async {
        let (host, _, node) = after(&[]).await;
        two_staged(&node).await;
        let staging = at("other", "pod", false, &MOUNTED).staging;
        let wrong = Publish { staging, alone: false, ..at(VOLUME, "pod", false, &MOUNTED) };
        let before = host.state().mounts;
        let error = node.publish(&wrong).await.expect_err("the other is staged there");
        assert!(matches!(error, VolumeError::PreconditionFailed { .. }), "{error:?}");
        assert_eq!(host.state().mounts, before);

        node.publish(&Publish { id: id_of("other"), ..wrong.clone() }).await.expect("publish");
        let before = host.state().mounts;
        let error = node.unpublish(&id_of(VOLUME), &wrong.target).await;
        assert!(matches!(error, Err(VolumeError::PreconditionFailed { .. })), "{error:?}");
        assert_eq!(host.state().mounts, before);
    });
}

#[test]
fn a_volume_for_one_workload_is_shown_to_one() {
    block_on(async {
        let (_host, _, node) = after(&[]).await;
        two_staged(&node).await;
        for _again in 0..2 {
            node.publish(&at(VOLUME, "pod", false, &MOUNTED)).await.expect("publish");
        }
        let error = node.publish(&at(VOLUME, "another", false, &MOUNTED)).await;
        assert!(matches!(error, Err(VolumeError::InUse { .. })), "{error:?}");
    });
}

#[test]
fn who_may_only_read_can_not_write() {
    block_on(async {
        let (host, _, node) = after(&[]).await;
        two_staged(&node).await;
        node.publish(&at(VOLUME, "pod", true, &MOUNTED)).await.expect("publish");
        let mounts = host.mounts().await.expect("mounts");
        let shown = mounts.iter().find(|mount| mount.target.ends_with("pods/pod"));
        assert!(shown.expect("it is shown").read_only());

        node.ensure(&want("raw", Mode::Block, 8)).await.expect("create");
        let raw = at("raw", "raw", false, &Access::Block);
        let (id, staging, access) = (raw.id, raw.staging, raw.access);
        node.stage(&Stage { id, staging, access, read_only: false }).await.expect("stage");
        let error = node.publish(&at("raw", "raw", true, &Access::Block)).await;
        assert!(matches!(error, Err(VolumeError::InvalidArgument { .. })), "{error:?}");
    });
}
