//! A swap while its pod still runs: phases Pending and PreCopy. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{
    AutoscalerPhase, Filling, FillingPhase, PreCopy, PvcSourcePopulator, Swap, SwapPhase,
};
use crate::claims::AutoscalerReason;
use crate::claims::attempt::attempt;
use crate::claims::autoscaled_size::objects_to_shrink;
use crate::claims::cancel::{give_up_edited_back, is_edited_back, tell_of_filling};
use crate::claims::capacity::does_not_fit;
use crate::claims::copy_state::{copied_too_early, copies_another, filled_too_early, has_content};
use crate::claims::drain::stop_writers;
use crate::claims::drift::Drift;
use crate::claims::finalizer::{ensure_held, is_deleted};
use crate::claims::new_claim::make_missing;
use crate::claims::objects::{bounded, without_volume};
use crate::claims::others::wait_for_others;
use crate::claims::phases::next::{Next, continue_exchange, fail, give_up};
use crate::claims::phases::passes::in_rounds;
use crate::claims::pod_plan::PodPlan;
use crate::claims::rebind::{is_foreign, outgrows};
use crate::claims::siblings::wait_for_siblings;
use crate::claims::stopped::note_stopped;
use crate::populators::PopulatorReason;

/// Work before the pod is stopped.
enum BeforeStop {
    /// The new claim waits for its volume, or a pre-copy is running.
    Waits,
    /// Nothing more: the pre-copy is complete, or there is none, for this reason.
    Nothing(Option<String>),
    /// The swap cannot be, so the pod is not stopped at all.
    Never(String),
    /// The copy has failed with which the pod was not to be stopped.
    Failed,
}

/// Creates the volume of the new claim while the pod still runs: if a policy or missing capacity prevents
/// it, the pod is not stopped. If requested, a pre-copy runs too.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    plan.says.phase = Some(AutoscalerPhase::Swapping);
    let (name, from) = (swap.claim.clone(), plan.entry.active_claim.clone());
    if is_edited_back(plan) {
        return give_up_edited_back(plan, swap);
    }
    if let Some(why) = does_not_fit(plan, Some(&name)) {
        return give_up(plan, swap, &why);
    }
    if !make_missing(plan, swap, &name, &from) {
        return Next::Wait;
    }
    if let Some(why) = outgrows(plan, swap).or_else(|| is_foreign(plan, swap)) {
        return give_up(plan, swap, &why);
    }
    let filling = plan.seen.filling(&name).cloned().unwrap_or_default();
    match before_the_stop(plan, swap, &name, &filling) {
        BeforeStop::Waits if is_overtaken(plan, swap, &name, &filling) => {
            give_up(plan, swap, "the template was edited before the new claim had its volume")
        }
        BeforeStop::Waits => wait_ahead(plan, swap, filling),
        // The pod may have run for long since the swap started. From its stop on nothing else
        // would protect it.
        BeforeStop::Nothing(_)
            if wait_for_siblings(plan) || wait_for_others(plan) || !ensure_held(plan, &from) =>
        {
            tell_that_pod_runs(plan, swap)
        }
        BeforeStop::Nothing(cold) => stop(plan, swap, cold, filling.pre_copy.as_ref()),
        BeforeStop::Never(why) => give_up(plan, swap, &why),
        BeforeStop::Failed => fail(plan, swap, filling),
    }
}

/// Returns true if there is a pre-copy.
fn is_hot(plan: &PodPlan<'_>, source: &PvcSourcePopulator) -> bool {
    plan.seen.autoscaler.spec.pre_copy && source.spec.pre_copy
}

/// Returns true if the new claim is no longer wanted, and has no volume yet: it may never get
/// one.
fn is_overtaken(plan: &PodPlan<'_>, swap: &Swap, name: &str, filling: &Filling) -> bool {
    let generation = Some(swap.spec_generation);
    let has_none = matches!(filling.phase, FillingPhase::Waiting | FillingPhase::Provisioning);
    let is_wanted = |claim| plan.drift_of(claim) == Drift::None;
    generation != Some(plan.seen.generation())
        && has_none
        && !plan.seen.claim(name).is_some_and(is_wanted)
}

fn before_the_stop(plan: &PodPlan<'_>, swap: &Swap, name: &str, filling: &Filling) -> BeforeStop {
    let Some(source) = plan.seen.sources.get(name) else { return BeforeStop::Waits };
    if !source.spec.paused {
        return BeforeStop::Never(copied_too_early(name));
    }
    if let Some(why) = copies_another(plan, swap, name) {
        return BeforeStop::Never(why);
    }
    if has_content(plan.seen, name) {
        return BeforeStop::Never(filled_too_early(name, &plan.entry.active_claim));
    }
    let is_deleted = is_deleted(plan, &plan.entry.active_claim, filling.phase);
    if let Some(why) = is_deleted.or_else(|| objects_to_shrink(plan, swap)) {
        return BeforeStop::Never(why);
    }
    let is_hot = is_hot(plan, source);
    let is = |reason: PopulatorReason| filling.reason == Some(reason.to_string());
    let why = || filling.message.clone().unwrap_or_default();
    match filling.phase {
        FillingPhase::PreCopied => BeforeStop::Nothing(None),
        // Passes that are no longer wanted.
        FillingPhase::Populating if !is_hot => BeforeStop::Nothing(None),
        // It would be refused with the pod stopped, too.
        FillingPhase::Failed if !is_hot || is(PopulatorReason::ContentRejected) => {
            BeforeStop::Failed
        }
        FillingPhase::Failed => BeforeStop::Nothing(Some(why())),
        // It has its volume.
        FillingPhase::Waiting if is(PopulatorReason::SourcePaused) => BeforeStop::Nothing(None),
        FillingPhase::Waiting if is(PopulatorReason::PreCopySkipped) => {
            BeforeStop::Nothing(Some(why()))
        }
        // A class that waits for a pod of the new claim gets none as long as this one runs.
        FillingPhase::Waiting if is(PopulatorReason::WaitForFirstConsumer) => {
            BeforeStop::Nothing(is_hot.then(why))
        }
        _ => BeforeStop::Waits,
    }
}

fn wait_ahead(plan: &mut PodPlan<'_>, swap: &mut Swap, filling: Filling) -> Next {
    tell_of_filling(plan, swap, &filling);
    let source = plan.seen.sources.get(&swap.claim);
    let is_hot = source.is_some_and(|source| is_hot(plan, source));
    let claim = swap.claim.clone();
    let is_copied = filling.progress.is_some() || filling.phase == FillingPhase::Populating;
    let waits = filling.message.or_else(|| (!is_copied).then(|| without_volume(&claim)));
    swap.phase = if is_hot { SwapPhase::PreCopy } else { SwapPhase::Pending };
    (swap.progress, swap.message) = (filling.progress, waits.map(|text| bounded(&text)));
    tell_that_pod_runs(plan, swap)
}

fn tell_that_pod_runs(plan: &mut PodPlan<'_>, swap: &Swap) -> Next {
    let said = swap.progress.clone().or_else(|| swap.message.clone());
    let said = said.unwrap_or_else(|| format!("{:?}", swap.phase));
    plan.says.progress = Some(format!("pod {} runs, {said}", plan.pod()));
    Next::Wait
}

/// Stops the pod; its next one gets the new claim.
fn stop(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    cold: Option<String>,
    ahead: Option<&PreCopy>,
) -> Next {
    let (pod, name, from) = (plan.pod(), swap.claim.clone(), plan.entry.active_claim.clone());
    let now = Time(plan.seen.now);
    note_stopped(plan, swap);
    swap.pod_stop_time = Some(now);
    swap.pre_copy_skipped_reason = cold.map(|why| bounded(&why));
    let copied = match (&swap.pre_copy_skipped_reason, ahead) {
        (Some(why), _) => format!("; nothing was copied while it ran: {why}"),
        (None, Some(ahead)) => format!("; {} while it ran", in_rounds(ahead.passes)),
        (None, None) => String::new(),
    };
    let change = &swap.summary;
    let what = if swap.preserves_name {
        format!("for claim {from} to get the volume of claim {name}")
    } else {
        format!("to get claim {name} for {from}")
    };
    let text = format!("pod {pod} is stopped, {what} ({change}){copied}");
    plan.add_event(AutoscalerReason::SwapStarted, &attempt(swap), text);
    // No more than that: a pod that was made until this is written has the old claim.
    stop_writers(plan, &from);
    continue_exchange(plan, swap, SwapPhase::Draining, None, None)
}
