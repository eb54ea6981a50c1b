//! The storage of a node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{FenceStatus, Quantity, UsageStatus, VolumeMode};

mod bounded;

use bounded::OF_UNLISTED;

/// The longest sentence, in characters.
const LONGEST_SENTENCE: usize = 1024;
/// The longest version, in characters.
const LONGEST_VERSION: usize = 64;
/// The most planned actions of a pool.
const MOST_LINES: usize = 64;
/// The most pools and the most volume groups of a node.
const MOST_GROUPS: usize = 256;
/// The most disks of a node.
const MOST_DISKS: usize = 1024;
/// The most volumes of a node: with more the object would be larger than the API server takes.
const MOST_VOLUMES: usize = 4096;
/// The most mounted file systems of a node, for the same reason; the kubelet runs no more than some
/// hundred pods.
const MOST_USAGES: usize = 1024;

/// The condition that the list of volumes has all volumes of the node.
pub const INVENTORY_COMPLETE: &str = "InventoryComplete";

/// The storage of one node, under the node's name; its node plugin writes it when something changes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "NodeStorage",
    plural = "nodestorages",
    singular = "nodestorage",
    shortname = "nst",
    category = "pliant",
    doc = "Storage of one node: its pools, volume groups, disks and volumes. The object has the name of the node. The node plugin writes it whenever something changes.",
    status = "NodeStorageStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Capacity", type_ = "string", json_path = ".status.capacity"),
    printcolumn(name = "Available", type_ = "string", json_path = ".status.available"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.health", priority = "1"),
    printcolumn(
        name = "Volumes",
        type_ = "integer",
        json_path = ".status.volumeCount",
        priority = "1"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", priority = "1"),
    printcolumn(name = "LVM", type_ = "string", json_path = ".status.lvmVersion", priority = "1"),
    printcolumn(
        name = "Kernel",
        type_ = "string",
        json_path = ".status.kernelVersion",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeStorageSpec {
    /// Hash of the node's name, 8 characters, with which the ids of the node's volumes begin. Immutable.
    #[schemars(regex(pattern = r"^[a-z2-7]{8}$"), length(max = 8))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("nodeHash cannot change"))]
    pub node_hash: String,
}

/// Storage of the node as its node plugin reports it.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStorageStatus {
    /// Version of the node plugin, at most 64 characters.
    #[serde(default)]
    #[schemars(length(max = LONGEST_VERSION))]
    pub version: String,
    /// Version of LVM that the node plugin runs, such as `2.03.16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_VERSION))]
    pub lvm_version: Option<String>,
    /// Version of the node's kernel, such as `6.1.0-30-amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_VERSION))]
    pub kernel_version: Option<String>,
    /// Total size of the volume groups of all pools.
    #[serde(default)]
    pub capacity: Quantity,
    /// Free space in the volume groups of all pools that new volumes and expansions can use.
    #[serde(default)]
    pub available: Quantity,
    /// Number of volumes on the node, including those that `volumes` does not list.
    #[serde(default)]
    pub volume_count: i32,
    /// Worst health of the pools: `Healthy`, `Degraded` or `Unavailable`; at most `Degraded` while one pool is usable.
    #[serde(default)]
    pub health: Health,
    /// Pools of this node, at most 256.
    #[serde(default)]
    #[schemars(
        length(max = MOST_GROUPS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pools: Vec<PoolStatus>,
    /// Volume groups of the pools, at most 256.
    #[serde(default)]
    #[schemars(length(max = MOST_GROUPS))]
    pub volume_groups: Vec<GroupStatus>,
    /// Physical volumes of the volume groups, and standby disks; at most 1024.
    #[serde(default)]
    #[schemars(length(max = MOST_DISKS))]
    pub disks: Vec<DiskStatus>,
    /// Volumes of the node in the order of their ids, at most 4096. `unlisted` names the others.
    #[serde(default)]
    #[schemars(length(max = MOST_VOLUMES))]
    pub volumes: Vec<VolumeOnNode>,
    /// Volumes that `volumes` does not list because the object would become too large: of each the first twelve
    /// characters after the hyphen of its id, separated by spaces.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = OF_UNLISTED))]
    pub unlisted: String,
    /// Long operations that are running, such as erasing a deleted volume.
    #[serde(default)]
    #[schemars(length(max = MOST_VOLUMES))]
    pub work: Vec<WorkStatus>,
    /// Usage of the mounted file systems, in the order of the volume ids. Each entry is updated when the usage changes
    /// significantly. A file system that does not respond has no entry.
    #[serde(default)]
    #[schemars(length(max = MOST_USAGES))]
    pub usage: Vec<VolumeUsage>,
    /// Conditions of the node. `Ready`: volumes can be used. `PrerequisitesMet`: programs, kernel modules and rights
    /// are present. `DisksHealthy`: all disks respond. `InventoryComplete`: `volumes` lists all volumes.
    #[serde(default)]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

impl NodeStorageStatus {
    /// Returns why the list of volumes may lack some, if it may.
    pub fn inventory_gap(&self) -> Option<&str> {
        let is_it = |one: &&Condition| one.type_ == INVENTORY_COMPLETE && one.status == "False";
        self.conditions.iter().find(is_it).map(|condition| condition.message.as_str())
    }

    /// Say in a condition why the list of volumes may lack some.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_inventory_gap(&mut self, why: &str) {
        self.conditions.retain(|one| one.type_ != INVENTORY_COMPLETE);
        self.conditions.push(Condition {
            type_: INVENTORY_COMPLETE.to_owned(),
            status: "False".to_owned(),
            reason: "VolumesUnreadable".to_owned(),
            message: why.to_owned(),
            last_transition_time: Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH),
            observed_generation: None,
        });
    }
}

/// Health of a pool or a volume group.
#[derive(
    Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum Health {
    /// Everything works.
    #[default]
    Healthy,
    /// Usable, with a fault.
    Degraded,
    /// Not usable now.
    Unavailable,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl Health {
    /// All of them, from the best to the worst.
    pub const ALL: [Health; 3] = [Health::Healthy, Health::Degraded, Health::Unavailable];

    /// Returns its value of a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Health::Healthy => "healthy",
            Health::Degraded => "degraded",
            Health::Unavailable => "unavailable",
            Health::Unknown => "unknown",
        }
    }
}

/// A pool on this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Name of the pool, which is that of its StoragePool.
    #[schemars(length(max = 128))]
    pub name: String,
    /// True if a StoragePool defines the pool for this node. A pool without one stays listed while it has volumes.
    pub configured: bool,
    /// True if this pool gets new volumes of a StorageClass that names no pool. Of the pools with a volume group on
    /// this node that is the one called `default`, else the oldest.
    #[serde(default)]
    pub default: bool,
    /// Total size of the volume groups of the pool.
    pub capacity: Quantity,
    /// Free space in those volume groups of the pool that LVM can change, without the reserve.
    pub available: Quantity,
    /// Size of the largest volume that can be created now, for each layout.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub maximum_volume_size: Vec<LayoutRoom>,
    /// Extent size of the pool's volume groups: volume sizes are multiples of it.
    #[serde(default)]
    pub extent: Quantity,
    /// Number of volumes in the pool.
    pub volumes: i32,
    /// Health of the pool: `Healthy`, `Degraded` (usable, with a fault) or `Unavailable`. Default: `Healthy`.
    #[serde(default)]
    pub health: Health,
    /// Why the pool is not healthy, and the commands to run. Absent for a healthy pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// Actions that `createVolumeGroups: true` in the StoragePool would start, in order; at most 64.
    #[serde(default)]
    #[schemars(length(max = MOST_LINES), inner(length(max = LONGEST_SENTENCE)))]
    pub planned_actions: Vec<String>,
    /// Disks that the node does not initialize, each with the reason and the commands to run; at most 64.
    #[serde(default)]
    #[schemars(length(max = MOST_LINES), inner(length(max = LONGEST_SENTENCE)))]
    pub rejected_disks: Vec<String>,
}

impl PoolStatus {
    /// True if its disks only wait until they may be initialized: nothing of it is broken, and nothing is
    /// hidden in it.
    pub fn only_plans(&self) -> bool {
        !self.planned_actions.is_empty()
            && self.rejected_disks.is_empty()
            && self.capacity == Quantity::default()
    }
}

/// Size of the largest volume of one layout.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutRoom {
    /// Layout of the volume, as the parameter `layout` of a StorageClass names it.
    #[schemars(length(max = 32))]
    pub layout: String,
    /// Size of the largest volume with this layout that can be created now.
    pub size: Quantity,
}

/// A volume group of this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Name of the volume group.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Name of the pool that uses the volume group.
    #[schemars(length(max = 128))]
    pub pool: String,
    /// Size of the volume group: all of its extents.
    pub size: Quantity,
    /// Free space of the volume group: its extents that no logical volume uses.
    pub free: Quantity,
    /// Health of the volume group: `Healthy`, `Degraded` (usable, with a fault) or `Unavailable`. Default: `Healthy`.
    #[serde(default)]
    pub health: Health,
    /// Why the volume group is not healthy, and the commands to run. Absent for a healthy one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
}

/// A disk of this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStatus {
    /// Path of the device on the node, such as `/dev/disk/by-id/nvme-…`.
    #[schemars(length(max = 4096))]
    pub device: String,
    /// Size of the disk. Absent while the disk is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// Volume group of which the disk is a physical volume. Absent for other disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub group: Option<String>,
    /// State of the disk. `Used`: in a volume group. `Standby`: blank, and ready to extend a volume group. `Rejected`:
    /// named by a StoragePool, but not blank. `Missing`: not present.
    pub state: DiskState,
    /// Why the disk is rejected or missing, and the commands to run. Absent for other disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
}

/// State of a disk.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum DiskState {
    /// In a volume group.
    Used,
    /// Blank, and ready to extend a volume group.
    Standby,
    /// Named by a StoragePool, and not blank.
    Rejected,
    /// Known to a volume group or a StoragePool, and not present.
    Missing,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// A volume of this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeOnNode {
    /// Id of the volume, which is the CSI volume handle of its PersistentVolume.
    #[schemars(length(max = 35))]
    pub id: String,
    /// Name that the external provisioner gave, which is that of the volume's first PersistentVolume.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Name of the pool that has the volume.
    #[schemars(length(max = 128))]
    pub pool: String,
    /// Real size of the volume, in whole extents.
    pub size: Quantity,
    /// Size that was requested when the volume was created.
    pub requested_size: Quantity,
    /// How the workload sees the volume: `Filesystem` or `Block`.
    pub volume_mode: VolumeMode,
    /// File system of the volume: `ext4`, `xfs` or `btrfs`. Absent for `Block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub fs_type: Option<String>,
    /// State of the volume. `Creating`: not yet erased, so not usable. `Ready`: usable. `Resizing`: the file system
    /// follows the logical volume. `Resized`: the last expansion has ended. `Deleting`: it is being erased.
    pub state: VolumeState,
    /// Fence of the volume: who can use it. Absent if no PVC swap and no populator has set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// Size beyond which the volume is not expanded, because it is being shrunk, or because its PersistentVolume does
    /// not have the smaller size yet. Absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Quantity>,
    /// Health of the volume as CSI reports it, at most 16 entries. Empty for a healthy volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub health_statuses: Vec<VolumeHealthStatus>,
}

impl VolumeOnNode {
    /// Returns what the workload sees, in a word: the file system, or `block`.
    pub fn format(&self) -> &str {
        self.fs_type.as_deref().unwrap_or("block")
    }
}

/// State of a volume.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum VolumeState {
    /// Its extents are allocated and not yet erased; no one can use it.
    Creating,
    /// Usable.
    Ready,
    /// The logical volume has its new size, the file system follows.
    Resizing,
    /// An expansion has ended since the node plugin started.
    Resized,
    /// It is being erased before its extents become free.
    Deleting,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// It as the field has it.
impl std::fmt::Display for VolumeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// Usage of the file system of a volume.
///
/// An entry is updated when the used share of bytes or inodes reaches 70, 80, 85, 90 or 95 percent or falls
/// clearly below one of them, when a tenth of the bytes or inodes has been used or freed, and when the size has
/// changed.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeUsage {
    /// Id of the volume that the sample is of.
    #[schemars(length(max = 35))]
    pub volume: String,
    /// Time of this sample. While the entry exists, the file system responds and has nearly this usage.
    pub observed_time: Time,
    /// Usage of the file system at that time.
    #[serde(flatten)]
    pub usage: UsageStatus,
    /// Sample before this one, from which the growth rate follows. Absent after the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<UsageBefore>,
}

/// Usage of the file system of a volume in the sample before.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageBefore {
    /// Time of the previous sample.
    pub observed_time: Time,
    /// Bytes of the file system that files occupied.
    pub used: Quantity,
    /// Number of inodes that were in use. Absent where the file system does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<i64>,
}

/// One fault of a volume, as an entry of CSI's `VolumeHealth`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeHealthStatus {
    /// Severity of the fault, as CSI names it: `Degraded`, `Inaccessible` or `DataLoss`.
    #[schemars(length(max = 16))]
    pub status: String,
    /// Reason in CamelCase, for programs.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Message for people: what is wrong, where, and the commands to run.
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: String,
}

/// A long operation on one volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    /// Id of the volume that is being changed.
    #[schemars(length(max = 35))]
    pub volume: String,
    /// Name of the operation, such as `wiping`.
    #[schemars(length(max = 32))]
    pub what: String,
    /// Progress of the operation, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[schemars(length(max = 256))]
    pub progress: String,
}
