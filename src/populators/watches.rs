//! What is watched: only to know when to look, and at what. What is decided is decided from live reads.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::cluster::{EXCHANGE, Pv, RESIZER_WOKEN_FOR, VOLUME, Watched, cut_to_gates, every};
use crate::populators::{LABEL, POPULATES};

/// Claims, volumes and fill pods, cut to what tells when to look.
#[derive(Debug)]
pub struct Watches {
    claims: Watched<PersistentVolumeClaim>,
    pvs: Watched<Pv>,
    pods: Watched<Pod>,
}

impl Watches {
    /// Begin to watch, until `stop`.
    pub fn start(client: &Client, stop: &CancellationToken) -> Self {
        let ours = every().labels(LABEL);
        let all = watcher::Config::default();
        Watches {
            claims: Watched::start_cut(Api::all(client.clone()), every(), stop, cut_claim),
            // Their writer is no tenant, and there may be a hundred thousand: large pages.
            pvs: Watched::start_cut(Api::all(client.clone()), all, stop, |pv: &mut Pv| {
                pv.cut(&[POPULATES, EXCHANGE]);
            }),
            pods: Watched::start_cut(Api::all(client.clone()), ours, stop, cut_to_gates),
        }
    }

    /// Wait until all are known.
    pub async fn known(&self) {
        tokio::join!(self.claims.known(), self.pvs.known(), self.pods.known());
    }

    /// All claims, and how to wait for others.
    pub fn claims(&self) -> &Watched<PersistentVolumeClaim> {
        &self.claims
    }

    /// All volumes, and how to wait for others.
    pub fn pvs(&self) -> &Watched<Pv> {
        &self.pvs
    }

    pub(super) fn pods(&self) -> &Watched<Pod> {
        &self.pods
    }

    /// The volume that is being filled for a claim and marked so.
    pub(super) fn pv_for(&self, uid: &str) -> Option<Arc<Pv>> {
        let is_it =
            |pv: &Arc<Pv>| pv.annotations().get(POPULATES).is_some_and(|claim| claim == uid);
        self.pvs.all().into_iter().find(is_it)
    }
}

/// Leave of a claim whose it is, what it is filled from, how it is bound, and how its growth goes.
fn cut_claim(claim: &mut PersistentVolumeClaim) {
    let before = std::mem::take(&mut claim.metadata);
    claim.metadata = ObjectMeta {
        name: before.name,
        namespace: before.namespace,
        uid: before.uid,
        resource_version: before.resource_version,
        finalizers: before.finalizers,
        labels: before.labels.map(|labels| {
            labels.into_iter().filter(|(key, _)| key.starts_with("pliant.io/")).collect()
        }),
        annotations: before.annotations.map(|notes| {
            notes
                .into_iter()
                .filter(|(key, _)| [RESIZER_WOKEN_FOR, VOLUME].contains(&key.as_str()))
                .collect()
        }),
        deletion_timestamp: before.deletion_timestamp,
        ..ObjectMeta::default()
    };
    claim.spec = claim.spec.take().map(|spec| PersistentVolumeClaimSpec {
        data_source_ref: spec.data_source_ref,
        resources: spec.resources,
        volume_name: spec.volume_name,
        ..PersistentVolumeClaimSpec::default()
    });
    claim.status = claim.status.take().map(|status| PersistentVolumeClaimStatus {
        phase: status.phase,
        capacity: status.capacity,
        allocated_resources: status.allocated_resources,
        allocated_resource_statuses: status.allocated_resource_statuses,
        ..PersistentVolumeClaimStatus::default()
    });
}
