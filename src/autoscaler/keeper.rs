//! Keeps the claims of all workloads: looks when something changes, plans, applies.

use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{
    self, AutoscalerPhase, PvcAutoscaler, PvcAutoscalerStatus, PvcSourcePopulator, Swap, SwapPhase,
    VolumeUsage, is_understood,
};
use crate::autoscaler::conditions::conditions;
use crate::autoscaler::in_place::in_seconds;
use crate::autoscaler::plan::plan;
use crate::autoscaler::seen::{ClockSeen, Refusal, Seen, uid};
use crate::autoscaler::size::next_look;
use crate::autoscaler::steps::Step;
use crate::autoscaler::{AutoscalerReason, KEPT_BY, Tally, WRITER};
use crate::causes;
use crate::cluster::{Asks, Clock, ClockSkew, Cluster, Unreadable, Watched, every, writes};
use crate::populators::Watches;

/// After a look, in which what belongs together goes on to change; what comes after a quiet time is
/// looked at at once.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// How many times as long as a look took the pause after it is: where there are so many claims that a
/// look takes long, looking takes no more than a fifth of a processor.
const PAUSE_OF_LOOK: u32 = 4;

/// After something else was written meanwhile.
const SOON: Duration = Duration::from_secs(1);

/// While a pod stops or starts: pods are not watched, their StatefulSets are.
const POD: Duration = Duration::from_secs(2);

/// After an API server that did not answer, and while something is waited for that is not watched.
pub(super) const AGAIN: Duration = Duration::from_secs(10);

/// While there are claims that a workload could have and that no pod names: pods are not watched. While a
/// claim is still there after its time: what keeps it may be watched by no one.
const LATER: Duration = Duration::from_secs(60);

/// How many workloads, or pods, are looked at at once: one whose calls hang holds up no other.
pub(super) const AT_ONCE: usize = 16;

/// Says whether pods get their claims from us.
#[async_trait]
pub trait Webhook: Send + Sync + 'static {
    /// Look whether every new pod of a StatefulSet is shown to us.
    ///
    /// # Errors
    /// What the API server says.
    async fn covers(&self, namespace: &str, stateful_set: &str) -> Result<bool, kube::Error>;
}

/// Keeps the claims of workloads as their templates have them.
pub struct Keeper {
    pub(super) client: Client,
    pub(super) autoscalers: Watched<PvcAutoscaler>,
    sets: Watched<StatefulSet>,
    deployments: Watched<Deployment>,
    pub(super) sources: Watched<PvcSourcePopulator>,
    /// Those that are not scheduled yet, because their claims get other volumes.
    pub(super) gated: Watched<Pod>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) asks: Arc<Asks>,
    pub(super) watches: Arc<Watches>,
    webhook: Arc<dyn Webhook>,
    pub(super) tally: Arc<dyn Tally>,
    clock: Clock,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

/// What was last seen of a workload, and when it is to be looked at without a change.
#[derive(Debug, Clone)]
struct Known {
    versions: Vec<String>,
    due: Option<Instant>,
    refusal: Option<Refusal>,
    /// Whether somebody looks right now.
    is_attended: bool,
}

/// How full a volume is, as far as its node has told.
#[derive(Debug)]
pub(super) enum Told {
    Now(VolumeUsage),
    /// The agent of this node is away since.
    Before(String),
}

/// The uid of a workload that was looked at, after how long to look again, and what was refused.
type Attended = (String, Option<Duration>, Option<Refusal>);

impl Keeper {
    /// Begin to watch, until `stop`; the claims are watched, and nodes asked, for the
    /// populators, too.
    pub fn start(
        client: &Client,
        watches: &Arc<Watches>,
        asks: &Arc<Asks>,
        webhook: Arc<dyn Webhook>,
        tally: Arc<dyn Tally>,
        stop: &CancellationToken,
    ) -> Arc<Keeper> {
        Arc::new(Keeper {
            client: client.clone(),
            autoscalers: Watched::start(Api::all(client.clone()), every(), stop),
            sets: Watched::start_cut(Api::all(client.clone()), every(), stop, cut_set),
            deployments: Watched::start_cut(
                Api::all(client.clone()),
                every(),
                stop,
                cut_deployment,
            ),
            sources: Watched::start(Api::all(client.clone()), every(), stop),
            gated: Watched::start(Api::all(client.clone()), every().labels(api::GATE), stop),
            cluster: asks.cluster().clone(),
            asks: asks.clone(),
            watches: watches.clone(),
            webhook,
            tally,
            clock: Clock::start(),
        })
    }

    /// Keep claims, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let kept = async {
            self.watches.known().await;
            tokio::join!(self.autoscalers.known(), self.sets.known(), self.deployments.known());
            tokio::join!(self.sources.known(), self.cluster.known());
            let mut changes = [
                self.autoscalers.changes(),
                self.sets.changes(),
                self.deployments.changes(),
                self.sources.changes(),
                self.watches.claims().changes(),
                self.cluster.nodes().watched().changes(),
                self.asks.changes(),
            ];
            let mut known = HashMap::new();
            let mut attendants = JoinSet::new();
            loop {
                changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
                let begun = Instant::now();
                self.look(&mut known, &mut attendants);
                tokio::time::sleep(PAUSE.max(begun.elapsed() * PAUSE_OF_LOOK)).await;
                let due = known.values().filter_map(|one: &Known| one.due).min();
                let [autoscalers, sets, deployments, sources, claims, nodes, answers] =
                    &mut changes;
                tokio::select! {
                    _ = autoscalers.changed() => {}
                    _ = sets.changed() => {}
                    _ = deployments.changed() => {}
                    _ = sources.changed() => {}
                    _ = claims.changed() => {}
                    _ = nodes.changed() => {}
                    Some(ended) = attendants.join_next() => heed(&mut known, ended),
                    _ = answers.changed() => {}
                    () = until(due) => {}
                }
                while let Some(ended) = attendants.try_join_next() {
                    heed(&mut known, ended);
                }
            }
        };
        let both = async { tokio::join!(kept, self.give_back_forgotten()) };
        stop.run_until_cancelled(Box::pin(both)).await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How its clock differs from that of the API server.
    pub(super) async fn skew(&self) -> Result<Option<ClockSkew>, kube::Error> {
        self.clock.skew(&self.client).await
    }

    /// Where the objects of a kind are in a namespace.
    pub(super) fn of<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) async fn covers(&self, namespace: &str, set: &str) -> Result<bool, kube::Error> {
        self.webhook.covers(namespace, set).await
    }

    /// Begin to look at every workload of which something has changed or is due.
    fn look(
        self: &Arc<Self>,
        known: &mut HashMap<String, Known>,
        attendants: &mut JoinSet<Attended>,
    ) {
        let all = self.autoscalers.all();
        known.retain(|uid, _| all.iter().any(|one| uid == self::uid(&one.metadata)));
        for autoscaler in all {
            let uid = uid(&autoscaler.metadata).to_owned();
            let versions = self.versions(&autoscaler);
            let before = known.get(&uid);
            let is_known = before.is_some_and(|before| {
                before.versions == versions && before.due.is_none_or(|due| due > Instant::now())
            });
            if is_known || before.is_some_and(|before| before.is_attended) {
                continue;
            }
            if attendants.len() == AT_ONCE {
                return; // The next one who ends makes room.
            }
            let mut refusal = before.and_then(|before| before.refusal.clone());
            known.insert(
                uid.clone(),
                Known { versions, due: None, refusal: None, is_attended: true },
            );
            let keeper = self.clone();
            attendants.spawn(async move {
                let after = keeper.attend(&autoscaler, &mut refusal).await;
                (uid, after, refusal)
            });
        }
    }

    /// The versions of all that belongs to a workload and is watched: while they stay there is nothing
    /// new to see.
    fn versions(&self, autoscaler: &PvcAutoscaler) -> Vec<String> {
        let namespace = autoscaler.namespace().unwrap_or_default();
        let ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals);
        let swaps = ordinals.filter_map(|one| one.swap.as_ref());
        let sources = swaps.filter_map(|swap| self.sources.get_in(&namespace, &swap.claim));
        let name = autoscaler.name_any();
        let workload = autoscaler.spec.workload();
        let is_its = |claim: &PersistentVolumeClaim| match workload {
            api::Workload::Pods(pods) => pods.has_claim(&claim.name_any()),
            _ => claim.labels().get(KEPT_BY) == Some(&name),
        };
        let claims = self.watches.claims().all().into_iter().filter(|claim| {
            claim.metadata.namespace.as_deref() == Some(&*namespace) && is_its(claim)
        });
        let sizes = autoscaler.spec.autoscale.is_some();
        let full = |claim: &PersistentVolumeClaim| {
            self.usage_of(claim).filter(|_| sizes).map(|usage| format!("{usage:?}"))
        };
        let mut of_claims: Vec<String> =
            claims.flat_map(|claim| [claim.resource_version(), full(&claim)]).flatten().collect();
        of_claims.sort();
        let mut versions = vec![autoscaler.resource_version().unwrap_or_default()];
        versions.extend(match workload {
            api::Workload::StatefulSet(name) => {
                self.sets.get_in(&namespace, name).and_then(|set| set.resource_version())
            }
            api::Workload::Deployment(name) => {
                self.deployments.get_in(&namespace, name).and_then(|made| made.resource_version())
            }
            api::Workload::Pods(_) => None,
        });
        let others = self.autoscalers.all().into_iter().filter(|one| autoscaler.rivals(one));
        let mut others: Vec<String> = others.map(|one| uid(&one.metadata).to_owned()).collect();
        others.sort();
        versions.extend(others);
        versions.extend(sources.filter_map(|source| source.resource_version()));
        versions.extend(of_claims);
        versions.extend(self.asks.versions(uid(&autoscaler.metadata)));
        versions
    }

    /// The StatefulSets of the cluster, of which only names and versions are kept.
    pub fn stateful_sets(&self) -> &Watched<StatefulSet> {
        &self.sets
    }

    /// The handle of a claim's volume, as the watched records have it.
    pub(super) fn handle_of(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let named = claim.spec.as_ref()?.volume_name.as_ref()?;
        // Whoever makes a claim writes into it which volume it has; that one says whose it is.
        let pv = self.watches.pvs().get(named)?;
        pv.handle().filter(|_| pv.owner() == claim.metadata.uid.as_deref()).map(str::to_owned)
    }

    /// What the node of a claim's volume told last of how full that is.
    pub(super) fn usage_of(&self, claim: &PersistentVolumeClaim) -> Option<Told> {
        let volume = self.handle_of(claim)?;
        let (away, _) = self.cluster.requests().away();
        self.cluster.nodes().watched().all().into_iter().find_map(|node| {
            let status = node.status.as_ref()?;
            let usage = status.usage.iter().find(|one| one.volume == volume)?;
            let name = node.name_any();
            Some(if away.contains(&name) { Told::Before(name) } else { Told::Now(usage.clone()) })
        })
    }

    /// Look at a workload and do what is to be done; after how long to look again without a change.
    async fn attend(
        &self,
        autoscaler: &PvcAutoscaler,
        refusal: &mut Option<Refusal>,
    ) -> Option<Duration> {
        let (namespace, name) = (autoscaler.namespace().unwrap_or_default(), autoscaler.name_any());
        match self.further(autoscaler, refusal).await {
            Ok(due) => due,
            Err(kube::Error::Api(status)) if writes::is_stale(&status) => Some(SOON),
            Err(error) => {
                let error = causes::in_full(&error);
                tracing::warn!(
                    autoscaler = name,
                    namespace,
                    error,
                    "claims are not as they should be"
                );
                Some(AGAIN)
            }
        }
    }

    async fn further(
        &self,
        autoscaler: &PvcAutoscaler,
        refusal: &mut Option<Refusal>,
    ) -> Result<Option<Duration>, kube::Error> {
        let Some(seen) = self.observe(autoscaler, refusal.take()).await? else { return Ok(None) };
        if !is_understood(&seen.autoscaler) {
            self.tell_unknown(&seen).await?;
            return Ok(None); // Whoever wrote it goes on with it, and each change is seen.
        }
        let mut plan = plan(&seen);
        plan.status.conditions = conditions(&plan.status, &Time(in_seconds(seen.now)));
        let (told, done): (Vec<Step>, Vec<Step>) =
            plan.steps.into_iter().partition(|step| matches!(step, Step::Tell { .. }));
        // What is told stands before what makes it untold, and what is written before what it means.
        for step in told {
            self.apply(step, &seen).await?;
        }
        if seen.autoscaler.status.as_ref() != Some(&plan.status) {
            match self.note(&seen, &plan.status).await {
                // It would be refused again. What comes after it is not done without it.
                Err(kube::Error::Api(status)) if status.is_invalid() => {
                    self.tell_invalid(&seen, &status.message).await?;
                    return Ok(Some(AGAIN));
                }
                noted => noted?,
            }
        }
        let is_done = done.is_empty();
        for step in done {
            let evicts = matches!(step, Step::Evict { .. });
            let asked_for = step.claim_asked_for().cloned();
            // It is made of patches that are invalid if something was written meanwhile.
            let may_be_stale = matches!(step, Step::TellSmaller { .. });
            match (self.apply(step, &seen).await, asked_for) {
                // Its protectors do not let it go now.
                (Err(kube::Error::Api(status)), _) if evicts && status.code == 429 => {
                    self.tell_protected(&seen, &status.message).await?;
                }
                (Err(kube::Error::Api(status)), Some(claim))
                    if writes::is_refused(&status) && !(may_be_stale && status.is_invalid()) =>
                {
                    let refused = Refusal { claim, why: status.message };
                    self.tell_refused(&seen, &refused).await?;
                    let is_news = seen.refusal.as_ref() != Some(&refused);
                    *refusal = Some(refused);
                    return Ok(Some(if is_news { SOON } else { AGAIN }));
                }
                (done, _) => done?,
            }
        }
        Ok(next(&plan.status, &seen, is_done))
    }

    /// Another version of the operator has begun something that this one does not know.
    async fn tell_unknown(&self, seen: &Seen) -> Result<(), kube::Error> {
        let why = "it has a word of another version; see spec and status, and whether all replicas of the \
                   operator have one version";
        Unreadable::of_record(&seen.autoscaler, why).event().write(&self.client, WRITER).await?;
        Ok(())
    }

    async fn tell_refused(&self, seen: &Seen, refused: &Refusal) -> Result<(), kube::Error> {
        let subject = format!("{}/{}", seen.generation(), refused.claim);
        self.tell(seen, AutoscalerReason::ClaimRefused, &subject, &refused.to_string()).await
    }

    /// The API server refuses the status: that is a mistake of ours, of which people have to know.
    async fn tell_invalid(&self, seen: &Seen, why: &str) -> Result<(), kube::Error> {
        let (name, namespace) = (seen.autoscaler.name_any(), seen.autoscaler.namespace());
        tracing::error!(autoscaler = name, namespace, why, "failed to write a status");
        let text =
            format!("its status cannot be written, so nothing is done for its claims: {why}");
        let subject = seen.generation().to_string();
        self.tell(seen, AutoscalerReason::StatusInvalid, &subject, &text).await
    }

    async fn tell_protected(&self, seen: &Seen, why: &str) -> Result<(), kube::Error> {
        let name = seen.autoscaler.name_any();
        let text = format!("a pod of {name} may not be stopped now: {why}; it is asked again");
        let subject = seen.generation().to_string();
        self.tell(seen, AutoscalerReason::PodProtected, &subject, &text).await
    }
}

/// Note what one who looked at a workload has to say, if that is still there.
fn heed(known: &mut HashMap<String, Known>, ended: Result<Attended, JoinError>) {
    let (uid, after, refusal) = ended.unwrap_or_else(|error| resume_unwind(error.into_panic()));
    if let Some(one) = known.get_mut(&uid) {
        let due = after.map(|after| Instant::now() + after);
        *one = Known { due, refusal, is_attended: false, ..one.clone() };
    }
}

pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Leave of a StatefulSet whose it is: its version tells when to look.
fn cut_set(set: &mut StatefulSet) {
    set.status = None;
    set.metadata.annotations = None;
    set.metadata.labels = None;
    set.spec = Some(StatefulSetSpec::default());
}

/// As [`cut_set`].
fn cut_deployment(made: &mut Deployment) {
    made.status = None;
    made.metadata.annotations = None;
    made.metadata.labels = None;
    made.spec = Some(DeploymentSpec::default());
}

/// After how long a workload is looked at without a change of what is watched.
fn next(status: &PvcAutoscalerStatus, seen: &Seen, is_done: bool) -> Option<Duration> {
    // Before the pod is stopped nobody waits for one.
    let is_before = |swap: &Swap| matches!(swap.phase, SwapPhase::Planned | SwapPhase::HotCopy);
    let mut swaps = status.ordinals.iter().filter_map(|one| one.swap.as_ref());
    if status.phase == AutoscalerPhase::Swapping {
        return Some(if swaps.any(is_before) { AGAIN } else { POD });
    }
    if matches!(status.phase, AutoscalerPhase::Waiting | AutoscalerPhase::Shrinking) || !is_done {
        return Some(AGAIN);
    }
    let retained = status.ordinals.iter().flat_map(|one| &one.retained);
    let is_skewed = matches!(seen.clock, ClockSeen::Differs(_));
    let ends = retained.map(|old| {
        if old.fence.is_some() {
            return AGAIN; // Its node is asked.
        }
        match old.until(seen.autoscaler.spec.retention) {
            Some(at) if at > seen.now => time_to(at, seen.now),
            None if !is_skewed && old.used_time.is_none() => AGAIN, // Its pod is not ready yet.
            _ => LATER,
        }
    });
    let tries = status.ordinals.iter().filter_map(|one| one.swap.as_ref()?.retry_at.as_ref());
    // What holds up one that is due, such as a pod that is not ready, may be watched by nobody.
    let tries = tries.map(|Time(at)| if *at > seen.now { time_to(*at, seen.now) } else { AGAIN });
    let policy = seen.autoscaler.spec.autoscale.as_ref();
    let looks = status
        .ordinals
        .iter()
        .filter_map(|one| Some(time_to(next_look(policy?, one, seen.now)?, seen.now)));
    let unnamed = seen.workload.as_ref().filter(|workload| workload.has_unnamed).map(|_| LATER);
    ends.chain(tries).chain(looks).chain(unnamed).min()
}

/// How long it is until a time has surely come.
fn time_to(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + PAUSE
}
