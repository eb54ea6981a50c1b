//! Rolls a pod back to what it had before its last swap, on request: nothing is copied, and later writes are
//! not part of it. Pure.
//!
//! Its claim is left as an old one is in a swap: the pod is stopped, and its node proves that no process has
//! the volume open. Then the node of the previous volume removes its fence, and only after that the pod may
//! start. It waits behind a scheduling gate meanwhile.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::api::{
    AutoscalerMode, AutoscalerPhase, FenceState, OrdinalStatus, PvcAutoscalerSpec, Retained,
    RollbackStatus, Swap, SwapPhase,
};
use crate::autoscaler::objects::{in_seconds, is_bound, is_ending, uid};
use crate::autoscaler::seen::Seen;
use crate::autoscaler::steps::Step;
use crate::autoscaler::turn::Turn;
use crate::autoscaler::whole::may_begin;
use crate::autoscaler::{AutoscalerReason, SUPERSEDED_BY};
use crate::cluster::{Binding, ClaimSizes};
use crate::volume::Fence;

/// Returns true if a pod was rolled back from the present template, so that it is not changed.
pub fn is_rolled_back(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    one.rollback.as_ref().is_some_and(|done| done.template_hash == digest(spec))
}

/// Returns true if a rollback of a pod is requested.
pub fn is_wanted_back(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    let mut asked = spec.rollback.iter();
    asked.any(|back| (back.ordinal, back.claim_revision) == (one.ordinal, one.claim_revision))
}

/// A digest of the template, without the labels and annotations of its claims.
pub(super) fn digest(spec: &PvcAutoscalerSpec) -> String {
    let written = serde_json::to_vec(&spec.volume_claim_template.spec).unwrap_or_default();
    let digest = Sha256::digest(written);
    let first = <[u8; 8]>::try_from(&digest[..8]).unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}

/// Returns why a claim that was not deleted has no volume, with the remediation.
fn lacks_volume(claim: &PersistentVolumeClaim) -> String {
    if Binding::of(claim) != Binding::Lost {
        return "is not bound yet: see `kubectl describe pvc` for it".to_owned();
    }
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    format!(
        "is Lost, because its PersistentVolume {} was deleted: create that again as it was, for example from a \
         backup, with uid {} in spec.claimRef, and the claim is bound to it again",
        volume.unwrap_or("NAME"),
        uid(&claim.metadata)
    )
}

impl Seen {
    /// Returns true if a pod was rolled back from the present template.
    pub fn is_rolled_back(&self, one: &OrdinalStatus) -> bool {
        is_rolled_back(&self.autoscaler.spec, one)
    }

    /// Returns true if a rollback of a pod is requested.
    pub fn is_wanted_back(&self, one: &OrdinalStatus) -> bool {
        is_wanted_back(&self.autoscaler.spec, one)
    }
}

impl Turn<'_> {
    /// Returns true if the present swap is a rollback.
    pub(super) fn returns(&self) -> bool {
        self.entry.swap.as_ref().is_some_and(|swap| swap.is_rollback)
    }

    /// Returns true if the pod is to be rolled back, and nothing is in progress for that.
    pub(super) fn is_to_return(&self) -> bool {
        self.seen.is_wanted_back(&self.entry) && !self.returns() && !self.entry.is_shrinking()
    }

    /// Returns true if a claim has the content for a requested or running rollback.
    pub(super) fn is_needed_again(&self, claim: &str) -> bool {
        let is_before = self.entry.before().is_some_and(|before| before.name == claim);
        self.returns() && self.new_claim() == claim
            || is_before && self.seen.is_wanted_back(&self.entry)
    }

    /// Returns true if the rollback can start now, or a swap is to be aborted for it.
    pub(super) fn may_return(&self, may_stop: usize) -> bool {
        let may = match self.entry.swap.as_ref().map(|swap| swap.phase) {
            None | Some(SwapPhase::Failed) => may_begin(self.seen) && may_stop > 0,
            // Its pod counts as stopped already.
            Some(SwapPhase::Soaking) => may_begin(self.seen),
            Some(_) => true,
        };
        may && self.obstacle_to_return().is_none()
    }

    /// Reports what a rollback would do, or what prevents it.
    pub(super) fn tell_of_return(&mut self) {
        if let Some(why) = self.obstacle_to_return() {
            return self.wait(AutoscalerReason::RollbackPending, why);
        }
        let is_recommended = self.seen.autoscaler.spec.mode == AutoscalerMode::DryRun;
        self.says.phase =
            Some(if is_recommended { AutoscalerPhase::DryRun } else { AutoscalerPhase::Waiting });
        let before = self.entry.before().map(|before| before.name.clone());
        self.says.planned_action = before.map(|before| self.what_is_left(&before));
    }

    fn obstacle_to_return(&self) -> Option<String> {
        let Some(before) = self.entry.before() else {
            return Some(format!(
                "pod {} is to be rolled back from claim revision {}, but what it had before is no longer retained: \
                 remove the pod from spec.rollback",
                self.pod(),
                self.entry.claim_revision
            ));
        };
        self.lacks_before(&before.name, &before.uid).or_else(|| self.lacks_webhook())
    }

    /// Turns to a rollback from any phase of a swap: an unfinished one is aborted first.
    pub(super) fn turn_round(&mut self, may_stop: &mut usize) {
        match self.entry.swap.as_ref().map(|swap| swap.phase) {
            None | Some(SwapPhase::Failed) => {
                *may_stop -= 1;
                self.begin_return();
            }
            Some(SwapPhase::Soaking) => self.begin_return(),
            Some(SwapPhase::RollingBack) => self.roll_back(),
            Some(SwapPhase::Rebinding) => self.exchange(),
            Some(_) => self.give_up("requested in spec.rollback"),
        }
    }

    /// Counts earlier requests as done if the status does not show any yet: an earlier version did not store them,
    /// and it is unknown whether they came too late.
    pub(super) fn note_wishes_before(&mut self) {
        let (ordinal, revision) = (self.entry.ordinal, self.entry.claim_revision);
        let asked = self.seen.autoscaler.spec.rollback.iter();
        let asked = asked.filter(|back| back.ordinal == ordinal && back.claim_revision < revision);
        let done = || asked.map(|back| back.claim_revision).max().unwrap_or_default();
        if !self.seen.names_claims() {
            self.entry.last_rollback_revision.get_or_insert_with(done);
        }
    }

    /// Reports a rollback request that came too late, until it is removed from the specification: the swap could
    /// not be aborted any more, so the pod has another claim revision now.
    pub(super) fn report_late_return(&mut self) {
        let (ordinal, revision) = (self.entry.ordinal, self.entry.claim_revision);
        let asked = self.seen.autoscaler.spec.rollback.iter();
        let asked = asked.filter(|back| back.ordinal == ordinal && back.claim_revision < revision);
        let asked = asked.map(|back| Some(back.claim_revision)).max().flatten();
        let Some(late) = asked.filter(|_| asked > self.entry.last_rollback_revision) else {
            return;
        };
        let message = self.too_late_to_return(late, revision);
        self.tell(AutoscalerReason::RollbackPending, &late.to_string(), message.clone());
        match self.says.problem.take() {
            None => self.wait(AutoscalerReason::RollbackPending, message),
            Some((reason, why)) => self.wait(reason, format!("{why}; {message}")),
        }
    }

    fn too_late_to_return(&self, late: i64, now: i64) -> String {
        let (name, namespace) =
            (self.seen.autoscaler.name_any(), self.seen.autoscaler.namespace().unwrap_or_default());
        let ordinal = self.entry.ordinal;
        format!(
            "pod {} was to be rolled back from claim revision {late}, but the content of its next claim was \
             already complete, so that swap went on. To restore what the pod had before that, set claimRevision \
             {now} in spec.rollback: `kubectl patch pvcautoscaler {name} --namespace {namespace} --type=merge \
             -p '{{\"spec\":{{\"rollback\":[{{\"ordinal\":{ordinal},\"claimRevision\":{now}}}]}}}}'`; otherwise \
             remove revision {late} from it",
            self.pod()
        )
    }

    fn begin_return(&mut self) {
        let Some(before) = self.entry.before_mut() else { return };
        before.fence = None; // It is to be opened, and no longer to be closed.
        let (claim, claim_uid) = (before.name.clone(), Some(before.uid.clone()));
        // Where the claim retains its name, the two exchange volumes, and neither claim changes.
        let active_claim_uid = self.uid_of_active().filter(|_| !self.seen.makes_claims());
        self.says.planned_action = Some(self.what_is_left(&claim));
        (self.entry.peak_usage, self.entry.shrink) = (None, None);
        self.entry.swap = Some(Swap {
            claim,
            claim_uid,
            active_claim_uid,
            preserves_name: self.seen.makes_claims(),
            is_rollback: true,
            spec_generation: self.seen.generation(),
            summary: format!("rollback from claim revision {}", self.entry.claim_revision),
            start_time: Some(Time(in_seconds(self.seen.now))),
            ..Swap::default()
        });
        self.go_back();
    }

    /// Uid of the active claim, also of one that was deleted in the midst of a swap.
    fn uid_of_active(&self) -> Option<String> {
        let active = &self.entry.active_claim;
        let there = || self.seen.claim(active).map(|claim| uid(&claim.metadata));
        self.entry.known_uid(active).or_else(there).map(str::to_owned)
    }

    /// True if the claim was deleted that a swap has given the pod, so that this starts no more: nothing makes that
    /// claim again, which would have nothing of its content.
    pub(super) fn has_lost_claim(&self) -> bool {
        let active = &self.entry.active_claim;
        let is_lost = self.seen.claim(active).is_none() || self.holds_up_pods(active);
        is_lost && !self.keeps_name()
    }

    /// Gives the pod its claim from before the swap. If that was deleted too, it starts with an empty claim, as
    /// after any other deletion of its claim.
    pub(super) fn replace_lost_claim(&mut self) {
        // Of one that has begun to be counted another claim has taken the place since.
        let before = self.entry.before().filter(|old| old.replacement_ready_time.is_none());
        let before = before.map(|old| (old.name.clone(), old.uid.clone()));
        let there = before.filter(|(name, uid)| {
            let there = self.seen.claim(name).filter(|claim| !is_ending(&claim.metadata));
            there.is_some_and(|claim| self::uid(&claim.metadata) == uid)
        });
        let Some((before, uid)) = there else { return self.begin_anew() };
        if let Some(why) = self.lacks_before(&before, &uid) {
            let message = format!(
                "claim {} of pod {} was deleted before the pod was ready with it, and {why}; or start with an \
                 empty claim: `kubectl delete pvc {before}`",
                self.entry.active_claim,
                self.pod()
            );
            self.tell(AutoscalerReason::SwapFailed, &self.attempt(), message.clone());
            return self.wait(AutoscalerReason::SwapFailed, message);
        }
        let text = self.lost_claim(&before);
        self.tell(AutoscalerReason::SwapFailed, &before, text);
        self.begin_return();
    }

    /// Starts with an empty claim, because the present and the previous claim are gone, unless another client's
    /// claim has the name.
    fn begin_anew(&mut self) {
        let active = self.entry.active_claim.clone();
        if !self.seen.taken.contains_key(&active) {
            self.entry.swap = None;
            return;
        }
        let message = format!(
            "claim {active} of pod {} was deleted, and so was its previous claim. Another client created the \
             claim that has the name now, so the pod does not get it. Delete it, and the pod starts with an \
             empty claim: `kubectl delete pvc {active}`",
            self.pod()
        );
        self.wait(AutoscalerReason::ClaimConflict, message);
    }

    /// Returns why a pod is rolled back without a request.
    fn lost_claim(&self, before: &str) -> String {
        let active = &self.entry.active_claim;
        let taken = if self.seen.taken.contains_key(active) {
            "; another client created the claim that has the name now, so that claim is not used"
        } else {
            ""
        };
        format!(
            "claim {active} of pod {} was deleted before the pod was ready with it, so the pod gets claim {before} \
             again, as it was before the swap{taken}",
            self.pod()
        )
    }

    /// Describes the rollback for users.
    fn what_is_left(&self, before: &str) -> String {
        let (pod, from) = (self.pod(), &self.entry.active_claim);
        let since = self.entry.last_swap.as_ref().and_then(|last| last.completion_time.as_ref());
        let since = since.map(|Time(at)| format!(" since {}", in_seconds(*at))).unwrap_or_default();
        let what = if self.seen.makes_claims() {
            format!("claim {from} gets the volume of claim {before} again")
        } else {
            format!("it gets claim {before} again in place of {from}")
        };
        let rest = if self.is_gone(from) {
            format!("is lost with claim {from}")
        } else {
            format!("is retained for {}", self.seen.autoscaler.spec.retention)
        };
        format!(
            "pod {pod} is stopped, and {what}, as it was; what was written{since} is not in it, and {rest}"
        )
    }

    /// Returns why a previous claim cannot be used again.
    fn lacks_before(&self, claim: &str, uid: &str) -> Option<String> {
        let there = self.seen.claim(claim).filter(|there| self::uid(&there.metadata) == uid);
        let what = format!("claim {claim}, which has the previous content of pod {},", self.pod());
        let why = match there {
            Some(there) if !is_ending(&there.metadata) && is_bound(there) => return None,
            Some(there) if !is_ending(&there.metadata) => lacks_volume(there),
            _ => "was deleted".to_owned(),
        };
        let is_asked = self.seen.is_wanted_back(&self.entry);
        let instead = if is_asked { "; or remove the pod from spec.rollback" } else { "" };
        Some(format!("{what} {why}{instead}"))
    }

    /// Returns why the webhook cannot delay a pod that starts meanwhile.
    fn lacks_webhook(&self) -> Option<String> {
        let why = self.seen.coverage.lacks()?;
        Some(format!("the start of pod {} cannot be delayed meanwhile: {why}", self.pod()))
    }

    /// Stops the pod, proves that nothing uses its volume, and opens the previous one.
    pub(super) fn go_back(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let (to, from) = (self.new_claim(), self.entry.active_claim.clone());
        let known = self.entry.retained_claims.iter().find(|old| old.name == to);
        let known = known.map(|old| old.uid.clone()).unwrap_or_default();
        if let Some(why) = self.lacks_before(&to, &known) {
            return if self.has_lost_claim() { self.begin_anew() } else { self.give_up(&why) };
        }
        if self.has_lost_claim() {
            let why = self.lost_claim(&to);
            self.wait(AutoscalerReason::SwapFailed, why);
        }
        if self.retreat() {
            return;
        }
        let is_begun = self.entry.swap.as_ref().is_some_and(|swap| swap.pod_stop_time.is_some());
        if !is_begun && self.wait_for_siblings() {
            return self.go_on(SwapPhase::Pending, None, None);
        }
        let is_kept = self.is_gone(&from) || self.ensure_held(&from);
        if !is_begun && !is_kept {
            return self.go_on(SwapPhase::Pending, None, None);
        }
        if !is_begun {
            self.note_stopped();
            if let Some(swap) = &mut self.entry.swap {
                swap.pod_stop_time = Some(Time(self.seen.now));
            }
            let text = self.what_is_left(&to);
            self.tell(AutoscalerReason::SwapStarted, &self.attempt(), text);
        }
        let has_other = !self.has_lost_claim();
        if let Some(why) = self.returns_too_slowly(&from).filter(|_| is_begun && has_other) {
            return self.give_up(&why);
        }
        self.stop_writers(&from);
        // A pod that was made until this is written is scheduled with what is left.
        if !is_begun || !self.seen.writers(&from).is_empty() {
            return self.go_on(SwapPhase::Draining, None, None);
        }
        // No pod can start with a claim that is not there.
        let is_left = self.seen.claim(&from).is_none() || self.prove_unused(&from);
        // The claim is written last: another replica that has decided to delete it after its retention then no
        // longer does.
        if is_left
            && self.ensure_free(&to)
            && self.ensure_reactivated(&to)
            && self.ensure_reinstated(&to)
        {
            return if self.keeps_name() { self.begin_exchange(None) } else { self.switch_back() };
        }
        let waits = self.says.problem.clone().map(|(_, message)| message);
        self.go_on(SwapPhase::Fenced, None, waits);
    }

    /// Returns true if a user has deleted the claim, so that it is not retained.
    fn is_gone(&self, claim: &str) -> bool {
        self.seen.claim(claim).is_none_or(|there| is_ending(&there.metadata))
    }

    /// Waits until no other pod uses the claim of a rollback; returns true once that is so.
    fn ensure_free(&mut self, claim: &str) -> bool {
        let (ours, seen) = (self.pod(), self.seen);
        let others = seen.writers(claim).into_iter().map(ResourceExt::name_any);
        let Some(other) = others.into_iter().find(|name| *name != ours) else { return true };
        let message = format!(
            "pod {other} uses claim {claim}, which pod {ours} is to get again: stop pod {other}, or wait until \
             it ends"
        );
        self.wait(AutoscalerReason::ClaimInUse, message);
        false
    }

    /// Requests that the node of a superseded volume admits the pod again; returns true once it does.
    fn ensure_reactivated(&mut self, claim: &str) -> bool {
        let seen = self.seen;
        let Some(looked_up) = seen.volumes.get(claim) else { return false };
        let Some(volume) = looked_up else { return true };
        let Some(asked) = self.entry.swap.as_ref().map(|swap| swap.reactivated_volume) else {
            return false;
        };
        let fence = match asked {
            Some(fence) => self.renumbered(volume, fence),
            None => self.next_fence(volume, FenceState::Active, false),
        };
        if let Some(swap) = &mut self.entry.swap {
            swap.reactivated_volume = Some(fence);
        }
        if volume.is(&Fence::from(&fence)) {
            return true;
        }
        self.ask(volume, fence);
        false
    }

    /// Makes the previous claim the active one, and retains the other one for its time.
    fn switch_back(&mut self) {
        let (to, from) = (self.new_claim(), self.entry.active_claim.clone());
        let left = self.seen.claim(&from).map(|claim| uid(&claim.metadata).to_owned());
        let fence = self.last_fence(&from);
        self.entry.retained_claims.retain(|old| old.name != to);
        let left =
            Retained { name: from, uid: left.unwrap_or_default(), fence, ..Retained::default() };
        self.entry.retained_claims.push(left);
        self.entry.claim_revision += 1;
        self.entry.active_claim = to;
        let Some(swap) = &mut self.entry.swap else { return };
        (swap.phase, swap.progress, swap.message) = (SwapPhase::Soaking, None, None);
        (swap.fence, swap.detached_time, swap.reactivated_volume) = (None, None, None);
        swap.active_claim_uid = None; // That is the other one now.
        self.note_return();
        self.soak();
    }

    /// Removes the annotation of the active claim that another one has replaced it: a late decision of another
    /// replica may have set it. If its node confirms that, it may be true: a user has changed how the newer one is
    /// found.
    pub(super) fn reinstate(&mut self) {
        let phase = self.entry.swap.as_ref().map(|swap| swap.phase);
        if self.seen.superseded.contains_key(&self.entry.active_claim) {
            return;
        }
        if matches!(phase, None | Some(SwapPhase::Soaking | SwapPhase::Failed)) {
            let active = self.entry.active_claim.clone();
            self.ensure_reinstated(&active);
        }
    }

    /// Returns true if a claim still requests the smaller size from before it got a larger volume again; its
    /// request is raised to its size, if its class allows that.
    pub(super) fn asks_for_less_than_it_has(&mut self, name: &str) -> bool {
        let claim = self.seen.claim(name).filter(|_| self.returns() && self.keeps_name());
        let Some((claim, sizes)) =
            claim.and_then(|claim| Some((claim, ClaimSizes::of(claim).ok()?)))
        else {
            return false;
        };
        if sizes.requested >= sizes.capacity {
            return false;
        }
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
        let can_grow = class.and_then(|class| self.seen.classes.get(class)) == Some(&true);
        let (claim, size) = (name.to_owned(), sizes.capacity);
        self.steps.extend(can_grow.then_some(Step::Grow { claim, size }));
        can_grow
    }

    /// Stores the rollback, so that the template does not undo it.
    pub(super) fn note_return(&mut self) {
        let template_hash = digest(&self.seen.autoscaler.spec);
        self.entry.last_rollback_revision = Some(self.entry.claim_revision - 1);
        self.entry.rollback =
            Some(RollbackStatus { start_time: Time(in_seconds(self.seen.now)), template_hash });
        self.entry.last_swap = None; // The status may refer to the same claim.
        self.entry.template_size = None; // What it has is as large as it was then.
        if self.shrinks_by_itself() {
            self.take_back_shrink();
        }
    }

    /// Leaves the volume of a cancelled rollback closed: the pod retains its claim.
    pub(super) fn close_again(&mut self) {
        let to = self.new_claim();
        let opened = self.entry.swap.as_mut().and_then(|swap| swap.reactivated_volume.take());
        let is_opened = opened.is_some();
        let volume = self.seen.volume_of(&to).filter(|_| is_opened);
        let fence = volume.map(|volume| self.next_fence(volume, FenceState::Superseded, false));
        if let Some(old) = self.entry.retained_claims.iter_mut().find(|old| old.name == to) {
            old.fence = fence.or(old.fence);
        }
    }

    /// Removes the annotation that another claim has replaced this one; returns true once it is gone.
    fn ensure_reinstated(&mut self, claim: &str) -> bool {
        let there = self.seen.claim(claim);
        let is_marked = there.is_some_and(|it| {
            it.annotations().contains_key(SUPERSEDED_BY) || self.seen.is_noted_for_another(it)
        });
        self.steps.extend(is_marked.then(|| Step::Reinstate { claim: claim.to_owned() }));
        !is_marked
    }

    /// Forgets a rollback once the template was edited.
    pub(super) fn forget_return(&mut self) {
        if !self.seen.is_rolled_back(&self.entry) {
            self.entry.rollback = None;
        }
    }

    /// Waits, and returns true, if the claim stays unchanged despite the template, because it was rolled back.
    pub(super) fn wait_if_rolled_back(&mut self) -> bool {
        let is_back = self.seen.is_rolled_back(&self.entry);
        if is_back {
            self.says.phase = Some(AutoscalerPhase::Waiting);
            let message = format!(
                "pod {} was rolled back, and is not changed until the template is edited: set the template to \
                 what claim {} has, or to the new desired state",
                self.pod(),
                self.entry.active_claim
            );
            self.wait(AutoscalerReason::RolledBack, message);
        }
        is_back
    }
}
