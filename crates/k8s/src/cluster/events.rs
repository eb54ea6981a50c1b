//! Events that are written once, by any writer and after any restart.

use std::collections::BTreeMap;
use std::fmt::Display;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};

use crate::cluster::Record;
use crate::volume::DRIVER;

/// Annotation of an event by which its writer recognizes it.
pub const EVENT_KEY: &str = "pliant.io/event-key";

/// Namespace for events of cluster-scoped objects.
pub const NO_NAMESPACE: &str = "default";

/// The longest name of an object that an event is named for, in bytes; names end at 253.
const LONGEST_NAME: usize = 200;

/// The longest sentence that the API server takes, in bytes.
const LONGEST_TEXT: usize = 1024;

/// An event whose name follows from its content: a second writer finds it written.
#[derive(Debug, Clone, PartialEq)]
pub struct OnceEvent {
    /// Name of the event.
    pub name: String,
    /// Object of the event.
    pub about: ObjectReference,
    /// Reason of the event, in CamelCase.
    pub reason: String,
    /// True if a person has to act.
    pub is_warning: bool,
    /// A sentence for people.
    pub text: String,
    /// Data for later readers of the event; see [`EVENT_KEY`].
    pub key: Option<String>,
}

impl OnceEvent {
    /// Creates the event of an object: the same reason and subject of the same object give the same
    /// event, whatever the text.
    pub fn of<K: Record>(
        object: &K,
        (reason, is_warning): (impl Display, bool),
        subject: &str,
        text: &str,
    ) -> OnceEvent {
        let identity = format!("{}/{reason}/{subject}", object.id());
        OnceEvent {
            name: OnceEvent::name_for(object.place().1, &identity),
            about: object.reference(),
            reason: reason.to_string(),
            is_warning,
            text: OnceEvent::bounded(text),
            key: None,
        }
    }

    /// Returns the name of the event about an object with this `identity`.
    pub fn name_for(object: &str, identity: &str) -> String {
        let digest = Sha256::digest(identity);
        let digest = digest.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let object = cut(object, LONGEST_NAME).trim_end_matches(['.', '-']);
        format!("{object}.{digest:016x}")
    }

    /// Returns as much of a sentence as an event takes.
    pub fn bounded(text: &str) -> String {
        cut(text, LONGEST_TEXT).to_owned()
    }

    /// Writes the event; an existing one, or one that is not permitted, counts as done. Returns true
    /// if it was written now.
    ///
    /// # Errors
    /// An error of the API server if a retry may help.
    pub async fn write(&self, client: &Client, writer: &str) -> Result<bool, kube::Error> {
        let namespace = self.about.namespace.as_deref().unwrap_or(NO_NAMESPACE);
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        let params = PostParams { field_manager: Some(writer.to_owned()), ..PostParams::default() };
        match api.create(&params, &self.event(namespace, writer)).await {
            Err(kube::Error::Api(answer)) if answer.is_already_exists() => Ok(false),
            // Its namespace is being deleted, or we may not: asking again would not help.
            Err(kube::Error::Api(answer)) if answer.code < 429 => {
                let (name, why) = (&self.name, &answer.message);
                tracing::warn!(event = name, why, "event rejected by the API server");
                Ok(false)
            }
            written => written.map(|_| true),
        }
    }

    /// The object that is written.
    pub fn event(&self, namespace: &str, writer: &str) -> Event {
        let kind = if self.is_warning { "Warning" } else { "Normal" };
        let mut event = Event {
            action: Some("Watch".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(self.text.clone()),
            reason: Some(self.reason.clone()),
            regarding: Some(self.about.clone()),
            reporting_controller: Some(DRIVER.to_owned()),
            reporting_instance: Some(writer.to_owned()),
            type_: Some(kind.to_owned()),
            ..Event::default()
        };
        event.metadata.name = Some(self.name.clone());
        event.metadata.namespace = Some(namespace.to_owned());
        let key = self.key.clone().map(|key| (EVENT_KEY.to_owned(), key));
        event.metadata.annotations = key.map(|one| BTreeMap::from([one]));
        event
    }
}

/// The beginning of a text, of whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_told_of_an_object_has_one_name_whatever_the_words() {
        let claim = |uid: &str| -> PersistentVolumeClaim {
            let metadata = json!({"name": "db", "namespace": "default", "uid": uid});
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let of = |uid, reason: &str, subject, text| {
            OnceEvent::of(&claim(uid), (reason, true), subject, text)
        };
        let event = of("u", "Full", "1", "it is full");
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: Some("default".to_owned()),
            name: Some("db".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectReference::default()
        };
        assert_eq!((&event.about, &*event.reason, event.is_warning), (&about, "Full", true));
        assert_eq!(event.name, OnceEvent::name_for("db", "u/Full/1"));
        assert_eq!(of("u", "Full", "1", "other words").name, event.name);
        for other in [of("v", "Full", "1", ""), of("u", "Empty", "1", ""), of("u", "Full", "2", "")]
        {
            assert_ne!(other.name, event.name);
        }
    }
}
