//! Reduced objects in memory: only the fields that are read.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;

/// Reduced object of Kubernetes in a watch.
pub trait Record: Clone + Debug + Send + Sync + 'static {
    /// Type that the object is decoded as.
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync;

    /// Type of its metadata.
    type ObjectIdentity: Identified;

    /// Reduces an object.
    fn of(object: Self::Object) -> Self;

    /// Metadata of the object.
    fn identity(&self) -> &Self::ObjectIdentity;

    /// Metadata of the object, to share its strings.
    fn identity_mut(&mut self) -> &mut Self::ObjectIdentity;

    /// Namespace, empty for cluster-scoped kinds, and name.
    fn place(&self) -> (&str, &str) {
        self.identity().place()
    }

    /// Uid of the object.
    fn id(&self) -> &str {
        self.identity().id()
    }

    /// Shares common strings: the uid with an earlier version of it, the namespace with others.
    fn share(&mut self, before: Option<&Self>, namespaces: &mut Namespaces) {
        self.identity_mut().share(before.map(Self::identity), namespaces);
    }

    /// Returns a reference to it, for an event.
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

/// A whole object, except for what is cut.
impl<K> Record for K
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = K;
    type ObjectIdentity = ObjectMeta;

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

/// Metadata of an object.
pub trait Identified {
    /// The namespace, which is empty for kinds without, and the name.
    fn place(&self) -> (&str, &str);

    /// The uid.
    fn id(&self) -> &str;

    /// Shares common strings: the uid with an earlier version, the namespace with others.
    fn share(&mut self, _before: Option<&Self>, _namespaces: &mut Namespaces) {}
}

impl Identified for ObjectMeta {
    fn place(&self) -> (&str, &str) {
        (self.namespace.as_deref().unwrap_or_default(), self.name.as_deref().unwrap_or_default())
    }

    fn id(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }
}

/// Names, uid and version of an object: an `ObjectMeta` takes four times as much memory for that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectNames {
    /// Namespace, shared with others; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Box<str>,
    /// Uid of the object, the key in tables.
    pub uid: Arc<str>,
    /// Version of the object.
    pub resource_version: Box<str>,
}

impl ObjectNames {
    /// Namespace and name of the object.
    pub fn place(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

impl Identified for ObjectNames {
    fn place(&self) -> (&str, &str) {
        ObjectNames::place(self)
    }

    fn id(&self) -> &str {
        &self.uid
    }

    /// Shares the uid too, so that tables with it as their key hold no copy.
    fn share(&mut self, before: Option<&ObjectNames>, namespaces: &mut Namespaces) {
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
            // A user who can create them may create any number.
            self.0.retain(|known| Arc::strong_count(known) > 1);
        }
        self.0.insert(namespace.clone());
        namespace.clone()
    }
}

impl From<ObjectMeta> for ObjectNames {
    fn from(metadata: ObjectMeta) -> Self {
        let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
        ObjectNames {
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
            ObjectNames::from(ObjectMeta {
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
