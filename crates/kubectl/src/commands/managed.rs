//! Finds the role of a claim in the status of PvcAutoscalers. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use crate::api::{OrdinalStatus, PvcAutoscaler, Retained, Swap};
use crate::claims::ORDINAL;
use crate::cluster::KEPT_BY;
use crate::cluster::{ClaimRef, PvSummary};

/// A claim that a PvcAutoscaler manages.
#[derive(Debug, Clone, Copy)]
pub(super) struct ManagedClaim<'a> {
    pub by: &'a PvcAutoscaler,
    pub ordinal: i32,
    pub part: ClaimRole<'a>,
}

/// Role of a claim for its pod.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClaimRole<'a> {
    /// The active claim of the pod.
    Active,
    /// It is being populated to replace the active one.
    Next(&'a Swap),
    /// Another claim has replaced it.
    Before(&'a Retained, &'a OrdinalStatus),
    /// It has the label, but is not in the status.
    Untold,
}

impl<'a> ManagedClaim<'a> {
    /// Finds the PvcAutoscaler that manages a claim: by the status, or by the label if there is no status
    /// yet.
    pub fn find(
        all: &'a [PvcAutoscaler],
        claim: &PersistentVolumeClaim,
    ) -> Option<ManagedClaim<'a>> {
        let name = claim.name_any();
        let of_its = |one: &&PvcAutoscaler| one.namespace() == claim.namespace();
        let told = all.iter().filter(of_its).find_map(|by| {
            let ordinals = &by.status.as_ref()?.ordinals;
            let entry = |one: &'a OrdinalStatus| Some((one.ordinal, part(one, &name)?));
            ordinals.iter().find_map(entry).map(|(ordinal, part)| ManagedClaim {
                by,
                ordinal,
                part,
            })
        });
        told.or_else(|| {
            let by = label(claim)?;
            let by = all.iter().filter(of_its).find(|one| one.name_any() == by)?;
            let ordinal = claim.labels().get(ORDINAL)?.parse().ok()?;
            Some(ManagedClaim { by, ordinal, part: ClaimRole::Untold })
        })
    }

    /// The pod.
    pub fn pod(&self) -> String {
        self.by.pod_called(self.ordinal)
    }
}

fn part<'a>(entry: &'a OrdinalStatus, claim: &str) -> Option<ClaimRole<'a>> {
    if entry.active_claim == claim {
        return Some(ClaimRole::Active);
    }
    let swap = entry.swap.as_ref().filter(|swap| swap.claim == claim);
    let before = || entry.retained_claims.iter().find(|old| old.name == claim);
    swap.map(ClaimRole::Next).or_else(|| before().map(|old| ClaimRole::Before(old, entry)))
}

/// Name of the PvcAutoscaler in the label of a claim.
pub(super) fn label(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.labels().get(KEPT_BY).map(String::as_str)
}

/// Describes for people how long an old claim is retained.
pub(super) fn until(by: &PvcAutoscaler, old: &Retained) -> String {
    let retention = by.spec.retention;
    old.until(retention).map_or_else(
        || format!("for {retention} after that pod is ready"),
        |until| format!("until {until}"),
    )
}

/// Descriptions of volumes that swaps retain, by the ID of the volume.
pub(super) fn retained(by: &[PvcAutoscaler], volumes: &[PvSummary]) -> BTreeMap<String, String> {
    let of_its = |pv: &PvSummary| {
        let (volume, claim) = (pv.handle()?, pv.spec.claim_ref.as_ref()?);
        let words = by.iter().filter(|one| one.namespace().as_ref() == Some(&claim.namespace));
        let words = words.flat_map(|by| {
            let ordinals = by.status.iter().flat_map(|status| &status.ordinals);
            ordinals.filter_map(move |entry| {
                let mut before = entry.retained_claims.iter();
                let old = before.find(|old| {
                    old.name == claim.name && claim.uid.as_ref().is_none_or(|uid| *uid == old.uid)
                })?;
                let ClaimRef { namespace, name, .. } = &**claim;
                let (pod, until) = (by.pod_called(entry.ordinal), until(by, old));
                let what = if old.never_used {
                    format!("a copy for pod {pod} that was never used,")
                } else {
                    format!("which pod {pod} had before its swap,")
                };
                Some(format!("claim {namespace}/{name}, {what} is retained {until}"))
            })
        });
        Some((volume.to_owned(), words.into_iter().next()?))
    };
    volumes.iter().filter_map(of_its).collect()
}
