//! Steps for the claims of a workload.

use crate::api::Quantity;
use crate::claims::AutoscalerReason;
use crate::claims::metadata_sync::Marks;
use crate::cluster::NodeOperation;
use crate::volume::VolumeId;

/// One effect. All effects follow the status that announces them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Make the claim of a pod, empty.
    MakeClaim { ordinal: i32, claim: String, size: Quantity },
    /// Put our labels on a claim that was there before.
    Adopt { ordinal: i32, claim: String },
    /// Remove untrue annotations about its volume from a claim, only on the observed version.
    DropNotes { claim: String, notes: Vec<&'static str> },
    /// Write labels and annotations of the template onto a claim.
    Mark { claim: String, marks: Marks },
    /// Ask for a larger claim, or for less than what was refused.
    Grow { claim: String, size: Quantity },
    /// Create the populator of the new claim.
    MakeSource { ordinal: i32, claim: String, from: String },
    /// Create the new claim, populated from the old one; on a node, if it cannot be on that of the old one.
    MakeCopy { ordinal: i32, claim: String, size: Quantity, from: String, node: Option<String> },
    /// Have nothing more copied while the pod still runs.
    EndRounds { claim: String },
    /// Have a node apply an operation to a volume, and inspect it.
    Ask { volume: VolumeId, wish: NodeOperation },
    /// Add the finalizer that protects the old claim of a swap.
    Hold { claim: String },
    /// Let a claim go that was held; its volume stays if it has the only copy and the claim was deleted.
    LetGo { claim: String, keeps_volume: bool, superseded_by: Option<String> },
    /// Have a claim get the volume of another one under its own name, and that one its.
    Exchange { claim: String, copy: String },
    /// Lower the size of a claim and its PersistentVolume after a shrink.
    TellSmaller { claim: String, to: Quantity },
    /// Let the copy begin.
    StartCopy { claim: String },
    /// Ask a pod to go, if those who protect it let it, and within how many seconds, if not its own.
    Evict { pod: String, uid: String, within: Option<u32> },
    /// Delete a pod that has no node, only for as long as it is as it was seen.
    DropPod { pod: String, uid: String, version: Option<String> },
    /// Annotate a claim with its replacement.
    Supersede { claim: String, by: String },
    /// Take from a claim that another one has taken its place.
    Reinstate { claim: String },
    /// Annotate the PersistentVolume of a claim with the uid of the claim that has its content, or
    /// will have.
    NoteDetached { claim: String, copy: String },
    /// Delete the populator of a claim.
    DropSource { claim: String },
    /// Delete a claim, only for as long as it is as it was seen.
    DropClaim { claim: String, uid: String, version: Option<String> },
    /// Count the downtime of a pod in seconds.
    Count { away: i64 },
    /// Write an event on the PvcAutoscaler.
    Tell { reason: AutoscalerReason, subject: String, text: String },
}

impl Step {
    /// Returns true if it deletes what was created for a swap.
    pub fn sweeps(&self) -> bool {
        match self {
            Step::DropSource { .. } => true,
            Step::DropClaim { version, .. } => version.is_some(),
            _ => false,
        }
    }

    /// The claim that it makes, grows or binds to another volume, which those who guard the namespace or its volumes
    /// may refuse.
    pub fn claim_asked_for(&self) -> Option<&String> {
        match self {
            Step::MakeClaim { claim, .. }
            | Step::MakeSource { claim, .. }
            | Step::MakeCopy { claim, .. }
            | Step::TellSmaller { claim, .. }
            | Step::Exchange { claim, .. }
            | Step::Grow { claim, .. } => Some(claim),
            _ => None,
        }
    }
}
