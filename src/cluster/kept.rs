//! What Kubernetes keeps of the volumes: their PersistentVolumes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::audit::{self, Difference, GRACE};
use crate::cluster::{Cluster, Lasting, Pv, Watched};

/// The PersistentVolumes, and since when one of them or a volume lacks the other.
pub struct Kept {
    watched: Watched<Pv>,
    lasting: Mutex<Lasting<Difference>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Kept {
    /// Begin to watch them, until `stop`.
    pub fn watch(client: &Client, stop: &CancellationToken) -> Self {
        let api = Api::all(client.clone());
        let watched = Watched::start_cut(api, watcher::Config::default(), stop, Pv::cut);
        Kept { watched, lasting: Mutex::new(Lasting::new(GRACE)) }
    }

    /// The records, as they were last told, and how to wait for others.
    pub fn watched(&self) -> &Watched<Pv> {
        &self.watched
    }

    /// What differs from what the nodes have and has lasted for [`GRACE`], in the order of the nodes;
    /// beside it, how long it is until more will have. Nothing, as long as not all are known.
    pub fn differences(&self, cluster: &Cluster) -> (Vec<Difference>, Option<Duration>) {
        if !self.watched.is_known() {
            return (Vec::new(), None);
        }
        let requests: Vec<Arc<_>> = cluster.requests().watched().all();
        let found = audit::audit(&cluster.nodes().all(), &self.watched.all(), &requests);
        let mut lasting = self.lasting.lock().unwrap_or_else(PoisonError::into_inner);
        lasting.of(found, Instant::now())
    }
}
