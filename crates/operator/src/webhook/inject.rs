//! Changes of a pod of a StatefulSet at its creation.

use json_patch::jsonptr::Pointer;
use json_patch::{AddOperation, Patch, PatchOperation};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimVolumeSource, Pod, PodSchedulingGate, Volume,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::api::{
    AutoscalerPhase, GATE, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, Rival, is_gated,
    ordinal_of,
};

/// Decision about a new pod.
#[derive(Debug, Clone, PartialEq)]
pub enum PodVerdict {
    /// Create it unchanged.
    AsItIs,
    /// Create it with this change.
    With(Patch),
    /// Reject it, for now or for good; the sentence gives the reason.
    Not(String),
}

/// Decides about a new pod: for each PvcAutoscaler of its StatefulSet it gets the claim with its ordinal, as the
/// volume with the name of the template. Volumes of the StatefulSet's own `volumeClaimTemplates` are left alone.
/// The pod gets the scheduling gate if its claim retains its name and gets another volume; if its new claim may
/// have been populated before the status confirms that the old volume is unused; or if `lacks_claim`: the claim of
/// a swap does not exist, though another one of its name may. Deciding again on the outcome gives
/// [`PodVerdict::AsItIs`].
///
/// A pod never gets the old claim while that is copied: its writes there would be lost.
pub fn decide(
    pod: &Pod,
    workload: &StatefulSet,
    autoscalers: &[PvcAutoscaler],
    lacks_claim: bool,
) -> PodVerdict {
    let is_held = lacks_claim || autoscalers.iter().any(|one| one.holds(pod));
    let changes = volumes(pod, workload, autoscalers)
        .and_then(|volumes| Ok((volumes, gate(pod, is_held)?)))
        .map(|(volumes, gate)| volumes.into_iter().chain(gate).collect::<Vec<_>>());
    match changes {
        Ok(none) if none.is_empty() => PodVerdict::AsItIs,
        Ok(changes) => PodVerdict::With(Patch(changes)),
        Err(why) => PodVerdict::Not(why),
    }
}

/// The change after which a pod has its claims, if it has not; or why it cannot have them.
fn volumes(
    pod: &Pod,
    workload: &StatefulSet,
    autoscalers: &[PvcAutoscaler],
) -> Result<Option<PatchOperation>, String> {
    let (pod_name, workload_name) = (pod.name_any(), workload.name_any());
    let wanted: Vec<&PvcAutoscaler> = autoscalers
        .iter()
        .filter(|one| one.spec.stateful_set() == Some(&workload_name))
        .filter(|one| !has_own_template(workload, template(one)))
        // One that yields to an older one has no claims, and blocks no pod.
        .filter(|one| one.elder(autoscalers).is_none())
        .collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    let ordinal = ordinal_of(&pod_name, &workload_name).ok_or_else(|| {
        format!(
            "pod {pod_name} has no ordinal of StatefulSet {workload_name} in its name, so its claims are \
             unknown: name it {workload_name}-N, or remove StatefulSet {workload_name} from its owners"
        )
    })?;
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let had: Vec<Volume> = volumes.cloned().collect();
    let mut volumes = had.clone();
    for autoscaler in wanted {
        let volume = volume_for(&pod_name, ordinal, autoscaler, &volumes)?;
        volumes.retain(|one| one.name != volume.name);
        volumes.push(volume);
    }
    Ok((!is_same(&volumes, &had)).then(|| set("/spec/volumes", json!(volumes))))
}

/// The changes after which a pod is not scheduled, if it is held; or why it is not made yet.
fn gate(pod: &Pod, is_held: bool) -> Result<Vec<PatchOperation>, String> {
    let is_marked = is_gated(pod) && pod.labels().contains_key(GATE);
    if is_marked || !is_held {
        return Ok(Vec::new());
    }
    let spec = pod.spec.as_ref();
    if let Some(node) = spec.and_then(|spec| spec.node_name.as_ref()) {
        return Err(format!(
            "pod {} sets its node {node} itself, so the scheduler cannot delay it: it is created when its \
             claim can be used",
            pod.name_any()
        ));
    }
    let mut gates: Vec<PodSchedulingGate> =
        spec.and_then(|spec| spec.scheduling_gates.clone()).unwrap_or_default();
    if !is_gated(pod) {
        gates.push(PodSchedulingGate { name: GATE.to_owned() });
    }
    let mut labels = pod.labels().clone();
    labels.insert(GATE.to_owned(), "true".to_owned());
    Ok(vec![set("/spec/schedulingGates", json!(gates)), set("/metadata/labels", json!(labels))])
}

/// Returns true if these are the same volumes, in any order.
fn is_same(some: &[Volume], others: &[Volume]) -> bool {
    some.len() == others.len() && some.iter().all(|one| others.contains(one))
}

fn template(autoscaler: &PvcAutoscaler) -> &str {
    &autoscaler.spec.volume_claim_template.metadata.name
}

fn has_own_template(workload: &StatefulSet, name: &str) -> bool {
    let spec = workload.spec.as_ref();
    let mut own = spec.into_iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    own.any(|template| template.metadata.name.as_deref() == Some(name))
}

/// Returns the volume of a pod for a PvcAutoscaler, or why it cannot have it.
///
/// The API server rejects a StatefulSet with a mount of a volume that does not exist, so it may have a
/// placeholder: a claim with the name of the volume. Until that is replaced, no pod starts.
fn volume_for(
    pod: &str,
    ordinal: i32,
    autoscaler: &PvcAutoscaler,
    volumes: &[Volume],
) -> Result<Volume, String> {
    let template = template(autoscaler);
    let status = autoscaler.status.as_ref().and_then(|status| status.of(ordinal));
    let claim = status
        .map(OrdinalStatus::claim_of_pod)
        .filter(|claim| !claim.is_empty())
        .ok_or_else(|| match autoscaler.status.as_ref().and_then(why_not_made) {
            Some(why) => format!(
                "pod {pod} has no claim {template} yet: PvcAutoscaler {} reports: {why}",
                autoscaler.name_any()
            ),
            None => format!(
                "the claim {template} of pod {pod} does not exist yet; it is created within seconds"
            ),
        })?;
    let there = volumes.iter().find(|volume| volume.name == template);
    let is_of_use = |volume: &Volume| {
        let named = volume.persistent_volume_claim.as_ref();
        named.is_some_and(|named| named.claim_name == claim || named.claim_name == template)
    };
    if there.is_none_or(is_of_use) {
        let named = there.and_then(|volume| volume.persistent_volume_claim.clone());
        let claim_name = claim.to_owned();
        let source = PersistentVolumeClaimVolumeSource { claim_name, ..named.unwrap_or_default() };
        return Ok(Volume {
            name: template.to_owned(),
            persistent_volume_claim: Some(source),
            ..Volume::default()
        });
    }
    let name = autoscaler.name_any();
    Err(format!(
        "pod {pod} has a volume {template} that is not the claim {claim}, which PvcAutoscaler {name} assigns \
         to it; remove that volume from the pod template, have it name the placeholder claim {template}, or \
         delete the PvcAutoscaler"
    ))
}

/// Reason in a status why a claim does not exist yet: what blocks all claims, or what is waited for.
fn why_not_made(told: &PvcAutoscalerStatus) -> Option<&String> {
    let waits = told.phase == AutoscalerPhase::Waiting;
    told.message.as_ref().or(told.progress.as_ref().filter(|_| waits))
}

/// The change after which a field of a pod is this.
fn set(path: &'static str, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: Pointer::from_static(path).to_buf(), value })
}

#[cfg(test)]
mod tests;
