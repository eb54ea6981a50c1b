//! A question of the API server and its answer.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::Status;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use kube::{Api, Client, ResourceExt};

use super::{Verdict, Workload, decide};
use crate::api::{PvcAutoscaler, controlling_stateful_set};
use crate::causes;

/// How long is looked: less than the API server waits for the answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Answer the review of a pod.
pub(super) async fn pods(State(client): State<Client>, review: Bytes) -> Response {
    let review: Result<AdmissionReview<Pod>, _> = serde_json::from_slice(&review);
    let answer = match review.map(TryInto::try_into) {
        Ok(Ok(request)) => respond(&client, &request).await,
        Ok(Err(error)) => AdmissionResponse::invalid(error),
        Err(error) => AdmissionResponse::invalid(error),
    };
    match serde_json::to_vec(&answer.into_review()) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn respond(client: &Client, request: &AdmissionRequest<Pod>) -> AdmissionResponse {
    let answer = AdmissionResponse::from(request);
    let Some(pod) = request.object.as_ref().filter(|_| request.operation == Operation::Create)
    else {
        return answer;
    };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let looked = tokio::time::timeout(PATIENCE, verdict(client, namespace, pod)).await;
    let why = match looked {
        Ok(Ok(Verdict::AsItIs)) => return answer,
        Ok(Ok(Verdict::With(patch))) => match answer.clone().with_patch(patch) {
            Ok(answer) => return answer,
            Err(error) => causes::in_full(&error),
        },
        Ok(Ok(Verdict::Not(why))) => why,
        Ok(Err(error)) => unknown(pod, &causes::in_full(&error)),
        Err(_) => unknown(pod, "the API server does not answer"),
    };
    tracing::info!(namespace, why, "a pod is not made yet");
    let refusal = Status::failure(&why, "Forbidden").with_code(403);
    let mut answer = answer.deny(&why);
    answer.result = refusal;
    answer
}

fn unknown(pod: &Pod, why: &str) -> String {
    format!("which claims pod {} is to have could not be looked up: {why}", pod.name_any())
}

/// Look at what there is at this moment, and decide: a cache could still have the claim of before.
async fn verdict(client: &Client, namespace: &str, pod: &Pod) -> Result<Verdict, kube::Error> {
    let Some(owner) = controlling_stateful_set(pod) else { return Ok(Verdict::AsItIs) };
    // Whoever makes a pod writes its owner, and the name becomes a part of a path.
    if Workload::parse(namespace, &owner.name).is_none() {
        return Ok(Verdict::AsItIs);
    }
    let workloads: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let autoscalers: Api<PvcAutoscaler> = Api::namespaced(client.clone(), namespace);
    let every = ListParams::default();
    let (workload, autoscalers) =
        tokio::try_join!(workloads.get_opt(&owner.name), autoscalers.list(&every))?;
    Ok(match workload {
        Some(workload) => decide(pod, &workload, &autoscalers.items),
        None => {
            Verdict::Not(format!("StatefulSet {} of pod {} is gone", owner.name, pod.name_any()))
        }
    })
}
