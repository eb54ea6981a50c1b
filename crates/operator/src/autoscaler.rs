//! Reconciles the claims of workloads with their templates.
//!
//! A [`PvcAutoscaler`](crate::api::PvcAutoscaler) has one template for the claims of a StatefulSet. A claim
//! that differs is expanded where possible; otherwise the pod gets another claim, which the
//! [populators](crate::populators) populate with a verified copy while the pod is stopped; or, if the workload
//! creates the claims, its own claim gets the volume with the copy. The status names the active claim of each
//! pod and the progress of its swap; it is written before each action.
//!
//! One replica does everything, the [leader](crate::cluster::Candidate), and two do no harm: each decision is
//! made from live reads, each effect carries the version that it was decided from, and an effect that another
//! replica has already had does nothing.

mod apply;
mod cancel;
mod concerned;
mod conditions;
mod coverage;
mod decide;
mod detached;
mod detached_note;
mod drift;
mod exchange;
mod fence;
mod forgotten;
mod gates;
mod go_back;
mod hold;
mod hot;
mod in_place;
mod keeper;
mod lacks_place;
mod left;
mod looks;
mod make;
mod marks;
mod objects;
mod observe;
mod orphans;
mod pause;
mod places;
mod plan;
mod preflight;
mod reason;
mod remake;
mod room;
mod same_name;
mod seen;
mod siblings;
mod size;
mod steps;
mod stopped;
mod summary;
mod surroundings;
mod swap;
mod taken;
mod tell;
mod turn;
mod usage;
mod whole;

use std::time::Duration;

pub use cancel::{can_be_aborted, is_aborted, is_wanted_aborted};
pub use coverage::Coverage;
pub use drift::Drift;
pub use go_back::{is_rolled_back, is_wanted_back};
pub use keeper::{Keeper, Webhook};
pub use reason::AutoscalerReason;
pub use size::wanted;
pub use summary::AutoscalerSummary;

/// Counts events for metrics.
pub trait Tally: Send + Sync + 'static {
    /// Counts the downtime of a pod during a swap.
    fn paused(&self, away: Duration);
}

/// Label of a claim: the ordinal of its pod.
pub const ORDINAL: &str = "pliant.io/ordinal";

/// Annotation of a claim: the claim that has replaced it, with all of its content.
const SUPERSEDED_BY: &str = "pliant.io/superseded-by";
