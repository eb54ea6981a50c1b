//! A swap under an unchanged name: the claim that a StatefulSet makes by its own template gets the volume
//! with the copy, and the claim with the copy the old one. Its pod waits behind a scheduling gate. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{AutoscalerPhase, InPlace, InPlacePhase, Quantity, Retained, SwapPhase};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::exchange::{Exchange, size_with};
use crate::autoscaler::objects::{is_bound, uid};
use crate::autoscaler::steps::Step;
use crate::autoscaler::turn::Turn;
use crate::cluster::{NotDone, UnreadableSize, Wish, requested};

impl Turn<'_> {
    /// Returns true if the claim retains its name in the present swap.
    pub(super) fn keeps_name(&self) -> bool {
        self.entry.swap.as_ref().is_some_and(|swap| swap.preserves_name)
    }

    /// Returns why a claim cannot get another volume under its name, before anything is stopped.
    pub(super) fn obstacle_to_same_name(&self) -> Option<(AutoscalerReason, String)> {
        let (seen, name) = (self.seen, &self.entry.active_claim);
        let claim = seen.claim(name)?;
        let fixed = |why: String| Some((AutoscalerReason::SwapUnsupported, why));
        if let Some(field) = self.unchangeable(claim) {
            return fixed(format!(
                "claim {name} retains its name, but Kubernetes does not allow changes of the {field} of a \
                 claim: set the template to what it has"
            ));
        }
        if matches!(seen.volumes.get(name), Some(None)) {
            return fixed(format!(
                "claim {name} retains its name, but its volume is another driver's: only a volume of this \
                 driver can be exchanged under it"
            ));
        }
        let class = seen.autoscaler.spec.volume_claim_template.spec.storage_class_name.as_ref();
        if let Some(class) = class.filter(|class| seen.foreign.contains(*class)) {
            return fixed(format!(
                "claim {name} retains its name, but volumes of class {class} are another driver's: choose a \
                 class of this driver"
            ));
        }
        let (has, wants) = match requested(claim) {
            Ok(has) => (has, seen.size_of(&self.entry)),
            Err(why) => return Some((AutoscalerReason::InvalidSize, why.to_string())),
        };
        if wants > has {
            return fixed(format!(
                "claim {name} retains its name, but its class does not allow expansion from {has} to {wants}: \
                 set allowVolumeExpansion of that class, or request no more than {has}"
            ));
        }
        let why = seen.coverage.lacks()?;
        let message = format!(
            "the start of pods of {} cannot be delayed yet while a claim gets another volume: {why}",
            seen.autoscaler.spec.workload().in_words()
        );
        Some((AutoscalerReason::WebhookNotReady, message))
    }

    /// The field of a claim that differs from the template and never changes.
    fn unchangeable(&self, claim: &PersistentVolumeClaim) -> Option<&'static str> {
        let (template, spec) =
            (&self.seen.autoscaler.spec.volume_claim_template.spec, claim.spec.as_ref()?);
        let sorted = |modes: &[String]| {
            let mut modes = modes.to_vec();
            modes.sort();
            modes
        };
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        if sorted(modes) != sorted(&template.access_modes) {
            return Some("accessModes");
        }
        let attributes = &template.volume_attributes_class_name;
        let differs = attributes.is_some() && spec.volume_attributes_class_name != *attributes;
        differs.then_some("volumeAttributesClassName")
    }

    /// Returns why the new claim is or may be larger than the one that is to get its volume: a claim grows only
    /// if its class allows it.
    pub(super) fn outgrows(&self) -> Option<String> {
        let (name, from) = (self.new_claim(), &self.entry.active_claim);
        let sizes = (requested(self.seen.claim(&name)?), requested(self.seen.claim(from)?));
        let (to, has) = match sizes {
            (Ok(to), Ok(has)) => (to, has),
            (Err(why), _) | (_, Err(why)) => return self.keeps_name().then(|| why.to_string()),
        };
        (self.keeps_name() && to > has).then(|| {
            format!("the template or claim {name} was edited meanwhile: that has {to}, and claim {from} only \
                     {has}")
        })
    }

    /// Returns why the new claim can never give its volume to the one that retains its name: the template
    /// may name no class, or have named another one when the swap started.
    pub(super) fn is_foreign(&self) -> Option<String> {
        let name = self.new_claim();
        let class = self.seen.claim(&name)?.spec.as_ref()?.storage_class_name.as_ref()?;
        (self.keeps_name() && self.seen.foreign.contains(class)).then(|| {
            format!(
                "claim {name} has class {class}, whose volumes are another driver's: set a class of this \
                 driver in the template"
            )
        })
    }

    /// The new claim has all of the content: from here on the volumes change their claims.
    pub(super) fn begin_exchange(&mut self, digest: Option<String>) {
        let name = self.new_claim();
        let Some(volume) = self.seen.volume_of(&name) else {
            let is_bound = self.seen.claim(&name).is_some_and(is_bound);
            if is_bound && matches!(self.seen.volumes.get(&name), Some(None)) {
                self.give_up(&format!("the volume of claim {name} is another driver's"));
            }
            return;
        };
        let volume = Some(volume.id.to_string());
        let size = self.seen.claim(&name).filter(|_| self.returns()).map(size_with);
        let Ok(size) = size.transpose() else { return };
        let Some(swap) = &mut self.entry.swap else { return };
        (swap.phase, swap.checksum, swap.volume_name) = (SwapPhase::Rebinding, digest, volume);
        (swap.size, swap.wait_start_time) = (size, None);
        self.exchange();
    }

    /// Exchanges the volumes of the claims, then updates the claim with its present size.
    pub(super) fn exchange(&mut self) {
        self.says.phase = Some(AutoscalerPhase::Swapping);
        self.go_on(SwapPhase::Rebinding, None, None);
        if self.entry.is_shrinking() {
            return self.tell_size();
        }
        let (seen, from, copy) = (self.seen, self.entry.active_claim.clone(), self.new_claim());
        self.ensure_held(&from);
        let next = Step::Exchange { claim: from.clone(), copy: copy.clone() };
        let known = seen.exchanges.get(&from);
        if known.is_some_and(Exchange::can_be_given_up)
            && let Some(why) = self.exchanges_too_slowly(&from)
        {
            return self.give_up(&why);
        }
        match known {
            None | Some(Exchange::Waits) => {}
            // Its node lets a raw device be opened for writing, so that the copy may lack something by now.
            Some(Exchange::Ready)
                if self.is_raw(&from) && !self.returns() && !seen.writers(&from).is_empty() =>
            {
                let pods: Vec<_> =
                    seen.writers(&from).into_iter().map(ResourceExt::name_any).collect();
                self.give_up(&format!(
                    "pod {} started to use claim {from} after that was copied, and may have written to it",
                    pods.join(", ")
                ));
            }
            Some(Exchange::Ready) if !self.returns() && self.outgrows().is_some() => {
                let why = self.outgrows().unwrap_or_default();
                self.give_up(&why);
            }
            Some(Exchange::Ready) => {
                self.stop_writers(&from);
                if seen.writers(&from).is_empty() && self.ensure_size_limited() {
                    self.steps.push(next);
                }
            }
            Some(Exchange::Next(_)) => {
                self.stop_writers(&from);
                self.steps.push(next);
            }
            Some(Exchange::Done) => self.end_exchange(),
            Some(Exchange::Never(why)) => {
                let why = why.clone();
                self.give_up(&why);
            }
            Some(Exchange::Stuck(why)) => self.wait(AutoscalerReason::ClaimConflict, why.clone()),
        }
        if let Some(why) = known.and_then(|known| known.awaits(&from, &copy)) {
            self.note_downtime(&from, false);
            self.report_slow_exchange(&why);
        }
    }

    fn is_raw(&self, claim: &str) -> bool {
        let spec = self.seen.claim(claim).and_then(|claim| claim.spec.as_ref());
        spec.is_some_and(|spec| spec.volume_mode.as_deref() == Some("Block"))
    }

    /// The size that the claim has to come to, if that is less than what it asks for.
    fn smaller(&self) -> Result<Option<Quantity>, UnreadableSize> {
        let asked = |name: &str| self.seen.claim(name).map(requested).transpose();
        let Some(swap) = &self.entry.swap else { return Ok(None) };
        let (to, has) = (asked(&swap.claim)?, asked(&self.entry.active_claim)?);
        Ok(to.map(|to| swap.size.unwrap_or(to)).filter(|to| has > Some(*to)))
    }

    /// Requests that the node of the new volume limits its size; returns true once it does: the resizer of Kubernetes would
    /// otherwise expand it to the old request as soon as the claim has it.
    fn ensure_size_limited(&mut self) -> bool {
        let Ok(smaller) = self.smaller() else { return false };
        let Some(to) = smaller else { return true };
        let Some(volume) = self.seen.volume_of(&self.new_claim()) else { return false };
        let started = self.entry.swap.as_ref().and_then(|swap| swap.start_time.as_ref());
        let begun = started.map_or(self.seen.now, |Time(at)| *at);
        let wish = Wish::Shrink { to: to.0, begun };
        match volume.answer_to(&wish) {
            Some(Ok(_)) => return true,
            Some(Err(NotDone { why, .. })) => {
                let message = format!(
                    "volume {} of pod {} is not limited to {to} yet: {why}",
                    volume.id,
                    self.pod()
                );
                self.wait(AutoscalerReason::ShrinkPending, message);
            }
            None => {}
        }
        self.ask_for(volume, wish);
        false
    }

    /// Ends the exchange: the claim has the new volume, and the one with the copy the old one, which
    /// is retained for its time.
    fn end_exchange(&mut self) {
        let (seen, copy) = (self.seen, self.new_claim());
        let Some(swap) = &self.entry.swap else { return };
        let new = swap.volume_name.clone().unwrap_or_default();
        let has_new =
            |claim: &str| seen.volume_of(claim).is_some_and(|volume| volume.id.to_string() == new);
        if has_new(&copy) || !has_new(&self.entry.active_claim) {
            return; // What was looked at first is of before.
        }
        let Ok(smaller) = self.smaller() else { return };
        if let Some(claim) = seen.claim(&copy) {
            let fence = self.last_fence(&copy);
            let uid = uid(&claim.metadata).to_owned();
            self.entry.retained_claims.retain(|old| old.name != copy);
            self.entry.retained_claims.push(Retained {
                name: claim.name_any(),
                uid,
                fence,
                ..Retained::default()
            });
        }
        self.entry.claim_revision += 1;
        if self.returns() {
            self.note_return();
        }
        let Some(swap) = &mut self.entry.swap else { return };
        (swap.fence, swap.detached_time, swap.reactivated_volume) = (None, None, None);
        swap.wait_start_time = None;
        let (change, generation, start_time) =
            (swap.summary.clone(), swap.spec_generation, swap.start_time.clone());
        self.entry.shrink = smaller.map(|to| InPlace {
            phase: InPlacePhase::UpdatingClaim,
            size: to,
            summary: change,
            spec_generation: generation,
            start_time,
            ..InPlace::default()
        });
        self.tell_size();
    }

    /// Lowers the size of the claim, as after a shrink in place; then its pod may start.
    fn tell_size(&mut self) {
        self.shrink_in_place();
        self.says.phase = Some(AutoscalerPhase::Swapping);
        if !self.entry.is_shrinking() {
            if let Some(swap) = &mut self.entry.swap {
                swap.phase = SwapPhase::Soaking;
            }
            self.soak();
        }
    }
}
