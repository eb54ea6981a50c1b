//! The prime claim, and the pod that populates its volume. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::api::PopulatorPod;
use crate::populators::fit::Fit;
use crate::populators::observed::{selected_node, uid};
use crate::populators::{Fill, LABEL, PopulationSettings, SELECTED_NODE};

/// Annotation of a populator pod: the generation of its source.
const GENERATION: &str = "pliant.io/generation";

/// Annotation of a populator pod that only runs a pre-copy: it does not complete its volume.
const AHEAD: &str = "pliant.io/pre-copy";

/// Annotation of a populator pod that only probes whether its volume could be populated.
const PROBES: &str = "pliant.io/probe";

/// Annotation of pods and prime claims: the claim that is populated, for users.
const CLAIM: &str = "pliant.io/claim";

/// Annotation of a prime claim: the node that it was created for, which its provisioner may remove
/// from the other annotation.
const NODE: &str = "pliant.io/node";

/// Container of a populator pod.
pub(super) const CONTAINER: &str = "populator";

/// Returns the name of the prime claim of a claim, and of its populator pod.
pub(super) fn prime_name(uid: &str) -> String {
    format!("prime-{uid}")
}

/// The prime claim: as the claim is, without the data source.
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
            "app.kubernetes.io/name": "pliant-populator",
            "app.kubernetes.io/managed-by": "pliant",
        },
        "annotations": { CLAIM: of },
    })
}

/// Common fields of Pliant's pods in a namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodFrame<'a> {
    pub settings: &'a PopulationSettings,
    pub namespace: &'a str,
    pub fit: &'a Fit,
}

/// What a pod of Pliant runs, with what, and where.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub name: String,
    pub pod: &'a PopulatorPod,
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

/// Capabilities for setting owners, modes, devices and extended attributes of files.
const WRITES: &[&str] = &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"];

/// Returns the pod that populates the volume of the prime claim.
pub(super) fn pod(
    claim: &PersistentVolumeClaim,
    fill: &Fill,
    frame: PodFrame<'_>,
    generation: i64,
) -> Pod {
    let name = prime_name(uid(&claim.metadata));
    let target = json!({"name": "target", "persistentVolumeClaim": {"claimName": name}});
    let mut run = Run::of(fill, name);
    run.args = json!(fill.args);
    // Elsewhere the policies of the claim's namespace do not hold for it.
    if fill.fetches && Some(frame.namespace) != claim.namespace().as_deref() {
        let settings = frame.settings;
        let allowed = settings.allowed.iter().map(|cidr| format!("--allow-cidr={cidr}"));
        let hosts = settings.allowed_hosts.iter().map(|host| format!("--allow-host={host}"));
        let public_only = std::iter::once("--public-only".to_owned()).chain(allowed).chain(hosts);
        run.args = fill.args.iter().cloned().chain(public_only).collect();
    }
    if fill.fetches {
        let fetching = frame.settings.fetching.iter();
        run.env =
            fetching.map(|(name, value)| json!({"name": name, "value": literal(value)})).collect();
    }
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
    let mut pod = run.pod(claim, frame);
    pod.annotations_mut().insert(GENERATION.to_owned(), generation.to_string());
    if fill.ahead_of.is_some() {
        mark_ahead(&mut pod);
    }
    pod
}

/// Returns the pod that probes whether the volume of the prime claim could be populated: like the
/// populator pod, but without its source, which others use.
pub(super) fn probe(
    claim: &PersistentVolumeClaim,
    fill: &Fill,
    frame: PodFrame<'_>,
    generation: i64,
) -> Pod {
    let device = is_block(claim).then_some("--device");
    let args = ["copy", "/target", "--probe", "--result", "/dev/termination-log"];
    let fill = Fill {
        args: args.into_iter().chain(device).map(str::to_owned).collect(),
        volumes: Vec::new(),
        mounts: Vec::new(),
        devices: Vec::new(),
        pod: fill.pod.clone(),
        ..Fill::default()
    };
    let mut pod = pod(claim, &fill, frame, generation);
    mark_probe(&mut pod);
    pod
}

/// Annotates a pod as a probe.
pub(super) fn mark_probe(pod: &mut Pod) {
    pod.annotations_mut().insert(PROBES.to_owned(), "true".to_owned());
}

/// Annotates a pod as a pre-copy.
pub(super) fn mark_ahead(pod: &mut Pod) {
    pod.annotations_mut().insert(AHEAD.to_owned(), "true".to_owned());
}

impl<'a> Run<'a> {
    /// With what the source needs, and nothing else yet.
    pub fn of(fill: &'a Fill, name: String) -> Run<'a> {
        let each = |all: Value| all.as_array().cloned().unwrap_or_default();
        Run {
            name,
            pod: &fill.pod,
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
    pub fn pod(self, claim: &PersistentVolumeClaim, frame: PodFrame<'_>) -> Pod {
        let settings = &frame.settings.pod;
        let secrets = frame.settings.pull_secrets.iter().map(|name| json!({ "name": name }));
        let secrets: Vec<Value> = secrets.collect();
        // It goes where the pod of a claim will go, which may tolerate what this does not know.
        let cordon = json!({"operator": "Exists", "effect": "NoSchedule"});
        let tolerations = self.pod.tolerations.iter().chain(&settings.tolerations);
        let tolerations = tolerations.map(|one| json!(one));
        let tolerations: Vec<Value> = [cordon].into_iter().chain(tolerations).collect();
        let of_workload = self.pod.priority_class_name.as_deref();
        let priority = of_workload.or(some(&settings.priority_class_name));
        let mut metadata = metadata(claim, &self.name, frame.namespace);
        // What stands there already is what we know them by.
        add(&mut metadata["labels"], &settings.labels);
        add(&mut metadata["annotations"], &settings.annotations);
        let pod = json!({
            "metadata": metadata,
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 5,
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                "affinity": affinity(&self.nodes),
                "imagePullSecrets": secrets,
                "nodeSelector": settings.node_selector,
                "priorityClassName": priority,
                "tolerations": tolerations,
                "containers": [self.container(frame)],
                "volumes": self.volumes,
            },
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn container(&self, frame: PodFrame<'_>) -> Value {
        json!({
            "name": CONTAINER,
            "image": frame.settings.image,
            "imagePullPolicy": some(&frame.settings.pod.image_pull_policy),
            "args": self.args,
            "env": self.env,
            "volumeMounts": self.mounts,
            "volumeDevices": self.devices,
            "resources": frame.fit.resources(),
            "securityContext": {
                "runAsUser": 0,
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"], "add": self.capabilities},
            },
        })
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Adds missing keys.
fn add(to: &mut Value, more: &BTreeMap<String, String>) {
    for (key, value) in more {
        if to.get(key).is_none() {
            to[key] = json!(value);
        }
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

/// An argument of a container as it is written: Kubernetes puts variables of the container in the place of `$(NAME)`,
/// and one dollar in the place of two.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// Returns true if the workload of a claim sees a raw block volume.
pub(super) fn is_block(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_mode.as_deref() == Some("Block"))
}

/// The node that a prime claim was made for.
pub(super) fn node_of(prime: &PersistentVolumeClaim) -> Option<&str> {
    prime.annotations().get(NODE).map(String::as_str)
}

/// Returns true if a pod only runs a pre-copy.
pub(super) fn is_ahead(pod: &Pod) -> bool {
    pod.annotations().contains_key(AHEAD)
}

/// Returns true if a pod only probes whether its volume could be populated.
pub(super) fn is_probe(pod: &Pod) -> bool {
    pod.annotations().contains_key(PROBES)
}

/// Returns true if a pod populates its volume completely.
pub(super) fn fills_volume(pod: &Pod) -> bool {
    !is_ahead(pod) && !is_probe(pod)
}

/// The generation of the source that a pod was made of.
pub(super) fn generation_of(pod: &Pod) -> Option<i64> {
    pod.annotations().get(GENERATION)?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::populators::PopulatorReason;

    /// Returns the common fields of pods in the namespace `shop`.
    pub fn frame<'a>(settings: &'a PopulationSettings, fit: &'a Fit) -> PodFrame<'a> {
        PodFrame { settings, namespace: "shop", fit }
    }

    pub(in crate::populators) fn claim(mode: &str) -> PersistentVolumeClaim {
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
    fn a_prime_claim_is_the_claim_without_its_source() {
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
        let (settings, fit) = (PopulationSettings::default(), Fit::default());
        let made = pod(&claim("Filesystem"), &fill, frame(&settings, &fit), 3);
        let made = serde_json::to_value(made).unwrap();
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
        let (settings, fit) = (PopulationSettings::default(), Fit::default());
        let made = pod(&anywhere, &fill, frame(&settings, &fit), 3);
        assert!(
            is_ahead(&made)
                && !is_ahead(&pod(&anywhere, &Fill::default(), frame(&settings, &fit), 3))
        );
        let made = serde_json::to_string(&made).unwrap();
        assert!(made.contains(r#""values":["beta"]"#), "{made}");
    }

    #[test]
    fn a_raw_volume_is_a_device_of_the_pod() {
        let (settings, fit) = (PopulationSettings::default(), Fit::default());
        let made = pod(&claim("Block"), &Fill::default(), frame(&settings, &fit), 3);
        assert_eq!(generation_of(&made), Some(3));
        let made = serde_json::to_value(made).unwrap();
        let devices = json!([{"name": "target", "devicePath": "/target"}]);
        assert_eq!(made["spec"]["containers"][0]["volumeDevices"], devices);
    }

    #[test]
    fn a_pod_has_the_secrets_of_the_settings_and_the_tolerations_of_the_workload() {
        let tolerations = json!([{"key": "dedicated", "value": "db", "effect": "NoExecute"}]);
        let pod = json!({"tolerations": tolerations, "priorityClassName": "high"});
        let fill = Fill { pod: serde_json::from_value(pod).unwrap(), ..Fill::default() };
        let pull_secrets = vec!["registry".to_owned()];
        let (settings, fit) =
            (PopulationSettings { pull_secrets, ..PopulationSettings::default() }, Fit::default());
        let claim = claim("Filesystem");
        for made in [
            super::pod(&claim, &fill, frame(&settings, &fit), 3),
            probe(&claim, &fill, frame(&settings, &fit), 3),
        ] {
            let spec = serde_json::to_value(made).unwrap()["spec"].clone();
            assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));
            assert_eq!(spec["priorityClassName"], "high");
            let all = json!([{"operator": "Exists", "effect": "NoSchedule"}, tolerations[0]]);
            assert_eq!(spec["tolerations"], all);
        }
    }

    /// What an administrator gives all pods.
    pub(in crate::populators) fn given() -> PopulationSettings {
        let pod = r#"{
            "labels": {"team": "storage", "app.kubernetes.io/name": "other"},
            "annotations": {"sidecar.istio.io/inject": "false"},
            "nodeSelector": {"disk": "nvme"},
            "tolerations": [{"key": "storage", "operator": "Exists"}],
            "priorityClassName": "usual",
            "imagePullPolicy": "Always"
        }"#;
        PopulationSettings { pod: pod.parse().unwrap(), ..PopulationSettings::default() }
    }

    /// A source with wishes for its pods, and one without; what their pods have by [`given`].
    pub(in crate::populators) fn wishes() -> [(Fill, &'static str, usize); 2] {
        let high = json!({"tolerations": [{"key": "db"}], "priorityClassName": "high"});
        let own = Fill { pod: serde_json::from_value(high).unwrap(), ..Fill::default() };
        [(Fill::default(), "usual", 2), (own, "high", 3)]
    }

    /// Asserts that a pod has what the administrator gives, and what we know it by.
    pub(in crate::populators) fn has_what_is_given(made: Pod, priority: &str, tolerations: usize) {
        let labels = made.labels();
        assert_eq!(labels["team"], "storage");
        assert_eq!(labels["app.kubernetes.io/name"], "pliant-populator");
        assert_eq!(made.annotations()["sidecar.istio.io/inject"], "false");
        assert_eq!(made.annotations()[CLAIM], "shop/db");
        let spec = serde_json::to_value(made).unwrap()["spec"].clone();
        assert_eq!(spec["nodeSelector"], json!({"disk": "nvme"}));
        assert_eq!(spec["priorityClassName"], priority);
        assert_eq!(spec["tolerations"].as_array().unwrap().len(), tolerations);
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    }

    #[test]
    fn every_pod_has_what_the_administrator_gives_and_what_we_know_it_by() {
        let (settings, fit, claim) = (given(), Fit::default(), claim("Filesystem"));
        for (fill, priority, tolerations) in wishes() {
            for made in [
                super::pod(&claim, &fill, frame(&settings, &fit), 3),
                probe(&claim, &fill, frame(&settings, &fit), 3),
            ] {
                has_what_is_given(made, priority, tolerations);
            }
        }
        // Without any, the pods are as Kubernetes has them.
        let settings = PopulationSettings::default();
        let made = super::pod(&claim, &Fill::default(), frame(&settings, &fit), 3);
        let container = &made.spec.as_ref().unwrap().containers[0];
        assert_eq!(container.image_pull_policy, None);
        assert_eq!(made.spec.as_ref().unwrap().priority_class_name, None);
    }

    #[test]
    fn only_a_pod_that_fetches_gets_proxies_and_authorities() {
        let fetching = vec![("HTTPS_PROXY".to_owned(), "http://p:1/$(A)".to_owned())];
        let settings = PopulationSettings {
            namespace: Some("fills".to_owned()),
            fetching,
            allowed_hosts: vec!["files.example".to_owned()],
            ..PopulationSettings::default()
        };
        let (fit, claim) = (Fit::default(), claim("Filesystem"));
        for fetches in [true, false] {
            let fill = Fill { fetches, ..Fill::default() };
            let frame = PodFrame { namespace: "fills", ..frame(&settings, &fit) };
            let made = super::pod(&claim, &fill, frame, 3);
            let container = &made.spec.unwrap().containers[0];
            let env: Vec<_> = container.env.iter().flatten().map(|one| one.value.clone()).collect();
            let args = container.args.clone().unwrap_or_default().join(" ");
            if fetches {
                assert_eq!(env, [Some("http://p:1/$$(A)".to_owned())]);
                assert_eq!(args, "--public-only --allow-host=files.example");
            } else {
                assert!(env.is_empty() && args.is_empty(), "{env:?} {args}");
            }
        }
    }

    #[test]
    fn a_pod_that_only_tries_is_as_the_one_that_fills_and_has_nothing_of_the_source() {
        let source = json!({"name": "source", "persistentVolumeClaim": {"claimName": "old"}});
        let fill = Fill {
            args: vec!["copy".to_owned(), "/source".to_owned()],
            volumes: vec![serde_json::from_value(source).unwrap()],
            nodes: Some(["beta".to_owned()].into()),
            ..Fill::default()
        };
        let (settings, fit) = (PopulationSettings::default(), Fit::default());
        for (mode, device) in [("Filesystem", ""), ("Block", " --device")] {
            let claim = claim(mode);
            let [tries, fills] = [
                probe(&claim, &fill, frame(&settings, &fit), 3),
                super::pod(&claim, &fill, frame(&settings, &fit), 3),
            ];
            assert!(is_probe(&tries) && !is_probe(&fills) && generation_of(&tries) == Some(3));
            let (tries, fills) = (tries.spec.unwrap(), fills.spec.unwrap());
            let args = tries.containers[0].args.clone().unwrap().join(" ");
            let expected = format!("copy /target --probe --result /dev/termination-log{device}");
            assert_eq!(args, expected);
            assert_eq!(tries.affinity, fills.affinity);
            assert_eq!(tries.containers[0].resources, fills.containers[0].resources);
            assert_eq!(tries.containers[0].security_context, fills.containers[0].security_context);
            let names: Vec<String> =
                tries.volumes.unwrap().into_iter().map(|one| one.name).collect();
            assert_eq!(names, ["target"]);
        }
    }
}
