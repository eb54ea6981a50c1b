//! One pod's turn: its claim is kept as it is wanted, or another one takes its place. Pure.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::api::{
    AutoscalerMode, AutoscalerPhase, FillingPhase, Grown, OrdinalStatus, Quantity, Retained, Swap,
    SwapPhase,
};
use crate::autoscaler::drift::Drift;
use crate::autoscaler::plan::{Says, bounded, size_of};
use crate::autoscaler::seen::{Seen, capacity, is_bound, is_ending, requested, uid, uses};
use crate::autoscaler::size::{self, Sized};
use crate::autoscaler::steps::Step;
use crate::autoscaler::{AutoscalerReason, SUPERSEDED_BY, make};

/// One pod's turn.
pub(super) struct Turn<'a> {
    seen: &'a Seen,
    pub entry: OrdinalStatus,
    pub steps: Vec<Step>,
    pub says: Says,
}

impl<'a> Turn<'a> {
    /// Decide about one pod. `may_begin` says whether a pod may be stopped, and whether one still may.
    pub fn take(seen: &'a Seen, entry: OrdinalStatus, may_begin: &mut bool) -> Turn<'a> {
        let mut turn = Turn { seen, entry, steps: Vec::new(), says: Says::default() };
        turn.forget_failure();
        match turn.entry.swap.as_ref().map(|swap| swap.phase) {
            None => turn.keep(may_begin),
            Some(SwapPhase::Planned) => turn.prepare(),
            Some(SwapPhase::Draining | SwapPhase::FinalCopy) => turn.copy(),
            Some(SwapPhase::Soaking) => turn.soak(),
            Some(SwapPhase::RollingBack) => turn.roll_back(),
            Some(SwapPhase::Failed) => turn.stay_failed(),
        }
        turn.replace_waiting_pod();
        turn.retire();
        turn
    }

    /// A pod that was made before the webhook was asked for it waits for a claim that is not its own, and
    /// always will. It was never on a node.
    fn replace_waiting_pod(&mut self) {
        let expected = match &self.entry.swap {
            Some(swap) if matches!(swap.phase, SwapPhase::Draining | SwapPhase::FinalCopy) => {
                &swap.claim
            }
            _ => &self.entry.active_claim,
        };
        let waits = |pod: &&Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            node.is_none() && !is_ending(&pod.metadata) && !uses(pod, expected)
        };
        let is_ours = self.seen.is_covered && !self.seen.makes_claims();
        let pod = self.seen.pod(self.entry.ordinal).filter(|pod| is_ours && waits(pod));
        let is_planned = |pod: &Pod| {
            let name = pod.name_any();
            self.steps.iter().any(|step| match step {
                Step::Evict { pod, .. } | Step::DropPod { pod, .. } => *pod == name,
                _ => false,
            })
        };
        if let Some(pod) = pod.filter(|pod| !is_planned(pod)) {
            let (pod, uid) = (pod.name_any(), uid(&pod.metadata).to_owned());
            self.steps.push(Step::DropPod { pod, uid });
        }
    }

    /// What failed for one specification may be tried for another.
    fn forget_failure(&mut self) {
        let now = self.seen.generation();
        let failed = |swap: &Swap| swap.phase == SwapPhase::Failed && swap.generation != now;
        if self.entry.swap.as_ref().is_some_and(failed) {
            self.entry.swap = None;
        }
    }

    fn tell(&mut self, reason: AutoscalerReason, subject: &str, text: String) {
        let subject = format!("{}/{}/{subject}", self.entry.ordinal, self.entry.generation);
        self.steps.push(Step::Tell { reason, subject, text });
    }

    fn wait(&mut self, reason: AutoscalerReason, message: String) {
        self.says.problem = Some((reason, message));
    }

    fn pod(&self) -> String {
        self.seen.pod_name(self.entry.ordinal)
    }

    /// Without a swap: make the claim, let it grow, or begin a swap.
    fn keep(&mut self, may_begin: &mut bool) {
        let Some(claim) = self.seen.claim(&self.entry.active_claim) else {
            return self.make_claim();
        };
        if is_ending(&claim.metadata) {
            return; // A new one is made as soon as it is gone.
        }
        if !self.seen.keeps(claim) {
            let (ordinal, claim) = (self.entry.ordinal, claim.name_any());
            self.steps.push(Step::Adopt { ordinal, claim });
        }
        if !is_bound(claim) {
            self.says.phase = Some(AutoscalerPhase::Waiting);
            self.says.progress = Some(format!("claim {} has no volume yet", claim.name_any()));
            return;
        }
        self.decide_size(claim);
        self.compare(claim, may_begin);
    }

    fn make_claim(&mut self) {
        if !self.seen.has_pod(self.entry.ordinal) {
            return;
        }
        self.says.phase = Some(AutoscalerPhase::Waiting);
        if !self.seen.makes_claims() {
            self.steps.push(Step::MakeClaim {
                ordinal: self.entry.ordinal,
                claim: self.entry.active_claim.clone(),
                size: size_of(self.seen, &self.entry),
            });
        }
    }

    /// Let the claim grow by itself if it is full.
    fn decide_size(&mut self, claim: &PersistentVolumeClaim) {
        let spec = &self.seen.autoscaler.spec;
        let Some(policy) = &spec.autoscale else {
            (self.entry.decision, self.entry.grown) = (None, None);
            return;
        };
        let sized = Sized {
            requested: requested(claim),
            capacity: capacity(claim),
            grown: self.entry.grown.as_ref(),
            usage: self.seen.usage.get(&claim.name_any()).copied(),
        };
        let decided = size::decide(policy, sized, self.seen.now);
        if let Some(to) = decided.to.filter(|_| spec.mode == AutoscalerMode::Enforce) {
            let (from, at) = (self.seen.template_size(), Some(Time(self.seen.now)));
            self.entry.grown = Some(Grown { to, from, at });
            let text = format!("claim {}: {}", claim.name_any(), decided.why);
            self.tell(AutoscalerReason::ClaimGrows, &to.to_string(), text);
        } else if decided.to.is_some() {
            self.says.phase = Some(AutoscalerPhase::Recommending);
            self.says.next = Some(format!("pod {}: {}", self.pod(), decided.why));
        }
        self.entry.decision = Some(bounded(&decided.why));
    }

    fn compare(&mut self, claim: &PersistentVolumeClaim, may_begin: &mut bool) {
        let template = &self.seen.autoscaler.spec.volume_claim_template.spec;
        let size = size_of(self.seen, &self.entry);
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
        let can_grow = class.and_then(|class| self.seen.classes.get(class)).copied();
        match Drift::of(claim, template, size, can_grow.unwrap_or_default()) {
            Drift::None if requested(claim) > capacity(claim) => {
                self.says.phase = Some(AutoscalerPhase::Growing);
                let (name, has, to) = (claim.name_any(), capacity(claim), requested(claim));
                self.says.progress = Some(format!("claim {name} grows from {has} to {to}"));
            }
            Drift::None => {}
            Drift::Grow => self.grow(claim, size),
            Drift::Swap(change) => self.swap(change, may_begin),
            Drift::WrongMode => {
                let message = format!(
                    "claim {} has another volumeMode than the template, and one cannot be copied to the \
                     other: delete this PvcAutoscaler and make it with that of its claims",
                    claim.name_any()
                );
                self.wait(AutoscalerReason::WrongMode, message);
            }
        }
    }

    fn grow(&mut self, claim: &PersistentVolumeClaim, size: Quantity) {
        let name = claim.name_any();
        if self.seen.autoscaler.spec.mode == AutoscalerMode::Recommend {
            let has = requested(claim);
            self.says.phase = Some(AutoscalerPhase::Recommending);
            self.says.next = Some(format!(
                "pod {}: claim {name} would grow, {has} → {size}; the pod goes on",
                self.pod()
            ));
            return;
        }
        self.says.phase = Some(AutoscalerPhase::Growing);
        self.steps.push(Step::Grow { claim: name, size });
    }

    /// The claim has to be another one: say so, and begin if it may.
    fn swap(&mut self, change: String, may_begin: &mut bool) {
        let (pod, name) = (self.pod(), self.entry.active_claim.clone());
        self.says.phase = Some(AutoscalerPhase::Waiting);
        self.says.next = Some(format!(
            "pod {pod} is stopped, its claim {name} is copied to a new one ({change}) and kept for {}",
            self.seen.autoscaler.spec.retention
        ));
        if self.seen.autoscaler.spec.mode == AutoscalerMode::Recommend {
            self.says.phase = Some(AutoscalerPhase::Recommending);
        }
        if let Some((reason, message)) = self.obstacle() {
            return self.wait(reason, message);
        }
        if !*may_begin || !self.is_in_partition() {
            return;
        }
        if let Some(other) = self.unready() {
            let message = format!(
                "pod {other} is not ready, so pod {pod} is not stopped: see `kubectl describe pod {other}`"
            );
            return self.wait(AutoscalerReason::PodNotReady, message);
        }
        *may_begin = false;
        let generation = self.entry.generation + 1;
        self.entry.swap = Some(Swap {
            phase: SwapPhase::Planned,
            claim: make::hashed_name(self.seen, self.entry.ordinal, generation),
            generation: self.seen.generation(),
            change,
            started_at: Some(Time(self.seen.now)),
            ..Swap::default()
        });
        self.prepare();
    }

    /// What makes a swap impossible, before anything is stopped.
    fn obstacle(&self) -> Option<(AutoscalerReason, String)> {
        let spec = &self.seen.autoscaler.spec;
        if self.seen.makes_claims() {
            let message = format!(
                "StatefulSet {} makes the claims by its own volumeClaimTemplates, so they can only grow: \
                 delete it with `kubectl delete statefulset {0} --cascade=orphan` and make it without \
                 template {}, which this PvcAutoscaler has; its claims are taken over",
                spec.stateful_set_name,
                self.seen.volume()
            );
            return Some((AutoscalerReason::ClaimsFixed, message));
        }
        let class = spec.volume_claim_template.spec.storage_class_name.as_ref()?;
        (!self.seen.classes.contains_key(class)).then(|| {
            let message = format!(
                "there is no StorageClass {class}: make it, or choose one of `kubectl get storageclass`"
            );
            (AutoscalerReason::ClassMissing, message)
        })
    }

    fn is_in_partition(&self) -> bool {
        let rollout = self.seen.autoscaler.spec.rollout.as_ref();
        rollout.is_none_or(|rollout| self.entry.ordinal >= rollout.partition)
    }

    /// Another pod that is not ready.
    fn unready(&self) -> Option<String> {
        let status = self.seen.autoscaler.status.as_ref()?;
        let mut others = status
            .ordinals
            .iter()
            .filter(|one| one.ordinal != self.entry.ordinal && self.seen.has_pod(one.ordinal));
        let other = others.find(|one| !self.seen.is_ready_with(one.ordinal, &one.active_claim))?;
        Some(self.seen.pod_name(other.ordinal))
    }

    fn swap_mut(&mut self) -> &mut Swap {
        self.entry.swap.get_or_insert_default()
    }

    fn new_claim(&self) -> String {
        self.entry.swap.as_ref().map(|swap| swap.claim.clone()).unwrap_or_default()
    }

    /// The new claim is made while the pod still runs: whoever forbids it does so before that is stopped.
    fn prepare(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let (name, from) = (self.new_claim(), self.entry.active_claim.clone());
        if !self.make_missing(&name, &from) {
            return;
        }
        let now = Time(self.seen.now);
        let swap = self.swap_mut();
        (swap.phase, swap.stopped_at) = (SwapPhase::Draining, Some(now));
        let text = format!(
            "pod {} is stopped, to get claim {name} for {from} ({})",
            self.pod(),
            self.swap_mut().change
        );
        self.tell(AutoscalerReason::SwapBegun, &name, text);
        self.copy();
    }

    /// Make what is missing for the copy; whether nothing was.
    fn make_missing(&mut self, name: &str, from: &str) -> bool {
        let (ordinal, size) = (self.entry.ordinal, size_of(self.seen, &self.entry));
        let claim = name.to_owned();
        if !self.seen.sources.contains_key(name) {
            let (claim, from) = (claim.clone(), from.to_owned());
            self.steps.push(Step::MakeSource { ordinal, claim, from });
        }
        let Some(there) = self.seen.claim(name) else {
            self.steps.push(Step::MakeCopy { ordinal, claim, size, from: from.to_owned() });
            return false;
        };
        if self.seen.keeps(there) {
            return self.seen.sources.contains_key(name);
        }
        let message = format!("claim {name} is somebody else's: delete it, or edit the template");
        self.wait(AutoscalerReason::ClaimTaken, message);
        false
    }

    /// Nobody may write to the old claim any more; what is in it is copied, and compared.
    fn copy(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let (name, from) = (self.new_claim(), self.entry.active_claim.clone());
        if !self.make_missing(&name, &from) {
            return;
        }
        let filling = self.seen.filling(&name).cloned().unwrap_or_default();
        let is_bound = self.seen.claim(&name).is_some_and(is_bound);
        match filling.phase {
            // Only what was compared becomes the active one, whoever has bound the claim.
            FillingPhase::Filled if is_bound => return self.switch(filling.digest),
            FillingPhase::Failed => return self.give_up(&filling.message.unwrap_or_default()),
            _ => {}
        }
        self.stop_writers(&from);
        let is_drained = self.seen.writers(&from).is_empty();
        let is_paused = self.seen.sources.get(&name).is_some_and(|source| source.spec.paused);
        if is_drained && is_paused {
            self.steps.push(Step::StartCopy { claim: name });
        }
        let waits = filling.message.filter(|_| is_drained);
        let swap = self.swap_mut();
        swap.phase = if is_drained { SwapPhase::FinalCopy } else { SwapPhase::Draining };
        (swap.progress, swap.message) = (filling.progress, waits.map(|text| bounded(&text)));
        let progress = swap.progress.clone().unwrap_or_else(|| format!("{:?}", swap.phase));
        self.says.progress = Some(format!("pod {}: {progress}", self.pod()));
    }

    /// Ask the pod to go; nobody else's pod is asked.
    fn stop_writers(&mut self, from: &str) {
        let ours = self.pod();
        for pod in self.seen.writers(from) {
            let name = pod.name_any();
            if name == ours && !is_ending(&pod.metadata) {
                self.steps.push(Step::Evict { pod: name, uid: uid(&pod.metadata).to_owned() });
            } else if name != ours {
                let message = format!(
                    "pod {name} writes to claim {from}, which is to be copied: stop it, or wait until it ends"
                );
                self.wait(AutoscalerReason::ClaimInUse, message);
            } else if let Some(message) = self.stuck(pod) {
                self.wait(AutoscalerReason::ClaimInUse, message);
            }
        }
    }

    /// A pod that was to end and has not: its node may be away, and then nobody knows whether it writes.
    fn stuck(&self, pod: &Pod) -> Option<String> {
        let Time(since) = pod.metadata.deletion_timestamp.as_ref()?;
        let late = self.seen.now.duration_since(*since) > SignedDuration::from_mins(1);
        let node = pod.spec.as_ref()?.node_name.clone().unwrap_or_default();
        late.then(|| {
            format!(
                "pod {} has not ended, and its claim is not copied before: look at node {node}; if it is \
                 switched off for good, `kubectl taint node {node} \
                 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute` lets its pods go",
                pod.name_any()
            )
        })
    }

    /// The new claim has all of the content: from here on it is the active one.
    fn switch(&mut self, digest: Option<String>) {
        let (name, from) = (self.new_claim(), self.entry.active_claim.clone());
        let old = self.seen.claim(&from).map(|claim| uid(&claim.metadata).to_owned());
        self.entry.retained.push(Retained {
            claim: from.clone(),
            uid: old.unwrap_or_default(),
            until: None,
        });
        self.entry.generation += 1;
        self.entry.active_claim.clone_from(&name);
        let swap = self.swap_mut();
        (swap.phase, swap.digest, swap.progress, swap.message) =
            (SwapPhase::Soaking, digest, None, None);
        let text =
            format!("pod {} has claim {name} for {from} ({})", self.pod(), self.swap_mut().change);
        self.tell(AutoscalerReason::Swapped, &name, text);
        self.soak();
    }

    /// The next pod is not stopped before this one is ready.
    fn soak(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let name = self.entry.active_claim.clone();
        let has_pod = self.seen.has_pod(self.entry.ordinal);
        if has_pod && !self.seen.is_ready_with(self.entry.ordinal, &name) {
            self.says.progress = Some(format!("pod {} starts with claim {name}", self.pod()));
            return;
        }
        // As long as the swap is told of, what it was made with is found.
        match self.seen.sources.contains_key(&name) {
            true => self.steps.push(Step::DropSource { claim: name }),
            false => self.entry.swap = None,
        }
    }

    fn give_up(&mut self, why: &str) {
        let swap = self.swap_mut();
        (swap.phase, swap.progress, swap.message) =
            (SwapPhase::RollingBack, None, Some(bounded(why)));
        self.roll_back();
    }

    /// Remove what was made. The pod that waits for the new claim was never started: it has no volume.
    fn roll_back(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let name = self.new_claim();
        let waiting = self.seen.pods.iter().filter(|pod| uses(pod, &name));
        for pod in waiting.filter(|pod| !is_ending(&pod.metadata)) {
            let (pod, uid) = (pod.name_any(), uid(&pod.metadata).to_owned());
            self.steps.push(Step::DropPod { pod, uid });
        }
        if let Some(claim) = self.seen.claim(&name) {
            if is_bound(claim) {
                let message = format!(
                    "claim {name} was bound by somebody although its copy had failed: look what is in it, \
                     and delete it"
                );
                return self.wait(AutoscalerReason::ClaimTaken, message);
            }
            if !is_ending(&claim.metadata) {
                self.steps.push(drop_unbound(claim));
            }
            return;
        }
        if self.seen.sources.contains_key(&name) {
            self.steps.push(Step::DropSource { claim: name });
            return;
        }
        let why = self.swap_mut().message.clone().unwrap_or_default();
        self.swap_mut().phase = SwapPhase::Failed;
        let text = format!("pod {} keeps claim {}: {why}", self.pod(), self.entry.active_claim);
        self.tell(AutoscalerReason::SwapFailed, &name, text);
        self.stay_failed();
    }

    fn stay_failed(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Failed);
        let why = self.entry.swap.as_ref().and_then(|swap| swap.message.clone());
        let message = format!(
            "the swap of pod {} has failed, and it has its old claim: {}; edit the template to have it \
             tried again",
            self.pod(),
            why.unwrap_or_default()
        );
        self.wait(AutoscalerReason::SwapFailed, message);
    }

    /// Claims that others have taken the place of go after their time, once that one was used.
    fn retire(&mut self) {
        let active = self.entry.active_claim.clone();
        let has_active = self.seen.claim(&active).is_some_and(is_bound);
        let is_used = has_active && self.seen.is_ready_with(self.entry.ordinal, &active);
        let keeps_for = self.seen.autoscaler.spec.retention.0;
        let until = SignedDuration::try_from(keeps_for).ok();
        let until = until.and_then(|keeps| self.seen.now.checked_add(keeps).ok()).map(Time);
        let seen = self.seen;
        let steps = &mut self.steps;
        self.entry.retained.retain_mut(|old| {
            let there = seen.claim(&old.claim).filter(|claim| uid(&claim.metadata) == old.uid);
            let Some(claim) = there else { return false };
            if !claim.annotations().contains_key(SUPERSEDED_BY) {
                let (claim, by) = (old.claim.clone(), active.clone());
                steps.push(Step::Supersede { claim, by });
            }
            if old.until.is_none() && is_used {
                old.until.clone_from(&until);
            }
            let is_over = old.until.as_ref().is_some_and(|Time(at)| *at <= seen.now);
            if is_over && has_active && !is_ending(&claim.metadata) {
                let (claim, uid) = (old.claim.clone(), old.uid.clone());
                steps.push(Step::DropClaim { claim, uid, unbound: None });
            }
            true
        });
    }
}

/// Delete a claim that has no volume, and only if it still has none by then.
pub(super) fn drop_unbound(claim: &PersistentVolumeClaim) -> Step {
    let uid = uid(&claim.metadata).to_owned();
    Step::DropClaim { claim: claim.name_any(), uid, unbound: claim.resource_version() }
}
