//! Every changing call meets every other on the same volume: while the first is held after each of
//! its effects, and after it died there. Nobody works beside it, and all asked again ends where the
//! calls one after the other end.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use pliant::testing::{FakeHost, MachineState, Side};
use pliant::volume::{FsKind, Mode};
use tonic::Code;

use crate::calls::{Answer, Call, Services, Verb};
use crate::cuts::{Tally, Verdict, block_on, difference, for_each};
use crate::machine::{Disks, LARGE, Op, SMALL, Setup, VOLUME, marks, readable, wrongs};

const ABORTED: Answer = Answer::Refused(Code::Aborted);

/// The call that comes first, on a volume where others went before it.
struct First {
    verb: Verb,
    mode: Mode,
    before: Vec<Op>,
}

fn firsts(mode: Mode) -> Vec<First> {
    let created = vec![Op::Create(mode), Op::CreateNeighbour];
    let staged = [&created[..], &[Op::Stage(mode), Op::Write]].concat();
    let published = [&staged[..], &[Op::Publish(mode)]].concat();
    let unstaged = [&staged[..], &[Op::Unstage]].concat();
    let first = |(verb, before): (Verb, &Vec<Op>)| First { verb, mode, before: before.clone() };
    let all = [
        (Verb::Create, &Vec::new()),
        (Verb::Delete, &unstaged),
        (Verb::Stage, &created),
        (Verb::Stage, &unstaged),
        (Verb::Unstage, &staged),
        (Verb::Publish, &staged),
        (Verb::Unpublish, &published),
        (Verb::Expand, &published),
        (Verb::Expand, &unstaged),
        (Verb::NodeExpand, &published),
    ];
    all.map(first).into()
}

/// A run without a fault, one call after the other.
struct Run {
    answers: Vec<Answer>,
    state: MachineState,
    effects: Vec<String>,
    /// How many of them the first call had when it was answered: what follows is done behind it.
    before_answer: usize,
}

/// The machine before the first call, and how to run on it.
struct Stand {
    base: FakeHost,
    setup: Setup,
    marks: Vec<(std::path::PathBuf, u64)>,
    mode: Mode,
}

impl Stand {
    async fn before(first: &First) -> Stand {
        let (base, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&base).await;
        for op in &first.before {
            op.ask(&base, &node).await.expect("what goes before is done");
        }
        let marks = if first.before.contains(&Op::Write) { marks(&base) } else { Vec::new() };
        Stand { base, setup, marks, mode: first.mode }
    }

    fn call(&self, verb: Verb) -> Call {
        let mib = if verb == Verb::Create { SMALL } else { LARGE };
        Call { verb, name: VOLUME, mode: self.mode, mib }
    }

    /// The machine and its driver, no effect counted yet.
    async fn started(&self, host: &FakeHost) -> Services {
        let services = Services::start(host, &self.setup).await;
        host.forget_effects();
        services
    }

    async fn one_after_the_other(&self, verbs: &[Verb]) -> Run {
        let host = self.base.after_crash();
        let services = self.started(&host).await;
        let (mut answers, mut before_answer) = (Vec::new(), None);
        for verb in verbs {
            answers.push(services.ask_only(self.call(*verb)).await);
            before_answer.get_or_insert_with(|| host.effects().len());
            services.settle().await;
        }
        let before_answer = before_answer.unwrap_or_default();
        Run { answers, state: host.state(), effects: host.effects(), before_answer }
    }

    /// Who does not wait is turned away while the first is held, and the first goes on as if nobody
    /// had come.
    async fn turned_away(&self, first: Verb, n: usize, alone: &Run) -> Verdict {
        let host = self.base.after_crash();
        let services = self.started(&host).await;
        let work = self.held_after(&host, &services, first, n).await;
        let mut verdict = Vec::new();
        for second in Verb::ALL.into_iter().filter(|verb| !verb.waits()) {
            let answer = at_once(pin!(services.ask(self.call(second))));
            if answer != Some(ABORTED) {
                verdict.push(format!("{second:?} beside it answers {answer:?}"));
            }
        }
        host.let_go();
        let answers = vec![work.await.expect("no panic")];
        verdict.extend(differs(&host, &answers, alone));
        verdict
    }

    /// Who waits begins when the first has ended.
    async fn waited_for(&self, first: Verb, second: Verb, n: usize, both: &Run) -> Verdict {
        let host = self.base.after_crash();
        let services = self.started(&host).await;
        let work = self.held_after(&host, &services, first, n).await;
        let mut waiting = pin!(services.ask(self.call(second)));
        if let Some(answer) = at_once(waiting.as_mut()) {
            return vec![format!("{second:?} does not wait, it answers {answer:?}")];
        }
        host.let_go();
        let (first, second) = tokio::join!(work, waiting);
        differs(&host, &[first.expect("no panic"), second], both)
    }

    async fn held_after(
        &self,
        host: &FakeHost,
        services: &Services,
        verb: Verb,
        n: usize,
    ) -> tokio::task::JoinHandle<Answer> {
        host.hold_after(n);
        let (services, call) = (services.clone(), self.call(verb));
        let work = tokio::spawn(async move { services.ask(call).await });
        host.held().await;
        work
    }

    /// The first dies after its `n`-th effect and the second comes to a driver that has started
    /// again. What it is told is true of a machine where the first was done, or never begun, or it
    /// is told to ask again; and so is all that is asked afterwards.
    async fn after_death(&self, first: Verb, second: Verb, n: usize, outcomes: &[Run]) -> Verdict {
        let stopped = self.base.after_crash();
        let services = self.started(&stopped).await;
        stopped.cut_at(n, Side::After);
        if stopped.run_until_cut(services.ask(self.call(first))).await.is_some() {
            return vec!["it was not cut".to_owned()];
        }
        let host = stopped.after_crash();
        let services = Services::start(&host, &self.setup).await;
        let met = services.ask(self.call(second)).await;
        let may_be_gone = first == Verb::Delete || (second, met) == (Verb::Delete, Answer::Done);
        let mut verdict = wrongs(&host, !self.marks.is_empty() && !may_be_gone).await;

        let last = [services.ask(self.call(first)).await, services.ask(self.call(second)).await];
        let state = in_use(host.state());
        let true_of = |run: &&Run| {
            let [.., before, one, two] = run.answers[..] else { return false };
            [one, two] == last
                && in_use(run.state.clone()) == state
                && [ABORTED, before].contains(&met)
        };
        if !outcomes.iter().any(|run| true_of(&run)) {
            let expected = outcomes.iter().map(|run| &run.answers).collect::<Vec<_>>();
            verdict.push(format!("answers {met:?}, {last:?}, none of {expected:?}"));
            verdict.extend(
                outcomes.iter().filter_map(|run| difference(&state, &in_use(run.state.clone()))),
            );
        }
        let path = self.call(second).leaves_nothing_at();
        if last[1] == Answer::Done
            && path.is_some_and(|path| host.state().paths.contains_key(&path))
        {
            verdict.push("its path is still there".to_owned());
        }
        let deleted = [(second, met), (first, last[0]), (second, last[1])]
            .contains(&(Verb::Delete, Answer::Done));
        verdict.extend(wrongs(&host, !self.marks.is_empty() && !deleted).await);
        if deleted && readable(&host, &self.marks).await {
            verdict.push("a deleted volume's bytes are readable".to_owned());
        }
        verdict
    }
}

/// Without the empty paths that a call makes before it mounts there: they wait for the unstaging or
/// unpublishing that its caller owes.
fn in_use(state: MachineState) -> MachineState {
    MachineState { paths: BTreeMap::new(), ..state }
}

/// The answer, if nothing has to be waited for.
fn at_once(call: Pin<&mut impl Future<Output = Answer>>) -> Option<Answer> {
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn differs(host: &FakeHost, answers: &[Answer], run: &Run) -> Verdict {
    let mut verdict = Vec::new();
    if answers != run.answers {
        verdict.push(format!("answers {answers:?}, not {:?}", run.answers));
    }
    if host.effects() != run.effects {
        verdict.push(format!("does {:#?}, not {:#?}", host.effects(), run.effects));
    }
    verdict.extend(difference(&host.state(), &run.state));
    verdict
}

/// Let every call meet the first after each of its effects; how often two met.
fn meet(first: &First, tally: &Tally) -> usize {
    let stand = block_on(Stand::before(first));
    let run = |verbs: &[Verb]| block_on(stand.one_after_the_other(verbs));
    let alone = run(&[first.verb]);
    assert!(
        !matches!(alone.answers[0], Answer::Refused(_)),
        "{:?}: {:?}",
        first.verb,
        alone.answers
    );
    let points = 1..=alone.before_answer;
    for n in points.clone() {
        let named = || format!("{:?} ({}) held after {n}", first.verb, first.mode);
        tally.take(named, stand.turned_away(first.verb, n, &alone));
    }
    for second in Verb::ALL {
        let (a, b) = (first.verb, second);
        let both = run(&[a, b]);
        // It was done before it died, or it never began.
        let outcomes = [run(&[a, b, a, b]), run(&[b, a, b])];
        for n in points.clone() {
            let named = |how: &str| format!("{b:?} {how} {n} of {a:?} ({})", first.mode);
            if b.waits() {
                tally.take(|| named("waits at"), stand.waited_for(a, b, n, &both));
            }
            tally.take(|| named("after death at"), stand.after_death(a, b, n, &outcomes));
        }
    }
    2 * Verb::ALL.len() * points.count()
}

#[test]
fn calls_on_one_volume_never_meet() {
    let (tally, met) = (Tally::default(), AtomicUsize::new(0));
    let modes = [Mode::Block, Mode::Filesystem(FsKind::Ext4)];
    let firsts: Vec<First> = modes.into_iter().flat_map(firsts).collect();
    for_each(&firsts, |first| {
        met.fetch_add(meet(first, &tally), Ordering::Relaxed);
    });
    tally.close("operation_pairs.txt", &[("operation_pairs", met.into_inner())]);
}
