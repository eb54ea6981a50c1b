//! Proof that a copy is complete although no status refers to it: its PvcAutoscaler was deleted. Users of the
//! namespace can write to claims and populators, but not to PersistentVolumes.
//!
//! The PersistentVolume of the old claim names the claim that is populated from it as soon as the old volume was
//! proved unused; that of the new claim names the claim itself as soon as it has replaced the old one.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;

use crate::api::Swap;
use crate::claims::AutoscalerReason;
use crate::claims::adopt::is_made_for;
use crate::claims::context::{ClaimsController, pvs};
use crate::claims::detached_note::note;
use crate::claims::finalizer::pv_of;
use crate::claims::objects::{is_bound, is_copy, owner, uid};
use crate::claims::observed::ObservedWorkload;
use crate::claims::pod_plan::PodPlan;
use crate::claims::steps::Step;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{DETACHED_FOR, OnceEvent, writes};
use crate::populators::POPULATES;

impl ObservedWorkload {
    /// Returns true if a claim has all content of its source, or will have: the source was proved
    /// unused before.
    pub fn is_proved_complete(&self, claim: &PersistentVolumeClaim) -> bool {
        let mut notes = self.detached.values().filter_map(|note| note.copy.as_deref());
        notes.any(|copy| copy == uid(&claim.metadata))
    }

    /// Returns true if the PersistentVolume of a claim notes that another claim has its content.
    pub fn is_noted_for_another(&self, claim: &PersistentVolumeClaim) -> bool {
        let note = self.detached.get(&claim.name_any()).and_then(|note| note.copy.as_deref());
        note.is_some_and(|copy| copy != uid(&claim.metadata))
    }
}

/// Ensures a note on the PersistentVolume of a claim that the new claim is or becomes complete; returns true
/// if it exists.
pub(super) fn ensure_noted(plan: &mut PodPlan<'_>, swap: &Swap, claim: &str) -> bool {
    let Some(new) = plan.seen.claim(&swap.claim) else { return true };
    let copy = uid(&new.metadata).to_owned();
    let Some(note) = plan.seen.detached.get(claim) else { return true };
    let is_noted = note.copy.as_ref() == Some(&copy);
    let claim = claim.to_owned();
    plan.steps.extend((!is_noted).then_some(Step::NoteDetached { claim, copy }));
    is_noted
}

/// Writes or removes the note on the PersistentVolume of a claim about which claim has its content; only on
/// the observed PersistentVolume.
pub(super) async fn note_detached(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    claim: &str,
    copy: Option<&str>,
) -> Result<(), kube::Error> {
    let (Some(note), Some(claim)) = (seen.detached.get(claim), seen.claim(claim)) else {
        return Ok(());
    };
    let Some(pv) = pv_of(ctx, claim).await? else { return Ok(()) };
    write_note(ctx, &pv, copy, note.version.as_deref()).await
}

async fn write_note(
    ctx: &ClaimsController,
    pv: &PersistentVolume,
    copy: Option<&str>,
    version: Option<&str>,
) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {
        "uid": pv.metadata.uid, "resourceVersion": version, "annotations": { DETACHED_FOR: copy },
    }});
    writes::patch(&pvs(ctx), &pv.name_any(), &Patch::Merge(patch), OPERATOR).await
}

/// Notes on the PersistentVolume of a new claim that it has replaced the old one.
pub(super) async fn note_complete(
    ctx: &ClaimsController,
    copy: &PersistentVolumeClaim,
) -> Result<(), kube::Error> {
    let Some(pv) = pv_of(ctx, copy).await? else { return Ok(()) };
    let version = pv.resource_version();
    write_note(ctx, &pv, copy.metadata.uid.as_deref(), version.as_deref()).await
}

/// Returns the PersistentVolumes with a note for the claim of a uid, from a live read.
async fn noted_for(
    ctx: &ClaimsController,
    copy: &str,
) -> Result<Vec<PersistentVolume>, kube::Error> {
    let mut noted = Vec::new();
    for pv in ctx.watches.pvs_detached_for(copy) {
        let there = pvs(ctx).get_opt(&pv.name_any()).await?;
        noted.extend(there.filter(|there| note(there).is_some_and(|one| one == copy)));
    }
    Ok(noted)
}

/// Returns true if a PersistentVolume notes that a claim has all content of its source, or will
/// have.
pub(super) async fn is_proved_complete(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    Ok(!noted_for(ctx, uid(&claim.metadata)).await?.is_empty())
}

/// Returns true if a claim of a swap has a volume that a populator has populated.
pub(super) async fn is_filled(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    let pv = pv_of(ctx, claim).await?;
    Ok(pv.is_some_and(|pv| pv.annotations().get(POPULATES) == claim.metadata.uid.as_ref()))
}

/// Returns true if the PersistentVolumes of both claims note that another claim has replaced a
/// claim.
pub(super) async fn is_superseded(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    let copy = pv_of(ctx, claim).await?.and_then(|pv| note(&pv).cloned());
    let Some(copy) = copy.filter(|copy| copy != uid(&claim.metadata)) else {
        return Ok(false);
    };
    let noted = noted_for(ctx, &copy).await?;
    Ok(noted.iter().any(|pv| owner(pv) == Some(&copy)))
}

/// Returns true if a pod without a status has the claim of a swap that is not proved complete: it may lack
/// writes to the old one. An event on the pod reports that.
pub(super) async fn may_be_incomplete(
    ctx: &ClaimsController,
    pod: &Pod,
    volume: &str,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    let (pod_name, name) = (pod.name_any(), claim.name_any());
    if !is_copy(claim) || !is_made_for(&name, &format!("{volume}-{pod_name}")) {
        return Ok(false);
    }
    let is_proved = is_proved_complete(ctx, claim).await?;
    if is_proved && (!is_bound(claim) || is_filled(ctx, claim).await?) {
        return Ok(false);
    }
    let text = format!(
        "pod {pod_name} waits: claim {name} was created for a PvcAutoscaler that was deleted, and nothing \
             proves that it has everything that the pod has written. Create that PvcAutoscaler again, and the \
             pod gets the claim with the complete content; or delete the pod and have it use its previous \
             claim"
    );
    let reason = AutoscalerReason::AmbiguousClaimName;
    let event = OnceEvent::of(pod, (reason, reason.is_warning()), &name, &text);
    event.write(&ctx.client, OPERATOR).await?;
    Ok(true)
}
