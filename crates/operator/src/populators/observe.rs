//! Read all that decides about one claim, as it is at this moment.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::LogParams;
use kube::{Api, ResourceExt};
use tokio::time::timeout;

use crate::cluster::{ObjectNames, volume_of};
use crate::populators::apply::pvs;
use crate::populators::observed::{ObservedPopulation, SourceSeen, is_ending, is_held, uid};
use crate::populators::ownership::Prime;
use crate::populators::populator::Populator;
use crate::populators::{
    PodProgress, PopulationOutcome, PopulationSource, prime, sender, topology,
};

/// Timeout of a kubelet's answer about the progress. One that does not respond must not delay other
/// claims.
const LOG: Duration = Duration::from_secs(2);

/// Binding mode of a class whose volumes are created for a pod.
const WAIT_FOR_CONSUMER: &str = "WaitForFirstConsumer";

/// Observes a claim, and its source next to it; `None` if the claim does not exist any more, even if
/// another one has its name.
///
/// # Errors
/// An error of the API server.
pub(super) async fn observe<S: PopulationSource>(
    populator: &Populator<S>,
    meant: &ObjectNames,
) -> Result<Option<(ObservedPopulation, Option<S>)>, kube::Error> {
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(populator.client.clone(), &meant.namespace);
    let there = claims.get_opt(&meant.name).await?;
    let Some(claim) = there.filter(|claim| *uid(&claim.metadata) == *meant.uid) else {
        return Ok(None);
    };
    let source = source_of(populator, &claim).await?;
    let there = namespace_of(populator, &claim, source.as_ref());
    let found = prime(populator, &claim, &there).await?;
    let pods: Api<Pod> = Api::namespaced(populator.client.clone(), &there);
    let found_pod = pods.get_opt(&prime::prime_name(uid(&claim.metadata))).await?;
    let told = source.as_ref().and_then(|source| source.status()?.of(uid(&claim.metadata)));
    let recorded = told.and_then(|told| told.pod_uid.as_deref());
    // One whose pass is in the status is to be deleted, and still exists.
    let counted = told.and_then(|told| Some(told.pre_copy.as_ref()?.pod_uid.as_str()));
    let is_ours = |pod: &Pod| {
        let id = Some(uid(&pod.metadata));
        source.is_none() || recorded == id || counted == id
    };
    let (pod, strange_pod) = match found_pod {
        Some(pod) if is_ours(&pod) => (Some(pod), None),
        other => (None, other),
    };
    let found_pv = match found.as_ref().and_then(|found| found.spec.as_ref()?.volume_name.clone()) {
        Some(name) => pvs(populator).get_opt(&name).await?,
        None => None,
    };
    let whose = Prime::of(&claim, told, found, found_pv.as_ref(), pod.is_some());
    let (prime, is_unrecorded, stranger) = match whose {
        Prime::None => (None, false, None),
        Prime::Ours(prime) => (Some(prime), false, None),
        Prime::Unrecorded(prime) => (Some(prime), true, None),
        Prime::Strange(stranger) => (None, false, Some(stranger)),
    };
    let sender = if S::IS_SENT {
        let second = prime.as_ref().map(|prime| uid(&prime.metadata));
        let second = second.or_else(|| told.and_then(|told| told.prime_claim_uid.as_deref()));
        let found = pods.get_opt(&sender::name(uid(&claim.metadata))).await?;
        found.filter(|pod| sender::is_ours(pod, &claim, second))
    } else {
        None
    };
    let pv = match found_pv.filter(|_| prime.is_some()) {
        Some(pv) => Some(pv),
        None => pv(populator, &claim).await?,
    };
    let pv_nodes = match &pv {
        Some(pv) if pod.as_ref().is_none_or(prime::is_probe) => {
            topology::nodes_of(&populator.client, pv).await?
        }
        _ => None,
    };
    let volume = pv.as_ref().and_then(volume_of);
    let volume = volume.map(|id| populator.asks.see(uid(&claim.metadata), id));
    let seen = ObservedPopulation {
        now: populator.now(),
        image: populator.settings.image.clone(),
        waits_for_consumer: waits_for_consumer(populator, &claim).await?,
        source: match &source {
            Some(source) => {
                Some(see(populator, source, &claim, is_to_be_seen(pod.as_ref())).await?)
            }
            None => None,
        },
        progress: progress(populator, pod.as_ref()).await,
        claim,
        prime,
        is_unrecorded,
        stranger,
        strange_pod,
        pv,
        pv_nodes,
        volume,
        pod,
        sender,
    };
    Ok(Some((seen, source)))
}

/// The object that a claim names.
async fn source_of<S: PopulationSource>(
    populator: &Populator<S>,
    claim: &PersistentVolumeClaim,
) -> Result<Option<S>, kube::Error> {
    let named = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    let Some(named) = named else { return Ok(None) };
    let namespace = claim.namespace().unwrap_or_default();
    let api: Api<S> = Api::namespaced(populator.client.clone(), &namespace);
    api.get_opt(&named.name).await
}

async fn see<S: PopulationSource>(
    populator: &Populator<S>,
    source: &S,
    claim: &PersistentVolumeClaim,
    is_to_be_seen: bool,
) -> Result<SourceSeen, kube::Error> {
    let sight =
        if is_to_be_seen { Some(source.look(&populator.client, claim).await?) } else { None };
    Ok(SourceSeen {
        generation: source.meta().generation.unwrap_or_default(),
        is_ending: is_ending(source.meta()),
        is_held: is_held(source.meta()),
        anew: S::ANEW,
        early: source.starts_early(),
        told: source.status().and_then(|status| status.of(uid(&claim.metadata)).cloned()),
        sight,
    })
}

/// Returns the namespace of the prime claim and the pod. Existing ones are found in theirs.
pub(super) fn namespace_of<S: PopulationSource>(
    populator: &Populator<S>,
    claim: &PersistentVolumeClaim,
    source: Option<&S>,
) -> String {
    let own = claim.namespace().unwrap_or_default();
    let Some(other) = &populator.settings.namespace else { return own };
    let name = prime::prime_name(uid(&claim.metadata));
    let is_in = |namespace: &str| {
        populator.watches.claims().get_in(namespace, &name).is_some()
            || populator.watches.pods().get_in(namespace, &name).is_some()
    };
    match source {
        _ if is_in(other) => other.clone(),
        _ if is_in(&own) => own,
        Some(source) if !source.is_near() => other.clone(),
        _ => own,
    }
}

async fn prime<S: PopulationSource>(
    populator: &Populator<S>,
    claim: &PersistentVolumeClaim,
    namespace: &str,
) -> Result<Option<PersistentVolumeClaim>, kube::Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(populator.client.clone(), namespace);
    api.get_opt(&prime::prime_name(uid(&claim.metadata))).await
}

/// The volume that was handed over already.
async fn pv<S: PopulationSource>(
    populator: &Populator<S>,
    claim: &PersistentVolumeClaim,
) -> Result<Option<PersistentVolume>, kube::Error> {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    let marked = || populator.watches.pv_for(uid(&claim.metadata)).map(|pv| pv.name_any());
    let Some(name) = named.or_else(marked) else { return Ok(None) };
    pvs(populator).get_opt(&name).await
}

async fn waits_for_consumer<S: PopulationSource>(
    populator: &Populator<S>,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let Some(class) = class.filter(|class| !class.is_empty()) else { return Ok(false) };
    let api: Api<StorageClass> = Api::all(populator.client.clone());
    let class = api.get_opt(class).await?;
    let mode = class.and_then(|class| class.volume_binding_mode);
    Ok(mode.as_deref() == Some(WAIT_FOR_CONSUMER))
}

/// Returns the last progress of a running pod. The last lines of its log are read each time: no stream
/// has to be kept open or restarted.
async fn progress<S: PopulationSource>(
    populator: &Populator<S>,
    pod: Option<&Pod>,
) -> Option<PodProgress> {
    let is_running = |pod: &&Pod| {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    let pod = pod.filter(is_running).filter(|pod| !is_ending(&pod.metadata))?;
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(populator.client.clone(), &namespace);
    let last = LogParams {
        container: Some(prime::CONTAINER.to_owned()),
        tail_lines: Some(5),
        // Anything can be written there, and must not use up the memory.
        limit_bytes: Some(16 * 1024),
        ..LogParams::default()
    };
    // Only the progress is missing if a kubelet does not respond, not the pod.
    let name = pod.name_any();
    let log = timeout(LOG, api.logs(&name, &last)).await.ok()?.ok()?;
    PodProgress::parse(&log)
}

/// Returns true if the source is to be observed: before a pod is created that reads it, and again when that has
/// ended. A later user may have written what is not in the copy.
fn is_to_be_seen(pod: Option<&Pod>) -> bool {
    pod.is_none_or(|pod| prime::is_probe(pod) || PopulationOutcome::of(pod).is_some())
}
