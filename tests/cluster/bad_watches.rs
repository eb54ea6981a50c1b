//! What the watches tell comes late, twice, or not at all: all ends as if they told each change once
//! and at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pliant::api::{NodeStorageStatus, VolumeRequest};
use pliant::testing::{FakeApi, MachineState};
use pliant::volume::{State, Volumes};

use crate::block_on;
use crate::tally::{Tally, Verdict, difference, for_each};
use crate::world::{Controller, Machine, World, growth, id, refused, want};

/// Shorter than anybody's patience.
const LATE: Duration = Duration::from_secs(3);

/// What becomes of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Late,
    /// It falls into a gap between two watches, and the history between them is forgotten.
    Gap,
    Twice,
}

/// How a life ended.
#[derive(Debug, PartialEq)]
struct End {
    answers: Vec<String>,
    machine: MachineState,
    storage: NodeStorageStatus,
}

/// Live a life, and go on living with another volume.
async fn live(world: &World, cluster: &Controller, alpha: &Machine) -> End {
    let volume = id("alpha", "pvc-1");
    let answers = vec![
        format!("{:?}", cluster.ensure(&want("pvc-1", 100, &[])).await),
        format!("{:?}", cluster.grow(&volume, growth(200)).await),
        format!("{:?}", cluster.find(&volume).await.map(|found| found.map(|one| one.state))),
        format!("{:?}", cluster.remove(&volume).await),
        format!("{:?}", cluster.find(&volume).await),
        format!("{:?}", cluster.ensure(&want("pvc-2", 100, &[])).await),
    ];
    world.cleaned().await;
    let storage = world.storage("alpha");
    End { answers, machine: alpha.host.state(), storage }
}

/// Perturb how the `n`-th change is told.
async fn perturb(api: &FakeApi, kind: Kind, n: usize) {
    let written = |n| api.until("it is written", move |api: &FakeApi| api.writes().len() >= n);
    written(n - 1).await;
    match kind {
        Kind::Late => {
            api.hold_events();
            written(n).await;
            tokio::time::sleep(LATE).await;
            api.release_events();
        }
        Kind::Gap => {
            api.hold_events();
            written(n).await;
            api.compact();
            api.cut_watches();
            api.release_events();
        }
        Kind::Twice => {
            api.duplicate_events(true);
            written(n).await;
        }
    }
}

async fn attempt(kind: Kind, n: usize, reference: &End) -> Verdict {
    let (world, cluster, alpha) = World::with_a_node().await;
    world.api.forget_writes();
    let (end, ()) = tokio::join!(live(&world, &cluster, &alpha), perturb(&world.api, kind, n));
    let mut verdict = Verdict::new();
    if end.answers != reference.answers {
        verdict.push(format!("answers {:#?}, not {:#?}", end.answers, reference.answers));
    }
    if end.storage != reference.storage {
        verdict.push(format!("tells {:?}, not {:?}", end.storage, reference.storage));
    }
    verdict.extend(difference(&end.machine, &reference.machine));
    verdict
}

#[test]
fn a_life_is_the_same_however_its_events_are_told() {
    let (reference, writes) = block_on(async {
        let (world, cluster, alpha) = World::with_a_node().await;
        world.api.forget_writes();
        let end = live(&world, &cluster, &alpha).await;
        (end, world.api.writes().len())
    });
    assert!(reference.answers.iter().all(|answer| answer.starts_with("Ok")), "{reference:#?}");
    let kinds = [Kind::Late, Kind::Gap, Kind::Twice];
    let all: Vec<(Kind, usize)> =
        kinds.into_iter().flat_map(|kind| (1..=writes).map(move |n| (kind, n))).collect();
    let tally = Tally::default();
    for_each(&all, |(kind, n)| {
        tally.take(|| format!("{kind:?} {n}"), attempt(*kind, *n, &reference));
    });
    let (tried, survived) =
        (tally.cuts.load(Ordering::Relaxed), tally.survived.load(Ordering::Relaxed));
    let figures = [("cache_perturbations", tried), ("cache_perturbations_survived", survived)];
    tally.close("cache_perturbations.txt", &figures);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_too_late_is_answered_when_it_is_asked_for_again() {
    let (world, cluster, machine) = World::with_a_node().await;
    world.api.hold_events();
    let want = want("pvc-1", 100, &[]);
    let said = refused(cluster.ensure(&want).await, pliant::volume::Reason::Unavailable);
    assert!(said.contains("has not started the operation"), "{said}");
    world.api.release_events();
    let made = cluster.ensure(&want).await.unwrap();
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 1);
    let found = cluster.find(&made.id).await.unwrap().unwrap();
    assert_eq!(found.state, State::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_went_in_a_gap_is_asked_anew() {
    let (world, cluster, machine) = World::with_a_node().await;
    let want = want("pvc-1", 100, &[]);
    machine.host.hold_after(machine.host.effects().len() + 1);
    let gap = async {
        machine.host.held().await;
        world.phase(pliant::api::Phase::Running).await;
        // Somebody removes it by hand, and no watch tells of that.
        world.api.hold_events();
        world.api.delete::<VolumeRequest>(&world.request().metadata.name.unwrap());
        world.api.compact();
        world.api.cut_watches();
        world.api.release_events();
        machine.host.let_go();
    };
    let (made, ()) = tokio::join!(cluster.ensure(&want), gap);
    assert_eq!(made.unwrap().id, id("alpha", "pvc-1"));
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_an_earlier_request_is_no_answer_to_a_later_one() {
    let (world, cluster, _machine) = World::with_a_node().await;
    let want = want("pvc-1", 2000, &[]);
    refused(cluster.ensure(&want).await, pliant::volume::Reason::InsufficientCapacity);
    // The watch still tells of the one that has failed.
    world.api.hold_events();
    refused(cluster.ensure(&want).await, pliant::volume::Reason::Unavailable);
}
