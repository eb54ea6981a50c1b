//! Returns volumes that no swap refers to any more: a swap fenced them, or a shrink limits their size,
//! and their PvcAutoscaler was deleted midway, and perhaps created again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::{
    NodeStorage, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, PvcSourcePopulator, Quantity,
    SwapPhase, VolumeOnNode, Workload, ordinal_of,
};
use crate::claims::context::ClaimsController;
use crate::claims::detached::is_superseded;
use crate::claims::finalizer::remove_finalizer_if_unreferenced;
use crate::claims::gates::try_to_open_gate;
use crate::claims::lower_size::lower;
use crate::claims::objects::{uid, uses};
use crate::claims::orphans::{clean_up_orphans, keeper_of, orphaned, with_copies};
use crate::claims::pv_exchange_apply::{claims_of, end_unreferenced_exchanges, holds};
use crate::claims::queue::AT_ONCE;
use crate::claims::reconcile::{AGAIN, PAUSE};
use crate::claims::summary::AutoscalerSummary;
use crate::cluster::{
    Answers, Change, ClaimSummary, Due, FairQueue, NamespacedName, NodeOperation, PendingChanges,
    PodSummary, PodVersion, PvSummary, Slots, Timers, VolumeSeen, begun_again, capacity,
    caught_in_time, is_being_copied, is_restricted, pods, reconcile, until,
};
use crate::panics::caught;
use crate::volume::{Fence, Standing, Use, VolumeId};
use crate::{error_chain, populators};

/// Maximum number of concurrent checks of one kind, half of them in one namespace.
const SLOTS: Slots = Slots { all: AT_ONCE, of_namespace: AT_ONCE / 2, not_urgent: 0 };

/// Leftovers of a PvcAutoscaler that was deleted midway. Each kind is checked independently: ten thousand claims
/// with the finalizer delay no scheduling gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    /// Volumes that only a copy may read, or that do not grow: each by its id.
    Volumes,
    /// Claims that are held, by namespace and name.
    Claims,
    /// Exchanges that were begun, by namespace.
    Exchanges,
    /// Pods behind our gate, by namespace and name.
    Gates,
    /// Claims with copies, and their populators, by their deleted PvcAutoscaler.
    Copies,
}

impl What {
    const ALL: [What; 5] =
        [What::Volumes, What::Claims, What::Exchanges, What::Gates, What::Copies];

    /// Name for panics and spans.
    const fn name(self) -> &'static str {
        match self {
            What::Volumes => "volumes",
            What::Claims => "held claims",
            What::Exchanges => "exchanges",
            What::Gates => "gated pods",
            What::Copies => "orphans",
        }
    }
}

/// Key of one check.
type CheckKey = (What, String);

/// The key of what is at a place.
fn key_at((namespace, name): &NamespacedName) -> String {
    key_in((namespace, name))
}

fn key_in((namespace, name): (&str, &str)) -> String {
    format!("{namespace}/{name}")
}

/// As [`key_at`], of an object.
fn key_of(one: &impl ResourceExt) -> String {
    key_at(&(one.namespace().unwrap_or_default(), one.name_any()))
}

/// Namespace and name of what has a key.
fn place_of(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or_default()
}

/// Pending and running checks.
#[derive(Debug)]
struct Rounds {
    changed: BTreeSet<CheckKey>,
    queues: HashMap<What, FairQueue<String>>,
    /// Leftovers that are checked again without a change.
    later: Timers<CheckKey>,
    under_way: HashSet<CheckKey>,
    /// Running checks; each returns true if something is left.
    looks: JoinSet<(What, Due<String>, bool)>,
}

/// Changes since the last take.
#[derive(Debug)]
struct ReferenceChanges {
    nodes: PendingChanges<NodeStorage>,
    answers: Answers,
    autoscalers: PendingChanges<AutoscalerSummary>,
    claims: PendingChanges<ClaimSummary>,
    gated: PendingChanges<PodVersion>,
    pvs: PendingChanges<PvSummary>,
    sources: PendingChanges<PvcSourcePopulator>,
}

/// Objects that the changes concern.
#[derive(Debug, Default)]
struct ObjectsToCheck {
    /// Anything.
    all: bool,
    /// Leftovers of earlier or running checks: a node has answered.
    left: bool,
    namespaces: BTreeSet<String>,
    /// PvcAutoscalers, by namespace and name.
    keepers: BTreeSet<NamespacedName>,
    /// The ids of volumes.
    volumes: BTreeSet<String>,
    /// Claims that have changed, or to which a changed PvcAutoscaler refers or referred.
    claims: BTreeSet<NamespacedName>,
    /// Pods behind our gate that have changed.
    pods: BTreeSet<NamespacedName>,
    /// The StatefulSets of PvcAutoscalers that have changed: those hold pods of these.
    sets: BTreeSet<NamespacedName>,
}

/// A claim whose volume no swap refers to, as observed.
struct Forgotten {
    namespace: String,
    claim: PersistentVolumeClaim,
    /// Status of its PvcAutoscaler, if there is one again.
    status: Option<PvcAutoscalerStatus>,
    seen: VolumeSeen,
}

impl ReferenceChanges {
    /// All is new.
    fn of(keeper: &ClaimsController) -> ReferenceChanges {
        ReferenceChanges {
            nodes: keeper.cluster.nodes().watched().subscribe(),
            answers: keeper.asks.subscribe(),
            autoscalers: keeper.autoscalers.subscribe(),
            claims: keeper.watches.claims().subscribe(),
            gated: keeper.gated.subscribe(),
            pvs: keeper.watches.pvs().subscribe(),
            sources: keeper.sources.subscribe(),
        }
    }

    /// Takes the objects that the changes concern.
    fn take(&mut self, keeper: &ClaimsController) -> ObjectsToCheck {
        let mut concerned =
            ObjectsToCheck { left: !self.answers.take().is_empty(), ..ObjectsToCheck::default() };
        let is_any_restricted = keeper.cluster.nodes().has_restricted();
        for change in self.autoscalers.take().these(&mut concerned.all) {
            let place = change.place.clone();
            let told = change.both().flat_map(|one| one.claims_in_status());
            concerned.claims.extend(told.map(|claim| (place.0.clone(), claim.to_owned())));
            let sets = change.both().filter_map(|one| match one.workload() {
                Workload::StatefulSet(set) => Some(set),
                Workload::Deployment(_) | Workload::Pods(_) => None,
            });
            concerned.sets.extend(sets.map(|set| (place.0.clone(), set.to_owned())));
            if is_any_restricted {
                for claim in keeper.watches.claims_kept_by(&place.0, &place.1) {
                    concerned.volumes.extend(volume_of(keeper, &claim));
                }
            }
            concerned.namespaces.insert(place.0.clone());
            concerned.keepers.insert(place);
        }
        for change in self.claims.take().these(&mut concerned.all) {
            let namespace = change.place.0.clone();
            concerned.claims.insert(change.place.clone());
            for claim in change.both() {
                let by = claim.kept_by.as_deref();
                concerned.keepers.extend(by.map(|by| (namespace.clone(), by.to_owned())));
                if is_any_restricted {
                    concerned.volumes.extend(volume_of(keeper, claim));
                }
            }
            concerned.namespaces.insert(namespace);
        }
        let gated = self.gated.take().these(&mut concerned.all).into_iter();
        concerned.pods.extend(gated.map(|change| change.place));
        for change in self.sources.take().these(&mut concerned.all) {
            let by = change.both().filter_map(|one| keeper_of(&**one));
            let by = by.map(|by| (change.place.0.clone(), by.to_owned()));
            concerned.keepers.extend(by);
        }
        for change in self.pvs.take().these(&mut concerned.all) {
            for pv in change.both() {
                concerned.namespaces.extend(namespaces_of(pv));
                concerned.volumes.extend(pv.handle().map(str::to_owned));
            }
        }
        for change in self.nodes.take().these(&mut concerned.all) {
            for volume in changed_restrictions(&change) {
                let pv = keeper.watches.pv_of_volume(&volume);
                concerned.namespaces.extend(pv.iter().flat_map(|pv| namespaces_of(pv)));
                concerned.volumes.insert(volume);
            }
        }
        concerned
    }

    /// Waits until there may be something to take.
    async fn changed(&mut self) {
        tokio::select! {
            () = self.nodes.changed() => {}
            () = self.answers.changed() => {}
            () = self.autoscalers.changed() => {}
            () = self.claims.changed() => {}
            () = self.gated.changed() => {}
            () = self.pvs.changed() => {}
            () = self.sources.changed() => {}
        }
    }
}

/// The namespaces of the claims of a PersistentVolume: of the one that has it, and of those of its exchange.
fn namespaces_of(pv: &PvSummary) -> BTreeSet<String> {
    let claim = pv.spec.claim_ref.as_ref().map(|claim| claim.namespace.clone());
    let exchange = claims_of(pv).map(|((namespace, ..), _)| namespace);
    claim.into_iter().chain(exchange).collect()
}

/// Restricted volumes whose fence or size limit has changed in the status of a node.
fn changed_restrictions(change: &Change<NodeStorage>) -> BTreeSet<String> {
    let told = |record: &Option<Arc<NodeStorage>>| -> BTreeSet<(String, String)> {
        let status = record.as_ref().and_then(|record| record.status.as_ref());
        let volumes = status.into_iter().flat_map(|status| &status.volumes);
        let restricted = volumes.filter(|volume| is_restricted(volume));
        restricted
            .map(|one| (one.volume_handle.clone(), format!("{:?} {:?}", one.fence, one.max_size)))
            .collect()
    };
    let (before, now) = (told(&change.before), told(&change.now));
    before.symmetric_difference(&now).map(|(volume, _)| volume.clone()).collect()
}

impl Rounds {
    /// Creates an empty state.
    fn new() -> Rounds {
        Rounds {
            changed: BTreeSet::new(),
            queues: What::ALL.map(|what| (what, FairQueue::new(SLOTS))).into(),
            later: Timers::default(),
            under_way: HashSet::new(),
            looks: JoinSet::new(),
        }
    }

    /// Adds the changes.
    fn note(&mut self, keeper: &ClaimsController, concerned: &ObjectsToCheck) {
        if concerned.left {
            self.changed.extend(self.later.keys().chain(&self.under_way).cloned());
        }
        // Of all others none waits for a claim or a volume.
        let waits = |(what, pod): &&CheckKey| {
            *what == What::Gates && concerned.namespaces.contains(place_of(pod).0)
        };
        self.changed.extend(self.later.keys().chain(&self.under_way).filter(waits).cloned());
        for what in What::ALL {
            let keys = may_be_unreferenced(keeper, what, concerned).into_iter();
            self.changed.extend(keys.map(|key| (what, key)));
        }
    }

    /// Starts checks of what has changed or is due, up to the maximum. A running check is repeated.
    fn begin(&mut self, keeper: &Arc<ClaimsController>) {
        let now = Instant::now();
        while let Some((key, _)) = self.later.take_due(now) {
            self.changed.insert(key);
        }
        let (wait, due) = std::mem::take(&mut self.changed)
            .into_iter()
            .partition::<BTreeSet<CheckKey>, _>(|key| self.under_way.contains(key));
        self.changed = wait;
        for (what, key) in due {
            let Some(queue) = self.queues.get_mut(&what) else { continue };
            self.later.remove(&(what, key.clone()));
            let since = queue.remove(&key).map_or(now, |due| due.since);
            let namespace = namespace_of(keeper, what, &key);
            queue.insert(Due { key, namespace, is_urgent: false, since });
        }
        for (what, queue) in &mut self.queues {
            while let Some(chosen) = queue.choose() {
                self.under_way.insert((*what, chosen.key.clone()));
                let (keeper, what) = (keeper.clone(), *what);
                let span = reconcile(what.name(), &chosen.key);
                let look = async move {
                    let looked = caught(what.name(), clean_up(&keeper, what, &chosen.key)).await;
                    let is_left = looked.unwrap_or_else(|panicked| {
                        tracing::error!(%panicked, "failed to check for orphaned swap resources");
                        true
                    });
                    (what, chosen, is_left)
                };
                self.looks.spawn(look.instrument(span));
            }
        }
    }

    /// Waits until a check has ended, or one is due.
    async fn changed(&mut self) {
        let due = self.later.next();
        tokio::select! {
            Some(ended) = self.looks.join_next() => self.end(ended),
            () = until(due) => {}
        }
        while let Some(ended) = self.looks.try_join_next() {
            self.end(ended);
        }
    }

    fn end(&mut self, ended: Result<(What, Due<String>, bool), JoinError>) {
        let (what, ended, is_left) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                return tracing::error!(%error, "check for orphaned swap resources aborted");
            }
        };
        if let Some(queue) = self.queues.get_mut(&what) {
            queue.end(&ended);
        }
        let key = (what, ended.key);
        self.under_way.remove(&key);
        if is_left {
            self.later.set(key, Instant::now() + AGAIN);
        }
    }
}

/// Cleans up leftovers, forever.
pub(super) async fn clean_up_unreferenced(ctx: &Arc<ClaimsController>) {
    ctx.watches.known().await;
    tokio::join!(ctx.autoscalers.known(), ctx.cluster.known());
    tokio::join!(ctx.gated.known(), ctx.sources.known());
    begun_again("forgotten", async || {
        let (mut news, mut rounds) = (ReferenceChanges::of(ctx), Rounds::new());
        loop {
            rounds.note(ctx, &news.take(ctx));
            rounds.begin(ctx);
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                () = news.changed() => {}
                () = rounds.changed() => {}
            }
        }
    })
    .await;
}

/// Returns the possible leftovers of a kind among the changes.
fn may_be_unreferenced(
    ctx: &ClaimsController,
    what: What,
    concerned: &ObjectsToCheck,
) -> BTreeSet<String> {
    match what {
        What::Volumes if concerned.all => ctx.cluster.nodes().restricted(),
        What::Volumes => {
            let is_restricted = |id: &&String| ctx.cluster.nodes().tells_restricted(id);
            concerned.volumes.iter().filter(is_restricted).cloned().collect()
        }
        What::Claims if concerned.all => {
            let held = ctx.watches.held_claims();
            held.iter().map(|claim| key_in(claim.names.place())).collect()
        }
        What::Claims => {
            let is_held = |(namespace, name): &&NamespacedName| {
                ctx.watches.claims().get_in(namespace, name).is_some_and(|one| one.held_by.swap)
            };
            concerned.claims.iter().filter(is_held).map(key_at).collect()
        }
        What::Gates if concerned.all => {
            let gated = ctx.gated.all().into_iter().filter(|pod| pod.is_gated);
            gated.map(|pod| key_of(&*pod)).collect()
        }
        What::Gates => {
            let held = concerned.sets.iter().flat_map(|(namespace, set)| {
                let mut pods = ctx.gated.with_key(namespace);
                pods.retain(|pod| ordinal_of(&pod.name_any(), set).is_some());
                pods
            });
            let held = held.map(|pod| key_of(&*pod));
            concerned.pods.iter().map(key_at).chain(held).collect()
        }
        // Of all: they last for seconds, and are as many as swaps are allowed at once.
        What::Exchanges => {
            let pvs = ctx.watches.pvs_in_exchange();
            let mut found: BTreeSet<String> = pvs.iter().flat_map(|pv| namespaces_of(pv)).collect();
            found.retain(|one| concerned.all || concerned.namespaces.contains(one));
            found
        }
        What::Copies if concerned.all => orphaned(ctx, &with_copies(ctx)),
        What::Copies => orphaned(ctx, &concerned.keepers),
    }
}

/// The namespace that a key of a kind is of; empty for a volume that no claim has.
fn namespace_of(ctx: &ClaimsController, what: What, key: &str) -> String {
    match what {
        What::Volumes => {
            let pv = ctx.watches.pv_of_volume(key);
            let claim = pv.as_ref().and_then(|pv| pv.spec.claim_ref.as_ref());
            claim.map(|claim| claim.namespace.clone()).unwrap_or_default()
        }
        What::Exchanges => key.to_owned(),
        What::Claims | What::Gates | What::Copies => place_of(key).0.to_owned(),
    }
}

/// The volume of a claim, as the PersistentVolume that it names has it.
fn volume_of(ctx: &ClaimsController, claim: &ClaimSummary) -> Option<String> {
    ctx.watches.pvs().get(claim.volume.as_deref()?)?.handle().map(str::to_owned)
}

/// Cleans up one leftover; returns true if something is left.
async fn clean_up(ctx: &ClaimsController, what: What, key: &str) -> bool {
    match what {
        What::Volumes => Box::pin(find_unreferenced(ctx, key)).await,
        What::Claims => Box::pin(remove_finalizer_if_unreferenced(ctx, place_of(key))).await,
        What::Exchanges => Box::pin(end_unreferenced_exchanges(ctx, key)).await,
        What::Gates => Box::pin(try_to_open_gate(ctx, place_of(key))).await,
        What::Copies => Box::pin(clean_up_orphans(ctx, key)).await,
    }
}

/// Asks the node of a volume that no swap refers to; returns true if it is one.
async fn find_unreferenced(ctx: &ClaimsController, volume: &str) -> bool {
    let Some(record) =
        volume.parse().ok().and_then(|id: VolumeId| ctx.cluster.nodes().record_of(&id))
    else {
        return false;
    };
    let mut volumes = record.status.iter().flat_map(|status| &status.volumes);
    let Some(volume) = volumes.find(|one| one.volume_handle == volume && is_restricted(one)) else {
        return false;
    };
    match Box::pin(caught_in_time("volumes", release_volume(ctx, volume))).await {
        Ok(Ok(is_any)) => is_any,
        Ok(Err(error)) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(error, "failed to look up the owner of a volume");
            true
        }
        Err(why) => {
            tracing::error!(%why, "failed to return a volume to its pod");
            true
        }
    }
}

async fn release_volume(
    ctx: &ClaimsController,
    volume: &VolumeOnNode,
) -> Result<bool, kube::Error> {
    match volume.max_size {
        _ if is_being_copied(volume) => unfence_if_unreferenced(ctx, volume).await,
        Some(limit) => unlimit_if_unreferenced(ctx, volume, limit).await,
        None => Ok(false),
    }
}

async fn unfence_if_unreferenced(
    ctx: &ClaimsController,
    volume: &VolumeOnNode,
) -> Result<bool, kube::Error> {
    let Some(forgotten) = unless_known(ctx, volume, names).await? else { return Ok(false) };
    let Forgotten { namespace, claim, status, seen } = forgotten;
    let pods = pods(&ctx.client, &namespace).await?;
    let is_superseded = is_superseded(ctx, &claim).await?;
    let fence = fence_without_swap(&seen, &claim, status.as_ref(), &pods, is_superseded);
    let Some(fence) = fence else { return Ok(false) };
    let wish = NodeOperation::Fence(fence);
    if seen.is_to_be_asked(&wish) {
        let name = claim.name_any();
        tracing::info!(claim = name, namespace, %fence, "returning a volume that no swap refers to");
        ctx.asks.ask(uid(&claim.metadata), seen.id, wish);
    }
    Ok(true)
}

/// Removes the size limit of a volume that was shrunk without a PvcAutoscaler. Its claim first gets
/// its present size, so that it is expanded to its request again.
async fn unlimit_if_unreferenced(
    ctx: &ClaimsController,
    volume: &VolumeOnNode,
    limit: Quantity,
) -> Result<bool, kube::Error> {
    let Some(forgotten) = unless_known(ctx, volume, shrinks).await? else { return Ok(false) };
    let Forgotten { namespace, claim, seen, .. } = forgotten;
    if seen.is_to_be_asked(&NodeOperation::Release) {
        let name = claim.name_any();
        tracing::info!(claim = name, namespace, %limit, "ending the shrink of a volume that no PvcAutoscaler refers to");
        let has = match capacity(&claim) {
            Ok(has) => has,
            Err(error) => {
                tracing::warn!(claim = name, namespace, %error, "failed to end an orphaned shrink");
                return Ok(true);
            }
        };
        if volume.size <= limit && has > limit {
            lower(&ctx.client, &claim, limit).await?;
        }
        ctx.asks.ask(uid(&claim.metadata), seen.id, NodeOperation::Release);
    }
    Ok(true)
}

/// Returns the claim of a volume, unless its PvcAutoscaler refers to the operation on it.
async fn unless_known(
    ctx: &ClaimsController,
    volume: &VolumeOnNode,
    is_its: fn(&[OrdinalStatus], &str) -> bool,
) -> Result<Option<Forgotten>, kube::Error> {
    let Some((namespace, claim, keeper)) = claim_of(ctx, &volume.volume_handle) else {
        return Ok(None);
    };
    let known = ctx.autoscalers.get_in(&namespace, &keeper);
    if known.is_some_and(|known| is_its(&known.busy, &claim)) {
        return Ok(None);
    }
    // A watch may be older than the operation; the status with it was written before the operation.
    let keeper = ctx.of::<PvcAutoscaler>(&namespace).get_opt(&keeper).await?;
    let status = keeper.and_then(|keeper| keeper.status);
    let there = ctx.of::<PersistentVolumeClaim>(&namespace).get_opt(&claim).await?;
    let (Some(there), Ok(id)) = (there, volume.volume_handle.parse()) else { return Ok(None) };
    if is_its(ordinals(status.as_ref()), &claim) {
        return Ok(None);
    }
    // Read after the status: an exchange checks that again after it has annotated the volume.
    if !holds(ctx, &there, &volume.volume_handle).await? {
        return Ok(None);
    }
    let seen = ctx.asks.see(uid(&there.metadata), id);
    Ok(Some(Forgotten { namespace, claim: there, status, seen }))
}

/// Returns namespace and name of the claim of a volume, and its PvcAutoscaler. Its PersistentVolume
/// decides whose it is: a tenant can write to the claim.
fn claim_of(ctx: &ClaimsController, volume: &str) -> Option<(String, String, String)> {
    let pv = ctx.watches.pv_of_volume(volume)?;
    let its = pv.spec.claim_ref.as_ref()?;
    let claim = ctx.watches.claims().get_in(&its.namespace, &its.name)?;
    if its.uid.as_deref() != Some(&*claim.names.uid) {
        return None;
    }
    let keeper = claim.kept_by.as_deref()?.to_owned();
    Some((claim.names.namespace.to_string(), claim.names.name.to_string(), keeper))
}

/// Returns the fence for the volume of a claim that a swap fenced, if no swap of its PvcAutoscaler refers
/// to it: its pod gets it back once the copy has released it; if another claim has replaced it, it stays
/// superseded.
pub(super) fn fence_without_swap(
    volume: &VolumeSeen,
    claim: &PersistentVolumeClaim,
    status: Option<&PvcAutoscalerStatus>,
    pods: &[PodSummary],
    is_superseded: bool,
) -> Option<Fence> {
    let now = volume.fence.filter(|now| now.lets() == Use::Read)?;
    if names(ordinals(status), &claim.name_any()) {
        return None;
    }
    let generation = now.generation + 1;
    if is_superseded {
        return Some(Fence { generation, standing: Standing::Superseded, copying: false });
    }
    // A pod that has it has it from before: what was asked for a swap may be done long after.
    let has_pod = !populators::writers(pods, &claim.name_any()).is_empty();
    let is_copied = pods.iter().any(|pod| populators::fills(pod) && uses(pod, &claim.name_any()));
    let is_fresh = volume.asked.as_ref().is_some_and(|asked| !asked.is_old);
    let is_unused = is_fresh && volume.look_after(&now).is_some_and(|look| look.open_count == 0);
    let is_free = !is_copied && (is_unused || has_pod);
    Some(if is_free { Fence { generation, ..Fence::default() } } else { now })
}

/// Returns the entries of the pods in a status.
fn ordinals(status: Option<&PvcAutoscalerStatus>) -> &[OrdinalStatus] {
    status.map_or(&[], |status| &status.ordinals)
}

/// Returns true if a status shows a shrink of the claim.
fn shrinks(told: &[OrdinalStatus], claim: &str) -> bool {
    let is_its = |one: &OrdinalStatus| {
        one.active_claim == claim && one.is_shrinking() || is_exchanged(one, claim)
    };
    told.iter().any(is_its)
}

/// Returns true if a swap exchanges the volume of a claim.
fn is_exchanged(one: &OrdinalStatus, claim: &str) -> bool {
    let swap =
        one.swap.as_ref().filter(|swap| swap.preserves_name && swap.phase != SwapPhase::Failed);
    swap.is_some_and(|swap| [&one.active_claim, &swap.claim].iter().any(|name| *name == claim))
}

/// Returns true if a swap refers to the volume of a claim.
fn names(told: &[OrdinalStatus], claim: &str) -> bool {
    let is_its = |one: &OrdinalStatus| {
        let has_taken = one.swap.as_ref().is_some_and(|swap| swap.fence.is_some());
        has_taken && (one.active_claim == claim || is_exchanged(one, claim))
            || one.retained_claims.iter().any(|old| old.name == claim && old.fence.is_some())
    };
    told.iter().any(is_its)
}
