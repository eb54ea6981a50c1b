//! Each request that changes something at the API server, and each effect on the machine, is lost, or
//! kills the node plugin or the controller. Asked again, all ends where a run without a fault ends.

use std::sync::atomic::Ordering;

use pliant::api::{NodeStorageStatus, StoragePool, VolumeState};
use pliant::bytes::Bytes;
use pliant::testing::{FakeApi, FakeHost, Lost, MachineState, Side};
use pliant::volume::{Fence, Mode, NewVolume, NodeVolumes, Standing, VolumeError, Volumes};

use crate::block_on;
use crate::tally::{Tally, Verdict, difference, for_each, points};
use crate::world::{
    Controller, EXT4, Machine, World, asked_again, growth, id, machine, stage, want,
};

const SUPERSEDED: Fence = Fence { generation: 1, standing: Standing::Superseded, copying: false };

/// What is asked of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Create,
    Grow,
    Shrink,
    Release,
    Remove,
    Fence,
    Inspect,
}

/// An operation on a volume of a mode.
#[derive(Debug, Clone, Copy)]
struct Case {
    op: Op,
    mode: Mode,
}

/// Who suffers from a lost request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// Whoever sent it, and lives on.
    Sender,
    /// The node plugin dies, and starts again.
    NodePlugin,
    /// The controller dies, and starts again.
    Controller,
}

/// How all ended.
#[derive(Debug, Clone, PartialEq)]
struct End {
    answer: String,
    machine: MachineState,
    storage: NodeStorageStatus,
}

/// A run without a fault.
struct Reference {
    base: FakeHost,
    end: End,
    writes: usize,
    effects: usize,
}

fn cases() -> Vec<Case> {
    let ops = [Op::Create, Op::Grow, Op::Release, Op::Remove, Op::Fence, Op::Inspect];
    let cases = ops.into_iter().flat_map(|op| [Mode::Block, EXT4].map(|mode| Case { op, mode }));
    cases.chain([Case { op: Op::Shrink, mode: EXT4 }]).collect()
}

impl Case {
    fn want(self) -> NewVolume {
        NewVolume { mode: self.mode, ..want("pvc-1", 100, &[]) }
    }

    async fn ask(self, cluster: &Controller) -> Result<String, VolumeError> {
        let volume = id("alpha", "pvc-1");
        match self.op {
            Op::Create => cluster.ensure(&self.want()).await.map(|made| format!("{made:?}")),
            Op::Grow => cluster.grow(&volume, growth(200)).await.map(|grown| format!("{grown:?}")),
            Op::Shrink => {
                cluster.shrink(&volume, Bytes::mib(50)).await.map(|size| size.to_string())
            }
            Op::Release => cluster.release(&volume).await.map(|()| String::new()),
            Op::Remove => cluster.remove(&volume).await.map(|()| String::new()),
            Op::Fence => cluster.fence(&volume, SUPERSEDED).await.map(|()| String::new()),
            Op::Inspect => cluster.inspect(&volume).await.map(|seen| format!("{seen:?}")),
        }
    }

    /// The machine before the operation.
    async fn base(self) -> FakeHost {
        let host = machine();
        if self.op != Op::Create {
            let (world, cluster, alpha) = cluster_of(&host).await;
            cluster.ensure(&self.want()).await.expect("it is made");
            if (self.op, self.mode) == (Op::Grow, EXT4) {
                alpha.node.stage(&stage()).await.expect("it is staged");
            }
            drop((world, cluster));
            return alpha.host.after_crash();
        }
        host
    }

    fn reference(self) -> Reference {
        block_on(async {
            let base = self.base().await;
            let (world, cluster, alpha) = cluster_of(&base.after_crash()).await;
            world.api.forget_writes();
            alpha.host.forget_effects();
            let answer = self.ask(&cluster).await.expect("nothing fails");
            let effects = alpha.host.effects().len();
            world.cleaned().await;
            let writes = world.api.writes().len();
            let end = end(answer, &world, &alpha).await;
            Reference { base, end, writes, effects }
        })
    }

    /// Lose one request, and whom it takes along.
    async fn lose(self, reference: &Reference, n: usize, lost: Lost, victim: Victim) -> Verdict {
        let (world, mut cluster, mut alpha) = cluster_of(&reference.base.after_crash()).await;
        world.api.forget_writes();
        world.api.fail_at(n, lost);
        let lost = world.api.until("it is lost", |api: &FakeApi| api.writes().len() >= n);
        // Whatever is answered: it is asked again. The requests of the cleaner come last.
        let asked = async { (self.ask(&cluster).await, world.cleaned().await) };
        match victim {
            Victim::Sender => drop(tokio::join!(asked, lost)),
            Victim::NodePlugin => {
                let restart = async {
                    lost.await;
                    restarted(&world, alpha).await
                };
                alpha = tokio::join!(asked, restart).1;
            }
            Victim::Controller => {
                tokio::select! {
                    _ = asked => {}
                    () = lost => {}
                }
                drop(cluster);
                cluster = world.controller().await;
            }
        }
        let again = asked_again(|| self.ask(&cluster)).await;
        self.judge(again, reference, &world, &alpha).await
    }

    /// Kill the node plugin at one effect on its machine.
    async fn kill(self, reference: &Reference, n: usize, side: Side) -> Verdict {
        let (world, cluster, alpha) = cluster_of(&reference.base.after_crash()).await;
        alpha.host.forget_effects();
        alpha.host.cut_at(n, side);
        if alpha.host.run_until_cut(self.ask(&cluster)).await.is_some() {
            return vec!["it was not cut".to_owned()];
        }
        let alpha = restarted(&world, alpha).await;
        let again = asked_again(|| self.ask(&cluster)).await;
        self.judge(again, reference, &world, &alpha).await
    }

    async fn judge(
        self,
        answer: Result<String, VolumeError>,
        reference: &Reference,
        world: &World,
        alpha: &Machine,
    ) -> Verdict {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return vec![format!("asked again: {error}")],
        };
        world.cleaned().await;
        let end = end(answer, world, alpha).await;
        let mut verdict = Verdict::new();
        if end.answer != reference.end.answer {
            verdict.push(format!("answers {}, not {}", end.answer, reference.end.answer));
        }
        verdict.extend(difference(&end.machine, &reference.end.machine));
        if end.storage != reference.end.storage {
            verdict.push(format!("tells {:?}, not {:?}", end.storage, reference.end.storage));
        }
        verdict
    }
}

/// A cluster of this machine.
async fn cluster_of(host: &FakeHost) -> (World, Controller, Machine) {
    let world = World::new();
    let node = world.node("alpha").await;
    drop(node);
    let alpha = world.restart("alpha", host.clone()).await;
    let cluster = world.controller().await;
    cluster.knows_pools_of(1).await;
    (world, cluster, alpha)
}

async fn restarted(world: &World, dead: Machine) -> Machine {
    let host = dead.host.after_crash();
    drop(dead);
    world.restart("alpha", host).await
}

async fn end(answer: String, world: &World, alpha: &Machine) -> End {
    let told = |api: &FakeApi| api.get::<StoragePool>("fast")?.status?.available;
    let is_told = |api: &FakeApi| told(api) == Some(world.storage("alpha").available);
    world.api.until("the pool tells its room", is_told).await;
    let is_wiped =
        || world.storage("alpha").volumes.iter().all(|one| one.state != VolumeState::Creating);
    world.api.until("new volumes are wiped", |_| is_wiped()).await;
    let mut storage = world.storage("alpha");
    for volume in storage.volumes.iter_mut().filter(|one| one.state == VolumeState::Resized) {
        volume.state = VolumeState::Ready; // A node plugin knows only its own growths.
    }
    End { answer, machine: alpha.host.state(), storage }
}

#[test]
fn every_lost_request_and_every_death_is_survived() {
    let tally = Tally::default();
    for_each(&cases(), |case| {
        let reference = case.reference();
        for (n, lost) in points(reference.writes, Lost::BOTH) {
            for victim in [Victim::Sender, Victim::NodePlugin, Victim::Controller] {
                let named = || format!("{case:?}: {victim:?} at request {n}, {lost:?} lost");
                tally.take(named, case.lose(&reference, n, lost, victim));
            }
        }
        for (n, side) in points(reference.effects, Side::BOTH) {
            let named = || format!("{case:?}: the node plugin dies at effect {n} {side:?}");
            tally.take(named, case.kill(&reference, n, side));
        }
    });
    let (points, survived) =
        (tally.cuts.load(Ordering::Relaxed), tally.survived.load(Ordering::Relaxed));
    assert!(points >= 200, "only {points} crash points");
    let figures = [("api_crash_points", points), ("api_crash_points_survived", survived)];
    tally.close("api_crash_points.txt", &figures);
}
