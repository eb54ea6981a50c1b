//! Explains why a claim has no volume. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, PodSpec};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::capacity::{VolumeToPlace, nodes_say};
use super::explanation::{ClaimState, Explanation, Remediation};
use super::fit::Bar;
use super::gather::{ClaimFacts, NODES, POOLS, STORAGES, VOLUMES};
use super::managed::managed;
use super::verdict::{NodeSays, NodeVerdict};
use crate::api::{NodeStorageStatus, Phase, PoolOnNode, Quantity, StoragePool, VolumeRequest};
use crate::cluster::{DEFAULT_POOL, topology};
use crate::commands::{CLASSES, PODS};
use crate::populators::{PopulatorReason, SHOWN};
use crate::volume::{Class, DRIVER, FsKind, Reason, TOPOLOGY, few};

/// Annotation with the node that the scheduler has selected.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Annotation of the default class.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Why a claim is Pending.
pub(super) fn pending(facts: &ClaimFacts) -> Explanation {
    if let Some(said) = under_way(facts).or_else(|| populated(facts)) {
        return said;
    }
    let (storage_class, class) = match class_of(facts) {
        Ok(found) => found,
        Err(said) => return *said,
    };
    let waits = storage_class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    match (waits, facts.pods.as_slice()) {
        (false, _) => placed(facts, storage_class, &class, None),
        (true, []) if !facts.sees(PODS) => unseen(facts),
        (true, []) => waits_for_pod(facts),
        (true, [first, ..]) => held_back(facts, first)
            .unwrap_or_else(|| placed(facts, storage_class, &class, Some(first))),
    }
}

fn waits_for_pod(facts: &ClaimFacts) -> Explanation {
    let why = "is Pending: waiting for a pod. This is normal: its class creates the volume when the first \
               pod that uses the claim is scheduled.";
    let start = match managed(facts) {
        // The pods of a StatefulSet start in their order.
        Some(kept) => format!("wait until its pod {} starts", kept.pod()),
        None => "start a pod that uses it".to_owned(),
    };
    facts.explain(ClaimState::WaitForFirstConsumer, why, vec![Remediation::hint(start)])
}

/// Explains the state that the populator of a claim has written on it, unless that is that it waits for a pod or for
/// the volume. A claim that no populator knows has only events.
fn populated(facts: &ClaimFacts) -> Option<Explanation> {
    let claim = facts.claim.as_ref()?;
    let source = claim.spec.as_ref()?.data_source_ref.as_ref()?;
    let shown = claim.metadata.annotations.as_ref().and_then(|notes| notes.get(SHOWN));
    let shown = match shown {
        Some(shown) => shown.clone(),
        None => last_of_population(facts)?,
    };
    let (phase, rest) = shown.split_once(": ").unwrap_or((&shown, ""));
    let waits = PopulatorReason::WaitForFirstConsumer.to_string();
    if rest.starts_with(&waits) || (phase == "Provisioning" && rest.is_empty()) {
        return None;
    }
    let state =
        if phase == "Failed" { ClaimState::PopulationFailed } else { ClaimState::Populating };
    let why =
        format!("is Pending: its content comes from {} {}. {shown}", source.kind, source.name);
    let todo = Remediation::command(
        "read all events of its population",
        format!("kubectl describe pvc {}", facts.place()),
    );
    Some(facts.explain(state, why, vec![todo]))
}

/// The last event of a population, in the manner of its progress. The provisioner reports about such a claim too, and
/// only that it leaves it to others.
fn last_of_population(facts: &ClaimFacts) -> Option<String> {
    let reason_of = |event: &Event| event.reason.clone().unwrap_or_default();
    let is_of_population = |event: &&Event| {
        let mut reasons = PopulatorReason::ALL.iter();
        let waits = PopulatorReason::WaitForFirstConsumer; // Of Kubernetes too, again and again.
        reasons.any(|reason| *reason != waits && reason.to_string() == reason_of(event))
    };
    let event = facts.events.iter().find(is_of_population)?;
    let reason = reason_of(event);
    let unknown = PopulatorReason::UnrecognizedDataSourceKind.to_string();
    let phase = if reason == unknown { "Failed" } else { "Waiting" };
    Some(format!("{phase}: {reason}: {}", event.note.as_deref().unwrap_or_default()))
}

/// Explains the creation from its VolumeRequest.
fn under_way(facts: &ClaimFacts) -> Option<Explanation> {
    let claim = facts.claim.as_ref()?;
    // The provisioner calls it so.
    let name = format!("pvc-{}", claim.metadata.uid.as_deref()?);
    let is_it = |one: &&VolumeRequest| {
        one.spec.operation.creates().is_some_and(|create| create.name == name)
    };
    let request = facts.requests.iter().find(is_it)?;
    let (node, status) = (&request.spec.node_name, request.status_or_default());
    if status.phase == Phase::Failed {
        let failure = status.error?;
        // For insufficient capacity, the numbers of all nodes are more useful.
        let is_room = failure.reason == Reason::InsufficientCapacity.to_string();
        return (!is_room).then(|| failed(facts, Some(node), &failure.message));
    }
    let says = match (status.phase, status.progress) {
        (Phase::Pending, _) if facts.node_plugin_trouble(node).is_some() => {
            return Some(node_plugin_away(facts, node));
        }
        (Phase::Pending, _) => "its node plugin has not started it yet".to_owned(),
        (_, Some(progress)) => progress,
        (_, None) => "its node plugin is working on it".to_owned(),
    };
    let why = format!("is Pending: its volume is being created on node {node}; {says}.");
    Some(facts.explain(ClaimState::Provisioning, why, Vec::new()))
}

fn failed(facts: &ClaimFacts, node: Option<&str>, words: &str) -> Explanation {
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let why = format!("is Pending: its volume could not be created{on}: {words}");
    let todo = Remediation::command(
        "read the events of the driver",
        format!("kubectl describe pvc {}", facts.place()),
    );
    facts.explain(ClaimState::ProvisioningFailed, why, vec![todo])
}

fn node_plugin_away(facts: &ClaimFacts, node: &str) -> Explanation {
    let trouble = facts
        .node_plugin_trouble(node)
        .unwrap_or_else(|| "its node plugin is not responding".to_owned());
    let why = format!("is Pending: its volume is to be created on node {node}, and {trouble}.");
    facts.explain(ClaimState::NodePluginUnavailable, why, vec![look_at_node_plugins(node)])
}

/// Command that shows the node plugin of a node.
pub(super) fn look_at_node_plugins(node: &str) -> Remediation {
    Remediation::command(
        format!("look at the driver's pod on {node}"),
        format!(
            "kubectl get pods --all-namespaces --selector {} --field-selector spec.nodeName={node}",
            crate::commands::NODE_PLUGINS
        ),
    )
}

/// The class of the claim, if volumes of this driver can be made by it.
fn class_of(facts: &ClaimFacts) -> Result<(&StorageClass, Class), Box<Explanation>> {
    let refused = |state, why: String, todo| Err(Box::new(facts.explain(state, why, todo)));
    let spec = facts.claim.as_ref().and_then(|claim| claim.spec.as_ref());
    let names_unseen = spec.is_some_and(|spec| spec.volume_name.is_some()) && !facts.sees(VOLUMES);
    if facts.unseen.contains(&CLASSES) || names_unseen {
        return Err(Box::new(unseen(facts)));
    }
    if let Some(volume) = spec.and_then(|spec| spec.volume_name.as_ref()) {
        return Err(Box::new(names_volume(facts, volume)));
    }
    let Some(name) = spec.and_then(|spec| spec.storage_class_name.as_deref()) else {
        return refused(ClaimState::StorageClassNotSet, no_class(facts), vec![name_a_class(facts)]);
    };
    if name.is_empty() {
        let why = "is Pending: its storageClassName is empty, so it binds only to an existing \
                   PersistentVolume, and none fits.";
        return refused(ClaimState::StorageClassNotSet, why.to_owned(), vec![name_a_class(facts)]);
    }
    let is_it = |class: &&StorageClass| class.metadata.name.as_deref() == Some(name);
    let Some(class) = facts.classes.iter().find(is_it) else {
        if !facts.sees(CLASSES) {
            return Err(Box::new(unseen(facts)));
        }
        let why = format!("is Pending: StorageClass {name} does not exist.");
        return refused(ClaimState::StorageClassNotFound, why, vec![name_a_class(facts)]);
    };
    if class.provisioner != DRIVER {
        let why = format!(
            "is Pending: its class {name} belongs to the driver {}, which Pliant cannot explain.",
            class.provisioner
        );
        return refused(ClaimState::OtherDriver, why, Vec::new());
    }
    let foreign = topology::foreign_keys(class);
    if !foreign.is_empty() {
        let why = format!(
            "is Pending: the allowedTopologies of its class {name} name {}, and volumes of this driver \
             have only the key {TOPOLOGY}, whose value is the name of the node.",
            few(foreign)
        );
        let what =
            "create the claim again with a class that has this instead: no class can be edited";
        let todo = Remediation::command(what, topology::in_our_key(class, &facts.nodes));
        return refused(ClaimState::StorageClassInvalid, why, vec![todo]);
    }
    match Class::parse(&class.parameters.clone().unwrap_or_default(), None, FsKind::Ext4) {
        Ok(parsed) => Ok((class, parsed)),
        Err(error) => {
            let why = format!("is Pending: its class {name} cannot be used: {error}.");
            let what = "create the class again: its parameters cannot be edited";
            let command = format!("kubectl get storageclass {name} --output yaml");
            refused(ClaimState::StorageClassInvalid, why, vec![Remediation::command(what, command)])
        }
    }
}

fn unseen(facts: &ClaimFacts) -> Explanation {
    let last = facts.events.first().and_then(|event| event.note.as_deref());
    let last = last.map(|note| format!(" Its last event: {note}")).unwrap_or_default();
    let why = format!("is Pending, and {}.{last}", facts.unknown());
    let what = "ask an administrator of the cluster to run";
    let command = format!("{} explain pvc/{}", facts.program, facts.place());
    facts.explain(ClaimState::Forbidden, why, vec![Remediation::command(what, command)])
}

fn names_volume(facts: &ClaimFacts, name: &str) -> Explanation {
    let reference = facts.volume.as_ref().and_then(|pv| pv.spec.as_ref()?.claim_ref.as_ref());
    let why = match (&facts.volume, reference) {
        (None, _) => format!("is Pending: it names PersistentVolume {name}, which does not exist."),
        (Some(_), Some(other)) if !is_this_claim(facts, other) => format!(
            "is Pending: it names PersistentVolume {name}, which is reserved for claim {}/{}{}.",
            other.namespace.as_deref().unwrap_or_default(),
            other.name.as_deref().unwrap_or_default(),
            other.uid.as_ref().map(|uid| format!(" with the uid {uid}")).unwrap_or_default()
        ),
        (Some(_), _) => format!(
            "is Pending: it names PersistentVolume {name}. If it is not bound within seconds, the \
             two differ in class, size, access or volume mode."
        ),
    };
    let todo =
        Remediation::command("compare the two", format!("kubectl get pv {name} --output yaml"));
    facts.explain(ClaimState::VolumeConflict, why, vec![todo])
}

/// True if a PersistentVolume is reserved for the claim; one without a uid accepts any claim of the name.
fn is_this_claim(facts: &ClaimFacts, reference: &ObjectReference) -> bool {
    facts.claim.as_ref().is_some_and(|claim| {
        let metadata = &claim.metadata;
        let uid = reference.uid.is_none() || reference.uid == metadata.uid;
        (&reference.namespace, &reference.name) == (&metadata.namespace, &metadata.name) && uid
    })
}

fn no_class(facts: &ClaimFacts) -> String {
    let is_default = |class: &&StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(IS_DEFAULT)).is_some_and(|value| value == "true")
    };
    match facts.classes.iter().find(is_default) {
        None => "is Pending: it names no StorageClass, and none is the default.".to_owned(),
        Some(class) => format!(
            "is Pending: it names no StorageClass, and gets the default one, {}, within seconds.",
            class.metadata.name.as_deref().unwrap_or_default()
        ),
    }
}

fn name_a_class(facts: &ClaimFacts) -> Remediation {
    let ours = facts.classes.iter().filter(|class| class.provisioner == DRIVER);
    let names: Vec<&str> = ours.filter_map(|class| class.metadata.name.as_deref()).collect();
    match names.as_slice() {
        [] => Remediation::command(
            "create a StorageClass of this driver; there is none",
            format!("kubectl explain storageclass # provisioner: {DRIVER}"),
        ),
        names => Remediation::hint(format!(
            "create the claim again with a class of this driver, such as {}",
            few(names)
        )),
    }
}

/// Explains a pod that blocks its claim before any node is considered.
fn held_back(facts: &ClaimFacts, pod: &Pod) -> Option<Explanation> {
    let spec = pod.spec.as_ref()?;
    let name = pod_name(pod);
    if let Some(gates) = spec.scheduling_gates.as_ref().filter(|gates| !gates.is_empty()) {
        let gates = few(gates.iter().map(|gate| &gate.name));
        let why = format!("is Pending: its pod {name} has scheduling gates: {gates}.");
        let todo = Remediation::hint("wait until their owner removes these scheduling gates");
        return Some(facts.explain(ClaimState::PodSchedulingGated, why, vec![todo]));
    }
    let node = spec.node_name.as_ref()?;
    if selected_node(facts).is_some() {
        return None;
    }
    let why = format!(
        "is Pending: its pod {name} sets nodeName to {node}, so it bypasses the scheduler, which selects \
         the node of the volume."
    );
    let todo = Remediation::hint(format!(
        "replace nodeName in the pod by nodeSelector: {{kubernetes.io/hostname: {node}}}"
    ));
    Some(facts.explain(ClaimState::PodNodeNameSet, why, vec![todo]))
}

fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn selected_node(facts: &ClaimFacts) -> Option<&str> {
    let annotations = facts.claim.as_ref()?.metadata.annotations.as_ref()?;
    annotations.get(SELECTED_NODE).map(String::as_str)
}

/// Explains a claim by the verdicts of the nodes.
fn placed(
    facts: &ClaimFacts,
    storage_class: &StorageClass,
    class: &Class,
    pod: Option<&Pod>,
) -> Explanation {
    if facts.unseen.contains(&STORAGES) {
        return unseen(facts);
    }
    let spec: Option<&PodSpec> = pod.and_then(|pod| pod.spec.as_ref());
    let size = facts.wish().unwrap_or_default();
    let nodes = nodes_say(facts, &VolumeToPlace { size, storage_class, class, pod: spec });
    let says = |verdict| nodes.iter().any(|node| node.verdict == verdict);
    let mut told = if says(NodeVerdict::Fits) {
        fits(facts, &nodes, pod)
    } else if !facts.sees(STORAGES)
        || !(facts.sees(NODES) || says(NodeVerdict::InsufficientCapacity))
    {
        // An object that cannot be decoded may be the node that fits, and only Node objects have taints and labels.
        // That none has so much space is true of all.
        return unseen(facts);
    } else {
        nowhere(facts, &nodes, storage_class, class, pod)
    };
    told.why += &chosen_pools(facts, class, &nodes);
    told.nodes = nodes;
    told
}

/// By which rule a class that names no pool gets one, where that is a choice.
fn chosen_pools(facts: &ClaimFacts, class: &Class, nodes: &[NodeSays]) -> String {
    let statuses = facts.storages.iter().filter_map(|node| node.status.as_ref());
    let configured =
        |status: &NodeStorageStatus| status.pools.iter().filter(|pool| pool.configured).count();
    if class.pool.is_some() || !statuses.into_iter().any(|status| configured(status) > 1) {
        return String::new();
    }
    let mut chosen: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        if let Some(pool) = &node.pool {
            chosen.entry(pool).or_default().push(&node.node);
        }
    }
    let chosen: Vec<String> =
        chosen.into_iter().map(|(pool, nodes)| format!("{pool} on {}", few(nodes))).collect();
    format!(" Its class names no pool, so each node takes {DEFAULT_POOL}: {}.", chosen.join(", "))
}

fn fits(facts: &ClaimFacts, nodes: &[NodeSays], pod: Option<&Pod>) -> Explanation {
    if let Some(words) = facts.event_message("ProvisioningFailed") {
        return failed(facts, selected_node(facts), &words);
    }
    if let Some(node) = selected_node(facts) {
        let why = format!("is Pending: its volume is about to be created on node {node}.");
        let todo = facts.log_of("provisioner");
        return facts.explain(ClaimState::Provisioning, why, vec![todo]);
    }
    let fitting =
        few(nodes.iter().filter(|node| node.verdict == NodeVerdict::Fits).map(|n| &n.node));
    let Some(pod) = pod else {
        let why = format!("is Pending: its volume is about to be created on {fitting}.");
        return facts.explain(ClaimState::Provisioning, why, Vec::new());
    };
    let said = unschedulable(pod).map(|words| format!(" The scheduler reports: {words}."));
    let why = format!(
        "is Pending: enough free space is on {fitting}, and its pod {} is not scheduled yet.{}",
        pod_name(pod),
        said.unwrap_or_default()
    );
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod_name(pod));
    let command =
        format!("kubectl describe pod {name} --namespace {}", namespace.unwrap_or_default());
    let todo = Remediation::command("see what else its pod waits for", command);
    facts.explain(ClaimState::WaitForPodScheduled, why, vec![todo])
}

/// The scheduler's words.
pub(super) fn unschedulable(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let told = conditions.into_iter().find(|one| one.type_ == "PodScheduled");
    Some(told.filter(|one| one.status == "False")?.message.as_deref()?.trim_end_matches('.'))
}

/// Explains that no node fits, by what the nearest nodes lack.
fn nowhere(
    facts: &ClaimFacts,
    nodes: &[NodeSays],
    storage_class: &StorageClass,
    parsed: &Class,
    pod: Option<&Pod>,
) -> Explanation {
    let class = storage_class.metadata.name.as_deref().unwrap_or_default();
    let pods = pod.filter(|_| facts.sees(NODES));
    let pods =
        pods.map(|pod| format!(" that may run its pod {}", pod_name(pod))).unwrap_or_default();
    let with = |verdict| nodes.iter().filter(move |node| node.verdict == verdict);
    let any = |verdict| with(verdict).next().is_some();
    let size = facts.wish().unwrap_or_default();
    let (state, why) = if any(NodeVerdict::InsufficientCapacity) {
        let why = format!(
            "it requests {size} of class {class}, and no node{pods} has that much in one pool"
        );
        (ClaimState::InsufficientCapacity, why)
    } else if any(NodeVerdict::PoolUnavailable) {
        (
            ClaimState::PoolUnavailable,
            format!("the pool of class {class} cannot be used on any node{pods}"),
        )
    } else if any(NodeVerdict::PoolNotFound) {
        (ClaimState::PoolNotFound, format!("no node{pods} has the pool of class {class}"))
    } else if any(NodeVerdict::NodePluginUnavailable) {
        (ClaimState::NodePluginUnavailable, format!("the driver is ready on no node{pods}"))
    } else if nodes.is_empty() {
        (ClaimState::NodePluginUnavailable, "no node has reported its pools".to_owned())
    } else {
        let who = pod.map_or("have it".to_owned(), |pod| format!("run its pod {}", pod_name(pod)));
        (ClaimState::PodUnschedulable, format!("no node may {who}"))
    };
    facts.explain(state, format!("is Pending: {why}."), ways_out(facts, nodes, parsed, state))
}

fn ways_out(
    facts: &ClaimFacts,
    nodes: &[NodeSays],
    class: &Class,
    state: ClaimState,
) -> Vec<Remediation> {
    let mut ways = Vec::new();
    let short = nodes.iter().filter(|node| node.verdict == NodeVerdict::InsufficientCapacity);
    let most = short.clone().filter_map(|node| node.largest).max();
    if let Some(most) = most.filter(|most| *most > Quantity::default()) {
        let again = if let Some(kept) = managed(facts) {
            let (keeper, namespace) = (kept.by.name_any(), kept.by.namespace().unwrap_or_default());
            let edit = format!("kubectl edit pvcautoscaler {keeper} --namespace {namespace}");
            if kept.by.spec.volume_claim_template.spec.resources.requests.storage <= most {
                "delete the claim, which is created again as its template is now".to_owned()
            } else {
                let what = format!("request {most} or less in the template");
                ways.push(Remediation::command(what, edit));
                "then delete the claim: it has no volume yet, and is created again".to_owned()
            }
        } else {
            format!("request {most} or less: create the claim again, it has no volume yet")
        };
        ways.push(Remediation::command(again, format!("kubectl delete pvc {}", facts.place())));
    }
    let pools = |node: &NodeSays| Some((node.pool.clone()?, node.node.clone()));
    if let Some((pool, node)) = short.clone().max_by_key(|node| node.largest).and_then(pools) {
        let what = format!("add a disk to pool {pool} of {node}");
        ways.push(Remediation::command(what, format!("kubectl edit storagepool {pool}")));
    }
    let size = facts.wish().map(Quantity);
    let excluded: Vec<&NodeSays> =
        nodes.iter().filter(|node| node.verdict == NodeVerdict::Excluded).collect();
    let roomy: Vec<&NodeSays> =
        excluded.iter().filter(|node| node.largest >= size).copied().collect();
    if !roomy.is_empty() {
        ways.extend(lifted(facts, &roomy));
    } else if state == ClaimState::PodUnschedulable {
        ways.extend(lifted(facts, &excluded));
    }
    ways.extend(look_further(facts, nodes, class, state));
    ways
}

/// Actions that make excluded nodes fit: one for all nodes with the same obstacles.
fn lifted(facts: &ClaimFacts, excluded: &[&NodeSays]) -> Vec<Remediation> {
    let mut alike: BTreeMap<Vec<Bar>, Vec<&str>> = BTreeMap::new();
    for node in excluded {
        let mut bars = node.bars.clone();
        bars.sort();
        bars.dedup();
        alike.entry(bars).or_default().push(&node.node);
    }
    alike.into_iter().map(|(bars, nodes)| way_to(facts, &bars, &nodes)).collect()
}

fn way_to(facts: &ClaimFacts, bars: &[Bar], nodes: &[&str]) -> Remediation {
    let on = few(nodes);
    if bars == [Bar::Cordon] {
        let command = format!("kubectl uncordon {}", nodes.join(" "));
        return Remediation::command(format!("let pods run on {on} again"), command);
    }
    let way = |bar: &Bar| match bar {
        Bar::Cordon => format!("uncordon {on}"),
        Bar::Node => format!("bring {on} back"),
        Bar::Pod => {
            format!("let its pod run on {on}: see its nodeSelector, affinity and tolerations")
        }
        Bar::Companion(claim) => {
            format!("let its pod use another claim than {claim}, which is not on {on}")
        }
        Bar::Class => {
            let others = facts.classes.iter().filter(|class| {
                class.provisioner == DRIVER
                    && nodes.iter().all(|node| topology::allows(class, node))
            });
            let names: Vec<&str> = others.filter_map(|one| one.metadata.name.as_deref()).collect();
            let such = match names.as_slice() {
                [] => String::new(),
                names => format!(", such as {}", few(names)),
            };
            format!("create the claim again with a class that allows {TOPOLOGY}={on}{such}")
        }
    };
    let ways: Vec<String> = bars.iter().map(way).collect();
    Remediation::hint(ways.join("; and "))
}

/// Action that makes a pool usable.
fn use_pool(facts: &ClaimFacts, nodes: &[NodeSays]) -> Remediation {
    let only_plans = |node: &NodeSays| {
        let pool = node.pool.as_ref()?;
        let status = facts.storage(&node.node)?.status.as_ref()?;
        let is_it = |one: &&PoolOnNode| one.name == *pool && one.only_plans();
        status.pools.iter().find(is_it).map(|_| pool.clone())
    };
    match nodes.iter().find_map(only_plans) {
        Some(pool) => Remediation::command(
            format!("let StoragePool {pool} create what it plans: createVolumeGroups: true"),
            format!("kubectl edit storagepool {pool}"),
        ),
        None => Remediation::command("see all pools", format!("{} status", facts.program)),
    }
}

/// Action that adds the pool of a class to a node.
fn get_pool(facts: &ClaimFacts, nodes: &[NodeSays], class: &Class) -> Remediation {
    let lacking = nodes.iter().filter(|node| node.verdict == NodeVerdict::PoolNotFound);
    let lacking: Vec<&str> = lacking.map(|node| node.node.as_str()).collect();
    let on = few(&lacking);
    let name = |pool: &StoragePool| pool.metadata.name.clone().unwrap_or_default();
    let Some(wanted) = class.pool.as_ref().filter(|_| facts.sees(POOLS)) else {
        let what =
            format!("create a StoragePool for {on}, or see the nodeSelector of those that exist");
        return Remediation::command(what, "kubectl get storagepools --output yaml");
    };
    let Some(pool) = facts.pools.iter().find(|pool| name(pool) == wanted.as_str()) else {
        let there = facts.pools.iter().map(name);
        let or = if facts.pools.is_empty() {
            String::new()
        } else {
            format!(", or create the claim again with a class of {}", few(there))
        };
        let what = format!("StoragePool {wanted} does not exist: create it{or}");
        return Remediation::command(what, "kubectl explain storagepool.spec");
    };
    let selector = &pool.spec.node_selector;
    let has_labels = |node: &&str| {
        let is_it = |one: &&Node| one.metadata.name.as_deref() == Some(*node);
        let labels = facts.nodes.iter().find(is_it).and_then(|node| node.metadata.labels.as_ref());
        selector.iter().all(|(key, value)| labels.is_some_and(|all| all.get(key) == Some(value)))
    };
    if selector.is_empty() || lacking.iter().all(has_labels) {
        let what = format!("StoragePool {wanted} is for {on}: see its status");
        return Remediation::command(
            what,
            format!("kubectl get storagepool {wanted} --output yaml"),
        );
    }
    let unlabelled: Vec<&str> = lacking.into_iter().filter(|node| !has_labels(node)).collect();
    let labels: Vec<String> =
        selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let on = few(&unlabelled);
    let what = format!("extend StoragePool {wanted} to {on}, by the labels that it selects");
    let command =
        format!("kubectl label node {} {} --overwrite", unlabelled.join(" "), labels.join(" "));
    Remediation::command(what, command)
}

/// Where to look where no number helps.
fn look_further(
    facts: &ClaimFacts,
    nodes: &[NodeSays],
    class: &Class,
    state: ClaimState,
) -> Option<Remediation> {
    let program = &facts.program;
    match state {
        ClaimState::PoolNotFound => Some(get_pool(facts, nodes, class)),
        ClaimState::PoolUnavailable => Some(use_pool(facts, nodes)),
        ClaimState::NodePluginUnavailable => {
            Some(Remediation::command("look at the driver", format!("{program} doctor --cluster")))
        }
        _ => None,
    }
}
