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
mod elder;
mod filling;
mod gate;
mod maintenance_window;
#[allow(clippy::duplicated_attributes)] // As above.
mod node_storage;
#[allow(clippy::duplicated_attributes)] // As above.
mod pool;
#[allow(clippy::duplicated_attributes)] // As above.
mod pvc_autoscaler;
#[allow(clippy::duplicated_attributes)] // As above.
mod pvc_source;
mod quantity;
mod share;
mod span;
mod stateful_set_name;
mod status_bounds;
mod swap;
mod unknown;
mod volume_populator;
#[allow(clippy::duplicated_attributes)] // As above.
mod volume_request;
mod workload;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

pub use archive::{ArchivePopulator, ArchivePopulatorSpec, ConfigMapRef};
pub use autoscale::{Autoscale, Shrink};
pub use claim_template::{
    ClaimTemplate, Refused, TemplateMetadata, TemplateRequests, TemplateResources, TemplateSpec,
    VolumeMode,
};
pub(crate) use condition::{Judged, READY};
pub use dns_name::{DnsName, NoDnsName};
pub use elder::Rival;
pub use filling::{Filling, FillingPhase, PopulatorStatus, PreCopy};
pub use gate::{GATE, controlling_stateful_set, holds_at_gate, is_gated, ordinal_of};
pub use maintenance_window::{MaintenanceWindow, TimeOfDay, UtcOffset, Weekday, WindowError};
pub use node_storage::{
    DiskState, DiskStatus, GroupStatus, Health, INVENTORY_COMPLETE, LayoutRoom, NodeStorage,
    NodeStorageSpec, NodeStorageStatus, PoolStatus as PoolOnNode, UsageBefore, VolumeHealthStatus,
    VolumeOnNode, VolumeState, VolumeUsage, WorkStatus,
};
pub use pool::{PoolDisk, PoolNode, StoragePool, StoragePoolSpec, StoragePoolStatus};
pub use pvc_autoscaler::{
    Abort, AbortedSwap, AutoscaledSize, AutoscalerMode, AutoscalerPhase, ClaimNamePolicy,
    MOST_ORDINALS, MOST_RETAINED, OrdinalStatus, PeakUsage, PvcAutoscaler, PvcAutoscalerSpec,
    PvcAutoscalerStatus, Reopen, Rollback, RollbackStatus, Rollout,
};
pub use pvc_source::{
    PopulatorPod, PvcSourcePopulator, PvcSourcePopulatorSpec, SourcePvcRef, Verification,
};
pub use quantity::Quantity;
pub use share::{Share, ShareError};
pub use span::{Span, SpanError};
pub use stateful_set_name::{NamesStatefulSet, StatefulSetName};
pub use swap::{Cancellation, InPlace, InPlacePhase, LastSwap, Retained, Swap, SwapPhase};
pub use unknown::is_understood;
pub use volume_populator::{SourceKind, VolumePopulator};
pub use volume_request::{
    Create, Delete, Expand, Failure, FenceState, FenceStatus, Inspect, InspectionStatus, Operation,
    Phase, ShrinkTo, Unpin, UsageStatus, VolumeRequest, VolumeRequestSpec, VolumeRequestStatus,
};
pub use workload::{PodsOf, Workload};

/// The annotation of a definition that says of which version of Pliant it is.
pub const DEFINITION_VERSION: &str = "pliant.io/version";

/// Returns the definitions of all kinds of ours, as they are installed. [`VolumePopulator`] is
/// Kubernetes' own, and a cluster may have it already.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let all = [
        ArchivePopulator::crd(),
        NodeStorage::crd(),
        PvcAutoscaler::crd(),
        PvcSourcePopulator::crd(),
        StoragePool::crd(),
        VolumeRequest::crd(),
    ];
    all.iter().map(as_the_server_keeps_it).collect()
}

/// Write a definition as the API server keeps it and as `kubectl explain` reads well.
///
/// It leaves out `nullable: false`, as the server does: else whoever applies a definition after another is in
/// conflict with that one, helm for example after kubectl. And the lines of the code are no lines of a
/// sentence: `explain` breaks them itself, and only an empty one is kept.
fn as_the_server_keeps_it(definition: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut definition = json!(definition);
    tidy(&mut definition);
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

/// A text whose only line breaks are those between paragraphs.
fn in_paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests;
