//! Carries out the requests for this node.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api::{
    ContentPeer, ContentStatus, Failure, FenceState, InspectionStatus, Operation, Phase, Quantity,
    VolumeRequest, VolumeRequestStatus,
};
use crate::cluster::writes::NODE_PLUGIN;
use crate::cluster::{self, Guarded, Record as _, every, guarded, note_readable, note_unreadable};
use crate::controllers::storage::StorageRecord;
use crate::error_chain;
use crate::in_flight::{BusyError, InFlight};
use crate::node::{Node, PeerAddress, RemoteSource, SendPermit, peers, prepare_send};
use crate::panics::{AFTER_PANIC, caught};
use crate::volume::{
    Fence, Growth, NewSnapshot, NewVolume, NodeKey, SnapshotId, Snapshots as _, State, Use,
    VolumeError, VolumeId, Volumes as _,
};

/// What panics and spans of it are under.
const LOOP: &str = "volumerequests";

/// After so long in which nothing was reported, work that lasts is reported as running; most is
/// done before, and costs no second write. While other work is reported, who waits hears by that
/// that someone is at work.
const TOLD_AFTER: Duration = Duration::from_secs(5);

/// Work that lasts longer is reported whatever else was: before its caller asks how far it is, and
/// before the node plugin is held to be away.
const TOLD_AT_LATEST: Duration = Duration::from_secs(30);

/// How long work waits for other work on its volume. No one holds a connection open meanwhile.
const PATIENCE: Duration = Duration::from_secs(3600);

/// How long work that wants an unused volume waits for the kubelet to let go of it: it unmounts it when
/// the pod is gone, which is when its claim may go too.
const LET_GO: Duration = Duration::from_secs(10);

/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// Carries out the requests for one node.
pub struct NodePlugin {
    node: String,
    requests: Api<VolumeRequest>,
    volumes: Arc<Node>,
    busy: InFlight,
    storage: Arc<StorageRecord>,
    /// When work was reported of last.
    told: Mutex<Instant>,
}

impl fmt::Debug for NodePlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePlugin").field("node", &self.node).finish_non_exhaustive()
    }
}

/// What has become of a piece of work.
#[derive(Debug, Clone, PartialEq)]
enum RequestOutcome {
    Grown {
        size: Quantity,
        node_expansion_required: bool,
    },
    Created {
        size: Quantity,
    },
    /// Another node may read it.
    Sent(ContentStatus),
    Shrunk {
        size: Quantity,
    },
    /// There is nothing more to say of it.
    Well,
    Inspected(Box<InspectionStatus>),
}

impl NodePlugin {
    /// Creates the node plugin's loop. `busy` is shared with everything else that operates on its
    /// volumes.
    pub fn new(
        client: &Client,
        node: &str,
        volumes: Arc<Node>,
        busy: InFlight,
        storage: Arc<StorageRecord>,
    ) -> Arc<NodePlugin> {
        let requests = Api::all(client.clone());
        let (node, told) = (node.to_owned(), Mutex::new(Instant::now()));
        Arc::new(NodePlugin { node, requests, volumes, busy, storage, told })
    }

    /// Executes the VolumeRequests for the node after its storage was published for the first time,
    /// until `stop`. Operations in progress are finished. A long operation, such as a wipe, is left
    /// to the next process, and its request stays in progress.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        if stop.run_until_cancelled(self.storage.until_published()).await.is_none() {
            return;
        }
        let ours = every().fields(&format!("spec.nodeName={}", self.node));
        let work = Controller::new(guarded(self.requests.clone()), ours)
            .trigger_backoff(cluster::Pauses::default())
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(reconcile, again, Arc::new(Serving { node_plugin: self, stop }));
        let mut work = std::pin::pin!(work);
        while let Some(done) = work.next().await {
            if let Err(error) = done {
                tracing::warn!(
                    error = error_chain::in_full(&error),
                    "failed to process a \
                                                                 VolumeRequest; retrying"
                );
            }
        }
    }

    /// Executes the request and publishes its outcome; once `stop` is cancelled, a long operation is not polled again.
    async fn carry_out(
        &self,
        request: &VolumeRequest,
        stop: &CancellationToken,
    ) -> Result<(), kube::Error> {
        let mut record = RequestRecord::of(request);
        let generation = request.metadata.generation.unwrap_or_default();
        let begun = now();
        let running = |phase, progress| VolumeRequestStatus {
            observed_generation: generation,
            phase,
            progress,
            start_time: Some(begun.clone()),
            ..VolumeRequestStatus::default()
        };
        let mut is_told = false;
        let outcome = loop {
            let asked = Instant::now();
            let mut attempt = std::pin::pin!(self.attempt(request));
            let answer = tokio::select! {
                answer = &mut attempt => answer,
                () = self.silence_since(asked), if !is_told => {
                    self.write_status(&mut record, running(self.phase_of(request).await, None)).await?;
                    attempt.await
                }
            };
            match answer {
                // It has waited for long work. One that did not is for the caller to ask again, and at the end
                // nothing waits.
                Err(VolumeError::InProgress { progress, .. })
                    if asked.elapsed() > TOLD_AFTER || stop.is_cancelled() =>
                {
                    is_told = true; // From now on it would write over the progress.
                    self.write_status(&mut record, running(Phase::Running, Some(progress))).await?;
                    if stop.is_cancelled() {
                        return Ok(());
                    }
                }
                answer => break answer,
            }
        };
        match &outcome {
            // Its caller reads the size in the answer, and waits for nothing else.
            Ok(RequestOutcome::Grown { .. }) => self.storage.note(),
            // First what the node has now, then the answer: who reads the answer looks there.
            _ => self.storage.publish().await?,
        }
        let ended =
            VolumeRequestStatus { completion_time: Some(now()), ..running(Phase::Succeeded, None) };
        self.write_status(&mut record, status_of(&outcome, ended)).await
    }

    async fn attempt(&self, request: &VolumeRequest) -> Result<RequestOutcome, VolumeError> {
        let spec = &request.spec;
        let id: VolumeId =
            spec.volume_handle.parse().map_err(|_| VolumeError::InvalidArgument {
                field: "spec.volumeHandle".to_owned(),
                reason: format!("`{}` is not the handle of a volume", spec.volume_handle),
            })?;
        let mut ends = self.busy.ends(id.key().as_str());
        let latest = Instant::now() + LET_GO;
        loop {
            let done = self.work_alone(&id, &spec.operation).await;
            if !is_to_be_unused(&spec.operation, &done) || Instant::now() >= latest {
                return done;
            }
            ends.next().await; // That was our own.
            let _ = tokio::time::timeout_at(latest, ends.next()).await;
        }
    }

    async fn work_alone(
        &self,
        id: &VolumeId,
        work: &Operation,
    ) -> Result<RequestOutcome, VolumeError> {
        let (id, work) = (id.clone(), work.clone());
        let (key, volumes, node) = (id.key().clone(), self.volumes.clone(), self.node.clone());
        let work = async move { do_work(&volumes, &node, &id, &work).await }.in_current_span();
        let done = self.busy.run_within(PATIENCE, key.as_str(), work).await;
        done.map_err(|error| match error {
            BusyError::Work(error) => error,
            BusyError::Busy => VolumeError::InProgress {
                what: "another operation on the volume".to_owned(),
                progress: "it must finish first".to_owned(),
            },
            BusyError::Fault => VolumeError::Failed {
                what: "the operation ended in an internal error of the node plugin; see its log"
                    .to_owned(),
            },
        })
    }

    /// Waits until work that was begun then is due to be told. Of many that wait one ends the silence.
    async fn silence_since(&self, begun: Instant) {
        loop {
            let due = {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                let due = (begun.max(*told) + TOLD_AFTER).min(begun + TOLD_AT_LATEST);
                if due <= Instant::now() {
                    *told = Instant::now();
                    return;
                }
                due
            };
            tokio::time::sleep_until(due).await;
        }
    }

    /// How a growth that lasts is reported: whether the volume itself has its new size.
    async fn phase_of(&self, request: &VolumeRequest) -> Phase {
        let Ok(id) = request.spec.volume_handle.parse() else { return Phase::Running };
        match self.volumes.find(&id).await {
            Ok(Some(found)) if found.state == State::Resizing => Phase::Resizing,
            _ => Phase::Running,
        }
    }

    /// Writes the status; a request that is gone needs none.
    ///
    /// # Errors
    /// A conflict if it is no longer the request that was read: its wish has changed, or it was removed
    /// and another one of its name made. What was done is not the answer to that one.
    async fn write_status(
        &self,
        record: &mut RequestRecord,
        mut status: VolumeRequestStatus,
    ) -> Result<(), kube::Error> {
        status.bound();
        let patch = json!({
            "apiVersion": "pliant.io/v1alpha1",
            "kind": "VolumeRequest",
            "metadata": {"resourceVersion": record.version},
            "status": status,
        });
        let params = PatchParams::apply(NODE_PLUGIN).force();
        match self.requests.patch_status(&record.name, &params, &Patch::Apply(patch)).await {
            Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
            written => {
                record.version = written?.metadata.resource_version;
                *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                Ok(())
            }
        }
    }
}

/// The request whose status is written, as it was read or written last.
struct RequestRecord {
    name: String,
    version: Option<String>,
}

impl RequestRecord {
    fn of(request: &VolumeRequest) -> RequestRecord {
        let metadata = &request.metadata;
        RequestRecord {
            name: metadata.name.clone().unwrap_or_default(),
            version: metadata.resource_version.clone(),
        }
    }
}

/// A node plugin until it is stopped.
struct Serving {
    node_plugin: Arc<NodePlugin>,
    stop: CancellationToken,
}

/// Carries out one request, unless its outcome is reported already.
async fn reconcile(
    request: Arc<Guarded<VolumeRequest>>,
    serving: Arc<Serving>,
) -> Result<Action, kube::Error> {
    match &request.0 {
        Ok(request) => {
            note_readable::<VolumeRequest>(request.place());
            if is_wanted(request) {
                let name = request.metadata.name.as_deref().unwrap_or_default();
                let span = cluster::reconcile(LOOP, name);
                return run_request(request, &serving).instrument(span).await;
            }
        }
        // The controller watches it too, and writes the event; a node plugin may not.
        Err(unreadable) => drop(note_unreadable(unreadable)),
    }
    Ok(Action::await_change())
}

async fn run_request(request: &VolumeRequest, serving: &Serving) -> Result<Action, kube::Error> {
    match caught(LOOP, serving.node_plugin.carry_out(request, &serving.stop)).await {
        Ok(done) => done.map(|()| Action::await_change()),
        Err(panicked) => {
            tracing::error!(%panicked, "failed to process a VolumeRequest; retrying");
            Ok(Action::requeue(AFTER_PANIC))
        }
    }
}

fn again(_: Arc<Guarded<VolumeRequest>>, _: &kube::Error, _: Arc<Serving>) -> Action {
    Action::requeue(AGAIN)
}

/// Returns whether the request, as it is now, has no outcome yet.
fn is_wanted(request: &VolumeRequest) -> bool {
    request.metadata.deletion_timestamp.is_none() && !request.has_ended()
}

async fn do_work(
    volumes: &Node,
    node: &str,
    id: &VolumeId,
    work: &Operation,
) -> Result<RequestOutcome, VolumeError> {
    match work {
        Operation::Create(create) => {
            make(volumes, node, id, &cluster::new_volume(node, create)?).await
        }
        Operation::Restore(restore) => {
            let want = cluster::restored_volume(node, restore)?;
            match &restore.from {
                None => make(volumes, node, id, &want).await,
                Some(from) => Box::pin(receive(volumes, node, id, &want, from)).await,
            }
        }
        Operation::Send(permit) => {
            if peers(volumes).is_none() {
                return Err(no_transfers());
            }
            let (source, target, mode) = cluster::sent(id, permit)?;
            let peer = permit.certificate_fingerprint.clone();
            let permit = SendPermit { target, source, peer };
            let ready = Box::pin(prepare_send(volumes, &permit, mode)).await?;
            let (size, empty) = (Quantity(ready.size), ready.is_empty);
            Ok(RequestOutcome::Sent(ContentStatus { size, empty }))
        }
        Operation::Expand(grow) => {
            let grown = volumes.grow(id, Growth::from(grow)).await?;
            let node_expansion_required = grown.node_expansion_required;
            Ok(RequestOutcome::Grown { size: Quantity(grown.size), node_expansion_required })
        }
        Operation::Shrink(shrink) => {
            let size = volumes.shrink(id, shrink.size.0).await?;
            Ok(RequestOutcome::Shrunk { size: Quantity(size) })
        }
        Operation::Unpin(_) => volumes.release(id).await.map(|()| RequestOutcome::Well),
        Operation::Delete(_) => volumes.remove(id).await.map(|()| RequestOutcome::Well),
        Operation::Fence(fence) if fence.state == FenceState::Unknown => {
            Err(unknown("spec.operation.fence"))
        }
        Operation::Unknown => Err(unknown("spec.operation")),
        // Whoever fences it wants to know who uses it still.
        Operation::Fence(fence) => {
            volumes.fence(id, Fence::from(fence)).await?;
            look(volumes, id).await
        }
        Operation::Inspect(_) => look(volumes, id).await,
        Operation::Snapshot(take) => {
            let want = NewSnapshot { name: take.name.clone(), source: id.clone() };
            volumes.ensure_snapshot(&want).await.map(|_| RequestOutcome::Well)
        }
        Operation::DeleteSnapshot(delete) => {
            let snapshot: Result<SnapshotId, _> = delete.snapshot_handle.parse();
            let snapshot = snapshot.ok().filter(|snapshot| snapshot.source() == id);
            let snapshot = snapshot.ok_or_else(|| VolumeError::InvalidArgument {
                field: "spec.operation.deleteSnapshot.snapshotHandle".to_owned(),
                reason: format!("`{}` is not a snapshot of {id}", delete.snapshot_handle),
            })?;
            volumes.remove_snapshot(&snapshot).await.map(|()| RequestOutcome::Well)
        }
    }
}

/// Makes a volume, empty or with content of this node.
async fn make(
    volumes: &Node,
    node: &str,
    id: &VolumeId,
    want: &NewVolume,
) -> Result<RequestOutcome, VolumeError> {
    refuse_other_handle(node, id, want)?;
    let volume = volumes.ensure(want).await?;
    Ok(RequestOutcome::Created { size: Quantity(volume.size) })
}

/// Makes a volume with content of another node.
async fn receive(
    volumes: &Node,
    node: &str,
    id: &VolumeId,
    want: &NewVolume,
    from: &ContentPeer,
) -> Result<RequestOutcome, VolumeError> {
    refuse_other_handle(node, id, want)?;
    let endpoint = &from.endpoint;
    let peer = PeerAddress {
        address: endpoint.address.clone(),
        fingerprint: endpoint.certificate_fingerprint.clone(),
    };
    let content = peers(volumes).ok_or_else(no_transfers)?.content(&peer, id);
    let ContentStatus { size, empty } = from.content;
    let source = RemoteSource { content, size: size.0, is_empty: empty };
    let volume = crate::node::receive(volumes, want, &source).await?;
    Ok(RequestOutcome::Created { size: Quantity(volume.size) })
}

/// # Errors
/// [`VolumeError::InvalidArgument`]: the volume that is busy would be another one than that which is made.
fn refuse_other_handle(node: &str, id: &VolumeId, want: &NewVolume) -> Result<(), VolumeError> {
    if VolumeId::new(NodeKey::of(node), want.key()) == *id {
        return Ok(());
    }
    Err(VolumeError::InvalidArgument {
        field: "spec.volumeHandle".to_owned(),
        reason: format!("{id} is not the handle of {:?} on node {node}", want.name),
    })
}

/// A controller that knows this node plugin does not ask for it.
fn no_transfers() -> VolumeError {
    VolumeError::Failed { what: "the node plugin has no --transfer-ip".to_owned() }
}

async fn look(volumes: &Node, id: &VolumeId) -> Result<RequestOutcome, VolumeError> {
    let seen = volumes.inspect(id).await?;
    Ok(RequestOutcome::Inspected(Box::new(cluster::inspection_status(seen.as_ref()))))
}

/// A newer controller asks for what this node plugin cannot do.
fn unknown(field: &str) -> VolumeError {
    VolumeError::InvalidArgument {
        field: field.to_owned(),
        reason: format!(
            "the node plugin of version {} does not support it; update the node plugin",
            env!("CARGO_PKG_VERSION")
        ),
    }
}

/// Returns whether a device is open that the operation needs closed.
fn is_to_be_unused(work: &Operation, done: &Result<RequestOutcome, VolumeError>) -> bool {
    let is_open = |seen: &InspectionStatus| seen.open_count.is_some_and(|count| count > 0);
    match (work, done) {
        (Operation::Delete(_), Err(VolumeError::InUse { .. })) => true,
        (Operation::Inspect(inspect), Ok(RequestOutcome::Inspected(seen))) => {
            inspect.wait_until_unused && is_open(seen)
        }
        // Its pod has ended, and its kubelet unmounts what it had.
        (Operation::Fence(fence), Ok(RequestOutcome::Inspected(seen))) => {
            Fence::from(fence).lets() == Use::Read && is_open(seen)
        }
        _ => false,
    }
}

fn status_of(
    outcome: &Result<RequestOutcome, VolumeError>,
    ended: VolumeRequestStatus,
) -> VolumeRequestStatus {
    match outcome {
        Ok(RequestOutcome::Well) => ended,
        Ok(RequestOutcome::Inspected(seen)) => {
            VolumeRequestStatus { inspection: Some(seen.clone()), ..ended }
        }
        Ok(RequestOutcome::Grown { size, node_expansion_required }) => VolumeRequestStatus {
            phase: if *node_expansion_required { Phase::Succeeded } else { Phase::Resized },
            size: Some(*size),
            node_expansion_required: Some(*node_expansion_required),
            ..ended
        },
        Ok(RequestOutcome::Sent(content)) => {
            VolumeRequestStatus { content: Some(content.clone()), ..ended }
        }
        Ok(RequestOutcome::Created { size }) => VolumeRequestStatus { size: Some(*size), ..ended },
        Ok(RequestOutcome::Shrunk { size }) => {
            VolumeRequestStatus { phase: Phase::Resized, size: Some(*size), ..ended }
        }
        Err(error) => {
            VolumeRequestStatus { phase: Phase::Failed, error: Some(Failure::from(error)), ..ended }
        }
    }
}

fn now() -> Time {
    Time(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Delete, VolumeRequestSpec};

    #[test]
    fn what_has_its_outcome_is_not_done_again() {
        let request = |generation, observed_generation, phase| {
            let work = Operation::Delete(Delete {});
            let (node, volume) = ("a".to_owned(), "v".to_owned());
            let mut request = VolumeRequest::new(
                "r",
                VolumeRequestSpec { node_name: node, volume_handle: volume, operation: work },
            );
            request.metadata.generation = Some(generation);
            request.status =
                Some(VolumeRequestStatus { observed_generation, phase, ..Default::default() });
            request
        };
        for (generation, observed, phase, wanted) in [
            (1, 0, Phase::Pending, true),
            (1, 1, Phase::Running, true), // The node plugin that began has died.
            (1, 1, Phase::Resizing, true),
            (1, 1, Phase::Succeeded, false),
            (1, 1, Phase::Resized, false),
            (1, 1, Phase::Failed, false),
            (2, 1, Phase::Succeeded, true),
            (2, 1, Phase::Failed, true),
        ] {
            let request = request(generation, observed, phase);
            assert_eq!(is_wanted(&request), wanted, "{phase:?} {generation} {observed}");
        }
    }
}
