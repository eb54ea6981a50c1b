//! Writes that may be repeated: each says what it was decided from, and what was done before is done.

use std::fmt::Debug;

use json_patch::Patch as JsonPatch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Make an object; one of its name is that of another replica, or of a time before.
///
/// # Errors
/// What the API server says.
pub async fn make<K>(api: &Api<K>, object: &K, writer: &str) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    make_new(api, object, writer).await.map(drop)
}

/// Make an object; `None` if there is one of its name, whosever it is.
///
/// # Errors
/// What the API server says.
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

/// Make an object, if there is none of its name; one that is another client's stays as it is.
///
/// # Errors
/// That there is one of another client, as a refusal; what the API server says.
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
        "{} {name} in namespace {namespace} has the name of one that the operator makes, and is another client's: \
         `kubectl delete {} {name} --namespace {namespace}` if it is not needed",
        K::kind(&()),
        K::plural(&())
    );
    let status = kube::core::Status::failure(&message, "Forbidden").with_code(403);
    Err(kube::Error::Api(Box::new(status)))
}

/// Ask whether an object could be made, and make none: all who guard the namespace are asked. One of its name
/// that is there says so, too.
///
/// # Errors
/// What the API server says.
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

/// Delete the object that was seen, and no other one of its name; gone is gone. With a version in
/// `seen`, only while it is as it was seen.
///
/// # Errors
/// What the API server says.
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

/// Patch an object.
///
/// # Errors
/// What the API server says; a conflict, or with [`by_json`] an invalid patch, says that the object is
/// no longer what the patch was made for.
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

/// Whether asking again at once would not help: a quota, a policy, a right that is missing.
pub fn is_refused(status: &kube::core::Status) -> bool {
    (400..=422).contains(&status.code) && !status.is_conflict() && !status.is_not_found()
}

/// What the API server would say if it compared an object with what was seen of another one.
pub fn outdated(what: &str) -> kube::Error {
    kube::Error::Api(Box::new(kube::core::Status::failure(what, "Conflict").with_code(409)))
}

/// Whether something was written meanwhile: a JSON patch whose test fails is invalid, not a conflict.
pub fn is_stale(status: &kube::core::Status) -> bool {
    status.is_conflict() || status.is_invalid() || status.is_not_found()
}
