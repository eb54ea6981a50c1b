//! Aborts a swap whose copy has not failed: because a person requests it, because its template was edited back, or
//! because no copy starts while the pod is down. Pure.
//!
//! A pod may wait for the new claim, which has a volume as soon as a copy is complete. So that claim is deleted
//! first, and only while it has no volume; the old one is returned when nothing can be written to the new one any
//! more. If a copy completes before that, the swap continues.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::api::{
    AbortReason, AbortedSwap, AutoscalerPhase, Filling, FillingPhase, OrdinalStatus,
    PvcAutoscalerSpec, SwapPhase,
};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::go_back::digest;
use crate::autoscaler::objects::{bounded, drop_as_seen, in_seconds, is_bound, is_copy, is_ending};
use crate::autoscaler::seen::Seen;
use crate::autoscaler::turn::Turn;
use crate::populators::PopulatorReason;

/// Maximum downtime of a pod while nothing copies its claim. A node restarts in less, and Kubernetes needs less,
/// six minutes, to detach a volume from a node that does not respond; that the copying pod can be created and
/// runs was probed before.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// Time after which a slow exchange is reported.
const SLOW: SignedDuration = SignedDuration::from_mins(1);

/// Returns true if the present swap of a pod is to be aborted.
pub fn is_wanted_aborted(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    let Some(swap) = &one.swap else { return false };
    spec.abort
        .iter()
        .any(|abort| (abort.ordinal, abort.spec_generation) == (one.ordinal, swap.spec_generation))
}

/// Returns true if a person aborted the swap to the present template, so that the pod retains its claim.
pub fn is_aborted(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    one.aborted.as_ref().is_some_and(|aborted| aborted.template_hash == digest(spec))
}

/// Returns true if a swap can still be aborted: its pod does not have the new volume yet.
pub fn can_be_aborted(phase: SwapPhase) -> bool {
    !matches!(phase, SwapPhase::Rebinding | SwapPhase::Soaking | SwapPhase::Unknown)
}

impl Seen {
    /// Returns true if a person aborted the swap to the present template.
    pub fn is_aborted(&self, one: &OrdinalStatus) -> bool {
        is_aborted(&self.autoscaler.spec, one)
    }
}

impl AutoscalerReason {
    /// Returns the reason why a claim is not populated, if a person may have to act.
    pub(super) fn of_filling(filling: &Filling) -> Option<AutoscalerReason> {
        let named = filling.reason.as_deref()?;
        let known = PopulatorReason::ALL.into_iter().find(|one| one.to_string() == named)?;
        Some(match known {
            PopulatorReason::PopulatorPodPending => AutoscalerReason::PopulatorPodPending,
            PopulatorReason::PopulatorCreationError => AutoscalerReason::PopulatorCreationError,
            PopulatorReason::PopulatorRescheduled => AutoscalerReason::PopulatorRescheduled,
            PopulatorReason::PopulatorRetrying => AutoscalerReason::PopulatorRetrying,
            PopulatorReason::SourceInUse => AutoscalerReason::ClaimInUse,
            PopulatorReason::VolumeNotFenced => AutoscalerReason::VolumeNotFenced,
            _ => return None,
        })
    }
}

impl Turn<'_> {
    /// Returns true if the present swap is to be aborted, and can be.
    pub(super) fn is_to_abort(&self) -> bool {
        let phase = self.entry.swap.as_ref().map(|swap| swap.phase);
        // A rollback after a lost claim leaves the pod nothing else to use.
        let is_lost = self.seen.taken.contains_key(&self.entry.active_claim);
        phase.is_some_and(can_be_aborted)
            && !is_lost
            && is_wanted_aborted(&self.seen.autoscaler.spec, &self.entry)
    }

    /// Aborts the swap in any phase; no other one starts before the template is edited.
    pub(super) fn abort(&mut self) {
        let Some(swap) = &mut self.entry.swap else { return };
        let (phase, returns) = (swap.phase, swap.is_rollback);
        swap.abort_reason = Some(AbortReason::Requested);
        let why = "requested in spec.abort";
        match phase {
            SwapPhase::Failed => {
                self.says.phase = Some(AutoscalerPhase::Waiting);
                self.end_cancelled();
            }
            SwapPhase::RollingBack => self.roll_back(),
            SwapPhase::Draining | SwapPhase::Fenced | SwapPhase::FinalCopy if !returns => {
                swap.message = Some(why.to_owned());
                self.copy();
            }
            _ => self.give_up(why),
        }
    }

    /// Returns true if the desired state is what the claim already has.
    pub(super) fn is_edited_back(&self) -> bool {
        let active = self.seen.claim(&self.entry.active_claim);
        let is_there = active.filter(|claim| is_bound(claim) && !is_ending(&claim.metadata));
        is_there.is_some_and(|claim| !self.wants_another(claim))
    }

    /// Aborts a swap whose pod still runs, because the template was edited back.
    pub(super) fn give_up_edited_back(&mut self) {
        if let Some(swap) = &mut self.entry.swap {
            swap.abort_reason = Some(AbortReason::TemplateEdited);
        }
        self.give_up(&edited_back(&self.entry.active_claim));
    }

    /// Returns true if the swap is cancelled with its pod stopped, and handles that.
    pub(super) fn ensure_cancelled(&mut self, from: &str, filling: &Filling) -> bool {
        let name = self.new_claim();
        // Also one whose label was taken off.
        let is_its = |claim: &&PersistentVolumeClaim| self.seen.keeps(claim) || is_copy(claim);
        let claim = self.seen.claim(&name).filter(is_its);
        let claim = claim.filter(|claim| !is_ending(&claim.metadata));
        let is_ours = filling.phase == FillingPhase::Binding || self.is_filled(&name);
        if claim.is_some_and(is_bound) && is_ours {
            if let Some(swap) = &mut self.entry.swap {
                swap.abort_reason = None;
            }
            // It has all of it: a pod may start with it.
            self.note_downtime(from, filling.phase != FillingPhase::Binding);
            return false;
        }
        if self.entry.swap.as_ref().is_none_or(|swap| swap.abort_reason.is_none()) {
            let Some((how, mut why)) = self.cause_to_cancel(from, filling) else { return false };
            if claim.is_some_and(is_bound) {
                why = format!(
                    "{why}; another client bound claim {name}, whose volume was not populated by a copy"
                );
            }
            let Some(swap) = &mut self.entry.swap else { return false };
            (swap.abort_reason, swap.message) = (Some(how), Some(bounded(&why)));
        }
        // Nothing can be written into it any more, and what another client has bound is not deleted.
        let Some(claim) = claim.filter(|claim| !is_bound(claim)) else {
            let why = self.entry.swap.as_ref().and_then(|swap| swap.message.clone());
            let why = why.unwrap_or_default();
            self.give_up(&why);
            return true;
        };
        self.says.progress = Some(format!("pod {}: claim {name} is being deleted", self.pod()));
        self.steps.push(drop_as_seen(claim));
        true
    }

    /// Returns why the swap is to be cancelled, as long as no copy is running.
    fn cause_to_cancel(&mut self, from: &str, filling: &Filling) -> Option<(AbortReason, String)> {
        let goes_on = match filling.phase {
            FillingPhase::Populating => filling.reason.is_none(),
            FillingPhase::Succeeded => !self.is_going(&self.new_claim()),
            _ => false,
        };
        let is_copied = filling.phase == FillingPhase::Binding;
        if !goes_on && !is_copied && self.is_edited_back() {
            return Some((AbortReason::TemplateEdited, edited_back(from)));
        }
        let is_tried_again =
            filling.next_retry_time.as_ref().is_some_and(|Time(at)| *at > self.seen.now);
        if !self.note_downtime(from, goes_on || is_tried_again) {
            return None;
        }
        let swap = self.entry.swap.as_mut()?;
        swap.reason.clone_from(&filling.reason);
        swap.failures += 1;
        let why = if is_copied {
            too_long(NOT_GONE_ON, Some(&not_bound(&self.new_claim())))
        } else {
            too_long(NOT_COPIED, filling.message.as_ref().or(self.told_before()))
        };
        Some((AbortReason::NoProgress, why))
    }

    /// Message of the previous status.
    fn told_before(&self) -> Option<&String> {
        self.seen.autoscaler.status.as_ref()?.message.as_ref()
    }

    /// Returns why an exchange that does not start is aborted: the downtime of the pod is too long.
    pub(super) fn exchanges_too_slowly(&mut self, from: &str) -> Option<String> {
        if !self.note_downtime(from, false) {
            return None;
        }
        let why = too_long(NOT_GONE_ON, self.told_before());
        if !self.returns() {
            let swap = self.entry.swap.as_mut()?;
            (swap.abort_reason, swap.failures) = (Some(AbortReason::NoProgress), swap.failures + 1);
        }
        Some(why)
    }

    /// Reports what a stopped pod waits for whose swap can only continue, once that takes more than seconds.
    pub(super) fn report_slow_exchange(&mut self, why: &str) {
        let now = self.seen.now;
        let since = self.entry.swap.as_ref().and_then(|swap| swap.wait_start_time.as_ref());
        let since = since.map(|Time(since)| *since);
        let is_slow = since.is_some_and(|since| now.duration_since(since) >= SLOW);
        if !is_slow || self.says.problem.is_some() {
            return;
        }
        let active = &self.entry.active_claim;
        let refused = self.seen.refusal.as_ref().filter(|refused| refused.claim == *active);
        let refused = refused.map_or_else(String::new, |refused| format!(": {}", refused.why));
        let message = format!("pod {} is stopped and waits: {why}{refused}", self.pod());
        self.tell_of_lack(AutoscalerReason::RebindPending, &message);
        self.wait(AutoscalerReason::RebindPending, message);
    }

    /// Reports why a populated claim is not bound to its volume.
    pub(super) fn report_slow_binding(&mut self, filling: &Filling) {
        if filling.phase == FillingPhase::Binding {
            self.report_slow_exchange(&not_bound(&self.new_claim()));
        }
    }

    /// Returns true if the downtime of the pod exceeds the maximum without progress.
    pub(super) fn note_downtime(&mut self, from: &str, goes_on: bool) -> bool {
        let pod = self.pod();
        let runs = self.seen.writers(from).iter().any(|one| one.name_any() == pod);
        let now = self.seen.now;
        let Some(swap) = &mut self.entry.swap else { return false };
        if runs || goes_on {
            swap.wait_start_time = None;
            return false;
        }
        let Time(since) = swap.wait_start_time.get_or_insert(Time(in_seconds(now)));
        now.duration_since(*since) >= LONGEST_WAIT
    }

    /// Returns why a rollback is reverted if its downtime is too long.
    pub(super) fn returns_too_slowly(&mut self, from: &str) -> Option<String> {
        self.note_downtime(from, false).then(|| too_long(NOT_GONE_ON, self.told_before()))
    }

    /// Reports what prevents the new claim from being populated.
    pub(super) fn tell_of_filling(&mut self, filling: &Filling) {
        let Some(reason) = AutoscalerReason::of_filling(filling) else { return };
        let pod = self.pod();
        let Some(swap) = &self.entry.swap else { return };
        let how = match (&swap.pod_stop_time, &swap.wait_start_time) {
            (None, _) => format!("pod {pod} is not stopped until its claim can be copied"),
            (Some(_), Some(Time(since))) => {
                let until = since.checked_add(LONGEST_WAIT).unwrap_or(*since);
                format!(
                    "pod {pod} is stopped, and gets its old claim back at {until} if no copy has started"
                )
            }
            (Some(_), None) => format!("pod {pod} is stopped"),
        };
        let why = filling.message.clone().unwrap_or_default();
        let message = format!("{how}: {why}; `kubectl pliant abort` aborts the swap");
        self.tell_of_lack(reason, &message);
        self.wait(reason, message);
    }

    /// Ends a cancelled swap once nothing of it is left; it does not count as failed.
    pub(super) fn end_cancelled(&mut self) {
        let swap = self.entry.swap.clone().unwrap_or_default();
        let is_aborted = swap.abort_reason == Some(AbortReason::Requested);
        if is_aborted || swap.pod_stop_time.is_some() {
            let why = swap.message.clone().unwrap_or_default();
            let text = format!(
                "the swap of pod {} ({}) was aborted, and the pod still uses claim {}: {why}",
                self.pod(),
                swap.summary,
                self.entry.active_claim
            );
            self.tell(AutoscalerReason::SwapAborted, &self.attempt(), text);
        }
        if is_aborted {
            let template_hash = digest(&self.seen.autoscaler.spec);
            let abort_time = Time(in_seconds(self.seen.now));
            self.entry.aborted = Some(AbortedSwap { abort_time, template_hash });
        }
        if swap.automatic {
            self.take_back_shrink();
        }
        self.entry.swap = None;
    }

    /// Forgets an abort once the template was edited.
    pub(super) fn forget_abort(&mut self) {
        if !self.seen.is_aborted(&self.entry) {
            self.entry.aborted = None;
        }
    }

    /// Waits, and returns true, if the claim stays unchanged despite the template, because a person aborted the swap.
    pub(super) fn wait_if_aborted(&mut self) -> bool {
        let is_aborted = self.seen.is_aborted(&self.entry);
        if is_aborted {
            self.says.phase = Some(AutoscalerPhase::Waiting);
            let message = format!(
                "the swap of pod {} was aborted, and the pod uses claim {} until the template is edited: set \
                 the template to what that claim has, or to the new desired state",
                self.pod(),
                self.entry.active_claim
            );
            self.wait(AutoscalerReason::SwapAborted, message);
        }
        is_aborted
    }
}

fn edited_back(claim: &str) -> String {
    format!("the template was edited back to what claim {claim} has")
}

fn not_bound(claim: &str) -> String {
    format!(
        "claim {claim} is populated but not bound to its volume yet: see `kubectl describe pvc {claim}`, and \
         check that the node of its volume responds"
    )
}

/// What did not happen during the downtime of the pod.
const NOT_COPIED: &str = "nothing was copied";
const NOT_GONE_ON: &str = "the swap made no progress";

fn too_long(what: &str, cause: Option<&String>) -> String {
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    format!("the pod was down for {} minutes and {what}{cause}", LONGEST_WAIT.as_mins())
}
