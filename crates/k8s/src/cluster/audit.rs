//! Differences between the volumes of the nodes and their PersistentVolumes. Pure.
//!
//! Different programs create a volume and its PersistentVolume, one after the other, so every volume
//! differs for a moment. [`audit()`] leaves out operations in progress; a difference counts once it has
//! lasted for [`GRACE`], see [`Debounce`](crate::cluster::Debounce).

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::api::{Health, NodeStorage, NodeStorageStatus, Operation, VolumeRequest};
use crate::bytes::Bytes;
use crate::cluster::PvSummary;
use crate::cluster::nodes::key;
use crate::volume::{NodeKey, VolumeId};

/// Time after which a difference is reported. The provisioner writes a PersistentVolume seconds
/// after its volume is created, and minutes after if it was restarted between the two.
pub const GRACE: Duration = Duration::from_secs(300);

/// A volume or a PersistentVolume without the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnmatchedVolume {
    /// A node has a volume without a PersistentVolume: it cannot be used, and occupies space.
    VolumeWithoutPv {
        /// The node.
        node: String,
        /// Id of the volume.
        volume: String,
        /// The name that the provisioner gave.
        name: String,
        /// The pool.
        pool: String,
        /// Real size of the volume.
        size: Bytes,
    },
    /// A PersistentVolume names a volume that its node does not have: the data is missing.
    PvWithoutVolume {
        /// The node.
        node: String,
        /// Id of the volume.
        volume: String,
        /// Name of the PersistentVolume.
        pv: String,
    },
}

impl fmt::Display for UnmatchedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnmatchedVolume::VolumeWithoutPv { node, volume, name, pool, size } => write!(
                f,
                "volume {volume} ({name}) in pool {pool} of node {node} has no PersistentVolume, so it is \
                 unused and occupies {size}; to remove it or use it again, see OrphanedVolume in the \
                 documentation"
            ),
            UnmatchedVolume::PvWithoutVolume { node, volume, pv } => write!(
                f,
                "volume {volume} of PersistentVolume {pv} does not exist on node {node}, which could read all \
                 of its storage; if a disk was removed, put it back: `kubectl get nodestorage {node} --output \
                 yaml` lists what exists; otherwise restore the data from a backup"
            ),
        }
    }
}

/// Compares the volumes of the nodes with the PersistentVolumes of this driver, in the order of the
/// nodes.
///
/// A volume with a request to create or delete it, even a completed one, is left out. A
/// PersistentVolume lacks its volume only if its node could read all of its pools, and not while it is
/// being deleted itself.
pub fn audit<N, P, R>(nodes: &[N], pvs: &[P], requests: &[R]) -> Vec<UnmatchedVolume>
where
    N: Borrow<NodeStorage>,
    P: Borrow<PvSummary>,
    R: Borrow<VolumeRequest>,
{
    let changing = changing(requests);
    let named = VolumesByHandle::of(pvs);
    let told =
        nodes.iter().filter_map(|node| Some((node.borrow(), node.borrow().status.as_ref()?)));
    let mut found = Vec::new();
    for (node, status) in told {
        found.extend(without_pv(node, status, &named));
        found.extend(without_volume(node, status, &named));
    }
    found.retain(|one| !changing.contains(one.volume()));
    found.sort();
    found
}

impl UnmatchedVolume {
    /// The node.
    pub fn node(&self) -> &str {
        match self {
            UnmatchedVolume::VolumeWithoutPv { node, .. }
            | UnmatchedVolume::PvWithoutVolume { node, .. } => node,
        }
    }

    /// Id of the volume.
    pub fn volume(&self) -> &str {
        match self {
            UnmatchedVolume::VolumeWithoutPv { volume, .. }
            | UnmatchedVolume::PvWithoutVolume { volume, .. } => volume,
        }
    }
}

/// Returns the volumes with a request to create or delete them.
pub fn changing<R: Borrow<VolumeRequest>>(requests: &[R]) -> HashSet<&str> {
    requests.iter().filter_map(|one| changes(one.borrow())).collect()
}

/// The PersistentVolumes by the volume that they name. They are sorted once: there may be a hundred thousand,
/// and a thousand nodes that ask for theirs.
#[derive(Debug)]
pub struct VolumesByHandle<'a> {
    by_volume: HashMap<&'a str, &'a PvSummary>,
    by_node: HashMap<NodeKey, Vec<&'a str>>,
}

impl<'a> VolumesByHandle<'a> {
    /// Sorts the PersistentVolumes.
    pub fn of<P: Borrow<PvSummary>>(pvs: &'a [P]) -> VolumesByHandle<'a> {
        let named = pvs.iter().filter_map(|pv| Some((pv.borrow().handle()?, pv.borrow())));
        let by_volume: HashMap<&str, &PvSummary> = named.collect();
        let mut by_node: HashMap<NodeKey, Vec<&str>> = HashMap::new();
        for volume in by_volume.keys() {
            if let Ok(id) = volume.parse::<VolumeId>() {
                by_node.entry(id.node().clone()).or_default().push(volume);
            }
        }
        VolumesByHandle { by_volume, by_node }
    }

    /// Returns the PersistentVolume of a volume.
    pub fn get(&self, volume: &str) -> Option<&'a PvSummary> {
        self.by_volume.get(volume).copied()
    }

    /// Returns the PersistentVolumes of a node's volumes.
    fn on(&self, node: &NodeStorage) -> impl Iterator<Item = (&'a str, &'a PvSummary)> {
        let volumes = self.by_node.get(&key(node)).into_iter().flatten();
        volumes.filter_map(|volume| Some((*volume, self.get(volume)?)))
    }
}

/// The volume that a request lets come or go.
fn changes(request: &VolumeRequest) -> Option<&str> {
    match request.spec.operation {
        // What is not known may do either.
        Operation::Create(_)
        | Operation::Restore(_)
        | Operation::Delete(_)
        | Operation::Unknown => Some(&request.spec.volume_handle),
        Operation::Expand(_)
        | Operation::Shrink(_)
        | Operation::Unpin(_)
        | Operation::Fence(_)
        | Operation::Inspect(_)
        | Operation::Snapshot(_)
        | Operation::DeleteSnapshot(_)
        | Operation::Send(_) => None,
    }
}

fn without_pv(
    node: &NodeStorage,
    status: &NodeStorageStatus,
    named: &VolumesByHandle,
) -> Vec<UnmatchedVolume> {
    let leaked = status.volumes.iter().filter(|one| named.get(&one.volume_handle).is_none());
    let told = leaked.map(|one| UnmatchedVolume::VolumeWithoutPv {
        node: name(node),
        volume: one.volume_handle.clone(),
        name: one.name.clone(),
        pool: one.pool.clone(),
        size: one.size.0,
    });
    told.collect()
}

fn without_volume(
    node: &NodeStorage,
    status: &NodeStorageStatus,
    named: &VolumesByHandle,
) -> Vec<UnmatchedVolume> {
    if !is_complete(status) {
        return Vec::new();
    }
    let missing = not_listed(node, status, named).into_iter();
    let told = missing.map(|(id, pv)| UnmatchedVolume::PvWithoutVolume {
        node: name(node),
        volume: id.to_owned(),
        pv: pv.metadata.name.clone().unwrap_or_default(),
    });
    told.collect()
}

/// The PersistentVolumes of a node whose volume it does not list, save those that are being deleted.
pub fn not_listed<'a>(
    node: &NodeStorage,
    status: &NodeStorageStatus,
    named: &VolumesByHandle<'a>,
) -> Vec<(&'a str, &'a PvSummary)> {
    let listed: HashSet<&str> =
        status.volumes.iter().map(|one| one.volume_handle.as_str()).collect();
    let missing = named
        .on(node)
        .filter(|(id, pv)| !listed.contains(id) && pv.metadata.deletion_timestamp.is_none());
    missing.collect()
}

/// Returns true if an unlisted volume does not exist: everything could be read, and nothing is
/// missing.
pub fn is_complete(status: &NodeStorageStatus) -> bool {
    let pools = status.pools.iter().filter(|pool| !pool.only_plans()).map(|pool| pool.health);
    let groups = status.volume_groups.iter().map(|group| group.health);
    status.inventory_gap().is_none()
        && !pools.chain(groups).any(|health| health == Health::Unavailable)
}

fn name(node: &NodeStorage) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
