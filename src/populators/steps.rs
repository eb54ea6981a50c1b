//! What can be done for a claim that is to be filled.

use crate::api::Filling;
use crate::cluster::Wish;
use crate::populators::PopulatorReason;
use crate::volume::VolumeId;

/// One effect. The order in a plan matters: what is told stands before what it makes untold, and what
/// holds an object before what needs it held.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Put our finalizer on the claim.
    Hold,
    /// Put our finalizer on the source.
    HoldSource,
    /// Choose a node for the claim, as the scheduler does.
    Pin(String),
    /// Let the scheduler choose another node for the claim.
    Unpin,
    /// Make the second claim.
    MakePrime,
    /// Make the keys by which the pod that sends and the one that fills know each other.
    MakeKeys,
    /// Make the pod that sends the source.
    MakeSender,
    /// Make the pod that fills its volume.
    MakePod,
    /// Ask whether the pod that fills it could be made, and make none.
    RehearsePod,
    /// The same of the pod that sends the source, and of the keys of both.
    RehearseSender,
    /// Have the node of the volume do something to it, without waiting for that.
    Ask { volume: VolumeId, wish: Wish },
    /// Write an event on the claim.
    Tell(PopulatorReason, String),
    /// Write the status of the source.
    Note(Box<Filling>),
    /// Take the claim out of the status of the source.
    Forget,
    /// Write on the claim how far it is.
    Show(String),
    /// Count a try that has ended, and how many seconds it took.
    Count(&'static str, i64),
    /// Have the volume stay whatever becomes of its claim, and note what was before.
    Retain,
    /// Make the volume the claim's.
    Rebind,
    /// Have the second claim looked at, so that it is seen to be without a volume.
    Nudge,
    /// Delete the pod.
    DropPod,
    /// Delete what has the name of the second claim, is not that, and has no volume.
    DropStranger,
    /// Delete what has the name of the pod and is not that.
    DropStrangePod,
    /// Delete the pod that sends.
    DropSender,
    /// Delete the second claim.
    DropPrime,
    /// Make the volume's policy again what it was.
    Restore,
    /// Take our finalizer off the claim.
    Release,
}

impl Step {
    /// Whether it writes the status of the source.
    pub fn notes(&self) -> bool {
        matches!(self, Step::Note(_) | Step::Forget)
    }

    /// Whether it makes an object, which the API server may refuse.
    pub fn makes(&self) -> bool {
        matches!(
            self,
            Step::MakePrime
                | Step::MakeKeys
                | Step::MakeSender
                | Step::MakePod
                | Step::RehearsePod
                | Step::RehearseSender
        )
    }
}
