//! What a claim becomes when something dies at the worst moment.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::json;

use crate::calls::until_swept;
use crate::claim::capacity;
use crate::world::run;

/// Kill the pods of a part of the driver, at once.
async fn kill(client: &Client, part: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "pliant-system");
    let part = ListParams::default().labels(&format!("app.kubernetes.io/component={part}"));
    let now = DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    pods.delete_collection(&now, &part).await.unwrap();
}

/// All node plugins and controllers die while claims are made, grown and removed, again and again.
#[test]
fn no_death_of_the_driver_loses_or_leaks_a_volume() {
    run("no_death_of_the_driver_loses_or_leaks_a_volume", |world| async move {
        for (round, part) in ["controller", "node", "controller", "node"].into_iter().enumerate() {
            let claim = format!("data-{round}");
            world.claim(&claim, "pliant", "64Mi", "Filesystem").await;
            let (pods, client) = (world.clone(), world.client.clone());
            let name = claim.clone();
            let started = tokio::spawn(async move {
                pods.pod(&name, &name, "echo kept >/data/file; sync; sleep 9999", json!({})).await
            });
            kill(&client, part).await;
            started.await.unwrap();
            world.resize(&claim, "128Mi").await.unwrap();
            kill(&client, part).await;
            world
                .until::<PersistentVolumeClaim>(&claim, "has its new size", |claim| {
                    capacity(claim) == "128Mi"
                })
                .await;
            assert_eq!(world.exec(&claim, "cat /data/file").await, "kept");
        }
        kill(&world.client, "node").await;
        // The end of the test removes the claims while the node plugins come back, and looks at what is left.
    });
}

/// Requests are records of work: some time after the last work there are none.
#[test]
fn ended_requests_are_removed() {
    run("ended_requests_are_removed", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        world.pod("app", "data", "sleep 9999", json!({})).await;
        let volume = world.get_claim("data").await.spec.unwrap().volume_name.unwrap();
        until_swept(&world.client, |one| one == volume).await;
    });
}
