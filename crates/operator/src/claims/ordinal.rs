//! Plan for one pod: its claim is reconciled, or a swap starts or continues. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{OrdinalStatus, Swap, SwapPhase};
use crate::claims::cancel::{abort, forget_abort, is_to_abort};
use crate::claims::fence::close_retained;
use crate::claims::finalizer::remove_finalizer;
use crate::claims::keep::keep;
use crate::claims::objects::{holds_at_our_gate, is_copy, is_ending, uid, uses};
use crate::claims::observed::ObservedWorkload;
use crate::claims::own_size::take_back_shrink;
use crate::claims::phases::next::Next;
use crate::claims::pod_plan::PodPlan;
use crate::claims::resize_in_place::{forget_failure_in_place, shrink_in_place};
use crate::claims::retire::retire;
use crate::claims::rollback::{
    forget_return, is_to_return, may_return, note_wishes_before, reinstate, report_late_return,
    tell_of_return, turn_round,
};
use crate::claims::steps::Step;
use crate::claims::taken::leave_taken_claim;
use crate::claims::{AutoscalerReason, phases};
use crate::cluster::{ClaimSizes, KEPT_BY, PodSummary, UnreadableSize};

/// Plans for one pod. `may_stop` counts the pods that may still be stopped; if others wait for a failed
/// one, that is for its retry.
pub(super) fn plan_pod<'a>(
    seen: &'a ObservedWorkload,
    entry: OrdinalStatus,
    may_stop: &mut usize,
    others_wait: bool,
) -> PodPlan<'a> {
    let mut plan = PodPlan::of(seen, entry);
    if let Err(why) = read_sizes(&plan) {
        plan.report_unreadable(&why);
        return plan;
    }
    note_new_claim(&mut plan);
    note_wishes_before(&mut plan);
    if !is_to_abort(&plan) {
        forget_failure(&mut plan);
    }
    forget_failure_in_place(&mut plan);
    forget_return(&mut plan);
    forget_abort(&mut plan);
    let waits_to_return = is_to_return(&plan) && !may_return(&plan, *may_stop);
    let is_to_return = is_to_return(&plan) && !waits_to_return;
    advance(&mut plan, is_to_return, may_stop, others_wait);
    if waits_to_return {
        tell_of_return(&mut plan);
    }
    report_late_return(&mut plan);
    leave_taken_claim(&mut plan);
    replace_waiting_pod(&mut plan);
    reinstate(&mut plan);
    close_retained(&mut plan);
    remove_finalizer(&mut plan);
    retire(&mut plan);
    plan
}

/// Advances the swap of the pod, or its claim without one.
fn advance(plan: &mut PodPlan<'_>, is_to_return: bool, may_stop: &mut usize, others_wait: bool) {
    let is_to_abort = is_to_abort(plan);
    match plan.entry.swap.take() {
        Some(mut swap) if is_to_abort => {
            let next = abort(plan, &mut swap);
            follow(plan, swap, next);
        }
        swap if is_to_return => {
            if let Some((swap, next)) = turn_round(plan, swap, may_stop) {
                follow(plan, swap, next);
            }
        }
        Some(swap) if is_due(&swap, plan.seen.now) => try_again(plan, swap, may_stop),
        Some(swap) => {
            let next = Next::Enter(swap.phase);
            follow(plan, swap, next);
        }
        None if plan.entry.is_shrinking() => continue_exchange(plan),
        None => {
            let mut none = 0;
            keep(plan, if others_wait { &mut none } else { may_stop });
            continue_exchange(plan);
        }
    }
}

/// Continues what is in progress, also if that has just begun.
fn continue_exchange(plan: &mut PodPlan<'_>) {
    if let Some(swap) = plan.entry.swap.take() {
        let next = Next::Enter(swap.phase);
        follow(plan, swap, next);
    } else if plan.entry.is_shrinking()
        && let Some(shrunk) = shrink_in_place(plan)
    {
        let text = format!(
            "claim {} of pod {} was shrunk in place ({})",
            plan.entry.active_claim,
            plan.pod(),
            shrunk.summary
        );
        plan.add_event(AutoscalerReason::ShrinkSucceeded, &shrunk.size.to_string(), text);
    }
}

/// Plans the phases that follow one another without a change of what is seen.
fn follow(plan: &mut PodPlan<'_>, mut swap: Swap, mut next: Next) {
    while let Next::Enter(phase) = next {
        swap.phase = phase;
        next = phases::step(plan, &mut swap);
    }
    if next == Next::Wait {
        plan.entry.swap = Some(swap);
    }
}

/// Stores the uid of the new claim, which is created for this swap.
fn note_new_claim(plan: &mut PodPlan<'_>) {
    let is_ours = |claim: &&PersistentVolumeClaim| {
        is_copy(claim) && (plan.seen.keeps(claim) || !claim.labels().contains_key(KEPT_BY))
    };
    if let Some(swap) = plan.entry.swap.as_mut().filter(|swap| !swap.is_rollback) {
        let there = plan.seen.claim(&swap.claim).filter(is_ours);
        let there = there.map(|claim| uid(&claim.metadata).to_owned());
        swap.claim_uid = swap.claim_uid.take().or(there);
    }
}

/// The time has come for another try. It begins as the first one did, as soon as a pod may be stopped for
/// it; until then it stays the one that has failed.
fn try_again(plan: &mut PodPlan<'_>, failed: Swap, may_stop: &mut usize) {
    plan.failures = failed.failures;
    keep(plan, may_stop);
    let claim = plan.seen.claim(&plan.entry.active_claim);
    let is_wanted = claim.is_some_and(|claim| plan.wants_another(claim));
    let is_begun = plan.entry.swap.is_some() || plan.entry.is_shrinking();
    if is_begun {
        continue_exchange(plan);
    } else if is_wanted && plan.says.problem.is_none() {
        follow(plan, failed, Next::Enter(SwapPhase::Failed));
    } else if is_wanted {
        plan.entry.swap = Some(failed);
    }
}

/// Every decision about a claim counts on its sizes, and on those of the one that is to take its place.
fn read_sizes(plan: &PodPlan<'_>) -> Result<(), UnreadableSize> {
    let new = plan.entry.swap.as_ref().map(|swap| &swap.claim);
    let names = [Some(&plan.entry.active_claim), new].into_iter().flatten();
    let claims = names.filter_map(|name| plan.seen.claim(name));
    claims.map(ClaimSizes::of).try_for_each(|sizes| sizes.map(drop))
}

/// A pod that was made before the webhook was asked for it waits for a claim that is not its own, and
/// always will; one without our gate waits for a claim whose name is another client's by now, and might be
/// scheduled with that. It was never on a node.
fn replace_waiting_pod(plan: &mut PodPlan<'_>) {
    let expected = plan.entry.claim_of_pod();
    let is_taken = plan.seen.taken.contains_key(expected);
    let waits = |pod: &&PodSummary| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let is_wrong = !uses(pod, expected) || is_taken && !holds_at_our_gate(pod);
        node.is_none() && !is_ending(&pod.metadata) && is_wrong
    };
    let pod = plan.seen.pod(plan.entry.ordinal).filter(|pod| plan.gives_claims() && waits(pod));
    if let Some(pod) = pod.filter(|pod| !plan.is_asked_to_go(pod)) {
        let uid = uid(&pod.metadata).to_owned();
        let version = pod.resource_version();
        plan.steps.push(Step::DropPod { pod: pod.name_any(), uid, version });
    }
}

/// Forgets a failure once the specification has changed. An automatic shrink is reported in an
/// event, and decided again.
fn forget_failure(plan: &mut PodPlan<'_>) {
    let now = plan.seen.generation();
    let Some(swap) = plan.entry.swap.as_ref().filter(|one| one.phase == SwapPhase::Failed) else {
        return;
    };
    if swap.automatic {
        plan.entry.swap = None;
        take_back_shrink(plan);
    } else if swap.spec_generation != now {
        plan.entry.swap = None;
    }
}

/// Returns true if a failed swap is due for a retry.
fn is_due(swap: &Swap, now: Timestamp) -> bool {
    swap.phase == SwapPhase::Failed
        && swap.next_retry_time.as_ref().is_some_and(|Time(at)| *at <= now)
}
