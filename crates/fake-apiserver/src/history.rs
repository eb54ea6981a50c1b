//! What has changed, and in which version.

use serde_json::Value;

use crate::refusal::Refusal;
use crate::resources::Resource;

/// Where an object is; in the order of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub api_version: String,
    pub plural: String,
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(resource: &Resource, namespace: &str, name: &str) -> Key {
        Key {
            api_version: resource.api_version(),
            plural: resource.plural.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether it lies in this collection.
    pub fn is_in(&self, resource: &Resource, namespace: &str) -> bool {
        self.plural == resource.plural
            && resource.is_of(&self.api_version)
            && (namespace.is_empty() || self.namespace == namespace)
    }
}

/// One step of the history.
#[derive(Debug)]
pub(crate) struct Change {
    pub revision: u64,
    pub key: Key,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Read a resourceVersion.
pub(crate) fn version(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::bad_request(format!("Invalid resource version {text:?}")))
}
