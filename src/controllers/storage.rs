//! Publishes the storage of this node when it changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::api::{
    DiskState, DiskStatus, GroupStatus, Health, Judged, LayoutRoom, NodeStorage, NodeStorageSpec,
    NodeStorageStatus, OperationStatus, OperationType, PoolOnNode, Quantity, READY, ThinPoolStatus,
    TransferEndpoint, VolumeUsage,
};
use crate::cluster;
use crate::cluster::writes::NODE_PLUGIN;
use crate::controllers::conditions::{Lacking, conditions};
use crate::controllers::usage;
use crate::error_chain;
use crate::node::{Node, copied, peers, remembered_snapshots, storage as machine};
use crate::panics::{AFTER_PANIC, caught};
use crate::volume::{
    FsUsage, NodeKey, NodeVolumes, Page, SnapshotPage, Snapshots, VolumeError, VolumeId, Volumes,
};

/// How often a change that no one announced, as by an administrator's hand, is looked for, here and
/// in the record. Reading costs no command, and what has not changed is not written.
const LOOK: Duration = Duration::from_secs(60);

/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// Checks what a host lacks to serve volumes at all, and reads its versions.
#[async_trait]
pub trait Prerequisites: Send + Sync {
    /// Reads its present state.
    async fn look(&self) -> HostCheck;
}

/// Result of a check of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCheck {
    /// Missing prerequisites, each with the commands to run; empty if all are met.
    pub lacking: Vec<String>,
    /// Version of LVM, if known.
    pub lvm: Option<String>,
    /// Version of the kernel, if known.
    pub kernel: Option<String>,
}

/// The NodeStorage object of this node.
pub struct StorageRecord {
    api: Api<NodeStorage>,
    name: String,
    node: Arc<Node>,
    prerequisites: Box<dyn Prerequisites>,
    last: Mutex<Last>,
    changed: Notify,
    is_told: watch::Sender<bool>,
}

/// Whether the host and the record are looked at before the node tells what it has.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// At what the host lacks, for the first time.
    First,
    /// At what it lacked, and at the record.
    Again,
    /// Neither: it was said that something has changed.
    No,
}

/// What is known of the last time.
#[derive(Debug, Default)]
struct Last {
    written: Option<WrittenStorage>,
    /// The conditions that the record has, once they are known: a node plugin before this one wrote
    /// them.
    conditions: Option<Conditions>,
    /// How full volumes are, as the record tells it or is to tell it next.
    usage: Vec<VolumeUsage>,
    found: HostCheck,
}

/// The conditions of a record, so that one that stays keeps its time.
#[derive(Debug, Default)]
struct Conditions {
    node: Vec<Condition>,
    pools: BTreeMap<String, Vec<Condition>>,
    groups: BTreeMap<String, Vec<Condition>>,
}

impl Conditions {
    fn of(status: &NodeStorageStatus) -> Self {
        let pools = status.pools.iter().map(|pool| (pool.name.clone(), pool.conditions.clone()));
        let groups = status.volume_groups.iter();
        let groups = groups.map(|group| (group.name.clone(), group.conditions.clone()));
        Conditions {
            node: status.conditions.clone(),
            pools: pools.collect(),
            groups: groups.collect(),
        }
    }
}

/// What was written, and the version that the API server made of it.
#[derive(Debug)]
struct WrittenStorage {
    status: NodeStorageStatus,
    version: Option<String>,
}

impl fmt::Debug for StorageRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageRecord").field("name", &self.name).finish_non_exhaustive()
    }
}

impl StorageRecord {
    /// Creates the publisher for the NodeStorage object with this node's name.
    pub fn new(
        client: &Client,
        node: Arc<Node>,
        prerequisites: impl Prerequisites + 'static,
    ) -> Arc<Self> {
        Arc::new(StorageRecord {
            api: Api::all(client.clone()),
            name: node.info().name,
            node,
            prerequisites: Box::new(prerequisites),
            last: Mutex::default(),
            changed: Notify::new(),
            is_told: watch::Sender::default(),
        })
    }

    /// Publishes every change, until `stop`; the first is that the pools are set. Before that all
    /// would seem to be missing, and pods would be evicted.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let told = async {
            self.changed.notified().await;
            let mut looks = Look::First;
            let mut copies = copied(&self.node);
            loop {
                let pause = match caught("nodestorages", self.look_and_publish(looks)).await {
                    Ok(Ok(())) => LOOK,
                    Ok(Err(error)) => {
                        let error = error_chain::in_full(&error);
                        tracing::warn!(error, "failed to update NodeStorage; retrying");
                        AGAIN
                    }
                    Err(panicked) => {
                        tracing::error!(%panicked, "failed to update NodeStorage; retrying");
                        AFTER_PANIC
                    }
                };
                looks = tokio::select! {
                    () = self.changed.notified() => Look::No,
                    // A snapshot is ready: whoever waits for it watches this object.
                    Ok(()) = copies.changed() => Look::No,
                    () = tokio::time::sleep(pause) => Look::Again,
                };
            }
        };
        stop.run_until_cancelled(told).await;
    }

    async fn look_and_publish(&self, looks: Look) -> Result<(), kube::Error> {
        match looks {
            Look::First => self.check().await,
            Look::Again => {
                self.forget_if_changed().await;
                self.check_again().await;
            }
            Look::No => {}
        }
        self.publish().await
    }

    /// Waits until the storage was published for the first time.
    pub async fn until_published(&self) {
        let _ = self.is_told.subscribe().wait_for(|is_told| *is_told).await;
    }

    /// Notes that something may have changed.
    pub fn note(&self) {
        self.changed.notify_one();
    }

    /// Publishes the current storage of the node, if it differs from what was published last.
    ///
    /// Of concurrent calls the first publishes for all whose change it has read.
    ///
    /// # Errors
    /// An error of the API server.
    pub async fn publish(&self) -> Result<(), kube::Error> {
        let mut last = self.last.lock().await;
        let seen = self.observe(&mut last).await?;
        if last.written.as_ref().is_some_and(|written| written.status == seen) {
            return Ok(());
        }
        last.written = None; // Until the write has succeeded no one knows what is there.
        let version = match self.write(&seen).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.make().await?;
                self.write(&seen).await?
            }
            done => done?,
        };
        last.conditions = Some(Conditions::of(&seen));
        last.written = Some(WrittenStorage { status: seen, version });
        self.is_told.send_replace(true);
        Ok(())
    }

    /// Publishes the usage of volumes if the change matters, after the object was first
    /// [published](StorageRecord::told).
    pub(super) async fn tell_usages(&self, seen: &BTreeMap<VolumeId, FsUsage>) {
        let is_new = {
            let mut last = self.last.lock().await;
            let next = usage::next(&last.usage, seen, &Time(Timestamp::now()));
            let before = std::mem::replace(&mut last.usage, next);
            before != last.usage
        };
        if is_new {
            self.note();
        }
    }

    async fn observe(&self, last: &mut Last) -> Result<NodeStorageStatus, kube::Error> {
        if last.conditions.is_none() {
            let record = self.api.get_opt(&self.name).await?;
            let status = record.and_then(|record| record.status).unwrap_or_default();
            last.conditions = Some(Conditions::of(&status));
            last.usage = status.usage;
        }
        let (nothing, now) = (Conditions::default(), Time(Timestamp::now()));
        let before = last.conditions.as_ref().unwrap_or(&nothing);
        let (seen, gap) = observe(&self.node, before, &now).await;
        let seen = NodeStorageStatus {
            usage: last.usage.clone(),
            lvm_version: last.found.lvm.clone(),
            kernel_version: last.found.kernel.clone(),
            ..seen
        };
        let (seen, gap) = seen.bounded(gap);
        let lacking = Lacking { prerequisites: &last.found.lacking, volumes: gap.as_deref() };
        let conditions = conditions(&seen, lacking, &before.node, &now);
        Ok(NodeStorageStatus { conditions, ..seen })
    }

    /// Looks whether the host has what it needs; no disk is touched.
    async fn check(&self) {
        let found = self.prerequisites.look().await;
        if !found.lacking.is_empty() {
            tracing::error!(
                lacking = found.lacking.join("; "),
                "prerequisites for serving volumes \
                                                                 not met"
            );
        }
        self.last.lock().await.found = found;
    }

    /// What is there stays there; what is missing may have been brought.
    async fn check_again(&self) {
        if !self.last.lock().await.found.lacking.is_empty() {
            self.check().await;
        }
    }

    /// Looks whether the record is as it was written: without it the node seems to be gone, and
    /// nothing would be asked of it that changes anything.
    async fn forget_if_changed(&self) {
        let mut last = self.last.lock().await;
        let Ok(there) = self.api.get_metadata_opt(&self.name).await else { return };
        let version = there.and_then(|record| record.metadata.resource_version);
        last.written.take_if(|written| written.version != version);
    }

    async fn make(&self) -> Result<(), kube::Error> {
        let node_hash = NodeKey::of(&self.name).as_str().to_owned();
        let record = NodeStorage::new(&self.name, NodeStorageSpec { node_hash });
        let params =
            PostParams { field_manager: Some(NODE_PLUGIN.to_owned()), ..PostParams::default() };
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
        let params = PatchParams::apply(NODE_PLUGIN).force();
        let written = self.api.patch_status(&self.name, &params, &Patch::Apply(patch)).await?;
        Ok(written.metadata.resource_version)
    }
}

/// Read what the node has, and why the list of its volumes may lack some, if it may.
async fn observe(
    node: &Node,
    before: &Conditions,
    now: &Time,
) -> (NodeStorageStatus, Option<String>) {
    // It reads each group anew where that has changed, and what follows tells the last readings.
    let (volumes, gap) = match node.list(&Page::default()).await {
        Ok(listing) => (listing.volumes, None),
        Err(error) => {
            let known = node.remembered_volumes().await.unwrap_or_default();
            let why = match error {
                VolumeError::Unavailable { reason } => reason,
                error => error_chain::in_full(&error),
            };
            (known, Some(why))
        }
    };
    let snapshots = node.list_snapshots(&SnapshotPage::default()).await;
    let snapshots = match snapshots {
        Ok(listing) => listing.snapshots,
        Err(_) => remembered_snapshots(node), // The list of volumes says why.
    };
    let storage = node.storage();
    let transfers = peers(node).map(|peers| peers.own()).map(|own| TransferEndpoint {
        address: own.address,
        certificate_fingerprint: own.fingerprint,
    });
    let status = NodeStorageStatus {
        transfers,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lvm_version: None,
        kernel_version: None,
        capacity: Quantity(storage.size),
        available: Quantity(storage.free),
        volume_count: count(volumes.len()),
        health: health(storage.health),
        pools: storage.pools.into_iter().map(|one| pool(one, before, now)).collect(),
        volume_groups: storage.groups.into_iter().map(|one| group(one, before, now)).collect(),
        disks: storage.disks.into_iter().map(disk).collect(),
        volumes: volumes.iter().map(cluster::volume_on_node).collect(),
        unlisted_volumes: Vec::new(),
        snapshot_count: count(snapshots.len()),
        snapshots: snapshots.iter().map(cluster::snapshot_on_node).collect(),
        operations: storage.operations.into_iter().map(operation).collect(),
        usage: Vec::new(),
        conditions: Vec::new(),
    };
    (status, gap)
}

fn health(health: machine::PoolHealth) -> Health {
    match health {
        machine::PoolHealth::Ok => Health::Healthy,
        machine::PoolHealth::Degraded => Health::Degraded,
        machine::PoolHealth::Unavailable => Health::Unavailable,
    }
}

fn pool(pool: machine::PoolReport, before: &Conditions, now: &Time) -> PoolOnNode {
    let name = pool.name.to_string();
    let ready = ready_of(pool.health, pool.reason, pool.message, "the pool is healthy");
    let conditions = vec![ready.condition(READY, of(&before.pools, &name), now)];
    let room = |room: machine::LargestVolume| LayoutRoom {
        layout: room.layout.as_str().to_owned(),
        size: Quantity(room.size),
    };
    PoolOnNode {
        name,
        configured: pool.configured,
        default: pool.default,
        capacity: Quantity(pool.size),
        available: Quantity(pool.free),
        maximum_volume_size: pool.largest.into_iter().map(room).collect(),
        extent_size: Quantity(pool.extent),
        volume_count: count(pool.volumes),
        health: health(pool.health),
        conditions,
        planned_actions: pool.plan,
        rejected_disks: pool.refused,
    }
}

/// Whether a pool or a volume group can be used.
fn ready_of(
    health: machine::PoolHealth,
    reason: &str,
    message: Option<String>,
    healthy: &str,
) -> Judged {
    Judged {
        is_so: health != machine::PoolHealth::Unavailable,
        reason: reason.to_owned(),
        message: message.unwrap_or_else(|| healthy.to_owned()),
    }
}

fn of<'a>(before: &'a BTreeMap<String, Vec<Condition>>, name: &str) -> &'a [Condition] {
    before.get(name).map(Vec::as_slice).unwrap_or_default()
}

fn group(group: machine::GroupReport, before: &Conditions, now: &Time) -> GroupStatus {
    let healthy = "the volume group is healthy";
    let ready = ready_of(group.health, group.reason, group.message, healthy);
    let conditions = vec![ready.condition(READY, of(&before.groups, &group.name), now)];
    GroupStatus {
        name: group.name,
        pool: group.pool.to_string(),
        size: Quantity(group.size),
        free: Quantity(group.free),
        thin_pool: group.thin_pool.map(thin_pool),
        health: health(group.health),
        conditions,
    }
}

fn thin_pool(pool: machine::ThinPoolReport) -> ThinPoolStatus {
    ThinPoolStatus {
        size: Quantity(pool.size),
        maximum_size: Quantity(pool.maximum),
        used: pool.steady.map(|used| Quantity(used.data)),
        metadata_size: Quantity(pool.metadata_size),
        maximum_metadata_size: Quantity(pool.metadata_maximum),
        metadata_used: pool.steady.map(|used| Quantity(used.metadata)),
        provisioned: Quantity(pool.provisioned),
        maximum_provisioned: Quantity(pool.maximum_provisioned),
    }
}

fn disk(disk: machine::DiskReport) -> DiskStatus {
    DiskStatus {
        device: disk.device,
        size: disk.size.map(Quantity),
        volume_group: disk.group,
        state: match disk.state {
            machine::DiskUse::Used => DiskState::Used,
            machine::DiskUse::Standby => DiskState::Standby,
            machine::DiskUse::Refused => DiskState::Rejected,
            machine::DiskUse::Missing => DiskState::Missing,
        },
        message: disk.message,
    }
}

fn operation(operation: machine::OperationReport) -> OperationStatus {
    OperationStatus {
        volume_handle: operation.volume.to_string(),
        r#type: match operation.r#type {
            machine::OperationKind::Wipe => OperationType::Wipe,
            machine::OperationKind::Copy => OperationType::Copy,
        },
        progress: operation.progress,
    }
}

fn count(many: usize) -> i32 {
    i32::try_from(many).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;

    fn group_of(health: machine::PoolHealth, reason: &'static str) -> machine::GroupReport {
        machine::GroupReport {
            name: "vg0".to_owned(),
            pool: "fast".parse().unwrap(),
            size: Bytes::gib(1),
            free: Bytes::ZERO,
            thin_pool: None,
            health,
            reason,
            message: (health != machine::PoolHealth::Ok).then(|| "vg0 is missing".to_owned()),
        }
    }

    #[test]
    fn a_volume_group_is_ready_until_it_is_unavailable_and_keeps_its_time_meanwhile() {
        let at = |second| Time(Timestamp::from_second(second).unwrap());
        let told = |group: GroupStatus| NodeStorageStatus {
            volume_groups: vec![group],
            ..NodeStorageStatus::default()
        };
        let mut before = Conditions::default();
        for (second, health, reason, status, since) in [
            (1, machine::PoolHealth::Ok, machine::HEALTHY, "True", 1),
            (2, machine::PoolHealth::Degraded, "VolumeGroupNotChangeable", "True", 1),
            (3, machine::PoolHealth::Unavailable, "VolumeGroupUnavailable", "False", 3),
            (4, machine::PoolHealth::Unavailable, "VolumeGroupUnavailable", "False", 3),
            (5, machine::PoolHealth::Ok, machine::HEALTHY, "True", 5),
        ] {
            let group = group(group_of(health, reason), &before, &at(second));
            let ready = &group.conditions[0];
            assert_eq!((&*ready.type_, &*ready.status, &*ready.reason), (READY, status, reason));
            assert_eq!(ready.last_transition_time, at(since), "in second {second}");
            let is_well = health == machine::PoolHealth::Ok;
            assert_eq!(group.problem(), (!is_well).then_some("vg0 is missing"));
            before = Conditions::of(&told(group));
        }
    }
}
