//! All that decides what is done next with one claim. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{Filling, FillingPhase};
use crate::cluster::VolumeSeen;
use crate::populators::{
    FINALIZER, Fill, NUDGED, POLICY, POPULATES, Progress, SELECTED_NODE, Sight,
};

/// A claim that is to be filled, and all that belongs to it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub now: Timestamp,
    pub claim: PersistentVolumeClaim,
    /// The image of the pod that fills it.
    pub image: String,
    /// Whether volumes of its class are made only when a pod is scheduled.
    pub waits_for_consumer: bool,
    /// The object that it names; `None` if that is not there.
    pub source: Option<SourceSeen>,
    /// The second claim.
    pub prime: Option<PersistentVolumeClaim>,
    /// Whether the status does not say yet that it is ours.
    pub is_unrecorded: bool,
    /// A claim of its name that is another client's.
    pub stranger: Option<PersistentVolumeClaim>,
    /// The volume that is filled.
    pub pv: Option<PersistentVolume>,
    /// The nodes on which that volume can be used; `None` is every node.
    pub pv_nodes: Option<BTreeSet<String>>,
    /// What is known of it below Kubernetes; `None` if it is another driver's.
    pub volume: Option<VolumeSeen>,
    /// The pod that fills it.
    pub pod: Option<Pod>,
    /// A pod of its name of which the status does not say that it is ours.
    pub strange_pod: Option<Pod>,
    /// The pod that sends the source to it, from another node.
    pub sender: Option<Pod>,
    /// What the pod told last.
    pub progress: Option<Progress>,
}

/// The object that a claim names.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(super) struct SourceSeen {
    pub generation: i64,
    /// Somebody wants it to be gone.
    pub is_ending: bool,
    /// Whether it carries our finalizer.
    pub is_held: bool,
    /// Whether each try needs an empty volume.
    pub anew: bool,
    /// Whether the filling begins before a pod uses the claim.
    pub early: bool,
    /// What is told of the claim.
    pub told: Option<Filling>,
    /// `None` while a pod runs, which was made of an earlier one.
    pub sight: Option<Sight>,
}

/// Whether somebody has deleted an object that is still there.
pub(super) fn is_ending(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// Whether an object carries our finalizer.
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

impl Seen {
    /// Uid of the claim.
    pub fn uid(&self) -> &str {
        uid(&self.claim.metadata)
    }

    /// What is told of the claim so far.
    pub fn told(&self) -> Option<&Filling> {
        self.source.as_ref()?.told.as_ref()
    }

    /// Whether the filled volume belongs to the claim: from here on there is no way back. A volume that
    /// somebody else has bound to it does not carry our mark.
    pub fn is_rebound(&self) -> bool {
        let Some(pv) = &self.pv else { return false };
        let is_owned = claim_of(pv).is_some_and(|owner| owner.uid.as_deref() == Some(self.uid()));
        let bound = self.claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let is_bound_elsewhere = bound.is_some_and(|name| name != pv.name_any());
        is_owned && self.is_marked(pv) && !is_bound_elsewhere
    }

    /// Whether the volume is that of the second claim.
    pub fn is_of_prime(&self) -> bool {
        let (Some(prime), Some(pv)) = (&self.prime, &self.pv) else { return false };
        claim_of(pv).is_some_and(|owner| owner.uid.as_deref() == Some(uid(&prime.metadata)))
    }

    /// Whether we have the volume retained, whatever becomes of the second claim.
    pub fn is_retained(&self) -> bool {
        let marks =
            |pv: &PersistentVolume| self.is_marked(pv) && pv.annotations().contains_key(POLICY);
        self.pv.as_ref().is_some_and(marks)
    }

    /// Whether the volume would stay for ever without the second claim: it is retained, by us or by its
    /// class.
    pub fn outlives_prime(&self) -> bool {
        let policy =
            |pv: &PersistentVolume| pv.spec.as_ref()?.persistent_volume_reclaim_policy.clone();
        let is_kept = self.pv.as_ref().and_then(policy).as_deref() == Some("Retain");
        self.is_retained() || self.is_of_prime() && is_kept
    }

    fn is_marked(&self, pv: &PersistentVolume) -> bool {
        pv.annotations().get(POPULATES).is_some_and(|claim| claim == self.uid())
    }

    /// Whether the second claim was told that its volume is another's.
    pub fn is_nudged(&self) -> bool {
        self.prime.as_ref().is_some_and(|prime| prime.annotations().contains_key(NUDGED))
    }

    /// Whether all is copied ahead that is worth it, for the source as it is wanted now.
    pub fn is_ahead(&self) -> bool {
        let generation = self.source.as_ref().map(|source| source.generation);
        self.told().is_some_and(|told| {
            told.phase == FillingPhase::Ahead && Some(told.generation) == generation
        })
    }

    /// Whether a pod may write to what is copied.
    pub fn is_live(&self) -> bool {
        self.fill().is_some_and(|fill| fill.is_live)
    }

    /// Whether the volume is on none of the nodes on which the source can be read.
    pub fn is_far(&self) -> bool {
        let readable = self.fill().and_then(|fill| fill.nodes.as_ref());
        readable.zip(self.pv_nodes.as_ref()).is_some_and(|(source, here)| source.is_disjoint(here))
    }

    /// How the source is to be put into the claim, if that is known.
    pub fn fill(&self) -> Option<&Fill> {
        match self.source.as_ref()?.sight.as_ref()? {
            Sight::Ready(fill) => Some(fill),
            Sight::Waits(..) | Sight::Never(..) => None,
        }
    }
}
