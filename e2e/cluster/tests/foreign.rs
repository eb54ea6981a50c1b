//! Claims of another driver: a plain provisioner is played that makes directories of the node, as many a
//! cluster has one. All that this driver can do to a volume is missing there.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::sleep;

use crate::claim::capacity;
use crate::world::{World, run};

const PROVISIONER: &str = "directories.pliant.test";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

impl World {
    /// A class whose volumes are directories; they are made and removed as long as the test runs.
    async fn class_of_directories(&self) -> String {
        let name = format!("{}-directories", self.name);
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let _ = classes.delete(&name, &DeleteParams::default()).await;
        let class: StorageClass = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"pliant.test/of": self.name}},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
        }))
        .unwrap();
        classes.create(&PostParams::default(), &class).await.unwrap();
        let (world, of) = (self.clone(), name.clone());
        tokio::spawn(async move {
            loop {
                // What fails is tried again, as by any provisioner.
                let _ = world.make_directories(&of).await;
                let _ = world.remove_directories(&of).await;
                sleep(Duration::from_millis(500)).await;
            }
        });
        name
    }

    async fn make_directories(&self, class: &str) -> Result<(), kube::Error> {
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        let claims = self.api::<PersistentVolumeClaim>().list(&ListParams::default()).await?;
        for claim in claims {
            let spec = claim.spec.clone().unwrap_or_default();
            let node = claim.annotations().get(SELECTED_NODE).cloned();
            let is_wanted = spec.storage_class_name.as_deref() == Some(class)
                && spec.volume_name.is_none()
                && spec.data_source_ref.is_none(); // Somebody else fills it.
            let (true, Some(node)) = (is_wanted, node) else { continue };
            let uid = claim.uid().unwrap_or_default();
            let size: BTreeMap<_, _> =
                spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
            let on_node =
                json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
            let pv = serde_json::from_value(json!({
                "metadata": {"name": format!("directory-{uid}"),
                             "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
                "spec": {
                    "capacity": size, "accessModes": spec.access_modes,
                    "storageClassName": class, "persistentVolumeReclaimPolicy": "Delete",
                    "hostPath": {"path": format!("/var/lib/directories/{uid}"), "type": "DirectoryOrCreate"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
                    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
                                 "namespace": claim.namespace(), "name": claim.name_any()},
                },
            }))
            .unwrap();
            pvs.create(&PostParams::default(), &pv).await?;
        }
        Ok(())
    }

    async fn remove_directories(&self, class: &str) -> Result<(), kube::Error> {
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        for pv in pvs.list(&ListParams::default()).await? {
            let spec = pv.spec.clone().unwrap_or_default();
            let phase = pv.status.as_ref().and_then(|status| status.phase.as_deref());
            if spec.storage_class_name.as_deref() == Some(class)
                && spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete")
                && phase == Some("Released")
            {
                pvs.delete(&pv.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }
}

#[test]
fn claims_of_another_driver_become_smaller_and_come_to_this_one() {
    run("foreign", |world| async move {
        let theirs = world.class_of_directories().await;
        let ours = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&theirs, "200Mi", json!({})).await;
        world.settled("1/1").await;
        let before = world.records("db-0").await;
        for (class, size) in [(&theirs, "100Mi"), (&ours, "100Mi"), (&theirs, "100Mi")] {
            world.autoscaler(class, size, json!({})).await;
            world.settled("1/1").await;
            let claim = world.active(0).await;
            assert_eq!(capacity(&claim), size);
            assert_eq!(claim.spec.unwrap().storage_class_name.as_ref(), Some(class));
            assert_eq!(world.bytes_lost("db-0").await, 0);
        }
        assert!(world.records("db-0").await > before, "records are lost");
        world.end_workload().await;
    });
}
