//! The progress of a claim to another one, or to a smaller size.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::longest::LONGEST_SENTENCE;
use crate::api::population_status::is_zero;
use crate::api::{FenceStatus, Quantity, Span};

/// An in-place shrink of a claim.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlace {
    /// Phase: `Shrinking` (the node shrinks file system and volume), `UpdatingClaim` (PersistentVolume and claim get the
    /// new size), `Unpinning` (the volume can be expanded again) or `Failed`.
    pub phase: InPlacePhase,
    /// Size of the claim after the shrink.
    pub size: Quantity,
    /// Summary of the change, such as `4Gi → 2Gi`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub summary: String,
    /// Generation of the spec that requested the shrink.
    pub spec_generation: i64,
    /// True if `spec.autoscale.shrink` requested the shrink, and no user. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub automatic: bool,
    /// Time when the shrink started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Why the shrink has failed. Absent unless the phase is `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
}

/// Phase of an in-place shrink. Each is written before its operation starts.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum InPlacePhase {
    /// The node shrinks the file system and the volume.
    #[default]
    Shrinking,
    /// The PersistentVolume and the claim get the new size; until then the node does not expand the volume.
    UpdatingClaim,
    /// The node allows the volume to be expanded again.
    Unpinning,
    /// The node has rejected it, and the claim is as it was.
    Failed,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// A PVC swap of one pod: another claim with the same content replaces its claim.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    /// Phase of the swap: `Pending` (the new claim is created), `PreCopy` (a copy while the pod runs), `Draining` (the pod
    /// stops), `Fenced` (the pod has stopped, and the node closes the old volume to pods), `FinalCopy` (the rest is copied and
    /// verified; without pre-copy that is everything), `Rebinding` (only with `preservesName`: the claims exchange their
    /// volumes), `Soaking` (the pod starts with its new volume; the swap ends when it is ready),
    /// `RollingBack` (the swap is aborted: the pod gets its old claim again) or `Failed` (`message` has the cause).
    pub phase: SwapPhase,
    /// Name of the new claim: the active claim from `Soaking` on. With `preservesName` it gets the old volume instead.
    #[schemars(length(max = 253))]
    pub claim: String,
    /// Uid of the new claim, which `claim` names, once the operator has observed it. A claim of that name with another uid
    /// belongs to another client, and no pod gets it.
    #[serde(rename = "claimUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub claim_uid: Option<String>,
    /// Uid of the active claim that a rollback leaves. Another claim of the same name is not used.
    #[serde(rename = "activeClaimUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub active_claim_uid: Option<String>,
    /// True if the active claim has the same name after the swap: the two claims exchange their volumes. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub preserves_name: bool,
    /// Node that gets the content, if the StorageClass has no pool on the node of the old volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// True for a rollback: nothing is copied, and `claim` is the one that the pod had before. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_rollback: bool,
    /// Generation of the spec that requested the swap.
    pub spec_generation: i64,
    /// Summary of the change, such as `4Gi → 2Gi, class hdd → ssd`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub summary: String,
    /// True if `spec.autoscale.shrink` requested the swap, and no user; its limits apply until the pod is stopped.
    /// Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub automatic: bool,
    /// Progress of the copy, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// Why the swap waits or has failed, and the commands to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// Reason in CamelCase why the copy has failed, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Number of consecutive copies for this spec that have failed. Default: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i32,
    /// Time when a failed swap is retried. Absent if a retry would fail in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_time: Option<Time>,
    /// Time when the swap started. The pod runs until `podStopTime`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Why nothing was copied while the pod ran, although `preCopy` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub pre_copy_skipped_reason: Option<String>,
    /// Node of the pod that was stopped for the swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_node: Option<String>,
    /// Uid of the pod that is stopped for the swap, not of the next one. If its node is lost, a swap from a volume that is
    /// not of Pliant waits. Make sure that the pod does not run, then add the uid to `spec.confirmedStoppedPodUIDs`.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_uid: Option<String>,
    /// Time when the pod was requested to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_stop_time: Option<Time>,
    /// Fence that was requested for the volume of the old claim. Absent before the pod has stopped, for volumes of other
    /// drivers, and from `Soaking` on: it is then in `retainedClaims`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// Fence that is set on the volume that a rollback gives back to the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reactivated_volume: Option<FenceStatus>,
    /// Time when the old volume was proved to be unused: no process had it open. Absent before, and from `Soaking` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detached_time: Option<Time>,
    /// Time since which the pod is stopped and nothing is copied or verified. Absent while a copy runs; phase `Rebinding` sets
    /// it again. Ten minutes later the swap is aborted, and the pod gets its old claim. Once the exchange has deleted a
    /// PersistentVolume, it is not aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_start_time: Option<Time>,
    /// Why the swap is aborted although its copy has not failed: `NoProgress` (the pod was stopped for ten minutes
    /// without progress), `TemplateEdited` (the template again matches the claim) or `Requested` (by `spec.abort`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_reason: Option<AbortReason>,
    /// Checksum of the whole content, which is equal on both volumes. Of files, `spec.verification` selects those that were read again
    /// for it while the pod was stopped. Absent until the copy is verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub checksum: Option<String>,
    /// Size of the claim after a rollback with `preservesName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// Handle of the volume that the claim gets, with `preservesName`. The PersistentVolume of the claim has the same name as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub volume_handle: Option<String>,
}

/// Why a swap is aborted whose copy has not failed.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum AbortReason {
    /// The pod was stopped for ten minutes, and no copy of its claim made progress.
    NoProgress,
    /// The template was edited back to what the claim has.
    TemplateEdited,
    /// `spec.abort` asks for it.
    Requested,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// Results of a completed swap.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSwap {
    /// Name of the claim that the swap created: the pod uses it or, with `preservesName`, its own claim has its volume.
    #[schemars(length(max = 253))]
    pub claim: String,
    /// Downtime of the pod in seconds: from the request to stop until the next pod was ready. Absent if no pod ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_seconds: Option<i64>,
    /// Number of bytes that were copied while the pod was stopped, without those of pre-copy passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub copied_bytes: Option<i64>,
    /// Number of pre-copy passes while the pod ran. Default: 0.
    #[serde(default)]
    pub pre_copy_passes: i32,
    /// Time when the next pod was ready, or when the volume was in place if no pod ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// Phase of a swap. Each is written before its operation starts.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum SwapPhase {
    /// The new claim is created, and gets its space. The pod runs with the old one.
    #[default]
    Pending,
    /// The old claim is copied in passes, while the pod runs with it.
    PreCopy,
    /// The pod is stopped; the next one gets the new claim, and waits for it; or it waits to be scheduled.
    Draining,
    /// The pod has stopped: the node of the old volume prevents all writes to it, and proves that no process has it open.
    Fenced,
    /// No one writes to the old claim: it is copied to the new one, and both are verified.
    FinalCopy,
    /// The new claim has all of it: the claim that has the same name gets its volume. There is no way back.
    Rebinding,
    /// The new claim is the active one, or the active one has its volume; its pod starts.
    Soaking,
    /// The copy has failed: what was created is removed, and the node of the old volume allows the pod again.
    RollingBack,
    /// The copy has failed, and the pod has the old claim.
    Failed,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl Swap {
    /// Whether a pod that is made now gets the new claim: it waits until that is filled, or until the old
    /// one is its own again.
    pub const fn gives_new_claim(&self) -> bool {
        !self.preserves_name && self.is_away_from_pod()
    }

    /// Whether a pod that is made now is not to be scheduled yet: its claim has a volume, and not the one that
    /// it is to have, or one that is not open yet; or a user may have let it be filled while the old volume could
    /// still be written to; or the new claim is being made, and another client may be the first who makes one of its
    /// name.
    pub const fn holds_pod(&self) -> bool {
        let may_lack_something = !self.is_proved_unused() || self.claim_uid.is_none();
        (self.preserves_name || self.is_rollback || may_lack_something) && self.is_away_from_pod()
    }

    /// True once the old volume is proved unused, so that a copy that begins then has all of it. A version before
    /// fences let the copy begin by what Kubernetes knew.
    pub const fn is_proved_unused(&self) -> bool {
        self.detached_time.is_some() || matches!(self.phase, SwapPhase::FinalCopy)
    }

    /// The uid by which the swap knows the claim of this name, where `active` is the active claim of its pod.
    pub fn known_uid(&self, claim: &str, active: &str) -> Option<&str> {
        let uid = match claim {
            _ if claim == self.claim => &self.claim_uid,
            _ if claim == active => &self.active_claim_uid,
            _ => &None,
        };
        uid.as_deref()
    }

    /// Whether no pod may have the old volume.
    const fn is_away_from_pod(&self) -> bool {
        match self.phase {
            SwapPhase::Draining
            | SwapPhase::Fenced
            | SwapPhase::FinalCopy
            | SwapPhase::Rebinding
            // Nobody here can say: the pod waits.
            | SwapPhase::Unknown => true,
            SwapPhase::RollingBack => self.fence.is_some(),
            SwapPhase::Pending | SwapPhase::PreCopy | SwapPhase::Soaking | SwapPhase::Failed => {
                false
            }
        }
    }
}

/// A retained claim, which another one has replaced.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retained {
    /// Name of the retained claim.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Uid of the retained claim. A claim of that name with another uid is another one, and stays.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// Time when the pod was first ready with the claim that replaced this one. Absent until then. When `spec.retention`
    /// has passed since then, and the pod is ready, this claim is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement_ready_time: Option<Time>,
    /// Fence that the node is still to set on its volume. Absent once the node has set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// True if no pod ever had it: its copy may lack what was written since, so no pod gets it. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub never_used: bool,
}

impl Retained {
    /// Until when it is kept at least, by what `spec.retention` says now; `None` if that is not counted yet, or
    /// is longer than there is time.
    pub fn until(&self, retention: Span) -> Option<Timestamp> {
        let Time(since) = self.replacement_ready_time.as_ref()?;
        since.checked_add(SignedDuration::try_from(retention.0).ok()?).ok()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_false(said: &bool) -> bool {
    !said
}
