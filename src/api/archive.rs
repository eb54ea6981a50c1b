//! An archive that claims are filled with.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::PopulatorStatus;
use crate::api::dns_name::DNS_NAME;

/// An archive that new claims are filled with: they name this object in `dataSourceRef`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "ArchivePopulator",
    plural = "archivepopulators",
    shortname = "archive",
    category = "pliant",
    namespaced,
    doc = "An archive that new claims are filled with. A claim with a file system names this object in its `dataSourceRef`; it is bound as soon as the archive is unpacked and its checksum was right.",
    status = "PopulatorStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "ConfigMap", type_ = "string", json_path = ".spec.configMapRef.name"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".status.claims[0].claim"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.claims[0].phase"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.claims[0].progress"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.claims[0].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.url) != has(self.configMapRef)"
).message("give one of url and configMapRef, and not both"))]
pub struct ArchivePopulatorSpec {
    /// Where the archive is, such as `https://example.com/site.tar.gz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https?://[!-~]+$"), length(max = 2048))]
    pub url: Option<String>,
    /// The ConfigMap that has the archive, for small ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapRef>,
    /// SHA-256 of the archive, 64 hexadecimal digits. An archive with another one fills no claim. It is a
    /// tar, plain or compressed by gzip or Zstandard.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{64}$')").message("sha256 is 64 hexadecimal digits in lower case, as sha256sum prints them"))]
    pub sha256: String,
}

/// A key of a ConfigMap.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapRef {
    /// Name of the ConfigMap, in the namespace of this object.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub name: String,
    /// Its key, in `binaryData` or `data`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}
