//! An archive that populates claims.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::PopulatorStatus;
use crate::api::dns_name::DNS_NAME;

/// An archive that populates new claims: they name this object in `dataSourceRef`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "ArchivePopulator",
    plural = "archivepopulators",
    shortname = "archivepop",
    category = "pliant",
    namespaced,
    doc = "An archive that populates new claims. A claim with a file system names this object in its `dataSourceRef`. It is bound as soon as the archive is unpacked and its checksum was correct.",
    status = "PopulatorStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Claims", type_ = "integer", json_path = ".status.claimCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url", priority = "1"),
    printcolumn(
        name = "ConfigMap",
        type_ = "string",
        json_path = ".spec.configMapRef.name",
        priority = "1"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.url) != has(self.configMapRef)"
).message("give one of url and configMapRef, and not both"))]
pub struct ArchivePopulatorSpec {
    /// URL of the archive, http or https, such as `https://example.com/site.tar.gz`. Give either this or `configMapRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https?://[!-~]+$"), length(max = 2048))]
    pub url: Option<String>,
    /// ConfigMap that contains the archive, for archives below 1 MiB. Give either this or `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapRef>,
    /// SHA-256 checksum of the archive, 64 hexadecimal digits in lower case. An archive with another checksum populates no
    /// claim. The archive is a tar file, plain or compressed by gzip or Zstandard.
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
    /// Key of the archive, in `binaryData` or `data` of the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}
