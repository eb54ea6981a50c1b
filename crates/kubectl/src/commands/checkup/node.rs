//! What concerns one node. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::seen::{KUBELETS, ObservedCluster, PODS};
use crate::api::{
    DiskState, DiskStatus, GroupStatus, Health, INVENTORY_COMPLETE, NodeStorageStatus, PoolOnNode,
    StoragePool,
};
use crate::bytes::Bytes;
use crate::commands::{NODES, STORAGES, is_ready};
use crate::doctor::Finding;
use crate::volume::DRIVER;

/// Names of the nodes, also of those with only a NodeStorage left.
pub(super) fn names(seen: &ObservedCluster) -> BTreeSet<&str> {
    let known = seen.nodes.iter().filter_map(|node| node.metadata.name.as_deref());
    let told = seen.storages.iter().filter_map(|node| node.metadata.name.as_deref());
    known.chain(told).collect()
}

pub(super) fn judge(seen: &ObservedCluster, program: &str, name: &str) -> Vec<Finding> {
    let storage = seen.storage(name);
    let node_plugins = node_plugins(seen, name);
    let sees_all = seen.sees(PODS) && seen.sees(STORAGES);
    if storage.is_none() && node_plugins.is_empty() && sees_all {
        return vec![Finding::ok(format!("node {name}: the driver is not deployed there"))];
    }
    let mut findings = Vec::new();
    findings.extend(left_behind(seen, name));
    findings.extend(node_plugin(seen, name, &node_plugins));
    findings.extend(kubelet(seen, name));
    match storage.and_then(|storage| storage.status.as_ref()) {
        Some(status) => findings.extend(of_record(seen, status, program, name, &node_plugins)),
        None if seen.sees(STORAGES) => findings.push(Finding::error(
            format!("node {name}: its node plugin has not reported its pools"),
            logs(&node_plugins),
        )),
        None => {}
    }
    findings
}

fn node_plugins<'a>(seen: &'a ObservedCluster, name: &str) -> Vec<&'a Pod> {
    let is_node_plugin = |pod: &&Pod| {
        let labels = pod.metadata.labels.as_ref();
        let component = labels.and_then(|all| all.get("app.kubernetes.io/component"));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        component.is_some_and(|component| component == "node") && node == Some(name)
    };
    seen.pods.iter().filter(is_node_plugin).collect()
}

fn left_behind(seen: &ObservedCluster, name: &str) -> Option<Finding> {
    let is_it = |one: &str| one == name;
    let there = seen.nodes.iter().filter_map(|node| node.metadata.name.as_deref()).any(is_it);
    let volumes = seen.storage(name)?.status.as_ref().map_or(0, |status| status.volumes.len());
    (!there && seen.sees(NODES)).then(|| match volumes {
        0 => Finding::warning(
            format!("node {name} is not in the cluster, and its NodeStorage lists no volume"),
            "wait 10 minutes: the controller plugin deletes the NodeStorage if its inventory is complete",
        ),
        many => Finding::error(
            format!("node {name} is not in the cluster, and has volumes: {many}"),
            format!("if it is gone for good, with its volumes: kubectl delete nodestorage {name}"),
        ),
    })
}

fn node_plugin(seen: &ObservedCluster, name: &str, node_plugins: &[&Pod]) -> Option<Finding> {
    if !seen.sees(PODS) {
        return None;
    }
    let Some(first) = node_plugins.first() else {
        return Some(Finding::error(
            format!("node {name}: no node plugin runs there, and the node has volumes"),
            "kubectl get daemonsets --all-namespaces; see its node selector and tolerations",
        ));
    };
    if node_plugins.iter().any(|pod| is_ready(pod)) {
        return None; // Told with the room.
    }
    let pod = first.metadata.name.as_deref().unwrap_or_default();
    Some(Finding::error(
        format!("node {name}: its node plugin {pod} is not ready"),
        logs(node_plugins),
    ))
}

/// Action for a node without a node plugin.
const START: &str = "start the node plugin there";

/// Command that prints the log of a node plugin.
fn logs(node_plugins: &[&Pod]) -> String {
    let Some(pod) = node_plugins.first() else { return START.to_owned() };
    format!("kubectl logs {}", in_its_container(pod))
}

fn in_its_container(pod: &Pod) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (name, namespace) = (part(&pod.metadata.name), part(&pod.metadata.namespace));
    format!("{name} --namespace {namespace} --container node")
}

fn kubelet(seen: &ObservedCluster, name: &str) -> Option<Finding> {
    if !seen.sees(KUBELETS) {
        return None;
    }
    let known = seen.kubelets.iter().find(|one| one.metadata.name.as_deref() == Some(name));
    let has = known.is_some_and(|one| one.spec.drivers.iter().any(|driver| driver.name == DRIVER));
    (!has).then(|| {
        Finding::error(
            format!(
                "node {name}: its kubelet has not registered the driver, so no pod gets a volume"
            ),
            "see the lines with `registration` in the log of its node plugin",
        )
    })
}

fn of_record(
    seen: &ObservedCluster,
    status: &NodeStorageStatus,
    program: &str,
    name: &str,
    node_plugins: &[&Pod],
) -> Vec<Finding> {
    let look = on_the_node(node_plugins);
    let mut findings: Vec<Finding> =
        status.pools.iter().filter_map(|one| pool(status, one, program, name, &look)).collect();
    findings.extend(status.pools.iter().filter_map(|pool| planned(seen, pool, name)));
    if let Some(unread) = status.inventory_gap()
        && !status.pools.iter().any(hides)
    {
        let what = format!("node {name}: not all volumes can be read: {unread}");
        findings.push(Finding::error(what, &look));
    }
    let missing = status.disks.iter().filter(|disk| disk.state == DiskState::Missing);
    findings.extend(missing.map(|disk| {
        let why = disk.message.as_deref().filter(|_| !is_told_of_its_pool(status, disk));
        let why = why.map(|words| format!(": {words}")).unwrap_or_default();
        let what = format!("node {name}: disk {} is missing{why}", disk.device);
        let remedy = if disk.volume_group.is_some() {
            "put the disk back; until then its volume group cannot be changed"
        } else {
            "attach it, or correct its path: kubectl edit storagepools"
        };
        Finding::error(what, remedy)
    }));
    findings.extend(status.volumes.iter().flat_map(|volume| {
        volume.health_statuses.iter().map(move |ailment| {
            let what = format!("node {name}: volume {}: {}", volume.name, ailment.message);
            // Whose name that is changes with an exchange; its id never does.
            let its = seen.volumes.iter().find(|pv| pv.handle() == Some(&volume.volume_handle));
            let pv = its.and_then(|pv| pv.metadata.name.as_ref()).unwrap_or(&volume.name);
            let todo = format!("{program} explain pv/{pv}");
            if ailment.status == "Degraded" {
                Finding::warning(what, todo)
            } else {
                Finding::error(what, todo)
            }
        })
    }));
    let unmet = status.conditions.iter().filter(|condition| condition.status == "False");
    let unmet = unmet.filter(|condition| !is_told(status, condition));
    findings.extend(unmet.map(|condition| {
        let what = format!("node {name}: {}: {}", condition.type_, condition.message);
        Finding::error(what, &look)
    }));
    findings.push(room(status, name));
    findings
}

/// Findings about one pool of a node.
pub(super) fn of_pool(
    seen: &ObservedCluster,
    program: &str,
    name: &str,
    wanted: &str,
) -> Vec<Finding> {
    let status = seen.storage(name).and_then(|storage| storage.status.as_ref());
    let Some(status) = status else { return Vec::new() };
    let look = on_the_node(&node_plugins(seen, name));
    let its = status.pools.iter().filter(|pool| pool.name == wanted);
    its.flat_map(|one| {
        let wrong = pool(status, one, program, name, &look);
        let wrong: Vec<Finding> = wrong.into_iter().chain(planned(seen, one, name)).collect();
        if wrong.is_empty() { vec![has(one, name)] } else { wrong }
    })
    .collect()
}

fn has(pool: &PoolOnNode, name: &str) -> Finding {
    let (free, size, volumes) = (pool.available.0, pool.capacity.0, pool.volume_count);
    Finding::ok(format!(
        "node {name}, pool {}: {free} of {size} free, volumes: {volumes}",
        pool.name
    ))
}

/// True if volumes of this pool may exist that no list has.
fn hides(pool: &PoolOnNode) -> bool {
    let reason = pool.fault().map(|fault| fault.reason.as_str());
    matches!(reason, Some("PoolIncomplete" | "VolumeGroupUnavailable"))
}

/// True if the finding of the pool of a missing disk says why it is missing.
fn is_told_of_its_pool(status: &NodeStorageStatus, disk: &DiskStatus) -> bool {
    let Some(name) = &disk.volume_group else { return status.pools.iter().any(hides) };
    let mut groups = status.volume_groups.iter().filter(|group| group.name == *name);
    groups.any(|group| is_told_of(status, group))
}

/// True if the finding of its pool says that a volume group is unavailable.
fn is_told_of(status: &NodeStorageStatus, group: &GroupStatus) -> bool {
    let mut pools = status.pools.iter().filter(|pool| pool.name == group.pool);
    group.health == Health::Unavailable && pools.any(hides)
}

/// True if a condition repeats the findings of pools, disks or other conditions.
fn is_told(status: &NodeStorageStatus, condition: &Condition) -> bool {
    let mut unavailable =
        status.volume_groups.iter().filter(|group| group.health == Health::Unavailable);
    if condition.type_ == INVENTORY_COMPLETE {
        return true; // In a line of its own, or in that of its pool.
    }
    match condition.reason.as_str() {
        "PoolUnavailable" | "PrerequisitesNotMet" | "DiskMissing" => true,
        "VolumeGroupUnavailable" => unavailable.all(|group| is_told_of(status, group)),
        _ => false,
    }
}

/// Command that checks the host from its node plugin.
fn on_the_node(node_plugins: &[&Pod]) -> String {
    let Some(pod) = node_plugins.first() else { return START.to_owned() };
    format!("check on the node: kubectl exec {} -- pliant doctor", in_its_container(pod))
}

fn room(status: &NodeStorageStatus, name: &str) -> Finding {
    let free: Bytes = status.available.0;
    let (volumes, size) = (status.volume_count, status.capacity.0);
    Finding::ok(format!("node {name}: {free} of {size} free, volumes: {volumes}"))
}

fn pool(
    status: &NodeStorageStatus,
    pool: &PoolOnNode,
    program: &str,
    name: &str,
    look: &str,
) -> Option<Finding> {
    let message = pool.problem().unwrap_or("it is unhealthy");
    let besides = if status.inventory_gap().is_some() && hides(pool) {
        "; not all of its volumes can be listed"
    } else {
        ""
    };
    let what = format!("node {name}, pool {}: {message}{besides}", pool.name);
    match pool.health {
        _ if pool.only_plans() => None, // What it plans is a line of its own.
        Health::Healthy => None,
        Health::Degraded | Health::Unknown => {
            Some(Finding::warning(what, format!("{program} status")))
        }
        Health::Unavailable => Some(Finding::error(what, look)),
    }
}

/// Finding for disks that wait for permission to be initialized.
fn planned(seen: &ObservedCluster, pool: &PoolOnNode, name: &str) -> Option<Finding> {
    let is_it = |one: &&StoragePool| one.metadata.name.as_ref() == Some(&pool.name);
    let may = seen.pools.iter().find(is_it).is_some_and(|pool| pool.spec.create_volume_groups);
    (!pool.planned_actions.is_empty() && !may).then(|| {
        let what = format!(
            "node {name}, pool {}, planned: {}",
            pool.name,
            pool.planned_actions.join("; ")
        );
        Finding::warning(
            what,
            format!(
                "if this is right: kubectl edit storagepool {}, createVolumeGroups: true",
                pool.name
            ),
        )
    })
}
