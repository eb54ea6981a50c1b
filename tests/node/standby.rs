//! Standby disks that do not join, and groups in which LVM makes nothing: neither is counted as free, and
//! each says why.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::node::storage::DiskUse;
use pliant::node::{GroupSource, NewDisk, Node, PoolPlan};
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{CapacityQuery, Class, Mode, NodeVolumes, Stage, Volumes};

use crate::cuts::block_on;
use crate::machine::{Setup, growth, id_of, settings, staging, want};

/// A node with groups on the disks of these logical blocks, 380 MiB for volumes in each, and a standby disk
/// for each size in GiB.
fn machine(groups: &[u64], standby_disks: &[u64]) -> (FakeHost, Setup, Vec<PathBuf>) {
    let host = FakeHost::new();
    let mut sources = Vec::new();
    for (number, block) in groups.iter().enumerate() {
        let disk = host.add_disk(Bytes::mib(400));
        host.set_blocks(&disk, Bytes::new(*block), Bytes::ZERO);
        let name = format!("vg{number}");
        host.add_group(&name, &[disk]);
        sources.push(GroupSource::Existing(name));
    }
    let standby_disks: Vec<PathBuf> =
        standby_disks.iter().map(|gib| host.add_disk(Bytes::gib(*gib))).collect();
    let new = |path: &PathBuf| NewDisk { path: path.clone(), wipe: false };
    let plan = PoolPlan {
        standby_disks: standby_disks.iter().map(new).collect(),
        ..PoolPlan::new("fast".parse().expect("a name"), sources)
    };
    (host, Setup { settings: settings(), plans: vec![plan] }, standby_disks)
}

async fn make(node: &Node, name: &str, mib: u64) -> Result<(), String> {
    let made = node.ensure(&want(name, Mode::Block, mib)).await;
    made.map(drop).map_err(|error| error.to_string())
}

/// The largest volume as `GetCapacity` answers it, and as the status of the node has it.
async fn largest(node: &Arc<Node>) -> (Bytes, Bytes) {
    let query = CapacityQuery { class: Class::default(), mode: Some(Mode::Block), node: None };
    let asked = node.capacity(&query).await.expect("capacity").largest;
    (asked, node.storage().pools[0].largest[0].size)
}

fn both(mib: u64) -> (Bytes, Bytes) {
    (Bytes::mib(mib), Bytes::mib(mib))
}

fn group_of(host: &FakeHost, disk: &Path) -> Option<String> {
    let groups = ["vg0", "vg1"].into_iter().filter_map(|name| host.group(name));
    let has = |group: &pliant::lvm::Group| {
        group.pvs.values().any(|pv| pv.device.as_deref() == Some(disk))
    };
    groups.into_iter().find(has).map(|group| group.name)
}

#[test]
fn a_standby_disk_that_lvm_refuses_is_noted_and_the_next_one_joins() {
    for call in ["vgextend -y vg0", "pvcreate -y --metadatasize 16m"] {
        block_on(async {
            let (host, setup, standby_disks) = machine(&[512], &[1, 1]);
            let node = setup.start(&host).await;
            make(&node, "first", 300).await.expect("it fits");
            host.fail(&format!("{call} {}", standby_disks[0].display()), Failing::Always);
            make(&node, "second", 300).await.expect("the next standby disk joins");
            assert_eq!(group_of(&host, &standby_disks[1]).as_deref(), Some("vg0"), "{call}");
        });
    }
}

#[test]
fn a_standby_disk_that_lvm_refused_is_counted_again_when_it_has_changed() {
    block_on(async {
        let (host, setup, standby_disks) = machine(&[512], &[1]);
        let node = setup.start(&host).await;
        make(&node, "first", 300).await.expect("it fits");
        assert_eq!(largest(&node).await, both(80 + 1004));
        host.fail("vgextend", Failing::Always);
        let refused =
            make(&node, "second", 300).await.expect_err("the only standby disk is refused");
        let words = ["80 MiB is free there", "standby disk /dev/fake1 was not used", "vgextend"];
        assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
        assert_eq!(largest(&node).await, both(80), "it does not count again");

        node.set_pools(setup.plans.clone()).await.expect("disks are listed");
        let disks = node.storage().disks;
        let standby = disks.iter().find(|disk| disk.device == "/dev/fake1").expect("it is planned");
        assert_eq!(standby.state, DiskUse::Refused);
        assert!(
            standby.message.as_ref().is_some_and(|why| why.contains("vgextend")),
            "{standby:?}"
        );
        assert_eq!(largest(&node).await, both(80));

        host.mend();
        host.write_zeroes(&standby_disks[0], 0..1 << 20).await.expect("its beginning is wiped");
        assert_eq!(largest(&node).await.0, Bytes::mib(80 + 1004), "it is another disk");
        host.fail("vgextend", Failing::Always);
        make(&node, "second", 300).await.expect_err("refused again");
        host.mend();
        make(&node, "second", 300).await.expect("it is tried whenever it is needed");
    });
}

#[test]
fn a_standby_disk_of_other_blocks_joins_the_group_that_it_fits() {
    block_on(async {
        let (host, setup, standby_disks) = machine(&[512], &[1]);
        host.set_blocks(&standby_disks[0], Bytes::kib(4), Bytes::ZERO);
        let node = setup.start(&host).await;
        assert_eq!(largest(&node).await, both(380));
        let refused = make(&node, "large", 500).await.expect_err("LVM does not mix blocks");
        let words = ["logical blocks of 4 KiB", "/dev/fake0 has those of 512 B"];
        assert!(words.iter().all(|word| refused.contains(word)), "{refused}");

        let (host, setup, standby_disks) = machine(&[512, 4096], &[1]);
        host.set_blocks(&standby_disks[0], Bytes::kib(4), Bytes::ZERO);
        let node = setup.start(&host).await;
        make(&node, "large", 500).await.expect("it joins the other group");
        assert_eq!(group_of(&host, &standby_disks[0]).as_deref(), Some("vg1"));
    });
}

#[test]
fn a_blank_disk_that_something_has_to_itself_is_no_standby_disk() {
    block_on(async {
        let (host, setup, standby_disks) = machine(&[512], &[1]);
        host.open(&standby_disks[0]);
        let node = setup.start(&host).await;
        assert_eq!(largest(&node).await, both(380));
        host.forget_effects();
        let refused = make(&node, "large", 500).await.expect_err("it is in use");
        assert!(
            refused.contains("/dev/fake1 is in use: another device is stacked on it"),
            "{refused}"
        );
        assert_eq!(host.effects(), [""; 0]);
        host.close(&standby_disks[0]);
        make(&node, "large", 500).await.expect("it joins");
    });
}

#[test]
fn what_a_standby_disk_is_counted_with_is_what_it_brings() {
    block_on(async {
        let (host, setup, standby_disks) = machine(&[512], &[1]);
        host.set_blocks(&standby_disks[0], Bytes::new(512), Bytes::new(33_553_920)); // A USB bridge.
        let node = setup.start(&host).await;
        let (asked, told) = largest(&node).await;
        assert_eq!((asked, told), both(380 + 992), "its extents begin where it likes best");
        make(&node, "large", asked.get() >> 20).await.expect("that much can be made");
        assert_eq!(largest(&node).await, both(0));
    });
}

#[test]
fn limits_of_a_group_are_no_failures_of_its_commands() {
    block_on(async {
        let (host, setup, _) = machine(&[512], &[1]);
        let limits =
            host.change_group("vg0", |group| (group.max_lv, group.max_pv) = (Some(1), Some(1)));
        limits.expect("a group");
        let node = setup.start(&host).await;
        assert_eq!(largest(&node).await, both(380), "no standby disk may join");
        make(&node, "first", 100).await.expect("one volume may be made");
        assert_eq!(largest(&node).await, both(0));
        let refused = make(&node, "second", 100).await.expect_err("no more than one");
        assert!(refused.contains("vgchange --logicalvolume 0 vg0"), "{refused}");
        let first = Stage { id: id_of("first"), ..staging(Mode::Block) };
        node.stage(&first).await.expect("it is in use");
        let grown = node.grow(&id_of("first"), growth(500)).await.expect_err("a raw volume");
        assert!(grown.to_string().contains("vgchange --logicalvolume 0 vg0"), "{grown}");
    });
}

#[test]
fn no_more_standby_disks_are_counted_than_a_group_may_have() {
    block_on(async {
        let (host, setup, _) = machine(&[512], &[1, 1]);
        host.change_group("vg0", |group| group.max_pv = Some(2)).expect("a group");
        let node = setup.start(&host).await;
        assert_eq!(largest(&node).await, both(380 + 1004));
    });
}

#[test]
fn a_group_that_lvm_refuses_says_what_to_type_and_has_no_room() {
    type Change = fn(&mut pliant::lvm::Group);
    let cases: [(Change, &str); 3] = [
        (|group| group.system_id = Some("alpha".to_owned()), "vgchange --systemid \"\" vg0"),
        (|group| group.lock_type = Some("sanlock".to_owned()), "vgchange --lock-type none vg0"),
        (|group| assert!(group.flags.remove("WRITE")), "vgcfgrestore vg0"),
    ];
    for (change, typed) in cases {
        block_on(async {
            let (host, setup, _) = machine(&[512], &[]);
            host.change_group("vg0", change).expect("a group");
            let node = setup.start(&host).await;
            assert_eq!(largest(&node).await, both(0));
            let refused = node.ensure(&want("first", Mode::Block, 100)).await.map(drop);
            let refused = format!("{:?}", refused.expect_err("LVM would refuse it"));
            assert!(
                refused.starts_with("Unavailable") && refused.contains(&typed.replace('"', "\\\"")),
                "{refused}"
            );
            let health = node.storage_health().await;
            assert!(health[0].ailment.message.contains(typed), "{health:?}");
        });
    }
}
