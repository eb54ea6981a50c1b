//! Shrinks a claim in place, under its own name. Pure.
//!
//! Its node shrinks the volume and limits its size. Then the PersistentVolume and the claim get a size
//! that is a byte less, so that the resizer of Kubernetes requests the size itself once more and
//! completes its state; only then the node removes the limit. No earlier request can interfere: the
//! driver rejects it.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscalerMode, AutoscalerPhase, InPlace, InPlacePhase, Quantity, Workload};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::objects::{bounded, has_ended, in_seconds, is_bound};
use crate::autoscaler::steps::Step;
use crate::autoscaler::turn::Turn;
use crate::cluster::{ClaimSizes, NotDone, VolumeSeen, Wish, is_resizing};
use crate::volume::{FsKind, Mode, Reason, Shrinks};

/// How a volume can shrink in place.
enum Way {
    Now,
    /// As soon as no pod has it.
    WithoutPod(FsKind),
    Never,
    /// Its node has not reported it.
    Unknown,
}

impl Turn<'_> {
    /// Shrinks a claim that is only too large, in place or by a swap.
    pub(super) fn shrink(
        &mut self,
        claim: &PersistentVolumeClaim,
        size: Quantity,
        change: String,
        may_stop: &mut usize,
    ) {
        match self.way_of(claim) {
            Way::Now if self.has_failed_in_place() || self.failures > 0 => {
                self.swap(change, may_stop);
            }
            Way::Now => self.begin_in_place(size, change, may_stop),
            Way::WithoutPod(kind) if self.seen.names_claims() => {
                let (pod, name) = (self.pod(), claim.name_any());
                let message = format!(
                    "claim {name} is {kind}, which shrinks only while no pod uses it: stop pod {pod}{}, \
                     and it shrinks to {size}",
                    self.how_to_stop()
                );
                self.says.phase = Some(AutoscalerPhase::Waiting);
                self.wait(AutoscalerReason::ClaimInUse, message);
            }
            Way::WithoutPod(_) | Way::Never => self.swap(change, may_stop),
            Way::Unknown => {
                self.says.phase = Some(AutoscalerPhase::Waiting);
                self.says.progress = Some(format!(
                    "claim {} is to shrink ({change}), but its node has not reported its volume yet",
                    claim.name_any()
                ));
            }
        }
    }

    /// Returns the command that stops the pod, if it is known.
    fn how_to_stop(&self) -> String {
        match self.seen.autoscaler.spec.workload() {
            Workload::Deployment(name) => {
                format!(", for example with `kubectl scale deployment {name} --replicas=0`")
            }
            Workload::StatefulSet(_) | Workload::Pods(_) => String::new(),
        }
    }

    fn way_of(&self, claim: &PersistentVolumeClaim) -> Way {
        let name = claim.name_any();
        let Some(looked_up) = self.seen.volumes.get(&name) else { return Way::Unknown };
        let Some(volume) = looked_up else { return Way::Never };
        let kind = match volume.mode {
            Some(Mode::Filesystem(kind)) => kind,
            Some(Mode::Block) => return Way::Never,
            None => return Way::Unknown,
        };
        match kind.shrinks() {
            Shrinks::Never => Way::Never,
            Shrinks::Unmounted if self.has_pod() => Way::WithoutPod(kind),
            Shrinks::Unmounted | Shrinks::Mounted => Way::Now,
        }
    }

    /// Returns true if the claim can shrink now without a swap.
    pub(super) fn can_shrink_in_place(&self) -> bool {
        let claim = self.seen.claim(&self.entry.active_claim);
        claim.is_some_and(|claim| matches!(self.way_of(claim), Way::Now))
    }

    /// Returns true if any pod uses the claim.
    fn has_pod(&self) -> bool {
        self.seen.pods_with(&self.entry.active_claim).any(|pod| !has_ended(pod))
    }

    /// Returns true if its node has rejected the shrink for the present specification.
    fn has_failed_in_place(&self) -> bool {
        self.entry.shrink.as_ref().is_some_and(|shrink| shrink.phase == InPlacePhase::Failed)
    }

    fn begin_in_place(&mut self, to: Quantity, change: String, may_stop: &mut usize) {
        let name = self.entry.active_claim.clone();
        self.says.phase = Some(AutoscalerPhase::Waiting);
        self.says.planned_action =
            Some(format!("claim {name} shrinks in place ({change}); its pod continues to run"));
        if self.seen.autoscaler.spec.mode == AutoscalerMode::DryRun {
            self.says.phase = Some(AutoscalerPhase::DryRun);
        }
        let is_labelled = self.seen.claim(&name).is_some_and(|claim| self.seen.keeps(claim));
        if *may_stop == 0 || !self.is_in_partition() || !is_labelled {
            return;
        }
        *may_stop -= 1;
        self.entry.shrink = Some(InPlace {
            phase: InPlacePhase::Shrinking,
            size: to,
            summary: change,
            spec_generation: self.seen.generation(),
            automatic: self.shrinks_by_itself(),
            start_time: Some(Time(in_seconds(self.seen.now))),
            message: None,
        });
        self.entry.peak_usage = None;
        self.shrink_in_place();
    }

    /// Continues a shrink.
    pub(super) fn shrink_in_place(&mut self) {
        let Some(shrink) = self.entry.shrink.clone() else { return };
        let (seen, name) = (self.seen, self.entry.active_claim.clone());
        let claim = seen.claim(&name).filter(|claim| is_bound(claim));
        let (Some(claim), Some(volume)) = (claim, seen.volume_of(&name)) else {
            // With its volume all of it has gone; what is not known yet is known at the next look.
            let is_gone = claim.is_none() || matches!(seen.volumes.get(&name), Some(None));
            self.entry.shrink = Some(shrink).filter(|_| !is_gone);
            return;
        };
        self.says.phase = Some(AutoscalerPhase::Shrinking);
        self.says.progress = Some(format!("claim {name} shrinks in place ({})", shrink.summary));
        match shrink.phase {
            InPlacePhase::Shrinking => self.have_volume_shrunk(volume, &shrink),
            InPlacePhase::UpdatingClaim => match ClaimSizes::of(claim) {
                Ok(sizes) if sizes.requested > shrink.size => {
                    self.steps.push(Step::TellSmaller { claim: name, to: shrink.size });
                }
                Ok(sizes) if sizes.capacity >= shrink.size && !is_resizing(claim) => {
                    self.set_phase(InPlacePhase::Unpinning);
                }
                Ok(_) | Err(_) => {}
            },
            InPlacePhase::Unpinning => self.have_volume_released(volume, &shrink),
            InPlacePhase::Failed | InPlacePhase::Unknown => {}
        }
    }

    fn set_phase(&mut self, phase: InPlacePhase) {
        if let Some(shrink) = &mut self.entry.shrink {
            shrink.phase = phase;
        }
    }

    fn have_volume_shrunk(&mut self, volume: &VolumeSeen, shrink: &InPlace) {
        let begun = shrink.start_time.as_ref().map_or(self.seen.now, |Time(at)| *at);
        let wish = Wish::Shrink { to: shrink.size.0, begun };
        match volume.answer_to(&wish) {
            Some(Ok(_)) => return self.set_phase(InPlacePhase::UpdatingClaim),
            // A new pod prevents the shrink, and nothing has started; or the last pod has ended, and its
            // kubelet has not released the volume yet.
            Some(Err(NotDone { reason: Reason::InUse, .. }))
                if self.has_pod() && only_unmounted(volume) =>
            {
                self.entry.shrink = None;
                return;
            }
            // One that has begun is brought to its end.
            Some(Err(NotDone { reason, why })) if is_final(*reason) && !volume.is_limited => {
                let why = why.clone();
                return self.fail_in_place(&why, shrink);
            }
            Some(Err(NotDone { why, .. })) => {
                let message =
                    format!("volume {} of pod {} has not shrunk yet: {why}", volume.id, self.pod());
                self.wait(AutoscalerReason::ShrinkPending, message);
            }
            None => {}
        }
        self.ask_for(volume, wish);
    }

    fn fail_in_place(&mut self, why: &str, shrink: &InPlace) {
        let text = format!(
            "claim {} of pod {} was not shrunk in place ({}) and is unchanged: {why}",
            self.entry.active_claim,
            self.pod(),
            shrink.summary
        );
        self.tell(AutoscalerReason::ShrinkFailed, &shrink.size.to_string(), text);
        if shrink.automatic {
            self.entry.shrink = None;
            return self.take_back_shrink();
        }
        let message = Some(bounded(why));
        self.entry.shrink =
            Some(InPlace { phase: InPlacePhase::Failed, message, ..shrink.clone() });
    }

    fn have_volume_released(&mut self, volume: &VolumeSeen, shrink: &InPlace) {
        match volume.answer_to(&Wish::Release) {
            Some(Ok(_)) => {
                if self.entry.swap.is_some() {
                    self.entry.shrink = None; // The swap reports it.
                    return;
                }
                let text = format!(
                    "claim {} of pod {} was shrunk in place ({})",
                    self.entry.active_claim,
                    self.pod(),
                    shrink.summary
                );
                self.tell(AutoscalerReason::ShrinkSucceeded, &shrink.size.to_string(), text);
                self.entry.shrink = None;
                return;
            }
            Some(Err(NotDone { why, .. })) => {
                let message = format!(
                    "volume {} of pod {} was shrunk, but cannot grow again yet: {why}",
                    volume.id,
                    self.pod()
                );
                self.wait(AutoscalerReason::ShrinkPending, message);
            }
            None => {}
        }
        self.ask_for(volume, Wish::Release);
    }

    pub(super) fn ask_for(&mut self, volume: &VolumeSeen, wish: Wish) {
        if volume.is_to_be_asked(&wish) {
            self.steps.push(Step::Ask { volume: volume.id.clone(), wish });
        }
    }

    /// Forgets a failure once the specification has changed.
    pub(super) fn forget_failure_in_place(&mut self) {
        let now = self.seen.generation();
        let is_over = |shrink: &InPlace| {
            shrink.phase == InPlacePhase::Failed && shrink.spec_generation != now
        };
        self.entry.shrink.take_if(|shrink| is_over(shrink));
    }

    /// Returns why the claim stays larger than desired, if its node has rejected the shrink.
    pub(super) fn failure_in_place(&self) -> Option<String> {
        let shrink = self.entry.shrink.as_ref()?;
        Some(format!("it was not shrunk in place: {}", shrink.message.clone()?))
    }
}

fn only_unmounted(volume: &VolumeSeen) -> bool {
    matches!(volume.mode, Some(Mode::Filesystem(kind)) if kind.shrinks() == Shrinks::Unmounted)
}

/// Returns true if a retry on the node would change nothing.
fn is_final(reason: Reason) -> bool {
    !matches!(reason, Reason::Unavailable | Reason::InProgress | Reason::InUse)
}
