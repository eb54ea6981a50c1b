//! Checks whether a pod without an object may still run. A pod can be force-deleted while its node does not
//! respond, and a volume of another driver does not reject a second writer.

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::api::{OrdinalStatus, Swap, SwapPhase};
use crate::claims::AutoscalerReason;
use crate::claims::context::ClaimsController;
use crate::claims::finalizer::pv_of;
use crate::claims::objects::uid;
use crate::claims::observed::ObservedWorkload;
use crate::claims::pod_plan::PodPlan;
use crate::cluster::list;

/// The taint of a node that was switched off for good, which a person puts on it.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Returns why a pod of this node may still write to a volume; `None` if it cannot.
fn may_still_run(
    node: Option<&Node>,
    pv: &PersistentVolume,
    attachments: &[VolumeAttachment],
) -> Option<String> {
    let node = node?; // Kubernetes deletes a node when its host is gone, or a person does.
    let name = node.name_any();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_out = taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE);
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    if !is_out && !is_ready {
        return Some(format!("node {name} is not ready, and may still run it"));
    }
    let volume = pv.name_any();
    let is_its = |one: &&VolumeAttachment| {
        one.spec.node_name == name
            && one.spec.source.persistent_volume_name.as_ref() == Some(&volume)
    };
    if let Some(one) = attachments.iter().find(is_its) {
        return Some(format!(
            "VolumeAttachment {} shows volume {volume} as attached to node {name}",
            one.name_any()
        ));
    }
    let csi = pv.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    let unique = csi.map(|csi| format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle));
    let mut in_use = node.status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
    let is_in_use = !is_out && in_use.any(|one| Some(one) == unique.as_ref());
    is_in_use.then(|| format!("node {name} reports that volume {volume} is in use"))
}

/// Stores which pod is stopped, and its node.
pub(super) fn note_stopped(plan: &mut PodPlan<'_>, swap: &mut Swap) {
    let pod = plan.seen.pod(plan.entry.ordinal);
    let node = pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    let Some((pod, node)) = pod.zip(node) else { return };
    let uid = uid(&pod.metadata).to_owned();
    (swap.pod_uid, swap.pod_node) = (Some(uid), Some(node));
}

/// Waits, and returns true, if the stopped pod may still run although its object is gone.
pub(super) fn wait_if_may_still_run(plan: &mut PodPlan<'_>, swap: &Swap) -> bool {
    let Some(why) = plan.seen.may_still_run.get(&plan.entry.ordinal) else { return false };
    let (name, namespace) =
        (plan.seen.autoscaler.name_any(), plan.seen.autoscaler.namespace().unwrap_or_default());
    let uid = swap.pod_uid.as_deref().unwrap_or_default();
    let message = format!(
        "pod {} was stopped, but its claim is not copied yet: {why}; wait for the node, taint it with \
         `kubectl taint node NODE {OUT_OF_SERVICE}=nodeshutdown:NoExecute` if it is switched off for good, \
         or confirm that the pod no longer runs: `kubectl patch pvcautoscaler {name} --namespace \
         {namespace} --type=merge -p '{{\"spec\":{{\"confirmedStoppedPodUIDs\":[\"{uid}\"]}}}}'`",
        plan.pod()
    );
    plan.wait(AutoscalerReason::NodeUnavailable, message);
    true
}

/// Looks for stopped pods with volumes of another driver that may still run.
pub(super) async fn observe_stopped(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let status = seen.autoscaler.status.clone().unwrap_or_default();
    for one in status.ordinals {
        let Some(node) = node_to_ask(seen, &one) else { continue };
        let Some(claim) = seen.claim(&one.active_claim) else { continue };
        let Some(pv) = pv_of(ctx, claim).await? else { continue };
        let nodes = Api::<Node>::all(ctx.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={node}"));
        let node = list(&nodes, &named).await?.whole()?.into_iter().next();
        let attachments = Api::<VolumeAttachment>::all(ctx.client.clone());
        let attachments = list(&attachments, &ListParams::default()).await?.whole()?;
        let why = may_still_run(node.as_ref(), &pv, &attachments);
        seen.may_still_run.extend(why.map(|why| (one.ordinal, why)));
    }
    Ok(())
}

/// The node on which a pod was that a swap has stopped, if nothing else proves that it is gone.
fn node_to_ask(seen: &ObservedWorkload, one: &OrdinalStatus) -> Option<String> {
    let is_stopped = |swap: &&Swap| matches!(swap.phase, SwapPhase::Draining | SwapPhase::Fenced);
    let swap = one.swap.as_ref().filter(is_stopped)?;
    let is_foreign = matches!(seen.volumes.get(&one.active_claim), Some(None));
    let pod = swap.pod_uid.as_ref()?;
    let is_there = seen.pods.iter().any(|there| uid(&there.metadata) == pod);
    let is_confirmed = seen.autoscaler.spec.confirmed_stopped_pod_uids.contains(pod);
    swap.pod_node.clone().filter(|_| is_foreign && !is_there && !is_confirmed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_pod_may_still_run_until_its_node_or_a_person_says_that_it_does_not() {
        let csi = json!({"driver": "nfs", "volumeHandle": "h"});
        let pv = json!({"metadata": {"name": "pv"}, "spec": {"csi": csi}});
        let pv: PersistentVolume = serde_json::from_value(pv).unwrap();
        let runs = |ready: &str, taints: Value, in_use: Value, attached: &[(&str, &str)]| {
            let node = json!({
                "metadata": {"name": "alpha"}, "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready}], "volumesInUse": in_use},
            });
            let node: Node = serde_json::from_value(node).unwrap();
            let attached = attached.iter().map(|(node, volume)| {
                let source = json!({"persistentVolumeName": volume});
                let spec = json!({"attacher": "nfs", "nodeName": node, "source": source});
                serde_json::from_value(json!({"metadata": {"name": "va"}, "spec": spec})).unwrap()
            });
            may_still_run(Some(&node), &pv, &attached.collect::<Vec<_>>()).is_some()
        };
        let out = json!([{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]);
        let (none, used) = (json!([]), json!(["kubernetes.io/csi/nfs^h"]));
        assert!(!runs("True", none.clone(), none.clone(), &[]));
        assert!(runs("False", none.clone(), none.clone(), &[]));
        assert!(runs("Unknown", none.clone(), none.clone(), &[]));
        assert!(!runs("Unknown", out.clone(), used.clone(), &[]));
        assert!(runs("True", none.clone(), used, &[]));
        assert!(runs("True", none.clone(), none.clone(), &[("alpha", "pv")]));
        assert!(runs("Unknown", out, none.clone(), &[("alpha", "pv")]));
        assert!(!runs("True", none.clone(), none, &[("beta", "pv"), ("alpha", "other")]));
        assert_eq!(may_still_run(None, &pv, &[]), None);
    }
}
