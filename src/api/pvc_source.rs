//! A claim whose content another claim is filled with.

#![allow(clippy::struct_excessive_bools)] // Each is a wish of its own; what is derived has them, too.

use k8s_openapi::api::core::v1::Toleration;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::PopulatorStatus;
use crate::api::dns_name::{DNS_LABEL, DNS_NAME};

/// A claim that new claims are filled from: they name this object in `dataSourceRef`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "PvcSourcePopulator",
    plural = "pvcsourcepopulators",
    shortname = "pvcsrc",
    category = "pliant",
    namespaced,
    doc = "A claim that new claims are filled from. A claim names this object in its `dataSourceRef`, with any size that the content fits into and any class; it is bound as soon as it has the content.",
    status = "PopulatorStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.sourcePvcRef.name"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".status.claims[0].claim"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.claims[0].phase"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.claims[0].progress"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.claims[0].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PvcSourcePopulatorSpec {
    /// The claim whose content is copied. It cannot change: what is copied from must not change
    /// midway.
    #[x_kube(validation = Rule::new("self == oldSelf").message("sourcePvcRef cannot change; make another PvcSourcePopulator"))]
    pub source_pvc_ref: SourcePvcRef,
    /// Whether it is copied although a pod that may write to it runs. It must not write while it is
    /// copied and compared: what changes meanwhile makes a try fail, and the next one carries on.
    /// Without this the copy waits until no pod uses the source.
    #[serde(default)]
    pub while_in_use: bool,
    /// Whether the copy begins before any pod uses the new claim. It is made on the node of the source
    /// then, and pods of the new claim will run there. Without this the copy of a class that waits for
    /// its first consumer begins when a pod of the new claim is scheduled.
    #[serde(default)]
    pub start_early: bool,
    /// Whether no copy is begun; volumes are made meanwhile. A copy that is under way is called off, and
    /// the next one carries on.
    #[serde(default)]
    pub paused: bool,
    /// Whether, while it is paused, it is copied ahead in rounds although pods use the source. Little is
    /// left then for the last copy, which is made, and compared, when it is not paused any more.
    #[serde(default)]
    pub copy_ahead: bool,
    /// Which contents are compared by the last copy. `All`: those of both sides. `Changed`: those that have
    /// changed since a round of the copy ahead compared them, or in the minute before that; it takes the
    /// times of change for true, which the kernel sets. All else of each file is always compared, and so is the
    /// whole of a raw device and of what is sent to another node.
    #[serde(default)]
    pub compare: Compare,
    /// Whether, while it is paused and nothing is copied, a pod like the one that will copy is run once with the
    /// new volume and without the source: what forbids such a pod, or keeps it from running, is known before the
    /// source is taken from its pods.
    #[serde(default)]
    pub probe: bool,
    /// What the pods have that copy, as the pods for which they do it.
    #[serde(default, skip_serializing_if = "PopulatorPod::is_plain")]
    pub populator_pod: PopulatorPod,
}

/// What pods have that fill a volume, beside what each of them has.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PopulatorPod {
    /// Taints that they tolerate, beside all with effect `NoSchedule`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Name of their PriorityClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub priority_class_name: Option<String>,
}

impl PopulatorPod {
    fn is_plain(&self) -> bool {
        *self == PopulatorPod::default()
    }
}

/// Which contents of a claim are compared when nobody writes to it any more.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum Compare {
    /// Those of both sides.
    #[default]
    All,
    /// Those that have changed.
    Changed,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// A claim by its name.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourcePvcRef {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub name: String,
    /// Namespace of the claim: that of this object, which it is without this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))]
    pub namespace: Option<String>,
}
