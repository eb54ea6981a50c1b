//! The claims of a workload, as they are wanted.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{Autoscale, FenceStatus, PodsOf, Quantity, Span, Workload};

/// The most ordinals of one workload that are told of.
const MOST_ORDINALS: usize = 1024;
/// The longest sentence, in characters.
const LONGEST_SENTENCE: usize = 1024;

/// The claims of a workload: of a StatefulSet one for each pod, of another one those that its pods name,
/// as the template has them.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "pliant.io",
    version = "v1alpha1",
    kind = "PvcAutoscaler",
    plural = "pvcautoscalers",
    shortname = "pvcas",
    category = "pliant",
    namespaced,
    doc = "The claims of a workload, as the template has them: of a StatefulSet one for each pod, of another one those that its pods name. An edit of the template makes each of them larger, smaller or of another class: where it can be, by expansion under the running pod; else by a new claim that gets a verified copy while the pod is restarted.",
    status = "PvcAutoscalerStatus",
    derive = "PartialEq",
    derive = "Default",
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name of a PvcAutoscaler has at most 63 characters: its claims carry it as a label"),
    validation = Rule::new("has(self.spec.statefulSetName) != has(self.spec.workload)").message("write either spec.statefulSetName or spec.workload: whose claims these are"),
    validation = Rule::new("!has(self.spec.autoscale) || quantity(self.spec.autoscale.maxSize).compareTo(quantity(self.spec.volumeClaimTemplate.spec.resources.requests.storage)) >= 0").message("autoscale.maxSize is to be no less than resources.requests.storage of the template: raise it, or lower that"),
    validation = Rule::new("has(self.spec.statefulSetName) == has(oldSelf.spec.statefulSetName)").message("whose claims these are cannot change; make another PvcAutoscaler"),
    printcolumn(name = "Workload", type_ = "string", json_path = ".status.workload"),
    printcolumn(name = "Claims", type_ = "string", json_path = ".status.claims"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.next"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PvcAutoscalerSpec {
    /// The StatefulSet of this namespace whose claims these are. It cannot change: the claims are those
    /// of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("statefulSetName cannot change; make another PvcAutoscaler"))]
    pub stateful_set_name: Option<String>,
    /// Whose claims these are, if no StatefulSet makes the pods. Such pods name their claims by
    /// themselves, so the claims keep their names: they grow, and shrink where their volumes lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("workload cannot change; make another PvcAutoscaler"))]
    pub workload: Option<PodsOf>,
    /// The claim that each pod is to have. All of it can be edited but its name and its volume mode. Labels
    /// and annotations that are taken out of it stay on the claims.
    pub volume_claim_template: ClaimTemplate,
    /// `Enforce` makes the claims as the template has them. `Recommend` makes claims for pods that have
    /// none, and only tells of the others what it would do.
    #[serde(default)]
    pub mode: AutoscalerMode,
    /// How long a claim is kept after another one took its place and was used, such as `7d`.
    #[serde(default = "retention")]
    #[schemars(default = "retention")]
    pub retention: Span,
    /// Which pods get new claims, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Whether a claim is copied in rounds while its pod runs, so that the pod is stopped only for what
    /// has changed since, and for comparing all. Raw devices and claims that only one pod may have are
    /// copied while it is stopped.
    #[serde(default)]
    pub hot_copy: bool,
    /// When a claim becomes larger or smaller by itself. Without this only the template makes it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,
}

/// A claim, as `volumeClaimTemplates` of a StatefulSet has it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// `v1`, if it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = Rule::new("self == 'v1'").message("apiVersion is v1"))]
    pub api_version: Option<String>,
    /// `PersistentVolumeClaim`, if it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self == 'PersistentVolumeClaim'").message("kind is PersistentVolumeClaim"))]
    pub kind: Option<String>,
    /// What the claims are called and carry.
    pub metadata: TemplateMetadata,
    /// What they ask for.
    pub spec: TemplateSpec,
}

/// What claims are called and carry.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Name of the volume in `volumeMounts` of the pods, and the first part of the names of the claims.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the name of the template cannot change; make another PvcAutoscaler"))]
    pub name: String,
    /// Labels of the claims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What claims ask for.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.dataSource) && !has(self.dataSourceRef)").message("the template takes no dataSource and no dataSourceRef, for each of its claims would be filled with the same: make the claims that are to have data yourself, before their pods, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0, and they are kept as they are"),
    validation = Rule::new("!has(self.selector)").message("the template takes no selector: a claim that is to have a certain PersistentVolume is made by hand, before its pod, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0; else remove it"),
    validation = Rule::new("!has(self.volumeName)").message("the template takes no volumeName, for its claims cannot share a PersistentVolume: make the claim of that one yourself, before its pod, called TEMPLATE-STATEFULSET-ORDINAL as data-db-0")
)]
pub struct TemplateSpec {
    /// Who may use the volume at the same time, such as `ReadWriteOnce`.
    #[schemars(length(min = 1, max = 4), with = "Vec<AccessMode>")]
    pub access_modes: Vec<String>,
    /// How large it is.
    pub resources: TemplateResources,
    /// The StorageClass; without one, the default class of the cluster when a claim is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// `Filesystem`, or `Block` for a raw device. It cannot change: one cannot be copied to the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("volumeMode cannot change: a file system cannot be copied to a raw device; make another PvcAutoscaler"))]
    pub volume_mode: Option<VolumeMode>,
    /// The VolumeAttributesClass, if the driver has such classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub volume_attributes_class_name: Option<String>,
    /// Refused: claims are made empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub data_source: Option<Refused>,
    /// Refused: claims are made empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub data_source_ref: Option<Refused>,
    /// Refused: the StorageClass makes the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub selector: Option<Refused>,
    /// Refused: the StorageClass makes the volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), with = "String")]
    pub volume_name: Option<String>,
}

/// What a claim can have and the template cannot. The API server drops what a schema does not know, and
/// the claim would silently be made without it; so the schema knows it, and a rule refuses it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub struct Refused {}

/// Who may use a volume at the same time.
#[derive(JsonSchema)]
#[allow(dead_code)] // Only the schema knows them: what a claim has is compared as it is written.
#[expect(clippy::enum_variant_names, reason = "as Kubernetes has them")]
enum AccessMode {
    /// All pods of one node.
    ReadWriteOnce,
    /// All pods, to read.
    ReadOnlyMany,
    /// All pods.
    ReadWriteMany,
    /// One pod.
    ReadWriteOncePod,
}

/// How a workload sees a volume.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum VolumeMode {
    /// As a directory.
    #[default]
    Filesystem,
    /// As a raw device.
    Block,
}

/// How large the volume of a claim is.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.limits)").message("the template takes no resources.limits: write the size as resources.requests.storage, and how large claims become by themselves as autoscale.maxSize")
)]
pub struct TemplateResources {
    /// What is asked for.
    pub requests: TemplateRequests,
    /// Refused: volumes have the size that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Refused")]
    pub limits: Option<Refused>,
}

/// What is asked for.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct TemplateRequests {
    /// The size, such as `4Gi`.
    pub storage: Quantity,
}

/// What is done about claims that are not as the template has them.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum AutoscalerMode {
    /// They are changed.
    #[default]
    Enforce,
    /// It is told what would be done.
    Recommend,
}

/// Which pods get new claims, and when. One pod after the other does, the highest ordinal first, each
/// as soon as the one before is ready.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Only pods with this ordinal or a higher one get new claims.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub partition: i32,
    /// No further pod is begun with; one that was begun with is brought to its end.
    #[serde(default)]
    pub paused: bool,
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

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_false(said: &bool) -> bool {
    !said
}

/// What has been done with the claims of a workload.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcAutoscalerStatus {
    /// The generation of the specification of which this is told.
    #[serde(default)]
    pub observed_generation: i64,
    /// Whose claims these are, such as `StatefulSet/db`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub workload: Option<String>,
    /// How many of the claims are as they are wanted, such as `2/3`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub claims: String,
    /// What is being done.
    #[serde(default)]
    pub phase: AutoscalerPhase,
    /// How far the work under way is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// What is done next, or would be in mode Recommend, and what that means.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub next: Option<String>,
    /// Why it waits or has failed, in one word for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Why it waits or has failed, in a sentence: what, where, how much, what to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// The claims of the pods, by ordinal.
    #[serde(default)]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub ordinals: Vec<OrdinalStatus>,
}

impl PvcAutoscalerStatus {
    /// What is told of the pod with this ordinal.
    pub fn of(&self, ordinal: i32) -> Option<&OrdinalStatus> {
        self.ordinals.iter().find(|one| one.ordinal == ordinal)
    }
}

/// What is being done with the claims of a workload.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum AutoscalerPhase {
    /// Something is to be done, and waits; the reason says for what.
    #[default]
    Waiting,
    /// All claims are as they are wanted.
    Settled,
    /// Claims are larger than their volumes yet.
    Growing,
    /// A claim becomes smaller where its volume lies.
    Shrinking,
    /// A pod gets another claim.
    Swapping,
    /// Something would be done if mode were Enforce.
    Recommending,
    /// A swap has failed, and nothing more is begun until the specification changes.
    Failed,
}

/// The claim of one pod.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrdinalStatus {
    /// The ordinal of the pod.
    pub ordinal: i32,
    /// The one claim whose content is that of the pod.
    #[schemars(length(max = 253))]
    pub active_claim: String,
    /// How many claims it has had before.
    #[serde(default)]
    pub generation: i64,
    /// The last number under which one of its volumes was told who may use it: the next one is higher.
    #[serde(default)]
    pub fence_generation: i64,
    /// The size that it has come to by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown: Option<Grown>,
    /// How full it has been at most since it was less full than `shrink.below`. Only what shrinks by itself
    /// has this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<Peak>,
    /// The swap that is under way, or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// The shrink in place that is under way, or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrink: Option<InPlace>,
    /// What the last swap that has ended took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_swap: Option<LastSwap>,
    /// The claims that it had before and that still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub retained: Vec<Retained>,
    /// What was last decided about its size, or why nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub decision: Option<String>,
}

impl OrdinalStatus {
    /// Whether its claim is becoming smaller where its volume lies.
    pub fn is_shrinking(&self) -> bool {
        self.shrink.as_ref().is_some_and(|shrink| shrink.phase != InPlacePhase::Failed)
    }
}

/// A size that a claim has come to by itself.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grown {
    /// The size.
    pub to: Quantity,
    /// The size in the template when that was decided: another one makes this void.
    pub from: Quantity,
    /// When that was decided.
    pub at: Option<Time>,
    /// When it was to shrink from that and could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Time>,
}

/// How full a claim has been at most for some time.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Peak {
    /// How much of its bytes or of its inodes was used, in percent.
    pub percent: i32,
    /// Since when no more than that was.
    pub since: Time,
}

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
    pub started_at: Option<Time>,
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
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Why nothing was copied while the pod ran, although hotCopy asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub cold: Option<String>,
    /// When the pod was asked to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Time>,
    /// What the volume of the old claim is told to be. Absent before the pod is gone, and for volumes of
    /// other drivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// When the node of the old volume had proved that nobody has it open, and that nobody else will.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused_at: Option<Time>,
    /// Digest of what was copied, as it was read from both volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub digest: Option<String>,
}

/// What a swap took that has ended.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSwap {
    /// The claim that the pod got.
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
    pub finished_at: Option<Time>,
}

/// How far a swap is. Each is written before its work begins.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum SwapPhase {
    /// The new claim is being made, and gets its room. The pod runs on the old one.
    #[default]
    Planned,
    /// The old claim is copied ahead in rounds, while the pod runs on it.
    HotCopy,
    /// The pod is stopped; the next one gets the new claim, and waits for it.
    Draining,
    /// The pod is gone: the node of the old volume keeps everybody from writing to it, and proves that
    /// nobody has it open.
    Fenced,
    /// Nobody writes to the old claim: it is copied to the new one, and both are compared.
    FinalCopy,
    /// The new claim is the active one; its pod starts.
    Soaking,
    /// The copy has failed: what was made is removed, and the node of the old volume lets the pod in again.
    RollingBack,
    /// The copy has failed, and the pod has the old claim.
    Failed,
}

impl Swap {
    /// Whether a pod that is made now gets the new claim: it waits until that is filled, or until the old
    /// one is its own again.
    pub const fn gives_new_claim(&self) -> bool {
        match self.phase {
            SwapPhase::Draining | SwapPhase::Fenced | SwapPhase::FinalCopy => true,
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
    /// When it is deleted: counted from the moment at which the pod was ready with the new claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// What its volume is told to be, until its node has it so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
}
