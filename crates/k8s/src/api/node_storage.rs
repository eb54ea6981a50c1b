//! The storage of a node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(any(test, feature = "testing"))]
use crate::api::condition::Judged;
use crate::api::condition::READY;
use crate::api::longest::LONGEST_SENTENCE;
use crate::api::{FenceStatus, FsType, Quantity, UsageStatus, VolumeMode, without_default};

mod bounded;

/// The most volumes that are left out and named.
const MOST_UNLISTED: usize = 12_603;
/// The longest name of a pool, in characters.
pub(super) const LONGEST_POOL: usize = 63;
/// The longest version, in characters.
const LONGEST_VERSION: usize = 64;
/// The most conditions of a pool or a volume group.
const MOST_CONDITIONS: usize = 4;
/// The most planned actions of a pool.
const MOST_LINES: usize = 64;
/// The most pools and the most volume groups of a node.
const MOST_GROUPS: usize = 256;
/// The most disks of a node.
const MOST_DISKS: usize = 1024;
/// The most volumes of a node: with more the object would be larger than the API server takes.
const MOST_VOLUMES: usize = 4096;
/// The most snapshots of a node: one that is not listed could not be restored, so that none is taken beyond.
pub const MOST_SNAPSHOTS: usize = 1000;
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
    /// Hash of the node's name, 8 characters, with which the handles of the node's volumes begin. Immutable.
    #[schemars(regex(pattern = r"^[a-z2-7]{8}$"), length(max = 8))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("nodeHash cannot change"))]
    pub node_hash: String,
}

/// Storage of the node as its node plugin reports it.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStorageStatus {
    /// Version of the node plugin, at most 64 characters. Absent until the node plugin has reported.
    #[serde(default)]
    #[schemars(length(max = LONGEST_VERSION), transform = without_default)]
    pub version: String,
    /// Version of LVM that the node plugin runs, such as `2.03.16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_VERSION))]
    pub lvm_version: Option<String>,
    /// Version of the node's kernel, such as `6.1.0-30-amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_VERSION))]
    pub kernel_version: Option<String>,
    /// Total size of the volume groups of all pools. Absent until the node plugin has reported.
    #[serde(default)]
    #[schemars(transform = without_default)]
    pub capacity: Quantity,
    /// Free space in the volume groups of all pools. New volumes leave the reserves of the pools. Absent until the node plugin
    /// has reported.
    #[serde(default)]
    #[schemars(transform = without_default)]
    pub available: Quantity,
    /// Number of volumes on the node, including those that `volumes` does not list.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub volume_count: i32,
    /// Worst health of the pools: `Healthy`, `Degraded` or `Unavailable`; at most `Degraded` while one pool is
    /// usable. Absent until the node plugin has reported.
    #[serde(default)]
    #[schemars(transform = without_default)]
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
    #[schemars(
        length(max = MOST_GROUPS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub volume_groups: Vec<GroupStatus>,
    /// Physical volumes of the volume groups, and standby disks; at most 1024.
    #[serde(default)]
    #[schemars(length(max = MOST_DISKS), extend("x-kubernetes-list-type" = "atomic"))]
    pub disks: Vec<DiskStatus>,
    /// Volumes of the node in the order of their handles, at most 4096. `unlistedVolumes` names the others.
    #[serde(default)]
    #[schemars(length(max = MOST_VOLUMES), extend("x-kubernetes-list-type" = "atomic"))]
    pub volumes: Vec<VolumeOnNode>,
    /// Volumes that `volumes` does not list because the object would become too large, at most 12603: of each the first
    /// twelve characters after the hyphen of its handle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_UNLISTED),
        inner(regex(pattern = r"^[a-z2-7]{12}$"), length(max = 12)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub unlisted_volumes: Vec<String>,
    /// Number of snapshots on the node, including those that `snapshots` does not list.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub snapshot_count: i32,
    /// Snapshots of the node in the order of their handles, at most 1000: no more are taken on one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SNAPSHOTS), extend("x-kubernetes-list-type" = "atomic"))]
    pub snapshots: Vec<SnapshotOnNode>,
    /// Long operations that are running, such as erasing a deleted volume.
    #[serde(default)]
    #[schemars(length(max = MOST_VOLUMES), extend("x-kubernetes-list-type" = "atomic"))]
    pub operations: Vec<OperationStatus>,
    /// Usage of the mounted file systems, in the order of the volume handles. Each entry is updated when the usage changes
    /// significantly. A file system that does not respond has no entry.
    #[serde(default)]
    #[schemars(length(max = MOST_USAGES), extend("x-kubernetes-list-type" = "atomic"))]
    pub usage: Vec<VolumeUsage>,
    /// How other nodes read volumes of this node. Absent if the node plugin has no `--transfer-ip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<TransferEndpoint>,
    /// Conditions of the node. `Ready`: volumes can be used. `PrerequisitesMet`: programs, kernel modules and rights
    /// are present. `DisksHealthy`: all disks respond. `InventoryComplete`: `volumes` lists all volumes.
    #[serde(default)]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

/// How a node plugin is reached by those of other nodes, and known to them.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferEndpoint {
    /// IP address and port of the node plugin, such as `10.0.0.7:9816`.
    #[schemars(length(min = 1, max = 64))]
    pub address: String,
    /// Fingerprint of its certificate: `sha256:` and 64 hexadecimal digits. A restarted node plugin has another one.
    #[schemars(regex(pattern = r"^sha256:[0-9a-f]{64}$"), length(max = 71))]
    pub certificate_fingerprint: String,
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
    #[schemars(length(max = LONGEST_POOL))]
    pub name: String,
    /// True if a StoragePool defines the pool for this node. A pool without one stays listed while it has volumes.
    pub configured: bool,
    /// True if this pool gets new volumes of a StorageClass that names no pool. Of the pools with a volume group on
    /// this node that is the one called `default`, else the oldest.
    #[serde(default)]
    pub default: bool,
    /// Total size of the volume groups of the pool.
    pub capacity: Quantity,
    /// Free space in those volume groups of the pool that LVM can change. New volumes leave the reserve of the pool.
    pub available: Quantity,
    /// Size of the largest volume that can be created now, for each layout.
    #[serde(default)]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["layout"])
    )]
    pub maximum_volume_size: Vec<LayoutRoom>,
    /// Extent size of the pool's volume groups: volume sizes are multiples of it. Absent until the node plugin has
    /// reported.
    #[serde(default)]
    #[schemars(transform = without_default)]
    pub extent_size: Quantity,
    /// Number of volumes in the pool.
    #[schemars(range(min = 0))]
    pub volume_count: i32,
    /// Health of the pool: `Healthy`, `Degraded` (usable, with a fault) or `Unavailable`. It summarizes the condition
    /// `Ready`.
    pub health: Health,
    /// Condition `Ready` of the pool: true if its volumes can be used. Its reason and its message are those of the worst
    /// fault, with the commands to run.
    #[serde(default)]
    #[schemars(
        length(max = MOST_CONDITIONS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// Actions that `createVolumeGroups: true` in the StoragePool would start, in order; at most 64.
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

impl PoolStatus {
    /// True if its disks only wait until they may be initialized: nothing of it is broken, and nothing is
    /// hidden in it.
    pub fn only_plans(&self) -> bool {
        !self.planned_actions.is_empty()
            && self.rejected_disks.is_empty()
            && self.capacity == Quantity::default()
    }

    /// Returns its condition `Ready`, if it is not healthy.
    pub fn fault(&self) -> Option<&Condition> {
        fault_of(self.health, &self.conditions)
    }

    /// Returns why it is not healthy, and the commands to run; nothing for a healthy one.
    pub fn problem(&self) -> Option<&str> {
        self.fault().map(|fault| fault.message.as_str())
    }

    /// Make it unhealthy for a reason.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_fault(&mut self, health: Health, reason: &str, message: &str) {
        (self.health, self.conditions) = (health, vec![ready_condition(health, reason, message)]);
    }
}

/// The condition `Ready` of what has this health, if it is not healthy.
fn fault_of(health: Health, conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|one| health != Health::Healthy && one.type_ == READY)
}

/// The condition `Ready` of a pool or a volume group of this health.
#[cfg(any(test, feature = "testing"))]
pub fn ready_condition(health: Health, reason: &str, message: &str) -> Condition {
    let is_so = health != Health::Unavailable;
    let judged = Judged { is_so, reason: reason.to_owned(), message: message.to_owned() };
    judged.condition(READY, &[], &Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH))
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
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Name of the volume group.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Name of the pool that uses the volume group.
    #[schemars(length(max = LONGEST_POOL))]
    pub pool: String,
    /// Size of the volume group: all of its extents.
    pub size: Quantity,
    /// Free space of the volume group: its extents that no logical volume uses.
    pub free: Quantity,
    /// Thin pool of the volume group. Absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thin_pool: Option<ThinPoolStatus>,
    /// Health of the volume group: `Healthy`, `Degraded` (usable, with a fault) or `Unavailable`. It summarizes the
    /// condition `Ready`.
    pub health: Health,
    /// Condition `Ready` of the volume group: true if its volumes can be used. Its message has the commands to run.
    #[serde(default)]
    #[schemars(
        length(max = MOST_CONDITIONS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

impl GroupStatus {
    /// Returns its condition `Ready`, if it is not healthy.
    pub fn fault(&self) -> Option<&Condition> {
        fault_of(self.health, &self.conditions)
    }

    /// Returns why it is not healthy, and the commands to run; nothing for a healthy one.
    pub fn problem(&self) -> Option<&str> {
        self.fault().map(|fault| fault.message.as_str())
    }
}

/// Thin pool of a volume group. The node plugin writes it again when a percent of its data or metadata has come or gone.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThinPoolStatus {
    /// Size of the data of the thin pool.
    pub size: Quantity,
    /// Size to which its data can be expanded: at most `thin.size` of the StoragePool without its reserve, and no more than
    /// the volume group has free.
    pub maximum_size: Quantity,
    /// Data in use. Absent while the thin pool is inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Quantity>,
    /// Size of the metadata of the thin pool.
    pub metadata_size: Quantity,
    /// Size to which its metadata can be expanded, as the volume group is now.
    pub maximum_metadata_size: Quantity,
    /// Metadata in use. Absent while the thin pool is inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_used: Option<Quantity>,
    /// Total size of all volumes and snapshots in the thin pool, whether they are written or not.
    pub provisioned: Quantity,
    /// Maximum of `provisioned`: `thin.maxOvercommitPercent` of what its data can have.
    pub maximum_provisioned: Quantity,
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
    pub volume_group: Option<String>,
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
    /// CSI volume handle of the volume, which is that of its PersistentVolume.
    #[schemars(length(max = 35))]
    pub volume_handle: String,
    /// Name that the external provisioner gave, which is that of the volume's first PersistentVolume.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Name of the pool that has the volume.
    #[schemars(length(max = LONGEST_POOL))]
    pub pool: String,
    /// Real size of the volume, in whole extents.
    pub size: Quantity,
    /// Size that was requested when the volume was created.
    pub requested_size: Quantity,
    /// How the workload sees the volume: `Filesystem` or `Block`.
    pub volume_mode: VolumeMode,
    /// File system of the volume: `ext2`, `ext3`, `ext4`, `xfs` or `btrfs`. Absent for `Block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<FsType>,
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
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub health_statuses: Vec<VolumeHealthStatus>,
}

impl VolumeOnNode {
    /// Returns what the workload sees, in a word: the file system, or `block`.
    pub fn format(&self) -> &str {
        self.fs_type.map_or("block", FsType::as_str)
    }
}

/// A snapshot on this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotOnNode {
    /// CSI handle of the snapshot, which begins with that of its volume.
    #[schemars(length(max = 62))]
    pub snapshot_handle: String,
    /// Name that the external snapshotter gave. Empty if the object would become too large with the names.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Name of the pool that has the snapshot.
    #[schemars(length(max = LONGEST_POOL))]
    pub pool: String,
    /// Size of the volume when the snapshot was taken, in whole extents.
    pub size: Quantity,
    /// Smallest size of a volume that is restored from the snapshot.
    pub restore_size: Quantity,
    /// How a workload sees a volume that is restored from the snapshot: `Filesystem` or `Block`.
    pub volume_mode: VolumeMode,
    /// File system of the snapshot: `ext2`, `ext3`, `ext4`, `xfs` or `btrfs`. Absent for `Block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<FsType>,
    /// Time when the snapshot was taken.
    pub creation_time: Time,
    /// True once a volume can be restored from the snapshot.
    pub ready_to_use: bool,
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
    /// CSI volume handle of the volume that the sample is of.
    #[schemars(length(max = 35))]
    pub volume_handle: String,
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
pub struct OperationStatus {
    /// CSI volume handle of the volume that is being changed.
    #[schemars(length(max = 35))]
    pub volume_handle: String,
    /// Type of the operation. `Wipe`: the node erases a deleted volume. `Copy`: the node copies the content of a snapshot or of
    /// another volume to the volume, or the content of the volume to its snapshot.
    pub r#type: OperationType,
    /// Progress of the operation, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[schemars(length(max = 256))]
    pub progress: String,
}

/// Type of a long operation.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum OperationType {
    /// The node erases a deleted volume.
    Wipe,
    /// The node copies content to the volume, or to its snapshot.
    Copy,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl OperationType {
    /// Returns the words for it in a sentence about a volume.
    pub const fn words(self) -> &'static str {
        match self {
            OperationType::Wipe => "wiping",
            OperationType::Copy => "copying",
            OperationType::Unknown => "an operation that this version does not know, on",
        }
    }
}
