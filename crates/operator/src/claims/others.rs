//! Other pods of the workload: which of them hold back the stop of this one. Pure.

use crate::claims::AutoscalerReason;
use crate::claims::pod_plan::PodPlan;
use crate::claims::readiness::is_ready_with;

pub(super) fn is_in_partition(plan: &PodPlan<'_>) -> bool {
    let rollout = plan.seen.autoscaler.spec.rollout.as_ref();
    rollout.is_none_or(|rollout| plan.entry.ordinal >= rollout.partition)
}

/// Waits, and returns true, if the pod is not stopped now because others are not ready.
pub(super) fn wait_for_others(plan: &mut PodPlan<'_>) -> bool {
    let Some(other) = too_many_unready(plan) else { return false };
    let message = format!(
        "pod {other} is not ready, so pod {} is not stopped: see `kubectl describe pod {other}`",
        plan.pod()
    );
    plan.wait(AutoscalerReason::PodNotReady, message);
    true
}

/// Returns one of the other pods that are not ready, if no further pod may be stopped.
pub(super) fn too_many_unready(plan: &PodPlan<'_>) -> Option<String> {
    let status = plan.seen.autoscaler.status.as_ref()?;
    let others = status
        .ordinals
        .iter()
        .filter(|one| one.ordinal != plan.entry.ordinal && plan.seen.has_pod(one.ordinal))
        .filter(|one| !plan.seen.names_claims() || plan.seen.pod(one.ordinal).is_some());
    let mut unready =
        others.filter(|one| !is_ready_with(plan.seen, one.ordinal, &one.active_claim));
    let last = unready.nth(plan.seen.autoscaler.spec.max_unavailable() - 1)?;
    Some(plan.seen.pod_name(last.ordinal))
}
