//! Summaries of PvcAutoscalers, with what triggers a reconcile and what is in progress.

use k8s_openapi::jiff::Timestamp;

use crate::api::{OrdinalStatus, PodsOf, PvcAutoscaler, Rival, SwapPhase, Workload};
use crate::cluster::{ObjectNames, Record};

/// A PvcAutoscaler without the fields that a reconcile reads live.
#[derive(Debug, Clone, PartialEq)]
pub struct AutoscalerSummary {
    /// Metadata and version.
    pub names: ObjectNames,
    /// Time of its creation.
    creation_time: Option<Timestamp>,
    stateful_set: Option<Box<str>>,
    pods: Option<Box<PodsOf>>,
    /// The name of its template.
    template: Box<str>,
    /// True if it resizes claims by their usage.
    pub sets_sizes: bool,
    /// Claims in its status, including retained ones.
    claims: Box<[Box<str>]>,
    /// Status of pods with an operation in progress or a fenced volume.
    pub busy: Box<[OrdinalStatus]>,
}

impl AutoscalerSummary {
    /// Whose claims these are.
    pub fn workload(&self) -> Workload<'_> {
        match (&self.stateful_set, &self.pods) {
            (None, Some(pods)) => pods.workload(),
            (set, _) => Workload::StatefulSet(set.as_deref().unwrap_or_default()),
        }
    }

    /// Returns true if it has stopped a pod, or may do so soon.
    pub fn is_midway(&self) -> bool {
        let is_on = |phase: SwapPhase| phase != SwapPhase::Failed;
        let mut midway = self.busy.iter().filter(|one| {
            one.is_shrinking() || one.swap.as_ref().is_some_and(|swap| is_on(swap.phase))
        });
        midway.next().is_some()
    }

    /// The claims that its swaps are to.
    pub fn swaps_to(&self) -> impl Iterator<Item = &str> {
        self.busy.iter().filter_map(|one| Some(one.swap.as_ref()?.claim.as_str()))
    }

    /// Returns the claims in its status, so that they are released in time.
    pub fn claims_in_status(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().map(|one| &**one)
    }

    /// Returns true if its status refers to a claim.
    pub fn tells_of(&self, claim: &str) -> bool {
        self.claims_in_status().any(|one| one == claim)
    }
}

impl Record for AutoscalerSummary {
    type Object = PvcAutoscaler;
    type ObjectIdentity = ObjectNames;

    fn of(one: PvcAutoscaler) -> Self {
        let PvcAutoscaler { metadata, spec, status } = one;
        let ordinals = status.map(|status| status.ordinals).unwrap_or_default();
        let claims = ordinals.iter().flat_map(|one| {
            let retained = one.retained_claims.iter().map(|old| &old.name);
            retained.chain([&one.active_claim]).map(|name| name.as_str().into())
        });
        let is_busy = |one: &OrdinalStatus| {
            let is_fenced = one.retained_claims.iter().any(|old| old.fence.is_some());
            one.swap.is_some() || one.shrink.is_some() || is_fenced
        };
        AutoscalerSummary {
            creation_time: metadata.creation_timestamp.as_ref().map(|time| time.0),
            names: metadata.into(),
            stateful_set: spec.stateful_set_name.map(String::into_boxed_str),
            pods: spec.workload.map(Box::new),
            template: spec.volume_claim_template.metadata.name.into_boxed_str(),
            sets_sizes: spec.autoscale.is_some(),
            claims: claims.collect(),
            busy: ordinals.into_iter().filter(is_busy).collect(),
        }
    }

    fn identity(&self) -> &ObjectNames {
        &self.names
    }

    fn identity_mut(&mut self) -> &mut ObjectNames {
        &mut self.names
    }
}

impl Rival for AutoscalerSummary {
    fn names(&self) -> (&str, &str) {
        self.names.place()
    }

    fn template(&self) -> (Option<&str>, &str) {
        let set = match self.workload() {
            Workload::StatefulSet(name) => Some(name),
            Workload::Deployment(_) | Workload::Pods(_) => None,
        };
        (set, &self.template)
    }

    fn creation_time(&self) -> Option<Timestamp> {
        self.creation_time
    }
}
