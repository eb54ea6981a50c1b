//! What is told of a volume that ails.

use std::path::Path;

use pliant::host::{Host, PathKind};
use pliant::node::Node;
use pliant::testing::FakeHost;
use pliant::volume::{FsKind, Mode, NodeVolumes, Page, Volumes};

use crate::cuts::block_on;
use crate::machine::{Disks, Op, TARGET, VOLUME, after, id_of, type_in};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

/// The reasons that its statistics, its health and its description tell.
async fn told(node: &Node) -> [Vec<&'static str>; 3] {
    let id = id_of(VOLUME);
    let stats = node.stats(&id, Path::new(TARGET)).await.expect("stats").ailments;
    let health = node.volume_health(&id).await.expect("health");
    let found = node.find(&id).await.expect("find").expect("a volume").ailments;
    [stats, health, found].map(|ailments| ailments.iter().map(|ailment| ailment.reason).collect())
}

async fn number_of(host: &FakeHost) -> pliant::host::DeviceNumber {
    let lv = pliant::node::lv_tags::lv_name(id_of(VOLUME).key());
    let device = host.device_of("vg0", &lv).expect("an active volume");
    match host.path_kind(&device).await {
        Ok(Some(PathKind::Block(number))) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_that_the_mount_table_does_not_show_are_told_without_a_process() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Publish(EXT4)] {
            op.ask(&host, &node).await.expect("an answer");
        }
        assert_eq!(told(&node).await, [const { Vec::<&str>::new() }; 3]);

        host.find_error(number_of(&host).await);
        let processes = |host: &FakeHost| host.counts().get("processes").copied();
        let before = processes(&host);

        assert_eq!(told(&node).await, [["FilesystemErrors"]; 3].map(Vec::from));
        assert_eq!(processes(&host), before);
    });
}

#[test]
fn a_volume_that_no_list_can_name_is_told_by_its_pool() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        assert_eq!(node.storage_health().await, []);
        let lv = pliant::node::lv_tags::lv_name(id_of(VOLUME).key());
        type_in(&host, "vg0", &format!("lvchange -y --deltag pliant.fstype=ext4 vg0/{lv}")).await;

        assert!(node.list(&Page::default()).await.expect("a list").volumes.is_empty());
        let told = node.storage_health().await;
        let [ailing] = &told[..] else { panic!("{told:?}") };
        assert_eq!((ailing.ailment.reason, ailing.unreachable), ("VolumeUnreadable", false));
        assert!(
            ailing.ailment.message.contains(&format!("vg0/{lv} do not identify")),
            "{ailing:?}"
        );
    });
}
