//! Exchange of volumes between a claim that retains its name and the claim with the copy, through their
//! PersistentVolumes. Pure.
//!
//! The volume of a PersistentVolume never changes, nor does the PersistentVolume of a claim. So both
//! PersistentVolumes are recreated under their own names, that of the pod's claim first, each with the
//! volume of the other. Neither claim is deleted: the claim with the copy has the old volume then. Before
//! the first one is deleted, both carry an annotation with the target state of both, which survives crashes
//! and the deletion of the PvcAutoscaler; and both are retained, so that no volume is deleted.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::api::Quantity;
use crate::claims::objects::{
    HELD_FOR, POLICY_BEFORE, is_bound, is_ending, owner, policy_before, uid,
};
use crate::cluster::{
    CLASS, DETACHED_FOR, EXCHANGE, UnreadableSize, VOLUME, capacity, requested, volume_name,
};

/// Annotations of a PersistentVolume that belong to its population and its claim, not to its
/// volume.
const OF_FILLING: [&str; 3] = ["pliant.io/populates", "pliant.io/reclaim-policy", DETACHED_FOR];

/// Side of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeSide {
    /// Claim of the pod.
    Active,
    /// Claim with the copy.
    Copy,
}

/// One step of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeStage {
    /// Retain a PersistentVolume, and write on it what both are to be.
    Record(ExchangeSide),
    /// Delete it.
    Delete(ExchangeSide),
    /// Take its finalizers off, so that it goes.
    Free(ExchangeSide),
    /// Recreate it with the volume of the other one.
    Make(ExchangeSide),
    /// Update its claim, so that the claim's controller reconciles it.
    Nudge(ExchangeSide),
    /// Remove the annotation and restore the policy.
    Finish(ExchangeSide),
}

/// Progress of an exchange.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Exchange {
    /// Nothing is written yet.
    Ready,
    /// Started; this is the next step.
    Next(ExchangeStage),
    /// Kubernetes must bind its claims again.
    Waits,
    /// The claim has the volume that it was to get.
    Done,
    /// It cannot start, and nothing was written.
    Never(String),
    /// Another client created a PersistentVolume in its place.
    Stuck(String),
}

impl Exchange {
    /// Returns true if the claim of the pod still has its old volume, and nothing was removed from
    /// it: see [`ClaimPair::given_up`].
    pub fn can_be_given_up(&self) -> bool {
        matches!(
            self,
            Exchange::Ready
                | Exchange::Next(
                    ExchangeStage::Record(_) | ExchangeStage::Delete(ExchangeSide::Active)
                )
        )
    }

    /// Returns what the exchange waits for while it is in progress.
    pub fn awaits(&self, active: &str, copy: &str) -> Option<String> {
        let of = |side: &ExchangeSide| match side {
            ExchangeSide::Active => active,
            ExchangeSide::Copy => copy,
        };
        Some(match self {
            Exchange::Ready => {
                format!("the volumes of claims {active} and {copy} are to be exchanged")
            }
            Exchange::Next(ExchangeStage::Record(side) | ExchangeStage::Finish(side)) => {
                format!("the PersistentVolume of claim {} is to be updated", of(side))
            }
            Exchange::Next(ExchangeStage::Delete(side) | ExchangeStage::Free(side)) => {
                format!("the PersistentVolume of claim {} is to be deleted", of(side))
            }
            Exchange::Next(ExchangeStage::Make(side)) => {
                format!("the PersistentVolume of claim {} is to be recreated", of(side))
            }
            Exchange::Next(ExchangeStage::Nudge(side)) => {
                format!("claim {} is to be updated", of(side))
            }
            Exchange::Waits => format!(
                "claims {active} and {copy} are to be bound to their PersistentVolumes by Kubernetes: check \
                 that kube-controller-manager runs"
            ),
            Exchange::Done | Exchange::Never(_) | Exchange::Stuck(_) => return None,
        })
    }
}

/// Target state of both PersistentVolumes, as annotated on them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ExchangeRecord {
    pub active: TargetVolume,
    pub copy: TargetVolume,
}

/// Target state of one PersistentVolume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TargetVolume {
    /// The object to create, with its final policy.
    pub pv: Box<PersistentVolume>,
    /// Volume handle.
    pub volume: String,
    /// The class of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// Two claims and their PersistentVolumes, as observed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ClaimPair {
    pub active: ClaimAndVolume,
    pub copy: ClaimAndVolume,
}

/// A claim and its PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ClaimAndVolume {
    pub claim: Option<Box<PersistentVolumeClaim>>,
    pub pv: Option<Box<PersistentVolume>>,
}

/// The volume that a PersistentVolume names.
pub(super) fn handle(pv: &PersistentVolume) -> Option<&str> {
    Some(pv.spec.as_ref()?.csi.as_ref()?.volume_handle.as_str())
}

/// The size that a claim comes to by the volume of this one: what that was made for. Of one that was
/// exchanged before, another claim has asked.
///
/// # Errors
/// [`UnreadableSize`] if that is no size.
pub(super) fn size_with(copy: &PersistentVolumeClaim) -> Result<Quantity, UnreadableSize> {
    if copy.annotations().contains_key(VOLUME) { capacity(copy) } else { requested(copy) }
}

/// Reads the annotation of a PersistentVolume in an exchange.
pub(super) fn record(pv: &impl ResourceExt) -> Option<ExchangeRecord> {
    serde_json::from_str(pv.annotations().get(EXCHANGE)?).ok()
}

impl TargetVolume {
    fn is(&self, pv: &PersistentVolume) -> bool {
        handle(pv).is_some() && handle(pv) == handle(&self.pv)
    }
}

impl ClaimAndVolume {
    /// Returns true if the claim has its volume, or no longer waits for one.
    fn is_settled(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| is_bound(claim) || is_ending(&claim.metadata))
    }

    /// Returns true if claim and PersistentVolume exist and refer to each other.
    fn is_whole(&self) -> bool {
        let (Some(claim), Some(pv)) = (&self.claim, &self.pv) else { return false };
        let is_its = owner(pv) == Some(uid(&claim.metadata));
        is_bound(claim) && !is_ending(&claim.metadata) && is_its
    }

    fn is_recorded(&self) -> bool {
        self.pv.as_deref().is_some_and(|pv| record(pv).is_some())
    }

    /// Returns the target state of a claim with the volume of the other one.
    fn with(&self, other: &ClaimAndVolume, size: Option<Written>) -> Option<TargetVolume> {
        let (claim, pv) = (self.claim.as_ref()?, self.pv.as_ref()?);
        let (other_claim, from) = (other.claim.as_ref()?, other.pv.as_ref()?);
        let mut annotations = from.annotations().clone();
        annotations.retain(|key, _| !OF_FILLING.contains(&key.as_str()) && key != EXCHANGE);
        // Whose claim a swap holds belongs to the claim.
        annotations.retain(|key, _| ![HELD_FOR, POLICY_BEFORE].contains(&key.as_str()));
        let held = pv.annotations().get(HELD_FOR);
        annotations.extend(held.map(|held| (HELD_FOR.to_owned(), held.clone())));
        let mut spec = from.spec.clone()?;
        if let Some(policy) = policy_before(from) {
            spec.persistent_volume_reclaim_policy = Some(policy.clone());
        }
        spec.claim_ref = Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: claim.namespace(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            ..ObjectReference::default()
        });
        if let Some(size) = size {
            spec.capacity.get_or_insert_default().insert("storage".to_owned(), size);
        }
        let class = spec.storage_class_name.clone();
        let metadata = ObjectMeta {
            name: pv.metadata.name.clone(),
            labels: from.metadata.labels.clone(),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let pv = PersistentVolume { metadata, spec: Some(spec), status: None };
        Some(TargetVolume { pv: Box::new(pv), volume: volume_name(other_claim)?.to_owned(), class })
    }
}

impl ClaimPair {
    pub fn half(&self, side: ExchangeSide) -> &ClaimAndVolume {
        match side {
            ExchangeSide::Active => &self.active,
            ExchangeSide::Copy => &self.copy,
        }
    }

    /// Reads the annotation of either PersistentVolume.
    pub fn written(&self) -> Option<ExchangeRecord> {
        self.active
            .pv
            .as_deref()
            .and_then(record)
            .or_else(|| self.copy.pv.as_deref().and_then(record))
    }

    /// Returns the target state of both, as annotated on one of them or as it will be; `None` while one of their
    /// sizes is invalid.
    pub fn record(&self) -> Option<ExchangeRecord> {
        self.written().or_else(|| {
            // A byte less than it asks for, so that the resizer asks the driver what it really has.
            let to = size_with(self.copy.claim.as_ref()?).ok()?.0.get();
            let shrinks = requested(self.active.claim.as_ref()?).ok()?.0.get() > to;
            let less = shrinks.then(|| Written(to.saturating_sub(1).to_string()));
            let active = self.active.with(&self.copy, less)?;
            Some(ExchangeRecord { active, copy: self.copy.with(&self.active, None)? })
        })
    }

    /// Returns true if the claim with the copy requests more than the pod's claim, which is to get its volume,
    /// or may do so.
    pub fn outgrows(&self) -> bool {
        let asked = |half: &ClaimAndVolume| half.claim.as_deref().map(requested).transpose();
        match (asked(&self.active), asked(&self.copy)) {
            (Ok(active), Ok(copy)) => copy > active,
            (Err(_), _) | (_, Err(_)) => true,
        }
    }

    /// Returns the progress for a claim that is to get this volume.
    pub fn exchange(&self, volume: &str) -> Exchange {
        if self.active.is_recorded() || self.copy.is_recorded() {
            return self.next_step();
        }
        let has = self.active.pv.as_deref().and_then(handle);
        let copy = self.copy.pv.as_ref().filter(|pv| handle(pv) == Some(volume));
        match (has, copy) {
            (Some(has), _) if has == volume => Exchange::Done,
            (Some(_), Some(_)) if self.active.is_whole() && self.copy.is_whole() => Exchange::Ready,
            _ => Exchange::Never(
                "one of the two claims or its PersistentVolume was deleted before they could exchange their \
                 volumes"
                    .to_owned(),
            ),
        }
    }

    /// Returns the step that aborts an exchange that no swap refers to, while the claim has the old volume:
    /// its pod may write to it again. `None` if the exchange must be completed.
    pub fn given_up(&self) -> Option<ExchangeStage> {
        let (pv, known) = (self.active.pv.as_ref()?, self.written()?);
        if known.active.is(pv) || is_ending(&pv.metadata) {
            return None;
        }
        let side =
            if self.active.is_recorded() { ExchangeSide::Active } else { ExchangeSide::Copy };
        Some(ExchangeStage::Finish(side))
    }

    /// Returns the next step of an exchange that was started, with or without a swap.
    pub fn next_step(&self) -> Exchange {
        let Some(record) = self.record() else { return Exchange::Waits };
        let all = [
            (ExchangeSide::Active, &self.active, &record.active),
            (ExchangeSide::Copy, &self.copy, &record.copy),
        ];
        for (_, half, _) in &all {
            if let Some(pv) = &half.pv
                && !all.iter().any(|(_, _, one)| one.is(pv))
            {
                return Exchange::Stuck(format!(
                    "another client created PersistentVolume {} with a different volume: delete it if it is \
                     not needed",
                    pv.name_any()
                ));
            }
        }
        let is_last =
            all.iter().all(|(_, half, wanted)| half.pv.as_ref().is_some_and(|pv| wanted.is(pv)));
        if is_last {
            return self.close(&record);
        }
        // As long as one of them is not there the other one knows what it is to be.
        if let Some((side, ..)) = all.iter().find(|(_, half, _)| half.pv.is_none()) {
            return Exchange::Next(ExchangeStage::Make(*side));
        }
        if let Some((side, ..)) = all.iter().find(|(_, half, _)| !half.is_recorded()) {
            return Exchange::Next(ExchangeStage::Record(*side));
        }
        for (side, half, wanted) in &all {
            let Some(pv) = &half.pv else { continue };
            if wanted.is(pv) {
                match half.recorded(wanted, *side) {
                    Some(next) => return next,
                    None => continue,
                }
            }
            let is_ending = is_ending(&pv.metadata);
            return Exchange::Next(if is_ending {
                ExchangeStage::Free(*side)
            } else {
                ExchangeStage::Delete(*side)
            });
        }
        Exchange::Waits
    }

    /// Completes an exchange: both claims have their volumes, so they are updated and everything is
    /// restored.
    fn close(&self, record: &ExchangeRecord) -> Exchange {
        let all = [
            (ExchangeSide::Active, &self.active, &record.active),
            (ExchangeSide::Copy, &self.copy, &record.copy),
        ];
        if let Some(next) = all.iter().find_map(|(side, half, wanted)| half.recorded(wanted, *side))
        {
            return next;
        }
        // That of the pod last: its pod waits as long as it carries the annotation.
        let left = all.iter().rev().find(|(_, half, _)| half.is_recorded());
        left.map_or(Exchange::Done, |(side, ..)| Exchange::Next(ExchangeStage::Finish(*side)))
    }
}

impl ClaimAndVolume {
    /// Returns the next step until the claim has its new volume.
    fn recorded(&self, wanted: &TargetVolume, side: ExchangeSide) -> Option<Exchange> {
        let claim = self.claim.as_ref().filter(|claim| uid(&claim.metadata) == wanted.owner())?;
        let is = |key: &str, value: Option<&String>| claim.annotations().get(key) == value;
        if !is(VOLUME, Some(&wanted.volume)) || !is(CLASS, wanted.class.as_ref()) {
            return Some(Exchange::Next(ExchangeStage::Nudge(side)));
        }
        // One that was never observed as Lost still has the previous size.
        let is_told = capacity(claim).ok() == wanted.size() || !wanted.tells_size(side, claim);
        if is_bound(claim) && !is_told {
            return Some(Exchange::Next(ExchangeStage::Nudge(side)));
        }
        (!self.is_settled()).then_some(Exchange::Waits)
    }
}

impl TargetVolume {
    /// The size that its claim has by it.
    pub fn size(&self) -> Option<Quantity> {
        let size = self.pv.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
        size.0.parse().ok().map(Quantity)
    }

    /// Returns true if its claim is updated with its size. The pod's own claim also is when it requests less,
    /// if its request is larger than that.
    pub fn tells_size(&self, side: ExchangeSide, claim: &PersistentVolumeClaim) -> bool {
        self.size().is_some_and(|has| {
            side == ExchangeSide::Copy || requested(claim).is_ok_and(|asked| has >= asked)
        })
    }

    fn owner(&self) -> &str {
        owner(&self.pv).unwrap_or_default()
    }

    /// Returns the PersistentVolume to create: retained, and annotated.
    pub fn made(&self, record: &ExchangeRecord) -> PersistentVolume {
        let mut pv = (*self.pv).clone();
        pv.annotations_mut().insert(EXCHANGE.to_owned(), written(record));
        if let Some(spec) = &mut pv.spec {
            spec.persistent_volume_reclaim_policy = Some("Retain".to_owned());
        }
        pv
    }
}

impl ExchangeRecord {
    /// Returns true if it is the exchange of these two claims.
    pub fn is_of(&self, namespace: &str, active: &str, copy: &str) -> bool {
        let names = |wanted: &TargetVolume, name: &str| {
            let claim = wanted.pv.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| {
                (claim.namespace.as_deref(), claim.name.as_deref()) == (Some(namespace), Some(name))
            })
        };
        names(&self.active, active) && names(&self.copy, copy)
    }

    /// Returns the final reclaim policy of a PersistentVolume: that of its volume. Without its claim
    /// nothing would retain the volume, unless it is deleted with its whole namespace.
    pub fn policy(&self, half: &ClaimAndVolume, goes_with_namespace: bool) -> String {
        let is_there = half.claim.as_ref().is_some_and(|claim| {
            let owner = half.pv.as_deref().and_then(owner);
            owner == claim.metadata.uid.as_deref() && !is_ending(&claim.metadata)
        });
        let mut all = [&self.active, &self.copy].into_iter();
        let its = all.find(|wanted| half.pv.as_ref().is_some_and(|pv| wanted.is(pv)));
        // After an abort a swap still holds the claim, and restores the policy.
        let is_held = half.pv.as_deref().is_some_and(|pv| policy_before(pv).is_some());
        let is_kept_by_us = (!is_there || is_held) && !goes_with_namespace;
        let spec = its.filter(|_| !is_kept_by_us).and_then(|wanted| wanted.pv.spec.as_ref());
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.clone());
        policy.unwrap_or_else(|| "Retain".to_owned())
    }

    pub fn of(&self, side: ExchangeSide) -> &TargetVolume {
        match side {
            ExchangeSide::Active => &self.active,
            ExchangeSide::Copy => &self.copy,
        }
    }
}

/// Formats the annotation of a PersistentVolume.
pub(super) fn written(record: &ExchangeRecord) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

#[cfg(test)]
mod tests;
