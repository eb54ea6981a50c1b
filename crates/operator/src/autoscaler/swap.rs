//! A swap: another claim takes the place of a pod's, with all that is in it. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::api::{
    AbortReason, AutoscalerMode, AutoscalerPhase, FenceState, Filling, FillingPhase, Retained,
    Swap, SwapPhase,
};
use crate::autoscaler::objects::{
    bounded, drop_as_seen, in_seconds, is_bound, is_copy, is_ending, is_fillable, is_on_node,
    is_unstarted, retained_from_now, seconds_for, uid, uses,
};
use crate::autoscaler::seen::ClockSeen;
use crate::autoscaler::steps::Step;
use crate::autoscaler::turn::Turn;
use crate::autoscaler::{AutoscalerReason, SUPERSEDED_BY};
use crate::cluster::KEPT_BY;
use crate::cluster::PodSummary;
use crate::populators::{self, PopulatorReason};

impl Turn<'_> {
    pub(super) fn new_claim(&self) -> String {
        self.entry.swap.as_ref().map(|swap| swap.claim.clone()).unwrap_or_default()
    }

    /// Stores the uid of the new claim, which is created for this swap.
    pub(super) fn note_new_claim(&mut self) {
        let is_ours = |claim: &&PersistentVolumeClaim| {
            is_copy(claim) && (self.seen.keeps(claim) || !claim.labels().contains_key(KEPT_BY))
        };
        let there = self.seen.claim(&self.new_claim()).filter(is_ours);
        let there = there.map(|claim| uid(&claim.metadata).to_owned());
        if let Some(swap) = self.entry.swap.as_mut().filter(|swap| !swap.is_rollback) {
            swap.claim_uid = swap.claim_uid.take().or(there);
        }
    }

    /// Creates what is missing for the copy; returns true if nothing was.
    pub(super) fn make_missing(&mut self, name: &str, from: &str) -> bool {
        let (ordinal, size) = (self.entry.ordinal, self.seen.size_of(&self.entry));
        let claim = name.to_owned();
        let is_known = self.entry.known_uid(name).is_some();
        if is_known && self.seen.taken.contains_key(name) {
            let message = format!(
                "claim {name} has another uid than the one that was created for the swap of pod {}: another \
                 client created it, so it is not used; delete it, or edit the template",
                self.pod()
            );
            self.wait(AutoscalerReason::ClaimConflict, message);
            return false;
        }
        if !self.seen.sources.contains_key(name) {
            let (claim, from) = (claim.clone(), from.to_owned());
            self.steps.push(Step::MakeSource { ordinal, claim, from });
        }
        let there = self.seen.claim(name).or_else(|| self.seen.taken.get(name));
        let Some(there) = there else {
            let Some(swap) = &mut self.entry.swap else { return false };
            swap.claim_uid = None;
            let (from, node) = (from.to_owned(), swap.node.clone());
            self.note_larger_size(size);
            self.steps.push(Step::MakeCopy { ordinal, claim, size, from, node });
            return false;
        };
        if self.seen.keeps(there) && is_copy(there) {
            return self.seen.sources.contains_key(name);
        }
        // It was made for this swap, and only the label was taken off, or changed, by which it is found.
        let known = self.entry.swap.as_ref().and_then(|swap| swap.claim_uid.as_deref());
        let is_known = known == Some(uid(&there.metadata));
        if is_copy(there) && (is_known || !there.labels().contains_key(KEPT_BY)) {
            self.steps.push(Step::Adopt { ordinal, claim });
            return false;
        }
        let message =
            format!("claim {name} belongs to another client: delete it, or edit the template");
        self.wait(AutoscalerReason::ClaimConflict, message);
        false
    }

    /// Copies and verifies the old claim, once nothing may write to it any more.
    pub(super) fn copy(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let (name, from) = (self.new_claim(), self.entry.active_claim.clone());
        if self.retreat() {
            return;
        }
        let filling = self.seen.filling(&name).cloned().unwrap_or_default();
        if let Some(why) = self.copies_another(&name) {
            if self.is_used(&name) {
                self.switch(filling.checksum);
            } else {
                self.give_up(&why);
            }
            return;
        }
        if !self.is_known_unused() && self.has_content(&name) {
            // What the pod writes there is nowhere else.
            if self.is_used(&name) {
                self.switch(filling.checksum);
            } else {
                self.give_up(&filled_too_early(&name, &from));
            }
            return;
        }
        // Its source was deleted after the copy was verified: a new one would report nothing.
        if self.seen.handed_over.contains(&name) && self.is_filled(&name) && !self.is_going(&name) {
            return if self.keeps_name() { self.begin_exchange(None) } else { self.switch(None) };
        }
        if self.ensure_cancelled(&from, &filling) || !self.make_missing(&name, &from) {
            return;
        }
        let is_of_use = self.seen.claim(&name).is_some_and(is_bound) && !self.is_going(&name);
        let is_paused = self.seen.sources.get(&name).is_some_and(|source| source.spec.paused);
        if !is_paused && !self.is_known_unused() {
            return self.give_up(&copied_too_early(&name));
        }
        match filling.phase {
            // Only a verified claim becomes the active one, whoever has bound it.
            FillingPhase::Succeeded if is_of_use && self.keeps_name() => {
                return self.begin_exchange(filling.checksum);
            }
            FillingPhase::Succeeded if is_of_use => return self.switch(filling.checksum),
            FillingPhase::Failed if !is_paused && self.seen.has_failed(&name) => {
                return self.fail(filling);
            }
            _ => {}
        }
        if let Some(why) = self.is_deleted(&from, filling.phase) {
            return self.give_up(&why);
        }
        self.end_rounds(&name, filling.phase);
        self.ensure_held(&from);
        self.stop_writers(&from);
        if !self.seen.writers(&from).is_empty() {
            self.go_on(SwapPhase::Draining, None, None);
        } else if self.prove_unused(&from) {
            if !self.keeps_name() {
                self.ensure_noted(&from); // Before it may begin.
            }
            self.tell_of_filling(&filling);
            self.report_slow_binding(&filling);
            // The status is of a source that this swap has unpaused, until that is reconciled once more.
            let paused = PopulatorReason::SourcePaused.to_string();
            let waits = filling.message.filter(|_| filling.reason != Some(paused));
            self.go_on(SwapPhase::FinalCopy, filling.progress, waits);
            self.steps.extend(is_paused.then_some(Step::StartCopy { claim: name }));
        } else {
            let waits = self.says.problem.clone().map(|(_, message)| message);
            self.go_on(SwapPhase::Fenced, None, waits);
        }
    }

    /// True if the new claim has its volume, or gets it.
    pub(super) fn has_content(&self, name: &str) -> bool {
        let filling = self.seen.filling(name).map(|filling| filling.phase);
        self.seen.claim(name).is_some_and(is_bound)
            || matches!(filling, Some(FillingPhase::Binding | FillingPhase::Succeeded))
    }

    /// Returns true if the new claim has a volume with the complete content, as the populator noted in its status
    /// or on the PersistentVolume: another client that binds the claim can write neither.
    pub(super) fn is_filled(&self, name: &str) -> bool {
        let is_told =
            self.seen.filling(name).is_some_and(|filling| filling.phase == FillingPhase::Succeeded);
        self.seen.claim(name).is_some_and(is_bound)
            && (is_told || self.seen.handed_over.contains(name))
    }

    /// Returns why the populator of the new claim is not the one of this swap: its source copies another claim.
    /// The source of a populator never changes, so another client has deleted that of the swap, and created this
    /// one.
    pub(super) fn copies_another(&self, name: &str) -> Option<String> {
        let (from, namespace) = (&self.entry.active_claim, self.seen.autoscaler.namespace());
        let its = &self.seen.sources.get(name)?.spec.source_pvc_ref;
        let is_own = its.name == *from && (its.namespace.is_none() || its.namespace == namespace);
        (!is_own && !self.returns()).then(|| {
            format!(
                "PvcSourcePopulator {name} copies claim {}, and not claim {from}: another client created it, \
                 so its copy is not used",
                its.name
            )
        })
    }

    /// Returns true if the new claim may have been populated from another claim than that of the
    /// pod.
    fn is_of_another(&self, name: &str) -> bool {
        let mut spare = self.entry.retained_claims.iter().filter(|old| old.never_used);
        self.copies_another(name).is_some() || spare.any(|old| old.name == name)
    }

    /// Returns true if the pod has a populated new claim: its writes exist nowhere else.
    fn is_used(&self, name: &str) -> bool {
        let is_on_it = |pod: &PodSummary| uses(pod, name) && is_on_node(pod);
        !self.keeps_name()
            && self.is_filled(name)
            && self.seen.pod(self.entry.ordinal).is_some_and(is_on_it)
    }

    /// True if a claim was deleted that no pod has: none can start with it any more.
    pub(super) fn is_going(&self, name: &str) -> bool {
        self.seen.claim(name).is_some_and(|claim| is_ending(&claim.metadata))
            && !self.seen.pods_with(name).any(is_on_node)
    }

    /// Returns true if a claim was deleted and its pods have not started on their nodes: no kubelet starts a pod
    /// with such a claim, and Kubernetes retains the claim while they exist.
    pub(super) fn holds_up_pods(&self, name: &str) -> bool {
        let is_deleted = self.seen.claim(name).is_some_and(|claim| is_ending(&claim.metadata));
        let mut pods = self.seen.pods_with(name).filter(|pod| is_on_node(pod));
        is_deleted && pods.all(is_unstarted)
    }

    /// Reports a pod with a deleted claim that may have started with it, and is not ready.
    fn report_deleted_claim(&mut self, name: &str) {
        let pod = self.pod();
        let is_deleted = self.seen.claim(name).is_some_and(|claim| is_ending(&claim.metadata));
        let has_it = |one: &PodSummary| one.name_any() == pod && is_on_node(one);
        if !is_deleted || !self.seen.pods_with(name).any(has_it) {
            return;
        }
        let then = match self.entry.before() {
            Some(before) => format!("the pod gets claim {} again", before.name),
            None => "the pod starts with an empty claim".to_owned(),
        };
        let message = format!(
            "claim {name} was deleted, and pod {pod} uses it and is not ready: Kubernetes retains the claim \
             until that pod ends; run `kubectl delete pod {pod}`, and {then}"
        );
        self.tell(AutoscalerReason::ClaimInUse, &self.attempt(), message.clone());
        self.wait(AutoscalerReason::ClaimInUse, message);
    }

    /// Updates the progress of the swap.
    pub(super) fn go_on(
        &mut self,
        phase: SwapPhase,
        progress: Option<String>,
        waits: Option<String>,
    ) {
        let said = progress.clone().unwrap_or_else(|| format!("{phase:?}"));
        self.says.progress = Some(format!("pod {}: {said}", self.pod()));
        let Some(swap) = &mut self.entry.swap else { return };
        (swap.phase, swap.progress, swap.message) =
            (phase, progress, waits.map(|text| bounded(&text)));
    }

    /// Ends the pre-copy, which has the old volume open.
    fn end_rounds(&mut self, name: &str, phase: FillingPhase) {
        let is_ahead = matches!(phase, FillingPhase::PreCopied | FillingPhase::Failed);
        let source = self.seen.sources.get(name).filter(|_| !is_ahead);
        if source.is_some_and(|source| source.spec.paused && source.spec.pre_copy) {
            self.steps.push(Step::EndRounds { claim: name.to_owned() });
        }
    }

    /// Evicts the pod; pods of others are not evicted.
    pub(super) fn stop_writers(&mut self, from: &str) {
        let ours = self.seen.pod(self.entry.ordinal).map(|pod| uid(&pod.metadata));
        for pod in self.seen.writers(from) {
            let name = pod.name_any();
            let is_ours = Some(uid(&pod.metadata)) == ours;
            if is_ours && !is_ending(&pod.metadata) {
                if !self.ensure_may_evict() {
                    continue;
                }
                let uid = uid(&pod.metadata).to_owned();
                self.steps.push(Step::Evict { pod: name, uid, within: seconds_for(pod) });
            } else if !is_ours {
                let message = format!(
                    "pod {name} writes to claim {from}, which is to be copied: stop it, or wait until it ends"
                );
                self.wait(AutoscalerReason::ClaimInUse, message);
            } else if let Some(message) = self.stuck(pod) {
                self.wait(AutoscalerReason::ClaimInUse, message);
            }
        }
    }

    /// Returns why a pod has not terminated: its node may not respond, and then it is unknown whether
    /// the pod writes.
    fn stuck(&self, pod: &PodSummary) -> Option<String> {
        let why = format!(
            "pod {} has not ended, and its claim is not copied until it has",
            pod.name_any()
        );
        self.why_unended(pod).map(|look| format!("{why}: {look}"))
    }

    /// Returns where to look for a deleted pod that has not terminated in time.
    fn why_unended(&self, pod: &PodSummary) -> Option<String> {
        let Time(since) = pod.metadata.deletion_timestamp.as_ref()?;
        let late = self.seen.now.duration_since(*since) > SignedDuration::from_mins(1);
        let node = pod.spec.as_ref()?.node_name.as_deref().unwrap_or("NODE");
        late.then(|| {
            format!(
                "check node {node}; if it is switched off for good, `kubectl taint node {node} \
                 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute` releases its pods"
            )
        })
    }

    /// Reports a copying pod of an aborted swap that does not terminate.
    fn report_unended_copy(&mut self, name: &str, from: &str) {
        let copy = self.seen.claim(name).map(|claim| uid(&claim.metadata));
        let is_its = |pod: &&PodSummary| {
            populators::fills(pod) && (uses(pod, from) || populators::claim_filled_by(pod) == copy)
        };
        let mut unended = self.seen.pods.iter().filter(is_its);
        let unended = unended.find_map(|pod| Some((pod.name_any(), self.why_unended(pod)?)));
        if let Some((pod, look)) = unended {
            let message = format!(
                "the swap of pod {} is being aborted, but pod {pod}, which copied claim {from}, was deleted \
                 and has not ended: {look}",
                self.pod()
            );
            self.wait(AutoscalerReason::PopulatorPodPending, message);
        }
    }

    /// The new claim has all of the content: from here on it is the active one.
    fn switch(&mut self, digest: Option<String>) {
        let (name, from) = (self.new_claim(), self.entry.active_claim.clone());
        let old = self.seen.claim(&from).map(|claim| uid(&claim.metadata).to_owned());
        let last = self.last_fence(&from);
        self.entry.retained_claims.push(Retained {
            name: from.clone(),
            uid: old.unwrap_or_default(),
            fence: last,
            ..Retained::default()
        });
        self.entry.claim_revision += 1;
        self.entry.active_claim.clone_from(&name);
        let Some(swap) = &mut self.entry.swap else { return };
        (swap.phase, swap.checksum, swap.progress, swap.message) =
            (SwapPhase::Soaking, digest, None, None);
        (swap.fence, swap.detached_time, swap.abort_reason) = (None, None, None);
        self.soak();
    }

    /// The next pod is not stopped before this one is ready.
    pub(super) fn soak(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let name = self.entry.active_claim.clone();
        if self.has_lost_claim() {
            return self.replace_lost_claim();
        }
        let has_pod = self.seen.has_pod(self.entry.ordinal);
        if has_pod && !self.seen.is_ready_with(self.entry.ordinal, &name) {
            self.says.progress = Some(format!("pod {} starts with claim {name}", self.pod()));
            self.report_deleted_claim(&name);
            return;
        }
        if self.asks_for_less_than_it_has(&name) {
            return;
        }
        let new = self.new_claim();
        if self.entry.last_swap.as_ref().is_none_or(|last| last.claim != new) {
            self.sum_up(&name, &new);
        }
        if !self.keeps_name() && !self.returns() && !self.ensure_noted(&name) {
            return;
        }
        // While the status has the swap, its objects can be found. Until the old claim names its replacement,
        // the source of that does.
        if self.seen.sources.contains_key(&new) {
            let is_told = self.entry.before().is_none_or(|old| {
                let claim = self.seen.claim(&old.name);
                let is_marked = claim.is_none_or(|it| it.annotations().contains_key(SUPERSEDED_BY));
                is_marked || self.is_needed_again(&old.name)
            });
            self.steps.extend(is_told.then_some(Step::DropSource { claim: new }));
        } else {
            self.entry.swap = None;
        }
    }

    /// Returns the identity of an attempt: each has its own events.
    pub(super) fn attempt(&self) -> String {
        let begun = self.entry.swap.as_ref().and_then(|swap| swap.start_time.as_ref());
        let begun = begun.map_or(0, |Time(at)| at.as_second());
        format!("{}/{begun}", self.new_claim())
    }

    /// The copy has failed.
    pub(super) fn fail(&mut self, filling: Filling) {
        let Some(swap) = &mut self.entry.swap else { return };
        swap.failures += 1;
        swap.reason = filling.reason;
        self.give_up(&filling.message.unwrap_or_default());
    }

    pub(super) fn give_up(&mut self, why: &str) {
        let Some(swap) = &mut self.entry.swap else { return };
        (swap.phase, swap.progress, swap.message) =
            (SwapPhase::RollingBack, None, Some(bounded(why)));
        self.call_back();
        self.roll_back();
    }

    /// Removes what was created, or retains it if a user has given it a volume. A pod that waits for the new claim
    /// is replaced once the old one is its own again.
    pub(super) fn roll_back(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        self.says.progress = Some(format!("pod {}: RollingBack", self.pod()));
        let name = self.new_claim();
        if self.is_whole_after_all(&name) {
            let filling = self.seen.filling(&name).cloned().unwrap_or_default();
            self.entry.retained_claims.retain(|old| old.name != name);
            return self.switch(filling.checksum);
        }
        let copy = self.seen.claim(&name).filter(|claim| !self.returns() && is_fillable(claim));
        self.steps.extend(copy.map(drop_as_seen));
        self.report_unended_copy(&name, &self.entry.active_claim.clone());
        if !self.ensure_given_back() || self.has_taken_claim() {
            return;
        }
        // No pod can start with a deleted claim without a volume, and nothing is written to it: that may take
        // until the node of a populator pod responds.
        let goes_empty =
            |claim: &PersistentVolumeClaim| is_ending(&claim.metadata) && !is_bound(claim);
        let is_going = self.seen.claim(&name).is_some_and(goes_empty) || self.is_going(&name);
        let is_spare = self.retains_spare(&name);
        if self.keeps_name() || self.returns() || is_going || is_spare {
            self.note_fence(None); // Its pod may start, whatever becomes of the copy.
        }
        if self.returns() {
            self.close_again();
            return self.end_roll_back();
        }
        let is_named = |pod: &PodSummary| uses(pod, &name);
        if is_spare && self.seen.pod(self.entry.ordinal).is_some_and(is_named) {
            return; // It is replaced first: without our gate it may still start.
        }
        if let Some(claim) = self.seen.claim(&name).filter(|_| !is_spare) {
            if self.keeps_name() && is_bound(claim) {
                let message = format!(
                    "claim {name} has a copy that is not used: check its content, and delete it"
                );
                self.wait(AutoscalerReason::ClaimConflict, message);
            } else if is_bound(claim) {
                let message = format!(
                    "claim {name} has a volume that was not populated by a copy: another client bound it, and \
                     a pod may have written to it; copy what you need out of it before you delete it"
                );
                self.wait(AutoscalerReason::ClaimConflict, message);
            }
            return;
        }
        if self.seen.sources.contains_key(&name) {
            self.steps.push(Step::DropSource { claim: name });
            return;
        }
        self.end_roll_back();
    }

    /// Returns true if the swap continues although it was aborted: the new claim is complete after all, and
    /// nothing was written to the old one since.
    fn is_whole_after_all(&self, name: &str) -> bool {
        if self.returns() || self.keeps_name() || !self.is_filled(name) || self.is_going(name) {
            return false;
        }
        let fence = self.entry.swap.as_ref().and_then(|swap| swap.fence);
        let is_closed = fence.is_some_and(|fence| fence.state == FenceState::Superseded);
        self.is_used(name) || is_closed && self.is_known_unused() && !self.is_of_another(name)
    }

    /// Retains a new claim with a volume that no pod could use, for as long as an old one; returns true if so. A
    /// user started its copy too early or from another claim, or bound it.
    fn retains_spare(&mut self, name: &str) -> bool {
        let may_lack = !self.is_known_unused() || self.is_of_another(name);
        let claim = self.seen.claim(name).filter(|_| !self.returns() && may_lack);
        let is_spare = |claim: &&PersistentVolumeClaim| {
            let is_used = self.seen.pods_with(name).any(is_on_node);
            is_bound(claim) && !is_ending(&claim.metadata) && !is_used
        };
        let Some(claim) = claim.filter(is_spare) else { return false };
        if self.entry.retained_claims.iter().all(|old| old.name != name) {
            self.entry
                .retained_claims
                .push(Retained { never_used: true, ..retained_from_now(claim) });
        }
        true
    }

    /// Ends the rollback of a swap: it has failed, if its pod was affected.
    fn end_roll_back(&mut self) {
        self.says.progress = None;
        let generation = self.seen.generation();
        let Some(swap) = &mut self.entry.swap else { return };
        let is_aborted = swap.abort_reason == Some(AbortReason::Requested);
        if !is_aborted && swap.pod_stop_time.is_none() && swap.spec_generation != generation {
            self.entry.swap = None; // Its pod knows nothing of it, and another template is wanted by now.
            return;
        }
        if matches!(swap.abort_reason, Some(AbortReason::Requested | AbortReason::TemplateEdited)) {
            return self.end_cancelled();
        }
        let why = swap.message.clone().unwrap_or_default();
        let next_retry_time =
            retry_after(swap).and_then(|after| self.seen.now.checked_add(after).ok());
        (swap.phase, swap.next_retry_time) =
            (SwapPhase::Failed, next_retry_time.map(|at| Time(in_seconds(at))));
        let text =
            format!("pod {} still uses claim {}: {why}", self.pod(), self.entry.active_claim);
        self.tell(AutoscalerReason::SwapFailed, &self.attempt(), text);
        self.stay_failed();
    }

    pub(super) fn stay_failed(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Failed);
        let swap = self.entry.swap.clone().unwrap_or_default();
        let why = swap.message.clone().unwrap_or_default();
        let again = match &swap.next_retry_time {
            Some(Time(at)) if *at <= self.seen.now => "a retry is due".to_owned(),
            Some(Time(at)) => {
                format!("it is retried at {at}, and as soon as the template is edited")
            }
            None => "edit the template to retry it".to_owned(),
        };
        let message = format!(
            "the swap of pod {} has failed, and the pod has its old claim: {why}; {again}",
            self.pod()
        );
        self.wait(AutoscalerReason::SwapFailed, message);
    }

    /// The time has come for another try. It begins as the first one did, as soon as a pod may be stopped for
    /// it; until then it stays the one that has failed.
    pub(super) fn try_again(&mut self, may_stop: &mut usize) {
        let failed = self.entry.swap.take();
        self.failures = failed.as_ref().map_or(0, |swap| swap.failures);
        self.keep(may_stop);
        let claim = self.seen.claim(&self.entry.active_claim);
        let is_wanted = claim.is_some_and(|claim| self.wants_another(claim));
        if self.entry.swap.is_none() && !self.entry.is_shrinking() && is_wanted {
            self.entry.swap = failed;
            if self.says.problem.is_none() {
                self.stay_failed();
            }
        }
    }

    /// Claims that others have taken the place of go after their time, counted from when that one was used first.
    /// None goes while a person has reason to want it back: nothing is to be changed, or the pod is not ready. As
    /// long as the clock was not found to be that of the API server no time is written, and nothing goes by it.
    pub(super) fn retire(&mut self) {
        let (seen, spec) = (self.seen, &self.seen.autoscaler.spec);
        let active = self.entry.active_claim.clone();
        let has_active = seen.claim(&active).is_some_and(is_bound);
        let is_used = has_active && seen.is_ready_with(self.entry.ordinal, &active);
        let is_paused = spec.rollout.as_ref().is_some_and(|rollout| rollout.paused);
        let may_delete = is_used && !is_paused && spec.mode == AutoscalerMode::Enforce;
        let retained = self.entry.retained_claims.iter().map(|old| &old.name);
        let needed: BTreeSet<String> =
            retained.filter(|claim| self.is_needed_again(claim)).cloned().collect();
        let steps = &mut self.steps;
        self.entry.retained_claims.retain_mut(|old| {
            let there = seen.claim(&old.name).filter(|claim| uid(&claim.metadata) == old.uid);
            let Some(claim) = there else { return false };
            let is_needed = needed.contains(&old.name);
            if !is_needed && !claim.annotations().contains_key(SUPERSEDED_BY) {
                // A claim to be released gets a single write too: the first of two would make the second one
                // stale.
                let let_go = steps.iter_mut().find_map(|step| match step {
                    Step::LetGo { claim, superseded_by, .. } if *claim == old.name => {
                        Some(superseded_by)
                    }
                    _ => None,
                });
                if let Some(superseded_by) = let_go {
                    *superseded_by = Some(active.clone());
                } else {
                    let (claim, by) = (old.name.clone(), active.clone());
                    steps.push(Step::Supersede { claim, by });
                }
            }
            if seen.clock != ClockSeen::Agrees {
                return true;
            }
            if old.replacement_ready_time.is_none() && is_used {
                old.replacement_ready_time = Some(Time(in_seconds(seen.now)));
            }
            let is_over = old.until(spec.retention).is_some_and(|at| at <= seen.now);
            if is_over && may_delete && !is_needed && !is_ending(&claim.metadata) {
                steps.push(drop_as_seen(claim));
            }
            true
        });
    }
}

/// Returns why a copy that a user started is not used.
pub(super) fn copied_too_early(name: &str) -> String {
    format!(
        "another client set spec.paused of PvcSourcePopulator {name} to false, so it may have been copied \
         while the pod was writing"
    )
}

/// Returns why a new claim is not used that got its volume before the old one was proved unused.
pub(super) fn filled_too_early(name: &str, from: &str) -> String {
    format!(
        "claim {name} got its volume before claim {from} was proved unused, so it may lack later writes, and \
         is not used"
    )
}

/// Maximum number of consecutive failures of a swap.
const TRIES: i32 = 4;

/// Returns the delay before a failed swap is retried: one hour, then four, then sixteen, because each
/// attempt stops the pod. Rejected and impossible ones are not retried, as they would fail again.
fn retry_after(swap: &Swap) -> Option<SignedDuration> {
    let may_pass = [PopulatorReason::ChecksumMismatch, PopulatorReason::BackoffLimitExceeded];
    let may_pass = swap.abort_reason == Some(AbortReason::NoProgress)
        || may_pass.iter().any(|reason| Some(reason.to_string()) == swap.reason);
    let hours = 4_i64.checked_pow(u32::try_from(swap.failures - 1).ok()?)?;
    (may_pass && swap.failures < TRIES).then(|| SignedDuration::from_hours(hours))
}
