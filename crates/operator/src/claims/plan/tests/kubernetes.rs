//! What Kubernetes and the populator do in the explored world.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::tampering::ELSEWHERE;
use super::world::{Claim, FillingPhaseKey, PodModel, Source, TEMPLATES, World};
use crate::api::{Quantity, Swap, SwapPhase};
use crate::bytes::Bytes;
use crate::claims::pv_exchange::Exchange;
use crate::volume::{Fence, Use};

impl World {
    /// The claim that the webhook gives a pod, or the one that its workload makes.
    fn injected(&mut self) -> Option<String> {
        if self.left.keeps_names {
            let name = "data-db-0".to_owned();
            if !self.claims.contains_key(&name) {
                let size = Quantity(Bytes::gib(TEMPLATES[0].0));
                self.make_of(name.clone(), size, TEMPLATES[0].1, false);
                self.change(&name, |claim| claim.has_labels = false);
            }
            return Some(name);
        }
        let entry = self.status.of(0)?;
        let new = entry.swap.as_ref().filter(|swap| swap.gives_new_claim());
        Some(new.map_or(&entry.active_claim, |swap| &swap.claim).clone())
    }

    fn writes_to(&self, claim: &str) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.claim == claim && !pod.is_gated)
    }

    pub(super) fn make_pod(&mut self) -> bool {
        if self.pod.is_some() || self.replicas == 0 {
            return false;
        }
        let Some(claim) = self.injected() else { return false };
        let uid = self.uid();
        let is_gated = self.holds_pod() || self.lacks_claim();
        self.pod = Some(PodModel { uid, claim, is_running: false, is_gated });
        true
    }

    /// Whether the status says that the pod is not to be scheduled.
    fn holds_pod(&self) -> bool {
        let swap = self.status.of(0).and_then(|entry| entry.swap.as_ref());
        swap.is_some_and(Swap::holds_pod)
    }

    /// Whether the claim that the pod is to have is not there, as its swap knows it.
    fn lacks_claim(&self) -> bool {
        let Some(entry) = self.status.of(0) else { return false };
        let name = entry.claim_of_pod();
        let there = self.claims.get(name).map(|claim| claim.uid.to_string());
        entry.known_uid(name).is_some_and(|known| there.as_deref() != Some(known))
    }

    /// An operator lets a pod be scheduled that waits for nothing any more.
    pub(super) fn open_gate(&mut self) -> bool {
        let claim = self.pod.as_ref().and_then(|pod| self.claims.get(&pod.claim));
        let is_for_a_copy = claim.is_some_and(|claim| claim.fence.lets() == Use::Read);
        let named = self.pod.as_ref().map(|pod| &*pod.claim);
        let is_outdated =
            self.status.of(0).is_some_and(|entry| Some(entry.claim_of_pod()) != named);
        let is_proved = claim.is_none_or(|claim| {
            let is_filled = claim.content.is_none() || claim.is_filled;
            !claim.is_copy || self.is_proved_complete(claim) && is_filled
        });
        let may_lack = !is_proved && self.status.of(0).is_none() && !self.left.keeps_names;
        let is_held = self.holds_pod() || self.lacks_claim();
        if is_held || is_outdated || self.exchange.is_some() || is_for_a_copy || may_lack {
            return false;
        }
        self.pod.as_mut().is_some_and(|pod| std::mem::take(&mut pod.is_gated))
    }

    /// How far the exchange is that a swap knows of.
    pub(super) fn exchanges(&self) -> BTreeMap<String, Exchange> {
        let mut all = BTreeMap::new();
        let Some(entry) = self.status.of(0) else { return all };
        let swap = entry.swap.as_ref().filter(|swap| swap.phase == SwapPhase::Rebinding);
        let Some(swap) = swap.filter(|_| !entry.is_shrinking()) else { return all };
        let (active, copy) = (self.claims.get(&entry.active_claim), self.claims.get(&swap.claim));
        let has =
            |claim: Option<&Claim>| claim.map(|claim| claim.id().to_string()) == swap.volume_handle;
        let exchange = match self.exchange {
            Some(_) => Exchange::Waits,
            None if has(active) => Exchange::Done,
            None if active.is_some() && has(copy) => Exchange::Ready,
            None => Exchange::Never("it is gone".to_owned()),
        };
        all.insert(entry.active_claim.clone(), exchange);
        all
    }

    /// Both claims have their volumes; nobody can have used one meanwhile.
    pub(super) fn end_exchange(&mut self) -> bool {
        let Some((active, copy)) = self.exchange.take() else { return false };
        let (Some(one), Some(other)) = (self.claims.get(&active), self.claims.get(&copy)) else {
            return false;
        };
        let runs = self.pod.as_ref().is_some_and(|pod| pod.is_running && pod.claim == active);
        assert!(!runs, "a pod has a volume that is exchanged, in {self:#?}");
        let begins_anew = self.kept == Some(self.data);
        let is_all = |content| content == self.data || begins_anew || self.is_wanted_back(content);
        assert!(other.content.is_some_and(is_all), "what is exchanged is not all, in {self:#?}");
        let (one, other) = (one.clone(), other.clone());
        self.change(&active, |claim| claim.take_volume(&other));
        self.change(&copy, |claim| claim.take_volume(&one));
        true
    }

    /// A pod finds all that was ever written, and writes more; a pod that the workload wants no more ends.
    pub(super) fn start_pod(&mut self) -> bool {
        if self.replicas == 0 {
            return self.pod.take().is_some();
        }
        let waits = |pod: &PodModel| !pod.is_running && !pod.is_gated && self.exchange.is_none();
        let Some(pod) = self.pod.clone().filter(waits) else { return false };
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
        let has_all = content == self.data || begins_anew || self.is_wanted_back(content);
        assert!(has_all, "a pod starts without what was written, in {self:#?}");
        // What says so on a claim that came back is taken off, and keeps nobody out.
        let is_back = self.is_wanted_back(content);
        let is_marked = claim.superseded && claim.forged_by.is_none();
        assert!(!is_marked || is_back, "a pod starts on a superseded claim, in {self:#?}");
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
            let is_new =
                matches!(source.phase, FillingPhaseKey::Waiting | FillingPhaseKey::Refused);
            source.paused && !source.copies_ahead && is_new
        };
        let Some(name) = self.source_that(waits) else { return false };
        self.tell(&name, FillingPhaseKey::Held);
        true
    }

    /// The source of a claim that is still wanted, and has no volume yet.
    fn source_that(&self, is: impl Fn(&Source) -> bool) -> Option<String> {
        let is_fillable = |claim: &Claim| !claim.is_ending && claim.content.is_none();
        let is_it = |(name, source): &(&String, &Source)| {
            self.claims.get(*name).is_some_and(is_fillable) && is(source)
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
            let is_new =
                matches!(source.phase, FillingPhaseKey::Waiting | FillingPhaseKey::Refused);
            source.paused && source.copies_ahead && is_new
        };
        let Some(name) = self.source_that(is_it) else { return false };
        self.tell(&name, to);
        true
    }

    /// The populator begins the one copy that it can.
    pub(super) fn begin_copy(&mut self) -> bool {
        let is_it = |source: &Source| {
            let is_new =
                matches!(source.phase, FillingPhaseKey::Waiting | FillingPhaseKey::Refused);
            (is_new || source.is_told_of_before) && self.can_begin(source)
        };
        if self.left.refuses_all {
            let is_refused = |source: &Source| source.phase == FillingPhaseKey::Refused;
            let Some(name) = self.source_that(|one| is_it(one) && !is_refused(one)) else {
                return false;
            };
            self.tell(&name, FillingPhaseKey::Refused);
            return true;
        }
        let Some(name) = self.source_that(is_it) else { return false };
        let from = self.sources[&name].from.clone();
        let there = self.claims.get(&from);
        let there = there.filter(|claim| claim.fence.lets() != Use::None && !claim.is_ending);
        let read = there.and_then(|claim| claim.content).or((from == ELSEWHERE).then_some(0));
        self.change(&from, |claim| claim.is_read |= claim.fence.lets() == Use::Read);
        self.asked.iter_mut().flatten().for_each(|(_, asked)| asked.is_old = true);
        self.tell(&name, FillingPhaseKey::Filling);
        self.sources.get_mut(&name).expect("it was found").read = read;
        read.is_some()
    }

    /// Whether nothing but who guards the namespace keeps a copy from beginning.
    fn can_begin(&self, source: &Source) -> bool {
        !source.paused && !self.writes_to(&source.from)
    }

    /// A pod that copies is refused, or one that tries whether that can be.
    pub(super) fn refuse(&mut self) -> bool {
        let is_it = |source: &Source| {
            let is_new = source.phase == FillingPhaseKey::Waiting || source.is_told_of_before;
            is_new && (source.paused || self.can_begin(source))
        };
        let Some(name) = self.source_that(is_it) else { return false };
        self.left.refusals -= 1;
        self.tell(&name, FillingPhaseKey::Refused);
        true
    }

    /// A pod is down for as long as it may be without a copy.
    pub(super) fn await_limit(&mut self) -> bool {
        let swap = self.status.of(0).and_then(|entry| entry.swap.as_ref());
        let since = swap.and_then(|swap| swap.wait_start_time.as_ref());
        let is_refused =
            self.sources.values().any(|source| source.phase == FillingPhaseKey::Refused);
        let is_exchanging = swap.is_some_and(|swap| swap.phase == SwapPhase::Rebinding);
        // What an exchange waits for that has not begun: the node of the new volume, or the API server.
        let begins_late = is_exchanging && self.exchange.is_none() && self.left.stalls > 0;
        let is_stuck = is_refused || self.stalls() || begins_late || self.is_held_up_by_user();
        let waits = since.is_some_and(|Time(since)| *since == self.now()) && is_stuck;
        self.left.stalls -= u8::from(waits && begins_late);
        self.hours += i64::from(waits);
        waits
    }

    /// Whether a pod that copies is not known to go on.
    pub(super) fn stalls(&self) -> bool {
        self.sources.values().any(|source| source.phase == FillingPhaseKey::Stalled)
    }

    /// The node of the pod that copies does not respond.
    pub(super) fn stall(&mut self) -> bool {
        let Some(name) = self.source_that(|source| source.phase == FillingPhaseKey::Filling) else {
            return false;
        };
        self.left.stalls -= 1;
        self.tell(&name, FillingPhaseKey::Stalled);
        true
    }

    /// It ends, and its volume is the claim's.
    pub(super) fn end_copy(&mut self) -> bool {
        let is_it = |source: &Source| {
            let runs = matches!(source.phase, FillingPhaseKey::Filling | FillingPhaseKey::Stalled);
            runs && !self.writes_to(&source.from)
        };
        let Some(name) = self.source_that(is_it) else { return false };
        self.tell(&name, FillingPhaseKey::Filled);
        let read = self.sources[&name].read;
        // Its node was told that it is half copied, and then that it is not.
        let fence = Fence { generation: 2, ..Fence::default() };
        self.change(&name, |claim| {
            (claim.content, claim.fence, claim.is_filled) = (read, fence, true);
        });
        true
    }

    pub(super) fn fail_copy(&mut self) -> bool {
        let runs = |source: &&mut Source| source.phase == FillingPhaseKey::Filling;
        let Some(source) = self.sources.values_mut().find(runs) else { return false };
        let differs = self.left.differs;
        source.phase = if differs { FillingPhaseKey::Different } else { FillingPhaseKey::Failed };
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
        if let Some(source) = self.sources.get_mut(&name) {
            // What was told of it is told of no other claim of its name.
            (source.phase, source.is_told_of_before) = (FillingPhaseKey::Waiting, false);
            source.read = None;
        }
        let is_of_use = |content| content == self.data || self.is_wanted_back(content);
        let is_there = self.claims.values().any(|claim| claim.content.is_some_and(is_of_use));
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
