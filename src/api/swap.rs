//! How far a claim is on its way to another one, or to a smaller size.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::filling::is_zero;
use crate::api::{FenceStatus, Quantity, Span};

/// The longest sentence, in characters.
pub(super) const LONGEST_SENTENCE: usize = 1024;

/// A claim that becomes smaller where its volume lies.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlace {
    /// How far it is.
    pub phase: InPlacePhase,
    /// The size that it comes to.
    pub to: Quantity,
    /// What it changes, such as `4Gi → 2Gi`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub change: String,
    /// What it is for: the specification that it was begun with.
    pub generation: i64,
    /// Whether nobody has asked for it, but `spec.autoscale.shrink`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_itself: bool,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Why it has failed, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
}

/// How far a shrink in place is. Each is written before its work begins.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum InPlacePhase {
    /// The node shrinks the file system and the volume.
    #[default]
    Shrinking,
    /// The PersistentVolume and the claim are told; until then the node keeps the volume from growing.
    Telling,
    /// The node lets the volume grow again.
    Releasing,
    /// The node has refused it, and the claim is as it was.
    Failed,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// A swap of the claim of one pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    /// How far it is.
    pub phase: SwapPhase,
    /// The claim that is to take the place of the active one.
    #[schemars(length(max = 253))]
    pub claim: String,
    /// Uid of that claim, from when it was seen first: another claim of its name is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub claim_uid: Option<String>,
    /// Uid of the active claim that the pod leaves to have again what it had before: another claim of its name is
    /// not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub active_claim_uid: Option<String>,
    /// Whether the active claim keeps its name: it gets the volume of the new claim, and that one its.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keeps_name: bool,
    /// The node that the content goes to: the class has no pool on that of the old volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// Whether nothing is copied: the pod gets again what it had before, and `claim` has that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub returns: bool,
    /// What it is for: the specification that it was begun with.
    pub generation: i64,
    /// What it changes, such as `4Gi → 2Gi, class hdd → ssd`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub change: String,
    /// Whether the claim shrinks by itself: what `spec.autoscale.shrink` says holds until its pod is stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_itself: bool,
    /// How far the copy is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// Why it waits or has failed, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// Why the copy has failed, in the word that its claim had for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// How many copies for this specification have failed, one after the other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i32,
    /// When a swap that has failed is tried again. Absent if another try would come to the same end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_time: Option<Time>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Why nothing was copied while the pod ran, although hotCopy asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub cold: Option<String>,
    /// The node of the pod that is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_node: Option<String>,
    /// Uid of the pod that is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_uid: Option<String>,
    /// When the pod was asked to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_stop_time: Option<Time>,
    /// What the volume of the old claim is told to be. Absent before the pod is gone, and for volumes of
    /// other drivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// What the volume is told to be that a pod gets again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reopened: Option<FenceStatus>,
    /// When the old volume was proved unused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detached_time: Option<Time>,
    /// Since when the pod is down and its swap does not go on: after ten minutes it is given up, as long as it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_start_time: Option<Time>,
    /// Why the swap is given up, if not since its copy has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Cancellation>,
    /// Digest of what was copied, as it was read from both volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub digest: Option<String>,
    /// The size that a claim comes to which keeps its name and gets again what it had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// The volume that the claim gets which keeps its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub volume: Option<String>,
}

/// Why a swap is given up whose copy has not failed.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum Cancellation {
    /// The pod was down for ten minutes, and no copy of its claim went on.
    NoCopyStarted,
    /// The template was edited back to what the claim has.
    TemplateEdited,
    /// `spec.abort` asks for it.
    Aborted,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// What a swap took that has ended.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSwap {
    /// The claim that the pod got, or whose volume its own claim got.
    #[schemars(length(max = 253))]
    pub claim: String,
    /// How many seconds there were from the moment at which the pod was asked to stop until the next one
    /// was ready; without a pod that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_seconds: Option<i64>,
    /// How many bytes were written while the pod was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Quantity>,
    /// In how many rounds it was copied ahead while the pod ran.
    #[serde(default)]
    pub rounds: i32,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// How far a swap is. Each is written before its work begins.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum SwapPhase {
    /// The new claim is being made, and gets its room. The pod runs on the old one.
    #[default]
    Planned,
    /// The old claim is copied ahead in rounds, while the pod runs on it.
    HotCopy,
    /// The pod is stopped; the next one gets the new claim, and waits for it; or it waits to be scheduled.
    Draining,
    /// The pod is gone: the node of the old volume keeps everybody from writing to it, and proves that
    /// nobody has it open.
    Fenced,
    /// Nobody writes to the old claim: it is copied to the new one, and both are compared.
    FinalCopy,
    /// The new claim has all of it: the claim that keeps its name gets its volume. There is no way back.
    Exchanging,
    /// The new claim is the active one, or the active one has its volume; its pod starts.
    Soaking,
    /// The copy has failed: what was made is removed, and the node of the old volume lets the pod in again.
    RollingBack,
    /// The copy has failed, and the pod has the old claim.
    Failed,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl Swap {
    /// Whether a pod that is made now gets the new claim: it waits until that is filled, or until the old
    /// one is its own again.
    pub const fn gives_new_claim(&self) -> bool {
        !self.keeps_name && self.is_away_from_pod()
    }

    /// Whether a pod that is made now is not to be scheduled yet: its claim has a volume, and not the one that
    /// it is to have, or one that is not open yet; or a user may have let it be filled while the old volume could
    /// still be written to; or the new claim is being made, and another client may be the first who makes one of its
    /// name.
    pub const fn holds_pod(&self) -> bool {
        let may_lack_something = !self.is_proved_unused() || self.claim_uid.is_none();
        (self.keeps_name || self.returns || may_lack_something) && self.is_away_from_pod()
    }

    /// True once the old volume is proved unused, so that a copy that begins then has all of it. A version before
    /// fences let the copy begin by what Kubernetes knew.
    pub const fn is_proved_unused(&self) -> bool {
        self.detached_time.is_some() || matches!(self.phase, SwapPhase::FinalCopy)
    }

    /// Whether no pod may have the old volume.
    const fn is_away_from_pod(&self) -> bool {
        match self.phase {
            SwapPhase::Draining
            | SwapPhase::Fenced
            | SwapPhase::FinalCopy
            | SwapPhase::Exchanging
            // Nobody here can say: the pod waits.
            | SwapPhase::Unknown => true,
            SwapPhase::RollingBack => self.fence.is_some(),
            SwapPhase::Planned | SwapPhase::HotCopy | SwapPhase::Soaking | SwapPhase::Failed => {
                false
            }
        }
    }
}

/// A claim that another one has taken the place of.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct Retained {
    /// Name of the claim.
    #[schemars(length(max = 253))]
    pub claim: String,
    /// Uid of the claim.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// When the pod was first ready with the claim that took its place. It is deleted when `spec.retention` has
    /// passed since then, and the pod is ready.
    #[serde(rename = "usedTime", skip_serializing_if = "Option::is_none")]
    pub used_time: Option<Time>,
    /// What its volume is told to be, until its node has it so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// True if no pod ever had it: its copy may lack what was written since, so no pod gets it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub spare: bool,
}

impl Retained {
    /// Until when it is kept at least, by what `spec.retention` says now; `None` if that is not counted yet, or
    /// is longer than there is time.
    pub fn until(&self, retention: Span) -> Option<Timestamp> {
        let Time(since) = self.used_time.as_ref()?;
        since.checked_add(SignedDuration::try_from(retention.0).ok()?).ok()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_false(said: &bool) -> bool {
    !said
}
