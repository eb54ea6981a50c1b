//! Applies one effect at a time. Each carries the version that it was decided from, and fails if
//! that has changed.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    LimitRange, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{Filling, PopulatorStatus};
use crate::cluster::writes::OPERATOR;
use crate::cluster::{list, writes};
use crate::populators::conditions::judged;
use crate::populators::fit::Fit;
use crate::populators::observed::{ObservedPopulation, uid};
use crate::populators::populator::Populator;
use crate::populators::steps::PopulationStep;
use crate::populators::{
    FINALIZER, Fill, NUDGED, POLICY, POPULATES, PopulationSource, PopulatorReason, SELECTED_NODE,
    SHOWN, prime, sender,
};
use crate::remote::TransferKeys;

/// Number of attempts to write a created object into a status that others write, too.
const RECORDED_WITHIN: usize = 5;

const SELECTED_NODE_AT: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";

/// A claim under one look: what was seen of it, and where its prime claim is.
pub(super) struct Work<'a, S> {
    pub seen: &'a ObservedPopulation,
    pub source: Option<&'a S>,
    pub namespace: &'a str,
}

/// Applies a step.
///
/// # Errors
/// An error of the API server. A conflict means that something has changed: observe again.
pub(super) async fn apply<S: PopulationSource>(
    populator: &Populator<S>,
    step: PopulationStep,
    work: &Work<'_, S>,
) -> Result<(), kube::Error> {
    let Work { seen, source, .. } = work;
    tracing::debug!(?step, "applying a step to a claim");
    match step {
        PopulationStep::Hold => {
            add_finalizer(
                &populator.of::<PersistentVolumeClaim>(&seen.claim.metadata),
                &seen.claim.metadata,
            )
            .await
        }
        PopulationStep::HoldSource => match source {
            Some(source) => add_finalizer(&populator.of::<S>(source.meta()), source.meta()).await,
            None => Ok(()),
        },
        PopulationStep::Pin(node) => pin(populator, seen, Some(&node)).await,
        PopulationStep::Unpin => pin(populator, seen, None).await,
        PopulationStep::MakePrime => make_prime(populator, work).await,
        PopulationStep::MakeKeys => make_keys(populator, work).await,
        PopulationStep::MakeSender => make_sender(populator, work).await,
        PopulationStep::MakePod => make_pod(populator, work).await,
        PopulationStep::RehearsePod => rehearse_pod(populator, work).await,
        PopulationStep::RehearseSender => rehearse_sender(populator, work).await,
        PopulationStep::Ask { volume, wish } => {
            populator.asks.ask(seen.uid(), volume, wish);
            Ok(())
        }
        PopulationStep::Tell(reason, text) => emit_event(populator, seen, reason, &text).await,
        PopulationStep::Note(filling) => note(populator, work, Some(*filling)).await,
        PopulationStep::Forget => note(populator, work, None).await,
        PopulationStep::Show(text) => show(populator, &seen.claim, &json!({ SHOWN: text })).await,
        PopulationStep::Count(result, seconds) => {
            let took = Duration::from_secs(seconds.unsigned_abs());
            populator.tally.filled(result, took);
            Ok(())
        }
        PopulationStep::Retain => retain(populator, seen).await,
        PopulationStep::Rebind => rebind(populator, seen).await,
        PopulationStep::Nudge => resync(populator, seen).await,
        PopulationStep::DropPod => {
            remove::<_, Pod>(populator, seen.pod.as_ref().map(|pod| &pod.metadata)).await
        }
        PopulationStep::DropStranger => {
            let Some(stranger) = &seen.stranger else { return Ok(()) };
            // Only as it was seen: it may have come to a volume since.
            writes::remove(
                &populator.of::<PersistentVolumeClaim>(&stranger.metadata),
                &stranger.metadata,
            )
            .await
        }
        PopulationStep::DropStrangePod => {
            remove::<_, Pod>(populator, seen.strange_pod.as_ref().map(|pod| &pod.metadata)).await
        }
        PopulationStep::DropSender => {
            remove::<_, Pod>(populator, seen.sender.as_ref().map(|pod| &pod.metadata)).await
        }
        PopulationStep::DropPrime => {
            let prime = seen.prime.as_ref().map(|prime| &prime.metadata);
            remove::<_, PersistentVolumeClaim>(populator, prime).await
        }
        PopulationStep::Restore => restore(populator, seen).await,
        PopulationStep::Release => release(populator, seen).await,
    }
}

async fn pin<S: PopulationSource>(
    populator: &Populator<S>,
    seen: &ObservedPopulation,
    node: Option<&str>,
) -> Result<(), kube::Error> {
    let metadata = &seen.claim.metadata;
    let api = populator.of::<PersistentVolumeClaim>(metadata);
    let Some(node) = node else {
        let chosen = seen.claim.annotations().get(SELECTED_NODE);
        let patch = json!([
            {"op": "test", "path": SELECTED_NODE_AT, "value": chosen},
            {"op": "remove", "path": SELECTED_NODE_AT},
        ]);
        return patch_object(&api, &seen.claim.name_any(), &writes::by_json(patch)).await;
    };
    let patch = json!({"metadata": {
        "resourceVersion": metadata.resource_version,
        "annotations": { SELECTED_NODE: node },
    }});
    patch_object(&api, &seen.claim.name_any(), &Patch::Merge(patch)).await
}

async fn make_prime<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
) -> Result<(), kube::Error> {
    let prime = prime::prime(&work.seen.claim, work.seen.waits_for_consumer, work.namespace);
    let made = writes::make_new(&populator.of(&prime.metadata), &prime, OPERATOR).await?;
    let Some(made) = made.and_then(|made| made.metadata.uid) else { return Ok(()) };
    record(populator, work, |told| told.prime_claim_uid = Some(made.clone())).await
}

/// Writes the uid of a created object into the status, which identifies it as Pliant's own.
async fn record<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
    write: impl Fn(&mut Filling),
) -> Result<(), kube::Error> {
    let Some(source) = work.source else { return Ok(()) };
    let api = populator.of::<S>(source.meta());
    let mut tries = 0..RECORDED_WITHIN;
    loop {
        let newest = api.get(&source.name_any()).await?;
        let mut status = newest.status().cloned().unwrap_or_default();
        let there = status.claims.iter_mut().find(|one| one.uid == work.seen.uid());
        let Some(there) = there else { return Ok(()) };
        write(there);
        let status = judged_source(populator, status, source);
        let patch = json!({
            "metadata": {"uid": source.meta().uid, "resourceVersion": newest.meta().resource_version},
            "status": status,
        });
        let written = api.patch_status(&source.name_any(), &writer(), &Patch::Merge(patch)).await;
        match written {
            Err(kube::Error::Api(status)) if status.is_conflict() && tries.next().is_some() => {}
            done => return done.map(drop),
        }
    }
}

async fn make_keys<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
) -> Result<(), kube::Error> {
    let (Some(keys), Some(prime)) = (keys(populator, work)?, &work.seen.prime) else {
        return Ok(());
    };
    // Before the pods that it is about.
    let policy = sender::policy(&work.seen.claim, prime, work.namespace);
    writes::make(&populator.of(&policy.metadata), &policy, OPERATOR).await?;
    writes::make(&populator.of(&keys.metadata), &keys, OPERATOR).await
}

fn keys<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
) -> Result<Option<Secret>, kube::Error> {
    let Some(prime) = &work.seen.prime else { return Ok(None) };
    let now = Duration::try_from(populator.now().as_duration()).unwrap_or_default();
    let keys = TransferKeys::make(now).map_err(|error| kube::Error::Service(Box::new(error)))?;
    Ok(Some(sender::keys(&work.seen.claim, prime, work.namespace, &keys)))
}

async fn make_sender<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
) -> Result<(), kube::Error> {
    let Some(fill) = work.seen.fill() else { return Ok(()) };
    let Some(pod) = sender(populator, work, fill).await? else { return Ok(()) };
    let second = work.seen.prime.as_ref().map(|prime| uid(&prime.metadata));
    let is_own = |there: &Pod| sender::is_ours(there, &work.seen.claim, second);
    writes::make_own(&populator.of(&pod.metadata), &pod, OPERATOR, is_own).await
}

async fn sender<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
    fill: &Fill,
) -> Result<Option<Pod>, kube::Error> {
    let (Some(far), Some(prime)) = (&fill.far, &work.seen.prime) else { return Ok(None) };
    let fit = fit(populator, work.namespace).await?;
    Ok(Some(sender::pod(&work.seen.claim, prime, (fill, far), frame(populator, work, &fit))))
}

async fn make_pod<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
) -> Result<(), kube::Error> {
    let fit = fit(populator, work.namespace).await?;
    let Some(pod) = pod_now(work.seen, frame(populator, work, &fit)) else { return Ok(()) };
    let made = writes::make_new(&populator.of(&pod.metadata), &pod, OPERATOR).await?;
    let Some(made) = made.and_then(|made| made.metadata.uid) else { return Ok(()) };
    // The status is of the previous attempt; the end of this one is counted separately.
    let its = |told: &mut Filling| {
        (told.pod_uid, told.next_retry_time) = (Some(made.clone()), None);
        (told.reason, told.message) = (None, None); // Such as that it was refused.
    };
    record(populator, work, its).await
}

/// Creates the pod that will populate the volume in a dry run.
async fn rehearse_pod<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
) -> Result<(), kube::Error> {
    let later = work.seen.fill().and_then(|fill| fill.rehearsal.as_deref());
    let (Some(later), Some(prime)) = (later, &work.seen.prime) else { return Ok(()) };
    let fill = match &later.far {
        Some(far) if work.seen.is_far() => sender::receive(later, far, prime, sender::ANYWHERE),
        _ => later.clone(),
    };
    let generation = work.seen.source.as_ref().map_or(0, |source| source.generation);
    let fit = fit(populator, work.namespace).await?;
    let pod = prime::pod(&work.seen.claim, &fill, frame(populator, work, &fit), generation);
    writes::rehearse(&populator.of(&pod.metadata), &pod, OPERATOR).await
}

/// Creates the sending pod and its keys in a dry run.
async fn rehearse_sender<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
) -> Result<(), kube::Error> {
    let later = work.seen.fill().and_then(|fill| fill.rehearsal.as_deref());
    let Some(later) = later else { return Ok(()) };
    if let Some(keys) = keys(populator, work)? {
        writes::rehearse(&populator.of(&keys.metadata), &keys, OPERATOR).await?;
    }
    if let Some(prime) = &work.seen.prime {
        let policy = sender::policy(&work.seen.claim, prime, work.namespace);
        writes::rehearse(&populator.of(&policy.metadata), &policy, OPERATOR).await?;
    }
    let Some(pod) = sender(populator, work, later).await? else { return Ok(()) };
    writes::rehearse(&populator.of(&pod.metadata), &pod, OPERATOR).await
}

/// Returns the resources that pods may request in a namespace.
async fn fit<S: PopulationSource>(
    populator: &Populator<S>,
    namespace: &str,
) -> Result<Fit, kube::Error> {
    let (quotas, ranges) = (
        Api::<ResourceQuota>::namespaced(populator.client.clone(), namespace),
        Api::<LimitRange>::namespaced(populator.client.clone(), namespace),
    );
    let all = ListParams::default();
    Ok(Fit::of(&list(&quotas, &all).await?.items, &list(&ranges, &all).await?.items))
}

fn frame<'a, S: PopulationSource>(
    populator: &'a Populator<S>,
    work: &Work<'a, S>,
    fit: &'a Fit,
) -> prime::PodFrame<'a> {
    prime::PodFrame { settings: &populator.settings, namespace: work.namespace, fit }
}

async fn emit_event<S: PopulationSource>(
    populator: &Populator<S>,
    seen: &ObservedPopulation,
    reason: PopulatorReason,
    text: &str,
) -> Result<(), kube::Error> {
    let generation = seen.source.as_ref().map_or(0, |source| source.generation);
    let failures = seen.status_entry().map_or(0, |told| told.failures);
    let subject = format!("{generation}/{failures}");
    populator.events.emit(&seen.claim, reason, &subject, text).await
}

/// Writes or removes the population status of the claim; only over the observed version.
async fn note<S: PopulationSource>(
    populator: &Populator<S>,
    work: &Work<'_, S>,
    filling: Option<Filling>,
) -> Result<(), kube::Error> {
    let Some(source) = work.source else { return Ok(()) };
    let mut there = populator.uids_of(source);
    there.retain(|uid| filling.is_some() || uid != work.seen.uid());
    let mut status = source.status().cloned().unwrap_or_default();
    if let Some(filling) = filling {
        there.push(filling.uid.clone());
        status = status.with(filling);
    }
    // The status of a claim that is not watched any more stays.
    if populator.watches.claims().decodes_all_of(&work.seen.claim.namespace().unwrap_or_default()) {
        status.claims.retain(|one| there.contains(&one.uid));
    }
    let status = judged_source(populator, status, source);
    // The finalizer may have gone onto it in the same plan: who else wrote the status is asked only.
    let api = populator.of::<S>(source.meta());
    let newest = api.get(&source.name_any()).await?;
    if newest.status() != source.status() {
        return Err(stale());
    }
    let patch = json!({
        "metadata": {"resourceVersion": newest.meta().resource_version},
        "status": status,
    });
    let patch = Patch::Merge(patch);
    api.patch_status(&source.name_any(), &writer(), &patch).await.map(drop)
}

pub(super) fn judged_source<S: PopulationSource>(
    populator: &Populator<S>,
    status: PopulatorStatus,
    source: &S,
) -> PopulatorStatus {
    judged(status, source.meta().generation.unwrap_or_default(), &Time(populator.now()))
}

async fn show<S: PopulationSource>(
    populator: &Populator<S>,
    claim: &PersistentVolumeClaim,
    annotations: &Value,
) -> Result<(), kube::Error> {
    let api = populator.of::<PersistentVolumeClaim>(&claim.metadata);
    let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": annotations}});
    patch_object(&api, &claim.name_any(), &Patch::Merge(patch)).await
}

async fn retain<S: PopulationSource>(
    populator: &Populator<S>,
    seen: &ObservedPopulation,
) -> Result<(), kube::Error> {
    let Some(pv) = &seen.pv else { return Ok(()) };
    let policy = pv.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.clone());
    let policy = policy.unwrap_or_else(|| "Retain".to_owned());
    let patch = json!({
        "metadata": {
            "resourceVersion": pv.metadata.resource_version,
            "annotations": { POPULATES: seen.uid(), POLICY: policy },
        },
        "spec": {"persistentVolumeReclaimPolicy": "Retain"},
    });
    patch_object(&pvs(populator), &pv.name_any(), &Patch::Merge(patch)).await
}

/// Rebinds the volume in one write. It is never without a claim: another pending claim of its size
/// could get it.
async fn rebind<S: PopulationSource>(
    populator: &Populator<S>,
    seen: &ObservedPopulation,
) -> Result<(), kube::Error> {
    let (Some(pv), Some(prime)) = (&seen.pv, &seen.prime) else { return Ok(()) };
    let owner = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": seen.claim.namespace(),
        "name": seen.claim.name_any(),
        "uid": seen.uid(),
    });
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": pv.metadata.resource_version},
        {"op": "test", "path": "/spec/claimRef/uid", "value": uid(&prime.metadata)},
        {"op": "test", "path": "/spec/persistentVolumeReclaimPolicy", "value": "Retain"},
        {"op": "replace", "path": "/spec/claimRef", "value": owner},
    ]);
    patch_object(&pvs(populator), &pv.name_any(), &writes::by_json(patch)).await
}

/// Updates a claim to trigger its controller, which resyncs every 15 s otherwise.
async fn resync<S: PopulationSource>(
    populator: &Populator<S>,
    seen: &ObservedPopulation,
) -> Result<(), kube::Error> {
    let (Some(pv), Some(prime)) = (&seen.pv, &seen.prime) else { return Ok(()) };
    show(populator, prime, &json!({ NUDGED: pv.name_any() })).await
}

async fn restore<S: PopulationSource>(
    populator: &Populator<S>,
    seen: &ObservedPopulation,
) -> Result<(), kube::Error> {
    let Some(pv) = &seen.pv else { return Ok(()) };
    let before = pv.annotations().get(POLICY).map_or("Retain", String::as_str);
    // A PersistentVolume of the prime claim never had another claim: it is deleted with
    // that.
    let policy = if seen.is_of_prime() { "Delete" } else { before };
    // By the mark a volume that was handed over is known as ours for as long as it lives.
    let populates = seen.is_rebound().then(|| seen.uid());
    let patch = json!({
        "metadata": {
            "resourceVersion": pv.metadata.resource_version,
            "annotations": { POPULATES: populates, POLICY: null },
        },
        "spec": {"persistentVolumeReclaimPolicy": policy},
    });
    patch_object(&pvs(populator), &pv.name_any(), &Patch::Merge(patch)).await
}

async fn release<S: PopulationSource>(
    populator: &Populator<S>,
    seen: &ObservedPopulation,
) -> Result<(), kube::Error> {
    let metadata = &seen.claim.metadata;
    let mut annotations = json!({});
    if seen.is_rebound() {
        annotations = json!({ SHOWN: null });
    }
    let patch = without_finalizer(metadata, &annotations);
    let api = populator.of::<PersistentVolumeClaim>(metadata);
    patch_object(&api, &seen.claim.name_any(), &Patch::Merge(patch)).await
}

/// Removes the finalizer of a source that populates no claim.
pub(super) async fn release_source<S: PopulationSource>(
    populator: &Populator<S>,
    source: &S,
) -> Result<(), kube::Error> {
    let patch = without_finalizer(source.meta(), &json!({}));
    patch_object(&populator.of::<S>(source.meta()), &source.name_any(), &Patch::Merge(patch)).await
}

async fn remove<S: PopulationSource, K>(
    populator: &Populator<S>,
    seen: Option<&ObjectMeta>,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let Some(seen) = seen else { return Ok(()) };
    let any_version = ObjectMeta { resource_version: None, ..seen.clone() };
    writes::remove(&populator.of::<K>(seen), &any_version).await
}

pub(super) fn pvs<S: PopulationSource>(populator: &Populator<S>) -> Api<PersistentVolume> {
    Api::all(populator.client.clone())
}

/// Returns the pod to create now: the populator pod, or its probe.
pub(super) fn pod_now(seen: &ObservedPopulation, frame: prime::PodFrame<'_>) -> Option<Pod> {
    let generation = seen.source.as_ref().map_or(0, |source| source.generation);
    if let Some(later) = seen.fill()?.rehearsal.as_deref() {
        let nodes = later.nodes.clone().filter(|_| !seen.is_far());
        let here = Fill { nodes, ..later.clone() };
        return Some(prime::probe(&seen.claim, &here, frame, generation));
    }
    Some(prime::pod(&seen.claim, &how_to_fill(seen)?, frame, generation))
}

/// Returns what the populator pod needs: the source itself, or its sender.
fn how_to_fill(seen: &ObservedPopulation) -> Option<Fill> {
    let fill = seen.fill()?;
    if !seen.is_far() {
        return Some(fill.clone());
    }
    let from = sender::address(seen.sender.as_ref()?)?;
    Some(sender::receive(fill, fill.far.as_ref()?, seen.prime.as_ref()?, &from))
}

fn without_finalizer(metadata: &ObjectMeta, annotations: &Value) -> Value {
    let finalizers = metadata.finalizers.iter().flatten();
    let finalizers: Vec<&String> = finalizers.filter(|one| *one != FINALIZER).collect();
    json!({"metadata": {
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers,
        "annotations": annotations,
    }})
}

/// Adds the finalizer to an object, if it is still as observed.
async fn add_finalizer<K>(api: &Api<K>, metadata: &ObjectMeta) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let finalizers = metadata.finalizers.iter().flatten().map(String::as_str).chain([FINALIZER]);
    let patch = json!({"metadata": {
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers.collect::<Vec<&str>>(),
    }});
    let name = metadata.name.as_deref().unwrap_or_default();
    patch_object(api, name, &Patch::Merge(patch)).await
}

async fn patch_object<K, P>(api: &Api<K>, name: &str, patch: &Patch<P>) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
    P: Serialize + std::fmt::Debug,
{
    writes::patch(api, name, patch, OPERATOR).await
}

pub(super) fn writer() -> PatchParams {
    PatchParams { field_manager: Some(OPERATOR.to_owned()), ..PatchParams::default() }
}

/// Returns a conflict as the API server reports it.
fn stale() -> kube::Error {
    let status = kube::core::Status::failure("another client wrote the status", "Conflict");
    kube::Error::Api(Box::new(status.with_code(409)))
}
