//! Claims that a StatefulSet has made become smaller where their volumes lie, under their own names.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pliant::api::{AutoscalerPhase, NodeStorage};
use serde_json::json;

use crate::calls::persist;
use crate::claim::{capacity, resize};
use crate::world::{World, run};

/// The size of the file system in KiB, as a program in the pod sees it.
const SIZE: &str = "df -k /data | awk 'END {print $2}'";
const CLAIM: &str = "data-db-0";

impl World {
    /// A workload with one pod, whose claim of its own template has this size and file system.
    async fn with_template(&self, fs: &str, size: &str) -> String {
        let class = self.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": fs})).await;
        let template = json!([{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}}}}]);
        self.workload(1, template).await;
        self.autoscaler(&class, size, json!({})).await;
        self.settled("1/1").await;
        class
    }

    /// What Kubernetes and the node tell of the claim is the same, and nothing keeps it from growing.
    async fn is_told_truly(&self, size: &str) {
        let is_so = |claim: &PersistentVolumeClaim| {
            (capacity(claim), resize(claim)) == (size.to_owned(), None)
        };
        let claim = self.until(CLAIM, &format!("tells {size}"), is_so).await;
        let name = claim.spec.unwrap().volume_name.unwrap();
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        let pv = persist(|| pvs.get(&name)).await.unwrap();
        assert_eq!(pv.spec.unwrap().capacity.unwrap()["storage"].0, size);
        let node = self.on_nodes(&name).await.expect("a node has it");
        // It answers to a growth before it has told of it.
        let is_so = |node: &NodeStorage| {
            let volumes = node.status.iter().flat_map(|status| &status.volumes);
            volumes
                .filter(|volume| volume.name == name)
                .any(|volume| (volume.size.to_string(), volume.max_size) == (size.to_owned(), None))
        };
        let nodes = Api::<NodeStorage>::all(self.client.clone());
        self.until_named(&nodes, &node, &format!("has {name} with {size}"), is_so).await;
    }
}

#[test]
fn btrfs_shrinks_under_its_pod() {
    run("btrfs_shrinks_under_its_pod", |world| async move {
        let class = world.with_template("btrfs", "500Mi").await;
        let pod = world.until::<Pod>("db-0", "is there", |_| true).await.uid();
        let (before, records): (u64, u64) =
            (world.exec("db-0", SIZE).await.parse().unwrap(), world.records("db-0").await);
        world.autoscaler(&class, "320Mi", json!({})).await;
        world.settled("1/1").await;
        world.until_told("db", "ShrinkSucceeded", 1).await;
        world.is_told_truly("320Mi").await;
        let after: u64 = world.exec("db-0", SIZE).await.parse().unwrap();
        assert!(after + 150 * 1024 < before, "{before} KiB became {after} KiB");
        // And larger again, as any claim.
        world.autoscaler(&class, "400Mi", json!({})).await;
        world.settled("1/1").await;
        world.is_told_truly("400Mi").await;
        let now = world.until::<Pod>("db-0", "is there", |_| true).await;
        assert_eq!(now.uid(), pod, "it was not stopped");
        assert_eq!(world.bytes_lost("db-0").await, 0);
        assert!(world.records("db-0").await > records);
        let claims = world.api::<PersistentVolumeClaim>().list(&ListParams::default()).await;
        assert_eq!(claims.unwrap().items.len(), 1);
        world.end_workload().await;
    });
}

#[test]
fn ext4_shrinks_while_its_pod_is_away() {
    run("ext4_shrinks_while_its_pod_is_away", |world| async move {
        let class = world.with_template("ext4", "400Mi").await;
        let records = world.records("db-0").await;
        // Under its pod it would be copied.
        world.scale(0).await;
        world.remove_pod("db-0").await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.until_status("has shrunk it", |status| status.phase == AutoscalerPhase::InSync).await;
        world.is_told_truly("200Mi").await;
        world.scale(1).await;
        world.settled("1/1").await;
        assert_eq!(world.bytes_lost("db-0").await, 0);
        assert!(world.records("db-0").await >= records);
        world.end_workload().await;
    });
}
