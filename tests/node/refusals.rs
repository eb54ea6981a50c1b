//! What is refused, with which words, and what is not.

use std::path::Path;

use pliant::testing::Failing;
use pliant::volume::{FsKind, Mode, Safety, Volumes};

use crate::cuts::block_on;
use crate::machine::{Disks, LARGE, Op, growth, id_of, want};

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
