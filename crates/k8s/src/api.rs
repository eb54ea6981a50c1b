//! The records that Pliant keeps in Kubernetes, one file a kind or a part of one.
//!
//! LVM with its tags is the truth about volumes, and a PersistentVolume is Kubernetes' record of one.
//! What is here is about other things: a piece of work for one node ([`VolumeRequest`]), what a node
//! has ([`NodeStorage`]), what the administrator wants of the nodes' disks ([`StoragePool`]), what claims
//! are filled from ([`ArchivePopulator`], [`PvcSourcePopulator`]), and the claims that a workload is to
//! have ([`PvcAutoscaler`]). The field texts are what `kubectl
//! explain` shows.

#[allow(clippy::duplicated_attributes)] // Each print column is one.
mod archive;
mod autoscale;
mod claim_template;
mod condition;
mod dns_name;
mod duration;
mod fence_status;
mod fs_type;
mod gate;
mod longest;
mod maintenance_window;
#[allow(clippy::duplicated_attributes)] // As above.
mod node_storage;
mod ownership;
mod percent_or_bytes;
#[allow(clippy::duplicated_attributes)] // As above.
mod pool;
mod population_status;
#[allow(clippy::duplicated_attributes)] // As above.
mod pvc_autoscaler;
#[allow(clippy::duplicated_attributes)] // As above.
mod pvc_source;
mod quantity;
mod stateful_set_name;
mod status_bounds;
mod swap;
mod unknown;
mod usage_status;
mod volume_populator;
#[allow(clippy::duplicated_attributes)] // As above.
mod volume_request;
mod workload;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

pub use archive::{ArchivePopulator, ArchivePopulatorSpec, ConfigMapRef};
pub use autoscale::{Autoscale, Shrink};
pub use claim_template::{
    ClaimTemplate, NotSupported, TemplateMetadata, TemplateRequests, TemplateResources,
    TemplateSpec, VolumeMode,
};
pub use condition::{Judged, READY, STALLED};
pub use dns_name::{DnsName, NoDnsName};
pub use duration::{Span, SpanError};
pub use fence_status::{FenceState, FenceStatus};
pub use fs_type::FsType;
pub use gate::{GATE, controlling_stateful_set, holds_at_gate, is_gated, ordinal_of};
pub use longest::{LONGEST_LINE, LONGEST_SENTENCE};
pub use maintenance_window::{MaintenanceWindow, TimeOfDay, TimeZone, Weekday, WindowError};
#[cfg(any(test, feature = "testing"))]
pub use node_storage::ready_condition;
pub use node_storage::{
    DiskState, DiskStatus, GroupStatus, Health, INVENTORY_COMPLETE, LayoutRoom, MOST_SNAPSHOTS,
    NodeStorage, NodeStorageSpec, NodeStorageStatus, OperationStatus, OperationType,
    PoolStatus as PoolOnNode, SnapshotOnNode, ThinPoolStatus, TransferEndpoint, UsageBefore,
    VolumeHealthStatus, VolumeOnNode, VolumeState, VolumeUsage,
};
pub use ownership::Rival;
pub use percent_or_bytes::{Share, ShareError};
pub use pool::{
    PoolDisk, PoolNode, StoragePool, StoragePoolSpec, StoragePoolStatus, ThinDiscards,
    ThinMetadata, ThinPoolSpec, WhenThinPoolFull,
};
pub use population_status::{Filling, FillingPhase, PopulatorStatus, PreCopy};
pub use pvc_autoscaler::{
    Abort, AbortedSwap, AutoscaledSize, AutoscalerMode, AutoscalerPhase, ClaimNamePolicy,
    MOST_ORDINALS, MOST_RETAINED, OrdinalStatus, PeakUsage, PvcAutoscaler, PvcAutoscalerSpec,
    PvcAutoscalerStatus, Reactivate, Rollback, RollbackStatus, Rollout,
};
pub use pvc_source::{
    PopulatorPod, PvcSourcePopulator, PvcSourcePopulatorSpec, SourcePvcRef, Verification,
};
pub use quantity::Quantity;
pub use stateful_set_name::{NamesStatefulSet, StatefulSetName};
pub use swap::{AbortReason, InPlace, InPlacePhase, LastSwap, Retained, Swap, SwapPhase};
pub use unknown::is_understood;
pub use usage_status::UsageStatus;
pub use volume_populator::{SourceKind, VolumePopulator};
pub use volume_request::{
    ContentPeer, ContentSource, ContentStatus, Create, Delete, DeleteSnapshot, Expand, Failure,
    Inspect, InspectionStatus, Operation, Phase, Restore, SendContent, ShrinkTo, TakeSnapshot,
    Unpin, VolumeRequest, VolumeRequestSpec, VolumeRequestStatus,
};
pub use workload::{PodSelector, PodsOf, Workload};

/// The annotation of a definition that says of which version of Pliant it is.
pub const DEFINITION_VERSION: &str = "pliant.io/version";

/// Returns the definitions of all kinds of ours, as they are installed. [`VolumePopulator`] is
/// Kubernetes' own, and a cluster may have it already.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        definition::<ArchivePopulator>(),
        definition::<NodeStorage>(),
        definition::<PvcAutoscaler>(),
        definition::<PvcSourcePopulator>(),
        definition::<StoragePool>(),
        definition::<VolumeRequest>(),
    ]
}

fn definition<K: CustomResourceExt + JsonSchema>() -> CustomResourceDefinition {
    let mut definition = json!(K::crd());
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let declared = settings.into_generator().into_root_schema_for::<K>();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    describe_by_field(schema, declared.as_value());
    as_the_server_keeps_it(definition)
}

/// Describes each field by its own text, `declared`: for an optional enum kube puts that of the enum in its place.
fn describe_by_field(schema: &mut Value, declared: &Value) {
    if declared["anyOf"].is_array() && declared["description"].is_string() {
        schema["description"] = declared["description"].clone();
    }
    for (name, field) in declared["properties"].as_object().into_iter().flatten() {
        if let Some(there) = schema["properties"].get_mut(name) {
            describe_by_field(there, field);
        }
    }
    for held in ["items", "additionalProperties"] {
        if let (Some(there), Some(held)) = (schema.get_mut(held), declared.get(held)) {
            describe_by_field(there, held);
        }
    }
    // Kube makes one object of the choices.
    for choice in ["anyOf", "oneOf"].iter().filter_map(|word| declared[word].as_array()).flatten() {
        describe_by_field(schema, choice);
    }
}

/// Write a definition as the API server keeps it and as `kubectl explain` reads well.
///
/// It leaves out `nullable: false`, as the server does: else whoever applies a definition after another is in
/// conflict with that one, helm for example after kubectl. And the lines of the code are no lines of a
/// sentence: `explain` breaks them itself, and only an empty one is kept.
fn as_the_server_keeps_it(mut definition: Value) -> CustomResourceDefinition {
    tidy(&mut definition);
    bound_conditions(&mut definition);
    definition["metadata"]["annotations"] = json!({DEFINITION_VERSION: env!("CARGO_PKG_VERSION")});
    serde_json::from_value(definition).expect("a definition")
}

fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "nullable" || *value != Value::Bool(false));
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = in_paragraphs(text);
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(values) => values.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Give each condition the limits that the API has in every definition of other projects: k8s-openapi has only the
/// types of its fields.
fn bound_conditions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_condition = ["lastTransitionTime", "reason", "status", "type"]
                .iter()
                .all(|name| fields.contains_key(*name));
            if is_condition {
                limit(&mut fields["type"], &json!({"pattern": CONDITION_TYPE, "maxLength": 316}));
                limit(&mut fields["status"], &json!({"enum": ["True", "False", "Unknown"]}));
                let reason = json!({"pattern": REASON, "minLength": 1, "maxLength": 1024});
                limit(&mut fields["reason"], &reason);
                limit(&mut fields["message"], &json!({"maxLength": 32768}));
                limit(&mut fields["observedGeneration"], &json!({"minimum": 0}));
            }
            fields.values_mut().for_each(bound_conditions);
        }
        Value::Array(values) => values.iter_mut().for_each(bound_conditions),
        _ => {}
    }
}

/// What the type of a condition may be.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// What the reason of a condition may be.
const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Add limits to the schema of a field.
fn limit(field: &mut Value, limits: &Value) {
    if let (Value::Object(field), Value::Object(limits)) = (field, limits) {
        field.extend(limits.clone());
    }
}

/// Leave out the default of a field of a status: absent means that nobody has observed it yet.
fn without_default(schema: &mut Schema) {
    schema.remove("default");
}

/// A text whose only line breaks are those between paragraphs.
fn in_paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests;
