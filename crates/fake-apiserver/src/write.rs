//! Writes.

use serde_json::{Value, json};

use crate::apply::{OF_THE_SERVER, Owners, apply, own_changed};
use crate::call::Call;
use crate::history::Key;
use crate::refusal::Refusal;
use crate::resources::Resource;
use crate::rules::{
    check_fixed, check_longest, check_type, check_unchanged, copy, drop_empty, has_finalizers,
    is_marked, is_plain, is_subdomain, next_generation, settle, text, wish,
};
use crate::store::{Store, list};

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
        let name = text(&object, "/metadata/name").to_owned();
        let object = self.insert(call, &name, object)?;
        self.note(call, &Key::new(&call.resource, &call.namespace, &name), &Value::Null, &object);
        Ok(object)
    }

    /// What a new object would be, and nothing is kept.
    pub fn rehearse(&self, call: &Call) -> Result<Value, Refusal> {
        let object = call.body()?;
        check_type(call, &object)?;
        let name = text(&object, "/metadata/name").to_owned();
        if self.objects.contains_key(&Key::new(&call.resource, &call.namespace, &name)) {
            return Err(Refusal::already_exists(&call.resource, &name));
        }
        Ok(object)
    }

    /// The objects of a kind in a namespace.
    pub fn all_of(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        self.of(resource, namespace).map(|(_, object)| object.clone()).collect()
    }

    /// Keep a new object under this name.
    fn insert(&mut self, call: &Call, name: &str, object: Value) -> Result<Value, Refusal> {
        let resource = &*call.resource;
        if !is_subdomain(name) {
            let why =
                format!("metadata.name: Invalid value: \"{name}\": a lowercase RFC 1123 subdomain");
            return Err(Refusal::invalid(resource, name, &why));
        }
        let key = Key::new(resource, &call.namespace, name);
        if self.objects.contains_key(&key) {
            return Err(Refusal::already_exists(resource, name));
        }
        check_longest(resource, name, &object)?;
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
        assert!(!key.name.is_empty(), "an object has a name");
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
        json!({ "uid": self.new_uid(), "creationTimestamp": self.now(), "generation": 1 })
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
            "application/strategic-merge-patch+json" if call.resource.is_core() => {
                assert!(is_plain(&body), "FakeApi does not merge lists: {} {body}", call.line());
                json_patch::merge(&mut object, &body);
            }
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
        if !object["metadata"].is_object() {
            return Err(Refusal::bad_request("the patch leaves no object"));
        }
        self.update(call, &call.key(), object)
    }

    /// Apply; whether the object is new stands beside it.
    pub fn apply(&mut self, call: &Call) -> Result<(bool, Value), Refusal> {
        let mut sent = call.body()?;
        check_type(call, &sent)?;
        if call.param("fieldManager").is_empty() {
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
            None => (true, self.insert(call, &call.name, sent.clone())?),
        };
        let object = self.lay_over(call, &object, &sent, &mut owners, is_new)?;
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
        owners: &mut Owners,
        is_new: bool,
    ) -> Result<Value, Refusal> {
        let force = is_new || call.is_set("force");
        let mut result = apply(object, sent, owners, &call.manager(), force)
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
        check_longest(&call.resource, &call.name, &new)?;
        if new == old {
            return Ok(old);
        }
        self.note(call, key, &old, &new);
        let keep = !is_marked(&new) || has_finalizers(&new);
        Ok(self.commit(key, new, keep))
    }

    /// Note who owns what was changed; an apply notes it itself.
    fn note(&mut self, call: &Call, key: &Key, before: &Value, after: &Value) {
        let manager = call.manager();
        if !manager.applies {
            own_changed(self.owners.entry(key.clone()).or_default(), manager, before, after);
        }
    }

    pub fn delete(&mut self, call: &Call) -> Result<Value, Refusal> {
        let options = call.body()?;
        self.delete_with(call, &options)
    }

    /// Delete a pod as its eviction asks; nobody here protects pods.
    pub fn evict(&mut self, call: &Call) -> Result<Value, Refusal> {
        let eviction = call.body()?;
        self.delete_with(call, &eviction["deleteOptions"])?;
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }))
    }

    fn delete_with(&mut self, call: &Call, options: &Value) -> Result<Value, Refusal> {
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

    pub fn delete_all(&mut self, call: &Call) -> Result<String, Refusal> {
        let selector = call.selector()?;
        let chosen: Vec<(Key, Value)> = self
            .of(&call.resource, &call.namespace)
            .filter(|(_, object)| selector.matches(object))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let gone: Vec<Value> =
            chosen.into_iter().map(|(key, old)| self.take_away(&key, old)).collect();
        let metadata = json!({ "resourceVersion": self.revision.to_string() });
        Ok(list(&call.resource, &metadata, &gone.iter().collect::<Vec<_>>()))
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
        marked["metadata"]["deletionTimestamp"] = self.now();
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        self.commit(key, marked, true)
    }

    fn find(&self, call: &Call) -> Result<&Value, Refusal> {
        self.objects.get(&call.key()).ok_or_else(|| Refusal::not_found(&call.resource, &call.name))
    }
}
