//! Begins the swap of a claim, if it can be and may be. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{AutoscalerMode, AutoscalerPhase, Swap, SwapPhase};
use crate::claims::manifests;
use crate::claims::node_capacity::ensure_node_responds;
use crate::claims::objects::in_seconds;
use crate::claims::obstacle::obstacle;
use crate::claims::others::{is_in_partition, wait_for_others};
use crate::claims::own_size::shrinks_by_itself;
use crate::claims::pod_plan::PodPlan;
use crate::claims::preflight::{tell_of_what_lacks, would_find};
use crate::claims::resize_in_place::failure_in_place;

/// Plans the replacement of a claim, and starts it if allowed.
pub(super) fn begin_swap(plan: &mut PodPlan<'_>, change: String, may_stop: &mut usize) {
    plan.says.phase = Some(AutoscalerPhase::Waiting);
    if plan.seen.autoscaler.spec.mode == AutoscalerMode::DryRun {
        plan.says.phase = Some(AutoscalerPhase::DryRun);
    }
    let obstacle = obstacle(plan).or_else(|| tell_of_what_lacks(plan));
    if let Some((reason, message)) = obstacle {
        let message = match failure_in_place(plan) {
            Some(why) => format!("{message}; {why}"),
            None => message,
        };
        return plan.wait(reason, message);
    }
    let (pod, name) = (plan.pod(), plan.entry.active_claim.clone());
    let keeps_name = plan.seen.makes_claims();
    let to = if keeps_name { "a new volume, which it gets" } else { "a new one" };
    let kept = if keeps_name { "; its old volume is" } else { " and" };
    let mut told = vec![format!(
        "pod {pod} will be stopped, and its claim {name} copied to {to} ({change}){kept} retained for {}",
        plan.seen.autoscaler.spec.retention
    )];
    told.extend(would_find(plan));
    plan.says.planned_action = Some(told.join("; "));
    let is_labelled = plan.seen.claim(&name).is_some_and(|claim| plan.seen.keeps(claim));
    // The driver of its volume decides whether its claim can retain its name.
    let is_known = !keeps_name || plan.seen.volume_of(&name).is_some();
    if *may_stop == 0 || !is_in_partition(plan) || !is_labelled || !is_known {
        return;
    }
    if wait_for_others(plan) || !ensure_node_responds(plan, may_stop) {
        return;
    }
    *may_stop -= 1;
    let revision = plan.entry.claim_revision + 1;
    let by_itself = shrinks_by_itself(plan);
    (plan.entry.peak_usage, plan.entry.shrink) = (None, None);
    plan.entry.swap = Some(Swap {
        phase: SwapPhase::Pending,
        claim: manifests::free_name(plan.seen, plan.entry.ordinal, revision),
        preserves_name: keeps_name,
        node: plan.elsewhere().map(|place| place.node.clone()),
        spec_generation: plan.seen.generation(),
        summary: change,
        automatic: by_itself,
        failures: plan.failures,
        start_time: Some(Time(in_seconds(plan.seen.now))),
        ..Swap::default()
    });
}
