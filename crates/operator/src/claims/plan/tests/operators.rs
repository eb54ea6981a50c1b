//! What operators do in the explored world.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::world::{Claim, Decided, FillingPhaseKey, RETENTION, Source, TEMPLATES, World};
use crate::api::{Quantity, SwapPhase};
use crate::claims::plan::plan;
use crate::claims::steps::Step;
use crate::volume::Fence;

impl World {
    pub(super) fn look(&mut self, n: usize) -> bool {
        let plan = plan(&self.seen(n));
        self.holds_others_up(n);
        let note = (plan.status != self.status).then(|| (self.status.clone(), plan.status));
        let steps: VecDeque<Step> =
            plan.steps.into_iter().filter(|step| !matches!(step, Step::Tell { .. })).collect();
        let is_new = note.is_some() || !steps.is_empty();
        if is_new {
            let marks = self.claims.iter().map(|(name, claim)| (name.clone(), claim.marks));
            let marks = marks.collect();
            let froms = self.sources.iter().map(|(name, one)| (name.clone(), one.from.clone()));
            self.operators[n] = Some(Decided { note, steps, marks, froms: froms.collect() });
        }
        is_new
    }

    /// The next effect of an operator; one that meets another world than it was decided in fails, and the
    /// operator looks again.
    pub(super) fn act(&mut self, n: usize) -> bool {
        let Some(mut decided) = self.operators[n].take() else { return false };
        if let Some((before, after)) = decided.note.take() {
            if before != self.status {
                return true;
            }
            self.status = after;
            self.note_answer();
            self.count_tries(&before);
            self.lists_each_claim_once();
        } else if let Some(step) = decided.steps.pop_front() {
            self.apply(n, step, &decided);
        }
        if !decided.steps.is_empty() {
            self.operators[n] = Some(decided);
        }
        true
    }

    /// The API server takes no status with two retained claims of one uid.
    fn lists_each_claim_once(&self) {
        for entry in &self.status.ordinals {
            let uids: BTreeSet<&str> =
                entry.retained_claims.iter().map(|old| old.uid.as_str()).collect();
            let is_once = uids.len() == entry.retained_claims.len();
            assert!(is_once, "a retained claim is listed twice, in {self:#?}");
        }
    }

    fn apply(&mut self, n: usize, step: Step, Decided { marks, froms, .. }: &Decided) {
        match step {
            Step::MakeClaim { claim, size, .. } => self.make(claim, size, false),
            Step::MakeCopy { claim, size, .. } => self.make(claim, size, true),
            Step::Adopt { claim, .. } => self.change(&claim, |claim| {
                (claim.has_labels, claim.is_anothers) = (true, false);
            }),
            Step::Grow { claim, size } => {
                let gib = size.0.get() >> 30;
                self.change(&claim, |claim| claim.gib = claim.gib.max(gib));
            }
            Step::MakeSource { claim, from, .. } => {
                let source = Source {
                    from,
                    paused: true,
                    copies_ahead: self.left.is_hot,
                    phase: FillingPhaseKey::Waiting,
                    is_told_of_before: false,
                    read: None,
                    has_labels: true,
                };
                self.sources.entry(claim).or_insert(source);
            }
            Step::EndRounds { claim } => {
                if let Some(source) = self.sources.get_mut(&claim).filter(|source| source.paused) {
                    source.copies_ahead = false;
                }
            }
            Step::Ask { volume, wish } => self.ask(n, &volume, wish),
            Step::StartCopy { claim } => {
                let source = self.sources.get_mut(&claim).filter(|source| source.paused);
                let source = source.filter(|source| froms.get(&claim) == Some(&source.from));
                if let Some(source) = source {
                    (source.paused, source.is_told_of_before) = (false, true);
                }
            }
            Step::Evict { uid, .. } => {
                let phase =
                    self.status.of(0).and_then(|one| one.swap.as_ref()).map(|one| one.phase);
                let runs = matches!(phase, Some(SwapPhase::Pending | SwapPhase::PreCopy));
                let is_alone = self.left.operators == 1;
                assert!(!(runs && is_alone), "a pod is stopped too early, in {self:#?}");
                self.pod.take_if(|pod| pod.uid.to_string() == uid);
            }
            Step::DropPod { uid, .. } => {
                // One that was started meanwhile is another one than was seen.
                self.pod.take_if(|pod| pod.uid.to_string() == uid && !pod.is_running);
            }
            Step::Supersede { claim, .. } => self.mark(&claim, true, marks),
            Step::Reinstate { claim } => {
                self.mark(&claim, false, marks);
                self.change(&claim, |claim| {
                    let is_own = claim.detached_for == claim.uid;
                    claim.detached_for = if is_own { claim.uid } else { 0 };
                });
            }
            Step::NoteDetached { claim, copy } => {
                let seen = marks.get(&claim).copied();
                self.change(&claim, |claim| {
                    if Some(claim.marks) == seen {
                        (claim.detached_for, claim.marks) =
                            (copy.parse().expect("a uid"), claim.marks + 1);
                    }
                });
            }
            Step::DropSource { claim } => drop(self.sources.remove(&claim)),
            Step::DropClaim { claim, uid, version } => {
                let is_as_seen =
                    |now: &Claim| version.as_ref().is_none_or(|seen| now.version() == *seen);
                if self.claims.get(&claim).is_some_and(is_as_seen) {
                    self.drop_claim(&claim, &uid);
                }
            }
            Step::Exchange { claim, copy } => self.begin_exchange(claim, copy),
            Step::TellSmaller { claim, to } => {
                let gib = to.0.get() >> 30;
                self.change(&claim, |claim| claim.gib = gib);
            }
            // Its volume is retained from then on, since a user can take the finalizer off.
            Step::Hold { claim } => self.change(&claim, |claim| {
                claim.is_volume_kept = true;
                claim.has_finalizer |= !claim.is_ending;
            }),
            Step::LetGo { claim, keeps_volume, superseded_by } => {
                self.let_claim_go(&claim, keeps_volume);
                if superseded_by.is_some() {
                    self.mark(&claim, true, marks);
                }
            }
            Step::Mark { .. } | Step::DropNotes { .. } | Step::Count { .. } | Step::Tell { .. } => {
            }
        }
    }

    fn mark(&mut self, claim: &str, superseded: bool, seen: &BTreeMap<String, u8>) {
        let seen = seen.get(claim).copied();
        self.change(claim, |claim| {
            if Some(claim.marks) == seen {
                (claim.superseded, claim.marks) = (superseded, claim.marks + 1);
                claim.forged_by = None;
            }
        });
    }

    /// Each goes on from what is there by then.
    fn begin_exchange(&mut self, active: String, copy: String) {
        // Of one that is given up the record is taken off again, before anything is taken from the claim.
        let swap = self.status.of(0).and_then(|entry| entry.swap.as_ref());
        let swap = swap.filter(|swap| swap.phase == SwapPhase::Rebinding);
        let wanted = swap.and_then(|swap| swap.volume_handle.clone());
        let copied = self.claims.get(&copy).filter(|one| !one.is_ending);
        let is_ready = copied.is_some_and(|one| Some(one.id().to_string()) == wanted);
        let runs = self.pod.as_ref().is_some_and(|pod| pod.claim == active && !pod.is_gated);
        if self.exchange.is_none() && is_ready && !runs && self.claims.contains_key(&active) {
            self.change(&active, |claim| claim.is_lost = true);
            self.change(&copy, |claim| claim.is_lost = true);
            self.exchange = Some((active, copy));
        }
    }

    fn make(&mut self, name: String, size: Quantity, is_copy: bool) {
        self.make_of(name, size, TEMPLATES[self.template].1, is_copy);
    }

    pub(super) fn make_of(
        &mut self,
        name: String,
        size: Quantity,
        class: &'static str,
        is_copy: bool,
    ) {
        let uid = self.uid();
        self.claims.entry(name).or_insert(Claim {
            uid,
            volume: uid,
            gib: size.0.get() >> 30,
            class,
            is_copy,
            content: None,
            has_labels: true,
            is_anothers: false,
            superseded: false,
            forged_by: None,
            marks: 0,
            is_ending: false,
            is_lost: false,
            fence: Fence::default(),
            is_held: false,
            is_read: false,
            has_finalizer: false,
            is_volume_kept: false,
            is_filled: false,
            detached_for: 0,
            is_grown: false,
        });
    }

    /// What operators let go is gone as soon as nobody uses it.
    pub(super) fn let_claim_go(&mut self, name: &str, keeps_volume: bool) {
        self.change(name, |claim| {
            claim.has_finalizer = false;
            claim.is_volume_kept = keeps_volume && claim.is_ending;
        });
    }

    fn drop_claim(&mut self, name: &str, uid: &str) {
        let Some(claim) = self.claims.get(name).filter(|claim| claim.uid.to_string() == uid) else {
            return;
        };
        let entry = self.status.of(0);
        let retained = entry.iter().flat_map(|entry| &entry.retained_claims);
        let until = retained.filter(|old| old.name == name && old.uid == uid);
        let mut until = until.filter_map(|old| old.until(RETENTION.parse().unwrap()));
        let is_over = until.all(|until| until <= self.now());
        assert!(is_over, "a retained claim, {name}, is deleted before its time in {self:#?}");
        let active = entry.map(|entry| &*entry.active_claim);
        let is_its = active == Some(name) && claim.content.is_some();
        assert!(!is_its, "the claim of the pod, {name}, is deleted in {self:#?}");
        let others = self.claims.iter().filter(|(other, _)| *other != name);
        let mut others = others.filter(|(_, other)| !other.is_ending);
        let has_all = claim.content.is_some();
        let is_elsewhere = others.any(|(_, other)| other.content == Some(self.data));
        assert!(!has_all || is_elsewhere, "the only copy, {name}, is deleted in {self:#?}");
        self.change(name, |claim| (claim.is_ending, claim.is_volume_kept) = (true, false));
    }
}
