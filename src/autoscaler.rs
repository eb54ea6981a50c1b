//! Keeps the claims of workloads as their templates have them.
//!
//! A [`PvcAutoscaler`](crate::api::PvcAutoscaler) has one template for the claims of a StatefulSet. A
//! claim that differs grows where it can; else the pod gets another claim, which is filled with a
//! verified copy by the [populators](crate::populators) while the pod is stopped; or, where the workload
//! makes the claims, its own claim gets the volume with the copy. The status says which claim of a pod is
//! the active one, and how far a swap is; it is written before anything is done.
//!
//! One replica does all of it, the [leader](crate::cluster::Candidate), and two do no harm: each decision is
//! made from what the API server says at that moment, each effect names what it was decided from, and one that
//! another replica had already is none.

mod apply;
mod cancel;
mod concerned;
mod conditions;
mod coverage;
mod decide;
mod detached;
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
mod left;
mod looks;
mod make;
mod marks;
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
mod swap;
mod taken;
mod tell;
mod turn;

use std::time::Duration;

pub(crate) use cancel::{can_be_aborted, is_aborted, is_wanted_aborted};
pub use coverage::Coverage;
pub(crate) use drift::Drift;
pub(crate) use go_back::{is_rolled_back, is_wanted_back};
pub use keeper::{Keeper, Webhook};
pub use reason::AutoscalerReason;
pub(crate) use size::wanted;
pub use summary::AutoscalerSummary;

/// Counts what is done, for whoever scrapes it.
pub trait Tally: Send + Sync + 'static {
    /// A pod was away for so long to get another claim.
    fn paused(&self, away: Duration);
}

/// Who writes, for the API server.
const WRITER: &str = "pliant-operator";

pub(crate) use crate::cluster::KEPT_BY;

/// On a claim: the ordinal of its pod.
pub(crate) const ORDINAL: &str = "pliant.io/ordinal";

/// On a claim: the one that has taken its place, and that has all of its content.
const SUPERSEDED_BY: &str = "pliant.io/superseded-by";
