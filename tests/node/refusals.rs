//! What is refused, with which words, and what is not.

use pliant::testing::Failing;
use pliant::volume::{FsKind, Mode, Safety};

use crate::cuts::block_on;
use crate::machine::{Disks, LARGE, Op};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

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
