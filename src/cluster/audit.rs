//! Where what the nodes have and what Kubernetes keeps of it differ. Pure.
//!
//! A volume and its PersistentVolume are written by different programs, one after the other, so every
//! volume differs for a moment. [`audit()`] leaves out what is under way; what it finds counts once it has
//! lasted for [`GRACE`], see [`Lasting`](crate::cluster::Lasting).

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::api::{Health, NodeStorage, NodeStorageStatus, VolumeRequest, Work};
use crate::bytes::Bytes;
use crate::cluster::{Pv, is_on};

/// How long a difference lasts before it is told. The provisioner writes a PersistentVolume seconds
/// after its volume is made, and minutes after if it was started anew between the two.
pub const GRACE: Duration = Duration::from_secs(300);

/// A volume or a PersistentVolume without the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Difference {
    /// A node has a volume that no PersistentVolume names: nobody can use it, and its room is taken.
    VolumeWithoutPv {
        /// The node.
        node: String,
        /// Id of the volume.
        volume: String,
        /// The name that the provisioner gave.
        name: String,
        /// The pool.
        pool: String,
        /// Its real size.
        size: Bytes,
    },
    /// A PersistentVolume names a volume that its node does not have: the data is not there.
    PvWithoutVolume {
        /// The node.
        node: String,
        /// Id of the volume.
        volume: String,
        /// Name of the PersistentVolume.
        pv: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::VolumeWithoutPv { node, volume, name, pool, size } => write!(
                f,
                "volume {volume} ({name}) in pool {pool} of node {node} has no PersistentVolume, so \
                 nobody can use it, and {size} stay taken; docs/src/reference/events/VolumeLeaked.md \
                 says how to remove it and how to keep it"
            ),
            Difference::PvWithoutVolume { node, volume, pv } => write!(
                f,
                "volume {volume} of PersistentVolume {pv} is not on node {node}, which could read all \
                 that it has; if a disk was taken out, put it back: `kubectl get nodestorage {node} \
                 --output yaml` lists what is there; else restore the data from a backup"
            ),
        }
    }
}

/// Compare what the nodes list with the PersistentVolumes of this driver; in the order of the nodes.
///
/// While a request to make or to remove a volume is there, also one that has just ended, nothing is
/// said of that volume. A PersistentVolume is without its volume only if its node could read all of its
/// pools, and not while it is being deleted itself.
pub fn audit<N, P, R>(nodes: &[N], pvs: &[P], requests: &[R]) -> Vec<Difference>
where
    N: Borrow<NodeStorage>,
    P: Borrow<Pv>,
    R: Borrow<VolumeRequest>,
{
    let changing = changing(requests);
    let named = named(pvs);
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

impl Difference {
    /// The node.
    pub fn node(&self) -> &str {
        match self {
            Difference::VolumeWithoutPv { node, .. } | Difference::PvWithoutVolume { node, .. } => {
                node
            }
        }
    }

    /// Id of the volume.
    pub fn volume(&self) -> &str {
        match self {
            Difference::VolumeWithoutPv { volume, .. }
            | Difference::PvWithoutVolume { volume, .. } => volume,
        }
    }
}

/// The volumes that come or go: those that requests are there for.
pub(crate) fn changing<R: Borrow<VolumeRequest>>(requests: &[R]) -> HashSet<&str> {
    requests.iter().filter_map(|one| changes(one.borrow())).collect()
}

/// The PersistentVolumes by the volume that they name.
pub(crate) fn named<P: Borrow<Pv>>(pvs: &[P]) -> HashMap<&str, &Pv> {
    pvs.iter().filter_map(|pv| Some((pv.borrow().handle()?, pv.borrow()))).collect()
}

/// The volume that a request lets come or go.
fn changes(request: &VolumeRequest) -> Option<&str> {
    match request.spec.work {
        Work::Create(_) | Work::Remove(_) => Some(&request.spec.volume),
        Work::Grow(_) | Work::Shrink(_) | Work::Release(_) | Work::Fence(_) | Work::Inspect(_) => {
            None
        }
    }
}

fn without_pv(
    node: &NodeStorage,
    status: &NodeStorageStatus,
    named: &HashMap<&str, &Pv>,
) -> Vec<Difference> {
    let leaked = status.volumes.iter().filter(|one| !named.contains_key(one.id.as_str()));
    let told = leaked.map(|one| Difference::VolumeWithoutPv {
        node: name(node),
        volume: one.id.clone(),
        name: one.name.clone(),
        pool: one.pool.clone(),
        size: one.size.0,
    });
    told.collect()
}

fn without_volume(
    node: &NodeStorage,
    status: &NodeStorageStatus,
    named: &HashMap<&str, &Pv>,
) -> Vec<Difference> {
    if !is_complete(status) {
        return Vec::new();
    }
    let missing = not_listed(node, status, named).into_iter();
    let told = missing.map(|(id, pv)| Difference::PvWithoutVolume {
        node: name(node),
        volume: id.to_owned(),
        pv: pv.metadata.name.clone().unwrap_or_default(),
    });
    told.collect()
}

/// The PersistentVolumes of a node whose volume it does not list, save those that are being deleted.
pub(crate) fn not_listed<'a>(
    node: &NodeStorage,
    status: &NodeStorageStatus,
    named: &HashMap<&'a str, &'a Pv>,
) -> Vec<(&'a str, &'a Pv)> {
    let listed: HashSet<&str> = status.volumes.iter().map(|one| one.id.as_str()).collect();
    let is_here = |id: &str| id.parse().is_ok_and(|id| is_on(node, &id));
    let missing = named.iter().filter(|(id, pv)| {
        is_here(id) && !listed.contains(*id) && pv.metadata.deletion_timestamp.is_none()
    });
    missing.map(|(id, pv)| (*id, *pv)).collect()
}

/// Whether a volume that is not listed is not there: all could be read, and nothing is away.
pub(crate) fn is_complete(status: &NodeStorageStatus) -> bool {
    let pools = status.pools.iter().map(|pool| pool.health);
    let groups = status.groups.iter().map(|group| group.health);
    status.unread.is_none() && !pools.chain(groups).any(|health| health == Health::Unavailable)
}

fn name(node: &NodeStorage) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
