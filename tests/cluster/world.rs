//! A cluster in memory: an API server, nodes with their agents, a controller.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pliant::busy::Busy;
use pliant::bytes::Bytes;
use pliant::cluster::Cluster;
use pliant::controllers::agent::Agent;
use pliant::controllers::storage::StorageRecord;
use pliant::host::Host;
use pliant::node::{GroupSource, Node, NodeSettings, PoolPlan};
use pliant::testing::{FakeApi, FakeHost};
use pliant::volume::{
    Class, FsKind, Growth, Mode, NewVolume, NodeKey, VolumeId, VolumeKey, Wanted,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A cluster in memory.
pub struct World {
    pub api: FakeApi,
}

/// A machine and what runs on it; gone when it is dropped, but for its disks.
pub struct Machine {
    pub name: &'static str,
    pub host: FakeHost,
    pub storage: Arc<StorageRecord>,
    _stop: DropGuard,
}

impl World {
    pub fn new() -> World {
        World { api: FakeApi::new() }
    }

    /// Start a controller that has never run.
    pub async fn controller(&self) -> (Arc<Cluster>, DropGuard) {
        let stop = CancellationToken::new();
        let cluster = Cluster::start(&self.api.client_of("controller"), &stop).await;
        (Arc::new(cluster), stop.drop_guard())
    }

    /// Start a node with one disk of 900 MiB in the pool `fast`.
    pub async fn node(&self, name: &'static str) -> Machine {
        let host = FakeHost::new();
        let disks = [host.add_disk(Bytes::mib(900))];
        host.add_group("vg0", &disks);
        self.restart(name, host).await
    }

    /// Start the agent of a machine.
    pub async fn restart(&self, name: &'static str, host: FakeHost) -> Machine {
        let client = self.api.client_of(name);
        let door: Arc<dyn Host> = Arc::new(host.clone());
        let group = GroupSource::Existing("vg0".to_owned());
        let plan = PoolPlan::new("fast".parse().unwrap(), vec![group]);
        let node = Node::start(door, settings(name), vec![plan]).await.unwrap();
        let storage = StorageRecord::new(&client, node.clone());
        let agent = Agent::new(&client, name, node, Busy::new(), storage.clone());
        let stop = CancellationToken::new();
        tokio::spawn(storage.clone().run(stop.clone()));
        tokio::spawn(agent.run(stop.clone()));
        Machine { name, host, storage, _stop: stop.drop_guard() }
    }
}

fn settings(name: &str) -> NodeSettings {
    NodeSettings {
        name: name.to_owned(),
        key: NodeKey::of(name),
        max_volumes: 0,
        two_step: false,
        wipe_rate: None,
        wipe_patience: Duration::from_secs(20),
        state_dir: PathBuf::from("/run/pliant"),
    }
}

pub fn id(node: &str, name: &str) -> VolumeId {
    VolumeId::new(NodeKey::of(node), VolumeKey::of(name))
}

pub fn want(name: &str, mib: u64, nodes: &[&str]) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size: size(mib),
        mode: Mode::Filesystem(FsKind::Ext4),
        class: Class::default(),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
    }
}

pub fn growth(mib: u64) -> Growth {
    Growth { size: size(mib), block: None }
}

fn size(mib: u64) -> Wanted {
    Wanted { at_least: Bytes::mib(mib), at_most: None }
}
