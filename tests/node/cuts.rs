//! The operations that are cut off, in each mode, and how a cut is tried.

use pliant::testing::{FakeHost, MachineState, Side};
use pliant::volume::{Fence, FsKind, Layout, Mode, NodeVolumes, Safety, Shrinks, Standing};
use tokio::runtime::Builder;

use crate::machine::{Disks, LARGE, LESS, MODES, Op, Setup, marks};
pub use crate::tally::{Tally, Verdict, difference, figures, for_each, points};

/// An operation on a machine where others went before it.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    pub mode: Mode,
    pub disks: Disks,
    pub two_step: bool,
    /// What was done, and acknowledged, before.
    pub before: Vec<Op>,
    /// What is cut off; `None`: the driver's start.
    pub op: Option<Op>,
    /// What the caller asks for anew when the machine has started again, before `op`.
    pub after_boot: Vec<Op>,
}

impl Case {
    fn new(name: &'static str, mode: Mode, before: &[Op], op: Op) -> Case {
        let (disks, before, after_boot) = (Disks::Two, before.to_vec(), Vec::new());
        Case { name, mode, disks, two_step: false, before, op: Some(op), after_boot }
    }

    fn two_step(self) -> Case {
        Case { two_step: true, ..self }
    }

    fn on(self, disks: Disks) -> Case {
        Case { disks, ..self }
    }

    fn after_boot(self, ops: &[Op]) -> Case {
        Case { after_boot: ops.to_vec(), ..self }
    }

    /// Whether the volume holds what a workload wrote.
    pub fn marked(&self) -> bool {
        self.before.contains(&Op::Write)
    }

    pub fn deletes(&self) -> bool {
        self.op == Some(Op::Delete)
    }

    pub fn named(&self) -> String {
        format!("{} ({})", self.name, self.mode)
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = MODES.into_iter().flat_map(cases_of).collect();
    cases.push(growing_only_unmounted(Op::Create, Disks::Two));
    cases.push(growing_only_unmounted(Op::CreateThin, Disks::Thin));
    cases.extend(THIN_MODES.into_iter().flat_map(thin_cases_of));
    cases.extend(COPIED_MODES.into_iter().flat_map(|mode| copies_of(mode, Layout::Linear)));
    cases.extend(COPIED_MODES.into_iter().flat_map(|mode| copies_of(mode, Layout::Thin)));
    cases.push(Case {
        name: "make a pool at the start",
        mode: Mode::Block,
        disks: Disks::Blank,
        two_step: false,
        before: Vec::new(),
        op: None,
        after_boot: Vec::new(),
    });
    cases
}

/// A growth under a safety snapshot, after which a workload writes at once.
fn growing_only_unmounted(create: fn(Mode) -> Op, disks: Disks) -> Case {
    let mode = Mode::Filesystem(FsKind::Ext4);
    let before = [
        create(mode),
        Op::CreateNeighbour,
        Op::Stage(mode),
        Op::Write,
        Op::Sparse,
        Op::Unstage,
        Op::Grow(LARGE),
    ];
    let name = match disks {
        Disks::Thin => "stage what is thin and grows only unmounted",
        _ => "stage what grows only unmounted",
    };
    Case::new(name, mode, &before, Op::Stage(mode)).two_step().on(disks)
}

/// Of thin volumes, what differs from others.
const THIN_MODES: [Mode; 3] =
    [Mode::Block, Mode::Filesystem(FsKind::Ext4), Mode::Filesystem(FsKind::Btrfs)];

fn thin_cases_of(mode: Mode) -> Vec<Case> {
    let (stage, publish) = (Op::Stage(mode), Op::Publish(mode));
    let online = [stage, publish];
    let made = [Op::CreateThin(mode), Op::CreateNeighbour];
    let published = [&made[..], &[stage, Op::Write, publish]].concat();
    let unstaged = [&made[..], &[stage, Op::Write, Op::Unstage]].concat();
    let mut cases = vec![
        Case::new("create thin", mode, &[], Op::CreateThin(mode)),
        Case::new("create thin in a pool", mode, &[Op::CreateThin(mode), Op::Delete], made[0]),
        Case::new("delete what is thin", mode, &unstaged, Op::Delete),
        Case::new("grow thin online", mode, &published, Op::Grow(LARGE)).after_boot(&online),
        Case::new("grow thin offline", mode, &unstaged, Op::Grow(LARGE)),
        Case::new("stage what is thin first", mode, &made, stage),
        Case::new("unstage what is thin", mode, &[&made[..], &[stage]].concat(), Op::Unstage)
            .after_boot(&[stage]),
    ];
    if mode != Mode::Block {
        cases.push(Case::new("shrink thin offline", mode, &unstaged, Op::Shrink(LESS)));
    }
    cases.into_iter().map(|case| case.on(Disks::Thin)).collect()
}

/// Of snapshots, clones and what is restored, what differs from others: the three ways to a uuid of its own.
const COPIED_MODES: [Mode; 4] = [
    Mode::Block,
    Mode::Filesystem(FsKind::Ext4),
    Mode::Filesystem(FsKind::Xfs),
    Mode::Filesystem(FsKind::Btrfs),
];

fn copies_of(mode: Mode, layout: Layout) -> Vec<Case> {
    use Op::{Clone, DeleteRestored, DeleteSnapshot, Restore, Snapshot, StageRestored};
    let (disks, create) = match layout {
        Layout::Linear => (Disks::Two, Op::Create(mode)),
        Layout::Thin => (Disks::Thin, Op::CreateThin(mode)),
    };
    let used = [create, Op::Stage(mode), Op::Write];
    let taken = [&used[..], &[Snapshot]].concat();
    let restored = [&taken[..], &[Op::Unstage, Restore(mode, layout)]].concat();
    let staged = [&restored[..], &[StageRestored(mode)]].concat();
    let online = [Op::Stage(mode)];
    let mut cases = vec![
        Case::new("take a snapshot", mode, &used, Snapshot).after_boot(&online),
        Case::new("take a snapshot of what is new", mode, &[create], Snapshot),
        Case::new("delete a snapshot", mode, &taken, DeleteSnapshot).after_boot(&online),
        Case::new("restore", mode, &taken, Restore(mode, layout)).after_boot(&online),
        Case::new("clone", mode, &used, Clone(mode, layout)).after_boot(&online),
        Case::new("stage what was restored", mode, &restored, StageRestored(mode)),
        Case::new("delete what was restored", mode, &restored, DeleteRestored),
        Case::new("stage again what was restored", mode, &staged, StageRestored(mode)),
    ];
    if layout == Layout::Linear {
        // A thin one shares its bytes with its snapshot.
        cases.push(Case::new("delete the volume of a snapshot", mode, &restored, Op::Delete));
    }
    cases.into_iter().map(|case| case.on(disks)).collect()
}

fn cases_of(mode: Mode) -> Vec<Case> {
    use Op::{
        Create, CreateFiller, CreateNeighbour, CreateSafe, Delete, Expand, ExpandTo, Grow, Publish,
        Stage, Unpublish, Unstage, Write,
    };
    let stage = Stage(mode);
    let publish = Publish(mode);
    // A neighbour behind the volume makes it grow in two pieces.
    let made = [Create(mode), CreateNeighbour];
    let staged = [&made[..], &[stage, Write]].concat();
    let published = [&staged[..], &[publish]].concat();
    let unstaged = [&staged[..], &[Unstage]].concat();
    let unsafe_unstaged =
        [&[CreateSafe(mode, Safety::Off), CreateNeighbour, stage, Write], &[Unstage][..]].concat();
    let grown_in_two_steps = [&published[..], &[Grow(LARGE)]].concat();
    let superseded =
        Op::Fence(Fence { generation: 1, standing: Standing::Superseded, copying: false });
    let active = Op::Fence(Fence { generation: 2, standing: Standing::Active, copying: false });
    let fenced = [&unstaged[..], &[superseded]].concat();
    let online = &[stage, publish];
    let mut cases = vec![
        Case::new("create", mode, &[], Create(mode)),
        Case::new("delete", mode, &unstaged, Delete),
        Case::new("delete what was never used", mode, &made, Delete),
        Case::new("grow online", mode, &published, Grow(LARGE)).after_boot(online),
        Case::new("grow offline", mode, &unstaged, Grow(LARGE)),
        Case::new("grow what was never used", mode, &made, Grow(LARGE)),
        Case::new("stage first", mode, &made, stage),
        Case::new("stage again", mode, &unstaged, stage),
        Case::new("publish", mode, &staged, publish).after_boot(&[stage]),
        Case::new("unpublish", mode, &published, Unpublish).after_boot(online),
        Case::new("unstage", mode, &staged, Unstage).after_boot(&[stage]),
        // After a boot nobody could have it again.
        Case::new("fence off", mode, &published, superseded),
        Case::new("let in again", mode, &fenced, active),
        Case::new("delete what is fenced off", mode, &fenced, Delete),
        Case::new("create on a standby disk", mode, &[CreateFiller], Create(mode))
            .on(Disks::Standby),
        Case::new("grow onto a standby disk", mode, &published, Grow(LARGE))
            .on(Disks::Standby)
            .after_boot(online),
    ];
    if mode != Mode::Block {
        cases.extend([
            // Nothing was ever written at its new end, so that nothing is wiped there.
            Case::new("grow online to a blank end", mode, &published, Grow(LARGE - 4))
                .after_boot(online),
            Case::new("grow offline without a snapshot", mode, &unsafe_unstaged, Grow(LARGE)),
            Case::new("grow in two steps", mode, &published, Grow(LARGE))
                .two_step()
                .after_boot(online),
            Case::new("node step", mode, &grown_in_two_steps, Expand).two_step().after_boot(online),
            Case::new("node step alone", mode, &published, ExpandTo(LARGE)).after_boot(online),
            Case::new(
                "stage what has grown",
                mode,
                &[&unstaged[..], &[Grow(LARGE)]].concat(),
                stage,
            )
            .two_step(),
        ]);
    }
    cases.extend(shrinks_of(mode, &made, &published, &unstaged));
    cases
}

fn shrinks_of(mode: Mode, made: &[Op], published: &[Op], unstaged: &[Op]) -> Vec<Case> {
    let Mode::Filesystem(kind) = mode else { return Vec::new() };
    if kind.shrinks() == Shrinks::Never {
        return Vec::new();
    }
    let shrink = Op::Shrink(LESS);
    let shrunk = [unstaged, &[shrink]].concat();
    let mut cases = vec![
        Case::new("shrink offline", mode, unstaged, shrink),
        Case::new("shrink what was never used", mode, made, shrink),
        Case::new("release", mode, &shrunk, Op::Release),
        Case::new("stage what has shrunk", mode, &shrunk, Op::Stage(mode)),
    ];
    if kind.shrinks() == Shrinks::Mounted {
        let online = [Op::Stage(mode), Op::Publish(mode)];
        cases.push(Case::new("shrink online", mode, published, shrink).after_boot(&online));
    }
    cases
}

/// A run without a fault.
pub struct Reference {
    pub base: FakeHost,
    pub setup: Setup,
    pub answer: Result<String, String>,
    pub state: MachineState,
    /// The machine after it.
    pub after: FakeHost,
    /// How many effects the operation has.
    pub effects: usize,
    /// Where the volume's bytes lay before it.
    pub marks: Vec<(std::path::PathBuf, u64)>,
}

/// Run `work` on threads of its own.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    // One for each run: what hangs on a stopped machine goes with it.
    Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(work)
}

impl Case {
    /// The machine before the operation.
    async fn base(&self) -> (FakeHost, Setup) {
        let (host, setup) = self.disks.machine(self.two_step).await;
        if !self.before.is_empty() {
            let node = setup.start(&host).await;
            for op in &self.before {
                let said = op.ask(&host, &node).await;
                assert!(said.is_ok(), "{}: {op:?}: {said:?}", self.named());
            }
        }
        (host, setup)
    }

    /// Start the driver and ask for the operation; its answer.
    pub async fn run(&self, host: &FakeHost, setup: &Setup) -> Result<String, String> {
        self.run_after(host, setup, &[]).await
    }

    /// As [`Case::run`], with other operations first, which must succeed.
    pub async fn run_after(
        &self,
        host: &FakeHost,
        setup: &Setup,
        first: &[Op],
    ) -> Result<String, String> {
        let node = setup.start(host).await;
        for op in first {
            op.ask(host, &node).await?;
        }
        match self.op {
            Some(op) => op.ask(host, &node).await,
            None => Ok(format!("{:?}", node.storage_health().await)),
        }
    }

    /// Cut the operation off at its `n`-th effect; the machine as it stopped.
    pub async fn cut(&self, reference: &Reference, n: usize, side: Side) -> Option<FakeHost> {
        let host = reference.base.after_crash();
        let node = match self.op {
            Some(op) => Some((op, reference.setup.start(&host).await)),
            None => None,
        };
        host.forget_effects();
        host.cut_at(n, side);
        let ended = match node {
            Some((op, node)) => host.run_until_cut(op.ask(&host, &node)).await.is_some(),
            None => host.run_until_cut(reference.setup.start(&host)).await.is_some(),
        };
        (!ended).then_some(host)
    }

    /// Run without a fault, twice: the second time must change nothing and answer the same.
    pub fn reference(&self) -> Reference {
        block_on(async {
            let (base, setup) = self.base().await;
            let marks = if self.marked() { marks(&base) } else { Vec::new() };
            let host = base.after_crash();
            let (answer, effects, state, after) = if let Some(op) = self.op {
                let node = setup.start(&host).await;
                host.forget_effects();
                let answer = op.ask(&host, &node).await;
                let effects = host.effects().len();
                // Before it is asked again: that would flush what the first has left.
                let (state, after) = (host.state(), host.after_crash());
                let again = op.ask(&host, &node).await;
                assert_eq!(again, answer, "{} twice", self.named());
                assert_eq!(host.state(), state, "{} twice", self.named());
                (answer, effects, state, after)
            } else {
                let answer = self.run(&host, &setup).await;
                (answer, host.effects().len(), host.state(), host.after_crash())
            };
            assert!(answer.is_ok(), "{}: {answer:?}", self.named());
            Reference { base, setup, answer, state, after, effects, marks }
        })
    }
}

/// Try all cases, on all processors.
pub fn for_all(attempt: impl Fn(&Case) + Sync) {
    for_each(&all(), attempt);
}
