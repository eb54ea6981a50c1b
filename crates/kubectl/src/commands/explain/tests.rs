//! Each state of a claim as people read it.

use serde_json::{Value, json};

use super::gather::ClaimFacts;
use super::*;
use crate::api::{
    Create, Expand, Failure, Health, LayoutRoom, NodeStorage, NodeStorageSpec, NodeStorageStatus,
    Operation, Phase, PoolOnNode, Quantity, VolumeMode, VolumeOnNode, VolumeRequest,
    VolumeRequestSpec, VolumeRequestStatus, VolumeState,
};
use crate::bytes::Bytes;
use crate::volume::{NodeKey, VolumeId, VolumeKey};

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn storage(node: &str, pools: &[(&str, u64)]) -> NodeStorage {
    let oldest = pools.first().map(|(name, _)| *name);
    let pool = |(name, gib): &(&str, u64)| PoolOnNode {
        name: (*name).to_owned(),
        configured: true,
        default: oldest == Some(*name),
        capacity: Quantity(Bytes::gib(1800)),
        available: Quantity(Bytes::gib(*gib)),
        maximum_volume_size: vec![LayoutRoom {
            layout: "linear".to_owned(),
            size: Quantity(Bytes::gib(*gib)),
        }],
        extent_size: Quantity(Bytes::mib(4)),
        volume_count: 1,
        health: Health::Healthy,
        conditions: Vec::new(),
        planned_actions: Vec::new(),
        rejected_disks: Vec::new(),
    };
    let key = NodeKey::of(node).as_str().to_owned();
    let mut storage = NodeStorage::new(node, NodeStorageSpec { node_hash: key });
    let pools = pools.iter().map(pool).collect();
    storage.status = Some(NodeStorageStatus { pools, ..NodeStorageStatus::default() });
    storage
}

fn node_plugin(node: &str) -> Value {
    json!({"metadata": {"name": format!("pliant-node-{node}"), "namespace": "pliant"}, "spec": {"nodeName": node, "containers": []},
           "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn class() -> Value {
    json!({"metadata": {"name": "fast"}, "provisioner": "lvm.csi.pliant.io",
           "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
           "parameters": {"pool": "fast"}})
}

fn pod() -> Value {
    json!({"metadata": {"name": "db-0", "namespace": "default"}, "spec": {"containers": []}})
}

fn event(reason: &str, note: &str) -> Value {
    json!({"metadata": {"name": "e"}, "reason": reason, "note": note, "eventTime": null})
}

/// Three nodes with the driver, of which alpha and beta have the pool `fast`, and a claim for 200 GiB.
fn cluster() -> ClaimFacts {
    let names = ["alpha", "beta", "gamma"];
    let zone = |name: &str| if name == "alpha" { "a" } else { "b" };
    ClaimFacts {
        program: "pliant".to_owned(),
        claim: typed(json!({
            "metadata": {"name": "db-2", "namespace": "default", "uid": "u-1"},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "200Gi"}}},
            "status": {"phase": "Pending"},
        })),
        classes: vec![typed(class())],
        nodes: names
            .map(|name| typed(json!({"metadata": {"name": name, "labels": {"zone": zone(name)}}})))
            .into(),
        kubelets: names
            .map(|name| {
                let driver = json!({"name": "lvm.csi.pliant.io", "nodeID": name});
                typed(json!({"metadata": {"name": name}, "spec": {"drivers": [driver]}}))
            })
            .into(),
        storages: vec![
            storage("alpha", &[("fast", 698)]),
            storage("beta", &[("fast", 110)]),
            storage("gamma", &[("slow", 900)]),
        ],
        pools: vec![
            typed(
                json!({"apiVersion": "pliant.io/v1alpha1", "kind": "StoragePool", "metadata": {"name": "fast"},
                "spec": {"nodeSelector": {"disks": "nvme"}, "volumeGroups": ["vg0"]}}),
            ),
            typed(
                json!({"apiVersion": "pliant.io/v1alpha1", "kind": "StoragePool", "metadata": {"name": "slow"},
                "spec": {"volumeGroups": ["vg1"]}}),
            ),
        ],
        node_plugins: names.map(|name| typed(node_plugin(name))).into(),
        ..ClaimFacts::default()
    }
}

fn with_pod(pod: Value) -> ClaimFacts {
    ClaimFacts { pods: vec![typed(pod)], ..cluster() }
}

/// The same, with this at a place of the claim.
fn with_claim(mut facts: ClaimFacts, at: &str, value: Value) -> ClaimFacts {
    let mut claim = serde_json::to_value(&facts.claim).unwrap();
    let (parent, field) = at.rsplit_once('/').unwrap();
    claim.pointer_mut(parent).unwrap()[field] = value;
    facts.claim = typed(claim);
    facts
}

/// The text for people, in one line.
fn flat(facts: &ClaimFacts) -> String {
    said(facts).1.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn said(facts: &ClaimFacts) -> (ClaimState, String) {
    let told = judge(facts);
    let text = print(&told, false);
    let is_command = |line: &str| line.starts_with("    ");
    let long = text.lines().find(|line| line.chars().count() > 80 && !is_command(line));
    assert_eq!(long, None);
    (told.state, text)
}

/// What is said of all of them, each of which is in this state.
fn all(cases: Vec<(ClaimFacts, ClaimState)>) -> String {
    let mut told = String::new();
    for (facts, state) in cases {
        let (is, text) = said(&facts);
        assert_eq!(is, state, "{text}");
        told += &text;
    }
    told
}

#[test]
fn colours_are_for_terminals_and_long_names_get_lines_of_their_own() {
    let mut told = judge(&with_pod(pod()));
    assert!(print(&told, true).starts_with("\x1b[33mdefault/db-2\x1b[0m is Pending"), "{told:?}");
    told.nodes.truncate(1);
    told.nodes[0].node = "a".repeat(63);
    told.nodes[0].why = format!("said \x1b[2J {}", "word ".repeat(20));
    let text = print(&told, false);
    assert!(!text.contains('\x1b'), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("      ")).collect();
    assert_eq!(lines[0].trim_start().split(' ').next(), Some("said"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_pending_claim_is_judged_by_its_size_or_not_at_all() {
    let asks =
        |size: &str| with_claim(with_pod(pod()), "/spec/resources/requests/storage", json!(size));
    let (state, text) = said(&asks("1869169767219200m"));
    assert_eq!(state, ClaimState::InsufficientCapacity, "no node has 1.7 TiB: {text}");
    for size in ["1e50", "-1Gi", "1 Gi", "", "100E"] {
        let (state, text) = said(&asks(size));
        assert_eq!(state, ClaimState::InvalidSize, "{text}");
        assert!(!text.contains("fits"), "{text}");
    }
}

mod growing;
mod kept;
mod waiting;
