//! A piece of work for one node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::{Quantity, VolumeOnNode};

/// One operation on one volume of one node: written by the controller, carried out by the node's
/// agent, and removed soon after it has ended. It is a record of work, not of a volume: a volume that
/// nobody changes has none.
///
/// Its name is that of the operation and the volume, so that a repeated or restarted wish joins the
/// work that is under way.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "VolumeRequest",
    plural = "volumerequests",
    shortname = "vreq",
    category = "pliant",
    doc = "One operation on one volume of one node. The controller writes it, the node's agent carries it out, and it is removed soon after.",
    status = "VolumeRequestStatus",
    derive = "PartialEq",
    selectable = ".spec.node",
    selectable = ".status.phase",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.failure.reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRequestSpec {
    /// Name of the node that does the work. It never changes.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("node cannot change"))]
    pub node: String,
    /// Id of the volume: the short id of its node, a hyphen, and the digest of its name. It never
    /// changes.
    #[schemars(regex(pattern = r"^[a-z2-7]{8}-[a-z2-7]{26}$"), length(max = 35))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("volume cannot change"))]
    pub volume: String,
    /// What is to be done. Only the size of a growth may change later: a newer wish replaces an
    /// older one.
    #[x_kube(validation = Rule::new(
        "has(self.grow) ? has(oldSelf.grow) : self == oldSelf"
    ).message("only the size of a growth can change"))]
    pub work: Work,
}

impl VolumeRequest {
    /// Whether no agent has taken it up yet.
    pub fn is_waiting(&self) -> bool {
        self.status.as_ref().is_none_or(|status| status.observed_generation == 0)
    }

    /// What is told of the wish as it is now; the default while that is nothing yet.
    pub fn told(&self) -> VolumeRequestStatus {
        let wanted = self.metadata.generation.unwrap_or_default();
        let status = self.status.as_ref().filter(|status| status.observed_generation >= wanted);
        status.cloned().unwrap_or_default()
    }

    /// Whether the wish, as it is now, has its outcome.
    pub fn has_ended(&self) -> bool {
        self.told().phase.is_final()
    }
}

/// What is to be done with a volume.
#[derive(Serialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Make the volume, wiped and ready.
    Create(Create),
    /// Grow the volume, and its file system where the node can do that.
    Grow(Grow),
    /// Shrink the volume and its file system, and keep it from growing beyond until it is released.
    Shrink(ShrinkTo),
    /// Let a volume grow again that was shrunk.
    Release(Release),
    /// Make the volume gone and its bytes unreadable.
    Remove(Remove),
    /// Say who may use the volume, and look at it then.
    Fence(FenceStatus),
    /// Look at the volume, whatever is known of it.
    Inspect(Inspect),
    /// Work of another version, which this one does not know. It is never written.
    #[schemars(skip)]
    Unknown,
}

impl<'de> Deserialize<'de> for Work {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Work, D::Error> {
        deserializer.deserialize_map(OneField)
    }
}

/// Reads work, which is an object with one field; `serde(other)` has no room for what an unknown one says.
struct OneField;

impl<'de> Visitor<'de> for OneField {
    type Value = Work;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with one kind of work")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Work, A::Error> {
        let none = || A::Error::custom("no work is given");
        let kind: String = fields.next_key()?.ok_or_else(none)?;
        let work = match kind.as_str() {
            "create" => Work::Create(fields.next_value()?),
            "grow" => Work::Grow(fields.next_value()?),
            "shrink" => Work::Shrink(fields.next_value()?),
            "release" => Work::Release(fields.next_value()?),
            "remove" => Work::Remove(fields.next_value()?),
            "fence" => Work::Fence(fields.next_value()?),
            "inspect" => Work::Inspect(fields.next_value()?),
            _ => fields.next_value::<IgnoredAny>().map(|_| Work::Unknown)?,
        };
        match fields.next_key::<String>()? {
            Some(_) => Err(A::Error::custom("more than one kind of work is given")),
            None => Ok(work),
        }
    }
}

impl Work {
    /// The words for all kinds of work.
    pub const KINDS: [&str; 7] =
        ["create", "grow", "shrink", "release", "remove", "fence", "inspect"];

    /// The word for its kind, as the field is called.
    pub const fn kind(&self) -> &'static str {
        match self {
            Work::Create(_) => "create",
            Work::Grow(_) => "grow",
            Work::Shrink(_) => "shrink",
            Work::Release(_) => "release",
            Work::Remove(_) => "remove",
            Work::Fence(_) => "fence",
            Work::Inspect(_) => "inspect",
            Work::Unknown => "unknown",
        }
    }
}

/// A volume to be made.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Create {
    /// The name that the provisioner gave, of which the id holds the digest.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// The size is not below this.
    pub at_least: Quantity,
    /// The size is not above this. Without it there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Quantity>,
    /// What the workload sees: `block`, or the file system, such as `ext4`.
    #[schemars(length(max = 16))]
    pub mode: String,
    /// The parameters of the StorageClass, as `docs/src/reference/class.md` has them.
    #[serde(default)]
    pub parameters: std::collections::BTreeMap<String, String>,
}

/// A growth.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grow {
    /// The size is not below this afterwards.
    pub at_least: Quantity,
    /// The size is not above this afterwards. Without it there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Quantity>,
    /// Whether the caller believes that the workload sees a raw block device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<bool>,
}

/// A shrink.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShrinkTo {
    /// The size, which is rounded up to whole extents.
    pub to: Quantity,
}

/// The end of a shrink; it has no settings.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Release {}

/// A removal; it has no settings.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Remove {}

/// A look at a volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inspect {
    /// Whether those who have the volume open get 10 s to let go of it, if there are any. It is told what is seen as soon as
    /// they have, or then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_unused: bool,
}

/// Who may use a volume. Written on the volume itself, and kept where a swap of volumes put it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceStatus {
    /// What the volume is to its claim.
    pub state: FenceState,
    /// The number of the swap, or of the filling, that says so. A lower one than the volume has is refused, and so is with
    /// the same number a state that comes before the volume's.
    #[schemars(range(min = 1))]
    pub generation: i64,
    /// Whether a copy is under way: until it is taken back, what is half copied can be written, and what
    /// is superseded read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copying: bool,
}

/// What a volume is to the claim whose volumes are swapped, in this order within one generation.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum FenceState {
    /// It is being filled, and no pod can use it but one that fills it.
    HalfCopied,
    /// Pods can use it.
    Active,
    /// Another one has taken its place, and no pod can use it any more.
    Superseded,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl FenceState {
    /// The words for it in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            FenceState::HalfCopied => "half copied",
            FenceState::Active => "active",
            FenceState::Superseded => "superseded",
            FenceState::Unknown => "of a state that this version does not know",
        }
    }
}

/// What has become of the work so far, told by the node's agent.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRequestStatus {
    /// The generation of the wish that this status answers.
    #[serde(default)]
    pub observed_generation: i64,
    /// How far the work is.
    #[serde(default)]
    pub phase: Phase,
    /// How much of long work is done, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// The real size, in whole extents, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// Whether the file system has still to be grown, by the kubelet's call to the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_expansion_required: Option<bool>,
    /// What a look at the volume saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspection: Option<Box<InspectionStatus>>,
    /// Why the work has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// When the agent began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the work ended, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// What a look at a volume saw. What could not be seen is absent, and never 0.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InspectionStatus {
    /// The volume as it was then, with the fence that the look came after; absent if the node does not
    /// have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeOnNode>,
    /// Whether it is staged: mounted, or its device shown to a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounted: Option<bool>,
    /// How often its device is open, by whomever, a mounted file system being one. At 0 nobody can write
    /// to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_count: Option<i64>,
    /// How full its file system is; absent if that is not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageStatus>,
    /// The smallest size that its file system could have, where that is known without a program: that of
    /// an xfs, which never shrinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest: Option<Quantity>,
}

/// How full a mounted file system is.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageStatus {
    /// Bytes that files can have in all.
    pub capacity: Quantity,
    /// Bytes that files have.
    pub used: Quantity,
    /// Bytes that an ordinary user can still write.
    pub available: Quantity,
    /// Inodes in all; absent where they are not counted, as by btrfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<i64>,
    /// Inodes that are in use; absent where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<i64>,
}

/// How far a piece of work is.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum Phase {
    /// The agent has not told of it.
    #[default]
    Pending,
    /// The agent is at work.
    Running,
    /// The logical volume has its new size, the file system follows.
    Resizing,
    /// Done: the volume and its file system have their new size.
    Resized,
    /// Done; the result stands beside it. A file system that was to grow is left to the kubelet's call.
    Done,
    /// Failed; the reason stands beside it.
    Failed,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl Phase {
    /// All of them, in the order in which work goes through them.
    pub const ALL: [Phase; 6] = [
        Phase::Pending,
        Phase::Running,
        Phase::Resizing,
        Phase::Resized,
        Phase::Done,
        Phase::Failed,
    ];

    /// The word for it in a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "pending",
            Phase::Running => "running",
            Phase::Resizing => "resizing",
            Phase::Resized => "resized",
            Phase::Done => "done",
            Phase::Failed => "failed",
            Phase::Unknown => "unknown",
        }
    }

    /// Whether nothing more will happen for this wish.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Resized | Phase::Done | Phase::Failed)
    }
}

/// Why a piece of work has failed.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// One word for machines: a row of the table in `docs/src/reference/errors.md`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// A sentence for people: what, where, how much, what to type.
    #[schemars(length(max = 4096))]
    pub message: String,
}
