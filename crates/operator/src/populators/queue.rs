//! Queue of the claims to reconcile: those with changes, and those that are due; and of sources to update.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::PopulatorStatus;
use crate::cluster::writes::{OPERATOR, is_stale};
use crate::cluster::{
    Answers, Change, Changed, ClaimSummary, Due, FairQueue, NamespacedName, PendingChanges,
    PodVersion, PvSummary, Slots, Timers, Turnover, reconcile, report_panic, until,
};
use crate::error_chain;
use crate::panics::{caught, caught_now};
use crate::populators::apply::release_source;
use crate::populators::observed::is_held;
use crate::populators::populator::{AGAIN, Populator, is_open, names};
use crate::populators::settle::{settle, settled_status, time_for_first_claim};
use crate::populators::{POPULATES, PopulationSource, prime, sender};

/// Names for panics and spans of claims, and of updates of sources.
const CLAIMS: &str = "claims";
const SOURCES: &str = "sources";

/// Maximum number of concurrent reconciles of claims: half of them in one namespace, and some reserved for
/// claims without a populator pod.
const SLOTS: Slots = Slots { all: 16, of_namespace: 8, not_urgent: 4 };

/// Maximum number of concurrent updates of sources.
const UPDATES: Slots = Slots { all: 4, of_namespace: 2, not_urgent: 0 };

/// Timeout of a reconcile: a namespace whose webhooks are slow delays its own claims.
const LIMIT: Duration = Duration::from_secs(60);

/// Maximum delay of a waiting claim without changes.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Maximum delay after reconciles that panicked.
const LONGEST_FAULT: Duration = Duration::from_secs(600);

/// The versions of all that belongs to a claim: while they stay there is nothing new to see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ObjectVersions([Option<String>; 7]);

impl ObjectVersions {
    /// True if a pod populates it: its workload may be stopped for that.
    fn has_pod(&self) -> bool {
        let [_, _, pod, sender, ..] = &self.0;
        pod.is_some() || sender.is_some()
    }
}

/// Last observed state of a claim.
#[derive(Debug, Clone)]
struct KnownPopulation {
    claim: Arc<ClaimSummary>,
    versions: ObjectVersions,
    /// True during a reconcile.
    is_attended: bool,
    /// Number of consecutive reconciles that found it waiting without a change.
    waits: u32,
    /// Number of consecutive reconciles that panicked.
    faults: u32,
}

/// The looks under way, and what was last seen.
#[derive(Debug)]
pub(super) struct PopulationReconciles<S: PopulationSource> {
    news: PopulationChanges<S>,
    /// The claims that name a source of this kind and are not yet as they should be, by uid.
    known: HashMap<String, KnownPopulation>,
    /// Claims that are due, and those in a reconcile.
    queue: FairQueue<String>,
    /// The claims that are due later, without a change.
    later: Timers<String>,
    /// The claims whose looks have ended since they were compared last.
    ended: BTreeSet<String>,
    claims: JoinSet<PopulationReconciled>,
    sources: Sources,
}

/// The sources that may have become free or whose status may differ, and those that are being updated.
#[derive(Debug)]
struct Sources {
    queue: FairQueue<NamespacedName>,
    /// Sources whose update failed.
    later: Timers<NamespacedName>,
    /// Sources that have changed during their update.
    changed: HashSet<NamespacedName>,
    updating: HashSet<NamespacedName>,
    updates: JoinSet<Updated>,
}

/// Outcome of a reconcile.
#[derive(Debug)]
struct PopulationReconciled {
    chosen: Due<String>,
    /// Delay until the next reconcile without a change.
    after: Option<Duration>,
    has_panicked: bool,
}

/// What is to be done to a source.
#[derive(Debug)]
enum SourceWork<S> {
    /// Remove the finalizer.
    Release(Arc<S>),
    /// Write the status.
    Settle(Arc<S>, Box<PopulatorStatus>),
    /// Wait so long for its first claim.
    Wait(Duration),
}

/// Outcome of an update of a source.
#[derive(Debug)]
struct Updated {
    chosen: Due<NamespacedName>,
    has_failed: bool,
}

/// Changes since the last take, of everything that is watched for claims.
#[derive(Debug)]
struct PopulationChanges<S: PopulationSource> {
    claims: PendingChanges<ClaimSummary>,
    pvs: PendingChanges<PvSummary>,
    pods: PendingChanges<PodVersion>,
    sources: PendingChanges<S>,
    answers: Answers,
}

impl<S: PopulationSource> PopulationChanges<S> {
    /// Waits until there may be something to take.
    async fn changed(&mut self) {
        tokio::select! {
            () = self.claims.changed() => {}
            () = self.pvs.changed() => {}
            () = self.pods.changed() => {}
            () = self.sources.changed() => {}
            () = self.answers.changed() => {}
        }
    }
}

impl Sources {
    fn new() -> Self {
        Sources {
            queue: FairQueue::new(UPDATES),
            later: Timers::default(),
            changed: HashSet::new(),
            updating: HashSet::new(),
            updates: JoinSet::new(),
        }
    }

    /// Enqueues a source, again if necessary.
    fn insert(&mut self, place: NamespacedName) {
        self.later.remove(&place);
        if self.updating.contains(&place) {
            self.changed.insert(place);
            return;
        }
        let namespace = place.0.clone();
        self.queue.insert(Due { key: place, namespace, is_urgent: false, since: Instant::now() });
    }

    /// Starts updates of sources, up to the maximum.
    fn begin<S: PopulationSource>(&mut self, populator: &Arc<Populator<S>>) {
        while let Some((place, _)) = self.later.take_due(Instant::now()) {
            self.insert(place);
        }
        while let Some(chosen) = self.queue.choose() {
            let work = match work_on_source(populator, &chosen.key) {
                Some(SourceWork::Wait(left)) => {
                    self.queue.end(&chosen);
                    self.later.set(chosen.key, Instant::now() + left);
                    continue;
                }
                Some(work) => work,
                None => {
                    self.queue.end(&chosen);
                    continue;
                }
            };
            self.updating.insert(chosen.key.clone());
            let (namespace, name) = &chosen.key;
            let span = reconcile(SOURCES, format_args!("{namespace}/{name}"));
            let populator = populator.clone();
            let update = async move {
                let has_failed = !update_within_limit(&populator, &work).await;
                Updated { chosen, has_failed }
            };
            self.updates.spawn(update.instrument(span));
        }
    }

    fn note(&mut self, ended: Result<Updated, JoinError>) {
        let Updated { chosen, has_failed } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                return tracing::error!(%error, "update of a source aborted");
            }
        };
        self.queue.end(&chosen);
        self.updating.remove(&chosen.key);
        if self.changed.remove(&chosen.key) {
            self.insert(chosen.key);
        } else if has_failed {
            self.later.set(chosen.key, Instant::now() + AGAIN);
        }
    }
}

impl<S: PopulationSource> PopulationReconciles<S> {
    /// Creates an empty queue.
    pub fn of(populator: &Populator<S>) -> Self {
        let watches = &populator.watches;
        let news = PopulationChanges {
            claims: watches.claims().subscribe(),
            pvs: watches.pvs().subscribe(),
            pods: watches.pods().subscribe(),
            sources: populator.sources.subscribe(),
            answers: populator.asks.subscribe(),
        };
        PopulationReconciles {
            news,
            known: HashMap::new(),
            queue: FairQueue::new(SLOTS),
            later: Timers::default(),
            ended: BTreeSet::new(),
            claims: JoinSet::new(),
            sources: Sources::new(),
        }
    }

    /// Starts reconciles of claims that have changed or are due, and updates of sources, up to the maximum.
    pub fn begin(&mut self, populator: &Arc<Populator<S>>) {
        let now = Instant::now();
        for uid in self.concerned(populator) {
            self.compare(populator, uid, now);
        }
        while let Some((uid, since)) = self.later.take_due(now) {
            self.have_wait(populator, uid, since);
        }
        while let Some(chosen) = self.queue.choose() {
            let Some(one) = self.known.get_mut(&chosen.key) else {
                self.queue.end(&chosen);
                continue;
            };
            let versions = versions_of(populator, &one.claim).unwrap_or_default();
            (one.versions, one.is_attended) = (versions, true);
            let (namespace, name) = one.claim.names.place();
            let span = reconcile(CLAIMS, format_args!("{namespace}/{name}"));
            let look = populator.clone().look_at(one.claim.clone(), chosen);
            self.claims.spawn(look.instrument(span));
        }
        self.sources.begin(populator);
    }

    /// Takes the changes; returns the uids of the claims that they may concern.
    fn concerned(&mut self, populator: &Populator<S>) -> BTreeSet<String> {
        let mut uids = std::mem::take(&mut self.ended);
        let mut is_all = self.take_claims(populator, &mut uids);
        for change in self.news.pods.take().these(&mut is_all) {
            uids.extend(filled_by(&change.place.1));
        }
        for change in self.news.pvs.take().these(&mut is_all) {
            uids.extend(change.both().flat_map(of_pv));
        }
        match self.news.sources.take() {
            Changed::Everything(all) => {
                is_all = true;
                for source in &all {
                    self.sources.insert(place(&**source));
                }
            }
            Changed::These(all) => {
                for Change { place, .. } in all {
                    let its = populator.watches.claims_filled_from::<S>(&place.0, &place.1);
                    uids.extend(its.iter().map(|claim| claim.names.uid.to_string()));
                    self.sources.insert(place);
                }
            }
        }
        uids.extend(self.news.answers.take());
        if is_all {
            uids.extend(self.known.keys().cloned());
        }
        uids
    }

    /// Takes the changes of claims; returns true if anything may have changed.
    fn take_claims(&mut self, populator: &Populator<S>, uids: &mut BTreeSet<String>) -> bool {
        let changed = self.news.claims.take();
        let is_all = match &changed {
            Changed::Everything(_) => {
                for source in populator.sources.all() {
                    self.sources.insert(place(&*source));
                }
                true
            }
            Changed::These(these) => {
                for change in these {
                    self.note_sources(populator, change);
                }
                uids.extend(these.iter().filter_map(|change| filled_by(&change.place.1)));
                false
            }
        };
        let Turnover { gone, there } = changed.turnover(self.known.keys(), is_open::<S>);
        for uid in &gone {
            self.forget(uid);
        }
        for claim in there {
            uids.insert(claim.names.uid.to_string());
            self.know(claim);
        }
        is_all
    }

    /// Enqueues the sources that a claim has held, or holds.
    fn note_sources(&mut self, populator: &Populator<S>, change: &Change<ClaimSummary>) {
        let namespace = &change.place.0;
        if change.both().next().is_none() {
            // One that could not be decoded may be gone, and have held a source of its namespace.
            for source in &populator.sources.with_key(&held_in(namespace)) {
                self.sources.insert(place(&**source));
            }
        }
        for source in change.both().filter_map(|claim| names::<S>(claim)) {
            self.sources.insert((namespace.clone(), source.to_owned()));
        }
    }

    fn know(&mut self, claim: Arc<ClaimSummary>) {
        let uid = claim.names.uid.to_string();
        let one = self.known.entry(uid).or_insert_with(|| KnownPopulation {
            claim: claim.clone(),
            versions: ObjectVersions::default(),
            is_attended: false,
            waits: 0,
            faults: 0,
        });
        one.claim = claim;
    }

    fn forget(&mut self, uid: &String) {
        self.known.remove(uid);
        self.queue.remove(uid);
        self.later.remove(uid);
    }

    /// Enqueues a claim if it has changed. During a reconcile that waits for its end.
    fn compare(&mut self, populator: &Populator<S>, uid: String, now: Instant) {
        let Some(one) = self.known.get_mut(&uid).filter(|one| !one.is_attended) else { return };
        let Some(versions) = versions_of(populator, &one.claim) else { return };
        if versions == one.versions {
            return;
        }
        one.waits = 0;
        let due = self.queue.remove(&uid).map(|due| due.since).or(self.later.remove(&uid));
        self.have_wait(populator, uid, due.map_or(now, |due| due.min(now)));
    }

    /// Enqueues a claim with its present urgency.
    fn have_wait(&mut self, populator: &Populator<S>, uid: String, since: Instant) {
        let Some(one) = self.known.get(&uid) else { return };
        let namespace = one.claim.names.namespace.to_string();
        let is_urgent = versions_of(populator, &one.claim).unwrap_or_default().has_pod();
        self.queue.insert(Due { key: uid, namespace, is_urgent, since });
    }

    /// Waits until something may have changed, a reconcile or an update has ended, or one is due.
    pub async fn wait(&mut self) {
        let due = [self.later.next(), self.sources.later.next()].into_iter().flatten().min();
        tokio::select! {
            () = self.news.changed() => {}
            Some(ended) = self.claims.join_next() => self.note(ended),
            Some(ended) = self.sources.updates.join_next() => self.sources.note(ended),
            () = until(due) => {}
        }
        while let Some(ended) = self.claims.try_join_next() {
            self.note(ended);
        }
        while let Some(ended) = self.sources.updates.try_join_next() {
            self.sources.note(ended);
        }
    }

    fn note(&mut self, ended: Result<PopulationReconciled, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return tracing::error!(%error, "reconcile of a claim aborted"),
        };
        let chosen = &ended.chosen;
        self.queue.end(chosen);
        let Some(one) = self.known.get_mut(&chosen.key) else { return };
        self.ended.insert(chosen.key.clone());
        one.is_attended = false;
        one.faults = if ended.has_panicked { one.faults.saturating_add(1) } else { 0 };
        let after = match ended.after {
            _ if ended.has_panicked => Some(longer(one.faults - 1, LONGEST_FAULT)),
            Some(AGAIN) if !chosen.is_urgent => {
                one.waits = one.waits.saturating_add(1);
                Some(longer(one.waits - 1, LONGEST_WAIT))
            }
            after => after,
        };
        if let Some(after) = after {
            self.later.set(chosen.key.clone(), Instant::now() + after);
        }
    }
}

/// The versions of a claim; `None` after a panic over one, which stops no other.
fn versions_of<S: PopulationSource>(
    populator: &Populator<S>,
    claim: &ClaimSummary,
) -> Option<ObjectVersions> {
    let found = caught_now(CLAIMS, || versions(populator, claim));
    let told = found.inspect_err(|panicked| {
        let (namespace, claim) = claim.names.place();
        tracing::error!(claim, namespace, %panicked, "failed to check a claim for changes");
    });
    told.ok()
}

impl<S: PopulationSource> Populator<S> {
    /// Reconciles one claim within the timeout.
    async fn look_at(
        self: Arc<Self>,
        claim: Arc<ClaimSummary>,
        chosen: Due<String>,
    ) -> PopulationReconciled {
        let looked =
            tokio::time::timeout(LIMIT, caught(CLAIMS, self.reconcile(&claim.names))).await;
        let (after, has_panicked) = match looked {
            Ok(Ok(after)) => (after, false),
            Ok(Err(panicked)) => {
                report_panic(&self.client, OPERATOR, &*claim, &panicked).await;
                (None, true)
            }
            Err(_) => {
                tracing::warn!("reconcile of a claim timed out");
                (Some(AGAIN), false)
            }
        };
        PopulationReconciled { chosen, after, has_panicked }
    }
}

fn versions<S: PopulationSource>(populator: &Populator<S>, claim: &ClaimSummary) -> ObjectVersions {
    let prime = prime::prime_name(&claim.names.uid);
    let own = &*claim.names.namespace;
    let places = [Some(own), populator.settings.namespace.as_deref()];
    let find = |place: &str| populator.watches.claims().get_in(place, &prime);
    let prime_claim = places.into_iter().flatten().find_map(find);
    let find = |place: &str| populator.watches.pods().get_in(place, &prime);
    let pod = places.into_iter().flatten().find_map(find);
    let sender = populator.watches.pods().get_in(own, &sender::name(&claim.names.uid));
    let source = names::<S>(claim).and_then(|name| populator.sources.get_in(own, name));
    let volume = |claim: &ClaimSummary| claim.volume.clone();
    let pv = prime_claim.as_deref().and_then(volume).or_else(|| volume(claim));
    let pv = pv.and_then(|pv| populator.watches.pvs().get(&pv));
    ObjectVersions([
        Some(claim.names.resource_version.to_string()),
        prime_claim.map(|prime| prime.names.resource_version.to_string()),
        pod.and_then(|pod| pod.resource_version()),
        sender.and_then(|sender| sender.resource_version()),
        source.and_then(|source| source.resource_version()),
        pv.and_then(|pv| pv.resource_version()),
        Some(populator.asks.versions(&claim.names.uid).join(" ")),
    ])
}

fn work_on_source<S: PopulationSource>(
    populator: &Populator<S>,
    place: &NamespacedName,
) -> Option<SourceWork<S>> {
    if let Some(unused) = unused_source(populator, place) {
        return Some(SourceWork::Release(unused)); // Its status afterwards, when it is known as changed.
    }
    let source = populator.sources.get_in(&place.0, &place.1)?;
    let status = settled_status(populator, &source)?;
    let wait = time_for_first_claim(populator, &source).map(SourceWork::Wait);
    Some(wait.unwrap_or_else(|| SourceWork::Settle(source, Box::new(status))))
}

/// Returns a source with a finalizer that populates no claim.
fn unused_source<S: PopulationSource>(
    populator: &Populator<S>,
    (namespace, name): &NamespacedName,
) -> Option<Arc<S>> {
    let source = populator.sources.get_in(namespace, name).filter(|one| is_held(one.meta()))?;
    if !populator.watches.claims().decodes_all_of(namespace) {
        return None; // One of the others may use it as its source.
    }
    let its = populator.watches.claims_filled_from::<S>(namespace, name);
    (!its.iter().any(|claim| claim.held_by.populator)).then_some(source)
}

/// Updates a source; returns true if nothing is left to do without a change.
async fn update_within_limit<S: PopulationSource>(
    populator: &Populator<S>,
    work: &SourceWork<S>,
) -> bool {
    let update = async {
        match work {
            SourceWork::Release(source) => release_source(populator, source).await,
            SourceWork::Settle(source, status) => settle(populator, source, status).await,
            SourceWork::Wait(_) => Ok(()),
        }
    };
    match tokio::time::timeout(LIMIT, caught(SOURCES, update)).await {
        Ok(Ok(Err(kube::Error::Api(status)))) if is_stale(&status) || status.is_not_found() => {
            return true; // It has changed, and is looked at for that.
        }
        Ok(Ok(Err(error))) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(error, "failed to update a source, retrying");
        }
        Ok(Err(panicked)) => tracing::error!(%panicked, "failed to update a source"),
        Err(_) => tracing::warn!("update of a source timed out"),
        Ok(Ok(Ok(()))) => return true,
    }
    false
}

/// The key of the sources of a namespace that are held.
fn held_in(namespace: &str) -> String {
    format!("held in {namespace}")
}

/// The keys by which a source is found.
pub(super) fn keys_of_source<S: PopulationSource>(source: &S) -> Vec<String> {
    let namespace = source.meta().namespace.as_deref().unwrap_or_default();
    Some(held_in(namespace)).filter(|_| is_held(source.meta())).into_iter().collect()
}

/// The uid of the claim for which a prime claim or a pod of this name was made.
fn filled_by(name: &str) -> Option<String> {
    let is_for =
        |uid: &&str| [prime::prime_name(uid), sender::name(uid)].contains(&name.to_owned());
    let (_, uid) = name.split_once('-')?;
    Some(uid).filter(is_for).map(str::to_owned)
}

/// Returns the uids of the claims that a PersistentVolume may concern: the bound one, and the one that it is
/// populated for.
fn of_pv(pv: &Arc<PvSummary>) -> Vec<String> {
    let claim = pv.spec.claim_ref.as_ref();
    let has = claim.and_then(|claim| claim.uid.clone());
    let second = claim.and_then(|claim| filled_by(&claim.name));
    let filled = pv.metadata.annotations.as_ref().and_then(|all| all.get(POPULATES).cloned());
    [has, second, filled].into_iter().flatten().collect()
}

fn place<S: PopulationSource>(source: &S) -> NamespacedName {
    (source.namespace().unwrap_or_default(), source.name_any())
}

/// Returns the delay after so many unsuccessful reconciles.
fn longer(before: u32, longest: Duration) -> Duration {
    AGAIN.saturating_mul(2_u32.saturating_pow(before)).min(longest)
}
