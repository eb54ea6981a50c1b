//! The nodes on which a volume can be used.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, PersistentVolume};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::cluster::list;

/// Looks up the nodes on which a volume can be used; `None` if it can be on every node, or if its
/// terms are of a kind that no driver of local volumes writes.
///
/// # Errors
/// An error of the API server.
pub async fn nodes_of(
    client: &Client,
    pv: &PersistentVolume,
) -> Result<Option<BTreeSet<String>>, kube::Error> {
    let nodes = nodes_with(client, pv).await?;
    Ok(nodes.map(|nodes| nodes.iter().map(ResourceExt::name_any).collect()))
}

/// Looks up the same nodes as [`nodes_of`], as objects.
///
/// # Errors
/// An error of the API server.
pub async fn nodes_with(
    client: &Client,
    pv: &PersistentVolume,
) -> Result<Option<Vec<Node>>, kube::Error> {
    let Some(labels) = labels_of(pv) else { return Ok(None) };
    let api: Api<Node> = Api::all(client.clone());
    let mut nodes = Vec::new();
    for label in labels {
        nodes.extend(list(&api, &ListParams::default().labels(&label)).await?.items);
    }
    Ok(Some(nodes))
}

/// Returns labels, `key=value`, one of which a node needs.
fn labels_of(pv: &PersistentVolume) -> Option<Vec<String>> {
    let required = pv.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let terms = required.node_selector_terms.iter().map(labels_of_term);
    Some(terms.collect::<Option<Vec<_>>>()?.concat())
}

fn labels_of_term(term: &NodeSelectorTerm) -> Option<Vec<String>> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let [only] = expressions else { return None };
    let is_list = only.operator == "In" && term.match_fields.iter().flatten().next().is_none();
    let values = only.values.iter().flatten();
    is_list.then(|| values.map(|value| format!("{}={value}", only.key)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_local_volume_names_the_labels_of_its_nodes() {
        let labels = |terms: Value| {
            let affinity = json!({"required": {"nodeSelectorTerms": terms}});
            let pv: PersistentVolume =
                serde_json::from_value(json!({"metadata": {}, "spec": {"nodeAffinity": affinity}}))
                    .unwrap();
            labels_of(&pv)
        };
        let is_in = |values: Value| json!({"key": "host", "operator": "In", "values": values});
        let both = labels(json!([{"matchExpressions": [is_in(json!(["a", "b"]))]}]));
        assert_eq!(both.unwrap(), ["host=a", "host=b"]);
        let two = json!([{"matchExpressions": [is_in(json!(["a"])), is_in(json!(["b"]))]}]);
        assert_eq!(labels(two), None, "both are needed, which one label cannot say");
        let other = json!([{"matchExpressions": [{"key": "host", "operator": "Exists"}]}]);
        assert_eq!(labels(other), None);
        let pv: PersistentVolume =
            serde_json::from_value(json!({"metadata": {}, "spec": {}})).unwrap();
        assert_eq!(labels_of(&pv), None);
    }
}
