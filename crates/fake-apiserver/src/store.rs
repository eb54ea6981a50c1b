//! The objects and their history.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::apply::Owners;
use crate::call::Call;
use crate::history::{Change, Key, version};
use crate::refusal::Refusal;
use crate::resources::Resource;
use crate::watch::Watch;

/// When the server began: by this machine, and by the time of its runtime, which a test may have advanced already.
#[derive(Debug)]
struct Begun {
    hour: Timestamp,
    since: Instant,
}

impl Default for Begun {
    fn default() -> Begun {
        Begun { hour: Timestamp::now(), since: Instant::from_std(std::time::Instant::now()) }
    }
}

/// What the server keeps.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub objects: BTreeMap<Key, Value>,
    pub owners: BTreeMap<Key, Owners>,
    pub history: Vec<Change>,
    pub watches: Vec<Watch>,
    /// The version of the newest change.
    pub revision: u64,
    /// The oldest version that can still be asked for.
    pub oldest: u64,
    /// The version up to which watches and caches may see; all if `None`.
    pub held: Option<u64>,
    pub twice: bool,
    begun: Begun,
    /// By how much its hour is ahead of that of this machine.
    pub ahead: SignedDuration,
    uids: u64,
}

impl Store {
    /// The hour as the server has it.
    pub fn hour(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.begun.since.elapsed()).unwrap_or_default();
        self.begun.hour + passed + self.ahead
    }

    /// The hour as the server writes it.
    pub fn now(&self) -> Value {
        json!(Time(self.hour()))
    }

    /// The newest version that watches and caches may see.
    pub fn visible(&self) -> u64 {
        self.held.unwrap_or(self.revision)
    }

    /// A uid that no other object has or had.
    pub fn new_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012}", self.uids)
    }

    /// Keep an object, or remove it, as the next version; the object as it was written.
    pub fn commit(&mut self, key: &Key, object: Value, keep: bool) -> Value {
        self.revision += 1;
        let mut object = object;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let after = keep.then(|| object.clone());
        let before = if let Some(after) = &after {
            self.objects.insert(key.clone(), after.clone())
        } else {
            self.owners.remove(key);
            self.objects.remove(key)
        };
        self.history.push(Change { revision: self.revision, key: key.clone(), before, after });
        self.deliver();
        object
    }

    /// Forget the history: no version given out so far is new enough for a watch or for the next
    /// page of a list.
    pub fn compact(&mut self) {
        self.expire_late_watches();
        // As if another kind had been written meanwhile: else the newest version would not be old.
        self.revision += 1;
        self.oldest = self.revision;
        self.deliver();
    }

    /// The objects of a collection.
    pub fn of<'a>(
        &'a self,
        resource: &'a Resource,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        self.from(Key::new(resource, namespace, ""), resource, namespace)
    }

    /// The objects of a collection from this one on.
    fn from<'a>(
        &'a self,
        first: Key,
        resource: &'a Resource,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let from_first = self.objects.range(first..);
        from_first.take_while(move |(key, _)| key.is_in(resource, namespace))
    }

    /// The objects of a collection as they were at a version.
    pub fn at<'a>(
        &'a self,
        revision: u64,
        resource: &'a Resource,
        namespace: &'a str,
    ) -> BTreeMap<&'a Key, &'a Value> {
        let mut objects: BTreeMap<&Key, &Value> = self.of(resource, namespace).collect();
        let later = self.history.iter().rev().take_while(|change| change.revision > revision);
        for change in later.filter(|change| change.key.is_in(resource, namespace)) {
            match &change.before {
                Some(before) => objects.insert(&change.key, before),
                None => objects.remove(&change.key),
            };
        }
        objects
    }

    /// An object as the server sends it.
    pub fn get(&self, call: &Call) -> Result<String, Refusal> {
        let revision = self.asked_revision(call)?;
        let key = call.key();
        let found = match self.objects.get(&key) {
            now if revision == self.revision => now,
            _ => self.at(revision, &call.resource, &call.namespace).remove(&key),
        };
        found.map(Value::to_string).ok_or_else(|| Refusal::not_found(&call.resource, &call.name))
    }

    /// A list as the server sends it.
    pub fn list(&self, call: &Call) -> Result<String, Refusal> {
        let selector = call.selector()?;
        let (resource, namespace) = (&*call.resource, call.namespace.as_str());
        let (revision, first) = match call.param("continue").split_once(' ') {
            Some((revision, place)) => {
                let (namespace, name) = place.split_once('/').unwrap_or_default();
                (self.in_history(version(revision)?)?, Key::new(resource, namespace, name))
            }
            None => (self.asked_revision(call)?, Key::new(resource, namespace, "")),
        };
        // A page of many costs no more than what it shows, as with a real server.
        let all: Box<dyn Iterator<Item = (&Key, &Value)>> = if revision == self.revision {
            Box::new(self.from(first, resource, namespace))
        } else {
            let then = self.at(revision, resource, namespace).into_iter();
            Box::new(then.skip_while(move |(key, _)| **key < first))
        };
        let mut found = all.filter(|(_, object)| selector.matches(object));
        let limit = call.param("limit").parse().ok().filter(|limit| *limit > 0);
        let page = found.by_ref().take(limit.unwrap_or(usize::MAX));
        let items: Vec<&Value> = page.map(|(_, object)| object).collect();
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if let Some((next, _)) = found.next() {
            metadata["continue"] = json!(format!("{revision} {}/{}", next.namespace, next.name));
            if selector.is_empty() {
                metadata["remainingItemCount"] = json!(1 + found.count());
            }
        }
        Ok(list(&call.resource, &metadata, &items))
    }

    /// The version whose objects a read is to show.
    fn asked_revision(&self, call: &Call) -> Result<u64, Refusal> {
        match call.param("resourceVersion") {
            "" => Ok(self.revision),
            // Any version will do, so the answer comes from a cache, and that may be late.
            "0" => Ok(self.visible()),
            asked => match version(asked)? {
                asked if asked > self.revision => Err(Refusal::too_new(asked, self.revision)),
                asked if call.param("resourceVersionMatch") == "Exact" => self.in_history(asked),
                _ => Ok(self.revision),
            },
        }
    }

    /// The version, if the history still reaches back to it.
    pub fn in_history(&self, asked: u64) -> Result<u64, Refusal> {
        if asked < self.oldest { Err(Refusal::expired(asked, self.oldest)) } else { Ok(asked) }
    }
}

/// A list as the server sends it. Each item is written from where it is: lists are most of what a server says.
pub(crate) fn list(resource: &Resource, metadata: &Value, items: &[&Value]) -> String {
    let (kind, api_version) = (format!("{}List", resource.kind), resource.api_version());
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    let items = items.join(",");
    format!(
        r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":[{items}]}}"#
    )
}
