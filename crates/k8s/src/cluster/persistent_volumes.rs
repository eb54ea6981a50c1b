//! PersistentVolumes of the driver.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::audit::{self, GRACE, UnmatchedVolume};
use crate::cluster::nodes::key;
use crate::cluster::{Cluster, Debounce, PvSummary, Watched};
use crate::volume::{NodeKey, VolumeId};

/// The PersistentVolumes, and since when one of them or a volume lacks the other.
pub struct PersistentVolumes {
    watched: Watched<PvSummary>,
    lasting: Mutex<HashMap<NodeKey, Debounce<UnmatchedVolume>>>,
}

/// Differences to the volumes of the nodes, in the order of the nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VolumeDifferences {
    /// Differences that have lasted for [`GRACE`].
    pub lasting: Vec<UnmatchedVolume>,
    /// Recent differences, which may pass.
    pub young: Vec<UnmatchedVolume>,
    /// Time until the next one has lasted.
    pub next: Option<Duration>,
}

impl fmt::Debug for PersistentVolumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentVolumes").finish_non_exhaustive()
    }
}

impl PersistentVolumes {
    /// Starts to watch them, until `stop`.
    pub fn watch(client: &Client, stop: &CancellationToken) -> Self {
        let api = Api::all(client.clone());
        // Their writer is no tenant, and there may be a hundred thousand: large pages.
        let config = watcher::Config::default();
        let watched =
            Watched::start_keyed(api, config, stop, |pv: &mut PvSummary| pv.cut(&[]), keys);
        PersistentVolumes { watched, lasting: Mutex::default() }
    }

    /// Returns the watch of the PersistentVolumes.
    pub fn watched(&self) -> &Watched<PvSummary> {
        &self.watched
    }

    /// Returns the PersistentVolumes of a node's volumes.
    pub fn of_volumes_on(&self, node: &NodeKey) -> Vec<Arc<PvSummary>> {
        self.watched.with_key(node.as_str())
    }

    /// Returns the differences to the volumes of all nodes; none until everything is known.
    pub fn differences(&self, cluster: &Cluster) -> VolumeDifferences {
        let nodes: Vec<NodeKey> = cluster.nodes().all().iter().map(|node| key(node)).collect();
        let mut all = VolumeDifferences::default();
        for found in nodes.iter().map(|node| self.differences_on(cluster, node)) {
            all.lasting.extend(found.lasting);
            all.young.extend(found.young);
            all.next = [all.next, found.next].into_iter().flatten().min();
        }
        let there: HashSet<&NodeKey> = nodes.iter().collect();
        self.since().retain(|node, _| there.contains(node));
        all
    }

    /// Returns the differences to the volumes of a node; none until everything is known.
    pub fn differences_on(&self, cluster: &Cluster, node: &NodeKey) -> VolumeDifferences {
        let Some(record) = cluster.nodes().record_by(node).filter(|_| self.watched.is_known())
        else {
            return VolumeDifferences::default();
        };
        let (pvs, requests) = (self.of_volumes_on(node), cluster.requests().of_volumes_on(node));
        let mut young = audit::audit(&[record], &pvs, &requests);
        let mut since = self.since();
        let since = since.entry(node.clone()).or_insert_with(|| Debounce::new(GRACE));
        let (lasting, next) = since.of(young.clone(), Instant::now());
        young.retain(|one| lasting.binary_search(one).is_err()); // They are in order.
        VolumeDifferences { lasting, young, next }
    }

    /// Returns the start of each difference.
    fn since(&self) -> MutexGuard<'_, HashMap<NodeKey, Debounce<UnmatchedVolume>>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A PersistentVolume is found by the node of its volume.
fn keys(pv: &PvSummary) -> Vec<String> {
    let volume = pv.handle().and_then(|handle| handle.parse::<VolumeId>().ok());
    volume.map(|id| id.node().as_str().to_owned()).into_iter().collect()
}
