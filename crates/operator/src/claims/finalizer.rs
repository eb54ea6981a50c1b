//! Protects the old claim of a swap from deletion while no pod uses it: the only copy of its content would be lost.
//! It carries the finalizer from before its pod is stopped until the new claim is complete, or the swap is aborted.
//! Users of the claim can write that, too, so its PersistentVolume has an annotation that a swap holds the claim:
//! only the volume of such a claim is retained. Before the pod is stopped, that PersistentVolume gets the policy
//! Retain: if a user removes the finalizer of a deleted claim, no data is lost.
//!
//! Kubernetes starts no pod with a deleted claim. So a running copy is waited for; otherwise the swap is aborted,
//! and the volume is retained when the claim is deleted.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::api::{ListParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::api::{FillingPhase, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, SwapPhase};
use crate::claims::context::{ClaimsController, pvs};
use crate::claims::objects::{HELD_FOR, POLICY_BEFORE, is_ending, owner, policy_before, uid};
use crate::claims::pod_plan::PodPlan;
use crate::claims::steps::Step;
use crate::claims::users::pods_with;
use crate::claims::{AutoscalerReason, SUPERSEDED_BY};
use crate::cluster::writes::OPERATOR;
use crate::cluster::{
    ClaimSummary, HELD_BY_SWAP as SWAP, OnceEvent, PodSummary, caught_in_time, list,
    report_unfinished, writes,
};
use crate::{error_chain, populators};

/// Reclaim policy that retains a volume when its claim is deleted.
const RETAIN: &str = "Retain";

/// Returns true if a swap holds a claim.
fn is_held(claim: &impl ResourceExt) -> bool {
    claim.finalizers().iter().any(|one| one == SWAP)
}

/// Returns true if a pod has its claims mounted, so that it can complete.
fn has_begun(pod: &PodSummary) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Running" | "Succeeded"))
}

/// Returns the claims in a status, so that they are released in time.
fn claims_in_status(status: Option<&PvcAutoscalerStatus>) -> impl Iterator<Item = &String> {
    let ordinals = status.into_iter().flat_map(|status| &status.ordinals);
    ordinals.flat_map(|one: &OrdinalStatus| {
        [&one.active_claim].into_iter().chain(one.retained_claims.iter().map(|old| &old.name))
    })
}

/// Returns true if a status refers to a claim.
pub(super) fn is_in_status(status: Option<&PvcAutoscalerStatus>, claim: &str) -> bool {
    claims_in_status(status).any(|told| told == claim)
}

/// Returns true if a PersistentVolume has the annotation that a swap holds its claim.
pub(super) fn is_marked_for(pv: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    pv.annotations().get(HELD_FOR) == claim.metadata.uid.as_ref()
}

/// Requests that the old claim is protected from deletion; returns true once it is.
pub(super) fn ensure_held(plan: &mut PodPlan<'_>, from: &str) -> bool {
    let Some(claim) = plan.seen.claim(from) else { return false };
    let is_held = is_held(claim) && !plan.seen.unmarked.contains(from);
    if !is_held && !is_ending(&claim.metadata) {
        plan.steps.push(Step::Hold { claim: from.to_owned() });
    }
    is_held
}

/// Returns why the old claim can no longer be copied: it was deleted, and no copy of it runs.
pub(super) fn is_deleted(plan: &PodPlan<'_>, from: &str, phase: FillingPhase) -> Option<String> {
    let claim = plan.seen.claim(from);
    if claim.is_some_and(|claim| !is_ending(&claim.metadata)) {
        return None;
    }
    let goes_on = pods_with(plan.seen, from).any(|pod| populators::fills(pod) && has_begun(pod));
    if goes_on || phase == FillingPhase::Binding {
        return None;
    }
    let volume = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref());
    let volume = volume.unwrap_or("NAME");
    Some(format!(
        "claim {from} was deleted before it was copied. Its volume {volume} is retained. To use it again, \
         run `kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'` when the \
         claim is gone, and create claim {from} again with spec.volumeName {volume}. An edit of the \
         template creates an empty claim"
    ))
}

/// Releases claims that are not to be copied any more.
pub(super) fn remove_finalizer(plan: &mut PodPlan<'_>) {
    let phase = plan.entry.swap.as_ref().map(|swap| swap.phase);
    let active = match phase {
        None | Some(SwapPhase::Failed | SwapPhase::Soaking) => Some(&plan.entry.active_claim),
        Some(_) => None,
    };
    let all = active.into_iter().chain(plan.entry.retained_claims.iter().map(|old| &old.name));
    let held = all.filter(|name| plan.seen.claim(name).is_some_and(is_held));
    let steps = held.map(|name| {
        let keeps_volume = *name == plan.entry.active_claim;
        Step::LetGo { claim: name.clone(), keeps_volume, superseded_by: None }
    });
    plan.steps.extend(steps.collect::<Vec<_>>());
}

/// Protects an observed claim from deletion; its volume gets the annotation and is retained from then on.
///
/// # Errors
/// A conflict if the claim has changed: nothing is written to its volume then. If another replica has released
/// it meanwhile, no one would restore the policy of its volume.
pub(super) async fn add_finalizer(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
) -> Result<(), kube::Error> {
    // One that its tenant wrote is written once more, which asks whether the claim has changed.
    let others = claim.finalizers().iter().map(String::as_str).filter(|one| *one != SWAP);
    let finalizers: Vec<&str> = others.chain([SWAP]).collect();
    write_metadata(ctx, claim, json!({ "finalizers": finalizers })).await?;
    if let Some(pv) = pv_of(ctx, claim).await?.filter(|pv| !is_marked_for(pv, claim)) {
        let spec = pv.spec.as_ref();
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_ref());
        let policy = policy.filter(|policy| *policy != RETAIN);
        let notes = json!({ HELD_FOR: claim.metadata.uid, POLICY_BEFORE: policy });
        let retains = policy.map(|_| RETAIN);
        mark(ctx, &pv, &json!({ "annotations": notes }), retains).await?;
    }
    Ok(())
}

/// Releases a claim, and retains its volume if a swap held the claim, it was deleted, and no status shows that
/// another one has replaced it. Annotations of the claim do not count, because tenants can write them. Any
/// other volume gets its own policy again. If another claim has replaced it, the claim is annotated with that.
pub(super) async fn release(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
    keeps_volume: bool,
    superseded_by: Option<&str>,
) -> Result<(), kube::Error> {
    unmark(ctx, claim, keeps_volume).await?;
    if !is_held(claim) {
        return Ok(()); // Its tenant took it off.
    }
    let finalizers = claim.finalizers().iter().map(String::as_str).filter(|one| *one != SWAP);
    let mut metadata = json!({ "finalizers": finalizers.collect::<Vec<_>>() });
    if let Some(by) = superseded_by {
        metadata["annotations"] = json!({ SUPERSEDED_BY: by });
    }
    write_metadata(ctx, claim, metadata).await
}

/// Removes the annotation of a PersistentVolume that a swap holds its claim.
pub(super) async fn unmark(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
    keeps_volume: bool,
) -> Result<(), kube::Error> {
    if let Some(pv) = pv_of(ctx, claim).await?.filter(|pv| is_marked_for(pv, claim)) {
        let keeps = keeps_volume
            && is_ending(&claim.metadata)
            && !is_namespace_ending(ctx, &claim.namespace().unwrap_or_default()).await?;
        if keeps {
            report_retained(ctx, claim, &pv).await?;
        }
        let policy = if keeps { Some(RETAIN) } else { policy_before(&pv).map(String::as_str) };
        let notes = json!({"annotations": { HELD_FOR: null, POLICY_BEFORE: null }});
        mark(ctx, &pv, &notes, policy).await?;
    }
    Ok(())
}

/// Emits an event on a deleted claim that names its retained volume: before the retention is written, so that
/// no volume is retained silently.
async fn report_retained(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
    pv: &PersistentVolume,
) -> Result<(), kube::Error> {
    let (name, volume) = (claim.name_any(), pv.name_any());
    let text = format!(
        "claim {name} was deleted during a swap, and PersistentVolume {volume} has the only copy of its \
             content. Its reclaim policy is now Retain, and it is Released when the claim is gone. To use it \
             again, run `kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'` then, \
             and create claim {name} with spec.volumeName {volume}; to delete it, run `kubectl patch pv \
             {volume} --type=merge -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Delete\"}}}}'`"
    );
    let reason = AutoscalerReason::VolumeRetained;
    tracing::warn!(claim = name, volume, "retained the volume of a deleted claim");
    let event = OnceEvent::of(claim, (reason, reason.is_warning()), &volume, &text);
    event.write(&ctx.client, OPERATOR).await.map(drop)
}

/// Returns true if a namespace is being deleted: no user is left for its volumes.
pub(super) async fn is_namespace_ending(
    ctx: &ClaimsController,
    name: &str,
) -> Result<bool, kube::Error> {
    let api: Api<Namespace> = Api::all(ctx.client.clone());
    let there = api.get_metadata_opt(name).await?;
    Ok(there.is_none_or(|there| is_ending(&there.metadata)))
}

/// Returns the PersistentVolume of a claim, if that refers to the claim too: a user can write any name
/// into a claim.
pub(super) async fn pv_of(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
) -> Result<Option<PersistentVolume>, kube::Error> {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let Some(named) = named else { return Ok(None) };
    let pv = pvs(ctx).get_opt(named).await?;
    Ok(pv.filter(|pv| owner(pv) == Some(uid(&claim.metadata))))
}

/// Writes metadata, and a policy, to an observed PersistentVolume.
async fn mark(
    ctx: &ClaimsController,
    pv: &PersistentVolume,
    metadata: &Value,
    policy: Option<&str>,
) -> Result<(), kube::Error> {
    let mut patch = json!({ "metadata": metadata });
    patch["metadata"]["uid"] = json!(pv.metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(pv.metadata.resource_version);
    if let Some(policy) = policy {
        patch["spec"] = json!({ "persistentVolumeReclaimPolicy": policy });
    }
    writes::patch(&pvs(ctx), &pv.name_any(), &Patch::Merge(patch), OPERATOR).await
}

/// Writes metadata to an observed claim.
async fn write_metadata(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
    mut metadata: Value,
) -> Result<(), kube::Error> {
    metadata["uid"] = json!(claim.metadata.uid);
    metadata["resourceVersion"] = json!(claim.metadata.resource_version);
    let patch = json!({ "metadata": metadata });
    let api = ctx.of::<PersistentVolumeClaim>(&claim.namespace().unwrap_or_default());
    writes::patch(&api, &claim.name_any(), &Patch::Merge(patch), OPERATOR).await
}

/// Releases a claim that no PvcAutoscaler refers to: its own was deleted midway. Returns true if it may still
/// be held.
pub(super) async fn remove_finalizer_if_unreferenced(
    ctx: &ClaimsController,
    (namespace, name): (&str, &str),
) -> bool {
    let Some(claim) = ctx.watches.claims().get_in(namespace, name) else { return false };
    let released =
        caught_in_time("held claims", remove_finalizer_if_unreferenced_by_all(ctx, &claim));
    match Box::pin(released).await {
        Ok(Ok(is_any)) => is_any,
        Ok(Err(error)) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(error, "failed to decide whether to release a held claim");
            true
        }
        Err(why) => {
            report_unfinished(&ctx.client, OPERATOR, &*claim, &why).await;
            true
        }
    }
}

async fn remove_finalizer_if_unreferenced_by_all(
    ctx: &ClaimsController,
    claim: &ClaimSummary,
) -> Result<bool, kube::Error> {
    let (namespace, name) = claim.names.place();
    if ctx.autoscalers_in(namespace).iter().any(|one| one.tells_of(name)) {
        return Ok(false);
    }
    // A watch may be older than the operation; the status with it was written before the operation.
    let all = list(&ctx.of::<PvcAutoscaler>(namespace), &ListParams::default()).await?;
    if !all.unreadable.is_empty() {
        return Ok(true); // One of them may refer to it.
    }
    let is_its = |one: &PvcAutoscaler| is_in_status(one.status.as_ref(), name);
    let there = ctx.of::<PersistentVolumeClaim>(namespace).get_opt(name).await?;
    let Some(there) = there.filter(|there| is_held(there) && !all.items.iter().any(is_its)) else {
        return Ok(false);
    };
    tracing::info!("releasing a held claim that no swap refers to");
    release(ctx, &there, true, None).await?;
    Ok(true)
}
