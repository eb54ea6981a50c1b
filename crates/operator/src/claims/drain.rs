//! Stops the pods that write to a claim. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::claims::AutoscalerReason;
use crate::claims::objects::{is_ending, seconds_for, uid};
use crate::claims::pod_plan::PodPlan;
use crate::claims::siblings::ensure_may_evict;
use crate::claims::steps::Step;
use crate::claims::users::writers;
use crate::cluster::PodSummary;

/// Evicts the pod; pods of others are not evicted.
pub(super) fn stop_writers(plan: &mut PodPlan<'_>, from: &str) {
    let ours = plan.seen.pod(plan.entry.ordinal).map(|pod| uid(&pod.metadata));
    for pod in writers(plan.seen, from) {
        let name = pod.name_any();
        let is_ours = Some(uid(&pod.metadata)) == ours;
        if is_ours && !is_ending(&pod.metadata) {
            if !ensure_may_evict(plan) {
                continue;
            }
            let uid = uid(&pod.metadata).to_owned();
            plan.steps.push(Step::Evict { pod: name, uid, within: seconds_for(pod) });
        } else if !is_ours {
            let message = format!(
                "pod {name} writes to claim {from}, which is to be copied: stop it, or wait until it ends"
            );
            plan.wait(AutoscalerReason::ClaimInUse, message);
        } else if let Some(message) = stuck(plan, pod) {
            plan.wait(AutoscalerReason::ClaimInUse, message);
        }
    }
}

/// Returns why a pod has not terminated: its node may not respond, and then it is unknown whether
/// the pod writes.
fn stuck(plan: &PodPlan<'_>, pod: &PodSummary) -> Option<String> {
    let why =
        format!("pod {} has not ended, and its claim is not copied until it has", pod.name_any());
    why_unended(plan, pod).map(|look| format!("{why}: {look}"))
}

/// Returns where to look for a deleted pod that has not terminated in time.
pub(super) fn why_unended(plan: &PodPlan<'_>, pod: &PodSummary) -> Option<String> {
    let Time(since) = pod.metadata.deletion_timestamp.as_ref()?;
    let late = plan.seen.now.duration_since(*since) > SignedDuration::from_mins(1);
    let node = pod.spec.as_ref()?.node_name.as_deref().unwrap_or("NODE");
    late.then(|| {
        format!(
            "check node {node}; if it is switched off for good, `kubectl taint node {node} \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute` releases its pods"
        )
    })
}
