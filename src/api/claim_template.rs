//! What the claims of a workload are to be.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Quantity;
use crate::api::dns_name::{DNS_LABEL, DNS_NAME_OR_NONE};
use crate::api::quantity::as_written;

/// A claim, as `volumeClaimTemplates` of a StatefulSet has it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// `v1`, if it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self == 'v1'").message("apiVersion is v1"))]
    pub api_version: Option<String>,
    /// `PersistentVolumeClaim`, if it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self == 'PersistentVolumeClaim'").message("kind is PersistentVolumeClaim"))]
    pub kind: Option<String>,
    /// What the claims are called and carry.
    pub metadata: TemplateMetadata,
    /// What they ask for.
    pub spec: TemplateSpec,
}

/// What claims are called and carry.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Name of the volume in `volumeMounts` of the pods, and the first part of the names of the claims.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the name of the template cannot change; make another PvcAutoscaler"))]
    pub name: String,
    /// Labels of the claims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What claims ask for.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.dataSource) && !has(self.dataSourceRef)").message("the template takes no dataSource and no dataSourceRef, for each of its claims would be filled with the same: make the claims that are to have data yourself, before their pods, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0, and they are kept as they are"),
    validation = Rule::new("!has(self.selector)").message("the template takes no selector: a claim that is to have a certain PersistentVolume is made by hand, before its pod, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0; else remove it"),
    validation = Rule::new("!has(self.volumeName)").message("the template takes no volumeName, for its claims cannot share a PersistentVolume: make the claim of that one yourself, before its pod, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0")
)]
pub struct TemplateSpec {
    /// Who may use the volume at the same time, such as `ReadWriteOnce`.
    #[schemars(length(min = 1, max = 4), with = "Vec<AccessMode>")]
    pub access_modes: Vec<String>,
    /// How large it is.
    pub resources: TemplateResources,
    /// The StorageClass; without one, the default class of the cluster when a claim is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_NAME_OR_NONE))]
    pub storage_class_name: Option<String>,
    /// `Filesystem`, or `Block` for a raw device. It cannot change: one cannot be copied to the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("volumeMode cannot change: a file system cannot be copied to a raw device; make another PvcAutoscaler"))]
    pub volume_mode: Option<VolumeMode>,
    /// The VolumeAttributesClass, if the driver has such classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_NAME_OR_NONE))]
    pub volume_attributes_class_name: Option<String>,
    /// Refused: claims are made empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub data_source: Option<Refused>,
    /// Refused: claims are made empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub data_source_ref: Option<Refused>,
    /// Refused: the StorageClass makes the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub selector: Option<Refused>,
    /// Refused: the StorageClass makes the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), with = "String")]
    pub volume_name: Option<String>,
}

/// What a claim can have and the template cannot. The API server drops what a schema does not know, and
/// the claim would silently be made without it; so the schema knows it, and a rule refuses it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub struct Refused {}

/// Who may use a volume at the same time.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema knows them: a claim is compared as it is written")]
#[expect(clippy::enum_variant_names, reason = "as Kubernetes has them")]
enum AccessMode {
    /// All pods of one node.
    ReadWriteOnce,
    /// All pods, to read.
    ReadOnlyMany,
    /// All pods.
    ReadWriteMany,
    /// One pod.
    ReadWriteOncePod,
}

/// How a workload sees a volume.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum VolumeMode {
    /// As a directory.
    #[default]
    Filesystem,
    /// As a raw device.
    Block,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// How large the volume of a claim is.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.limits)").message("the template takes no resources.limits: write the size as resources.requests.storage, and how large claims become by themselves as autoscale.maxSize")
)]
pub struct TemplateResources {
    /// What is asked for.
    pub requests: TemplateRequests,
    /// Refused: volumes have the size that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub limits: Option<Refused>,
}

/// What is asked for.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct TemplateRequests {
    /// The size, such as `4Gi`.
    #[schemars(schema_with = "as_written")]
    pub storage: Quantity,
}
