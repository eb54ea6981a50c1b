//! What is kept of an object: as little of it as is read.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;

/// What a watch keeps of an object of Kubernetes.
pub trait Record: Clone + Debug + Send + Sync + 'static {
    /// What the object is decoded as.
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync;

    /// How what names it is kept.
    type Identity: Identity;

    /// Keep of an object what is read of it.
    fn of(object: Self::Object) -> Self;

    /// What names it.
    fn identity(&self) -> &Self::Identity;

    /// The same, to be shared.
    fn identity_mut(&mut self) -> &mut Self::Identity;

    /// Its namespace, which is empty for kinds without, and its name.
    fn place(&self) -> (&str, &str) {
        self.identity().place()
    }

    /// Its uid.
    fn id(&self) -> &str {
        self.identity().id()
    }

    /// Share what many hold: the uid with an earlier version of it, the namespace with others.
    fn share(&mut self, before: Option<&Self>, namespaces: &mut Namespaces) {
        self.identity_mut().share(before.map(Self::identity), namespaces);
    }

    /// Refer to it, for an event about it.
    fn reference(&self) -> ObjectReference {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (namespace, name) = self.place();
        ObjectReference {
            api_version: Some(Self::Object::api_version(&()).into_owned()),
            kind: Some(Self::Object::kind(&()).into_owned()),
            namespace: text(namespace),
            name: text(name),
            uid: text(self.id()),
            ..ObjectReference::default()
        }
    }
}

/// An object of which all is kept, but for what is cut.
impl<K> Record for K
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = K;
    type Identity = ObjectMeta;

    fn of(object: K) -> K {
        object
    }

    fn identity(&self) -> &ObjectMeta {
        self.meta()
    }

    fn identity_mut(&mut self) -> &mut ObjectMeta {
        self.meta_mut()
    }
}

/// What names an object.
pub trait Identity {
    /// The namespace, which is empty for kinds without, and the name.
    fn place(&self) -> (&str, &str);

    /// The uid.
    fn id(&self) -> &str;

    /// Share what many hold: the uid with an earlier version, the namespace with others.
    fn share(&mut self, _before: Option<&Self>, _namespaces: &mut Namespaces) {}
}

impl Identity for ObjectMeta {
    fn place(&self) -> (&str, &str) {
        (self.namespace.as_deref().unwrap_or_default(), self.name.as_deref().unwrap_or_default())
    }

    fn id(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }
}

/// What names an object, and its version: an `ObjectMeta` takes four times as much memory to say no more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Its namespace, which it shares with others; empty for kinds without.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid, by which tables of what is looked at know it.
    pub uid: Arc<str>,
    /// Its version.
    pub resource_version: Box<str>,
}

impl Names {
    /// Its namespace and its name.
    pub fn place(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

impl Identity for Names {
    fn place(&self) -> (&str, &str) {
        Names::place(self)
    }

    fn id(&self) -> &str {
        &self.uid
    }

    /// The uid is shared so that tables that know the object by it keep no copy.
    fn share(&mut self, before: Option<&Names>, namespaces: &mut Namespaces) {
        if let Some(before) = before.filter(|before| before.uid == self.uid) {
            self.uid = before.uid.clone();
        }
        self.namespace = namespaces.shared(&self.namespace);
    }
}

/// Namespaces, once each.
#[derive(Debug, Default)]
pub struct Namespaces(HashSet<Arc<str>>);

impl Namespaces {
    /// Returns the one that all share.
    pub fn shared(&mut self, namespace: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.0.get(namespace) {
            return known.clone();
        }
        if self.0.len() == self.0.capacity() {
            self.0.retain(|known| Arc::strong_count(known) > 1); // Whoever can make them makes no end of them.
        }
        self.0.insert(namespace.clone());
        namespace.clone()
    }
}

impl From<ObjectMeta> for Names {
    fn from(metadata: ObjectMeta) -> Self {
        let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
        Names {
            namespace: metadata.namespace.unwrap_or_default().into(),
            name: text(metadata.name),
            uid: metadata.uid.unwrap_or_default().into(),
            resource_version: text(metadata.resource_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_share_their_uid_and_others_the_namespace_for_as_long_as_there_are_any() {
        let names = |namespace: &str| {
            Names::from(ObjectMeta {
                namespace: Some(namespace.to_owned()),
                uid: Some("u".to_owned()),
                ..ObjectMeta::default()
            })
        };
        let (mut all, mut before, mut now) = (Namespaces::default(), names("shop"), names("shop"));
        before.share(None, &mut all);
        now.share(Some(&before), &mut all);
        assert!(Arc::ptr_eq(&before.uid, &now.uid));
        assert!(Arc::ptr_eq(&before.namespace, &now.namespace));
        for at in 0..1000 {
            names(&format!("team-{at}")).share(None, &mut all);
        }
        assert!(all.0.len() < 100 && all.0.contains("shop"), "{} are kept", all.0.len());
    }
}
