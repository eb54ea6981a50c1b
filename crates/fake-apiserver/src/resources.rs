//! What the server serves.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ResourceQuota, Secret,
};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};

/// A kind, and how its objects are written.
#[derive(Debug, Default)]
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    /// Whether `/status` is written apart from the rest.
    pub status: bool,
    /// Fields that a selector may name, beside the name and the namespace.
    pub selectable: Vec<String>,
    /// Fields that never change, as paths of keys, with what is said of an attempt.
    pub fixed: Vec<(Vec<String>, String)>,
    /// Lists and texts that have an end, as paths of keys in which `[]` stands for each item, with how many items or
    /// characters they take.
    pub longest: Vec<(Vec<String>, usize)>,
    /// Whether a PUT without a resourceVersion is taken.
    pub blind: bool,
}

impl Resource {
    /// What `apiVersion` says.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Whether this is what `apiVersion` says; asked for each object of each list.
    pub fn is_of(&self, api_version: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        (self.group.as_str(), self.version.as_str()) == (group, version)
    }

    /// The name as in the server's messages: `pods`, `storagepools.pliant.io`.
    pub fn full_name(&self) -> String {
        match self.group.as_str() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Whether it is of Kubernetes itself, which alone takes strategic merge patches.
    pub fn is_core(&self) -> bool {
        self.group.is_empty() || self.group.ends_with(".k8s.io")
    }

    /// A kind of Kubernetes itself.
    fn core<K: k8s_openapi::Resource>() -> Resource {
        Resource {
            group: K::GROUP.to_owned(),
            version: K::VERSION.to_owned(),
            plural: K::URL_PATH_SEGMENT.to_owned(),
            kind: K::KIND.to_owned(),
            blind: true,
            ..Resource::default()
        }
    }

    fn with_status(self) -> Resource {
        Resource { status: true, ..self }
    }

    fn in_namespaces(self) -> Resource {
        Resource { namespaced: true, ..self }
    }

    fn guarded(self) -> Resource {
        Resource { blind: false, ..self }
    }

    fn with_fields(self, fields: &[&str]) -> Resource {
        Resource { selectable: fields.iter().map(|field| (*field).to_owned()).collect(), ..self }
    }

    /// A kind of a CustomResourceDefinition.
    fn defined(definition: &CustomResourceDefinition) -> Resource {
        let (spec, version) = (&definition.spec, &definition.spec.versions[0]);
        let (mut fixed, mut longest) = (Vec::new(), Vec::new());
        if let Some(schema) =
            version.schema.as_ref().and_then(|all| all.open_api_v3_schema.as_ref())
        {
            find_fixed(schema, &[], &mut fixed);
            find_longest(schema, &[], &mut longest);
        }
        let fields = version.selectable_fields.iter().flatten();
        Resource {
            group: spec.group.clone(),
            version: version.name.clone(),
            plural: spec.names.plural.clone(),
            kind: spec.names.kind.clone(),
            namespaced: spec.scope == "Namespaced",
            status: version.subresources.as_ref().is_some_and(|all| all.status.is_some()),
            selectable: fields.map(|f| f.json_path.trim_start_matches('.').to_owned()).collect(),
            fixed,
            longest,
            ..Resource::default()
        }
    }
}

/// Of the rules of a schema only this one is understood: that a field is as it was.
fn find_fixed(schema: &JSONSchemaProps, at: &[String], found: &mut Vec<(Vec<String>, String)>) {
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        if rule.rule == "self == oldSelf" {
            found.push((at.to_vec(), rule.message.clone().unwrap_or_default()));
        }
    }
    for (name, field) in schema.properties.iter().flatten() {
        find_fixed(field, &[at, std::slice::from_ref(name)].concat(), found);
    }
}

/// How long lists and texts may be, which hardly anything else of an object shows.
fn find_longest(schema: &JSONSchemaProps, at: &[String], found: &mut Vec<(Vec<String>, usize)>) {
    let most = schema.max_items.or(schema.max_length).and_then(|most| usize::try_from(most).ok());
    found.extend(most.map(|most| (at.to_vec(), most)));
    for (name, field) in schema.properties.iter().flatten() {
        find_longest(field, &[at, std::slice::from_ref(name)].concat(), found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        find_longest(item, &[at, &["[]".to_owned()]].concat(), found);
    }
}

/// The kinds that servers serve; clones are the same kinds.
///
/// Schemas are long in the making, and each test and each crash point has its own server: make them once.
#[derive(Debug, Clone)]
pub struct Kinds(pub(crate) Arc<[Arc<Resource>]>);

impl Kinds {
    /// Some kinds of Kubernetes, and those of these definitions.
    pub fn with(definitions: &[CustomResourceDefinition]) -> Kinds {
        let defined = definitions.iter().map(Resource::defined);
        Kinds(of_kubernetes().into_iter().chain(defined).map(Arc::new).collect())
    }
}

fn of_kubernetes() -> Vec<Resource> {
    vec![
        Resource::core::<Node>().with_status().with_fields(&["spec.unschedulable"]),
        Resource::core::<Namespace>().with_status(),
        Resource::core::<ConfigMap>().in_namespaces(),
        Resource::core::<Secret>().in_namespaces().with_fields(&["type"]),
        Resource::core::<PersistentVolume>().with_status(),
        Resource::core::<ResourceQuota>().with_status().in_namespaces(),
        Resource::core::<LimitRange>().in_namespaces(),
        Resource::core::<NetworkPolicy>().in_namespaces(),
        Resource::core::<PodDisruptionBudget>().with_status().in_namespaces(),
        Resource::core::<PersistentVolumeClaim>().with_status().in_namespaces(),
        Resource::core::<Pod>().with_status().in_namespaces().with_fields(&[
            "spec.nodeName",
            "spec.serviceAccountName",
            "status.phase",
        ]),
        Resource::core::<Deployment>().with_status().in_namespaces(),
        Resource::core::<StatefulSet>().with_status().in_namespaces(),
        Resource::core::<Event>().in_namespaces().with_fields(&[
            "reason",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.uid",
            "reportingController",
            "type",
        ]),
        Resource::core::<MutatingWebhookConfiguration>(),
        Resource::core::<Lease>().in_namespaces().guarded(),
        Resource::core::<CSIStorageCapacity>().in_namespaces().guarded(),
        Resource::core::<StorageClass>(),
        Resource::core::<VolumeAttachment>().with_status(),
        Resource::core::<CSIDriver>(),
        Resource::core::<CSINode>(),
        Resource::core::<CustomResourceDefinition>(),
    ]
}
