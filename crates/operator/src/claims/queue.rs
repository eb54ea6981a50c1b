//! Queue of the workloads to reconcile: those with changes, and those that are due.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::{self, Rival};
use crate::claims::concerned::WorkloadChanges;
use crate::claims::context::ClaimsController;
use crate::claims::observed::Refusal;
use crate::claims::reconcile::{AGAIN, reconcile_workload};
use crate::claims::summary::AutoscalerSummary;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{
    Changed, ClaimSummary, Due, FairQueue, ObjectNames, Slots, Timers, Turnover, Unfinished,
    caught_in_time, reconcile, report_unfinished, until,
};
use crate::panics::caught_now;

/// Name for panics and spans.
const LOOP: &str = "pvcautoscalers";

/// Maximum number of concurrent reconciles of workloads or pods: one with hanging calls delays no
/// other.
pub(super) const AT_ONCE: usize = 16;

/// Maximum number of concurrent reconciles: half of them in one namespace, and some reserved for
/// workloads without a swap.
const SLOTS: Slots = Slots { all: AT_ONCE, of_namespace: AT_ONCE / 2, not_urgent: 4 };

/// Maximum delay of a waiting workload without changes.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Maximum delay after reconciles without an outcome: they panicked or timed out.
const LONGEST_FAULT: Duration = Duration::from_secs(600);

/// The looks under way, and what was last seen.
#[derive(Debug)]
pub(super) struct WorkloadReconciles {
    news: WorkloadChanges,
    /// Workloads by uid.
    known: HashMap<Arc<str>, KnownWorkload>,
    /// Workloads that are due, and those in a reconcile.
    queue: FairQueue<Arc<str>>,
    /// Workloads that are due later without a change.
    later: Timers<Arc<str>>,
    /// Workloads whose reconciles have ended since the last comparison.
    ended: BTreeSet<Arc<str>>,
    attendants: JoinSet<WorkloadReconciled>,
}

/// Last observed state of a workload.
#[derive(Debug, Clone)]
struct KnownWorkload {
    autoscaler: Arc<AutoscalerSummary>,
    /// Digest of the versions of all its objects at the last reconcile.
    versions: Option<u64>,
    refusal: Option<Box<Refusal>>,
    /// True during a reconcile.
    is_attended: bool,
    /// Number of consecutive reconciles that found it waiting without a change.
    waits: u32,
    /// Number of consecutive reconciles without an outcome.
    faults: u32,
}

impl KnownWorkload {
    fn of(autoscaler: Arc<AutoscalerSummary>) -> KnownWorkload {
        KnownWorkload {
            autoscaler,
            versions: None,
            refusal: None,
            is_attended: false,
            waits: 0,
            faults: 0,
        }
    }
}

/// Outcome of a reconcile.
#[derive(Debug)]
struct WorkloadReconciled {
    chosen: Due<Arc<str>>,
    /// Delay until the next reconcile without a change.
    after: Option<Duration>,
    refusal: Option<Refusal>,
    /// Why there is no outcome.
    unfinished: Option<Unfinished>,
}

impl WorkloadReconciles {
    /// Creates an empty queue.
    pub fn of(keeper: &ClaimsController) -> WorkloadReconciles {
        WorkloadReconciles {
            news: WorkloadChanges::of(keeper),
            known: HashMap::new(),
            queue: FairQueue::new(SLOTS),
            later: Timers::default(),
            ended: BTreeSet::new(),
            attendants: JoinSet::new(),
        }
    }

    /// Starts reconciles of workloads that have changed or are due, up to the maximum.
    pub fn begin(&mut self, keeper: &Arc<ClaimsController>) {
        let (now, mut rivals) = (Instant::now(), Rivals::default());
        for uid in self.concerned(keeper) {
            self.compare(keeper, uid, now, &mut rivals);
        }
        while let Some((uid, since)) = self.later.take_due(now) {
            self.have_wait(uid, since);
        }
        while let Some(chosen) = self.queue.choose() {
            let Some(one) = self.known.get_mut(&chosen.key) else {
                self.queue.end(&chosen);
                continue;
            };
            one.is_attended = true;
            one.versions = versions_of(keeper, &one.autoscaler, self.news.away(), &mut rivals);
            let (autoscaler, refusal) =
                (one.autoscaler.clone(), one.refusal.take().map(|why| *why));
            let (namespace, name) = autoscaler.names.place();
            let span = reconcile(LOOP, format_args!("{namespace}/{name}"));
            let look = look(keeper.clone(), autoscaler, chosen, refusal);
            self.attendants.spawn(look.instrument(span));
        }
    }

    /// Takes the changes; returns the uids of the workloads that they may concern.
    fn concerned(&mut self, keeper: &ClaimsController) -> BTreeSet<Arc<str>> {
        let (autoscalers, concerned) = self.news.take(keeper);
        let mut uids = std::mem::take(&mut self.ended);
        for uid in &concerned.by_pods {
            // Also one whose reconcile has read its pods before: it is compared once that has ended.
            self.known.get_mut(uid).map(|one| one.versions.take());
        }
        uids.extend(concerned.uids.into_iter().chain(concerned.by_pods));
        let is_all = concerned.all || matches!(autoscalers, Changed::Everything(_));
        let Turnover { gone, there } = autoscalers.turnover(self.known.keys(), |_| true);
        for uid in &gone {
            self.forget(uid);
        }
        for one in there {
            uids.insert(one.names.uid.clone());
            self.know(one);
        }
        if is_all {
            uids.extend(self.known.keys().cloned());
        }
        uids
    }

    fn know(&mut self, autoscaler: Arc<AutoscalerSummary>) {
        let uid = autoscaler.names.uid.clone();
        let one = self.known.entry(uid).or_insert_with(|| KnownWorkload::of(autoscaler.clone()));
        one.autoscaler = autoscaler;
    }

    fn forget(&mut self, uid: &Arc<str>) {
        self.known.remove(uid);
        self.queue.remove(uid);
        self.later.remove(uid);
    }

    /// Enqueues a workload if it has changed. During a reconcile that waits for its end.
    fn compare(
        &mut self,
        keeper: &ClaimsController,
        uid: Arc<str>,
        now: Instant,
        rivals: &mut Rivals,
    ) {
        let Some(one) = self.known.get_mut(&uid).filter(|one| !one.is_attended) else { return };
        let versions = versions_of(keeper, &one.autoscaler, self.news.away(), rivals);
        let Some(versions) = versions else { return };
        if one.versions == Some(versions) {
            return;
        }
        one.waits = 0;
        let due = self.queue.remove(&uid).map(|due| due.since).or(self.later.remove(&uid));
        self.have_wait(uid, due.map_or(now, |due| due.min(now)));
    }

    /// Enqueues a workload with its present urgency.
    fn have_wait(&mut self, uid: Arc<str>, since: Instant) {
        let Some(one) = self.known.get(&uid) else { return };
        let namespace = one.autoscaler.names.namespace.to_string();
        let is_urgent = one.autoscaler.is_midway();
        self.queue.insert(Due { key: uid, namespace, is_urgent, since });
    }

    /// Waits until something may have changed, a reconcile has ended, or one is due.
    pub async fn wait(&mut self) {
        // Those that are due already wait for a look to end.
        let due = self.later.next();
        tokio::select! {
            () = self.news.changed() => {}
            Some(ended) = self.attendants.join_next() => self.note(ended),
            () = until(due) => {}
        }
        while let Some(ended) = self.attendants.try_join_next() {
            self.note(ended);
        }
    }

    /// Stores the outcome of a reconcile, if the workload still exists.
    fn note(&mut self, ended: Result<WorkloadReconciled, JoinError>) {
        let WorkloadReconciled { chosen, after, refusal, unfinished } = match ended {
            Ok(ended) => ended,
            Err(error) => return tracing::error!(%error, "reconcile of a workload aborted"),
        };
        self.queue.end(&chosen);
        let Some(one) = self.known.get_mut(&chosen.key) else { return };
        self.ended.insert(chosen.key.clone());
        (one.refusal, one.is_attended) = (refusal.map(Box::new), false);
        one.faults = if unfinished.is_some() { one.faults.saturating_add(1) } else { 0 };
        let after = match after {
            // A pod may be stopped for it, and what hangs may answer at any moment.
            _ if unfinished == Some(Unfinished::TooLong) && chosen.is_urgent => {
                Some(longer(one.faults - 1, LONGEST_WAIT))
            }
            _ if unfinished.is_some() => Some(longer(one.faults - 1, LONGEST_FAULT)),
            Some(AGAIN) if !chosen.is_urgent => {
                one.waits = one.waits.saturating_add(1);
                Some(longer(one.waits - 1, LONGEST_WAIT))
            }
            after => after,
        };
        if let Some(after) = after {
            self.later.set(chosen.key, Instant::now() + after);
        }
    }
}

/// Returns the delay after so many unsuccessful reconciles.
fn longer(before: u32, longest: Duration) -> Duration {
    AGAIN.saturating_mul(2_u32.saturating_pow(before)).min(longest)
}

async fn look(
    keeper: Arc<ClaimsController>,
    autoscaler: Arc<AutoscalerSummary>,
    chosen: Due<Arc<str>>,
    mut refusal: Option<Refusal>,
) -> WorkloadReconciled {
    let look = caught_in_time(LOOP, reconcile_workload(&keeper, &autoscaler, &mut refusal));
    let looked = Box::pin(look).await;
    if let Err(why) = &looked {
        report_unfinished(&keeper.client, OPERATOR, &*autoscaler, why).await;
    }
    let (after, unfinished) = match looked {
        Ok(after) => (after, None),
        Err(why) => (None, Some(why)),
    };
    WorkloadReconciled { chosen, after, refusal, unfinished }
}

/// The versions of what belongs to a workload; `None` after a panic over one, which stops no other.
fn versions_of(
    keeper: &ClaimsController,
    autoscaler: &AutoscalerSummary,
    away: &BTreeSet<String>,
    rivals: &mut Rivals,
) -> Option<u64> {
    let found = caught_now(LOOP, || keeper.versions(autoscaler, away, rivals));
    let told = found.inspect_err(|panicked| {
        let (namespace, name) = autoscaler.names.place();
        tracing::error!(autoscaler = name, namespace, %panicked, "failed to check a workload for changes");
    });
    told.ok()
}

/// Digests of the uids that name one StatefulSet and template, each computed once for a comparison: a tenant may have
/// thousands of them.
#[derive(Debug, Default)]
struct Rivals(HashMap<Claimed, u64>);

/// Whose claims they are: a namespace, a StatefulSet and the name of a template.
type Claimed = (Arc<str>, Box<str>, Box<str>);

impl Rivals {
    fn digest(&mut self, keeper: &ClaimsController, autoscaler: &AutoscalerSummary) -> Option<u64> {
        let (Some(set), template) = autoscaler.template() else { return None };
        let namespace = autoscaler.names.namespace.clone();
        let digest = self.0.entry((namespace, set.into(), template.into())).or_insert_with(|| {
            let mut all = keeper.siblings(autoscaler);
            all.retain(|one| one.template() == (Some(set), template));
            let mut uids: Vec<&str> = all.iter().map(|one| &*one.names.uid).collect();
            uids.push(&autoscaler.names.uid);
            uids.sort_unstable();
            let mut digest = DefaultHasher::new();
            uids.hash(&mut digest);
            digest.finish()
        });
        Some(*digest)
    }
}

impl ClaimsController {
    /// A digest of the versions of all that belongs to a workload and is watched: while it stays there is nothing new to
    /// see.
    fn versions(
        &self,
        autoscaler: &AutoscalerSummary,
        away: &BTreeSet<String>,
        rivals: &mut Rivals,
    ) -> u64 {
        let ObjectNames { namespace, uid, resource_version, .. } = &autoscaler.names;
        let sources =
            autoscaler.swaps_to().filter_map(|claim| self.sources.get_in(namespace, claim));
        let full = |claim: &ClaimSummary| {
            let volume = claim.volume.as_deref().filter(|_| autoscaler.sets_sizes)?;
            let handle = self.handle_in(volume, Some(&claim.names.uid))?;
            let (node, usage) = self.usage_of_volume(&handle)?;
            Some(format!("{usage:?} {}", away.contains(&node.name_any())))
        };
        let claims = self.claims_of(autoscaler);
        let mut of_claims: Vec<(&str, Option<String>)> =
            claims.iter().map(|claim| (&*claim.names.resource_version, full(claim))).collect();
        of_claims.sort();
        let rivals = rivals.digest(self, autoscaler);
        let workload = match autoscaler.workload() {
            api::Workload::StatefulSet(name) => {
                self.sets.get_in(namespace, name).map(|set| set.names.resource_version.clone())
            }
            api::Workload::Deployment(name) => self
                .deployments
                .get_in(namespace, name)
                .map(|made| made.names.resource_version.clone()),
            api::Workload::Pods(_) => None,
        };
        let sources: Vec<Option<String>> = sources.map(|one| one.resource_version()).collect();
        let mut digest = DefaultHasher::new();
        (resource_version, workload, rivals, sources, of_claims).hash(&mut digest);
        self.asks.versions(uid).hash(&mut digest);
        digest.finish()
    }
}
