//! Questions about single objects: claims, their PersistentVolumes, and pods. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use crate::api::{LONGEST_SENTENCE, PvcSourcePopulator, Retained, holds_at_gate};
use crate::claims::steps::Step;
use crate::cluster::PodSummary;

/// Annotation of the PersistentVolume of a claim that a swap holds: the uid of that claim. A tenant
/// can write the finalizer of a claim, but not this.
pub(super) const HELD_FOR: &str = "pliant.io/held-for-swap";

/// Annotation of the same PersistentVolume: its previous reclaim policy, if that is not Retain.
pub(super) const POLICY_BEFORE: &str = "pliant.io/swap-reclaim-policy";

pub(super) fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn is_ending(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// Returns true if a claim has its volume.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

/// The sentence about a claim that is not bound, with the command that shows why.
pub(super) fn without_volume(claim: &str) -> String {
    format!("claim {claim} has no volume yet: see `kubectl pliant explain pvc/{claim}`")
}

/// Returns true if a claim was created for a swap: the source of its name populates it. A claim from a
/// snapshot or another populator is not one.
pub(super) fn is_copy(claim: &PersistentVolumeClaim) -> bool {
    let source = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    source.is_some_and(|source| {
        source.api_group.as_deref() == Some(&*PvcSourcePopulator::group(&()))
            && source.kind == PvcSourcePopulator::kind(&())
            && source.name == claim.name_any()
    })
}

/// Returns true if a copy may still be written into a claim. A lost one has had a volume, and may get it
/// again.
pub(super) fn is_fillable(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Bound" | "Lost")) && !is_ending(&claim.metadata)
}

/// A claim that is retained, whose time begins when its pod is ready.
pub(super) fn retained_from_now(claim: &PersistentVolumeClaim) -> Retained {
    Retained { name: claim.name_any(), uid: uid(&claim.metadata).to_owned(), ..Retained::default() }
}

/// Deletes a claim, only on the observed version: it may have got a volume since, or be that of its pod again.
pub(super) fn drop_as_seen(claim: &PersistentVolumeClaim) -> Step {
    let uid = uid(&claim.metadata).to_owned();
    Step::DropClaim { claim: claim.name_any(), uid, version: claim.resource_version() }
}

/// The uid of the claim that a PersistentVolume is for.
pub(super) fn owner(pv: &PersistentVolume) -> Option<&str> {
    pv.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref()
}

/// Returns the previous policy of a PersistentVolume that no swap holds any more, if it differs.
pub(super) fn policy_before(pv: &PersistentVolume) -> Option<&String> {
    let holder = pv.annotations().get(HELD_FOR).map(String::as_str);
    pv.annotations().get(POLICY_BEFORE).filter(|_| holder.is_some() && holder == owner(pv))
}

/// Returns true if a pod has a claim among its volumes.
pub(super) fn uses(pod: &PodSummary, claim: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| {
        let named = volume.persistent_volume_claim.as_ref();
        named.is_some_and(|named| named.claim_name == claim)
    })
}

/// Returns true if all containers of a pod have ended for good: its kubelet releases its volumes.
pub(super) fn has_ended(pod: &PodSummary) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns true if the kubelet of a pod reports that nothing of it has started, and no volume was mounted.
pub(super) fn is_unstarted(pod: &PodSummary) -> bool {
    let is_on_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let is_pending = pod
        .status
        .as_ref()
        .is_some_and(|status| status.phase.as_deref().is_none_or(|phase| phase == "Pending"));
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut told = conditions.filter(|one| one.type_ == "PodReadyToStartContainers");
    // After a restart of its node it reports that again, though an init container may have written
    // before.
    let has_run = pod.status.as_ref().is_some_and(|status| status.has_made_init_container());
    is_on_node && is_pending && !has_run && told.any(|one| one.status == "False")
}

/// True if a pod is on a node, and has not ended.
pub(super) fn is_on_node(pod: &PodSummary) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) && !has_ended(pod)
}

/// Within how many seconds a pod is to go whose own time is none: it would be gone at once for Kubernetes,
/// whatever its containers do.
pub(super) fn seconds_for(pod: &PodSummary) -> Option<u32> {
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    (own == Some(0)).then_some(1)
}

/// Returns true if a pod waits at the scheduling gate of Pliant.
pub(super) fn holds_at_our_gate(pod: &PodSummary) -> bool {
    let spec = pod.spec.as_ref();
    let gates = spec.into_iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    holds_at_gate(gates, spec.and_then(|spec| spec.node_name.as_ref()))
}

/// Returns the time in whole seconds, as objects store it.
pub(super) fn in_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// As much of a sentence as a status takes.
pub(super) fn bounded(text: &str) -> String {
    text.chars().take(LONGEST_SENTENCE).collect()
}

/// Returns the time since which a pod is ready.
pub(super) fn became_ready(pod: &PodSummary) -> Option<Timestamp> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|one| one.type_ == "Ready" && one.status == "True");
    ready.next()?.last_transition_time.as_ref().map(|at| at.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_pod_is_gone_for_kubernetes_before_its_containers_are() {
        let pod = |spec| {
            serde_json::from_value::<PodSummary>(
                json!({"metadata": {"name": "db-0"}, "spec": spec}),
            )
            .unwrap()
        };
        let within = |seconds: i64| {
            seconds_for(&pod(json!({"containers": [], "terminationGracePeriodSeconds": seconds})))
        };
        assert_eq!((within(0), within(1), within(30)), (Some(1), None, None));
        assert_eq!(seconds_for(&pod(json!({"containers": []}))), None);
    }
}
