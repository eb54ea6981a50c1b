//! A volume's life, asked of the controller and lived on a node.

use pliant::api::NodeStorage;
use pliant::bytes::Bytes;
use pliant::volume::{Page, Volumes};

use crate::world::{World, growth, id, want};

async fn all_tell(world: &World) {
    let told = |node: &NodeStorage| node.status.is_some();
    world
        .api
        .until("all tell", |api| api.list().iter().filter(|node| told(node)).count() == 2)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_lives_on_the_node_that_it_was_asked_for() {
    let world = World::new();
    let (_alpha, _beta) = (world.node("alpha").await, world.node("beta").await);
    all_tell(&world).await;
    let (cluster, _stop) = world.controller().await;
    let made = cluster.ensure(&want("pvc-1", 100, &["beta"])).await.unwrap();
    assert_eq!((made.node.as_str(), made.size), ("beta", Bytes::mib(100)));
    assert_eq!(made.id, id("beta", "pvc-1"));
    let grown = cluster.grow(&made.id, growth(200)).await.unwrap();
    assert_eq!((grown.size, grown.node_expansion_required), (Bytes::mib(200), true));
    let found = cluster.find(&made.id).await.unwrap().unwrap();
    assert_eq!(found.volume.size, Bytes::mib(200));
    assert_eq!(cluster.list(&Page::default()).await.unwrap().volumes, [found]);
    cluster.remove(&made.id).await.unwrap();
    assert_eq!(cluster.find(&made.id).await.unwrap(), None);
}

/// The node that has it has less room now: by room alone the other one would be chosen.
#[tokio::test(start_paused = true)]
async fn asked_again_without_a_node_a_volume_is_where_it_was_made() {
    let world = World::new();
    let (_alpha, _beta) = (world.node("alpha").await, world.node("beta").await);
    all_tell(&world).await;
    let (cluster, _stop) = world.controller().await;
    for nodes in [&[][..], &["beta", "alpha"], &["alpha", "beta"]] {
        let name = format!("pvc-{}", nodes.concat());
        let made = cluster.ensure(&want(&name, 100, nodes)).await.unwrap();
        assert_eq!(cluster.ensure(&want(&name, 100, nodes)).await.unwrap(), made);
        cluster.ensure(&want(&name, 300, nodes)).await.unwrap_err();
    }
    assert_eq!(cluster.list(&Page::default()).await.unwrap().volumes.len(), 3);
}
