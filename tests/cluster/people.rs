//! What people are told, and what they can do, while controller and agents run.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use pliant::ask;
use pliant::ask::explain::{Explanation, State, Subject, Verdict};
use pliant::volume::{DRIVER, Volumes};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::{World, want};

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of this kind")
}

/// What Kubernetes has of two nodes, their agents and a class, beside what the driver writes.
fn furnish(world: &World) {
    for node in ["alpha", "beta"] {
        let driver = json!({"name": DRIVER, "nodeID": node});
        world.api.put::<CSINode>(&typed(
            json!({"metadata": {"name": node}, "spec": {"drivers": [driver]}}),
        ));
        let labels =
            json!({"app.kubernetes.io/name": "pliant", "app.kubernetes.io/component": "node"});
        let name = format!("pliant-node-{node}");
        world.api.put::<Pod>(&typed(json!({
            "metadata": {"name": name, "namespace": "pliant", "labels": labels},
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })));
    }
    world.api.put::<StorageClass>(&typed(json!({
        "metadata": {"name": "fast"}, "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"pool": "fast"},
    })));
}

fn claim(size: &str) -> PersistentVolumeClaim {
    typed(json!({
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Pending"},
    }))
}

fn user() -> Pod {
    typed(json!({
        "metadata": {"name": "db-0", "namespace": "default"},
        "spec": {"containers": [], "nodeSelector": {"zone": "b"}, "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "db"}}]},
    }))
}

async fn explained(world: &World, subject: &str) -> Result<Explanation, String> {
    let subject: Subject = subject.parse()?;
    let told = ask::explain(&world.api.client_of("person"), "pliant", None, &subject).await;
    told.map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_explained_from_its_first_minute_to_its_last() {
    let (world, cluster, _machines) = World::with_two_nodes().await;
    furnish(&world);
    let wish = world.api.put(&claim("2000Mi"));
    assert_eq!(explained(&world, "db").await.unwrap().state, State::WaitsForPod);
    world.api.put(&user());
    let told = explained(&world, "pvc/db").await.unwrap();
    assert_eq!(told.state, State::NoNodeForPod);
    assert!(told.nodes.iter().all(|node| node.verdict == Verdict::Excluded), "{told:?}");
    let mut free = user();
    free.spec.as_mut().unwrap().node_selector = None;
    world.api.put(&free);
    let told = explained(&world, "pvc/db").await.unwrap();
    assert_eq!(told.state, State::NoRoom, "{told:?}");
    assert_eq!(told.nodes[0].why, "1.09 GiB short");

    let uid = wish.metadata.uid.unwrap();
    let made = cluster.ensure(&want(&format!("pvc-{uid}"), 100, &["beta"])).await.unwrap();
    let mut bound = claim("100Mi");
    bound.spec.as_mut().unwrap().volume_name = Some("pvc-1".to_owned());
    bound.status = typed(json!({"phase": "Bound", "capacity": {"storage": "100Mi"}}));
    let bound = world.api.put(&bound);
    let volume = json!({
        "metadata": {"name": "pvc-1"},
        "spec": {"persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": DRIVER, "volumeHandle": made.id.to_string()},
                 "claimRef": {"namespace": "default", "name": "db", "uid": bound.metadata.uid}},
    });
    world.api.put::<PersistentVolume>(&typed(volume));
    for subject in ["db", "pv/pvc-1"] {
        let told = explained(&world, subject).await.unwrap();
        assert_eq!((told.about.as_str(), told.state), ("default/db", State::Fine), "{told:?}");
        assert!(told.why.contains("100 MiB of ext4 in pool fast on node beta"), "{}", told.why);
    }
    world.api.delete::<PersistentVolumeClaim>("default/db");
    world.api.put::<Event>(&typed(json!({
        "metadata": {"name": "e", "namespace": "default"}, "eventTime": null,
        "regarding": {"kind": "PersistentVolume", "name": "pvc-1"},
        "reason": "VolumeFailedDelete", "note": "rpc error: desc = it is mounted",
    })));
    world.cleaned().await;
    assert_eq!(explained(&world, "pv/pvc-1").await.unwrap().state, State::DeletionFailed);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_told_by_its_name() {
    let world = World::new();
    for (subject, words) in [
        ("db", "there is no claim db in namespace default"),
        ("pv/x", "there is no PersistentVolume x"),
        ("pod/x", "`pod` is not explained: write pvc/NAME or pv/NAME"),
        ("pvc/", "write pvc/NAME or pv/NAME"),
    ] {
        let said = explained(&world, subject).await.unwrap_err();
        assert!(said.starts_with(words), "{said}");
    }
}
