//! Claims that others have replaced: they are deleted after their retention. Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::AutoscalerMode;
use crate::claims::SUPERSEDED_BY;
use crate::claims::objects::{drop_as_seen, in_seconds, is_bound, is_ending, uid};
use crate::claims::observed::ClockSeen;
use crate::claims::pod_plan::PodPlan;
use crate::claims::readiness::is_ready_with;
use crate::claims::rollback::is_needed_again;
use crate::claims::steps::Step;

/// Claims that others have taken the place of go after their time, counted from when that one was used first.
/// None goes while a person has reason to want it back: nothing is to be changed, or the pod is not ready. As
/// long as the clock was not found to be that of the API server no time is written, and nothing goes by it.
pub(super) fn retire(plan: &mut PodPlan<'_>) {
    let (seen, spec) = (plan.seen, &plan.seen.autoscaler.spec);
    let active = plan.entry.active_claim.clone();
    let has_active = seen.claim(&active).is_some_and(is_bound);
    let is_used = has_active && is_ready_with(seen, plan.entry.ordinal, &active);
    let is_paused = spec.rollout.as_ref().is_some_and(|rollout| rollout.paused);
    let may_delete = is_used && !is_paused && spec.mode == AutoscalerMode::Enforce;
    let retained = plan.entry.retained_claims.iter().map(|old| &old.name);
    let needed: BTreeSet<String> = retained
        .filter(|claim| is_needed_again(plan, plan.entry.swap.as_ref(), claim))
        .cloned()
        .collect();
    let steps = &mut plan.steps;
    plan.entry.retained_claims.retain_mut(|old| {
        let there = seen.claim(&old.name).filter(|claim| uid(&claim.metadata) == old.uid);
        let Some(claim) = there else { return false };
        let is_needed = needed.contains(&old.name);
        if !is_needed && !claim.annotations().contains_key(SUPERSEDED_BY) {
            // A claim to be released gets a single write too: the first of two would make the second one
            // stale.
            let let_go = steps.iter_mut().find_map(|step| match step {
                Step::LetGo { claim, superseded_by, .. } if *claim == old.name => {
                    Some(superseded_by)
                }
                _ => None,
            });
            if let Some(superseded_by) = let_go {
                *superseded_by = Some(active.clone());
            } else {
                let (claim, by) = (old.name.clone(), active.clone());
                steps.push(Step::Supersede { claim, by });
            }
        }
        if seen.clock != ClockSeen::Agrees {
            return true;
        }
        if old.replacement_ready_time.is_none() && is_used {
            old.replacement_ready_time = Some(Time(in_seconds(seen.now)));
        }
        let is_over = old.until(spec.retention).is_some_and(|at| at <= seen.now);
        if is_over && may_delete && !is_needed && !is_ending(&claim.metadata) {
            steps.push(drop_as_seen(claim));
        }
        true
    });
}
