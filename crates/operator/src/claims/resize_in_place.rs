//! Shrinks a claim in place, under its own name. Pure.
//!
//! Its node shrinks the volume and limits its size. Then the PersistentVolume and the claim get a size
//! that is a byte less, so that the resizer of Kubernetes requests the size itself once more and
//! completes its state; only then the node removes the limit. No earlier request can interfere: the
//! driver rejects it.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscalerMode, AutoscalerPhase, InPlace, InPlacePhase, Quantity};
use crate::claims::AutoscalerReason;
use crate::claims::objects::{bounded, has_ended, in_seconds, is_bound};
use crate::claims::others::is_in_partition;
use crate::claims::own_size::{shrinks_by_itself, take_back_shrink};
use crate::claims::pod_plan::PodPlan;
use crate::claims::steps::Step;
use crate::claims::users::pods_with;
use crate::cluster::{ClaimSizes, NodeOperation, NotDone, VolumeSeen, is_resizing};
use crate::volume::{Mode, Reason, Shrinks};

/// How a claim becomes smaller that is only too large: one decision for the operator, and for those who tell what it
/// would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shrinking {
    /// In place, under its name.
    InPlace,
    /// In place, as soon as no pod has it.
    InPlaceWithoutPod,
    /// By a copy that takes its place.
    BySwap,
}

impl Shrinking {
    /// Decides by what the volume can. `names_claims` if the pods name the claim themselves, so that no other one can
    /// take its place.
    pub fn of(shrinks: Shrinks, has_pod: bool, names_claims: bool) -> Shrinking {
        match shrinks {
            Shrinks::Mounted => Shrinking::InPlace,
            Shrinks::Unmounted if !has_pod => Shrinking::InPlace,
            Shrinks::Unmounted if names_claims => Shrinking::InPlaceWithoutPod,
            Shrinks::Unmounted | Shrinks::Never => Shrinking::BySwap,
        }
    }
}
fn only_unmounted(volume: &VolumeSeen) -> bool {
    matches!(volume.mode, Some(Mode::Filesystem(kind)) if kind.shrinks() == Shrinks::Unmounted)
}

/// Returns true if a retry on the node would change nothing.
fn is_final(reason: Reason) -> bool {
    !matches!(reason, Reason::Unavailable | Reason::InProgress | Reason::InUse)
}

/// Returns how a claim becomes smaller; `None` if its node has not reported its volume.
pub(super) fn way_of(plan: &PodPlan<'_>, claim: &PersistentVolumeClaim) -> Option<Shrinking> {
    let shrinks = match plan.seen.volumes.get(&claim.name_any())? {
        Some(volume) => match volume.mode? {
            Mode::Filesystem(kind) => kind.shrinks(),
            Mode::Block => Shrinks::Never,
        },
        None => Shrinks::Never,
    };
    Some(Shrinking::of(shrinks, has_pod(plan), plan.seen.names_claims()))
}

/// Returns true if the claim can shrink now without a swap.
pub(super) fn can_shrink_in_place(plan: &PodPlan<'_>) -> bool {
    let claim = plan.seen.claim(&plan.entry.active_claim);
    claim.and_then(|claim| way_of(plan, claim)) == Some(Shrinking::InPlace)
}

/// Returns true if any pod uses the claim.
fn has_pod(plan: &PodPlan<'_>) -> bool {
    pods_with(plan.seen, &plan.entry.active_claim).any(|pod| !has_ended(pod))
}

/// Returns true if its node has rejected the shrink for the present specification.
pub(super) fn has_failed_in_place(plan: &PodPlan<'_>) -> bool {
    plan.entry.shrink.as_ref().is_some_and(|shrink| shrink.phase == InPlacePhase::Failed)
}

pub(super) fn begin_in_place(
    plan: &mut PodPlan<'_>,
    to: Quantity,
    change: String,
    may_stop: &mut usize,
) {
    let name = plan.entry.active_claim.clone();
    plan.says.phase = Some(AutoscalerPhase::Waiting);
    plan.says.planned_action =
        Some(format!("claim {name} shrinks in place ({change}); its pod continues to run"));
    if plan.seen.autoscaler.spec.mode == AutoscalerMode::DryRun {
        plan.says.phase = Some(AutoscalerPhase::DryRun);
    }
    let is_labelled = plan.seen.claim(&name).is_some_and(|claim| plan.seen.keeps(claim));
    if *may_stop == 0 || !is_in_partition(plan) || !is_labelled {
        return;
    }
    *may_stop -= 1;
    plan.entry.shrink = Some(InPlace {
        phase: InPlacePhase::Shrinking,
        size: to,
        summary: change,
        spec_generation: plan.seen.generation(),
        automatic: shrinks_by_itself(plan),
        start_time: Some(Time(in_seconds(plan.seen.now))),
        message: None,
    });
    plan.entry.peak_usage = None;
}

/// Continues a shrink; returns it once it has ended.
pub(super) fn shrink_in_place(plan: &mut PodPlan<'_>) -> Option<InPlace> {
    let shrink = plan.entry.shrink.clone()?;
    let (seen, name) = (plan.seen, plan.entry.active_claim.clone());
    let claim = seen.claim(&name).filter(|claim| is_bound(claim));
    let (Some(claim), Some(volume)) = (claim, seen.volume_of(&name)) else {
        // With its volume all of it has gone; what is not known yet is known at the next look.
        let is_gone = claim.is_none() || matches!(seen.volumes.get(&name), Some(None));
        plan.entry.shrink = Some(shrink).filter(|_| !is_gone);
        return None;
    };
    plan.says.phase = Some(AutoscalerPhase::Shrinking);
    plan.says.progress = Some(format!("claim {name} shrinks in place ({})", shrink.summary));
    match shrink.phase {
        InPlacePhase::Shrinking => have_volume_shrunk(plan, volume, &shrink),
        InPlacePhase::UpdatingClaim => match ClaimSizes::of(claim) {
            Ok(sizes) if sizes.requested > shrink.size => {
                plan.steps.push(Step::TellSmaller { claim: name, to: shrink.size });
            }
            Ok(sizes) if sizes.capacity >= shrink.size && !is_resizing(claim) => {
                set_phase(plan, InPlacePhase::Unpinning);
            }
            Ok(_) | Err(_) => {}
        },
        InPlacePhase::Unpinning => {
            if have_volume_released(plan, volume) {
                return plan.entry.shrink.take();
            }
        }
        InPlacePhase::Failed | InPlacePhase::Unknown => {}
    }
    None
}

fn set_phase(plan: &mut PodPlan<'_>, phase: InPlacePhase) {
    if let Some(shrink) = &mut plan.entry.shrink {
        shrink.phase = phase;
    }
}

fn have_volume_shrunk(plan: &mut PodPlan<'_>, volume: &VolumeSeen, shrink: &InPlace) {
    let begun = shrink.start_time.as_ref().map_or(plan.seen.now, |Time(at)| *at);
    let wish = NodeOperation::Shrink { to: shrink.size.0, begun };
    match volume.answer_to(&wish) {
        Some(Ok(_)) => return set_phase(plan, InPlacePhase::UpdatingClaim),
        // A new pod prevents the shrink, and nothing has started; or the last pod has ended, and its
        // kubelet has not released the volume yet.
        Some(Err(NotDone { reason: Reason::InUse, .. }))
            if has_pod(plan) && only_unmounted(volume) =>
        {
            plan.entry.shrink = None;
            return;
        }
        // One that has begun is brought to its end.
        Some(Err(NotDone { reason, why })) if is_final(*reason) && !volume.is_limited => {
            let why = why.clone();
            return fail_in_place(plan, &why, shrink);
        }
        Some(Err(NotDone { why, .. })) => {
            let message =
                format!("volume {} of pod {} has not shrunk yet: {why}", volume.id, plan.pod());
            plan.wait(AutoscalerReason::ShrinkPending, message);
        }
        None => {}
    }
    plan.ask_for(volume, wish);
}

fn fail_in_place(plan: &mut PodPlan<'_>, why: &str, shrink: &InPlace) {
    let text = format!(
        "claim {} of pod {} was not shrunk in place ({}) and is unchanged: {why}",
        plan.entry.active_claim,
        plan.pod(),
        shrink.summary
    );
    plan.add_event(AutoscalerReason::ShrinkFailed, &shrink.size.to_string(), text);
    if shrink.automatic {
        plan.entry.shrink = None;
        return take_back_shrink(plan);
    }
    let message = Some(bounded(why));
    plan.entry.shrink = Some(InPlace { phase: InPlacePhase::Failed, message, ..shrink.clone() });
}

/// Has the node remove the limit of the size; returns true once it has.
fn have_volume_released(plan: &mut PodPlan<'_>, volume: &VolumeSeen) -> bool {
    match volume.answer_to(&NodeOperation::Release) {
        Some(Ok(_)) => return true,
        Some(Err(NotDone { why, .. })) => {
            let message = format!(
                "volume {} of pod {} was shrunk, but cannot grow again yet: {why}",
                volume.id,
                plan.pod()
            );
            plan.wait(AutoscalerReason::ShrinkPending, message);
        }
        None => {}
    }
    plan.ask_for(volume, NodeOperation::Release);
    false
}

/// Forgets a failure once the specification has changed.
pub(super) fn forget_failure_in_place(plan: &mut PodPlan<'_>) {
    let now = plan.seen.generation();
    let is_over =
        |shrink: &InPlace| shrink.phase == InPlacePhase::Failed && shrink.spec_generation != now;
    plan.entry.shrink.take_if(|shrink| is_over(shrink));
}

/// Returns why the claim stays larger than desired, if its node has rejected the shrink.
pub(super) fn failure_in_place(plan: &PodPlan<'_>) -> Option<String> {
    let shrink = plan.entry.shrink.as_ref()?;
    Some(format!("it was not shrunk in place: {}", shrink.message.clone()?))
}
