//! Pools that come, change and go while the driver runs: what is under way ends undisturbed, and no
//! volume is ever taken for gone.

use std::path::Path;
use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::node::storage::{DiskUse, OperationKind, PoolHealth};
use pliant::node::{GroupSource, NewDisk, Node, PoolPlan};
use pliant::testing::FakeHost;
use pliant::volume::Terms;
use pliant::volume::{CapacityQuery, Class, Mode, NewVolume, NodeVolumes, VolumeError, Volumes};
use tokio::task::yield_now;

use crate::cuts::block_on;
use crate::machine::{
    NEIGHBOUR, Setup, VOLUME, growth, id_of, settings, staging, type_in, until_wiped, want,
};

pub fn plan(name: &str, groups: &[&str]) -> PoolPlan {
    let groups = groups.iter().map(|group| GroupSource::Existing((*group).to_owned()));
    PoolPlan::new(name.parse().expect("a name"), groups.collect())
}

pub fn on(disk: &Path, wipe: bool) -> NewDisk {
    NewDisk { path: disk.to_owned(), wipe }
}

pub async fn start(host: &FakeHost, plans: &[PoolPlan]) -> Arc<Node> {
    let node = Setup { settings: settings(), plans: plans.to_vec() }.start(host).await;
    host.forget_effects();
    node
}

pub async fn set(node: &Node, plans: &[PoolPlan]) {
    node.set_pools(plans.to_vec()).await.expect("disks are listed");
}

/// A machine with the groups vg0, vg1, … of 480 MiB each.
pub fn machine(groups: usize) -> FakeHost {
    let host = FakeHost::new();
    for at in 0..groups {
        let disk = host.add_disk(Bytes::mib(500));
        host.add_group(&format!("vg{at}"), &[disk]);
    }
    host
}

pub fn in_pool(pool: &str, name: &str, mib: u64) -> NewVolume {
    let mut want = want(name, Mode::Block, mib);
    want.class.pool = Some(pool.parse().expect("a name"));
    want
}

fn names(node: &Node) -> Vec<String> {
    node.storage().pools.iter().map(|pool| pool.name.to_string()).collect()
}

async fn is_there(node: &Node, name: &str) -> bool {
    node.find(&id_of(name)).await.expect("a look").is_some()
}

#[test]
fn pools_come_and_go() {
    block_on(async {
        let host = machine(2);
        let node = start(&host, &[plan("fast", &["vg0"])]).await;
        let other = in_pool("slow", VOLUME, 64);
        let refused = node.ensure(&other).await;
        assert!(matches!(refused, Err(VolumeError::InvalidArgument { .. })), "{refused:?}");

        set(&node, &[plan("fast", &["vg0"]), plan("slow", &["vg1"])]).await;
        node.ensure(&other).await.expect("the pool is there");
        node.remove(&id_of(VOLUME)).await.expect("delete");
        let before = host.state();

        set(&node, &[plan("fast", &["vg0"])]).await;
        assert_eq!((names(&node), host.state()), (vec!["fast".to_owned()], before));
        let refused = node.ensure(&other).await;
        assert!(matches!(refused, Err(VolumeError::InvalidArgument { .. })), "{refused:?}");
    });
}

#[test]
fn a_pool_that_no_plan_names_is_kept_while_it_holds_volumes() {
    block_on(async {
        let host = machine(2);
        let slow = [plan("slow", &["vg1"])];
        let running = start(&host, &[plan("fast", &["vg0"])]).await;
        running.ensure(&in_pool("fast", VOLUME, 64)).await.expect("create");
        set(&running, &slow).await;
        // The one that was told so, and one that has never known another plan.
        for node in [running, start(&host, &slow).await] {
            assert!(is_there(&node, VOLUME).await);
            let said = node.storage_health().await;
            assert_eq!(said.len(), 1, "{said:?}");
            assert_eq!(said[0].ailment.reason, "PoolNotConfigured");
            assert!(said[0].ailment.message.contains("volume group vg0"), "{said:?}");
            let kept = node.storage().pools.into_iter().find(|pool| !pool.configured);
            let kept = kept.expect("it is told");
            assert_eq!((kept.volumes, kept.health), (1, PoolHealth::Degraded));
            assert_eq!(kept.reason, "PoolNotConfigured");

            let refused = node.ensure(&in_pool("fast", "another", 8)).await;
            assert!(matches!(refused, Err(VolumeError::InvalidArgument { .. })), "{refused:?}");
            let made = node.ensure(&want(NEIGHBOUR, Mode::Block, 8)).await.expect("the only one");
            assert_eq!(made.pool.as_str(), "slow");
        }

        let node = start(&host, &slow).await;
        node.grow(&id_of(VOLUME), growth(128)).await.expect("it is served");
        node.remove(&id_of(VOLUME)).await.expect("it is served to its end");
        set(&node, &slow).await;
        assert_eq!(names(&node), ["slow"]);
        assert!(!is_there(&node, VOLUME).await);
        assert_eq!(node.storage_health().await, []);
    });
}

#[test]
fn a_group_that_leaves_its_pool_takes_no_new_volume_and_no_standby_disk() {
    block_on(async {
        let host = machine(2);
        let standby = host.add_disk(Bytes::mib(500));
        let both =
            PoolPlan { standby_disks: vec![on(&standby, false)], ..plan("fast", &["vg0", "vg1"]) };
        let node = start(&host, &[both.clone()]).await;
        node.ensure(&want(VOLUME, Mode::Block, 300)).await.expect("in the first of equals");
        let one = PoolPlan { groups: plan("fast", &["vg1"]).groups, ..both.clone() };
        set(&node, &[one]).await;
        let grown = node.grow(&id_of(VOLUME), growth(600)).await;
        assert!(matches!(grown, Err(VolumeError::ExpansionOutOfRange { .. })), "{grown:?}");
        node.ensure(&want(NEIGHBOUR, Mode::Block, 480)).await.expect("in the other");
        assert_eq!(host.group("vg0").expect("a group").lvs.len(), 1);

        set(&node, &[both]).await;
        assert_eq!(node.storage_health().await, [], "it is named again");
        node.grow(&id_of(VOLUME), growth(600)).await.expect("the standby disk joins");
    });
}

/// The pool of a new volume of a class that names none.
async fn pool_of_none(node: &Node) -> String {
    let made = node.ensure(&want(NEIGHBOUR, Mode::Block, 8)).await.expect("it is made");
    node.remove(&id_of(NEIGHBOUR)).await.expect("delete");
    made.pool.as_str().to_owned()
}

#[test]
fn a_class_that_names_no_pool_keeps_its_pool_whatever_stands_beside_it() {
    block_on(async {
        let host = machine(2);
        let blank = host.add_disk(Bytes::mib(500));
        let used = host.add_disk(Bytes::mib(500));
        host.set_foreign_signature(&used, "zfs_member");
        let of_disk = |name: &str, disk: &Path, create| PoolPlan {
            groups: vec![GroupSource::Create(on(disk, false))],
            create,
            ..plan(name, &[])
        };
        let fast = plan("fast", &["vg0"]);
        let usable = plan("second", &["vg1"]);
        let looks = of_disk("looks", &blank, false);
        let refused = of_disk("refused", &used, true);
        let absent = plan("absent", &["typo"]);
        let named = |plan: &PoolPlan| PoolPlan { name: "default".parse().unwrap(), ..plan.clone() };
        // In the order of their age.
        for (plans, pool) in [
            (vec![fast.clone()], "fast"),
            (vec![fast.clone(), usable.clone()], "fast"),
            (vec![usable.clone(), fast.clone()], "second"),
            (vec![fast.clone(), looks.clone()], "fast"),
            (vec![looks.clone(), refused.clone(), absent.clone(), fast.clone()], "fast"),
            (vec![fast.clone(), named(&looks)], "fast"),
            (vec![fast.clone(), named(&refused)], "fast"),
            (vec![fast.clone(), named(&absent)], "fast"),
            (vec![fast.clone(), named(&usable)], "default"),
            (vec![looks.clone(), usable.clone()], "second"),
        ] {
            let restarted = start(&host, &plans).await;
            assert_eq!(pool_of_none(&restarted).await, pool, "{plans:?}");
            let query = CapacityQuery { class: Class::default(), mode: None, node: None };
            let capacity = restarted.capacity(&query).await.expect("capacity");
            assert_eq!(capacity.largest, Bytes::mib(480), "{plans:?}");
        }
        // Also while the node runs.
        let node = start(&host, &[fast.clone()]).await;
        for plans in [
            vec![fast.clone(), looks.clone()],
            vec![fast.clone(), refused.clone()],
            vec![fast.clone(), usable.clone()],
        ] {
            set(&node, &plans).await;
            assert_eq!(pool_of_none(&node).await, "fast", "{plans:?}");
        }
        let only = [looks];
        set(&node, &only).await;
        let made = node.ensure(&want(NEIGHBOUR, Mode::Block, 8)).await;
        assert!(matches!(made, Err(VolumeError::Unavailable { .. })), "it says why: {made:?}");
    });
}

#[test]
fn one_pool_that_cannot_be_used_does_not_make_its_node_unusable() {
    block_on(async {
        let host = machine(1);
        let absent = GroupSource::Create(on(Path::new("/dev/nosuch"), false));
        let twice = PoolPlan::new("twice".parse().expect("a name"), vec![absent]);
        let node = start(&host, &[plan("fast", &["vg0"]), twice.clone()]).await;
        let storage = node.storage();
        let health: Vec<PoolHealth> = storage.pools.iter().map(|pool| pool.health).collect();
        assert_eq!(health, [PoolHealth::Ok, PoolHealth::Unavailable]);
        assert_eq!(storage.health, PoolHealth::Degraded);
        set(&node, &[twice]).await;
        assert_eq!(node.storage().health, PoolHealth::Unavailable, "there is no other one");
        let blank = host.add_disk(Bytes::mib(500));
        let groups = vec![GroupSource::Create(on(&blank, false))];
        let looks = PoolPlan { create: false, groups, ..plan("looks", &[]) };
        set(&node, &[plan("fast", &["vg0"]), looks.clone()]).await;
        assert_eq!(node.storage().health, PoolHealth::Ok, "a look is no fault");
        set(&node, &[looks]).await;
        assert_eq!(node.storage().health, PoolHealth::Unavailable, "nothing can be made here");
    });
}

#[test]
fn a_group_whose_disk_is_away_is_kept_if_it_held_volumes() {
    block_on(async {
        let host = machine(1);
        let node = start(&host, &[plan("fast", &["vg0", "typo"])]).await;
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
        host.remove_disk(Path::new("/dev/fake0"));
        set(&node, &[]).await;
        let groups: Vec<String> = node.storage().groups.into_iter().map(|g| g.name).collect();
        assert_eq!(groups, ["vg0"], "one that never was is let go");
        let answer = node.remove(&id_of(VOLUME)).await;
        assert!(matches!(answer, Err(VolumeError::Unavailable { .. })), "{answer:?}");
    });
}

#[test]
fn a_copy_of_a_group_is_not_taken_for_one_that_was_forgotten() {
    block_on(async {
        let host = machine(2);
        let node = start(&host, &[plan("fast", &["vg0"])]).await;
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
        let lv = pliant::node::lv_tags::lv_name(id_of(VOLUME).key());
        let tags = host.group("vg0").expect("a group").lvs[&lv].tags.clone();
        let tags: String = tags.iter().map(|tag| format!(" --addtag {tag}")).collect();
        let options = format!("-y -Wn -Zn --setautoactivation n -an -l 16 -n {lv}{tags}");
        type_in(&host, "vg1", &format!("lvcreate {options} vg1")).await;
        for node in [node, start(&host, &[plan("fast", &["vg0"])]).await] {
            set(&node, &[plan("fast", &["vg0"])]).await;
            assert!(is_there(&node, VOLUME).await);
            assert_eq!(names(&node), ["fast"]);
        }
    });
}

#[test]
fn work_on_a_group_goes_on_while_pools_change_around_it() {
    block_on(async {
        let host = machine(2);
        let fast = plan("fast", &["vg0"]);
        let node = start(&host, &[fast.clone()]).await;
        node.ensure(&in_pool("fast", VOLUME, 64)).await.expect("create");
        host.forget_effects();
        host.hold_after(2);
        let grower = node.clone();
        let growing = tokio::spawn(async move { grower.grow(&id_of(VOLUME), growth(128)).await });
        host.held().await;
        set(&node, &[plan("slow", &["vg1"]), fast]).await;
        let made = node.ensure(&in_pool("slow", NEIGHBOUR, 64)).await;
        made.expect("a new pool serves meanwhile");
        host.let_go();
        let grown = growing.await.expect("it ran").expect("it ends");
        assert_eq!(grown.size, Bytes::mib(128));
    });
}

#[test]
fn the_same_plans_again_change_nothing_and_keep_what_is_known() {
    block_on(async {
        let host = machine(1);
        let blank = host.add_disk(Bytes::gib(1));
        let made = GroupSource::Create(on(&blank, true));
        let made = PoolPlan::new("made".parse().expect("a name"), vec![made]);
        let plans = [plan("fast", &["vg0"]), made];
        let node = start(&host, &plans).await;
        for pool in ["fast", "made"] {
            node.ensure(&in_pool(pool, pool, 64)).await.expect("create");
        }
        until_wiped(&node).await;
        let (spent, storage) = (node.lvm_spent(), node.storage());
        host.forget_effects();
        for _again in 0..2 {
            set(&node, &plans).await;
        }
        let (one, two) =
            tokio::join!(node.set_pools(plans.to_vec()), node.set_pools(plans.to_vec()));
        one.and(two).expect("one after the other");
        assert_eq!(host.effects(), [""; 0]);
        assert_eq!((node.lvm_spent(), node.storage()), (spent, storage));
    });
}

/// Remove the last volume of a pool while the pool goes and another volume is to be made in it; what
/// the maker was told. The machine holds the removal after its `n`-th effect, if it has so many.
async fn remove_the_last_one(n: usize) -> (usize, Result<(), VolumeError>) {
    let host = machine(2);
    let (fast, slow) = (plan("fast", &["vg0"]), plan("slow", &["vg1"]));
    let node = start(&host, &[fast.clone(), slow]).await;
    node.ensure(&in_pool("slow", VOLUME, 64)).await.expect("create");
    host.forget_effects();
    host.hold_after(n);
    let (remover, setter, maker) = (node.clone(), node.clone(), node.clone());
    let removal = tokio::spawn(async move { remover.remove(&id_of(VOLUME)).await });
    turns().await;
    let effects = host.effects().len();
    let setting = tokio::spawn(async move { setter.set_pools(vec![fast]).await });
    turns().await;
    let another = in_pool("slow", NEIGHBOUR, 64);
    let making = tokio::spawn(async move { maker.ensure(&another).await.map(drop) });
    turns().await;
    host.let_go();
    removal.await.expect("it ran").expect("it ends");
    setting.await.expect("it ran").expect("it ends");
    let made = making.await.expect("it ran");
    assert_eq!(is_there(&node, NEIGHBOUR).await, made.is_ok(), "{n}: {made:?}");
    (effects, made)
}

async fn turns() {
    for _turn in 0..2000 {
        yield_now().await;
    }
}

#[test]
fn no_volume_is_made_in_a_group_that_is_let_go() {
    let mut refused = 0;
    for n in 1.. {
        let (effects, made) = block_on(remove_the_last_one(n));
        let changed = |reason: &str| reason.contains("has just changed");
        refused += usize::from(
            matches!(&made, Err(VolumeError::Unavailable { reason }) if changed(reason)),
        );
        if effects < n {
            break;
        }
    }
    assert!(refused > 0, "it never waited for the group");
}

#[test]
fn a_wipe_under_way_is_told_and_ends_although_its_pool_is_gone() {
    block_on(async {
        let host = machine(1);
        let node = start(&host, &[plan("fast", &["vg0"])]).await;
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
        node.stage(&staging(Mode::Block)).await.expect("stage");
        host.forget_effects();
        let wipe = {
            let copy = host.after_crash();
            let node = start(&copy, &[plan("fast", &["vg0"])]).await;
            node.remove(&id_of(VOLUME)).await.expect("delete");
            copy.effects().iter().position(|effect| effect.starts_with("BLKZEROOUT"))
        };
        host.hold_after(wipe.expect("it is wiped") + 1);
        let remover = node.clone();
        let removal = tokio::spawn(async move { remover.remove(&id_of(VOLUME)).await });
        host.held().await;
        set(&node, &[]).await;
        let operations = node.storage().operations;
        assert_eq!(operations.len(), 1);
        let only = &operations[0];
        assert_eq!((&only.volume, only.r#type), (&id_of(VOLUME), OperationKind::Wipe));
        assert_eq!(only.progress, "0 % (0 B of 64 MiB)");
        host.let_go();
        removal.await.expect("it ran").expect("it ends");
        assert_eq!(node.storage().operations, []);
        set(&node, &[]).await;
        assert_eq!(names(&node), [""; 0]);
    });
}

#[test]
fn a_group_that_two_pools_name_stays_where_it_is() {
    block_on(async {
        let host = machine(1);
        let (old, new) = (plan("old", &["vg0"]), plan("new", &["vg0"]));
        let node = start(&host, &[old.clone()]).await;
        set(&node, &[new.clone(), old]).await;
        let storage = node.storage();
        assert_eq!(storage.groups.len(), 1);
        assert_eq!(storage.groups[0].pool.as_str(), "old");
        let refused = &storage.pools[0].refused;
        assert!(refused[0].contains("vg0 is already in pool old"), "{refused:?}");
        assert!(!is_there(&node, VOLUME).await, "it hides nothing");

        node.ensure(&in_pool("old", VOLUME, 64)).await.expect("create");
        set(&node, &[new]).await;
        let found = node.find(&id_of(VOLUME)).await.expect("a look").expect("it moves along");
        assert_eq!(found.volume.pool.as_str(), "new");
        assert_eq!(node.storage().health, PoolHealth::Ok);
    });
}

#[test]
fn new_volumes_leave_the_reserve_to_growths() {
    block_on(async {
        let host = machine(2);
        let standby = host.add_disk(Bytes::mib(217)); // 200 MiB after joining.
        let reserve = Bytes::mib(99); // 25 extents.
        let terms = Terms { reserve, ..Terms::default() };
        let node = start(&host, &[PoolPlan { terms, ..plan("fast", &["vg0", "vg1"]) }]).await;
        let query = CapacityQuery { class: Class::default(), mode: None, node: None };
        let capacity = node.capacity(&query).await.expect("capacity");
        assert_eq!((capacity.free, capacity.largest), (Bytes::mib(760), Bytes::mib(380)));
        assert_eq!(node.storage().free, Bytes::mib(960), "it is free all the same");
        match node.ensure(&want(VOLUME, Mode::Block, 384)).await {
            Err(VolumeError::InsufficientCapacity { free, largest, hindrance, .. }) => {
                assert_eq!((free, largest), (Bytes::mib(760), Bytes::mib(380)));
                let hindrance = hindrance.expect("it is told");
                assert!(hindrance.contains("99 MiB of each volume group"), "{hindrance}");
            }
            other => panic!("{other:?}"),
        }
        node.ensure(&want(VOLUME, Mode::Block, 380)).await.expect("create");
        node.grow(&id_of(VOLUME), growth(480)).await.expect("growths may take it");

        let standby_disks = vec![on(&standby, false)];
        let one = PoolPlan { terms, standby_disks, ..plan("fast", &["vg1"]) };
        set(&node, &[one]).await;
        let largest = node.storage().pools[0].largest[0].size;
        assert_eq!(largest, Bytes::mib(580));
        assert_eq!(node.capacity(&query).await.expect("capacity").largest, largest);
        node.ensure(&want(NEIGHBOUR, Mode::Block, 580)).await.expect("the standby disk joins");
        assert_eq!(node.capacity(&query).await.expect("capacity").free, Bytes::ZERO);
        let joined = |disk: &&pliant::node::storage::DiskReport| disk.device == "/dev/fake2";
        let disks = node.storage().disks;
        assert_eq!(disks.iter().find(joined).expect("it is told").state, DiskUse::Used);
        assert!(host.device_size(&standby).await.is_ok());
    });
}
