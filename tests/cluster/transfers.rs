//! Snapshots that are restored, and volumes that are cloned, on another node than that of their source: two node plugins,
//! and a connection between them over loopback.

use std::path::PathBuf;
use std::time::Duration;

use pliant::api::{Operation, VolumeRequest};
use pliant::bytes::Bytes;
use pliant::cluster::Cluster;
use pliant::node::lv_tags::{lv_name, snapshot_name};
use pliant::testing::{FakeApi, Side};
use pliant::volume::{
    Access, Class, Layout, Mode, NewSnapshot, NewVolume, NodeVolumes, Reason, Snapshot, Snapshots,
    Source, Stage, VolumeError, VolumeId, VolumeKey, Volumes,
};
use serde_json::json;

use crate::world::{Controller, Machine, World, device, id, refused, want};

/// Where something is written, and what.
const MARKS: [(u64, u8); 3] = [(0, 1), (5 << 20, 2), ((8 << 20) - 4096, 3)];

/// How often a caller asks again before it gives up.
const OFTEN: usize = 40;

fn block(name: &str, mib: u64, node: &str) -> NewVolume {
    NewVolume { mode: Mode::Block, ..want(name, mib, &[node]) }
}

fn stage(id: VolumeId) -> Stage {
    let staging = PathBuf::from(format!("/var/lib/kubelet/{id}"));
    Stage { id, staging, access: Access::Block, read_only: false }
}

/// Writes to a volume of a machine, as a workload does.
fn write(machine: &Machine, name: &str, add: u8) {
    let device = device(machine, name);
    for (at, byte) in MARKS {
        machine.host.write_at(&device, at, &[byte + add; 4096]);
    }
}

/// Whether a volume of a machine has what was written.
async fn holds(machine: &Machine, node: &str, name: &str, add: u8) -> bool {
    use pliant::host::Host as _;
    machine.node.stage(&stage(id(node, name))).await.expect("it is staged");
    let device = device(machine, name);
    let mut all = true;
    for (at, byte) in MARKS {
        let read = machine.host.read_at(&device, at, 4096).await.expect("it is read");
        all &= read == [byte + add; 4096];
    }
    let between = machine.host.read_at(&device, 4096, 1 << 20).await.expect("it is read");
    let staging = PathBuf::from(format!("/var/lib/kubelet/{}", id(node, name)));
    machine.node.unstage(&id(node, name), &staging).await.expect("it is unstaged");
    all && between.iter().all(|byte| *byte == 0)
}

/// Asks again, as callers do, until it succeeds or the answer is final.
async fn made(cluster: &Cluster, want: &NewVolume) -> Result<pliant::volume::Volume, VolumeError> {
    let mut last = cluster.ensure(want).await;
    for _ in 0..OFTEN {
        match &last {
            Err(error) if matches!(error.reason(), Reason::InProgress | Reason::Unavailable) => {}
            _ => break,
        }
        tokio::time::sleep(Duration::from_millis(100)).await; // As its caller pauses.
        last = cluster.ensure(want).await;
    }
    last
}

async fn snapshot(cluster: &Cluster, name: &str) -> Snapshot {
    let want = NewSnapshot { name: name.to_owned(), source: id("alpha", "source") };
    cluster.ensure_snapshot(&want).await.expect("it is taken");
    let ready = || {
        cluster.nodes().all().iter().any(|node| {
            let told = node.status.iter().flat_map(|status| &status.snapshots);
            told.filter(|one| one.snapshot_handle == want.id().to_string())
                .any(|one| one.ready_to_use)
        })
    };
    cluster.nodes().until(|| ready().then_some(())).await;
    cluster.find_snapshot(&want.id()).await.expect("it is found").expect("it is told")
}

/// A volume of alpha that a workload has written to and still uses.
async fn written(cluster: &Controller, alpha: &Machine) {
    cluster.ensure(&block("source", 8, "alpha")).await.expect("it is made");
    alpha.node.stage(&stage(id("alpha", "source"))).await.expect("it is staged");
    write(alpha, "source", 0);
}

/// Nothing is left of a transfer on its source's node.
async fn tidy(world: &World, alpha: &Machine) {
    let sends = |api: &FakeApi| {
        api.list::<VolumeRequest>()
            .iter()
            .any(|one| matches!(one.spec.operation, Operation::Send(_)))
    };
    world.api.until("the permits are gone", |api| !sends(api)).await;
    let group = || alpha.host.group("vg0").expect("a group");
    eventually(|| group().lvs.keys().all(|lv| !lv.contains(".send")), "the cut is gone").await;
}

/// Waits for what the other side of a connection does, in real time.
async fn eventually(mut is_so: impl FnMut() -> bool, what: &str) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not so after 10 s: {what}");
}

#[tokio::test]
async fn a_snapshot_is_restored_and_a_volume_cloned_on_another_node() {
    let (world, cluster, [alpha, beta]) = World::with_transfers().await;
    written(&cluster, &alpha).await;
    let taken = snapshot(&cluster, "early").await;
    write(&alpha, "source", 10);

    let source = Some(Source::Snapshot(taken.id.clone()));
    let restored = NewVolume { source, ..block("restored", 12, "beta") };
    let there = made(&cluster, &restored).await.expect("it is restored");
    assert_eq!((there.node.as_str(), there.size), ("beta", Bytes::mib(12)));
    assert_eq!(cluster.ensure(&restored).await.expect("it is there"), there);
    assert!(holds(&beta, "beta", "restored", 0).await, "what was written before the snapshot");
    tidy(&world, &alpha).await;
    let active = || alpha.host.device_of("vg0", &snapshot_name(taken.id.key()));
    eventually(|| active().is_none(), "the snapshot is inactive").await;

    // A clone of what is in use, which is as large as its source at least.
    let source = Some(Source::Volume(id("alpha", "source")));
    let cloned = NewVolume { source, ..block("cloned", 4, "beta") };
    let there = made(&cluster, &cloned).await.expect("it is cloned");
    assert_eq!((there.node.as_str(), there.size), ("beta", Bytes::mib(8)));
    assert!(holds(&beta, "beta", "cloned", 10).await, "what was written before the clone");
    tidy(&world, &alpha).await;

    // None of them needs another one.
    for (node, name) in [("beta", "cloned"), ("beta", "restored")] {
        cluster.remove(&id(node, name)).await.expect("it is deleted");
    }
    cluster.remove_snapshot(&taken.id).await.expect("it is deleted");
    assert!(beta.host.group("vg0").expect("a group").lvs.is_empty());
}

#[tokio::test]
async fn a_file_system_and_an_empty_volume_are_cloned_elsewhere() {
    let (world, cluster, [alpha, beta]) = World::with_transfers().await;
    cluster.ensure(&want("source", 100, &["alpha"])).await.expect("it is made");
    // Nothing was ever written to it.
    let source = Some(Source::Volume(id("alpha", "source")));
    let empty = NewVolume { source: source.clone(), ..want("empty", 100, &["beta"]) };
    made(&cluster, &empty).await.expect("it is cloned");
    let mount = Access::Mount { fs: Some(pliant::volume::FsKind::Ext4), options: Vec::new() };
    let staged = Stage { access: mount, ..stage(id("alpha", "source")) };
    alpha.node.stage(&staged).await.expect("it is staged");
    let cloned = NewVolume { source: source.clone(), ..want("cloned", 200, &["beta"]) };
    made(&cluster, &cloned).await.expect("it is cloned");
    let there = Stage { id: id("beta", "cloned"), ..staged.clone() };
    beta.node.stage(&there).await.expect("its file system is found, and gets a uuid of its own");
    // Another volume mode can never have it.
    let other = NewVolume { source, ..block("other", 100, "beta") };
    refused(made(&cluster, &other).await, Reason::InvalidArgument);
    tidy(&world, &alpha).await;
    assert_eq!(beta.host.device_of("vg0", &lv_name(&VolumeKey::of("other"))), None);
}

#[tokio::test]
async fn a_full_node_makes_nothing_and_leaves_nothing() {
    let (world, cluster, [alpha, beta]) = World::with_transfers().await;
    written(&cluster, &alpha).await;
    let source = Some(Source::Volume(id("alpha", "source")));
    let large = NewVolume { source: source.clone(), ..block("large", 2000, "beta") };
    refused(made(&cluster, &large).await, Reason::InsufficientCapacity);
    tidy(&world, &alpha).await;
    assert!(beta.host.group("vg0").expect("a group").lvs.is_empty());
    // Another layout is no obstacle: it is refused because the pool makes none.
    let class = Class { layout: Layout::Thin, ..Class::default() };
    let thin = NewVolume { source, class, ..block("thin", 100, "beta") };
    refused(made(&cluster, &thin).await, Reason::InsufficientCapacity);
    tidy(&world, &alpha).await;
}

/// As long as nothing is made, the claim is not held to the node: it may be made on another one.
#[tokio::test]
async fn a_source_that_does_not_answer_holds_no_claim_to_a_node() {
    let (world, cluster, [alpha, beta]) = World::with_transfers().await;
    written(&cluster, &alpha).await;
    let missing = NewSnapshot { name: "missing".to_owned(), source: id("alpha", "source") }.id();
    let restored =
        NewVolume { source: Some(Source::Snapshot(missing)), ..block("restored", 8, "beta") };
    refused(made(&cluster, &restored).await, Reason::NotFound);
    let nowhere = Some(Source::Volume(id("gamma", "source")));
    let lost = NewVolume { source: nowhere, ..block("lost", 100, "beta") };
    refused(made(&cluster, &lost).await, Reason::Failed);
    assert!(beta.host.group("vg0").expect("a group").lvs.is_empty());
    tidy(&world, &alpha).await;
}

/// Without a way between the nodes a volume is restored on the node of its source only, as before.
#[tokio::test(start_paused = true)]
async fn without_transfers_the_scheduler_goes_elsewhere() {
    let (_world, cluster, [alpha, _beta]) = World::with_two_nodes().await;
    written(&cluster, &alpha).await;
    let source = Some(Source::Volume(id("alpha", "source")));
    let elsewhere = NewVolume { source: source.clone(), ..block("cloned", 8, "beta") };
    let said = refused(cluster.ensure(&elsewhere).await, Reason::TopologyMismatch);
    assert!(said.contains("is on node alpha") && said.contains("beta only"), "{said}");
    let anywhere = NewVolume { source, nodes: Vec::new(), ..elsewhere };
    assert_eq!(cluster.ensure(&anywhere).await.expect("beside its source").node, "alpha");
}

/// How a run is cut off: which machine dies, at which of its effects.
async fn killed(target: bool, n: usize, side: Side) -> Option<String> {
    let (world, cluster, [alpha, beta]) = World::with_transfers().await;
    written(&cluster, &alpha).await;
    let source = Some(Source::Volume(id("alpha", "source")));
    let cloned = NewVolume { source, ..block("cloned", 8, "beta") };
    let victim = if target { &beta } else { &alpha };
    victim.host.forget_effects();
    victim.host.cut_at(n, side);
    if victim.host.run_until_cut(made(&cluster, &cloned)).await.is_some() {
        return None;
    }
    let [alpha, beta] = if target {
        let host = beta.host.after_crash();
        drop(beta);
        [alpha, world.restart("beta", host).await]
    } else {
        let host = alpha.host.after_crash();
        drop(alpha);
        [world.restart("alpha", host).await, beta]
    };
    let named = format!("target {target}, effect {n} {side:?}");
    let there = made(&cluster, &cloned).await;
    let there = there.unwrap_or_else(|error| panic!("{named}: {error}"));
    assert_eq!(there.node, "beta", "{named}");
    assert!(holds(&beta, "beta", "cloned", 0).await, "{named}");
    tidy(&world, &alpha).await;
    cluster.remove(&id("beta", "cloned")).await.expect("it is deleted");
    assert!(beta.host.group("vg0").expect("a group").lvs.is_empty(), "{named}");
    Some(named)
}

/// Each effect of a clone is the last one of either node's plugin, before or after it. Asked again, the volume is whole, and
/// nothing is left.
#[tokio::test]
async fn the_death_of_either_node_plugin_is_survived_at_each_step() {
    let mut points = 0;
    for target in [true, false] {
        // Most effects write one part of the content each: of those, some.
        for n in (1..14).chain((14..).step_by(6)) {
            let mut is_cut = false;
            for side in Side::BOTH {
                is_cut |= killed(target, n, side).await.is_some();
            }
            if !is_cut {
                break;
            }
            points += 2;
        }
    }
    assert!(points >= 20, "only {points} crash points");
}

/// The claim is deleted while its volume waits for a source that is gone.
#[tokio::test]
async fn a_source_that_is_deleted_meanwhile_leaves_no_half_volume() {
    let (world, cluster, [alpha, beta]) = World::with_transfers().await;
    written(&cluster, &alpha).await;
    let taken = snapshot(&cluster, "early").await;
    let source = Some(Source::Snapshot(taken.id.clone()));
    let restored = NewVolume { source, ..block("restored", 8, "beta") };
    // The target dies while it writes.
    beta.host.forget_effects();
    beta.host.cut_at(6, Side::After);
    assert!(beta.host.run_until_cut(made(&cluster, &restored)).await.is_none(), "it is cut");
    let host = beta.host.after_crash();
    drop(beta);
    let half = host.group("vg0").expect("a group").lvs.len();
    assert_eq!(half, 1, "the volume that has no content yet");
    for _ in 0..OFTEN {
        if cluster.remove_snapshot(&taken.id).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(cluster.find_snapshot(&taken.id).await.expect("it is looked for"), None);
    let beta = world.restart("beta", host).await;
    refused(made(&cluster, &restored).await, Reason::NotFound);
    assert!(beta.host.group("vg0").expect("a group").lvs.is_empty(), "no half volume");
    tidy(&world, &alpha).await;
}

/// A request that permits to read, or one that creates what reads it, on nodes that do not exist.
fn request(name: &str, node: &str, operation: &serde_json::Value, phase: &str) -> VolumeRequest {
    let handle = id(node, "source").to_string();
    let spec = json!({"nodeName": node, "volumeHandle": handle, "operation": operation});
    serde_json::from_value(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "VolumeRequest",
        "metadata": {"name": name, "generation": 1}, "spec": spec,
        "status": {"observedGeneration": 1, "phase": phase},
    }))
    .expect("a request")
}

/// A controller that has died has ended no permit: one that nothing uses ends later, and one that is used does not.
#[tokio::test(start_paused = true)]
async fn a_permit_that_nothing_uses_is_removed_and_one_that_is_used_stays() {
    let (world, _cluster, _alpha) = World::with_a_node().await;
    let key = VolumeKey::of("cloned");
    let name = format!("send-{}", key.as_str());
    let send = json!({"send": {
        "targetHandle": id("delta", "cloned").to_string(), "volumeMode": "Block",
        "certificateFingerprint": format!("sha256:{}", "0".repeat(64)),
    }});
    let permits = request(&name, "gamma", &send, "Succeeded");
    let is_gone = |api: &FakeApi| api.get::<VolumeRequest>(&name).is_none();
    let lasts = async |world: &World| {
        let begun = tokio::time::Instant::now();
        world.api.put(&permits);
        // Longer than other waits.
        loop {
            let changed = world.api.changed();
            if is_gone(&world.api) {
                return begun.elapsed().as_secs() / 60;
            }
            changed.await;
        }
    };
    assert_eq!(lasts(&world).await, 10);
    let create = json!({"create": {"name": "cloned", "minSize": "8Mi", "volumeMode": "Block"}});
    let mut creates = request(&format!("create-{}", key.as_str()), "delta", &create, "Running");
    creates.spec.volume_handle = id("delta", "cloned").to_string();
    world.api.put(&creates);
    // It is given up first, as its node does not exist.
    assert_eq!(lasts(&world).await, 20);
}
