//! What concerns all pods of a workload. Pure.

use kube::ResourceExt;

use crate::api::{self, AutoscalerMode, ClaimNamePolicy};
use crate::claims::AutoscalerReason;
use crate::claims::observed::{ObservedWorkload, PodController};
use crate::volume::few;

/// Returns true if an operation that stops a pod may start.
pub(super) fn may_begin(seen: &ObservedWorkload) -> bool {
    let spec = &seen.autoscaler.spec;
    spec.mode == AutoscalerMode::Enforce
        && !spec.rollout.as_ref().is_some_and(|rollout| rollout.paused)
        && of_the_whole(seen).is_none()
}

/// Returns what blocks all pods.
pub(super) fn of_the_whole(seen: &ObservedWorkload) -> Option<(AutoscalerReason, String)> {
    let namespace = seen.autoscaler.namespace().unwrap_or_default();
    let whose = seen.autoscaler.spec.workload().in_words();
    let Some(workload) = &seen.workload else {
        let message = format!(
            "there is no {whose} in namespace {namespace}: create it, or delete this PvcAutoscaler; its claims \
             are retained"
        );
        return Some((AutoscalerReason::WorkloadNotFound, message));
    };
    if seen.names_claims() && workload.ordinals().is_empty() {
        let message = format!(
            "{whose} in namespace {namespace} names no claim that can be managed: {}",
            match seen.autoscaler.spec.workload() {
                api::Workload::Pods(pods) => format!(
                    "none of them exists, or none has a claim {}",
                    pods.claim_name_pattern.as_deref().unwrap_or_default()
                ),
                _ => format!("its pods have no claim as volume {}", seen.volume()),
            }
        );
        return Some((AutoscalerReason::ClaimsNotFound, message));
    }
    if let Some(others) = &workload.other_volumes {
        let volume = seen.volume();
        let message = format!(
            "the pods of {whose} have no volume {volume}; they have {}: give the template in \
             spec.volumeClaimTemplate the name of a volume of the pods, or add volume {volume} of claim \
             {volume} to the pods",
            few(others)
        );
        return Some((AutoscalerReason::ClaimsNotFound, message));
    }
    if let Some(why) = wrong_naming(seen, workload) {
        return Some((AutoscalerReason::ClaimNamePolicyMismatch, why));
    }
    let needs_us = !seen.claims_are_fixed();
    let why = seen.coverage.lacks().filter(|_| needs_us)?;
    let message = format!("the pods of {whose} do not get their claims yet: {why}");
    Some((AutoscalerReason::WebhookNotReady, message))
}

/// Returns why the requested naming is not possible.
fn wrong_naming(seen: &ObservedWorkload, workload: &PodController) -> Option<String> {
    let (whose, volume) = (seen.autoscaler.spec.workload().in_words(), seen.volume());
    match (seen.autoscaler.spec.claim_name_policy?, workload.makes_claims) {
        (ClaimNamePolicy::Preserve, false) if !seen.names_claims() => Some(format!(
            "spec.claimNamePolicy is Preserve, but {whose} has no template {volume} among its volumeClaimTemplates, so \
             its pods get claims with a digest in their names: remove spec.claimNamePolicy, or set it to Generate"
        )),
        (ClaimNamePolicy::Generate, true) => Some(format!(
            "spec.claimNamePolicy is Generate, but {whose} has template {volume} among its volumeClaimTemplates, which \
             names the claims of its pods: remove spec.claimNamePolicy, or set it to Preserve; or delete it with \
             `kubectl delete statefulset {} --cascade=orphan` and create it without that template",
            seen.autoscaler.spec.stateful_set().unwrap_or_default()
        )),
        _ => None,
    }
}
