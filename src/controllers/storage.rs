//! Tells what this node has, when that changes.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::api::{
    Health, LayoutRoom, NodeStorage, NodeStorageSpec, NodeStorageStatus, PoolOnNode, Quantity,
};
use crate::causes;
use crate::cluster;
use crate::controllers::agent::WRITER;
use crate::node::Node;
use crate::volume::{
    CapacityQuery, Class, Layout, NodeKey, Page, PoolSummary, VolumeStatus, Volumes,
};

/// How often a change that nobody announced, as by an administrator's hand, is looked for. Reading
/// costs no command, and what has not changed is not written.
const LOOK: Duration = Duration::from_secs(60);

/// The record of what this node has.
#[derive(Debug)]
pub struct StorageRecord {
    api: Api<NodeStorage>,
    name: String,
    node: Arc<Node>,
    written: Mutex<Option<NodeStorageStatus>>,
    changed: Notify,
}

impl StorageRecord {
    /// The record of this node, under its name.
    pub fn new(client: &Client, node: Arc<Node>) -> Arc<Self> {
        let (name, api) = (node.info().name, Api::all(client.clone()));
        let (written, changed) = (Mutex::default(), Notify::new());
        Arc::new(StorageRecord { api, name, node, written, changed })
    }

    /// Tell of every change, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let told = async {
            loop {
                if let Err(error) = self.publish().await {
                    let error = causes::in_full(&error);
                    tracing::warn!(error, "what the node has can not be told; it will be tried again");
                }
                let _ = tokio::time::timeout(LOOK, self.changed.notified()).await;
            }
        };
        stop.run_until_cancelled(told).await;
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
        if written.as_ref() == Some(&seen) {
            return Ok(());
        }
        *written = None; // Until the write has succeeded nobody knows what is there.
        match self.write(&seen).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.make().await?;
                self.write(&seen).await?;
            }
            done => done?,
        }
        *written = Some(seen);
        Ok(())
    }

    async fn make(&self) -> Result<(), kube::Error> {
        let key = NodeKey::of(&self.name).as_str().to_owned();
        let record = NodeStorage::new(&self.name, NodeStorageSpec { key });
        let params =
            PostParams { field_manager: Some(WRITER.to_owned()), ..PostParams::default() };
        match self.api.create(&params, &record).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    }

    async fn write(&self, status: &NodeStorageStatus) -> Result<(), kube::Error> {
        let patch = json!({
            "apiVersion": "pliant.io/v1alpha1",
            "kind": "NodeStorage",
            "status": status,
        });
        let params = PatchParams::apply(WRITER).force();
        self.api.patch_status(&self.name, &params, &Patch::Apply(patch)).await.map(drop)
    }
}

/// Read what the node has.
async fn observe(node: &Node) -> NodeStorageStatus {
    let (volumes, unread) = match node.list(&Page::default()).await {
        Ok(listing) => (listing.volumes, None),
        Err(error) => {
            let known = node.remembered_volumes().await.unwrap_or_default();
            (known, Some(causes::in_full(&error)))
        }
    };
    let mut pools = Vec::new();
    for summary in node.remembered_pools() {
        pools.push(pool(node, &summary, &volumes).await);
    }
    NodeStorageStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        size: Quantity(pools.iter().map(|pool| pool.size.0).sum()),
        free: Quantity(pools.iter().map(|pool| pool.free.0).sum()),
        health: pools.iter().map(|pool| pool.health).max().unwrap_or_default(),
        volume_count: count(volumes.len()),
        volumes: volumes.iter().map(cluster::volume_on_node).collect(),
        unread,
        pools,
        ..NodeStorageStatus::default()
    }
}

async fn pool(node: &Node, summary: &PoolSummary, volumes: &[VolumeStatus]) -> PoolOnNode {
    let name = &summary.name;
    let (mut largest, mut extent, mut free) = (Vec::new(), Quantity::default(), summary.free);
    for layout in Layout::ALL {
        let class = Class { pool: Some(name.clone()), layout, ..Class::default() };
        let query = CapacityQuery { class, mode: None, node: None };
        if let Ok(room) = node.capacity(&query).await {
            (extent, free) = (Quantity(room.smallest), room.free);
            let layout = layout.as_str().to_owned();
            largest.push(LayoutRoom { layout, size: Quantity(room.largest) });
        }
    }
    let ailments = node.storage_health().await;
    let ours: Vec<_> = ailments.iter().filter(|ailment| ailment.pool == *name).collect();
    let told: Vec<&str> = ours.iter().map(|one| one.ailment.message.as_str()).collect();
    let health = match &ours[..] {
        [] if summary.available => Health::Ok,
        ours if ours.iter().any(|one| one.unreachable) => Health::Unavailable,
        _ => Health::Degraded,
    };
    PoolOnNode {
        name: name.to_string(),
        size: Quantity(summary.size),
        free: Quantity(free),
        largest,
        extent,
        volumes: count(volumes.iter().filter(|one| one.volume.pool == *name).count()),
        health,
        message: (!told.is_empty()).then(|| told.join("; ")),
        plan: Vec::new(),
        refused: Vec::new(),
    }
}

fn count(many: usize) -> i32 {
    i32::try_from(many).unwrap_or(i32::MAX)
}
