//! Tells what this node has, when that changes.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::api::{
    DiskState, DiskStatus, GroupStatus, Health, LayoutRoom, NodeStorage, NodeStorageSpec,
    NodeStorageStatus, PoolOnNode, Quantity, WorkStatus,
};
use crate::causes;
use crate::cluster;
use crate::controllers::agent::WRITER;
use crate::node::{Node, storage as machine};
use crate::volume::{NodeKey, Page, Volumes};

/// How often a change that nobody announced, as by an administrator's hand, is looked for, here and in
/// the record. Reading costs no command, and what has not changed is not written.
const LOOK: Duration = Duration::from_secs(60);

/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// The record of what this node has.
#[derive(Debug)]
pub struct StorageRecord {
    api: Api<NodeStorage>,
    name: String,
    node: Arc<Node>,
    written: Mutex<Option<Written>>,
    changed: Notify,
    is_told: watch::Sender<bool>,
}

/// What was written last, and the version that the API server made of it.
#[derive(Debug)]
struct Written {
    status: NodeStorageStatus,
    version: Option<String>,
}

impl StorageRecord {
    /// The record of this node, under its name.
    pub fn new(client: &Client, node: Arc<Node>) -> Arc<Self> {
        let (name, api) = (node.info().name, Api::all(client.clone()));
        let (written, changed, is_told) =
            (Mutex::default(), Notify::new(), watch::Sender::default());
        Arc::new(StorageRecord { api, name, node, written, changed, is_told })
    }

    /// Tell of every change, until `stop`; the first is that the pools are set. Before that all would
    /// seem to be gone, and pods would be sent away.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let told = async {
            self.changed.notified().await;
            loop {
                let mut pause = LOOK;
                if let Err(error) = self.publish().await {
                    let error = causes::in_full(&error);
                    tracing::warn!(
                        error,
                        "what the node has can not be told; it will be tried again"
                    );
                    pause = AGAIN;
                }
                if tokio::time::timeout(pause, self.changed.notified()).await.is_err() {
                    self.forget_if_changed().await;
                }
            }
        };
        stop.run_until_cancelled(told).await;
    }

    /// Wait until it was told for the first time.
    pub async fn told(&self) {
        let _ = self.is_told.subscribe().wait_for(|is_told| *is_told).await;
    }

    /// Note that something may have changed.
    pub fn note(&self) {
        self.changed.notify_one();
    }

    /// Write what the node has now, if it is not what was written last.
    ///
    /// Of many who ask at once the first writes for all whose change it saw.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn publish(&self) -> Result<(), kube::Error> {
        let mut written = self.written.lock().await;
        let seen = observe(&self.node).await;
        if written.as_ref().is_some_and(|last| last.status == seen) {
            return Ok(());
        }
        *written = None; // Until the write has succeeded nobody knows what is there.
        let version = match self.write(&seen).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.make().await?;
                self.write(&seen).await?
            }
            done => done?,
        };
        *written = Some(Written { status: seen, version });
        self.is_told.send_replace(true);
        Ok(())
    }

    /// Look whether the record is as it was written: without it the node seems to be gone, and nothing
    /// would be asked of it that changes anything.
    async fn forget_if_changed(&self) {
        let mut written = self.written.lock().await;
        let Ok(there) = self.api.get_metadata_opt(&self.name).await else { return };
        let version = there.and_then(|record| record.metadata.resource_version);
        written.take_if(|last| last.version != version);
    }

    async fn make(&self) -> Result<(), kube::Error> {
        let key = NodeKey::of(&self.name).as_str().to_owned();
        let record = NodeStorage::new(&self.name, NodeStorageSpec { key });
        let params = PostParams { field_manager: Some(WRITER.to_owned()), ..PostParams::default() };
        match self.api.create(&params, &record).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    }

    /// The version of what was written.
    async fn write(&self, status: &NodeStorageStatus) -> Result<Option<String>, kube::Error> {
        let patch = json!({
            "apiVersion": "pliant.io/v1alpha1",
            "kind": "NodeStorage",
            "status": status,
        });
        let params = PatchParams::apply(WRITER).force();
        let written = self.api.patch_status(&self.name, &params, &Patch::Apply(patch)).await?;
        Ok(written.metadata.resource_version)
    }
}

/// Read what the node has.
async fn observe(node: &Node) -> NodeStorageStatus {
    // It reads each group anew where that has changed, and what follows tells the last readings.
    let (volumes, unread) = match node.list(&Page::default()).await {
        Ok(listing) => (listing.volumes, None),
        Err(error) => {
            let known = node.remembered_volumes().await.unwrap_or_default();
            (known, Some(causes::in_full(&error)))
        }
    };
    let storage = node.storage();
    NodeStorageStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        size: Quantity(storage.size),
        free: Quantity(storage.free),
        volume_count: count(volumes.len()),
        health: health(storage.health),
        pools: storage.pools.into_iter().map(pool).collect(),
        groups: storage.groups.into_iter().map(group).collect(),
        disks: storage.disks.into_iter().map(disk).collect(),
        volumes: volumes.iter().map(cluster::volume_on_node).collect(),
        unread,
        work: storage.work.into_iter().map(work).collect(),
        conditions: Vec::new(),
    }
}

fn health(health: machine::Health) -> Health {
    match health {
        machine::Health::Ok => Health::Ok,
        machine::Health::Degraded => Health::Degraded,
        machine::Health::Unavailable => Health::Unavailable,
    }
}

fn pool(pool: machine::PoolStatus) -> PoolOnNode {
    let room = |room: machine::LayoutRoom| LayoutRoom {
        layout: room.layout.as_str().to_owned(),
        size: Quantity(room.size),
    };
    PoolOnNode {
        name: pool.name.to_string(),
        configured: pool.configured,
        size: Quantity(pool.size),
        free: Quantity(pool.free),
        largest: pool.largest.into_iter().map(room).collect(),
        extent: Quantity(pool.extent),
        volumes: count(pool.volumes),
        health: health(pool.health),
        message: pool.message,
        plan: pool.plan,
        refused: pool.refused,
    }
}

fn group(group: machine::GroupStatus) -> GroupStatus {
    GroupStatus {
        name: group.name,
        pool: group.pool.to_string(),
        size: Quantity(group.size),
        free: Quantity(group.free),
        health: health(group.health),
        message: group.message,
    }
}

fn disk(disk: machine::DiskStatus) -> DiskStatus {
    DiskStatus {
        device: disk.device,
        size: disk.size.map(Quantity),
        group: disk.group,
        state: match disk.state {
            machine::DiskState::Used => DiskState::Used,
            machine::DiskState::Spare => DiskState::Spare,
            machine::DiskState::Refused => DiskState::Refused,
            machine::DiskState::Missing => DiskState::Missing,
        },
        message: disk.message,
    }
}

fn work(work: machine::WorkStatus) -> WorkStatus {
    let (volume, what) = (work.volume.to_string(), work.what.to_owned());
    WorkStatus { volume, what, progress: work.progress }
}

fn count(many: usize) -> i32 {
    i32::try_from(many).unwrap_or(i32::MAX)
}
