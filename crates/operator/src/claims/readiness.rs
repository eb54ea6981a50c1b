//! Since when the pods of a workload are ready with their claims. Pure.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::OrdinalStatus;
use crate::claims::objects::{became_ready, is_ending, uses};
use crate::claims::observed::ObservedWorkload;

/// Returns true if the pod with this ordinal has been ready with this claim for long enough.
pub(super) fn is_ready_with(seen: &ObservedWorkload, ordinal: i32, claim: &str) -> bool {
    let min_ready = seen.workload.as_ref().map_or(0, |set| set.min_ready);
    let since = ready_since(seen, ordinal, claim);
    since.is_some_and(|at| seen.now.duration_since(at).as_secs() >= min_ready)
}

/// Returns when the pod of an entry will have been ready with its claim for long enough, if it is ready now.
pub(super) fn will_be_ready(seen: &ObservedWorkload, entry: &OrdinalStatus) -> Option<Timestamp> {
    let min_ready = seen.workload.as_ref().map_or(0, |set| set.min_ready);
    let since = ready_since(seen, entry.ordinal, &entry.active_claim)?;
    let at = since.checked_add(SignedDuration::from_secs(min_ready)).ok()?;
    (at > seen.now).then_some(at)
}

/// Returns the time since which the pod with this ordinal is ready with this claim.
pub(super) fn ready_since(seen: &ObservedWorkload, ordinal: i32, claim: &str) -> Option<Timestamp> {
    let pod = seen.pod(ordinal).filter(|pod| !is_ending(&pod.metadata) && uses(pod, claim))?;
    became_ready(pod)
}
