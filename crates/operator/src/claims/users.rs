//! The pods that use a claim. Pure.

use kube::ResourceExt;

use crate::api::controlling_stateful_set;
use crate::claims::objects::uses;
use crate::claims::observed::ObservedWorkload;
use crate::cluster::PodSummary;

/// The pods that may write to a claim, those of ours that only read it left out. Of a claim that is gone, and whose
/// name another client's has, only pods of the workload count: others were never given it.
pub(super) fn writers<'a>(seen: &'a ObservedWorkload, claim: &str) -> Vec<&'a PodSummary> {
    let names = crate::populators::writers(&seen.pods, claim);
    let set = seen.autoscaler.spec.stateful_set();
    let is_of_workload = |pod: &PodSummary| {
        controlling_stateful_set(pod).is_some_and(|owner| Some(&*owner.name) == set)
    };
    let is_taken = seen.taken.contains_key(claim);
    let writers = seen.pods.iter().filter(|pod| names.contains(&pod.name_any()));
    writers.filter(|pod| !is_taken || is_of_workload(pod)).collect()
}

/// The pods that name a claim, also those that only read it.
pub(super) fn pods_with<'a>(
    seen: &'a ObservedWorkload,
    claim: &str,
) -> impl Iterator<Item = &'a PodSummary> {
    seen.pods.iter().filter(move |pod| uses(pod, claim))
}

/// Returns true if a pod of Pliant reads a claim to copy it.
pub(super) fn is_read_by_us(seen: &ObservedWorkload, claim: &str) -> bool {
    pods_with(seen, claim).any(crate::populators::fills)
}
