//! Phases of a swap, one file each: a phase is handed the swap, and returns what follows it. Pure.

mod failed;
mod final_copy;
mod going_back;
mod hand_over;
mod passes;
mod pending;
mod rebind;
mod roll_back;
mod soak;

pub(super) mod next;

use crate::api::{Swap, SwapPhase};
use crate::claims::phases::next::Next;
use crate::claims::pod_plan::PodPlan;

/// Plans the present phase of a swap.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    match swap.phase {
        SwapPhase::Pending | SwapPhase::Draining | SwapPhase::Fenced if swap.is_rollback => {
            going_back::step(plan, swap)
        }
        SwapPhase::Pending | SwapPhase::PreCopy => pending::step(plan, swap),
        SwapPhase::Draining | SwapPhase::Fenced | SwapPhase::FinalCopy => {
            final_copy::step(plan, swap)
        }
        SwapPhase::Rebinding => rebind::step(plan, swap),
        SwapPhase::Soaking => soak::step(plan, swap),
        SwapPhase::RollingBack => roll_back::step(plan, swap),
        SwapPhase::Failed => failed::step(plan, swap),
        SwapPhase::Unknown => Next::Wait, // Nothing of it is looked at: see `ClaimsController::reconcile_inner`.
    }
}
