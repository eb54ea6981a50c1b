//! What is told of volumes and pools: how bad an ailment is, how much room there is, what a page holds.

use std::path::Path;
use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, NewDisk, Node, PoolPlan};
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{FsKind, Mode, NodeVolumes, Page, Severity, State, Volumes};

use crate::cuts::block_on;
use crate::machine::{LARGE, Op, STAGING, Setup, VOLUME, after, id_of, settings, want};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

/// The reasons and severities of what is wrong with the volume.
async fn told(node: &Node) -> Vec<(&'static str, Severity)> {
    let health = node.volume_health(&id_of(VOLUME)).await.expect("a look");
    health.into_iter().map(|ailment| (ailment.reason, ailment.severity)).collect()
}

#[test]
fn a_volume_without_its_disk_is_out_of_reach_and_one_in_a_frozen_group_is_degraded() {
    block_on(async {
        for (its_own, ailment) in [
            (true, ("DiskMissing", Severity::Inaccessible)),
            (false, ("VolumeGroupNotChangeable", Severity::Degraded)),
        ] {
            let (host, _, node) = after(&[Op::Create(EXT4)]).await;
            let group = host.group("vg0").expect("a group");
            let lv = &group.lvs[&lv_name(id_of(VOLUME).key())];
            let mut pieces = lv.segments.iter().flat_map(|segment| &segment.pieces);
            let pv = &pieces.next().expect("a piece").pv;
            assert!(pieces.all(|piece| piece.pv == *pv), "it lies on one disk");
            let (_, disk) =
                group.pvs.iter().find(|(name, _)| (*name == pv) == its_own).expect("two");
            host.remove_disk(disk.device.as_deref().expect("a disk"));
            assert_eq!(told(&node).await, [ailment]);
        }
    });
}

#[test]
fn a_volume_that_is_not_wiped_yet_is_healthy_and_shown_to_nobody() {
    block_on(async {
        let (host, _, node) = after(&[]).await;
        host.fail("BLKZEROOUT", Failing::Always);
        Op::Create(Mode::Block).ask(&host, &node).await.expect("it is wiped behind the answer");
        assert_eq!(told(&node).await, []);
        let said = Op::Stage(Mode::Block).ask(&host, &node).await.expect_err("it cannot be wiped");
        assert!(said.starts_with("Unavailable"), "{said}");
        let said = Op::Publish(Mode::Block).ask(&host, &node).await.expect_err("it is not staged");
        assert!(
            said.starts_with("PreconditionFailed") && said.contains("stage it first"),
            "{said}"
        );
    });
}

#[test]
fn a_node_lacks_every_group_only_if_no_disk_has_or_may_have_one() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::mib(400));
        host.add_group("vg0", &[disk.clone()]);
        let plan = |pool: &str, group: &str| {
            let group = GroupSource::Existing(group.to_owned());
            PoolPlan::new(pool.parse().expect("a name"), vec![group])
        };
        let lacking = async |plans: &[(&str, &str)]| {
            let plans = plans.iter().map(|(pool, group)| plan(pool, group)).collect();
            let node =
                Node::start(Arc::new(host.clone()), settings(), plans).await.expect("it starts");
            node.lacks_every_group().await
        };
        let said = lacking(&[("fast", "nope")]).await.expect("it has none");
        assert!(said.contains("volume group nope") && said.contains("the node has vg0"), "{said}");
        let said = lacking(&[("fast", "nope"), ("slow", "none")]).await.expect("it has none");
        assert!(said.contains("nope") && said.contains("none"), "{said}");
        assert_eq!(lacking(&[("fast", "vg0")]).await, None);
        assert_eq!(lacking(&[("fast", "nope"), ("slow", "vg0")]).await, None);
        assert_eq!(lacking(&[]).await, None);
        let blank = NewDisk { path: host.add_disk(Bytes::gib(1)), wipe: false };
        let mut waits =
            PoolPlan::new("new".parse().expect("a name"), vec![GroupSource::Create(blank)]);
        waits.create = false;
        let node =
            Node::start(Arc::new(host.clone()), settings(), vec![plan("fast", "nope"), waits]);
        let node = node.await.expect("it starts");
        assert_eq!(node.lacks_every_group().await, None, "a group is still to be made");
        host.remove_disk(&disk);
        assert!(lacking(&[("fast", "vg0")]).await.is_some(), "its only disk is away");
    });
}

#[test]
fn a_volume_whose_group_can_not_be_read_is_out_of_reach() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        for disk in ["/dev/fake0", "/dev/fake1"] {
            host.fail_disk(Path::new(disk));
        }
        assert!(told(&node).await.contains(&("VolumeGroupUnavailable", Severity::Inaccessible)));
    });
}

#[test]
fn a_file_system_with_errors_is_degraded() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        let device = host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("active");
        match host.path_kind(&device).await {
            Ok(Some(pliant::host::PathKind::Block(number))) => host.find_error(number),
            other => panic!("{other:?}"),
        }
        assert_eq!(told(&node).await, [("FilesystemErrors", Severity::Degraded)]);
    });
}

/// A volume whose file system waits for a growth.
async fn waiting() -> (FakeHost, Arc<Node>) {
    let before = [Op::Create(EXT4), Op::Stage(EXT4), Op::Sparse, Op::Grow(LARGE), Op::Stage(EXT4)];
    let (host, _, node) = after(&before).await;
    assert_eq!(told(&node).await, [("FilesystemResizePending", Severity::Degraded)]);
    (host, node)
}

async fn state(node: &Node) -> State {
    node.find(&id_of(VOLUME)).await.expect("a look").expect("a volume").state
}

#[test]
fn a_file_system_that_somebody_else_has_grown_waits_no_more() {
    block_on(async {
        let (host, node) = waiting().await;
        host.ext_resize(Path::new(STAGING), LARGE << 8).await.expect("it grows");
        Op::Stage(EXT4).ask(&host, &node).await.expect("stage");
        assert_eq!(told(&node).await, []);
        assert_eq!(state(&node).await, State::Resized);
    });
}

#[test]
fn a_file_system_that_grew_unmounted_is_told_as_resized() {
    block_on(async {
        let before = [Op::Create(EXT4), Op::Stage(EXT4), Op::Sparse, Op::Unstage, Op::Grow(LARGE)];
        let (_host, _, node) = after(&before).await;
        assert_eq!(state(&node).await, State::Resized);
    });
}

#[test]
fn what_a_deleted_volume_waited_for_is_not_told_of_the_next_of_its_name() {
    block_on(async {
        let (host, node) = waiting().await;
        for op in [Op::Unstage, Op::Delete, Op::Create(EXT4)] {
            op.ask(&host, &node).await.expect("it is made anew");
        }
        assert_eq!(told(&node).await, []);
        assert_eq!(state(&node).await, State::Ready);
    });
}

/// A pool of a group of one disk and of one of two, with 80, 180 and 280 MiB for volumes.
async fn uneven() -> (FakeHost, Arc<Node>) {
    let host = FakeHost::new();
    let [small, one, other] = [100, 200, 300].map(|mib| host.add_disk(Bytes::mib(mib)));
    host.add_group("vg0", &[small]);
    host.add_group("vg1", &[one, other]);
    let groups = ["vg0", "vg1"].map(|name| GroupSource::Existing(name.to_owned())).to_vec();
    let plan = PoolPlan::new("fast".parse().expect("a name"), groups);
    let node = Setup { settings: settings(), plans: vec![plan] }.start(&host).await;
    (host, node)
}

#[test]
fn a_pool_is_summed_up_as_its_groups_are() {
    block_on(async {
        let (host, node) = uneven().await;
        let summary = |node: &Node| {
            let pool = node.remembered_pools().remove(0);
            (pool.size, pool.free, pool.largest, pool.available)
        };
        let mib = Bytes::mib;
        assert_eq!(summary(&node), (mib(540), mib(540), mib(460), true));
        node.ensure(&want(VOLUME, Mode::Block, 100)).await.expect("create");
        assert_eq!(summary(&node), (mib(540), mib(440), mib(360), true));
        // What can not be changed has no room.
        host.remove_disk(Path::new("/dev/fake2"));
        node.list(&Page::default()).await.expect("the group is told as it was");
        assert_eq!(summary(&node), (mib(540), mib(80), mib(80), false));
    });
}

#[test]
fn a_pool_is_not_available_where_a_group_was_never_read_or_hangs() {
    block_on(async {
        let (host, node) = uneven().await;
        host.hang_disk(Path::new("/dev/fake0"));
        node.list(&Page::default()).await.expect("the other group is here");
        assert!(!node.remembered_pools()[0].available);
        assert_eq!(node.remembered_pools()[0].size, Bytes::mib(540));
    });
}

#[test]
fn a_pool_of_which_a_group_was_never_seen_is_not_available() {
    block_on(async {
        let (host, mut setup, _) = after(&[]).await;
        setup.plans[0].groups.push(GroupSource::Existing("vg9".to_owned()));
        let pool = setup.start(&host).await.remembered_pools().remove(0);
        assert_eq!((pool.size, pool.available), (Bytes::mib(1260), false));
    });
}

#[test]
fn a_pool_of_which_a_group_is_left_is_degraded_and_one_without_is_out_of_reach() {
    block_on(async {
        let (host, node) = uneven().await;
        for (disk, told) in [
            ("/dev/fake0", (Severity::Degraded, false)),
            ("/dev/fake1", (Severity::Degraded, false)),
            ("/dev/fake2", (Severity::Inaccessible, true)),
        ] {
            host.fail_disk(Path::new(disk));
            let health = node.storage_health().await.remove(0);
            assert_eq!((health.ailment.severity, health.unreachable), told, "{disk}");
        }
    });
}

#[test]
fn a_list_has_an_order_and_a_last_page_that_is_just_full_has_no_next() {
    block_on(async {
        let (_, node) = uneven().await;
        // After the first the groups are equally roomy, and take turns.
        for (number, mib) in [384, 4, 4, 4, 4, 4].into_iter().enumerate() {
            node.ensure(&want(&format!("v{number}"), Mode::Block, mib)).await.expect("create");
        }
        let mut ids = Vec::new();
        let mut page = Page { most: Some(2), ..Page::default() };
        for pages in 1.. {
            let listing = node.list(&page).await.expect("a page");
            assert_eq!(listing.volumes.len(), 2);
            ids.extend(listing.volumes.into_iter().map(|one| one.volume.id));
            page.after = listing.next;
            if page.after.is_none() {
                assert_eq!(pages, 3);
                break;
            }
        }
        let mut sorted = ids.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!((ids.len(), &ids), (6, &sorted));
    });
}
