//! A rollback until the pod may have its previous volume: phases Pending, Draining and Fenced. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscalerPhase, FenceState, Retained, Swap, SwapPhase};
use crate::claims::AutoscalerReason;
use crate::claims::attempt::attempt;
use crate::claims::cancel::note_slow_return;
use crate::claims::copy_state::is_gone;
use crate::claims::drain::stop_writers;
use crate::claims::fence::{ask, last_fence, next_fence, prove_unused, renumbered};
use crate::claims::finalizer::ensure_held;
use crate::claims::objects::uid;
use crate::claims::phases::hand_over::begin_exchange;
use crate::claims::phases::next::{Next, continue_exchange, give_up};
use crate::claims::pod_plan::PodPlan;
use crate::claims::rollback::{
    begin_anew, ensure_reinstated, has_lost_claim, lacks_before, lost_claim, note_return,
    what_is_left,
};
use crate::claims::siblings::{retreat, wait_for_siblings};
use crate::claims::stopped::note_stopped;
use crate::claims::users::writers;
use crate::volume::Fence;

/// Stops the pod, proves that nothing uses its volume, and opens the previous one.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    plan.says.phase = Some(AutoscalerPhase::Swapping);
    let (to, from) = (swap.claim.clone(), plan.entry.active_claim.clone());
    let known = plan.entry.retained_claims.iter().find(|old| old.name == to);
    let known = known.map(|old| old.uid.clone()).unwrap_or_default();
    if let Some(why) = lacks_before(plan, &to, &known) {
        return if has_lost_claim(plan, swap) {
            begin_anew(plan)
        } else {
            give_up(plan, swap, &why)
        };
    }
    if has_lost_claim(plan, swap) {
        let why = lost_claim(plan, &to);
        plan.wait(AutoscalerReason::SwapFailed, why);
    }
    if retreat(plan, swap) {
        return Next::Wait;
    }
    let is_begun = swap.pod_stop_time.is_some();
    if !is_begun && wait_for_siblings(plan) {
        return continue_exchange(plan, swap, SwapPhase::Pending, None, None);
    }
    let is_kept = is_gone(plan.seen, &from) || ensure_held(plan, &from);
    if !is_begun && !is_kept {
        return continue_exchange(plan, swap, SwapPhase::Pending, None, None);
    }
    if !is_begun {
        note_stopped(plan, swap);
        swap.pod_stop_time = Some(Time(plan.seen.now));
        let text = what_is_left(plan, &to);
        plan.add_event(AutoscalerReason::SwapStarted, &attempt(swap), text);
    }
    let has_other = !has_lost_claim(plan, swap);
    if let Some(why) = note_slow_return(plan, swap, &from).filter(|_| is_begun && has_other) {
        return give_up(plan, swap, &why);
    }
    stop_writers(plan, &from);
    // A pod that was made until this is written is scheduled with what is left.
    if !is_begun || !writers(plan.seen, &from).is_empty() {
        return continue_exchange(plan, swap, SwapPhase::Draining, None, None);
    }
    // No pod can start with a claim that is not there.
    let is_left = plan.seen.claim(&from).is_none() || prove_unused(plan, swap, &from);
    // The claim is written last: another replica that has decided to delete it after its retention then no
    // longer does.
    if is_left
        && ensure_free(plan, &to)
        && ensure_reactivated(plan, swap, &to)
        && ensure_reinstated(plan, &to)
    {
        return if swap.preserves_name {
            begin_exchange(plan, swap, None)
        } else {
            switch_back(plan, swap)
        };
    }
    let waits = plan.says.problem.clone().map(|(_, message)| message);
    continue_exchange(plan, swap, SwapPhase::Fenced, None, waits)
}

/// Waits until no other pod uses the claim of a rollback; returns true once that is so.
fn ensure_free(plan: &mut PodPlan<'_>, claim: &str) -> bool {
    let (ours, seen) = (plan.pod(), plan.seen);
    let others = writers(seen, claim).into_iter().map(ResourceExt::name_any);
    let Some(other) = others.into_iter().find(|name| *name != ours) else { return true };
    let message = format!(
        "pod {other} uses claim {claim}, which pod {ours} is to get again: stop pod {other}, or wait until \
         it ends"
    );
    plan.wait(AutoscalerReason::ClaimInUse, message);
    false
}

/// Requests that the node of a superseded volume admits the pod again; returns true once it does.
fn ensure_reactivated(plan: &mut PodPlan<'_>, swap: &mut Swap, claim: &str) -> bool {
    let seen = plan.seen;
    let Some(looked_up) = seen.volumes.get(claim) else { return false };
    let Some(volume) = looked_up else { return true };
    let fence = match swap.reactivated_volume {
        Some(fence) => renumbered(plan, volume, fence),
        None => next_fence(plan, volume, FenceState::Active, false),
    };
    swap.reactivated_volume = Some(fence);
    if volume.is(&Fence::from(&fence)) {
        return true;
    }
    ask(plan, volume, fence);
    false
}

/// Makes the previous claim the active one, and retains the other one for its time.
fn switch_back(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    let (to, from) = (swap.claim.clone(), plan.entry.active_claim.clone());
    let left = plan.seen.claim(&from).map(|claim| uid(&claim.metadata).to_owned());
    let fence = last_fence(plan, &from);
    plan.entry.retained_claims.retain(|old| old.name != to);
    let left = Retained { name: from, uid: left.unwrap_or_default(), fence, ..Retained::default() };
    plan.entry.retained_claims.push(left);
    plan.entry.claim_revision += 1;
    plan.entry.active_claim = to;
    (swap.progress, swap.message) = (None, None);
    (swap.fence, swap.detached_time, swap.reactivated_volume) = (None, None, None);
    swap.active_claim_uid = None; // That is the other one now.
    note_return(plan);
    Next::Enter(SwapPhase::Soaking)
}
