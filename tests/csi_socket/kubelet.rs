//! The kubelet's directory is found by a symbolic link, or is elsewhere.

use pliant::csi::pb;
use pliant::csi::pb::node_server::Node as _;
use pliant::csi::{KubeletDir, Node};
use pliant::host::Host;
use pliant::in_flight::InFlight;
use tonic::{Code, Request};

use crate::driver::{Driver, create, id_of, mounted};
use crate::hostile::machine;

#[tokio::test]
async fn a_volume_is_mounted_where_the_directory_of_the_kubelet_leads_and_unmounted_there() {
    let (host, mut driver): (_, Driver<pliant::node::Node>) = machine().await;
    driver.controller.create_volume(create("db")).await.unwrap();
    let dir = KubeletDir::new("/var/lib/kubelet".into(), "/data/kubelet".into());
    let node = Node::new(driver.behind.clone(), InFlight::new()).of_kubelet(dir);
    let volume_id = id_of("db").to_string();
    let at = |root: &str, end: &str| format!("{root}/{end}");
    let stage = |root: &str| {
        Request::new(pb::NodeStageVolumeRequest {
            volume_id: volume_id.clone(),
            staging_target_path: at(root, "plugins/kubernetes.io/csi/d/h/globalmount"),
            volume_capability: Some(mounted()),
            ..Default::default()
        })
    };
    let publish = |root: &str| {
        Request::new(pb::NodePublishVolumeRequest {
            volume_id: volume_id.clone(),
            staging_target_path: at(root, "plugins/kubernetes.io/csi/d/h/globalmount"),
            target_path: at(root, "pods/u/volumes/kubernetes.io~csi/v/mount"),
            volume_capability: Some(mounted()),
            ..Default::default()
        })
    };
    let before = host.counts();
    for refused in [
        node.node_stage_volume(stage("/var/lib/k0s/kubelet")).await.unwrap_err(),
        node.node_publish_volume(publish("/var/lib/k0s/kubelet")).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::FailedPrecondition);
        let todo = "uses /var/lib/k0s/kubelet: set the chart value kubeletDir to it";
        assert!(refused.message().ends_with(todo), "{}", refused.message());
    }
    assert_eq!(host.counts(), before, "nothing was mounted where nobody would see it");

    node.node_stage_volume(stage("/var/lib/kubelet")).await.unwrap();
    node.node_publish_volume(publish("/var/lib/kubelet")).await.unwrap();
    node.node_publish_volume(publish("/var/lib/kubelet")).await.unwrap();
    let targets = || -> Vec<String> {
        let mounts = host.state().mounts;
        let targets = mounts.iter().map(|(target, ..)| target.display().to_string());
        targets.filter(|target| target.contains("kubelet")).collect()
    };
    let expected = [
        at("/data/kubelet", "plugins/kubernetes.io/csi/d/h/globalmount"),
        at("/data/kubelet", "pods/u/volumes/kubernetes.io~csi/v/mount"),
    ];
    assert_eq!(targets(), expected);
    let look = pb::NodeGetVolumeStatsRequest {
        volume_id: volume_id.clone(),
        volume_path: at("/var/lib/kubelet", "pods/u/volumes/kubernetes.io~csi/v/mount"),
        ..Default::default()
    };
    node.node_get_volume_stats(Request::new(look)).await.unwrap();
    let grow = pb::NodeExpandVolumeRequest {
        volume_id: volume_id.clone(),
        volume_path: at("/var/lib/kubelet", "plugins/kubernetes.io/csi/d/h/globalmount"),
        ..Default::default()
    };
    node.node_expand_volume(Request::new(grow)).await.unwrap();
    let unpublish = pb::NodeUnpublishVolumeRequest {
        volume_id: volume_id.clone(),
        target_path: at("/var/lib/kubelet", "pods/u/volumes/kubernetes.io~csi/v/mount"),
    };
    let unstage = pb::NodeUnstageVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: at("/var/lib/kubelet", "plugins/kubernetes.io/csi/d/h/globalmount"),
    };
    node.node_unpublish_volume(Request::new(unpublish)).await.unwrap();
    node.node_unstage_volume(Request::new(unstage)).await.unwrap();
    assert!(targets().is_empty(), "{:?}", targets());
}
