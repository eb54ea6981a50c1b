use serde_json::{Value, json};

use super::*;
use crate::bytes::Bytes;

fn crd(kind: &str) -> Value {
    let all = definitions();
    let one = all.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(one).unwrap()
}

fn schema(kind: &str) -> Value {
    crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Every place of a schema that has properties, with its path.
fn places(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    found.push((path.to_owned(), schema.clone()));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        places(field, &format!("{path}.{name}"), found);
    }
    if schema["items"].is_object() {
        places(&schema["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn every_field_is_explained() {
    for kind in ["VolumeRequest", "NodeStorage", "Pool"] {
        let mut found = Vec::new();
        places(&schema(kind), kind, &mut found);
        assert!(found.len() > 8, "{kind}: {found:?}");
        for (path, field) in found {
            // What Kubernetes itself explains, and lists of which the list is explained.
            if path.contains("conditions[]") || path.ends_with("[]") {
                continue;
            }
            assert!(
                field["description"].is_string() || path.ends_with(kind),
                "{path} is not explained"
            );
        }
    }
}

#[test]
fn every_kind_is_cluster_wide_and_in_the_category() {
    for definition in definitions() {
        let name = &definition.spec.names.kind;
        assert_eq!(definition.spec.group, "pliant.io", "{name}");
        assert_eq!(definition.spec.scope, "Cluster", "{name}");
        assert_eq!(definition.spec.names.categories, Some(vec!["pliant".to_owned()]), "{name}");
        let version = &definition.spec.versions[0];
        assert!(version.additional_printer_columns.as_ref().is_some_and(|c| c.len() > 3), "{name}");
        assert!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()), "{name}");
    }
}

#[test]
fn requests_can_be_selected_by_their_node_and_phase() {
    let fields = crd("VolumeRequest")["spec"]["versions"][0]["selectableFields"].clone();
    assert_eq!(fields, json!([{"jsonPath": ".spec.node"}, {"jsonPath": ".status.phase"}]));
}

#[test]
fn work_is_one_of_its_kinds() {
    let grow = Work::Grow(Grow { at_least: Quantity(Bytes::gib(2)), at_most: None, block: None });
    assert_eq!(serde_json::to_value(grow).unwrap(), json!({"grow": {"atLeast": "2Gi"}}));
    assert_eq!(serde_json::to_value(Work::Remove(Remove {})).unwrap(), json!({"remove": {}}));
    let work = &schema("VolumeRequest")["properties"]["spec"]["properties"]["work"];
    let kinds: Vec<&String> = work["properties"].as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["create", "grow", "remove"]);
    assert_eq!(work["oneOf"].as_array().map(Vec::len), Some(3), "{work}");
}

#[test]
fn an_empty_status_is_that_of_work_not_begun() {
    let status: VolumeRequestStatus = serde_json::from_value(json!({})).unwrap();
    assert_eq!(status, VolumeRequestStatus::default());
    assert!(!status.phase.is_final());
}
