//! Checks that the nodes of a swap can have both volumes, and respond, before anything is stopped. Pure.

use kube::ResourceExt;

use crate::claims::AutoscalerReason;
use crate::claims::pod_plan::PodPlan;
use crate::claims::topology::{ReadableNode, tolerates};
use crate::cluster::{NodeOperation, NotDone};
use crate::volume::few;

fn places<'a>(plan: &PodPlan<'a>) -> &'a [ReadableNode] {
    let places = plan.seen.around.places.get(&plan.entry.active_claim);
    places.map(Vec::as_slice).unwrap_or_default()
}

/// Returns why no usable node can have both volumes, if so.
pub(super) fn lacks_place(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let places = places(plan);
    if places.is_empty() {
        return None; // It can be read everywhere, or its nodes are unknown.
    }
    let allowed: Vec<&ReadableNode> = places.iter().filter(|place| place.is_allowed).collect();
    if plan.elsewhere().is_some() {
        return None;
    }
    let Some(first) = allowed.first() else { return Some(is_elsewhere(plan, places)) };
    let tolerates = plan.seen.pod(plan.entry.ordinal).is_some_and(tolerates);
    let is_fit = |place: &&ReadableNode| place.is_ready && (place.takes_pods || tolerates);
    (!allowed.iter().any(is_fit)).then(|| is_unavailable(plan, first))
}

fn is_elsewhere(plan: &PodPlan<'_>, places: &[ReadableNode]) -> (AutoscalerReason, String) {
    let (nodes, claim) = (few(places.iter().map(|one| &one.node)), &plan.entry.active_claim);
    let class = plan.wanted_class().unwrap_or_default();
    let message = format!(
        "claim {claim} can be read on node {nodes} only, and the allowedTopologies of class {class} \
         exclude it: set another class with `kubectl edit pvcautoscaler {}`, or add that node with \
         `kubectl edit storageclass {class}`",
        plan.seen.autoscaler.name_any(),
    );
    (AutoscalerReason::StorageClassTopologyMismatch, message)
}

fn is_unavailable(plan: &PodPlan<'_>, place: &ReadableNode) -> (AutoscalerReason, String) {
    let (node, claim, pod) = (&place.node, &plan.entry.active_claim, plan.pod());
    let message = if place.is_ready {
        format!(
            "node {node}, which has the volume of claim {claim}, is unschedulable, so pod {pod} could not \
             start there again: run `kubectl uncordon {node}`"
        )
    } else {
        format!(
            "node {node}, which has the volume of claim {claim}, is not ready, so pod {pod} is not \
             stopped: see `kubectl describe node {node}`"
        )
    };
    (AutoscalerReason::NodeUnavailable, message)
}

/// Asks the node plugin of the volume's node whether it responds; returns true if it has just answered.
/// Until then no other pod is started in its place; if it is not responding, others are.
pub(super) fn ensure_node_responds(plan: &mut PodPlan<'_>, may_stop: &mut usize) -> bool {
    let seen = plan.seen;
    // For a volume without a node, no node is asked.
    let is_placed = !places(plan).is_empty();
    let volume = seen.volume_of(&plan.entry.active_claim).filter(|_| is_placed);
    let Some(volume) = volume else { return true };
    match volume.recent_answer_to(&NodeOperation::Look) {
        Some(Ok(_)) => return true,
        Some(Err(NotDone { why, .. })) => {
            let message = format!(
                "the node of claim {} does not respond, so pod {} is not stopped: {why}",
                plan.entry.active_claim,
                plan.pod()
            );
            plan.tell_of_lack(AutoscalerReason::NodeUnavailable, &message);
            plan.wait(AutoscalerReason::NodeUnavailable, message);
        }
        None => *may_stop -= 1,
    }
    plan.ask_for(volume, NodeOperation::Look);
    false
}
