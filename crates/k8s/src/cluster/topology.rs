//! Nodes that the allowedTopologies of a class allow. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, TopologySelectorLabelRequirement, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::volume::TOPOLOGY;

/// Alternative terms; without any, every node is allowed.
fn terms(class: &StorageClass) -> &[TopologySelectorTerm] {
    class.allowed_topologies.as_deref().unwrap_or_default()
}

fn requirements(
    term: &TopologySelectorTerm,
) -> impl Iterator<Item = &TopologySelectorLabelRequirement> {
    term.match_label_expressions.iter().flatten()
}

fn names(requirement: &TopologySelectorLabelRequirement, value: &str) -> bool {
    requirement.values.iter().any(|one| one == value)
}

/// Returns true if a class allows volumes on a node. A volume of this driver has one key: a term with
/// another one never matches.
pub fn allows(class: &StorageClass, node: &str) -> bool {
    let holds = |term: &TopologySelectorTerm| {
        requirements(term).all(|one| one.key == TOPOLOGY && names(one, node))
    };
    terms(class).is_empty() || terms(class).iter().any(holds)
}

/// The keys for which no term of a class can ever hold; none if one can.
pub fn foreign_keys(class: &StorageClass) -> BTreeSet<&str> {
    let foreign =
        |term| requirements(term).map(|one| one.key.as_str()).filter(|key| *key != TOPOLOGY);
    if terms(class).iter().any(|term| foreign(term).next().is_none()) {
        return BTreeSet::new();
    }
    terms(class).iter().flat_map(foreign).collect()
}

/// The nodes that the terms of a class name, if it does not allow all.
pub fn named_nodes(class: &StorageClass) -> Option<BTreeSet<&str>> {
    let ours = terms(class).iter().flat_map(requirements).filter(|one| one.key == TOPOLOGY);
    let nodes = ours.flat_map(|one| &one.values).map(String::as_str).collect();
    (!terms(class).is_empty()).then_some(nodes)
}

/// Formats allowedTopologies for the nodes with the labels that a class names.
pub fn in_our_key(class: &StorageClass, nodes: &[Node]) -> String {
    let has = |node: &Node, one: &TopologySelectorLabelRequirement| {
        let metadata = &node.metadata;
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(&one.key));
        let value = if one.key == TOPOLOGY { metadata.name.as_ref() } else { label };
        value.is_some_and(|value| names(one, value))
    };
    let is_meant =
        |node: &&Node| terms(class).iter().any(|term| requirements(term).all(|one| has(node, one)));
    let meant = nodes.iter().filter(is_meant).filter_map(|node| node.metadata.name.as_deref());
    let meant: Vec<&str> = meant.collect();
    let values = if meant.is_empty() { "NODE".to_owned() } else { meant.join(", ") };
    format!(
        "allowedTopologies: [{{matchLabelExpressions: [{{key: {TOPOLOGY}, values: [{values}]}}]}}]"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class(terms: &Value) -> StorageClass {
        serde_json::from_value(
            json!({"metadata": {"name": "c"}, "provisioner": "lvm.csi.pliant.io",
                                      "allowedTopologies": terms}),
        )
        .unwrap()
    }

    fn term(pairs: &[(&str, &[&str])]) -> Value {
        let all: Vec<Value> =
            pairs.iter().map(|(key, values)| json!({"key": key, "values": values})).collect();
        json!({ "matchLabelExpressions": all })
    }

    #[test]
    fn only_the_key_of_the_driver_lets_a_volume_be_somewhere() {
        let hostname = term(&[("kubernetes.io/hostname", &["a"])]);
        let ours = term(&[(TOPOLOGY, &["a", "b"])]);
        let both = term(&[(TOPOLOGY, &["a"]), ("zone", &["z"])]);
        for (terms, allowed, foreign, named) in [
            (json!([]), [true, true], vec![], None),
            (json!([ours]), [true, false], vec![], Some(vec!["a", "b"])),
            (json!([hostname]), [false, false], vec!["kubernetes.io/hostname"], Some(vec![])),
            (json!([both]), [false, false], vec!["zone"], Some(vec!["a"])),
            (json!([hostname, ours]), [true, false], vec![], Some(vec!["a", "b"])),
        ] {
            let class = class(&terms);
            assert_eq!(["a", "c"].map(|node| allows(&class, node)), allowed, "{terms}");
            assert_eq!(foreign_keys(&class).into_iter().collect::<Vec<_>>(), foreign, "{terms}");
            assert_eq!(named_nodes(&class).map(|all| all.into_iter().collect()), named, "{terms}");
        }
    }

    #[test]
    fn what_is_written_instead_names_the_nodes_with_the_labels() {
        let node = |name: &str, zone: &str| {
            let labels = json!({"kubernetes.io/hostname": name, "zone": zone});
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        };
        let nodes: [Node; 3] = [node("a", "z"), node("b", "z"), node("c", "y")];
        let instead = |pairs: &[(&str, &[&str])]| in_our_key(&class(&json!([term(pairs)])), &nodes);
        let with = |values: &str| {
            format!(
                "allowedTopologies: [{{matchLabelExpressions: [{{key: {TOPOLOGY}, values: [{values}]}}]}}]"
            )
        };
        assert_eq!(instead(&[("zone", &["z"])]), with("a, b"));
        assert_eq!(instead(&[("kubernetes.io/hostname", &["c"]), ("zone", &["y"])]), with("c"));
        assert_eq!(instead(&[("zone", &["x"])]), with("NODE"));
    }
}
