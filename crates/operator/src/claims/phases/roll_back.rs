//! Reverts a swap: phase RollingBack. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::api::{AbortReason, AutoscalerPhase, FenceState, Retained, Swap, SwapPhase};
use crate::claims::AutoscalerReason;
use crate::claims::attempt::attempt;
use crate::claims::cancel::end_cancelled;
use crate::claims::copy_state::{is_filled, is_going, is_of_another, is_used};
use crate::claims::drain::why_unended;
use crate::claims::fence::{ensure_given_back, next_fence};
use crate::claims::objects::{
    drop_as_seen, in_seconds, is_bound, is_ending, is_fillable, is_on_node, retained_from_now, uid,
    uses,
};
use crate::claims::phases::hand_over::switch;
use crate::claims::phases::next::Next;
use crate::claims::pod_plan::PodPlan;
use crate::claims::steps::Step;
use crate::claims::taken::has_taken_claim;
use crate::claims::users::pods_with;
use crate::cluster::PodSummary;
use crate::populators;
use crate::populators::PopulatorReason;

/// Leaves the volume of a cancelled rollback closed: the pod retains its claim.
fn close_again(plan: &mut PodPlan<'_>, swap: &mut Swap) {
    let to = swap.claim.clone();
    let is_opened = swap.reactivated_volume.take().is_some();
    let volume = plan.seen.volume_of(&to).filter(|_| is_opened);
    let fence = volume.map(|volume| next_fence(plan, volume, FenceState::Superseded, false));
    if let Some(old) = plan.entry.retained_claims.iter_mut().find(|old| old.name == to) {
        old.fence = fence.or(old.fence);
    }
}

/// Reports a copying pod of an aborted swap that does not terminate.
fn report_unended_copy(plan: &mut PodPlan<'_>, _swap: &Swap, name: &str, from: &str) {
    let copy = plan.seen.claim(name).map(|claim| uid(&claim.metadata));
    let is_its = |pod: &&PodSummary| {
        populators::fills(pod) && (uses(pod, from) || populators::claim_filled_by(pod) == copy)
    };
    let mut unended = plan.seen.pods.iter().filter(is_its);
    let unended = unended.find_map(|pod| Some((pod.name_any(), why_unended(plan, pod)?)));
    if let Some((pod, look)) = unended {
        let message = format!(
            "the swap of pod {} is being aborted, but pod {pod}, which copied claim {from}, was deleted \
             and has not ended: {look}",
            plan.pod()
        );
        plan.wait(AutoscalerReason::PopulatorPodPending, message);
    }
}

/// Removes what was created, or retains it if a user has given it a volume. A pod that waits for the new claim
/// is replaced once the old one is its own again.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    plan.says.phase = Some(AutoscalerPhase::Swapping);
    plan.says.progress = Some(format!("pod {}: RollingBack", plan.pod()));
    let name = swap.claim.clone();
    if is_whole_after_all(plan, swap, &name) {
        let filling = plan.seen.filling(&name).cloned().unwrap_or_default();
        plan.entry.retained_claims.retain(|old| old.name != name);
        return switch(plan, swap, filling.checksum);
    }
    let copy = plan.seen.claim(&name).filter(|claim| !swap.is_rollback && is_fillable(claim));
    plan.steps.extend(copy.map(drop_as_seen));
    report_unended_copy(plan, swap, &name, &plan.entry.active_claim.clone());
    if !ensure_given_back(plan, swap) || has_taken_claim(plan) {
        return Next::Wait;
    }
    // No pod can start with a deleted claim without a volume, and nothing is written to it: that may take
    // until the node of a populator pod responds.
    let goes_empty = |claim: &PersistentVolumeClaim| is_ending(&claim.metadata) && !is_bound(claim);
    let is_going = plan.seen.claim(&name).is_some_and(goes_empty) || is_going(plan.seen, &name);
    let is_spare = ensure_spare_retained(plan, swap, &name);
    if swap.preserves_name || swap.is_rollback || is_going || is_spare {
        swap.fence = None; // Its pod may start, whatever becomes of the copy.
    }
    if swap.is_rollback {
        close_again(plan, swap);
        return end_roll_back(plan, swap);
    }
    let is_named = |pod: &PodSummary| uses(pod, &name);
    if is_spare && plan.seen.pod(plan.entry.ordinal).is_some_and(is_named) {
        return Next::Wait; // It is replaced first: without our gate it may still start.
    }
    if let Some(claim) = plan.seen.claim(&name).filter(|_| !is_spare) {
        if swap.preserves_name && is_bound(claim) {
            let message = format!(
                "claim {name} has a copy that is not used: check its content, and delete it"
            );
            plan.wait(AutoscalerReason::ClaimConflict, message);
        } else if is_bound(claim) {
            let message = format!(
                "claim {name} has a volume that was not populated by a copy: another client bound it, and \
                 a pod may have written to it; copy what you need out of it before you delete it"
            );
            plan.wait(AutoscalerReason::ClaimConflict, message);
        }
        return Next::Wait;
    }
    if plan.seen.sources.contains_key(&name) {
        plan.steps.push(Step::DropSource { claim: name });
        return Next::Wait;
    }
    end_roll_back(plan, swap)
}

/// Returns true if the swap continues although it was aborted: the new claim is complete after all, and
/// nothing was written to the old one since.
fn is_whole_after_all(plan: &PodPlan<'_>, swap: &Swap, name: &str) -> bool {
    if swap.is_rollback
        || swap.preserves_name
        || !is_filled(plan.seen, name)
        || is_going(plan.seen, name)
    {
        return false;
    }
    let is_closed = swap.fence.is_some_and(|fence| fence.state == FenceState::Superseded);
    is_used(plan, swap, name)
        || is_closed && swap.is_proved_unused() && !is_of_another(plan, swap, name)
}

/// Retains a new claim with a volume that no pod could use, for as long as an old one; returns true if so. A
/// user started its copy too early or from another claim, or bound it.
fn ensure_spare_retained(plan: &mut PodPlan<'_>, swap: &Swap, name: &str) -> bool {
    let may_lack = !swap.is_proved_unused() || is_of_another(plan, swap, name);
    let claim = plan.seen.claim(name).filter(|_| !swap.is_rollback && may_lack);
    let is_spare = |claim: &&PersistentVolumeClaim| {
        let is_used = pods_with(plan.seen, name).any(is_on_node);
        is_bound(claim) && !is_ending(&claim.metadata) && !is_used
    };
    let Some(claim) = claim.filter(is_spare) else { return false };
    if plan.entry.retained_claims.iter().all(|old| old.name != name) {
        plan.entry.retained_claims.push(Retained { never_used: true, ..retained_from_now(claim) });
    }
    true
}

/// Ends the rollback of a swap: it has failed, if its pod was affected.
fn end_roll_back(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    plan.says.progress = None;
    let generation = plan.seen.generation();
    let is_aborted = swap.abort_reason == Some(AbortReason::Requested);
    if !is_aborted && swap.pod_stop_time.is_none() && swap.spec_generation != generation {
        return Next::End; // Its pod knows nothing of it, and another template is wanted by now.
    }
    if matches!(swap.abort_reason, Some(AbortReason::Requested | AbortReason::TemplateEdited)) {
        return end_cancelled(plan, swap);
    }
    let why = swap.message.clone().unwrap_or_default();
    let next_retry_time = retry_after(swap).and_then(|after| plan.seen.now.checked_add(after).ok());
    swap.next_retry_time = next_retry_time.map(|at| Time(in_seconds(at)));
    let text = format!("pod {} still uses claim {}: {why}", plan.pod(), plan.entry.active_claim);
    plan.add_event(AutoscalerReason::SwapFailed, &attempt(swap), text);
    Next::Enter(SwapPhase::Failed)
}

/// Maximum number of consecutive failures of a swap.
const TRIES: i32 = 4;

/// Returns the delay before a failed swap is retried: one hour, then four, then sixteen, because each
/// attempt stops the pod. Rejected and impossible ones are not retried, as they would fail again.
fn retry_after(swap: &Swap) -> Option<SignedDuration> {
    let may_pass = [PopulatorReason::ChecksumMismatch, PopulatorReason::BackoffLimitExceeded];
    let may_pass = swap.abort_reason == Some(AbortReason::NoProgress)
        || may_pass.iter().any(|reason| Some(reason.to_string()) == swap.reason);
    let hours = 4_i64.checked_pow(u32::try_from(swap.failures - 1).ok()?)?;
    (may_pass && swap.failures < TRIES).then(|| SignedDuration::from_hours(hours))
}
