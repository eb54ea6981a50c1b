//! PvcAutoscalers that a watched change concerns: only these are compared with their last observed state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;

use crate::api::{NodeStorage, PvcSourcePopulator, VolumeUsage, Workload};
use crate::claims::context::ClaimsController;
use crate::claims::summary::AutoscalerSummary;
use crate::cluster::{
    Answers, AwaySeen, Change, Changed, ClaimSummary, DeploymentVersion, PendingChanges, PodNews,
    PvSummary, StatefulSetVersion,
};

/// The key of the PvcAutoscalers that set the sizes of claims by how full they are.
const SETS_SIZES: &str = "sets sizes";

/// The key of the PvcAutoscalers that have stopped a pod, or may do so soon.
const MIDWAY: &str = "midway";

/// The key of those of a namespace.
fn midway_in(namespace: &str) -> String {
    format!("midway in {namespace}")
}

/// The key of the PvcAutoscalers of a namespace.
fn in_namespace(namespace: &str) -> String {
    format!("in {namespace}")
}

/// The key of the PvcAutoscalers of a workload; of pods, those of their namespace that choose claims by name.
fn of_workload(namespace: &str, workload: Workload) -> String {
    match workload {
        Workload::StatefulSet(name) => format!("StatefulSet {namespace}/{name}"),
        Workload::Deployment(name) => format!("Deployment {namespace}/{name}"),
        Workload::Pods(_) => of_pods(namespace),
    }
}

fn of_pods(namespace: &str) -> String {
    format!("pods of {namespace}")
}

/// Key of the PvcAutoscalers whose swap has a new claim of this name, or its populator.
fn of_swap(namespace: &str, claim: &str) -> String {
    format!("swap to {namespace}/{claim}")
}

/// The keys by which a PvcAutoscaler is found.
pub(super) fn keys(one: &AutoscalerSummary) -> Vec<String> {
    let namespace = &one.names.namespace;
    let mut keys = vec![in_namespace(namespace), of_workload(namespace, one.workload())];
    keys.extend(one.sets_sizes.then(|| SETS_SIZES.to_owned()));
    keys.extend(
        one.is_midway().then_some([MIDWAY.to_owned(), midway_in(namespace)]).into_iter().flatten(),
    );
    let swaps: BTreeSet<String> = one.swaps_to().map(|claim| of_swap(namespace, claim)).collect();
    keys.extend(swaps);
    keys
}

impl ClaimsController {
    /// The PvcAutoscalers of a namespace.
    pub(super) fn autoscalers_in(&self, namespace: &str) -> Vec<Arc<AutoscalerSummary>> {
        self.autoscalers.with_key(&in_namespace(namespace))
    }

    /// The other PvcAutoscalers of the same StatefulSet.
    pub(super) fn siblings(&self, autoscaler: &AutoscalerSummary) -> Vec<Arc<AutoscalerSummary>> {
        self.others_of(&autoscaler.names.namespace, autoscaler.workload(), &autoscaler.names.uid)
    }

    /// The PvcAutoscalers of a StatefulSet, but for the one of this uid.
    pub(super) fn others_of(
        &self,
        namespace: &str,
        workload: Workload,
        uid: &str,
    ) -> Vec<Arc<AutoscalerSummary>> {
        if !matches!(workload, Workload::StatefulSet(_)) {
            return Vec::new();
        }
        let mut all = self.autoscalers.with_key(&of_workload(namespace, workload));
        all.retain(|one| *one.names.uid != *uid);
        all
    }

    /// The claims of a PvcAutoscaler.
    pub(super) fn claims_of(&self, autoscaler: &AutoscalerSummary) -> Vec<Arc<ClaimSummary>> {
        let (namespace, name) = autoscaler.names.place();
        if let Workload::Pods(pods) = autoscaler.workload() {
            let mut all = self.watches.claims_in(namespace);
            all.retain(|claim| pods.has_claim(&claim.names.name));
            return all;
        }
        self.watches.claims_kept_by(namespace, name)
    }

    /// Returns the usage of a volume that its node reported last.
    pub(super) fn usage_of_volume(&self, handle: &str) -> Option<(Arc<NodeStorage>, VolumeUsage)> {
        let node = self.cluster.nodes().record_of(&handle.parse().ok()?)?;
        let told =
            node.status.as_ref()?.usage.iter().find(|one| one.volume_handle == handle)?.clone();
        Some((node, told))
    }
}

/// The PvcAutoscalers of a claim.
fn of_claim(ctx: &ClaimsController, claim: &ClaimSummary) -> Vec<Arc<AutoscalerSummary>> {
    let (namespace, name) = claim.names.place();
    let mut all = ctx.autoscalers.with_key(&of_pods(namespace));
    all.retain(|one| match one.workload() {
        Workload::Pods(pods) => pods.has_claim(name),
        _ => false,
    });
    let keeper = claim.kept_by.as_deref();
    all.extend(keeper.and_then(|keeper| ctx.autoscalers.get_in(namespace, keeper)));
    all
}

/// The PvcAutoscalers of the claim that has a PersistentVolume.
fn of_pv(ctx: &ClaimsController, pv: &PvSummary) -> Vec<Arc<AutoscalerSummary>> {
    let claim = pv.spec.claim_ref.as_ref();
    let claim = claim.and_then(|its| ctx.watches.claims().get_in(&its.namespace, &its.name));
    claim.map(|claim| of_claim(ctx, &claim)).unwrap_or_default()
}

/// The PvcAutoscalers of the claim that has a volume.
fn of_volume(ctx: &ClaimsController, handle: &str) -> Vec<Arc<AutoscalerSummary>> {
    ctx.watches.pv_of_volume(handle).map(|pv| of_pv(ctx, &pv)).unwrap_or_default()
}

/// Changes since the last take, of everything that is watched for PvcAutoscalers.
#[derive(Debug)]
pub(super) struct WorkloadChanges {
    autoscalers: PendingChanges<AutoscalerSummary>,
    sets: PendingChanges<StatefulSetVersion>,
    deployments: PendingChanges<DeploymentVersion>,
    sources: PendingChanges<PvcSourcePopulator>,
    claims: PendingChanges<ClaimSummary>,
    pvs: PendingChanges<PvSummary>,
    nodes: PendingChanges<NodeStorage>,
    answers: Answers,
    away: AwaySeen,
    pods: watch::Receiver<()>,
}

/// Whom the news concern.
#[derive(Debug, Default)]
pub(super) struct ConcernedWorkloads {
    /// All of them.
    pub all: bool,
    /// PvcAutoscalers with these uids.
    pub uids: BTreeSet<Arc<str>>,
    /// PvcAutoscalers with these uids, whose pods have changed: no version of what is watched shows that.
    pub by_pods: BTreeSet<Arc<str>>,
}

impl ConcernedWorkloads {
    fn add(&mut self, all: Vec<Arc<AutoscalerSummary>>) {
        self.uids.extend(all.into_iter().map(|one| one.names.uid.clone()));
    }
}

impl WorkloadChanges {
    /// All is new.
    pub fn of(keeper: &ClaimsController) -> WorkloadChanges {
        WorkloadChanges {
            autoscalers: keeper.autoscalers.subscribe(),
            sets: keeper.sets.subscribe(),
            deployments: keeper.deployments.subscribe(),
            sources: keeper.sources.subscribe(),
            claims: keeper.watches.claims().subscribe(),
            pvs: keeper.watches.pvs().subscribe(),
            nodes: keeper.cluster.nodes().watched().subscribe(),
            answers: keeper.asks.subscribe(),
            away: AwaySeen::of(keeper.cluster.requests()),
            pods: keeper.pods.changes(),
        }
    }

    /// Nodes whose node plugins did not respond at the last take.
    pub fn away(&self) -> &BTreeSet<String> {
        self.away.nodes()
    }

    /// Takes the changed PvcAutoscalers, and those that other changes concern.
    pub fn take(
        &mut self,
        keeper: &ClaimsController,
    ) -> (Changed<AutoscalerSummary>, ConcernedWorkloads) {
        let mut concerned = ConcernedWorkloads::default();
        let autoscalers = self.autoscalers.take();
        if let Changed::These(changes) = &autoscalers {
            for one in changes.iter().flat_map(Change::both) {
                concerned.add(keeper.siblings(one));
            }
        }
        let of_workload = |place: &(String, String), workload: Workload| {
            keeper.autoscalers.with_key(&of_workload(&place.0, workload))
        };
        for Change { place, .. } in self.sets.take().these(&mut concerned.all) {
            concerned.add(of_workload(&place, Workload::StatefulSet(&place.1)));
        }
        for Change { place, .. } in self.deployments.take().these(&mut concerned.all) {
            concerned.add(of_workload(&place, Workload::Deployment(&place.1)));
        }
        for Change { place, .. } in self.sources.take().these(&mut concerned.all) {
            concerned.add(keeper.autoscalers.with_key(&of_swap(&place.0, &place.1)));
        }
        for change in self.claims.take().these(&mut concerned.all) {
            change.both().for_each(|claim| concerned.add(of_claim(keeper, claim)));
        }
        let sets_sizes = keeper.autoscalers.has_key(SETS_SIZES);
        for change in self.pvs.take().these(&mut concerned.all) {
            let pvs = change.both().filter(|_| sets_sizes);
            pvs.for_each(|pv| concerned.add(of_pv(keeper, pv)));
        }
        for change in self.nodes.take().these(&mut concerned.all) {
            let volumes = Some(&change).filter(|_| sets_sizes).map(changed_restrictions);
            let volumes = volumes.into_iter().flatten();
            volumes.for_each(|volume| concerned.add(of_volume(keeper, &volume)));
        }
        concerned.uids.extend(self.answers.take().into_iter().map(Arc::from));
        self.see_away(keeper, &mut concerned);
        self.see_pods(keeper, &mut concerned);
        (autoscalers, concerned)
    }

    /// Checks which node plugins do not respond, if that may have changed: the usage of their volumes is then
    /// unknown, or known again.
    fn see_away(&mut self, keeper: &ClaimsController, concerned: &mut ConcernedWorkloads) {
        for node in self.away.take(keeper.cluster.requests()) {
            let record = keeper.cluster.nodes().watched().get(&node);
            let status = record.as_ref().and_then(|record| record.status.as_ref());
            for told in status.into_iter().flat_map(|status| &status.usage) {
                concerned.add(of_volume(keeper, &told.volume_handle));
            }
        }
    }

    /// Pods matter to whom has stopped one, or is about to. Others look at them when they are due.
    fn see_pods(&mut self, keeper: &ClaimsController, concerned: &mut ConcernedWorkloads) {
        self.pods.mark_unchanged();
        let PodNews { all, stateful_sets, namespaces } = keeper.pods.take();
        let mut those = if all { keeper.autoscalers.with_key(MIDWAY) } else { Vec::new() };
        for (namespace, name) in stateful_sets {
            let its = of_workload(&namespace, Workload::StatefulSet(&name));
            those.extend(keeper.autoscalers.with_key(&its));
        }
        for namespace in namespaces {
            those.extend(keeper.autoscalers.with_key(&midway_in(&namespace)));
        }
        those.retain(|one| one.is_midway());
        concerned.by_pods.extend(those.into_iter().map(|one| one.names.uid.clone()));
    }

    /// Waits until there may be something to take.
    pub async fn changed(&mut self) {
        tokio::select! {
            () = self.autoscalers.changed() => {}
            () = self.sets.changed() => {}
            () = self.deployments.changed() => {}
            () = self.sources.changed() => {}
            () = self.claims.changed() => {}
            () = self.pvs.changed() => {}
            () = self.nodes.changed() => {}
            () = self.answers.changed() => {}
            () = self.away.changed() => {}
            _ = self.pods.changed() => {}
        }
    }
}

/// Volumes whose usage has changed in the status of a node.
fn changed_restrictions(change: &Change<NodeStorage>) -> Vec<String> {
    let told = |record: &Option<Arc<NodeStorage>>| -> BTreeMap<String, VolumeUsage> {
        let status = record.as_ref().and_then(|record| record.status.as_ref());
        let usage = status.into_iter().flat_map(|status| &status.usage);
        usage.map(|one| (one.volume_handle.clone(), one.clone())).collect()
    };
    let (mut before, now) = (told(&change.before), told(&change.now));
    let mut volumes: Vec<String> = now
        .into_iter()
        .filter(|(volume, usage)| before.remove(volume).as_ref() != Some(usage))
        .map(|(volume, _)| volume)
        .collect();
    volumes.extend(before.into_keys());
    volumes
}
