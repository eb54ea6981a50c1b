//! What a pool would do with disks is told before it is done, and what is told is what is done then.

use std::path::{Path, PathBuf};

use pliant::bytes::Bytes;
use pliant::node::storage::{DiskReport, DiskUse, PoolHealth, PoolReport};
use pliant::node::{GroupSource, NewDisk, Node, PoolPlan};
use pliant::testing::FakeHost;
use pliant::volume::{Mode, Volumes};

use crate::cuts::block_on;
use crate::machine::{VOLUME, id_of, want};
use crate::plans::{in_pool, machine, on, plan, set, start};

/// A pool of a group on each of these disks, which is only looked at.
fn of(disks: &[NewDisk], standby_disks: &[NewDisk]) -> PoolPlan {
    let groups = disks.iter().cloned().map(GroupSource::Create).collect();
    let standby_disks = standby_disks.to_vec();
    PoolPlan {
        create: false,
        standby_disks,
        ..PoolPlan::new("fast".parse().expect("a name"), groups)
    }
}

fn created(plan: &PoolPlan) -> PoolPlan {
    PoolPlan { create: true, ..plan.clone() }
}

fn state(node: &Node, device: &Path) -> DiskReport {
    let device = device.display().to_string();
    let mut disks = node.storage().disks;
    disks.retain(|disk| disk.device == device);
    assert_eq!(disks.len(), 1, "{device}: {disks:?}");
    disks.remove(0)
}

fn states(node: &Node, disks: &[PathBuf]) -> Vec<DiskUse> {
    disks.iter().map(|disk| state(node, disk).state).collect()
}

/// The name of the group after `create volume group`.
fn group_of(step: &str) -> String {
    let rest = step.split("create volume group ").nth(1).expect("it makes one");
    rest.split(' ').next().expect("a name").to_owned()
}

#[test]
fn a_dry_run_says_what_is_then_done_and_changes_nothing() {
    block_on(async {
        let host = FakeHost::new();
        let disks: Vec<PathBuf> = (0..4).map(|_| host.add_disk(Bytes::gib(1))).collect();
        host.set_foreign_signature(&disks[1], "swap");
        host.set_foreign_signature(&disks[3], "swap");
        let dry = of(
            &[on(&disks[0], false), on(&disks[1], true)],
            &[on(&disks[2], false), on(&disks[3], true)],
        );
        let before = host.state();
        let node = start(&host, &[dry.clone()]).await;
        set(&node, &[dry.clone()]).await;
        assert_eq!(host.effects(), [""; 0]);
        assert_eq!(host.state(), before);

        let pool = node.storage().pools.remove(0);
        let steps = pool.plan.clone();
        let (first, second) = (group_of(&steps[0]), group_of(&steps[1]));
        assert_eq!(
            steps,
            [
                format!("create volume group {first} on /dev/fake0 (blank, 1 GiB)"),
                format!(
                    "wipe /dev/fake1, which carries swap, then create volume group {second} on it"
                ),
                "/dev/fake2 joins a volume group when one needs space (blank, 1 GiB)".to_owned(),
                "/dev/fake3 joins a volume group when one needs space, and is wiped then: it \
                 carries swap"
                    .to_owned(),
            ]
        );
        assert_eq!((pool.refused, pool.health), (Vec::new(), PoolHealth::Unavailable));
        assert_eq!(pool.reason, "NoVolumeGroup");
        assert_eq!(pool.largest[0].size, Bytes::ZERO, "nothing can be made yet");
        assert_eq!(states(&node, &disks), [DiskUse::Standby; 4]);
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect_err("it has no group");
        assert_eq!(host.effects(), [""; 0]);

        set(&node, &[created(&dry)]).await;
        let groups: Vec<String> = host.state().groups.into_keys().collect();
        let mut planned = vec![first, second];
        planned.sort();
        assert_eq!(groups, planned);
        let pool = node.storage().pools.remove(0);
        assert_eq!((pool.plan, pool.refused, pool.health), (vec![], vec![], PoolHealth::Ok));
        assert_eq!(pool.reason, "Healthy");
        let expected = [DiskUse::Used, DiskUse::Used, DiskUse::Standby, DiskUse::Standby];
        assert_eq!(states(&node, &disks), expected);
        node.ensure(&want(VOLUME, Mode::Block, 1200)).await.expect("a standby disk joins");
    });
}

#[test]
fn no_standby_disk_joins_while_disks_are_only_looked_at() {
    block_on(async {
        let host = machine(1);
        let standby = host.add_disk(Bytes::gib(1));
        let standby_disks = vec![on(&standby, false)];
        let dry = PoolPlan { standby_disks, create: false, ..plan("fast", &["vg0"]) };
        let node = start(&host, &[dry.clone()]).await;
        assert_eq!(node.storage().pools[0].largest[0].size, Bytes::mib(480));
        node.ensure(&want(VOLUME, Mode::Block, 300)).await.expect("the group is served");
        node.ensure(&want("more", Mode::Block, 600)).await.expect_err("no disk joins");
        assert_eq!(host.group("vg0").expect("a group").pvs.len(), 1);
        set(&node, &[created(&dry)]).await;
        node.ensure(&want("more", Mode::Block, 600)).await.expect("the disk joins");
    });
}

#[test]
fn a_disk_that_is_not_blank_is_refused_by_name_until_it_may_be_wiped() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        host.set_foreign_signature(&disk, "swap");
        for create in [false, true] {
            let plan = PoolPlan { create, ..of(&[on(&disk, false)], &[on(&disk, false)]) };
            let plan = PoolPlan { standby_disks: Vec::new(), ..plan };
            let node = start(&host, &[plan]).await;
            let pool = node.storage().pools.remove(0);
            assert_eq!((pool.plan.len(), pool.refused.len()), (0, 1), "{pool:?}");
            for words in
                ["/dev/fake0", "swap", "`--allow-wipe-disk /dev/fake0`", "`wipeExisting: true`"]
            {
                assert!(pool.refused[0].contains(words), "{words}: {pool:?}");
            }
            let told = state(&node, &disk);
            let expected = (DiskUse::Refused, pool.refused.first().cloned());
            assert_eq!((told.state, told.message), expected);
            assert_eq!(host.effects(), [""; 0]);
            set(&node, &[of(&[on(&disk, true)], &[])]).await;
            assert_eq!(host.effects(), [""; 0], "it is only looked at");
        }
        let node = start(&host, &[created(&of(&[on(&disk, true)], &[]))]).await;
        assert_eq!(state(&node, &disk).state, DiskUse::Used);
        assert_eq!(node.storage().health, PoolHealth::Ok);
    });
}

#[test]
fn a_refused_standby_disk_is_told_and_taken_when_it_is_free() {
    block_on(async {
        let host = machine(1);
        let standby = host.add_disk(Bytes::gib(1));
        host.set_foreign_signature(&standby, "swap");
        let plan = PoolPlan { standby_disks: vec![on(&standby, false)], ..plan("fast", &["vg0"]) };
        let node = start(&host, &[plan]).await;
        let pool = node.storage().pools.remove(0);
        assert_eq!((pool.health, pool.refused.len()), (PoolHealth::Degraded, 1));
        assert_eq!(pool.reason, "DiskRejected");
        assert_eq!(state(&node, &standby).state, DiskUse::Refused);
        assert!(node.find(&id_of(VOLUME)).await.expect("it hides nothing").is_none());
        host.write_at(&standby, 0, &[0; 4096]);
        node.ensure(&want(VOLUME, Mode::Block, 600)).await.expect("it is blank now");
        assert_eq!(state(&node, &standby).state, DiskUse::Used);
    });
}

#[test]
fn a_missing_disk_is_told_and_taken_when_it_comes() {
    block_on(async {
        let host = FakeHost::new();
        let name = PathBuf::from("/dev/disk/by-id/nvme-one");
        let plans = [created(&of(&[on(&name, false)], &[]))];
        let node = start(&host, &plans).await;
        let told = state(&node, &name);
        assert_eq!((told.state, told.size), (DiskUse::Missing, None));
        assert!(told.message.expect("a reason").contains("does not exist"));

        let disk = host.add_disk(Bytes::gib(1));
        host.link(&name, &disk);
        set(&node, &plans).await;
        let told = state(&node, &name);
        assert_eq!((told.state, told.size), (DiskUse::Used, Some(Bytes::gib(1))));
        let group = told.group.expect("it is in one");
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");

        host.remove_disk(&disk);
        set(&node, &plans).await;
        assert_eq!(node.storage().health, PoolHealth::Unavailable);
        assert_eq!(node.storage().groups[0].health, PoolHealth::Unavailable);
        assert_eq!(node.storage().groups[0].reason, "VolumeGroupUnavailable");
        let told = state(&node, &name);
        assert_eq!((told.state, told.group), (DiskUse::Missing, Some(group)));
        assert_eq!(node.storage().disks.len(), 1);
        node.find(&id_of(VOLUME)).await.expect("a look").expect("it is not gone");
    });
}

#[test]
fn a_disk_is_the_same_behind_another_name() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        let name = PathBuf::from("/dev/disk/by-id/nvme-one");
        host.link(&name, &disk);
        let plans = [created(&of(&[on(&name, true)], &[]))];
        let node = start(&host, &plans).await;
        node.ensure(&want(VOLUME, Mode::Block, 64)).await.expect("create");
        host.forget_effects();
        let node = start(&host, &plans).await;
        assert!(node.find(&id_of(VOLUME)).await.expect("a look").is_some(), "it is found again");
        // Its permission to be wiped was given before it held a volume.
        let other = PoolPlan { name: "other".parse().expect("a name"), ..plans[0].clone() };
        let node = start(&host, &[other]).await;
        assert_eq!(state(&node, &name).state, DiskUse::Refused);
        assert!(node.find(&id_of(VOLUME)).await.is_ok_and(|found| found.is_some()));
    });
}

#[test]
fn a_disk_that_is_named_twice_is_given_to_nobody() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        let link = PathBuf::from("/dev/disk/by-id/nvme-one");
        host.link(&link, &disk);
        let one = created(&of(&[on(&disk, true)], &[on(&link, true)]));
        let node = start(&host, &[one]).await;
        assert_eq!(host.effects(), [""; 0]);
        let refused = node.storage().pools.remove(0).refused;
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("more than once, by pool fast;"), "{refused:?}");

        let one = created(&of(&[on(&disk, true)], &[]));
        let name = "slow".parse().expect("a name");
        let other = PoolPlan { name, ..created(&of(&[], &[on(&link, true)])) };
        set(&node, &[one.clone(), other.clone()]).await;
        assert_eq!(host.effects(), [""; 0]);
        let refused = node.storage().pools.remove(0).refused;
        assert!(refused[0].contains("by pool fast and slow;"), "{refused:?}");
        set(&node, &[one, PoolPlan { standby_disks: Vec::new(), ..other }]).await;
        assert_eq!(node.storage().disks[0].state, DiskUse::Used);
    });
}

#[test]
fn the_disk_of_a_pool_is_not_wiped_for_another_although_it_is_empty() {
    block_on(async {
        let host = machine(2);
        let disk = PathBuf::from("/dev/fake0");
        let name = "greedy".parse().expect("a name");
        let greedy = PoolPlan { name, ..created(&of(&[on(&disk, true)], &[])) };
        let standby_disks = vec![on(&disk, true)];
        let slow = PoolPlan { standby_disks, ..plan("slow", &["vg1"]) };
        let fast = plan("fast", &["vg0"]);
        for plans in [[greedy.clone(), fast.clone()], [slow, fast]] {
            let node = start(&host, &plans).await;
            let is_it = |pool: &PoolReport| pool.name == plans[0].name;
            let refused = node.storage().pools.into_iter().find(is_it).expect("a pool").refused;
            assert!(refused[0].contains("which belongs to pool fast"), "{refused:?}");
            let _no_room = node.ensure(&in_pool(plans[0].name.as_str(), "big", 600)).await;
            assert_eq!(host.effects(), [""; 0]);
        }
        // Nobody has it any more, and it is empty.
        let node = start(&host, &[plan("fast", &["vg0"])]).await;
        set(&node, &[greedy]).await;
        assert_eq!(state(&node, &disk).state, DiskUse::Used);
        assert_eq!(host.group("vg0"), None);
    });
}
