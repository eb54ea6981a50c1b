//! Rolls a pod back to what it had before its last swap, on request: nothing is copied, and later writes are
//! not part of it. Pure.
//!
//! Its claim is left as an old one is in a swap: the pod is stopped, and its node proves that no process has
//! the volume open. Then the node of the previous volume removes its fence, and only after that the pod may
//! start. It waits behind a scheduling gate meanwhile.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscalerMode, AutoscalerPhase, RollbackStatus, Swap, SwapPhase};
use crate::claims::asked::digest;
use crate::claims::copy_state::{holds_up_pods, is_gone};
use crate::claims::objects::{in_seconds, is_bound, is_ending, uid};
use crate::claims::own_size::{shrinks_by_itself, take_back_shrink};
use crate::claims::phases::next::{Next, give_up};
use crate::claims::pod_plan::PodPlan;
use crate::claims::steps::Step;
use crate::claims::workload::may_begin;
use crate::claims::{AutoscalerReason, SUPERSEDED_BY};
use crate::cluster::Binding;

/// Returns true if the pod is to be rolled back, and nothing is in progress for that.
pub(super) fn is_to_return(plan: &PodPlan<'_>) -> bool {
    let returns = plan.entry.swap.as_ref().is_some_and(|swap| swap.is_rollback);
    plan.seen.is_wanted_back(&plan.entry) && !returns && !plan.entry.is_shrinking()
}

/// Returns true if a claim has the content for a requested or running rollback.
pub(super) fn is_needed_again(plan: &PodPlan<'_>, swap: Option<&Swap>, claim: &str) -> bool {
    let is_before = plan.entry.before().is_some_and(|before| before.name == claim);
    let is_its = |swap: &Swap| swap.is_rollback && swap.claim == claim;
    swap.is_some_and(is_its) || is_before && plan.seen.is_wanted_back(&plan.entry)
}

/// Returns true if the rollback can start now, or a swap is to be aborted for it.
pub(super) fn may_return(plan: &PodPlan<'_>, may_stop: usize) -> bool {
    let may = match plan.entry.swap.as_ref().map(|swap| swap.phase) {
        None | Some(SwapPhase::Failed) => may_begin(plan.seen) && may_stop > 0,
        // Its pod counts as stopped already.
        Some(SwapPhase::Soaking) => may_begin(plan.seen),
        Some(_) => true,
    };
    may && obstacle_to_return(plan).is_none()
}

/// Reports what a rollback would do, or what prevents it.
pub(super) fn tell_of_return(plan: &mut PodPlan<'_>) {
    if let Some(why) = obstacle_to_return(plan) {
        return plan.wait(AutoscalerReason::RollbackPending, why);
    }
    let is_recommended = plan.seen.autoscaler.spec.mode == AutoscalerMode::DryRun;
    plan.says.phase =
        Some(if is_recommended { AutoscalerPhase::DryRun } else { AutoscalerPhase::Waiting });
    let before = plan.entry.before().map(|before| before.name.clone());
    plan.says.planned_action = before.map(|before| what_is_left(plan, &before));
}

fn obstacle_to_return(plan: &PodPlan<'_>) -> Option<String> {
    let Some(before) = plan.entry.before() else {
        return Some(format!(
            "pod {} is to be rolled back from claim revision {}, but what it had before is no longer retained: \
             remove the pod from spec.rollback",
            plan.pod(),
            plan.entry.claim_revision
        ));
    };
    lacks_before(plan, &before.name, &before.uid).or_else(|| lacks_webhook(plan))
}

/// Turns to a rollback from any phase of a swap: an unfinished one is aborted first.
pub(super) fn turn_round(
    plan: &mut PodPlan<'_>,
    swap: Option<Swap>,
    may_stop: &mut usize,
) -> Option<(Swap, Next)> {
    match swap {
        Some(swap) if matches!(swap.phase, SwapPhase::RollingBack | SwapPhase::Rebinding) => {
            let next = Next::Enter(swap.phase);
            Some((swap, next))
        }
        Some(mut swap) if !matches!(swap.phase, SwapPhase::Failed | SwapPhase::Soaking) => {
            let next = give_up(plan, &mut swap, "requested in spec.rollback");
            Some((swap, next))
        }
        last => {
            // The pod of one that soaks counts as stopped already.
            if last.as_ref().is_none_or(|last| last.phase == SwapPhase::Failed) {
                *may_stop -= 1;
            }
            match begin_return(plan, last.as_ref()) {
                Some(swap) => Some((swap, Next::Enter(SwapPhase::Pending))),
                None => last.map(|last| (last, Next::Wait)),
            }
        }
    }
}

/// Counts earlier requests as done if the status does not show any yet: an earlier version did not store them,
/// and it is unknown whether they came too late.
pub(super) fn note_wishes_before(plan: &mut PodPlan<'_>) {
    let (ordinal, revision) = (plan.entry.ordinal, plan.entry.claim_revision);
    let asked = plan.seen.autoscaler.spec.rollback.iter();
    let asked = asked.filter(|back| back.ordinal == ordinal && back.claim_revision < revision);
    let done = || asked.map(|back| back.claim_revision).max().unwrap_or_default();
    if !plan.seen.names_claims() {
        plan.entry.last_rollback_revision.get_or_insert_with(done);
    }
}

/// Reports a rollback request that came too late, until it is removed from the specification: the swap could
/// not be aborted any more, so the pod has another claim revision now.
pub(super) fn report_late_return(plan: &mut PodPlan<'_>) {
    let (ordinal, revision) = (plan.entry.ordinal, plan.entry.claim_revision);
    let asked = plan.seen.autoscaler.spec.rollback.iter();
    let asked = asked.filter(|back| back.ordinal == ordinal && back.claim_revision < revision);
    let asked = asked.map(|back| Some(back.claim_revision)).max().flatten();
    let Some(late) = asked.filter(|_| asked > plan.entry.last_rollback_revision) else {
        return;
    };
    let message = too_late_to_return(plan, late, revision);
    plan.add_event(AutoscalerReason::RollbackPending, &late.to_string(), message.clone());
    match plan.says.problem.take() {
        None => plan.wait(AutoscalerReason::RollbackPending, message),
        Some((reason, why)) => plan.wait(reason, format!("{why}; {message}")),
    }
}

fn too_late_to_return(plan: &PodPlan<'_>, late: i64, now: i64) -> String {
    let (name, namespace) =
        (plan.seen.autoscaler.name_any(), plan.seen.autoscaler.namespace().unwrap_or_default());
    let ordinal = plan.entry.ordinal;
    format!(
        "pod {} was to be rolled back from claim revision {late}, but it has revision {now} with complete \
         content, so nothing was done. To restore what the pod had before that, set claimRevision {now} in \
         spec.rollback: `kubectl patch pvcautoscaler {name} --namespace {namespace} --type=merge \
         -p '{{\"spec\":{{\"rollback\":[{{\"ordinal\":{ordinal},\"claimRevision\":{now}}}]}}}}'`; otherwise \
         remove revision {late} from it",
        plan.pod()
    )
}

/// Starts a rollback to what the pod had before, in place of its last swap; `None` if that is not retained.
pub(super) fn begin_return(plan: &mut PodPlan<'_>, last: Option<&Swap>) -> Option<Swap> {
    let before = plan.entry.before_mut()?;
    before.fence = None; // It is to be opened, and no longer to be closed.
    let (claim, claim_uid) = (before.name.clone(), Some(before.uid.clone()));
    // Where the claim retains its name, the two exchange volumes, and neither claim changes.
    let active_claim_uid = uid_of_active(plan, last).filter(|_| !plan.seen.makes_claims());
    plan.says.planned_action = Some(what_is_left(plan, &claim));
    (plan.entry.peak_usage, plan.entry.shrink) = (None, None);
    Some(Swap {
        claim,
        claim_uid,
        active_claim_uid,
        preserves_name: plan.seen.makes_claims(),
        is_rollback: true,
        spec_generation: plan.seen.generation(),
        summary: format!("rollback from claim revision {}", plan.entry.claim_revision),
        start_time: Some(Time(in_seconds(plan.seen.now))),
        ..Swap::default()
    })
}

/// Uid of the active claim, also of one that was deleted in the midst of a swap.
fn uid_of_active(plan: &PodPlan<'_>, last: Option<&Swap>) -> Option<String> {
    let active = &plan.entry.active_claim;
    let there = || plan.seen.claim(active).map(|claim| uid(&claim.metadata));
    let known = last.and_then(|swap| swap.known_uid(active, active));
    known.or_else(there).map(str::to_owned)
}

/// True if the claim was deleted that a swap has given the pod, so that this starts no more: nothing makes that
/// claim again, which would have nothing of its content.
pub(super) fn has_lost_claim(plan: &PodPlan<'_>, swap: &Swap) -> bool {
    let active = &plan.entry.active_claim;
    let is_lost = plan.seen.claim(active).is_none() || holds_up_pods(plan.seen, active);
    is_lost && !swap.preserves_name
}

/// Starts with an empty claim, because the present and the previous claim are gone, unless another client's
/// claim has the name.
pub(super) fn begin_anew(plan: &mut PodPlan<'_>) -> Next {
    let active = plan.entry.active_claim.clone();
    if !plan.seen.taken.contains_key(&active) {
        return Next::End;
    }
    let message = format!(
        "claim {active} of pod {} was deleted, and so was its previous claim. Another client created the \
         claim that has the name now, so the pod does not get it. Delete it, and the pod starts with an \
         empty claim: `kubectl delete pvc {active}`",
        plan.pod()
    );
    plan.wait(AutoscalerReason::ClaimConflict, message);
    Next::Wait
}

/// Returns why a pod is rolled back without a request.
pub(super) fn lost_claim(plan: &PodPlan<'_>, before: &str) -> String {
    let active = &plan.entry.active_claim;
    let taken = if plan.seen.taken.contains_key(active) {
        "; another client created the claim that has the name now, so that claim is not used"
    } else {
        ""
    };
    format!(
        "claim {active} of pod {} was deleted before the pod was ready with it, so the pod gets claim {before} \
         again, as it was before the swap{taken}",
        plan.pod()
    )
}

/// Describes the rollback for users.
pub(super) fn what_is_left(plan: &PodPlan<'_>, before: &str) -> String {
    let (pod, from) = (plan.pod(), &plan.entry.active_claim);
    let since = plan.entry.last_swap.as_ref().and_then(|last| last.completion_time.as_ref());
    let since = since.map(|Time(at)| format!(" since {}", in_seconds(*at))).unwrap_or_default();
    let what = if plan.seen.makes_claims() {
        format!("claim {from} gets the volume of claim {before} again")
    } else {
        format!("it gets claim {before} again in place of {from}")
    };
    let rest = if is_gone(plan.seen, from) {
        format!("is lost with claim {from}")
    } else {
        format!("is retained for {}", plan.seen.autoscaler.spec.retention)
    };
    format!(
        "pod {pod} is stopped, and {what}, as it was; what was written{since} is not in it, and {rest}"
    )
}

/// Returns why a previous claim cannot be used again.
pub(super) fn lacks_before(plan: &PodPlan<'_>, claim: &str, uid: &str) -> Option<String> {
    let there = plan.seen.claim(claim).filter(|there| self::uid(&there.metadata) == uid);
    let what = format!("claim {claim}, which has the previous content of pod {},", plan.pod());
    let why = match there {
        Some(there) if !is_ending(&there.metadata) && is_bound(there) => return None,
        Some(there) if !is_ending(&there.metadata) => lacks_volume(there),
        _ => "was deleted".to_owned(),
    };
    let is_asked = plan.seen.is_wanted_back(&plan.entry);
    let instead = if is_asked { "; or remove the pod from spec.rollback" } else { "" };
    Some(format!("{what} {why}{instead}"))
}

/// Returns why the webhook cannot delay a pod that starts meanwhile.
fn lacks_webhook(plan: &PodPlan<'_>) -> Option<String> {
    let why = plan.seen.coverage.lacks()?;
    Some(format!("the start of pod {} cannot be delayed meanwhile: {why}", plan.pod()))
}

/// Removes the annotation of the active claim that another one has replaced it: a late decision of another
/// replica may have set it. If its node confirms that, it may be true: a user has changed how the newer one is
/// found.
pub(super) fn reinstate(plan: &mut PodPlan<'_>) {
    let phase = plan.entry.swap.as_ref().map(|swap| swap.phase);
    if plan.seen.superseded.contains_key(&plan.entry.active_claim) {
        return;
    }
    if matches!(phase, None | Some(SwapPhase::Soaking | SwapPhase::Failed)) {
        let active = plan.entry.active_claim.clone();
        ensure_reinstated(plan, &active);
    }
}

/// Stores the rollback, so that the template does not undo it.
pub(super) fn note_return(plan: &mut PodPlan<'_>) {
    let template_hash = digest(&plan.seen.autoscaler.spec);
    plan.entry.last_rollback_revision = Some(plan.entry.claim_revision - 1);
    plan.entry.rollback =
        Some(RollbackStatus { start_time: Time(in_seconds(plan.seen.now)), template_hash });
    plan.entry.last_swap = None; // The status may refer to the same claim.
    plan.entry.template_size = None; // What it has is as large as it was then.
    if shrinks_by_itself(plan) {
        take_back_shrink(plan);
    }
}

/// Removes the annotation that another claim has replaced this one; returns true once it is gone.
pub(super) fn ensure_reinstated(plan: &mut PodPlan<'_>, claim: &str) -> bool {
    let there = plan.seen.claim(claim);
    let is_marked = there.is_some_and(|it| {
        it.annotations().contains_key(SUPERSEDED_BY) || plan.seen.is_noted_for_another(it)
    });
    plan.steps.extend(is_marked.then(|| Step::Reinstate { claim: claim.to_owned() }));
    !is_marked
}

/// Forgets a rollback once the template was edited.
pub(super) fn forget_return(plan: &mut PodPlan<'_>) {
    if !plan.seen.is_rolled_back(&plan.entry) {
        plan.entry.rollback = None;
    }
}

/// Waits, and returns true, if the claim stays unchanged despite the template, because it was rolled back.
pub(super) fn wait_if_rolled_back(plan: &mut PodPlan<'_>) -> bool {
    let is_back = plan.seen.is_rolled_back(&plan.entry);
    if is_back {
        plan.says.phase = Some(AutoscalerPhase::Waiting);
        let message = format!(
            "pod {} was rolled back, and is not changed until the template is edited: set the template to \
             what claim {} has, or to the new desired state",
            plan.pod(),
            plan.entry.active_claim
        );
        plan.wait(AutoscalerReason::RolledBack, message);
    }
    is_back
}

/// Returns why a claim that was not deleted has no volume, with the remediation.
fn lacks_volume(claim: &PersistentVolumeClaim) -> String {
    if Binding::of(claim) != Binding::Lost {
        return "is not bound yet: see `kubectl describe pvc` for it".to_owned();
    }
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    format!(
        "is Lost, because its PersistentVolume {} was deleted: create that again as it was, for example from a \
         backup, with uid {} in spec.claimRef, and the claim is bound to it again",
        volume.unwrap_or("NAME"),
        uid(&claim.metadata)
    )
}
