//! Reconciles the claims of workloads with their templates.
//!
//! A [`PvcAutoscaler`](crate::api::PvcAutoscaler) has one template for the claims of a StatefulSet. A claim
//! that differs is expanded where possible; otherwise the pod gets another claim, which the
//! [populators](crate::populators) populate with a verified copy while the pod is stopped; or, if the workload
//! creates the claims, its own claim gets the volume with the copy. The status names the active claim of each
//! pod and the progress of its swap; it is written before each action.
//!
//! One replica does everything, the [leader](crate::cluster::LeaseCandidate), and two do no harm: each decision is
//! made from live reads, each effect carries the version that it was decided from, and an effect that another
//! replica has already had does nothing.

mod adopt;
mod apply;
mod asked;
mod attempt;
mod autoscaled_size;
mod cancel;
mod capacity;
mod concerned;
mod conditions;
mod context;
mod controller;
mod copy_state;
mod coverage;
mod detached;
mod detached_note;
mod drain;
mod drift;
mod fence;
mod finalizer;
mod gates;
mod keep;
mod lower_size;
mod manifests;
mod metadata_sync;
mod new_claim;
mod node_capacity;
mod objects;
mod observe;
mod observed;
mod obstacle;
mod ordinal;
mod orphans;
mod others;
mod own_size;
mod pause;
mod phases;
mod plan;
mod pod_plan;
mod preflight;
mod pv_exchange;
mod pv_exchange_apply;
mod queue;
mod readiness;
mod reason;
mod rebind;
mod reconcile;
mod resize_in_place;
mod retire;
mod rollback;
mod siblings;
mod start;
mod steps;
mod stopped;
mod summary;
mod swap_context;
mod taken;
mod topology;
mod unreferenced;
mod users;
mod workload;

use std::time::Duration;

pub use asked::{is_aborted, is_rolled_back, is_wanted_aborted, is_wanted_back};
pub use cancel::can_be_aborted;
pub use context::{ClaimsController, Webhook};
pub use coverage::WorkloadCoverage;
pub use drift::Drift;
pub use reason::AutoscalerReason;
pub use resize_in_place::Shrinking;
pub use summary::AutoscalerSummary;

/// Counts events for metrics.
pub trait ClaimsMetrics: Send + Sync + 'static {
    /// Counts the downtime of a pod during a swap.
    fn paused(&self, away: Duration);
}

/// Label of a claim: the ordinal of its pod.
pub const ORDINAL: &str = "pliant.io/ordinal";

/// Annotation of a claim: the claim that has replaced it, with all of its content.
const SUPERSEDED_BY: &str = "pliant.io/superseded-by";
