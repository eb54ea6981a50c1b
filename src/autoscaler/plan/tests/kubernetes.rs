//! What Kubernetes and the populator do in the explored world.

use super::world::{Claim, FillingPhaseKey, PodModel, Source, World};
use crate::api::{Swap, SwapPhase};
use crate::volume::Use;

impl World {
    /// The claim that the webhook gives a pod.
    fn injected(&self) -> Option<String> {
        let entry = self.status.of(0)?;
        let new = entry.swap.as_ref().filter(|swap| swap.gives_new_claim());
        Some(new.map_or(&entry.active_claim, |swap| &swap.claim).clone())
    }

    fn writes_to(&self, claim: &str) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.claim == claim)
    }

    pub(super) fn make_pod(&mut self) -> bool {
        let claim = self.injected().filter(|_| self.pod.is_none() && self.replicas > 0);
        let Some(claim) = claim else { return false };
        let uid = self.uid();
        self.pod = Some(PodModel { uid, claim, is_running: false });
        true
    }

    /// A pod finds all that was ever written, and writes more; a pod that the workload wants no more ends.
    pub(super) fn start_pod(&mut self) -> bool {
        if self.replicas == 0 {
            return self.pod.take().is_some();
        }
        let Some(pod) = self.pod.clone().filter(|pod| !pod.is_running) else { return false };
        let Some(claim) = self.claims.get(&pod.claim).filter(|claim| !claim.is_ending) else {
            return false;
        };
        let Some(content) = claim.content else { return false };
        if claim.fence.lets() != Use::Any {
            let is_first = self.keeper == Some(0);
            assert!(!is_first || claim.fence.lets() == Use::None, "it is read-only, in {self:#?}");
            return false; // Its volume is not staged.
        }
        // Who deletes claim and PvcAutoscaler begins anew; what was written stays in a volume.
        let begins_anew = self.kept == Some(self.data);
        let has_all = content == self.data || begins_anew;
        assert!(has_all, "a pod starts without what was written, in {self:#?}");
        assert!(!claim.superseded, "a pod starts on a superseded claim, in {self:#?}");
        self.data += 1;
        let data = self.data;
        self.change(&pod.claim, |claim| claim.content = Some(data));
        self.pod = Some(PodModel { is_running: true, ..pod });
        true
    }

    pub(super) fn provision(&mut self) -> bool {
        let waits = |claim: &&mut Claim| !claim.is_copy && claim.content.is_none();
        if let Some(claim) = self.claims.values_mut().find(waits) {
            claim.content = Some(0);
            return true;
        }
        let waits = |source: &Source| {
            let is_new = source.phase == FillingPhaseKey::Waiting;
            source.paused && !source.copies_ahead && is_new
        };
        let Some(name) = self.source_that(waits) else { return false };
        self.tell(&name, FillingPhaseKey::Held);
        true
    }

    /// The source of a claim that is still wanted.
    fn source_that(&self, is: impl Fn(&Source) -> bool) -> Option<String> {
        let is_it = |(name, source): &(&String, &Source)| {
            self.claims.get(*name).is_some_and(|claim| !claim.is_ending) && is(source)
        };
        self.sources.iter().find(is_it).map(|(name, _)| name.clone())
    }

    fn tell(&mut self, name: &str, phase: FillingPhaseKey) {
        let source = self.sources.get_mut(name).expect("it was found");
        (source.phase, source.is_told_of_before) = (phase, false);
    }

    /// The populator ends its rounds, whoever writes.
    pub(super) fn copy_ahead(&mut self, to: FillingPhaseKey) -> bool {
        let is_it = |source: &Source| {
            source.paused && source.copies_ahead && source.phase == FillingPhaseKey::Waiting
        };
        let Some(name) = self.source_that(is_it) else { return false };
        self.tell(&name, to);
        true
    }

    /// The populator begins the one copy that it can.
    pub(super) fn begin_copy(&mut self) -> bool {
        let is_it = |source: &Source| {
            let is_open = source.phase == FillingPhaseKey::Waiting || source.is_told_of_before;
            is_open && !source.paused && !self.writes_to(&source.from)
        };
        let Some(name) = self.source_that(is_it) else { return false };
        let from = self.sources[&name].from.clone();
        let there = self.claims.get(&from);
        let there = there.filter(|claim| claim.fence.lets() != Use::None && !claim.is_ending);
        let read = there.and_then(|claim| claim.content);
        self.change(&from, |claim| claim.is_read |= claim.fence.lets() == Use::Read);
        self.asked.iter_mut().flatten().for_each(|(_, asked)| asked.is_old = true);
        self.tell(&name, FillingPhaseKey::Filling);
        self.sources.get_mut(&name).expect("it was found").read = read;
        read.is_some()
    }

    /// It ends, and its volume is the claim's.
    pub(super) fn end_copy(&mut self) -> bool {
        let is_it = |source: &Source| {
            source.phase == FillingPhaseKey::Filling && !self.writes_to(&source.from)
        };
        let Some(name) = self.source_that(is_it) else { return false };
        self.tell(&name, FillingPhaseKey::Filled);
        let read = self.sources[&name].read;
        self.change(&name, |claim| claim.content = read);
        true
    }

    pub(super) fn fail_copy(&mut self) -> bool {
        let runs = |source: &&mut Source| source.phase == FillingPhaseKey::Filling;
        let Some(source) = self.sources.values_mut().find(runs) else { return false };
        source.phase = FillingPhaseKey::Failed;
        true
    }

    /// A claim that was deleted goes when no pod has it that is on a node.
    pub(super) fn vanish(&mut self) -> bool {
        let used = self.pod.as_ref().filter(|pod| pod.is_running).map(|pod| pod.claim.clone());
        let goes = |(name, claim): &(&String, &Claim)| {
            let is_used = used.as_ref() == Some(*name)
                || self.sources.iter().any(|source| self.reads(source, name));
            claim.is_ending && !claim.has_finalizer && !is_used
        };
        let Some(name) = self.claims.iter().find(goes).map(|(name, _)| name.clone()) else {
            return false;
        };
        let Some(gone) = self.claims.remove(&name) else { return false };
        let is_there = self.claims.values().any(|claim| claim.content == Some(self.data));
        let is_last = gone.content == Some(self.data) && !is_there;
        assert!(!is_last || gone.is_volume_kept, "the only copy, {name}, goes in {self:#?}");
        if is_last {
            self.kept = gone.content;
        }
        true
    }

    /// Somebody deletes the claim of a pod that is to get another one.
    pub(super) fn delete_claim(&mut self) -> bool {
        let is_under_way =
            |swap: &Swap| !matches!(swap.phase, SwapPhase::Soaking | SwapPhase::Failed);
        let Some(entry) = self.status.of(0) else { return false };
        if !entry.swap.as_ref().is_some_and(is_under_way) {
            return false;
        }
        let name = entry.active_claim.clone();
        // With neither it goes at once, whether or not there is a swap.
        let runs = self.pod.as_ref().is_some_and(|pod| pod.is_running && pod.claim == name);
        if !runs && !self.claims.get(&name).is_some_and(|claim| claim.has_finalizer) {
            return false;
        }
        self.left.claim_deletions -= 1;
        self.change(&name, |claim| claim.is_ending = true);
        true
    }
}
