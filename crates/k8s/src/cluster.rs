//! Volumes of a whole cluster: each operation is a custom resource for the node that runs it.
//!
//! The NodeStorages of the nodes show which node has a volume ([`Nodes`]); an operation becomes a
//! `VolumeRequest` whose status is watched ([`Requests`]). Nothing is stored here: LVM on the nodes
//! is the truth, and a restarted controller finds everything in the API server.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::api::{ContentPeer, Operation};
use crate::bytes::Bytes;
use crate::cluster::capacities::Capacities;
use crate::cluster::writes::CONTROLLER;
use crate::volume::{
    Capacity, CapacityQuery, Fence, Grown, Growth, Inspection, Listing, NewSnapshot, NewVolume,
    NodeKey, Page, Reason, Snapshot, SnapshotId, SnapshotListing, SnapshotPage, Snapshots, Source,
    State, Volume, VolumeError, VolumeId, VolumeStatus, Volumes,
};

pub mod audit;
mod cache;
mod capacities;
mod caught;
mod claim;
mod clock;
mod concurrency;
mod convert;
mod debounce;
mod decode;
mod events;
mod fair;
mod lead;
mod locked;
mod memory_limits;
mod node_operations;
mod nodes;
mod permits;
mod persistent_volumes;
mod placement;
mod pod_events;
mod pods;
mod pv;
mod record;
mod requests;
mod seen;
mod snapshots;
mod summary;
mod timers;
pub mod topology;
mod unprocessed;
mod unresponsive;
pub mod writes;

pub use cache::{
    Change, Changed, NamespacedName, Pauses, PendingChanges, Turnover, Watched, every,
};
pub use caught::{
    INTERNAL_ERROR, LONGEST_WORK, Unfinished, begun_again, caught_in_time, reconcile, report_panic,
    report_unfinished,
};
pub use claim::{
    Binding, CLASS, ClaimSizes, DETACHED_FOR, EXCHANGE, HELD_BY_POPULATOR, HELD_BY_SWAP, KEPT_BY,
    RESIZER_WOKEN_FOR, UnreadableSize, VOLUME, capacity, class_of, is_resizing, lacks_claim,
    own_words, refusal, refused_size, requested, resize_error, tried_size, untrue_notes,
    volume_name,
};
pub use clock::{Clock, ClockSkew};
pub use concurrency::Works;
pub use convert::{
    inspection_status, new_volume, restored_volume, sent, snapshot_on_node, usage_status,
    volume_on_node,
};
pub use debounce::Debounce;
pub use decode::{
    Guarded, Listed, NAMESPACE_TOO_LARGE, OBJECT_UNREADABLE, PAGE, Unreadable, guarded, list,
    note_readable, note_unreadable, pages, unreadable_by_kind,
};
pub use events::NO_NAMESPACE;
pub use events::{EVENT_KEY, OnceEvent};
pub use fair::{Due, FairQueue, Slots};
pub use lead::LeaseCandidate;
pub use node_operations::Answers;
pub use node_operations::Asks;
pub use nodes::DEFAULT_POOL;
pub use nodes::{Nodes, largest, pool_of};
pub use nodes::{believe, is_being_copied, is_on, is_restricted, leaves_unnamed, told_of};
pub use permits::{has_sends, is_send_in_use, send_of};
pub use persistent_volumes::{PersistentVolumes, VolumeDifferences};
pub use pod_events::{PodEvents, PodNews};
pub use pods::pods;
pub use pv::volume_of;
pub use pv::{ClaimRef, CsiSource, Driver, PvSpec, PvStatus, PvSummary};
pub use record::{Identified, Namespaces, ObjectNames, Record};
pub use requests::Requests;
pub use requests::may_have_made;
pub use seen::{NodeOperation, NotDone, ObservedVolume, OperationRequest, VolumeSeen};
pub use summary::{
    AffinitySummary, ClaimSummary, DataSource, DeploymentVersion, Ephemeral, HeldBy,
    NodeAffinitySummary, PodConditionSummary, PodSpecSummary, PodStatusSummary, PodSummary,
    PodVersion, StatefulSetVersion, VolumeSummary,
};
pub use timers::{Timers, until};
pub use unresponsive::AwaySeen;

/// Maximum delay of a NodeStorage behind its node: longer than a broken watch takes to reconnect.
/// Together with the timeout it is still below those 60 s.
const PUBLISHED: Duration = Duration::from_secs(12);

/// The volumes of a cluster.
pub struct Cluster {
    nodes: Nodes,
    requests: Requests,
    capacities: Capacities,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Watches the custom resources of the cluster; returns when all are known.
    ///
    /// It waits while the API server does not respond, and ends with `stop`.
    pub async fn start(client: &Client, stop: &CancellationToken) -> Cluster {
        let cluster = Cluster::watch(client, CONTROLLER, stop);
        cluster.known().await;
        cluster
    }

    /// Starts to watch the custom resources of the cluster, until `stop`; `writer` is the field
    /// manager of its requests.
    pub fn watch(client: &Client, writer: &'static str, stop: &CancellationToken) -> Cluster {
        let nodes = Nodes::watch(client, stop);
        let requests = Requests::watch(client, writer, stop);
        Cluster { nodes, requests, capacities: Capacities::new(client) }
    }

    /// Waits until all custom resources are known.
    pub async fn known(&self) {
        tokio::join!(self.nodes.known(), self.requests.known());
    }

    /// Returns the storage of the nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Like [`Volumes::inspect`], but processes that have the volume open get 10 s to close it first.
    ///
    /// # Errors
    /// As [`Volumes::inspect`].
    pub async fn inspect_unused(&self, id: &VolumeId) -> Result<Option<Inspection>, VolumeError> {
        self.look(id, convert::inspect(true)).await
    }

    /// As [`Volumes::fence`], and then [`Volumes::inspect`]; of those who have a volume open that may only be read
    /// from now on, as [`Cluster::inspect_unused`].
    ///
    /// # Errors
    /// As those; after one of the second the volume may be fenced.
    pub async fn fence_and_inspect(
        &self,
        id: &VolumeId,
        fence: Fence,
    ) -> Result<Option<Inspection>, VolumeError> {
        self.look(id, convert::fence(fence)).await
    }

    async fn look(&self, id: &VolumeId, how: Operation) -> Result<Option<Inspection>, VolumeError> {
        let node = self.nodes.of(id)?;
        let done = self.requests.carry_out(&node, id, how).await?;
        convert::inspection(&node, &done)
    }

    async fn make(&self, want: &NewVolume) -> Result<Volume, VolumeError> {
        let node = self.nodes.place(want, self.requests.node_that_made(&want.key()).as_deref())?;
        let id = VolumeId::new(NodeKey::of(&node), want.key());
        match &want.source {
            Some(source) if source.volume().node() != id.node() => {
                self.make_elsewhere(&node, &id, want, source).await?;
            }
            _ => drop(self.requests.carry_out(&node, &id, convert::create(want)).await?),
        }
        // Its node publishes it before it reports success; the two are watched separately.
        let made = match in_time("creating", &id, self.nodes.until_told(&id)).await? {
            Some(made) => made,
            None => self.unlisted(&node, &id).await?,
        };
        if want.size.admits(made.size) { Ok(made) } else { Err(untrue_size(&node, &made, want)) }
    }

    /// Makes a volume with the content of another node: that node lets this one read it, until it is made.
    ///
    /// # Errors
    /// Of what comes before anything is made, none that would hold the claim to its node.
    async fn make_elsewhere(
        &self,
        node: &str,
        id: &VolumeId,
        want: &NewVolume,
        source: &Source,
    ) -> Result<(), VolumeError> {
        let has_begun = self.requests.may_be_made_on(node, id.key());
        let there = self.find(id).await.map_err(|error| before_it(has_begun, error))?;
        let has_begun = has_begun || there.is_some();
        if there.is_some_and(|there| there.state != State::Creating) {
            // Its answer was lost. Its source may be gone.
            return self.requests.carry_out(node, id, convert::create(want)).await.map(drop);
        }
        let made = match self.have_sent((node, id), want, source).await {
            Ok(from) => self.requests.carry_out(node, id, convert::receive(want, from)).await,
            Err(error) if !is_passing(&error) && has_begun => {
                // Its node knows what it has: what is whole is returned, and what never gets its content is removed.
                let whole = self.requests.carry_out(node, id, convert::create(want)).await;
                match whole {
                    Err(gone) if gone.reason() == Reason::NotFound => Err(before_it(false, error)),
                    other => other,
                }
            }
            Err(error) => Err(before_it(has_begun, error)),
        };
        if made.as_ref().err().is_none_or(|error| !is_passing(error)) {
            permits::end_send(&self.requests, id.key()).await;
        }
        made.map(drop)
    }

    /// Has the node of the source let another one read it, for a volume there.
    async fn have_sent(
        &self,
        (node, id): (&str, &VolumeId),
        want: &NewVolume,
        source: &Source,
    ) -> Result<ContentPeer, VolumeError> {
        let home = self.nodes.of(source.volume())?;
        let to = self.nodes.transfers_of(node)?;
        let send = convert::send(want, source, id, &to.certificate_fingerprint);
        let done = self.requests.carry_out(&home, source.volume(), send).await?;
        let content = done.content.ok_or_else(|| VolumeError::Failed {
            what: format!("node {home} sends {source} without reporting its size"),
        })?;
        Ok(ContentPeer { endpoint: self.nodes.transfers_of(&home)?, content })
    }

    /// Returns a created volume that the NodeStorage of its node does not list.
    async fn unlisted(&self, node: &str, id: &VolumeId) -> Result<Volume, VolumeError> {
        let seen = self.look(id, convert::inspect(false)).await?.map(|seen| seen.status.volume);
        seen.filter(|seen| seen.id == *id).ok_or_else(|| VolumeError::Failed {
            what: format!(
                "node {node} reports that it created volume {id}, but does not find it; check the log of its \
                 node plugin, and the volume with `lvs` on the node"
            ),
        })
    }

    /// The work under way.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }
}

/// Returns true if the same call may succeed later.
fn is_passing(error: &VolumeError) -> bool {
    matches!(error.reason(), Reason::InProgress | Reason::Unavailable)
}

/// Converts an error of the source's node. As long as nothing is made, the claim must not be held to a node that waits for
/// another one, and a source without room is no reason to go to a third one.
fn before_it(has_begun: bool, error: VolumeError) -> VolumeError {
    let reason = match error.reason() {
        Reason::InProgress | Reason::Unavailable if !has_begun => Reason::Failed,
        Reason::InsufficientCapacity | Reason::TopologyMismatch => Reason::PreconditionFailed,
        _ => return error,
    };
    VolumeError::Reported { reason, message: format!("the source is not ready: {error}") }
}

/// Waits until the NodeStorage of a node shows a completed operation.
///
/// # Errors
/// [`VolumeError::InProgress`] after some seconds: a repeated call joins the operation.
async fn in_time<T>(
    what: &str,
    id: &VolumeId,
    told: impl Future<Output = T>,
) -> Result<T, VolumeError> {
    tokio::time::timeout(PUBLISHED, told).await.map_err(|_| VolumeError::InProgress {
        what: format!("{what} volume {id}"),
        progress: "it is done, but the NodeStorage of its node does not show that yet".to_owned(),
    })
}

/// Reports that a node has completed an operation with another size.
fn untrue_size(node: &str, made: &Volume, want: &NewVolume) -> VolumeError {
    VolumeError::Failed {
        what: format!(
            "node {node} reports that it created volume {} with {} bytes, but {} were requested; check the log \
             of its node plugin, and the volume with `lvs` on the node",
            made.id,
            made.size.get(),
            want.size
        ),
    }
}

#[async_trait]
impl Snapshots for Cluster {
    async fn ensure_snapshot(&self, want: &NewSnapshot) -> Result<Snapshot, VolumeError> {
        let (id, node) = (want.id(), self.nodes.of(&want.source)?);
        // Asked again and again while it is copied: from memory.
        if let Ok(Some(taken)) = snapshots::find_snapshot(&self.nodes, &id) {
            return Ok(taken);
        }
        snapshots::refuse_beyond_list(&self.nodes, &want.source)?;
        self.requests.carry_out(&node, &want.source, convert::snapshot(want)).await?;
        in_time(
            "taking a snapshot of",
            &want.source,
            snapshots::until_snapshot_told(&self.nodes, &id),
        )
        .await?
    }

    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError> {
        let node = self.nodes.of(id.source())?;
        self.requests.carry_out(&node, id.source(), convert::delete_snapshot(id)).await?;
        let gone = snapshots::until_snapshot_gone(&self.nodes, id);
        in_time("deleting a snapshot of", id.source(), gone).await
    }

    async fn find_snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, VolumeError> {
        snapshots::find_snapshot(&self.nodes, id)
    }

    async fn list_snapshots(&self, page: &SnapshotPage) -> Result<SnapshotListing, VolumeError> {
        Ok(page.cut(snapshots::snapshots(&self.nodes)?))
    }
}

#[async_trait]
impl Volumes for Cluster {
    async fn ensure(&self, want: &NewVolume) -> Result<Volume, VolumeError> {
        let made = self.make(want).await;
        if let Err(error) = &made
            && matches!(error.reason(), Reason::InsufficientCapacity | Reason::TopologyMismatch)
        {
            self.capacities.request_resync(&want.nodes).await;
        }
        made
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let node = self.nodes.of(id)?;
        self.requests.carry_out(&node, id, convert::delete()).await?;
        in_time("deleting", id, self.nodes.until_gone(id)).await?;
        if self.nodes.may_leave_unnamed(id) {
            self.requests.forget_making(id).await?;
        }
        Ok(())
    }

    async fn grow(&self, id: &VolumeId, growth: Growth) -> Result<Grown, VolumeError> {
        let node = self.nodes.of(id)?;
        let done = self.requests.carry_out(&node, id, convert::expand(growth)).await?;
        convert::grown(growth, &done)
    }

    async fn shrink(&self, id: &VolumeId, to: Bytes) -> Result<Bytes, VolumeError> {
        let node = self.nodes.of(id)?;
        let done = self.requests.carry_out(&node, id, convert::shrink(to)).await?;
        convert::shrunk(&done)
    }

    async fn release(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let node = self.nodes.of(id)?;
        self.requests.carry_out(&node, id, convert::unpin()).await.map(drop)
    }

    async fn fence(&self, id: &VolumeId, fence: Fence) -> Result<(), VolumeError> {
        self.fence_and_inspect(id, fence).await.map(drop)
    }

    async fn inspect(&self, id: &VolumeId) -> Result<Option<Inspection>, VolumeError> {
        self.look(id, convert::inspect(false)).await
    }

    async fn find(&self, id: &VolumeId) -> Result<Option<VolumeStatus>, VolumeError> {
        match self.nodes.find(id) {
            Err(_) if self.nodes.may_be_unlisted(id) => Ok(self
                .inspect(id)
                .await?
                .map(|seen| seen.status)
                .filter(|seen| seen.volume.id == *id)),
            found => found,
        }
    }

    async fn list(&self, page: &Page) -> Result<Listing, VolumeError> {
        self.nodes.refuse_if_short(page)?;
        Ok(page.cut(self.nodes.volumes()))
    }

    async fn capacity(&self, query: &CapacityQuery) -> Result<Capacity, VolumeError> {
        Ok(self.nodes.capacity(query))
    }
}
