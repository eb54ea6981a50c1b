//! The second claim and the pod that fills its volume. Pure.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::populators::seen::{selected_node, uid};
use crate::populators::{Fill, LABEL, SELECTED_NODE};

/// On a fill pod: the generation of the source that it was made of.
const GENERATION: &str = "pliant.io/generation";

/// On a fill pod that only copies ahead: its volume is not filled by it.
const AHEAD: &str = "pliant.io/copies-ahead";

/// On pods and second claims: the claim that is filled, for people.
const CLAIM: &str = "pliant.io/claim";

/// On a second claim: the node that it was made for, which its provisioner may take off the other place.
const NODE: &str = "pliant.io/node";

/// The container of a fill pod.
pub(super) const CONTAINER: &str = "fill";

/// The name of the second claim of a claim, and of the pod that fills it.
pub(super) fn prime_name(uid: &str) -> String {
    format!("prime-{uid}")
}

/// The second claim: as the claim is, without the data source.
pub(super) fn prime(
    claim: &PersistentVolumeClaim,
    waits_for_consumer: bool,
    namespace: &str,
) -> PersistentVolumeClaim {
    let spec = claim.spec.clone().unwrap_or_default();
    let mut metadata = metadata(claim, &prime_name(uid(&claim.metadata)), namespace);
    if let Some(node) = selected_node(claim).filter(|_| waits_for_consumer) {
        metadata["annotations"][SELECTED_NODE] = json!(node);
        metadata["annotations"][NODE] = json!(node);
    }
    let prime = json!({
        "metadata": metadata,
        "spec": {
            "accessModes": spec.access_modes,
            "resources": spec.resources,
            "storageClassName": spec.storage_class_name,
            "volumeMode": spec.volume_mode,
            "volumeAttributesClassName": spec.volume_attributes_class_name,
        },
    });
    serde_json::from_value(prime).expect("a claim")
}

/// Metadata of what is made for a claim.
pub(super) fn metadata(claim: &PersistentVolumeClaim, name: &str, namespace: &str) -> Value {
    let of = format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
    json!({
        "name": name,
        "namespace": namespace,
        "labels": {
            LABEL: uid(&claim.metadata),
            "app.kubernetes.io/name": "pliant-fill",
            "app.kubernetes.io/managed-by": "pliant",
        },
        "annotations": { CLAIM: of },
    })
}

/// What a pod of ours runs, with what, and where.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub name: String,
    pub image: &'a str,
    pub args: Value,
    /// The variables that arguments may name.
    pub env: Value,
    pub volumes: Vec<Value>,
    pub mounts: Vec<Value>,
    pub devices: Vec<Value>,
    pub capabilities: &'static [&'static str],
    /// The nodes on which it can run; none are all.
    pub nodes: Vec<&'a str>,
}

/// The capabilities that files keep their owners, modes, devices and extended attributes by.
const WRITES: &[&str] = &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"];

/// The pod that fills the volume of the second claim.
pub(super) fn pod(
    claim: &PersistentVolumeClaim,
    fill: &Fill,
    image: &str,
    namespace: &str,
    generation: i64,
) -> Pod {
    let name = prime_name(uid(&claim.metadata));
    let target = json!({"name": "target", "persistentVolumeClaim": {"claimName": name}});
    let mut run = Run::of(fill, name, image);
    run.args = json!(fill.args);
    run.capabilities = WRITES;
    run.volumes.push(target);
    if is_block(claim) {
        run.devices.push(json!({"name": "target", "devicePath": "/target"}));
    } else {
        run.mounts.push(json!({"name": "target", "mountPath": "/target"}));
    }
    // The node that is chosen for the claim, or the only one on which the source can be read; where the
    // volumes are the scheduler knows.
    let only = fill.nodes.as_ref().filter(|nodes| nodes.len() == 1);
    let only = only.and_then(|nodes| nodes.first()).map(String::as_str);
    run.nodes = selected_node(claim).or(only).into_iter().collect();
    let mut pod = run.pod(claim, namespace);
    pod.annotations_mut().insert(GENERATION.to_owned(), generation.to_string());
    if fill.ahead_of.is_some() {
        mark_ahead(&mut pod);
    }
    pod
}

/// Say of a pod that it only copies ahead.
pub(super) fn mark_ahead(pod: &mut Pod) {
    pod.annotations_mut().insert(AHEAD.to_owned(), "true".to_owned());
}

impl<'a> Run<'a> {
    /// With what the source needs, and nothing else yet.
    pub fn of(fill: &Fill, name: String, image: &'a str) -> Run<'a> {
        let each = |all: Value| all.as_array().cloned().unwrap_or_default();
        Run {
            name,
            image,
            args: Value::Null,
            env: Value::Null,
            volumes: each(json!(fill.volumes)),
            mounts: each(json!(fill.mounts)),
            devices: each(json!(fill.devices)),
            capabilities: &[],
            nodes: Vec::new(),
        }
    }

    /// The pod: its capabilities are among those that the policy `baseline` of Kubernetes lets a namespace
    /// have; no token, no network identity, and nothing of its own that could be written.
    pub fn pod(self, claim: &PersistentVolumeClaim, namespace: &str) -> Pod {
        let pod = json!({
            "metadata": metadata(claim, &self.name, namespace),
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 5,
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                "affinity": affinity(&self.nodes),
                // It goes where the pod of a claim will go, which may tolerate what this does not know.
                "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                "containers": [self.container()],
                "volumes": self.volumes,
            },
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn container(&self) -> Value {
        json!({
            "name": CONTAINER,
            "image": self.image,
            "args": self.args,
            "env": self.env,
            "volumeMounts": self.mounts,
            "volumeDevices": self.devices,
            "resources": {
                "requests": {"cpu": "50m", "memory": "64Mi"},
                "limits": {"memory": "512Mi"},
            },
            "securityContext": {
                "runAsUser": 0,
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"], "add": self.capabilities},
            },
        })
    }
}

fn affinity(nodes: &[&str]) -> Value {
    if nodes.is_empty() {
        return Value::Null;
    }
    // A field can be compared with one value only.
    let term = |node: &&str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        json!({"matchFields": [field]})
    };
    let terms: Vec<Value> = nodes.iter().map(term).collect();
    json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }})
}

/// Whether the workload of a claim sees a raw device.
pub(super) fn is_block(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_mode.as_deref() == Some("Block"))
}

/// The node that a second claim was made for.
pub(super) fn node_of(prime: &PersistentVolumeClaim) -> Option<&str> {
    prime.annotations().get(NODE).map(String::as_str)
}

/// Whether a pod only copies ahead.
pub(super) fn is_ahead(pod: &Pod) -> bool {
    pod.annotations().contains_key(AHEAD)
}

/// The generation of the source that a pod was made of.
pub(super) fn generation_of(pod: &Pod) -> Option<i64> {
    pod.annotations().get(GENERATION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::populators::PopulatorReason;

    fn claim(mode: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "db", "namespace": "shop", "uid": "u",
                         "annotations": {SELECTED_NODE: "alpha", "other": "x"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": mode,
                "volumeAttributesClassName": "gold", "resources": {"requests": {"storage": "1Gi"}},
                "selector": {"matchLabels": {"a": "b"}},
                "dataSourceRef": {"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "a"},
                "dataSource": {"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "a"},
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_second_claim_is_the_claim_without_its_source() {
        let made = serde_json::to_value(prime(&claim("Block"), true, "shop")).unwrap();
        let expected = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block",
            "volumeAttributesClassName": "gold", "resources": {"requests": {"storage": "1Gi"}},
        });
        assert_eq!(made["spec"], expected);
        let metadata = &made["metadata"];
        assert_eq!(
            (&metadata["name"], &metadata["labels"][LABEL]),
            (&json!("prime-u"), &json!("u"))
        );
        let expected = json!({CLAIM: "shop/db", SELECTED_NODE: "alpha", NODE: "alpha"});
        assert_eq!(metadata["annotations"], expected);
        let at_once = prime(&claim("Block"), false, "shop");
        assert_eq!(selected_node(&at_once), None, "such a volume is made anywhere");
    }

    #[test]
    fn a_pod_has_no_more_rights_than_it_needs() {
        let fill = Fill { args: vec!["copy".to_owned()], ..Fill::default() };
        let made =
            serde_json::to_value(pod(&claim("Filesystem"), &fill, "image", "shop", 3)).unwrap();
        let spec = &made["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["restartPolicy"], "Never");
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let context = &spec["containers"][0]["securityContext"];
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(
            (&context["readOnlyRootFilesystem"], &context["privileged"]),
            (&json!(true), &json!(null))
        );
        let added = context["capabilities"]["add"].as_array().unwrap();
        let of_baseline = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"];
        assert!(added.iter().all(|one| of_baseline.contains(&one.as_str().unwrap())), "{added:?}");
        let mounts = json!([{"name": "target", "mountPath": "/target"}]);
        assert_eq!(spec["containers"][0]["volumeMounts"], mounts);
        assert!(made.to_string().contains(r#""values":["alpha"]"#), "{made}");
    }

    #[test]
    fn a_pod_that_copies_ahead_says_so_and_is_where_the_source_is() {
        let fill = Fill {
            nodes: Some(["beta".to_owned()].into()),
            ahead_of: Some((PopulatorReason::SourcePaused, String::new())),
            ..Fill::default()
        };
        let mut anywhere = claim("Filesystem");
        anywhere.annotations_mut().remove(SELECTED_NODE);
        let made = pod(&anywhere, &fill, "image", "shop", 3);
        assert!(is_ahead(&made) && !is_ahead(&pod(&anywhere, &Fill::default(), "", "", 3)));
        let made = serde_json::to_string(&made).unwrap();
        assert!(made.contains(r#""values":["beta"]"#), "{made}");
    }

    #[test]
    fn a_raw_volume_is_a_device_of_the_pod() {
        let made = pod(&claim("Block"), &Fill::default(), "image", "shop", 3);
        assert_eq!(generation_of(&made), Some(3));
        let made = serde_json::to_value(made).unwrap();
        let devices = json!([{"name": "target", "devicePath": "/target"}]);
        assert_eq!(made["spec"]["containers"][0]["volumeDevices"], devices);
    }
}
