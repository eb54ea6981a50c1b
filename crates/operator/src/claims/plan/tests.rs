//! The orders of what can happen to one pod and its claim, explored: all of a story that has few states. In
//! each state that is reached nothing is lost, and from each all ends well.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread::available_parallelism;

use super::plan;
use crate::api::SwapPhase;
use crate::claims::objects::is_copy;
use crate::claims::steps::Step;
use crate::volume::Fence;
use dice::Dice;
use exhaustive::exhaustive;
use serde_json::json;
use world::{FAIR, FillingPhaseKey, HOT, Left, MOVES, Move, NOTHING, RETRIED, SAME, Source, World};

#[path = "../../../../../tests/tally/dice.rs"]
mod dice;
#[path = "../../../../../tests/tally/exhaustive.rs"]
mod exhaustive;
#[path = "../../../../../tests/tally/figures.rs"]
mod figures;
mod keepers;
mod kubernetes;
mod meddling;
mod nodes;
mod objects;
mod operators;
mod others;
mod retries;
mod tampering;
mod world;

/// Let all happen that always happens, each in its turn, and nothing else, until nothing more does.
fn settle(world: &World) -> World {
    let mut rounds = rounds(world);
    let mut end = rounds.next().expect("the first");
    let mut before = end.key();
    for next in rounds {
        let key = next.key();
        end = next;
        if key == before {
            break;
        }
        before = key;
    }
    end
}

/// The world after each round in which all happens that always happens, and nothing else.
fn rounds(world: &World) -> impl Iterator<Item = World> {
    let mut first = world.clone();
    let Left { is_hot, keeps_names, differs, refuses_all, .. } = world.left;
    first.left = Left { edits: 0, is_hot, keeps_names, differs, refuses_all, ..NOTHING };
    if first.replicas == 0 {
        first.replicas = 1;
    }
    first.is_paused = false;
    let next = |world: &World| {
        let mut world = world.clone();
        for one in MOVES[..FAIR].iter().chain([&Move::Do(1)]) {
            world = world.after(*one).unwrap_or(world);
        }
        Some(world)
    };
    // Where each copy is refused, each of its tries is given up in its time.
    let most = if world.left.refuses_all { 240 } else { 60 };
    std::iter::successors(Some(first), next).take(most)
}

/// The states of which it is known that all ends well from there.
#[derive(Default)]
struct EndsWell(HashSet<u64>);

impl EndsWell {
    /// Let all settle, until a state comes from which others have ended well: the same follows from the same.
    fn from(&mut self, world: &World) {
        let mut passed = Vec::new();
        let mut end = None;
        for next in rounds(world) {
            let key = next.key();
            if self.0.contains(&key) {
                self.0.extend(passed);
                return;
            }
            let is_settled = passed.last() == Some(&key);
            end = Some(next);
            if is_settled {
                break;
            }
            passed.push(key);
        }
        let is_well = end.as_ref().is_some_and(World::has_ended_well);
        assert!(is_well, "no good end, from {world:#?} to {end:#?}");
        self.0.extend(passed);
    }
}

/// How many states of a story are explored in the order in which they are reached. Of two operators each look and
/// effect can be between any of the other's, so walks go on from there.
fn at_most() -> usize {
    if exhaustive() { 60_000 } else { 2_000 }
}

/// How many of one in which a swap is tried again, or given up.
fn at_most_retried() -> usize {
    if exhaustive() { 8_000 } else { 1_500 }
}

/// How many walks there are then, and how many moves each tries: most cannot be, and a swap takes some fifty.
fn walks() -> (usize, usize) {
    (if exhaustive() { 200 } else { 25 }, 1500)
}

/// The same of a story of a user who tampers: there are many, and each has one more thing that happens.
fn walks_tampered() -> (usize, usize) {
    (if exhaustive() { 50 } else { 25 }, 1500)
}

/// Explore what can be reached; how many states that are.
fn explore(first: &World, at_most: usize) -> usize {
    let mut known: HashSet<u64> = [first.key()].into();
    let mut ends_well = EndsWell::default();
    let mut open = VecDeque::from([first.clone()]);
    let moves = moves(first);
    while let Some(world) = open.pop_front() {
        for next in moves.iter().copied().filter_map(|one| world.after(one)) {
            if known.insert(next.key()) {
                if known.len().is_multiple_of(16) {
                    ends_well.from(&next);
                }
                open.push_back(next);
            }
        }
        if known.len() > at_most {
            walk(first, &moves, &mut known, &mut ends_well);
            break;
        }
    }
    known.len()
}

/// What may happen in a story: that of a user who tampers is its own.
fn moves(first: &World) -> Vec<Move> {
    MOVES.into_iter().chain(first.tampering.iter().copied().map(Move::Tamper)).collect()
}

/// Go where dice say, again and again: that leads far from the beginning.
fn walk(first: &World, moves: &[Move], known: &mut HashSet<u64>, ends_well: &mut EndsWell) {
    let mut dice = Dice::of(7);
    let (walks, steps) = if first.tampering.is_empty() { walks() } else { walks_tampered() };
    for _ in 0..walks {
        let mut world = first.clone();
        for _ in 0..steps {
            if let Some(next) = world.after(dice.one_of(moves)) {
                world = next;
                known.insert(world.key());
            }
        }
        ends_well.from(&world);
    }
}

#[test]
fn what_is_restored_or_filled_by_others_was_not_made_for_a_swap() {
    let claim = |group: &str, kind: &str, name: &str| {
        serde_json::from_value(json!({"metadata": {"name": "data-db-0"}, "spec": {
            "dataSourceRef": {"apiGroup": group, "kind": kind, "name": name}}}))
        .unwrap()
    };
    assert!(is_copy(&claim("pliant.io", "PvcSourcePopulator", "data-db-0")));
    for (group, kind, name) in [
        ("pliant.io", "PvcSourcePopulator", "mine"),
        ("pliant.io", "ArchivePopulator", "data-db-0"),
        ("snapshot.storage.k8s.io", "VolumeSnapshot", "data-db-0"),
    ] {
        assert!(!is_copy(&claim(group, kind, name)), "{group} {kind} {name}");
    }
}

/// Until a copy has begun, one thing after the other; so many have come out different before it.
fn copied_after(failures: u8, left: Left) -> World {
    let mut world = settle(&World::new(left));
    world.left.failures = failures;
    world.left.edits = 1;
    let is_begun = |source: &Source| source.phase == FillingPhaseKey::Filling;
    let all = [Move::Edit].iter().chain(MOVES[..FAIR].iter().cycle());
    for one in all.take(5000) {
        let is_begun = world.sources.values().any(is_begun);
        if is_begun && world.left.failures == 0 {
            return World { left: Left { edits: left.edits - 1, ..left }, ..world };
        }
        let next = if is_begun { Move::FailCopy } else { *one };
        world = world.after(next).unwrap_or(world);
    }
    panic!("no copy has begun in {world:#?}");
}

#[test]
fn a_copy_that_a_version_before_fences_has_begun_goes_on() {
    let mut world = copied_after(0, NOTHING);
    world.operators = [None, None];
    world.asks.clear();
    world.asked.iter_mut().for_each(BTreeMap::clear);
    world.claims.values_mut().for_each(|claim| claim.fence = Fence::default());
    let entry = &mut world.status.ordinals[0];
    entry.fence_generation = 0;
    let swap = entry.swap.as_mut().unwrap();
    assert_eq!(swap.phase, SwapPhase::FinalCopy);
    (swap.fence, swap.detached_time) = (None, None);
    let planned = plan(&world.seen(0)).status;
    let swap = planned.ordinals[0].swap.as_ref().unwrap();
    assert_ne!(swap.phase, SwapPhase::RollingBack, "{swap:?}");
    let end = settle(&world);
    assert!(end.has_ended_well() && end.status.ordinals[0].claim_revision == 1, "{end:#?}");
}

/// A swap has ended, its old claim is over, and an operator has decided that it goes, and is held up there.
fn about_to_delete(left: Left) -> World {
    let mut world = settle(&World::new(left));
    world.left.edits = 1;
    world = settle(&world.after(Move::Edit).expect("there is another template"));
    world.hours += 24;
    let drops = |world: &World| {
        let decided = world.operators[0].as_ref();
        decided.is_some_and(|it| it.steps.iter().any(|one| matches!(one, Step::DropClaim { .. })))
    };
    for one in [Move::Look(0), Move::Do(0)].into_iter().cycle().take(20) {
        if drops(&world) {
            world.left = left;
            return world;
        }
        world = world.after(one).unwrap_or(world);
    }
    panic!("nothing is deleted in {world:#?}");
}

#[test]
fn what_one_operator_deletes_late_is_nothing_that_another_one_needs_again() {
    for left in [NOTHING, SAME] {
        let left = Left { edits: 0, backs: 1, operators: 2, ..left };
        let states = explore(&about_to_delete(left), at_most());
        assert!(states > 100, "only {states} states of {left:?}");
    }
}

#[test]
fn a_copy_that_a_tenant_makes_larger_does_not_become_the_volume_of_the_pod() {
    let mut world = settle(&World::new(SAME));
    world.left.edits = 1;
    let is_exchanged = |world: &World| {
        let swap = world.status.of(0).and_then(|entry| entry.swap.as_ref());
        swap.is_some_and(|swap| swap.phase == SwapPhase::Rebinding) && world.operators[0].is_none()
    };
    let all =
        [Move::Edit].iter().chain(MOVES[..FAIR].iter().filter(|one| **one != Move::Do(1)).cycle());
    for one in all.take(5000) {
        if is_exchanged(&world) && world.exchange.is_none() {
            break;
        }
        world = world.after(*one).unwrap_or(world);
    }
    assert!(is_exchanged(&world) && world.exchange.is_none(), "{world:#?}");
    let copy = world.status.ordinals[0].swap.as_ref().unwrap().claim.clone();
    let phase_with = |gib: u64| {
        let mut world = world.clone();
        world.change(&copy, |claim| claim.gib = gib);
        plan(&world.seen(0)).status.ordinals[0].swap.as_ref().unwrap().phase
    };
    assert_eq!((phase_with(2), phase_with(100)), (SwapPhase::Rebinding, SwapPhase::RollingBack));
}

#[test]
fn a_new_claim_whose_label_was_taken_off_gets_it_again() {
    for left in [NOTHING, SAME, HOT] {
        let mut world = settle(&World::new(left));
        world.left.edits = 1;
        world = world.after(Move::Edit).expect("there is another template");
        let copy = |world: &World| {
            world.claims.iter().find(|(_, one)| one.is_copy).map(|(name, _)| name.clone())
        };
        for one in [Move::Look(0), Move::Do(0)].into_iter().cycle().take(40) {
            if copy(&world).is_some() && world.operators[0].is_none() {
                break;
            }
            world = world.after(one).unwrap_or(world);
        }
        let copy = copy(&world).expect("a new claim");
        world.change(&copy, |claim| claim.has_labels = false);
        let end = settle(&world);
        assert!(end.has_ended_well() && end.status.ordinals[0].claim_revision == 1, "{end:#?}");
    }
}

/// Stories in which swaps are tried again. They begin where the copy of a try goes on, after so many tries
/// that have failed: all that comes before is that of the stories above.
fn retried() -> impl Iterator<Item = (String, World, usize)> {
    let once = Left { failures: 1, ..RETRIED };
    let stories = [
        (0, Left { deaths: 1, ..once }),
        (0, Left { operators: 2, is_disordered: true, ..once }),
        (0, Left { kills: 1, ..once }),
        (0, Left { edits: 2, ..once }),
        (0, Left { scalings: 1, ..once }),
        (0, Left { is_hot: true, failures: 2, ..once }),
        (0, Left { keeps_names: true, deaths: 1, ..once }),
        (2, Left { failures: 2, ..once }),
        (3, Left { deaths: 1, ..once }),
    ];
    stories.into_iter().map(|(failed, left)| {
        (format!("{left:?} after {failed} failures"), copied_after(failed, left), at_most_retried())
    })
}

/// Explore stories, as many at a time as there are processors; how many states there are, and how many stories do
/// not hold.
fn explore_all(stories: impl Iterator<Item = (String, World, usize)> + Send) -> (usize, usize) {
    let stories = Mutex::new(stories);
    let next = || stories.lock().expect("nobody panics with it").next();
    let explore_each = || -> Vec<_> {
        let explored = std::iter::from_fn(next).map(|(story, first, at_most)| {
            let states = catch_unwind(AssertUnwindSafe(|| explore(&first, at_most)));
            (story, states)
        });
        explored.collect()
    };
    let found: Vec<(String, std::thread::Result<usize>)> = std::thread::scope(|scope| {
        let all = available_parallelism().map_or(1, NonZero::get);
        let all: Vec<_> = (0..all).map(|_| scope.spawn(explore_each)).collect();
        all.into_iter().flat_map(|one| one.join().expect("panics are caught")).collect()
    });
    let (mut states, mut broken) = (0, 0);
    for (story, explored) in found {
        println!("{explored:?} states with {story}");
        states += explored.as_ref().unwrap_or(&0);
        broken += usize::from(explored.is_err());
    }
    (states, broken)
}

#[test]
fn in_every_state_of_a_swap_that_is_given_up_nothing_is_lost_and_all_ends_well() {
    let stories = [
        Left { refusals: 1, deaths: 1, ..NOTHING },
        Left { refusals: 1, operators: 2, is_disordered: true, ..NOTHING },
        Left { refusals: 2, holds: 1, ..NOTHING },
        Left { refusals: 1, kills: 1, ..SAME },
        Left { refusals: 1, ..HOT },
        Left { refusals: 1, edits_back: 1, ..NOTHING },
        Left { refuses_all: true, deaths: 1, ..NOTHING },
        Left { refuses_all: true, kills: 1, ..SAME },
        Left { refuses_all: true, holds: 1, ..NOTHING },
        Left { edits_back: 1, deaths: 1, ..NOTHING },
        Left { edits_back: 1, operators: 2, is_disordered: true, ..NOTHING },
        Left { edits_back: 1, kills: 1, ..SAME },
        Left { edits_back: 1, edits: 2, ..HOT },
        Left { aborts: 1, deaths: 1, ..NOTHING },
        Left { aborts: 1, kills: 1, stalls: 1, ..SAME },
        Left { aborts: 1, failures: 1, stalls: 1, ..NOTHING },
        Left { aborts: 1, holds: 1, ..NOTHING },
        Left { aborts: 1, operators: 2, is_disordered: true, ..NOTHING },
        Left { aborts: 1, claim_deletions: 1, ..NOTHING },
        Left { aborts: 1, edits: 2, ..HOT },
        Left { aborts: 1, backs: 1, ..NOTHING },
    ];
    let stories =
        stories.into_iter().map(|left| (format!("{left:?}"), World::new(left), at_most_retried()));
    let (states, broken) = explore_all(stories);
    assert_eq!(broken, 0, "stories in which something is lost or does not end well");
    assert!(states > 10_000, "only {states} states");
}

/// Stories in which a user edits and deletes the objects of a swap, in any phase of it.
fn meddled() -> impl Iterator<Item = (String, World, usize)> {
    let once = Left { meddles: 1, ..NOTHING };
    let stories = [
        Left { kills: 1, ..once },
        Left { deaths: 1, ..once },
        Left { meddles: 2, ..once },
        Left { operators: 2, is_disordered: true, ..once },
        Left { failures: 1, ..once },
        Left { scalings: 1, ..once },
        Left { aborts: 1, ..once },
        Left { backs: 1, edits: 2, ..once },
        Left { backs: 1, ..once },
        Left { deletions: 1, holds: 1, ..once },
        Left { deletions: 1, kills: 1, ..once },
        Left { is_hot: true, kills: 1, ..once },
        Left { keeps_names: true, kills: 1, ..once },
    ];
    stories.into_iter().map(|left| (format!("{left:?}"), World::new(left), at_most_retried()))
}

#[test]
fn whatever_a_user_edits_or_deletes_of_a_swap_nothing_is_lost_and_all_ends_well() {
    let (states, broken) = explore_all(meddled());
    assert_eq!(broken, 0, "stories in which something is lost or does not end well");
    assert!(states > 10_000, "only {states} states");
}

#[test]
fn in_every_state_nothing_is_lost_and_all_ends_well() {
    let stories = [
        Left { operators: 2, ..NOTHING },
        Left { deaths: 2, ..NOTHING },
        Left { kills: 2, ..NOTHING },
        Left { failures: 1, deaths: 1, ..NOTHING },
        Left { scalings: 2, ..NOTHING },
        Left { days: 2, ..NOTHING },
        Left { skews: 2, days: 1, ..NOTHING },
        Left { skews: 1, operators: 2, days: 1, ..NOTHING },
        Left { lies: 1, deaths: 1, ..NOTHING },
        Left { lies: 1, kills: 1, ..SAME },
        Left { lies: 1, backs: 1, ..NOTHING },
        Left { lies: 1, operators: 2, is_disordered: true, ..NOTHING },
        Left { own_lies: 2, ..NOTHING },
        Left { own_lies: 1, deaths: 1, ..HOT },
        Left { own_lies: 1, kills: 1, ..SAME },
        Left { own_lies: 1, backs: 1, ..NOTHING },
        Left { edits: 2, deaths: 1, ..NOTHING },
        Left { operators: 2, ..HOT },
        Left { deaths: 1, ..HOT },
        Left { kills: 1, ..HOT },
        Left { failures: 2, ..HOT },
        Left { scalings: 1, ..HOT },
        Left { edits: 2, ..HOT },
        Left { holds: 1, kills: 1, ..NOTHING },
        Left { holds: 1, failures: 1, ..NOTHING },
        Left { holds: 1, operators: 2, is_disordered: true, ..NOTHING },
        Left { holds: 1, ..HOT },
        Left { deletions: 1, ..NOTHING },
        Left { claim_deletions: 1, operators: 2, ..NOTHING },
        Left { claim_deletions: 1, deaths: 1, failures: 1, ..NOTHING },
        Left { claim_deletions: 1, ..HOT },
        Left { claim_deletions: 1, deletions: 1, ..NOTHING },
        Left { failures: 1, operators: 2, is_disordered: true, ..NOTHING },
        Left { deaths: 1, kills: 1, ..SAME },
        Left { failures: 1, kills: 1, ..SAME },
        Left { edits: 2, ..SAME },
        Left { holds: 1, ..SAME },
        Left { deletions: 1, ..SAME },
        Left { backs: 1, deaths: 1, ..NOTHING },
        Left { backs: 1, kills: 1, days: 1, ..NOTHING },
        Left { backs: 1, holds: 1, ..NOTHING },
        Left { backs: 1, edits: 2, ..NOTHING },
        Left { backs: 1, deletions: 1, ..NOTHING },
        Left { backs: 1, claim_deletions: 1, ..NOTHING },
        Left { backs: 1, operators: 2, is_disordered: true, ..NOTHING },
        Left { backs: 1, deaths: 1, kills: 1, ..SAME },
        Left { backs: 1, operators: 2, ..SAME },
        Left { backs: 1, deletions: 1, ..SAME },
    ];
    // One after the other: all of them at once are more than the stack of a thread.
    let stories =
        stories.into_iter().map(|left| (format!("{left:?}"), World::new(left), at_most()));
    let (states, broken) = explore_all(stories.chain(retried()));
    figures::figures(
        "swaps.txt",
        &[("swap_states_explored", states), ("swap_invariant_violations", broken)],
    );
    assert_eq!(broken, 0, "stories in which something is lost or does not end well");
    assert!(states > 10_000, "only {states} states");
}
