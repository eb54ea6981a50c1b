//! What a node has.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{FenceStatus, Quantity, UsageStatus};

mod bounded;

use bounded::OF_UNLISTED;

/// The longest sentence, in characters.
const LONGEST_SENTENCE: usize = 1024;
/// The longest version, in characters.
const LONGEST_VERSION: usize = 64;
/// The most lines of a plan of a pool.
const MOST_LINES: usize = 64;
/// The most pools and the most groups of a node.
const MOST_GROUPS: usize = 256;
/// The most disks of a node.
const MOST_DISKS: usize = 1024;
/// The most volumes of a node: with more the record would be larger than the API server keeps one.
const MOST_VOLUMES: usize = 4096;
/// The most mounted file systems of a node, for the same reason; the kubelet runs no more than some
/// hundred pods.
const MOST_USAGES: usize = 1024;

/// The storage of one node, under the node's name; its agent writes it when something changes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "NodeStorage",
    plural = "nodestorages",
    singular = "nodestorage",
    shortname = "nst",
    category = "pliant",
    doc = "The storage of one node. Its name is that of the node; the node's agent writes it when something changes.",
    status = "NodeStorageStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size"),
    printcolumn(name = "Free", type_ = "string", json_path = ".status.free"),
    printcolumn(name = "Volumes", type_ = "integer", json_path = ".status.volumeCount"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.health"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", priority = "1"),
    printcolumn(name = "LVM", type_ = "string", json_path = ".status.lvmVersion", priority = "1"),
    printcolumn(
        name = "Kernel",
        type_ = "string",
        json_path = ".status.kernelVersion",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeStorageSpec {
    /// The short id that the node's volumes carry: eight letters, the digest of the node's name. It
    /// never changes.
    #[schemars(regex(pattern = r"^[a-z2-7]{8}$"), length(max = 8))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("key cannot change"))]
    pub key: String,
}

/// What the node's agent sees.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStorageStatus {
    /// Version of the agent.
    #[serde(default)]
    #[schemars(length(max = LONGEST_VERSION))]
    pub version: String,
    /// Version of the LVM that the agent runs, such as `2.03.16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_VERSION))]
    pub lvm_version: Option<String>,
    /// Version of the node's kernel, such as `6.1.0-30-amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_VERSION))]
    pub kernel_version: Option<String>,
    /// All extents of all pools.
    #[serde(default)]
    pub size: Quantity,
    /// Free extents of all pools.
    #[serde(default)]
    pub free: Quantity,
    /// How many volumes there are.
    #[serde(default)]
    pub volume_count: i32,
    /// The worst of the pools; at most Degraded while one of them can be used.
    #[serde(default)]
    pub health: Health,
    /// The pools of this node.
    #[serde(default)]
    #[schemars(length(max = MOST_GROUPS))]
    pub pools: Vec<PoolStatus>,
    /// The volume groups of the pools.
    #[serde(default)]
    #[schemars(length(max = MOST_GROUPS))]
    pub groups: Vec<GroupStatus>,
    /// The disks of the groups, and those that wait to join.
    #[serde(default)]
    #[schemars(length(max = MOST_DISKS))]
    pub disks: Vec<DiskStatus>,
    /// The volumes, in the order of their ids.
    #[serde(default)]
    #[schemars(length(max = MOST_VOLUMES))]
    pub volumes: Vec<VolumeOnNode>,
    /// The volumes that are not listed because the record would be too large with them: of each the first twelve
    /// letters behind the hyphen of its id, with blanks between.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = OF_UNLISTED))]
    pub unlisted: String,
    /// Why the list of volumes may lack some: what could not be read, and what to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub unread: Option<String>,
    /// Long work under way, such as the wiping of a deleted volume.
    #[serde(default)]
    #[schemars(length(max = MOST_VOLUMES))]
    pub work: Vec<WorkStatus>,
    /// How full the mounted file systems are, in the order of the ids: each as it was when that mattered
    /// last. One that does not answer is not among them.
    #[serde(default)]
    #[schemars(length(max = MOST_USAGES))]
    pub usage: Vec<VolumeUsage>,
    /// Ready, PrerequisitesMet (programs, modules, rights) and DisksHealthy, each with its reason and a
    /// sentence.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// How something is.
#[derive(
    Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum Health {
    /// As it should be.
    #[default]
    Ok,
    /// Usable, not as it should be.
    Degraded,
    /// Not usable now.
    Unavailable,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl Health {
    /// All of them, from the best to the worst.
    pub const ALL: [Health; 3] = [Health::Ok, Health::Degraded, Health::Unavailable];

    /// The word for it in a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Health::Ok => "ok",
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
    /// Its name.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Whether a StoragePool names it; one that none names any more is kept while it holds volumes.
    pub configured: bool,
    /// Whether new volumes of a StorageClass that names no pool are made in it: of the pools that have a
    /// volume group on this node, that is the one named `default`, else the oldest.
    #[serde(default)]
    pub default: bool,
    /// All extents of its groups.
    pub size: Quantity,
    /// Free extents of its groups that can be changed.
    pub free: Quantity,
    /// The largest volume that can be made now, by layout.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub largest: Vec<LayoutRoom>,
    /// Size of an extent: sizes of volumes are multiples of it.
    #[serde(default)]
    pub extent: Quantity,
    /// How many volumes it has.
    pub volumes: i32,
    /// How it is.
    #[serde(default)]
    pub health: Health,
    /// What is wrong: a sentence with what to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// What would be done for the StoragePool of this name if its `create` were true.
    #[serde(default)]
    #[schemars(length(max = MOST_LINES), inner(length(max = LONGEST_SENTENCE)))]
    pub plan: Vec<String>,
    /// What was refused, with the reason and what to type.
    #[serde(default)]
    #[schemars(length(max = MOST_LINES), inner(length(max = LONGEST_SENTENCE)))]
    pub refused: Vec<String>,
}

impl PoolStatus {
    /// Whether its disks only wait until they may be initialised: nothing of it is broken, and nothing is
    /// hidden in it.
    pub fn only_plans(&self) -> bool {
        !self.plan.is_empty() && self.refused.is_empty() && self.size == Quantity::default()
    }
}

/// The largest volume of one layout.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayoutRoom {
    /// The layout, as the class parameter has it.
    #[schemars(length(max = 32))]
    pub layout: String,
    /// The largest volume.
    pub size: Quantity,
}

/// A volume group of this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Its name.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Its pool.
    #[schemars(length(max = 128))]
    pub pool: String,
    /// All extents.
    pub size: Quantity,
    /// Free extents.
    pub free: Quantity,
    /// How it is.
    #[serde(default)]
    pub health: Health,
    /// What is wrong: a sentence with what to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
}

/// A disk of this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStatus {
    /// Its path.
    #[schemars(length(max = 4096))]
    pub device: String,
    /// Its size, where it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// The group that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub group: Option<String>,
    /// What it is to the pools.
    pub state: DiskState,
    /// Why it is refused or missing, and what to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
}

/// What a disk is to the pools.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum DiskState {
    /// In a group.
    Used,
    /// Blank, and waits to join a group.
    Spare,
    /// Named by a pool, and not blank.
    Refused,
    /// Known to a group or a pool, and not there.
    Missing,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// A volume of this node.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeOnNode {
    /// Its id: the handle of its PersistentVolume.
    #[schemars(length(max = 35))]
    pub id: String,
    /// The name that the provisioner gave, which is that of its PersistentVolume.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Its pool.
    #[schemars(length(max = 128))]
    pub pool: String,
    /// Its real size.
    pub size: Quantity,
    /// The size that was asked for when it was made.
    pub requested: Quantity,
    /// What the workload sees: `block`, or the file system.
    #[schemars(length(max = 16))]
    pub mode: String,
    /// Where it stands: creating, ready, resizing, resized or deleting.
    #[schemars(length(max = 16))]
    pub state: String,
    /// Who may use it, if that was ever said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// The size beyond which it does not grow, because it is being shrunk to that or its claim is not
    /// told of it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Quantity>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub ailments: Vec<AilmentStatus>,
}

/// How full the file system of a volume is.
///
/// It is told anew when its share of used bytes or inodes comes to 70, 80, 85, 90 or 95 percent or falls
/// well below one of them, when a tenth of its bytes or inodes has come or gone, and when its size has
/// changed.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeUsage {
    /// The volume.
    #[schemars(length(max = 35))]
    pub volume: String,
    /// When it was so. What has not mattered since is not told: as long as the entry stands, the file
    /// system answers, and is much as it was.
    pub at: Time,
    /// How full it was.
    #[serde(flatten)]
    pub usage: UsageStatus,
    /// How full it was when that was told before. An agent that has just started knows of no time before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<UsageBefore>,
}

/// How full the file system of a volume was before: from then until now it has become so much fuller.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageBefore {
    /// When it was so.
    pub at: Time,
    /// What files had.
    pub used: Quantity,
    /// How many inodes were used, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<i64>,
}

/// One thing that is wrong.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AilmentStatus {
    /// How bad: Degraded, Inaccessible or DataLoss.
    #[schemars(length(max = 16))]
    pub severity: String,
    /// One word for machines.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// A sentence: what, where, what to type.
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: String,
}

/// Long work.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    /// The volume.
    #[schemars(length(max = 35))]
    pub volume: String,
    /// What is done, such as `wiping`.
    #[schemars(length(max = 32))]
    pub what: String,
    /// How far it is, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[schemars(length(max = 256))]
    pub progress: String,
}
