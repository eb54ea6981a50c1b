//! What Kubernetes keeps of the volumes: their PersistentVolumes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeSpec,
};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::audit::{self, Difference, GRACE};
use crate::cluster::{Cluster, Lasting, Watched};

/// The PersistentVolumes, and since when one of them or a volume lacks the other.
pub struct Kept {
    watched: Watched<PersistentVolume>,
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
        let watched = Watched::start_cut(api, watcher::Config::default(), stop, cut);
        Kept { watched, lasting: Mutex::new(Lasting::new(GRACE)) }
    }

    /// The records, as they were last told, and how to wait for others.
    pub fn watched(&self) -> &Watched<PersistentVolume> {
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

/// Leave of a PersistentVolume which volume it names and whose it is: there may be many thousands.
fn cut(pv: &mut PersistentVolume) {
    pv.status = None;
    (pv.metadata.labels, pv.metadata.annotations) = (None, None);
    let ours = audit::handle(pv).is_some();
    pv.spec = pv.spec.take().filter(|_| ours).map(|spec| PersistentVolumeSpec {
        claim_ref: spec.claim_ref.map(|claim| ObjectReference {
            namespace: claim.namespace,
            name: claim.name,
            uid: claim.uid,
            ..ObjectReference::default()
        }),
        csi: spec.csi.map(|source| CSIPersistentVolumeSource {
            driver: source.driver,
            volume_handle: source.volume_handle,
            ..CSIPersistentVolumeSource::default()
        }),
        ..PersistentVolumeSpec::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::DRIVER;

    #[test]
    fn of_a_persistent_volume_only_the_names_are_kept() {
        let whole = |driver: &str| -> PersistentVolume {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "pvc-1", "uid": "u", "annotations": {"a": "b"}},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {"kind": "x", "namespace": "n", "name": "c", "uid": "v"},
                    "csi": {"driver": driver, "volumeHandle": "h", "volumeAttributes": {"p": "q"}},
                },
                "status": {"phase": "Bound"},
            }))
            .unwrap()
        };
        let cut_json = |driver: &str| {
            let mut pv = whole(driver);
            cut(&mut pv);
            let mut json = serde_json::to_value(pv).unwrap();
            json.as_object_mut().unwrap().retain(|field, _| field == "metadata" || field == "spec");
            json
        };
        let claim = serde_json::json!({"namespace": "n", "name": "c", "uid": "v"});
        let csi = serde_json::json!({"driver": DRIVER, "volumeHandle": "h"});
        let metadata = serde_json::json!({"name": "pvc-1", "uid": "u"});
        assert_eq!(
            cut_json(DRIVER),
            serde_json::json!({"metadata": metadata, "spec": {"claimRef": claim, "csi": csi}})
        );
        assert_eq!(cut_json("other"), serde_json::json!({"metadata": metadata}));
    }
}
