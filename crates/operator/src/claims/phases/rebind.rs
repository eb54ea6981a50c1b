//! A swap under an unchanged name: the claim that a StatefulSet makes by its own template gets the volume
//! with the copy, and the claim with the copy the old one, while its pod waits behind a scheduling gate: phase
//! Rebinding. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscalerPhase, InPlace, InPlacePhase, Quantity, Retained, Swap, SwapPhase};
use crate::claims::AutoscalerReason;
use crate::claims::cancel::{note_downtime, note_slow_exchange, report_slow_exchange};
use crate::claims::copy_state::is_raw;
use crate::claims::drain::stop_writers;
use crate::claims::fence::last_fence;
use crate::claims::finalizer::ensure_held;
use crate::claims::objects::uid;
use crate::claims::phases::next::{Next, continue_exchange, give_up};
use crate::claims::pod_plan::PodPlan;
use crate::claims::pv_exchange::Exchange;
use crate::claims::rebind::outgrows;
use crate::claims::resize_in_place::shrink_in_place;
use crate::claims::rollback::note_return;
use crate::claims::steps::Step;
use crate::claims::users::writers;
use crate::cluster::{NodeOperation, NotDone, UnreadableSize, requested};

/// Exchanges the volumes of the claims, then updates the claim with its present size.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    plan.says.phase = Some(AutoscalerPhase::Swapping);
    let stays = continue_exchange(plan, swap, SwapPhase::Rebinding, None, None);
    if plan.entry.is_shrinking() {
        return tell_size(plan);
    }
    let (seen, from, copy) = (plan.seen, plan.entry.active_claim.clone(), swap.claim.clone());
    ensure_held(plan, &from);
    let next = Step::Exchange { claim: from.clone(), copy: copy.clone() };
    let known = seen.exchanges.get(&from);
    if known.is_some_and(Exchange::can_be_given_up)
        && let Some(why) = note_slow_exchange(plan, swap, &from)
    {
        return give_up(plan, swap, &why);
    }
    match known {
        None | Some(Exchange::Waits) => {}
        // Its node lets a raw device be opened for writing, so that the copy may lack something by now.
        Some(Exchange::Ready)
            if is_raw(plan.seen, &from)
                && !swap.is_rollback
                && !writers(seen, &from).is_empty() =>
        {
            let pods: Vec<_> =
                writers(seen, &from).into_iter().map(ResourceExt::name_any).collect();
            let why = format!(
                "pod {} started to use claim {from} after that was copied, and may have written to it",
                pods.join(", ")
            );
            return give_up(plan, swap, &why);
        }
        Some(Exchange::Ready) if !swap.is_rollback && outgrows(plan, swap).is_some() => {
            let why = outgrows(plan, swap).unwrap_or_default();
            return give_up(plan, swap, &why);
        }
        Some(Exchange::Ready) => {
            stop_writers(plan, &from);
            if writers(seen, &from).is_empty() && ensure_size_limited(plan, swap) {
                plan.steps.push(next);
            }
        }
        Some(Exchange::Next(_)) => {
            stop_writers(plan, &from);
            plan.steps.push(next);
        }
        Some(Exchange::Done) => return end_exchange(plan, swap),
        Some(Exchange::Never(why)) => {
            let why = why.clone();
            return give_up(plan, swap, &why);
        }
        Some(Exchange::Stuck(why)) => plan.wait(AutoscalerReason::ClaimConflict, why.clone()),
    }
    if let Some(why) = known.and_then(|known| known.awaits(&from, &copy)) {
        note_downtime(plan, swap, &from, false);
        report_slow_exchange(plan, swap, &why);
    }
    stays
}

/// The size that the claim has to come to, if that is less than what it asks for.
fn smaller(plan: &PodPlan<'_>, swap: &Swap) -> Result<Option<Quantity>, UnreadableSize> {
    let asked = |name: &str| plan.seen.claim(name).map(requested).transpose();
    let (to, has) = (asked(&swap.claim)?, asked(&plan.entry.active_claim)?);
    Ok(to.map(|to| swap.size.unwrap_or(to)).filter(|to| has > Some(*to)))
}

/// Requests that the node of the new volume limits its size; returns true once it does: the resizer of Kubernetes would
/// otherwise expand it to the old request as soon as the claim has it.
fn ensure_size_limited(plan: &mut PodPlan<'_>, swap: &Swap) -> bool {
    let Ok(smaller) = smaller(plan, swap) else { return false };
    let Some(to) = smaller else { return true };
    let Some(volume) = plan.seen.volume_of(&swap.claim) else { return false };
    let started = swap.start_time.as_ref();
    let begun = started.map_or(plan.seen.now, |Time(at)| *at);
    let wish = NodeOperation::Shrink { to: to.0, begun };
    match volume.answer_to(&wish) {
        Some(Ok(_)) => return true,
        Some(Err(NotDone { why, .. })) => {
            let message = format!(
                "volume {} of pod {} is not limited to {to} yet: {why}",
                volume.id,
                plan.pod()
            );
            plan.wait(AutoscalerReason::ShrinkPending, message);
        }
        None => {}
    }
    plan.ask_for(volume, wish);
    false
}

/// Ends the exchange: the claim has the new volume, and the one with the copy the old one, which
/// is retained for its time.
fn end_exchange(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    let (seen, copy) = (plan.seen, swap.claim.clone());
    let new = swap.volume_handle.clone().unwrap_or_default();
    let has_new =
        |claim: &str| seen.volume_of(claim).is_some_and(|volume| volume.id.to_string() == new);
    if has_new(&copy) || !has_new(&plan.entry.active_claim) {
        return Next::Wait; // What was looked at first is of before.
    }
    let Ok(smaller) = smaller(plan, swap) else { return Next::Wait };
    if let Some(claim) = seen.claim(&copy) {
        let fence = last_fence(plan, &copy);
        let uid = uid(&claim.metadata).to_owned();
        plan.entry.retained_claims.retain(|old| old.name != copy);
        plan.entry.retained_claims.push(Retained {
            name: claim.name_any(),
            uid,
            fence,
            ..Retained::default()
        });
    }
    plan.entry.claim_revision += 1;
    if swap.is_rollback {
        note_return(plan);
    }
    (swap.fence, swap.detached_time, swap.reactivated_volume) = (None, None, None);
    swap.wait_start_time = None;
    let (change, generation, start_time) =
        (swap.summary.clone(), swap.spec_generation, swap.start_time.clone());
    plan.entry.shrink = smaller.map(|to| InPlace {
        phase: InPlacePhase::UpdatingClaim,
        size: to,
        summary: change,
        spec_generation: generation,
        start_time,
        ..InPlace::default()
    });
    tell_size(plan)
}

/// Lowers the size of the claim, as after a shrink in place; then its pod may start.
fn tell_size(plan: &mut PodPlan<'_>) -> Next {
    shrink_in_place(plan);
    plan.says.phase = Some(AutoscalerPhase::Swapping);
    if plan.entry.is_shrinking() { Next::Wait } else { Next::Enter(SwapPhase::Soaking) }
}
