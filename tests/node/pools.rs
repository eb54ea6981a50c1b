//! Pools, their groups and disks: what may become part of one, where a volume is looked for, and what
//! is told of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::host::{Cmd, Holder, Host};
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, NewDisk, Node, PoolPlan};
use pliant::testing::FakeHost;
use pliant::volume::{
    CapacityQuery, Class, FsKind, Mode, NodeKey, NodeVolumes, VolumeError, VolumeId, VolumeKey,
    Volumes,
};

use crate::cuts::block_on;
use crate::machine::{Disks, Op, STAGING, Setup, TARGET, VOLUME, id_of, settings, want};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

fn plan(name: &str, groups: Vec<GroupSource>) -> PoolPlan {
    PoolPlan::new(name.parse().expect("a name"), groups)
}

fn existing(group: &str) -> GroupSource {
    GroupSource::Existing(group.to_owned())
}

async fn start(host: &FakeHost, plans: Vec<PoolPlan>) -> Arc<Node> {
    Setup { settings: settings(), plans }.start(host).await
}

async fn type_in(host: &FakeHost, group: &str, line: &str) {
    let disks = host.disks().await.expect("disks").into_iter().map(|disk| disk.path);
    host.pin_devices(group, &disks.collect::<Vec<_>>()).await.expect("pinned");
    let (program, args) = line.split_once(' ').expect("a command");
    let program: &'static str = program.to_owned().leak();
    let said = host.lvm(group, Cmd::new(program).args(args.split(' '))).await.expect("it ran");
    assert!(!said.contains("failure"), "{line}: {said}");
}

/// A node with a pool of one group for each name.
async fn with_pools(names: &[&str]) -> (FakeHost, Arc<Node>) {
    let host = FakeHost::new();
    for (at, _) in names.iter().enumerate() {
        let disk = host.add_disk(Bytes::mib(500));
        host.add_group(&format!("vg{at}"), &[disk]);
    }
    let plans = names.iter().enumerate();
    let plans = plans.map(|(at, name)| plan(name, vec![existing(&format!("vg{at}"))]));
    let node = start(&host, plans.collect()).await;
    (host, node)
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, VolumeError>) -> String {
    match answer {
        Err(VolumeError::PreconditionFailed { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn room(node: Option<&str>) -> CapacityQuery {
    CapacityQuery { class: Class::default(), mode: None, node: node.map(str::to_owned) }
}

/// A pool that is to be made on a disk which may be wiped.
async fn make_on(host: &FakeHost, disk: &Path, wipe: bool) -> Option<String> {
    let source = GroupSource::Create(NewDisk { path: disk.to_owned(), wipe });
    let node = start(host, vec![plan("fast", vec![source])]).await;
    trouble(&node).await
}

/// What is wrong with its pools.
async fn trouble(node: &Node) -> Option<String> {
    Some(node.storage_health().await.first()?.ailment.message.clone())
}

#[test]
fn a_disk_is_wiped_only_where_that_was_allowed() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        host.set_foreign_signature(&disk, "swap");
        let trouble = make_on(&host, &disk, false).await.expect("it is not blank");
        assert!(trouble.contains("swap") && trouble.contains("nothing was changed"), "{trouble}");
        assert_eq!(host.effects(), Vec::<String>::new());
    });
}

#[test]
fn bytes_that_nobody_knows_are_no_blank_disk() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        host.write_at(&disk, 900 << 10, b"a database without a header");
        let trouble = make_on(&host, &disk, false).await.expect("it is not blank");
        assert!(trouble.contains("data without a known signature"), "{trouble}");
        assert_eq!(host.effects(), Vec::<String>::new());
    });
}

#[test]
fn a_disk_with_volumes_of_ours_is_never_wiped() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        Op::Create(EXT4).ask(&host, &node).await.expect("create");
        let before = host.state().groups;
        let disk = host.disks().await.expect("disks")[0].path.clone();
        let trouble = make_on(&host, &disk, true).await.expect("it is in use");
        assert!(trouble.contains("volume group vg0"), "{trouble}");
        assert_eq!(host.state().groups, before);
    });
}

#[test]
fn a_group_of_another_pool_is_not_taken() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        let source = || vec![GroupSource::Create(NewDisk { path: disk.clone(), wipe: false })];
        let node = start(&host, vec![plan("fast", source())]).await;
        assert_eq!(trouble(&node).await, None);
        let node = start(&host, vec![plan("slow", source())]).await;
        let said = trouble(&node).await.expect("it is that of another");
        assert!(said.contains("is not blank"), "{said}");
        let node = start(&host, vec![plan("fast", source())]).await;
        assert_eq!(trouble(&node).await, None, "it is found again");
    });
}

#[test]
fn a_pool_that_may_hide_a_volume_makes_it_no_absent_one() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        host.set_foreign_signature(&disk, "swap");
        let source = GroupSource::Create(NewDisk { path: disk, wipe: false });
        let node = start(&host, vec![plan("fast", vec![source])]).await;
        let answer = node.find(&id_of(VOLUME)).await;
        assert!(matches!(answer, Err(VolumeError::Unavailable { .. })), "{answer:?}");
        let answer = node.remove(&id_of(VOLUME)).await;
        assert!(matches!(answer, Err(VolumeError::Unavailable { .. })), "{answer:?}");
    });
}

#[test]
fn two_logical_volumes_of_one_name_are_refused() {
    block_on(async {
        let (host, node) = with_pools(&["default", "slow"]).await;
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
        let lv = lv_name(id_of(VOLUME).key());
        let tags = host.group("vg0").expect("a group").lvs[&lv].tags.clone();
        let tags: String = tags.iter().map(|tag| format!(" --addtag {tag}")).collect();
        let options = format!("-y -Wn -Zn --setautoactivation n -an -l 16 -n {lv}{tags}");
        type_in(&host, "vg1", &format!("lvcreate {options} vg1")).await;
        // One that has not seen them before: where it was seen last it is taken for the one.
        let node = start(&host, node_plans()).await;
        let said = refusal(node.remove(&id_of(VOLUME)).await);
        assert!(said.contains("exists in volume groups vg0 and vg1"), "{said}");
        assert!(host.group("vg0").expect("a group").lvs.contains_key(&lv));
    });
}

fn node_plans() -> Vec<PoolPlan> {
    vec![plan("default", vec![existing("vg0")]), plan("slow", vec![existing("vg1")])]
}

#[test]
fn a_volume_whose_tags_cannot_be_read_is_not_absent() {
    block_on(async {
        for tag in ["pliant.fstype=block", "pliant.state=new", "pliant.name=volume"] {
            let (host, node) = with_pools(&["default"]).await;
            node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
            let lv = lv_name(id_of(VOLUME).key());
            type_in(&host, "vg0", &format!("lvchange -y --deltag {tag} vg0/{lv}")).await;
            let said = refusal(node.remove(&id_of(VOLUME)).await);
            assert!(said.contains("do not identify it"), "{tag}: {said}");
            assert!(host.group("vg0").expect("a group").lvs.contains_key(&lv), "{tag}");
        }
    });
}

#[test]
fn a_volume_of_another_node_is_not_this_ones() {
    block_on(async {
        let (_, node) = with_pools(&["default"]).await;
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
        let other = VolumeId::new(NodeKey::of("beta"), VolumeKey::of(VOLUME));
        assert_eq!(node.find(&other).await.expect("a look"), None);
    });
}

#[test]
fn a_class_without_a_pool_takes_the_default_or_the_oldest() {
    block_on(async {
        for (names, chosen) in [
            (&["fast"][..], Some("fast")),
            (&["fast", "default"][..], Some("default")),
            (&["fast", "slow"][..], Some("fast")),
        ] {
            let (_, node) = with_pools(names).await;
            let made = node.ensure(&want(VOLUME, Mode::Block, 64)).await;
            let pool = made.as_ref().ok().map(|volume| volume.pool.as_str());
            assert_eq!(pool, chosen, "{names:?}: {made:?}");
        }
        let (_, node) = with_pools(&["fast", "default"]).await;
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
        let mut elsewhere = want(VOLUME, Mode::Block, 64);
        elsewhere.class.pool = Some("fast".parse().expect("a name"));
        match node.ensure(&elsewhere).await {
            Err(VolumeError::AlreadyExists { difference, .. }) => {
                assert_eq!(difference, "its pool is default, fast was requested");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn capacity_is_that_of_this_node_and_of_what_can_be_made() {
    block_on(async {
        let (_, node) = with_pools(&["default"]).await;
        let here = node.capacity(&room(Some("alpha"))).await.expect("capacity");
        assert_eq!((here.free, here.largest), (Bytes::mib(480), Bytes::mib(480)));
        let elsewhere = node.capacity(&room(Some("beta"))).await.expect("capacity");
        assert_eq!((elsewhere.free, elsewhere.largest), (Bytes::ZERO, Bytes::ZERO));

        node.ensure(&want(VOLUME, Mode::Block, 300)).await.expect("create");
        let xfs = Some(Mode::Filesystem(FsKind::Xfs));
        let left = node.capacity(&CapacityQuery { mode: xfs, ..room(None) }).await;
        let left = left.expect("capacity");
        assert_eq!((left.free, left.smallest), (Bytes::mib(180), Bytes::mib(300)));
        assert_eq!(left.largest, Bytes::ZERO, "no xfs fits");
    });
}

#[test]
fn a_file_system_gets_what_it_needs_at_least() {
    block_on(async {
        let (_, node) = with_pools(&["default"]).await;
        let made = node.ensure(&want(VOLUME, Mode::Filesystem(FsKind::Xfs), 1)).await;
        assert_eq!(made.expect("create").size, Bytes::mib(300));
    });
}

#[test]
fn no_more_standby_disks_join_than_are_needed() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::mib(100));
        host.add_group("vg0", &[disk]);
        let standby_disks: Vec<PathBuf> = (0..2).map(|_| host.add_disk(Bytes::mib(500))).collect();
        let standby_disks =
            standby_disks.into_iter().map(|path| NewDisk { path, wipe: false }).collect();
        let node =
            start(&host, vec![PoolPlan { standby_disks, ..plan("fast", vec![existing("vg0")]) }]);
        let node = node.await;
        node.ensure(&want(VOLUME, Mode::Block, 400)).await.expect("one standby disk is enough");
        assert_eq!(host.group("vg0").expect("a group").pvs.len(), 2);
    });
}

#[test]
fn a_volume_is_told_as_it_is() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(Mode::Block), Op::Stage(Mode::Block)] {
            op.ask(&host, &node).await.expect("done");
        }
        let id = id_of(VOLUME);
        let found = |node: Arc<Node>| {
            let id = id.clone();
            async move { node.find(&id).await.expect("a look").expect("a volume") }
        };
        assert!(!found(node.clone()).await.published);
        Op::Publish(Mode::Block).ask(&host, &node).await.expect("publish");
        assert!(found(node.clone()).await.published);
        let stats = node.stats(&id, Path::new(TARGET)).await.expect("stats");
        assert_eq!((stats.size, stats.usage), (Bytes::mib(320), None));
        // A device is there, and it is another's.
        let disk = host.disks().await.expect("disks")[0].path.clone();
        let answer = node.stats(&id, &disk).await;
        assert!(matches!(answer, Err(VolumeError::NotFound { .. })), "{answer:?}");
        host.remove_disk(&disk);
        let ailments = found(node.clone()).await.ailments;
        assert!(ailments.iter().any(|ailment| ailment.reason == "DiskMissing"), "{ailments:?}");
    });
}

#[test]
fn what_a_process_has_open_is_neither_deleted_nor_unstaged() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(Mode::Block), Op::Stage(Mode::Block)] {
            op.ask(&host, &node).await.expect("done");
        }
        let device = host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("active");
        host.open(&device);
        let id = id_of(VOLUME);
        for answer in [node.unstage(&id, Path::new(STAGING)).await, node.remove(&id).await] {
            match answer {
                Err(VolumeError::InUse { holder, .. }) => assert!(holder.contains("fuser")),
                other => panic!("{other:?}"),
            }
        }
        host.close(&device);
        node.remove(&id).await.expect("nobody holds it");
    });
}

fn array_and_group() -> Vec<Holder> {
    let holder = |name: &str, dm_name: Option<&str>| Holder {
        name: name.to_owned(),
        dm_name: dm_name.map(str::to_owned),
    };
    vec![holder("dm-9", Some("vg--x-root")), holder("md127", None), holder("loop3", None)]
}

const TO_STOP: &str =
    "`dmsetup remove vg--x-root && mdadm --stop /dev/md127 && losetup --detach /dev/loop3`";

#[test]
fn what_the_kernel_has_stacked_on_a_volume_is_named_with_the_commands_that_stop_it() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(Mode::Block), Op::Stage(Mode::Block)] {
            op.ask(&host, &node).await.expect("done");
        }
        let device = host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("active");
        host.stack(&device, array_and_group());
        let id = id_of(VOLUME);
        for answer in [node.unstage(&id, Path::new(STAGING)).await, node.remove(&id).await] {
            match answer {
                Err(VolumeError::InUse { holder, .. }) => {
                    assert!(holder.starts_with("vg--x-root, md127 and loop3 "), "{holder}");
                    assert!(holder.contains(TO_STOP), "{holder}");
                }
                other => panic!("{other:?}"),
            }
        }
        host.stack(&device, Vec::new());
        node.remove(&id).await.expect("nothing holds it");
    });
}

/// As an array that udev puts together of what the tenant has left, when the wipe closes the device.
#[test]
fn a_removal_that_lvm_refuses_names_what_is_stacked_on_the_volume() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(Mode::Block), Op::Stage(Mode::Block)] {
            op.ask(&host, &node).await.expect("done");
        }
        let id = id_of(VOLUME);
        let device = host.device_of("vg0", &lv_name(id.key())).expect("active");
        let rehearsal = host.after_crash();
        let other = setup.start(&rehearsal).await;
        rehearsal.forget_effects();
        other.remove(&id).await.expect("it can be removed");
        let flushed = format!("fsync {}", device.display());
        let wiped = rehearsal.effects().iter().rposition(|effect| *effect == flushed);
        host.forget_effects();
        host.hold_after(1 + wiped.expect("the end of the wipe"));
        let (removed, ()) = tokio::join!(node.remove(&id), async {
            host.held().await;
            host.stack(&device, array_and_group());
            host.let_go();
        });
        match removed {
            Err(VolumeError::InUse { holder, .. }) => assert!(holder.contains(TO_STOP), "{holder}"),
            other => panic!("{other:?}"),
        }
        host.stack(&device, Vec::new());
        node.remove(&id).await.expect("nothing holds it");
    });
}
