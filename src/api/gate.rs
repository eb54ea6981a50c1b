//! Pods that are not scheduled yet: the claim that they name gets another volume.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use crate::api::{PvcAutoscaler, Swap};

/// The scheduling gate of a pod whose claim gets another volume. The label of that name finds such pods.
pub const GATE: &str = "pliant.io/volume-exchange";

/// Whether a pod carries our gate, so that it is on no node.
pub fn is_gated(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let mut gates = spec.into_iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.any(|gate| gate.name == GATE) && spec.is_none_or(|spec| spec.node_name.is_none())
}

/// The StatefulSet that makes a pod, if one does.
pub fn controlling_stateful_set(pod: &Pod) -> Option<&OwnerReference> {
    let is_it = |owner: &&OwnerReference| {
        owner.controller == Some(true)
            && owner.kind == "StatefulSet"
            && owner.api_version.starts_with("apps/")
    };
    pod.owner_references().iter().find(is_it)
}

/// The number in `<StatefulSet>-<number>`, as a StatefulSet writes it.
pub fn ordinal_of(pod: &str, stateful_set: &str) -> Option<i32> {
    let digits = pod.strip_prefix(stateful_set)?.strip_prefix('-')?;
    let number: i32 = digits.parse().ok()?;
    (number.to_string() == digits && number >= 0).then_some(number)
}

impl PvcAutoscaler {
    /// Whether a pod of its namespace is not to be scheduled yet, because the claim that it names gets
    /// another volume.
    pub fn holds(&self, pod: &Pod) -> bool {
        let set = controlling_stateful_set(pod).map(|owner| owner.name.as_str());
        let set = set.filter(|set| self.spec.stateful_set() == Some(set));
        let ordinal = set.and_then(|set| ordinal_of(&pod.name_any(), set));
        let status = self.status.as_ref();
        let entry = ordinal.and_then(|ordinal| status?.of(ordinal));
        let swap = entry.and_then(|entry| entry.swap.as_ref());
        swap.is_some_and(Swap::holds_pod)
    }
}
