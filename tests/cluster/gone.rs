//! What becomes of the records of nodes that are gone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use pliant::api::{NodeStorage, StoragePool};
use pliant::testing::FakeApi;
use pliant::volume::Volumes;
use serde_json::json;

use crate::world::{World, want};

/// Longer than a record is kept.
const LONG: Duration = Duration::from_secs(700);

fn records(world: &World) -> Vec<String> {
    world.api.list::<NodeStorage>().into_iter().filter_map(|one| one.metadata.name).collect()
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_node_that_is_gone_goes_if_it_tells_of_no_volume() {
    let (world, cluster, [alpha, beta]) = World::with_two_nodes().await;
    let second = world.controller().await;
    let made = cluster.ensure(&want("pvc-1", 8, &["alpha"])).await.unwrap();
    let (of_alpha, of_beta) = (alpha.host.after_crash(), beta.host.after_crash());
    drop((alpha, beta));
    for node in ["alpha", "beta"] {
        world.api.delete::<Node>(node);
    }
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(records(&world), ["alpha", "beta"], "they may come back");
    tokio::time::sleep(LONG).await;
    assert_eq!(records(&world), ["alpha"], "a volume may still lie there");
    drop(second);
    // Both are back: one is known again, and the other one as it was.
    let back = [world.node_again("alpha", of_alpha).await, world.node_again("beta", of_beta).await];
    tokio::time::sleep(LONG).await;
    assert_eq!(records(&world), ["alpha", "beta"]);
    cluster.remove(&made.id).await.unwrap();
    // Where it is known that nothing is left, the record of this one goes too.
    drop(back);
    world.api.delete::<Node>("alpha");
    tokio::time::sleep(LONG).await;
    assert_eq!(records(&world), ["beta"]);
}

/// What cannot be decoded is there.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_node_whose_object_cannot_be_decoded_stays() {
    let (world, cluster, machine) = World::with_a_node().await;
    drop((machine, cluster));
    world.api.put_json::<Node>(json!({"metadata": {"name": "alpha"}, "spec": {"podCIDR": 5}}));
    let _cluster = world.controller().await;
    tokio::time::sleep(LONG).await;
    assert_eq!(records(&world), ["alpha"]);
    world.api.delete::<Node>("alpha");
    tokio::time::sleep(LONG).await;
    assert_eq!(records(&world), [""; 0]);
}

/// Else its node plugin would give the pool up.
#[tokio::test(start_paused = true)]
async fn a_node_whose_object_cannot_be_decoded_keeps_its_pools() {
    let (world, cluster, _machine) = World::with_a_node().await;
    drop(cluster);
    world.api.put_json::<Node>(json!({"metadata": {"name": "alpha"}, "spec": {"podCIDR": 5}}));
    let cluster = world.controller().await;
    tokio::time::sleep(LONG).await;
    let pool: StoragePool = world.api.get("fast").unwrap();
    let nodes: Vec<String> = pool.status.unwrap().nodes.into_iter().map(|one| one.name).collect();
    assert_eq!(nodes, ["alpha"]);
    cluster.ensure(&want("pvc-1", 100, &["alpha"])).await.unwrap();
    world.api.delete::<Node>("alpha");
    let is_left =
        |api: &FakeApi| api.get::<StoragePool>("fast")?.status.map(|told| told.nodes.len());
    world.api.until("the node has left the pool", |api| is_left(api) == Some(0)).await;
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_node_that_registers_anew_stays() {
    let (world, _cluster, machine) = World::with_a_node().await;
    drop(machine);
    for _ in 0..3 {
        let node = world.api.get::<Node>("alpha").unwrap();
        world.api.delete::<Node>("alpha");
        tokio::time::sleep(Duration::from_secs(500)).await;
        world.api.put(&node);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(records(&world), ["alpha"]);
}
