//! Recreates the PersistentVolumes of two claims, so that each has the volume of the other. Each step is
//! decided from the state after the previous write.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::api::{PvcAutoscaler, Swap, SwapPhase};
use crate::claims::context::{ClaimsController, pvs};
use crate::claims::finalizer::is_namespace_ending;
use crate::claims::objects::{owner, uid};
use crate::claims::observed::ObservedWorkload;
use crate::claims::pv_exchange::{
    ClaimAndVolume, ClaimPair, Exchange, ExchangeRecord, ExchangeSide, ExchangeStage, TargetVolume,
    handle, record, written,
};
use crate::cluster::writes::OPERATOR;
use crate::cluster::{CLASS, EXCHANGE, PvSummary, VOLUME, caught_in_time, list, pods, writes};
use crate::{error_chain, populators};

/// Maximum number of writes of an exchange, including some without an effect.
const WRITES: usize = 20;

/// Observes the progress of the exchanges of swaps.
pub(super) async fn observe_exchanges(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let namespace = seen.autoscaler.namespace().unwrap_or_default();
    let status = seen.autoscaler.status.clone().unwrap_or_default();
    for one in status.ordinals {
        let is_it = |swap: &Swap| swap.phase == SwapPhase::Rebinding && !one.is_shrinking();
        let Some(swap) = one.swap.as_ref().filter(|swap| is_it(swap)) else { continue };
        let (active, volume) =
            (&one.active_claim, swap.volume_handle.as_deref().unwrap_or_default());
        let pair = observe_pair(ctx, &namespace, active, &swap.claim, None).await?;
        let exchange = match pair.exchange(volume) {
            // Its parts are read one after the other, and another replica may go on meanwhile.
            Exchange::Never(_)
                if observe_pair(ctx, &namespace, active, &swap.claim, None).await? != pair =>
            {
                Exchange::Waits
            }
            exchange => exchange,
        };
        seen.exchanges.insert(one.active_claim.clone(), exchange);
    }
    Ok(())
}

/// Reads two claims and their PersistentVolumes. The volumes come last: an existing one belongs to a
/// claim that existed before. `known` is the annotation of a PersistentVolume about both.
async fn observe_pair(
    ctx: &ClaimsController,
    namespace: &str,
    active: &str,
    copy: &str,
    known: Option<&ExchangeRecord>,
) -> Result<ClaimPair, kube::Error> {
    let mut pair = ClaimPair {
        active: observe_half(ctx, namespace, active).await?,
        copy: observe_half(ctx, namespace, copy).await?,
    };
    // A claim names what its tenant has written into it: what others exchange is not theirs.
    for half in [&mut pair.active, &mut pair.copy] {
        let is_theirs = |known: &ExchangeRecord| known.is_of(namespace, active, copy);
        half.pv.take_if(|pv| record(&**pv).is_some_and(|known| !is_theirs(&known)));
    }
    // For a deleted or recreated claim, the annotation names the PersistentVolume.
    if let Some(known) = pair.written().as_ref().or(known) {
        for (half, wanted) in [(&mut pair.active, &known.active), (&mut pair.copy, &known.copy)] {
            let claim = half.claim.as_ref().map(|claim| uid(&claim.metadata));
            if claim != owner(&wanted.pv) {
                let pv = pvs(ctx).get_opt(&wanted.pv.name_any()).await?;
                half.pv = pv.map(Box::new);
            }
        }
    }
    Ok(pair)
}

async fn observe_half(
    ctx: &ClaimsController,
    namespace: &str,
    name: &str,
) -> Result<ClaimAndVolume, kube::Error> {
    let claim = ctx.of::<PersistentVolumeClaim>(namespace).get_opt(name).await?;
    let named = claim.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
    let pv = match named {
        Some(named) => pvs(ctx).get_opt(&named).await?,
        None => None,
    };
    Ok(ClaimAndVolume { claim: claim.map(Box::new), pv: pv.map(Box::new) })
}

/// Exchanges the volumes of two claims, as far as that is possible without waiting.
///
/// # Errors
/// An error of the API server; a conflict if something was written meanwhile.
pub(super) async fn exchange(
    ctx: &ClaimsController,
    namespace: &str,
    active: &str,
    copy: &str,
    volume: &str,
    may_grow: bool,
) -> Result<(), kube::Error> {
    let pair = observe_pair(ctx, namespace, active, copy, None).await?;
    if pair.exchange(volume) == Exchange::Ready {
        // Its tenant may have made it larger since it was looked at: a quota counts only the other one.
        if !may_grow && pair.outgrows() {
            return Err(writes::outdated("the claim with the copy was expanded"));
        }
        // Its own first: the copy is retained before anything depends on it.
        do_stage(ctx, &pair, ExchangeStage::Record(ExchangeSide::Copy)).await?;
    }
    continue_exchange(ctx, namespace, active, copy, None).await.map(drop)
}

/// Continues an exchange; returns true if it has not ended yet.
async fn continue_exchange(
    ctx: &ClaimsController,
    namespace: &str,
    active: &str,
    copy: &str,
    known: Option<&ExchangeRecord>,
) -> Result<bool, kube::Error> {
    for _ in 0..WRITES {
        let pair = observe_pair(ctx, namespace, active, copy, known).await?;
        if pair.written().is_none() {
            return Ok(false);
        }
        // Its pod may write to the old volume as soon as no swap refers to it. So that is checked after the
        // annotation was seen, which prevents that the volume is returned. Earlier reads are too old by
        // then: a deletion checks again after all of them.
        if pair.given_up().is_some() && !is_known(ctx, namespace, active, copy).await? {
            let pair = observe_pair(ctx, namespace, active, copy, known).await?;
            if let Some(stage) = pair.given_up() {
                do_stage(ctx, &pair, stage).await?;
            }
            continue;
        }
        let Exchange::Next(stage) = pair.next_step() else { return Ok(true) };
        let goes = matches!(
            stage,
            ExchangeStage::Delete(ExchangeSide::Active) | ExchangeStage::Free(ExchangeSide::Active)
        );
        if goes && has_writers(ctx, namespace, active).await? {
            return Ok(true);
        }
        do_stage(ctx, &pair, stage).await?;
    }
    Ok(true)
}

async fn has_writers(
    ctx: &ClaimsController,
    namespace: &str,
    claim: &str,
) -> Result<bool, kube::Error> {
    let pods = pods(&ctx.client, namespace).await?;
    Ok(!populators::writers(&pods, claim).is_empty())
}

async fn do_stage(
    ctx: &ClaimsController,
    pair: &ClaimPair,
    stage: ExchangeStage,
) -> Result<(), kube::Error> {
    let Some(known) = pair.record() else { return Ok(()) };
    let claim = pair.active.claim.as_deref().map(ResourceExt::name_any).unwrap_or_default();
    tracing::info!(claim, ?stage, "rebinding a claim to another volume");
    match stage {
        ExchangeStage::Record(side) => keep_record(ctx, pair.half(side), &known).await,
        ExchangeStage::Delete(side) => match &pair.half(side).pv {
            Some(pv) => writes::remove(&pvs(ctx), &pv.metadata).await,
            None => Ok(()),
        },
        ExchangeStage::Free(side) => free(ctx, pair.half(side)).await,
        ExchangeStage::Make(side) => {
            writes::make(&pvs(ctx), &known.of(side).made(&known), OPERATOR).await
        }
        ExchangeStage::Nudge(side) => resync(ctx, pair.half(side), &known, side).await,
        ExchangeStage::Finish(side) => finish_exchange(ctx, pair.half(side), &known).await,
    }
}

/// Retains a PersistentVolume, and annotates it with the target state of both.
async fn keep_record(
    ctx: &ClaimsController,
    half: &ClaimAndVolume,
    known: &ExchangeRecord,
) -> Result<(), kube::Error> {
    let Some(pv) = &half.pv else { return Ok(()) };
    let patch = json!({
        "metadata": {"uid": pv.metadata.uid, "resourceVersion": pv.metadata.resource_version,
                     "annotations": { EXCHANGE: written(known) }},
        "spec": {"persistentVolumeReclaimPolicy": "Retain"},
    });
    writes::patch(&pvs(ctx), &pv.name_any(), &Patch::Merge(patch), OPERATOR).await
}

/// Removes the finalizers of a deleted PersistentVolume: they would hold it for as long as its claim
/// is bound. It is retained, so its volume is not deleted.
async fn free(ctx: &ClaimsController, half: &ClaimAndVolume) -> Result<(), kube::Error> {
    let Some(pv) = &half.pv else { return Ok(()) };
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": uid(&pv.metadata)},
        {"op": "test", "path": "/metadata/resourceVersion", "value": pv.metadata.resource_version},
        {"op": "test", "path": "/spec/persistentVolumeReclaimPolicy", "value": "Retain"},
        {"op": "remove", "path": "/metadata/finalizers"},
    ]);
    writes::patch(&pvs(ctx), &pv.name_any(), &writes::by_json(patch), OPERATOR).await
}

/// Updates a claim to trigger its controller, which resyncs every 15 s otherwise.
async fn resync(
    ctx: &ClaimsController,
    half: &ClaimAndVolume,
    known: &ExchangeRecord,
    side: ExchangeSide,
) -> Result<(), kube::Error> {
    let Some(claim) = &half.claim else { return Ok(()) };
    let wanted = known.of(side);
    let notes = json!({ VOLUME: wanted.volume, CLASS: wanted.class });
    let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": notes}});
    let api = ctx.of::<PersistentVolumeClaim>(&claim.namespace().unwrap_or_default());
    writes::patch(&api, &claim.name_any(), &Patch::Merge(patch), OPERATOR).await?;
    if !wanted.tells_size(side, claim) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": claim.metadata.uid},
                           "status": {"capacity": {"storage": wanted.size()}}});
    let params = PatchParams { field_manager: Some(OPERATOR.to_owned()), ..PatchParams::default() };
    api.patch_status(&claim.name_any(), &params, &Patch::Merge(patch)).await.map(drop)
}

async fn finish_exchange(
    ctx: &ClaimsController,
    half: &ClaimAndVolume,
    known: &ExchangeRecord,
) -> Result<(), kube::Error> {
    let Some(pv) = &half.pv else { return Ok(()) };
    let namespace = pv.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.namespace.clone());
    let goes = is_namespace_ending(ctx, &namespace.unwrap_or_default()).await?;
    let policy = known.policy(half, goes);
    let patch = json!({
        "metadata": {"uid": pv.metadata.uid, "resourceVersion": pv.metadata.resource_version,
                     "annotations": { EXCHANGE: null }},
        "spec": {"persistentVolumeReclaimPolicy": policy},
    });
    writes::patch(&pvs(ctx), &pv.name_any(), &Patch::Merge(patch), OPERATOR).await
}

/// Completes exchanges of a namespace that no swap refers to; returns true if there are any.
pub(super) async fn end_unreferenced_exchanges(ctx: &ClaimsController, of: &str) -> bool {
    let mut is_any = false;
    let all = ctx.watches.pvs_in_exchange();
    let all = all.iter().filter_map(|pv| claims_of(pv));
    let all: BTreeMap<_, _> = all.filter(|((namespace, ..), _)| namespace == of).collect();
    for ((namespace, active, copy), known) in all {
        let ended = end_if_unreferenced(ctx, &namespace, &active, &copy, &known);
        let ended = Box::pin(caught_in_time("exchanges", ended))
            .await
            .unwrap_or_else(|why| Err(kube::Error::Service(why.to_string().into())));
        is_any |= ended.unwrap_or_else(|error| {
            let error = error_chain::in_full(&error);
            tracing::warn!(
                namespace,
                claim = active,
                error,
                "failed to complete an exchange of volumes"
            );
            true
        });
    }
    is_any
}

async fn end_if_unreferenced(
    ctx: &ClaimsController,
    namespace: &str,
    active: &str,
    copy: &str,
    known: &ExchangeRecord,
) -> Result<bool, kube::Error> {
    if is_known(ctx, namespace, active, copy).await? {
        return Ok(false);
    }
    continue_exchange(ctx, namespace, active, copy, Some(known)).await
}

/// Returns true if a swap refers to an exchange now.
async fn is_known(
    ctx: &ClaimsController,
    namespace: &str,
    active: &str,
    copy: &str,
) -> Result<bool, kube::Error> {
    let all = list(&ctx.of::<PvcAutoscaler>(namespace), &ListParams::default()).await?;
    // One that cannot be decoded may know of it.
    let may_know = !all.unreadable.is_empty();
    Ok(may_know || all.items.iter().any(|one| knows(one, active, copy)))
}

/// Returns true if a claim has a volume by its PersistentVolume, and that is in no exchange.
pub(super) async fn holds(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
    volume: &str,
) -> Result<bool, kube::Error> {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
    let Some(named) = named else { return Ok(false) };
    let pv = pvs(ctx).get_opt(named).await?;
    let is_its = |pv: &PersistentVolume| owner(pv) == Some(uid(&claim.metadata));
    let holds = |pv: &PersistentVolume| handle(pv) == Some(volume) && record(pv).is_none();
    Ok(pv.is_some_and(|pv| is_its(&pv) && holds(&pv)))
}

/// Returns true if a swap refers to an exchange.
fn knows(keeper: &PvcAutoscaler, active: &str, copy: &str) -> bool {
    let ordinals = keeper.status.iter().flat_map(|status| &status.ordinals);
    let mut swaps =
        ordinals.filter(|one| one.active_claim == active).filter_map(|one| one.swap.as_ref());
    swaps.any(|swap| swap.phase == SwapPhase::Rebinding && swap.claim == copy)
}

/// Returns namespace, claim names and annotation of an exchange from a PersistentVolume.
pub(super) fn claims_of(pv: &PvSummary) -> Option<((String, String, String), ExchangeRecord)> {
    let known = record(pv)?;
    let of = |wanted: &TargetVolume| wanted.pv.spec.as_ref()?.claim_ref.clone();
    let (active, copy) = (of(&known.active)?, of(&known.copy)?);
    Some(((active.namespace?, active.name?, copy.name?), known))
}
