//! Each call that an operation makes fails, once or for as long as it is tried, and LVM dies alone in
//! the middle of a command. The answer tells the truth, and when all works again the operation, asked
//! anew of the same driver, ends where a run without a fault ends.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use pliant::testing::{Failing, FakeHost};

use crate::cuts::{Case, Reference, Tally, Verdict, all, block_on, difference, for_each};
use crate::machine::{Disks, Op, old_ends, wrongs};

/// Programs that only look, so that they are no effects.
const LOOKS: [&str; 4] = ["blkid", "e2fsck", "xfs_repair", "btrfs check"];

/// The words of a call that say what it does, without what it does that to.
fn verb(effect: &str) -> String {
    let plain = |word: &&str| !word.contains(|c: char| c.is_ascii_digit() || "/=".contains(c));
    let words: Vec<&str> = effect.split(' ').collect();
    let rest = words[1..].iter().copied().take_while(plain);
    [words[0]].into_iter().chain(rest).collect::<Vec<_>>().join(" ")
}

fn effects_of(case: &Case, reference: &Reference) -> Vec<String> {
    block_on(async {
        let host = reference.base.after_crash();
        let node = reference.setup.start(&host).await;
        host.forget_effects();
        if let Some(op) = case.op {
            let _ = op.ask(&host, &node).await;
        }
        host.effects()
    })
}

/// Ask as often as told with this fault, then without: the last answer and what is left.
async fn attempt(
    case: &Case,
    reference: &Reference,
    times: usize,
    fault: impl Fn(&FakeHost),
) -> Verdict {
    let host = reference.base.after_crash();
    let node = reference.setup.start(&host).await;
    host.forget_effects();
    let op = case.op.expect("an operation");
    fault(&host);
    let mut verdict = Verdict::new();
    for _ in 0..times {
        verdict.extend(op.ask(&host, &node).await.err().and_then(|said| untrue(&said, case)));
        verdict.extend(wrongs_unless_suspended(&host, case).await);
    }
    host.mend();
    if case.before.contains(&Op::Sparse) {
        // What only grows while it is not mounted, and could not, is used as it is until then.
        let _ = Op::Unstage.ask(&host, &node).await;
    }
    let answer = op.ask(&host, &node).await;
    if answer != reference.answer {
        verdict.push(format!("answers {answer:?}, not {:?}", reference.answer));
    }
    verdict.extend(difference(&host.state(), &reference.state));
    verdict.extend(wrongs(&host, case.marked() && !case.deletes()).await);
    verdict.extend(old_ends(&host).await);
    verdict
}

/// A failed call makes nothing absent, full or badly asked for. But a standby disk that cannot be read
/// is none, and then there is no free space, and the error names the disk.
fn untrue(said: &str, case: &Case) -> Option<String> {
    let known =
        ["Failed", "Unavailable", "PreconditionFailed"].iter().any(|known| said.starts_with(known));
    let names_standby = || said.contains("standby disk /dev/fake1 was not used");
    let is_no_space =
        ["InsufficientCapacity", "ExpansionOutOfRange"].iter().any(|none| said.starts_with(none));
    let without_standby = case.disks == Disks::Standby && is_no_space && names_standby();
    (!known && !without_standby).then(|| format!("a failed call is told as {said}"))
}

/// What LVM left suspended when it died is resumed by the next call.
async fn wrongs_unless_suspended(host: &FakeHost, case: &Case) -> Verdict {
    let wrongs = wrongs(host, case.marked() && !case.deletes()).await;
    wrongs.into_iter().filter(|wrong| !wrong.contains("is suspended")).collect()
}

#[test]
fn every_fault_is_survived() {
    let tally = Tally::default();
    let cases: Vec<Case> = all().into_iter().filter(|case| case.op.is_some()).collect();
    for_each(&cases, |case| {
        let reference = case.reference();
        let effects = effects_of(case, &reference);
        let verbs: BTreeSet<String> =
            effects.iter().map(|effect| verb(effect)).chain(LOOKS.map(str::to_owned)).collect();
        for verb in &verbs {
            for (failing, times) in [(Failing::Once, 1), (Failing::Always, 2)] {
                let named = || format!("{}: `{verb}` fails {failing:?}", case.named());
                let fault = |host: &FakeHost| host.fail(verb, failing);
                tally.take(named, attempt(case, &reference, times, fault));
            }
        }
        let of_lvm = |effect: &str| ["lv", "vg"].iter().any(|begin| effect.starts_with(begin));
        for (n, _) in effects.iter().enumerate().filter(|(_, effect)| of_lvm(effect)) {
            let named = || format!("{}: LVM dies after {}", case.named(), n + 1);
            let fault = |host: &FakeHost| host.kill_lvm_after(n + 1);
            tally.take(named, attempt(case, &reference, 1, fault));
        }
    });
    let (faults, survived) =
        (tally.cuts.load(Ordering::Relaxed), tally.survived.load(Ordering::Relaxed));
    tally.close("faults.txt", &[("faults", faults), ("faults_survived", survived)]);
}
