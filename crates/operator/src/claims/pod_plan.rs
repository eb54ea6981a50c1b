//! The plan for one pod in the making: what is known, what becomes of its status, and the steps. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use crate::api::{AutoscalerPhase, OrdinalStatus, Quantity};
use crate::claims::AutoscalerReason;
use crate::claims::coverage::WorkloadCoverage;
use crate::claims::drift::Drift;
use crate::claims::observed::ObservedWorkload;
use crate::claims::steps::Step;
use crate::claims::topology::AlternativeNode;
use crate::cluster::{NodeOperation, PodSummary, UnreadableSize, VolumeSeen};

/// Contribution of one pod to the status of the whole workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Says {
    pub phase: Option<AutoscalerPhase>,
    pub progress: Option<String>,
    pub planned_action: Option<String>,
    pub problem: Option<(AutoscalerReason, String)>,
}

/// Plan for one pod.
pub(super) struct PodPlan<'a> {
    pub seen: &'a ObservedWorkload,
    /// New status of the pod. A phase is handed the swap, which is not in here meanwhile.
    pub entry: OrdinalStatus,
    pub steps: Vec<Step>,
    pub says: Says,
    /// Number of failed swaps for the present specification before a new one.
    pub failures: i32,
}

impl<'a> PodPlan<'a> {
    /// Starts a plan that changes nothing.
    pub fn of(seen: &'a ObservedWorkload, entry: OrdinalStatus) -> PodPlan<'a> {
        PodPlan { seen, entry, steps: Vec::new(), says: Says::default(), failures: 0 }
    }

    /// Message of the previous status.
    pub fn told_before(&self) -> Option<&String> {
        self.seen.autoscaler.status.as_ref()?.message.as_ref()
    }

    pub fn ask_for(&mut self, volume: &VolumeSeen, wish: NodeOperation) {
        if volume.is_to_be_asked(&wish) {
            self.steps.push(Step::Ask { volume: volume.id.clone(), wish });
        }
    }

    /// The node for the new volume, if it is another one than that of the old one.
    pub fn elsewhere(&self) -> Option<&AlternativeNode> {
        self.seen.around.elsewhere.get(&self.entry.active_claim)
    }

    /// Emits an event about what lacks, if it is new.
    pub fn tell_of_lack(&mut self, reason: AutoscalerReason, message: &str) {
        let told = self.seen.autoscaler.status.as_ref().and_then(|status| status.reason.as_ref());
        if told != Some(&reason.to_string()) {
            self.add_event(reason, &self.seen.generation().to_string(), message.to_owned());
        }
    }

    pub fn wanted_class(&self) -> Option<&str> {
        self.seen.autoscaler.spec.volume_claim_template.spec.storage_class_name.as_deref()
    }

    /// Reports an invalid size of the claim, without any other decision.
    pub fn report_unreadable(&mut self, why: &UnreadableSize) {
        let message = format!(
            "{why}; set a size such as 10Gi: `kubectl edit pvc {} --namespace {}`",
            why.claim(),
            self.seen.autoscaler.namespace().unwrap_or_default()
        );
        self.says.phase = Some(AutoscalerPhase::Waiting);
        self.tell_of_lack(AutoscalerReason::InvalidSize, &message);
        self.wait(AutoscalerReason::InvalidSize, message);
    }

    /// Returns true if a recreated pod gets its claim.
    pub fn gives_claims(&self) -> bool {
        self.seen.coverage == WorkloadCoverage::Covered && !self.seen.claims_are_fixed()
    }

    /// Returns true if a pod is evicted in this plan.
    pub fn is_asked_to_go(&self, pod: &PodSummary) -> bool {
        let name = pod.name_any();
        self.steps.iter().any(|step| match step {
            Step::Evict { pod, .. } | Step::DropPod { pod, .. } => *pod == name,
            _ => false,
        })
    }

    pub fn add_event(&mut self, reason: AutoscalerReason, subject: &str, text: String) {
        let subject = format!("{}/{}/{subject}", self.entry.ordinal, self.entry.claim_revision);
        self.steps.push(Step::Tell { reason, subject, text });
    }

    pub fn wait(&mut self, reason: AutoscalerReason, message: String) {
        self.says.problem = Some((reason, message));
    }

    pub fn pod(&self) -> String {
        self.seen.pod_name(self.entry.ordinal)
    }

    /// Stores that the claim, or its copy, is expanded for the template: the template may be lowered before the new
    /// size is observed.
    pub fn note_larger_size(&mut self, size: Quantity) {
        let before = self.entry.template_size.filter(|before| *before < size);
        if before.is_some() && size == self.seen.template_size() {
            self.entry.template_size = Some(size);
        }
    }

    /// Returns the difference between a claim and its desired state.
    pub fn drift_of(&self, claim: &PersistentVolumeClaim) -> Drift {
        self.seen.drift_of(&self.entry, claim)
    }

    /// Returns true if a claim is to be replaced, or to get another volume.
    pub fn wants_another(&self, claim: &PersistentVolumeClaim) -> bool {
        matches!(self.drift_of(claim), Drift::Swap(_) | Drift::Shrink(_))
    }
}
