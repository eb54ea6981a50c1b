//! The last copy of the old claim, once its pod is stopped and nothing may write to it any more: phases Draining,
//! Fenced and FinalCopy. Pure.

use crate::api::{AutoscalerPhase, FillingPhase, Swap, SwapPhase};
use crate::claims::cancel::{ensure_cancelled, report_slow_binding, tell_of_filling};
use crate::claims::copy_state::{
    copied_too_early, copies_another, filled_too_early, has_content, is_filled, is_going, is_used,
};
use crate::claims::detached::ensure_noted;
use crate::claims::drain::stop_writers;
use crate::claims::fence::prove_unused;
use crate::claims::finalizer::{ensure_held, is_deleted};
use crate::claims::new_claim::make_missing;
use crate::claims::objects::is_bound;
use crate::claims::observed::ObservedWorkload;
use crate::claims::phases::hand_over::{begin_exchange, switch};
use crate::claims::phases::next::{Next, continue_exchange, fail, give_up};
use crate::claims::pod_plan::PodPlan;
use crate::claims::siblings::retreat;
use crate::claims::steps::Step;
use crate::claims::users::writers;
use crate::populators::PopulatorReason;

/// Copies and verifies the old claim, once nothing may write to it any more.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &mut Swap) -> Next {
    plan.says.phase = Some(AutoscalerPhase::Swapping);
    let (name, from) = (swap.claim.clone(), plan.entry.active_claim.clone());
    if retreat(plan, swap) {
        return Next::Wait;
    }
    let filling = plan.seen.filling(&name).cloned().unwrap_or_default();
    if let Some(why) = copies_another(plan, swap, &name) {
        return if is_used(plan, swap, &name) {
            switch(plan, swap, filling.checksum)
        } else {
            give_up(plan, swap, &why)
        };
    }
    if !swap.is_proved_unused() && has_content(plan.seen, &name) {
        // What the pod writes there is nowhere else.
        return if is_used(plan, swap, &name) {
            switch(plan, swap, filling.checksum)
        } else {
            give_up(plan, swap, &filled_too_early(&name, &from))
        };
    }
    // Its source was deleted after the copy was verified: a new one would report nothing.
    if plan.seen.handed_over.contains(&name)
        && is_filled(plan.seen, &name)
        && !is_going(plan.seen, &name)
    {
        return if swap.preserves_name {
            begin_exchange(plan, swap, None)
        } else {
            switch(plan, swap, None)
        };
    }
    if let Some(next) = ensure_cancelled(plan, swap, &from, &filling) {
        return next;
    }
    if !make_missing(plan, swap, &name, &from) {
        return Next::Wait;
    }
    let is_of_use = plan.seen.claim(&name).is_some_and(is_bound) && !is_going(plan.seen, &name);
    let is_paused = plan.seen.sources.get(&name).is_some_and(|source| source.spec.paused);
    if !is_paused && !swap.is_proved_unused() {
        return give_up(plan, swap, &copied_too_early(&name));
    }
    match filling.phase {
        // Only a verified claim becomes the active one, whoever has bound it.
        FillingPhase::Succeeded if is_of_use && swap.preserves_name => {
            return begin_exchange(plan, swap, filling.checksum);
        }
        FillingPhase::Succeeded if is_of_use => return switch(plan, swap, filling.checksum),
        FillingPhase::Failed if !is_paused && has_failed(plan.seen, &name) => {
            return fail(plan, swap, filling);
        }
        _ => {}
    }
    if let Some(why) = is_deleted(plan, &from, filling.phase) {
        return give_up(plan, swap, &why);
    }
    end_rounds(plan, &name, filling.phase);
    ensure_held(plan, &from);
    stop_writers(plan, &from);
    if !writers(plan.seen, &from).is_empty() {
        continue_exchange(plan, swap, SwapPhase::Draining, None, None)
    } else if prove_unused(plan, swap, &from) {
        if !swap.preserves_name {
            ensure_noted(plan, swap, &from); // Before it may begin.
        }
        tell_of_filling(plan, swap, &filling);
        report_slow_binding(plan, swap, &filling);
        // The status is of a source that this swap has unpaused, until that is reconciled once more.
        let paused = PopulatorReason::SourcePaused.to_string();
        let waits = filling.message.filter(|_| filling.reason != Some(paused));
        plan.steps.extend(is_paused.then_some(Step::StartCopy { claim: name }));
        continue_exchange(plan, swap, SwapPhase::FinalCopy, filling.progress, waits)
    } else {
        let waits = plan.says.problem.clone().map(|(_, message)| message);
        continue_exchange(plan, swap, SwapPhase::Fenced, None, waits)
    }
}

/// Ends the pre-copy, which has the old volume open.
fn end_rounds(plan: &mut PodPlan<'_>, name: &str, phase: FillingPhase) {
    let is_ahead = matches!(phase, FillingPhase::PreCopied | FillingPhase::Failed);
    let source = plan.seen.sources.get(name).filter(|_| !is_ahead);
    if source.is_some_and(|source| source.spec.paused && source.spec.pre_copy) {
        plan.steps.push(Step::EndRounds { claim: name.to_owned() });
    }
}

/// Returns true if the last attempt to populate a new claim from its present source has failed
/// for good.
fn has_failed(seen: &ObservedWorkload, claim: &str) -> bool {
    let generation = seen.sources.get(claim).and_then(|source| source.metadata.generation);
    seen.filling(claim).is_some_and(|told| {
        told.phase == FillingPhase::Failed && Some(told.observed_generation) == generation
    })
}
