//! Snapshots, and claims that begin with the content of one or of another claim.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, CustomResource};
use pliant::api::NodeStorage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::world::{World, run};

/// Says what the first file holds.
const READ: &str = "cat /data/first";
const SLEEP: &str = "sleep 9999";

/// A snapshot, as far as it is looked at.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "snapshot.storage.k8s.io",
    version = "v1",
    kind = "VolumeSnapshot",
    namespaced,
    schema = "disabled",
    status = "VolumeSnapshotStatus"
)]
#[serde(rename_all = "camelCase")]
struct VolumeSnapshotSpec {
    volume_snapshot_class_name: String,
    source: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct VolumeSnapshotStatus {
    ready_to_use: Option<bool>,
    restore_size: Option<String>,
}

impl World {
    fn snapshots(&self) -> Api<VolumeSnapshot> {
        self.api()
    }

    /// Take a snapshot of a claim, and wait until it is ready; its size.
    pub async fn snapshot(&self, name: &str, claim: &str) -> String {
        let spec = VolumeSnapshotSpec {
            volume_snapshot_class_name: "pliant".to_owned(),
            source: json!({"persistentVolumeClaimName": claim}),
        };
        let object = VolumeSnapshot::new(name, spec);
        self.snapshots().create(&PostParams::default(), &object).await.unwrap();
        let ready = |snapshot: &VolumeSnapshot| {
            snapshot.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
        };
        let taken = self.until::<VolumeSnapshot>(name, "is ready", ready).await;
        taken.status.unwrap().restore_size.unwrap()
    }

    pub async fn delete_snapshot(&self, name: &str) {
        self.snapshots().delete(name, &DeleteParams::default()).await.unwrap();
        self.until_gone(self.snapshots(), name).await;
    }

    /// Make a claim that begins with the content of something.
    pub async fn claim_of(&self, name: &str, class: &str, size: &str, source: Value) {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "dataSource": source,
                "resources": {"requests": {"storage": size}},
            },
        });
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        self.api().create(&PostParams::default(), &claim).await.unwrap();
    }

    /// The handle of the volume of a claim.
    async fn handle_of(&self, claim: &str) -> String {
        let volume = self.get_claim(claim).await.spec.unwrap().volume_name.unwrap();
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.get(&volume).await.unwrap().spec.unwrap().csi.unwrap().volume_handle
    }

    /// How many snapshots of a volume a node has. Other tests take some too.
    async fn snapshots_on(&self, node: &str, volume: &str) -> usize {
        let nodes: Api<NodeStorage> = Api::all(self.client.clone());
        let told = nodes.get(node).await.unwrap().status.unwrap().snapshots;
        told.iter().filter(|one| one.snapshot_handle.starts_with(volume)).count()
    }
}

pub fn of_snapshot(name: &str) -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name})
}

fn of_claim(name: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "name": name})
}

#[test]
fn a_claim_is_restored_from_a_snapshot_and_cloned() {
    run("a_claim_is_restored_from_a_snapshot_and_cloned", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let node = world.pod("app", "data", SLEEP, json!({})).await;
        world.exec("app", "echo early >/data/first; sync /data/first").await;
        assert_eq!(world.snapshot("early", "data").await, "64Mi");
        let volume = world.handle_of("data").await;
        world.exec("app", "echo late >/data/first; sync /data/first").await;

        let there = || json!({"nodeSelector": {"kubernetes.io/hostname": node}});
        world.claim_of("restored", "pliant", "128Mi", of_snapshot("early")).await;
        assert_eq!(world.pod("restored", "restored", SLEEP, there()).await, node);
        assert_eq!(world.exec("restored", READ).await, "early");
        let size = world.exec("restored", crate::expansion::SIZE).await;
        assert!(size.parse::<u64>().unwrap() > 100 * 1024, "{size} KiB of 128 MiB");

        world.claim_of("cloned", "pliant", "64Mi", of_claim("data")).await;
        world.pod("cloned", "cloned", SLEEP, there()).await;
        assert_eq!(world.exec("cloned", READ).await, "late");

        // Neither needs the other.
        for name in ["app", "cloned"] {
            world.remove_pod(name).await;
        }
        world.remove_claim("data").await;
        assert_eq!(world.snapshots_on(&node, &volume).await, 1);
        world.delete_snapshot("early").await;
        assert_eq!(world.snapshots_on(&node, &volume).await, 0);
        assert_eq!(world.exec("restored", READ).await, "early");
        world.remove_pod("restored").await;
        for name in ["restored", "cloned"] {
            world.remove_claim(name).await;
        }
    });
}

/// The scheduler does not know where a snapshot is, and need not.
#[test]
fn a_snapshot_is_restored_and_a_claim_cloned_on_another_node() {
    run("a_snapshot_is_restored_and_a_claim_cloned_on_another_node", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let node = world.pod("app", "data", SLEEP, json!({})).await;
        world.exec("app", "echo early >/data/first; sync /data/first").await;
        world.snapshot("early", "data").await;
        let volume = world.handle_of("data").await;
        world.exec("app", "echo late >/data/first; sync /data/first").await;
        let other = if node == "node1" { "node2" } else { "node1" };
        let elsewhere = || json!({"nodeSelector": {"kubernetes.io/hostname": other}});
        for (name, source, content) in
            [("restored", of_snapshot("early"), "early"), ("cloned", of_claim("data"), "late")]
        {
            world.claim_of(name, "pliant", "96Mi", source).await;
            assert_eq!(world.pod(name, name, SLEEP, elsewhere()).await, other);
            assert_eq!(world.exec(name, READ).await, content);
            let size = world.exec(name, crate::expansion::SIZE).await;
            assert!(size.parse::<u64>().unwrap() > 72 * 1024, "{size} KiB of 96 MiB");
        }
        // Neither needs the other, and nothing holds the source.
        world.remove_pod("app").await;
        world.remove_claim("data").await;
        world.delete_snapshot("early").await;
        assert_eq!(world.snapshots_on(&node, &volume).await, 0);
        for (name, content) in [("restored", "early"), ("cloned", "late")] {
            assert_eq!(world.exec(name, READ).await, content);
            world.remove_pod(name).await;
            world.remove_claim(name).await;
        }
    });
}
