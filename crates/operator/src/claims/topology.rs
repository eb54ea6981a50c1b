//! Nodes for the volumes of a swap: whether a class creates volumes there, and whether a pod can run there. Pure.

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorLabelRequirement,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use crate::bytes::Bytes;
use crate::cluster::PodSummary;
use crate::volume::{DRIVER, TOPOLOGY};

/// Taint of an unschedulable node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A node on which the volume of a claim can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadableNode {
    pub node: String,
    /// True if the class of the template creates volumes there.
    pub is_allowed: bool,
    pub is_ready: bool,
    /// True if pods without tolerations are scheduled there.
    pub takes_pods: bool,
}

impl ReadableNode {
    /// Reads the properties of a node for a swap to a class.
    pub fn of(node: &Node, class: Option<&StorageClass>) -> ReadableNode {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut ready = conditions.filter(|one| one.type_ == "Ready");
        let is_closed = node.spec.as_ref().and_then(|spec| spec.unschedulable);
        ReadableNode {
            node: node.name_any(),
            is_allowed: class.is_none_or(|class| allows(class, node)),
            is_ready: ready.all(|one| one.status == "True"),
            takes_pods: is_closed != Some(true),
        }
    }
}

/// Returns true if the `allowedTopologies` of a class allow a node.
fn allows(class: &StorageClass, node: &Node) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let is_ours = class.provisioner == DRIVER;
    let holds = |one: &TopologySelectorLabelRequirement| {
        let is_named = |name: &String| one.values.contains(name);
        if is_ours {
            // It reports no other topology.
            return one.key == TOPOLOGY && is_named(&node.name_any());
        }
        node.labels().get(&one.key).is_some_and(is_named)
    };
    let mut expressions = terms.iter().map(|term| term.match_label_expressions.iter().flatten());
    terms.is_empty() || expressions.any(|mut all| all.all(holds))
}

/// A node on which the new volume can be, if it cannot be on that of the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AlternativeNode {
    pub node: String,
    /// The largest volume that could be made there.
    pub largest: Bytes,
}

/// Returns true if the pod may run on a node on which the class creates volumes: by its nodeSelector and
/// its required node affinity, and if the node is schedulable.
pub(super) fn is_fit(node: &Node, class: Option<&StorageClass>, pod: Option<&PodSummary>) -> bool {
    let place = ReadableNode::of(node, class);
    let is_open = place.takes_pods || pod.is_some_and(tolerates);
    place.is_allowed && place.is_ready && is_open && pod.is_none_or(|pod| may_run_on(pod, node))
}

/// Returns true if a pod can be scheduled to a node.
fn may_run_on(pod: &PodSummary, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let mut selected = spec.node_selector.iter().flatten();
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    selected.all(|(key, value)| node.labels().get(key) == Some(value))
        && required.is_none_or(|required| {
            required.node_selector_terms.iter().any(|term| holds(term, node))
        })
}

/// Returns true if a node matches a term; the only supported field is its name.
fn holds(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = node.name_any();
    let labels = term.match_expressions.iter().flatten();
    let labels = labels.map(|one| meets(one, node.labels().get(&one.key)));
    let fields = term.match_fields.iter().flatten().map(|one| meets(one, Some(&name)));
    let mut all = labels.chain(fields).peekable();
    all.peek().is_some() && all.all(|is_met| is_met)
}

/// Returns true if a node meets a requirement. Numeric operators are not supported and count as not
/// met.
fn meets(wanted: &NodeSelectorRequirement, has: Option<&String>) -> bool {
    let is_named = has.is_some_and(|has| wanted.values.iter().flatten().any(|one| one == has));
    match wanted.operator.as_str() {
        "In" => is_named,
        "NotIn" => !is_named,
        "Exists" => has.is_some(),
        "DoesNotExist" => has.is_none(),
        _ => false,
    }
}

/// Returns true if a pod tolerates unschedulable nodes.
pub(super) fn tolerates(pod: &PodSummary) -> bool {
    let all = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    all.into_iter().any(|one| {
        let is_of_all = one.key.is_none() && one.operator.as_deref() == Some("Exists");
        let is_of_effect = one.effect.as_deref().is_none_or(|effect| effect == "NoSchedule");
        (is_of_all || one.key.as_deref() == Some(UNSCHEDULABLE)) && is_of_effect
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(spec: &Value, ready: &str) -> Node {
        let labels = json!({"topology.kubernetes.io/zone": "eu-1", "disk": "fast"});
        let conditions = json!([{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]);
        let metadata = json!({"name": "alpha", "labels": labels});
        let node =
            json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_class_allows_the_nodes_of_which_one_of_its_terms_holds() {
        let class = |provisioner: &str, terms: &Value| -> StorageClass {
            let class = json!({"metadata": {"name": "fast"}, "provisioner": provisioner,
                               "allowedTopologies": terms});
            serde_json::from_value(class).unwrap()
        };
        let one = |key: &str, values: &[&str]| json!({"key": key, "values": values});
        let zone = |values: &[&str]| one("topology.kubernetes.io/zone", values);
        let (others, term) =
            ("other.example.com", |all: &[Value]| json!({"matchLabelExpressions": all}));
        for (provisioner, terms, allows_it) in [
            (others, json!(null), true),
            (others, json!([]), true),
            (others, json!([term(&[zone(&["eu-2", "eu-1"])])]), true),
            (others, json!([term(&[zone(&["eu-2"])])]), false),
            (others, json!([term(&[zone(&["eu-2"])]), term(&[zone(&["eu-1"])])]), true),
            (others, json!([term(&[zone(&["eu-1"]), one("disk", &["slow"])])]), false),
            (others, json!([term(&[one("rack", &["7"])])]), false),
            (DRIVER, json!([term(&[one(TOPOLOGY, &["beta", "alpha"])])]), true),
            (DRIVER, json!([term(&[one(TOPOLOGY, &["beta"])])]), false),
            (DRIVER, json!([term(&[zone(&["eu-1"])])]), false), // It has no zones.
        ] {
            let class = class(provisioner, &terms);
            assert_eq!(allows(&class, &node(&json!({}), "True")), allows_it, "{terms}");
        }
    }

    #[test]
    fn a_pod_runs_where_it_lets_itself_be_scheduled() {
        let runs = |spec: Value| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let pod = json!({"metadata": {}, "spec": spec});
            may_run_on(&serde_json::from_value(pod).unwrap(), &node(&json!({}), "True"))
        };
        let requires = |terms: Value| {
            let required = json!({"nodeSelectorTerms": terms});
            runs(json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required}}}))
        };
        let one = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        let labels = |all: &[Value]| json!([{ "matchExpressions": all }]);
        assert!(runs(json!({})) && runs(json!({"nodeSelector": {"disk": "fast"}})));
        assert!(!runs(json!({"nodeSelector": {"disk": "fast", "rack": "7"}})));
        assert!(requires(labels(&[one("disk", "In", json!(["fast", "slow"]))])));
        assert!(!requires(labels(&[one("disk", "NotIn", json!(["fast"]))])));
        assert!(requires(labels(&[one("rack", "DoesNotExist", json!(null))])));
        assert!(!requires(labels(&[
            one("disk", "Exists", json!(null)),
            one("rack", "Exists", json!(null))
        ])));
        assert!(!requires(labels(&[one("disk", "Gt", json!(["1"]))])), "numbers are not compared");
        let named =
            |name: &str| json!([{"matchFields": [one("metadata.name", "In", json!([name]))]}]);
        assert!(requires(named("alpha")) && !requires(named("beta")));
        assert!(!requires(json!([{}])), "an empty term is of no node");
    }

    #[test]
    fn a_node_is_ready_and_takes_pods_unless_it_says_otherwise() {
        let of = |node: &Node| {
            let ReadableNode { is_ready, takes_pods, .. } = ReadableNode::of(node, None);
            (is_ready, takes_pods)
        };
        assert_eq!(of(&node(&json!({}), "True")), (true, true));
        assert_eq!(of(&node(&json!({}), "Unknown")), (false, true));
        assert_eq!(of(&node(&json!({"unschedulable": true}), "True")), (true, false));
        let untold = json!({"metadata": {"name": "alpha"}});
        assert_eq!(of(&serde_json::from_value(untold).unwrap()), (true, true));
    }

    #[test]
    fn a_pod_may_tolerate_that_a_node_takes_no_others() {
        let pod = |toleration: Value| -> PodSummary {
            let spec = json!({"containers": [], "tolerations": [toleration]});
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        assert!(tolerates(&pod(json!({"operator": "Exists"}))));
        assert!(tolerates(&pod(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"}))));
        assert!(!tolerates(&pod(json!({"operator": "Exists", "effect": "NoExecute"}))));
        assert!(!tolerates(&pod(json!({"key": "mine", "operator": "Exists"}))));
    }
}
