//! One operation on a volume of a node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::{
    FenceStatus, FsType, Quantity, TransferEndpoint, UsageStatus, VolumeMode, VolumeOnNode,
};

/// One operation on one volume of one node: written by the controller, executed by the node plugin, and
/// deleted soon after it has ended. It describes an operation, not a volume: a volume that does not change has none.
///
/// Its name consists of the operation and the volume, so a repeated call joins the operation that is running.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "VolumeRequest",
    plural = "volumerequests",
    shortname = "vreq",
    category = "pliant",
    doc = "One operation on one volume of one node. The controller writes it, the node plugin executes it, and the controller deletes it soon after it has ended.",
    status = "VolumeRequestStatus",
    derive = "PartialEq",
    selectable = ".spec.nodeName",
    selectable = ".status.phase",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Progress",
        type_ = "string",
        json_path = ".status.progress",
        priority = "1"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.error.reason",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRequestSpec {
    /// Name of the node that executes the operation, 1 to 63 characters. Immutable.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("nodeName cannot change"))]
    pub node_name: String,
    /// CSI volume handle of the volume: the hash of the node's name, a hyphen, and the hash of the
    /// volume's name. Immutable.
    #[schemars(regex(pattern = r"^[a-z2-7]{8}-[a-z2-7]{26}$"), length(max = 35))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("volumeHandle cannot change"))]
    pub volume_handle: String,
    /// Operation to execute: exactly one of the fields below is set. Only the sizes of `expand` and the receiver of `send`
    /// can change later; a newer one replaces an older one.
    #[x_kube(validation = Rule::new(
        "has(self.expand) ? has(oldSelf.expand) && has(self.expand.volumeMode) == has(oldSelf.expand.volumeMode) && (!has(self.expand.volumeMode) || self.expand.volumeMode == oldSelf.expand.volumeMode) : has(self.send) ? has(oldSelf.send) && has(self.send.snapshotHandle) == has(oldSelf.send.snapshotHandle) && (!has(self.send.snapshotHandle) || self.send.snapshotHandle == oldSelf.send.snapshotHandle) : self == oldSelf"
    ).message("only the size of an expansion and the receiver of a send can change"))]
    pub operation: Operation,
}

impl VolumeRequest {
    /// Whether no node plugin has taken it up yet.
    pub fn is_waiting(&self) -> bool {
        self.status.as_ref().is_none_or(|status| status.observed_generation == 0)
    }

    /// What is told of the wish as it is now; the default while that is nothing yet.
    pub fn status_or_default(&self) -> VolumeRequestStatus {
        let wanted = self.metadata.generation.unwrap_or_default();
        let status = self.status.as_ref().filter(|status| status.observed_generation >= wanted);
        status.cloned().unwrap_or_default()
    }

    /// Whether the wish, as it is now, has its outcome.
    pub fn has_ended(&self) -> bool {
        self.status_or_default().phase.is_final()
    }
}

/// Operation on a volume. Exactly one field is set.
#[derive(Serialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// Creates the volume, new and empty; it is wiped before it is first used.
    Create(Create),
    /// Creates the volume with the content of a snapshot or of another volume.
    Restore(Box<Restore>),
    /// Expands the volume, and its file system where the node can do that without the kubelet.
    Expand(Expand),
    /// Shrinks the volume and its file system, and pins the size: the volume cannot be expanded until `unpin`.
    Shrink(ShrinkTo),
    /// Unpins a volume that was shrunk: it can be expanded again.
    Unpin(Unpin),
    /// Deletes the volume and makes its data unreadable.
    Delete(Delete),
    /// Sets the fence, which decides who can use the volume, and then inspects the volume.
    Fence(FenceStatus),
    /// Inspects the volume: its size, its fence, its mounts and its usage.
    Inspect(Inspect),
    /// Takes a snapshot of the volume.
    Snapshot(TakeSnapshot),
    /// Deletes a snapshot of the volume, which may be deleted itself.
    DeleteSnapshot(DeleteSnapshot),
    /// Allows one other node to read the content of the volume, or of a snapshot of it, until the request is deleted.
    Send(Box<SendContent>),
    /// An operation of another version, which this one does not know. It is never written.
    #[schemars(skip)]
    Unknown,
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Operation, D::Error> {
        deserializer.deserialize_map(OneField)
    }
}

/// Reads an operation, which is an object with one field; `serde(other)` does not take the content of an unknown one.
struct OneField;

impl<'de> Visitor<'de> for OneField {
    type Value = Operation;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with one operation")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Operation, A::Error> {
        let none = || A::Error::custom("no operation is given");
        let kind: String = fields.next_key()?.ok_or_else(none)?;
        let operation = match kind.as_str() {
            "create" => Operation::Create(fields.next_value()?),
            "restore" => Operation::Restore(fields.next_value()?),
            "expand" => Operation::Expand(fields.next_value()?),
            "shrink" => Operation::Shrink(fields.next_value()?),
            "unpin" => Operation::Unpin(fields.next_value()?),
            "delete" => Operation::Delete(fields.next_value()?),
            "fence" => Operation::Fence(fields.next_value()?),
            "inspect" => Operation::Inspect(fields.next_value()?),
            "snapshot" => Operation::Snapshot(fields.next_value()?),
            "deleteSnapshot" => Operation::DeleteSnapshot(fields.next_value()?),
            "send" => Operation::Send(fields.next_value()?),
            _ => fields.next_value::<IgnoredAny>().map(|_| Operation::Unknown)?,
        };
        match fields.next_key::<String>()? {
            Some(_) => Err(A::Error::custom("more than one operation is given")),
            None => Ok(operation),
        }
    }
}

impl Operation {
    /// Names of all operations.
    pub const KINDS: [&str; 11] = [
        "create",
        "restore",
        "expand",
        "shrink",
        "unpin",
        "delete",
        "fence",
        "inspect",
        "snapshot",
        "deleteSnapshot",
        "send",
    ];

    /// Returns the name of the field that is set.
    pub const fn kind(&self) -> &'static str {
        match self {
            Operation::Create(_) => "create",
            Operation::Restore(_) => "restore",
            Operation::Expand(_) => "expand",
            Operation::Shrink(_) => "shrink",
            Operation::Unpin(_) => "unpin",
            Operation::Delete(_) => "delete",
            Operation::Fence(_) => "fence",
            Operation::Inspect(_) => "inspect",
            Operation::Snapshot(_) => "snapshot",
            Operation::DeleteSnapshot(_) => "deleteSnapshot",
            Operation::Send(_) => "send",
            Operation::Unknown => "unknown",
        }
    }

    /// Returns the volume that the operation creates, empty or with content; `None` for other operations.
    pub fn creates(&self) -> Option<&Create> {
        match self {
            Operation::Create(create) => Some(create),
            Operation::Restore(restore) => Some(&restore.volume),
            _ => None,
        }
    }
}

/// Creation of a volume.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.fsType) == (self.volumeMode == 'Filesystem')"
).message("fsType is for volumeMode: Filesystem, and required there"))]
pub struct Create {
    /// Name that the external provisioner gave, 1 to 128 characters. The volume handle contains its hash.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Minimum size of the volume. The node uses the next multiple of the extent size.
    pub min_size: Quantity,
    /// Maximum size of the volume. Absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Quantity>,
    /// How the workload sees the volume: `Filesystem` or `Block`.
    pub volume_mode: VolumeMode,
    /// File system of the volume: `ext2`, `ext3`, `ext4`, `xfs` or `btrfs`. Absent for `Block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<FsType>,
    /// Parameters of the StorageClass, at most 64 with values of at most 1024 characters; see "StorageClass parameters" in
    /// the documentation. Default: none.
    #[serde(default)]
    #[schemars(extend(
        "maxProperties" = 64,
        "additionalProperties" = {"type": "string", "maxLength": 1024}
    ))]
    pub parameters: std::collections::BTreeMap<String, String>,
}

/// Creation of a volume with content. A node plugin that does not know this operation rejects it, and creates no empty
/// volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// The volume to create. It is at least as large as its source.
    pub volume: Create,
    /// Snapshot or volume that the content is copied from.
    pub source: ContentSource,
    /// Node plugin that has the content. Absent if the source is on the same node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ContentPeer>,
}

/// Node plugin of another node, which allows this one to read content.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentPeer {
    /// How to reach the node plugin.
    pub endpoint: TransferEndpoint,
    /// Size of the content, and whether there is any.
    pub content: ContentStatus,
}

/// Content of a volume or a snapshot.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentStatus {
    /// Size of the content, in whole extents.
    pub size: Quantity,
    /// True if the volume was never published, so that there is nothing to copy. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
}

/// Permission for the node plugin of one other node to read one volume or one snapshot.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.fsType) == (self.volumeMode == 'Filesystem')"
).message("fsType is for volumeMode: Filesystem, and required there"))]
pub struct SendContent {
    /// CSI handle of the snapshot to read. Absent for the volume itself: a snapshot of it is read, which is deleted with the
    /// request. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z2-7]{8}-[a-z2-7]{26}\.[a-z2-7]{26}$"), length(max = 62))]
    pub snapshot_handle: Option<String>,
    /// CSI volume handle of the volume that receives the content.
    #[schemars(regex(pattern = r"^[a-z2-7]{8}-[a-z2-7]{26}$"), length(max = 35))]
    pub target_handle: String,
    /// Fingerprint of the certificate of the node plugin that may read: `sha256:` and 64 hexadecimal digits.
    #[schemars(regex(pattern = r"^sha256:[0-9a-f]{64}$"), length(max = 71))]
    pub certificate_fingerprint: String,
    /// How a workload sees the volume that receives the content: `Filesystem` or `Block`. The source must have the same.
    pub volume_mode: VolumeMode,
    /// File system of that volume: `ext2`, `ext3`, `ext4`, `xfs` or `btrfs`. The source must have the same. Absent for
    /// `Block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<FsType>,
}

/// Source of the content of a new volume: exactly one of the fields is set.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.snapshotHandle) != has(self.volumeHandle)"
).message("exactly one of snapshotHandle and volumeHandle is set"))]
pub struct ContentSource {
    /// CSI handle of the snapshot to restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z2-7]{8}-[a-z2-7]{26}\.[a-z2-7]{26}$"), length(max = 62))]
    pub snapshot_handle: Option<String>,
    /// CSI volume handle of the volume to clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z2-7]{8}-[a-z2-7]{26}$"), length(max = 35))]
    pub volume_handle: Option<String>,
}

/// A snapshot to take of a volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakeSnapshot {
    /// Name that the external snapshotter gave, 1 to 128 characters. The handle of the snapshot contains its hash.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
}

/// A snapshot to delete.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteSnapshot {
    /// CSI handle of the snapshot: the handle of its volume, a full stop, and the hash of the snapshot's name.
    #[schemars(regex(pattern = r"^[a-z2-7]{8}-[a-z2-7]{26}\.[a-z2-7]{26}$"), length(max = 62))]
    pub snapshot_handle: String,
}

/// Expansion of a volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expand {
    /// Minimum size of the volume after the expansion. The node uses the next multiple of the extent size.
    pub min_size: Quantity,
    /// Maximum size of the volume after the expansion. Absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Quantity>,
    /// How the workload sees the volume: `Filesystem` or `Block`. The node rejects a volume of the other mode. Absent if
    /// the caller does not know. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<VolumeMode>,
}

/// Shrink of a volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShrinkTo {
    /// Size of the volume after the shrink. The node uses the next multiple of the extent size.
    pub size: Quantity,
}

/// End of a shrink. It has no settings.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Unpin {}

/// Deletion of a volume. It has no settings.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Delete {}

/// Inspection of a volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inspect {
    /// True if the node waits up to 10 s until the device of the volume is no longer open, before it inspects the volume.
    /// Default: false, which inspects the volume at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_until_unused: bool,
}

/// Status of the operation, written by the node plugin.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRequestStatus {
    /// Generation of the spec that this status describes. Default: 0, which means that the node has not seen the request.
    #[serde(default)]
    pub observed_generation: i64,
    /// Progress of the operation: `Pending`, `Running`, `Resizing` (the logical volume has its new size, the file system
    /// follows), `Resized`, `Succeeded` or `Failed`. Default: `Pending`.
    #[serde(default)]
    pub phase: Phase,
    /// Progress of a long operation, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// Size of the volume after the operation, in whole extents. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// True if the kubelet still has to call the node plugin to expand the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_expansion_required: Option<bool>,
    /// Result of `inspect` and of `fence`. Absent for other operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspection: Option<Box<InspectionStatus>>,
    /// Content that `send` allows the other node to read. Absent for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentStatus>,
    /// Why the operation failed. Absent unless the phase is `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Time when the node started the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Time when the operation ended, successful or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// Result of an inspection. What the node could not determine is absent, and never 0.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InspectionStatus {
    /// The volume at the time of the inspection, with its fence. Absent if the node does not have the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeOnNode>,
    /// True if the volume is staged: mounted, or published to a pod as a raw block volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounted: Option<bool>,
    /// Open count of the device; a mounted file system counts as one. At 0 no process can write to the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_count: Option<i64>,
    /// Usage of the file system. Absent if it is not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageStatus>,
    /// Smallest size that the file system supports, where the node knows it without a program: that of xfs, which cannot
    /// shrink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<Quantity>,
}

/// Phase of an operation.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum Phase {
    /// The node plugin has not seen the request yet.
    #[default]
    Pending,
    /// The node plugin executes the operation.
    Running,
    /// The logical volume has its new size, the file system follows.
    Resizing,
    /// The volume and its file system have their new size.
    Resized,
    /// The operation succeeded. A file system that has to be expanded waits for the kubelet's call.
    Succeeded,
    /// The operation failed; `error` has the reason.
    Failed,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl Phase {
    /// All of them, in the order in which an operation passes them.
    pub const ALL: [Phase; 6] = [
        Phase::Pending,
        Phase::Running,
        Phase::Resizing,
        Phase::Resized,
        Phase::Succeeded,
        Phase::Failed,
    ];

    /// The word for it in a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "pending",
            Phase::Running => "running",
            Phase::Resizing => "resizing",
            Phase::Resized => "resized",
            Phase::Succeeded => "succeeded",
            Phase::Failed => "failed",
            Phase::Unknown => "unknown",
        }
    }

    /// True if the operation has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Resized | Phase::Succeeded | Phase::Failed)
    }
}

/// Why an operation failed.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Reason in CamelCase, for programs. "Errors" in the documentation lists them.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Message for people: what failed, where, how much is missing, and the commands to run.
    #[schemars(length(max = 4096))]
    pub message: String,
}
