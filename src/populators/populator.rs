//! Fills the claims of one kind of source: looks when something changes, plans, applies.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{FillingPhase, is_understood};
use crate::causes;
use crate::cluster::writes::{is_refused, is_stale};
use crate::cluster::{Asks, Clock, Watched, every};
use crate::populators::apply::{Events, Work};
use crate::populators::notes::TELL_EVERY;
use crate::populators::plan::plan;
use crate::populators::seen::{Binding, Seen, is_held, uid};
use crate::populators::{PopulatorReason, Source, Tally, Watches, make, sender};

/// After a look, in which what belongs together goes on to change; what comes after a quiet time is
/// looked at at once.
const PAUSE: Duration = Duration::from_millis(50);

/// After something else was written meanwhile.
const SOON: Duration = Duration::from_secs(1);

/// After an API server that did not answer, and while something is waited for that is not watched.
const AGAIN: Duration = Duration::from_secs(10);

/// How many claims are looked at together.
const TOGETHER: usize = 8;

/// How claims are filled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of the fill pods, which is this program's.
    pub image: String,
    /// The namespace of second claims and fill pods that need nothing of the claim's namespace; `None`
    /// is the namespace of the claim.
    pub namespace: Option<String>,
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

/// What was last seen of a claim, and when it is to be looked at without a change.
#[derive(Debug, Clone)]
struct Known {
    versions: Versions,
    due: Option<Instant>,
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
            sources: Watched::start(Api::all(client.clone()), every(), stop),
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
            let mut known = HashMap::new();
            loop {
                changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
                self.look(&mut known).await;
                tokio::time::sleep(PAUSE).await;
                let due = known.values().filter_map(|one: &Known| one.due).min();
                let [claims, pvs, pods, sources, answers] = &mut changes;
                tokio::select! {
                    _ = claims.changed() => {}
                    _ = pvs.changed() => {}
                    _ = pods.changed() => {}
                    _ = sources.changed() => {}
                    _ = answers.changed() => {}
                    () = until(due) => {}
                }
            }
        };
        stop.run_until_cancelled(filled).await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Look at every claim of which something has changed or is due, and at the sources.
    async fn look(self: &Arc<Self>, known: &mut HashMap<String, Known>) {
        let claims = self.claims();
        known.retain(|uid, _| claims.iter().any(|claim| uid == self::uid(&claim.metadata)));
        let now = Instant::now();
        let news: Vec<(Arc<PersistentVolumeClaim>, Versions)> = claims
            .into_iter()
            .map(|claim| (self.versions(&claim), claim))
            .filter(|(versions, claim)| {
                known.get(uid(&claim.metadata)).is_none_or(|before| {
                    before.versions != *versions || before.due.is_some_and(|due| due <= now)
                })
            })
            .map(|(versions, claim)| (claim, versions))
            .collect();
        for some in news.chunks(TOGETHER) {
            let mut looks = JoinSet::new();
            for (claim, versions) in some {
                let (populator, claim) = (self.clone(), claim.clone());
                let (uid, versions) = (uid(&claim.metadata).to_owned(), versions.clone());
                looks.spawn(async move {
                    let due = populator.attend(&claim).await.map(|after| Instant::now() + after);
                    (uid, Known { versions, due })
                });
            }
            known.extend(looks.join_all().await);
        }
        self.release_sources().await;
    }

    /// The claims that name a source of this kind and are not yet as they should be.
    fn claims(&self) -> Vec<Arc<PersistentVolumeClaim>> {
        let is_open = |claim: &PersistentVolumeClaim| {
            Binding::of(claim) == Binding::Pending || is_held(&claim.metadata)
        };
        let all = self.watches.claims().all().into_iter();
        all.filter(|claim| names::<S>(claim).is_some() && is_open(claim)).collect()
    }

    fn versions(&self, claim: &PersistentVolumeClaim) -> Versions {
        let prime = make::prime_name(uid(&claim.metadata));
        let own = claim.metadata.namespace.clone().unwrap_or_default();
        let places = [Some(&own), self.settings.namespace.as_ref()];
        let find = |place: &str| self.watches.claims().get_in(place, &prime);
        let prime_claim = places.into_iter().flatten().find_map(|place| find(place));
        let find = |place: &str| self.watches.pods().get_in(place, &prime);
        let pod = places.into_iter().flatten().find_map(|place| find(place));
        let sender = self.watches.pods().get_in(&own, &sender::name(uid(&claim.metadata)));
        let source = names::<S>(claim).and_then(|name| self.sources.get_in(&own, name));
        let volume = |claim: &PersistentVolumeClaim| claim.spec.as_ref()?.volume_name.clone();
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
    async fn attend(&self, claim: &PersistentVolumeClaim) -> Option<Duration> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
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

    async fn further(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<Option<Duration>, kube::Error> {
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
        let Some((seen, source)) = self.observe(&seen.claim).await? else { return Ok(()) };
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

    /// A source that no claim is filled from is nobody's any more.
    async fn release_sources(&self) {
        let claims = self.watches.claims().all();
        for source in self.sources.all().into_iter().filter(|source| is_held(source.meta())) {
            let (namespace, name) = (source.namespace(), source.name_any());
            let in_use = claims.iter().any(|claim| {
                claim.metadata.namespace == namespace
                    && names::<S>(claim) == Some(&name)
                    && is_held(&claim.metadata)
            });
            if in_use {
                continue;
            }
            match self.release_source(&source).await {
                Err(kube::Error::Api(status)) if is_stale(&status) || status.is_not_found() => {}
                Err(error) => {
                    let error = causes::in_full(&error);
                    tracing::warn!(source = name, error, "a source is not released yet");
                }
                Ok(()) => {}
            }
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
fn names<S: Source>(claim: &PersistentVolumeClaim) -> Option<&String> {
    let named = claim.spec.as_ref()?.data_source_ref.as_ref()?;
    let is_ours = named.api_group.as_deref() == Some(&*S::group(&())) && named.kind == S::kind(&());
    // One of another namespace is told so when it is looked at; see KEP-3294.
    (is_ours && named.namespace.is_none()).then_some(&named.name)
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
