//! Decodes objects one by one: an invalid object does not prevent others from being read.
//!
//! kube decodes a list, or a page of one, as a whole: one object with a value that this version does not know
//! would hide all others. Every list uses [`list`], every watch [`Watched`](crate::cluster::Watched) or
//! [`Guarded`]; `tests/layers.rs` enforces that.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, ObjectList};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::cluster::{OnceEvent, Record};
use crate::panics::caught_now;

/// The reason of the event on an object that cannot be decoded.
pub const OBJECT_UNREADABLE: &str = "InvalidObject";

/// The reason of the event on an object that is skipped because its namespace has too much of its kind.
pub const NAMESPACE_TOO_LARGE: &str = "NamespaceTooLarge";

/// Maximum length of a stored cause, in characters: the object itself may be large.
const LONGEST_CAUSE: usize = 256;

/// Page size of lists: a large object is 1 MiB, and all objects of a page are in memory at once.
pub const PAGE: u32 = 50;

/// An object that is left out, because it cannot be decoded or its namespace has too much: what names it, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Unreadable {
    /// The reason of the event about it.
    pub reason: &'static str,
    /// Group and version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name, namespace and uid of the object, and the resourceVersion from a watch; nothing else.
    pub metadata: ObjectMeta,
    /// Message of the decoder, or the size of the objects of its namespace.
    pub why: String,
}

/// An object, or why it cannot be decoded.
///
/// kube's `DeserializeGuard` does the same; it copies each object once more, and is of the scope of its kind,
/// so that no watch of one namespace can be made of a watch of any.
#[derive(Debug, Clone)]
pub struct Guarded<K>(pub Result<K, Unreadable>);

/// The objects of a list that can be decoded, and the others.
#[derive(Debug, Clone)]
pub struct Listed<K> {
    /// Objects that can be decoded.
    pub items: Vec<K>,
    /// Objects that cannot be decoded.
    pub unreadable: Vec<Unreadable>,
}

impl<K> Default for Listed<K> {
    fn default() -> Self {
        Listed { items: Vec::new(), unreadable: Vec::new() }
    }
}

impl<K> Listed<K> {
    /// Returns all objects, for decisions that depend on what does not exist.
    ///
    /// # Errors
    /// One of them cannot be decoded.
    pub fn whole(self) -> Result<Vec<K>, kube::Error> {
        match self.unreadable.first() {
            Some(one) => Err(one.error()),
            None => Ok(self.items),
        }
    }
}

impl Unreadable {
    fn of<K: Resource<DynamicType = ()>>(object: &Value, why: &dyn fmt::Display) -> Unreadable {
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Unreadable {
            reason: OBJECT_UNREADABLE,
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            metadata,
            why: why.to_string().chars().take(LONGEST_CAUSE).collect(),
        }
    }

    /// Describes an object that is decoded but invalid.
    pub fn of_record(record: &impl Record, why: &str) -> Unreadable {
        Unreadable::named(record.reference(), OBJECT_UNREADABLE, why.to_owned())
    }

    /// An object that is skipped, as are those that come after it: its namespace has too much of its kind.
    pub fn beyond(skipped: &ObjectReference, than: &str) -> Unreadable {
        let kind = skipped.kind.as_deref().unwrap_or_default();
        let why = format!("the objects of kind {kind} in its namespace take more than {than}");
        Unreadable::named(skipped.clone(), NAMESPACE_TOO_LARGE, why)
    }

    fn named(object: ObjectReference, reason: &'static str, why: String) -> Unreadable {
        Unreadable {
            reason,
            api_version: object.api_version.unwrap_or_default(),
            kind: object.kind.unwrap_or_default(),
            metadata: ObjectMeta {
                name: object.name,
                namespace: object.namespace,
                uid: object.uid,
                ..ObjectMeta::default()
            },
            why,
        }
    }

    /// Returns a reference to the object.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            ..ObjectReference::default()
        }
    }

    /// Converts it into an error for callers that need the object.
    pub fn error(&self) -> kube::Error {
        kube::Error::SerdeError(serde::de::Error::custom(self))
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Namespace of the object; empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Namespace and name of the object.
    pub fn place(&self) -> (&str, &str) {
        (self.namespace(), self.name())
    }

    fn text(&self) -> String {
        let why = &self.why;
        if self.reason == NAMESPACE_TOO_LARGE {
            return format!("this object and later ones are skipped: {why}");
        }
        let version = env!("CARGO_PKG_VERSION");
        format!("version {version} cannot decode this object and leaves it unchanged: {why}")
    }

    /// Returns the event about it on the object: one for each cause.
    pub fn event(&self) -> OnceEvent {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        let identity = format!("{uid}/{}/{}", self.reason, self.why);
        OnceEvent {
            name: OnceEvent::name_for(self.name(), &identity),
            about: self.reference(),
            reason: self.reason.to_owned(),
            is_warning: true,
            text: OnceEvent::bounded(&self.text()),
            key: None,
        }
    }
}

/// Formats it as a sentence.
impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = [self.namespace(), self.name()].map(str::to_owned);
        let place: Vec<String> = place.into_iter().filter(|part| !part.is_empty()).collect();
        let what =
            if self.reason == NAMESPACE_TOO_LARGE { "is skipped" } else { "cannot be decoded" };
        write!(f, "{} {} {what}: {}", self.kind, place.join("/"), self.why)
    }
}

impl<'de, K> Deserialize<'de> for Guarded<K>
where
    K: Resource<DynamicType = ()> + for<'object> Deserialize<'object>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields"); // Managed fields are not used.
        }
        Ok(Guarded(match caught_now("objects", || K::deserialize(&object)) {
            Ok(decoded) => decoded.map_err(|error| Unreadable::of::<K>(&object, &error)),
            Err(panicked) => Err(Unreadable::of::<K>(&object, &panicked)),
        }))
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Guarded<K> {
    type DynamicType = ();
    /// A watch of one namespace can be made of every kind; of one without namespaces none is.
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

/// Returns the same API with each object guarded.
pub fn guarded<K: Resource<DynamicType = ()>>(api: Api<K>) -> Api<Guarded<K>> {
    let namespace = api.namespace().map(str::to_owned);
    let client = api.into_client();
    match namespace {
        Some(namespace) => Api::namespaced(client, &namespace),
        None => Api::all(client),
    }
}

/// Lists objects, page by page, each decoded on its own.
///
/// # Errors
/// An error of the API server; never because of an object that cannot be decoded.
pub async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<Listed<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + for<'object> Deserialize<'object> + Clone + fmt::Debug,
{
    let mut listed = Listed::default();
    pages(api, params, |one| match one {
        Ok(object) => listed.items.push(object),
        Err(unreadable) => listed.unreadable.push(unreadable),
    })
    .await?;
    Ok(listed)
}

/// Lists objects page by page and calls a function for each; no more than a page of them is in
/// memory.
///
/// # Errors
/// As [`list`].
pub async fn pages<K>(
    api: &Api<K>,
    params: &ListParams,
    mut each: impl FnMut(Result<K, Unreadable>),
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + for<'object> Deserialize<'object> + Clone + fmt::Debug,
{
    let client = Client::from(api.clone());
    let mut params = params.clone();
    if params.limit.is_none() {
        params = params.limit(PAGE);
    }
    loop {
        let request = Request::new(api.resource_url()).list(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let page: ObjectList<Guarded<K>> = client.request(request).await?;
        page.items.into_iter().for_each(|one| each(one.0));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(()),
        }
    }
}

/// Objects that watches of this process cannot decode, by kind, namespace and name. Its scope is that of the
/// metric: the process, however many watches of a kind it has.
static UNREADABLE: LazyLock<Mutex<HashMap<Place, String>>> = LazyLock::new(Mutex::default);

type Place = (String, String, String);

fn place(kind: &str, (namespace, name): (&str, &str)) -> Place {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

/// Adds an object that cannot be decoded; returns true if that was not known before.
pub fn note_unreadable(one: &Unreadable) -> bool {
    let mut all = UNREADABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = all.insert(place(&one.kind, one.place()), one.why.clone());
    let is_new = before.as_ref() != Some(&one.why);
    if is_new {
        let (kind, namespace, name, why) = (&one.kind, one.namespace(), one.name(), &one.why);
        let reason = one.reason;
        tracing::warn!(kind, namespace, name, reason, error = why, "skipping an object");
    }
    is_new
}

/// Removes an object that can be decoded, or is gone.
pub fn note_readable<K: Resource<DynamicType = ()>>(at: (&str, &str)) {
    let mut all = UNREADABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if !all.is_empty() {
        all.remove(&place(&K::kind(&()), at));
    }
}

/// Counts the objects that watches of this process cannot decode, by kind.
pub fn unreadable_by_kind() -> BTreeMap<String, u64> {
    let all = UNREADABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut counts = BTreeMap::new();
    for (kind, _, _) in all.keys() {
        *counts.entry(kind.clone()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::StoragePool;
    use pliant_fake_apiserver::{FakeApi, Kinds};

    #[tokio::test]
    async fn a_list_leaves_out_what_cannot_be_decoded_and_says_so() {
        let api = FakeApi::new(&Kinds::with(&crate::api::definitions()));
        for at in 0..u64::from(PAGE) * 2 {
            let spec = if at == 7 { json!({"disks": "all"}) } else { json!({"disks": []}) };
            api.put_json::<StoragePool>(
                json!({"metadata": {"name": format!("p{at:03}")}, "spec": spec}),
            );
        }
        let pools: Api<StoragePool> = Api::all(api.client());
        let calls = api.calls();
        let all = list(&pools, &ListParams::default()).await.unwrap();
        assert_eq!((all.items.len(), api.calls() - calls), (99, 2), "in pages");
        let [bad] = all.unreadable.as_slice() else { panic!("{:?}", all.unreadable) };
        assert!(
            bad.to_string().starts_with("StoragePool p007 cannot be decoded: invalid type"),
            "{bad}"
        );
        let event = bad.event();
        assert_eq!(event.about.name.as_deref(), Some("p007"));
        assert!(event.text.contains("leaves it unchanged"), "{}", event.text);
    }
}
