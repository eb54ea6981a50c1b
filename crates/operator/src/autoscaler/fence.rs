//! Fences of the volumes of old claims, which their nodes store. Pure.
//!
//! Only volumes of this driver can be fenced. Each fence has a higher number than all before it, and is
//! in the status before a node gets it: a late request of a replica changes nothing.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{FenceState, FenceStatus, Retained, Swap};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::objects::{bounded, is_ending, is_fillable};
use crate::autoscaler::turn::Turn;
use crate::cluster::{Look, VolumeSeen, Wish};
use crate::volume::{Fence, VolumeId};

impl Turn<'_> {
    /// Proves that nothing writes to the old volume, now or later; true once that is so. Until then its node is
    /// asked. For a volume of another driver the state in Kubernetes must do: the pod object is gone, and its node
    /// does not run the pod.
    pub(super) fn prove_unused(&mut self, from: &str) -> bool {
        let seen = self.seen;
        let Some(looked_up) = seen.volumes.get(from) else { return false };
        if self.is_known_unused() {
            return true;
        }
        let Some(volume) = looked_up else {
            let is_proved = !self.wait_if_may_still_run();
            self.note_detached(is_proved);
            return is_proved;
        };
        let fence = match self.entry.swap.as_ref().and_then(|swap| swap.fence) {
            Some(fence) => self.renumbered(volume, fence),
            None => self.next_fence(volume, FenceState::Superseded, true),
        };
        self.note_fence(Some(fence));
        let is_proved = self.ensure_unused(from, volume, fence);
        self.note_detached(is_proved);
        is_proved
    }

    /// Stores what the node of the old volume is asked for.
    pub(super) fn note_fence(&mut self, fence: Option<FenceStatus>) {
        if let Some(swap) = &mut self.entry.swap {
            swap.fence = fence;
        }
    }

    /// Stores whether the old volume is unused as of now.
    fn note_detached(&mut self, is_proved: bool) {
        if let Some(swap) = &mut self.entry.swap {
            swap.detached_time = is_proved.then_some(Time(self.seen.now));
        }
    }

    /// Returns true if the status confirms that nothing writes to the old volume: only a copy made since then is
    /// complete.
    pub(super) fn is_known_unused(&self) -> bool {
        self.entry.swap.as_ref().is_some_and(Swap::is_proved_unused)
    }

    /// Starts to return the old volume to its pod, if it was fenced. The fence has a new number, so
    /// that no observation from before the copy counts as proof.
    pub(super) fn call_back(&mut self) {
        let (seen, from) = (self.seen, self.entry.active_claim.clone());
        let is_taken = self.entry.swap.as_ref().is_some_and(|swap| swap.fence.is_some());
        if let Some(volume) = seen.volume_of(&from).filter(|_| is_taken) {
            let fence = self.next_fence(volume, FenceState::Superseded, true);
            self.note_fence(Some(fence));
        }
    }

    /// Requests that the node of the old volume admits the pod again; returns true once it does. It is not asked
    /// before the copy has released the volume: a copy mounts it read-only, and its pod would find it so.
    pub(super) fn ensure_given_back(&mut self) -> bool {
        let (seen, from) = (self.seen, self.entry.active_claim.clone());
        let Some(swap) = &self.entry.swap else { return true };
        let (told, was_detached) = (swap.fence, swap.detached_time.is_some());
        let (Some(told), Some(volume)) = (told, seen.volume_of(&from)) else { return true };
        if told.state == FenceState::Active {
            let still = self.still_to_be(volume, told);
            self.note_fence(still.or(Some(told)));
            return still.is_none();
        }
        let fence = self.renumbered(volume, told);
        self.note_fence(Some(fence));
        let is_copied = seen.claim(&self.new_claim()).is_some_and(is_fillable);
        let is_let_go = !is_copied && !seen.is_read_by_us(&from);
        // Before a copy it had no other mounts than before, and those do not block the pod.
        let is_ending = seen.claim(&from).is_some_and(|claim| is_ending(&claim.metadata));
        let is_looked_at = is_ending || was_detached;
        if is_let_go && (!is_looked_at || self.ensure_unused(&from, volume, fence)) {
            let fence = self.next_fence(volume, FenceState::Active, false);
            self.note_fence(Some(fence));
            self.ask(volume, fence);
        }
        false
    }

    /// Asks the node of a fenced volume who has it open; returns true if no process has had it open since the
    /// fence.
    fn ensure_unused(&mut self, claim: &str, volume: &VolumeSeen, fence: FenceStatus) -> bool {
        match volume.look_after(&Fence::from(&fence)) {
            Some(look) if look.open_count == 0 => return true,
            Some(look) => self.wait_for_holder(claim, &volume.id, look),
            None => {}
        }
        self.ask(volume, fence);
        false
    }

    /// Returns the fence for the volume of a claim that was replaced: nothing can access it any more,
    /// not even to read.
    pub(super) fn last_fence(&mut self, from: &str) -> Option<FenceStatus> {
        let volume = self.seen.volume_of(from)?;
        Some(self.next_fence(volume, FenceState::Superseded, false))
    }

    /// Ensures the last fences of the volumes of the previous claims.
    pub(super) fn close_retained(&mut self) {
        let mut retained = std::mem::take(&mut self.entry.retained_claims);
        for old in &mut retained {
            old.fence = self.still_to_close(old);
        }
        self.entry.retained_claims = retained;
    }

    fn still_to_close(&mut self, old: &Retained) -> Option<FenceStatus> {
        let told = old.fence?;
        match self.seen.volumes.get(&old.name) {
            Some(Some(volume)) => self.still_to_be(volume, told),
            Some(None) => None,
            None => Some(told),
        }
    }

    /// Returns the fence that a volume does not have yet; its node is asked for it.
    fn still_to_be(&mut self, volume: &VolumeSeen, told: FenceStatus) -> Option<FenceStatus> {
        if volume.is(&Fence::from(&told)) {
            return None;
        }
        let fence = self.renumbered(volume, told);
        self.ask(volume, fence);
        Some(fence)
    }

    /// Reports that the node of the pod's volume admits no pod, because another volume replaced it that no
    /// status refers to. If the generation of its fence is in the specification, the pod gets it as it is.
    pub(super) fn report_superseded(&mut self, claim: &PersistentVolumeClaim) -> bool {
        let (seen, name) = (self.seen, claim.name_any());
        if let (Some(told), Some(volume)) = (self.entry.reactivated_volume, seen.volume_of(&name)) {
            self.entry.reactivated_volume = self.still_to_be(volume, told);
            return self.entry.reactivated_volume.is_some();
        }
        let Some(since) = seen.superseded.get(&name).copied() else { return false };
        let ordinal = self.entry.ordinal;
        let mut asked = seen.autoscaler.spec.reactivate.iter();
        if asked.any(|one| (one.ordinal, one.fence_generation) == (ordinal, since))
            && let Some(volume) = seen.volume_of(&name)
        {
            let fence = self.next_fence(volume, FenceState::Active, false);
            self.entry.reactivated_volume = Some(fence);
            self.ask(volume, fence);
            return true;
        }
        let message = format!(
            "the volume of claim {name} of pod {} is superseded since generation {since}: another volume \
             replaced it, and no status refers to that, for example after a restore of the API server. Look \
             for newer claims and PersistentVolumes; if there are none, let the pod use this volume as it is: {}",
            self.pod(),
            self.how_to_reactivate(since)
        );
        self.wait(AutoscalerReason::VolumeSuperseded, message);
        true
    }

    /// Returns the command that gives a pod its superseded volume. The field is for a StatefulSet: who names a claim
    /// in other pods may have named an old one by mistake, so its node has to be asked by hand.
    fn how_to_reactivate(&self, since: i64) -> String {
        let autoscaler = &self.seen.autoscaler;
        if autoscaler.spec.stateful_set().is_none() {
            return "run the command that `kubectl describe pod` shows for that pod".to_owned();
        }
        let ordinal = self.entry.ordinal;
        format!(
            "`kubectl patch pvcautoscaler {} --namespace {} --type=merge -p \
             '{{\"spec\":{{\"reactivate\":[{{\"ordinal\":{ordinal},\"fenceGeneration\":{since}}}]}}}}'`",
            autoscaler.name_any(),
            autoscaler.namespace().unwrap_or_default()
        )
    }

    /// Has the node set a fence of a volume, and inspect it.
    pub(super) fn ask(&mut self, volume: &VolumeSeen, fence: FenceStatus) {
        let wanted = Fence::from(&fence);
        if let Some(why) = volume.failure_of(&wanted) {
            let message = format!(
                "volume {} of pod {} is to be {}, but its node has not confirmed that yet: {why}",
                volume.id,
                self.pod(),
                fence.state.words()
            );
            self.wait(AutoscalerReason::VolumeNotFenced, message);
        }
        self.ask_for(volume, Wish::Fence(wanted));
    }

    /// Returns the same fence under a higher number, if the volume has another fence by now.
    pub(super) fn renumbered(&mut self, volume: &VolumeSeen, told: FenceStatus) -> FenceStatus {
        let is_up_to_date = volume.takes(&Fence::from(&told));
        if is_up_to_date {
            told
        } else {
            self.next_fence(volume, told.state, told.copy_in_progress)
        }
    }

    pub(super) fn next_fence(
        &mut self,
        volume: &VolumeSeen,
        state: FenceState,
        copying: bool,
    ) -> FenceStatus {
        let generation = volume.next_generation(self.entry.fence_generation);
        self.entry.fence_generation = generation;
        FenceStatus { state, generation, copy_in_progress: copying }
    }

    fn wait_for_holder(&mut self, from: &str, volume: &VolumeId, look: &Look) {
        let key = volume.key().as_str();
        let pods: Vec<String> = self.seen.pods_with(from).map(ResourceExt::name_any).collect();
        let what_to_do = if pods.is_empty() {
            format!(
                "no pod uses it; on that node, `fuser -v /dev/mapper/*{key}` lists the processes that do, and \
                 `findmnt /dev/mapper/*{key}` the mounts; stop them"
            )
        } else {
            format!("stop {}, or wait until it ends", pods.join(", "))
        };
        let message = format!(
            "claim {from} is still in use, so pod {} waits: the device of its volume {volume} is open on \
             node {} ({}); {what_to_do}",
            self.pod(),
            look.node,
            times(look.open_count)
        );
        let before =
            self.seen.autoscaler.status.as_ref().and_then(|status| status.message.as_ref());
        if before != Some(&bounded(&message)) {
            self.tell(AutoscalerReason::ClaimInUse, &self.attempt(), message.clone());
        }
        self.wait(AutoscalerReason::ClaimInUse, message);
    }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
