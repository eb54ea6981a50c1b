//! Read all that decides about the claims of one workload, as it is at this moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::api::{
    self, FillingPhase, OrdinalStatus, PodsOf, PvcAutoscaler, PvcSourcePopulator, Rival,
    StatefulSetName, Swap, SwapPhase,
};
use crate::autoscaler;
use crate::autoscaler::usage::SampledUsage;
use crate::bytes::Bytes;
use crate::claims::adopt::observe_left;
use crate::claims::context::{ClaimsController, UsageReport};
use crate::claims::coverage::WorkloadCoverage;
use crate::claims::detached_note::DetachedNote;
use crate::claims::finalizer::{is_marked_for, pv_of};
use crate::claims::objects::{is_bound, is_copy, uid};
use crate::claims::observed::{ClockSeen, ObservedWorkload, PodController, Refusal};
use crate::claims::pv_exchange_apply::observe_exchanges;
use crate::claims::stopped::observe_stopped;
use crate::claims::summary::AutoscalerSummary;
use crate::claims::swap_context::{NodeFreeSpace, SwapContext};
use crate::claims::topology::{AlternativeNode, ReadableNode, is_fit};
use crate::claims::users::pods_with;
use crate::claims::{Drift, manifests};
use crate::cluster::{
    CLASS, EXCHANGE, KEPT_BY, ObjectNames, PodSummary, Unreadable, VOLUME, list, pods, requested,
    untrue_notes, volume_of,
};
use crate::populators::{self, POPULATES};
use crate::volume::{CapacityQuery, DRIVER, FsKind, Standing, VolumeId};

/// Observes the claims of a workload; `None` if the PvcAutoscaler does not exist any more, even
/// if another one has its name.
///
/// # Errors
/// An error of the API server.
pub(super) async fn observe(
    ctx: &ClaimsController,
    meant: &ObjectNames,
    refusal: Option<Refusal>,
) -> Result<Option<ObservedWorkload>, kube::Error> {
    let Some(autoscaler) = ctx.live(meant).await? else { return Ok(None) };
    let namespace = &meant.namespace;
    // Before the pods: one that another PvcAutoscaler has stopped since then is missing among them.
    let siblings = siblings_of(ctx, &autoscaler).await?;
    let pods = pods(&ctx.client, namespace).await?;
    let workload = observe_workload(ctx, &autoscaler, &pods).await?;
    let coverage = match autoscaler.spec.stateful_set() {
        Some(name) => ctx.coverage(namespace, name).await?,
        None => WorkloadCoverage::NotNamed,
    };
    let now = ctx.now();
    let mut seen = ObservedWorkload {
        now,
        clock: clock_if_it_matters(ctx, &autoscaler, now).await?,
        coverage,
        claims: BTreeMap::new(),
        taken: BTreeMap::new(),
        sources: BTreeMap::new(),
        elder: elder_of(ctx, &autoscaler),
        left: BTreeSet::new(),
        classes: BTreeMap::new(),
        foreign: BTreeSet::new(),
        around: SwapContext::default(),
        exchanges: BTreeMap::new(),
        usage: BTreeMap::new(),
        silent: BTreeMap::new(),
        volumes: BTreeMap::new(),
        handed_over: BTreeSet::new(),
        unmarked: BTreeSet::new(),
        detached: BTreeMap::new(),
        untrue_notes: BTreeMap::new(),
        may_still_run: BTreeMap::new(),
        superseded: BTreeMap::new(),
        autoscaler,
        siblings,
        workload,
        pods,
        refusal,
    };
    observe_claims(ctx, &mut seen).await?;
    observe_left(ctx, &mut seen).await?;
    observe_sources(ctx, &mut seen).await?;
    observe_classes(ctx, &mut seen).await?;
    observe_handed_over(ctx, &mut seen).await?;
    observe_superseded(ctx, &mut seen);
    observe_volumes(ctx, &mut seen).await?;
    observe_stopped(ctx, &mut seen).await?;
    observe_exchanges(ctx, &mut seen).await?;
    observe_usage(ctx, &mut seen);
    look_around(ctx, &mut seen).await?;
    Ok(Some(seen))
}

/// Compares the clock with that of the API server, if a retained claim is to be deleted by it, or the start of
/// its retention is to be written.
async fn clock_if_it_matters(
    ctx: &ClaimsController,
    autoscaler: &PvcAutoscaler,
    now: Timestamp,
) -> Result<ClockSeen, kube::Error> {
    let ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let mut retained = ordinals.flat_map(|one| &one.retained_claims);
    let retention = autoscaler.spec.retention;
    let matters = retained.any(|old| {
        old.replacement_ready_time.is_none() || old.until(retention).is_some_and(|at| at <= now)
    });
    if !matters {
        return Ok(ClockSeen::NotAsked);
    }
    Ok(ctx.skew().await?.map_or(ClockSeen::Agrees, ClockSeen::Differs))
}

/// Reads the other PvcAutoscalers of the same pods: a watch may be older than a swap that one of them has
/// started.
async fn siblings_of(
    ctx: &ClaimsController,
    autoscaler: &PvcAutoscaler,
) -> Result<Vec<PvcAutoscaler>, kube::Error> {
    let Some(set) = autoscaler.spec.stateful_set() else { return Ok(Vec::new()) };
    let namespace = autoscaler.namespace();
    let is_sibling = |one: &PvcAutoscaler| {
        one.spec.stateful_set() == Some(set)
            && one.namespace() == namespace
            && uid(&one.metadata) != uid(&autoscaler.metadata)
    };
    let ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let swaps = ordinals.filter_map(|one| one.swap.as_ref()).any(is_under_way);
    if !swaps && watched_siblings(ctx, autoscaler).is_empty() {
        return Ok(Vec::new());
    }
    let there = namespace.clone().unwrap_or_default();
    let listed = list(&ctx.of::<PvcAutoscaler>(&there), &ListParams::default()).await?;
    if let Some(unreadable) = unreadable_of(ctx, &there, &listed.unreadable, set).await? {
        return Err(unreadable.error());
    }
    Ok(listed.items.into_iter().filter(is_sibling).collect())
}

/// Returns the PvcAutoscaler of a StatefulSet among those that cannot be decoded. One of another workload does
/// not matter.
pub(super) async fn unreadable_of<'a>(
    ctx: &ClaimsController,
    namespace: &str,
    all: &'a [Unreadable],
    set: &str,
) -> Result<Option<&'a Unreadable>, kube::Error> {
    let readable = ctx.of::<StatefulSetName>(namespace);
    for unreadable in all {
        let its_name = readable.get_opt(unreadable.name()).await?;
        if its_name.is_some_and(|one| one.stateful_set() == Some(set)) {
            return Ok(Some(unreadable));
        }
    }
    Ok(None)
}

/// Returns the PvcAutoscaler that manages its claims instead. Watches are in order: if a younger one is
/// known, so is the older one.
fn elder_of(ctx: &ClaimsController, autoscaler: &PvcAutoscaler) -> Option<String> {
    let all = watched_siblings(ctx, autoscaler);
    autoscaler.elder(all.iter().map(Arc::as_ref)).map(|elder| elder.names.name.to_string())
}

/// The other PvcAutoscalers of the same StatefulSet, as they are watched.
fn watched_siblings(
    ctx: &ClaimsController,
    autoscaler: &PvcAutoscaler,
) -> Vec<Arc<AutoscalerSummary>> {
    let namespace = autoscaler.metadata.namespace.as_deref().unwrap_or_default();
    ctx.others_of(namespace, autoscaler.spec.workload(), uid(&autoscaler.metadata))
}

/// Whose claims these are; `None` if there is none of its name.
async fn observe_workload(
    ctx: &ClaimsController,
    autoscaler: &PvcAutoscaler,
    pods: &[PodSummary],
) -> Result<Option<PodController>, kube::Error> {
    let namespace = autoscaler.namespace().unwrap_or_default();
    let volume = &autoscaler.spec.volume_claim_template.metadata.name;
    let told = autoscaler.status.as_ref().map_or(&[][..], |status| &status.ordinals);
    Ok(match autoscaler.spec.workload() {
        api::Workload::StatefulSet(name) => {
            let set = ctx.of::<StatefulSet>(&namespace).get_opt(name).await?;
            set.map(|set| PodController::of(&set, volume))
        }
        api::Workload::Deployment(name) => {
            let made = ctx.of::<Deployment>(&namespace).get_opt(name).await?;
            made.map(|made| PodController::of_deployment(&made, volume, told))
        }
        api::Workload::Pods(chosen) => {
            let api = ctx.of::<PersistentVolumeClaim>(&namespace);
            let all = list(&api, &ListParams::default()).await?.whole()?;
            let (all, by) = (all.into_iter(), autoscaler.name_any());
            let all: Vec<_> = all.filter(|one| chosen.has_claim(&one.name_any())).collect();
            let kept = all.iter().filter(|one| one.labels().get(KEPT_BY) == Some(&by));
            let kept = kept.map(ResourceExt::name_any);
            let claims = kept.chain(named_by(pods, chosen)).collect();
            let all = all.iter().map(ResourceExt::name_any).collect();
            Some(PodController::of_pods(claims, &all, told))
        }
    })
}

/// Our claims, those that the status names, and those that StatefulSets would have made.
async fn observe_claims(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let namespace = seen.autoscaler.namespace().unwrap_or_default();
    let api = ctx.of::<PersistentVolumeClaim>(&namespace);
    let its = ListParams::default().labels(&ours(&seen.autoscaler));
    let all = list(&api, &its).await?.whole()?;
    seen.claims = all.into_iter().map(|claim| (claim.name_any(), claim)).collect();
    let mut named: BTreeSet<String> = BTreeSet::new();
    let ordinals = seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    for one in ordinals {
        named.insert(one.active_claim.clone());
        named.extend(one.swap.as_ref().map(|swap| swap.claim.clone()));
        named.extend(one.retained_claims.iter().map(|old| old.name.clone()));
    }
    named.extend(seen.new_ordinals().into_iter().map(|one| manifests::plain_name(seen, one)));
    for name in named {
        if !seen.claims.contains_key(&name) {
            let claim = api.get_opt(&name).await?;
            seen.claims.extend(claim.map(|claim| (name, claim)));
        }
    }
    leave_out_taken(seen);
    observe_untrue_notes(ctx, seen).await
}

/// Ignores what a claim claims about its volume if its PersistentVolume contradicts it. Between
/// two volumes it may.
async fn observe_untrue_notes(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let mut untrue = BTreeMap::new();
    let has_note = |claim: &PersistentVolumeClaim| {
        [CLASS, VOLUME].iter().any(|key| claim.annotations().contains_key(*key))
    };
    for (name, claim) in seen.claims.iter_mut().filter(|(_, claim)| has_note(claim)) {
        let pv = pv_of(ctx, claim).await?;
        let Some(pv) = pv.filter(|pv| !pv.annotations().contains_key(EXCHANGE)) else {
            continue;
        };
        let notes = untrue_notes(claim, &pv);
        claim.annotations_mut().retain(|key, _| !notes.contains(&key.as_str()));
        if !notes.is_empty() {
            untrue.insert(name.clone(), notes);
        }
    }
    seen.untrue_notes = untrue;
    Ok(())
}

async fn observe_sources(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let namespace = seen.autoscaler.namespace().unwrap_or_default();
    let ours = ListParams::default().labels(&ours(&seen.autoscaler));
    let all = list(&ctx.of::<PvcSourcePopulator>(&namespace), &ours).await?.whole()?;
    seen.sources = all.into_iter().map(|source| (source.name_any(), source)).collect();
    Ok(())
}

/// Observes new claims of swaps that are bound without a status: their sources were deleted, or they were
/// populated too early.
async fn observe_handed_over(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    use SwapPhase::{Draining, Fenced, FinalCopy, RollingBack};
    let status = seen.autoscaler.status.clone().unwrap_or_default();
    let is_copied = |swap: &&Swap| {
        matches!(swap.phase, Draining | Fenced | FinalCopy | RollingBack) && !swap.is_rollback
    };
    for swap in status.ordinals.iter().filter_map(|one| one.swap.as_ref()).filter(is_copied) {
        let told = seen.filling(&swap.claim).map(|filling| filling.phase);
        // A due one is reported within a moment.
        let is_told = told == Some(FillingPhase::Succeeded)
            || told == Some(FillingPhase::Binding) && swap.phase == FinalCopy;
        let claim = seen.claim(&swap.claim).filter(|claim| is_bound(claim) && !is_told);
        let Some(claim) = claim else { continue };
        let filled = pv_of(ctx, claim).await?;
        let filled = filled.and_then(|pv| pv.annotations().get(POPULATES).cloned());
        let is_filled = filled.is_some() && filled == claim.metadata.uid;
        seen.handed_over.extend(is_filled.then(|| swap.claim.clone()));
    }
    Ok(())
}

/// Observes claims of pods whose nodes report their volumes as superseded, although no swap explains that:
/// the state of the API server may be older than a completed swap.
fn observe_superseded(ctx: &ClaimsController, seen: &mut ObservedWorkload) {
    let status = seen.autoscaler.status.clone().unwrap_or_default();
    for one in status.ordinals.iter().filter(|one| !one.swap.as_ref().is_some_and(is_under_way)) {
        let handle = seen.claim(&one.active_claim).and_then(|claim| ctx.handle_of(claim));
        let id = handle.and_then(|handle| handle.parse::<VolumeId>().ok());
        let fence = id.and_then(|id| ctx.asks.see("", id).fence);
        let fence = fence.filter(|fence| fence.standing == Standing::Superseded);
        let is_closed = fence.filter(|fence| !fence.copying).map(|fence| fence.generation);
        seen.superseded.extend(is_closed.map(|since| (one.active_claim.clone(), since)));
    }
}

/// Observes the volumes that swaps fence or have fenced; those that shrink, or could; and those of pods without
/// a status, which an unknown swap may have fenced.
async fn observe_volumes(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let ordinals = seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let mut named: BTreeSet<String> = BTreeSet::new();
    if !seen.new_ordinals().is_empty() {
        named.extend(seen.claims.keys().cloned());
    }
    for one in ordinals {
        let is_changed = one.swap.is_some() || one.is_shrinking();
        let policy = seen.autoscaler.spec.autoscale.as_ref();
        // Its node is asked before it becomes another size.
        let is_to_change = policy.is_some() || is_too_large(seen, one) || wants_swap(seen, one);
        if is_changed || is_to_change || seen.makes_claims() {
            named.insert(one.active_claim.clone());
        }
        let is_closed = seen.superseded.contains_key(&one.active_claim);
        if is_closed || one.reactivated_volume.is_some() {
            named.insert(one.active_claim.clone());
        }
        let has_volume = one.swap.as_ref().filter(|swap| swap.preserves_name || swap.is_rollback);
        named.extend(has_volume.map(|swap| swap.claim.clone()));
        let closing = one.retained_claims.iter().filter(|old| old.fence.is_some());
        named.extend(closing.map(|old| old.name.clone()));
    }
    for name in named {
        let claim = seen.claim(&name).cloned();
        let pv = match &claim {
            Some(claim) => pv_of(ctx, claim).await?,
            None => None,
        };
        let of = uid(&seen.autoscaler.metadata);
        let volume = pv.as_ref().and_then(volume_of).map(|id| ctx.asks.see(of, id));
        let note = pv.as_ref().map(DetachedNote::of);
        seen.detached.extend(note.map(|note| (name.clone(), note)));
        let is_unmarked = pv.zip(claim).is_some_and(|(pv, claim)| !is_marked_for(&pv, &claim));
        seen.unmarked.extend(is_unmarked.then(|| name.clone()));
        seen.volumes.insert(name, volume);
    }
    Ok(())
}

/// The classes of the claims and of the template.
async fn observe_classes(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let api: Api<StorageClass> = Api::all(ctx.client.clone());
    let of_claims = seen
        .claims
        .values()
        .filter_map(|claim| claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()));
    let template = &seen.autoscaler.spec.volume_claim_template.spec;
    let names: BTreeSet<String> = of_claims.chain(template.storage_class_name.clone()).collect();
    for name in names {
        let class = api.get_opt(&name).await?;
        if class.as_ref().is_some_and(|class| class.provisioner != DRIVER) {
            seen.foreign.insert(name.clone());
        }
        let can_grow = class.map(|class| class.allow_volume_expansion.unwrap_or_default());
        seen.classes.extend(can_grow.map(|can_grow| (name, can_grow)));
    }
    Ok(())
}

/// Observes what pending swaps depend on.
async fn look_around(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let ordinals = seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let wanted = ordinals
        .filter(|one| !one.swap.as_ref().is_some_and(is_under_way) && wants_swap(seen, one));
    let claims: Vec<String> = wanted.map(|one| one.active_claim.clone()).collect();
    if claims.is_empty() {
        return Ok(());
    }
    let (namespace, all) = (seen.autoscaler.namespace().unwrap_or_default(), ListParams::default());
    seen.around.quotas = list(&ctx.of::<ResourceQuota>(&namespace), &all).await?.whole()?;
    let budgets = ctx.of::<PodDisruptionBudget>(&namespace);
    seen.around.budgets = list(&budgets, &all).await?.whole()?;
    let template = &seen.autoscaler.spec.volume_claim_template.spec;
    let class = match &template.storage_class_name {
        Some(class) => Api::<StorageClass>::all(ctx.client.clone()).get_opt(class).await?,
        None => None,
    };
    for claim in &claims {
        let places = places_of(ctx, seen.claim(claim), class.as_ref()).await?;
        seen.around.places.insert(claim.clone(), places);
    }
    let Some(class) = class.filter(|class| class.provisioner == DRIVER) else { return Ok(()) };
    let parameters = class.parameters.clone().unwrap_or_default();
    let Ok(query) = CapacityQuery::of_class(&parameters, FsKind::Ext4) else { return Ok(()) };
    for claim in claims {
        let room = room_beside(ctx, seen, &claim, &query).map(|(node, largest)| {
            let mut retained = retained(seen);
            let is_there = |name: &String| {
                room_beside(ctx, seen, name, &query).is_some_and(|(other, _)| other == node)
            };
            retained.retain(is_there);
            NodeFreeSpace { node, largest, retained }
        });
        let is_left_out = |places: &Vec<ReadableNode>| !places.iter().any(|place| place.is_allowed);
        let is_left_out = seen.around.places.get(&claim).is_some_and(is_left_out);
        let has_none = room.as_ref().is_some_and(|room| room.largest.is_none() || is_left_out);
        if has_none && let Some(found) = elsewhere(ctx, seen, &claim, &query, &class).await? {
            seen.around.elsewhere.insert(claim.clone(), found);
        }
        seen.around.room.extend(room.map(|room| (claim, room)));
    }
    Ok(())
}

/// The node of the volume of a claim, and the largest volume that could be made there.
fn room_beside(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    claim: &str,
    query: &CapacityQuery,
) -> Option<(String, Option<Bytes>)> {
    let id: VolumeId = ctx.handle_of(seen.claim(claim)?)?.parse().ok()?;
    ctx.cluster.nodes().beside(&id, query)
}

/// Returns the node with the most free space for a volume of a class on which the pod of a
/// claim may run.
async fn elsewhere(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    claim: &str,
    query: &CapacityQuery,
    class: &StorageClass,
) -> Result<Option<AlternativeNode>, kube::Error> {
    let (away, _) = ctx.cluster.requests().away();
    let nodes = list(&Api::<Node>::all(ctx.client.clone()), &ListParams::default()).await?.items;
    let pod = pods_with(seen, claim).find(|pod| !populators::fills(pod));
    let fits = |name: &String| {
        let mut named = nodes.iter().filter(|node| node.name_any() == *name);
        !away.contains(name) && named.any(|node| is_fit(node, Some(class), pod))
    };
    let mut with_room = ctx.cluster.nodes().with_room(query).into_iter();
    let found = with_room.find(|(name, _)| fits(name));
    Ok(found.map(|(node, largest)| AlternativeNode { node, largest }))
}

/// The nodes on which the volume of a claim can be read; none if that is everywhere or not known.
async fn places_of(
    ctx: &ClaimsController,
    claim: Option<&PersistentVolumeClaim>,
    class: Option<&StorageClass>,
) -> Result<Vec<ReadableNode>, kube::Error> {
    let named = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref());
    let Some(named) = named else { return Ok(Vec::new()) };
    let pv = Api::<PersistentVolume>::all(ctx.client.clone()).get_opt(named).await?;
    let Some(pv) = pv else { return Ok(Vec::new()) };
    let nodes = populators::nodes_with(&ctx.client, &pv).await?.unwrap_or_default();
    Ok(nodes.iter().map(|node| ReadableNode::of(node, class)).collect())
}

/// Observes the usage of the volumes; it is unknown on nodes whose node plugin does not
/// respond.
fn observe_usage(ctx: &ClaimsController, seen: &mut ObservedWorkload) {
    for (name, claim) in &seen.claims {
        let name = name.clone();
        match ctx.usage_of(claim) {
            Some(UsageReport::Now(usage)) => {
                seen.usage.extend([(name, SampledUsage::from(&usage))]);
            }
            Some(UsageReport::Before(node)) => seen.silent.extend([(name, node)]),
            None => {}
        }
    }
}

fn is_under_way(swap: &Swap) -> bool {
    swap.phase != SwapPhase::Failed
}

/// The claims of this pattern that pods with these labels name.
fn named_by(pods: &[PodSummary], chosen: &PodsOf) -> impl Iterator<Item = String> {
    let pods = pods.iter().filter(|pod| chosen.has_pod(pod.labels()));
    let volumes =
        pods.flat_map(|pod| pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()));
    let claims =
        volumes.filter_map(|one| Some(one.persistent_volume_claim.as_ref()?.claim_name.clone()));
    claims.filter(|name| chosen.has_claim(name))
}

/// Returns true if the claim of a pod is to be another one, or to get another volume.
fn wants_swap(seen: &ObservedWorkload, one: &OrdinalStatus) -> bool {
    let claim = seen.claim(&one.active_claim);
    let drift = claim.map(|claim| seen.drift_of(one, claim));
    matches!(drift, Some(Drift::Swap(_) | Drift::Shrink(_)))
}

/// Returns true if a claim requests more than desired.
fn is_too_large(seen: &ObservedWorkload, one: &OrdinalStatus) -> bool {
    let wanted = autoscaler::wanted(&seen.autoscaler.spec, one.autoscaled_size.as_ref());
    let claim = seen.claim(&one.active_claim);
    claim.is_some_and(|claim| requested(claim).is_ok_and(|asked| asked > wanted))
}

/// Returns the label selector of managed claims.
fn ours(autoscaler: &PvcAutoscaler) -> String {
    format!("{KEPT_BY}={}", autoscaler.name_any())
}

/// Returns the claims that earlier swaps retain.
fn retained(seen: &ObservedWorkload) -> Vec<String> {
    let ordinals = seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    ordinals.flat_map(|one| &one.retained_claims).map(|old| old.name.clone()).collect()
}

/// Removes claims that have the names of those of swaps, but other uids than the status; without a uid there,
/// those that were not created for a swap.
pub(super) fn leave_out_taken(seen: &mut ObservedWorkload) {
    let is_another = |one: &OrdinalStatus, name: &str| {
        let Some(claim) = seen.claims.get(name) else { return false };
        let is_made = one.swap.as_ref().is_some_and(|swap| swap.claim == name && !swap.is_rollback);
        match one.known_uid(name) {
            Some(known) => uid(&claim.metadata) != known,
            None => is_made && !is_copy(claim),
        }
    };
    let ordinals = seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let names = ordinals.flat_map(|one| {
        let names = [Some(&one.active_claim), one.swap.as_ref().map(|swap| &swap.claim)];
        names.into_iter().flatten().filter(|name| is_another(one, name))
    });
    let names: Vec<String> = names.cloned().collect();
    let taken = names.into_iter().filter_map(|name| seen.claims.remove_entry(&name));
    seen.taken = taken.collect();
}
