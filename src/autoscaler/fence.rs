//! What the volumes of old claims are told to be, as their nodes keep it. Pure.
//!
//! Only volumes of this driver can be told. Each telling has a number that is higher than all before, and
//! is in the status before a node is asked: what a replica still asks for late changes nothing.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{FenceState, FenceStatus, Retained, Swap};
use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::plan::bounded;
use crate::autoscaler::seen::is_ending;
use crate::autoscaler::swap::is_fillable;
use crate::autoscaler::turn::Turn;
use crate::cluster::{Look, VolumeSeen, Wish};
use crate::volume::{Fence, VolumeId};

impl Turn<'_> {
    /// Prove that nobody writes to the old volume, and that nobody will; true once that is so. Until then its node
    /// is asked. For a volume of another driver what Kubernetes knows has to do: that the pod has no object
    /// any more, and that its node does not run it.
    pub(super) fn prove_unused(&mut self, from: &str) -> bool {
        let seen = self.seen;
        let Some(looked_up) = seen.volumes.get(from) else { return false };
        if self.is_known_unused() {
            return true;
        }
        let Some(volume) = looked_up else {
            let is_proved = !self.may_still_run();
            self.swap_mut().detached_time = is_proved.then_some(Time(seen.now));
            return is_proved;
        };
        let fence = match self.swap_mut().fence {
            Some(fence) => self.renumbered(volume, fence),
            None => self.next_fence(volume, FenceState::Superseded, true),
        };
        self.swap_mut().fence = Some(fence);
        let is_proved = self.is_unused(from, volume, fence);
        self.swap_mut().detached_time = is_proved.then_some(Time(seen.now));
        is_proved
    }

    /// True if the status says that nobody writes to the old volume: only what is copied since then has all of it.
    pub(super) fn is_known_unused(&self) -> bool {
        self.entry.swap.as_ref().is_some_and(Swap::is_proved_unused)
    }

    /// From here on the old volume is on its way back to its pod, if it was taken from it. Under a new
    /// number, so that nothing is taken for proved that was seen before the copy.
    pub(super) fn call_back(&mut self) {
        let (seen, from) = (self.seen, self.entry.active_claim.clone());
        let is_taken = self.swap_mut().fence.is_some();
        if let Some(volume) = seen.volume_of(&from).filter(|_| is_taken) {
            self.swap_mut().fence = Some(self.next_fence(volume, FenceState::Superseded, true));
        }
    }

    /// Whether the node of the old volume lets the pod in again. Until then it is asked; but not before the
    /// copy has let the volume go: that has it mounted read-only, and its pod would find it so.
    pub(super) fn is_given_back(&mut self) -> bool {
        let (seen, from) = (self.seen, self.entry.active_claim.clone());
        let told = self.swap_mut().fence;
        let (Some(told), Some(volume)) = (told, seen.volume_of(&from)) else { return true };
        if told.state == FenceState::Active {
            let still = self.still_to_be(volume, told);
            self.swap_mut().fence = still.or(Some(told));
            return still.is_none();
        }
        let fence = self.renumbered(volume, told);
        self.swap_mut().fence = Some(fence);
        let is_copied = seen.claim(&self.new_claim()).is_some_and(is_fillable);
        let is_let_go = !is_copied && !seen.is_read_by_us(&from);
        // Before a copy it was mounted by no other than before, and those keep the pod from nothing.
        let is_ending = seen.claim(&from).is_some_and(|claim| is_ending(&claim.metadata));
        let is_looked_at = is_ending || self.swap_mut().detached_time.is_some();
        if is_let_go && (!is_looked_at || self.is_unused(&from, volume, fence)) {
            let fence = self.next_fence(volume, FenceState::Active, false);
            self.swap_mut().fence = Some(fence);
            self.ask(volume, fence);
        }
        false
    }

    /// Whether nobody has a volume open since it is what it was told. Until then its node is asked.
    fn is_unused(&mut self, claim: &str, volume: &VolumeSeen, fence: FenceStatus) -> bool {
        match volume.look_after(&Fence::from(&fence)) {
            Some(look) if look.open_count == 0 => return true,
            Some(look) => self.wait_for_holder(claim, &volume.id, look),
            None => {}
        }
        self.ask(volume, fence);
        false
    }

    /// What the volume of a claim is told whose place another one has taken: nobody gets at it any more,
    /// not even to read.
    pub(super) fn last_fence(&mut self, from: &str) -> Option<FenceStatus> {
        let volume = self.seen.volume_of(from)?;
        Some(self.next_fence(volume, FenceState::Superseded, false))
    }

    /// Have the volumes of the claims before be what they were told last.
    pub(super) fn close_retained(&mut self) {
        let mut retained = std::mem::take(&mut self.entry.retained);
        for old in &mut retained {
            old.fence = self.still_to_close(old);
        }
        self.entry.retained = retained;
    }

    fn still_to_close(&mut self, old: &Retained) -> Option<FenceStatus> {
        let told = old.fence?;
        match self.seen.volumes.get(&old.claim) {
            Some(Some(volume)) => self.still_to_be(volume, told),
            Some(None) => None,
            None => Some(told),
        }
    }

    /// What a volume is told to be and is not yet; its node is asked for that.
    fn still_to_be(&mut self, volume: &VolumeSeen, told: FenceStatus) -> Option<FenceStatus> {
        if volume.is(&Fence::from(&told)) {
            return None;
        }
        let fence = self.renumbered(volume, told);
        self.ask(volume, fence);
        Some(fence)
    }

    /// Whether the node of the pod's volume lets it be used by none, for another one took its place of which no
    /// status tells. Whoever writes its generation into the specification lets the pod have it as it is.
    pub(super) fn report_superseded(&mut self, claim: &PersistentVolumeClaim) -> bool {
        let (seen, name) = (self.seen, claim.name_any());
        if let (Some(told), Some(volume)) = (self.entry.reopened, seen.volume_of(&name)) {
            self.entry.reopened = self.still_to_be(volume, told);
            return self.entry.reopened.is_some();
        }
        let Some(since) = seen.superseded.get(&name).copied() else { return false };
        let ordinal = self.entry.ordinal;
        let mut asked = seen.autoscaler.spec.reopen.iter();
        if asked.any(|one| (one.ordinal, one.generation) == (ordinal, since))
            && let Some(volume) = seen.volume_of(&name)
        {
            let fence = self.next_fence(volume, FenceState::Active, false);
            self.entry.reopened = Some(fence);
            self.ask(volume, fence);
            return true;
        }
        let message = format!(
            "claim {name} of pod {} has a volume that is superseded since generation {since}: another one took its \
             place, and no status tells of that, as after a restore of the API server. Look for claims and \
             PersistentVolumes that are newer; if there is none, have the pod use this one as it is: `kubectl patch \
             pvcautoscaler {} --namespace {} --type=merge -p \
             '{{\"spec\":{{\"reopen\":[{{\"ordinal\":{ordinal},\"generation\":{since}}}]}}}}'`",
            self.pod(),
            seen.autoscaler.name_any(),
            seen.autoscaler.namespace().unwrap_or_default()
        );
        self.wait(AutoscalerReason::VolumeSuperseded, message);
        true
    }

    /// Have a node tell a volume what it is, and look at it.
    pub(super) fn ask(&mut self, volume: &VolumeSeen, fence: FenceStatus) {
        let wanted = Fence::from(&fence);
        if let Some(why) = volume.failure_of(&wanted) {
            let message = format!(
                "volume {} of pod {} is to be {}, and its node has not written that on it yet: {why}",
                volume.id,
                self.pod(),
                fence.state.words()
            );
            self.wait(AutoscalerReason::VolumeNotFenced, message);
        }
        self.ask_for(volume, Wish::Fence(wanted));
    }

    /// The same under a higher number, if the volume was told another thing since.
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
                "no pod has it, and `fuser -v /dev/mapper/*{key}` there names the processes that do, `findmnt \
                 /dev/mapper/*{key}` the mounts; stop them"
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
