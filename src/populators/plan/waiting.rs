//! Why a pod does not run.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// What keeps a pod of ours from running, once that is no matter of seconds; `does` says what it is for.
pub(super) fn held_up(now: Timestamp, pod: &Pod, does: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Pending") {
        return None;
    }
    let created = pod.metadata.creation_timestamp.as_ref()?;
    if now.duration_since(created.0).as_secs() < 30 {
        return None;
    }
    let container = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some((waiting.reason.clone()?, waiting.message.clone().unwrap_or_default()))
    });
    let condition = status.conditions.iter().flatten().find_map(|condition| {
        let is_why = condition.type_ == "PodScheduled" && condition.status == "False";
        let message = condition.message.clone().unwrap_or_default();
        is_why.then(|| (condition.reason.clone().unwrap_or_default(), message))
    });
    let (reason, message) = container.or(condition)?;
    let name = pod.name_any();
    let why = if message.is_empty() { reason } else { format!("{reason}: {message}") };
    Some(format!(
        "pod {name}, which {does}, does not run: {why}; its events say more: `kubectl describe pod \
         {name}`"
    ))
}
