//! Has pods scheduled whose claims have the volumes that they were to get, or will get none: also of a
//! PvcAutoscaler that was deleted midway.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodSchedulingGate};
use kube::ResourceExt;
use kube::api::{ListParams, Patch};
use serde_json::json;

use crate::api::{GATE, PvcAutoscaler, controlling_stateful_set, is_gated};
use crate::claims::context::{ClaimsController, pvs};
use crate::claims::detached::may_be_incomplete;
use crate::claims::observe::unreadable_of;
use crate::claims::pv_exchange::record;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{
    PodVersion, caught_in_time, lacks_claim, list, report_unfinished, volume_of, writes,
};
use crate::error_chain;
use crate::volume::Use;

/// Removes the scheduling gate of a pod that waits for nothing; returns true if it still waits without a
/// PvcAutoscaler, or on an error.
pub(super) async fn try_to_open_gate(
    ctx: &ClaimsController,
    (namespace, name): (&str, &str),
) -> bool {
    let seen = ctx.gated.get_in(namespace, name).filter(|pod| pod.is_gated);
    let Some(seen) = seen else { return false };
    match Box::pin(caught_in_time("gated pods", open_gate(ctx, &seen))).await {
        Ok(Ok(is_left)) => is_left,
        Ok(Err(error)) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(error, "failed to decide whether to remove a scheduling gate");
            true
        }
        Err(why) => {
            report_unfinished(&ctx.client, OPERATOR, &*seen, &why).await;
            true
        }
    }
}

async fn open_gate(ctx: &ClaimsController, seen: &PodVersion) -> Result<bool, kube::Error> {
    let namespace = seen.namespace().unwrap_or_default();
    let api = ctx.of::<Pod>(&namespace);
    // The pod first: later holders of it are seen.
    let there = api.get_opt(&seen.name_any()).await?;
    let Some(pod) = there.filter(|pod| pod.uid() == seen.uid() && is_gated(pod)) else {
        return Ok(false);
    };
    let all = list(&ctx.of::<PvcAutoscaler>(&namespace), &ListParams::default()).await?;
    if let Some(set) = controlling_stateful_set(&pod)
        && unreadable_of(ctx, &namespace, &all.unreadable, &set.name).await?.is_some()
    {
        return Ok(true); // It may hold the pod.
    }
    if all.items.iter().any(|one| one.holds(&pod) || one.outdates(&pod)) {
        return Ok(false); // Its status shows when it is over, and is watched.
    }
    if lacks_claim(&ctx.client, &namespace, &pod, &all.items).await? {
        return Ok(true);
    }
    let is_told = all.items.iter().any(|one| one.tells_of(&pod));
    if waits_for_volume(ctx, &namespace, &pod, is_told).await? {
        return Ok(true);
    }
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.clone());
    let mut gates: Vec<PodSchedulingGate> = gates.unwrap_or_default();
    gates.retain(|gate| gate.name != GATE);
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version,
                     "labels": { GATE: null }},
        "spec": {"schedulingGates": gates},
    });
    writes::patch(&api, &pod.name_any(), &Patch::Merge(patch), OPERATOR).await?;
    Ok(false)
}

/// Returns true if a claim has no PersistentVolume now, or one in an exchange, or one whose volume is
/// read-only.
async fn waits(ctx: &ClaimsController, claim: &PersistentVolumeClaim) -> Result<bool, kube::Error> {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
    let Some(named) = named else { return Ok(false) };
    let Some(pv) = pvs(ctx).get_opt(named).await? else { return Ok(true) };
    let fence = volume_of(&pv).and_then(|id| ctx.asks.see("", id).fence);
    Ok(record(&pv).is_some() || fence.is_some_and(|fence| fence.lets() == Use::Read))
}

/// Returns true if a claim of a pod waits for its volume; a read-only volume that no swap refers to is
/// returned. For a pod without a status, its PersistentVolumes decide what it may have.
async fn waits_for_volume(
    ctx: &ClaimsController,
    namespace: &str,
    pod: &Pod,
    is_told: bool,
) -> Result<bool, kube::Error> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let api = ctx.of::<PersistentVolumeClaim>(namespace);
    for volume in volumes {
        let Some(named) = &volume.persistent_volume_claim else { continue };
        let Some(claim) = api.get_opt(&named.claim_name).await? else { continue };
        let is_incomplete = !is_told && may_be_incomplete(ctx, pod, &volume.name, &claim).await?;
        if is_incomplete || waits(ctx, &claim).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
