use serde_json::json;

use super::*;
use crate::api::{NodeStorageSpec, ready_condition};
use crate::volume::{DRIVER, NodeKey, VolumeId, VolumeKey};

fn node(status: serde_json::Value) -> Arc<NodeStorage> {
    let mut node = NodeStorage::new("alpha", NodeStorageSpec::default());
    node.metadata.uid = Some("of-alpha".to_owned());
    node.status = Some(serde_json::from_value(status).unwrap());
    Arc::new(node)
}

fn pv() -> Arc<PvSummary> {
    let pv = json!({
        "metadata": {"name": "pvc-1", "uid": "of-pv"},
        "spec": {
            "claimRef": {"namespace": "shop", "name": "db", "uid": "of-claim"},
            "csi": {"driver": DRIVER, "volumeHandle": "v1"},
        },
    });
    Arc::new(serde_json::from_value(pv).unwrap())
}

fn volume(id: &str, ailments: &[&str]) -> serde_json::Value {
    let ailment = |reason: &&str| json!({"status": "Degraded", "reason": reason, "message": "why"});
    let ailments: Vec<_> = ailments.iter().map(ailment).collect();
    json!({"volumeHandle": id, "name": "n", "pool": "fast", "size": "1Gi", "requestedSize": "1Gi",
           "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready", "healthStatuses": ailments})
}

fn growing(phase: Phase) -> Arc<VolumeRequest> {
    let request = json!({
        "metadata": {"name": "expand-v1", "uid": "of-request", "generation": 2},
        "spec": {"nodeName": "alpha", "volumeHandle": "v1", "operation": {"expand": {"minSize": "2Gi"}}},
        "status": {"observedGeneration": 2, "phase": phase},
    });
    Arc::new(serde_json::from_value(request).unwrap())
}

/// What is told of whom, in short, and the first sentence.
fn told(seen: &FactInputs<'_>) -> (Vec<String>, String) {
    let facts = facts(seen);
    for fact in &facts {
        assert_ne!(Sights::of(seen).sight(&fact.about), Visibility::Gone, "{fact:?}");
    }
    let short = |fact: &Fact| format!("{} {:?} {}", fact.reason, fact.about.kind, fact.subject);
    let first = facts.first().map(|fact| fact.text.clone());
    (facts.iter().map(short).collect(), first.unwrap_or_default())
}

const NOTHING: FactInputs<'_> =
    FactInputs { nodes: &[], pvs: &[], requests: &[], differences: &[], away: &[] };

#[test]
fn what_ails_a_node_is_told_of_the_node() {
    let away = ready_condition(Health::Unavailable, "PoolIncomplete", "vg0 is away; see `vgs`");
    let pool = |health: &str| {
        json!({"pools": [{"name": "fast", "configured": true, "capacity": "1Gi", "available": "1Gi",
                          "volumeCount": 1, "health": health, "conditions": [away]}]})
    };
    let disk = |state: &str| json!({"disks": [{"device": "/dev/sdb", "state": state}]});
    let lacks = |status: &str| {
        json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "x", "message": "not this one",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "PrerequisitesMet", "status": status, "reason": "x", "message": "no lvm",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]})
    };
    let degraded = "pool fast on node alpha is degraded: vg0 is away; see `vgs`; for details see \
                    `kubectl get nodestorage alpha --output yaml`";
    // Who adds a pool to see what it would do meets no alarm.
    let plans = json!({"pools": [{"name": "fast", "configured": true, "capacity": "0", "available": "0",
        "volumeCount": 0, "health": "Unavailable",
        "plannedActions": ["make volume group x on /dev/sdb"]}]});
    for (status, reasons, said) in [
        (pool("Ok"), &[][..], ""),
        (plans, &[], ""),
        (pool("Degraded"), &["PoolDegraded Node pool fast"], degraded),
        (pool("Unavailable"), &["PoolUnavailable Node pool fast"], "is unavailable: vg0"),
        (disk("Missing"), &["DiskMissing Node disk /dev/sdb"], "/dev/sdb on node alpha is missing"),
        (disk("Refused"), &[], ""),
        (lacks("False"), &["PrerequisitesNotMet Node node alpha"], "cannot serve volumes: no lvm"),
        (lacks("True"), &[], ""),
    ] {
        let (facts, text) = told(&FactInputs { nodes: &[node(status)], ..NOTHING });
        assert_eq!(facts, reasons);
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn what_ails_a_volume_is_told_of_its_pv_and_its_claim() {
    let status = json!({"volumes": [
        volume("v0", &["DiskMissing"]), // Nobody has it.
        volume("v1", &["DiskMissing", "VolumeSuspended", "FromTheFuture"]),
        volume("v2", &[]),
    ]});
    let (nodes, pvs) = ([node(status)], [pv()]);
    let seen = FactInputs { nodes: &nodes, pvs: &pvs, ..NOTHING };
    let (reasons, text) = told(&seen);
    assert_eq!(reasons, ["DiskMissing Pv volume v1", "DiskMissing Claim volume v1"]);
    assert_eq!(text, "volume v1 in pool fast of node alpha: why");
    let claim = facts(&seen)[1].about.reference();
    let expected = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop",
                          "name": "db", "uid": "of-claim"});
    assert_eq!(serde_json::to_value(claim).unwrap(), expected);
}

#[test]
fn each_ailment_that_a_person_has_to_see_to_is_told_of_both_under_its_own_name() {
    let told_of_volumes = [
        EventReason::DiskMissing,
        EventReason::FilesystemErrors,
        EventReason::FilesystemReadOnly,
        EventReason::FilesystemResizePending,
        EventReason::VolumeGroupNotChangeable,
        EventReason::VolumeGroupUnavailable,
    ];
    for reason in told_of_volumes {
        let ailing = node(json!({"volumes": [volume("v1", &[&reason.to_string()])]}));
        let seen = FactInputs { nodes: &[ailing], pvs: &[pv()], ..NOTHING };
        let (reasons, text) = told(&seen);
        let both = ["Pv", "Claim"].map(|kind| format!("{reason} {kind} volume v1"));
        assert_eq!(reasons, both);
        assert_eq!(text, "volume v1 in pool fast of node alpha: why");
        assert!(reason.is_warning() && reason.recovers(), "{reason}");
    }
}

/// The status of a node whose list of volumes may lack some, of so many.
fn gap(why: &str, count: i32) -> serde_json::Value {
    let mut status = NodeStorageStatus { volume_count: count, ..NodeStorageStatus::default() };
    status.set_inventory_gap(why);
    json!(status)
}

#[test]
fn a_volume_that_its_node_cannot_see_is_told_unless_it_comes_or_goes() {
    let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("v1")).to_string();
    let pool = json!({"name": "fast", "configured": true, "capacity": "0", "available": "0", "volumeCount": 0,
                      "health": "Unavailable", "conditions": [ready_condition(
                          Health::Unavailable, "PoolIncomplete", "vg0 is away; see `vgs`")]});
    let mut pv = PvSummary::clone(&pv());
    pv.spec.csi.as_mut().unwrap().volume_handle = id.as_str().into();
    let mut removal = VolumeRequest::clone(&growing(Phase::Running));
    removal.spec.volume_handle.clone_from(&id);
    removal.spec.operation = Operation::Delete(crate::api::Delete {});
    let pvs = [Arc::new(pv)];
    for (status, requests, told_of_it) in [
        (json!({"pools": [pool]}), vec![], true),
        (json!({"pools": [pool]}), vec![Arc::new(removal)], false),
        (json!({"pools": [pool], "volumes": [volume(&id, &[])]}), vec![], false),
        (gap("no", 0), vec![], true),
        (gap("of 9 volumes 8 are not listed", 9), vec![], false),
        (json!({}), vec![], false),
    ] {
        let nodes = [node(status)];
        let seen = FactInputs { nodes: &nodes, pvs: &pvs, requests: &requests, ..NOTHING };
        let facts = facts(&seen);
        let unseen: Vec<_> =
            facts.iter().filter(|fact| fact.reason == EventReason::VolumeStatusUnknown).collect();
        assert_eq!(unseen.len(), if told_of_it { 2 } else { 0 }, "{facts:?}");
    }
}

#[test]
fn what_is_told_of_a_volume_is_over_only_if_its_node_tells_of_it() {
    let (with_it, without) = (json!({"volumes": [volume("v1", &[])]}), json!({"volumes": []}));
    let about = [
        EventObject::claim(&pv()).unwrap(),
        EventObject::pv(&pv()),
        EventObject::node(&node(json!({}))),
    ];
    for (nodes, pvs, sights) in [
        (
            vec![node(with_it)],
            vec![pv()],
            [Visibility::There, Visibility::There, Visibility::There],
        ),
        (
            vec![node(without)],
            vec![pv()],
            [Visibility::Hidden, Visibility::Hidden, Visibility::There],
        ),
        (vec![], vec![pv()], [Visibility::Hidden, Visibility::Hidden, Visibility::Gone]),
        (vec![], vec![], [Visibility::Gone; 3]),
    ] {
        let found = Sights::of(&FactInputs { nodes: &nodes, pvs: &pvs, ..NOTHING });
        assert_eq!(about.each_ref().map(|about| found.sight(about)), sights);
    }
}

#[test]
fn a_growth_is_told_while_it_lasts() {
    for (phase, words) in [
        (Phase::Pending, None),
        (Phase::Running, Some("is being expanded to 2 GiB or more")),
        (Phase::Resizing, Some("has 2 GiB or more, and its file system is being expanded")),
        (Phase::Resized, None),
        (Phase::Succeeded, None),
        (Phase::Failed, None),
    ] {
        let (reasons, text) =
            told(&FactInputs { pvs: &[pv()], requests: &[growing(phase)], ..NOTHING });
        let both =
            ["Pv", "Claim"].map(|kind| format!("VolumeExpanding {kind} growth of-request 2"));
        assert_eq!(reasons, if words.is_some() { both.to_vec() } else { Vec::new() }, "{phase:?}");
        assert!(text.contains(words.unwrap_or_default()), "{text}");
    }
}

#[test]
fn what_lasts_is_told_of_whoever_is_there() {
    let leaked = UnmatchedVolume::VolumeWithoutPv {
        node: "alpha".to_owned(),
        volume: "v0".to_owned(),
        name: "pvc-0".to_owned(),
        pool: "fast".to_owned(),
        size: Bytes::gib(1),
    };
    let missing = UnmatchedVolume::PvWithoutVolume {
        node: "alpha".to_owned(),
        volume: "v1".to_owned(),
        pv: "pvc-1".to_owned(),
    };
    let (nodes, pvs) = ([node(json!({}))], [pv()]);
    let (differences, away) = ([leaked, missing], ["alpha".to_owned(), "gone".to_owned()]);
    let seen =
        FactInputs { nodes: &nodes, pvs: &pvs, differences: &differences, away: &away, ..NOTHING };
    let (reasons, text) = told(&seen);
    assert_eq!(
        reasons,
        [
            "NodePluginNotResponding Node the node plugin of node alpha",
            "OrphanedVolume Node volume v0",
            "VolumeMissing Pv volume v1",
            "VolumeMissing Claim volume v1",
        ]
    );
    assert!(text.contains("--field-selector spec.nodeName=alpha"), "{text}");
    assert_eq!(told(&FactInputs { differences: &differences, away: &away, ..NOTHING }).0, [""; 0]);
}

#[test]
fn a_group_that_has_become_larger_is_told_with_its_sizes() {
    let mut sizes = Sizes::default();
    for (size, told) in [
        (4, None), // Nobody knows how large it was.
        (4, None),
        (6, Some("has grown by 2 GiB to 6 GiB; 1 GiB are free")),
        (0, None), // It is away,
        (6, None), // and is back.
        (0, None),
        (7, Some("by 1 GiB to 7 GiB")),
        (5, None),
    ] {
        let group = json!({"name": "vg0", "pool": "fast", "size": format!("{size}Gi"), "free": "1Gi", "health": "Healthy"});
        let facts = sizes.extended(&[node(json!({"volumeGroups": [group]}))]);
        assert_eq!(facts.len(), usize::from(told.is_some()), "{size} GiB: {facts:?}");
        let text = facts.first().map_or("", |fact| &fact.text);
        assert!(text.contains(told.unwrap_or_default()), "{text}");
    }
}
