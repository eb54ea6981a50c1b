//! Automatic size of one pod's claim: expansion or shrink. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscaledSize, AutoscalerMode, AutoscalerPhase, Quantity};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::objects::bounded;
use crate::autoscaler::size::{self, Decision, Resize, Sized};
use crate::autoscaler::turn::Turn;
use crate::cluster::{ClaimSizes, refusal, requested};
use crate::cluster::{NotDone, Wish};

impl Turn<'_> {
    /// Decides the size by the usage of the claim. `may_stop` allows a pod to be stopped. Without valid sizes of
    /// the claim there is no decision.
    pub(super) fn decide_size(&mut self, claim: &PersistentVolumeClaim, may_stop: bool) {
        let seen = self.seen;
        let (Ok(has), Ok(refusal)) = (ClaimSizes::of(claim), refusal(claim)) else { return };
        let Some(policy) = &seen.autoscaler.spec.autoscale else {
            (self.entry.last_decision, self.entry.autoscaled_size, self.entry.peak_usage) =
                (None, None, None);
            return self.tell_refusal(claim, has, refusal);
        };
        self.take_as_it_is(has.requested, refusal.is_some());
        let (grown, peak) = (self.own_size().cloned(), self.entry.peak_usage.take());
        let mut sized = Sized {
            requested: has.requested,
            capacity: has.capacity,
            grown: grown.as_ref(),
            usage: seen.usage.get(&claim.name_any()).copied(),
            silent: seen.silent.get(&claim.name_any()).map(String::as_str),
            refusal,
            others: self.largest_of_others(),
            peak: peak.as_ref(),
            least: self.least(),
        };
        let peak = size::peak(policy, &sized, seen.now);
        sized.peak = peak.as_ref();
        let Decision { resize, mut why } = size::decide(policy, &sized, seen.now);
        self.entry.peak_usage.clone_from(&peak);
        match resize {
            None => self.tell_refusal(claim, has, refusal),
            Some(_) if seen.autoscaler.spec.mode == AutoscalerMode::DryRun => {
                self.says.phase = Some(AutoscalerPhase::DryRun);
                self.says.planned_action = Some(format!("pod {}: {why}", self.pod()));
            }
            Some(Resize::Shrink(to)) => {
                match self.holds_back(may_stop).or_else(|| self.doubt(claim)) {
                    Some(held) => why = format!("{why}; not yet: {held}"),
                    None => self.resize(claim, AutoscalerReason::AutoscaleShrink, to, &why),
                }
            }
            Some(Resize::Grow(to)) => match self.doubt(claim) {
                Some(doubt) => why = format!("{why}; not yet: {doubt}"),
                None => self.resize(claim, AutoscalerReason::AutoscaleExpand, to, &why),
            },
            Some(Resize::Lower(to)) => {
                self.resize(claim, AutoscalerReason::ExpansionFailed, to, &why);
            }
        }
        self.entry.last_decision = Some(bounded(&why));
    }

    /// Returns why a size decision waits: reported usage does not change while a node plugin is down, so
    /// the node must confirm it first.
    fn doubt(&mut self, claim: &PersistentVolumeClaim) -> Option<String> {
        let (seen, name) = (self.seen, claim.name_any());
        // What all together come to is no matter of how full one is.
        let volume = seen.volume_of(&name).filter(|_| seen.usage.contains_key(&name))?;
        let answer = volume.recent_answer_to(&Wish::Look).map(Result::err);
        if answer == Some(None) {
            return None;
        }
        self.ask_for(volume, Wish::Look);
        let Some(Some(NotDone { why, .. })) = answer else {
            return Some("waiting for its node to confirm the reported usage".to_owned());
        };
        let message = format!(
            "claim {name} was to be resized by the last reported usage, but its node does not respond: {why}"
        );
        self.wait(AutoscalerReason::StaleUsageMetrics, message);
        Some(format!("its node does not respond: {why}"))
    }

    fn resize(
        &mut self,
        claim: &PersistentVolumeClaim,
        reason: AutoscalerReason,
        to: Quantity,
        why: &str,
    ) {
        let (from, at) = (self.seen.template_size(), Some(Time(self.seen.now)));
        self.entry.autoscaled_size = Some(AutoscaledSize {
            size: to,
            template_size: from,
            decision_time: at,
            failure_time: None,
        });
        self.entry.peak_usage = None;
        let text = format!("claim {}: {why}", claim.name_any());
        self.tell(reason, &to.to_string(), text);
    }

    /// Accepts a claim that is larger than its automatic size: a person expanded it, which is no reason to
    /// stop its pod.
    fn take_as_it_is(&mut self, has: Quantity, is_refused: bool) {
        if let Some(own) = self.own_size().filter(|own| own.size < has && !is_refused) {
            self.entry.autoscaled_size = Some(AutoscaledSize { size: has, ..own.clone() });
        }
    }

    /// Reverts an automatic shrink that was not possible. The reported usage stays valid.
    pub(super) fn take_back_shrink(&mut self) {
        let has = self.seen.claim(&self.entry.active_claim);
        let has = has.and_then(|claim| requested(claim).ok());
        if let (Some(own), Some(to)) = (self.own_size(), has) {
            let (from, failure_time) = (own.template_size, Some(Time(self.seen.now)));
            self.entry.autoscaled_size = Some(AutoscaledSize {
                size: to,
                template_size: from,
                decision_time: None,
                failure_time,
            });
        }
    }

    /// Returns the automatic size of the claim, if the template has not changed since.
    fn own_size(&self) -> Option<&AutoscaledSize> {
        self.entry
            .autoscaled_size
            .as_ref()
            .filter(|own| own.template_size == self.seen.template_size())
    }

    /// Returns true if the claim is larger than its automatic size.
    pub(super) fn shrinks_by_itself(&self) -> bool {
        let claim = self.seen.claim(&self.entry.active_claim);
        let asked = claim.and_then(|claim| requested(claim).ok());
        asked.zip(self.own_size()).is_some_and(|(asked, own)| own.size < asked)
    }

    /// Returns why an automatic shrink is not continued while the pod runs.
    pub(super) fn objects_to_shrink(&self) -> Option<String> {
        self.entry.swap.as_ref().filter(|swap| swap.automatic)?;
        let claim = self.seen.claim(&self.entry.active_claim)?;
        if let Some(node) = self.seen.silent.get(&claim.name_any()) {
            return Some(format!(
                "the node plugin of node {node} is not responding, so the usage of the volume is unknown"
            ));
        }
        let asked = match requested(claim) {
            Ok(asked) => asked,
            Err(why) => return Some(why.to_string()),
        };
        let sizes = (asked, self.own_size()?.size);
        let usage = self.seen.usage.get(&claim.name_any()).copied();
        let policy = self.seen.autoscaler.spec.autoscale.as_ref()?;
        size::objection(policy, sizes, usage, self.seen.now)
    }

    fn largest_of_others(&self) -> Quantity {
        let spec = &self.seen.autoscaler.spec;
        let entries = self.seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
        let others = entries.filter(|one| one.ordinal != self.entry.ordinal);
        others.map(|one| size::wanted(spec, one.autoscaled_size.as_ref())).max().unwrap_or_default()
    }

    fn least(&self) -> Quantity {
        let policy = self.seen.autoscaler.spec.autoscale.as_ref();
        let least = policy.and_then(|policy| policy.shrink.as_ref()?.min_size);
        least.unwrap_or(self.seen.template_size())
    }

    /// Returns why the pod is not stopped now, so that the claim does not shrink.
    fn holds_back(&self, may_stop: bool) -> Option<String> {
        let rollout = self.seen.autoscaler.spec.rollout.as_ref();
        let says = |why: &str| Some(why.to_owned());
        let obstacle = self.obstacle().filter(|_| !self.can_shrink_in_place());
        if let Some((_, message)) = obstacle {
            return Some(message);
        }
        if rollout.is_some_and(|rollout| rollout.paused) {
            return says("spec.rollout.paused is true");
        }
        if !self.is_in_partition() {
            return says("spec.rollout.partition excludes its pod");
        }
        if !may_stop {
            return says("another pod is being swapped, or status.message names the obstacle");
        }
        self.too_many_unready().map(|other| format!("pod {other} is not ready"))
    }

    /// A growth that was refused, and that is not made do with less.
    fn tell_refusal(
        &mut self,
        claim: &PersistentVolumeClaim,
        sizes: ClaimSizes,
        refusal: Option<&str>,
    ) {
        let Some(words) = refusal else { return };
        let (name, has, wants) = (claim.name_any(), sizes.capacity, sizes.requested);
        let message = format!(
            "claim {name} has {has} and cannot grow to {wants}: {words}; free some space for it, or set a \
             smaller size above {has} in the template"
        );
        self.wait(AutoscalerReason::ExpansionFailed, message);
    }
}
