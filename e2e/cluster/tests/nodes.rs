//! A node is taken out of the cluster and comes back. No other test may run.

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use kube::Api;
use serde_json::json;

use crate::calls::{install, must, said};
use crate::claim::capacity;
use crate::deaths::NODES;
use crate::people::{handle, keep, pliant};
use crate::world::{World, run};

/// In the order in which they need each other.
const CONTROL_PLANE: [&str; 4] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

async fn is_ready(world: &World, name: &str) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    world
        .until_named(&nodes, name, "is ready", |node: &Node| {
            let conditions =
                node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.filter(|one| one.type_ == "Ready").any(|one| one.status == "True")
        })
        .await;
}

/// Drained, switched off, deleted from the cluster, switched on again: it joins anew, and what its disks
/// hold is there.
#[test]
fn a_node_that_was_deleted_comes_back_with_its_volumes() {
    run("nodes", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let node =
            world.pod("app", "data", "echo kept >/data/file; sync; sleep 9999", json!({})).await;
        let number = node.trim_start_matches("node").to_owned();
        let drain = [
            "drain",
            &node,
            "--force",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=120s",
        ];
        must("kubectl", &drain).await;
        must("e2e/cluster/node", &[&number, "kill"]).await;
        must("kubectl", &["delete", "node", &node]).await;
        must("e2e/cluster/node", &[&number, "start"]).await;
        is_ready(&world, &node).await;
        must("e2e/cluster/rolled-out", &[]).await;

        let back = world.pod("again", "data", "sleep 9999", json!({})).await;
        assert_eq!(back, node);
        assert_eq!(world.exec("again", "cat /data/file").await, "kept");
        world.resize("data", "96Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == "96Mi"
            })
            .await;
    });
}

/// The whole control plane starts anew with nothing, as after the loss of its disks, and the nodes join it:
/// what they have is told, and taken back.
#[test]
fn a_lost_cluster_gives_its_volumes_back() {
    run("lost_cluster", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let node =
            world.pod("app", "data", "echo kept >/data/file; sync; sleep 9999", json!({})).await;
        let volume = world.get_claim("data").await.spec.unwrap().volume_name.unwrap();
        let id = handle(&world, &volume).await;

        let numbers = NODES.map(|name| name.trim_start_matches("node"));
        for number in numbers {
            must("e2e/cluster/node", &[number, "kill"]).await;
        }
        for part in CONTROL_PLANE.iter().rev() {
            must("e2e/cluster/control", &[part, "kill"]).await;
        }
        must("rm", &["-r", "target/cluster/run/etcd"]).await;
        for part in CONTROL_PLANE {
            must("e2e/cluster/control", &[part, "start"]).await;
        }
        for number in numbers {
            must("e2e/cluster/node", &[number, "start"]).await;
        }
        for node in NODES {
            is_ready(&world, node).await;
        }
        // With the cluster its definitions are lost, and what this one knows is of the old one.
        must("e2e/cluster/control", &["snapshot-controller", "kill"]).await;
        must("e2e/cluster/snapshots", &[]).await;
        must("e2e/cluster/control", &["snapshot-controller", "start"]).await;
        install(&[]).await;
        world.begin().await;

        let told = pliant(&["doctor", "--cluster"]).await;
        assert!(said(&told).contains(&id), "{told:?}");
        let words = ["recover", &id, "--namespace", &world.name, "--claim", "back"];
        let told = pliant(&words).await;
        assert!(told.status.success(), "{told:?}");
        assert_eq!(world.pod("again", "back", "sleep 9999", json!({})).await, node);
        assert_eq!(world.exec("again", "cat /data/file").await, "kept");
        keep(&world, &volume, "Delete").await;
    });
}
