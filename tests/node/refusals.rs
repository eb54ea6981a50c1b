//! What is refused, with which words, and what is not.

use std::path::Path;

use pliant::bytes::Bytes;
use pliant::fs::superblock;
use pliant::host::Host;
use pliant::node::record::lv_name;
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{FsKind, Mode, NodeKey, Safety, State, VolumeId, VolumeKey, Volumes};

use crate::cuts::block_on;
use crate::machine::{Disks, LARGE, Op, VOLUME, growth, id_of, want};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

#[test]
fn a_spare_disk_that_is_not_taken_is_named() {
    block_on(async {
        let (host, setup) = Disks::Spare.machine(false).await;
        host.set_foreign_signature(Path::new("/dev/fake1"), "swap");
        let node = setup.start(&host).await;
        Op::CreateFiller.ask(&host, &node).await.expect("it is made");
        let made = node.ensure(&want("large", Mode::Block, 390)).await.map(|_| ());
        let grown = node.grow(&id_of("neighbour"), growth(390)).await.map(|_| ());
        for answer in [made, grown] {
            let said = answer.expect_err("no room").to_string();
            assert!(said.contains("spare disk /dev/fake1 was not taken: "), "{said}");
            assert!(said.contains("swap"), "{said}");
        }
    });
}

#[test]
fn a_spare_disk_that_was_taken_is_not_named() {
    block_on(async {
        let (host, setup) = Disks::Spare.machine(false).await;
        let node = setup.start(&host).await;
        Op::CreateFiller.ask(&host, &node).await.expect("it is made");
        node.grow(&id_of("neighbour"), growth(500)).await.expect("the spare disk joins");
        let error = node.grow(&id_of("neighbour"), growth(2000)).await.expect_err("no room");
        assert!(!error.to_string().contains("spare disk"), "{error}");
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

/// What `sparse_super2` makes of an ext4: it grows while it is not mounted, or not at all.
async fn make_sparse_super2(host: &FakeHost, device: &Path) {
    const COMPAT: u64 = 1024 + 0x5c;
    let compat = host.read_at(device, COMPAT, 4).await.expect("it can be read");
    host.write_at(device, COMPAT, &[compat[0], compat[1] | 2, compat[2], compat[3]]);
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
        let device = host.device_of("vg0", &lv_name(id.key())).expect("it is active");
        make_sparse_super2(&host, &device).await;
        Op::Unstage.ask(&host, &node).await.expect("unstage");
        let grown = node.grow(&id, growth(1060)).await.expect("there is room for just that");
        assert!(grown.node_expansion_required);

        for _again in 0..2 {
            Op::Stage(EXT4).ask(&host, &node).await.expect("it is staged as it is");
            let ailments = node.volume_health(&id).await.expect("a look");
            assert_eq!(ailments[0].reason, "FilesystemSmaller");
            let told = &ailments[0].message;
            assert!(told.contains("a safety snapshot") && told.contains("0 B is free"), "{told}");
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
