//! Explains the expansion of a claim: each state of a resize in plain words. Pure.

use super::explanation::{ClaimState, Explanation, Remediation};
use super::gather::ClaimFacts;
use super::pending::look_at_node_plugins;
use super::place::{VolumeLocation, capacity};
use crate::api::{Operation, Phase, VolumeRequest};
use crate::bytes::Bytes;
use crate::cluster::resize_error;
use crate::volume::few;

/// Explains an expansion in progress, or why it is blocked; `None` if the claim has the requested size.
pub(super) fn growth(facts: &ClaimFacts, place: &VolumeLocation<'_>) -> Option<Explanation> {
    let (has, wants) = (capacity(facts)?, facts.wish()?);
    let status = facts.claim.as_ref()?.status.as_ref()?;
    let resize = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
    match resize.map(String::as_str) {
        Some("ControllerResizeInfeasible" | "NodeResizeInfeasible") => {
            Some(refused(facts, has, wants))
        }
        Some("NodeResizePending" | "NodeResizeInProgress") => Some(left_to_kubelet(facts, wants)),
        Some(_) => Some(asked_of_node(facts, place, has, wants)),
        None if wants > has => Some(asked_of_node(facts, place, has, wants)),
        None => None,
    }
}

fn refused(facts: &ClaimFacts, has: Bytes, wants: Bytes) -> Explanation {
    let words = facts.resize_error().unwrap_or_else(|| "the driver reported no reason".to_owned());
    let why =
        format!("cannot be expanded from {has} to {wants}, and stays usable at its size: {words}");
    let command = format!("{} expand pvc/{} SIZE", facts.program, facts.place());
    let what = format!("request less, but more than {has}; it is tried immediately");
    facts.explain(ClaimState::ExpansionFailed, why, vec![Remediation::command(what, command)])
}

fn left_to_kubelet(facts: &ClaimFacts, wants: Bytes) -> Explanation {
    let running = facts
        .pods
        .iter()
        .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    let pods: Vec<&String> = running.filter_map(|pod| pod.metadata.name.as_ref()).collect();
    if pods.is_empty() {
        let why = format!(
            "has a volume of {wants}, and its file system is expanded when the next pod uses it. Nothing is wrong."
        );
        let todo = vec![Remediation::hint("start a pod that uses it")];
        return facts.explain(ClaimState::OfflineExpansionPending, why, todo);
    }
    let error = facts.resize_error().map(|words| format!(" So far: {words}")).unwrap_or_default();
    let why = format!(
        "has a volume of {wants}, and the kubelet expands its file system under {} within two minutes. No \
         pod has to be restarted.{error}",
        few(pods)
    );
    facts.explain(ClaimState::NodeExpansionPending, why, Vec::new())
}

fn asked_of_node(
    facts: &ClaimFacts,
    place: &VolumeLocation<'_>,
    has: Bytes,
    wants: Bytes,
) -> Explanation {
    let grows = format!("is being expanded from {has} to {wants} on node {}", place.node);
    if let Some(trouble) = facts.node_plugin_trouble(place.node) {
        let why = format!("{grows}, and {trouble}.");
        return facts.explain(
            ClaimState::NodePluginUnavailable,
            why,
            vec![look_at_node_plugins(place.node)],
        );
    }
    let is_it = |one: &&VolumeRequest| {
        one.spec.volume_handle == place.id && matches!(one.spec.operation, Operation::Expand(_))
    };
    let request = facts.requests.iter().find(is_it);
    let status = request.map(VolumeRequest::status_or_default).unwrap_or_default();
    let failure = status.error.filter(|_| status.phase == Phase::Failed);
    let told = failure.map(|failure| failure.message).or_else(|| {
        let told = request.is_none().then(|| facts.resize_error());
        told.flatten()
    });
    if let Some(words) = told {
        let why =
            format!("{grows}; the last attempt failed, and is retried automatically: {words}");
        return facts.explain(ClaimState::ExpansionRetrying, why, Vec::new());
    }
    let says = match (request, status.phase, status.progress) {
        (None, ..) => "the resizer has not called the driver yet".to_owned(),
        (_, _, Some(progress)) => progress,
        (_, Phase::Pending, None) => "its node plugin has not started it yet".to_owned(),
        (_, Phase::Resizing, None) => "the volume is larger, its file system follows".to_owned(),
        _ => "its node plugin is working on it".to_owned(),
    };
    let todo = vec![facts.log_of("resizer")];
    facts.explain(ClaimState::Expanding, format!("{grows}; {says}."), todo)
}

impl ClaimFacts {
    /// Message of the driver about a failed resize: the condition has it for final codes, the event for all.
    fn resize_error(&self) -> Option<String> {
        let told = resize_error(self.claim.as_ref()?);
        told.map(str::to_owned).or_else(|| self.event_message("VolumeResizeFailed"))
    }
}
