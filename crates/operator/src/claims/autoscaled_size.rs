//! Automatic size of one pod's claim: expansion or shrink. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscaledSize, AutoscalerMode, AutoscalerPhase, Quantity, Swap};
use crate::autoscaler::{self, Decision, SizeDecision, Sized};
use crate::claims::AutoscalerReason;
use crate::claims::objects::bounded;
use crate::claims::obstacle::obstacle;
use crate::claims::others::{is_in_partition, too_many_unready};
use crate::claims::own_size::own_size;
use crate::claims::pod_plan::PodPlan;
use crate::claims::resize_in_place::can_shrink_in_place;
use crate::cluster::{ClaimSizes, NodeOperation, NotDone, refusal, requested};

/// Decides the size by the usage of the claim. `may_stop` allows a pod to be stopped. Without valid sizes of
/// the claim there is no decision.
pub(super) fn decide_size(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim, may_stop: bool) {
    let seen = plan.seen;
    let (Ok(has), Ok(refusal)) = (ClaimSizes::of(claim), refusal(claim)) else { return };
    let Some(policy) = &seen.autoscaler.spec.autoscale else {
        (plan.entry.last_decision, plan.entry.autoscaled_size, plan.entry.peak_usage) =
            (None, None, None);
        return tell_refusal(plan, claim, has, refusal);
    };
    take_as_it_is(plan, has.requested, refusal.is_some());
    let (grown, peak) = (own_size(plan).cloned(), plan.entry.peak_usage.take());
    let mut sized = Sized {
        requested: has.requested,
        capacity: has.capacity,
        grown: grown.as_ref(),
        usage: seen.usage.get(&claim.name_any()).copied(),
        silent: seen.silent.get(&claim.name_any()).map(String::as_str),
        refusal,
        others: largest_of_others(plan),
        peak: peak.as_ref(),
        least: least(plan),
    };
    let peak = autoscaler::peak(policy, &sized, seen.now);
    sized.peak = peak.as_ref();
    let Decision { resize, mut why } = autoscaler::decide(policy, &sized, seen.now);
    plan.entry.peak_usage.clone_from(&peak);
    match resize {
        None => tell_refusal(plan, claim, has, refusal),
        Some(_) if seen.autoscaler.spec.mode == AutoscalerMode::DryRun => {
            plan.says.phase = Some(AutoscalerPhase::DryRun);
            plan.says.planned_action = Some(format!("pod {}: {why}", plan.pod()));
        }
        Some(SizeDecision::Shrink(to)) => {
            match holds_back(plan, may_stop).or_else(|| doubt(plan, claim)) {
                Some(held) => why = format!("{why}; not yet: {held}"),
                None => resize_to(plan, claim, AutoscalerReason::AutoscaleShrink, to, &why),
            }
        }
        Some(SizeDecision::Grow(to)) => match doubt(plan, claim) {
            Some(doubt) => why = format!("{why}; not yet: {doubt}"),
            None => resize_to(plan, claim, AutoscalerReason::AutoscaleExpand, to, &why),
        },
        Some(SizeDecision::Lower(to)) => {
            resize_to(plan, claim, AutoscalerReason::ExpansionFailed, to, &why);
        }
    }
    plan.entry.last_decision = Some(bounded(&why));
}

/// Returns why a size decision waits: reported usage does not change while a node plugin is down, so
/// the node must confirm it first.
fn doubt(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim) -> Option<String> {
    let (seen, name) = (plan.seen, claim.name_any());
    // What all together come to is no matter of how full one is.
    let volume = seen.volume_of(&name).filter(|_| seen.usage.contains_key(&name))?;
    let answer = volume.recent_answer_to(&NodeOperation::Look).map(Result::err);
    if answer == Some(None) {
        return None;
    }
    plan.ask_for(volume, NodeOperation::Look);
    let Some(Some(NotDone { why, .. })) = answer else {
        return Some("waiting for its node to confirm the reported usage".to_owned());
    };
    let message = format!(
        "claim {name} was to be resized by the last reported usage, but its node does not respond: {why}"
    );
    plan.wait(AutoscalerReason::StaleUsageMetrics, message);
    Some(format!("its node does not respond: {why}"))
}

fn resize_to(
    plan: &mut PodPlan<'_>,
    claim: &PersistentVolumeClaim,
    reason: AutoscalerReason,
    to: Quantity,
    why: &str,
) {
    let (from, at) = (plan.seen.template_size(), Some(Time(plan.seen.now)));
    plan.entry.autoscaled_size = Some(AutoscaledSize {
        size: to,
        template_size: from,
        decision_time: at,
        failure_time: None,
    });
    plan.entry.peak_usage = None;
    let text = format!("claim {}: {why}", claim.name_any());
    plan.add_event(reason, &to.to_string(), text);
}

/// Accepts a claim that is larger than its automatic size, or than a template that was not lowered: a person
/// expanded it, or autoscaling did before it was removed and added again. Neither is a reason to stop its pod.
fn take_as_it_is(plan: &mut PodPlan<'_>, has: Quantity, is_refused: bool) {
    let template_size = plan.seen.template_size();
    let follows = plan.entry.template_size.is_some_and(|before| before <= template_size);
    let is_edited = plan.entry.autoscaled_size.is_some(); // For another template: the edit takes precedence.
    let accepted = match own_size(plan) {
        Some(own) => own.clone(),
        None if follows && !is_edited => AutoscaledSize {
            size: template_size,
            template_size,
            decision_time: None,
            failure_time: None,
        },
        None => return,
    };
    if accepted.size < has && !is_refused {
        plan.entry.autoscaled_size = Some(AutoscaledSize { size: has, ..accepted });
    }
}

/// Returns why an automatic shrink is not continued while the pod runs.
pub(super) fn objects_to_shrink(plan: &PodPlan<'_>, swap: &Swap) -> Option<String> {
    if !swap.automatic {
        return None;
    }
    let claim = plan.seen.claim(&plan.entry.active_claim)?;
    if let Some(node) = plan.seen.silent.get(&claim.name_any()) {
        return Some(format!(
            "the node plugin of node {node} is not responding, so the usage of the volume is unknown"
        ));
    }
    let asked = match requested(claim) {
        Ok(asked) => asked,
        Err(why) => return Some(why.to_string()),
    };
    let sizes = (asked, own_size(plan)?.size);
    let usage = plan.seen.usage.get(&claim.name_any()).copied();
    let policy = plan.seen.autoscaler.spec.autoscale.as_ref()?;
    autoscaler::objection(policy, sizes, usage, plan.seen.now)
}

fn largest_of_others(plan: &PodPlan<'_>) -> Quantity {
    let spec = &plan.seen.autoscaler.spec;
    let entries = plan.seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let others = entries.filter(|one| one.ordinal != plan.entry.ordinal);
    others
        .map(|one| autoscaler::wanted(spec, one.autoscaled_size.as_ref()))
        .max()
        .unwrap_or_default()
}

fn least(plan: &PodPlan<'_>) -> Quantity {
    let policy = plan.seen.autoscaler.spec.autoscale.as_ref();
    let least = policy.and_then(|policy| policy.shrink.as_ref()?.min_size);
    least.unwrap_or(plan.seen.template_size())
}

/// Returns why the pod is not stopped now, so that the claim does not shrink.
fn holds_back(plan: &PodPlan<'_>, may_stop: bool) -> Option<String> {
    let rollout = plan.seen.autoscaler.spec.rollout.as_ref();
    let says = |why: &str| Some(why.to_owned());
    let obstacle = obstacle(plan).filter(|_| !can_shrink_in_place(plan));
    if let Some((_, message)) = obstacle {
        return Some(message);
    }
    if rollout.is_some_and(|rollout| rollout.paused) {
        return says("spec.rollout.paused is true");
    }
    if !is_in_partition(plan) {
        return says("spec.rollout.partition excludes its pod");
    }
    if !may_stop {
        return says("another pod is being swapped, or status.message names the obstacle");
    }
    too_many_unready(plan).map(|other| format!("pod {other} is not ready"))
}

/// A growth that was refused, and that is not made do with less.
fn tell_refusal(
    plan: &mut PodPlan<'_>,
    claim: &PersistentVolumeClaim,
    sizes: ClaimSizes,
    refusal: Option<&str>,
) {
    let Some(words) = refusal else { return };
    let (name, has, wants) = (claim.name_any(), sizes.capacity, sizes.requested);
    let message = format!(
        "claim {name} has {has} and cannot grow to {wants}: {words}; free some space for it, or set a \
         smaller size above {has} in the template"
    );
    plan.wait(AutoscalerReason::ExpansionFailed, message);
}
