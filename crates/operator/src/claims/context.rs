//! What the reconcilers of claims work with: the client, what is watched, and the clock.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::api::{self, PvcAutoscaler, PvcSourcePopulator, VolumeUsage};
use crate::claims::coverage::WorkloadCoverage;
use crate::claims::objects::uid;
use crate::claims::summary::AutoscalerSummary;
use crate::claims::{ClaimsMetrics, concerned};
use crate::cluster::{
    Asks, Clock, ClockSkew, Cluster, DeploymentVersion, KEPT_BY, ObjectNames, PodEvents,
    PodVersion, StatefulSetVersion, Watched, every,
};
use crate::populators::Watches;

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

pub(super) fn pvs(ctx: &ClaimsController) -> Api<PersistentVolume> {
    Api::all(ctx.client.clone())
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
