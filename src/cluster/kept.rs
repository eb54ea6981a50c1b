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

/// What differs from what the nodes have, in the order of the nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// What has lasted for [`GRACE`].
    pub lasting: Vec<Difference>,
    /// What has not, and may pass.
    pub young: Vec<Difference>,
    /// How long it is until more will have lasted.
    pub next: Option<Duration>,
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
        // Their writer is no tenant, and there may be a hundred thousand: large pages.
        let watched =
            Watched::start_cut(api, watcher::Config::default(), stop, |pv: &mut Pv| pv.cut(&[]));
        Kept { watched, lasting: Mutex::new(Lasting::new(GRACE)) }
    }

    /// The records, as they were last told, and how to wait for others.
    pub fn watched(&self) -> &Watched<Pv> {
        &self.watched
    }

    /// What differs from what the nodes have; nothing, as long as not all are known.
    pub fn differences(&self, cluster: &Cluster) -> Differences {
        if !self.watched.is_known() {
            return Differences::default();
        }
        let requests: Vec<Arc<_>> = cluster.requests().watched().all();
        let mut young = audit::audit(&cluster.nodes().all(), &self.watched.all(), &requests);
        let mut since = self.lasting.lock().unwrap_or_else(PoisonError::into_inner);
        let (lasting, next) = since.of(young.clone(), Instant::now());
        young.retain(|one| lasting.binary_search(one).is_err()); // They are in order.
        Differences { lasting, young, next }
    }
}
