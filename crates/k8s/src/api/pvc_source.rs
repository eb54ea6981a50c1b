//! A claim whose content populates other claims.

#![allow(clippy::struct_excessive_bools)] // Each is a wish of its own; what is derived has them, too.

use k8s_openapi::api::core::v1::Toleration;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::PopulatorStatus;
use crate::api::dns_name::{DNS_LABEL, DNS_NAME};

/// A claim that populates new claims: they name this object in `dataSourceRef`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "PvcSourcePopulator",
    plural = "pvcsourcepopulators",
    shortname = "pvcsrc",
    category = "pliant",
    namespaced,
    doc = "A claim whose content populates new claims. A new claim names this object in its `dataSourceRef`, with any size that the content fits into and any StorageClass. It is bound as soon as it has the content.",
    status = "PopulatorStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Claims", type_ = "integer", json_path = ".status.claimCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Source",
        type_ = "string",
        json_path = ".spec.sourcePvcRef.name",
        priority = "1"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PvcSourcePopulatorSpec {
    /// Claim whose content is copied. Immutable, so that the source does not change during a copy.
    #[x_kube(validation = Rule::new("self == oldSelf").message("sourcePvcRef cannot change; make another PvcSourcePopulator"))]
    pub source_pvc_ref: SourcePvcRef,
    /// True if the source is copied although a pod that can write to it runs. The pod must not write during the copy and
    /// its verification: a change makes the attempt fail, and the next one continues. Default: false, which waits until
    /// no pod uses the source.
    #[serde(default)]
    pub allow_in_use_source: bool,
    /// True if the copy waits until a pod of the new claim is scheduled, where the StorageClass has `WaitForFirstConsumer`.
    /// If false, the copy starts at once on the node of the source, where pods of the new claim then run. Default: true.
    #[serde(default = "waits")]
    #[schemars(default = "waits")]
    pub wait_for_consumer: bool,
    /// True if no copy starts; volumes are created meanwhile. A running copy is cancelled, and the next one continues it.
    /// Default: false.
    #[serde(default)]
    pub paused: bool,
    /// True if, while `paused` is true, the source is copied in several passes although pods use it. The final copy, which
    /// starts and is verified when `paused` becomes false, then copies only what changed since. Default: false.
    #[serde(default)]
    pub pre_copy: bool,
    /// Which contents the final copy verifies. `Full`: all, on both sides. `ChangedOnly`: those that have changed since a
    /// pass of the pre-copy verified them, or in the minute before, by the modification times that the kernel sets;
    /// without a pre-copy, that is all of them.
    /// Metadata, raw block volumes and copies to another node are always verified in full. Default: `Full`.
    #[serde(default)]
    pub verification: Verification,
    /// True if, while `paused` is true and nothing is copied, a test pod runs once with the new volume and without the
    /// source. It shows what forbids or prevents the populator pod before the source is detached. Default: false.
    #[serde(default)]
    pub probe: bool,
    /// Settings of the populator pods, as their workload needs them. Default: none.
    #[serde(default, skip_serializing_if = "PopulatorPod::is_plain")]
    pub populator_pod: PopulatorPod,
}

impl Default for PvcSourcePopulatorSpec {
    fn default() -> PvcSourcePopulatorSpec {
        PvcSourcePopulatorSpec {
            source_pvc_ref: SourcePvcRef::default(),
            allow_in_use_source: false,
            wait_for_consumer: waits(),
            paused: false,
            pre_copy: false,
            verification: Verification::default(),
            probe: false,
            populator_pod: PopulatorPod::default(),
        }
    }
}

fn waits() -> bool {
    true
}

/// Settings of populator pods, in addition to those that each of them has.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PopulatorPod {
    /// Taints that the pods tolerate, in addition to all with effect `NoSchedule`; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<Toleration>,
    /// Name of the PriorityClass of the pods. Default: that of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub priority_class_name: Option<String>,
}

impl PopulatorPod {
    fn is_plain(&self) -> bool {
        *self == PopulatorPod::default()
    }
}

/// Which contents of a claim are verified when no one writes to it any more.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum Verification {
    /// All, on both sides.
    #[default]
    Full,
    /// Those that have changed.
    ChangedOnly,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// A claim, by name and namespace.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourcePvcRef {
    /// Name of the claim that is copied.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub name: String,
    /// Namespace of the claim. It must be that of this object. Default: the namespace of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))]
    pub namespace: Option<String>,
}
