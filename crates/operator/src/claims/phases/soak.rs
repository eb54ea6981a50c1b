//! A swap whose pod starts with its new volume: phase Soaking. The next pod is not stopped before. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{AutoscalerPhase, LastSwap, Swap, SwapPhase};
use crate::claims::attempt::attempt;
use crate::claims::detached::ensure_noted;
use crate::claims::objects::{is_ending, is_on_node, uid};
use crate::claims::phases::next::Next;
use crate::claims::phases::passes::in_rounds;
use crate::claims::pod_plan::PodPlan;
use crate::claims::readiness::{is_ready_with, ready_since};
use crate::claims::rollback::{
    begin_anew, begin_return, has_lost_claim, is_needed_again, lacks_before, lost_claim,
};
use crate::claims::steps::Step;
use crate::claims::users::pods_with;
use crate::claims::{AutoscalerReason, SUPERSEDED_BY};
use crate::cluster::{ClaimSizes, PodSummary};

/// Gives the pod its claim from before the swap. If that was deleted too, it starts with an empty claim, as
/// after any other deletion of its claim.
fn replace_lost_claim(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    // Of one that has begun to be counted another claim has taken the place since.
    let before = plan.entry.before().filter(|old| old.replacement_ready_time.is_none());
    let before = before.map(|old| (old.name.clone(), old.uid.clone()));
    let there = before.filter(|(name, uid)| {
        let there = plan.seen.claim(name).filter(|claim| !is_ending(&claim.metadata));
        there.is_some_and(|claim| self::uid(&claim.metadata) == uid)
    });
    let Some((before, uid)) = there else { return begin_anew(plan) };
    if let Some(why) = lacks_before(plan, &before, &uid) {
        let message = format!(
            "claim {} of pod {} was deleted before the pod was ready with it, and {why}; or start with an \
             empty claim: `kubectl delete pvc {before}`",
            plan.entry.active_claim,
            plan.pod()
        );
        plan.add_event(AutoscalerReason::SwapFailed, &attempt(swap), message.clone());
        plan.wait(AutoscalerReason::SwapFailed, message);
        return Next::Wait;
    }
    let text = lost_claim(plan, &before);
    plan.add_event(AutoscalerReason::SwapFailed, &before, text);
    let Some(rollback) = begin_return(plan, Some(swap)) else { return Next::Wait };
    *swap = rollback;
    Next::Enter(SwapPhase::Pending)
}

/// Raises the request of a claim to its size, if its class allows that: it still requests the smaller size from
/// before it got a larger volume again. Returns true once that is so, or cannot be.
fn ensure_grown_to_capacity(plan: &mut PodPlan<'_>, swap: &Swap, name: &str) -> bool {
    let claim = plan.seen.claim(name).filter(|_| swap.is_rollback && swap.preserves_name);
    let Some((claim, sizes)) = claim.and_then(|claim| Some((claim, ClaimSizes::of(claim).ok()?)))
    else {
        return true;
    };
    if sizes.requested >= sizes.capacity {
        return true;
    }
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    let can_grow = class.and_then(|class| plan.seen.classes.get(class)) == Some(&true);
    let (claim, size) = (name.to_owned(), sizes.capacity);
    plan.steps.extend(can_grow.then_some(Step::Grow { claim, size }));
    !can_grow
}

/// Reports the downtime of the swap, now that its pod is ready.
fn sum_up(plan: &mut PodPlan<'_>, swap: &Swap, name: &str, new: &str) {
    // What a pod gets again was copied at another time.
    let filling = plan.seen.filling(new).filter(|_| !swap.is_rollback).cloned().unwrap_or_default();
    let ready = ready_since(plan.seen, plan.entry.ordinal, name);
    let last = LastSwap {
        claim: new.to_owned(),
        downtime_seconds: pause(swap.pod_stop_time.as_ref(), ready),
        copied_bytes: filling.written_bytes,
        pre_copy_passes: filling.pre_copy.map_or(0, |ahead| ahead.passes),
        completion_time: Some(Time(plan.seen.now)),
    };
    plan.steps.extend(last.downtime_seconds.map(|away| Step::Count { away }));
    let pause = last.downtime_seconds.map(|seconds| format!("; it was down for {seconds} s"));
    let rounds = Some(last.pre_copy_passes).filter(|rounds| *rounds > 0);
    let rounds = rounds.map(|rounds| format!("; {} before that", in_rounds(rounds)));
    let what = if name == new { "" } else { " with another volume" };
    let text = format!(
        "pod {} has claim {name}{what} ({}){}{}",
        plan.pod(),
        swap.summary,
        pause.unwrap_or_default(),
        rounds.unwrap_or_default()
    );
    plan.entry.last_swap = Some(last);
    plan.add_event(AutoscalerReason::SwapSucceeded, name, text);
}

/// Reports a pod with a deleted claim that may have started with it, and is not ready.
fn report_deleted_claim(plan: &mut PodPlan<'_>, swap: &Swap, name: &str) {
    let pod = plan.pod();
    let is_deleted = plan.seen.claim(name).is_some_and(|claim| is_ending(&claim.metadata));
    let has_it = |one: &PodSummary| one.name_any() == pod && is_on_node(one);
    if !is_deleted || !pods_with(plan.seen, name).any(has_it) {
        return;
    }
    let then = match plan.entry.before() {
        Some(before) => format!("the pod gets claim {} again", before.name),
        None => "the pod starts with an empty claim".to_owned(),
    };
    let message = format!(
        "claim {name} was deleted, and pod {pod} uses it and is not ready: Kubernetes retains the claim \
         until that pod ends; run `kubectl delete pod {pod}`, and {then}"
    );
    plan.add_event(AutoscalerReason::ClaimInUse, &attempt(swap), message.clone());
    plan.wait(AutoscalerReason::ClaimInUse, message);
}

/// The next pod is not stopped before this one is ready.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    plan.says.phase = Some(AutoscalerPhase::Swapping);
    let name = plan.entry.active_claim.clone();
    if has_lost_claim(plan, swap) {
        return replace_lost_claim(plan, swap);
    }
    let has_pod = plan.seen.has_pod(plan.entry.ordinal);
    if has_pod && !is_ready_with(plan.seen, plan.entry.ordinal, &name) {
        plan.says.progress = Some(format!("pod {} starts with claim {name}", plan.pod()));
        report_deleted_claim(plan, swap, &name);
        return Next::Wait;
    }
    if !ensure_grown_to_capacity(plan, swap, &name) {
        return Next::Wait;
    }
    let new = swap.claim.clone();
    if plan.entry.last_swap.as_ref().is_none_or(|last| last.claim != new) {
        sum_up(plan, swap, &name, &new);
    }
    if !swap.preserves_name && !swap.is_rollback && !ensure_noted(plan, swap, &name) {
        return Next::Wait;
    }
    // While the status has the swap, its objects can be found. Until the old claim names its replacement,
    // the source of that does.
    if plan.seen.sources.contains_key(&new) {
        let is_told = plan.entry.before().is_none_or(|old| {
            let claim = plan.seen.claim(&old.name);
            let is_marked = claim.is_none_or(|it| it.annotations().contains_key(SUPERSEDED_BY));
            is_marked || is_needed_again(plan, Some(swap), &old.name)
        });
        plan.steps.extend(is_told.then_some(Step::DropSource { claim: new }));
        Next::Wait
    } else {
        Next::End
    }
}

/// Returns the downtime of a pod in seconds. The times are from two hosts, so it may come out negative.
fn pause(stopped: Option<&Time>, ready: Option<Timestamp>) -> Option<i64> {
    Some(ready?.duration_since(stopped?.0).as_secs().max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_from_the_stop_until_the_next_pod_is_ready() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let of = |stopped: Option<i64>, ready: Option<i64>| {
            pause(stopped.map(at).map(Time).as_ref(), ready.map(at))
        };
        assert_eq!(of(Some(100), Some(142)), Some(42));
        assert_eq!(of(Some(100), Some(99)), Some(0));
        assert_eq!((of(None, Some(142)), of(Some(100), None)), (None, None));
    }
}
