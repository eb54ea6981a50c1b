//! Hands the complete content over to the pod: by another claim, or by another volume under the name. Pure.

use crate::api::{Retained, Swap, SwapPhase};
use crate::claims::fence::last_fence;
use crate::claims::objects::{is_bound, uid};
use crate::claims::phases::next::{Next, give_up};
use crate::claims::pod_plan::PodPlan;
use crate::claims::pv_exchange::size_with;

/// The new claim has all of the content: from here on the volumes change their claims.
pub(in crate::claims) fn begin_exchange(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    digest: Option<String>,
) -> Next {
    let name = swap.claim.clone();
    let Some(volume) = plan.seen.volume_of(&name) else {
        let is_bound = plan.seen.claim(&name).is_some_and(is_bound);
        if is_bound && matches!(plan.seen.volumes.get(&name), Some(None)) {
            return give_up(plan, swap, &format!("the volume of claim {name} is another driver's"));
        }
        return Next::Wait;
    };
    let volume = Some(volume.id.to_string());
    let size = plan.seen.claim(&name).filter(|_| swap.is_rollback).map(size_with);
    let Ok(size) = size.transpose() else { return Next::Wait };
    (swap.checksum, swap.volume_handle) = (digest, volume);
    (swap.size, swap.wait_start_time) = (size, None);
    Next::Enter(SwapPhase::Rebinding)
}

/// The new claim has all of the content: from here on it is the active one.
pub(in crate::claims) fn switch(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    digest: Option<String>,
) -> Next {
    let (name, from) = (swap.claim.clone(), plan.entry.active_claim.clone());
    let old = plan.seen.claim(&from).map(|claim| uid(&claim.metadata).to_owned());
    let last = last_fence(plan, &from);
    plan.entry.retained_claims.push(Retained {
        name: from.clone(),
        uid: old.unwrap_or_default(),
        fence: last,
        ..Retained::default()
    });
    plan.entry.claim_revision += 1;
    plan.entry.active_claim.clone_from(&name);
    (swap.checksum, swap.progress, swap.message) = (digest, None, None);
    (swap.fence, swap.detached_time, swap.abort_reason) = (None, None, None);
    Next::Enter(SwapPhase::Soaking)
}
