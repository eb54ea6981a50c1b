//! Random lives of volumes, snapshots, clones and what is restored, linear and thin, with crashes and power cuts at any
//! effect: each byte is where a model that cannot fail has it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::node::lv_tags::lv_name;
use pliant::node::{Node, snapshot_tags};
use pliant::testing::{FakeHost, Side};
use pliant::volume::{
    Layout, Mode, NewSnapshot, NodeVolumes, Reason, Snapshots, Source, Stage, VolumeError,
    VolumeKey, Volumes,
};

use crate::cuts::{block_on, for_each};
use crate::dice::Dice;
use crate::exhaustive::exhaustive;
use crate::machine::{Disks, Setup, content, growth, id_of, staging, until_wiped, want, wrongs};

/// Those that have found a fault.
const FOUND: [u64; 3] = [44, 98, 150];
const FIXED_SEEDS: u64 = 32;
/// New ones in each run, and in a run of all.
const OTHER_SEEDS: [u64; 2] = [8, 3000];
const STEPS: usize = 40;
const VOLUMES: [&str; 4] = ["a", "b", "c", "d"];
const SNAPSHOTS: [&str; 3] = ["s", "t", "u"];
/// What a volume begins with, and what is added to it, in MiB.
const FIRST: u64 = 64;
const MORE: u64 = 8;
/// Where workloads write: at the edges of extents and of chunks, and where only a volume that has grown is.
const SPOTS: [u64; 7] =
    [0, 4096, (1 << 20) - 4096, 4 << 20, (33 << 20) + 512, (64 << 20) - 4096, 66 << 20];
/// A call that is not done by then never will be.
const TRIES: usize = 200;

/// What is written at a spot.
type Word = [u8; 16];

/// What a volume or a snapshot holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    mib: u64,
    /// By spot; zeroes elsewhere.
    words: BTreeMap<u64, Word>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Create(&'static str, Layout),
    Write(&'static str),
    Grow(&'static str),
    Delete(&'static str),
    Take(&'static str, &'static str),
    DeleteSnapshot(&'static str),
    Clone(&'static str, &'static str, Layout),
    Restore(&'static str, &'static str, Layout),
}

/// What the machine must have.
#[derive(Debug, Default)]
struct Model {
    volumes: BTreeMap<&'static str, Content>,
    /// With the volume that each was taken of, which may be gone.
    snapshots: BTreeMap<&'static str, (&'static str, Content)>,
}

struct World {
    host: FakeHost,
    setup: Setup,
    node: Arc<Node>,
    dice: Dice,
    model: Model,
    words: u64,
    cuts: u64,
    seed: u64,
    /// What was done so far, and was refused if it is false.
    lived: Vec<(Life, bool)>,
}

fn below(dice: &mut Dice, end: u64) -> u64 {
    (dice.next() >> 33) % end
}

fn snapshot_of(source: &str, name: &str) -> NewSnapshot {
    NewSnapshot { name: name.to_owned(), source: id_of(source) }
}

impl Model {
    /// What may be done next.
    fn next(&self, dice: &mut Dice) -> Life {
        let layout = dice.one_of(&[Layout::Linear, Layout::Thin]);
        let free = VOLUMES.iter().find(|name| !self.volumes.contains_key(**name)).copied();
        let untaken = SNAPSHOTS.iter().find(|name| !self.snapshots.contains_key(**name)).copied();
        let mut may = Vec::new();
        for volume in self.volumes.keys().copied() {
            may.extend([Life::Write(volume), Life::Write(volume), Life::Grow(volume)]);
            may.push(Life::Delete(volume));
            may.extend(untaken.map(|name| Life::Take(volume, name)));
            may.extend(free.map(|name| Life::Clone(volume, name, layout)));
        }
        for snapshot in self.snapshots.keys().copied() {
            may.push(Life::DeleteSnapshot(snapshot));
            may.extend(free.map(|name| Life::Restore(snapshot, name, layout)));
        }
        may.extend(free.map(|name| Life::Create(name, layout)));
        dice.one_of(&may)
    }

    /// What is there once it is done.
    fn apply(&mut self, life: Life) {
        match life {
            Life::Create(name, _) => {
                self.volumes.insert(name, Content { mib: FIRST, ..Content::default() });
            }
            Life::Write(_) => {}
            Life::Grow(name) => self.volume(name).mib += MORE,
            Life::Delete(name) => drop(self.volumes.remove(name)),
            Life::Take(volume, name) => {
                let content = self.volumes[volume].clone();
                self.snapshots.insert(name, (volume, content));
            }
            Life::DeleteSnapshot(name) => drop(self.snapshots.remove(name)),
            Life::Clone(source, name, _) => {
                let content = self.volumes[source].clone();
                self.volumes.insert(name, content);
            }
            Life::Restore(snapshot, name, _) => {
                let content = self.snapshots[snapshot].1.clone();
                self.volumes.insert(name, content);
            }
        }
    }

    fn volume(&mut self, name: &str) -> &mut Content {
        self.volumes.get_mut(name).expect("it is there")
    }
}

impl World {
    async fn new(seed: u64) -> World {
        let (host, setup) = Disks::Thin.machine(false).await;
        let node = setup.start(&host).await;
        let (dice, model) = (Dice::of(seed), Model::default());
        World { host, setup, node, dice, model, words: 0, cuts: 0, seed, lived: Vec::new() }
    }

    /// Ask once.
    async fn ask(&self, life: Life) -> Result<(), VolumeError> {
        let make = |name: &str, layout, mib, source| {
            let mut want = want(name, Mode::Block, mib);
            (want.class.layout, want.source) = (layout, source);
            want
        };
        let mib = |name: &str| self.model.volumes[name].mib;
        match life {
            Life::Create(name, layout) => {
                self.node.ensure(&make(name, layout, FIRST, None)).await.map(drop)
            }
            Life::Write(name) => {
                let path = PathBuf::from(format!("/var/lib/kubelet/staging/{name}"));
                let stage = staging(Mode::Block);
                self.node.stage(&Stage { id: id_of(name), staging: path, ..stage }).await.map(drop)
            }
            Life::Grow(name) => {
                self.node.grow(&id_of(name), growth(mib(name) + MORE)).await.map(drop)
            }
            Life::Delete(name) => self.node.remove(&id_of(name)).await,
            Life::Take(volume, name) => {
                self.node.ensure_snapshot(&snapshot_of(volume, name)).await.map(drop)
            }
            Life::DeleteSnapshot(name) => {
                let source = self.model.snapshots[name].0;
                self.node.remove_snapshot(&snapshot_of(source, name).id()).await
            }
            Life::Clone(source, name, layout) => {
                let from = Some(Source::Volume(id_of(source)));
                self.node.ensure(&make(name, layout, mib(source), from)).await.map(drop)
            }
            Life::Restore(snapshot, name, layout) => {
                let (source, content) = &self.model.snapshots[snapshot];
                let from = Some(Source::Snapshot(snapshot_of(source, snapshot).id()));
                self.node.ensure(&make(name, layout, content.mib, from)).await.map(drop)
            }
        }
    }

    /// Do it, with a crash in every third; what goes on behind the answer may be cut, too.
    async fn live(&mut self, life: Life) {
        if below(&mut self.dice, 3) == 0 {
            let (n, side) = (1 + below(&mut self.dice, 40), self.dice.one_of(&Side::BOTH));
            self.host.forget_effects();
            self.host.cut_at(usize::try_from(n).expect("few"), side);
        }
        self.live_on(life).await;
        self.host.forget_effects();
        if self.host.run_until_cut(std::future::ready(())).await.is_none() {
            self.start_again().await;
        }
    }

    /// Do it, whatever comes between; without room nothing is done.
    async fn live_on(&mut self, life: Life) {
        let mut last = None;
        for _ in 0..TRIES {
            let Some(said) = self.host.run_until_cut(self.ask(life)).await else {
                self.start_again().await;
                continue;
            };
            match said.as_ref().map_err(VolumeError::reason) {
                Ok(()) => {
                    self.model.apply(life);
                    self.lived.push((life, true));
                    return;
                }
                Err(Reason::InProgress | Reason::Unavailable) => {
                    last = said.err();
                    tokio::task::yield_now().await;
                }
                // A linear snapshot, a clone and a growth need room of their own.
                Err(
                    Reason::InsufficientCapacity
                    | Reason::ExpansionOutOfRange
                    | Reason::PreconditionFailed,
                ) if matches!(
                    life,
                    Life::Grow(_) | Life::Take(..) | Life::Clone(..) | Life::Restore(..)
                ) =>
                {
                    self.lived.push((life, false));
                    return;
                }
                Err(reason) => {
                    panic!("seed {}: {life:?} after {:?}: {reason}", self.seed, self.lived)
                }
            }
        }
        panic!("seed {}: {life:?} never ends after {:?}: {last:?}", self.seed, self.lived);
    }

    /// The driver was killed, or the power went.
    async fn start_again(&mut self) {
        self.cuts += 1;
        self.host = match below(&mut self.dice, 3) {
            0 => self.host.after_power_cut_with(self.dice.next()),
            _ => self.host.after_crash(),
        };
        self.node = self.setup.start(&self.host).await;
    }

    async fn step(&mut self) {
        let life = self.model.next(&mut self.dice);
        self.live(life).await;
        if let Life::Write(name) = life {
            self.live_on(life).await;
            self.write(name).await;
        }
    }

    async fn write(&mut self, name: &'static str) {
        let group = self.host.state().groups.into_keys().next().expect("a group");
        let lv = lv_name(&VolumeKey::of(name));
        let device = self.host.device_of(&group, &lv).expect("it is staged");
        let end = self.model.volumes[name].mib << 20;
        for _ in 0..=below(&mut self.dice, 2) {
            let spot = self.dice.one_of(&SPOTS);
            if spot >= end {
                continue;
            }
            self.words += 1;
            let word = (u128::from(self.words) << 64 | u128::from(spot) | 1 << 63).to_le_bytes();
            self.host.write_at(&device, spot, &word);
            self.model.volume(name).words.insert(spot, word);
        }
        self.host.flush(&device).await.expect("sync");
    }

    /// What is not as the model has it.
    async fn differences(&self) -> Vec<String> {
        let mut wrong = wrongs(&self.host, false).await;
        let name = self.host.state().groups.into_keys().next().expect("a group");
        let group = self.host.group(&name).expect("it can be read");
        let ready = snapshot_tags::snapshots(&group).filter(|(_, record)| record.is_ready());
        let ready: BTreeMap<String, _> =
            ready.map(|(lv, record)| (record.name.clone(), lv)).collect();
        let volumes = self.model.volumes.iter();
        let volumes =
            volumes.map(|(name, its)| (*name, its, group.lvs.get(&lv_name(&VolumeKey::of(name)))));
        let snapshots = self.model.snapshots.iter();
        let snapshots = snapshots.map(|(name, (_, its))| (*name, its, ready.get(*name).copied()));
        for (name, its, lv) in volumes.chain(snapshots) {
            let Some(lv) = lv else {
                // A snapshot that is still copied.
                if VOLUMES.contains(&name) {
                    wrong.push(format!("{name} is lost"));
                }
                continue;
            };
            if group.size_of(lv.extents()) != Bytes::mib(its.mib) {
                wrong.push(format!("{name} has another size than {} MiB", its.mib));
            }
            for spot in SPOTS.into_iter().filter(|spot| *spot < its.mib << 20) {
                let found = content(&self.host, &group, lv, spot, 16).await;
                let wanted = its.words.get(&spot).copied().unwrap_or_default();
                if found != wanted {
                    wrong.push(format!("{name} has {found:?} at {spot}, not {wanted:?}"));
                }
            }
        }
        wrong
    }

    /// Delete all, and see what is left.
    async fn end(&mut self) -> Vec<String> {
        for name in SNAPSHOTS.into_iter().rev() {
            if self.model.snapshots.contains_key(name) {
                self.live(Life::DeleteSnapshot(name)).await;
            }
        }
        for name in VOLUMES {
            if self.model.volumes.contains_key(name) {
                self.live(Life::Delete(name)).await;
            }
        }
        let name = self.host.state().groups.into_keys().next().expect("a group");
        let group = self.host.group(&name).expect("it can be read");
        let left = group.lvs.keys().filter(|name| name.starts_with("pliant-"));
        let left = left.filter(|name| !name.contains("thin"));
        left.map(|name| format!("{name} is left")).collect()
    }
}

/// The life of one machine; the crashes that it had.
async fn life_of(seed: u64) -> Result<u64, String> {
    let mut world = World::new(seed).await;
    let told = |world: &World, wrong: &[String]| {
        format!("seed {seed}, after {:?}:\n  {}", world.lived, wrong.join("\n  "))
    };
    for _ in 0..STEPS {
        world.step().await;
        let wrong = world.differences().await;
        if !wrong.is_empty() {
            return Err(told(&world, &wrong));
        }
    }
    until_wiped(&world.node).await;
    let mut wrong = world.differences().await;
    wrong.extend(world.end().await);
    if wrong.is_empty() { Ok(world.cuts) } else { Err(told(&world, &wrong)) }
}

#[test]
fn each_byte_of_volumes_and_their_copies_is_where_a_model_has_it() {
    let cuts = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let any = u64::try_from(now % u128::from(u32::MAX)).expect("32 bits");
    let others = any..any + OTHER_SEEDS[usize::from(exhaustive())];
    println!("seeds {FOUND:?}, 1 to {FIXED_SEEDS}, and {others:?}");
    let seeds: Vec<u64> = FOUND.into_iter().chain(1..=FIXED_SEEDS).chain(others).collect();
    for_each(&seeds, |seed| {
        let its = block_on(life_of(*seed)).unwrap_or_else(|wrong| panic!("{wrong}"));
        cuts.fetch_add(its, Ordering::Relaxed);
    });
    let cuts = cuts.into_inner();
    assert!(cuts >= FIXED_SEEDS, "only {cuts} crashes");
}
