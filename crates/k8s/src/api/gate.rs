//! Pods that are not scheduled yet: the claim that they name gets another volume, or is not to be used yet.

use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use crate::api::{OrdinalStatus, PvcAutoscaler, Swap};

/// The scheduling gate of a pod whose claim gets another volume, or that is to wait until its new claim has all. The label of that name finds such pods.
pub const GATE: &str = "pliant.io/volume-rebind";

/// Whether a pod carries our gate, so that it is on no node.
pub fn is_gated(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let gates = spec.into_iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    holds_at_gate(gates, spec.and_then(|spec| spec.node_name.as_ref()))
}

/// Whether ours is among the gates of a pod that is on no node.
pub fn holds_at_gate<'a>(
    mut gates: impl Iterator<Item = &'a PodSchedulingGate>,
    node: Option<&String>,
) -> bool {
    gates.any(|gate| gate.name == GATE) && node.is_none()
}

/// The StatefulSet that makes a pod, if one does.
pub fn controlling_stateful_set<P: ResourceExt>(pod: &P) -> Option<&OwnerReference> {
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
    /// another volume, is not open yet, or may have been filled too early.
    pub fn holds(&self, pod: &Pod) -> bool {
        let swap = self.told_of(pod).and_then(|entry| entry.swap.as_ref());
        swap.is_some_and(Swap::holds_pod)
    }

    /// Whether a pod of its namespace names another claim than the one that it is to have by now: it is
    /// made anew, and never to be scheduled.
    pub fn outdates(&self, pod: &Pod) -> bool {
        let volume = &self.spec.volume_claim_template.metadata.name;
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut named = volumes.filter(|one| one.name == *volume);
        let named = named.find_map(|one| one.persistent_volume_claim.as_ref());
        let entry = self.told_of(pod).zip(named);
        entry.is_some_and(|(entry, named)| entry.claim_of_pod() != named.claim_name)
    }

    /// Name and uid of the claim that a pod of its namespace is to have, where its swap knows both: a pod is not to
    /// be scheduled with another claim of that name.
    pub fn known_claim(&self, pod: &Pod) -> Option<(&str, &str)> {
        let entry = self.told_of(pod)?;
        let name = entry.claim_of_pod();
        Some((name, entry.known_uid(name)?))
    }

    /// Whether its status tells of a pod of its namespace.
    pub fn tells_of(&self, pod: &Pod) -> bool {
        self.told_of(pod).is_some()
    }

    /// What is told of a pod of its StatefulSet.
    fn told_of(&self, pod: &Pod) -> Option<&OrdinalStatus> {
        let set = controlling_stateful_set(pod)?;
        let set = self.spec.stateful_set().filter(|name| set.name == **name)?;
        self.status.as_ref()?.of(ordinal_of(&pod.name_any(), set)?)
    }
}
