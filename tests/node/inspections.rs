//! What a look at a volume sees, and what it does not.

use std::path::Path;

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::node::lv_tags::lv_name;
use pliant::testing::FakeHost;
use pliant::volume::{
    Fence, FsKind, Inspection, Mode, NodeKey, Reason, Standing, VolumeId, VolumeKey, Volumes,
};

use crate::cuts::block_on;
use crate::machine::{MODES, Op, SMALL, VOLUME, after, id_of};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

async fn look(node: &pliant::node::Node) -> Inspection {
    node.inspect(&id_of(VOLUME)).await.expect("a look").expect("it is there")
}

fn processes(host: &FakeHost) -> (Option<u64>, Option<u64>) {
    let counts = host.counts();
    (counts.get("processes").copied(), counts.get("lvm_commands").copied())
}

#[test]
fn who_has_it_open_is_seen_in_each_mode_without_a_process() {
    for mode in MODES {
        block_on(async {
            let ops = [Op::Create(mode), Op::Stage(mode), Op::Publish(mode)];
            let (host, _, node) = after(&ops).await;
            let before = processes(&host);
            let used = look(&node).await;
            assert!(used.status.published, "{mode}");
            if mode == Mode::Block {
                assert_eq!((used.open_count, used.usage), (0, None), "shown, and open by nobody");
                host.open(&host.device_of("vg0", &lv_name(&VolumeKey::of(VOLUME))).unwrap());
                assert_eq!(look(&node).await.open_count, 1);
                return;
            }
            assert_eq!(used.open_count, 1, "{mode}: the mounts of one file system are one");
            let usage = used.usage.expect("it is mounted");
            assert_eq!((usage.total, usage.used), (Bytes::mib(SMALL), Bytes::mib(1)), "{mode}");
            let xfs = mode == Mode::Filesystem(FsKind::Xfs);
            assert_eq!(used.smallest, xfs.then_some(Bytes::mib(SMALL)), "{mode}");
            assert_eq!(processes(&host), before, "{mode}");

            Op::Unpublish.ask(&host, &node).await.expect("the pod is gone");
            Op::Unstage.ask(&host, &node).await.expect("the kubelet lets go");
            let unused = look(&node).await;
            let seen = (unused.status.published, unused.open_count, unused.usage);
            assert_eq!(seen, (false, 0, None), "{mode}");
            assert_eq!(unused.status.volume.size, Bytes::mib(SMALL));
        });
    }
}

#[test]
fn a_process_that_has_it_open_out_of_sight_is_counted() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        host.open(&host.device_of("vg0", &lv_name(&VolumeKey::of(VOLUME))).unwrap());
        assert_eq!(look(&node).await.open_count, 2);
    });
}

#[test]
fn the_fence_that_a_look_came_after_is_told() {
    block_on(async {
        let (_, _, node) = after(&[Op::Create(EXT4)]).await;
        let fence = Fence { generation: 7, standing: Standing::Superseded, copying: true };
        node.fence(&id_of(VOLUME), fence).await.expect("it is fenced off");
        assert_eq!(look(&node).await.status.fence, fence);
    });
}

#[test]
fn what_is_not_there_is_an_answer_and_what_cannot_be_seen_is_none() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        let gone = node.inspect(&id_of("nobody")).await.expect("all groups were read");
        assert_eq!(gone, None);
        let elsewhere = VolumeId::new(NodeKey::of("beta"), VolumeKey::of(VOLUME));
        assert_eq!(node.inspect(&elsewhere).await.expect("all groups were read"), None);

        for disk in ["/dev/fake0", "/dev/fake1"] {
            host.fail_disk(Path::new(disk));
        }
        for node in [node, setup.start(&host).await] {
            let error = node.inspect(&id_of(VOLUME)).await.expect_err("nothing can be read");
            assert_eq!(error.reason(), Reason::Unavailable, "{error}");
        }
    });
}

#[test]
fn a_file_system_that_cannot_be_asked_is_not_told_as_empty() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        host.fail("statfs ", pliant::testing::Failing::Always);
        let error = node.inspect(&id_of(VOLUME)).await.expect_err("it cannot be asked");
        assert_eq!(error.reason(), Reason::Unavailable, "{error}");
    });
}
