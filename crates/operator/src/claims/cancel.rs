//! Aborts a swap whose copy has not failed: because a person requests it, because its template was edited back, or
//! because no copy starts while the pod is down. Pure.
//!
//! A pod may wait for the new claim, which has a volume as soon as a copy is complete. So that claim is deleted
//! first, and only while it has no volume; the old one is returned when nothing can be written to the new one any
//! more. If a copy completes before that, the swap continues.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::api::{
    AbortReason, AbortedSwap, AutoscalerPhase, Filling, FillingPhase, Swap, SwapPhase,
};
use crate::claims::AutoscalerReason;
use crate::claims::asked::{digest, is_wanted_aborted};
use crate::claims::attempt::attempt;
use crate::claims::copy_state::{is_filled, is_going};
use crate::claims::objects::{bounded, drop_as_seen, in_seconds, is_bound, is_copy, is_ending};
use crate::claims::own_size::take_back_shrink;
use crate::claims::phases::next::{Next, give_up};
use crate::claims::pod_plan::PodPlan;
use crate::claims::users::writers;
use crate::populators::PopulatorReason;

/// Maximum downtime of a pod while nothing copies its claim. A node restarts in less, and Kubernetes needs less,
/// six minutes, to detach a volume from a node that does not respond; that the copying pod can be created and
/// runs was probed before.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// Time after which a slow exchange is reported.
const SLOW: SignedDuration = SignedDuration::from_mins(1);

/// Returns true if a swap can still be aborted: its pod does not have the new volume yet.
pub fn can_be_aborted(phase: SwapPhase) -> bool {
    !matches!(phase, SwapPhase::Rebinding | SwapPhase::Soaking | SwapPhase::Unknown)
}

impl AutoscalerReason {
    /// Returns the reason why a claim is not populated, if a person may have to act.
    pub(super) fn of_filling(filling: &Filling) -> Option<AutoscalerReason> {
        let named = filling.reason.as_deref()?;
        let known = PopulatorReason::ALL.into_iter().find(|one| one.to_string() == named)?;
        Some(match known {
            PopulatorReason::PopulatorPodPending => AutoscalerReason::PopulatorPodPending,
            PopulatorReason::PopulatorCreationError => AutoscalerReason::PopulatorCreationError,
            PopulatorReason::PopulatorRescheduled => AutoscalerReason::PopulatorRescheduled,
            PopulatorReason::PopulatorRetrying => AutoscalerReason::PopulatorRetrying,
            PopulatorReason::SourceInUse => AutoscalerReason::ClaimInUse,
            PopulatorReason::VolumeNotFenced => AutoscalerReason::VolumeNotFenced,
            _ => return None,
        })
    }
}

fn edited_back(claim: &str) -> String {
    format!("the template was edited back to what claim {claim} has")
}

fn not_bound(claim: &str) -> String {
    format!(
        "claim {claim} is populated but not bound to its volume yet: see `kubectl describe pvc {claim}`, and \
         check that the node of its volume responds"
    )
}

/// What did not happen during the downtime of the pod.
const NOT_COPIED: &str = "nothing was copied";
const NOT_GONE_ON: &str = "the swap made no progress";

fn too_long(what: &str, cause: Option<&String>) -> String {
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    format!("the pod was down for {} minutes and {what}{cause}", LONGEST_WAIT.as_mins())
}

/// Returns true if the present swap is to be aborted, and can be.
pub(super) fn is_to_abort(plan: &PodPlan<'_>) -> bool {
    let phase = plan.entry.swap.as_ref().map(|swap| swap.phase);
    // A rollback after a lost claim leaves the pod nothing else to use.
    let is_lost = plan.seen.taken.contains_key(&plan.entry.active_claim);
    phase.is_some_and(can_be_aborted)
        && !is_lost
        && is_wanted_aborted(&plan.seen.autoscaler.spec, &plan.entry)
}

/// Aborts the swap in any phase; no other one starts before the template is edited.
pub(super) fn abort(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    let (phase, returns) = (swap.phase, swap.is_rollback);
    swap.abort_reason = Some(AbortReason::Requested);
    let why = "requested in spec.abort";
    match phase {
        SwapPhase::Failed => {
            plan.says.phase = Some(AutoscalerPhase::Waiting);
            end_cancelled(plan, swap)
        }
        SwapPhase::RollingBack => Next::Enter(phase),
        SwapPhase::Draining | SwapPhase::Fenced | SwapPhase::FinalCopy if !returns => {
            swap.message = Some(why.to_owned());
            Next::Enter(phase)
        }
        _ => give_up(plan, swap, why),
    }
}

/// Returns true if the desired state is what the claim already has.
pub(super) fn is_edited_back(plan: &PodPlan<'_>) -> bool {
    let active = plan.seen.claim(&plan.entry.active_claim);
    let is_there = active.filter(|claim| is_bound(claim) && !is_ending(&claim.metadata));
    is_there.is_some_and(|claim| !plan.wants_another(claim))
}

/// Aborts a swap whose pod still runs, because the template was edited back.
pub(super) fn give_up_edited_back(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    swap.abort_reason = Some(AbortReason::TemplateEdited);
    let why = edited_back(&plan.entry.active_claim);
    give_up(plan, swap, &why)
}

/// Cancels the swap if there is a cause to, with its pod stopped; returns what follows then.
pub(super) fn ensure_cancelled(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    from: &str,
    filling: &Filling,
) -> Option<Next> {
    let name = swap.claim.clone();
    // Also one whose label was taken off.
    let is_its = |claim: &&PersistentVolumeClaim| plan.seen.keeps(claim) || is_copy(claim);
    let claim = plan.seen.claim(&name).filter(is_its);
    let claim = claim.filter(|claim| !is_ending(&claim.metadata));
    let is_ours = filling.phase == FillingPhase::Binding || is_filled(plan.seen, &name);
    if claim.is_some_and(is_bound) && is_ours {
        swap.abort_reason = None;
        // It has all of it: a pod may start with it.
        note_downtime(plan, swap, from, filling.phase != FillingPhase::Binding);
        return None;
    }
    if swap.abort_reason.is_none() {
        let (how, mut why) = cause_to_cancel(plan, swap, from, filling)?;
        if claim.is_some_and(is_bound) {
            why = format!(
                "{why}; another client bound claim {name}, whose volume was not populated by a copy"
            );
        }
        (swap.abort_reason, swap.message) = (Some(how), Some(bounded(&why)));
    }
    // Nothing can be written into it any more, and what another client has bound is not deleted.
    let Some(claim) = claim.filter(|claim| !is_bound(claim)) else {
        let why = swap.message.clone().unwrap_or_default();
        return Some(give_up(plan, swap, &why));
    };
    plan.says.progress = Some(format!("pod {}: claim {name} is being deleted", plan.pod()));
    plan.steps.push(drop_as_seen(claim));
    Some(Next::Wait)
}

/// Returns why the swap is to be cancelled, as long as no copy is running.
fn cause_to_cancel(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    from: &str,
    filling: &Filling,
) -> Option<(AbortReason, String)> {
    let goes_on = match filling.phase {
        FillingPhase::Populating => filling.reason.is_none(),
        FillingPhase::Succeeded => !is_going(plan.seen, &swap.claim),
        _ => false,
    };
    let is_copied = filling.phase == FillingPhase::Binding;
    if !goes_on && !is_copied && is_edited_back(plan) {
        return Some((AbortReason::TemplateEdited, edited_back(from)));
    }
    let is_tried_again =
        filling.next_retry_time.as_ref().is_some_and(|Time(at)| *at > plan.seen.now);
    if !note_downtime(plan, swap, from, goes_on || is_tried_again) {
        return None;
    }
    swap.reason.clone_from(&filling.reason);
    swap.failures += 1;
    let why = if is_copied {
        too_long(NOT_GONE_ON, Some(&not_bound(&swap.claim)))
    } else {
        too_long(NOT_COPIED, filling.message.as_ref().or(plan.told_before()))
    };
    Some((AbortReason::NoProgress, why))
}

/// Returns why an exchange that does not start is aborted: the downtime of the pod is too long.
pub(super) fn note_slow_exchange(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    from: &str,
) -> Option<String> {
    if !note_downtime(plan, swap, from, false) {
        return None;
    }
    let why = too_long(NOT_GONE_ON, plan.told_before());
    if !swap.is_rollback {
        (swap.abort_reason, swap.failures) = (Some(AbortReason::NoProgress), swap.failures + 1);
    }
    Some(why)
}

/// Reports what a stopped pod waits for whose swap can only continue, once that takes more than seconds.
pub(super) fn report_slow_exchange(plan: &mut PodPlan<'_>, swap: &Swap, why: &str) {
    let now = plan.seen.now;
    let since = swap.wait_start_time.as_ref();
    let since = since.map(|Time(since)| *since);
    let is_slow = since.is_some_and(|since| now.duration_since(since) >= SLOW);
    if !is_slow || plan.says.problem.is_some() {
        return;
    }
    let active = &plan.entry.active_claim;
    let refused = plan.seen.refusal.as_ref().filter(|refused| refused.claim == *active);
    let refused = refused.map_or_else(String::new, |refused| format!(": {}", refused.why));
    let message = format!("pod {} is stopped and waits: {why}{refused}", plan.pod());
    plan.tell_of_lack(AutoscalerReason::RebindPending, &message);
    plan.wait(AutoscalerReason::RebindPending, message);
}

/// Reports why a populated claim is not bound to its volume.
pub(super) fn report_slow_binding(plan: &mut PodPlan<'_>, swap: &Swap, filling: &Filling) {
    if filling.phase == FillingPhase::Binding {
        report_slow_exchange(plan, swap, &not_bound(&swap.claim));
    }
}

/// Returns true if the downtime of the pod exceeds the maximum without progress.
pub(super) fn note_downtime(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    from: &str,
    goes_on: bool,
) -> bool {
    let pod = plan.pod();
    let runs = writers(plan.seen, from).iter().any(|one| one.name_any() == pod);
    let now = plan.seen.now;
    if runs || goes_on {
        swap.wait_start_time = None;
        return false;
    }
    let Time(since) = swap.wait_start_time.get_or_insert(Time(in_seconds(now)));
    now.duration_since(*since) >= LONGEST_WAIT
}

/// Returns why a rollback is reverted if its downtime is too long.
pub(super) fn note_slow_return(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    from: &str,
) -> Option<String> {
    note_downtime(plan, swap, from, false).then(|| too_long(NOT_GONE_ON, plan.told_before()))
}

/// Reports what prevents the new claim from being populated.
pub(super) fn tell_of_filling(plan: &mut PodPlan<'_>, swap: &Swap, filling: &Filling) {
    let Some(reason) = AutoscalerReason::of_filling(filling) else { return };
    let pod = plan.pod();
    let how = match (&swap.pod_stop_time, &swap.wait_start_time) {
        (None, _) => format!("pod {pod} is not stopped until its claim can be copied"),
        (Some(_), Some(Time(since))) => {
            let until = since.checked_add(LONGEST_WAIT).unwrap_or(*since);
            format!(
                "pod {pod} is stopped, and gets its old claim back at {until} if no copy has started"
            )
        }
        (Some(_), None) => format!("pod {pod} is stopped"),
    };
    let why = filling.message.clone().unwrap_or_default();
    let message = format!("{how}: {why}; `kubectl pliant abort` aborts the swap");
    plan.tell_of_lack(reason, &message);
    plan.wait(reason, message);
}

/// Ends a cancelled swap once nothing of it is left; it does not count as failed.
pub(super) fn end_cancelled(plan: &mut PodPlan<'_>, swap: &Swap) -> Next {
    let is_aborted = swap.abort_reason == Some(AbortReason::Requested);
    if is_aborted || swap.pod_stop_time.is_some() {
        let why = swap.message.clone().unwrap_or_default();
        let text = format!(
            "the swap of pod {} ({}) was aborted, and the pod still uses claim {}: {why}",
            plan.pod(),
            swap.summary,
            plan.entry.active_claim
        );
        plan.add_event(AutoscalerReason::SwapAborted, &attempt(swap), text);
    }
    if is_aborted {
        let template_hash = digest(&plan.seen.autoscaler.spec);
        let abort_time = Time(in_seconds(plan.seen.now));
        plan.entry.aborted = Some(AbortedSwap { abort_time, template_hash });
    }
    if swap.automatic {
        take_back_shrink(plan);
    }
    Next::End
}

/// Forgets an abort once the template was edited.
pub(super) fn forget_abort(plan: &mut PodPlan<'_>) {
    if !plan.seen.is_aborted(&plan.entry) {
        plan.entry.aborted = None;
    }
}

/// Waits, and returns true, if the claim stays unchanged despite the template, because a person aborted the swap.
pub(super) fn wait_if_aborted(plan: &mut PodPlan<'_>) -> bool {
    let is_aborted = plan.seen.is_aborted(&plan.entry);
    if is_aborted {
        plan.says.phase = Some(AutoscalerPhase::Waiting);
        let message = format!(
            "the swap of pod {} was aborted, and the pod uses claim {} until the template is edited: set \
             the template to what that claim has, or to the new desired state",
            plan.pod(),
            plan.entry.active_claim
        );
        plan.wait(AutoscalerReason::SwapAborted, message);
    }
    is_aborted
}
