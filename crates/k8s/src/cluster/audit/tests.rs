use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::api::{
    Delete, FsType, GroupStatus, NodeStorageSpec, PoolOnNode, Quantity, VolumeMode, VolumeOnNode,
    VolumeRequestSpec, VolumeState,
};
use crate::cluster::CsiSource;
use crate::volume::{DRIVER, NodeKey, VolumeId, VolumeKey};

fn id(node: &str, name: &str) -> String {
    VolumeId::new(NodeKey::of(node), VolumeKey::of(name)).to_string()
}

fn node(name: &str, volumes: &[&str]) -> NodeStorage {
    let volume = |of: &&str| VolumeOnNode {
        volume_handle: id(name, of),
        name: (*of).to_owned(),
        pool: "fast".to_owned(),
        size: Quantity(Bytes::gib(2)),
        requested_size: Quantity(Bytes::gib(2)),
        volume_mode: VolumeMode::Filesystem,
        fs_type: Some(FsType::Ext4),
        state: VolumeState::Ready,
        fence: None,
        max_size: None,
        health_statuses: Vec::new(),
    };
    let key = NodeKey::of(name).as_str().to_owned();
    let mut node = NodeStorage::new(name, NodeStorageSpec { node_hash: key });
    let volumes = volumes.iter().map(volume).collect();
    node.status = Some(NodeStorageStatus { volumes, ..NodeStorageStatus::default() });
    node
}

fn with(mut node: NodeStorage, change: impl FnOnce(&mut NodeStorageStatus)) -> NodeStorage {
    change(node.status.as_mut().unwrap());
    node
}

fn pool(health: Health) -> PoolOnNode {
    serde_json::from_value(serde_json::json!({
        "name": "fast", "configured": true, "capacity": "1Gi", "available": "1Gi", "volumeCount": 0,
        "health": health,
    }))
    .unwrap()
}

fn group(health: Health) -> GroupStatus {
    let size = Quantity(Bytes::gib(1));
    let (name, pool) = ("vg0".to_owned(), "fast".to_owned());
    GroupStatus { name, pool, size, free: size, thin_pool: None, health, conditions: Vec::new() }
}

fn pv(name: &str, driver: &str, handle: &str) -> PvSummary {
    let source = CsiSource { driver: driver.to_owned().into(), volume_handle: handle.into() };
    let mut pv = PvSummary::default();
    pv.metadata.name = Some(name.to_owned());
    pv.spec.csi = Some(source);
    pv
}

fn ours(name: &str) -> PvSummary {
    pv(name, DRIVER, &id("alpha", name))
}

fn request(kind: &str, name: &str) -> VolumeRequest {
    let work = match kind {
        "create" => {
            serde_json::json!({"create": {"name": name, "minSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4"}})
        }
        "expand" => serde_json::json!({"expand": {"minSize": "1Gi"}}),
        _ => serde_json::to_value(Operation::Delete(Delete {})).unwrap(),
    };
    let work = serde_json::from_value(work).unwrap();
    let (node, volume) = ("alpha".to_owned(), id("alpha", name));
    VolumeRequest::new(
        "r",
        VolumeRequestSpec { node_name: node, volume_handle: volume, operation: work },
    )
}

/// What is found, in short.
fn told(nodes: &[&NodeStorage], pvs: &[&PvSummary], requests: &[VolumeRequest]) -> Vec<String> {
    let short = |one: &UnmatchedVolume| match one {
        UnmatchedVolume::VolumeWithoutPv { node, name, .. } => {
            format!("{name} of {node} has no pv")
        }
        UnmatchedVolume::PvWithoutVolume { node, pv, .. } => format!("{pv} is not on {node}"),
    };
    audit(nodes, pvs, requests).iter().map(short).collect()
}

#[test]
fn a_volume_without_a_pv_is_found_unless_it_comes_or_goes() {
    let (here, elsewhere) = (node("alpha", &["a"]), node("beta", &["a"]));
    let unread = with(here.clone(), |status| status.set_inventory_gap("no"));
    let (kept, foreign) = (ours("a"), pv("a", "other", &id("alpha", "a")));
    let (leaked, none) = (&["a of alpha has no pv"][..], &[][..]);
    for (node, pv, requests, expected) in [
        (&here, Some(&kept), None, none),
        (&here, None, None, leaked),
        // Only a volume of this very node is meant, and only a PersistentVolume of this driver.
        (&elsewhere, Some(&kept), None, &["a of beta has no pv"]),
        (&here, Some(&foreign), None, leaked),
        (&here, None, Some(("create", "a")), none),
        (&here, None, Some(("remove", "a")), none),
        (&here, None, Some(("expand", "a")), leaked),
        (&here, None, Some(("create", "b")), leaked),
        // Also of a node that could not read all: what it lists is there.
        (&unread, None, None, leaked),
    ] {
        let pvs: Vec<_> = pv.into_iter().collect();
        let requests: Vec<_> = requests.iter().map(|(kind, of)| request(kind, of)).collect();
        assert_eq!(told(&[node], &pvs, &requests), expected, "{pvs:?} {requests:?}");
    }
}

#[test]
fn a_pv_without_its_volume_is_found_if_its_node_can_tell() {
    let (empty, beta) = (node("alpha", &[]), node("beta", &[]));
    let silent = NodeStorage { status: None, ..empty.clone() };
    let away = with(empty.clone(), |status| status.pools = vec![pool(Health::Unavailable)]);
    let degraded = with(empty.clone(), |status| status.pools = vec![pool(Health::Degraded)]);
    let group_away =
        with(empty.clone(), |status| status.volume_groups = vec![group(Health::Unavailable)]);
    let unread = with(empty.clone(), |status| status.set_inventory_gap("no"));
    let (kept, foreign) = (ours("a"), pv("a", "other", &id("alpha", "a")));
    let by_hand = pv("a", DRIVER, "by-hand");
    let mut leaving = ours("a");
    leaving.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let (missing, none) = (&["a is not on alpha"][..], &[][..]);
    for (node, pv, requests, expected) in [
        (Some(&empty), &kept, None, missing),
        (Some(&empty), &kept, Some("remove"), none),
        (Some(&empty), &kept, Some("create"), none),
        (Some(&empty), &kept, Some("expand"), missing),
        (Some(&empty), &leaving, None, none),
        (Some(&empty), &foreign, None, none),
        (Some(&empty), &by_hand, None, none),
        (None, &kept, None, none),
        (Some(&silent), &kept, None, none),
        (Some(&beta), &kept, None, none),
        (Some(&unread), &kept, None, none),
        (Some(&group_away), &kept, None, none),
        (Some(&away), &kept, None, none),
        (Some(&degraded), &kept, None, missing),
    ] {
        let nodes: Vec<_> = node.into_iter().collect();
        let requests: Vec<_> = requests.iter().map(|kind| request(kind, "a")).collect();
        assert_eq!(told(&nodes, &[pv], &requests), expected, "{nodes:?} {pv:?} {requests:?}");
    }
}

#[test]
fn what_differs_is_told_with_what_to_do() {
    let leaked = &audit(&[node("alpha", &["a"])], &[ours("b")], &[] as &[VolumeRequest]);
    let [volume, pv] = leaked.as_slice() else { panic!("{leaked:?}") };
    let said = volume.to_string();
    for part in
        [&id("alpha", "a"), "(a) in pool fast of node alpha", "occupies 2 GiB", "OrphanedVolume"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = pv.to_string();
    for part in [&id("alpha", "b"), "PersistentVolume b", "kubectl get nodestorage alpha"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_pool_that_only_plans_hides_no_volume() {
    let plans = |refused: serde_json::Value| {
        let pool = serde_json::json!({
            "name": "looks", "configured": true, "capacity": "0", "available": "0", "volumeCount": 0,
            "health": "Unavailable", "plannedActions": ["make volume group x on /dev/sdb"], "rejectedDisks": refused,
        });
        with(node("alpha", &[]), |status| {
            status.pools = vec![self::pool(Health::Healthy), serde_json::from_value(pool).unwrap()];
        })
    };
    let lost = ours("a");
    let free = plans(serde_json::json!([]));
    assert_eq!(told(&[&free], &[&lost], &[]), ["a is not on alpha"]);
    let refused = plans(serde_json::json!(["/dev/sdc could not be read"]));
    assert_eq!(told(&[&refused], &[&lost], &[]), [""; 0], "it may be on that disk");
}
