//! The power fails before and after each effect of each operation, in each mode; what was not flushed
//! is lost, wholly or in part. What was acknowledged before is there, and the operation, asked again,
//! ends where a run without a fault ends.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

use pliant::testing::{FakeHost, MachineState, Side, VolumeState};

use crate::cuts::{Case, Reference, Tally, Verdict, block_on, difference, for_all};
use crate::machine::{old_ends, readable, wiped_too_early, wrongs};

/// What is left of the unflushed writes.
const LOSSES: [Option<u64>; 3] = [None, Some(1), Some(2)];

/// Each cut of each case loses other parts.
fn without_power(host: &FakeHost, case: &Case, n: usize, loss: Option<u64>) -> FakeHost {
    let Some(seed) = loss else {
        return host.after_power_cut();
    };
    let mut hash = DefaultHasher::new();
    (case.named(), n, seed).hash(&mut hash);
    host.after_power_cut_with(hash.finish())
}

#[test]
fn every_power_cut_is_survived() {
    let tally = Tally::default();
    for_all(|case| {
        let reference = case.reference();
        for loss in LOSSES {
            let named = || format!("{} right after its answer, {loss:?}", case.named());
            tally.take(named, acknowledged(case, &reference, loss));
        }
        let expected = block_on(booted(case, &reference, &reference.after.after_power_cut()));
        // To the disks, after one effect and before the next is the same.
        for n in 1..=reference.effects {
            for loss in LOSSES {
                let named = || format!("{} before {n}, {loss:?}", case.named());
                tally.take(named, attempt(case, &reference, &expected, n, loss));
            }
        }
    });
    let (cuts, survived) =
        (tally.cuts.load(Ordering::Relaxed), tally.survived.load(Ordering::Relaxed));
    tally.close(
        "fake_power_cuts.txt",
        &[("fake_power_cuts", cuts), ("fake_power_cuts_survived", survived)],
    );
}

/// The answer and the state when all that the caller wants is asked for after a boot.
async fn booted(
    case: &Case,
    reference: &Reference,
    host: &FakeHost,
) -> (Result<String, String>, MachineState) {
    let answer = case.run_after(host, &reference.setup, &case.after_boot).await;
    let mut state = host.state();
    // A boot deactivates all and empties /run; whether an unused volume has been activated since is no
    // difference.
    state.devices.retain(|_, device| device.open_count > 0 || device.suspended || device.waiting);
    state.paths.retain(|path, _| !path.starts_with("/run"));
    (answer, state)
}

/// Cut the power right after the answer: the answer stays true.
async fn acknowledged(case: &Case, reference: &Reference, loss: Option<u64>) -> Verdict {
    let host = without_power(&reference.after, case, 0, loss);
    let mut verdict = Vec::new();
    let kept = MachineState { groups: host.state().groups, ..reference.state.clone() };
    verdict.extend(difference(&kept, &reference.state));
    reference.setup.start(&host).await;
    verdict.extend(wrongs(&host, case.marked() && !case.deletes()).await);
    if case.deletes() && readable(&host, &reference.marks).await {
        verdict.push("a deleted volume's bytes are readable".to_owned());
    }
    verdict
}

async fn attempt(
    case: &Case,
    reference: &Reference,
    expected: &(Result<String, String>, MachineState),
    n: usize,
    loss: Option<u64>,
) -> Verdict {
    let Some(stopped) = case.cut(reference, n, Side::Before).await else {
        return vec!["it was not cut".to_owned()];
    };
    let marked = case.marked() && !case.deletes();
    let healed = without_power(&stopped, case, n, loss);
    reference.setup.start(&healed).await;
    let mut verdict = wrongs(&healed, marked).await;
    verdict.extend(forgotten(&healed, reference));
    if case.marked() && case.deletes() {
        verdict.extend(wiped_too_early(&healed).await);
    }

    let last = without_power(&stopped, case, n, loss);
    let (answer, state) = booted(case, reference, &last).await;
    if case.op.is_none() && loss.is_some() && is_refused_as_not_blank(&answer) {
        // The disk has kept LVM's metadata without its label. That may be somebody's damaged disk as
        // well as our own attempt, so that only a person can tell.
        return verdict;
    }
    if answer != expected.0 {
        verdict.push(format!("answers {answer:?}, not {:?}", expected.0));
    }
    verdict.extend(difference(&state, &expected.1));
    verdict.extend(wrongs(&last, marked).await);
    verdict.extend(old_ends(&last).await);
    if case.deletes() && readable(&last, &reference.marks).await {
        verdict.push("a deleted volume's bytes are readable".to_owned());
    }
    verdict
}

fn is_refused_as_not_blank(answer: &Result<String, String>) -> bool {
    answer.as_ref().is_ok_and(|said| said.contains("is not blank"))
}

/// What was acknowledged before the operation and is not there any more, unless the operation itself
/// was to take it away.
fn forgotten(host: &FakeHost, reference: &Reference) -> Option<String> {
    let (now, before) = (host.state().groups, reference.base.state().groups);
    for (name, group) in before {
        for (lv, volume) in &group.volumes {
            let after = reference.state.groups[&name].volumes.get(lv);
            let goes = after.is_none();
            let least = after.map_or(0, |after| after.extents.min(volume.extents));
            // Tags that replace others come with them in one commit.
            let has = |there: &VolumeState, whole: Option<&VolumeState>| {
                whole.is_some_and(|whole| whole.tags.is_subset(&there.tags))
            };
            let there = now.get(&name).and_then(|group| group.volumes.get(lv));
            match there {
                _ if goes => {}
                None => return Some(format!("{lv} is forgotten")),
                Some(there) if there.extents < least => {
                    return Some(format!("{lv} has shrunk"));
                }
                Some(there) if !has(there, Some(volume)) && !has(there, after) => {
                    return Some(format!("{lv} has lost tags: {:?}", there.tags));
                }
                Some(_) => {}
            }
        }
    }
    None
}
