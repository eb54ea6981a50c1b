//! Figures of a cluster, into `target/figures.d/cluster.txt`. `e2e/cluster/bench` starts the cluster for
//! them: with the kubelet's own pace, and an optimised driver.

mod swaps;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use pliant::api::NodeStorage;
use pliant::volume::{NodeKey, VolumeId, VolumeKey};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::calls::{SETTLED, get, install, kubectl, must, persist, pods_of, scraped, until_swept};
use crate::claim::capacity;
use crate::world::{World, run};

const EDITS: usize = 11;
const EDITS_BEFORE: usize = 5;
const EDITS_IN_TWO_STEPS: usize = 3;
const BURST: u32 = 100;
const NODES: usize = 1000;
const VOLUMES_OF_A_NODE: usize = 100;
/// How long kubelets and sidecars are busy with an installation that has just ended.
const INSTALLED: Duration = Duration::from_secs(60);
/// Until the watches have brought the last of what was written.
const WATCHED: Duration = Duration::from_secs(10);
/// Metrics of the API server: its memory, and what it has sent to those who watch.
const RESIDENT: &str = "process_resident_memory_bytes";
const WATCHED_BYTES: &str = "apiserver_watch_events_sizes_sum";
const MIB: f64 = 1024.0 * 1024.0;
/// Far longer than it takes.
const WHILE_ALL_COMES_BACK: Duration = Duration::from_secs(900);
/// Calls under way at once while objects are made.
const AT_ONCE: usize = 48;

/// What a part has measured, in the order in which it was.
struct Figures {
    part: &'static str,
    told: Vec<(&'static str, f64)>,
}

impl Figures {
    fn tell(&mut self, name: &'static str, value: f64) {
        println!("{name:<44} {value:>10.3}");
        self.told.push((name, value));
    }

    fn write(&self) {
        let lines: Vec<String> =
            self.told.iter().map(|(name, value)| format!("{name} {value:.3}\n")).collect();
        fs::write(format!("target/figures.d/cluster_{}.txt", self.part), lines.concat())
            .expect("target/figures.d is there");
    }
}

/// A part: a world of its own, and its figures.
fn measure<F: Future<Output = Figures>>(
    part: &'static str,
    measured: impl FnOnce(World, Figures) -> F,
) {
    run(&format!("bench_{part}"), |world| async move {
        measured(world, Figures { part, told: Vec::new() }).await.write();
    });
}

#[test]
#[ignore = "e2e/cluster/bench starts what it needs"]
fn edits() {
    measure("edits", |world, mut figures| async move {
        a_claim_and_its_edits(&world, &mut figures).await;
        figures
    });
}

#[test]
#[ignore = "e2e/cluster/bench starts what it needs"]
fn two_steps() {
    measure("two_steps", |world, mut figures| async move {
        edits_in_two_steps(&world, &mut figures).await;
        figures
    });
}

#[test]
#[ignore = "e2e/cluster/bench starts what it needs"]
fn burst() {
    measure("burst", |world, mut figures| async move {
        let (pace, writes) = many_claims_at_once(&world, "burst").await;
        figures.tell("burst_claims_per_second", pace);
        figures.tell("api_writes_per_volume", writes);
        figures.tell("api_writes_idle_per_minute", idle_minute(&world.client).await);
        // By itself it sends 20 requests a second, and it sends about five for each claim that it binds.
        restart_controller_manager(&["--kube-api-qps=1000", "--kube-api-burst=1000"]).await;
        let (pace, _) = many_claims_at_once(&world, "rush").await;
        figures.tell("burst_claims_per_second_unthrottled", pace);
        figures
    });
}

#[test]
#[ignore = "e2e/cluster/bench starts what it needs"]
fn thousand_nodes() {
    measure("thousand_nodes", |world, mut figures| async move {
        a_thousand_nodes(&world, &mut figures).await;
        figures
    });
}

#[test]
#[ignore = "e2e/cluster/bench starts what it needs"]
fn pauses() {
    measure("pauses", |world, mut figures| async move {
        swaps::pauses(&world, &mut figures).await;
        figures
    });
}

#[test]
#[ignore = "e2e/cluster/bench starts what it needs"]
fn many_claims() {
    measure("many_claims", |world, mut figures| async move {
        swaps::many_claims(&world, &mut figures).await;
        figures
    });
}

#[test]
#[ignore = "e2e/cluster/bench starts what it needs"]
fn many_autoscalers() {
    measure("many_autoscalers", |world, mut figures| async move {
        swaps::many_autoscalers(&world, &mut figures).await;
        figures
    });
}

/// From a claim to a pod that runs, and from an edit to the claim's new size.
async fn a_claim_and_its_edits(world: &World, figures: &mut Figures) {
    sleep(INSTALLED).await;
    let before = writes(&world.client).await;
    let begun = Instant::now();
    world.claim("data", "pliant", "64Mi", "Filesystem").await;
    world.pod("app", "data", "sleep 9999", json!({})).await;
    figures.tell("claim_to_running_seconds", begun.elapsed().as_secs_f64());

    // The first ones meet caches and pages of programs that are not there yet.
    edited(world, 80, EDITS_BEFORE).await;
    let (times, shares) = edited(world, 80 + 16 * EDITS_BEFORE, EDITS).await;
    figures.tell("edit_to_status_seconds", median(times));
    figures.tell("edit_driver_milliseconds", 1000.0 * median(shares));
    world.remove_pod("app").await;
    world.remove_claim("data").await;
    until_swept(&world.client, |_| true).await;
    let all = writes(&world.client).await - before;
    let edits = EDITS_BEFORE + EDITS;
    println!("{all} writes for a volume that was made, grown {edits} times and removed");
}

/// The same when the kubelet grows the file system, at its own pace.
async fn edits_in_two_steps(world: &World, figures: &mut Figures) {
    install(&["--set", "node.filesystemExpansion=node"]).await;
    world.claim("data", "pliant", "64Mi", "Filesystem").await;
    world.pod("app", "data", "sleep 9999", json!({})).await;
    let (times, _) = edited(world, 80, EDITS_IN_TWO_STEPS).await;
    figures.tell("edit_to_status_two_step_seconds", median(times));
    world.remove_pod("app").await;
    world.remove_claim("data").await;
    install(&[]).await;
}

/// Edit the claim again and again, by 16 MiB each; the seconds from each edit to its new size, and what of
/// them was the driver's.
async fn edited(world: &World, first: usize, count: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut times, mut shares) = (Vec::new(), Vec::new());
    let mut earlier = calls(&world.client, "ControllerExpandVolume").await;
    for number in 0..count {
        let size = format!("{}Mi", first + 16 * number);
        let begun = Instant::now();
        world.resize("data", &size).await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == size
            })
            .await;
        times.push(begun.elapsed().as_secs_f64());
        sleep(SETTLED).await;
        let later = calls(&world.client, "ControllerExpandVolume").await;
        shares.push((later.seconds - earlier.seconds) / (later.number - earlier.number));
        earlier = later;
    }
    (times, shares)
}

async fn restart_controller_manager(words: &[&str]) {
    must("e2e/cluster/control", &["kube-controller-manager", "kill"]).await;
    let start = ["kube-controller-manager", "start"];
    must("e2e/cluster/control", &[&start, words].concat()).await;
}

/// A hundred claims that wait for no pod: how many are bound in a second, and how often objects of ours
/// were written for each until it was gone.
async fn many_claims_at_once(world: &World, prefix: &str) -> (f64, f64) {
    let class = world.class_that_binds_at_once(json!({"pool": "fast"})).await;
    // The first is bound when everybody knows the class.
    let first = format!("{prefix}-first");
    world.claim(&first, &class, "16Mi", "Filesystem").await;
    bound(world, &first).await;
    world.remove_claim(&first).await;
    until_swept(&world.client, |_| true).await;

    let before = written(&world.client).await;
    let begun = Instant::now();
    let names: Vec<String> = (0..BURST).map(|number| format!("{prefix}-{number}")).collect();
    stream::iter(&names)
        .for_each_concurrent(AT_ONCE, |name| world.claim(name, &class, "16Mi", "Filesystem"))
        .await;
    for name in &names {
        bound(world, name).await;
    }
    let pace = f64::from(BURST) / begun.elapsed().as_secs_f64();
    stream::iter(&names).for_each_concurrent(AT_ONCE, |name| world.remove_claim(name)).await;
    until_swept(&world.client, |_| true).await;
    let after = written(&world.client).await;
    let each = ours(&after).map(|(what, count)| {
        let before = before.get(what).copied().unwrap_or_default();
        (what, (count - before) / f64::from(BURST))
    });
    let each: Vec<(&Writing, f64)> = each.filter(|(_, each)| *each > 0.0).collect();
    println!("writes a volume: {each:?}");
    (pace, each.into_iter().map(|(_, each)| each).sum())
}

async fn bound(world: &World, claim: &str) {
    world
        .until::<PersistentVolumeClaim>(claim, "is bound", |claim| capacity(claim) == "16Mi")
        .await;
}

/// What is written in a minute in which nobody asks for anything.
async fn idle_minute(client: &Client) -> f64 {
    let before = writes(client).await;
    sleep(Duration::from_secs(60)).await;
    writes(client).await - before
}

/// The records and PersistentVolumes of a thousand nodes with a hundred volumes each: what the controller
/// holds of them, and how soon a new one serves.
async fn a_thousand_nodes(world: &World, figures: &mut Figures) {
    // It would look at each volume and say that it is available.
    must("e2e/cluster/control", &["kube-controller-manager", "kill"]).await;
    figures.tell("controller_rss_mib", resident(&world.client, "controller").await);
    let begun = Instant::now();
    let nodes: Api<NodeStorage> = Api::all(world.client.clone());
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    stream::iter(0..NODES)
        .for_each_concurrent(AT_ONCE, |number| simulate(&nodes, &volumes, number))
        .await;
    println!("{NODES} nodes after {:.0} s", begun.elapsed().as_secs_f64());
    sleep(WATCHED).await;
    let (controller, server) = (
        resident(&world.client, "controller").await,
        of_api_server(&world.client, RESIDENT, &[]).await,
    );
    figures.tell("controller_rss_mib_100000_volumes", controller);
    figures.tell("api_server_rss_mib_100000_volumes", server / MIB);

    let before = of_api_server(&world.client, WATCHED_BYTES, &["nodestorages"]).await;
    stream::iter(0..NODES)
        .for_each_concurrent(AT_ONCE, |number| fuller(&nodes, number, VOLUMES_OF_A_NODE + 1))
        .await;
    sleep(WATCHED).await;
    let watched = of_api_server(&world.client, WATCHED_BYTES, &["nodestorages"]).await - before;
    figures.tell("watched_mib_of_1000_nodes", watched / MIB);

    // Who is too busy to answer is killed by the kubelet.
    let before = starts(&world.client).await;
    assert!(before.values().all(|starts| *starts == 0), "started anew: {before:?}");
    // All at once: the controllers, and the API server whose answers they live by.
    let begun = Instant::now();
    for pod in pods_of(&world.client, "controller").await {
        let end =
            ["exec", "-n", "pliant-system", &pod, "-c", "controller", "--", "bash", "-c", "kill 1"];
        let _ = kubectl(&end).await;
    }
    for verb in ["kill", "start"] {
        must("e2e/cluster/control", &["kube-apiserver", verb]).await;
    }
    // A new process answers no call before it knows all records.
    let is_new = |now: &BTreeMap<String, i32>| {
        let mut controllers = now.iter().filter(|(one, _)| one.ends_with(" controller"));
        controllers.all(|(one, starts)| before.get(one) < Some(starts))
    };
    while !is_new(&starts(&world.client).await) || calls(&world.client, "").await.number == 0.0 {
        assert!(begun.elapsed() < WHILE_ALL_COMES_BACK, "no controller has answered a call");
        sleep(Duration::from_millis(200)).await;
    }
    figures.tell("whole_again_seconds_100000_volumes", begun.elapsed().as_secs_f64());
}

/// How often our program was started anew, by the pod and the container.
async fn starts(client: &Client) -> BTreeMap<String, i32> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "pliant-system");
    let every = ListParams::default();
    let all = persist(|| pods.list(&every)).await.unwrap();
    let starts = all.iter().flat_map(|pod| {
        let containers = pod.status.iter().flat_map(|one| one.container_statuses.iter().flatten());
        let ours =
            containers.filter(|one| ["controller", "operator", "node"].contains(&&*one.name));
        ours.map(|one| (format!("{} {}", pod.name_any(), one.name), one.restart_count))
    });
    starts.collect()
}

/// What the API server tells of itself, summed up.
async fn of_api_server(client: &Client, name: &str, words: &[&str]) -> f64 {
    let told = persist(|| get(client, "/metrics")).await.expect("the API server answers");
    sum_of(&told, name, words)
}

/// What the larger one of our processes of a name has in memory, in MiB.
async fn resident(client: &Client, component: &str) -> f64 {
    let mut largest = 0.0_f64;
    for pod in pods_of(client, component).await {
        let script =
            "while read -r name kib _; do [ $name != VmRSS: ] || echo $kib; done </proc/1/status";
        let of = ["exec", "-n", "pliant-system", &pod, "-c", component, "--", "bash", "-c", script];
        let told = kubectl(&of).await.expect("an end");
        let kib: f64 = String::from_utf8_lossy(&told.stdout).trim().parse().expect("KiB");
        largest = largest.max(kib / 1024.0);
    }
    largest
}

/// Have the record of a node tell of so many volumes, as its node plugin does when it has made one.
async fn fuller(nodes: &Api<NodeStorage>, number: usize, volumes: usize) {
    let (node, merge) = (format!("simulated-{number}"), PatchParams::default());
    let status = Patch::Merge(json!({"status": {"volumeCount": volumes}}));
    persist(|| nodes.patch_status(&node, &merge, &status)).await.unwrap();
}

/// The record of a node and its volumes, as its node plugin and the provisioner would write them.
async fn simulate(nodes: &Api<NodeStorage>, volumes: &Api<PersistentVolume>, number: usize) {
    let node = format!("simulated-{number}");
    let (params, key) = (PostParams::default(), NodeKey::of(&node));
    let empty: NodeStorage = serde_json::from_value(
        json!({"metadata": {"name": node}, "spec": {"nodeHash": key.as_str()}}),
    )
    .unwrap();
    persist(|| nodes.create(&params, &empty)).await.unwrap();
    let named = |volume: usize| format!("pvc-{number:08}-aaaa-bbbb-cccc-{volume:012}");
    let id = |name: &str| VolumeId::new(key.clone(), VolumeKey::of(name)).to_string();
    let listed: Vec<Value> = (0..VOLUMES_OF_A_NODE)
        .map(|volume| {
            let name = named(volume);
            json!({
                "volumeHandle": id(&name), "name": name, "pool": "fast", "size": "1Gi", "requestedSize": "1Gi",
                "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready",
            })
        })
        .collect();
    let status =
        Patch::Merge(json!({"status": {"volumeCount": VOLUMES_OF_A_NODE, "volumes": listed}}));
    let merge = PatchParams::default();
    persist(|| nodes.patch_status(&node, &merge, &status)).await.unwrap();
    for volume in 0..VOLUMES_OF_A_NODE {
        let name = named(volume);
        let persistent: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "pliant",
                "csi": {"driver": "lvm.csi.pliant.io", "volumeHandle": id(&name), "fsType": "ext4"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{
                    "key": "topology.lvm.csi.pliant.io/node", "operator": "In", "values": [node],
                }]}]}},
            },
        }))
        .unwrap();
        persist(|| volumes.create(&params, &persistent)).await.unwrap();
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Calls that the controllers have answered, and how long they took in all.
struct Calls {
    number: f64,
    seconds: f64,
}

async fn calls(client: &Client, method: &str) -> Calls {
    let told = scraped(client, "controller").await;
    let sum = |what| sum_of(&told, &format!("pliant_rpc_duration_seconds_{what}"), &[method]);
    Calls { number: sum("count"), seconds: sum("sum") }
}

/// The sum over the series of a metric that have all of these words.
fn sum_of(metrics: &str, name: &str, words: &[&str]) -> f64 {
    let ours = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && words.iter().all(|word| line.contains(word))
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    metrics.lines().filter(ours).filter_map(value).sum()
}

/// A kind of request that writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Writing {
    verb: String,
    resource: String,
    part: String,
}

/// How often each was asked for.
type Writes = BTreeMap<Writing, f64>;

/// What was written since the API server's start.
async fn written(client: &Client) -> Writes {
    let told = get(client, "/metrics").await.expect("the API server answers");
    let mut written = Writes::new();
    for (writing, count) in told.lines().filter_map(read_writing) {
        *written.entry(writing).or_default() += count;
    }
    written
}

/// Read a line of the API server's metrics, if it counts requests that write.
fn read_writing(line: &str) -> Option<(Writing, f64)> {
    let labels = line.strip_prefix("apiserver_request_total{")?;
    let label = |name: &str| {
        let (_, rest) = labels.split_once(&format!(",{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let (verb, resource, part) = (label("verb")?, label("resource")?, label("subresource")?);
    let writes = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
    let count = line.rsplit(' ').next()?.parse().ok()?;
    writes.contains(&verb.as_str()).then_some((Writing { verb, resource, part }, count))
}

/// How often objects of the driver were.
async fn writes(client: &Client) -> f64 {
    ours(&written(client).await).map(|(_, count)| count).sum()
}

fn ours(written: &Writes) -> impl Iterator<Item = (&Writing, &f64)> {
    let kinds = ["volumerequests", "nodestorages", "storagepools"];
    written.iter().filter(move |(what, _)| kinds.contains(&what.resource.as_str()))
}
