//! The status of a source that no claim in progress writes.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;

use crate::api::{Filling, PopulatorStatus, is_understood};
use crate::cluster::{Binding, ClaimSummary};
use crate::populators::PopulationSource;
use crate::populators::apply::{judged_source, writer};
use crate::populators::conditions::has_failed;
use crate::populators::observed::{is_ending, uid};
use crate::populators::populator::{AGAIN, Populator, is_open};

/// Returns the status of a source, if it differs and no claim in progress writes it: the source is new, its spec
/// was edited, or one of its claims is gone.
pub(super) fn settled_status<S: PopulationSource>(
    populator: &Populator<S>,
    source: &S,
) -> Option<PopulatorStatus> {
    let (namespace, name) = (source.namespace().unwrap_or_default(), source.name_any());
    if is_ending(source.meta()) || !populator.watches.claims().decodes_all_of(&namespace) {
        return None;
    }
    let before = source.status().cloned().unwrap_or_default();
    let mut after = before.clone();
    let its = populator.watches.claims_filled_from::<S>(&namespace, &name);
    // What has ended is evidence as long as its claim exists, also if that claim, restored from a backup, no longer
    // names its source. A claim that has another volume is populated by somebody else.
    let is_its = |one: &Filling| {
        let of_its_name = populator.watches.claims().get_in(&namespace, &one.name);
        let claim = of_its_name.filter(|claim| *claim.names.uid == *one.uid);
        claim.is_some_and(|claim| one.phase.is_final() || is_open::<S>(&claim))
    };
    after.claims.retain(is_its);
    let generation = source.meta().generation.unwrap_or_default();
    let is_at_rest = |claim: &ClaimSummary| {
        let told = after.of(&claim.names.uid);
        !is_open::<S>(claim) || told.is_some_and(|told| has_failed(told, generation))
    };
    let has_gone = after.claims.len() < before.claims.len();
    if !has_gone && !its.iter().all(|claim| is_at_rest(claim)) {
        return None;
    }
    let after = judged_source(populator, after, source);
    (source.status() != Some(&after) && is_understood(&before)).then_some(after)
}

/// Returns the rest of the time in which the first claim of a new source may be created, and writes the status.
pub(super) fn time_for_first_claim<S: PopulationSource>(
    populator: &Populator<S>,
    source: &S,
) -> Option<Duration> {
    let created = source.meta().creation_timestamp.as_ref().map(|time| time.0)?;
    let age = Duration::try_from(populator.now().duration_since(created)).unwrap_or_default();
    let left = AGAIN.saturating_sub(age);
    (source.status().is_none() && !left.is_zero()).then_some(left)
}

/// Writes the status of a source as it was determined, unless something has changed since.
pub(super) async fn settle<S: PopulationSource>(
    populator: &Populator<S>,
    source: &S,
    status: &PopulatorStatus,
) -> Result<(), kube::Error> {
    let claims = populator.of::<PersistentVolumeClaim>(source.meta());
    let before = source.status().map(|status| &status.claims[..]).unwrap_or_default();
    for gone in before.iter().filter(|one| status.of(&one.uid).is_none()) {
        // Another replica may have seen it first.
        let there = claims.get_opt(&gone.name).await?;
        if there.is_some_and(|there| {
            *uid(&there.metadata) == *gone.uid && Binding::of(&there) == Binding::Pending
        }) {
            return Ok(());
        }
    }
    let version = &source.meta().resource_version;
    let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
    let api = populator.of::<S>(source.meta());
    api.patch_status(&source.name_any(), &writer(), &Patch::Merge(patch)).await.map(drop)
}
