//! Which kinds of objects claims can be filled from: a record of Kubernetes' own, not of ours.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;

const GROUP: &str = "populator.storage.k8s.io";
const VERSION: &str = "v1beta1";
const API_VERSION: &str = "populator.storage.k8s.io/v1beta1";
const KIND: &str = "VolumePopulator";
const PLURAL: &str = "volumepopulators";

/// Says that somebody fills claims from objects of a kind.
///
/// # Source
/// KEP-1495, and the definition that kubernetes-csi/volume-data-source-validator 1.3 installs: no spec,
/// no status.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VolumePopulator {
    #[serde(default = "api_version")]
    api_version: Cow<'static, str>,
    #[serde(default = "kind")]
    kind: Cow<'static, str>,
    /// Name and whatever else every object has.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The kind.
    pub source_kind: SourceKind,
}

/// A kind of objects.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct SourceKind {
    /// Its API group.
    pub group: String,
    /// Its name.
    pub kind: String,
}

fn api_version() -> Cow<'static, str> {
    API_VERSION.into()
}

fn kind() -> Cow<'static, str> {
    KIND.into()
}

impl VolumePopulator {
    /// Say that claims are filled from this kind.
    pub fn new(name: &str, group: &str, of: &str) -> Self {
        VolumePopulator {
            api_version: api_version(),
            kind: kind(),
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            source_kind: SourceKind { group: group.to_owned(), kind: of.to_owned() },
        }
    }

    /// Returns the definition of this kind, for a cluster that has none.
    pub fn definition() -> CustomResourceDefinition {
        let text = |text: &str| json!({"type": "string", "description": text});
        let source = json!({
            "type": "object",
            "description": "Kind of objects that can populate claims.",
            "required": ["group", "kind"],
            "properties": {
                "group": text("API group of the kind of objects."),
                "kind": text("Name of the kind, such as ArchivePopulator."),
            },
        });
        let schema = json!({
            "type": "object",
            "description": "Registers a kind of objects from which a populator populates claims. A claim whose `dataSourceRef` names a kind that is not registered gets a warning event.",
            "required": ["sourceKind"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "sourceKind": source,
            },
        });
        let definition = json!({
            "metadata": {
                "name": format!("{PLURAL}.{GROUP}"),
                // Without this the API server refuses groups that end in k8s.io.
                "annotations": {
                    "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/2934",
                },
            },
            "spec": {
                "group": GROUP,
                "scope": "Cluster",
                "names": {
                    "kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL,
                    "singular": "volumepopulator",
                },
                "versions": [{
                    "name": VERSION, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": [
                        {"name": "Group", "type": "string", "jsonPath": ".sourceKind.group"},
                        {"name": "SourceKind", "type": "string", "jsonPath": ".sourceKind.kind"},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                }],
            },
        });
        serde_json::from_value(definition).expect("a definition, as the tests see")
    }
}

impl Resource for VolumePopulator {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_standard_has_it() {
        let populator = VolumePopulator::new("archives", "pliant.io", "ArchivePopulator");
        let written = serde_json::to_value(populator).unwrap();
        let expected = json!({
            "apiVersion": "populator.storage.k8s.io/v1beta1",
            "kind": "VolumePopulator",
            "metadata": {"name": "archives"},
            "sourceKind": {"group": "pliant.io", "kind": "ArchivePopulator"},
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn its_definition_names_what_the_standard_names() {
        let definition = serde_json::to_value(VolumePopulator::definition()).unwrap();
        assert_eq!(definition["metadata"]["name"], "volumepopulators.populator.storage.k8s.io");
        let version = &definition["spec"]["versions"][0];
        assert_eq!((&version["name"], &version["subresources"]), (&json!("v1beta1"), &json!(null)));
        let schema = &version["schema"]["openAPIV3Schema"];
        assert_eq!(schema["required"], json!(["sourceKind"]));
        assert_eq!(schema["properties"]["sourceKind"]["required"], json!(["group", "kind"]));
    }
}
