//! What the administrator wants of the nodes' disks.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Quantity;
use crate::api::quantity::as_written;

/// Volume groups of some nodes, under one name that StorageClasses use.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "StoragePool",
    plural = "storagepools",
    shortname = "spool",
    category = "pliant",
    doc = "Volume groups of some nodes, under the name that the `pool` parameter of a StorageClass gives. What the agents would do with the disks stands in the status before anything is done.",
    status = "StoragePoolStatus",
    derive = "PartialEq",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size"),
    printcolumn(name = "Free", type_ = "string", json_path = ".status.free"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "size(self.groups) + size(self.disks) > 0"
).message("name at least one of groups (volume groups that exist) and disks (to make groups of)"))]
pub struct StoragePoolSpec {
    /// Labels of the nodes that the pool is for. Without any it is for every node.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 16))]
    pub node_selector: BTreeMap<String, String>,
    /// Names of volume groups that exist on the nodes, or will.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(min = 1, max = 127)))]
    pub groups: Vec<String>,
    /// Disks of which each becomes a volume group of its own, if `create` is true. Use paths that
    /// stay the same over a reboot, such as those in /dev/disk/by-id.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub disks: Vec<PoolDisk>,
    /// Blank disks that join a group when a new volume or a growth needs the room.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub spare_disks: Vec<PoolDisk>,
    /// Whether the agents may initialise disks. While it is false, they only tell in the status
    /// what they would do.
    #[serde(default)]
    pub create: bool,
    /// Room that is left free in each group, for growths and snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_written")]
    pub reserve: Option<Quantity>,
}

/// A disk of a pool.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolDisk {
    /// Its path on the node, such as /dev/disk/by-id/nvme-….
    #[schemars(regex(pattern = r"^/dev/[A-Za-z0-9._:+@=/-]+$"), length(max = 255))]
    pub device: String,
    /// Whether it may be initialised although something is on it, which is lost then. Without this, a
    /// disk that is not blank is refused by name.
    #[serde(default)]
    pub wipe: bool,
}

/// How a pool is, over all of its nodes; told by the controller.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoragePoolStatus {
    /// The generation of the spec that this status answers.
    #[serde(default)]
    pub observed_generation: i64,
    /// How many nodes have the pool and can use it.
    #[serde(default)]
    pub ready: i32,
    /// All extents of its groups on all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// Free extents of its groups on all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<Quantity>,
    /// What is to be known first, such as a disk that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What each node would do, did, or refused.
    #[serde(default)]
    pub nodes: Vec<PoolNode>,
}

/// What one node says of a pool.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolNode {
    /// The node.
    pub node: String,
    /// What would be done if `create` were true, one step a line, in order.
    #[serde(default)]
    pub plan: Vec<String>,
    /// What was refused, with the reason and what to type.
    #[serde(default)]
    pub refused: Vec<String>,
}
