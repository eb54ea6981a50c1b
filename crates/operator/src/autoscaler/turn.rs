//! Plan for one pod: its claim is reconciled, or a swap starts or continues. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{
    AutoscalerMode, AutoscalerPhase, MOST_RETAINED, OrdinalStatus, Quantity, Swap, SwapPhase,
};
use crate::autoscaler::coverage::Coverage;
use crate::autoscaler::drift::Drift;
use crate::autoscaler::marks::Marks;
use crate::autoscaler::objects::{holds_at_our_gate, in_seconds, is_bound, is_ending, uid, uses};
use crate::autoscaler::seen::Seen;
use crate::autoscaler::steps::Step;
use crate::autoscaler::{AutoscalerReason, make};
use crate::cluster::KEPT_BY;
use crate::cluster::{ClaimSizes, PodSummary, UnreadableSize, requested};

/// Contribution of one pod to the status of the whole workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Says {
    pub phase: Option<AutoscalerPhase>,
    pub progress: Option<String>,
    pub planned_action: Option<String>,
    pub problem: Option<(AutoscalerReason, String)>,
}

/// Plan for one pod.
pub(super) struct Turn<'a> {
    pub seen: &'a Seen,
    pub entry: OrdinalStatus,
    pub steps: Vec<Step>,
    pub says: Says,
    /// Number of failed swaps for the present specification before a new one.
    pub failures: i32,
}

impl<'a> Turn<'a> {
    /// Plans for one pod. `may_stop` counts the pods that may still be stopped; if others wait for a failed
    /// one, that is for its retry.
    pub fn take(
        seen: &'a Seen,
        entry: OrdinalStatus,
        may_stop: &mut usize,
        others_wait: bool,
    ) -> Turn<'a> {
        let mut turn = Turn { seen, entry, steps: Vec::new(), says: Says::default(), failures: 0 };
        if let Err(why) = turn.read_sizes() {
            turn.report_unreadable(&why);
            return turn;
        }
        turn.note_new_claim();
        turn.note_wishes_before();
        if !turn.is_to_abort() {
            turn.forget_failure();
        }
        turn.forget_failure_in_place();
        turn.forget_return();
        turn.forget_abort();
        let waits_to_return = turn.is_to_return() && !turn.may_return(*may_stop);
        match turn.entry.swap.as_ref().map(|swap| swap.phase) {
            _ if turn.is_to_abort() => turn.abort(),
            _ if turn.is_to_return() && !waits_to_return => turn.turn_round(may_stop),
            None if turn.entry.is_shrinking() => turn.shrink_in_place(),
            None if others_wait => turn.keep(&mut 0),
            None => turn.keep(may_stop),
            Some(SwapPhase::Pending | SwapPhase::Draining | SwapPhase::Fenced)
                if turn.returns() =>
            {
                turn.go_back();
            }
            Some(SwapPhase::Pending | SwapPhase::PreCopy) => turn.prepare(),
            Some(SwapPhase::Draining | SwapPhase::Fenced | SwapPhase::FinalCopy) => turn.copy(),
            Some(SwapPhase::Rebinding) => turn.exchange(),
            Some(SwapPhase::Soaking) => turn.soak(),
            Some(SwapPhase::RollingBack) => turn.roll_back(),
            Some(SwapPhase::Failed) if turn.is_due() => turn.try_again(may_stop),
            Some(SwapPhase::Failed) => turn.stay_failed(),
            Some(SwapPhase::Unknown) => {} // Nothing of it is looked at: see `Keeper::further`.
        }
        if waits_to_return {
            turn.tell_of_return();
        }
        turn.report_late_return();
        turn.leave_taken_claim();
        turn.replace_waiting_pod();
        turn.reinstate();
        turn.close_retained();
        turn.let_go();
        turn.retire();
        turn
    }

    /// Every decision about a claim counts on its sizes, and on those of the one that is to take its place.
    fn read_sizes(&self) -> Result<(), UnreadableSize> {
        let new = self.entry.swap.as_ref().map(|swap| &swap.claim);
        let names = [Some(&self.entry.active_claim), new].into_iter().flatten();
        let claims = names.filter_map(|name| self.seen.claim(name));
        claims.map(ClaimSizes::of).try_for_each(|sizes| sizes.map(drop))
    }

    /// Reports an invalid size of the claim, without any other decision.
    fn report_unreadable(&mut self, why: &UnreadableSize) {
        let message = format!(
            "{why}; set a size such as 10Gi: `kubectl edit pvc {} --namespace {}`",
            why.claim(),
            self.seen.autoscaler.namespace().unwrap_or_default()
        );
        self.says.phase = Some(AutoscalerPhase::Waiting);
        self.tell_of_lack(AutoscalerReason::InvalidSize, &message);
        self.wait(AutoscalerReason::InvalidSize, message);
    }

    /// A pod that was made before the webhook was asked for it waits for a claim that is not its own, and
    /// always will; one without our gate waits for a claim whose name is another client's by now, and might be
    /// scheduled with that. It was never on a node.
    fn replace_waiting_pod(&mut self) {
        let expected = self.entry.claim_of_pod();
        let is_taken = self.seen.taken.contains_key(expected);
        let waits = |pod: &&PodSummary| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let is_wrong = !uses(pod, expected) || is_taken && !holds_at_our_gate(pod);
            node.is_none() && !is_ending(&pod.metadata) && is_wrong
        };
        let pod = self.seen.pod(self.entry.ordinal).filter(|pod| self.gives_claims() && waits(pod));
        if let Some(pod) = pod.filter(|pod| !self.is_asked_to_go(pod)) {
            let uid = uid(&pod.metadata).to_owned();
            let version = pod.resource_version();
            self.steps.push(Step::DropPod { pod: pod.name_any(), uid, version });
        }
    }

    /// Returns true if a recreated pod gets its claim.
    pub(super) fn gives_claims(&self) -> bool {
        self.seen.coverage == Coverage::Covered && !self.seen.claims_are_fixed()
    }

    /// Returns true if a pod is evicted in this plan.
    pub(super) fn is_asked_to_go(&self, pod: &PodSummary) -> bool {
        let name = pod.name_any();
        self.steps.iter().any(|step| match step {
            Step::Evict { pod, .. } | Step::DropPod { pod, .. } => *pod == name,
            _ => false,
        })
    }

    /// Forgets a failure once the specification has changed. An automatic shrink is reported in an
    /// event, and decided again.
    fn forget_failure(&mut self) {
        let now = self.seen.generation();
        let Some(swap) = self.entry.swap.as_ref().filter(|one| one.phase == SwapPhase::Failed)
        else {
            return;
        };
        if swap.automatic {
            self.entry.swap = None;
            self.take_back_shrink();
        } else if swap.spec_generation != now {
            self.entry.swap = None;
        }
    }

    fn is_due(&self) -> bool {
        self.entry.swap.as_ref().is_some_and(|swap| is_due(swap, self.seen.now))
    }

    pub(super) fn tell(&mut self, reason: AutoscalerReason, subject: &str, text: String) {
        let subject = format!("{}/{}/{subject}", self.entry.ordinal, self.entry.claim_revision);
        self.steps.push(Step::Tell { reason, subject, text });
    }

    pub(super) fn wait(&mut self, reason: AutoscalerReason, message: String) {
        self.says.problem = Some((reason, message));
    }

    pub(super) fn pod(&self) -> String {
        self.seen.pod_name(self.entry.ordinal)
    }

    /// Without a swap: make the claim, let it grow, or begin a swap.
    pub(super) fn keep(&mut self, may_stop: &mut usize) {
        if self.seen.names_claims() && !self.seen.has_pod(self.entry.ordinal) {
            return; // Pods no longer name it, and may again.
        }
        let Some(claim) = self.seen.claim(&self.entry.active_claim) else {
            return self.make_claim();
        };
        if is_ending(&claim.metadata) {
            return; // A new one is made as soon as it is gone.
        }
        if self.wait_if_taken(claim) {
            return;
        }
        if !self.seen.keeps(claim) {
            let (ordinal, claim) = (self.entry.ordinal, claim.name_any());
            self.steps.push(Step::Adopt { ordinal, claim });
        }
        self.mark(claim);
        if !is_bound(claim) {
            self.says.phase = Some(AutoscalerPhase::Waiting);
            self.says.progress = Some(format!("claim {} has no volume yet", claim.name_any()));
            return;
        }
        if self.report_superseded(claim) {
            return;
        }
        self.drop_untrue_notes(&claim.name_any());
        self.note_template_size(claim);
        self.decide_size(claim, *may_stop > 0);
        self.compare(claim, may_stop);
    }

    /// Removes untrue annotations of a claim, which a backup restores.
    fn drop_untrue_notes(&mut self, claim: &str) {
        let notes = self.seen.untrue_notes.get(claim).cloned();
        let notes = notes.filter(|_| self.seen.autoscaler.spec.mode == AutoscalerMode::Enforce);
        self.steps.extend(notes.map(|notes| Step::DropNotes { claim: claim.to_owned(), notes }));
    }

    /// Stores the template size that the claim requests: a later expansion is from another client.
    fn note_template_size(&mut self, claim: &PersistentVolumeClaim) {
        let size = self.seen.template_size();
        if requested(claim) == Ok(size) {
            self.entry.template_size = Some(size);
        }
    }

    /// Stores that the claim, or its copy, is expanded for the template: the template may be lowered before the new
    /// size is observed.
    pub(super) fn note_larger_size(&mut self, size: Quantity) {
        let before = self.entry.template_size.filter(|before| *before < size);
        if before.is_some() && size == self.seen.template_size() {
            self.entry.template_size = Some(size);
        }
    }

    /// Writes the present labels and annotations of the template to the claim.
    fn mark(&mut self, claim: &PersistentVolumeClaim) {
        let spec = &self.seen.autoscaler.spec;
        if spec.mode == AutoscalerMode::DryRun {
            return;
        }
        let missing = Marks::missing(&spec.volume_claim_template.metadata, &claim.metadata);
        let claim = claim.name_any();
        self.steps.extend(missing.map(|marks| Step::Mark { claim, marks }));
    }

    /// Waits, and returns true, if another PvcAutoscaler manages a claim that pods name themselves: two
    /// would resize it by turns.
    fn wait_if_taken(&mut self, claim: &PersistentVolumeClaim) -> bool {
        let by = claim.labels().get(KEPT_BY).filter(|_| !self.seen.keeps(claim));
        let Some(by) = by.filter(|_| self.seen.names_claims()) else { return false };
        let name = claim.name_any();
        let message = format!(
            "claim {name} is managed by PvcAutoscaler {by}: choose other claims, or delete that one and run \
             `kubectl label pvc {name} {KEPT_BY}-`"
        );
        self.says.phase = Some(AutoscalerPhase::Waiting);
        self.wait(AutoscalerReason::ClaimConflict, message);
        true
    }

    fn make_claim(&mut self) {
        if !self.seen.has_pod(self.entry.ordinal) {
            return;
        }
        self.says.phase = Some(AutoscalerPhase::Waiting);
        if self.seen.names_claims() {
            let message = format!(
                "{} names claim {}, which does not exist: create it",
                self.seen.autoscaler.spec.workload().in_words(),
                self.entry.active_claim
            );
            return self.wait(AutoscalerReason::ClaimsNotFound, message);
        }
        if !self.seen.makes_claims() {
            self.steps.push(Step::MakeClaim {
                ordinal: self.entry.ordinal,
                claim: self.entry.active_claim.clone(),
                size: self.seen.size_of(&self.entry),
            });
        }
    }

    /// Returns the difference between a claim and its desired state.
    pub(super) fn drift_of(&self, claim: &PersistentVolumeClaim) -> Drift {
        self.seen.drift_of(&self.entry, claim)
    }

    /// Returns true if a claim is to be replaced, or to get another volume.
    pub(super) fn wants_another(&self, claim: &PersistentVolumeClaim) -> bool {
        matches!(self.drift_of(claim), Drift::Swap(_) | Drift::Shrink(_))
    }

    fn compare(&mut self, claim: &PersistentVolumeClaim, may_stop: &mut usize) {
        let size = self.seen.size_of(&self.entry);
        let ClaimSizes { requested, capacity } = match ClaimSizes::of(claim) {
            Ok(sizes) => sizes,
            Err(why) => return self.report_unreadable(&why),
        };
        match self.drift_of(claim) {
            Drift::Unreadable(why) => self.report_unreadable(&why),
            Drift::Larger(change) => {
                let (name, has) = (claim.name_any(), requested);
                let message = format!(
                    "claim {name} was made larger than the template by another client, and is not reduced \
                     ({change}): set {has} in the template; lower that again if the claim is to shrink"
                );
                self.wait(AutoscalerReason::ClaimLarger, message);
            }
            Drift::None if requested > capacity => {
                self.says.phase = Some(AutoscalerPhase::Expanding);
                let name = claim.name_any();
                self.says.progress =
                    Some(format!("claim {name} grows from {capacity} to {requested}"));
            }
            Drift::None => {}
            Drift::Grow | Drift::Lower => self.grow(claim, requested, size),
            Drift::Shrink(_) | Drift::Swap(_)
                if self.wait_if_rolled_back() || self.wait_if_aborted() => {}
            Drift::Swap(_) if size > requested && self.grows_before(claim) => {
                self.grow(claim, requested, size);
            }
            Drift::Shrink(change) => self.shrink(claim, size, change, may_stop),
            Drift::Swap(change) => self.swap(change, may_stop),
            Drift::VolumeModeMismatch => {
                let message = format!(
                    "claim {} has another volumeMode than the template, and one cannot be copied to the other: \
                     delete this PvcAutoscaler and create it with the volumeMode of its claims",
                    claim.name_any()
                );
                self.wait(AutoscalerReason::VolumeModeMismatch, message);
            }
        }
    }

    /// Returns true if a claim that retains its name can grow before it gets another volume: later it has
    /// the size of that.
    fn grows_before(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
        let can_grow = class.and_then(|class| self.seen.classes.get(class)) == Some(&true);
        self.seen.makes_claims() && can_grow
    }

    fn grow(&mut self, claim: &PersistentVolumeClaim, has: Quantity, size: Quantity) {
        let name = claim.name_any();
        if self.seen.autoscaler.spec.mode == AutoscalerMode::DryRun {
            self.says.phase = Some(AutoscalerPhase::DryRun);
            self.says.planned_action = Some(format!(
                "pod {}: claim {name} would grow, {has} → {size}; the pod continues to run",
                self.pod()
            ));
            return;
        }
        self.says.phase = Some(AutoscalerPhase::Expanding);
        self.note_larger_size(size);
        self.steps.push(Step::Grow { claim: name, size });
    }

    /// Plans the replacement of a claim, and starts it if allowed.
    pub(super) fn swap(&mut self, change: String, may_stop: &mut usize) {
        self.says.phase = Some(AutoscalerPhase::Waiting);
        if self.seen.autoscaler.spec.mode == AutoscalerMode::DryRun {
            self.says.phase = Some(AutoscalerPhase::DryRun);
        }
        let obstacle = self.obstacle().or_else(|| self.tell_of_what_lacks());
        if let Some((reason, message)) = obstacle {
            let message = match self.failure_in_place() {
                Some(why) => format!("{message}; {why}"),
                None => message,
            };
            return self.wait(reason, message);
        }
        let (pod, name) = (self.pod(), self.entry.active_claim.clone());
        let keeps_name = self.seen.makes_claims();
        let to = if keeps_name { "a new volume, which it gets" } else { "a new one" };
        let kept = if keeps_name { "; its old volume is" } else { " and" };
        let mut told = vec![format!(
            "pod {pod} is stopped, its claim {name} is copied to {to} ({change}){kept} retained for {}",
            self.seen.autoscaler.spec.retention
        )];
        told.extend(self.would_find());
        self.says.planned_action = Some(told.join("; "));
        let is_labelled = self.seen.claim(&name).is_some_and(|claim| self.seen.keeps(claim));
        // The driver of its volume decides whether its claim can retain its name.
        let is_known = !keeps_name || self.seen.volume_of(&name).is_some();
        if *may_stop == 0 || !self.is_in_partition() || !is_labelled || !is_known {
            return;
        }
        if self.wait_for_others() || !self.ensure_node_responds(may_stop) {
            return;
        }
        *may_stop -= 1;
        let revision = self.entry.claim_revision + 1;
        let by_itself = self.shrinks_by_itself();
        (self.entry.peak_usage, self.entry.shrink) = (None, None);
        self.entry.swap = Some(Swap {
            phase: SwapPhase::Pending,
            claim: make::free_name(self.seen, self.entry.ordinal, revision),
            preserves_name: keeps_name,
            node: self.elsewhere().map(|place| place.node.clone()),
            spec_generation: self.seen.generation(),
            summary: change,
            automatic: by_itself,
            failures: self.failures,
            start_time: Some(Time(in_seconds(self.seen.now))),
            ..Swap::default()
        });
        self.prepare();
    }

    /// Returns what makes a swap impossible, before anything is stopped.
    pub(super) fn obstacle(&self) -> Option<(AutoscalerReason, String)> {
        let spec = &self.seen.autoscaler.spec;
        if self.seen.names_claims() {
            let (whose, claim) = (spec.workload().in_words(), &self.entry.active_claim);
            let message = format!(
                "{whose} names claim {claim} itself, so that can only grow, or shrink in place: stop its pods, \
                 create the claim that you want, which a PvcSourcePopulator populates from {claim}, and name \
                 that one there"
            );
            return Some((AutoscalerReason::SwapUnsupported, message));
        }
        let class = spec.volume_claim_template.spec.storage_class_name.as_ref();
        if let Some(class) = class.filter(|class| !self.seen.classes.contains_key(*class)) {
            let message = format!(
                "there is no StorageClass {class}: create it, or choose one of `kubectl get storageclass`"
            );
            return Some((AutoscalerReason::StorageClassNotFound, message));
        }
        let too_many = self.retains_too_many();
        too_many.or_else(|| self.obstacle_to_same_name().filter(|_| self.seen.makes_claims()))
    }

    /// Returns the reason if one more retained claim would be the last that the status takes. Old claims are
    /// retained for their time, so a swap that the status could not list does not start.
    fn retains_too_many(&self) -> Option<(AutoscalerReason, String)> {
        let retained = &self.entry.retained_claims;
        let oldest = retained.first().filter(|_| retained.len() >= MOST_RETAINED - 1)?;
        let message = format!(
            "pod {} has {} retained claims, and no swap starts with so many: lower spec.retention of the \
             PvcAutoscaler, or delete those that are not needed, for example `kubectl delete pvc {}`",
            self.pod(),
            retained.len(),
            oldest.name
        );
        Some((AutoscalerReason::TooManyRetainedClaims, message))
    }

    pub(super) fn is_in_partition(&self) -> bool {
        let rollout = self.seen.autoscaler.spec.rollout.as_ref();
        rollout.is_none_or(|rollout| self.entry.ordinal >= rollout.partition)
    }

    /// Waits, and returns true, if the pod is not stopped now because others are not ready.
    pub(super) fn wait_for_others(&mut self) -> bool {
        let Some(other) = self.too_many_unready() else { return false };
        let message = format!(
            "pod {other} is not ready, so pod {} is not stopped: see `kubectl describe pod {other}`",
            self.pod()
        );
        self.wait(AutoscalerReason::PodNotReady, message);
        true
    }

    /// Returns one of the other pods that are not ready, if no further pod may be stopped.
    pub(super) fn too_many_unready(&self) -> Option<String> {
        let status = self.seen.autoscaler.status.as_ref()?;
        let others = status
            .ordinals
            .iter()
            .filter(|one| one.ordinal != self.entry.ordinal && self.seen.has_pod(one.ordinal))
            .filter(|one| !self.seen.names_claims() || self.seen.pod(one.ordinal).is_some());
        let mut unready =
            others.filter(|one| !self.seen.is_ready_with(one.ordinal, &one.active_claim));
        let last = unready.nth(self.seen.autoscaler.spec.max_unavailable() - 1)?;
        Some(self.seen.pod_name(last.ordinal))
    }
}

/// Returns true if a failed swap is due for a retry.
fn is_due(swap: &Swap, now: Timestamp) -> bool {
    swap.phase == SwapPhase::Failed
        && swap.next_retry_time.as_ref().is_some_and(|Time(at)| *at <= now)
}
