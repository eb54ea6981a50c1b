//! Why a pod does not run, or does not go on.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

/// How long a pod may take to end, or its node not to answer, before that is reported.
const SILENCE: SignedDuration = SignedDuration::from_mins(1);

/// How much is repeated of what a kubelet or the scheduler says, in characters: what is said of it has to fit too.
const LONGEST: usize = 600;

/// How a person has Kubernetes give up a node that was switched off for good.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";

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
    let secrets = pull_secrets(pod, &reason);
    let message: String = message.chars().take(LONGEST).collect();
    let why = if message.is_empty() { reason } else { format!("{reason}: {message}") };
    Some(format!(
        "pod {name}, which {does}, does not run: {why}{secrets}; its events say more: `kubectl describe pod \
         {name}`"
    ))
}

/// Of a pod whose image is not pulled: by which Secrets it is. They are in the namespace of the pod, where who installs
/// a chart may have made none; the kubelet says of that nothing but what the registry answers.
fn pull_secrets(pod: &Pod, reason: &str) -> String {
    if !["ErrImagePull", "ErrImageNeverPull", "ImagePullBackOff"].contains(&reason) {
        return String::new();
    }
    let namespace = pod.namespace().unwrap_or_default();
    let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let names: Vec<&str> = secrets.map(|one| one.name.as_str()).collect();
    if names.is_empty() {
        return format!(
            "; if its registry wants a password: neither the value operator.populatorImagePullSecrets nor \
             ServiceAccount default of namespace {namespace} names a Secret with one"
        );
    }
    let names = names.join(" ");
    format!(
        "; what it is pulled with has to be in namespace {namespace}: `kubectl get secret -n {namespace} {names}`"
    )
}

/// Why a pod of ours that was started is not known to go on: its node does not respond, or has not ended it.
pub(super) fn why_silent(now: Timestamp, pod: &Pod, does: &str) -> Option<String> {
    let what = match &pod.metadata.deletion_timestamp {
        Some(Time(since)) => {
            (now.duration_since(*since) >= SILENCE).then_some("was deleted and has not ended")
        }
        None => is_out_of_touch(now, pod).then_some("runs on a node that does not respond"),
    }?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("NODE");
    Some(format!(
        "pod {}, which {does}, {what}: see `kubectl describe node {node}`; if the node is switched off for good, \
         `kubectl taint node {node} {OUT_OF_SERVICE}` lets its pods go",
        pod.name_any()
    ))
}

/// Whether Kubernetes has not heard of a pod that runs: it says then that the pod is not ready, and changes
/// nothing else before it deletes it.
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
