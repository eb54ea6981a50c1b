//! Claims of other clients that have the names of claims of swaps: no pod gets them, and one that has one leaves it. Pure.

use kube::ResourceExt;

use crate::claims::AutoscalerReason;
use crate::claims::objects::{is_ending, is_on_node, seconds_for, uid, uses};
use crate::claims::pod_plan::PodPlan;
use crate::claims::siblings::ensure_may_evict;
use crate::claims::steps::Step;
use crate::cluster::PodSummary;

/// The pod that is on a node with a claim of another client, and that claim.
fn on_taken_claim<'a>(plan: &PodPlan<'a>) -> Option<(&'a PodSummary, &'a String)> {
    let pod = plan.seen.pod(plan.entry.ordinal).filter(|pod| is_on_node(pod))?;
    let name = plan.seen.taken.keys().find(|name| uses(pod, name))?;
    Some((pod, name))
}

/// Returns true if the pod is on a node with a claim of another client.
pub(super) fn has_taken_claim(plan: &PodPlan<'_>) -> bool {
    on_taken_claim(plan).is_some()
}

/// Stops a pod that was scheduled with a claim of another client before it could be held back: its writes there
/// are not in the claim that it gets.
pub(super) fn leave_taken_claim(plan: &mut PodPlan<'_>) {
    let Some((pod, claim)) = on_taken_claim(plan) else { return };
    let (name, pod_uid) = (pod.name_any(), uid(&pod.metadata).to_owned());
    let stops = !is_ending(&pod.metadata) && !plan.is_asked_to_go(pod) && plan.gives_claims();
    let evict = Step::Evict { pod: name.clone(), uid: pod_uid.clone(), within: seconds_for(pod) };
    let message = format!(
        "pod {name} has claim {claim}, which another client created under the name of the claim for its \
         swap: the pod is stopped, and what it has written there stays in that claim; copy what you need \
         out of it before you delete it"
    );
    let subject = format!("{claim}/{pod_uid}");
    plan.add_event(AutoscalerReason::ClaimConflict, &subject, message.clone());
    let may_stop = stops && ensure_may_evict(plan);
    plan.steps.extend(may_stop.then_some(evict));
    plan.wait(AutoscalerReason::ClaimConflict, message);
}
