//! Steps for a claim that is to be populated.

use crate::api::Filling;
use crate::cluster::NodeOperation;
use crate::populators::PopulatorReason;
use crate::volume::VolumeId;

/// One effect. The order in a plan matters: a status is written before the step that makes it
/// necessary, and a finalizer is added before what needs it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PopulationStep {
    /// Put our finalizer on the claim.
    Hold,
    /// Put our finalizer on the source.
    HoldSource,
    /// Choose a node for the claim, as the scheduler does.
    Pin(String),
    /// Let the scheduler choose another node for the claim.
    Unpin,
    /// Make the prime claim.
    MakePrime,
    /// Create the keys with which the sender and the populator pod authenticate.
    MakeKeys,
    /// Make the pod that sends the source.
    MakeSender,
    /// Create the populator pod.
    MakePod,
    /// Create the populator pod in a dry run.
    RehearsePod,
    /// Create the sender and the keys of both in a dry run.
    RehearseSender,
    /// Have the node of the volume do something to it, without waiting for that.
    Ask { volume: VolumeId, wish: NodeOperation },
    /// Write an event on the claim.
    Tell(PopulatorReason, String),
    /// Write the status of the source.
    Note(Box<Filling>),
    /// Take the claim out of the status of the source.
    Forget,
    /// Write on the claim how far it is.
    Show(String),
    /// Count the end of an attempt, and its duration in seconds.
    Count(&'static str, i64),
    /// Have the volume stay whatever becomes of its claim, and note what was before.
    Retain,
    /// Make the volume the claim's.
    Rebind,
    /// Notify the controller of the prime claim that it has lost its volume.
    Nudge,
    /// Delete the pod.
    DropPod,
    /// Delete what has the name of the prime claim, is not that, and has no volume.
    DropStranger,
    /// Delete what has the name of the pod and is not that.
    DropStrangePod,
    /// Delete the pod that sends.
    DropSender,
    /// Delete the prime claim.
    DropPrime,
    /// Make the volume's policy again what it was.
    Restore,
    /// Take our finalizer off the claim.
    Release,
}

impl PopulationStep {
    /// Returns true if it writes the status of the source.
    pub fn notes(&self) -> bool {
        matches!(self, PopulationStep::Note(_) | PopulationStep::Forget)
    }

    /// Returns true if it creates an object, which the API server may reject.
    pub fn makes(&self) -> bool {
        matches!(
            self,
            PopulationStep::MakePrime
                | PopulationStep::MakeKeys
                | PopulationStep::MakeSender
                | PopulationStep::MakePod
                | PopulationStep::RehearsePod
                | PopulationStep::RehearseSender
        )
    }
}
