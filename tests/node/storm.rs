//! Many callers ask for anything at any time, over a socket: what each is told fits a model of one
//! volume, and so does what is there when they pause and the driver was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pliant::bytes::Bytes;
use pliant::csi::{RpcObserver, pb};
use pliant::node::{GroupSource, PoolPlan};
use pliant::testing::FakeHost;
use pliant::volume::{FsKind, Mode};

use crate::calls::{Call, Client, Services, Verb};
use crate::cuts::figures;
use crate::dice::Dice;
use crate::machine::{Setup, settings};
use crate::model::{Event, Model, explain};

const VOLUMES: [(&str, Mode); 4] = [
    ("a", Mode::Block),
    ("b", Mode::Filesystem(FsKind::Ext4)),
    ("c", Mode::Filesystem(FsKind::Xfs)),
    ("d", Mode::Filesystem(FsKind::Btrfs)),
];
const SIZES: [u64; 3] = [320, 400, 480];
const FIXED_SEEDS: [u64; 4] = [1, 2, 3, 4];
const ROUNDS: usize = 4;
const CALLERS: u64 = 6;
const CALLS: usize = 40;
/// Room for all of them at their largest, so that no answer depends on another volume.
const DISK: u64 = 3 << 30;

/// What a caller does next.
trait Caller {
    fn call(&mut self) -> Call;
}

impl Caller for Dice {
    fn call(&mut self) -> Call {
        let verb = self.one_of(&[&Verb::ALL[..], &[Verb::Get]].concat());
        let (name, mode) = self.one_of(&VOLUMES);
        Call { verb, name, mode, mib: self.one_of(&SIZES) }
    }
}

struct Nobody;

impl RpcObserver for Nobody {
    fn observe(&self, _: &str, _: &'static str, _: Duration) {}
}

fn machine() -> (FakeHost, Setup) {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::new(DISK));
    host.add_group("vg0", &[disk]);
    let groups = vec![GroupSource::Existing("vg0".to_owned())];
    let plan = PoolPlan::new("fast".parse().expect("a name"), groups);
    (host, Setup { settings: settings(), plans: vec![plan] })
}

/// One caller's calls, one after the other.
async fn call(mut client: Client, mut dice: Dice, clock: Arc<AtomicU64>) -> Vec<Event> {
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    let mut events = Vec::new();
    for _ in 0..CALLS {
        let call = dice.call();
        let asked = now();
        let answer = client.ask(call).await;
        events.push(Event { asked, answered: now(), call, answer });
    }
    events
}

/// What is there by the driver's own word: sizes in MiB by name, and the free bytes.
async fn told(client: &mut Client) -> (BTreeMap<String, u64>, i64) {
    let listed = client.controller.list_volumes(pb::ListVolumesRequest::default()).await;
    let volumes = listed.expect("a list").into_inner().entries.into_iter();
    let name = |id: &str| {
        VOLUMES.into_iter().find(|(name, _)| crate::machine::id_of(name).to_string() == id)
    };
    let sizes = volumes.filter_map(|entry| entry.volume).map(|volume| {
        let (name, _) = name(&volume.volume_id).expect("one of ours");
        (name.to_owned(), u64::try_from(volume.capacity_bytes >> 20).expect("a size"))
    });
    let sizes = sizes.collect();
    let room = client.controller.get_capacity(pb::GetCapacityRequest::default()).await;
    (sizes, room.expect("a capacity").into_inner().available_capacity)
}

/// Let the callers loose on a driver that has just started, and hold what they heard, and what is
/// there afterwards, against the model.
async fn round(
    host: &FakeHost,
    setup: &Setup,
    dice: &mut Dice,
    models: &mut BTreeMap<&str, BTreeSet<Model>>,
) {
    let services = Services::start(host, setup).await;
    let (mut client, driver) = services.serve(Arc::new(Nobody)).await;
    let clock = Arc::new(AtomicU64::new(0));
    let callers = (0..CALLERS).map(|_| {
        let dice = Dice::of(dice.next());
        tokio::spawn(call(client.clone(), dice, clock.clone()))
    });
    let mut events = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        events.extend(caller.await.expect("no panic"));
    }
    let (sizes, free) = told(&mut client).await;
    let whole = i64::try_from((DISK >> 20) - 20).expect("a size");
    let taken: u64 = sizes.values().sum();
    assert_eq!(free >> 20, whole - i64::try_from(taken).expect("a size"));
    for (name, possible) in models {
        let mut own: Vec<Event> = events.iter().filter(|e| e.call.name == *name).copied().collect();
        own.sort_by_key(|event| event.asked);
        let mut after = explain(possible, &own);
        assert!(!after.is_empty(), "no order explains, from {possible:?}: {own:#?}");
        let target = format!("/var/lib/kubelet/pods/{name}");
        let shown = host.state().mounts.iter().any(|mount| mount.0.ends_with(&target));
        after.retain(|model| model.mib == sizes.get(*name).copied() && model.published == shown);
        assert!(
            !after.is_empty(),
            "{name} is {:?}, shown: {shown}, after {own:#?}",
            sizes.get(*name)
        );
        *possible = after;
    }
    drop(client);
    driver.stop().await;
}

async fn storm(seed: u64) {
    let (mut host, setup) = machine();
    let mut dice = Dice::of(seed);
    let mut models = VOLUMES.map(|(name, _)| (name, BTreeSet::from([Model::default()]))).into();
    for _ in 0..ROUNDS {
        round(&host, &setup, &mut dice, &mut models).await;
        host = host.after_crash();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_calls_is_answered_truthfully() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    for seed in FIXED_SEEDS.into_iter().chain([now]) {
        println!("seed {seed}");
        storm(seed).await;
    }
    let callers = usize::try_from(CALLERS).expect("few");
    let calls = (FIXED_SEEDS.len() + 1) * ROUNDS * callers * CALLS;
    figures("storm.txt", &[("storm_rpcs", calls)]);
}
