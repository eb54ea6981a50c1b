//! All that decides what is done next with one claim. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{Filling, FillingPhase};
use crate::cluster::VolumeSeen;
use crate::populators::{
    FINALIZER, Fill, NUDGED, POLICY, POPULATES, PodProgress, SELECTED_NODE, SourceState,
};

/// A claim that is to be populated, with all its objects.
#[derive(Debug, Clone)]
pub(super) struct ObservedPopulation {
    pub now: Timestamp,
    pub claim: PersistentVolumeClaim,
    /// Image of its populator pod.
    pub image: String,
    /// True if volumes of its class are created only when a pod is scheduled.
    pub waits_for_consumer: bool,
    /// Object that it names; `None` if that does not exist.
    pub source: Option<SourceSeen>,
    /// The prime claim.
    pub prime: Option<PersistentVolumeClaim>,
    /// True if the prime claim is not in the status yet.
    pub is_unrecorded: bool,
    /// A claim of its name that is another client's.
    pub stranger: Option<PersistentVolumeClaim>,
    /// Volume that is populated.
    pub pv: Option<PersistentVolume>,
    /// The nodes on which that volume can be used; `None` is every node.
    pub pv_nodes: Option<BTreeSet<String>>,
    /// State of the volume on its node; `None` for another driver.
    pub volume: Option<VolumeSeen>,
    /// Pod that populates it.
    pub pod: Option<Pod>,
    /// Pod of that name that is not in the status.
    pub strange_pod: Option<Pod>,
    /// The pod that sends the source to it, from another node.
    pub sender: Option<Pod>,
    /// Last progress that the pod reported.
    pub progress: Option<PodProgress>,
}

/// The object that a claim names.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(super) struct SourceSeen {
    pub generation: i64,
    /// True if it is being deleted.
    pub is_ending: bool,
    /// True if it has the finalizer.
    pub is_held: bool,
    /// True if each attempt needs an empty volume.
    pub anew: bool,
    /// True if the population starts before a pod uses the claim.
    pub early: bool,
    /// Population status of the claim.
    pub told: Option<Filling>,
    /// `None` while a pod runs, which was made of an earlier one.
    pub sight: Option<SourceState>,
}

/// Returns true if an object is being deleted.
pub(super) fn is_ending(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// Returns true if an object has the finalizer.
pub(super) fn is_held(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == FINALIZER)
}

/// The node that is chosen for the volume of a claim.
pub(super) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.annotations().get(SELECTED_NODE).map(String::as_str).filter(|node| !node.is_empty())
}

/// The claim that a volume belongs to.
pub(super) fn claim_of(pv: &PersistentVolume) -> Option<&ObjectReference> {
    pv.spec.as_ref()?.claim_ref.as_ref()
}

pub(super) fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

impl ObservedPopulation {
    /// Uid of the claim.
    pub fn uid(&self) -> &str {
        uid(&self.claim.metadata)
    }

    /// Returns the population status of the claim so far.
    pub fn status_entry(&self) -> Option<&Filling> {
        self.source.as_ref()?.told.as_ref()
    }

    /// Returns true if the populated volume is bound to the claim: this is final. A volume that another
    /// client has bound to it lacks the annotation.
    pub fn is_rebound(&self) -> bool {
        let Some(pv) = &self.pv else { return false };
        let is_owned = claim_of(pv).is_some_and(|owner| owner.uid.as_deref() == Some(self.uid()));
        let bound = self.claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let is_bound_elsewhere = bound.is_some_and(|name| name != pv.name_any());
        is_owned && self.is_marked(pv) && !is_bound_elsewhere
    }

    /// Returns true if the volume is that of the prime claim.
    pub fn is_of_prime(&self) -> bool {
        let (Some(prime), Some(pv)) = (&self.prime, &self.pv) else { return false };
        claim_of(pv).is_some_and(|owner| owner.uid.as_deref() == Some(uid(&prime.metadata)))
    }

    /// Returns true if Pliant retains the volume, independent of the prime claim.
    pub fn is_retained(&self) -> bool {
        let marks =
            |pv: &PersistentVolume| self.is_marked(pv) && pv.annotations().contains_key(POLICY);
        self.pv.as_ref().is_some_and(marks)
    }

    /// Returns true if the volume would outlive the prime claim: it is retained, by Pliant or by
    /// its class.
    pub fn outlives_prime(&self) -> bool {
        let policy =
            |pv: &PersistentVolume| pv.spec.as_ref()?.persistent_volume_reclaim_policy.clone();
        let is_kept = self.pv.as_ref().and_then(policy).as_deref() == Some("Retain");
        self.is_retained() || self.is_of_prime() && is_kept
    }

    fn is_marked(&self, pv: &PersistentVolume) -> bool {
        pv.annotations().get(POPULATES).is_some_and(|claim| claim == self.uid())
    }

    /// Returns true if the prime claim was notified that its volume was rebound.
    pub fn is_nudged(&self) -> bool {
        self.prime.as_ref().is_some_and(|prime| prime.annotations().contains_key(NUDGED))
    }

    /// Returns true if the pre-copy is complete, for the present source.
    pub fn is_ahead(&self) -> bool {
        let generation = self.source.as_ref().map(|source| source.generation);
        self.status_entry().is_some_and(|told| {
            told.phase == FillingPhase::PreCopied && Some(told.observed_generation) == generation
        })
    }

    /// Returns true if a pod may write to the source.
    pub fn is_live(&self) -> bool {
        self.fill().is_some_and(|fill| fill.is_live)
    }

    /// Returns true if the volume is on none of the nodes on which the source can be read.
    pub fn is_far(&self) -> bool {
        let readable = self.fill().and_then(|fill| fill.nodes.as_ref());
        readable.zip(self.pv_nodes.as_ref()).is_some_and(|(source, here)| source.is_disjoint(here))
    }

    /// Returns how the source populates the claim, if known.
    pub fn fill(&self) -> Option<&Fill> {
        match self.source.as_ref()?.sight.as_ref()? {
            SourceState::Ready(fill) => Some(fill),
            SourceState::Waits(..) | SourceState::Never(..) => None,
        }
    }
}
