//! The desired claims of a workload.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::dns_name::{DNS_NAME, UID};
use crate::api::longest::LONGEST_SENTENCE;
use crate::api::{
    Autoscale, ClaimTemplate, FenceStatus, InPlace, InPlacePhase, LastSwap, PodsOf, Quantity,
    Retained, Span, Swap, Verification, Workload,
};

/// The most ordinals of one workload in its status.
pub const MOST_ORDINALS: usize = 1024;

/// The most pods of which a person confirms that they have stopped.
const MOST_CONFIRMED: usize = 64;

/// The most retained claims of one pod that status lists.
pub const MOST_RETAINED: usize = 16;

/// The claims of a workload: of a StatefulSet one for each pod, of another workload those that its pods name.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "PvcAutoscaler",
    plural = "pvcautoscalers",
    shortname = "pvcas",
    category = "pliant",
    namespaced,
    doc = "Desired PersistentVolumeClaims of a workload: of a StatefulSet one for each pod, of another workload those that its pods name. An edit of the template resizes each claim or migrates it to another StorageClass: where possible while the pod runs, else by a PVC swap, in which the pod is restarted with a new claim that has a verified copy of the content.",
    status = "PvcAutoscalerStatus",
    derive = "PartialEq",
    derive = "Default",
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name of a PvcAutoscaler has at most 63 characters: its claims carry it as a label"),
    validation = Rule::new("has(self.spec.statefulSetName) != has(self.spec.workload)").message("write either spec.statefulSetName or spec.workload: whose claims these are"),
    validation = Rule::new("!has(self.spec.autoscale) || !isQuantity(string(self.spec.autoscale.maxSize)) || !isQuantity(string(self.spec.volumeClaimTemplate.spec.resources.requests.storage)) || quantity(string(self.spec.autoscale.maxSize)).compareTo(quantity(string(self.spec.volumeClaimTemplate.spec.resources.requests.storage))) >= 0").message("autoscale.maxSize is to be no less than resources.requests.storage of the template: raise it, or lower that"),
    validation = Rule::new("!has(self.spec.claimNamePolicy) || has(self.spec.statefulSetName)").message("claimNamePolicy is for the claims of a StatefulSet: pods that name their own claims go on to name them"),
    validation = Rule::new("!has(self.spec.rollback) || has(self.spec.statefulSetName)").message("rollback is for the claims of a StatefulSet: those that pods name directly never became others"),
    validation = Rule::new("!has(self.spec.abort) || has(self.spec.statefulSetName)").message("abort is for the claims of a StatefulSet: those that pods name directly never become others"),
    validation = Rule::new("!has(self.spec.reactivate) || has(self.spec.statefulSetName)").message("reactivate is for the claims of a StatefulSet: no other volume ever replaces those that pods name directly"),
    validation = Rule::new("self.spec.verification == 'Full' || self.spec.preCopy").message("verification: ChangedOnly is for claims that are copied while their pods run: set preCopy to true, or write Full"),
    validation = Rule::new("has(self.spec.statefulSetName) == has(oldSelf.spec.statefulSetName)").message("whose claims these are cannot change; make another PvcAutoscaler"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Ready Claims", type_ = "integer", json_path = ".status.readyClaimCount"),
    printcolumn(name = "Claims", type_ = "integer", json_path = ".status.claimCount"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Workload",
        type_ = "string",
        json_path = ".status.workload",
        priority = "1"
    ),
    printcolumn(
        name = "Progress",
        type_ = "string",
        json_path = ".status.progress",
        priority = "1"
    ),
    printcolumn(
        name = "Planned",
        type_ = "string",
        json_path = ".status.plannedAction",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PvcAutoscalerSpec {
    /// Name of the StatefulSet in this namespace whose claims are managed. Give either this or `workload`. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("statefulSetName cannot change; make another PvcAutoscaler"))]
    pub stateful_set_name: Option<String>,
    /// Workload other than a StatefulSet whose claims are managed. Its pods name their claims, so the claims stay the
    /// same: they are expanded, and shrunk in place. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("workload cannot change; make another PvcAutoscaler"))]
    pub workload: Option<PodsOf>,
    /// Desired claim of each pod. All of it can be edited but its name and its volume mode. Labels and annotations that
    /// you remove here stay on the claims.
    pub volume_claim_template: ClaimTemplate,
    /// `Enforce` changes the claims to match the template. `DryRun` creates claims for pods that have none, and only
    /// reports in the status what it would change. Default: `Enforce`.
    #[serde(default)]
    pub mode: AutoscalerMode,
    /// Name of a claim after a PVC swap. `Preserve`: the claim has the same name and gets another volume; for a
    /// StatefulSet whose volumeClaimTemplates include this template. `Generate`: a new claim with a hash in its name
    /// replaces it, which the webhook gives to the pod; for a StatefulSet without such a template. Default: what the
    /// StatefulSet needs; the other value is reported as `ClaimNamePolicyMismatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name_policy: Option<ClaimNamePolicy>,
    /// Duration for which a claim is retained after another one has replaced it and was used. With `Preserve` that is
    /// the old volume, under a claim with a hash in its name. Go's form, such as `36h`, or days, such as `7d`. Default:
    /// 168h.
    #[serde(default = "retention")]
    #[schemars(default = "retention")]
    pub retention: Span,
    /// Which pods get new claims, and when. Default: one after the other, from the highest ordinal down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Pods that get back the claim that they had before their last swap, with its content of that time: what they wrote
    /// since is not copied. Such a pod then has that claim until the template is edited, and no other pod gets a new one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub rollback: Vec<Rollback>,
    /// Pods that get back a superseded volume although no swap knows another one, such as after the API server was
    /// restored: each gets its volume as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub reactivate: Vec<Reactivate>,
    /// Uids of pods that have stopped although their nodes do not report it, at most 64. You confirm that for a volume of
    /// another driver, which does not reject a second writer; if a pod still runs, both write. For all pods of a node the
    /// taint `node.kubernetes.io/out-of-service` confirms the same. `status.ordinals[].swap.podUID` has the uid.
    #[serde(default, rename = "confirmedStoppedPodUIDs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_CONFIRMED),
        inner(length(min = 1, max = 63), regex(pattern = UID)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub confirmed_stopped_pod_uids: Vec<String>,
    /// Swaps to abort: their pods continue with the claims that they have, until the template is edited. A swap whose pod
    /// already has the new volume is not aborted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub abort: Vec<Abort>,
    /// True if a claim is copied in several passes while its pod runs, so that the pod is stopped only for what has
    /// changed since and for the verification. Not for claims with `ReadWriteOncePod`. Default: false.
    #[serde(default)]
    pub pre_copy: bool,
    /// Which contents are verified while the pod is stopped. `Full`: all, on both sides. `ChangedOnly`: those that have
    /// changed since a pass of the pre-copy verified them, or in the minute before, by the modification times that the
    /// kernel sets; needs `preCopy`. Metadata, raw block volumes and copies to another node are always verified in full.
    /// Default: `Full`.
    #[serde(default)]
    pub verification: Verification,
    /// When a claim is expanded and shrunk automatically. Default: none; only edits of the template resize it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,
}

/// What is done about claims that do not match the template.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum AutoscalerMode {
    /// They are changed.
    #[default]
    Enforce,
    /// What would be done is reported.
    DryRun,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// Name of a claim after a PVC swap.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum ClaimNamePolicy {
    /// The claim has the same name and gets another volume.
    Preserve,
    /// A new claim replaces it, with a hash after the name.
    Generate,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// Which pods get new claims, and when. By default one after the other, the highest ordinal first, each as soon as the
/// one before is ready.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Lowest ordinal of the pods that get new claims, 0 or more. Default: 0, which means all pods.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub partition: i32,
    /// True if no further swap starts; a swap that has started is completed. Default: false.
    #[serde(default)]
    pub paused: bool,
    /// Maximum number of pods that are without their claims, or not ready, at a time; 1 to 65535. No swap starts after
    /// one has failed. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65535), extend("format" = "int32"))]
    pub max_unavailable: u16,
}

/// A pod that gets back the claim that it had before its last swap.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// Ordinal of the pod, 0 or more.
    #[schemars(range(min = 0))]
    pub ordinal: i32,
    /// Present value of `status.ordinals[].claimRevision` of the pod, which it leaves. Another number has no effect, so
    /// the rollback happens once.
    #[schemars(range(min = 1))]
    pub claim_revision: i64,
}

/// A pod that gets back its volume, which another one has replaced.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reactivate {
    /// Ordinal of the pod, 0 or more.
    #[schemars(range(min = 0))]
    pub ordinal: i32,
    /// Generation of the fence since which the volume is superseded, as `status.message` reports it. Another number has
    /// no effect, so this happens once.
    #[schemars(range(min = 1))]
    pub fence_generation: i64,
}

/// A swap to abort, by ordinal and generation of the spec.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Abort {
    /// Ordinal of the pod, 0 or more.
    #[schemars(range(min = 0))]
    pub ordinal: i32,
    /// Value of `status.ordinals[].swap.specGeneration` of the swap. Another number has no effect, so the abort happens
    /// once.
    #[schemars(range(min = 1))]
    pub spec_generation: i64,
}

fn one() -> u16 {
    1
}

impl PvcAutoscalerSpec {
    /// Whose claims these are.
    pub fn workload(&self) -> Workload<'_> {
        match (&self.stateful_set_name, &self.workload) {
            (Some(name), _) => Workload::StatefulSet(name),
            (None, Some(pods)) => pods.workload(),
            (None, None) => Workload::StatefulSet(""), // The API server takes none such.
        }
    }

    /// How many pods may be without their claims at a time.
    pub fn max_unavailable(&self) -> usize {
        self.rollout.as_ref().map_or(1, |rollout| rollout.max_unavailable.max(1).into())
    }

    /// The name of the StatefulSet, if it is one.
    pub fn stateful_set(&self) -> Option<&str> {
        match self.workload() {
            Workload::StatefulSet(name) => Some(name),
            Workload::Deployment(_) | Workload::Pods(_) => None,
        }
    }
}

impl PvcAutoscaler {
    /// What the pod with this ordinal is called: of pods that name their claims, by the claim.
    pub fn pod_called(&self, ordinal: i32) -> String {
        let told = self.status.as_ref().and_then(|status| status.of(ordinal));
        match (self.spec.stateful_set(), told) {
            (Some(set), _) => format!("{set}-{ordinal}"),
            (None, Some(entry)) => format!("of {}", entry.active_claim),
            (None, None) => format!("{ordinal} of {}", self.spec.workload().in_words()),
        }
    }
}

fn retention() -> Span {
    Span::days(7)
}

/// Status of the claims of a workload.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcAutoscalerStatus {
    /// Generation of the spec that this status describes. If `metadata.generation` is higher, the status is out of date.
    #[serde(default)]
    pub observed_generation: i64,
    /// Workload whose claims these are, such as `StatefulSet/db`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub workload: Option<String>,
    /// Number of claims that the workload needs, one for each pod. Retained claims, and the new claim of a running swap, do
    /// not count. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub claim_count: i32,
    /// Number of the claims of `claimCount` that have the size and class they are to have, and no swap or shrink in
    /// progress. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub ready_claim_count: i32,
    /// Current phase: `Waiting` (`reason` has the cause, or `progress` if there is no fault), `InSync` (all claims have the
    /// size and class they are to have), `Expanding`, `Shrinking` (in place),
    /// `Swapping` (a pod gets another claim), `DryRun` (something would be changed if the mode were `Enforce`) or `Failed`
    /// (someone must act). Default: `Waiting`.
    #[serde(default)]
    pub phase: AutoscalerPhase,
    /// What is happening or awaited, in one line for people, such as `pod db-0: FinalCopy`. While a copy reports them, also
    /// percent, bytes, rate and time left. Absent if nothing is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// Change that starts next and has not begun, or in mode `DryRun` the change that would be made. Also its effect: the
    /// pod that stops, the bytes to copy, and the largest volume that the node has space for. Absent if none is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub planned_action: Option<String>,
    /// Reason in CamelCase why it waits or has failed, for programs. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Why it waits or has failed: what, where, how much is missing, and the commands to run. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// Conditions. `Ready`: all claims match the desired state. `Reconciling`: a change is in progress, or waits for
    /// something that comes without anyone's help. `Stalled`: a problem prevents the change until someone acts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// Claims of the pods, one entry for each ordinal, at most 1024.
    #[serde(default)]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub ordinals: Vec<OrdinalStatus>,
}

impl PvcAutoscalerStatus {
    /// Returns how many of the claims match the desired state, for people: `2/3`.
    pub fn ready_claims(&self) -> String {
        format!("{}/{}", self.ready_claim_count, self.claim_count)
    }

    /// What is told of the pod with this ordinal.
    pub fn of(&self, ordinal: i32) -> Option<&OrdinalStatus> {
        self.ordinals.iter().find(|one| one.ordinal == ordinal)
    }
}

/// Phase of the claims of a workload.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum AutoscalerPhase {
    /// A change is needed, and waits; the reason has the cause.
    #[default]
    Waiting,
    /// All claims match the desired state.
    InSync,
    /// Claims are larger than their volumes yet.
    Expanding,
    /// A claim is shrunk in place.
    Shrinking,
    /// A pod gets another claim.
    Swapping,
    /// A change would be made if the mode were Enforce.
    DryRun,
    /// A swap has failed, and no other starts until it is retried, or the spec changes.
    Failed,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// The claim of one pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrdinalStatus {
    /// Ordinal of the pod, 0 or more.
    pub ordinal: i32,
    /// Name of the claim that the pod uses, or gets when it starts. A swap changes it when the copy is verified, before the
    /// new pod starts.
    #[schemars(length(max = 253))]
    pub active_claim: String,
    /// How often a swap or a rollback has given the pod another volume. At 0 the pod has its first one, whatever the name
    /// of its claim, and no rollback is possible. `spec.rollback` takes this number. Default: 0.
    #[serde(default)]
    pub claim_revision: i64,
    /// Highest generation of all fences that were requested for the volumes of this pod, old and new. A fence decides whether
    /// pods can use a volume, and one swap requests several. No action depends on this number. Default: 0, none was
    /// requested.
    #[serde(default)]
    pub fence_generation: i64,
    /// Fence of the volume that the pod gets back by `spec.reactivate`, until the node has set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reactivated_volume: Option<FenceStatus>,
    /// Size in the template when a claim of the pod last requested exactly that. A swap updates it only after its end. If
    /// the claim requests more than this and than `autoscaledSize`, another client has expanded it. Absent before the first
    /// claim has a volume, and after a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_size: Option<Quantity>,
    /// Size that autoscaling chose for the claim. Absent if it chose none: the size in the template applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaled_size: Option<AutoscaledSize>,
    /// Highest usage since it fell below `shrink.belowPercent`. Only for claims that are shrunk automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_usage: Option<PeakUsage>,
    /// PVC swap that is running, or has failed. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// In-place shrink that is running, or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrink: Option<InPlace>,
    /// Results of the last swap whose new pod was ready. While `swap` is still `Soaking`, both are about the same swap.
    /// Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_swap: Option<LastSwap>,
    /// Rollback that `spec.rollback` requested and that is completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RollbackStatus>,
    /// Claim revision that the pod left in its last rollback, 0 if it had none. An entry of `spec.rollback` with this
    /// revision or a lower one is done. An entry with a higher one has an effect only if it is `claimRevision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rollback_revision: Option<i64>,
    /// Swap that `spec.abort` aborted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aborted: Option<AbortedSwap>,
    /// Claims that the pod had before and that still exist, the latest last; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_RETAINED),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"])
    )]
    pub retained_claims: Vec<Retained>,
    /// Last decision of autoscaling about the size of the claim, or why there was none. Without a decision the size does
    /// not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub last_decision: Option<String>,
}

impl OrdinalStatus {
    /// What the pod had before its last swap, if that is kept.
    pub fn before(&self) -> Option<&Retained> {
        self.retained_claims.iter().rev().find(|old| !old.never_used)
    }

    /// As [`OrdinalStatus::before`], to change it.
    pub fn before_mut(&mut self) -> Option<&mut Retained> {
        self.retained_claims.iter_mut().rev().find(|old| !old.never_used)
    }

    /// The claim that a pod may use that is made now: it waits until that is filled, or its own again.
    pub fn claim_of_pod(&self) -> &str {
        match &self.swap {
            Some(swap) if swap.gives_new_claim() => &swap.claim,
            _ => &self.active_claim,
        }
    }

    /// The uid by which its swap knows the claim of this name: another one of that name is another client's.
    pub fn known_uid(&self, claim: &str) -> Option<&str> {
        self.swap.as_ref()?.known_uid(claim, &self.active_claim)
    }

    /// Whether its claim is becoming smaller where its volume lies.
    pub fn is_shrinking(&self) -> bool {
        self.shrink.as_ref().is_some_and(|shrink| shrink.phase != InPlacePhase::Failed)
    }
}

/// A completed rollback of a pod.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackStatus {
    /// Time when the rollback started.
    pub start_time: Time,
    /// Hash of the template at that time. While the template is the same, the pod has its old claim.
    #[schemars(length(max = 64))]
    pub template_hash: String,
}

/// A swap that `spec.abort` aborted.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortedSwap {
    /// Time when the swap was aborted.
    pub abort_time: Time,
    /// Hash of the template at that time. While the template is the same, the pod has its old claim.
    #[schemars(length(max = 64))]
    pub template_hash: String,
}

/// A size that autoscaling chose for a claim.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscaledSize {
    /// Size that autoscaling chose for the claim.
    pub size: Quantity,
    /// Size in the template at that time. Another size there makes the decision void.
    pub template_size: Quantity,
    /// Time of the decision. Absent after a shrink that failed.
    pub decision_time: Option<Time>,
    /// Time when a shrink from this size failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_time: Option<Time>,
}

/// Highest usage of a claim for some time.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeakUsage {
    /// Highest used share of the bytes or of the inodes, in percent.
    pub percent: i32,
    /// Time since which usage did not exceed that.
    pub since_time: Time,
}
