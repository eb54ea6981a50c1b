//! Storage of the nodes, from the NodeStorages of their node plugins.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::api::{NodeStorage, NodeStorageStatus, PoolOnNode, TransferEndpoint, VolumeOnNode};
use crate::bytes::Bytes;
use crate::cluster::placement::{NodeCandidate, place};
use crate::cluster::{Watched, convert, every};
use crate::volume::{
    Capacity, CapacityQuery, Class, Fence, Layout, Mode, NewVolume, NodeKey, Page, Reason,
    SnapshotId, Source, Use, Volume, VolumeError, VolumeId, VolumeStatus, few,
};

/// The numbers that fences of volumes have: one a swap.
const FENCES: RangeInclusive<i64> = 1..=1 << 40;

/// Storage of the nodes.
#[derive(Debug)]
pub struct Nodes {
    watched: Watched<NodeStorage>,
}

impl Nodes {
    /// Starts to watch the NodeStorages, until `stop`.
    pub fn watch(client: &Client, stop: &CancellationToken) -> Self {
        let api = Api::all(client.clone());
        Nodes { watched: Watched::start_keyed(api, every(), stop, believe, keys) }
    }

    /// Returns the ids of the volumes that only a copy may read, or whose size is limited.
    pub fn restricted(&self) -> BTreeSet<String> {
        let nodes = self.watched.with_key(RESTRICTED);
        let volumes = nodes.iter().filter_map(|node| node.status.as_ref());
        let volumes = volumes.flat_map(|status| &status.volumes);
        volumes
            .filter(|volume| is_restricted(volume))
            .map(|volume| volume.volume_handle.clone())
            .collect()
    }

    /// Returns true if there are restricted volumes.
    pub fn has_restricted(&self) -> bool {
        self.watched.has_key(RESTRICTED)
    }

    /// Returns true if a volume is restricted.
    pub fn tells_restricted(&self, volume: &str) -> bool {
        self.watched.has_key(&restricted(volume))
    }

    /// Waits until all are known.
    pub async fn known(&self) {
        self.watched.known().await;
    }

    /// Returns all NodeStorages, by name.
    pub fn all(&self) -> Vec<Arc<NodeStorage>> {
        let mut all = self.watched.all();
        all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        all
    }

    /// Returns the watch of the NodeStorages.
    pub fn watched(&self) -> &Watched<NodeStorage> {
        &self.watched
    }

    /// Checks now and after each change, until there is a result.
    pub async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        self.watched.until(|_| look()).await
    }

    /// Chooses the node of a volume: the one that has it, else the best for a new one.
    ///
    /// A NodeStorage that leaves out unnamed volumes may have any of them. It is trusted only for the name that the
    /// node was asked to create, `made_on` it: with the token of a node plugin any number can be written there,
    /// which must not block the volumes of other nodes.
    ///
    /// # Errors
    /// [`VolumeError::AlreadyExists`] if it was created on a node that is not allowed now, [`Reason::TopologyMismatch`] if no
    /// allowed node has the pool, [`VolumeError::Unavailable`] if no node plugin has ever reported an allowed node.
    pub(super) fn place(
        &self,
        want: &NewVolume,
        made_on: Option<&str>,
    ) -> Result<String, VolumeError> {
        let all = self.all();
        let may_hide_it =
            |node: &&str| self.may_leave_unnamed(&VolumeId::new(NodeKey::of(node), want.key()));
        let hider = || made_on.filter(may_hide_it).map(str::to_owned);
        // After its creation another node has more free space: the repeated call must not go there.
        if let Some(holder) = holder(&all, want).or_else(hider) {
            let allowed = want.nodes.is_empty() || want.nodes.contains(&holder);
            return if allowed { Ok(holder) } else { Err(made_elsewhere(want, &holder)) };
        }
        let home = want.source.as_ref().map(|source| self.home_of(source)).transpose()?;
        let known: Vec<(&str, &NodeStorageStatus)> =
            all.iter().filter_map(|node| Some((name(node), node.status.as_ref()?))).collect();
        let with_pool = known.iter().filter_map(|(node, status)| {
            let pool = pool_of(status, &want.class)?;
            Some((NodeCandidate { node, largest: largest(pool, want.class.layout) }, *status))
        });
        let Some(home) = &home else {
            let candidates: Vec<NodeCandidate> =
                with_pool.map(|(candidate, _)| candidate).collect();
            let chosen = place(&candidates, &want.nodes, want.size.at_least).map(str::to_owned);
            return chosen.ok_or_else(|| nowhere(want, &known, &candidates));
        };
        let transfers =
            |status: &NodeStorageStatus| status.transfers.is_some() && home.transfers.is_some();
        let candidates: Vec<NodeCandidate> = with_pool
            .filter(|(candidate, status)| candidate.node == home.node || transfers(status))
            .map(|(candidate, _)| candidate)
            .collect();
        let is_allowed = want.nodes.is_empty() || want.nodes.contains(&home.node);
        // Beside its source it needs no network.
        let mut roomy = candidates.iter().filter(|one| one.largest >= want.size.at_least);
        if is_allowed && roomy.any(|one| one.node == home.node) {
            return Ok(home.node.clone());
        }
        let chosen = place(&candidates, &want.nodes, want.size.at_least).map(str::to_owned);
        // Its own answer has the present numbers.
        let chosen = chosen.or_else(|| is_allowed.then(|| home.node.clone()));
        chosen.ok_or_else(|| unreachable(want, home))
    }

    /// The node of the source of a volume.
    ///
    /// # Errors
    /// [`VolumeError::Failed`] if no node plugin has reported it. Nothing is made, so the claim is not held to its node.
    fn home_of(&self, source: &Source) -> Result<Home, VolumeError> {
        let node = self.of(source.volume());
        let node = node.map_err(|error| VolumeError::Failed { what: error.to_string() })?;
        let record = self.record_of(source.volume());
        let transfers = record
            .and_then(|record| record.status.as_ref().and_then(|told| told.transfers.clone()));
        Ok(Home { node, source: source.to_string(), transfers })
    }

    /// How other nodes read volumes of a node.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if its node plugin has not reported it.
    pub(super) fn transfers_of(&self, node: &str) -> Result<TransferEndpoint, VolumeError> {
        let record = self.watched.get(node);
        let told = record.and_then(|record| record.status.as_ref()?.transfers.clone());
        told.ok_or_else(|| VolumeError::Unavailable {
            reason: format!(
                "the node plugin of node {node} does not report how volumes are transferred"
            ),
        })
    }

    /// Returns true if a node may have a volume that its NodeStorage neither lists nor names as unlisted.
    pub fn may_leave_unnamed(&self, id: &VolumeId) -> bool {
        let record = self.record_of(id);
        let status = record.as_ref().and_then(|record| record.status.as_ref());
        status.is_some_and(|status| {
            let text = id.to_string();
            let lists_it = || status.volumes.iter().any(|one| one.volume_handle == text);
            status.leaves_unnamed() && !status.names_unlisted(id.key().as_str()) && !lists_it()
        })
    }

    /// Returns true if a node may have volumes that its NodeStorage neither lists nor names.
    pub fn has_unnamed(&self) -> bool {
        self.watched.has_key(UNNAMED)
    }

    /// Returns true if a node may have a volume that its NodeStorage does not list because of its size
    /// limit.
    pub(super) fn may_be_unlisted(&self, id: &VolumeId) -> bool {
        let record = self.record_of(id);
        let status = record.as_ref().and_then(|record| record.status.as_ref());
        status.is_some_and(|status| {
            status.names_unlisted(id.key().as_str()) || status.leaves_unnamed()
        })
    }

    /// Returns the name of the node with this node hash in the volume id.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if no node plugin has reported it: the volume may exist.
    pub(super) fn of(&self, id: &VolumeId) -> Result<String, VolumeError> {
        let node = self.record_of(id).and_then(|node| node.metadata.name.clone());
        node.ok_or_else(|| VolumeError::Unavailable {
            reason: format!(
                "no NodeStorage has node hash {}; see `kubectl get nodestorages`: if the node is gone for \
                 good, so is the volume, and you can delete its PersistentVolume",
                id.node().as_str()
            ),
        })
    }

    /// Returns the node of a volume, and the largest volume that fits next to it; `None` without a pool
    /// for it. `None` too for a node that reports no pools.
    pub fn beside(&self, id: &VolumeId, query: &CapacityQuery) -> Option<(String, Option<Bytes>)> {
        let node = self.record_of(id)?;
        let status = node.status.as_ref().filter(|status| !status.pools.is_empty())?;
        let largest = capacity_on(status, query).map(|capacity| capacity.largest);
        Some((name(&node).to_owned(), largest))
    }

    /// Returns the nodes with a pool for such volumes, and the largest volume that fits on each; the node
    /// with the most free space first.
    pub fn with_room(&self, query: &CapacityQuery) -> Vec<(String, Bytes)> {
        let all = self.watched.all();
        let of = |node: &NodeStorage| {
            let capacity = capacity_on(node.status.as_ref()?, query)?;
            Some((name(node).to_owned(), capacity.largest))
        };
        let mut nodes: Vec<(String, Bytes)> = all.iter().filter_map(|node| of(node)).collect();
        nodes.sort_by(|(one, room), (other, more)| (more, one).cmp(&(room, other)));
        nodes
    }

    /// Returns the NodeStorage of the node of a volume.
    pub fn record_of(&self, id: &VolumeId) -> Option<Arc<NodeStorage>> {
        self.record_by(id.node())
    }

    /// Returns the NodeStorage with this node hash.
    pub fn record_by(&self, node: &NodeKey) -> Option<Arc<NodeStorage>> {
        self.watched.with_key(&format!("node {}", node.as_str())).into_iter().next()
    }

    /// Finds a volume in the NodeStorage of its node.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if it is not among the volumes of its node and that could not read
    /// all of them.
    pub(super) fn find(&self, id: &VolumeId) -> Result<Option<VolumeStatus>, VolumeError> {
        let node = self.of(id)?;
        let Some(record) = self.record_of(id) else { return Ok(None) };
        let status = record.status.clone().unwrap_or_default();
        let found = status.volumes.iter().find(|one| one.volume_handle == id.to_string());
        match (found, status.inventory_gap()) {
            (Some(volume), _) => convert::volume_status(&node, volume).map(Some),
            (None, Some(reason)) => Err(VolumeError::Unavailable { reason: reason.to_owned() }),
            (None, None) => Ok(None),
        }
    }

    /// Rejects a list that would lack volumes: a reader could take a missing volume for deleted.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if a NodeStorage leaves out requested volumes.
    pub(super) fn refuse_if_short(&self, page: &Page) -> Result<(), VolumeError> {
        let all = self.all();
        let why = |node: &Arc<NodeStorage>| why_short(node, page.only_ailing);
        let mut short = all.iter().filter_map(why);
        let Some(first) = short.next() else { return Ok(()) };
        let reason = match short.count() {
            0 => format!("the list would lack volumes: {first}"),
            others => format!("the list would lack volumes of {} nodes: {first}", others + 1),
        };
        Err(VolumeError::Unavailable { reason })
    }

    /// Returns all reported volumes in the order of their ids.
    pub(super) fn volumes(&self) -> Vec<VolumeStatus> {
        let mut volumes: Vec<VolumeStatus> = Vec::new();
        for node in self.watched.all() {
            let told = node.status.iter().flat_map(|status| &status.volumes);
            volumes.extend(told.filter_map(|one| convert::volume_status(name(&node), one).ok()));
        }
        volumes.sort_by(|a, b| a.volume.id.cmp(&b.volume.id));
        volumes
    }

    /// Waits until the node of a volume reports it; `None` if its NodeStorage leaves out volumes, so that the node
    /// must be asked.
    pub(super) async fn until_told(&self, id: &VolumeId) -> Option<Volume> {
        let told = || match self.find(id) {
            Ok(Some(found)) => Some(Some(found.volume)),
            _ => self.may_be_unlisted(id).then_some(None),
        };
        self.watched.until(|_| told()).await
    }

    /// Waits until the node of a volume no longer reports it.
    ///
    /// A node that could not read all of its volumes counts too: it has deleted this one.
    pub(super) async fn until_gone(&self, id: &VolumeId) {
        let text = id.to_string();
        let is_told = || {
            let status = self.record_of(id)?.status.clone()?;
            status.volumes.iter().any(|one| one.volume_handle == text).then_some(())
        };
        self.watched.until(|_| is_told().is_none().then_some(())).await;
    }

    /// Returns the remaining capacity of one node or of all.
    pub(super) fn capacity(&self, query: &CapacityQuery) -> Capacity {
        let asked = |node: &str| query.node.as_ref().is_none_or(|asked| asked == node);
        let all = self.watched.all();
        let each = all.iter().filter(|node| asked(name(node)));
        let each = each.filter_map(|node| capacity_on(node.status.as_ref()?, query));
        each.reduce(|sum, one| Capacity {
            free: (sum.free + one.free).min(Bytes::MAX),
            largest: sum.largest.max(one.largest),
            smallest: sum.smallest.min(one.smallest),
        })
        .unwrap_or_default()
    }
}

/// The node of the source of a volume.
struct Home {
    node: String,
    source: String,
    /// How other nodes read it.
    transfers: Option<TransferEndpoint>,
}

/// Returns why a volume cannot have the content of its source on any allowed node.
fn unreachable(want: &NewVolume, home: &Home) -> VolumeError {
    let (source, node) = (&home.source, &home.node);
    let message = format!(
        "{source} is on node {node}, and the volume may be on {} only. That node has no pool for it, or a node plugin has \
         no --transfer-ip",
        few(&want.nodes)
    );
    VolumeError::Reported { reason: Reason::TopologyMismatch, message }
}

/// Key of the nodes with a restricted volume.
const RESTRICTED: &str = "restricted";

/// Key of the nodes whose NodeStorages leave out unnamed volumes.
const UNNAMED: &str = "unnamed";

/// Key of the node with this restricted volume.
fn restricted(volume: &str) -> String {
    format!("restricted {volume}")
}

fn keys(record: &NodeStorage) -> Vec<String> {
    let mut keys = vec![format!("node {}", key(record).as_str())];
    let volumes = record.status.iter().flat_map(|status| &status.volumes);
    let ids = volumes
        .filter(|volume| is_restricted(volume))
        .map(|volume| restricted(&volume.volume_handle));
    keys.extend(ids);
    if keys.len() > 1 {
        keys.push(RESTRICTED.to_owned());
    }
    if leaves_unnamed(record) {
        keys.push(UNNAMED.to_owned());
    }
    keys
}

/// Returns true if a NodeStorage leaves out unnamed volumes.
pub fn leaves_unnamed(record: &NodeStorage) -> bool {
    record.status.as_ref().is_some_and(NodeStorageStatus::leaves_unnamed)
}

/// Returns true if only a copy may read a volume, or its size is limited.
pub fn is_restricted(volume: &VolumeOnNode) -> bool {
    volume.max_size.is_some() || is_being_copied(volume)
}

/// Returns true if only a copy may read a volume.
pub fn is_being_copied(volume: &VolumeOnNode) -> bool {
    volume.fence.as_ref().is_some_and(|fence| Fence::from(fence).lets() == Use::Read)
}

/// Reduces the NodeStorage of a node to what that node can know: its own volumes, their usage, and their
/// operations. All reads of nodes come through here: with the token of a node plugin anything can be written into
/// its NodeStorage, which must not expand, shrink or hide a volume of another node. A fence number that no swap
/// reaches is left out too: the next one must be higher, and is planned together with those of volumes on other
/// nodes.
pub fn believe(record: &mut NodeStorage) {
    let node = key(record);
    let is_own = |id: &str| id.parse::<VolumeId>().is_ok_and(|id| *id.node() == node);
    let Some(status) = &mut record.status else { return };
    let told = status.volumes.len();
    status.volumes.retain(|one| is_own(&one.volume_handle));
    // The NodeStorage does not leave these out.
    let foreign = i32::try_from(told - status.volumes.len()).unwrap_or(i32::MAX);
    status.volume_count = status.volume_count.saturating_sub(foreign);
    for one in &mut status.volumes {
        one.fence.take_if(|fence| !FENCES.contains(&fence.generation));
    }
    let told = status.snapshots.len();
    let is_snapshot =
        |id: &str| id.parse::<SnapshotId>().is_ok_and(|id| *id.source().node() == node);
    status.snapshots.retain(|one| is_snapshot(&one.snapshot_handle));
    let foreign = i32::try_from(told - status.snapshots.len()).unwrap_or(i32::MAX);
    status.snapshot_count = status.snapshot_count.saturating_sub(foreign);
    status.usage.retain(|one| is_own(&one.volume_handle));
    status.operations.retain(|one| is_own(&one.volume_handle));
}

/// Returns the entry of a volume in the NodeStorages.
pub fn told_of<'a>(
    nodes: impl IntoIterator<Item = &'a NodeStorage>,
    id: &VolumeId,
) -> Option<&'a VolumeOnNode> {
    let node = nodes.into_iter().find(|node| is_on(node, id))?;
    let id = id.to_string();
    node.status.as_ref()?.volumes.iter().find(|one| one.volume_handle == id)
}

/// Returns true if a volume belongs to the node of a NodeStorage, by its name.
///
/// A node plugin writes the node hash into its NodeStorage itself, so its token could be used to
/// write that of another node; the name is fixed.
pub fn is_on(record: &NodeStorage, id: &VolumeId) -> bool {
    key(record) == *id.node()
}

/// Returns the node hash of a NodeStorage, by its name: see [`is_on`].
pub fn key(record: &NodeStorage) -> NodeKey {
    NodeKey::of(name(record))
}

/// Returns the node with the volume of this name. If several report it, an allowed one is preferred: the
/// NodeStorage of another node must not take the volume from it.
fn holder(nodes: &[Arc<NodeStorage>], want: &NewVolume) -> Option<String> {
    let key = want.key();
    let has_it = |node: &&Arc<NodeStorage>| {
        let id = VolumeId::new(NodeKey::of(name(node)), key.clone()).to_string();
        node.status.as_ref().is_some_and(|status| {
            status.volumes.iter().any(|one| one.volume_handle == id)
                || status.names_unlisted(key.as_str())
        })
    };
    let holders: Vec<&str> = nodes.iter().filter(has_it).map(|node| name(node)).collect();
    let allowed = holders.iter().find(|holder| want.nodes.iter().any(|node| node == *holder));
    allowed.or(holders.first()).map(|holder| (*holder).to_owned())
}

fn made_elsewhere(want: &NewVolume, holder: &str) -> VolumeError {
    VolumeError::AlreadyExists {
        name: want.name.clone(),
        difference: format!("it is on node {holder}, but may be on {} only", few(&want.nodes)),
    }
}

/// Returns why a NodeStorage lacks volumes, of the unhealthy ones or of all; `None` if it does not.
fn why_short(node: &NodeStorage, only_ailing: bool) -> Option<String> {
    let (name, status) = (name(node), node.status.as_ref()?);
    let is_short = status.left_out() > 0 && !(only_ailing && status.lists_all_that_ail());
    is_short.then(|| {
        format!(
            "node {name} has {} volumes, but lists only {}; see `kubectl get nodestorage {name} --output yaml`",
            status.volume_count,
            status.volumes.len()
        )
    })
}

pub(super) fn name(node: &NodeStorage) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The pool of a node that a volume of this class is made in; `None` if it has none of them.
pub fn pool_of<'a>(status: &'a NodeStorageStatus, class: &Class) -> Option<&'a PoolOnNode> {
    // One that no StoragePool names takes no new volumes.
    let mut configured = status.pools.iter().filter(|pool| pool.configured);
    match &class.pool {
        Some(name) => configured.find(|pool| pool.name == name.as_str()),
        None => configured.find(|pool| pool.default),
    }
}

/// Description of the pool of a node for classes that name none.
pub const DEFAULT_POOL: &str =
    "the one named default, else the oldest, of those that have a volume group there";

/// Returns the largest volume that fits into a pool now.
pub fn largest(pool: &PoolOnNode, layout: Layout) -> Bytes {
    let room = pool.maximum_volume_size.iter().find(|room| room.layout == layout.as_str());
    room.map_or(Bytes::ZERO, |room| room.size.0)
}

/// Returns the remaining capacity of a node; `None` if it does not have the pool.
pub(super) fn capacity_on(status: &NodeStorageStatus, query: &CapacityQuery) -> Option<Capacity> {
    let pool = pool_of(status, &query.class)?;
    let needed = match query.mode {
        Some(Mode::Filesystem(kind)) => kind.smallest(),
        Some(Mode::Block) | None => Bytes::new(1),
    };
    let extent = pool.extent_size.0;
    let smallest = if extent == Bytes::ZERO {
        Bytes::ZERO
    } else {
        Bytes::new(needed.div_ceil(extent) * extent.get())
    };
    let largest = largest(pool, query.class.layout);
    let largest = if largest < smallest { Bytes::ZERO } else { largest };
    Some(Capacity { free: pool.available.0, largest, smallest })
}

/// Returns why a volume cannot be created on any allowed node.
fn nowhere(
    want: &NewVolume,
    known: &[(&str, &NodeStorageStatus)],
    candidates: &[NodeCandidate],
) -> VolumeError {
    let asked = &want.nodes;
    if !asked.is_empty() && !known.iter().any(|(node, _)| asked.iter().any(|one| one == node)) {
        let reason = format!(
            "no node plugin has reported node {}; see `kubectl get nodestorages` and the pods of pliant-node",
            few(asked)
        );
        return VolumeError::Unavailable { reason };
    }
    let pool = match &want.class.pool {
        Some(pool) => format!("pool {pool}, which the volume requests"),
        None => "a pool".to_owned(),
    };
    let message = match (asked.as_slice(), candidates) {
        ([], _) => format!("no node has {pool}; see `kubectl get storagepools`"),
        (asked, []) => format!(
            "no node has {pool}, neither {} nor any other; see `kubectl get storagepools`",
            few(asked)
        ),
        (asked, others) => {
            let others = few(others.iter().map(|candidate| candidate.node));
            format!("no node of {} has {pool}; it is on {others}", few(asked))
        }
    };
    VolumeError::Reported { reason: Reason::TopologyMismatch, message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::VolumeSeen;
    use crate::volume::VolumeKey;

    #[test]
    fn a_class_takes_the_pool_that_it_names_else_the_one_that_the_node_says() {
        let pool = |name: &str, configured: bool, default: bool| {
            json!({"name": name, "configured": configured, "default": default, "capacity": "1Gi",
                   "available": "1Gi", "volumeCount": 0, "health": "Healthy"})
        };
        let chosen = |named: Option<&str>, pools: &serde_json::Value| {
            let class = Class { pool: named.map(|name| name.parse().unwrap()), ..Class::default() };
            let status = serde_json::from_value(json!({ "pools": pools })).unwrap();
            pool_of(&status, &class).map(|pool| pool.name.clone())
        };
        let two = json!([pool("a", true, false), pool("b", true, true)]);
        assert_eq!(chosen(Some("a"), &two).as_deref(), Some("a"));
        assert_eq!(chosen(Some("c"), &two), None);
        assert_eq!(chosen(None, &two).as_deref(), Some("b"));
        let left = json!([pool("a", false, false)]);
        assert_eq!((chosen(Some("a"), &left), chosen(None, &left)), (None, None));
    }

    #[test]
    fn a_node_is_believed_about_its_own_volumes() {
        let id = |node: &str, name: &str| VolumeId::new(NodeKey::of(node), VolumeKey::of(name));
        let (own, foreign) = (id("beta", "own").to_string(), id("alpha", "foreign").to_string());
        let volume = |id: &str| {
            json!({"volumeHandle": id, "name": "n", "pool": "p", "size": "1Gi", "requestedSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4",
                   "state": "Ready"})
        };
        let usage = |id: &str| {
            json!({"volumeHandle": id, "observedTime": "2026-01-01T00:00:00Z", "capacity": "100", "used": "99",
                   "available": "1"})
        };
        let work = |id: &str| json!({"volumeHandle": id, "type": "Wipe", "progress": "half"});
        let all = [own.as_str(), foreign.as_str(), "nonsense"];
        let mut record: NodeStorage = serde_json::from_value(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": "beta"},
            // The key of another node changes nothing: the name decides.
            "spec": {"nodeHash": NodeKey::of("alpha").as_str()},
            "status": {"volumeCount": 4, "volumes": all.map(volume), "usage": all.map(usage),
                       "operations": all.map(work)},
        }))
        .unwrap();
        believe(&mut record);
        let status = record.status.unwrap();
        assert_eq!(status.left_out(), 1, "of four, of which two are not its own");
        let volumes: Vec<&str> =
            status.volumes.iter().map(|one| one.volume_handle.as_str()).collect();
        let usages: Vec<&str> = status.usage.iter().map(|one| one.volume_handle.as_str()).collect();
        let operations: Vec<&str> =
            status.operations.iter().map(|one| one.volume_handle.as_str()).collect();
        assert_eq!((volumes, usages, operations), (vec![&*own], vec![&*own], vec![&*own]));
    }
    /// The next number has to be higher, and is one of a PvcAutoscaler with claims on other nodes.
    #[test]
    fn a_number_of_a_fence_that_no_swap_comes_to_is_not_believed() {
        let id = VolumeId::new(NodeKey::of("beta"), VolumeKey::of("own"));
        let told = |generation: i64| {
            let fence = json!({"state": "Superseded", "generation": generation});
            let volume = json!({"volumeHandle": id.to_string(), "name": "n", "pool": "p", "size": "1Gi",
                                "requestedSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready", "fence": fence});
            let mut record: NodeStorage = serde_json::from_value(json!({
                "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": "beta"},
                "spec": {"nodeHash": NodeKey::of("beta").as_str()}, "status": {"volumes": [volume]},
            }))
            .unwrap();
            believe(&mut record);
            let told = told_of([&record], &id).unwrap();
            VolumeSeen::of(id.clone(), Some(told), None).next_generation(4)
        };
        assert_eq!([i64::MAX, 1 << 41, -1, i64::MIN].map(told), [5; 4]);
        assert_eq!([2, 7].map(told), [5, 8]);
    }
}
