//! Claims and pods, reduced to the fields that are read: a tenant's object of 1 MiB takes as much memory as any
//! other.
//!
//! The types of Kubernetes have space for each field, so a pod with two volumes takes 8 KiB even if most of it is
//! unused. Unused fields are not decoded.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{
    NodeSelector, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodSchedulingGate,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::api::{self, Quantity};
use crate::cluster::claim::{
    self, Binding, ClaimSizes, HELD_BY_POPULATOR, HELD_BY_SWAP, KEPT_BY, RESIZER_WOKEN_FOR,
    UnreadableSize,
};
use crate::cluster::{ObjectNames, Record};

/// Maximum length of a tenant's text, in bytes. No object name is as long, so a truncated text names none.
const LONGEST: usize = 254;

/// The most that a pod may take of what is read: its labels, volumes, tolerations and node selectors.
pub const LARGEST_POD: usize = 64 << 10;

/// A claim without all that no loop reads.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimSummary {
    /// Names and version of the claim.
    pub names: ObjectNames,
    /// True if it is being deleted.
    pub is_ending: bool,
    /// Whose finalizers it has.
    pub held_by: HeldBy,
    /// PvcAutoscaler that manages it.
    pub kept_by: Option<Box<str>>,
    /// Object that it is populated from.
    pub source: Option<Box<DataSource>>,
    /// Name of its PersistentVolume.
    pub volume: Option<Box<str>>,
    /// Binding of the claim.
    pub binding: Binding,
    /// Requested size and capacity, if valid.
    pub sizes: Result<ClaimSizes, Box<UnreadableSize>>,
    /// The size that it cannot get, where that can be read.
    pub refused: Result<Option<Quantity>, Box<UnreadableSize>>,
    /// True if a growth of it is under way, or refused.
    pub is_resizing: bool,
    /// Size for which the resizer of Kubernetes was notified, from its annotation: a backup restores that,
    /// too.
    pub woken_for: Option<Box<str>>,
}

impl ClaimSummary {
    /// Key of the bound claims that request more than they have, or may do so.
    pub const MAY_GROW: &str = "may grow";

    /// Returns true if it is bound and requests more than it has, or its sizes are invalid.
    pub fn may_grow(&self) -> bool {
        let Ok(sizes) = &self.sizes else { return true };
        self.binding == Binding::Bound && sizes.wants_more()
    }
}

/// Finalizers of Pliant on a claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldBy {
    /// Finalizer of a swap.
    pub swap: bool,
    /// Finalizer of a populator.
    pub populator: bool,
}

/// The object in the `dataSourceRef` of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataSource {
    /// API group; empty for core kinds.
    pub group: Box<str>,
    /// Kind of the object.
    pub kind: Box<str>,
    /// Name of the object.
    pub name: Box<str>,
    /// True if it names a namespace, also its own.
    pub has_namespace: bool,
}

impl Record for ClaimSummary {
    type Object = PersistentVolumeClaim;
    type ObjectIdentity = ObjectNames;

    fn of(claim: PersistentVolumeClaim) -> Self {
        let sizes = ClaimSizes::of(&claim).map_err(Box::new);
        let refused = claim::refused_size(&claim).map_err(Box::new);
        let is_resizing = claim::is_resizing(&claim);
        let binding = Binding::of(&claim);
        let note = |key: &str| claim.annotations().get(key).map(|value| kept(value));
        let woken_for = note(RESIZER_WOKEN_FOR);
        let kept_by = claim.labels().get(KEPT_BY).map(|by| kept(by));
        let spec = claim.spec.unwrap_or_default();
        let source = spec.data_source_ref.map(|named| {
            Box::new(DataSource {
                group: kept(named.api_group.as_deref().unwrap_or_default()),
                kind: kept(&named.kind),
                name: kept(&named.name),
                has_namespace: named.namespace.is_some(),
            })
        });
        let volume = spec.volume_name.map(|name| kept(&name));
        let is_held_by = |finalizer: &str| {
            let mut all = claim.metadata.finalizers.iter().flatten();
            all.any(|one| one == finalizer)
        };
        ClaimSummary {
            is_ending: claim.metadata.deletion_timestamp.is_some(),
            held_by: HeldBy {
                swap: is_held_by(HELD_BY_SWAP),
                populator: is_held_by(HELD_BY_POPULATOR),
            },
            names: claim.metadata.into(),
            kept_by,
            source,
            volume,
            binding,
            sizes,
            refused,
            is_resizing,
            woken_for,
        }
    }

    fn identity(&self) -> &ObjectNames {
        &self.names
    }

    fn identity_mut(&mut self) -> &mut ObjectNames {
        &mut self.names
    }
}

/// A StatefulSet, reduced to its version and its replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct StatefulSetVersion {
    /// Names and version of the StatefulSet.
    pub names: ObjectNames,
    /// Number of replicas.
    pub replicas: Option<i32>,
}

impl Record for StatefulSetVersion {
    type Object = StatefulSet;
    type ObjectIdentity = ObjectNames;

    fn of(set: StatefulSet) -> Self {
        let replicas = set.spec.and_then(|spec| spec.replicas);
        StatefulSetVersion { names: set.metadata.into(), replicas }
    }

    fn identity(&self) -> &ObjectNames {
        &self.names
    }

    fn identity_mut(&mut self) -> &mut ObjectNames {
        &mut self.names
    }
}

/// A Deployment, reduced to its version.
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentVersion {
    /// Names and version of the Deployment.
    pub names: ObjectNames,
}

impl Record for DeploymentVersion {
    type Object = Deployment;
    type ObjectIdentity = ObjectNames;

    fn of(made: Deployment) -> Self {
        DeploymentVersion { names: made.metadata.into() }
    }

    fn identity(&self) -> &ObjectNames {
        &self.names
    }

    fn identity_mut(&mut self) -> &mut ObjectNames {
        &mut self.names
    }
}

/// A pod at the scheduling gate, or created by Pliant: a watch only triggers a reconcile.
#[derive(Resource, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[resource(inherit = Pod)]
#[serde(from = "PodSummary")]
pub struct PodVersion {
    /// Metadata and version.
    pub metadata: ObjectMeta,
    /// True if it carries our gate, so that it is on no node.
    pub is_gated: bool,
}

impl From<PodSummary> for PodVersion {
    fn from(pod: PodSummary) -> Self {
        let is_gated = pod.is_gated();
        PodVersion { metadata: ObjectMeta { finalizers: None, ..names(pod.metadata) }, is_gated }
    }
}

/// A pod, reduced to its claims, its scheduling and its state.
#[derive(Resource, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[resource(inherit = Pod)]
#[serde(from = "WholePod")]
pub struct PodSummary {
    /// Names, labels and owners.
    pub metadata: ObjectMeta,
    /// Specification of the pod.
    pub spec: Option<Box<PodSpecSummary>>,
    /// State of the pod.
    pub status: Option<Box<PodStatusSummary>>,
}

/// Decoded pod, before its metadata is cut.
#[derive(Deserialize)]
struct WholePod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Box<PodSpecSummary>>,
    #[serde(default)]
    status: Option<Box<PodStatusSummary>>,
}

/// Specification of a pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecSummary {
    /// The nodes that it wants.
    pub affinity: Option<Box<AffinitySummary>>,
    /// The node that it is on.
    pub node_name: Option<String>,
    /// The labels that a node is to have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Scheduling gates.
    pub scheduling_gates: Option<Vec<PodSchedulingGate>>,
    /// Termination grace period, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// The taints of nodes that it takes.
    pub tolerations: Option<Vec<Toleration>>,
    /// Volumes that are claims, or become some.
    pub volumes: Option<Vec<VolumeSummary>>,
}

/// Affinity of a pod, only for nodes.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AffinitySummary {
    /// Node affinity.
    pub node_affinity: Option<NodeAffinitySummary>,
}

/// Required node affinity of a pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinitySummary {
    /// Alternative terms.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// A volume of a pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSummary {
    /// Name of the volume in the pod.
    pub name: String,
    /// The claim that it is.
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// There if it becomes a claim with the pod.
    pub ephemeral: Option<Ephemeral>,
}

/// A volume that becomes a claim with its pod.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ephemeral {}

/// State of a pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatusSummary {
    /// Phase of the pod.
    pub phase: Option<String>,
    /// Conditions of the pod.
    pub conditions: Option<Vec<PodConditionSummary>>,
    /// An init container that was made for it, if one was.
    pub init_container_statuses: Option<Vec<ContainerSummary>>,
}

impl PodStatusSummary {
    /// Returns true if an init container was created: it may have written.
    pub fn has_made_init_container(&self) -> bool {
        self.init_container_statuses.iter().flatten().any(ContainerSummary::is_made)
    }
}

/// A container of a pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerSummary {
    /// Container id; empty before it was created.
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
}

impl ContainerSummary {
    fn is_made(&self) -> bool {
        self.container_id.as_deref().is_some_and(|id| !id.is_empty())
    }
}

/// Condition of a pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConditionSummary {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Time of its last transition.
    pub last_transition_time: Option<Time>,
}

impl From<WholePod> for PodSummary {
    fn from(pod: WholePod) -> Self {
        let (labels, owners) = (pod.metadata.labels.clone(), pod.metadata.owner_references.clone());
        let created = pod.metadata.creation_timestamp.clone();
        let metadata = ObjectMeta {
            finalizers: None,
            labels,
            owner_references: owners,
            creation_timestamp: created,
            ..names(pod.metadata)
        };
        let spec = pod.spec.map(|mut spec| {
            if let Some(volumes) = &mut spec.volumes {
                volumes.retain(VolumeSummary::is_claim);
                volumes.shrink_to_fit();
            }
            spec
        });
        let status = pod.status.map(|mut status| {
            if let Some(made) = &mut status.init_container_statuses {
                made.retain(ContainerSummary::is_made);
                made.truncate(1);
                made.shrink_to_fit();
            }
            status
        });
        PodSummary { metadata, spec, status }
    }
}

impl VolumeSummary {
    fn is_claim(&self) -> bool {
        self.persistent_volume_claim.is_some() || self.ephemeral.is_some()
    }
}

impl PodSummary {
    /// True if it carries our gate, so that it is on no node.
    pub fn is_gated(&self) -> bool {
        let spec = self.spec.as_ref();
        let gates = spec.into_iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        api::holds_at_gate(gates, spec.and_then(|spec| spec.node_name.as_ref()))
    }

    /// True if it has a claim, or is one of those that a StatefulSet makes: no other pod is asked for.
    pub fn is_read(&self) -> bool {
        let mut volumes = self.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes.next().is_some() || api::controlling_stateful_set(self).is_some()
    }
}

/// Reduces metadata to the names of an object, its version and its finalizers.
fn names(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        deletion_timestamp: metadata.deletion_timestamp,
        finalizers: metadata.finalizers,
        ..ObjectMeta::default()
    }
}

fn kept(text: &str) -> Box<str> {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

/// Returns about how many bytes of memory an object takes: the length of what `Debug` writes. That names each field,
/// also one that is empty, so it grows with the memory and not only with the text.
pub fn weight(object: &impl Debug) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    // A writer that only counts does not fail.
    let _ = write!(count, "{object:?}");
    count.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn claim(text: &str, count: usize) -> Value {
        let many = |prefix: &str| -> BTreeMap<String, String> {
            (0..count).map(|at| (format!("{prefix}{at}"), text.to_owned())).collect()
        };
        let mut notes = many("pliant.io/note");
        notes.extend(
            [RESIZER_WOKEN_FOR, claim::VOLUME].map(|key| (key.to_owned(), text.to_owned())),
        );
        let mut labels = many("pliant.io/label");
        labels.insert(KEPT_BY.to_owned(), text.to_owned());
        let finalizers = (0..count).map(|at| format!("pliant.io/{at}"));
        let finalizers: Vec<String> =
            finalizers.chain([HELD_BY_SWAP.to_owned(), HELD_BY_SWAP.to_owned()]).collect();
        let owners = json!({"apiVersion": text, "kind": text, "name": text, "uid": text});
        json!({
            "metadata": {"name": "data-db-0", "namespace": "shop", "uid": "u", "annotations": notes,
                         "labels": labels, "finalizers": finalizers, "generateName": text,
                         "ownerReferences": vec![owners; count]},
            "spec": {"accessModes": vec![text; count], "storageClassName": text, "volumeName": text,
                     "dataSourceRef": {"apiGroup": text, "kind": text, "name": text,
                                       "namespace": text},
                     "resources": {"requests": {"storage": "1Gi", "other": "1"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                       "conditions": vec![json!({"type": "Resizing", "status": text}); count]},
        })
    }

    fn pod(text: &str, count: usize) -> Value {
        let container = json!({"name": "c", "image": text, "env": [{"name": "V", "value": text}]});
        let names: Vec<String> = (0..count).map(|at| format!("v{at}")).collect();
        let labels: BTreeMap<&String, &str> = names.iter().map(|name| (name, text)).collect();
        let volumes: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": text}}))
            .collect();
        let terms =
            json!({"matchExpressions": [{"key": text, "operator": "In", "values": [text]}]});
        json!({
            "metadata": {"name": "db-0", "namespace": "shop", "uid": "u", "labels": labels,
                         "annotations": {"pliant.io/note": text}},
            "spec": {
                "containers": vec![container; count], "nodeName": "alpha", "volumes": volumes,
                "schedulingGates": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
                "tolerations": vec![json!({"key": text, "value": text}); count],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": vec![terms; count]}}},
            },
            "status": {"phase": "Running", "message": text},
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn an_object_of_any_size_takes_no_more_than_4_kib(
            text in "[a-zß€]{0,3000}", count in 0_usize..300
        ) {
            let claim = ClaimSummary::of(serde_json::from_value(claim(&text, count)).unwrap());
            prop_assert!(weight(&claim) < 4096, "{} of {claim:?}", weight(&claim));
            prop_assert_eq!(claim.held_by, HeldBy { swap: true, populator: false });
            let pod: PodVersion = serde_json::from_value(pod(&text, count)).unwrap();
            prop_assert!(weight(&pod) < 4096, "{} of {pod:?}", weight(&pod));
        }
    }

    #[test]
    fn what_is_read_of_a_claim_is_kept() {
        let claim = ClaimSummary::of(serde_json::from_value(claim("db", 1)).unwrap());
        let source = DataSource {
            group: "db".into(),
            kind: "db".into(),
            name: "db".into(),
            has_namespace: true,
        };
        assert_eq!(claim.source.as_deref(), Some(&source));
        let texts = [&claim.kept_by, &claim.volume, &claim.woken_for];
        assert_eq!(texts.map(|text| text.as_deref()), [Some("db"); 3]);
        let one = "1Gi".parse().map(Quantity).unwrap();
        let sizes = claim.sizes.unwrap();
        assert_eq!((sizes.requested, sizes.capacity, claim.binding), (one, one, Binding::Bound));
    }
}
