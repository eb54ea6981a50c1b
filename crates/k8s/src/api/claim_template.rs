//! The desired claims of a workload.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::api::Quantity;
use crate::api::dns_name::{DNS_LABEL, DNS_NAME_OR_NONE};
use crate::api::quantity::as_written;

/// The most labels, or annotations, that a template gives its claims.
const MOST_MARKS: usize = 64;

/// The longest value of a label, as the API server takes it.
const LONGEST_LABEL_VALUE: usize = 63;

/// A claim, as `volumeClaimTemplates` of a StatefulSet has it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// API version of the claim: `v1`. Optional, as in a StatefulSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self == 'v1'").message("apiVersion is v1"))]
    pub api_version: Option<String>,
    /// Kind of the claim: `PersistentVolumeClaim`. Optional, as in a StatefulSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self == 'PersistentVolumeClaim'").message("kind is PersistentVolumeClaim"))]
    pub kind: Option<String>,
    /// Name, labels and annotations of the claims.
    pub metadata: TemplateMetadata,
    /// Desired properties of the claims.
    pub spec: TemplateSpec,
}

/// Name, labels and annotations of claims.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Name of the volume in `volumeMounts` of the pods, and the first part of the names of the claims. A pod template
    /// declares a volume of that name as a placeholder, whose claim has the same name and need not exist. Immutable.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the name of the template cannot change; make another PvcAutoscaler"))]
    pub name: String,
    /// Labels of the claims, at most 64. A label that is removed here stays on them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MOST_MARKS), transform = as_label_values)]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claims, at most 64. An annotation that is removed here stays on them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MOST_MARKS))]
    pub annotations: BTreeMap<String, String>,
}

/// Bounds the values of a map of labels.
pub(super) fn as_label_values(map: &mut Schema) {
    if let Some(values) = map.get_mut("additionalProperties") {
        values["maxLength"] = LONGEST_LABEL_VALUE.into();
    }
}

/// Desired properties of claims.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.dataSource) && !has(self.dataSourceRef)").message("the template takes no dataSource and no dataSourceRef, for each of its claims would be populated with the same: make the claims that are to have data yourself, before their pods, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0, and they stay as they are"),
    validation = Rule::new("!has(self.selector)").message("the template takes no selector: a claim that is to have a certain PersistentVolume is made by hand, before its pod, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0; else remove it"),
    validation = Rule::new("!has(self.volumeName)").message("the template takes no volumeName, for its claims cannot share a PersistentVolume: make the claim of that one yourself, before its pod, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0")
)]
pub struct TemplateSpec {
    /// Access modes of the volume: which nodes and pods can use it at the same time, such as `ReadWriteOnce`.
    #[schemars(
        length(min = 1, max = 4),
        with = "Vec<AccessMode>",
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub access_modes: Vec<String>,
    /// Requested resources: the size of the claims.
    pub resources: TemplateResources,
    /// Name of the StorageClass. Another name here migrates the claims. Default: the default class of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_NAME_OR_NONE))]
    pub storage_class_name: Option<String>,
    /// `Filesystem`, or `Block` for a raw block volume. Immutable: one cannot be copied to the other. Default: `Filesystem`.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("volumeMode cannot change: a file system cannot be copied to a raw block volume; make another PvcAutoscaler"))]
    pub volume_mode: VolumeMode,
    /// Name of the VolumeAttributesClass, for drivers that support it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_NAME_OR_NONE))]
    pub volume_attributes_class_name: Option<String>,
    /// Not supported: claims are created empty, and the API server rejects this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NotSupported")]
    pub data_source: Option<NotSupported>,
    /// Not supported: claims are created empty, and the API server rejects this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NotSupported")]
    pub data_source_ref: Option<NotSupported>,
    /// Not supported: the StorageClass provisions the volumes, and the API server rejects this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NotSupported")]
    pub selector: Option<NotSupported>,
    /// Not supported: the StorageClass provisions the volumes, and the API server rejects this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), with = "String")]
    pub volume_name: Option<String>,
}

/// What a claim can have and the template cannot. The API server drops what a schema does not know, and
/// the claim would silently be made without it; so the schema knows it, and a rule refuses it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub struct NotSupported {}

/// Who may use a volume at the same time.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema knows them: a claim is read as it is written")]
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
    /// As a raw block volume.
    Block,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// Requested resources of a claim.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.limits)").message("the template takes no resources.limits: write the size as resources.requests.storage, and how large claims become automatically as autoscale.maxSize")
)]
pub struct TemplateResources {
    /// Minimum resources of the claims.
    pub requests: TemplateRequests,
    /// Not supported: volumes have the requested size, and the API server rejects this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NotSupported")]
    pub limits: Option<NotSupported>,
}

/// Minimum resources of a claim.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct TemplateRequests {
    /// Size of the claims, such as `4Gi`. A larger size expands them, a smaller one shrinks them.
    #[schemars(schema_with = "as_written")]
    pub storage: Quantity,
}
