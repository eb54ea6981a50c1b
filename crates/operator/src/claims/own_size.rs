//! Size that autoscaling chose for the claim of a pod. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::AutoscaledSize;
use crate::claims::pod_plan::PodPlan;
use crate::cluster::requested;

/// Reverts an automatic shrink that was not possible. The reported usage stays valid.
pub(super) fn take_back_shrink(plan: &mut PodPlan<'_>) {
    let has = plan.seen.claim(&plan.entry.active_claim);
    let has = has.and_then(|claim| requested(claim).ok());
    if let (Some(own), Some(to)) = (own_size(plan), has) {
        let (from, failure_time) = (own.template_size, Some(Time(plan.seen.now)));
        plan.entry.autoscaled_size = Some(AutoscaledSize {
            size: to,
            template_size: from,
            decision_time: None,
            failure_time,
        });
    }
}

/// Returns the automatic size of the claim, if the template has not changed since.
pub(super) fn own_size<'a>(plan: &'a PodPlan<'_>) -> Option<&'a AutoscaledSize> {
    plan.entry.autoscaled_size.as_ref().filter(|own| own.template_size == plan.seen.template_size())
}

/// Returns true if the claim is larger than its automatic size.
pub(super) fn shrinks_by_itself(plan: &PodPlan<'_>) -> bool {
    let claim = plan.seen.claim(&plan.entry.active_claim);
    let asked = claim.and_then(|claim| requested(claim).ok());
    asked.zip(own_size(plan)).is_some_and(|(asked, own)| own.size < asked)
}
