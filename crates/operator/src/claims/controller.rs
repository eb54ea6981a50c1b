//! Reconciles the claims of all workloads: observes changes, plans, applies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::api::{
    self, AutoscalerPhase, MOST_ORDINALS, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus,
    PvcSourcePopulator, VolumeUsage, Workload, is_understood,
};
use crate::autoscaler::next_look;
use crate::claims::conditions::conditions;
use crate::claims::coverage::WorkloadCoverage;
use crate::claims::looks::{AGAIN, WorkloadReconciles};
use crate::claims::objects::{in_seconds, uid};
use crate::claims::plan::plan;
use crate::claims::seen::{ClockSeen, ObservedWorkload, Refusal};
use crate::claims::steps::Step;
use crate::claims::summary::AutoscalerSummary;
use crate::claims::{AutoscalerReason, ClaimsMetrics, concerned};
use crate::cluster::KEPT_BY;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{
    Asks, Clock, ClockSkew, Cluster, DeploymentVersion, ObjectNames, PodEvents, PodVersion,
    StatefulSetVersion, Unreadable, Watched, begun_again, every, writes,
};
use crate::error_chain;
use crate::populators::Watches;

/// Delay after a reconcile, for related changes to arrive; the first change after a quiet time is
/// handled at once.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Delay after a conflicting write.
const SOON: Duration = Duration::from_secs(1);

/// Delay while there are claims of a workload that no pod names: only pods of StatefulSets are watched. Also while
/// an expired claim still exists: what holds it may not be watched.
const LATER: Duration = Duration::from_secs(60);

/// Reports the coverage of pods by the webhook.
#[async_trait]
pub trait Webhook: Send + Sync + 'static {
    /// Looks up whether the webhook sees every new pod of a StatefulSet.
    ///
    /// # Errors
    /// An error of the API server.
    async fn coverage(
        &self,
        namespace: &str,
        stateful_set: &str,
    ) -> Result<WorkloadCoverage, kube::Error>;
}

/// Reconciles the claims of workloads with their templates.
pub struct ClaimsController {
    pub(super) client: Client,
    pub(super) autoscalers: Watched<AutoscalerSummary>,
    pub(super) sets: Watched<StatefulSetVersion>,
    pub(super) deployments: Watched<DeploymentVersion>,
    pub(super) sources: Watched<PvcSourcePopulator>,
    /// Pods that are not scheduled yet, because their claims get other volumes.
    pub(super) gated: Watched<PodVersion>,
    /// Whose pods have changed.
    pub(super) pods: PodEvents,
    pub(super) cluster: Arc<Cluster>,
    pub(super) asks: Arc<Asks>,
    pub(super) watches: Arc<Watches>,
    webhook: Arc<dyn Webhook>,
    pub(super) tally: Arc<dyn ClaimsMetrics>,
    clock: Clock,
}

impl fmt::Debug for ClaimsController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimsController").finish_non_exhaustive()
    }
}

/// Usage of a volume, as its node has reported it.
#[derive(Debug)]
pub(super) enum UsageReport {
    Now(VolumeUsage),
    /// The node plugin of this node has stopped responding since.
    Before(String),
}

impl ClaimsController {
    /// Starts to watch, until `stop`; the populators share the watched claims and the requests to
    /// nodes.
    pub fn start(
        client: &Client,
        watches: &Arc<Watches>,
        asks: &Arc<Asks>,
        webhook: Arc<dyn Webhook>,
        tally: Arc<dyn ClaimsMetrics>,
        stop: &CancellationToken,
    ) -> Arc<ClaimsController> {
        Arc::new(ClaimsController {
            client: client.clone(),
            autoscalers: Watched::start_keyed(
                Api::all(client.clone()),
                every(),
                stop,
                |_| {},
                concerned::keys,
            ),
            sets: Watched::start(Api::all(client.clone()), every(), stop),
            deployments: Watched::start(Api::all(client.clone()), every(), stop),
            sources: Watched::start_keyed(
                Api::all(client.clone()),
                every(),
                stop,
                cut_source,
                keys_of_source,
            ),
            gated: Watched::start_keyed(
                Api::all(client.clone()),
                every().labels(api::GATE),
                stop,
                |_| {},
                keys_of_gated,
            ),
            pods: PodEvents::start(client, stop),
            cluster: asks.cluster().clone(),
            asks: asks.clone(),
            watches: watches.clone(),
            webhook,
            tally,
            clock: Clock::start(),
        })
    }

    /// Reconciles claims until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let kept = begun_again("pvcautoscalers", async || {
            self.watches.known().await;
            tokio::join!(self.autoscalers.known(), self.sets.known(), self.deployments.known());
            tokio::join!(self.sources.known(), self.cluster.known());
            let mut looks = WorkloadReconciles::of(&self);
            loop {
                looks.begin(&self);
                tokio::time::sleep(PAUSE).await;
                looks.wait().await;
            }
        });
        let both = async { tokio::join!(kept, self.give_back_forgotten()) };
        stop.run_until_cancelled(Box::pin(both)).await;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the difference between its clock and that of the API server.
    pub(super) async fn skew(&self) -> Result<Option<ClockSkew>, kube::Error> {
        self.clock.skew(&self.client).await
    }

    /// Returns the API for objects of a kind in a namespace.
    pub(super) fn of<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) async fn coverage(
        &self,
        namespace: &str,
        set: &str,
    ) -> Result<WorkloadCoverage, kube::Error> {
        self.webhook.coverage(namespace, set).await
    }

    /// The PvcAutoscalers of the cluster, without what is read live of them.
    pub fn autoscalers(&self) -> &Watched<AutoscalerSummary> {
        &self.autoscalers
    }

    /// Returns the StatefulSets of the cluster, reduced to names, versions and replicas.
    pub fn stateful_sets(&self) -> &Watched<StatefulSetVersion> {
        &self.sets
    }

    /// Reads a PvcAutoscaler; `None` if it does not exist any more, even if another one has its name.
    ///
    /// # Errors
    /// An error of the API server.
    pub(super) async fn live(
        &self,
        meant: &ObjectNames,
    ) -> Result<Option<PvcAutoscaler>, kube::Error> {
        let there = self.of::<PvcAutoscaler>(&meant.namespace).get_opt(&meant.name).await?;
        Ok(there.filter(|one| uid(&one.metadata) == &*meant.uid))
    }

    /// Returns the volume handle of a claim, from the watched PersistentVolumes.
    pub(super) fn handle_of(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let named = claim.spec.as_ref()?.volume_name.as_deref()?;
        self.handle_in(named, claim.metadata.uid.as_deref())
    }

    /// The handle of the volume in a PersistentVolume that belongs to the claim of this uid.
    pub(super) fn handle_in(&self, volume: &str, claim: Option<&str>) -> Option<String> {
        // A user can write any volume into a claim; the PersistentVolume shows whose it is.
        let pv = self.watches.pvs().get(volume)?;
        pv.handle().filter(|_| pv.owner() == claim).map(str::to_owned)
    }

    /// Returns the usage of a claim's volume that its node reported last.
    pub(super) fn usage_of(&self, claim: &PersistentVolumeClaim) -> Option<UsageReport> {
        let (node, usage) = self.usage_of_volume(&self.handle_of(claim)?)?;
        let (away, _) = self.cluster.requests().away();
        let name = node.name_any();
        Some(if away.contains(&name) { UsageReport::Before(name) } else { UsageReport::Now(usage) })
    }

    /// Reconciles a workload; returns the delay until the next time without a change.
    pub(super) async fn reconcile(
        &self,
        autoscaler: &AutoscalerSummary,
        refusal: &mut Option<Refusal>,
    ) -> Option<Duration> {
        match Box::pin(self.reconcile_inner(autoscaler, refusal)).await {
            Ok(due) => due,
            Err(kube::Error::Api(status)) if writes::is_stale(&status) => Some(SOON),
            Err(error) => {
                let error = error_chain::in_full(&error);
                tracing::warn!(error, "failed to reconcile claims");
                Some(AGAIN)
            }
        }
    }

    async fn reconcile_inner(
        &self,
        autoscaler: &AutoscalerSummary,
        refusal: &mut Option<Refusal>,
    ) -> Result<Option<Duration>, kube::Error> {
        if let Some(replicas) = self.too_many_replicas(autoscaler).await? {
            return self.refuse_replicas(autoscaler, replicas).await.map(|()| None);
        }
        let Some(seen) = self.observe(&autoscaler.names, refusal.take()).await? else {
            return Ok(None);
        };
        if !is_understood(&seen.autoscaler) {
            self.tell_unknown(&seen).await?;
            return Ok(None); // Its writer continues, and each change is seen.
        }
        let mut plan = plan(&seen);
        plan.status.conditions = conditions(&plan.status, &Time(in_seconds(seen.now)));
        let (told, done): (Vec<Step>, Vec<Step>) =
            plan.steps.into_iter().partition(|step| matches!(step, Step::Tell { .. }));
        // The status comes before the step that invalidates it, and each write before what depends
        // on it.
        for step in told {
            self.apply(step, &seen).await?;
        }
        if seen.autoscaler.status.as_ref() != Some(&plan.status) {
            match self.note(&seen.autoscaler, &plan.status).await {
                // It would be refused again. What comes after it is not done without it.
                Err(kube::Error::Api(status)) if status.is_invalid() => {
                    self.tell_invalid(&seen, &status.message).await?;
                    return Ok(Some(AGAIN));
                }
                noted => noted?,
            }
        } else if done.iter().any(Step::sweeps) && self.is_outdated(&seen).await? {
            return Ok(Some(SOON)); // What another replica has started since must not be deleted.
        }
        let is_done = done.is_empty();
        for step in done {
            let evicts = matches!(step, Step::Evict { .. });
            let asked_for = step.claim_asked_for().cloned();
            // It is made of patches that are invalid if something was written meanwhile.
            let may_be_stale = matches!(step, Step::TellSmaller { .. } | Step::Exchange { .. });
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
        let namespace = seen.autoscaler.namespace().unwrap_or_default();
        let is_heard = seen.workload.is_none() && self.hears_of_workloads(&namespace);
        Ok(next(&plan.status, &seen, is_done, is_heard))
    }

    /// Returns true if a new workload in a namespace triggers the waiting PvcAutoscalers.
    fn hears_of_workloads(&self, namespace: &str) -> bool {
        self.sets.decodes_all_of(namespace) && self.deployments.decodes_all_of(namespace)
    }

    /// Returns the replicas of the StatefulSet, if they exceed what a status can list. If the claim of a pod is
    /// midway, that continues with as many as the status can list: a pod may be stopped for it.
    async fn too_many_replicas(
        &self,
        autoscaler: &AutoscalerSummary,
    ) -> Result<Option<i32>, kube::Error> {
        let Workload::StatefulSet(name) = autoscaler.workload() else { return Ok(None) };
        let namespace = &autoscaler.names.namespace;
        let replicas = if let Some(set) = self.sets.get_in(namespace, name) {
            set.replicas
        } else {
            // It may be younger than what is watched.
            let set = self.of::<StatefulSet>(namespace).get_opt(name).await?;
            set.and_then(|set| set.spec?.replicas)
        };
        let is_too_many =
            |many: &i32| usize::try_from(*many).is_ok_and(|many| many > MOST_ORDINALS);
        Ok(replicas.filter(is_too_many).filter(|_| !autoscaler.is_midway()))
    }

    /// Reports too many replicas, without reading their claims.
    async fn refuse_replicas(
        &self,
        autoscaler: &AutoscalerSummary,
        replicas: i32,
    ) -> Result<(), kube::Error> {
        let Some(autoscaler) = self.live(&autoscaler.names).await? else { return Ok(()) };
        let message = format!(
            "{} has {replicas} replicas, but a PvcAutoscaler manages the claims of at most {MOST_ORDINALS} \
             pods: scale it down, or delete this PvcAutoscaler; its claims are retained",
            autoscaler.spec.workload().in_words()
        );
        let before = autoscaler.status.clone().unwrap_or_default();
        let mut status = PvcAutoscalerStatus {
            observed_generation: autoscaler.metadata.generation.unwrap_or_default(),
            phase: AutoscalerPhase::Waiting,
            progress: None,
            planned_action: None,
            reason: Some(AutoscalerReason::TooManyReplicas.to_string()),
            message: Some(message),
            ..before.clone()
        };
        status.bound();
        status.conditions = conditions(&status, &Time(in_seconds(self.now())));
        if status == before {
            return Ok(());
        }
        self.note(&autoscaler, &status).await
    }

    /// Another version of the operator has begun something that this one does not know.
    async fn tell_unknown(&self, seen: &ObservedWorkload) -> Result<(), kube::Error> {
        let why = "it has a value of another version; check spec and status, and that all replicas of the \
                   operator have the same version";
        Unreadable::of_record(&seen.autoscaler, why).event().write(&self.client, OPERATOR).await?;
        Ok(())
    }

    /// Returns true if the PvcAutoscaler has changed since it was read first.
    async fn is_outdated(&self, seen: &ObservedWorkload) -> Result<bool, kube::Error> {
        let metadata = &seen.autoscaler.metadata;
        let api = self.of::<PvcAutoscaler>(metadata.namespace.as_deref().unwrap_or_default());
        let there = api.get_opt(&seen.autoscaler.name_any()).await?;
        let version = there.and_then(|one| one.metadata.resource_version);
        Ok(version != metadata.resource_version)
    }

    async fn tell_refused(
        &self,
        seen: &ObservedWorkload,
        refused: &Refusal,
    ) -> Result<(), kube::Error> {
        let subject = format!("{}/{}", seen.generation(), refused.claim);
        self.emit_event(seen, AutoscalerReason::ClaimForbidden, &subject, &refused.to_string())
            .await
    }

    /// Reports that the API server rejects the status, which is a bug that people must know of.
    async fn tell_invalid(&self, seen: &ObservedWorkload, why: &str) -> Result<(), kube::Error> {
        tracing::error!(why, "failed to write a status");
        let text = format!("the status cannot be written, so the claims are not managed: {why}");
        let subject = seen.generation().to_string();
        self.emit_event(seen, AutoscalerReason::InvalidStatus, &subject, &text).await
    }

    async fn tell_protected(&self, seen: &ObservedWorkload, why: &str) -> Result<(), kube::Error> {
        let name = seen.autoscaler.name_any();
        let text = format!("a pod of {name} cannot be stopped now: {why}; this is retried");
        let subject = seen.generation().to_string();
        self.emit_event(seen, AutoscalerReason::EvictionBlocked, &subject, &text).await
    }
}

/// Reduces a source to its metadata, its owner and its version, which trigger a reconcile.
fn cut_source(source: &mut PvcSourcePopulator) {
    source.metadata.annotations = None;
    if let Some(labels) = &mut source.metadata.labels {
        labels.retain(|key, _| key == KEPT_BY);
    }
    source.status = None;
}

/// A source that was made for a swap is found by the namespace and the name of its PvcAutoscaler.
fn keys_of_source(source: &PvcSourcePopulator) -> Vec<String> {
    let key = |by: &String| Some(format!("{}/{by}", source.metadata.namespace.as_deref()?));
    source.labels().get(KEPT_BY).and_then(key).into_iter().collect()
}

/// A pod behind our gate is found by its namespace.
fn keys_of_gated(pod: &PodVersion) -> Vec<String> {
    pod.namespace().filter(|_| pod.is_gated).into_iter().collect()
}

/// Returns the delay until the next reconcile without a change. `is_heard` if a new workload
/// triggers one.
fn next(
    status: &PvcAutoscalerStatus,
    seen: &ObservedWorkload,
    is_done: bool,
    is_heard: bool,
) -> Option<Duration> {
    if status.phase == AutoscalerPhase::Swapping {
        // Its pods are watched, but not until when one has to be ready, nor what its node reports of volumes.
        let soaking = status.ordinals.iter().filter_map(|one| seen.will_be_ready(one));
        let soaked = soaking.map(|at| time_to(at, seen.now));
        return soaked.chain([AGAIN]).min();
    }
    // A StatefulSet or a Deployment that is not there is watched: five thousand that wait for one ask nothing.
    // A shrink under way is asked for until its node has answered.
    let is_waiting = status.phase == AutoscalerPhase::Waiting;
    let is_shrinking = status.ordinals.iter().any(OrdinalStatus::is_shrinking);
    let waits = is_waiting && (!is_heard || is_shrinking);
    if waits || status.phase == AutoscalerPhase::Shrinking || !is_done {
        return Some(AGAIN);
    }
    let retained = status.ordinals.iter().flat_map(|one| &one.retained_claims);
    let is_skewed = matches!(seen.clock, ClockSeen::Differs(_));
    let ends = retained.map(|old| {
        if old.fence.is_some() {
            return AGAIN; // Its node is asked.
        }
        match old.until(seen.autoscaler.spec.retention) {
            Some(at) if at > seen.now => time_to(at, seen.now),
            None if !is_skewed && old.replacement_ready_time.is_none() => AGAIN, // Its pod is not ready yet.
            _ => LATER,
        }
    });
    let tries =
        status.ordinals.iter().filter_map(|one| one.swap.as_ref()?.next_retry_time.as_ref());
    // What blocks a due one, such as a pod that is not ready, may not be watched.
    let tries = tries.map(|Time(at)| if *at > seen.now { time_to(*at, seen.now) } else { AGAIN });
    let policy = seen.autoscaler.spec.autoscale.as_ref();
    let looks = status
        .ordinals
        .iter()
        .filter_map(|one| Some(time_to(next_look(policy?, one, seen.now)?, seen.now)));
    let unnamed = seen.workload.as_ref().filter(|workload| workload.has_unnamed).map(|_| LATER);
    ends.chain(tries).chain(looks).chain(unnamed).min()
}

/// Returns the delay until a time has certainly passed.
fn time_to(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + PAUSE
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What was made for a swap of a PvcAutoscaler that is gone is found by its label.
    #[test]
    fn a_source_that_is_watched_says_whose_it_is() {
        let mut source: PvcSourcePopulator = serde_json::from_value(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcSourcePopulator",
            "metadata": {"name": "a", "labels": {KEPT_BY: "db", "team": "x"},
                         "annotations": {"note": "y"}},
            "spec": {"sourcePvcRef": {"name": "b"}},
        }))
        .unwrap();
        cut_source(&mut source);
        assert_eq!(source.labels().get(KEPT_BY).map(String::as_str), Some("db"));
        assert_eq!((source.labels().len(), source.annotations().len()), (1, 0));
    }
}
