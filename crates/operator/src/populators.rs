//! Populates claims from the objects in their `dataSourceRef`, as in KEP-1495.
//!
//! [`validator`] reports a claim that no populator handles, [`registry`] registers the kinds of Pliant, and
//! [`Populator`] populates the claims of one kind: a prime claim (PVC′), which is temporary and has no data source,
//! gets a volume, a pod populates that, and the volume is rebound to the first claim; a volume of this driver is
//! marked incomplete until then. [`PopulationSource`] has what differs between kinds.
//!
//! One replica does everything, the [leader](crate::cluster::LeaseCandidate), and two do no harm: each decision is
//! made from live reads, each effect carries the version that it was decided from, and an effect that another
//! replica has already had does nothing.

mod apply;
mod archive;
mod conditions;
mod consumers;
mod events;
mod fence;
mod fit;
mod observe;
mod observed;
mod outcome;
mod ownership;
mod plan;
mod pods;
mod populator;
mod pre_copy;
mod prime;
mod progress;
mod pvc;
mod queue;
mod reason;
mod reconcile;
pub mod registry;
mod sender;
mod settings;
mod settle;
mod source;
mod status;
mod steps;
mod topology;
pub mod validator;
mod watches;

use std::time::Duration;

pub use consumers::{claim_filled_by, fills, writers};
pub use outcome::{PassReport, PopulationOutcome};
pub use pods::PodSettings;
pub use populator::Populator;
pub use progress::PodProgress;
pub use pvc::not_readable_live;
pub use reason::PopulatorReason;
pub use settings::PopulationSettings;
pub use source::{Far, Fill, PopulationSource, SourceState};
pub use topology::{nodes_of, nodes_with};
pub use watches::Watches;

// On a claim and its source while it is populated.
use crate::cluster::HELD_BY_POPULATOR as FINALIZER;

/// Label of populator pods and prime claims: the uid of the claim that is populated.
const LABEL: &str = "pliant.io/populator";

/// Annotation of a claim: its population progress, for users.
pub const SHOWN: &str = "pliant.io/population-progress";

/// Annotation of the volume of a prime claim: the uid of the claim that it is for.
pub const POPULATES: &str = "pliant.io/populates";

/// Annotation of the same volume: its previous reclaim policy.
const POLICY: &str = "pliant.io/reclaim-policy";

/// Annotation of a prime claim whose volume was rebound: its controller was notified.
const NUDGED: &str = "pliant.io/volume-rebound-to";

/// Annotation of a claim: the node that the scheduler, or another program, has chosen for its
/// volume.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Counts events for metrics.
pub trait PopulationMetrics: Send + Sync + 'static {
    /// Counts a claim that the validator has seen: `empty`, `pvc`, `snapshot`, `populator`,
    /// `invalid` or `error`.
    fn validated(&self, result: &'static str);
    /// Counts the end of an attempt to populate a claim: `success`, `retry` if it will be retried,
    /// `error` if not.
    fn filled(&self, result: &'static str, took: Duration);
}
