use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::bytes::Bytes;

mod from_schema;

/// Kinds of this project; VolumePopulator is of another one.
const KINDS: [&str; 6] = [
    "VolumeRequest",
    "NodeStorage",
    "StoragePool",
    "PvcSourcePopulator",
    "ArchivePopulator",
    "PvcAutoscaler",
];

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
    for kind in KINDS {
        let mut found = Vec::new();
        places(&schema(kind), kind, &mut found);
        assert!(found.len() > 8, "{kind}: {found:?}");
        for (path, field) in found {
            // What Kubernetes itself explains, and lists of which the list is explained.
            if path.contains("conditions[]") || path.ends_with("[]") {
                continue;
            }
            let text = field["description"].as_str();
            assert!(text.is_some() || path.ends_with(kind), "{path} is not explained");
            // `kubectl explain` keeps each line break, and breaks lines itself.
            let is_broken = text.is_some_and(|text| text.replace("\n\n", "").contains('\n'));
            assert!(!is_broken, "{path} breaks its lines in midst of a sentence: {text:?}");
        }
    }
}

/// What a node plugin tells is read by the controller of all nodes: one that lies must not fill its memory.
#[test]
fn what_a_node_plugin_tells_has_an_end() {
    for kind in KINDS {
        let mut found = Vec::new();
        places(&schema(kind)["properties"]["status"], kind, &mut found);
        for (path, field) in found {
            let says = |word: &str| !field[word].is_null();
            match field["type"].as_str() {
                Some("string") => {
                    let ends = says("maxLength") || says("enum") || says("format");
                    assert!(ends, "{path} has no end: {field}");
                }
                Some("array") => assert!(says("maxItems"), "{path} has no end: {field}"),
                _ => {}
            }
        }
    }
}

/// Whether nothing is longer than its schema says.
fn fits(value: &Value, schema: &Value, path: &str) {
    let most = |word: &str| schema[word].as_u64().unwrap_or(u64::MAX);
    match value {
        Value::String(text) => {
            assert!(text.chars().count() as u64 <= most("maxLength"), "{path} is too long");
        }
        Value::Array(items) => {
            assert!(items.len() as u64 <= most("maxItems"), "{path} has too many");
            for item in items {
                fits(item, &schema["items"], path);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                fits(field, &schema["properties"][name], &format!("{path}.{name}"));
            }
        }
        _ => {}
    }
}

#[test]
fn a_record_that_is_too_long_is_cut_and_says_so() {
    let long = "\u{e4}".repeat(5000);
    let size = Quantity(Bytes::gib(1));
    let ready = json!({"type": "Ready", "status": "True", "reason": "PoolIncomplete", "message": long,
                       "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let pool = json!({"name": "p", "configured": true, "capacity": size, "available": size,
                      "volumeCount": 0, "health": "Degraded", "conditions": [ready], "plannedActions": vec![&long; 70],
                      "rejectedDisks": vec![&long; 70]});
    let volume = json!({"volumeHandle": "v", "name": "n", "pool": "p", "size": size, "requestedSize": size,
                        "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready",
                        "healthStatuses": [{"status": "s", "reason": "r", "message": long}]});
    let group = json!({"name": "g", "pool": "p", "size": size, "free": size, "health": "Degraded",
                       "conditions": [ready]});
    let disk = json!({"device": "d", "state": "Used", "message": long});
    let work = json!({"volumeHandle": "v", "type": "Wipe", "progress": "p"});
    let status = json!({
        "pools": vec![pool; 257], "volumes": vec![volume; 4097], "volumeGroups": vec![group; 257],
        "disks": vec![disk; 1025], "operations": vec![work; 4097],
    });
    let status: NodeStorageStatus = serde_json::from_value(status).unwrap();
    let (told, said) = status.bounded(None);
    let (said, listed) = (said.unwrap(), told.volumes.len());
    let words = format!("of 4097 volumes {} are not listed: ", 4097 - listed);
    assert!(said.starts_with(&words) && listed > 500, "{said}");
    let status = &schema("NodeStorage")["properties"]["status"];
    fits(&serde_json::to_value(&told).unwrap(), status, "status");
    let short =
        NodeStorageStatus { kernel_version: Some(long.clone()), ..NodeStorageStatus::default() };
    let (short, said) = short.bounded(Some(long));
    assert_eq!(short.kernel_version.as_ref().unwrap().chars().count(), 64);
    assert_eq!(said.unwrap().chars().count(), 1024);
}

/// Etcd takes no object of more than 1.5 MiB.
#[test]
fn a_record_with_ten_thousand_volumes_is_taken_and_says_how_many_it_does_not_list() {
    let size = Quantity(Bytes::gib(1));
    let of = |at: usize| {
        let mut volume = json!({
            "volumeHandle": format!("aaaaaaaa-{at:012}{at:014}"), "name": format!("pvc-{at:032}"), "pool": "fast",
            "size": size, "requestedSize": size, "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready",
        });
        if at > 9_900 {
            volume["fence"] = json!({"state": "Incomplete", "generation": at});
        }
        if at.is_multiple_of(100) {
            let ailment =
                json!({"status": "Degraded", "reason": "r", "message": "\u{e4}".repeat(1024)});
            volume["healthStatuses"] = json!(vec![ailment; 16]);
        }
        volume
    };
    let usage = json!({"volumeHandle": "aaaaaaaa-b", "observedTime": "2026-01-01T00:00:00Z", "capacity": size,
                       "used": size, "available": size});
    let status: NodeStorageStatus = serde_json::from_value(json!({
        "volumeCount": 10_000, "volumes": (0..10_000).map(of).collect::<Vec<_>>(),
        "usage": vec![usage; 1024],
    }))
    .unwrap();
    let (told, unread) = status.bounded(Some("a disk does not answer".to_owned()));
    let bytes = serde_json::to_vec(&told).unwrap().len();
    assert!(bytes <= 1152 << 10, "{bytes} B");
    let listed = told.volumes.len();
    assert!((1900..10_000).contains(&listed), "{listed} are listed");
    assert_eq!(told.left_out(), 10_000 - listed);
    let words = format!("of 10000 volumes {} are not listed: ", 10_000 - listed);
    let unread = unread.unwrap();
    assert!(unread.starts_with(&words) && unread.ends_with("a disk does not answer"), "{unread}");
    let is_named = |at: usize| told.names_unlisted(&format!("{at:012}{at:014}"));
    assert!(!told.leaves_unnamed(), "each that is not listed is named");
    let is_listed = |at: usize| {
        told.volumes.iter().any(|one| one.volume_handle.ends_with(&format!("{at:014}")))
    };
    assert!([0, 50, 4321, 9_899, 9_950].iter().all(|at| is_listed(*at) != is_named(*at)));
    let fenced = told.volumes.iter().filter(|one| one.fence.is_some()).count();
    let ailing = told.volumes.iter().filter(|one| !one.health_statuses.is_empty()).count();
    assert_eq!((fenced, ailing), (99, 100), "what matters is listed");
    assert!(
        told.volumes.is_sorted_by(|one, next| one.volume_handle < next.volume_handle),
        "in the order of the ids"
    );
}

/// So that a list of what ails can be complete although healthy volumes are left out.
#[test]
fn no_healthy_volume_is_listed_while_one_that_ails_is_left_out() {
    let of = |at: usize| {
        let ailment = json!({"status": "Degraded", "reason": "r", "message": "m".repeat(128)});
        let ailments = if at.is_multiple_of(100) { Vec::new() } else { vec![ailment; 4] };
        json!({"volumeHandle": format!("aaaaaaaa-{at:026}"), "name": "n", "pool": "p", "size": "1Gi", "requestedSize": "1Gi",
               "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready", "healthStatuses": ailments})
    };
    let bounded = |count: usize| {
        let volumes: Vec<Value> = (0..count).map(of).collect();
        let status = json!({"volumeCount": count, "volumes": volumes});
        let status: NodeStorageStatus = serde_json::from_value(status).unwrap();
        let (told, _) = status.bounded(None);
        let healthy = told.volumes.iter().filter(|one| one.health_statuses.is_empty()).count();
        (told.left_out() > 0, healthy > 0, told.lists_all_that_ail())
    };
    assert_eq!(bounded(400), (false, true, true));
    assert_eq!(bounded(4000), (true, false, false));
}

/// What every text of a status is that has no fixed form: as long as a name may be where it is one, and else longer
/// than anything. Lists have as many as they may have, of which the first is longest.
fn longest(schema: &Value) -> Value {
    if let Some(fields) = schema["properties"].as_object() {
        let fields = fields.iter().filter(|(name, _)| *name != "conditions");
        return fields.map(|(name, field)| (name.clone(), longest(field))).collect();
    }
    match schema["type"].as_str() {
        Some("array") => {
            let most = schema["maxItems"].as_u64().unwrap_or(1);
            let others = (1..most).map(|_| shortest(&schema["items"]));
            std::iter::once(longest(&schema["items"])).chain(others).collect()
        }
        Some("string") => {
            let is_name = schema["maxLength"].as_u64().is_some_and(|most| most < 256);
            let length = schema["maxLength"].as_u64().filter(|_| is_name).unwrap_or(5000);
            match (&schema["enum"], &schema["format"], &schema["pattern"]) {
                (Value::Array(words), ..) => words.last().cloned().unwrap_or_default(),
                (_, Value::String(_), _) => json!("2026-11-26T00:00:00Z"),
                (.., Value::String(_)) => json!("1"),
                _ => json!("\u{e4}".repeat(usize::try_from(length).unwrap())),
            }
        }
        Some("boolean") => json!(true),
        _ => json!(1),
    }
}

/// The least that a place may have.
fn shortest(schema: &Value) -> Value {
    let is_required =
        |name: &String| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
    match (&schema["properties"], schema["type"].as_str(), &schema["enum"]) {
        (Value::Object(fields), ..) => {
            let required = fields.iter().filter(|(name, _)| is_required(name));
            required.map(|(name, field)| (name.clone(), shortest(field))).collect()
        }
        (_, Some("array"), _) => json!([]),
        (.., Value::Array(words)) => words.first().cloned().unwrap_or_default(),
        _ if schema["format"].is_string() => longest(schema),
        _ if schema["pattern"].is_string() => json!("1"),
        (_, Some("string"), _) => json!("a"),
        _ => longest(schema),
    }
}

/// The longest status of a kind, bounded as the code bounds it before it is written.
fn bounded_status<T>(kind: &str, bound: impl FnOnce(T) -> T)
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let schema = &schema(kind)["properties"]["status"];
    let status: T = serde_json::from_value(longest(schema)).unwrap();
    let bounded = serde_json::to_value(bound(status)).unwrap();
    fits(&bounded, schema, &format!("{kind}.status"));
}

#[test]
fn a_status_of_claims_is_never_longer_than_the_api_server_takes() {
    bounded_status("PvcAutoscaler", |mut status: PvcAutoscalerStatus| {
        let entry = &status.ordinals[0];
        assert!(
            entry.swap.is_some() && entry.shrink.is_some() && !entry.retained_claims.is_empty()
        );
        status.bound();
        status
    });
}

#[test]
fn what_a_node_plugin_writes_is_never_longer_than_the_api_server_takes() {
    bounded_status("VolumeRequest", |mut status: VolumeRequestStatus| {
        assert!(status.error.is_some());
        let inspection = status.inspection.as_ref().unwrap();
        assert_eq!(inspection.volume.as_ref().unwrap().health_statuses.len(), 16);
        status.bound();
        status
    });
    bounded_status("NodeStorage", |status: NodeStorageStatus| {
        assert!(status.volumes.len() > 4000 && status.disks.len() > 1000);
        status.bounded(None).0
    });
}

#[test]
fn what_is_told_of_populators_is_never_longer_than_the_api_server_takes() {
    for kind in ["PvcSourcePopulator", "ArchivePopulator"] {
        bounded_status(kind, |status: PopulatorStatus| {
            let bounded = status.claims.into_iter().rev();
            let bounded = bounded.enumerate().map(|(at, mut one)| {
                one.uid = at.to_string(); // Another claim each.
                one
            });
            let status = bounded.fold(PopulatorStatus::default(), PopulatorStatus::with);
            assert_eq!(status.claims.len(), 256);
            status
        });
    }
}

/// Etcd takes no object of more than 1.5 MiB, and a node plugin makes of a pool what is for the nodes that are listed.
#[test]
fn the_status_of_a_pool_of_many_nodes_is_no_larger_than_etcd_takes_and_names_each_node() {
    let line = "\u{e4}".repeat(1024);
    let node = |at: usize| PoolNode {
        name: format!("{at:0>253}"),
        planned_actions: vec![line.clone(); 64],
        rejected_disks: vec![line.clone(); 64],
    };
    let nodes = (0..100).map(node).collect();
    let mut status = StoragePoolStatus { nodes, ..StoragePoolStatus::default() };
    status.bound();
    assert!(serde_json::to_vec(&status).unwrap().len() < 512 << 10);
    assert_eq!(
        (status.nodes.len(), status.nodes[0].rejected_disks.len()),
        (100, 64),
        "the first has all"
    );
}

#[test]
fn every_kind_is_in_the_category_and_what_claims_name_is_in_their_namespace() {
    for definition in definitions() {
        let name = &definition.spec.names.kind;
        assert_eq!(definition.spec.group, "pliant.io", "{name}");
        let is_near = name.ends_with("Populator") || name == "PvcAutoscaler";
        let scope = if is_near { "Namespaced" } else { "Cluster" };
        assert_eq!(definition.spec.scope, scope, "{name}");
        assert_eq!(definition.spec.names.categories, Some(vec!["pliant".to_owned()]), "{name}");
        let version = &definition.spec.versions[0];
        assert!(version.additional_printer_columns.as_ref().is_some_and(|c| c.len() > 3), "{name}");
        assert!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()), "{name}");
    }
}

#[test]
fn requests_can_be_selected_by_their_node_and_phase() {
    let fields = crd("VolumeRequest")["spec"]["versions"][0]["selectableFields"].clone();
    assert_eq!(fields, json!([{"jsonPath": ".spec.nodeName"}, {"jsonPath": ".status.phase"}]));
}

#[test]
fn an_operation_is_one_of_its_kinds() {
    let grow = Operation::Expand(Expand {
        min_size: Quantity(Bytes::gib(2)),
        max_size: None,
        volume_mode: None,
    });
    assert_eq!(serde_json::to_value(grow).unwrap(), json!({"expand": {"minSize": "2Gi"}}));
    assert_eq!(serde_json::to_value(Operation::Delete(Delete {})).unwrap(), json!({"delete": {}}));
    let operation = &schema("VolumeRequest")["properties"]["spec"]["properties"]["operation"];
    let kinds: Vec<&String> = operation["properties"].as_object().unwrap().keys().collect();
    let mut all = Operation::KINDS;
    all.sort_unstable();
    assert_eq!(kinds, all);
    assert_eq!(operation["oneOf"].as_array().map(Vec::len), Some(all.len()), "{operation}");
}

/// Only the node plugin knows how a node is: what it has not reported is absent.
#[test]
fn a_node_that_has_reported_nothing_has_no_values() {
    let status = &schema("NodeStorage")["properties"]["status"]["properties"];
    for field in ["version", "capacity", "available", "health"] {
        assert!(status[field].is_object() && status[field]["default"].is_null(), "{field}");
    }
    for list in ["pools", "volumeGroups"] {
        let one = &status[list]["items"];
        assert!(one["required"].as_array().unwrap().contains(&json!("health")), "{list}: {one}");
        assert!(one["properties"]["health"]["default"].is_null(), "{list}: {one}");
        let conditions = &one["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]), "{list}");
    }
    assert!(status["pools"]["items"]["properties"]["extentSize"]["default"].is_null());
}

/// As the API of Kubernetes limits them, which controller-gen writes into the definitions of others.
#[test]
fn conditions_have_the_limits_that_they_have_everywhere() {
    for (kind, path) in [
        ("NodeStorage", &["conditions"][..]),
        ("NodeStorage", &["pools", "conditions"]),
        ("NodeStorage", &["volumeGroups", "conditions"]),
        ("StoragePool", &["conditions"]),
        ("PvcAutoscaler", &["conditions"]),
    ] {
        let status = schema(kind)["properties"]["status"].clone();
        let one = path.iter().fold(status, |one, name| one["properties"][name]["items"].clone());
        let fields = &one["properties"];
        assert_eq!(
            fields["status"]["enum"],
            json!(["True", "False", "Unknown"]),
            "{kind} {path:?}"
        );
        assert_eq!(fields["type"]["maxLength"], json!(316));
        assert_eq!(
            (&fields["reason"]["minLength"], &fields["reason"]["maxLength"]),
            (&json!(1), &json!(1024))
        );
        assert_eq!(fields["message"]["maxLength"], json!(32768));
        assert_eq!(fields["observedGeneration"]["minimum"].as_f64(), Some(0.0));
        for (field, good, bad) in [
            ("type", &["Ready", "pliant.io/Ready"][..], &["", "-", "a/"][..]),
            ("reason", &["PoolIncomplete", "A_1:x"], &["", "1", "a b"]),
        ] {
            let pattern = fields[field]["pattern"].as_str().unwrap();
            let pattern = regex::Regex::new(pattern).unwrap();
            assert!(good.iter().all(|word| pattern.is_match(word)), "{field}");
            assert!(!bad.iter().any(|word| pattern.is_match(word)), "{field}");
        }
    }
}

#[test]
fn what_people_write_wrongly_is_refused_with_an_example() {
    let template = "volumeClaimTemplate/properties/spec/properties/resources/properties/requests/properties/storage";
    for (path, good, bad, says) in [
        (
            template,
            &["10Gi", "+1.5Ti", ".5G", "500M", "1e9"][..],
            &["4GB", "10%", "-1Gi", "", "10 Gi"][..],
            "10Gi",
        ),
        ("autoscale/properties/maxSize", &["1Gi"], &["4GB"], "10Gi"),
        ("retention", &["7d", "36h", "1h30m", "90s"], &["1w", "7", "", "-1h"], "7d, 36h"),
    ] {
        let spec = &schema("PvcAutoscaler")["properties"]["spec"];
        let field = spec.pointer(&format!("/properties/{path}")).unwrap();
        assert!(field["pattern"].is_null(), "{path}: a pattern says no sentence");
        let (rule, message) = &rules(field)[0];
        assert!(message.contains(says), "{path}: {message}");
        let pattern = rule.split_once("matches('").unwrap().1.split_once("')").unwrap().0;
        let pattern = regex::Regex::new(pattern).unwrap();
        assert!(good.iter().all(|text| pattern.is_match(text)), "{path}");
        assert!(!bad.iter().any(|text| pattern.is_match(text)), "{path}");
    }
}

#[test]
fn a_pool_that_no_node_could_have_is_refused() {
    let schema = schema("StoragePool");
    let spec = &schema["properties"]["spec"];
    for (place, says) in [
        (&schema, "the name of a StoragePool has 1 to 63"),
        (spec, "name at least one of volumeGroups"),
        (spec, "a device is either in disks or in standbyDisks"),
        (&spec["properties"]["volumeGroups"], "neither . nor .. as the name of a volume group"),
    ] {
        let said = rules(place);
        assert!(said.iter().any(|(_, message)| message.contains(says)), "{says}: {said:?}");
    }
    for list in ["disks", "standbyDisks"] {
        assert_eq!(spec["properties"][list]["x-kubernetes-list-map-keys"], json!(["device"]));
    }
    let groups = &spec["properties"]["volumeGroups"];
    assert_eq!(groups["x-kubernetes-list-type"], "set");
    let pattern = regex::Regex::new(groups["items"]["pattern"].as_str().unwrap()).unwrap();
    assert!(["vg0", ".a", "a-b_c+d.e"].iter().all(|name| pattern.is_match(name)));
    assert!(!["", "-a", "a/b", "a b"].iter().any(|name| pattern.is_match(name)));
    let name = &rules(&schema)[0].0;
    let name = name.split_once("matches('").unwrap().1.split_once("')").unwrap().0;
    let is_name = regex::Regex::new(name).unwrap();
    for (name, is_one) in [("fast", true), ("a-1", true), ("fast.ssd", false), ("-a", false)] {
        assert_eq!(is_name.is_match(name), is_one, "{name}");
        assert_eq!(name.parse::<crate::volume::PoolName>().is_ok(), is_one, "{name}");
    }
}

#[test]
fn a_request_is_for_a_file_system_or_for_none_and_changes_only_a_size_or_a_receiver() {
    let spec = &schema("VolumeRequest")["properties"]["spec"]["properties"];
    let operation = &spec["operation"];
    let (rule, message) = rules(operation).remove(0);
    // The API server refuses a comparison of optional values: it cannot say what that costs.
    let only_besides = |operation: &str, field: &str| {
        let (now, old) = (format!("self.{operation}"), format!("oldSelf.{operation}"));
        format!(
            "has({now}) ? has({old}) && has({now}.{field}) == has({old}.{field}) && \
             (!has({now}.{field}) || {now}.{field} == {old}.{field})"
        )
    };
    let kept = [only_besides("expand", "volumeMode"), only_besides("send", "snapshotHandle")];
    assert_eq!(rule, format!("{} : self == oldSelf", kept.join(" : ")));
    assert_eq!(message, "only the size of an expansion and the receiver of a send can change");
    let create = &operation["properties"]["create"];
    let (rule, _) = rules(create).remove(0);
    assert_eq!(rule, "has(self.fsType) == (self.volumeMode == 'Filesystem')");
    let words = json!(["ext2", "ext3", "ext4", "xfs", "btrfs"]);
    let words = words.as_array().unwrap();
    let listed = create["properties"]["fsType"]["enum"].as_array().unwrap();
    assert!(words.iter().all(|word| listed.contains(word)), "{listed:?}");
    let parameters = &create["properties"]["parameters"];
    assert_eq!(parameters["maxProperties"], json!(64));
    assert_eq!(parameters["additionalProperties"]["maxLength"], json!(1024));
}

#[test]
fn an_empty_status_is_that_of_work_not_begun() {
    let status: VolumeRequestStatus = serde_json::from_value(json!({})).unwrap();
    assert_eq!(status, VolumeRequestStatus::default());
    assert!(!status.phase.is_final());
}

/// The rules of a place of a schema: what they demand and what they say.
fn rules(schema: &Value) -> Vec<(String, String)> {
    let text = |rule: &Value, field: &str| rule[field].as_str().unwrap_or_default().to_owned();
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules.map(|rule| (text(rule, "rule"), text(rule, "message"))).collect()
}

#[test]
fn an_archive_comes_from_one_place_with_its_checksum() {
    let spec = &schema("ArchivePopulator")["properties"]["spec"];
    let said: Vec<String> = rules(spec).into_iter().map(|(_, message)| message).collect();
    assert!(said[0].contains("one of url and configMapRef"), "{said:?}");
    assert_eq!(spec["required"], json!(["sha256"]));
    assert!(rules(&spec["properties"]["sha256"])[0].1.contains("64 hexadecimal digits"));
    // Neither a blank nor what ends a line: it is an argument of a pod, and stands in what people are told.
    assert_eq!(spec["properties"]["url"]["pattern"], "^https?://[!-~]+$");
}

#[test]
fn what_is_copied_from_does_not_change() {
    let spec = &schema("PvcSourcePopulator")["properties"]["spec"];
    let source = &spec["properties"]["sourcePvcRef"];
    assert_eq!(rules(source)[0].0, "self == oldSelf");
    assert_eq!(
        (&source["required"], &spec["required"]),
        (&json!(["name"]), &json!(["sourcePvcRef"]))
    );
}

/// As the blog has it that the kind comes from, with our group.
#[test]
fn a_plain_claim_template_is_a_template() {
    let autoscaler: PvcAutoscaler = serde_json::from_value(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
        "metadata": {"name": "nginx", "namespace": "default"},
        "spec": {
            "statefulSetName": "nginx",
            "volumeClaimTemplate": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "www"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "4Gi"}},
                    "storageClassName": "hdd-sc", "volumeMode": "Filesystem",
                },
            },
        },
    }))
    .unwrap();
    let template = &autoscaler.spec.volume_claim_template.spec;
    assert_eq!(template.resources.requests.storage, Quantity(Bytes::gib(4)));
    assert_eq!(autoscaler.spec.mode, AutoscalerMode::Enforce);
    assert_eq!(autoscaler.spec.retention, Span::days(7));
    let spec = &schema("PvcAutoscaler")["properties"]["spec"];
    assert_eq!(spec["required"], json!(["volumeClaimTemplate"]));
    assert_eq!(spec["properties"]["retention"]["default"], json!("168h"));
    let template = &spec["properties"]["volumeClaimTemplate"]["properties"];
    let size = &template["spec"]["properties"]["resources"]["properties"]["requests"]["properties"];
    // A PersistentVolumeClaim takes `storage: 300000000`, too.
    assert_eq!(size["storage"]["x-kubernetes-int-or-string"], json!(true), "{size}");
    assert_eq!(size["storage"]["type"], Value::Null, "{size}");
    assert!(rules(&size["storage"])[0].0.contains("[eE]"), "and `3e8`: {size}");
    let named = &template["metadata"];
    assert!(rules(&named["properties"]["name"])[0].1.contains("make another PvcAutoscaler"));
}

#[test]
fn a_policy_says_what_it_takes_and_the_rest_has_defaults() {
    let schema = schema("PvcAutoscaler");
    let policy = &schema["properties"]["spec"]["properties"]["autoscale"];
    let fields = &policy["properties"];
    assert_eq!(policy["required"], json!(["maxSize"]));
    assert_eq!(fields["shrink"]["required"], Value::Null, "all of it has defaults");
    let shrink = &fields["shrink"]["properties"];
    // `25` beside a `maxStep` of bytes would be a number of bytes to whoever reads it.
    for (share, default) in [(&fields["growBy"], "25%"), (&shrink["headroom"], "50%")] {
        assert_eq!((&share["type"], &share["default"]), (&json!("string"), &json!(default)));
        assert_eq!(share["x-kubernetes-int-or-string"], Value::Null);
        assert!(!rules(share)[0].0.contains("int"), "{share}");
    }
    // A rule that compares a text with null is none that the API server takes.
    for field in
        [&fields["growBy"], &fields["shrink"], &shrink["minSize"], &shrink["maintenanceWindow"]]
    {
        assert!(
            field["nullable"] != json!(true) && field.get("default") != Some(&Value::Null),
            "{field}"
        );
    }
    // The API server drops it, and whoever applies the file after another is in conflict with that one.
    assert!(!schema.to_string().contains("\"nullable\":false"));
    for (place, says) in [
        (policy, "shrink.belowPercent is to be less than growAtPercent"),
        (policy, "give one of uniformSize and shrink"),
        (policy, "shrink.minSize is to be no more than maxSize"),
        (&fields["growBy"], "write percent, 1% to 999%, or bytes with their unit, such as 10Gi"),
        (&shrink["headroom"], "write percent, 1% to 999%, or bytes with their unit"),
        (&shrink["maintenanceWindow"], "two different times such as 01:00 and 05:00"),
        (&shrink["maintenanceWindow"]["properties"]["start"], "such as 01:00"),
    ] {
        let said = rules(place);
        assert!(said.iter().any(|(_, message)| message.contains(says)), "{said:?}");
    }
    let short: Autoscale = serde_json::from_value(json!({"maxSize": "400Mi"})).unwrap();
    assert_eq!(
        (short.grow_by, short.shrink, short.uniform_size),
        (Share::Percent(25), None, false)
    );
    assert_eq!(short.cooldown, Span::minutes(5));
}

/// A rule on a field compares nothing when the field appears, so that absent (a file system) became `Block`.
#[test]
fn a_volume_mode_that_is_left_out_cannot_become_another_one() {
    let schema = schema("PvcAutoscaler");
    let template = &schema["properties"]["spec"]["properties"]["volumeClaimTemplate"]["properties"];
    let mode = &template["spec"]["properties"]["volumeMode"];
    // The API server stores the default before it compares, and a `null` would stay one.
    assert_eq!((&mode["default"], &mode["nullable"]), (&json!("Filesystem"), &Value::Null));
    assert_eq!(rules(mode)[0].0, "self == oldSelf");
    let spec = json!({"accessModes": [], "resources": {"requests": {"storage": "1Gi"}}});
    let spec: TemplateSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(spec.volume_mode, VolumeMode::Filesystem);
}

/// What undoes or repeats a swap has no effect on claims that pods name: the API server says so.
#[test]
fn what_is_about_swaps_needs_a_stateful_set() {
    let said = rules(&schema("PvcAutoscaler"));
    for field in ["rollback", "abort", "reactivate", "claimNamePolicy"] {
        let rule = format!("!has(self.spec.{field}) || has(self.spec.statefulSetName)");
        let found = said.iter().find(|(text, _)| *text == rule);
        assert!(found.is_some_and(|(_, message)| message.starts_with(field)), "{said:?}");
    }
}

/// A list without a type is replaced whole by whoever applies a part of it, and a type that is added later changes who
/// owns the items and what is refused.
#[test]
fn every_list_has_a_type() {
    for kind in KINDS {
        let mut found = Vec::new();
        places(&schema(kind), kind, &mut found);
        for (path, list) in found.iter().filter(|(_, field)| field["type"] == "array") {
            let list_type = list["x-kubernetes-list-type"].as_str().unwrap_or("none");
            assert!(["atomic", "map", "set"].contains(&list_type), "{path} has type {list_type}");
            let keys = list["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            for key in keys {
                let required = list["items"]["required"].as_array().unwrap();
                assert!(required.contains(key), "{path} lacks its key {key}");
            }
        }
    }
}

#[test]
fn what_a_tenant_maps_has_an_end() {
    let schema = schema("PvcAutoscaler");
    let spec = &schema["properties"]["spec"]["properties"];
    let metadata = &spec["volumeClaimTemplate"]["properties"]["metadata"]["properties"];
    let selector = &spec["workload"]["properties"]["podSelector"];
    let matched = &selector["properties"]["matchLabels"];
    for (map, least, most, value) in [
        (&metadata["labels"], Value::Null, 64, json!(63)),
        (&metadata["annotations"], Value::Null, 64, Value::Null),
        (matched, json!(1), 16, json!(63)),
    ] {
        assert_eq!((&map["minProperties"], &map["maxProperties"]), (&least, &json!(most)));
        assert_eq!(map["additionalProperties"]["maxLength"], value, "{map}");
    }
    assert_eq!(selector["required"], json!(["matchLabels"]), "no selector is one of all pods");
}

/// What the schema does not know the API server drops, and a claim that should have data would be empty.
#[test]
fn what_a_template_cannot_say_is_known_and_refused() {
    let schema = schema("PvcAutoscaler");
    let spec =
        &schema["properties"]["spec"]["properties"]["volumeClaimTemplate"]["properties"]["spec"];
    let resources = &spec["properties"]["resources"];
    for (place, field, says) in [
        (spec, "dataSource", "make the claims that are to have data yourself"),
        (spec, "dataSourceRef", "make the claims that are to have data yourself"),
        (spec, "selector", "takes no selector"),
        (spec, "volumeName", "takes no volumeName"),
        (resources, "limits", "takes no resources.limits"),
    ] {
        assert!(place["properties"][field].is_object(), "{field} would be dropped");
        let refused = format!("!has(self.{field})");
        let said = rules(place);
        let rule = said.iter().find(|(rule, _)| rule.split(" && ").any(|one| one == refused));
        assert!(rule.is_some_and(|(_, message)| message.contains(says)), "{field}: {said:?}");
    }
    let modes = &spec["properties"]["accessModes"];
    assert_eq!(
        modes["items"]["enum"],
        json!(["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"])
    );
    assert_eq!((&modes["minItems"], &modes["maxItems"]), (&json!(1), &json!(4)));
}

#[test]
fn bounds_that_contradict_each_other_are_refused() {
    let schema = schema("PvcAutoscaler");
    let policy = &schema["properties"]["spec"]["properties"]["autoscale"];
    for (place, says) in [
        (policy, "is to be no more than maxStep"),
        (&schema, "autoscale.maxSize is to be no less than resources.requests.storage"),
    ] {
        let said = rules(place);
        assert!(said.iter().any(|(_, message)| message.contains(says)), "{said:?}");
    }
}

/// What tenants write is a name, one of some words, or a text that goes nowhere but into our own.
#[test]
fn every_text_that_a_tenant_writes_has_a_form() {
    // A rule refuses it, whatever it is; the API server reads tolerations as it reads those of any pod.
    let free = ["PvcAutoscaler.volumeClaimTemplate.spec.volumeName"];
    let is_free = |path: &str| free.contains(&path) || path.contains(".tolerations[].");
    for kind in ["PvcAutoscaler", "PvcSourcePopulator", "ArchivePopulator"] {
        let mut found = Vec::new();
        places(&schema(kind)["properties"]["spec"], kind, &mut found);
        for (path, field) in found.iter().filter(|(_, field)| field["type"] == "string") {
            let mut rules = field["x-kubernetes-validations"].as_array().into_iter().flatten();
            let is_ruled = rules.any(|rule| {
                let rule = rule["rule"].as_str().unwrap();
                rule.contains("matches(") || rule.starts_with("self == '")
            });
            let has_form = !field["pattern"].is_null() || !field["enum"].is_null() || is_ruled;
            assert!(has_form || is_free(path), "{path} may be anything: {field}");
        }
    }
}

/// All texts of a place of a definition.
fn descriptions(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("description").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| descriptions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| descriptions(item, found)),
        _ => {}
    }
}

fn all_descriptions() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    descriptions(&json!(definitions()), &mut found);
    found
}

/// The documented fields of the types with a schema, and their texts.
fn field_docs(source: &str) -> Vec<(&str, String)> {
    let (mut docs, mut doc) = (Vec::new(), Vec::new());
    let (mut has_schema, mut is_inside) = (false, false);
    for line in source.lines() {
        let text = line.trim_start();
        if let Some(words) = text.strip_prefix("///") {
            doc.push(words.trim());
            continue;
        }
        if text == "#[serde(flatten)]" {
            doc.clear(); // The fields that it has are in its place.
        }
        if text.starts_with("#[derive(") {
            has_schema = text.contains("JsonSchema") || text.contains("KubeSchema");
        }
        is_inside = (is_inside || has_schema && line.starts_with("pub struct")) && line != "}";
        if let (true, Some((name, _))) = (is_inside && !doc.is_empty(), text.split_once(':'))
            && let Some(name) = name.strip_prefix("pub ")
        {
            docs.push((name, in_paragraphs(&doc.join("\n"))));
        }
        let ends_item = ["pub ", "fn ", "const ", "impl ", "}"];
        if ends_item.iter().any(|word| text.starts_with(word)) {
            doc.clear();
        }
    }
    docs
}

/// For an optional enum, kube would have the text of the enum in its place.
#[test]
fn every_field_is_described_by_its_own_text() {
    let described = all_descriptions();
    let (mut count, mut missing) = (0, Vec::new());
    for dir in ["src/api", "src/api/node_storage"] {
        for file in fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()) {
            // Kubernetes' own kind is not among the definitions.
            if !file.is_file() || file.ends_with("volume_populator.rs") {
                continue;
            }
            for (name, doc) in field_docs(&fs::read_to_string(&file).unwrap()) {
                count += 1;
                if !described.contains(&doc) {
                    missing.push(format!("{}: {name}: {doc}", file.display()));
                }
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    assert!(count > 150, "only {count} fields are documented");
}

/// Who reads `kubectl explain` has no repository.
#[test]
fn no_description_refers_to_a_file_of_the_repository() {
    for text in all_descriptions() {
        let refers = ["docs/src", "src/", ".md", ".rs"].iter().any(|path| text.contains(path));
        assert!(!refers, "{text}");
    }
}

/// Without it server-side apply replaces a list, and to declare it later changes who owns what.
#[test]
fn the_lists_of_populators_declare_how_they_are_merged() {
    for kind in ["PvcSourcePopulator", "ArchivePopulator"] {
        let mut found = Vec::new();
        places(&schema(kind), kind, &mut found);
        let lists = found.iter().filter(|(_, field)| field["type"] == "array");
        for (path, list) in lists {
            assert!(list["x-kubernetes-list-type"].is_string(), "{path}: {list}");
        }
    }
}
