//! Writes, with what a server checks and fills in.

use serde_json::{Value, json};

use super::apply::{Manager, Owners, apply, disown_changed};
use super::call::Call;
use super::refusal::Refusal;
use super::resources::Resource;
use super::store::{Key, Store, list, now};

/// What of the metadata is the server's.
const OF_THE_SERVER: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

impl Store {
    pub fn create(&mut self, call: &Call) -> Result<Value, Refusal> {
        let mut object = call.body()?;
        check_type(call, &object)?;
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::internal(why));
        }
        let (name, prefix) =
            (text(&object, "/metadata/name"), text(&object, "/metadata/generateName"));
        if name.is_empty() && !prefix.is_empty() {
            let name = format!("{prefix}{:05}", self.revision);
            object["metadata"]["name"] = json!(name);
        }
        self.insert(call, text(&object, "/metadata/name").to_owned(), object)
    }

    /// Keep a new object under this name.
    fn insert(&mut self, call: &Call, name: String, object: Value) -> Result<Value, Refusal> {
        let resource = &*call.resource;
        if !is_subdomain(&name) {
            let why =
                format!("metadata.name: Invalid value: \"{name}\": a lowercase RFC 1123 subdomain");
            return Err(Refusal::invalid(resource, &name, &why));
        }
        let key = Key::new(resource, &call.namespace, &name);
        if self.objects.contains_key(&key) {
            return Err(Refusal::already_exists(resource, &name));
        }
        let mut object = object;
        if resource.status {
            copy(&mut object, &Value::Null, "status");
        }
        let mut metadata = self.first_metadata();
        metadata["name"] = json!(name);
        if resource.namespaced {
            metadata["namespace"] = json!(call.namespace);
        }
        for field in OF_THE_SERVER {
            copy(&mut object["metadata"], &metadata, field);
        }
        drop_empty(&mut object["metadata"]);
        Ok(self.commit(&key, object, true))
    }

    /// Keep an object as it is given, with its status, as if it had come by many requests.
    pub fn put(&mut self, resource: &Resource, object: Value) -> Value {
        let mut new = object;
        if resource.namespaced && text(&new, "/metadata/namespace").is_empty() {
            new["metadata"]["namespace"] = json!("default");
        }
        let place = |field| text(&new, field);
        let key = Key::new(resource, place("/metadata/namespace"), place("/metadata/name"));
        let old = self.objects.get(&key).cloned();
        let metadata = old.as_ref().map(|old| old["metadata"].clone());
        let metadata = metadata.unwrap_or_else(|| self.first_metadata());
        for field in ["uid", "creationTimestamp", "generation"] {
            if new["metadata"][field].is_null() {
                copy(&mut new["metadata"], &metadata, field);
            }
        }
        copy(&mut new["metadata"], &metadata, "resourceVersion");
        drop_empty(&mut new["metadata"]);
        match old {
            Some(old) if old == new => return old,
            Some(old) if wish(resource, &old) != wish(resource, &new) => {
                new["metadata"]["generation"] = next_generation(&old);
            }
            _ => {}
        }
        self.commit(&key, new, true)
    }

    /// What the server says of a new object.
    fn first_metadata(&mut self) -> Value {
        json!({ "uid": self.new_uid(), "creationTimestamp": now(), "generation": 1 })
    }

    pub fn replace(&mut self, call: &Call) -> Result<Value, Refusal> {
        let object = call.body()?;
        check_type(call, &object)?;
        let key = call.key();
        self.find(call)?;
        if !call.resource.blind && text(&object, "/metadata/resourceVersion").is_empty() {
            let why =
                "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update";
            return Err(Refusal::invalid(&call.resource, &call.name, why));
        }
        self.update(call, &key, object)
    }

    pub fn patch(&mut self, call: &Call) -> Result<Value, Refusal> {
        let mut object = self.find(call)?.clone();
        let body = call.body()?;
        match call.content_type.as_str() {
            "application/merge-patch+json" => json_patch::merge(&mut object, &body),
            "application/json-patch+json" => {
                let patch: json_patch::Patch = serde_json::from_value(body)
                    .map_err(|error| Refusal::bad_request(error.to_string()))?;
                json_patch::patch(&mut object, &patch).map_err(|error| {
                    Refusal::invalid(&call.resource, &call.name, &error.to_string())
                })?;
            }
            other => return Err(Refusal::unsupported_media_type(other)),
        }
        self.update(call, &call.key(), object)
    }

    /// Apply; whether the object is new stands beside it.
    pub fn apply(&mut self, call: &Call) -> Result<(bool, Value), Refusal> {
        let mut sent = call.body()?;
        check_type(call, &sent)?;
        let manager: Manager = (call.param("fieldManager").to_owned(), call.status);
        if manager.0.is_empty() {
            let why = "fieldManager: Required value: is required for apply patch";
            return Err(Refusal::invalid(&call.resource, &call.name, why));
        }
        if call.status {
            sent = json!({ "metadata": { "resourceVersion": sent["metadata"]["resourceVersion"] },
                           "status": sent["status"] });
        } else if call.resource.status {
            copy(&mut sent, &Value::Null, "status");
        }
        let key = call.key();
        let mut owners = self.owners.get(&key).cloned().unwrap_or_default();
        let (is_new, object) = match self.objects.get(&key) {
            Some(object) => (false, object.clone()),
            None if call.status => return Err(Refusal::not_found(&call.resource, &call.name)),
            None => (true, self.insert(call, call.name.clone(), sent.clone())?),
        };
        let object = self.lay_over(call, &object, &sent, (&mut owners, &manager), is_new)?;
        if self.objects.contains_key(&key) {
            self.owners.insert(key, owners);
        }
        Ok((is_new, object))
    }

    fn lay_over(
        &mut self,
        call: &Call,
        object: &Value,
        sent: &Value,
        (owners, manager): (&mut Owners, &Manager),
        is_new: bool,
    ) -> Result<Value, Refusal> {
        let force = is_new || call.is_set("force");
        let mut result = apply(object, sent, owners, manager, force)
            .map_err(|(owner, field)| Refusal::apply_conflict(&owner, &field))?;
        for field in ["resourceVersion", "uid"] {
            if !is_new && !sent["metadata"][field].is_null() {
                copy(&mut result["metadata"], &sent["metadata"], field);
            }
        }
        self.update(call, &call.key(), result)
    }

    /// Write an object that is there, if the caller knows what it writes over.
    fn update(&mut self, call: &Call, key: &Key, new: Value) -> Result<Value, Refusal> {
        let old = self.find(call)?.clone();
        check_unchanged(call, &old, &new)?;
        let new = settle(call, &old, new);
        check_fixed(&call.resource, &call.name, &old, &new)?;
        if new == old {
            return Ok(old);
        }
        if let Some(owners) = self.owners.get_mut(key) {
            disown_changed(owners, &old, &new);
        }
        let keep = !is_marked(&new) || has_finalizers(&new);
        Ok(self.commit(key, new, keep))
    }

    pub fn delete(&mut self, call: &Call) -> Result<Value, Refusal> {
        let options = call.body()?;
        let old = self.find(call)?.clone();
        for field in ["uid", "resourceVersion"] {
            let (wanted, found) = (&options["preconditions"][field], &old["metadata"][field]);
            if !wanted.is_null() && wanted != found {
                let why = format!("Precondition failed: {field}: {wanted}, of the object: {found}");
                return Err(Refusal::conflict(&call.resource, &call.name, &why));
            }
        }
        let last = self.take_away(&call.key(), old);
        if has_finalizers(&last) {
            return Ok(last);
        }
        let details = json!({
            "name": call.name,
            "group": call.resource.group,
            "kind": call.resource.plural,
            "uid": last["metadata"]["uid"],
        });
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                   "details": details }))
    }

    pub fn delete_all(&mut self, call: &Call) -> Result<Value, Refusal> {
        let selector = call.selector()?;
        let chosen: Vec<(Key, Value)> = self
            .objects
            .iter()
            .filter(|(key, object)| {
                key.is_in(&call.resource, &call.namespace) && selector.matches(object)
            })
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let gone = chosen.into_iter().map(|(key, old)| self.take_away(&key, old)).collect();
        let metadata = json!({ "resourceVersion": self.revision.to_string() });
        Ok(list(&call.resource, metadata, gone))
    }

    /// Remove an object, or mark it while somebody has a finalizer on it.
    pub fn take_away(&mut self, key: &Key, old: Value) -> Value {
        if !has_finalizers(&old) {
            return self.commit(key, old, false);
        }
        if is_marked(&old) {
            return old;
        }
        let mut marked = old;
        marked["metadata"]["generation"] = next_generation(&marked);
        marked["metadata"]["deletionTimestamp"] = now();
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        self.commit(key, marked, true)
    }

    fn find(&self, call: &Call) -> Result<&Value, Refusal> {
        self.objects.get(&call.key()).ok_or_else(|| Refusal::not_found(&call.resource, &call.name))
    }
}

/// What is kept of a write: each part changes only through its own path, and the server's own fields
/// through none.
fn settle(call: &Call, old: &Value, new: Value) -> Value {
    if call.status {
        let mut result = old.clone();
        copy(&mut result, &new, "status");
        return result;
    }
    let mut new = new;
    if call.resource.status {
        copy(&mut new, old, "status");
    }
    for field in ["apiVersion", "kind"] {
        copy(&mut new, old, field);
    }
    for field in OF_THE_SERVER {
        copy(&mut new["metadata"], &old["metadata"], field);
    }
    drop_empty(&mut new["metadata"]);
    if wish(&call.resource, &new) != wish(&call.resource, old) {
        new["metadata"]["generation"] = next_generation(old);
    }
    new
}

fn next_generation(object: &Value) -> Value {
    json!(object["metadata"]["generation"].as_u64().unwrap_or(0) + 1)
}

/// What `metadata.generation` counts the changes of.
fn wish(resource: &Resource, object: &Value) -> Value {
    let mut wish = object.clone();
    copy(&mut wish, &Value::Null, "metadata");
    if resource.status {
        copy(&mut wish, &Value::Null, "status");
    }
    wish
}

/// Refuse a body that is of another kind or place than the path says.
fn check_type(call: &Call, object: &Value) -> Result<(), Refusal> {
    let (kind, version) = (text(object, "/kind"), text(object, "/apiVersion"));
    if (kind, version) != (&call.resource.kind, &call.resource.api_version()) {
        let why = format!("{version:?} {kind:?} is sent as {:?}", call.resource.full_name());
        return Err(Refusal::bad_request(why));
    }
    if !object["metadata"].is_object() {
        return Err(Refusal::bad_request("metadata is missing"));
    }
    let differs = |at: &str, of_path: &str| {
        let given = text(object, at);
        !given.is_empty() && !of_path.is_empty() && given != of_path
    };
    if differs("/metadata/name", &call.name) || differs("/metadata/namespace", &call.namespace) {
        return Err(Refusal::bad_request("the object's name or namespace is not that of the path"));
    }
    Ok(())
}

/// Refuse what was made of another version, or of another object of this name.
fn check_unchanged(call: &Call, old: &Value, new: &Value) -> Result<(), Refusal> {
    let differs = |at: &str| ![text(old, at), ""].contains(&text(new, at));
    if differs("/metadata/uid") {
        let why = "Precondition failed: UID in precondition is not that of the object";
        return Err(Refusal::conflict(&call.resource, &call.name, why));
    }
    if differs("/metadata/resourceVersion") {
        return Err(Refusal::stale(&call.resource, &call.name));
    }
    Ok(())
}

/// Refuse changes of fields that never change, and finalizers on what is being deleted.
fn check_fixed(resource: &Resource, name: &str, old: &Value, new: &Value) -> Result<(), Refusal> {
    for (path, message) in &resource.fixed {
        let at = format!("/{}", path.join("/"));
        if old.pointer(&at) != new.pointer(&at) {
            let why = format!("{}: Invalid value: {message}", path.join("."));
            return Err(Refusal::invalid(resource, name, &why));
        }
    }
    let had = |one: &Value| finalizers(old).contains(one);
    if is_marked(old) && !finalizers(new).iter().all(had) {
        let why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
                   being deleted";
        return Err(Refusal::invalid(resource, name, why));
    }
    Ok(())
}

fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn has_finalizers(object: &Value) -> bool {
    !finalizers(object).is_empty()
}

fn is_marked(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Make a field what it is elsewhere, also if it is not there.
fn copy(to: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => drop(to.as_object_mut().and_then(|fields| fields.remove(field))),
    }
}

/// Metadata has no empty fields: for the server `labels: {}` is no labels.
fn drop_empty(metadata: &mut Value) {
    if let Some(fields) = metadata.as_object_mut() {
        let empty = |value: &Value| [Value::Null, json!({}), json!([])].contains(value);
        fields.retain(|_, value| !empty(value));
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_subdomain(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |part: &str| {
        part.bytes().all(|c| plain(c) || c == b'-')
            && part.bytes().next().is_some_and(plain)
            && part.bytes().last().is_some_and(plain)
    };
    name.len() <= 253 && name.split('.').all(label)
}
