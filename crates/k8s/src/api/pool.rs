//! The disks and volume groups of the nodes that volumes use.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::longest::LONGEST_SENTENCE;
use crate::api::quantity::as_written;
use crate::api::{Quantity, Share};

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
    /// Thin pool in each volume group, for StorageClasses with `layout: thin`. Default: none, and the pool has no thin
    /// volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thin: Option<ThinPoolSpec>,
}

/// Thin pool in each volume group of a pool.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThinPoolSpec {
    /// Maximum size of the data of thin volumes in each volume group: percent of the volume group, or a size such as
    /// `500Gi`. The thin pool begins with a quarter of it, and is expanded in steps. Default: `90%`.
    #[serde(default = "thin_size")]
    pub size: Share,
    /// Maximum total size of all thin volumes and snapshots, in percent of `size`. Default: 100, so that each volume can
    /// be full.
    #[serde(default = "max_overcommit")]
    #[schemars(range(min = 100, max = 10_000))]
    pub max_overcommit_percent: i32,
    /// Percentage of its data in use at which a thin pool is expanded. Default: 70.
    #[serde(default = "grow_at")]
    #[schemars(range(min = 50, max = 95))]
    pub grow_at_percent: i32,
    /// Metadata of the thin pool.
    #[serde(default)]
    pub metadata: ThinMetadata,
    /// Part of `size` that Pliant never uses, so that an administrator can expand a full thin pool. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Share>,
    /// What happens to writes if the thin pool is full and cannot be expanded: `Error` lets them fail, `Queue` lets them
    /// wait. Default: `Error`.
    #[serde(default)]
    pub when_full: WhenThinPoolFull,
    /// What a thin pool does with discards such as those of `fstrim`: `PassDown` frees the space and discards on the disk,
    /// `NoPassDown` frees the space, `Ignore` does neither. Default: `PassDown`.
    #[serde(default)]
    pub discards: ThinDiscards,
    /// Chunk size of new thin pools, a power of two from `64Ki` to `1Gi`. Default: `64Ki`, and more if `size` exceeds 1 TiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_written")]
    pub chunk_size: Option<Quantity>,
}

/// Metadata of a thin pool.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThinMetadata {
    /// Percentage of it in use at which it is expanded. Default: 70.
    #[serde(default = "grow_at")]
    #[schemars(range(min = 50, max = 95))]
    pub grow_at_percent: i32,
}

impl Default for ThinMetadata {
    fn default() -> ThinMetadata {
        ThinMetadata { grow_at_percent: grow_at() }
    }
}

/// What happens to writes if a thin pool is full.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum WhenThinPoolFull {
    /// They fail.
    #[default]
    Error,
    /// They wait.
    Queue,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// What a thin pool does with discards.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum ThinDiscards {
    /// It frees the space, and discards on the disk.
    #[default]
    PassDown,
    /// It frees the space.
    NoPassDown,
    /// Nothing.
    Ignore,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

fn thin_size() -> Share {
    Share::Percent(90)
}

fn max_overcommit() -> i32 {
    100
}

fn grow_at() -> i32 {
    70
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
