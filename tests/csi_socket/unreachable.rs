//! What is told while disks of a pool are away: that they are away, never that it is full.

use std::path::PathBuf;

use pliant::bytes::Bytes;
use pliant::csi::pb;
use pliant::csi::pb::volume_capability::{AccessType, BlockVolume};
use pliant::node::{GroupSource, Node, PoolPlan};
use pliant::testing::FakeHost;
use tonic::{Code, Status};

use crate::driver::{Driver, create, expand, mounted};

/// A machine whose pool has a group for each of these lists of disks.
struct Machine {
    host: FakeHost,
    disks: Vec<Vec<PathBuf>>,
}

impl Machine {
    fn with(groups: &[usize]) -> Machine {
        let host = FakeHost::new();
        let disks: Vec<Vec<PathBuf>> = groups
            .iter()
            .map(|disks| (0..*disks).map(|_| host.add_disk(Bytes::mib(100))).collect())
            .collect();
        for (number, disks) in disks.iter().enumerate() {
            host.add_group(&format!("vg{number}"), disks);
        }
        Machine { host, disks }
    }

    async fn driver(&self) -> Driver<Node> {
        let group = |number| GroupSource::Existing(format!("vg{number}"));
        let groups = (0..self.disks.len()).map(group).collect();
        let plan = PoolPlan::new("fast".parse().unwrap(), groups);
        Driver::on(&self.host, vec![plan]).await
    }

    fn uuid(&self, group: &str, disk: &PathBuf) -> String {
        let group = self.host.group(group).unwrap();
        let pv = group.pvs.values().find(|pv| pv.device.as_ref() == Some(disk));
        pv.unwrap().uuid.clone()
    }
}

fn block(name: &str, mib: i64) -> pb::CreateVolumeRequest {
    let access_type = Some(AccessType::Block(BlockVolume::default()));
    pb::CreateVolumeRequest {
        capacity_range: Some(pb::CapacityRange { required_bytes: mib << 20, limit_bytes: 0 }),
        volume_capabilities: vec![pb::VolumeCapability { access_type, ..mounted() }],
        ..create(name)
    }
}

/// Make a volume, grow the one of this name, and the room that is told.
async fn asked(driver: &mut Driver<Node>, grown: &str, mib: i64) -> (Status, Status, (i64, i64)) {
    let client = &mut driver.controller;
    let made = client.create_volume(block("new", mib)).await.unwrap_err();
    let grown = client.controller_expand_volume(expand(grown, mib << 20)).await.unwrap_err();
    let room = client.get_capacity(pb::GetCapacityRequest::default()).await.unwrap().into_inner();
    (made, grown, (room.available_capacity, room.maximum_volume_size.unwrap_or_default()))
}

fn assert_says(status: &Status, code: Code, words: &[&str]) {
    assert_eq!(status.code(), code, "{}", status.message());
    for word in words {
        assert!(status.message().contains(word), "{word} is not in: {}", status.message());
    }
}

#[tokio::test]
async fn a_pool_whose_groups_all_miss_a_disk_is_unavailable() {
    let machine = Machine::with(&[2, 2]);
    let mut driver = machine.driver().await;
    driver.controller.create_volume(block("old", 16)).await.unwrap();
    let gone = ["vg0", "vg1"].map(|group| {
        let disk = &machine.disks[usize::from(group == "vg1")][1];
        (disk, machine.uuid(group, disk))
    });
    for (disk, _) in &gone {
        machine.host.remove_disk(disk);
    }

    let (made, grown, room) = asked(&mut driver, "old", 32).await;
    let words = ["fast", "vg0", "vg1", &gone[0].1, &gone[1].1, "reattach the disk"];
    assert_says(&made, Code::Unavailable, &words);
    assert_says(&grown, Code::Unavailable, &["fast", "vg0", &gone[0].1, "reattach the disk"]);
    assert_eq!(room, (0, 0));

    for (disk, _) in &gone {
        machine.host.heal_disk(disk);
    }
    driver.controller.create_volume(block("new", 32)).await.unwrap();
    driver.controller.controller_expand_volume(expand("old", 32 << 20)).await.unwrap();
}

#[tokio::test]
async fn a_pool_whose_groups_cannot_be_read_is_unavailable() {
    let machine = Machine::with(&[1, 2]);
    let mut driver = machine.driver().await;
    driver.controller.create_volume(block("old", 100)).await.unwrap(); // In vg1: no other holds it.
    let [one, two] = [0, 1].map(|group| machine.disks[group][0].clone());
    machine.host.remove_disk(&one);
    machine.host.fail_disk(&two);

    for _before_and_after_a_restart in 0..2 {
        let (made, grown, room) = asked(&mut driver, "old", 120).await;
        assert_says(&made, Code::Unavailable, &["fast", "vg0", "vg1", "`pvs`"]);
        assert_says(&grown, Code::Unavailable, &["vg1", "`pvs`"]);
        assert_eq!(room, (0, 0));
        driver = machine.driver().await;
    }
}

#[tokio::test]
async fn a_full_group_beside_one_that_is_away_says_both() {
    let machine = Machine::with(&[1, 2]);
    let mut driver = machine.driver().await;
    driver.controller.create_volume(block("old", 100)).await.unwrap();
    let disk = &machine.disks[1][0];
    let uuid = machine.uuid("vg1", disk);
    machine.host.remove_disk(disk);

    let (made, grown, room) = asked(&mut driver, "old", 104).await;
    // Another node may have room: only this code lets the pod go there.
    let most = (100 - 20) << 20;
    let words = [
        "insufficient capacity in pool fast",
        &format!("{}Mi", most >> 20),
        "vg1",
        &uuid,
        "reattach the disk",
    ];
    assert_says(&made, Code::ResourceExhausted, &words);
    assert_says(&grown, Code::Unavailable, &["fast", "vg1", &uuid]);
    assert_eq!(room, (most, most));
    driver.controller.create_volume(block("new", 80)).await.unwrap();
}
