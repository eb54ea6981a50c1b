//! What follows a phase in the same plan. Pure.

use crate::api::{Filling, Swap, SwapPhase};
use crate::claims::fence::call_back;
use crate::claims::objects::bounded;
use crate::claims::pod_plan::PodPlan;

/// What follows a phase in the same plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(in crate::claims) enum Next {
    /// Nothing, until something changes.
    Wait,
    /// This phase.
    Enter(SwapPhase),
    /// The swap is over, and the status forgets it.
    End,
}

/// Updates the progress of the swap in its phase.
pub(in crate::claims) fn continue_exchange(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    phase: SwapPhase,
    progress: Option<String>,
    waits: Option<String>,
) -> Next {
    let said = progress.clone().unwrap_or_else(|| format!("{phase:?}"));
    plan.says.progress = Some(format!("pod {}: {said}", plan.pod()));
    (swap.phase, swap.progress, swap.message) = (phase, progress, waits.map(|text| bounded(&text)));
    Next::Wait
}

/// Aborts the swap: what it has made is removed.
pub(in crate::claims) fn give_up(plan: &mut PodPlan<'_>, swap: &mut Swap, why: &str) -> Next {
    (swap.progress, swap.message) = (None, Some(bounded(why)));
    call_back(plan, swap);
    Next::Enter(SwapPhase::RollingBack)
}

/// Aborts the swap because its copy has failed.
pub(in crate::claims) fn fail(plan: &mut PodPlan<'_>, swap: &mut Swap, filling: Filling) -> Next {
    swap.failures += 1;
    swap.reason = filling.reason;
    give_up(plan, swap, &filling.message.unwrap_or_default())
}
