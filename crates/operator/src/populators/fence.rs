//! Fence of the volume that is populated, which its node stores: incomplete before a pod writes to it, and
//! active before it is bound to the claim. Pure.
//!
//! Only volumes of this driver can be fenced. Each fence has a higher number than all before it, and is in
//! the status before a node gets it: a late request of a replica changes nothing.

use crate::api::{FenceState, FenceStatus, Filling};
use crate::cluster::{NodeOperation, VolumeSeen};
use crate::populators::PopulatorReason;
use crate::populators::observed::ObservedPopulation;
use crate::populators::status::{say, with_reason};
use crate::populators::steps::PopulationStep;
use crate::volume::{Fence, Standing};

/// Returns the steps until the node of the volume has set its fence; `None` once it has, and for a
/// volume of another driver.
pub fn fence(
    seen: &ObservedPopulation,
    state: FenceState,
    filling: Filling,
) -> Option<Vec<PopulationStep>> {
    let volume = seen.volume.as_ref()?;
    let fence = fence_to_be(seen, volume, state);
    let wanted = Fence::from(&fence);
    if volume.is(&wanted) {
        return None;
    }
    let filling = Filling { fence: Some(fence), ..filling };
    let filling = match volume.failure_of(&wanted) {
        Some(why) => {
            let message = format!(
                "volume {} is to be {}, but its node has not confirmed that yet: {why}",
                volume.id,
                state.words()
            );
            with_reason(filling, PopulatorReason::VolumeNotFenced, &message)
        }
        None => filling,
    };
    let wish = NodeOperation::Fence(wanted);
    let is_due = volume.is_to_be_asked(&wish);
    let ask = is_due.then(|| PopulationStep::Ask { volume: volume.id.clone(), wish });
    Some(say(seen, filling).into_iter().chain(ask).collect())
}

/// Returns the earlier fence, under a higher number if the volume has another one by now.
fn fence_to_be(seen: &ObservedPopulation, volume: &VolumeSeen, state: FenceState) -> FenceStatus {
    // If the status has lost it, or cannot store it yet, the report of the node must do.
    let by_node = volume.fence.filter(|now| now.generation > 0).map(FenceStatus::from);
    let told = seen.status_entry().and_then(|told| told.fence).or(by_node);
    let is_it = |told: &FenceStatus| told.state == state && volume.takes(&Fence::from(told));
    told.filter(is_it).unwrap_or_else(|| FenceStatus {
        state,
        generation: volume.next_generation(told.map_or(0, |told| told.generation)),
        // The populator pod must have access to it, and so must the next one.
        copy_in_progress: state == FenceState::Incomplete,
    })
}

/// Returns true if the volume is still marked incomplete.
pub fn is_half_copied(seen: &ObservedPopulation) -> bool {
    let fence = seen.volume.as_ref().and_then(|volume| volume.fence);
    fence.is_some_and(|fence| fence.standing == Standing::HalfCopied)
}
