//! The driver is killed before and after each effect of each operation, in each mode, and started
//! again; asked again, it ends where a run without a fault ends.

use std::sync::atomic::Ordering;

use pliant::testing::Side;

use crate::cuts::{Case, Reference, Tally, Verdict, difference, for_all, points};
use crate::machine::{old_ends, readable, wrongs};

#[test]
fn every_crash_is_survived() {
    let tally = Tally::default();
    for_all(|case| {
        let reference = case.reference();
        for (n, side) in points(reference.effects, Side::BOTH) {
            let named = || format!("{} at {side:?} {n}", case.named());
            tally.take(named, attempt(case, &reference, n, side));
        }
    });
    let (cuts, survived) =
        (tally.cuts.load(Ordering::Relaxed), tally.survived.load(Ordering::Relaxed));
    assert!(cuts >= 1500, "only {cuts} crash points");
    tally.close("crash_points.txt", &[("crash_points", cuts), ("crash_points_survived", survived)]);
}

/// Kill at one effect; kill the repetition too, somewhere; then let it go through.
async fn attempt(case: &Case, reference: &Reference, n: usize, side: Side) -> Verdict {
    let Some(stopped) = case.cut(reference, n, side).await else {
        return vec!["it was not cut".to_owned()];
    };
    let marked = case.marked() && !case.deletes();
    let healed = stopped.after_crash();
    reference.setup.start(&healed).await;
    let mut verdict = wrongs(&healed, marked).await;

    let twice = stopped.after_crash();
    twice.cut_at(1 + n * 5 % reference.effects, Side::After);
    let again = twice.run_until_cut(case.run(&twice, &reference.setup)).await;
    let last = match again {
        Some(_) => stopped.after_crash(),
        None => twice.after_crash(),
    };
    let answer = case.run(&last, &reference.setup).await;
    if answer != reference.answer {
        verdict.push(format!("answers {answer:?}, not {:?}", reference.answer));
    }
    verdict.extend(difference(&last.state(), &reference.state));
    verdict.extend(wrongs(&last, marked).await);
    verdict.extend(old_ends(&last).await);
    if case.deletes() && readable(&last, &reference.marks).await {
        verdict.push("a deleted volume's bytes are readable".to_owned());
    }
    verdict
}
