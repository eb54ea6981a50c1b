//! Reasons why a pod does not run, or makes no progress.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

/// Time for a pod to end, or for its node to respond, before that is reported.
const SILENCE: SignedDuration = SignedDuration::from_mins(1);

/// Maximum length of a quoted message of a kubelet or the scheduler, in characters: the text around it must fit
/// too.
const LONGEST: usize = 600;

/// Taint that makes Kubernetes release the pods of a node that was switched off for good.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";

/// Returns what prevents a pod from running, once that takes more than seconds; `does` describes its
/// purpose.
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
    let secrets = pull_secrets(pod, &reason);
    let message: String = message.chars().take(LONGEST).collect();
    let why = if message.is_empty() { reason } else { format!("{reason}: {message}") };
    Some(format!(
        "pod {name}, which {does}, does not run: {why}{secrets}; for its events see `kubectl describe pod \
         {name}`"
    ))
}

/// Names the pull Secrets of a pod whose image is not pulled. They must be in the namespace of the pod, where the
/// installer may have created none; the kubelet reports only the answer of the registry.
fn pull_secrets(pod: &Pod, reason: &str) -> String {
    if !["ErrImagePull", "ErrImageNeverPull", "ImagePullBackOff"].contains(&reason) {
        return String::new();
    }
    let namespace = pod.namespace().unwrap_or_default();
    let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let names: Vec<&str> = secrets.map(|one| one.name.as_str()).collect();
    if names.is_empty() {
        return format!(
            "; if its registry requires a password: neither the value populator.imagePullSecrets nor \
             ServiceAccount default of namespace {namespace} names a Secret with one"
        );
    }
    let names = names.join(" ");
    format!(
        "; its pull Secret must be in namespace {namespace}: `kubectl get secret -n {namespace} {names}`"
    )
}

/// Returns why the progress of a started pod is unknown: its node does not respond, or has not ended it.
pub(super) fn why_silent(now: Timestamp, pod: &Pod, does: &str) -> Option<String> {
    let what = match &pod.metadata.deletion_timestamp {
        Some(Time(since)) => {
            (now.duration_since(*since) >= SILENCE).then_some("was deleted and has not ended")
        }
        None => is_out_of_touch(now, pod).then_some("runs on a node that does not respond"),
    }?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("NODE");
    Some(format!(
        "pod {}, which {does}, {what}: see `kubectl describe node {node}`; if the node is switched off for \
         good, `kubectl taint node {node} {OUT_OF_SERVICE}` releases its pods",
        pod.name_any()
    ))
}

/// Returns true if Kubernetes has lost contact to a running pod: it then reports the pod as not ready, and
/// changes nothing else before it deletes it.
fn is_out_of_touch(now: Timestamp, pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let ended =
        |one: &ContainerStatus| one.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let has_ended = status.container_statuses.iter().flatten().any(ended);
    let mut conditions = status.conditions.iter().flatten();
    let unready = conditions.find(|one| one.type_ == "Ready" && one.status != "True");
    let since = unready.and_then(|one| one.last_transition_time.as_ref());
    status.phase.as_deref() == Some("Running")
        && !has_ended
        && since.is_some_and(|Time(since)| now.duration_since(*since) >= SILENCE)
}
