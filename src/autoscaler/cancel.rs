//! A swap that is given up although its copy has not failed: since a person says so, since its template was edited
//! back, or since no copy begins while the pod is down. Pure.
//!
//! A pod may wait for the new claim, which has a volume as soon as a copy has come to its end. So that claim is
//! deleted first, and only for as long as it has none; the old one is given back when nothing can be put into the
//! new one any more. A copy that has come to its end before makes the swap go on.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::api::{
    AbortedSwap, AutoscalerPhase, Cancellation, Filling, FillingPhase, OrdinalStatus,
    PvcAutoscalerSpec, SwapPhase,
};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::go_back::digest;
use crate::autoscaler::in_place::in_seconds;
use crate::autoscaler::plan::{bounded, is_copy};
use crate::autoscaler::seen::{Seen, is_bound, is_ending};
use crate::autoscaler::swap::drop_as_seen;
use crate::autoscaler::turn::Turn;
use crate::populators::PopulatorReason;

/// For how long a pod is down at most while nothing copies its claim. A node takes less to start again, and
/// Kubernetes less, six minutes, to take a volume from a node that does not answer; that the pod which copies may
/// be made and runs was tried before.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// For how long an exchange takes no time that a person has to know of.
const SLOW: SignedDuration = SignedDuration::from_mins(1);

/// Whether the swap of a pod is to be given up, and that swap is the one that goes on.
pub(crate) fn is_wanted_aborted(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    let Some(swap) = &one.swap else { return false };
    spec.abort
        .iter()
        .any(|abort| (abort.ordinal, abort.generation) == (one.ordinal, swap.generation))
}

/// Whether a swap to the template as it is was given up for a person, so that the pod keeps what it has.
pub(crate) fn is_aborted(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    one.aborted.as_ref().is_some_and(|aborted| aborted.template == digest(spec))
}

/// Whether a swap can still be given up: its pod has not got the new volume.
pub(crate) fn can_be_aborted(phase: SwapPhase) -> bool {
    !matches!(phase, SwapPhase::Exchanging | SwapPhase::Soaking | SwapPhase::Unknown)
}

impl Seen {
    /// Whether a swap to the template as it is was given up for a person.
    pub fn is_aborted(&self, one: &OrdinalStatus) -> bool {
        is_aborted(&self.autoscaler.spec, one)
    }
}

impl AutoscalerReason {
    /// What keeps a claim from being filled, if something does that a person may have to see to.
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
    /// Whether the swap under way is to be given up, and can be.
    pub(super) fn is_to_abort(&self) -> bool {
        let phase = self.entry.swap.as_ref().map(|swap| swap.phase);
        // Of one that gives back what was before, since the other claim was lost, there is nothing that the pod keeps.
        let is_lost = self.seen.taken.contains_key(&self.entry.active_claim);
        phase.is_some_and(can_be_aborted)
            && !is_lost
            && is_wanted_aborted(&self.seen.autoscaler.spec, &self.entry)
    }

    /// Give the swap up, from wherever it is, and begin none before the template is edited.
    pub(super) fn abort(&mut self) {
        let swap = self.swap_mut();
        let (phase, returns) = (swap.phase, swap.returns);
        swap.cancellation = Some(Cancellation::Aborted);
        let why = "spec.abort asks for it";
        match phase {
            SwapPhase::Failed => {
                self.says.phase = Some(AutoscalerPhase::Waiting);
                self.end_cancelled();
            }
            SwapPhase::RollingBack => self.roll_back(),
            SwapPhase::Draining | SwapPhase::Fenced | SwapPhase::FinalCopy if !returns => {
                self.swap_mut().message = Some(why.to_owned());
                self.copy();
            }
            _ => self.give_up(why),
        }
    }

    /// Whether nothing but what the claim has is wanted by now.
    pub(super) fn is_edited_back(&self) -> bool {
        let active = self.seen.claim(&self.entry.active_claim);
        let is_there = active.filter(|claim| is_bound(claim) && !is_ending(&claim.metadata));
        is_there.is_some_and(|claim| !self.wants_another(claim))
    }

    /// Give up a swap whose pod still runs, since what that has is wanted again.
    pub(super) fn give_up_edited_back(&mut self) {
        self.swap_mut().cancellation = Some(Cancellation::TemplateEdited);
        self.give_up(&edited_back(&self.entry.active_claim));
    }

    /// Whether the swap is given up, with its pod stopped; if it is, that is seen to.
    pub(super) fn ensure_cancelled(&mut self, from: &str, filling: &Filling) -> bool {
        let name = self.new_claim();
        // Also one whose label was taken off.
        let is_its = |claim: &&PersistentVolumeClaim| self.seen.keeps(claim) || is_copy(claim);
        let claim = self.seen.claim(&name).filter(is_its);
        let claim = claim.filter(|claim| !is_ending(&claim.metadata));
        let is_ours = filling.phase == FillingPhase::Binding || self.is_filled(&name);
        if claim.is_some_and(is_bound) && is_ours {
            self.swap_mut().cancellation = None; // It has all of it: a pod may start with it.
            self.note_downtime(from, filling.phase != FillingPhase::Binding);
            return false;
        }
        if self.swap_mut().cancellation.is_none() {
            let Some((how, mut why)) = self.cause_to_cancel(from, filling) else { return false };
            if claim.is_some_and(is_bound) {
                why = format!(
                    "{why}; another client bound it: claim {name} has a volume that no copy has filled"
                );
            }
            let swap = self.swap_mut();
            (swap.cancellation, swap.message) = (Some(how), Some(bounded(&why)));
        }
        // Nothing can be put into it any more, and what another client has bound it to is not thrown away.
        let Some(claim) = claim.filter(|claim| !is_bound(claim)) else {
            let why = self.swap_mut().message.clone().unwrap_or_default();
            self.give_up(&why);
            return true;
        };
        self.says.progress = Some(format!("pod {}: claim {name} is deleted", self.pod()));
        self.steps.push(drop_as_seen(claim));
        true
    }

    /// Why it is to be given up, as long as no copy goes on.
    fn cause_to_cancel(&mut self, from: &str, filling: &Filling) -> Option<(Cancellation, String)> {
        let goes_on = match filling.phase {
            FillingPhase::Filling => filling.reason.is_none(),
            FillingPhase::Filled => !self.is_going(&self.new_claim()),
            _ => false,
        };
        let is_copied = filling.phase == FillingPhase::Binding;
        if !goes_on && !is_copied && self.is_edited_back() {
            return Some((Cancellation::TemplateEdited, edited_back(from)));
        }
        let is_tried_again =
            filling.next_retry_time.as_ref().is_some_and(|Time(at)| *at > self.seen.now);
        if !self.note_downtime(from, goes_on || is_tried_again) {
            return None;
        }
        self.swap_mut().reason.clone_from(&filling.reason);
        self.swap_mut().failures += 1;
        let why = if is_copied {
            too_long(NOT_GONE_ON, Some(&not_bound(&self.new_claim())))
        } else {
            too_long(NOT_COPIED, filling.message.as_ref().or(self.told_before()))
        };
        Some((Cancellation::NoCopyStarted, why))
    }

    /// What the status says before this look.
    fn told_before(&self) -> Option<&String> {
        self.seen.autoscaler.status.as_ref()?.message.as_ref()
    }

    /// Why an exchange is given up that does not begin: the pod is down for too long.
    pub(super) fn exchanges_too_slowly(&mut self, from: &str) -> Option<String> {
        if !self.note_downtime(from, false) {
            return None;
        }
        let why = too_long(NOT_GONE_ON, self.told_before());
        if !self.returns() {
            let swap = self.swap_mut();
            (swap.cancellation, swap.failures) =
                (Some(Cancellation::NoCopyStarted), swap.failures + 1);
        }
        Some(why)
    }

    /// Tell what a pod waits for that is down and whose swap can only go on, once that is no matter of seconds.
    pub(super) fn report_slow_exchange(&mut self, why: &str) {
        let now = self.seen.now;
        let since = self.swap_mut().wait_start_time.as_ref().map(|Time(since)| *since);
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

    /// Tell what a claim is not bound for whose content is in its new volume.
    pub(super) fn report_slow_binding(&mut self, filling: &Filling) {
        if filling.phase == FillingPhase::Binding {
            self.report_slow_exchange(&not_bound(&self.new_claim()));
        }
    }

    /// Whether the pod is down for longer than it may be while nothing goes on.
    pub(super) fn note_downtime(&mut self, from: &str, goes_on: bool) -> bool {
        let pod = self.pod();
        let runs = self.seen.writers(from).iter().any(|one| one.name_any() == pod);
        let now = self.seen.now;
        let swap = self.swap_mut();
        if runs || goes_on {
            swap.wait_start_time = None;
            return false;
        }
        let Time(since) = swap.wait_start_time.get_or_insert(Time(in_seconds(now)));
        now.duration_since(*since) >= LONGEST_WAIT
    }

    /// Why a pod that is to have again what it had before gets what it has left, if it is down for too long.
    pub(super) fn returns_too_slowly(&mut self, from: &str) -> Option<String> {
        self.note_downtime(from, false).then(|| too_long(NOT_GONE_ON, self.told_before()))
    }

    /// Tell what keeps the new claim from being filled.
    pub(super) fn tell_of_filling(&mut self, filling: &Filling) {
        let Some(reason) = AutoscalerReason::of_filling(filling) else { return };
        let pod = self.pod();
        let swap = self.swap_mut();
        let how = match (&swap.pod_stop_time, &swap.wait_start_time) {
            (None, _) => format!("pod {pod} is not stopped before its claim can be copied"),
            (Some(_), Some(Time(since))) => {
                let until = since.checked_add(LONGEST_WAIT).unwrap_or(*since);
                format!(
                    "pod {pod} is stopped, and gets its old claim at {until} if no copy has begun"
                )
            }
            (Some(_), None) => format!("pod {pod} is stopped"),
        };
        let why = filling.message.clone().unwrap_or_default();
        let message = format!("{how}: {why}; `kubectl pliant abort` gives the swap up");
        self.tell_of_lack(reason, &message);
        self.wait(reason, message);
    }

    /// Nothing is left of a swap that was given up, and it has not failed.
    pub(super) fn end_cancelled(&mut self) {
        let swap = self.entry.swap.clone().unwrap_or_default();
        let is_aborted = swap.cancellation == Some(Cancellation::Aborted);
        if is_aborted || swap.pod_stop_time.is_some() {
            let why = swap.message.clone().unwrap_or_default();
            let text = format!(
                "the swap of pod {} ({}) was given up, and it keeps claim {}: {why}",
                self.pod(),
                swap.change,
                self.entry.active_claim
            );
            self.tell(AutoscalerReason::SwapAborted, &self.attempt(), text);
        }
        if is_aborted {
            let template = digest(&self.seen.autoscaler.spec);
            let abort_time = Time(in_seconds(self.seen.now));
            self.entry.aborted = Some(AbortedSwap { abort_time, template });
        }
        if swap.by_itself {
            self.take_back_shrink();
        }
        self.entry.swap = None;
    }

    /// Forget that a swap was given up whose template was edited since.
    pub(super) fn forget_abort(&mut self) {
        if !self.seen.is_aborted(&self.entry) {
            self.entry.aborted = None;
        }
    }

    /// Whether the claim stays as it is, although the template has another one: a person has given the swap up.
    pub(super) fn stays_aborted(&mut self) -> bool {
        let is_aborted = self.seen.is_aborted(&self.entry);
        if is_aborted {
            self.says.phase = Some(AutoscalerPhase::Waiting);
            let message = format!(
                "the swap of pod {} was given up, and it keeps claim {} until the template is edited: write in \
                 it what that claim has, or what it is to become",
                self.pod(),
                self.entry.active_claim
            );
            self.wait(AutoscalerReason::SwapAborted, message);
        }
        is_aborted
    }
}

fn edited_back(claim: &str) -> String {
    format!("its template was edited back to what claim {claim} has")
}

fn not_bound(claim: &str) -> String {
    format!(
        "claim {claim} is filled and not bound to its volume yet: see `kubectl describe pvc {claim}`, and whether the \
         node of its volume responds"
    )
}

/// What did not happen in the time in which the pod was down.
const NOT_COPIED: &str = "nothing was copied";
const NOT_GONE_ON: &str = "its swap did not go on";

fn too_long(what: &str, cause: Option<&String>) -> String {
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    format!("the pod was down for {} minutes and {what}{cause}", LONGEST_WAIT.as_mins())
}
