//! Fills claims from objects that they name in `dataSourceRef`, as KEP-1495 has it.
//!
//! [`validator`] tells a claim that nobody will fill it, [`registry`] says which kinds are filled here,
//! and [`Populator`] fills the claims of one kind: a second claim without the data source gets a volume,
//! a pod fills that, and the volume becomes the first claim's; one of this driver says on itself that it is
//! half copied until then. What is particular of a kind is its
//! [`Source`].
//!
//! One replica does all of it, the [leader](crate::cluster::Candidate), and two do no harm: each decision is
//! made from what the API server says at that moment, each effect names what it was decided from, and one that
//! another replica had already is none.

mod ahead;
mod apply;
mod archive;
mod consumers;
mod fence;
mod fit;
mod looks;
mod make;
mod notes;
mod observe;
mod outcome;
mod ownership;
mod places;
mod plan;
mod pods;
mod populator;
mod progress;
mod pvc;
mod reason;
pub mod registry;
mod seen;
mod sender;
mod source;
mod steps;
pub mod validator;
mod watches;

use std::time::Duration;

pub(crate) use consumers::{claim_filled_by, fills, writers};
pub use outcome::{Outcome, Round};
pub(crate) use places::{nodes_of, nodes_with};
pub use pods::PodSettings;
pub use populator::{Populator, Settings};
pub use progress::Progress;
pub(crate) use pvc::not_readable_live;
pub use reason::PopulatorReason;
pub use source::{Far, Fill, Sight, Source};
pub use watches::Watches;

/// Who writes, for the API server.
const WRITER: &str = "pliant-operator";

// On a claim and on what it is filled from, while it is being filled.
use crate::cluster::HELD_BY_POPULATOR as FINALIZER;

/// The label of the pods and the second claims: the uid of the claim that is filled.
const LABEL: &str = "pliant.io/fill";

/// On a claim: how far its filling is, for people.
const SHOWN: &str = "pliant.io/filling";

/// On the volume of a second claim: the uid of the claim that it is for.
pub(crate) const POPULATES: &str = "pliant.io/populates";

/// Beside it: what becomes of the volume when its claim is deleted, as it was before.
const POLICY: &str = "pliant.io/reclaim-policy";

/// On a second claim whose volume is another's: that it was told so.
const NUDGED: &str = "pliant.io/volume-handed-over";

/// The node that the scheduler, or somebody in its place, has chosen for the volume of a claim.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Counts what is done, for whoever scrapes it.
pub trait Tally: Send + Sync + 'static {
    /// A claim was looked at by the validator: `empty`, `pvc`, `snapshot`, `populator`, `invalid` or
    /// `error`.
    fn validated(&self, result: &'static str);
    /// A try to fill a claim has ended: `success`, `retry` if there will be another one, `error` if not.
    fn filled(&self, result: &'static str, took: Duration);
}
