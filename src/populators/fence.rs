//! What the volume that is filled is told to be, as its node keeps it: half copied before a pod writes to it,
//! and active before it is the claim's. Pure.
//!
//! Only volumes of this driver can be told. Each telling has a number that is higher than all before, and
//! is in the status before a node is asked: what a replica still asks for late changes nothing.

use crate::api::{FenceState, FenceStatus, Filling};
use crate::cluster::{VolumeSeen, Wish};
use crate::populators::PopulatorReason;
use crate::populators::notes::with_reason;
use crate::populators::seen::Seen;
use crate::populators::steps::Step;
use crate::volume::{Fence, Standing};

impl Seen {
    /// What is done so that the node of the volume has written on it what it is; `None` once it has, and of
    /// a volume of another driver.
    pub fn fence(&self, state: FenceState, filling: Filling) -> Option<Vec<Step>> {
        let volume = self.volume.as_ref()?;
        let fence = self.fence_to_be(volume, state);
        let wanted = Fence::from(&fence);
        if volume.is(&wanted) {
            return None;
        }
        let filling = Filling { fence: Some(fence), ..filling };
        let filling = match volume.failure_of(&wanted) {
            Some(why) => {
                let message = format!(
                    "volume {} is to be {}, and its node has not written that on it yet: {why}",
                    volume.id,
                    state.words()
                );
                with_reason(filling, PopulatorReason::VolumeNotFenced, &message)
            }
            None => filling,
        };
        let wish = Wish::Fence(wanted);
        let is_due = volume.is_to_be_asked(&wish);
        let ask = is_due.then(|| Step::Ask { volume: volume.id.clone(), wish });
        Some(self.say(filling).into_iter().chain(ask).collect())
    }

    /// What it was told already, or under a higher number if it was told another thing since.
    fn fence_to_be(&self, volume: &VolumeSeen, state: FenceState) -> FenceStatus {
        // Where the status has lost it, or no place for it yet, what its node tells has to do.
        let by_node = volume.fence.filter(|now| now.generation > 0).map(FenceStatus::from);
        let told = self.told().and_then(|told| told.fence).or(by_node);
        let is_it = |told: &FenceStatus| told.state == state && volume.takes(&Fence::from(told));
        told.filter(is_it).unwrap_or_else(|| FenceStatus {
            state,
            generation: volume.next_generation(told.map_or(0, |told| told.generation)),
            // The pod that fills it has to get at it, and so has the next one.
            copy_in_progress: state == FenceState::Incomplete,
        })
    }

    /// Whether the volume still says that it is no whole.
    pub fn is_half_copied(&self) -> bool {
        let fence = self.volume.as_ref().and_then(|volume| volume.fence);
        fence.is_some_and(|fence| fence.standing == Standing::HalfCopied)
    }
}
