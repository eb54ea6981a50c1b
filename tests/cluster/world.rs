//! A cluster in memory: an API server, nodes with their node plugins, a controller.

use std::future::Future;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Api, Client};
use pliant::api::{NodeStorage, Phase, StoragePool, StoragePoolSpec, VolumeRequest};
use pliant::bytes::Bytes;
use pliant::cluster::{Cluster, PersistentVolumes, Watched};
use pliant::controllers::node_plugin::NodePlugin;
use pliant::controllers::storage::{HostCheck, Prerequisites, StorageRecord};
use pliant::controllers::{events, nodes, pools, request_gc, sends};
use pliant::host::Host;
use pliant::in_flight::InFlight;
use pliant::node::{Node, NodeSettings, join_peers};
use pliant::testing::{FakeApi, FakeHost, fake_api};
use pliant::transfers::Transfers;
use pliant::volume::{
    Access, Class, DRIVER, FsKind, Growth, Mode, NewVolume, NodeKey, NodeVolumes, Reason,
    RequestedSize, Stage, VolumeError, VolumeId, VolumeKey,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

/// A cluster in memory.
pub struct World {
    pub api: FakeApi,
    pub lacks: Lacks,
    /// Whether node plugins that are started have a way to each other.
    pub transfers: bool,
}

/// What each machine lacks.
#[derive(Clone, Default)]
pub struct Lacks(pub Arc<Mutex<Vec<String>>>);

#[async_trait::async_trait]
impl Prerequisites for Lacks {
    async fn look(&self) -> HostCheck {
        let lacking = self.0.lock().expect("nobody panicked").clone();
        let (lvm, kernel) = (Some("2.03.16".to_owned()), Some("6.1.0".to_owned()));
        HostCheck { lacking, lvm, kernel }
    }
}

/// A machine and the node plugin that runs on it, which dies when this is dropped.
pub struct Machine {
    pub host: FakeHost,
    pub node: Arc<Node>,
    pub storage: Arc<StorageRecord>,
    pub busy: InFlight,
    tasks: JoinSet<()>,
    stop: DropGuard,
    _transfers: EndsTransfers,
}

/// The connections of a node plugin end with it.
struct EndsTransfers(Option<Arc<Transfers>>);

impl Drop for EndsTransfers {
    fn drop(&mut self) {
        if let Some(transfers) = &self.0 {
            transfers.stop();
        }
    }
}

impl Machine {
    /// Stop the node plugin as SIGTERM does, and wait for its end; its driver dies then.
    pub async fn stop(mut self) -> FakeHost {
        self.stop.disarm().cancel();
        self.node.leave();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no task panics");
        }
        self.host.after_crash()
    }
}

/// A controller and its loops, which die when this is dropped.
pub struct Controller {
    cluster: Arc<Cluster>,
    pub kept: Arc<PersistentVolumes>,
    _tasks: JoinSet<()>,
    _stop: DropGuard,
}

impl Deref for Controller {
    type Target = Arc<Cluster>;

    fn deref(&self) -> &Arc<Cluster> {
        &self.cluster
    }
}

impl Controller {
    /// Wait until it knows the pools of so many nodes.
    pub async fn knows_pools_of(&self, nodes: usize) {
        let has_one = |node: &NodeStorage| {
            node.status.as_ref().is_some_and(|told| told.pools.iter().any(|pool| pool.configured))
        };
        let count = || self.nodes().all().iter().filter(|node| has_one(node)).count();
        self.nodes().until(|| (count() == nodes).then_some(())).await;
    }
}

impl World {
    /// A cluster whose nodes all have the pool `fast` of the group `vg0`.
    pub fn new() -> World {
        let world = World::without_pools();
        let groups = vec!["vg0".to_owned()];
        world.api.put(&StoragePool::new(
            "fast",
            StoragePoolSpec { volume_groups: groups, ..StoragePoolSpec::default() },
        ));
        world
    }

    pub fn without_pools() -> World {
        World { api: fake_api(), lacks: Lacks::default(), transfers: false }
    }

    /// Start a controller and two nodes, each with 900 MiB in the pool `fast`.
    pub async fn with_two_nodes() -> (World, Controller, [Machine; 2]) {
        let world = World::new();
        let (machines, controller) = world.two_nodes().await;
        world.pool_is_on(2).await;
        (world, controller, machines)
    }

    /// The same with node plugins that have a way to each other.
    pub async fn with_transfers() -> (World, Controller, [Machine; 2]) {
        let mut world = World::new();
        world.transfers = true;
        let (machines, controller) = world.two_nodes().await;
        (world, controller, machines)
    }

    async fn two_nodes(&self) -> ([Machine; 2], Controller) {
        let machines = [self.node("alpha").await, self.node("beta").await];
        let controller = self.controller().await;
        controller.knows_pools_of(2).await;
        (machines, controller)
    }

    /// Start a controller and one node.
    pub async fn with_a_node() -> (World, Controller, Machine) {
        let world = World::new();
        let machine = world.node("alpha").await;
        let controller = world.controller().await;
        controller.knows_pools_of(1).await;
        world.pool_is_on(1).await;
        (world, controller, machine)
    }

    /// Start a controller that has never run; it needs the API server.
    pub async fn controller(&self) -> Controller {
        let (client, stop) = (self.api.client_of("controller"), CancellationToken::new());
        let cluster = Arc::new(Cluster::start(&client, &stop).await);
        let mut tasks = JoinSet::new();
        let (cleaned, ended) = (cluster.clone(), stop.clone());
        tasks.spawn(
            async move { request_gc::run(cleaned.requests(), cleaned.nodes(), ended).await },
        );
        let (told, ended) = (cluster.clone(), stop.clone());
        let kept = Arc::new(PersistentVolumes::watch(&client, &stop));
        let its = kept.clone();
        tasks.spawn(async move {
            let pools = pools::report(&client, told.nodes(), ended.clone());
            let gone = nodes::forget_gone(&client, told.nodes(), ended.clone());
            tokio::join!(pools, gone, events::emit(&client, &told, &its, ended));
        });
        Controller { cluster, kept, _tasks: tasks, _stop: stop.drop_guard() }
    }

    /// Start a node with one disk of 900 MiB in the group `vg0`.
    pub async fn node(&self, name: &'static str) -> Machine {
        self.node_again(name, machine()).await
    }

    /// Start a node with a machine that there was before.
    pub async fn node_again(&self, name: &'static str, host: FakeHost) -> Machine {
        let mut node = k8s_openapi::api::core::v1::Node::default();
        node.metadata.name = Some(name.to_owned());
        self.api.put(&node);
        self.restart(name, host).await
    }

    /// Start the node plugin of a machine.
    pub async fn restart(&self, name: &'static str, host: FakeHost) -> Machine {
        self.start(NodeSettings::new(name), host).await
    }

    /// Start the node plugin of a machine that is set up like this; `pliant node` but for its socket.
    pub async fn start(&self, settings: NodeSettings, host: FakeHost) -> Machine {
        let (client, stop) = (self.api.client_of(&settings.name), CancellationToken::new());
        let door: Arc<dyn Host> = Arc::new(host.clone());
        let node = Node::start(door, settings, Vec::new()).await.expect("disks are listed");
        let at = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let transfers = self.transfers.then(|| Transfers::start(&node, at).expect("loopback"));
        if let Some(transfers) = &transfers {
            join_peers(&node, transfers.clone());
        }
        let ends = EndsTransfers(transfers);
        let storage = StorageRecord::new(&client, node.clone(), self.lacks.clone());
        let busy = InFlight::new();
        let tasks = node_plugin(&client, &node, &storage, &busy, &stop);
        Machine { host, node, storage, busy, tasks, stop: stop.drop_guard(), _transfers: ends }
    }

    /// Wait until the pool tells that so many nodes have it.
    async fn pool_is_on(&self, nodes: i32) {
        let ready = |api: &FakeApi| {
            api.get::<StoragePool>("fast")?.status.map(|told| told.ready_node_count)
        };
        self.api.until("the pool is told", |api| ready(api) == Some(nodes)).await;
    }

    /// Wait until so many nodes have told what they have.
    pub async fn told(&self, nodes: usize) {
        let tells = |node: &NodeStorage| node.status.is_some();
        self.api
            .until("all nodes tell", |api| api.list().iter().filter(|n| tells(n)).count() == nodes)
            .await;
    }

    /// Write the PersistentVolume of a volume and bind it to a claim, as others do in a cluster.
    pub fn keep(&self, node: &str, name: &str) {
        let claim = format!("claim-of-{name}");
        let pv = json!({
            "metadata": {"name": name},
            "spec": {
                "claimRef": {"namespace": "shop", "uid": format!("uid-of-{claim}"), "name": claim},
                "csi": {"driver": DRIVER, "volumeHandle": id(node, name).to_string()},
            },
        });
        let pv: PersistentVolume = serde_json::from_value(pv).expect("a PersistentVolume");
        self.api.put(&pv);
    }

    /// Wait until nothing is left of the requests.
    pub async fn cleaned(&self) {
        let none = |api: &FakeApi| api.list::<VolumeRequest>().is_empty();
        self.api.until("the requests are removed", none).await;
    }

    /// Wait until there is a request in this phase.
    pub async fn phase(&self, phase: Phase) {
        let is = |one: &VolumeRequest| one.status.clone().unwrap_or_default().phase == phase;
        let what = format!("a request is {phase:?}");
        self.api.until(&what, |api| api.list().iter().any(is)).await;
    }

    /// What a node has told of itself, without the hours of the day.
    pub fn storage(&self, node: &str) -> pliant::api::NodeStorageStatus {
        let record = self.api.get::<NodeStorage>(node);
        let mut status = record.and_then(|one| one.status).expect("it has told");
        let of_pools = status.pools.iter_mut().flat_map(|pool| &mut pool.conditions);
        let of_groups = status.volume_groups.iter_mut().flat_map(|group| &mut group.conditions);
        for condition in status.conditions.iter_mut().chain(of_pools).chain(of_groups) {
            condition.last_transition_time.0 = Timestamp::UNIX_EPOCH;
        }
        status
    }

    /// The only request there is.
    pub fn request(&self) -> VolumeRequest {
        let mut all: Vec<VolumeRequest> = self.api.list();
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }
}

/// In every test each writes only what is its own.
impl Drop for World {
    fn drop(&mut self) {
        let writes = self.api.writes();
        let strange = writes.iter().find(|line| !is_allowed(line));
        if !std::thread::panicking() {
            assert_eq!(strange, None, "in {writes:#?}");
        }
    }
}

fn is_allowed(line: &str) -> bool {
    let (call, who) = line.split_once(" by ").expect("all say who they are");
    let (verb, path) = call.split_once(' ').expect("a verb and a path");
    let path: Vec<&str> = path.split('/').collect();
    let writes = (verb, path.as_slice());
    // Of an object that cannot be decoded.
    if who == "pliant" {
        return matches!(writes, ("POST", ["events", _]));
    }
    if who == "kubectl-pliant" {
        return matches!(
            writes,
            ("POST", ["persistentvolumes"] | ["persistentvolumeclaims", _])
                | ("PATCH", ["persistentvolumeclaims" | "pvcautoscalers", ..])
        );
    }
    if who.ends_with("controller") {
        return matches!(
            writes,
            ("POST" | "DELETE", ["volumerequests"])
                | ("PATCH" | "DELETE", ["volumerequests", _])
                | ("PATCH", ["storagepools", _, "status"] | ["csistoragecapacities", _, _])
                | ("POST", ["events", _])
                | ("DELETE", ["nodestorages", _])
        );
    }
    matches!(
        writes,
        ("PATCH", ["volumerequests" | "nodestorages", _, "status"]) | ("POST", ["nodestorages"])
    )
}

/// What `pliant node` runs beside its socket, but for the sampling of file systems.
fn node_plugin(
    client: &Client,
    node: &Arc<Node>,
    storage: &Arc<StorageRecord>,
    busy: &InFlight,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let name = node.info().name;
    let node_plugin = NodePlugin::new(client, &name, node.clone(), busy.clone(), storage.clone());
    let ours = watcher::Config::default().fields(&format!("spec.nodeName={name}"));
    let requests: Watched<VolumeRequest> = Watched::start(Api::all(client.clone()), ours, stop);
    let wanted: Watched<StoragePool> =
        Watched::start(Api::all(client.clone()), watcher::Config::default(), stop);
    let mut tasks = JoinSet::new();
    tasks.spawn(storage.clone().run(stop.clone()));
    tasks.spawn(node_plugin.run(stop.clone()));
    let (node, storage, stop) = (node.clone(), storage.clone(), stop.clone());
    let (its, told, ended) = (node.clone(), storage.clone(), stop.clone());
    tasks.spawn(async move { sends::follow(&requests, &its, &told, ended).await });
    tasks.spawn(async move { pools::follow(&name, &wanted, &node, &storage, stop).await });
    tasks
}

/// A machine with one disk of 900 MiB in the group `vg0`.
pub fn machine() -> FakeHost {
    let host = FakeHost::new();
    let disks = [host.add_disk(Bytes::mib(900))];
    host.add_group("vg0", &disks);
    host
}

pub fn id(node: &str, name: &str) -> VolumeId {
    VolumeId::new(NodeKey::of(node), VolumeKey::of(name))
}

/// A volume with an ext4 of so many MiB.
pub fn want(name: &str, mib: u64, nodes: &[&str]) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size: size(mib),
        mode: EXT4,
        class: Class::default(),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        source: None,
    }
}

pub fn growth(mib: u64) -> Growth {
    Growth { size: size(mib), block: None }
}

fn size(mib: u64) -> RequestedSize {
    RequestedSize { at_least: Bytes::mib(mib), at_most: None }
}

/// The device of a volume that is active.
pub fn device(machine: &Machine, name: &str) -> PathBuf {
    let lv = pliant::node::lv_tags::lv_name(&VolumeKey::of(name));
    machine.host.device_of("vg0", &lv).expect("an active volume")
}

/// The sentence of a refusal, which is for this reason.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, VolumeError>, reason: Reason) -> String {
    let error = answer.expect_err("it is refused");
    assert_eq!(error.reason(), reason, "{error}");
    error.to_string()
}

/// Ask again, as callers do, until it succeeds.
pub async fn asked_again<T, F: Future<Output = Result<T, VolumeError>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, VolumeError> {
    for _ in 0..4 {
        if let Ok(done) = ask().await {
            return Ok(done);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    ask().await
}

/// The volume `pvc-1` as a workload of alpha is to have it.
pub fn stage() -> Stage {
    Stage {
        id: id("alpha", "pvc-1"),
        staging: PathBuf::from("/var/lib/kubelet/volume"),
        access: Access::Mount { fs: Some(FsKind::Ext4), options: Vec::new() },
        read_only: false,
    }
}

/// A raw volume as a workload of alpha is to have it.
pub fn stage_raw(name: &str) -> Stage {
    Stage { id: id("alpha", name), access: Access::Block, ..stage() }
}
