//! A user in the explored world who may edit and delete all objects of a swap in the namespace of the workload.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use super::world::{
    Claim, FAIR, FillingPhaseKey, Left, MOVES, Meddling, Move, NOTHING, SAME, World,
};
use super::{plan, settle};
use crate::api::{AutoscalerPhase, Swap, SwapPhase};
use crate::claims::AutoscalerReason;
use crate::claims::detached_note::DetachedNote;
use crate::claims::observed::ObservedWorkload;
use crate::claims::steps::Step;
use crate::cluster::PodConditionSummary;

impl World {
    pub(super) fn meddle(&mut self, how: Meddling) -> bool {
        self.left.meddles -= 1;
        match how {
            Meddling::LetCopyBegin => self.edit_pause(false),
            Meddling::HoldCopy => self.edit_pause(true),
            Meddling::DeleteSource => self.sources.pop_first().is_some(),
            Meddling::DeleteNewClaim => self.delete_new_claim(),
            Meddling::Unlabel => self.unlabel(),
            Meddling::Ungate => self.ungate(),
            Meddling::Pause => {
                self.is_paused = !self.is_paused;
                self.edited += 1;
                true
            }
        }
    }

    /// A copy that runs is called off, and begins as any other one if it may.
    fn edit_pause(&mut self, paused: bool) -> bool {
        let Some(mut source) = self.sources.first_entry() else { return false };
        let source = source.get_mut();
        if source.paused == paused {
            return false;
        }
        source.paused = paused;
        if source.phase == FillingPhaseKey::Filled {
            return true;
        }
        let runs = matches!(source.phase, FillingPhaseKey::Filling | FillingPhaseKey::Stalled);
        if paused {
            (source.phase, source.is_told_of_before) = (FillingPhaseKey::Waiting, false);
            source.read = None;
        } else {
            source.is_told_of_before = !runs;
        }
        true
    }

    /// Nobody deletes what was written last: whoever does that wants it to be gone.
    fn delete_new_claim(&mut self) -> bool {
        let Some(name) = self.new_claim() else { return false };
        let runs = self.pod.as_ref().is_some_and(|pod| pod.is_running && pod.claim == name);
        let others = self.claims.iter().filter(|(other, _)| **other != name);
        let is_elsewhere = others.into_iter().any(|(_, other)| other.content == Some(self.data));
        let claim = &self.claims[&name];
        if runs || claim.is_ending || !is_elsewhere {
            return false;
        }
        self.change(&name, |claim| claim.is_ending = true);
        true
    }

    fn unlabel(&mut self) -> bool {
        let Some(name) = self.new_claim() else { return false };
        let had = self.claims[&name].has_labels;
        self.change(&name, |claim| claim.has_labels = false);
        had
    }

    /// A claim that keeps its name has no volume of which a pod could have another one meanwhile.
    fn ungate(&mut self) -> bool {
        let swap = self.status.of(0).and_then(|entry| entry.swap.as_ref());
        let is_new = swap.is_some_and(|swap| !swap.preserves_name && !swap.is_rollback);
        is_new && self.pod.as_mut().is_some_and(|pod| std::mem::take(&mut pod.is_gated))
    }

    /// The claim that was made for the swap under way, if it is there.
    pub(super) fn new_claim(&self) -> Option<String> {
        let swap = self.status.of(0)?.swap.as_ref().filter(|swap| !swap.is_rollback)?;
        Some(swap.claim.clone()).filter(|name| self.claims.contains_key(name))
    }

    /// What the PersistentVolumes of claims say of which claim is complete.
    pub(super) fn detached(&self) -> BTreeMap<String, DetachedNote> {
        let with_volume = self.claims.iter().filter(|(_, claim)| claim.content.is_some());
        let notes = with_volume.map(|(name, claim)| {
            let copy = Some(claim.detached_for).filter(|uid| *uid > 0).map(|uid| uid.to_string());
            (name.clone(), DetachedNote { copy, version: None })
        });
        notes.collect()
    }

    /// Whether any of them says so of a claim.
    pub(super) fn is_proved_complete(&self, claim: &Claim) -> bool {
        self.claims.values().any(|one| one.detached_for == claim.uid)
    }

    /// Whether another claim has taken the place of a claim, as the PersistentVolumes of both say.
    pub(super) fn is_superseded(&self, name: &str) -> bool {
        let by = self.claims[name].detached_for;
        let mut others = self.claims.iter().filter(|(other, _)| *other != name);
        others.any(|(_, other)| other.uid == by && other.detached_for == by)
    }

    /// The new claims of swaps whose PersistentVolumes say that they are filled, where that is looked at.
    pub(super) fn handed_over(&self) -> BTreeSet<String> {
        use SwapPhase::{Draining, Fenced, FinalCopy, RollingBack};
        let Some(swap) = self.status.of(0).and_then(|entry| entry.swap.as_ref()) else {
            return BTreeSet::new();
        };
        let is_looked_at = matches!(swap.phase, Draining | Fenced | FinalCopy | RollingBack);
        let is_filled = |claim: &&Claim| claim.is_filled && claim.content.is_some();
        let claim = self.claims.get(&swap.claim).filter(is_filled);
        let source = self.sources.get(&swap.claim).filter(|source| source.has_labels);
        let told = source.map(|source| source.phase);
        let is_told = told == Some(FillingPhaseKey::Filled);
        let is_handed = is_looked_at && !is_told && claim.is_some();
        is_handed.then(|| swap.claim.clone()).into_iter().collect()
    }
}

fn swap(world: &World) -> Option<&Swap> {
    world.status.of(0)?.swap.as_ref()
}

/// Let happen what always happens, but for some of it, until that is so.
fn until(mut world: World, but: &[Move], is: impl Fn(&World) -> bool) -> World {
    let all = MOVES[..FAIR].iter().filter(|one| !but.contains(one)).cycle();
    for one in all.take(5000) {
        if is(&world) {
            return world;
        }
        world = world.after(*one).unwrap_or(world);
    }
    panic!("it does not come to be so, in {world:#?}");
}

/// The pod is gone whose claim is to be another one, and nobody has proved yet that its volume is unused: a user lets
/// the copy begin then, and it comes to its end. The next pod is made.
fn copied_too_early(left: Left) -> World {
    copied_too_early_from(settle(&World::new(left)), left, Move::Edit)
}

fn copied_too_early_from(mut world: World, left: Left, edit: Move) -> World {
    world.left = Left { edits: 1, edits_back: 1, meddles: 2, ..left };
    let mut world = world.after(edit).expect("there is another template");
    (world.left.edits, world.left.edits_back) = (0, 0);
    let world = until(world, &[Move::MakePod], |world| world.pod.is_none());
    assert_eq!(swap(&world).map(|swap| swap.phase), Some(SwapPhase::Draining), "{world:#?}");
    let meddled = [Move::Meddle(Meddling::LetCopyBegin), Move::BeginCopy, Move::EndCopy];
    let all = meddled.into_iter().chain([Move::MakePod]);
    all.fold(world, |world, one| world.after(one).expect("it can be"))
}

#[test]
fn a_pod_does_not_start_on_a_claim_that_a_user_has_let_be_filled_too_early() {
    for left in [NOTHING, SAME] {
        let world = copied_too_early(left);
        let copy = swap(&world).expect("it goes on").claim.clone();
        assert!(world.claims[&copy].content.is_some(), "{world:#?}");
        assert!(world.after(Move::StartPod).is_none(), "a pod has started, in {world:#?}");
        let end = settle(&world);
        let entry = &end.status.ordinals[0];
        assert!(end.has_ended_well() && entry.claim_revision == 0, "{end:#?}");
        assert_eq!(end.status.phase, AutoscalerPhase::Failed);
        let why = entry.swap.as_ref().and_then(|swap| swap.message.clone()).unwrap_or_default();
        assert!(why.contains("was proved unused, so it may lack"), "{why}");
        // A user may have put something into it.
        let kept: Vec<_> = entry.retained_claims.iter().map(|old| old.name.clone()).collect();
        assert_eq!((kept, end.claims.len()), (vec![copy], 2));
    }
}

#[test]
fn no_pod_goes_back_to_a_copy_that_no_pod_ever_had() {
    let mut world = settle(&World::new(NOTHING));
    world.left = Left { edits: 1, ..NOTHING };
    let mut swapped = settle(&world.after(Move::Edit).expect("there is another template"));
    // What it had before is kept no more.
    let old = swapped.status.ordinals[0].retained_claims.remove(0);
    swapped.claims.remove(&old.name);
    let active = swapped.status.ordinals[0].active_claim.clone();
    let failed = settle(&copied_too_early_from(swapped, NOTHING, Move::EditBack));
    let entry = &failed.status.ordinals[0];
    assert!(matches!(entry.retained_claims.as_slice(), [one] if one.never_used), "{failed:#?}");
    let mut back = failed.clone();
    let content = failed.claims[&entry.retained_claims[0].name].content.expect("it was filled");
    (back.back, back.edited) = (Some((1, content)), back.edited + 1);
    let end = settle(&back);
    assert_eq!(end.status.reason.as_deref(), Some("RollbackPending"), "{end:#?}");
    assert_eq!(end.status.ordinals[0].active_claim, active);
}

#[test]
fn what_a_pod_writes_to_a_claim_that_was_filled_too_early_stays_its_own() {
    let world = copied_too_early(NOTHING);
    let world = world.after(Move::Meddle(Meddling::Ungate)).expect("it waits at the gate");
    let world = world.after(Move::StartPod).expect("its claim is bound");
    let copy = swap(&world).expect("it goes on").claim.clone();
    for (left, one) in [
        (Left { kills: 1, ..NOTHING }, Some(Move::KillPod)),
        (Left { aborts: 1, ..NOTHING }, Some(Move::Abort)),
        (NOTHING, None),
    ] {
        let mut next = world.clone();
        let looked = until(next.clone(), &[], |world| world.status.ordinals[0].claim_revision == 1);
        if one == Some(Move::KillPod) {
            next = looked; // Nobody has seen a pod before that was gone.
        }
        next.left = left;
        next = one.map_or(Some(next.clone()), |one| next.after(one)).expect("it can be");
        let end = settle(&next);
        let entry = &end.status.ordinals[0];
        assert!(end.has_ended_well() && entry.active_claim == copy, "{one:?}: {end:#?}");
    }
}

#[test]
fn a_new_claim_that_is_deleted_before_its_pod_has_it_gives_the_pod_its_old_one() {
    let mut world = settle(&World::new(NOTHING));
    let before = world.status.ordinals[0].active_claim.clone();
    world.left = Left { edits: 1, meddles: 1, ..NOTHING };
    let world = world.after(Move::Edit).expect("there is another template");
    let is_soaking =
        |world: &World| swap(world).is_some_and(|swap| swap.phase == SwapPhase::Soaking);
    let world = until(world, &[Move::StartPod], is_soaking);
    let world = world.after(Move::Meddle(Meddling::DeleteNewClaim)).expect("it is there");
    let looked = until(world, &[], |world| swap(world).is_some_and(|swap| swap.is_rollback));
    let why = looked.status.message.clone().unwrap_or_default();
    assert!(why.contains("was deleted before the pod was ready with it"), "{why}");
    let end = settle(&looked);
    let entry = &end.status.ordinals[0];
    assert!(end.has_ended_well() && entry.active_claim == before, "{end:#?}");
    assert!(entry.rollback.is_some() && end.claims.len() == 1, "{end:#?}");
}

/// A second swap is begun, and goes on until that is so.
fn swapped_again_until(left: Left, but: &[Move], is: impl Fn(&World) -> bool) -> World {
    let mut world = settle(&World::new(left));
    world.left = Left { edits: 1, ..left };
    world = settle(&world.after(Move::Edit).expect("there is another template"));
    world.left = Left { edits_back: 1, backs: 1, meddles: 1, ..left };
    let world = world.after(Move::EditBack).expect("there is another template");
    until(world, but, is)
}

fn is_in(world: &World, phase: SwapPhase) -> bool {
    swap(world).is_some_and(|swap| swap.phase == phase) && world.operators[0].is_none()
}

/// What an operator sees if the pod is on a node and has not started there; `is_known` says whether its kubelet says so.
fn on_its_node(world: &World, is_known: bool) -> ObservedWorkload {
    let mut seen = world.seen(0);
    let pod = seen.pods.iter_mut().find(|pod| pod.name_any() == "db-0").expect("it waits");
    pod.spec.as_mut().expect("there is one").node_name = Some("alpha".to_owned());
    let conditions = pod.status.as_mut().and_then(|status| status.conditions.as_mut());
    let unstarted = PodConditionSummary {
        type_: "PodReadyToStartContainers".to_owned(),
        status: "False".to_owned(),
        last_transition_time: None,
    };
    conditions.expect("there are some").extend(is_known.then_some(unstarted));
    seen
}

fn evicts(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Evict { .. }))
}

#[test]
fn a_pod_that_can_never_start_with_a_claim_that_was_deleted_holds_no_way_back() {
    let soaks = swapped_again_until(NOTHING, &[Move::StartPod], |world| {
        is_in(world, SwapPhase::Soaking) && world.pod.is_some()
    });
    let soaks = soaks.after(Move::Meddle(Meddling::DeleteNewClaim)).expect("it is there");
    let mut seen = on_its_node(&soaks, true);
    let first = plan(&seen);
    assert!(
        first.status.ordinals[0].swap.as_ref().is_some_and(|swap| swap.is_rollback),
        "{first:#?}"
    );
    let mut steps = Vec::new();
    for _ in 0..4 {
        let next = plan(&seen);
        seen.autoscaler.status = Some(next.status);
        steps.extend(next.steps);
        let claim = soaks.status.ordinals[0].active_claim.clone();
        let claim = seen.claims.get_mut(&claim).expect("its pod keeps it");
        claim.metadata.finalizers = Some(vec!["pliant.io/swap-protection".to_owned()]);
    }
    assert!(evicts(&steps), "{steps:#?}");
    // Whoever may have started keeps its claim, and it is said what it waits for.
    let waits = plan(&on_its_node(&soaks, false));
    let why = waits.status.message.clone().unwrap_or_default();
    assert!(why.contains("was deleted, and pod db-0 uses it"), "{why}");
    assert!(!evicts(&waits.steps));

    let copied = swapped_again_until(NOTHING, &[Move::StartPod], |world| {
        let mut sources = world.sources.values();
        let is_filled = sources.any(|source| source.phase == FillingPhaseKey::Filled);
        is_in(world, SwapPhase::FinalCopy) && is_filled && world.pod.is_some()
    });
    let copied = copied.after(Move::Meddle(Meddling::DeleteNewClaim)).expect("it is there");
    let told = plan(&on_its_node(&copied, true));
    assert!(evicts(&told.steps), "{told:#?}");
}

#[test]
fn a_claim_that_was_filled_too_early_and_is_kept_gives_its_name_to_no_other_one() {
    let mut failed = settle(&copied_too_early(NOTHING));
    let spare = failed.status.ordinals[0].retained_claims[0].name.clone();
    // It was decided by how full the claim is, and is decided so again: no edit has another name come of it.
    failed.status.ordinals[0].swap.as_mut().expect("it has failed").automatic = true;
    let end = settle(&failed);
    let entry = &end.status.ordinals[0];
    assert_eq!((entry.claim_revision, end.status.phase), (1, AutoscalerPhase::InSync), "{end:#?}");
    assert_ne!(entry.active_claim, spare);
    assert!(entry.retained_claims.iter().any(|old| old.name == spare), "{end:#?}");
}

#[test]
fn where_both_claims_are_lost_it_is_said_what_to_run() {
    let mut world = swapped_again_until(NOTHING, &[Move::StartPod], |world| {
        is_in(world, SwapPhase::Soaking) && !world.status.ordinals[0].retained_claims.is_empty()
    });
    let entry = world.status.ordinals[0].clone();
    let before = entry.before().expect("it is kept").name.clone();
    world.claims.remove(&entry.active_claim);
    world.change(&before, |claim| claim.is_lost = true);
    let told = plan(&world.seen(0)).status;
    let why = told.message.clone().unwrap_or_default();
    assert_eq!(told.reason.as_deref(), Some("SwapFailed"), "{why}");
    assert!(!why.contains("spec.rollback"), "nobody has asked for it: {why}");
    assert!(
        why.contains("is Lost") && why.contains(&format!("kubectl delete pvc {before}")),
        "{why}"
    );
}

#[test]
fn a_new_claim_that_another_client_binds_is_given_up_once() {
    let mut world = swapped_again_until(NOTHING, &[Move::BeginCopy, Move::StartPod], |world| {
        is_in(world, SwapPhase::FinalCopy)
    });
    let copy = swap(&world).expect("it goes on").claim.clone();
    world.change(&copy, |claim| claim.content = Some(200));
    let mut failures = Vec::new();
    for _ in 0..4 {
        let planned = plan(&world.seen(0));
        let told = planned.status.ordinals[0].swap.clone().expect("it is given up, and waits");
        failures.push((told.failures, planned.status == world.status));
        (world.status, world.hours) = (planned.status, world.hours + 1);
    }
    assert_eq!(failures[1..], [(1, false), (1, true), (1, true)], "{world:#?}");
    let why = swap(&world).and_then(|swap| swap.message.clone()).unwrap_or_default();
    assert!(why.contains("another client bound claim") && why.contains(&copy), "{why}");
}

#[test]
fn what_a_pod_is_to_have_again_when_its_copy_has_just_ended_is_refused_with_words() {
    let is_copied = |world: &World| {
        let mut sources = world.sources.values();
        let is_filled = sources.any(|source| source.phase == FillingPhaseKey::Filled);
        is_in(world, SwapPhase::FinalCopy) && is_filled
    };
    let exchanges = |world: &World| is_in(world, SwapPhase::Rebinding);
    for world in [
        swapped_again_until(NOTHING, &[Move::Look(1), Move::Do(1)], is_copied),
        swapped_again_until(SAME, &[], exchanges),
    ] {
        let world = world.after(Move::RollBack).expect("there is one from before");
        let end = settle(&world);
        assert_eq!(end.status.ordinals[0].claim_revision, 2, "{end:#?}");
        let why = end.status.message.clone().unwrap_or_default();
        assert_eq!(end.status.reason.as_deref(), Some("RollbackPending"), "{why}");
        assert!(why.contains("set claimRevision 2"), "{why}");
    }
}

#[test]
fn another_claim_of_the_name_of_a_new_one_is_not_taken_for_it() {
    let is_copied = |world: &World| {
        let mut sources = world.sources.values();
        let is_filled = sources.any(|source| source.phase == FillingPhaseKey::Filled);
        is_in(world, SwapPhase::FinalCopy) && is_filled
    };
    let soaks = |world: &World| is_in(world, SwapPhase::Soaking);
    let mut copied = swapped_again_until(NOTHING, &[Move::StartPod], is_copied);
    let mut soaks = swapped_again_until(NOTHING, &[Move::StartPod], soaks);
    let copy = swap(&copied).expect("it goes on").claim.clone();
    assert_eq!(swap(&soaks).expect("it goes on").claim, copy);
    for world in [&mut copied, &mut soaks] {
        world.change(&copy, |claim| (claim.uid, claim.content) = (250, Some(200)));
    }
    let told = plan(&copied.seen(0)).status;
    let phase = told.ordinals[0].swap.as_ref().map(|swap| swap.phase);
    assert_eq!(phase, Some(SwapPhase::FinalCopy), "{told:#?}");
    let why = told.message.clone().unwrap_or_default();
    assert!(why.contains(&format!("claim {copy} has another uid")), "{why}");
    let told = plan(&soaks.seen(0)).status;
    assert!(told.ordinals[0].swap.as_ref().is_some_and(|swap| swap.is_rollback), "{told:#?}");
}

/// A second swap is copied, and no pod has the new claim yet: with a claim of another client of its name.
fn copied_and_taken(left: Left) -> (World, String) {
    let is_copied = |world: &World| {
        let mut sources = world.sources.values();
        let is_filled = sources.any(|source| source.phase == FillingPhaseKey::Filled);
        is_in(world, SwapPhase::FinalCopy) && is_filled && world.pod.is_some()
    };
    let mut world = swapped_again_until(left, &[Move::StartPod], is_copied);
    let copy = swap(&world).expect("it goes on").claim.clone();
    world.change(&copy, |claim| {
        (claim.uid, claim.content, claim.is_copy, claim.has_labels) =
            (250, Some(200), false, false);
    });
    (world, copy)
}

fn tells(steps: &[Step], reason: AutoscalerReason, words: &str) -> bool {
    let is_it = |step: &Step| matches!(step, Step::Tell { reason: told, text, .. } if *told == reason && text.contains(words));
    steps.iter().any(is_it)
}

#[test]
fn a_pod_leaves_a_claim_of_another_client_that_has_the_name_of_its_own() {
    let (mut world, copy) = copied_and_taken(NOTHING);
    let drops = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::DropPod { .. }));
    let is_gated = |world: &World| world.pod.as_ref().is_some_and(|pod| pod.is_gated);
    assert!(!is_gated(&world), "it was made when its claim was its own");
    let planned = plan(&world.seen(0));
    assert!(drops(&planned.steps) && !evicts(&planned.steps), "it is made again: {planned:#?}");
    // The scheduler was faster.
    for is_unstarted in [true, false] {
        let planned = plan(&on_its_node(&world, is_unstarted));
        assert!(evicts(&planned.steps), "it writes to what is not its own: {planned:#?}");
        let words = format!("pod db-0 has claim {copy}");
        assert!(tells(&planned.steps, AutoscalerReason::ClaimConflict, &words), "{planned:#?}");
    }
    world.pod.as_mut().expect("it waits").is_gated = true;
    assert!(!drops(&plan(&world.seen(0)).steps), "it is held as it should be");
    assert!(world.after(Move::OpenGate).is_none(), "its gate opens onto another client's claim");
}

#[test]
fn a_swap_that_is_given_up_leaves_no_pod_on_a_claim_of_another_client() {
    let (mut world, copy) = copied_and_taken(NOTHING);
    world.status.ordinals[0].swap.as_mut().expect("it goes on").phase = SwapPhase::RollingBack;
    let mut given_back = world.clone();
    given_back.status.ordinals[0].swap.as_mut().expect("it goes on").fence = None;
    let planned = plan(&on_its_node(&given_back, false));
    let phase = planned.status.ordinals[0].swap.as_ref().map(|swap| swap.phase);
    assert_eq!(phase, Some(SwapPhase::RollingBack), "its pod has another client's claim");
    assert!(evicts(&planned.steps), "{planned:#?}");
    world.pod = None;
    let end = settle(&world);
    assert!(end.claims[&copy].content == Some(200) && end.status.ordinals[0].claim_revision == 1);
    assert_eq!(end.status.phase, AutoscalerPhase::Failed, "{end:#?}");
}

#[test]
fn a_claim_of_another_client_that_is_not_bound_is_not_deleted_with_a_swap() {
    let (mut world, copy) = copied_and_taken(NOTHING);
    world.change(&copy, |claim| claim.content = None);
    let swap = world.status.ordinals[0].swap.as_mut().expect("it goes on");
    // It took the name while the new claim was to be made again.
    (swap.phase, swap.claim_uid) = (SwapPhase::RollingBack, None);
    let planned = plan(&world.seen(0));
    let drops = |step: &Step| matches!(step, Step::DropClaim { claim, .. } if *claim == copy);
    assert!(!planned.steps.iter().any(drops), "{planned:#?}");
}

#[test]
fn where_both_claims_are_lost_no_pod_gets_one_of_another_client() {
    let soaks = |world: &World| is_in(world, SwapPhase::Soaking);
    let mut world = swapped_again_until(NOTHING, &[Move::StartPod], soaks);
    let active = world.status.ordinals[0].active_claim.clone();
    let before = world.status.ordinals[0].before().expect("it is kept").name.clone();
    world.change(&active, |claim| {
        (claim.uid, claim.content, claim.is_copy, claim.has_labels) =
            (250, Some(200), false, false);
    });
    let mut returns = world.clone();
    returns.status = plan(&world.seen(0)).status;
    for mut world in [world, returns] {
        world.claims.remove(&before);
        for _ in 0..3 {
            let planned = plan(&world.seen(0));
            let told = &planned.status;
            assert_eq!(told.reason.as_deref(), Some("ClaimConflict"), "{told:#?}");
            let why = told.message.clone().unwrap_or_default();
            assert!(why.contains(&format!("kubectl delete pvc {active}")), "{why}");
            let adopts = |step: &Step| matches!(step, Step::Adopt { .. });
            assert!(!planned.steps.iter().any(adopts), "{planned:#?}");
            world.status = planned.status;
        }
        world.claims.remove(&active);
        let planned = plan(&world.seen(0)).status;
        assert_ne!(planned.reason.as_deref(), Some("ClaimConflict"), "{planned:#?}");
    }
}

#[test]
fn what_a_version_before_has_rolled_back_came_not_too_late() {
    let mut world = settle(&World::new(NOTHING));
    world.left = Left { edits: 1, ..NOTHING };
    world = settle(&world.after(Move::Edit).expect("there is another template"));
    // As it is rolled back, and the template is edited since.
    let entry = &mut world.status.ordinals[0];
    (entry.claim_revision, entry.last_rollback_revision) = (3, None);
    (world.back, world.edited) = (Some((1, 0)), world.edited + 1);
    for _ in 0..3 {
        let planned = plan(&world.seen(0));
        assert_eq!(planned.status.reason, None, "{planned:#?}");
        assert!(!tells(&planned.steps, AutoscalerReason::RollbackPending, ""), "{planned:#?}");
        world.status = planned.status;
    }
    // What is asked for from now on and is too late is said.
    world.back = Some((2, 0));
    let told = plan(&world.seen(0)).status;
    assert_eq!(told.reason.as_deref(), Some("RollbackPending"), "{told:#?}");
}
