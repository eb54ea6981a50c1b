//! Watches that trigger reconciles. Decisions use live reads.

use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::cluster::{
    ClaimSummary, DETACHED_FOR, DataSource, EXCHANGE, PodVersion, PvSummary, Watched, every,
};
use crate::populators::{LABEL, POPULATES, PopulationSource};

/// The key of the volumes that are in an exchange.
const IN_EXCHANGE: &str = "in exchange";

/// The key of the claims of a namespace.
fn claims_in(namespace: &str) -> String {
    format!("in {namespace}")
}

/// The key of the claims that a swap holds.
const HELD: &str = "held";

/// Key of the claims whose source has their own name, as a swap of a PvcAutoscaler creates them.
fn copies_of(namespace: &str, autoscaler: &str) -> String {
    format!("copies of {namespace}/{autoscaler}")
}

/// Key of the claims that a PvcAutoscaler manages.
fn kept_by(namespace: &str, autoscaler: &str) -> String {
    format!("managed by {namespace}/{autoscaler}")
}

/// Key of the claims that an object of their namespace populates.
fn filled_from(namespace: &str, group: &str, kind: &str, name: &str) -> String {
    format!("from {namespace}/{group}/{kind}/{name}")
}

/// The key of the PersistentVolume that names a volume.
fn of_volume(handle: &str) -> String {
    format!("volume {handle}")
}

/// Key of the PersistentVolume that is populated for the claim of a uid.
fn populates(uid: &str) -> String {
    format!("for {uid}")
}

/// Key of the PersistentVolumes with a note that the claim of a uid is or becomes complete.
fn detached_for(uid: &str) -> String {
    format!("detached for {uid}")
}

fn keys_of_claim(claim: &ClaimSummary) -> Vec<String> {
    let (namespace, own_name) = claim.names.place();
    let mut keys = vec![claims_in(namespace)];
    keys.extend(claim.kept_by.as_deref().map(|by| kept_by(namespace, by)));
    if claim.held_by.swap {
        keys.push(HELD.to_owned());
    }
    if claim.may_grow() {
        keys.push(ClaimSummary::MAY_GROW.to_owned());
    }
    let source = claim.source.as_deref();
    if source.is_some_and(|source| *source.name == *own_name) {
        keys.extend(claim.kept_by.as_deref().map(|by| copies_of(namespace, by)));
    }
    if let Some(DataSource { group, kind, name, has_namespace: false }) = source {
        keys.push(filled_from(namespace, group, kind, name));
    }
    keys
}

fn keys_of_pv(pv: &PvSummary) -> Vec<String> {
    let note = |key: &str| pv.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let exchange = note(EXCHANGE).map(|_| IN_EXCHANGE.to_owned());
    let keys = [
        pv.handle().map(of_volume),
        note(POPULATES).map(|uid| populates(uid)),
        note(DETACHED_FOR).map(|uid| detached_for(uid)),
        exchange,
    ];
    keys.into_iter().flatten().collect()
}

/// Watched claims, volumes and populator pods, reduced to what triggers a reconcile.
#[derive(Debug)]
pub struct Watches {
    claims: Watched<ClaimSummary>,
    pvs: Watched<PvSummary>,
    pods: Watched<PodVersion>,
}

impl Watches {
    /// Starts to watch, until `stop`.
    pub fn start(client: &Client, stop: &CancellationToken) -> Self {
        let ours = every().labels(LABEL);
        let all = watcher::Config::default();
        Watches {
            claims: Watched::start_keyed(
                Api::all(client.clone()),
                every(),
                stop,
                |_| {},
                keys_of_claim,
            ),
            // Their writer is no tenant, and there may be a hundred thousand: large pages.
            pvs: Watched::start_keyed(
                Api::all(client.clone()),
                all,
                stop,
                |pv: &mut PvSummary| {
                    pv.cut(&[POPULATES, DETACHED_FOR, EXCHANGE]);
                    pv.metadata.uid = None; // They are found by their names and by what they name.
                },
                keys_of_pv,
            ),
            pods: Watched::start(Api::all(client.clone()), ours, stop),
        }
    }

    /// Waits until all are known.
    pub async fn known(&self) {
        tokio::join!(self.claims.known(), self.pvs.known(), self.pods.known());
    }

    /// All claims, and how to wait for others.
    pub fn claims(&self) -> &Watched<ClaimSummary> {
        &self.claims
    }

    /// All volumes, and how to wait for others.
    pub fn pvs(&self) -> &Watched<PvSummary> {
        &self.pvs
    }

    pub(super) fn pods(&self) -> &Watched<PodVersion> {
        &self.pods
    }

    /// Returns the annotated volume that is populated for a claim.
    pub(super) fn pv_for(&self, uid: &str) -> Option<Arc<PvSummary>> {
        self.pvs.with_key(&populates(uid)).into_iter().next()
    }

    /// The claims of a namespace.
    pub fn claims_in(&self, namespace: &str) -> Vec<Arc<ClaimSummary>> {
        self.claims.with_key(&claims_in(namespace))
    }

    /// Returns the claims that a PvcAutoscaler manages.
    pub fn claims_kept_by(&self, namespace: &str, autoscaler: &str) -> Vec<Arc<ClaimSummary>> {
        self.claims.with_key(&kept_by(namespace, autoscaler))
    }

    /// The claims that a swap holds.
    pub fn held_claims(&self) -> Vec<Arc<ClaimSummary>> {
        self.claims.with_key(HELD)
    }

    /// Returns the claims whose source has their own name, as a swap of a PvcAutoscaler creates them.
    pub fn copies_of(&self, namespace: &str, autoscaler: &str) -> Vec<Arc<ClaimSummary>> {
        self.claims.with_key(&copies_of(namespace, autoscaler))
    }

    /// Returns true if there are such claims.
    pub fn has_copies_of(&self, namespace: &str, autoscaler: &str) -> bool {
        self.claims.has_key(&copies_of(namespace, autoscaler))
    }

    /// Returns the claims that name an object of their namespace as their source.
    pub fn claims_filled_from<S: PopulationSource>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Vec<Arc<ClaimSummary>> {
        self.claims.with_key(&filled_from(namespace, &S::group(&()), &S::kind(&()), name))
    }

    /// The volumes that are in an exchange.
    pub fn pvs_in_exchange(&self) -> Vec<Arc<PvSummary>> {
        self.pvs.with_key(IN_EXCHANGE)
    }

    /// Returns the PersistentVolumes with a note that the claim of a uid is or becomes complete.
    pub fn pvs_detached_for(&self, uid: &str) -> Vec<Arc<PvSummary>> {
        self.pvs.with_key(&detached_for(uid))
    }

    /// The PersistentVolume that names a volume of this driver.
    pub fn pv_of_volume(&self, handle: &str) -> Option<Arc<PvSummary>> {
        self.pvs.with_key(&of_volume(handle)).into_iter().next()
    }
}
