//! Where volumes go, and what is said when there is no room.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::claim::capacity;
use crate::people::explained;
use crate::world::run;

/// Two claims of which no node has room for both go to two nodes, though their pods are asked for at once:
/// who comes second to a node is told that it is full, which the scheduler knows by then. A third waits and
/// says for what, and starts by itself when one of the others is deleted.
#[test]
fn a_full_node_sends_the_pod_to_another() {
    run("a_full_node_sends_the_pod_to_another", |world| async move {
        for name in ["first", "second", "third"] {
            world.claim(name, "pliant", "2500Mi", "Filesystem").await;
        }
        let (first, second) = tokio::join!(
            world.pod("first", "first", "sleep 9999", json!({})),
            world.pod("second", "second", "sleep 9999", json!({}))
        );
        assert_ne!(first, second);

        world.make_pod("third", "third", "sleep 9999").await;
        // Other tests take room meanwhile, so that a node may refuse it before the scheduler knows.
        let short = "did not have enough free storage";
        world.until_said("third", "FailedScheduling", short).await;
        let told = explained(&world, "third").await;
        assert!(told.contains("no node that may run its pod") && told.contains("short"), "{told}");
        world.remove_pod("first").await;
        world.remove_claim("first").await;
        world
            .until::<PersistentVolumeClaim>("third", "has the room of the first", |claim| {
                capacity(claim) == "2500Mi"
            })
            .await;
        let volume = world.get_claim("third").await.spec.unwrap().volume_name.unwrap();
        assert_eq!(world.on_nodes(&volume).await, Some(first));
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
