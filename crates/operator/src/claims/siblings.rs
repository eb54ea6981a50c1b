//! Coordinates several PvcAutoscalers of one workload, for example for data and logs: a pod that one of them stops
//! is missing for the others too. Pure.
//!
//! Each writes into its status that a pod is to stop, and stops it only after a later read of the others. So of two
//! that start at once, at least one sees the other. The older one then waits, and the younger one reverts its
//! status, unless its pod was already evicted.

use std::collections::BTreeMap;

use kube::ResourceExt;

use crate::api::{OrdinalStatus, PvcAutoscaler, Swap, SwapPhase};
use crate::claims::AutoscalerReason;
use crate::claims::objects::{is_ending, uid};
use crate::claims::observed::ObservedWorkload;
use crate::claims::others::wait_for_others;
use crate::claims::pod_plan::PodPlan;

/// Returns true if the pod of an entry is stopped for it, or is about to be.
fn is_stopped(one: &OrdinalStatus) -> bool {
    use SwapPhase::{Draining, Fenced, FinalCopy, Rebinding, RollingBack};
    let phase = one.swap.as_ref().map(|swap| swap.phase);
    matches!(phase, Some(Draining | Fenced | FinalCopy | Rebinding | RollingBack))
}

/// Returns true if an operation is in progress that stops a pod, or will.
pub(super) fn is_busy(one: &OrdinalStatus) -> bool {
    let swap = one.swap.as_ref().filter(|swap| swap.phase != SwapPhase::Failed);
    one.is_shrinking() || swap.is_some()
}

/// The ordinals with which others are busy.
pub fn busy_elsewhere(seen: &ObservedWorkload) -> impl Iterator<Item = i32> {
    entries_of_siblings(seen).filter(|(_, one)| is_busy(one)).map(|(_, one)| one.ordinal)
}

fn entries_of_siblings(
    seen: &ObservedWorkload,
) -> impl Iterator<Item = (&PvcAutoscaler, &OrdinalStatus)> {
    seen.siblings.iter().flat_map(|one| {
        let entries = one.status.iter().flat_map(|status| &status.ordinals);
        entries.map(move |entry| (one, entry))
    })
}

/// Returns true if the other one is older.
fn is_younger_than(seen: &ObservedWorkload, other: &PvcAutoscaler) -> bool {
    let age = |one: &PvcAutoscaler| {
        let made = one.metadata.creation_timestamp.as_ref().map(|at| at.0);
        (made, uid(&one.metadata).to_owned())
    };
    age(other) < age(&seen.autoscaler)
}

/// Returns others that have stopped so many pods that this one is not stopped.
fn stopped_elsewhere<'a>(plan: &PodPlan<'a>) -> Vec<(&'a PvcAutoscaler, i32)> {
    let ours = plan.entry.ordinal;
    let all = entries_of_siblings(plan.seen);
    let stopped = all.filter(|(_, one)| is_stopped(one) && one.ordinal != ours);
    let stopped: BTreeMap<i32, &PvcAutoscaler> =
        stopped.map(|(by, one)| (one.ordinal, by)).collect();
    if stopped.len() < plan.seen.autoscaler.spec.max_unavailable() {
        return Vec::new();
    }
    stopped.into_iter().map(|(ordinal, by)| (by, ordinal)).collect()
}

/// Waits, and returns true, if the pod is not stopped now because others have stopped pods.
pub(super) fn wait_for_siblings(plan: &mut PodPlan<'_>) -> bool {
    let Some((by, other)) = stopped_elsewhere(plan).first().map(|(by, one)| (by.name_any(), *one))
    else {
        return false;
    };
    let message = format!(
        "pod {} is stopped for PvcAutoscaler {by}, so pod {} is not stopped: see `kubectl describe \
         pvcautoscaler {by}`",
        plan.seen.autoscaler.pod_called(other),
        plan.pod()
    );
    plan.wait(AutoscalerReason::PodNotReady, message);
    true
}

/// Waits until the pod may be evicted, and returns true then: whoever stops another one knows of it.
pub(super) fn ensure_may_evict(plan: &mut PodPlan<'_>) -> bool {
    if plan.seen.siblings.is_empty() {
        return true;
    }
    let told = plan.seen.autoscaler.status.as_ref().and_then(|told| told.of(plan.entry.ordinal));
    told.is_some_and(is_stopped) && !wait_for_siblings(plan) && !wait_for_others(plan)
}

/// Cancels the stop of a pod, for an older PvcAutoscaler that stops another one. An evicted pod is gone.
pub(super) fn retreat(plan: &mut PodPlan<'_>, swap: &mut Swap) -> bool {
    let pod = plan.seen.pod(plan.entry.ordinal);
    let runs = pod.is_some_and(|pod| !is_ending(&pod.metadata));
    let yields = stopped_elsewhere(plan).iter().any(|(by, _)| is_younger_than(plan.seen, by));
    if swap.phase != SwapPhase::Draining || !runs || !yields {
        return false;
    }
    (swap.phase, swap.pod_stop_time) = (SwapPhase::Pending, None);
    wait_for_siblings(plan)
}
