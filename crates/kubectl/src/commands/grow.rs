//! Expands a claim, and reports each step.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use crate::api::Quantity;
use crate::bytes::Bytes;
use crate::cluster::{self, own_words};
use crate::commands::{AskError, EDITOR, no_claim, within};
use crate::error_chain::in_full;

/// Part of the API server's message about a claim that requests less than it has.
const LESS_THAN_IT_HAS: &str = "can not be less than";

/// Result of an expansion, as the claim reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ExpansionResult {
    /// It has the size.
    Grown,
    /// It cannot get the size; with the driver's message.
    Refused(String),
}

/// Requests at least this size for a claim; calls `tell` with a line for people, who run this program as
/// `program`.
///
/// # Errors
/// [`AskError::Refused`] with the API server's own sentence if it does not take the size.
pub async fn grow(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
    name: &str,
    size: Bytes,
    mut tell: impl FnMut(&str),
) -> Result<(), AskError> {
    let namespace = namespace.unwrap_or(client.default_namespace());
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let wish = json!({"spec": {"resources": {"requests": {"storage": Quantity(size)}}}});
    let params = PatchParams { field_manager: Some(EDITOR.to_owned()), ..PatchParams::default() };
    let edited = api.patch(name, &params, &Patch::Merge(wish)).await;
    let shrink = format!("{program} shrink pvc/{name} {} --namespace {namespace}", Quantity(size));
    edited.map_err(|error| refused_edit(error, namespace, name, &shrink))?;
    tell(&format!("request     {size}, accepted"));
    Ok(())
}

/// Waits until a claim has this size, at most for `limit` if given; calls `tell` with each line for people.
///
/// # Errors
/// [`AskError::Refused`] with the driver's message if the free space is not enough, or with the command to
/// run if it takes longer.
pub async fn await_growth(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
    size: Bytes,
    limit: Option<Duration>,
    mut tell: impl FnMut(&str),
) -> Result<(), AskError> {
    let namespace = namespace.unwrap_or(client.default_namespace());
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let begun = Instant::now();
    let told =
        |claim: Option<&PersistentVolumeClaim>| claim.and_then(|claim| result_of(claim, size));
    let waited =
        await_condition(api, name, |claim: Option<&PersistentVolumeClaim>| told(claim).is_some());
    let claim = within(limit, waited).await.map_err(|limit| AskError::Refused {
        reason: format!(
            "{namespace}/{name} was not expanded within {} s; see `kubectl describe pvc {name} \
             --namespace {namespace}`: at FileSystemResizePending, the kubelet expands the file system",
            limit.as_secs()
        ),
    })?;
    let claim = claim.map_err(|error| AskError::Refused { reason: in_full(&error) })?;
    if let Some(ExpansionResult::Refused(reason)) = told(claim.as_ref()) {
        return Err(AskError::Refused { reason });
    }
    let took = begun.elapsed().as_secs_f64();
    tell(&format!("claim       {}, after {took:.2} s", capacity(claim.as_ref())));
    Ok(())
}

fn refused_edit(error: kube::Error, namespace: &str, name: &str, shrink: &str) -> AskError {
    match &error {
        kube::Error::Api(status) if status.message.contains(LESS_THAN_IT_HAS) => {
            let said = &status.message;
            let reason = format!("{said}; to shrink a claim, run `{shrink}`");
            AskError::Refused { reason }
        }
        kube::Error::Api(status) if status.is_forbidden() || status.is_invalid() => {
            AskError::Refused { reason: status.message.clone() }
        }
        _ => no_claim(error, namespace, name),
    }
}

fn capacity(claim: Option<&PersistentVolumeClaim>) -> String {
    let capacity = claim.and_then(|claim| claim.status.as_ref()?.capacity.as_ref()?.get("storage"));
    capacity.map(|size| size.0.clone()).unwrap_or_default()
}

fn result_of(claim: &PersistentVolumeClaim, size: Bytes) -> Option<ExpansionResult> {
    let status = claim.status.as_ref()?;
    status.capacity.as_ref()?.get("storage")?;
    let resize = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
    // One of another size was refused before: this one was not tried yet.
    let is_its = |tried: Option<Quantity>| tried.is_none_or(|tried| tried.0 == size);
    let is_tried = cluster::tried_size(claim).is_ok_and(is_its);
    if is_tried && resize.is_some_and(|word| word.ends_with("ResizeInfeasible")) {
        let conditions = status.conditions.iter().flatten();
        let why = conditions.filter(|one| one.type_.ends_with("ResizeError"));
        let words: Vec<&str> =
            why.filter_map(|one| one.message.as_deref().map(own_words)).collect();
        return Some(ExpansionResult::Refused(words.join("; ")));
    }
    let has = match cluster::capacity(claim) {
        Ok(has) => has.0,
        Err(why) => return Some(ExpansionResult::Refused(why.to_string())),
    };
    (has >= size && resize.is_none()).then_some(ExpansionResult::Grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_tells_how_far_its_growth_is() {
        let claim = |status| {
            let claim = json!({"metadata": {"name": "data"}, "status": status});
            result_of(&serde_json::from_value(claim).unwrap(), Bytes::gib(2))
        };
        let resize = |word: &str| json!({"storage": word});
        assert_eq!(claim(json!({"capacity": {"storage": "1Gi"}})), None);
        assert_eq!(claim(json!({"capacity": {"storage": "2Gi"}})), Some(ExpansionResult::Grown));
        assert_eq!(claim(json!({"capacity": {"storage": "3Gi"}})), Some(ExpansionResult::Grown));
        assert_eq!(
            claim(json!({"capacity": {"storage": "2147483647500m"}})),
            Some(ExpansionResult::Grown)
        );
        let refused = claim(json!({"capacity": {"storage": "1e50"}}));
        let Some(ExpansionResult::Refused(why)) = refused else { panic!("{refused:?}") };
        assert!(why.starts_with("status.capacity.storage of claim data is invalid"), "{why}");
        let under_way = resize("ControllerResizeInProgress");
        let status =
            json!({"capacity": {"storage": "1Gi"}, "allocatedResourceStatuses": under_way});
        assert_eq!(claim(status), None);
        let pending = resize("NodeResizePending");
        let status = json!({"capacity": {"storage": "1Gi"}, "allocatedResourceStatuses": pending});
        assert_eq!(claim(status), None);
        let status = json!({
            "capacity": {"storage": "1Gi"},
            "allocatedResourceStatuses": resize("ControllerResizeInfeasible"),
            "conditions": [{"type": "ControllerResizeError", "status": "True",
                            "message": "rpc error: code = OutOfRange desc = no room"}],
        });
        assert_eq!(claim(status.clone()), Some(ExpansionResult::Refused("no room".to_owned())));
        let tried = |size: &str| {
            let mut status = status.clone();
            status["allocatedResources"] = json!({ "storage": size });
            claim(status)
        };
        assert_eq!(tried("2Gi"), Some(ExpansionResult::Refused("no room".to_owned())));
        assert_eq!(tried("2147483647500m"), Some(ExpansionResult::Refused("no room".to_owned())));
        assert_eq!((tried("100Gi"), tried("1e50")), (None, None), "it was refused before");
    }

    #[test]
    fn who_asks_for_less_is_shown_the_command_for_that() {
        let said = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
        let status = kube::core::Status::failure(said, "Invalid").with_code(422);
        let shrink = "kubectl pliant shrink pvc/db 10Mi --namespace shop";
        let error = refused_edit(kube::Error::Api(Box::new(status)), "shop", "db", shrink);
        let words = error.to_string();
        assert!(words.starts_with(said) && words.ends_with(&format!("`{shrink}`")), "{words}");
    }
}
