//! All that decides what is done next for the claims of one workload. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{
    Filling, MOST_ORDINALS, OrdinalStatus, PopulatorPod, PvcAutoscaler, PvcSourcePopulator,
    Quantity, controlling_stateful_set,
};
use crate::autoscaler::usage::SampledUsage;
use crate::autoscaler::wanted;
use crate::claims::Drift;
use crate::claims::coverage::WorkloadCoverage;
use crate::claims::detached_note::DetachedNote;
use crate::claims::objects::{became_ready, has_ended, is_ending, uid, uses};
use crate::claims::pv_exchange::Exchange;
use crate::claims::swap_context::SwapContext;
use crate::cluster::{ClockSkew, KEPT_BY, PodSummary, VolumeSeen};

/// Maximum number of pods without a status that are observed at once.
const WINDOW: usize = 64;

/// The claims of a workload, and all that belongs to them.
#[derive(Debug, Clone)]
pub(super) struct ObservedWorkload {
    pub now: Timestamp,
    /// Comparison of its clock with that of the API server; only where something is deleted by
    /// time.
    pub clock: ClockSeen,
    pub autoscaler: PvcAutoscaler,
    /// Other PvcAutoscalers that manage claims of the same pods.
    pub siblings: Vec<PvcAutoscaler>,
    /// Whose claims these are; `None` if there is none of its name.
    pub workload: Option<PodController>,
    /// Managed claims, and candidates, by name.
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    /// Claims that have the names of those of swaps, and are other clients': they are left out above.
    pub taken: BTreeMap<String, PersistentVolumeClaim>,
    /// Older PvcAutoscaler of the same workload and template that manages these claims.
    pub elder: Option<String>,
    /// Claims that another PvcAutoscaler managed for the same pods, and manages no more.
    pub left: BTreeSet<String>,
    /// Populators of new claims, by name.
    pub sources: BTreeMap<String, PvcSourcePopulator>,
    /// All pods of the namespace; empty when nothing is asked of them.
    pub pods: Vec<PodSummary>,
    /// Classes, true if their volumes can grow; missing classes are left out.
    pub classes: BTreeMap<String, bool>,
    /// Classes of other drivers.
    pub foreign: BTreeSet<String>,
    /// Progress of exchanges, by claim.
    pub exchanges: BTreeMap<String, Exchange>,
    /// Usage of volumes that their nodes reported, by claim.
    pub usage: BTreeMap<String, SampledUsage>,
    /// Nodes whose node plugin does not respond, by claim: the reported usage is old.
    pub silent: BTreeMap<String, String>,
    /// The volumes of the claims that a swap is about, by the name of the claim; `None` for one of another
    /// driver, or that is no more.
    pub volumes: BTreeMap<String, Option<VolumeSeen>>,
    /// Generation since which the node of a pod's claim reports its volume as superseded, by claim.
    pub superseded: BTreeMap<String, i64>,
    /// Reason why a stopped pod without an object may still run, by ordinal.
    pub may_still_run: BTreeMap<i32, String>,
    /// New claims whose PersistentVolumes note that a populator has populated and verified them, without a status:
    /// no tenant can write that, and the status of a source is deleted with it.
    pub handed_over: BTreeSet<String>,
    /// Claims whose PersistentVolumes lack the annotation that a swap holds them.
    pub unmarked: BTreeSet<String>,
    /// Notes of the PersistentVolumes about which claim is complete, by claim.
    pub detached: BTreeMap<String, DetachedNote>,
    /// Untrue annotations of claims about their volumes, which are ignored, by claim.
    pub untrue_notes: BTreeMap<String, Vec<&'static str>>,
    /// Coverage of the pods of the workload by the webhook.
    pub coverage: WorkloadCoverage,
    /// Objects of others that swaps depend on; empty without a pending swap.
    pub around: SwapContext,
    /// Operation that the API server rejected the last time.
    pub refusal: Option<Refusal>,
}

/// Comparison of the clock with that of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockSeen {
    /// Not compared: no decision depends on it.
    NotAsked,
    /// The clocks agree.
    Agrees,
    /// The clocks differ.
    Differs(ClockSkew),
}

/// A claim that could not be made or grown: a quota, a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub claim: String,
    pub why: String,
}

/// Workload that creates the pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodController {
    pub claims: Claims,
    /// True if the workload creates the claims.
    pub makes_claims: bool,
    /// Volumes of its pods that are claims, if the one of the template does not exist.
    pub other_volumes: Option<Vec<String>>,
    /// True if there are claims that pods could name, and none names yet.
    pub has_unnamed: bool,
    /// Time for which a pod must be ready, in seconds.
    pub min_ready: i64,
    /// Settings of the workload that affect a swap, in words.
    pub habits: Vec<&'static str>,
    /// Fields of the pods that the pods which copy their claims get too.
    pub populator_pod: PopulatorPod,
}

/// Relation of the pods of a workload to their claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claims {
    /// Each pod with one of these ordinals has one of its own.
    Numbered(Range<i32>),
    /// Claims that the pods name themselves, by the ordinals that they have here.
    Named(BTreeMap<i32, String>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {} was rejected, and is requested again: {}", self.claim, self.why)
    }
}

impl PodController {
    /// Reads a StatefulSet for the claims of this name.
    pub fn of(set: &StatefulSet, template: &str) -> PodController {
        let spec = set.spec.clone().unwrap_or_default();
        let own = spec.volume_claim_templates.unwrap_or_default();
        let first = spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0);
        // What a status can list; see `ClaimsController::refuse_replicas`.
        let most = i32::try_from(MOST_ORDINALS).unwrap_or(i32::MAX);
        let end = first.saturating_add(spec.replicas.unwrap_or(1).min(most));
        let makes_claims = own.iter().any(|one| one.name_any() == template);
        let populator_pod = spec.template.spec.as_ref().map(populator_pod).unwrap_or_default();
        // The API server takes no mount of a volume that is not there, so one stands for the claim.
        let volumes = spec.template.spec.and_then(|pod| pod.volumes).unwrap_or_default();
        let has_it = makes_claims || volumes.iter().any(|one| one.name == template);
        let claims = volumes.into_iter().filter(|one| one.persistent_volume_claim.is_some());
        let others: Vec<String> = claims.map(|one| one.name).collect();
        let update = spec.update_strategy.and_then(|strategy| strategy.type_);
        let rolls = (update.as_deref() == Some("OnDelete")).then_some(
            "its updateStrategy is OnDelete, so the stopped pod starts again with the newest revision of the \
             StatefulSet",
        );
        let retention = spec.persistent_volume_claim_retention_policy;
        let deletes =
            retention.is_some_and(|policy| policy.when_scaled.as_deref() == Some("Delete"));
        let leaves = deletes.then_some(
            "its persistentVolumeClaimRetentionPolicy deletes claims on scale-down: if that happens meanwhile, \
             the volume of the claim is retained and Released, and the event VolumeRetained names it",
        );
        let habits = rolls.into_iter().chain(leaves).collect();
        PodController {
            claims: Claims::Numbered(first..end),
            makes_claims,
            other_volumes: (!has_it && !others.is_empty()).then_some(others),
            has_unnamed: false,
            min_ready: spec.min_ready_seconds.unwrap_or(0).into(),
            habits,
            populator_pod,
        }
    }

    /// Reads a Deployment for the claim that its pods have as this volume.
    pub fn of_deployment(made: &Deployment, volume: &str, told: &[OrdinalStatus]) -> PodController {
        let spec = made.spec.clone().unwrap_or_default();
        let volumes = spec.template.spec.into_iter().filter_map(|spec| spec.volumes).flatten();
        let claims = volumes.filter(|one| one.name == volume);
        let claims = claims.filter_map(|one| Some(one.persistent_volume_claim?.claim_name));
        PodController {
            claims: Claims::named(claims.collect(), told),
            makes_claims: true,
            other_volumes: None,
            has_unnamed: false,
            min_ready: spec.min_ready_seconds.unwrap_or(0).into(),
            habits: Vec::new(),
            populator_pod: PopulatorPod::default(), // Its claims are never copied.
        }
    }

    /// Reads pods of any owner that name these claims themselves; `all` are the candidates.
    pub fn of_pods(
        claims: BTreeSet<String>,
        all: &BTreeSet<String>,
        told: &[OrdinalStatus],
    ) -> PodController {
        let has_unnamed = !all.is_subset(&claims);
        let claims = Claims::named(claims, told);
        PodController {
            claims,
            makes_claims: true,
            other_volumes: None,
            has_unnamed,
            min_ready: 0,
            habits: Vec::new(),
            populator_pod: PopulatorPod::default(), // Such claims are never copied.
        }
    }

    pub fn ordinals(&self) -> Vec<i32> {
        match &self.claims {
            Claims::Numbered(ordinals) => ordinals.clone().collect(),
            Claims::Named(claims) => claims.keys().copied().collect(),
        }
    }

    /// Returns the claim that pods name themselves.
    pub fn named(&self, ordinal: i32) -> Option<&String> {
        match &self.claims {
            Claims::Numbered(_) => None,
            Claims::Named(claims) => claims.get(&ordinal),
        }
    }
}

impl Claims {
    /// Assigns each claim the ordinal in its status, or the next free one.
    fn named(claims: BTreeSet<String>, told: &[OrdinalStatus]) -> Claims {
        let mut free = (0..).filter(|ordinal| told.iter().all(|one| one.ordinal != *ordinal));
        let mut ordinal = |name: &String| {
            let told = told.iter().find(|one| one.active_claim == *name);
            told.map(|one| one.ordinal).or_else(|| free.next()).unwrap_or_default()
        };
        Claims::Named(claims.into_iter().map(|name| (ordinal(&name), name)).collect())
    }
}

/// Returns the fields of a pod that the pods which copy its claims get too.
fn populator_pod(of: &PodSpec) -> PopulatorPod {
    PopulatorPod {
        tolerations: of.tolerations.clone().unwrap_or_default(),
        priority_class_name: of.priority_class_name.clone(),
    }
}

impl ObservedWorkload {
    /// The generation of what is wanted.
    pub fn generation(&self) -> i64 {
        self.autoscaler.metadata.generation.unwrap_or_default()
    }

    /// The size in the template.
    pub fn template_size(&self) -> Quantity {
        self.autoscaler.spec.volume_claim_template.spec.resources.requests.storage
    }

    /// The name of the template, which is that of the volume in the pods.
    pub fn volume(&self) -> &str {
        &self.autoscaler.spec.volume_claim_template.metadata.name
    }

    /// Name of the pod with this ordinal.
    pub fn pod_name(&self, ordinal: i32) -> String {
        let named = self.names_claims().then(|| self.pod(ordinal)).flatten();
        named.map_or_else(|| self.autoscaler.pod_called(ordinal), ResourceExt::name_any)
    }

    /// The pod with this ordinal; of several that name one claim, one that is ready, if there is one.
    pub fn pod(&self, ordinal: i32) -> Option<&PodSummary> {
        if self.names_claims() {
            let claim = self.workload.as_ref()?.named(ordinal)?;
            let pods = self.pods.iter().filter(|pod| uses(pod, claim));
            let pods = pods.filter(|pod| !crate::populators::fills(pod));
            let pods = pods.filter(|pod| !has_ended(pod));
            return pods.min_by_key(|pod| (is_ending(&pod.metadata), became_ready(pod).is_none()));
        }
        let name = self.autoscaler.pod_called(ordinal);
        let set = self.autoscaler.spec.stateful_set();
        let is_its = |pod: &&PodSummary| {
            let owner = controlling_stateful_set(*pod);
            owner.is_some_and(|owner| Some(&*owner.name) == set)
        };
        self.pods.iter().find(|pod| pod.name_any() == name && is_its(pod))
    }

    /// Returns true if pods name their claims themselves, so that the webhook adds none.
    pub fn names_claims(&self) -> bool {
        self.autoscaler.spec.stateful_set().is_none()
    }

    /// Returns true if a claim cannot be replaced by another one, because pods use it by its name.
    pub fn claims_are_fixed(&self) -> bool {
        self.names_claims() || self.makes_claims()
    }

    /// Returns true if a pod with this ordinal is desired.
    pub fn has_pod(&self, ordinal: i32) -> bool {
        self.workload.as_ref().is_some_and(|set| match &set.claims {
            Claims::Numbered(ordinals) => ordinals.contains(&ordinal),
            Claims::Named(claims) => claims.contains_key(&ordinal),
        })
    }

    pub fn makes_claims(&self) -> bool {
        self.workload.as_ref().is_some_and(|set| set.makes_claims)
    }

    pub fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        self.claims.get(name)
    }

    /// Returns the difference between the claim of a pod and its desired state.
    pub fn drift_of(&self, entry: &OrdinalStatus, claim: &PersistentVolumeClaim) -> Drift {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
        let can_grow = class.and_then(|class| self.classes.get(class)).copied();
        Drift::of_pod(&self.autoscaler.spec, entry, claim, can_grow.unwrap_or_default())
    }

    /// Returns true if a claim has the label of this PvcAutoscaler.
    pub fn keeps(&self, claim: &PersistentVolumeClaim) -> bool {
        claim.labels().get(KEPT_BY) == Some(&self.autoscaler.name_any())
    }

    /// The volume of a claim that a swap is about, if it is one of this driver.
    pub fn volume_of(&self, claim: &str) -> Option<&VolumeSeen> {
        self.volumes.get(claim)?.as_ref()
    }

    /// Returns ordinals without a status, limited in number: each may cost reads.
    pub fn new_ordinals(&self) -> Vec<i32> {
        let ordinals = self.autoscaler.status.iter().flat_map(|status| &status.ordinals);
        let known: BTreeSet<i32> = ordinals.map(|one| one.ordinal).collect();
        let all = self.workload.iter().flat_map(PodController::ordinals);
        all.filter(|one| !known.contains(one)).take(WINDOW).collect()
    }

    /// Returns the population status of a new claim.
    pub fn filling(&self, claim: &str) -> Option<&Filling> {
        let there = uid(&self.claim(claim)?.metadata);
        self.sources.get(claim)?.status.as_ref()?.of(there)
    }

    /// Returns the size that the claim of a pod is to have.
    pub fn size_of(&self, entry: &OrdinalStatus) -> Quantity {
        wanted(&self.autoscaler.spec, entry.autoscaled_size.as_ref())
    }
}
