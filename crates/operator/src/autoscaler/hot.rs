//! Work of a swap while its pod still runs, and the downtime in the end. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::api::{
    AutoscalerPhase, Filling, FillingPhase, LastSwap, PreCopy, PvcSourcePopulator, SwapPhase,
};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::drift::Drift;
use crate::autoscaler::objects::bounded;
use crate::autoscaler::steps::Step;
use crate::autoscaler::swap::{copied_too_early, filled_too_early};
use crate::autoscaler::turn::Turn;
use crate::populators::PopulatorReason;

/// Work before the pod is stopped.
enum Before {
    /// The new claim waits for its volume, or a pre-copy is running.
    Waits,
    /// Nothing more: the pre-copy is complete, or there is none, for this reason.
    Nothing(Option<String>),
    /// The swap cannot be, so the pod is not stopped at all.
    Never(String),
    /// The copy has failed with which the pod was not to be stopped.
    Failed,
}

impl Turn<'_> {
    /// Creates the volume of the new claim while the pod still runs: if a policy or missing capacity prevents
    /// it, the pod is not stopped. If requested, a pre-copy runs too.
    pub(super) fn prepare(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        let (name, from) = (self.new_claim(), self.entry.active_claim.clone());
        if self.is_edited_back() {
            return self.give_up_edited_back();
        }
        if let Some(why) = self.does_not_fit() {
            return self.give_up(&why);
        }
        if !self.make_missing(&name, &from) {
            return;
        }
        if let Some(why) = self.outgrows().or_else(|| self.is_foreign()) {
            return self.give_up(&why);
        }
        let filling = self.seen.filling(&name).cloned().unwrap_or_default();
        match self.before_the_stop(&name, &filling) {
            Before::Waits if self.is_overtaken(&name, &filling) => {
                self.give_up("the template was edited before the new claim had its volume");
            }
            Before::Waits => self.wait_ahead(filling),
            // The pod may have run for long since the swap started. From its stop on nothing else
            // would protect it.
            Before::Nothing(_)
                if self.wait_for_siblings()
                    || self.wait_for_others()
                    || !self.ensure_held(&from) =>
            {
                self.tell_that_pod_runs();
            }
            Before::Nothing(cold) => self.stop(cold, filling.pre_copy.as_ref()),
            Before::Never(why) => self.give_up(&why),
            Before::Failed => self.fail(filling),
        }
    }

    /// Returns true if there is a pre-copy.
    fn is_hot(&self, source: &PvcSourcePopulator) -> bool {
        self.seen.autoscaler.spec.pre_copy && source.spec.pre_copy
    }

    /// Returns true if the new claim is no longer wanted, and has no volume yet: it may never get
    /// one.
    fn is_overtaken(&self, name: &str, filling: &Filling) -> bool {
        let generation = self.entry.swap.as_ref().map(|swap| swap.spec_generation);
        let has_none = matches!(filling.phase, FillingPhase::Waiting | FillingPhase::Provisioning);
        let is_wanted = |claim| self.drift_of(claim) == Drift::None;
        generation != Some(self.seen.generation())
            && has_none
            && !self.seen.claim(name).is_some_and(is_wanted)
    }

    fn before_the_stop(&self, name: &str, filling: &Filling) -> Before {
        let Some(source) = self.seen.sources.get(name) else { return Before::Waits };
        if !source.spec.paused {
            return Before::Never(copied_too_early(name));
        }
        if let Some(why) = self.copies_another(name) {
            return Before::Never(why);
        }
        if self.has_content(name) {
            return Before::Never(filled_too_early(name, &self.entry.active_claim));
        }
        let is_deleted = self.is_deleted(&self.entry.active_claim, filling.phase);
        if let Some(why) = is_deleted.or_else(|| self.objects_to_shrink()) {
            return Before::Never(why);
        }
        let is_hot = self.is_hot(source);
        let is = |reason: PopulatorReason| filling.reason == Some(reason.to_string());
        let why = || filling.message.clone().unwrap_or_default();
        match filling.phase {
            FillingPhase::PreCopied => Before::Nothing(None),
            // Passes that are no longer wanted.
            FillingPhase::Populating if !is_hot => Before::Nothing(None),
            // It would be refused with the pod stopped, too.
            FillingPhase::Failed if !is_hot || is(PopulatorReason::ContentRejected) => {
                Before::Failed
            }
            FillingPhase::Failed => Before::Nothing(Some(why())),
            // It has its volume.
            FillingPhase::Waiting if is(PopulatorReason::SourcePaused) => Before::Nothing(None),
            FillingPhase::Waiting if is(PopulatorReason::PreCopySkipped) => {
                Before::Nothing(Some(why()))
            }
            // A class that waits for a pod of the new claim gets none as long as this one runs.
            FillingPhase::Waiting if is(PopulatorReason::WaitForFirstConsumer) => {
                Before::Nothing(is_hot.then(why))
            }
            _ => Before::Waits,
        }
    }

    fn wait_ahead(&mut self, filling: Filling) {
        self.tell_of_filling(&filling);
        let source = self.seen.sources.get(&self.new_claim());
        let is_hot = source.is_some_and(|source| self.is_hot(source));
        let claim = self.new_claim();
        let is_copied = filling.progress.is_some() || filling.phase == FillingPhase::Populating;
        let waits = filling.message.or_else(|| (!is_copied).then(|| without_volume(&claim)));
        let Some(swap) = &mut self.entry.swap else { return };
        swap.phase = if is_hot { SwapPhase::PreCopy } else { SwapPhase::Pending };
        (swap.progress, swap.message) = (filling.progress, waits.map(|text| bounded(&text)));
        self.tell_that_pod_runs();
    }

    fn tell_that_pod_runs(&mut self) {
        let Some(swap) = &self.entry.swap else { return };
        let said = swap.progress.clone().or_else(|| swap.message.clone());
        let said = said.unwrap_or_else(|| format!("{:?}", swap.phase));
        self.says.progress = Some(format!("pod {} runs, {said}", self.pod()));
    }

    /// Stops the pod; its next one gets the new claim.
    fn stop(&mut self, cold: Option<String>, ahead: Option<&PreCopy>) {
        let (pod, name, from) = (self.pod(), self.new_claim(), self.entry.active_claim.clone());
        let now = Time(self.seen.now);
        self.note_stopped();
        let Some(swap) = &mut self.entry.swap else { return };
        (swap.phase, swap.pod_stop_time) = (SwapPhase::Draining, Some(now));
        swap.pre_copy_skipped_reason = cold.map(|why| bounded(&why));
        let copied = match (&swap.pre_copy_skipped_reason, ahead) {
            (Some(why), _) => format!("; nothing was copied while it ran: {why}"),
            (None, Some(ahead)) => format!("; {} while it ran", in_rounds(ahead.passes)),
            (None, None) => String::new(),
        };
        let change = &swap.summary;
        let what = if swap.preserves_name {
            format!("for claim {from} to get the volume of claim {name}")
        } else {
            format!("to get claim {name} for {from}")
        };
        let text = format!("pod {pod} is stopped, {what} ({change}){copied}");
        self.tell(AutoscalerReason::SwapStarted, &self.attempt(), text);
        // No more than that: a pod that was made until this is written has the old claim.
        self.stop_writers(&from);
        self.go_on(SwapPhase::Draining, None, None);
    }

    /// Reports the downtime of the swap, now that its pod is ready.
    pub(super) fn sum_up(&mut self, name: &str, new: &str) {
        // What a pod gets again was copied at another time.
        let filling =
            self.seen.filling(new).filter(|_| !self.returns()).cloned().unwrap_or_default();
        let ready = self.seen.ready_since(self.entry.ordinal, name);
        let swap = self.entry.swap.clone().unwrap_or_default();
        let last = LastSwap {
            claim: new.to_owned(),
            downtime_seconds: pause(swap.pod_stop_time, ready),
            copied_bytes: filling.written_bytes,
            pre_copy_passes: filling.pre_copy.map_or(0, |ahead| ahead.passes),
            completion_time: Some(Time(self.seen.now)),
        };
        self.steps.extend(last.downtime_seconds.map(|away| Step::Count { away }));
        let pause = last.downtime_seconds.map(|seconds| format!("; it was down for {seconds} s"));
        let rounds = Some(last.pre_copy_passes).filter(|rounds| *rounds > 0);
        let rounds = rounds.map(|rounds| format!("; {} before that", in_rounds(rounds)));
        let what = if name == new { "" } else { " with another volume" };
        let text = format!(
            "pod {} has claim {name}{what} ({}){}{}",
            self.pod(),
            swap.summary,
            pause.unwrap_or_default(),
            rounds.unwrap_or_default()
        );
        self.entry.last_swap = Some(last);
        self.tell(AutoscalerReason::SwapSucceeded, name, text);
    }
}

/// Returns the downtime of a pod in seconds. The times are from two hosts, so it may come out negative.
fn pause(stopped: Option<Time>, ready: Option<Timestamp>) -> Option<i64> {
    Some(ready?.duration_since(stopped?.0).as_secs().max(0))
}

fn without_volume(claim: &str) -> String {
    format!("claim {claim} has no volume yet: see `kubectl pliant explain pvc/{claim}`")
}

fn in_rounds(rounds: i32) -> String {
    let word = if rounds == 1 { "pass" } else { "passes" };
    format!("its claim was pre-copied in {rounds} {word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_from_the_stop_until_the_next_pod_is_ready() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let of = |stopped: Option<i64>, ready: Option<i64>| {
            pause(stopped.map(at).map(Time), ready.map(at))
        };
        assert_eq!(of(Some(100), Some(142)), Some(42));
        assert_eq!(of(Some(100), Some(99)), Some(0));
        assert_eq!((of(None, Some(142)), of(Some(100), None)), (None, None));
    }
}
