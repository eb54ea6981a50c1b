//! Explains a claim that has a volume. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::explanation::{ClaimState, Explanation, Remediation};
use super::fit::{Bar, in_one, objections};
use super::gather::{ClaimFacts, STORAGES, VOLUMES};
use super::growth::growth;
use super::managed;
use super::pending::{look_at_node_plugins, unschedulable};
use super::place::VolumeLocation;
use crate::api::{FenceStatus, NodeStorage};
use crate::cluster::audit::is_complete;
use crate::cluster::is_on;
use crate::volume::{Fence, NodeKey, Use, VolumeId, few};

/// A claim whose PersistentVolume was removed under it.
pub(super) fn lost(facts: &ClaimFacts) -> Explanation {
    let claim = facts.claim.as_ref().and_then(|claim| claim.spec.as_ref());
    let name = claim.and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    let why = format!(
        "is Lost: its PersistentVolume {name} was removed. If the volume is still on its node, it is \
         an orphaned volume."
    );
    let todo = Remediation::command(
        "see such volumes",
        format!("{} recover --all --dry-run", facts.program),
    );
    facts.explain(ClaimState::Lost, why, vec![todo])
}

/// A claim with its PersistentVolume.
pub(super) fn bound(facts: &ClaimFacts) -> Explanation {
    if facts.volume.is_none() {
        let why = if facts.sees(VOLUMES) {
            "is Bound, and its PersistentVolume does not exist."
        } else if facts.unseen.contains(&VOLUMES) {
            "is Bound; you may not read its PersistentVolume, so nothing more is known."
        } else {
            "is Bound; its PersistentVolume cannot be decoded, so nothing more is known."
        };
        return facts.explain(ClaimState::Forbidden, why, Vec::new());
    }
    let Some(id) = facts.handle() else {
        let why = "is Bound to a volume of another driver, which Pliant cannot explain.";
        return facts.explain(ClaimState::OtherDriver, why, Vec::new());
    };
    let is_its = |node: &&NodeStorage| id.parse().is_ok_and(|id| is_on(node, &id));
    let storage = facts.storages.iter().find(is_its);
    let Some(storage) = storage else { return without_record(facts, id) };
    let node = storage.metadata.name.as_deref().unwrap_or_default();
    let volumes = storage.status.iter().flat_map(|status| &status.volumes);
    let place = VolumeLocation {
        id,
        node,
        volume: volumes.into_iter().find(|volume| volume.volume_handle == id),
    };
    gone(facts, storage, &place)
        .or_else(|| fenced(facts, &place))
        .or_else(|| growth(facts, &place))
        .or_else(|| ailing(facts, &place))
        .or_else(|| node_plugin_away(facts, &place))
        .or_else(|| pod_waits(facts, &place))
        .unwrap_or_else(|| fine(facts, &place))
}

fn without_record(facts: &ClaimFacts, id: &str) -> Explanation {
    if !facts.sees(STORAGES) {
        let why = if facts.unseen.contains(&STORAGES) {
            "is Bound; you may not read nodestorages, so nothing more is known."
        } else {
            "is Bound; a NodeStorage cannot be decoded, so nothing more is known."
        };
        return facts.explain(ClaimState::Forbidden, why, Vec::new());
    }
    let is_its = |name: &&str| id.parse().is_ok_and(|id: VolumeId| *id.node() == NodeKey::of(name));
    let mut names = facts.nodes.iter().filter_map(|node| node.metadata.name.as_deref());
    if let Some(node) = names.find(is_its) {
        let why =
            format!("is Bound to a volume of node {node}, whose node plugin has reported nothing.");
        return facts.explain(
            ClaimState::NodePluginUnavailable,
            why,
            vec![look_at_node_plugins(node)],
        );
    }
    let why = format!(
        "is Bound to volume {id}, whose node is not in the cluster. Its data is on the disks of that \
         node."
    );
    let todo = Remediation::hint("bring the node back under its old name");
    facts.explain(ClaimState::VolumeNotFound, why, vec![todo])
}

fn gone(
    facts: &ClaimFacts,
    storage: &NodeStorage,
    place: &VolumeLocation<'_>,
) -> Option<Explanation> {
    let status = storage.status.as_ref();
    // Only a node that could read all of its pools proves that a volume is missing.
    let unread = match status {
        Some(status) if is_complete(status) => None,
        told => Some(
            told.and_then(|status| status.inventory_gap().map(str::to_owned))
                .unwrap_or_else(|| "not all of its pools can be read".to_owned()),
        ),
    };
    match (place.volume, unread) {
        (Some(_), _) => None,
        (None, Some(unread)) => {
            let why =
                format!("is Bound, and its volume cannot be read on node {}: {unread}", place.node);
            let command = format!("{} doctor node/{}", facts.program, place.node);
            let todo = Remediation::command("see what is wrong with the node", command);
            Some(facts.explain(ClaimState::VolumeStatusUnknown, why, vec![todo]))
        }
        (None, None) => {
            let why = format!(
                "is Bound, and its volume {} is no longer on node {}: it was removed without the driver, \
                 or its disk was replaced.",
                place.id, place.node
            );
            let todo = Remediation::hint("restore the data into a new claim from a backup");
            Some(facts.explain(ClaimState::VolumeNotFound, why, vec![todo]))
        }
    }
}

/// Explains a fenced volume, before any other problem with it.
fn fenced(facts: &ClaimFacts, place: &VolumeLocation<'_>) -> Option<Explanation> {
    // An incomplete copy is available to its populator.
    let is_shut = |fence: &FenceStatus| Fence::from(fence).lets() != Use::Any;
    let fence = place.volume?.fence.filter(is_shut)?;
    let why = format!(
        "is Bound to a volume on node {} that is {} since generation {} of its swap, so no pod can be \
         started with it.",
        place.node,
        fence.state.words(),
        fence.generation
    );
    let todo = managed::watch_keeper(facts).unwrap_or_else(|| {
        Remediation::hint(
            "create the PvcAutoscaler of its workload again: it returns the volume to the pod, or \
             reports the command to run",
        )
    });
    Some(facts.explain(ClaimState::VolumeFenced, why, vec![todo]))
}

fn ailing(facts: &ClaimFacts, place: &VolumeLocation<'_>) -> Option<Explanation> {
    let ailments = &place.volume?.health_statuses;
    let sentences: Vec<&str> = ailments.iter().map(|one| one.message.as_str()).collect();
    if sentences.is_empty() {
        return None;
    }
    let why = format!(
        "is Bound, and its volume on node {} is unhealthy: {}",
        place.node,
        sentences.join("; ")
    );
    let command = format!("{} doctor node/{}", facts.program, place.node);
    let todo = Remediation::command("see what else is wrong with the node", command);
    Some(facts.explain(ClaimState::VolumeUnhealthy, why, vec![todo]))
}

fn node_plugin_away(facts: &ClaimFacts, place: &VolumeLocation<'_>) -> Option<Explanation> {
    let trouble = facts.node_plugin_trouble(place.node)?;
    let why = format!(
        "is Bound to a volume on node {}, and {trouble}. Running pods continue; until the node plugin \
         responds, no pod with this claim can start there, and the claim cannot be expanded.",
        place.node
    );
    Some(facts.explain(
        ClaimState::NodePluginUnavailable,
        why,
        vec![look_at_node_plugins(place.node)],
    ))
}

/// Pods can run only where the volume is.
fn pod_waits(facts: &ClaimFacts, place: &VolumeLocation<'_>) -> Option<Explanation> {
    let waits = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    let pod = facts.pods.iter().find(waits)?;
    let words = unschedulable(pod)?;
    let spec = pod.spec.as_ref()?;
    let node = facts.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(place.node));
    let why = node.map(|node| objections(spec, node)).unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let on = place.node;
    let (why, todo) = if why.is_empty() {
        (
            format!("the scheduler reports: {words}"),
            Remediation::hint(format!("free resources for the pod on {on}")),
        )
    } else if why.iter().all(|one| one.bar == Bar::Cordon) {
        (
            format!("it may not: {}", in_one(&why)),
            Remediation::command(
                format!("let pods run on {on} again"),
                format!("kubectl uncordon {on}"),
            ),
        )
    } else {
        (
            format!("it may not: {}", in_one(&why)),
            Remediation::hint(format!(
                "let the pod run on {on}: see its nodeSelector, affinity and tolerations"
            )),
        )
    };
    let why = format!("is Bound to a volume on node {on}, where its pod {name} has to run; {why}.");
    Some(facts.explain(ClaimState::PodUnschedulable, why, vec![todo]))
}

fn fine(facts: &ClaimFacts, place: &VolumeLocation<'_>) -> Explanation {
    let what = place.volume.map_or_else(String::new, |volume| {
        format!("{} of {} in pool {}", volume.size.0, volume.format(), volume.pool)
    });
    let users = few(facts.pods.iter().filter_map(|pod| pod.metadata.name.as_ref()));
    let used =
        if users.is_empty() { "no pod uses it".to_owned() } else { format!("used by {users}") };
    let why = format!("is healthy: {what} on node {}, {used}.{}", place.node, cannot_grow(facts));
    facts.explain(ClaimState::Healthy, why, Vec::new())
}

/// Notes that the class forbids expansion, which users otherwise notice late.
fn cannot_grow(facts: &ClaimFacts) -> String {
    let name =
        facts.claim.as_ref().and_then(|claim| claim.spec.as_ref()?.storage_class_name.clone());
    let class = facts.classes.iter().find(|class| class.metadata.name == name);
    match class {
        Some(class) if class.allow_volume_expansion != Some(true) => format!(
            " It cannot be expanded: allowVolumeExpansion of its class {} is not true.",
            name.unwrap_or_default()
        ),
        _ => String::new(),
    }
}
