//! The disks and volume groups of the nodes that volumes use.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Quantity;
use crate::api::longest::LONGEST_SENTENCE;
use crate::api::quantity::as_written;

/// The most nodes of a pool in its status; Kubernetes supports no more.
pub(super) const MOST_NODES: usize = 5000;

/// The most planned actions, and rejected disks, of a node in the status of a pool.
pub(super) const MOST_LINES: usize = 64;

/// Volume groups of some nodes, under one name that StorageClasses use.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "StoragePool",
    plural = "storagepools",
    shortname = "spool",
    category = "pliant",
    doc = "Volume groups of selected nodes, under the name that the `pool` parameter of a StorageClass uses. The status shows what each node would do with the disks before anything is written to them.",
    status = "StoragePoolStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("the name of a StoragePool has 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends: volumes carry it as a label"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Capacity", type_ = "string", json_path = ".status.capacity"),
    printcolumn(name = "Available", type_ = "string", json_path = ".status.available"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready-Nodes",
        type_ = "integer",
        json_path = ".status.readyNodeCount",
        priority = "1"
    ),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodeCount", priority = "1"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "size(self.volumeGroups) + size(self.disks) > 0"
).message("name at least one of volumeGroups (existing volume groups) and disks (to create volume groups on)"))]
#[x_kube(validation = Rule::new(
    "self.disks.all(disk, !self.standbyDisks.exists(standby, standby.device == disk.device))"
).message("a device is either in disks or in standbyDisks"))]
pub struct StoragePoolSpec {
    /// Labels of the nodes that have the pool, at most 16. Default: empty, which selects every node.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 16))]
    pub node_selector: BTreeMap<String, String>,
    /// Names of existing volume groups that the pool uses, at most 64. A node without a volume group of that name is skipped.
    #[serde(default)]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 127), regex(pattern = r"^[a-zA-Z0-9+_.][a-zA-Z0-9+_.-]*$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    #[x_kube(validation = Rule::new(
        "self.all(group, group != '.' && group != '..')"
    ).message("LVM takes neither . nor .. as the name of a volume group"))]
    pub volume_groups: Vec<String>,
    /// Disks on each of which the node creates a volume group, if `createVolumeGroups` is true; at most 64. Use device
    /// paths that persist over a reboot, such as those in /dev/disk/by-id.
    #[serde(default)]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["device"])
    )]
    pub disks: Vec<PoolDisk>,
    /// Blank disks that extend a volume group when a new volume or an expansion needs more free space; at most 64.
    #[serde(default)]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["device"])
    )]
    pub standby_disks: Vec<PoolDisk>,
    /// True if the nodes may initialize the disks. Default: false; the nodes then only report in `plannedActions` what
    /// they would do.
    #[serde(default)]
    pub create_volume_groups: bool,
    /// Free space that new volumes leave in each volume group, for expansions and snapshots, such as `10Gi`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_written")]
    pub reserve: Option<Quantity>,
}

/// A disk of a pool.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolDisk {
    /// Device path on the node, such as /dev/disk/by-id/nvme-…; at most 255 characters.
    #[schemars(regex(pattern = r"^/dev/[A-Za-z0-9._:+@=/-]+$"), length(max = 255))]
    pub device: String,
    /// True if the disk may be initialized although it is not blank: all data on it is lost. Default: false; the node
    /// then rejects a disk that is not blank.
    #[serde(default)]
    pub wipe_existing: bool,
}

/// Status of the pool over all of its nodes, written by the controller.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoragePoolStatus {
    /// Generation of the spec that this status describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// Number of nodes on which the pool is usable.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub ready_node_count: i32,
    /// Number of nodes that `nodeSelector` selects.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub node_count: i32,
    /// Total size of the pool's volume groups on all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// Free space in the pool's volume groups on all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<Quantity>,
    /// Condition `Ready`: true if the pool is usable on all nodes that it selects. Its message is the most important
    /// problem of the pool, such as a rejected disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// Planned actions and rejected disks of each node that the pool selects, at most 5000 nodes.
    #[serde(default)]
    #[schemars(
        length(max = MOST_NODES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub nodes: Vec<PoolNode>,
}

/// What one node reports about a pool.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolNode {
    /// Name of the node that reports this.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Actions that `createVolumeGroups: true` would start on the node, in order; at most 64.
    #[serde(default)]
    #[schemars(
        length(max = MOST_LINES),
        inner(length(max = LONGEST_SENTENCE)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub planned_actions: Vec<String>,
    /// Disks that the node does not initialize, each with the reason and the commands to run; at most 64.
    #[serde(default)]
    #[schemars(
        length(max = MOST_LINES),
        inner(length(max = LONGEST_SENTENCE)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub rejected_disks: Vec<String>,
}
