//! Requests of hands that mean harm: refused before a command is run or anything is looked at.

use std::collections::BTreeMap;

use pliant::bytes::Bytes;
use pliant::csi::pb;
use pliant::csi::pb::volume_capability::{AccessType, MountVolume};
use pliant::host::Host;
use pliant::node::{GroupSource, Node, PoolPlan};
use pliant::testing::FakeHost;
use tonic::Code;

use crate::driver::{Driver, code, create, id_of, mounted};

const IDS: [&str; 14] = [
    "..",
    "../../x",
    "/dev/fake0",
    "-f",
    "--config",
    "vg0/lv",
    "x y",
    "x;reboot",
    "$(reboot)",
    "a\nb",
    "aaaaaaaa-../../../../../../etc/pass",
    "AAAAAAAA-AAAAAAAAAAAAAAAAAAAAAAAAAA",
    "aaaaaaaa-aaaaaaaaaaaaaaaaaaaaaaaaaa,suid",
    "aaaaaaaa-aaaaaaaaaaaaaaaaaaaaaaaaa@",
];

pub async fn machine() -> (FakeHost, Driver<Node>) {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::gib(2));
    host.add_group("vg0", &[disk]);
    let groups = vec![GroupSource::Existing("vg0".to_owned())];
    let plan = PoolPlan::new("fast".parse().unwrap(), groups);
    let driver = Driver::on(&host, vec![plan]).await;
    (host, driver)
}

/// Ask every call that takes an id and paths, and tell the codes.
async fn ask_all(driver: &mut Driver<Node>, id: &str, path: &str) -> Vec<Code> {
    let (controller, node) = (&mut driver.controller, &mut driver.node);
    let (volume_id, at) = (|| id.to_owned(), || path.to_owned());
    let one = || Some(mounted());
    let range = || Some(pb::CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 });
    let validate = pb::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id(),
        volume_capabilities: vec![mounted()],
        ..Default::default()
    };
    let grow = pb::ControllerExpandVolumeRequest {
        volume_id: volume_id(),
        capacity_range: range(),
        ..Default::default()
    };
    let health =
        pb::ControllerGetVolumeHealthRequest { volume_id: volume_id(), ..Default::default() };
    let stage = pb::NodeStageVolumeRequest {
        volume_id: volume_id(),
        staging_target_path: at(),
        volume_capability: one(),
        ..Default::default()
    };
    let publish = pb::NodePublishVolumeRequest {
        volume_id: volume_id(),
        staging_target_path: at(),
        target_path: at(),
        volume_capability: one(),
        ..Default::default()
    };
    let unstage =
        pb::NodeUnstageVolumeRequest { volume_id: volume_id(), staging_target_path: at() };
    let unpublish = pb::NodeUnpublishVolumeRequest { volume_id: volume_id(), target_path: at() };
    let stats = pb::NodeGetVolumeStatsRequest {
        volume_id: volume_id(),
        volume_path: at(),
        ..Default::default()
    };
    let expand = pb::NodeExpandVolumeRequest {
        volume_id: volume_id(),
        volume_path: at(),
        capacity_range: range(),
        ..Default::default()
    };
    let get = pb::ControllerGetVolumeRequest { volume_id: volume_id() };
    let node_health =
        pb::NodeGetVolumeHealthRequest { volume_id: volume_id(), ..Default::default() };
    vec![
        code(controller.validate_volume_capabilities(validate).await),
        code(controller.controller_expand_volume(grow).await),
        code(controller.controller_get_volume(get).await),
        code(controller.controller_get_volume_health(health).await),
        code(node.node_get_volume_health(node_health).await),
        code(node.node_stage_volume(stage).await),
        code(node.node_unstage_volume(unstage).await),
        code(node.node_publish_volume(publish).await),
        code(node.node_unpublish_volume(unpublish).await),
        code(node.node_get_volume_stats(stats).await),
        code(node.node_expand_volume(expand).await),
    ]
}

#[tokio::test]
async fn an_id_of_another_shape_is_looked_for_nowhere() {
    let (host, mut driver) = machine().await;
    let before = host.counts();
    for id in IDS {
        let codes = ask_all(&mut driver, id, "/var/lib/kubelet/x").await;
        assert_eq!(codes, [Code::NotFound; 11], "{id:?}");
        let request = pb::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        assert_eq!(code(driver.controller.delete_volume(request).await), Code::Ok, "{id:?}");
    }
    assert_eq!(host.counts(), before);
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_is_followed_nowhere() {
    let (host, mut driver) = machine().await;
    driver.controller.create_volume(create("db")).await.unwrap();
    let id = id_of("db").to_string();
    let before = (host.effects(), host.counts().get("path_calls").copied());
    for path in ["x", "..", "/", "/a/../etc/x", "/a/./../..", "/a\nb", "/a\0", &"/a".repeat(2100)] {
        let codes = ask_all(&mut driver, &id, path).await.split_off(5);
        let refused = |code: &Code| [Code::InvalidArgument, Code::NotFound].contains(code);
        assert!(codes.iter().all(refused), "{path:?}: {codes:?}");
    }
    assert_eq!((host.effects(), host.counts().get("path_calls").copied()), before);
}

#[tokio::test]
async fn options_and_parameters_bring_in_nothing() {
    let (host, mut driver) = machine().await;
    let before = host.counts();
    let (mut asked, mut refused) = (0, 0);
    for (key, value) in [
        ("mkfsOptions", "-E offset=4096"),
        ("mkfsOptions", "-J device=/dev/fake0"),
        ("mkfsOptions", "-d /etc"),
        ("mkfsOptions", "/dev/fake0"),
        ("mkfsOptions", "-L -F"),
        ("pool", "../vg0"),
        ("pool", "-y"),
        ("csi.storage.k8s.io/fstype", "ext4,suid"),
        ("csi.storage.k8s.io/fstype", "../../bin/sh"),
        ("layout", "raid1"),
        ("wipe", "never"),
        ("wipe", "zero"),
        ("resizeSnapshot", "best-effort"),
        ("vg", "vg0"),
    ] {
        let parameters = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let request = pb::CreateVolumeRequest { parameters, ..create("x") };
        asked += 1;
        let answer = code(driver.controller.create_volume(request).await);
        refused += usize::from(answer == Code::InvalidArgument);
    }
    for (fs, flag) in [
        ("", "suid"),
        ("", "dev"),
        ("ext4", "loop"),
        ("ext4", "noatime,dev"),
        ("ext4", "journal_path=/dev/fake0"),
        ("xfs", "logdev=/dev/fake0"),
        ("btrfs", "device=/dev/fake0"),
        ("", "helper=/bin/sh"),
        ("", "X-mount.mkdir"),
        ("../x", "ro"),
    ] {
        let mount = MountVolume {
            fs_type: fs.to_owned(),
            mount_flags: vec![flag.to_owned()],
            ..Default::default()
        };
        let capability =
            pb::VolumeCapability { access_type: Some(AccessType::Mount(mount)), ..mounted() };
        let stage = pb::NodeStageVolumeRequest {
            volume_id: id_of("x").to_string(),
            staging_target_path: "/var/lib/kubelet/x".to_owned(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        let make = pb::CreateVolumeRequest { volume_capabilities: vec![capability], ..create("x") };
        asked += 2;
        let answers = [
            code(driver.node.node_stage_volume(stage).await),
            code(driver.controller.create_volume(make).await),
        ];
        refused += answers.iter().filter(|answer| **answer == Code::InvalidArgument).count();
    }
    assert_eq!(refused, asked);
    assert_eq!(host.counts(), before);
}

#[tokio::test]
async fn what_stands_in_a_context_changes_no_mount() {
    let hostile = BTreeMap::from([
        ("mountOptions".to_owned(), "suid,dev".to_owned()),
        ("pool".to_owned(), "../../x".to_owned()),
        ("device".to_owned(), "/dev/fake0".to_owned()),
    ]);
    let mut seen = Vec::new();
    for context in [BTreeMap::new(), hostile] {
        let (host, mut driver) = machine().await;
        driver.controller.create_volume(create("db")).await.unwrap();
        let (volume_id, staging_target_path) =
            (id_of("db").to_string(), "/var/lib/kubelet/s".to_owned());
        let stage = pb::NodeStageVolumeRequest {
            volume_id: volume_id.clone(),
            staging_target_path: staging_target_path.clone(),
            volume_capability: Some(mounted()),
            volume_context: context.clone(),
            publish_context: context.clone(),
            ..Default::default()
        };
        let publish = pb::NodePublishVolumeRequest {
            volume_id,
            staging_target_path,
            target_path: "/var/lib/kubelet/t".to_owned(),
            volume_capability: Some(mounted()),
            volume_context: context.clone(),
            publish_context: context,
            ..Default::default()
        };
        driver.node.node_stage_volume(stage).await.unwrap();
        driver.node.node_publish_volume(publish).await.unwrap();
        seen.push(host.state().mounts);
    }
    assert_eq!(seen[0], seen[1]);
}
