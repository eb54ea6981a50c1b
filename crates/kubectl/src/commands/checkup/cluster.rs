//! What concerns no single node. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;

use super::seen::{
    CLASSES, DEFINITIONS, DRIVERS, ObservedCluster, PODS, POOLS, REQUESTS, Released,
};
use crate::api::{
    Health, NodeStorage, NodeStorageStatus, PoolOnNode, READY, StoragePool, definitions,
};
use crate::cluster::audit::{UnmatchedVolume, audit};
use crate::cluster::{pool_of, topology};
use crate::commands::{DRIVER_PODS, STORAGES, VOLUMES, adopt, is_ready};
use crate::doctor::Finding;
use crate::volume::{Class, DRIVER, FsKind, NodeKey, TOPOLOGY, few};

pub(super) fn judge(seen: &ObservedCluster, program: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(records(seen, program));
    findings.extend(driver(seen));
    findings.extend(controller(seen));
    findings.extend(operator(seen));
    findings.extend(versions(seen));
    findings.extend(pools(seen));
    findings.extend(classes(seen, program));
    findings.extend(too_large(seen));
    findings
}

/// Reports namespaces with too many objects of a kind; the operator or the controller plugin repeats the
/// event while that is so.
fn too_large(seen: &ObservedCluster) -> Vec<Finding> {
    let said: BTreeMap<(String, String), &Event> = seen
        .too_large
        .iter()
        .filter_map(|event| {
            let about = event.regarding.as_ref()?;
            let is_ours = event.reporting_controller.as_deref() == Some(DRIVER);
            is_ours.then_some(((about.namespace.clone()?, about.kind.clone()?), event))
        })
        .collect();
    let finding = |((namespace, kind), event): ((String, String), &Event)| {
        let note = event.note.as_deref().unwrap_or_default();
        let kinds = kind.to_lowercase();
        Finding::error(
            format!("namespace {namespace} has too many objects of kind {kind}: {note}"),
            format!(
                "kubectl get {kinds} --namespace {namespace}, and delete those that are not needed"
            ),
        )
    };
    said.into_iter().map(finding).collect()
}

/// Action for a missing object of the driver.
const INSTALL: &str = "install the chart again: helm upgrade --install pliant charts/pliant …";

fn records(seen: &ObservedCluster, program: &str) -> Option<Finding> {
    if !seen.sees(DEFINITIONS) {
        return None;
    }
    let there: BTreeSet<_> = seen.definitions.iter().map(|one| &one.metadata.name).collect();
    let all = definitions();
    let missing = all.iter().map(|one| &one.metadata.name).filter(|name| !there.contains(name));
    let missing: Vec<_> = missing.flatten().collect();
    Some(if missing.is_empty() {
        Finding::ok("the CRDs of the driver are installed")
    } else {
        let what = format!("these CRDs are missing: {}", few(missing));
        Finding::error(what, format!("{program} crds | kubectl apply --server-side --filename -"))
    })
}

fn driver(seen: &ObservedCluster) -> Option<Finding> {
    if !seen.sees(DRIVERS) {
        return None;
    }
    let Some(driver) = &seen.driver else {
        return Some(Finding::error(format!("CSIDriver {DRIVER} is missing"), INSTALL));
    };
    Some(match (driver.spec.attach_required, driver.spec.storage_capacity) {
        (Some(false), Some(true)) => Finding::ok(format!("CSIDriver {DRIVER} exists")),
        (Some(false), _) => Finding::warning(
            format!(
                "CSIDriver {DRIVER} lacks storageCapacity: pods are scheduled to nodes without free space"
            ),
            format!(
                "kubectl patch csidriver {DRIVER} --patch '{{\"spec\":{{\"storageCapacity\":true}}}}'"
            ),
        ),
        _ => Finding::error(
            format!(
                "CSIDriver {DRIVER} requires volumes to be attached, and no component attaches them"
            ),
            format!("kubectl delete csidriver {DRIVER}, then {INSTALL}"),
        ),
    })
}

/// A part of the driver that runs as a Deployment.
struct DriverDeployment {
    component: &'static str,
    name: &'static str,
    /// What does not work without it.
    without: &'static str,
}

const CONTROLLER: DriverDeployment = DriverDeployment {
    component: "controller",
    name: "controller plugin",
    without: "volumes are neither created nor expanded",
};

const OPERATOR: DriverDeployment = DriverDeployment {
    component: "operator",
    name: "operator",
    without: "no claim is populated or managed, and pods of managed StatefulSets are not created",
};

fn controller(seen: &ObservedCluster) -> Option<Finding> {
    let none = || Finding::error("no pod of the controller plugin exists", INSTALL);
    seen.sees(PODS).then(|| pods_of(seen, &CONTROLLER).unwrap_or_else(none))
}

/// The chart can be installed without it.
fn operator(seen: &ObservedCluster) -> Option<Finding> {
    pods_of(seen, &OPERATOR)
}

/// How many pods of a part are ready; `None` without any pod of it.
fn pods_of(seen: &ObservedCluster, part: &DriverDeployment) -> Option<Finding> {
    let DriverDeployment { component, name, without } = part;
    let is_of_part = |pod: &&Pod| {
        let labels = pod.metadata.labels.as_ref();
        labels
            .and_then(|all| all.get("app.kubernetes.io/component"))
            .is_some_and(|of| of == component)
    };
    let all: Vec<&Pod> = seen.pods.iter().filter(is_of_part).collect();
    let ready = all.iter().filter(|pod| is_ready(pod)).count();
    let look = format!(
        "kubectl describe pods --all-namespaces --selector {DRIVER_PODS},app.kubernetes.io/component={component}"
    );
    match (ready, all.len()) {
        (0, 0) => None,
        (0, many) => {
            let what = format!("no pod of the {name} is ready, of {many}: {without}");
            Some(Finding::error(what, look))
        }
        (ready, many) if ready < many => {
            Some(Finding::warning(format!("ready pods of the {name}: {ready} of {many}"), look))
        }
        _ => Some(Finding::ok(format!("the {name} is ready, pods: {ready}"))),
    }
}

fn statuses(seen: &ObservedCluster) -> impl Iterator<Item = &NodeStorageStatus> {
    seen.storages.iter().filter_map(|node| node.status.as_ref())
}

fn versions(seen: &ObservedCluster) -> Option<Finding> {
    let versions: BTreeSet<&str> = statuses(seen).map(|status| status.version.as_str()).collect();
    let ours = env!("CARGO_PKG_VERSION");
    let versions: Vec<&str> = versions.into_iter().collect();
    match versions.as_slice() {
        [] => None,
        [one] if *one == ours => {
            seen.sees(STORAGES).then(|| Finding::ok(format!("all node plugins have version {one}")))
        }
        [one] => Some(Finding::warning(
            format!("all node plugins have version {one}, and this program has {ours}"),
            "use a program of the same version",
        )),
        several => Some(Finding::warning(
            format!("the node plugins have different versions: {}", few(several)),
            "wait for the update to end: kubectl get daemonsets --all-namespaces",
        )),
    }
}

fn pools(seen: &ObservedCluster) -> Vec<Finding> {
    if seen.pools.is_empty() && !seen.sees(POOLS) {
        return Vec::new();
    }
    if seen.pools.is_empty() {
        return vec![Finding::error(
            "no StoragePool exists",
            "create one: kubectl explain storagepool.spec",
        )];
    }
    seen.pools.iter().map(pool).collect()
}

pub(super) fn pool(pool: &StoragePool) -> Finding {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let status = pool.status.clone().unwrap_or_default();
    match status.ready_node_count {
        0 => {
            let ready = status.conditions.iter().find(|one| one.type_ == READY);
            let what = match ready {
                Some(ready) => format!("pool {name}: {}", ready.message),
                None => format!("pool {name} is usable on no node"),
            };
            Finding::error(what, format!("kubectl get storagepool {name} --output yaml"))
        }
        ready => Finding::ok(format!("pool {name} is usable, nodes: {ready}")),
    }
}

fn classes(seen: &ObservedCluster, program: &str) -> Vec<Finding> {
    let ours: Vec<&StorageClass> =
        seen.classes.iter().filter(|class| class.provisioner == DRIVER).collect();
    if ours.is_empty() && !seen.sees(CLASSES) {
        return Vec::new();
    }
    if ours.is_empty() {
        let what = format!("no StorageClass names the driver {DRIVER}");
        return vec![Finding::warning(what, "create one, or name it in the values of the chart")];
    }
    ours.into_iter().filter_map(|one| class(seen, program, one)).collect()
}

/// Reason why no node can create a volume of a class, by its topologies and pools.
fn unusable(seen: &ObservedCluster, storage_class: &StorageClass, class: &Class) -> Option<String> {
    let allows = |node: &&NodeStorage| {
        topology::allows(storage_class, node.metadata.name.as_deref().unwrap_or_default())
    };
    let allowed = seen.storages.iter().filter(allows).filter_map(|node| node.status.as_ref());
    let allowed: Vec<&NodeStorageStatus> = allowed.collect();
    let only = topology::named_nodes(storage_class);
    if let (Some(only), []) = (&only, allowed.as_slice()) {
        return Some(format!(
            "allows only {TOPOLOGY}={}, and no such node has reported its pools",
            few(only)
        ));
    }
    let node = if only.is_some() { "no node that it allows" } else { "no node" };
    let pools: Vec<&PoolOnNode> = allowed.iter().filter_map(|node| pool_of(node, class)).collect();
    let is_usable = |pool: &&PoolOnNode| pool.health != Health::Unavailable;
    match (&class.pool, pools.first()) {
        (Some(named), None) => Some(format!("takes pool {named}, which {node} has")),
        (None, None) => Some(format!("names no pool, and {node} has one")),
        (_, Some(first)) if !pools.iter().any(is_usable) => {
            Some(format!("takes pool {}, which can be used on {node}", first.name))
        }
        _ => None,
    }
}

/// Checks a StorageClass; `None` if that depends on nodes that have not reported.
fn class(seen: &ObservedCluster, program: &str, class: &StorageClass) -> Option<Finding> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let parameters = class.parameters.clone().unwrap_or_default();
    let look = || format!("kubectl get storageclass {name} --output yaml");
    let parsed = match Class::parse(&parameters, None, FsKind::Ext4) {
        Ok(parsed) => parsed,
        Err(error) => {
            return Some(Finding::error(format!("class {name} cannot be used: {error}"), look()));
        }
    };
    let foreign = topology::foreign_keys(class);
    if !foreign.is_empty() {
        let what = format!(
            "class {name} cannot be used: its allowedTopologies name {}, and volumes of this driver have \
             only the key {TOPOLOGY}",
            few(foreign)
        );
        let instead = topology::in_our_key(class, &seen.nodes);
        return Some(Finding::error(what, format!("create it again with {instead}")));
    }
    if let Some(why) = unusable(seen, class, &parsed) {
        let is_known = seen.sees(STORAGES);
        let bad = || Finding::error(format!("class {name} {why}"), format!("{program} status"));
        return is_known.then(bad);
    }
    // Where one node is allowed there is no choice that could be wrong.
    let is_one_node = topology::named_nodes(class).is_some_and(|nodes| nodes.len() == 1);
    if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") && !is_one_node {
        return Some(Finding::warning(
            format!(
                "class {name} creates volumes immediately, on nodes where their pods may not run"
            ),
            "create it again with volumeBindingMode: WaitForFirstConsumer",
        ));
    }
    Some(Finding::ok(format!("class {name} can be used")))
}

/// Volumes and PersistentVolumes without each other, on all nodes or on one.
pub(super) fn differences(seen: &ObservedCluster, program: &str, on: Option<&str>) -> Vec<Finding> {
    if !seen.sees(VOLUMES) || !seen.sees(STORAGES) {
        return Vec::new();
    }
    let finding = |one: &UnmatchedVolume| match one {
        UnmatchedVolume::VolumeWithoutPv { node, volume, name, size, pool } => Finding::error(
            format!("volume {volume} ({name}, {size}) of node {node} has no PersistentVolume"),
            format!(
                "{program} recover {volume} --namespace NAMESPACE --claim NAME{}",
                which_class(seen, pool)
            ),
        ),
        UnmatchedVolume::PvWithoutVolume { node, volume, pv } => Finding::error(
            format!("PersistentVolume {pv} names volume {volume}, which node {node} does not have"),
            "put the removed disk back, or restore the data from a backup",
        ),
    };
    let found = audit(&seen.storages, &seen.volumes, &seen.requests);
    // A volume that a request is about gets its PersistentVolume in a moment, or goes.
    let is_known = |one: &&UnmatchedVolume| {
        seen.sees(REQUESTS) || !matches!(one, UnmatchedVolume::VolumeWithoutPv { .. })
    };
    let is_asked = |one: &&UnmatchedVolume| on.is_none_or(|on| one.node() == on);
    found.iter().filter(is_known).filter(is_asked).map(finding).collect()
}

/// Reports Released PersistentVolumes with the policy Retain, on all nodes or on one.
pub(super) fn released(seen: &ObservedCluster, program: &str, on: Option<&str>) -> Vec<Finding> {
    let is_asked = |one: &&Released| on.is_none_or(|node| *one.volume.node() == NodeKey::of(node));
    let finding = |one: &Released| {
        let Released { name, size, claim, .. } = one;
        Finding::warning(
            format!(
                "PersistentVolume {name} ({size}) is Released and retained with its data: claim {claim} was deleted"
            ),
            format!("{program} explain pv/{name}"),
        )
    };
    seen.released.iter().filter(is_asked).map(finding).collect()
}

/// The flag that `recover` needs unless exactly one class uses the pool.
fn which_class(seen: &ObservedCluster, pool: &str) -> String {
    match adopt::fitting(&seen.classes, pool).as_slice() {
        [_] => String::new(),
        [] => " --storage-class CLASS".to_owned(),
        several => format!(" --storage-class CLASS # one of {}", few(several)),
    }
}
