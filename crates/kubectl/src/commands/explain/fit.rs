//! Decides whether a pod may run on a node, by labels, required affinity and taints. Pure.

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PodSpec,
    Taint, Toleration,
};

use crate::volume::few;

/// Reason why a node rejects a claim or its pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Objection {
    pub bar: Bar,
    /// For people.
    pub words: String,
}

/// Part that has to change before a node accepts it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bar {
    /// The node is cordoned.
    Cordon,
    /// The node itself: it is not ready, or does not exist.
    Node,
    /// The pod: its node selector, its affinity or its tolerations.
    Pod,
    /// This other claim of the pod.
    Companion(String),
    /// The class.
    Class,
}

impl Bar {
    pub fn says(self, words: impl Into<String>) -> Objection {
        Objection { bar: self, words: words.into() }
    }
}

/// Reasons why a pod may not run on a node; empty if none is known.
pub(super) fn objections(pod: &PodSpec, node: &Node) -> Vec<Objection> {
    let of_pod = labels(pod, node).into_iter().chain(affinity(pod, node));
    let mut found: Vec<Objection> = of_pod.map(|words| Bar::Pod.says(words)).collect();
    found.extend(taints(pod, node));
    found
}

/// In one sentence.
pub(super) fn in_one(objections: &[Objection]) -> String {
    let words: Vec<&str> = objections.iter().map(|one| one.words.as_str()).collect();
    words.join("; ")
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn labels(pod: &PodSpec, node: &Node) -> Vec<String> {
    let wanted = pod.node_selector.iter().flatten();
    let missing = wanted.filter(|(key, value)| label(node, key) != Some(value));
    missing.map(|(key, value)| format!("its pod requires the node label {key}={value}")).collect()
}

fn affinity(pod: &PodSpec, node: &Node) -> Option<String> {
    let affinity = pod.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let wanted = unmet(required, node)?;
    Some(format!("the node affinity of its pod requires {wanted}"))
}

/// Reason why another volume of the pod excludes a node: pods run where all of their volumes are.
pub(super) fn companion(volume: &PersistentVolume, node: &Node) -> Option<Objection> {
    let spec = volume.spec.as_ref()?;
    let wanted = unmet(spec.node_affinity.as_ref()?.required.as_ref()?, node)?;
    let claim = spec.claim_ref.as_ref().and_then(|claim| claim.name.as_deref());
    let claim = claim.unwrap_or_default();
    let words = format!("its pod also uses claim {claim}, which requires {wanted}");
    Some(Bar::Companion(claim.to_owned()).says(words))
}

/// Requirements that a node does not meet; `None` if it meets them.
fn unmet(required: &NodeSelector, node: &Node) -> Option<String> {
    let terms = &required.node_selector_terms;
    // One of the terms must hold, and an empty one never does.
    let holds = |term: &NodeSelectorTerm| {
        let mut all = requirements(term, node).peekable();
        all.peek().is_some() && all.all(|(value, one)| satisfies(value, one))
    };
    if terms.iter().any(holds) {
        return None;
    }
    let words = |term| few(requirements(term, node).map(|(_, one)| in_words(one)));
    let wanted: Vec<String> = terms.iter().map(words).collect();
    Some(wanted.join(", or "))
}

/// The requirements of a term, each with what the node has there.
fn requirements<'a>(
    term: &'a NodeSelectorTerm,
    node: &'a Node,
) -> impl Iterator<Item = (Option<&'a str>, &'a NodeSelectorRequirement)> {
    let labels = term.match_expressions.iter().flatten().map(|one| (label(node, &one.key), one));
    // The name is the only field that Kubernetes knows here.
    let name = node.metadata.name.as_deref();
    labels.chain(term.match_fields.iter().flatten().map(move |one| (name, one)))
}

fn satisfies(value: Option<&str>, requirement: &NodeSelectorRequirement) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_in = || value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let limit = || values.first().and_then(|text| number(text));
    match requirement.operator.as_str() {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number).zip(limit()).is_some_and(|(has, limit)| has > limit),
        "Lt" => value.and_then(number).zip(limit()).is_some_and(|(has, limit)| has < limit),
        _ => true, // One that only a newer Kubernetes knows is no ground to exclude a node.
    }
}

fn in_words(requirement: &NodeSelectorRequirement) -> String {
    let NodeSelectorRequirement { key, operator, values } = requirement;
    let values = values.as_deref().unwrap_or_default();
    match (operator.as_str(), values) {
        ("In", [one]) => format!("{key}={one}"),
        ("NotIn", [one]) => format!("{key}≠{one}"),
        ("Exists", _) => key.clone(),
        ("DoesNotExist", _) => format!("no {key}"),
        ("Gt", [one]) => format!("{key}>{one}"),
        ("Lt", [one]) => format!("{key}<{one}"),
        (operator, values) => format!("{key} {operator} ({})", values.join(", ")),
    }
}

fn taints(pod: &PodSpec, node: &Node) -> Vec<Objection> {
    let spec = node.spec.as_ref();
    let tolerations = pod.tolerations.as_deref().unwrap_or_default();
    let hinders = |taint: &&Taint| {
        let keeps_away = matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        keeps_away && !tolerations.iter().any(|one| tolerates(one, taint))
    };
    let taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut told: Vec<Objection> = taints.into_iter().filter(hinders).map(of_taint).collect();
    told.dedup(); // The kubelet's taints come with two effects.
    told
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let same = |wanted: &Option<String>, has: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == has)
    };
    let value = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default()
                == taint.value.as_deref().unwrap_or_default()
        }
        _ => true, // "Exists"; of one that is not known here the scheduler knows more.
    };
    same(&toleration.effect, &taint.effect) && same(&toleration.key, &taint.key) && value
}

fn of_taint(taint: &Taint) -> Objection {
    match taint.key.as_str() {
        "node.kubernetes.io/unschedulable" => Bar::Cordon.says("the node is cordoned"),
        "node.kubernetes.io/not-ready" => Bar::Node.says("the node is not ready"),
        "node.kubernetes.io/unreachable" => Bar::Node.says("the node cannot be reached"),
        key => {
            let value = taint.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
            let effect = &taint.effect;
            Bar::Pod.says(format!("its pod does not tolerate the taint {key}{value}:{effect}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(pod: Value, node: Value) -> Vec<String> {
        let pod = serde_json::from_value(pod).unwrap();
        let told = objections(&pod, &serde_json::from_value(node).unwrap());
        told.into_iter().map(|one| one.words).collect()
    }

    fn affine(terms: &Value) -> Value {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required
        }}})
    }

    fn node() -> Value {
        json!({"metadata": {"name": "alpha", "labels": {"zone": "a", "cpus": "8"}}})
    }

    #[test]
    fn a_selector_names_the_labels_that_a_node_lacks() {
        let pod = json!({"containers": [], "nodeSelector": {"zone": "b", "cpus": "8"}});
        assert_eq!(told(pod, node()), ["its pod requires the node label zone=b"]);
    }

    #[test]
    fn one_of_the_terms_of_an_affinity_must_hold() {
        let one = |key: &str, operator: &str, values: &[&str]| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
        for (terms, objection) in [
            (one("zone", "In", &["a", "b"]), None),
            (one("zone", "In", &["b"]), Some("zone=b")),
            (one("zone", "In", &["b", "c"]), Some("zone In (b, c)")),
            (one("zone", "NotIn", &["a"]), Some("zone≠a")),
            (one("disk", "NotIn", &["a"]), None),
            (one("disk", "Exists", &[]), Some("disk")),
            (one("zone", "DoesNotExist", &[]), Some("no zone")),
            (one("cpus", "Gt", &["8"]), Some("cpus>8")),
            (one("cpus", "Lt", &["9"]), None),
            (one("cpus", "Near", &["9"]), None),
            (json!([{}]), Some("")),
            (
                json!([{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["alpha"]}]}]),
                None,
            ),
            (
                json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
                    {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
                None,
            ),
        ] {
            let said: Vec<String> = objection
                .map(|one| format!("the node affinity of its pod requires {one}"))
                .into_iter()
                .collect();
            assert_eq!(told(affine(&terms), node()), said, "{terms}");
        }
    }

    #[test]
    fn taints_that_are_not_tolerated_are_told() {
        let tainted =
            |taints: Value| json!({"metadata": {"name": "a"}, "spec": {"taints": taints}});
        let taint = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
        let with = |tolerations: Value| json!({"containers": [], "tolerations": tolerations});
        let said = ["its pod does not tolerate the taint gpu=yes:NoSchedule"];
        for (tolerations, is_tolerated) in [
            (json!([]), false),
            (json!([{"operator": "Exists"}]), true),
            (json!([{"key": "gpu", "operator": "Exists"}]), true),
            (json!([{"key": "gpu", "value": "yes"}]), true),
            (json!([{"key": "gpu", "value": "no"}]), false),
            (json!([{"key": "gpu", "value": "yes", "effect": "NoExecute"}]), false),
            (json!([{"key": "cpu", "operator": "Exists"}]), false),
        ] {
            let said: &[&str] = if is_tolerated { &[] } else { &said };
            let told = told(with(tolerations.clone()), tainted(taint.clone()));
            assert_eq!(told, said, "{tolerations}");
        }
        let gone = json!([
            {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            {"key": "soft", "effect": "PreferNoSchedule"},
        ]);
        assert_eq!(told(with(json!([])), tainted(gone)), ["the node cannot be reached"]);
    }
}
