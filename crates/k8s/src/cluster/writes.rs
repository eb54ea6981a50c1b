//! Idempotent writes: each carries the version that it was decided from, and a repeated one does
//! nothing.

use std::fmt::Debug;

use json_patch::Patch as JsonPatch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Field manager of what the controller plugin writes.
pub const CONTROLLER: &str = "pliant-controller";

/// Field manager of what the operator writes.
pub const OPERATOR: &str = "pliant-operator";

/// Field manager of what the node plugins write.
pub const NODE_PLUGIN: &str = "pliant-node-plugin";

/// Creates an object; an existing one of its name is that of another replica, or of an earlier
/// attempt.
///
/// # Errors
/// An error of the API server.
pub async fn make<K>(api: &Api<K>, object: &K, writer: &str) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    make_new(api, object, writer).await.map(drop)
}

/// Creates an object; `None` if one of its name exists, whoever owns it.
///
/// # Errors
/// An error of the API server.
pub async fn make_new<K>(api: &Api<K>, object: &K, writer: &str) -> Result<Option<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let params = PostParams { field_manager: Some(writer.to_owned()), ..PostParams::default() };
    match api.create(&params, object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        made => made.map(Some),
    }
}

/// Creates an object, unless one of its name exists; another client's stays unchanged.
///
/// # Errors
/// A rejection if another client's exists; an error of the API server.
pub async fn make_own<K>(
    api: &Api<K>,
    object: &K,
    writer: &str,
    is_own: impl FnOnce(&K) -> bool,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
{
    if make_new(api, object, writer).await?.is_some() {
        return Ok(());
    }
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    // Gone again is made at the next look.
    if api.get_opt(&name).await?.is_none_or(|there| is_own(&there)) {
        return Ok(());
    }
    let message = format!(
        "{} {name} in namespace {namespace} has the name of an object of the operator, but belongs to another \
         client: run `kubectl delete {} {name} --namespace {namespace}` if it is not needed",
        K::kind(&()),
        K::plural(&())
    );
    let status = kube::core::Status::failure(&message, "Forbidden").with_code(403);
    Err(kube::Error::Api(Box::new(status)))
}

/// Creates an object in a dry run, which all admission plugins of the namespace see. An existing one of its
/// name is an error too.
///
/// # Errors
/// An error of the API server.
pub async fn rehearse<K>(api: &Api<K>, object: &K, writer: &str) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let field_manager = Some(writer.to_owned());
    match api.create(&PostParams { dry_run: true, field_manager }, object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        made => made.map(drop),
    }
}

/// Deletes the observed object, and no other one of its name; a missing one is no error. With a
/// version in `seen`, only that version.
///
/// # Errors
/// An error of the API server.
pub async fn remove<K>(api: &Api<K>, seen: &ObjectMeta) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let only =
        Preconditions { uid: seen.uid.clone(), resource_version: seen.resource_version.clone() };
    let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
    match api.delete(seen.name.as_deref().unwrap_or_default(), &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}

/// Patches an object.
///
/// # Errors
/// An error of the API server; a conflict, or with [`by_json`] an invalid patch, means that the object
/// has changed.
pub async fn patch<K, P>(
    api: &Api<K>,
    name: &str,
    patch: &Patch<P>,
    writer: &str,
) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
    P: Serialize + Debug,
{
    let params = PatchParams { field_manager: Some(writer.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, patch).await.map(drop)
}

/// Returns a JSON patch: its tests and its changes are one write.
///
/// # Panics
/// If it is none, which a test shows.
pub fn by_json(patch: Value) -> Patch<()> {
    let patch: JsonPatch = serde_json::from_value(patch).expect("a patch");
    Patch::Json(patch)
}

/// Returns true if a retry at once would not help: a quota, a policy, a missing permission.
pub fn is_refused(status: &kube::core::Status) -> bool {
    (400..=422).contains(&status.code) && !status.is_conflict() && !status.is_not_found()
}

/// Returns the conflict that the API server would report if it compared an object with an observed
/// one.
pub fn outdated(what: &str) -> kube::Error {
    kube::Error::Api(Box::new(kube::core::Status::failure(what, "Conflict").with_code(409)))
}

/// Returns true if something was written meanwhile: a JSON patch with a failed test is invalid, not a
/// conflict.
pub fn is_stale(status: &kube::core::Status) -> bool {
    status.is_conflict() || status.is_invalid() || status.is_not_found()
}
