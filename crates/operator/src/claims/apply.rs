//! Applies one effect at a time. Each carries the version that it was decided from, and fails if
//! that has changed.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, EvictParams, Patch, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{PvcAutoscaler, PvcAutoscalerStatus, PvcSourcePopulator, Quantity};
use crate::claims::context::ClaimsController;
use crate::claims::detached::note_detached;
use crate::claims::finalizer::{add_finalizer, release, unmark};
use crate::claims::lower_size::lower_size;
use crate::claims::objects::uid;
use crate::claims::observed::ObservedWorkload;
use crate::claims::pv_exchange_apply::exchange;
use crate::claims::steps::Step;
use crate::claims::{AutoscalerReason, SUPERSEDED_BY, manifests};
use crate::cluster::writes::OPERATOR;
use crate::cluster::{KEPT_BY, OnceEvent, refusal, requested, writes};
use crate::populators;

/// Writes the status over the observed version only.
pub(super) async fn note(
    ctx: &ClaimsController,
    autoscaler: &PvcAutoscaler,
    status: &PvcAutoscalerStatus,
) -> Result<(), kube::Error> {
    let metadata = &autoscaler.metadata;
    let patch = json!({
        "metadata": {"resourceVersion": metadata.resource_version},
        "status": whole(status),
    });
    let params =
        kube::api::PatchParams { field_manager: Some(OPERATOR.to_owned()), ..Default::default() };
    let api = ctx.of::<PvcAutoscaler>(metadata.namespace.as_deref().unwrap_or_default());
    let name = autoscaler.name_any();
    api.patch_status(&name, &params, &Patch::Merge(patch)).await.map(drop)
}

/// Applies a step.
///
/// # Errors
/// An error of the API server. A conflict means that something has changed: observe again.
pub(super) async fn apply(
    ctx: &ClaimsController,
    step: Step,
    seen: &ObservedWorkload,
) -> Result<(), kube::Error> {
    let autoscaler = &seen.autoscaler;
    let namespace = autoscaler.namespace().unwrap_or_default();
    let claims = ctx.of::<PersistentVolumeClaim>(&namespace);
    tracing::debug!(?step, "applying a step to claims");
    match step {
        Step::MakeClaim { ordinal, claim, size } => {
            let claim = manifests::claim(autoscaler, ordinal, &claim, size);
            writes::make(&claims, &claim, OPERATOR).await
        }
        Step::MakeCopy { ordinal, claim, size, from, node } => {
            let node = match node {
                Some(node) => Some(node),
                None => only_node_of(ctx, seen, &from).await?,
            };
            let claim = manifests::copy(autoscaler, ordinal, &claim, size, node.as_deref());
            writes::make(&claims, &claim, OPERATOR).await
        }
        Step::Adopt { ordinal, claim } => {
            let labels: Value = manifests::labels_of(autoscaler, ordinal).into_iter().collect();
            let patch = json!({"metadata": {"labels": labels}});
            patch_claim(ctx, seen, &claim, patch).await
        }
        Step::DropNotes { claim, notes } => {
            let version = seen.claim(&claim).and_then(ResourceExt::resource_version);
            let notes: Value = notes.into_iter().map(|key| (key, Value::Null)).collect();
            let patch = json!({"metadata": {"resourceVersion": version, "annotations": notes}});
            patch_claim(ctx, seen, &claim, patch).await
        }
        Step::Mark { claim, marks } => {
            let patch = json!({"metadata": marks});
            patch_claim(ctx, seen, &claim, patch).await
        }
        Step::Grow { claim, size } => grow(ctx, seen, &claim, size).await,
        Step::MakeSource { ordinal, claim, from } => {
            create_populator(ctx, seen, ordinal, &claim, &from).await
        }
        Step::EndRounds { claim } => {
            let spec = json!({"preCopy": false, "probe": false});
            patch_populator(ctx, seen, &claim, spec).await
        }
        Step::Ask { volume, wish } => {
            ctx.asks.ask(uid(&autoscaler.metadata), volume, wish);
            Ok(())
        }
        Step::Hold { claim } => match seen.claim(&claim) {
            Some(claim) => add_finalizer(ctx, claim).await,
            None => Ok(()),
        },
        Step::LetGo { claim, keeps_volume, superseded_by } => match seen.claim(&claim) {
            Some(claim) => release(ctx, claim, keeps_volume, superseded_by.as_deref()).await,
            None => Ok(()),
        },
        Step::TellSmaller { claim, to } => match seen.claim(&claim) {
            Some(claim) => lower_size(ctx, claim, to).await,
            None => Ok(()),
        },
        Step::Exchange { claim, copy } => {
            let volume = volume_to_be(seen, &claim).unwrap_or_default();
            exchange(ctx, &namespace, &claim, &copy, volume, returns(seen, &claim)).await
        }
        Step::StartCopy { claim } => {
            patch_populator(ctx, seen, &claim, json!({"paused": false})).await
        }
        Step::Evict { pod, uid, within } => evict(ctx, &namespace, &pod, uid, within).await,
        Step::DropPod { pod, uid, version } => {
            remove_seen(&ctx.of::<Pod>(&namespace), &pod, &uid, version).await
        }
        Step::Supersede { claim, by } => mark_superseded(ctx, seen, &claim, Some(&by)).await,
        Step::Reinstate { claim } => reinstate(ctx, seen, &claim).await,
        Step::NoteDetached { claim, copy } => note_detached(ctx, seen, &claim, Some(&copy)).await,
        Step::DropSource { claim } => match seen.sources.get(&claim) {
            Some(source) => {
                let seen = named(&claim, uid(source.meta()));
                writes::remove(&ctx.of::<PvcSourcePopulator>(&namespace), &seen).await
            }
            None => Ok(()),
        },
        Step::DropClaim { claim, uid, version } => {
            // If a user removed the finalizer, nothing was released by the operator.
            let there = seen.claim(&claim).filter(|there| self::uid(&there.metadata) == uid);
            if let Some(there) = there {
                unmark(ctx, there, false).await?;
            }
            remove_seen(&claims, &claim, &uid, version).await
        }
        Step::Count { away } => {
            ctx.tally.paused(Duration::from_secs(away.unsigned_abs()));
            Ok(())
        }
        Step::Tell { reason, subject, text } => {
            emit_event(ctx, seen, reason, &subject, &text).await
        }
    }
}

/// Creates the populator of a new claim.
async fn create_populator(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    ordinal: i32,
    claim: &str,
    from: &str,
) -> Result<(), kube::Error> {
    let autoscaler = &seen.autoscaler;
    let populator_pod = seen.workload.as_ref().map(|workload| &workload.populator_pod);
    let populator_pod = populator_pod.cloned().unwrap_or_default();
    let source = manifests::source(autoscaler, ordinal, claim, from, &populator_pod);
    let by = autoscaler.name_any();
    let is_own = |there: &PvcSourcePopulator| there.labels().get(KEPT_BY) == Some(&by);
    let api = ctx.of::<PvcSourcePopulator>(&autoscaler.namespace().unwrap_or_default());
    writes::make_own(&api, &source, OPERATOR, is_own).await
}

/// Returns the node on which a claim can be read, if there is only one: the claim that is populated
/// from it must be there.
async fn only_node_of(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    claim: &str,
) -> Result<Option<String>, kube::Error> {
    let volume = seen.claim(claim).and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
    let Some(volume) = volume else { return Ok(None) };
    let pvs: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let Some(pv) = pvs.get_opt(&volume).await? else { return Ok(None) };
    let nodes = populators::nodes_of(&ctx.client, &pv).await?.unwrap_or_default();
    Ok(nodes.first().filter(|_| nodes.len() == 1).cloned())
}

async fn grow(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    name: &str,
    size: Quantity,
) -> Result<(), kube::Error> {
    let Some(claim) = seen.claim(name) else { return Ok(()) };
    // Never smaller than a later request, unless that was rejected.
    let size = match (refusal(claim), requested(claim)) {
        (Ok(Some(_)), _) => size,
        (Ok(None), Ok(asked)) => size.max(asked),
        (Err(error), _) | (_, Err(error)) => {
            tracing::warn!(claim = name, %error, "failed to expand a claim");
            return Ok(());
        }
    };
    let patch = json!({
        "metadata": {"resourceVersion": claim.metadata.resource_version},
        "spec": {"resources": {"requests": {"storage": size}}},
    });
    patch_claim(ctx, seen, name, patch).await
}

async fn patch_claim(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    name: &str,
    patch: Value,
) -> Result<(), kube::Error> {
    let Some(claim) = seen.claim(name) else { return Ok(()) };
    let mut patch = patch;
    patch["metadata"]["uid"] = json!(claim.metadata.uid);
    let api = ctx.of::<PersistentVolumeClaim>(&claim.namespace().unwrap_or_default());
    writes::patch(&api, name, &Patch::Merge(patch), OPERATOR).await
}

/// Sets or removes the annotation of a claim that names its replacement; only on the observed version: a
/// late decision of another replica would contradict it.
async fn mark_superseded(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    name: &str,
    by: Option<&String>,
) -> Result<(), kube::Error> {
    let version = seen.claim(name).and_then(ResourceExt::resource_version);
    let patch = json!({"metadata": {"resourceVersion": version,
                                        "annotations": { SUPERSEDED_BY: by }}});
    patch_claim(ctx, seen, name, patch).await
}

/// Removes the annotation that names the replacement of a claim.
async fn reinstate(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    name: &str,
) -> Result<(), kube::Error> {
    if seen.claim(name).is_some_and(|claim| seen.is_noted_for_another(claim)) {
        note_detached(ctx, seen, name, None).await?;
    }
    mark_superseded(ctx, seen, name, None).await
}

async fn patch_populator(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    claim: &str,
    spec: Value,
) -> Result<(), kube::Error> {
    let Some(source) = seen.sources.get(claim) else { return Ok(()) };
    let patch = json!({"metadata": {"uid": source.metadata.uid}, "spec": spec});
    let api = ctx.of::<PvcSourcePopulator>(&source.namespace().unwrap_or_default());
    writes::patch(&api, claim, &Patch::Merge(patch), OPERATOR).await
}

/// Evicts a pod. The API server checks its PodDisruptionBudgets.
async fn evict(
    ctx: &ClaimsController,
    namespace: &str,
    pod: &str,
    uid: String,
    within: Option<u32>,
) -> Result<(), kube::Error> {
    let only = Preconditions { uid: Some(uid), resource_version: None };
    let params = EvictParams {
        delete_options: Some(DeleteParams {
            grace_period_seconds: within,
            preconditions: Some(only),
            ..DeleteParams::default()
        }),
        post_options: PostParams {
            field_manager: Some(OPERATOR.to_owned()),
            ..PostParams::default()
        },
    };
    let api: Api<Pod> = ctx.of(namespace);
    match api.evict(pod, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}

pub(super) async fn emit_event(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    reason: AutoscalerReason,
    subject: &str,
    text: &str,
) -> Result<(), kube::Error> {
    let reason = (reason, reason.is_warning());
    let event = OnceEvent::of(&seen.autoscaler, reason, subject, text);
    event.write(&ctx.client, OPERATOR).await.map(drop)
}

/// Deletes an object as observed; one of another uid or version stays.
async fn remove_seen<K>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    version: Option<String>,
) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    writes::remove(api, &ObjectMeta { resource_version: version, ..named(name, uid) }).await
}

fn named(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), uid: Some(uid.to_owned()), ..ObjectMeta::default() }
}

/// Returns the status with removed fields as `null`: a merge would leave them.
fn whole(status: &PvcAutoscalerStatus) -> Value {
    let mut whole = json!(status);
    for field in ["progress", "plannedAction", "reason", "message"] {
        if whole.get(field).is_none() {
            whole[field] = Value::Null;
        }
    }
    whole
}

/// Returns true if a claim is rolled back to a volume that may be larger than its request.
fn returns(seen: &ObservedWorkload, claim: &str) -> bool {
    let ordinals = seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let mut its = ordinals.filter(|one| one.active_claim == claim);
    its.any(|one| one.swap.as_ref().is_some_and(|swap| swap.is_rollback))
}

/// Returns the volume for a claim that retains its name.
pub fn volume_to_be<'a>(seen: &'a ObservedWorkload, claim: &str) -> Option<&'a str> {
    let ordinals = seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let swap = ordinals.filter(|one| one.active_claim == claim).find_map(|one| one.swap.as_ref());
    swap?.volume_handle.as_deref()
}
