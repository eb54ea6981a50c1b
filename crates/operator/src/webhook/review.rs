//! A question of the API server and its answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::Status;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use kube::{Api, Client, ResourceExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use super::connections::Guest;
use super::{PodVerdict, StatefulSetRef, decide};
use crate::api::{PvcAutoscaler, StatefulSetName, SwapPhase, controlling_stateful_set};
use crate::cluster::{lacks_claim, list};
use crate::error_chain;
use crate::panics::caught;

/// Timeout of the reads: less than the API server waits for the answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Timeout for reading a request.
const READING: Duration = Duration::from_secs(3);

/// The longest question in bytes. The API server takes no objects of more than 3 MiB.
const LONGEST_REVIEW: usize = 4 << 20;

/// Maximum length of a pod's namespace and name in log lines, in characters.
const LONGEST_NAME: usize = 253 + 1 + 63;

/// Maximum number of concurrent reviews; others wait.
const MOST_AT_ONCE: usize = 16;

/// Handler of reviews.
pub(super) struct Desk {
    client: Client,
    places: Semaphore,
}

impl Desk {
    pub fn new(client: Client) -> Self {
        Desk { client, places: Semaphore::new(MOST_AT_ONCE) }
    }
}

/// Answers the review of a pod.
pub(super) async fn pods(
    State(desk): State<Arc<Desk>>,
    Extension(guest): Extension<Arc<Guest>>,
    request: Request,
) -> Response {
    let read = timeout(READING, read(request.into_body(), &guest)).await;
    let answer = match read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT)) {
        Ok(review) => match timeout(PATIENCE, desk.places.acquire()).await {
            Ok(Ok(_place)) => Box::pin(answer(&desk.client, review)).await,
            _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        },
        Err(code) => code.into_response(),
    };
    guest.give_back();
    answer
}

/// Reads a request; its size is counted while it arrives, whatever length it declares.
async fn read(mut body: Body, guest: &Guest) -> Result<Vec<u8>, StatusCode> {
    let mut review = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        let Ok(data) = frame.into_data() else { continue };
        if review.len() + data.len() > LONGEST_REVIEW {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if !guest.take(data.len()) {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        review.extend_from_slice(&data);
    }
    Ok(review)
}

async fn answer(client: &Client, review: Vec<u8>) -> Response {
    let read: Result<AdmissionReview<Pod>, _> = serde_json::from_slice(&review);
    drop(review);
    let answer = match read.map(TryInto::try_into) {
        Ok(Ok(request)) => {
            match answer_caught(client, &request).instrument(span_of(&request)).await {
                Some(answer) => answer,
                None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
        Ok(Err(error)) => AdmissionResponse::invalid(error),
        Err(error) => AdmissionResponse::invalid(error),
    };
    match serde_json::to_vec(&answer.into_review()) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Span of a review: each log line names the pod.
fn span_of(request: &AdmissionRequest<Pod>) -> Span {
    let namespace = request.namespace.as_deref().unwrap_or_default();
    // Without a name the API server makes one from this, after the question.
    let generated = || request.object.as_ref()?.metadata.generate_name.as_deref();
    let name = Some(&*request.name).filter(|name| !name.is_empty()).or_else(generated);
    // Any client may call, and send what the API server would reject.
    let short = |text: &str| -> String { text.chars().take(LONGEST_NAME).collect() };
    let (uid, pod) = (short(&request.uid), format!("{namespace}/{}", name.unwrap_or_default()));
    let pod = short(&pod);
    // At the highest level, so that no filter separates a line from its pod.
    tracing::error_span!("admission", uid, pod)
}

/// Answers a review; after a panic there is no answer.
async fn answer_caught(
    client: &Client,
    request: &AdmissionRequest<Pod>,
) -> Option<AdmissionResponse> {
    let answered = caught("webhook", respond(client, request)).await;
    let told =
        answered.inspect_err(|panicked| tracing::error!(%panicked, "failed to review a pod"));
    told.ok()
}

async fn respond(client: &Client, request: &AdmissionRequest<Pod>) -> AdmissionResponse {
    let answer = AdmissionResponse::from(request);
    let Some(pod) = request.object.as_ref().filter(|_| request.operation == Operation::Create)
    else {
        return answer;
    };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let looked = timeout(PATIENCE, verdict(client, namespace, pod)).await;
    let why = match looked {
        Ok(Ok(PodVerdict::AsItIs)) => return answer,
        Ok(Ok(PodVerdict::With(patch))) => match answer.clone().with_patch(patch) {
            Ok(answer) => return answer,
            Err(error) => error_chain::in_full(&error),
        },
        Ok(Ok(PodVerdict::Not(why))) => why,
        Ok(Err(error)) => unknown(pod, &error_chain::in_full(&error)),
        Err(_) => unknown(pod, "the API server does not respond"),
    };
    tracing::info!(why, "rejecting a pod for now");
    let refusal = Status::failure(&why, "Forbidden").with_code(403);
    let mut answer = answer.deny(&why);
    answer.result = refusal;
    answer
}

fn unknown(pod: &Pod, why: &str) -> String {
    format!(
        "the claims of pod {} could not be looked up: {why}; this is retried; if it persists, see the log of \
         the operator",
        pod.name_any()
    )
}

/// Reads the live objects and decides: a cache could still have the previous claim.
async fn verdict(client: &Client, namespace: &str, pod: &Pod) -> Result<PodVerdict, kube::Error> {
    let Some(owner) = controlling_stateful_set(pod) else { return Ok(PodVerdict::AsItIs) };
    // The creator of a pod sets its owner, and the name becomes a part of a path.
    if StatefulSetRef::parse(namespace, &owner.name).is_none() {
        return Ok(PodVerdict::AsItIs);
    }
    let workloads: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let autoscalers: Api<PvcAutoscaler> = Api::namespaced(client.clone(), namespace);
    let every = ListParams::default();
    let (workload, autoscalers) =
        tokio::try_join!(workloads.get_opt(&owner.name), list(&autoscalers, &every))?;
    for unreadable in &autoscalers.unreadable {
        if names(client, namespace, unreadable.name(), &owner.name).await? {
            return Ok(PodVerdict::Not(format!(
                "{unreadable}; upgrade the operator, or correct it"
            )));
        }
    }
    let has_unknown = |one: &&PvcAutoscaler| {
        let ordinals = one.status.iter().flat_map(|status| &status.ordinals);
        let mut swaps = ordinals.filter_map(|one| one.swap.as_ref());
        one.spec.stateful_set() == Some(&*owner.name)
            && swaps.any(|swap| swap.phase == SwapPhase::Unknown)
    };
    if let Some(one) = autoscalers.items.iter().find(has_unknown) {
        let name = one.name_any();
        return Ok(PodVerdict::Not(format!(
            "a swap of PvcAutoscaler {name} has a phase of another version; upgrade the operator"
        )));
    }
    let Some(workload) = workload else {
        let (set, pod) = (&owner.name, pod.name_any());
        return Ok(PodVerdict::Not(format!(
            "StatefulSet {set} of pod {pod} is gone: create it again, or create the pod without that owner"
        )));
    };
    let lacks_claim = Box::pin(lacks_claim(client, namespace, pod, &autoscalers.items)).await?;
    Ok(decide(pod, &workload, &autoscalers.items, lacks_claim))
}

/// Returns true if a PvcAutoscaler that cannot be decoded names the StatefulSet: the claim of its
/// pod is unknown then.
async fn names(
    client: &Client,
    namespace: &str,
    autoscaler: &str,
    stateful_set: &str,
) -> Result<bool, kube::Error> {
    let api: Api<StatefulSetName> = Api::namespaced(client.clone(), namespace);
    let there = api.get_opt(autoscaler).await?;
    Ok(there.is_some_and(|there| there.stateful_set() == Some(stateful_set)))
}
