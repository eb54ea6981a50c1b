//! Where volumes go, and what is said when there is no room.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::claim::capacity;
use crate::world::run;

/// A node that is full is left alone: the second claim, which would not fit beside the first, goes to
/// the other node.
#[test]
fn a_full_node_sends_the_pod_to_another() {
    run("a_full_node_sends_the_pod_to_another", |world| async move {
        world.claim("first", "pliant", "2500Mi", "Filesystem").await;
        let first = world.pod("first", "first", "sleep 9999", json!({})).await;
        world.claim("second", "pliant", "2500Mi", "Filesystem").await;
        let second = world.pod("second", "second", "sleep 9999", json!({})).await;
        assert_ne!(first, second);
    });
}

/// What a deleted claim had is free again.
#[test]
fn a_deleted_claim_gives_its_room_back() {
    run("a_deleted_claim_gives_its_room_back", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let node = world.pod("app", "data", "sleep 9999", json!({})).await;
        let claim = world
            .until::<PersistentVolumeClaim>("data", "is bound", |claim| capacity(claim) == "64Mi")
            .await;
        let volume = claim.spec.unwrap().volume_name.unwrap();
        assert_eq!(world.on_nodes(&volume).await, Some(node));
        // That it is gone from the node afterwards is looked at in the end of every test.
    });
}
