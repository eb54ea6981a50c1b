//! What a test reads and writes past all clients: no request, no number, no fault.
//!
//! An object in a namespace is called `namespace/name`.

use std::sync::Arc;

use kube::Resource as Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::FakeApi;
use crate::history::Key;
use crate::resources::Resource;

impl FakeApi {
    /// Put an object there as it is given, with its status, as if others had written it; returns it
    /// with what the server added.
    pub fn put<K>(&self, object: &K) -> K
    where
        K: Kind<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let object = serde_json::to_value(object).expect("an object is JSON");
        typed(&self.act(|server| server.store.put(&self.resource::<K>(), object)))
    }

    /// As [`FakeApi::put`], whatever the object says: also what its type cannot be decoded from, as an object of
    /// another version.
    pub fn put_json<K: Kind<DynamicType = ()>>(&self, object: Value) {
        self.act(|server| server.store.put(&self.resource::<K>(), object));
    }

    /// Read an object; `None` if there is none of this name.
    pub fn get<K: Kind<DynamicType = ()> + DeserializeOwned>(&self, name: &str) -> Option<K> {
        let key = self.key::<K>(name);
        self.lock().store.objects.get(&key).map(typed)
    }

    /// Read all objects of a kind that can be decoded, by namespace and name.
    pub fn list<K: Kind<DynamicType = ()> + DeserializeOwned>(&self) -> Vec<K> {
        let resource = self.resource::<K>();
        let server = self.lock();
        let all = server.store.of(&resource, "");
        all.filter_map(|(_, object)| K::deserialize(object).ok()).collect()
    }

    /// Have a container, called `namespace/pod/container`, say this.
    pub fn put_log(&self, container: &str, text: &str) {
        self.act(|server| server.logs.insert(container.to_owned(), text.to_owned()));
    }

    /// Delete an object as a user does; with finalizers it is only marked. Nothing happens if it is
    /// not there.
    pub fn delete<K: Kind<DynamicType = ()>>(&self, name: &str) {
        let key = self.key::<K>(name);
        self.act(|server| {
            if let Some(object) = server.store.objects.get(&key).cloned() {
                server.store.take_away(&key, object);
            }
        });
    }

    fn key<K: Kind<DynamicType = ()>>(&self, name: &str) -> Key {
        let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
        let resource = self.resource::<K>();
        assert_eq!(
            resource.namespaced,
            !namespace.is_empty(),
            "{} is namespace/name",
            K::kind(&())
        );
        Key::new(&resource, namespace, name)
    }

    fn resource<K: Kind<DynamicType = ()>>(&self) -> Arc<Resource> {
        let is_it =
            |one: &&Arc<Resource>| one.plural == K::plural(&()) && one.is_of(&K::api_version(&()));
        let found = self.resources.iter().find(is_it);
        Arc::clone(found.unwrap_or_else(|| panic!("FakeApi does not serve {}", K::kind(&()))))
    }
}

fn typed<K: DeserializeOwned>(object: &Value) -> K {
    K::deserialize(object).unwrap_or_else(|error| panic!("not of this kind: {error}"))
}
