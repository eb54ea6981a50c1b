//! Fills the claims of one kind of source: looks when something changes, plans, applies.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{FillingPhase, is_understood};
use crate::causes;
use crate::cluster::writes::{is_refused, is_stale};
use crate::cluster::{
    Asks, Binding, Busy, ClaimSummary, Clock, Due, Slots, Watched, caught, every, report_panic,
};
use crate::populators::apply::{Events, Work};
use crate::populators::notes::TELL_EVERY;
use crate::populators::plan::plan;
use crate::populators::seen::{Seen, is_held, uid};
use crate::populators::{PopulatorReason, Source, Tally, WRITER, Watches, make, sender};

/// After a look, in which what belongs together goes on to change; what comes after a quiet time is
/// looked at at once.
const PAUSE: Duration = Duration::from_millis(50);

/// After something else was written meanwhile.
const SOON: Duration = Duration::from_secs(1);

/// After an API server that did not answer, and while something is waited for that is not watched.
const AGAIN: Duration = Duration::from_secs(10);

/// How many claims are looked at at once: half of them of one namespace, and some that no pod fills right now.
const SLOTS: Slots = Slots { all: 16, of_namespace: 8, not_urgent: 4 };

/// How long a look may take: a namespace whose webhooks answer slowly keeps its own claims waiting.
const LIMIT: Duration = Duration::from_secs(60);

/// The longest pause of a claim that waits and of which nothing changes.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest pause after looks that ended in a panic.
const LONGEST_FAULT: Duration = Duration::from_secs(600);

/// How many sources are released at once.
const RELEASES: usize = 4;

/// How claims are filled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of the fill pods, which is this program's.
    pub image: String,
    /// The namespace of second claims and fill pods that need nothing of the claim's namespace; `None`
    /// is the namespace of the claim.
    pub namespace: Option<String>,
    /// Names of the Secrets with which their image is pulled; without any, those of the ServiceAccount `default`
    /// of the namespace are used, as Kubernetes has it.
    pub pull_secrets: Vec<String>,
    /// Ranges of addresses that are not public and that a pod of that namespace may fetch from.
    pub allowed: Vec<String>,
}

/// Fills the claims of one kind of source.
pub struct Populator<S: Source> {
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) watches: Arc<Watches>,
    pub(super) asks: Arc<Asks>,
    pub(super) sources: Watched<S>,
    pub(super) tally: Arc<dyn Tally>,
    pub(super) events: Events,
    clock: Clock,
}

impl<S: Source> fmt::Debug for Populator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Populator").field("kind", &S::kind(&())).finish_non_exhaustive()
    }
}

/// The versions of all that belongs to a claim: while they stay there is nothing new to see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Versions([Option<String>; 7]);

impl Versions {
    /// Whether a pod fills it: its workload may be stopped for that.
    fn has_pod(&self) -> bool {
        let [_, _, pod, sender, ..] = &self.0;
        pod.is_some() || sender.is_some()
    }
}

/// What was last seen of a claim, and when it is to be looked at without a change.
#[derive(Debug, Clone, Default)]
struct Known {
    versions: Versions,
    due: Option<Instant>,
    /// Whether it is looked at right now.
    is_attended: bool,
    /// How many looks in a row have found that it waits, with nothing changed.
    waits: u32,
    /// How many looks in a row have ended in a panic.
    faults: u32,
}

/// The looks under way, and what was last seen.
#[derive(Debug, Default)]
struct Looks {
    known: HashMap<String, Known>,
    busy: Busy,
    claims: JoinSet<Attended>,
    /// The sources that are being released, by uid.
    releasing: HashSet<String>,
    releases: JoinSet<String>,
    /// When the first claim is due that is not yet.
    next: Option<Instant>,
}

/// What one who has looked at a claim has to say.
#[derive(Debug)]
struct Attended {
    chosen: Due<String>,
    /// After how long to look again without a change.
    after: Option<Duration>,
    has_panicked: bool,
}

impl Looks {
    /// Wait until a look or a release has ended, and note all that have.
    async fn ended(&mut self) {
        tokio::select! {
            Some(ended) = self.claims.join_next() => self.note(ended),
            Some(ended) = self.releases.join_next() => self.note_released(ended),
            else => std::future::pending().await,
        }
        self.note_ended();
    }

    fn note_ended(&mut self) {
        while let Some(ended) = self.claims.try_join_next() {
            self.note(ended);
        }
        while let Some(ended) = self.releases.try_join_next() {
            self.note_released(ended);
        }
    }

    fn note(&mut self, ended: Result<Attended, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return tracing::error!(%error, "a look at a claim has no outcome"),
        };
        let chosen = &ended.chosen;
        self.busy.end(&chosen.namespace, chosen.is_urgent);
        let Some(one) = self.known.get_mut(&chosen.key) else { return };
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
        one.due = after.map(|after| Instant::now() + after);
    }

    fn note_released(&mut self, ended: Result<String, JoinError>) {
        match ended {
            Ok(uid) => drop(self.releasing.remove(&uid)),
            Err(error) => tracing::error!(%error, "the release of a source has no outcome"),
        }
    }
}

/// The pause after so many looks in vain before.
fn longer(before: u32, longest: Duration) -> Duration {
    AGAIN.saturating_mul(2_u32.saturating_pow(before)).min(longest)
}

impl<S: Source> Populator<S> {
    /// Begin to watch the sources, until `stop`; the claims are watched, and nodes asked, for all kinds
    /// together.
    pub fn start(
        client: &Client,
        settings: &Settings,
        watches: &Arc<Watches>,
        asks: &Arc<Asks>,
        tally: &Arc<dyn Tally>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Populator {
            client: client.clone(),
            settings: settings.clone(),
            watches: watches.clone(),
            asks: asks.clone(),
            sources: Watched::start_cut(
                Api::all(client.clone()),
                every(),
                stop,
                |source: &mut S| {
                    source.meta_mut().annotations = None;
                    source.meta_mut().labels = None;
                },
            ),
            tally: tally.clone(),
            events: Events { client: client.clone() },
            clock: Clock::start(),
        })
    }

    /// Fill claims, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let filled = async {
            self.watches.known().await;
            tokio::join!(self.sources.known(), self.asks.cluster().known());
            let mut changes = [
                self.watches.claims().changes(),
                self.watches.pvs().changes(),
                self.watches.pods().changes(),
                self.sources.changes(),
                self.asks.changes(),
            ];
            let mut looks = Looks::default();
            loop {
                changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
                self.look(&mut looks);
                tokio::time::sleep(PAUSE).await;
                let due = looks.next;
                let [claims, pvs, pods, sources, answers] = &mut changes;
                tokio::select! {
                    _ = claims.changed() => {}
                    _ = pvs.changed() => {}
                    _ = pods.changed() => {}
                    _ = sources.changed() => {}
                    _ = answers.changed() => {}
                    () = looks.ended() => {}
                    () = until(due) => {}
                }
                looks.note_ended();
            }
        };
        stop.run_until_cancelled(filled).await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Begin to look at claims of which something has changed or that are due, as many as may be looked at at once,
    /// and at the sources.
    fn look(self: &Arc<Self>, looks: &mut Looks) {
        let (claims, now) = (self.claims(), Instant::now());
        let there: HashSet<&str> = claims.iter().map(|claim| uid(&claim.metadata)).collect();
        looks.known.retain(|uid, _| there.contains(uid.as_str()));
        looks.next = None;
        let (mut due, mut found) = (Vec::new(), HashMap::new());
        for claim in &claims {
            let uid = uid(&claim.metadata);
            let one = looks.known.entry(uid.to_owned()).or_default();
            if one.is_attended {
                continue;
            }
            let versions = self.versions(claim);
            if versions != one.versions {
                (one.waits, one.due) = (0, Some(one.due.map_or(now, |due| due.min(now))));
            }
            match one.due {
                Some(since) if since <= now => {
                    let namespace = claim.namespace().unwrap_or_default();
                    let is_urgent = versions.has_pod();
                    due.push(Due { key: uid.to_owned(), namespace, is_urgent, since });
                    found.insert(uid, (claim, versions));
                }
                later => looks.next = [looks.next, later].into_iter().flatten().min(),
            }
        }
        for chosen in SLOTS.choose(due, &looks.busy) {
            let Some((claim, versions)) = found.remove(chosen.key.as_str()) else { continue };
            let Some(one) = looks.known.get_mut(&chosen.key) else { continue };
            (one.versions, one.due, one.is_attended) = (versions, None, true);
            looks.busy.begin(&chosen.namespace, chosen.is_urgent);
            looks.claims.spawn(self.clone().look_at(claim.clone(), chosen));
        }
        self.release_sources(looks);
    }

    /// Look at one claim, for so long and no longer.
    async fn look_at(self: Arc<Self>, claim: Arc<ClaimSummary>, chosen: Due<String>) -> Attended {
        let looked =
            tokio::time::timeout(LIMIT, caught("claims", self.attend(&claim.metadata))).await;
        let (after, has_panicked) = match looked {
            Ok(Ok(after)) => (after, false),
            Ok(Err(panicked)) => {
                report_panic(&self.client, WRITER, &*claim, &panicked).await;
                (None, true)
            }
            Err(_) => {
                let (claim, namespace) = (claim.name_any(), &chosen.namespace);
                tracing::warn!(claim, namespace, "a look at a claim took too long");
                (Some(AGAIN), false)
            }
        };
        Attended { chosen, after, has_panicked }
    }

    /// The claims that name a source of this kind and are not yet as they should be.
    fn claims(&self) -> Vec<Arc<ClaimSummary>> {
        let is_open =
            |claim: &ClaimSummary| claim.binding == Binding::Pending || is_held(&claim.metadata);
        let all = self.watches.claims().all().into_iter();
        all.filter(|claim| names::<S>(claim).is_some() && is_open(claim)).collect()
    }

    fn versions(&self, claim: &ClaimSummary) -> Versions {
        let prime = make::prime_name(uid(&claim.metadata));
        let own = claim.metadata.namespace.clone().unwrap_or_default();
        let places = [Some(&own), self.settings.namespace.as_ref()];
        let find = |place: &str| self.watches.claims().get_in(place, &prime);
        let prime_claim = places.into_iter().flatten().find_map(|place| find(place));
        let find = |place: &str| self.watches.pods().get_in(place, &prime);
        let pod = places.into_iter().flatten().find_map(|place| find(place));
        let sender = self.watches.pods().get_in(&own, &sender::name(uid(&claim.metadata)));
        let source = names::<S>(claim).and_then(|name| self.sources.get_in(&own, name));
        let volume = |claim: &ClaimSummary| claim.volume.clone();
        let pv = prime_claim.as_deref().and_then(volume).or_else(|| volume(claim));
        let pv = pv.and_then(|pv| self.watches.pvs().get(&pv));
        Versions([
            claim.resource_version(),
            prime_claim.and_then(|prime| prime.resource_version()),
            pod.and_then(|pod| pod.resource_version()),
            sender.and_then(|sender| sender.resource_version()),
            source.and_then(|source| source.resource_version()),
            pv.and_then(|pv| pv.resource_version()),
            Some(self.asks.versions(uid(&claim.metadata)).join(" ")),
        ])
    }

    /// Look at a claim and do what is to be done; after how long to look again without a change.
    async fn attend(&self, claim: &ObjectMeta) -> Option<Duration> {
        let (namespace, name) = (claim.namespace.as_deref(), claim.name.as_deref());
        let failed = match self.further(claim).await {
            Ok(due) => return due,
            Err(error) => error,
        };
        match &failed {
            kube::Error::Api(status) if is_stale(status) => Some(SOON),
            error => {
                let error = causes::in_full(error);
                tracing::warn!(claim = name, namespace, error, "a claim is not filled yet");
                Some(AGAIN)
            }
        }
    }

    async fn further(&self, claim: &ObjectMeta) -> Result<Option<Duration>, kube::Error> {
        let Some((seen, source)) = self.observe(claim).await? else { return Ok(None) };
        if seen.told().is_some_and(|told| !is_understood(told)) {
            return Ok(Some(AGAIN)); // Another version fills it, and goes on.
        }
        let there = self.namespace_of(&seen.claim, source.as_ref());
        let work = Work { seen: &seen, source: source.as_ref(), namespace: &there };
        for step in plan(&seen) {
            let (makes, notes) = (step.makes(), step.notes());
            match self.apply(step, &work).await {
                Err(kube::Error::Api(status)) if makes && is_refused(&status) => {
                    self.tell_refusal(&seen, &work, &status.message).await?;
                    return Ok(Some(AGAIN * 3));
                }
                // It would be refused again. What comes after it is not done without it.
                Err(kube::Error::Api(status)) if notes && status.is_invalid() => {
                    let (claim, why) = (seen.claim.name_any(), &status.message);
                    tracing::error!(claim, namespace = there, why, "failed to write a status");
                    return Ok(Some(AGAIN));
                }
                done => done?,
            }
        }
        Ok(next(&seen))
    }

    /// The API server does not let something be made: a quota, a policy. Who has the claim can help.
    async fn tell_refusal(
        &self,
        seen: &Seen,
        work: &Work<'_, S>,
        why: &str,
    ) -> Result<(), kube::Error> {
        // What was written before the refusal has changed what is told.
        let Some((seen, source)) = self.observe(&seen.claim.metadata).await? else { return Ok(()) };
        let message =
            format!("what fills the claim cannot be made in namespace {}: {why}", work.namespace);
        let work = Work { seen: &seen, source: source.as_ref(), namespace: work.namespace };
        for step in seen.wait(PopulatorReason::FillRefused, &message) {
            self.apply(step, &work).await?;
        }
        Ok(())
    }

    /// Uids of the claims that name a source.
    pub(super) fn uids_of(&self, source: &S) -> Vec<String> {
        let (namespace, name) = (source.namespace(), source.name_any());
        let all = self.watches.claims().all().into_iter();
        let its = all.filter(|claim| {
            claim.metadata.namespace == namespace && names::<S>(claim) == Some(&name)
        });
        its.map(|claim| uid(&claim.metadata).to_owned()).collect()
    }

    /// Begin to release the sources that no claim is filled from.
    fn release_sources(self: &Arc<Self>, looks: &mut Looks) {
        let claims = self.watches.claims().all();
        let held = claims.iter().filter(|claim| is_held(&claim.metadata));
        let in_use: HashSet<(Option<&str>, &str)> = held
            .filter_map(|claim| Some((claim.metadata.namespace.as_deref(), names::<S>(claim)?)))
            .collect();
        for source in self.sources.all().into_iter().filter(|source| is_held(source.meta())) {
            let (namespace, name) = (source.namespace(), source.name_any());
            if !self.watches.claims().decodes_all_of(namespace.as_deref().unwrap_or_default()) {
                continue; // One of the others may be filled from it.
            }
            let uid = uid(source.meta()).to_owned();
            let is_busy = looks.releasing.contains(&uid) || looks.releases.len() == RELEASES;
            if is_busy || in_use.contains(&(namespace.as_deref(), name.as_str())) {
                continue;
            }
            looks.releasing.insert(uid.clone());
            let populator = self.clone();
            looks.releases.spawn(async move {
                populator.release_within_limit(&source).await;
                uid
            });
        }
    }

    async fn release_within_limit(&self, source: &S) {
        let released =
            tokio::time::timeout(LIMIT, caught("sources", self.release_source(source))).await;
        let source = source.name_any();
        match released {
            Ok(Ok(Err(kube::Error::Api(status)))) if is_stale(&status) || status.is_not_found() => {
            }
            Ok(Ok(Err(error))) => {
                let error = causes::in_full(&error);
                tracing::warn!(source, error, "a source is not released yet");
            }
            Ok(Err(panicked)) => tracing::error!(source, %panicked, "a source is not released"),
            Err(_) => tracing::warn!(source, "the release of a source took too long"),
            Ok(Ok(Ok(()))) => {}
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The name of the source of this kind that a claim names.
fn names<S: Source>(claim: &ClaimSummary) -> Option<&str> {
    let named = claim.source.as_ref()?;
    let is_ours = *named.group == *S::group(&()) && *named.kind == *S::kind(&());
    // One of another namespace is told so when it is looked at; see KEP-3294.
    (is_ours && !named.has_namespace).then_some(&*named.name)
}

/// After how long a claim is looked at without a change of what is watched.
fn next(seen: &Seen) -> Option<Duration> {
    if let Some(left) = seen.backs_off() {
        return Duration::try_from(left).ok().map(|left| left + PAUSE);
    }
    let tell_every = Duration::try_from(TELL_EVERY).unwrap_or(AGAIN);
    if seen.pod.is_some() {
        return Some(tell_every);
    }
    // Pods of others, ConfigMaps and classes are not watched; the claim, which gets a node, and its source are.
    let watched = [
        PopulatorReason::CannotCopyAhead,
        PopulatorReason::WaitsForConsumer,
        PopulatorReason::SourcePaused,
    ];
    let is_at_rest = seen.told().is_some_and(|told| {
        let waits_so = |reason: &PopulatorReason| Some(reason.to_string()) == told.reason;
        told.phase == FillingPhase::Failed || watched.iter().any(waits_so)
    });
    (!is_at_rest && seen.source.is_some()).then_some(AGAIN)
}
