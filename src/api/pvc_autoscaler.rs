//! The claims of a workload, as they are wanted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::dns_name::{DNS_NAME, UID};
use crate::api::swap::LONGEST_SENTENCE;
use crate::api::{
    Autoscale, ClaimTemplate, Compare, FenceStatus, InPlace, InPlacePhase, LastSwap, PodsOf,
    Quantity, Retained, Span, Swap, Workload,
};

/// The most ordinals of one workload that are told of.
pub const MOST_ORDINALS: usize = 1024;

/// The most pods of which a person confirms that they run no more.
const MOST_CONFIRMED: usize = 64;

/// The most retained claims of one pod that status lists.
pub const MOST_RETAINED: usize = 16;

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
    validation = Rule::new("!has(self.spec.autoscale) || quantity(string(self.spec.autoscale.maxSize)).compareTo(quantity(string(self.spec.volumeClaimTemplate.spec.resources.requests.storage))) >= 0").message("autoscale.maxSize is to be no less than resources.requests.storage of the template: raise it, or lower that"),
    validation = Rule::new("!has(self.spec.naming) || has(self.spec.statefulSetName)").message("naming is for the claims of a StatefulSet: pods that name their claims by themselves go on to name them"),
    validation = Rule::new("!has(self.spec.rollBack) || has(self.spec.statefulSetName)").message("rollBack is for the claims of a StatefulSet: those that pods name by themselves never became others"),
    validation = Rule::new("!has(self.spec.abort) || has(self.spec.statefulSetName)").message("abort is for the claims of a StatefulSet: those that pods name by themselves never become others"),
    validation = Rule::new("self.spec.compare == 'All' || self.spec.hotCopy").message("compare: Changed is for claims that are copied while their pods run: set hotCopy to true, or write All"),
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
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
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
    /// What a claim is called when it has become another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naming: Option<Naming>,
    /// How long a claim is kept after another one took its place and was used, such as `7d`; with
    /// `SameName` that is the old volume, under a claim with a digest in its name.
    #[serde(default = "retention")]
    #[schemars(default = "retention")]
    pub retention: Span,
    /// Which pods get new claims, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Pods that are to have again what they had before, as it was then: what they have written since is left
    /// behind. Such a pod keeps that until the template is edited, and no further pod gets another claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub roll_back: Vec<RollBack>,
    /// Pods whose volumes are superseded although no swap knows of another one, such as after a restore of the API
    /// server: each may have its volume again, as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub reopen: Vec<Reopen>,
    /// Uids of pods that run no more, although their nodes do not say so: the word of a person for a volume of
    /// another driver, which does not refuse a second writer. `status.ordinals[].swap.podUid` has the uid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_CONFIRMED),
        inner(length(min = 1, max = 63), regex(pattern = UID)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub confirmed_stopped: Vec<String>,
    /// Swaps that are to be given up: their pods keep the claims that they have, until the template is edited. A
    /// swap whose pod has the new volume already is not given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_ORDINALS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ordinal"])
    )]
    pub abort: Vec<Abort>,
    /// Whether a claim is copied in rounds while its pod runs, so that the pod is stopped only for what
    /// has changed since, and for comparing. Claims that only one pod may have are copied while it is
    /// stopped.
    #[serde(default)]
    pub hot_copy: bool,
    /// Which contents are compared while the pod is stopped. `All`: those of both sides. `Changed`: those that
    /// have changed since a round of the hot copy compared them, or in the minute before that; it takes
    /// the times of change for true, which the kernel sets. All else of each file is always compared, and so
    /// is the whole of a raw device and of what is sent to another node.
    #[serde(default)]
    pub compare: Compare,
    /// When a claim becomes larger or smaller by itself. Without this only the template makes it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,
}

/// What is done about claims that are not as the template has them.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum AutoscalerMode {
    /// They are changed.
    #[default]
    Enforce,
    /// It is told what would be done.
    Recommend,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// What a claim is called when it has become smaller or of another class by a swap. `SameName`: as
/// before; it keeps its name and gets another volume. That is the way of a StatefulSet with a template of
/// that name among its volumeClaimTemplates. `Hashed`: a new claim with a digest in its name takes its
/// place, which the webhook gives to the pod. That is the way of a StatefulSet without such a template.
/// Without this it is what is right for the StatefulSet; what is not right is refused.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum Naming {
    /// As before.
    SameName,
    /// As before, with a digest behind it.
    Hashed,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

/// Which pods get new claims, and when: one after the other if nothing else is said, the highest ordinal
/// first, each as soon as the one before is ready.
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
    /// How many pods may be without their claims, or not ready, at a time. None is begun with after one
    /// whose swap has failed.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65535), extend("format" = "int32"))]
    pub max_unavailable: u16,
}

/// A pod that is to have again what it had before its last swap.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct RollBack {
    /// The ordinal of the pod.
    #[schemars(range(min = 0))]
    pub ordinal: i32,
    /// What `status.ordinals[].generation` says of the pod now: that is left. Another number means
    /// nothing, so that it happens once.
    #[schemars(range(min = 1))]
    pub generation: i64,
}

/// A pod that is to have its volume again, which another one took the place of.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct Reopen {
    /// The ordinal of the pod.
    #[schemars(range(min = 0))]
    pub ordinal: i32,
    /// The generation since which its volume is superseded, as `status.message` says it. Another number means
    /// nothing, so that it happens once.
    #[schemars(range(min = 1))]
    pub generation: i64,
}

/// A swap that is to be given up.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
pub struct Abort {
    /// The ordinal of the pod.
    #[schemars(range(min = 0))]
    pub ordinal: i32,
    /// What `status.ordinals[].swap.generation` says of the swap. Another number means nothing, so that it
    /// happens once.
    #[schemars(range(min = 1))]
    pub generation: i64,
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
    /// Ready: all claims are as they are wanted. Stalled: something keeps them from becoming so. Each with
    /// its reason and a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
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
    /// A swap has failed, and nothing more is begun until it is tried again, or the specification changes.
    Failed,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
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
    /// The fence of its volume, which a person lets the pod have again, until its node has written that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopened: Option<FenceStatus>,
    /// The size in the template when the claim last asked for that. A claim that asks for more since then, although
    /// the template was not lowered, was made larger by another client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_size: Option<Quantity>,
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
    /// What was asked for by `spec.rollBack` and done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
    /// The generation that the pod left last to have again what it had before, 0 if it never did: `spec.rollBack` from
    /// that one or one before is done, and from a later one that the pod has no more it came too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rollback_generation: Option<i64>,
    /// The swap that was last given up by `spec.abort`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aborted: Option<AbortedSwap>,
    /// The claims that it had before and that still exist, the last one as the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_RETAINED))]
    pub retained: Vec<Retained>,
    /// What was last decided about its size, or why nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub decision: Option<String>,
}

impl OrdinalStatus {
    /// What the pod had before its last swap, if that is kept.
    pub fn before(&self) -> Option<&Retained> {
        self.retained.iter().rev().find(|old| !old.spare)
    }

    /// As [`OrdinalStatus::before`], to change it.
    pub fn before_mut(&mut self) -> Option<&mut Retained> {
        self.retained.iter_mut().rev().find(|old| !old.spare)
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
        let swap = self.swap.as_ref()?;
        let uid = match claim {
            _ if claim == swap.claim => &swap.claim_uid,
            _ if claim == self.active_claim => &swap.active_claim_uid,
            _ => &None,
        };
        uid.as_deref()
    }

    /// Whether its claim is becoming smaller where its volume lies.
    pub fn is_shrinking(&self) -> bool {
        self.shrink.as_ref().is_some_and(|shrink| shrink.phase != InPlacePhase::Failed)
    }
}

/// A pod that has again what it had before.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct RolledBack {
    /// When that was begun.
    pub at: Time,
    /// A digest of the template of then: as long as that stays, the pod keeps what it has.
    #[schemars(length(max = 64))]
    pub template: String,
}

/// A swap that was given up by `spec.abort`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortedSwap {
    /// When that was done.
    pub abort_time: Time,
    /// A digest of the template of then: as long as that stays, the pod keeps what it has.
    #[schemars(length(max = 64))]
    pub template: String,
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
    pub failure_time: Option<Time>,
}

/// How full a claim has been at most for some time.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Peak {
    /// How much of its bytes or of its inodes was used, in percent.
    pub percent: i32,
    /// Since when no more than that was.
    pub since: Time,
}
