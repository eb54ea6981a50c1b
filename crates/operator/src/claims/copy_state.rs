//! What is known of the claims of a swap: which content they have, and who uses them. Pure.

use kube::ResourceExt;

use crate::api::{FillingPhase, Swap};
use crate::claims::objects::{is_bound, is_ending, is_on_node, is_unstarted, uses};
use crate::claims::observed::ObservedWorkload;
use crate::claims::pod_plan::PodPlan;
use crate::claims::users::pods_with;
use crate::cluster::PodSummary;

/// Returns true if a user has deleted the claim, so that it is not retained.
pub fn is_gone(seen: &ObservedWorkload, claim: &str) -> bool {
    seen.claim(claim).is_none_or(|there| is_ending(&there.metadata))
}

pub fn is_raw(seen: &ObservedWorkload, claim: &str) -> bool {
    let spec = seen.claim(claim).and_then(|claim| claim.spec.as_ref());
    spec.is_some_and(|spec| spec.volume_mode.as_deref() == Some("Block"))
}

/// True if the new claim has its volume, or gets it.
pub fn has_content(seen: &ObservedWorkload, name: &str) -> bool {
    let filling = seen.filling(name).map(|filling| filling.phase);
    seen.claim(name).is_some_and(is_bound)
        || matches!(filling, Some(FillingPhase::Binding | FillingPhase::Succeeded))
}

/// Returns true if the new claim has a volume with the complete content, as the populator noted in its status
/// or on the PersistentVolume: another client that binds the claim can write neither.
pub fn is_filled(seen: &ObservedWorkload, name: &str) -> bool {
    let is_told =
        seen.filling(name).is_some_and(|filling| filling.phase == FillingPhase::Succeeded);
    seen.claim(name).is_some_and(is_bound) && (is_told || seen.handed_over.contains(name))
}

/// True if a claim was deleted that no pod has: none can start with it any more.
pub fn is_going(seen: &ObservedWorkload, name: &str) -> bool {
    seen.claim(name).is_some_and(|claim| is_ending(&claim.metadata))
        && !pods_with(seen, name).any(is_on_node)
}

/// Returns true if a claim was deleted and its pods have not started on their nodes: no kubelet starts a pod
/// with such a claim, and Kubernetes retains the claim while they exist.
pub fn holds_up_pods(seen: &ObservedWorkload, name: &str) -> bool {
    let is_deleted = seen.claim(name).is_some_and(|claim| is_ending(&claim.metadata));
    let mut pods = pods_with(seen, name).filter(|pod| is_on_node(pod));
    is_deleted && pods.all(is_unstarted)
}

/// Returns why the populator of the new claim is not the one of this swap: its source copies another claim.
/// The source of a populator never changes, so another client has deleted that of the swap, and created this
/// one.
pub(super) fn copies_another(plan: &PodPlan<'_>, swap: &Swap, name: &str) -> Option<String> {
    let (from, namespace) = (&plan.entry.active_claim, plan.seen.autoscaler.namespace());
    let its = &plan.seen.sources.get(name)?.spec.source_pvc_ref;
    let is_own = its.name == *from && (its.namespace.is_none() || its.namespace == namespace);
    (!is_own && !swap.is_rollback).then(|| {
        format!(
            "PvcSourcePopulator {name} copies claim {}, and not claim {from}: another client created it, \
             so its copy is not used",
            its.name
        )
    })
}

/// Returns true if the new claim may have been populated from another claim than that of the
/// pod.
pub(super) fn is_of_another(plan: &PodPlan<'_>, swap: &Swap, name: &str) -> bool {
    let mut spare = plan.entry.retained_claims.iter().filter(|old| old.never_used);
    copies_another(plan, swap, name).is_some() || spare.any(|old| old.name == name)
}

/// Returns true if the pod has a populated new claim: its writes exist nowhere else.
pub(super) fn is_used(plan: &PodPlan<'_>, swap: &Swap, name: &str) -> bool {
    let is_on_it = |pod: &PodSummary| uses(pod, name) && is_on_node(pod);
    !swap.preserves_name
        && is_filled(plan.seen, name)
        && plan.seen.pod(plan.entry.ordinal).is_some_and(is_on_it)
}

/// Returns why a copy that a user started is not used.
pub(super) fn copied_too_early(name: &str) -> String {
    format!(
        "another client set spec.paused of PvcSourcePopulator {name} to false, so it may have been copied \
         while the pod was writing"
    )
}

/// Returns why a new claim is not used that got its volume before the old one was proved unused.
pub(super) fn filled_too_early(name: &str, from: &str) -> String {
    format!(
        "claim {name} got its volume before claim {from} was proved unused, so it may lack later writes, and \
         is not used"
    )
}
