//! What is watched: only to know when to look, and at what. What is decided is decided from live reads.

use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::cluster::{ClaimSummary, EXCHANGE, PodVersion, Pv, Watched, every};
use crate::populators::{LABEL, POPULATES};

/// Claims, volumes and fill pods, cut to what tells when to look.
#[derive(Debug)]
pub struct Watches {
    claims: Watched<ClaimSummary>,
    pvs: Watched<Pv>,
    pods: Watched<PodVersion>,
}

impl Watches {
    /// Begin to watch, until `stop`.
    pub fn start(client: &Client, stop: &CancellationToken) -> Self {
        let ours = every().labels(LABEL);
        let all = watcher::Config::default();
        Watches {
            claims: Watched::start(Api::all(client.clone()), every(), stop),
            // Their writer is no tenant, and there may be a hundred thousand: large pages.
            pvs: Watched::start_cut(Api::all(client.clone()), all, stop, |pv: &mut Pv| {
                pv.cut(&[POPULATES, EXCHANGE]);
            }),
            pods: Watched::start(Api::all(client.clone()), ours, stop),
        }
    }

    /// Wait until all are known.
    pub async fn known(&self) {
        tokio::join!(self.claims.known(), self.pvs.known(), self.pods.known());
    }

    /// All claims, and how to wait for others.
    pub fn claims(&self) -> &Watched<ClaimSummary> {
        &self.claims
    }

    /// All volumes, and how to wait for others.
    pub fn pvs(&self) -> &Watched<Pv> {
        &self.pvs
    }

    pub(super) fn pods(&self) -> &Watched<PodVersion> {
        &self.pods
    }

    /// The volume that is being filled for a claim and marked so.
    pub(super) fn pv_for(&self, uid: &str) -> Option<Arc<Pv>> {
        let is_it =
            |pv: &Arc<Pv>| pv.annotations().get(POPULATES).is_some_and(|claim| claim == uid);
        self.pvs.all().into_iter().find(is_it)
    }
}
