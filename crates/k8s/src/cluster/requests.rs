//! Operations of nodes: a VolumeRequest is created, the node plugin runs it, a watch reports the
//! outcome.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::api::{
    NodeStorage, Operation, Phase, VolumeRequest, VolumeRequestSpec, VolumeRequestStatus,
};
use crate::cluster::unprocessed::UnprocessedRequests;
use crate::cluster::{Watched, every, writes};
use crate::volume::{NodeKey, Reason, VolumeError, VolumeId, VolumeKey};

/// Timeout of a call to a node, below the 60 s of its callers.
const PATIENCE: Duration = Duration::from_secs(45);

/// Time in which a responding node plugin reports about a request, or another one of its node: a queued
/// request gets no report while another one runs.
const TAKE_UP: Duration = Duration::from_secs(15);

/// The work under way on the nodes.
#[derive(Debug)]
pub struct Requests {
    api: Api<VolumeRequest>,
    writer: &'static str,
    nodes: Api<NodeStorage>,
    watched: Watched<VolumeRequest>,
    waiting: Mutex<UnprocessedRequests>,
}

/// A request as it was written: the outcome of another one of its name is not its own.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WrittenRequest {
    name: String,
    uid: Option<String>,
    generation: i64,
    /// True if the watch has already reported it: if it is missing then, it was deleted.
    is_seen: bool,
}

/// State of an existing request of the same name.
enum Taken {
    /// It is the request to wait for.
    Up(WrittenRequest),
    /// It was deleted or changed since it was read.
    Away,
    /// It must end first.
    InTheWay,
}

/// Reports of a node plugin, by the uid of the request.
struct ToldBy(HashMap<String, VolumeRequestStatus>);

/// State of a request in the watch.
enum RequestState {
    /// The request was deleted.
    Gone,
    /// Status of the request.
    Told(VolumeRequestStatus),
}

/// Next action for a request of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RequestStep {
    /// It is the same operation and running: wait for it.
    Join,
    /// It has ended, and its answer was for an earlier operation.
    Replace,
    /// It is an expansion or a send, running or ended: the newer size or receiver replaces the older one.
    Renew,
    /// It is another operation, which must end first.
    Wait,
}

impl Requests {
    /// Starts to watch all requests, until `stop`; `writer` is the field manager of new ones.
    pub fn watch(client: &Client, writer: &'static str, stop: &CancellationToken) -> Self {
        let api: Api<VolumeRequest> = Api::all(client.clone());
        let watched = Watched::start_keyed(api.clone(), every(), stop, |_| {}, keys);
        let (nodes, waiting) =
            (Api::all(client.clone()), UnprocessedRequests::new(watched.subscribe()));
        let waiting = Mutex::new(waiting);
        Requests { api, writer, nodes, watched, waiting }
    }

    /// Waits until all are known.
    pub async fn known(&self) {
        self.watched.known().await;
    }

    /// Returns the watch of all requests.
    pub fn watched(&self) -> &Watched<VolumeRequest> {
        &self.watched
    }

    /// Returns the nodes whose node plugins do not process requests, and the time until there may be
    /// more.
    pub fn away(&self) -> (Vec<String>, Option<Duration>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.take(Instant::now())
    }

    /// Returns the requests to the node plugin of a node.
    pub fn on(&self, node: &str) -> Vec<Arc<VolumeRequest>> {
        self.watched.with_key(&on_node(node))
    }

    /// The requests for the volumes of a node.
    pub fn of_volumes_on(&self, node: &NodeKey) -> Vec<Arc<VolumeRequest>> {
        self.watched.with_key(&of_volumes_on(node))
    }

    /// Returns true if a request that has ended in this phase was renewed: a renewed expansion shows its
    /// earlier end until its node plugin reports.
    pub fn has_renewed(&self, phase: Phase) -> bool {
        self.watched.has_key(&renewed(phase))
    }

    /// Runs an operation on a volume of a node, and waits for the outcome; a repeated call joins it.
    ///
    /// # Errors
    /// The answer of the node; [`VolumeError::InProgress`] if it is not done within 45 s,
    /// [`VolumeError::Unavailable`] if its node plugin reports nothing or the API server does not
    /// respond.
    pub(super) async fn carry_out(
        &self,
        node: &str,
        id: &VolumeId,
        work: Operation,
    ) -> Result<VolumeRequestStatus, VolumeError> {
        let (node, volume) = (node.to_owned(), id.to_string());
        let wanted = VolumeRequest::new(
            &name_of(&work, id),
            VolumeRequestSpec { node_name: node, volume_handle: volume, operation: work },
        );
        let late = Instant::now() + PATIENCE;
        loop {
            let wish = self.enter(&wanted).await?;
            // A request that vanished was removed as ended, before its end was seen here.
            let Some(ended) = self.outcome(&wish, &wanted.spec, late).await? else { continue };
            return match &ended.error {
                Some(failure) => Err(failure.into()),
                None => Ok(ended),
            };
        }
    }

    /// Writes the request, or finds the existing one.
    async fn enter(&self, wanted: &VolumeRequest) -> Result<WrittenRequest, VolumeError> {
        let failed = |error: kube::Error| not_asked("start an operation on a node", &error);
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        // A known one needs no write that fails. Each write carries the version that it was decided
        // from, so its age does not matter.
        if let Some(there) = self.watched.get(name)
            && let Taken::Up(wish) = self.take_up(&there, wanted).await.map_err(failed)?
        {
            return Ok(WrittenRequest { is_seen: true, ..wish });
        }
        loop {
            match self.api.create(&self.as_writer(), wanted).await {
                Ok(made) => return Ok(WrittenRequest::of(&made)),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(failed(error)),
            }
            let Some(there) = self.api.get_opt(name).await.map_err(failed)? else { continue };
            match self.take_up(&there, wanted).await.map_err(failed)? {
                Taken::Up(wish) => return Ok(wish),
                Taken::Away => {}
                Taken::InTheWay => return Err(in_the_way(&there)),
            }
        }
    }

    /// Joins a request of the name, or removes it for another one.
    async fn take_up(
        &self,
        there: &VolumeRequest,
        wanted: &VolumeRequest,
    ) -> Result<Taken, kube::Error> {
        Ok(match plan(there, &wanted.spec) {
            RequestStep::Join => Taken::Up(WrittenRequest::of(there)),
            RequestStep::Replace if self.is_still_gone(there).await? => {
                Taken::Up(WrittenRequest::of(there))
            }
            RequestStep::Replace => self.take_away(there).await.map(|()| Taken::Away)?,
            RequestStep::Renew => self.renew(there, wanted).await?.map_or(Taken::Away, Taken::Up),
            RequestStep::Wait => Taken::InTheWay,
        })
    }

    fn as_writer(&self) -> PostParams {
        PostParams { field_manager: Some(self.writer.to_owned()), ..PostParams::default() }
    }

    /// Returns true if a completed deletion also answers a new one: the provisioner asks again when it
    /// sees its own writes late. The node has no such volume, and nothing is to create one; both are read
    /// again, because a watch may be older than the volume.
    async fn is_still_gone(&self, there: &VolumeRequest) -> Result<bool, kube::Error> {
        let VolumeRequestSpec { node_name: node, volume_handle: volume, operation: work } =
            &there.spec;
        let is_done = there.status.as_ref().is_some_and(|status| status.phase == Phase::Succeeded);
        let (Operation::Delete(_), true, Ok(id)) = (work, is_done, volume.parse::<VolumeId>())
        else {
            return Ok(false);
        };
        // The creator first: what it has created is reported before it ends.
        let making = self.api.get_opt(&name_of_create(id.key())).await?;
        if making.is_some_and(|making| !making.has_ended()) {
            return Ok(false);
        }
        let told = self.nodes.get_opt(node).await?.and_then(|node| node.status);
        Ok(told.is_some_and(|told| {
            told.inventory_gap().is_none()
                && told.volumes.iter().all(|one| one.volume_handle != *volume)
        }))
    }

    /// Deletes this very version of a request; a missing or changed one is no error.
    async fn take_away(&self, there: &VolumeRequest) -> Result<(), kube::Error> {
        let only = Preconditions {
            uid: there.metadata.uid.clone(),
            resource_version: there.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        let name = there.metadata.name.as_deref().unwrap_or_default();
        match self.api.delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(())
            }
            done => done.map(drop),
        }
    }

    /// Replaces the operation of a request; `None` if it was changed meanwhile.
    async fn renew(
        &self,
        there: &VolumeRequest,
        wanted: &VolumeRequest,
    ) -> Result<Option<WrittenRequest>, kube::Error> {
        let name = there.metadata.name.as_deref().unwrap_or_default();
        let patch = writes::by_json(json!([
            {"op": "test", "path": "/metadata/uid", "value": there.metadata.uid},
            {"op": "test", "path": "/metadata/resourceVersion",
             "value": there.metadata.resource_version},
            {"op": "replace", "path": "/spec/operation", "value": wanted.spec.operation},
        ]));
        let params =
            PatchParams { field_manager: Some(self.writer.to_owned()), ..Default::default() };
        match self.api.patch(name, &params, &patch).await {
            Ok(renewed) => Ok(Some(WrittenRequest::of(&renewed))),
            Err(kube::Error::Api(status)) if writes::is_stale(&status) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until the request has ended; `None` if it was deleted.
    async fn outcome(
        &self,
        wish: &WrittenRequest,
        spec: &VolumeRequestSpec,
        late: Instant,
    ) -> Result<Option<VolumeRequestStatus>, VolumeError> {
        let soon = late.min(Instant::now() + TAKE_UP);
        let (mut seen, before) = (wish.is_seen, self.told_by(&spec.node_name));
        let answered = self.watched.until(|all| wish.answer(all, &mut seen, |_| true));
        if timeout_at(soon, answered).await.is_err()
            && !self.told_by(&spec.node_name).has_news(&before)
        {
            match self.asked_for(wish).await? {
                Some(RequestState::Told(status)) if status.phase.is_final() => {
                    return Ok(Some(status));
                }
                Some(RequestState::Told(_)) => {}
                Some(RequestState::Gone) => return Ok(None),
                None => return Err(not_taken_up(&spec.node_name)),
            }
        }
        let ended = self.watched.until(|all| wish.answer(all, &mut seen, Phase::is_final));
        match timeout_at(late, ended).await {
            Ok(RequestState::Told(status)) => Ok(Some(status)),
            Ok(RequestState::Gone) => Ok(None),
            Err(_) => Err(self.unfinished(wish, spec)),
        }
    }

    /// Reads the request from the API server. After an outage the watch may be late, and a completed request may
    /// be deleted before it is seen.
    async fn asked_for(&self, wish: &WrittenRequest) -> Result<Option<RequestState>, VolumeError> {
        let asked = self.api.get_opt(&wish.name).await;
        let there = asked.map_err(|error| not_asked("read an operation of a node", &error))?;
        Ok(wish.answer_of(there.as_ref(), true, |_| true))
    }

    /// Returns the reports of the node plugin of a node.
    fn told_by(&self, node: &str) -> ToldBy {
        let all = self.on(node).into_iter();
        ToldBy(
            all.filter_map(|one| Some((one.metadata.uid.clone()?, one.status.clone()?))).collect(),
        )
    }

    fn unfinished(&self, wish: &WrittenRequest, spec: &VolumeRequestSpec) -> VolumeError {
        let request = self.watched.get(&wish.name);
        let status = request.and_then(|request| request.status.clone()).unwrap_or_default();
        VolumeError::InProgress {
            what: format!(
                "{} volume {} on node {}",
                verb(&spec.operation),
                spec.volume_handle,
                spec.node_name
            ),
            progress: status.progress.unwrap_or_else(|| format!("{:?}", status.phase)),
        }
    }

    /// Returns the node that was asked to create the volume of this key, and may have done so, as far as a request
    /// shows that.
    pub(super) fn node_that_made(&self, key: &VolumeKey) -> Option<String> {
        let request = self.watched.get(&name_of_create(key))?;
        may_have_made(&request).then(|| request.spec.node_name.clone())
    }

    /// Returns true if this node was asked to create the volume of this key, and has it, or may have it.
    pub(super) fn may_be_made_on(&self, node: &str, key: &VolumeKey) -> bool {
        let request = self.watched.get(&name_of_create(key));
        let request = request.filter(|request| request.spec.node_name == node);
        request.is_some_and(|request| !request.has_ended() || may_have_made(&request))
    }

    /// Deletes the request that created a deleted volume.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if the API server does not respond.
    pub(super) async fn forget_making(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let request = self.watched.get(&name_of_create(id.key()));
        let made_it = |request: &Arc<VolumeRequest>| {
            request.spec.volume_handle == id.to_string() && may_have_made(request)
        };
        let Some(request) = request.filter(made_it) else { return Ok(()) };
        let removed = self.take_away(&request).await;
        removed.map_err(|error| not_asked("remove the request that created a volume", &error))
    }

    /// Deletes all requests that have ended in this phase, by one call.
    ///
    /// # Errors
    /// An error of the API server.
    pub async fn clear_ended(&self, phase: Phase) -> Result<(), kube::Error> {
        let ended = ListParams::default().fields(&format!("status.phase={phase:?}"));
        self.api.delete_collection(&DeleteParams::default(), &ended).await.map(drop)
    }

    /// Deletes a request that no node will run.
    ///
    /// # Errors
    /// An error of the API server; not if it was deleted or changed meanwhile.
    pub async fn clear(&self, request: &Arc<VolumeRequest>) -> Result<(), kube::Error> {
        self.take_away(request).await
    }
}

/// Key of the requests to the node plugin of a node.
fn on_node(node: &str) -> String {
    format!("on {node}")
}

/// The key of the requests for the volumes of a node.
fn of_volumes_on(node: &NodeKey) -> String {
    format!("volumes of {}", node.as_str())
}

/// Key of the renewed requests that have ended in this phase.
fn renewed(phase: Phase) -> String {
    format!("renewed after {}", phase.as_str())
}

/// Key of the requests that permit another node to read something.
pub(super) const SENDS: &str = "sends";

/// The keys by which a request is found.
fn keys(request: &VolumeRequest) -> Vec<String> {
    let volume = request.spec.volume_handle.parse::<VolumeId>().ok();
    let phase = request.status.as_ref().map(|status| status.phase);
    let earlier = phase.filter(|_| !request.has_ended());
    let keys = [volume.map(|id| of_volumes_on(id.node())), earlier.map(renewed)];
    let sends = matches!(request.spec.operation, Operation::Send(_)).then(|| SENDS.to_owned());
    let keys = keys.into_iter().flatten().chain(sends);
    keys.chain([on_node(&request.spec.node_name)]).collect()
}

impl ToldBy {
    /// Returns true if there are new reports. A completed and deleted request is not one.
    fn has_news(&self, before: &ToldBy) -> bool {
        self.0.iter().any(|(uid, told)| before.0.get(uid) != Some(told))
    }
}

impl WrittenRequest {
    fn of(request: &VolumeRequest) -> WrittenRequest {
        let metadata = &request.metadata;
        WrittenRequest {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone(),
            generation: metadata.generation.unwrap_or_default(),
            is_seen: false,
        }
    }

    /// Returns the state of the request, once it is the expected one.
    ///
    /// Until it is seen for the first time, the watch may still show the one that it replaced.
    fn answer(
        &self,
        all: &Watched<VolumeRequest>,
        seen: &mut bool,
        waited_for: impl Fn(Phase) -> bool,
    ) -> Option<RequestState> {
        let request = all.get(&self.name);
        *seen |= request.as_deref().is_some_and(|request| self.is_in(request));
        self.answer_of(request.as_deref(), *seen, waited_for)
    }

    /// Returns the state of a request of its name, once it is the expected one; if it `was_there` and is
    /// missing, it was deleted.
    fn answer_of(
        &self,
        request: Option<&VolumeRequest>,
        was_there: bool,
        waited_for: impl Fn(Phase) -> bool,
    ) -> Option<RequestState> {
        let Some(request) = request.filter(|request| self.is_in(request)) else {
            return was_there.then_some(RequestState::Gone);
        };
        let status = request.status.as_ref()?;
        let ours = status.observed_generation >= self.generation;
        (ours && waited_for(status.phase)).then(|| RequestState::Told(status.clone()))
    }

    /// Returns true if it was written into this very request.
    fn is_in(&self, request: &VolumeRequest) -> bool {
        request.metadata.uid == self.uid
    }
}

/// Decides about an existing request of the same name.
fn plan(there: &VolumeRequest, wanted: &VolumeRequestSpec) -> RequestStep {
    let phase = there.status.as_ref().map(|status| status.phase);
    let same_node = there.spec.node_name == wanted.node_name;
    match (&there.spec.operation, &wanted.operation) {
        _ if there.metadata.deletion_timestamp.is_some() => RequestStep::Wait,
        // It exists, and the NodeStorage of its node will show that: a second one must not be
        // created on another node.
        (Operation::Create(_) | Operation::Restore(_), _)
            if there.has_ended() && phase == Some(Phase::Succeeded) && !same_node =>
        {
            RequestStep::Wait
        }
        // Nothing but the sizes of an expansion can change.
        (Operation::Expand(before), Operation::Expand(now))
            if same_node && before.volume_mode == now.volume_mode && before != now =>
        {
            RequestStep::Renew
        }
        // What it permits stands until it is deleted; a node plugin that was restarted has another key.
        (Operation::Send(before), Operation::Send(now))
            if same_node
                && there.spec.volume_handle == wanted.volume_handle
                && before.snapshot_handle == now.snapshot_handle =>
        {
            let has_failed = there.has_ended() && phase == Some(Phase::Failed);
            match before == now {
                true if has_failed => RequestStep::Replace,
                true => RequestStep::Join,
                false => RequestStep::Renew,
            }
        }
        _ if there.has_ended() => RequestStep::Replace,
        // Where the content comes from may have changed since; it is running all the same.
        (Operation::Restore(before), Operation::Restore(now))
            if same_node && (&before.volume, &before.source) == (&now.volume, &now.source) =>
        {
            RequestStep::Join
        }
        _ if there.spec == *wanted => RequestStep::Join,
        _ => RequestStep::Wait,
    }
}

fn not_taken_up(node: &str) -> VolumeError {
    VolumeError::Unavailable {
        reason: format!(
            "the node plugin of node {node} has not started the operation within {} s; see `kubectl get pods \
             --all-namespaces --field-selector spec.nodeName={node}` and the node itself",
            TAKE_UP.as_secs()
        ),
    }
}

fn in_the_way(there: &VolumeRequest) -> VolumeError {
    let VolumeRequestSpec { node_name: node, volume_handle: volume, operation: work } = &there.spec;
    VolumeError::InProgress {
        what: format!("{} volume {volume} on node {node}, as requested before,", verb(work)),
        progress: "and this request differs".to_owned(),
    }
}

/// A volume is made on one node at a time, so its node is no part of the name.
fn name_of_create(key: &VolumeKey) -> String {
    create_of(key.as_str())
}

/// Returns the name of the request that creates the volume of a key.
pub(super) fn create_of(key: &str) -> String {
    format!("create-{key}")
}

/// Returns the name of the request that permits to read what a volume begins with: one node sends it at a time.
pub(super) fn name_of_send(key: &str) -> String {
    format!("send-{key}")
}

/// Returns the key in a volume handle, which follows its hyphen.
pub(super) fn key_of(handle: &str) -> &str {
    handle.rsplit('-').next().unwrap_or(handle)
}

/// Returns true if a request has ended and its node may have the volume since.
pub fn may_have_made(request: &VolumeRequest) -> bool {
    // These are reported before anything is created.
    const NOTHING_MADE: [Reason; 4] = [
        Reason::InvalidArgument,
        Reason::SizeOutOfRange,
        Reason::InsufficientCapacity,
        Reason::TopologyMismatch,
    ];
    let failure = request.status.as_ref().and_then(|status| status.error.as_ref());
    let made_nothing =
        failure.is_some_and(|why| NOTHING_MADE.contains(&VolumeError::from(why).reason()));
    request.spec.operation.creates().is_some() && request.has_ended() && !made_nothing
}

/// Returns the name of the request for an operation.
fn name_of(work: &Operation, id: &VolumeId) -> String {
    match work {
        Operation::Create(_) | Operation::Restore(_) => name_of_create(id.key()),
        Operation::Expand(_) => format!("expand-{id}"),
        Operation::Shrink(_) => format!("shrink-{id}"),
        Operation::Unpin(_) => format!("unpin-{id}"),
        Operation::Delete(_) => format!("delete-{id}"),
        Operation::Fence(_) => format!("fence-{id}"),
        Operation::Inspect(_) => format!("inspect-{id}"),
        // A name is that of one snapshot, whichever its volume.
        Operation::Snapshot(take) => format!("snapshot-{}", VolumeKey::of(&take.name).as_str()),
        Operation::DeleteSnapshot(delete) => format!("delete-snapshot-{}", delete.snapshot_handle),
        Operation::Send(send) => name_of_send(key_of(&send.target_handle)),
        Operation::Unknown => format!("unknown-{id}"), // It is never asked for.
    }
}

fn verb(work: &Operation) -> &'static str {
    match work {
        Operation::Create(_) => "creating",
        Operation::Restore(_) => "restoring",
        Operation::Expand(_) => "expanding",
        Operation::Shrink(_) => "shrinking",
        Operation::Unpin(_) => "unpinning",
        Operation::Delete(_) => "deleting",
        Operation::Fence(_) => "fencing",
        Operation::Inspect(_) => "inspecting",
        Operation::Snapshot(_) => "taking a snapshot of",
        Operation::DeleteSnapshot(_) => "deleting a snapshot of",
        Operation::Send(_) => "sending",
        Operation::Unknown => "working on",
    }
}

/// Converts an error of the API server, or of the way to it.
pub(super) fn not_asked(what: &str, error: &kube::Error) -> VolumeError {
    let message = format!("failed to {what} through the API server: {error}");
    let reason = match error {
        kube::Error::Api(status) if status.is_invalid() => Reason::Failed,
        _ => Reason::Unavailable,
    };
    VolumeError::Reported { reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Delete, Expand, Quantity};
    use crate::bytes::Bytes;

    fn spec(node: &str, work: Operation) -> VolumeRequestSpec {
        VolumeRequestSpec {
            node_name: node.to_owned(),
            volume_handle: "v".to_owned(),
            operation: work,
        }
    }

    fn grow(gib: u64) -> Operation {
        Operation::Expand(Expand {
            min_size: Quantity(Bytes::gib(gib)),
            max_size: None,
            volume_mode: None,
        })
    }

    fn grow_block(gib: u64) -> Operation {
        Operation::Expand(Expand {
            min_size: Quantity(Bytes::gib(gib)),
            max_size: None,
            volume_mode: Some(crate::api::VolumeMode::Block),
        })
    }

    fn new_work(name: &str) -> Operation {
        crate::cluster::convert::create(&crate::volume::NewVolume {
            name: name.to_owned(),
            size: crate::volume::RequestedSize { at_least: Bytes::gib(1), at_most: None },
            mode: crate::volume::Mode::Block,
            class: crate::volume::Class::default(),
            nodes: Vec::new(),
            source: None,
        })
    }

    /// A permit for the key of a node plugin to read the volume, or a snapshot of it.
    fn send(key: &str, snapshot: Option<&str>) -> Operation {
        Operation::Send(Box::new(crate::api::SendContent {
            snapshot_handle: snapshot.map(str::to_owned),
            target_handle: format!("{}-{}", "a".repeat(8), "b".repeat(26)),
            certificate_fingerprint: key.to_owned(),
            volume_mode: crate::api::VolumeMode::Block,
            fs_type: None,
        }))
    }

    /// A volume with content of another node, whose node plugin has this address.
    fn restore(address: &str) -> Operation {
        let Operation::Create(volume) = new_work("x") else { panic!("no creation") };
        let source = crate::api::ContentSource {
            snapshot_handle: None,
            volume_handle: Some("v".to_owned()),
        };
        let endpoint = crate::api::TransferEndpoint {
            address: address.to_owned(),
            certificate_fingerprint: "k".to_owned(),
        };
        let content = crate::api::ContentStatus { size: Quantity(Bytes::gib(1)), empty: false };
        let from = Some(crate::api::ContentPeer { endpoint, content });
        Operation::Restore(Box::new(crate::api::Restore { volume, source, from }))
    }

    fn there(work: Operation, phase: Phase, observed: i64) -> VolumeRequest {
        let mut request = VolumeRequest::new("r", spec("a", work));
        request.metadata.generation = Some(2);
        let observed_generation = observed;
        request.status =
            Some(VolumeRequestStatus { observed_generation, phase, ..Default::default() });
        request
    }

    #[test]
    fn work_under_way_is_joined_and_what_has_ended_is_replaced() {
        let remove = || Operation::Delete(Delete {});
        let create = || new_work("x");
        for (there, wanted, step) in [
            (there(remove(), Phase::Running, 2), spec("a", remove()), RequestStep::Join),
            (there(remove(), Phase::Pending, 0), spec("a", remove()), RequestStep::Join),
            (there(remove(), Phase::Succeeded, 2), spec("a", remove()), RequestStep::Replace),
            (there(remove(), Phase::Failed, 2), spec("b", remove()), RequestStep::Replace),
            (there(remove(), Phase::Running, 2), spec("b", remove()), RequestStep::Wait),
            (there(create(), Phase::Running, 2), spec("b", create()), RequestStep::Wait),
            (there(create(), Phase::Failed, 2), spec("b", create()), RequestStep::Replace),
            (there(create(), Phase::Succeeded, 2), spec("b", create()), RequestStep::Wait),
            (there(create(), Phase::Succeeded, 2), spec("a", create()), RequestStep::Replace),
            (there(grow(2), Phase::Running, 2), spec("a", grow(3)), RequestStep::Renew),
            (there(grow(3), Phase::Running, 2), spec("a", grow(2)), RequestStep::Renew),
            (there(grow(2), Phase::Running, 2), spec("b", grow(3)), RequestStep::Wait),
            // Ended for the wish before: the newer one is still to be done.
            (there(grow(3), Phase::Succeeded, 1), spec("a", grow(3)), RequestStep::Join),
            (there(grow(2), Phase::Failed, 2), spec("a", grow(3)), RequestStep::Renew),
            (there(grow(2), Phase::Resized, 2), spec("a", grow(3)), RequestStep::Renew),
            // Nothing of it changes, so that nobody would do it again.
            (there(grow(2), Phase::Failed, 2), spec("a", grow(2)), RequestStep::Replace),
            (there(grow(2), Phase::Failed, 2), spec("b", grow(3)), RequestStep::Replace),
            (there(grow(2), Phase::Running, 2), spec("a", grow_block(3)), RequestStep::Wait),
            (there(grow(2), Phase::Failed, 2), spec("a", grow_block(3)), RequestStep::Replace),
        ] {
            assert_eq!(plan(&there, &wanted), step, "{there:?}");
        }
    }

    /// What is sent stays permitted, and is for one key; what is restored runs, wherever its content came from.
    #[test]
    fn a_send_is_renewed_for_another_key_and_a_restore_is_joined() {
        let create = || new_work("x");
        for (there, wanted, step) in [
            (
                there(send("k", None), Phase::Succeeded, 2),
                spec("a", send("k", None)),
                RequestStep::Join,
            ),
            (
                there(send("k", None), Phase::Running, 2),
                spec("a", send("k", None)),
                RequestStep::Join,
            ),
            (
                there(send("k", None), Phase::Failed, 2),
                spec("a", send("k", None)),
                RequestStep::Replace,
            ),
            (
                there(send("k", None), Phase::Succeeded, 2),
                spec("a", send("l", None)),
                RequestStep::Renew,
            ),
            (
                there(send("k", None), Phase::Running, 2),
                spec("a", send("l", Some("s"))),
                RequestStep::Wait,
            ),
            (
                there(send("k", None), Phase::Succeeded, 2),
                spec("a", send("k", Some("s"))),
                RequestStep::Replace,
            ),
            (
                there(send("k", None), Phase::Running, 2),
                spec("b", send("k", None)),
                RequestStep::Wait,
            ),
            // It runs all the same.
            (there(restore("x"), Phase::Running, 2), spec("a", restore("y")), RequestStep::Join),
            (there(restore("x"), Phase::Failed, 2), spec("a", restore("y")), RequestStep::Replace),
            (there(restore("x"), Phase::Running, 2), spec("b", restore("x")), RequestStep::Wait),
            (there(restore("x"), Phase::Succeeded, 2), spec("b", restore("x")), RequestStep::Wait),
            (there(create(), Phase::Running, 2), spec("a", restore("x")), RequestStep::Wait),
        ] {
            assert_eq!(plan(&there, &wanted), step, "{there:?}");
        }
    }

    #[test]
    fn a_request_to_make_a_volume_may_have_made_it_unless_it_was_refused_before() {
        let ended = |reason: Option<Reason>| {
            let phase = if reason.is_some() { Phase::Failed } else { Phase::Succeeded };
            let mut request = there(new_work("x"), phase, 2);
            let failure = reason.map(|reason| crate::api::Failure {
                reason: reason.to_string(),
                message: "no".to_owned(),
            });
            request.status.as_mut().unwrap().error = failure;
            may_have_made(&request)
        };
        assert!(ended(None) && ended(Some(Reason::Failed)) && ended(Some(Reason::Unavailable)));
        assert!(
            !ended(Some(Reason::InsufficientCapacity)) && !ended(Some(Reason::TopologyMismatch))
        );
        assert!(!may_have_made(&there(new_work("x"), Phase::Running, 2)));
        assert!(!may_have_made(&there(Operation::Delete(Delete {}), Phase::Succeeded, 2)));
    }

    #[test]
    fn names_are_those_of_records_in_kubernetes() {
        let id: VolumeId = format!("{}-{}", "a".repeat(8), "b".repeat(26)).parse().unwrap();
        assert_eq!(name_of(&grow(1), &id), format!("expand-{id}"));
        assert_eq!(name_of(&new_work("x"), &id), format!("create-{}", "b".repeat(26)));
        assert_eq!(name_of(&restore("x"), &id), format!("create-{}", "b".repeat(26)));
        // That of the volume that receives, which is on another node.
        let source: VolumeId = format!("{}-{}", "c".repeat(8), "d".repeat(26)).parse().unwrap();
        assert_eq!(name_of(&send("k", None), &source), format!("send-{}", "b".repeat(26)));
    }
}
