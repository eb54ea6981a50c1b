//! The webhook is away. No other test may run: it is that of all.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::calls::must;
use crate::world::{World, run};

/// Have so many operators, and wait until they are.
async fn operators(world: &World, count: i32) {
    let count_of = format!("--replicas={count}");
    must("kubectl", &["scale", "-n", "pliant-system", "deployment/pliant-operator", &count_of])
        .await;
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), "pliant-system");
    world
        .until_named(&deployments, "pliant-operator", "has its pods", |deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.observed_generation == deployment.metadata.generation
                && status.replicas.unwrap_or(0) == count
                && status.ready_replicas.unwrap_or(0) == count
        })
        .await;
}

#[test]
fn webhook_away_means_no_pod_and_never_one_without_its_volume() {
    run("hazard_webhook", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        let before = world.records("db-0").await;
        operators(&world, 0).await;
        // One that ends still answers, and no longer counts.
        let ours = "--selector=app.kubernetes.io/component=operator";
        let gone = ["wait", "-n", "pliant-system", "--for=delete", "pod", ours, "--timeout=2m"];
        must("kubectl", &gone).await;
        let pods = world.api::<Pod>();
        pods.delete("db-0", &DeleteParams::default()).await.unwrap();
        world.until_told("db", "FailedCreate", 1).await;
        assert!(pods.get_opt("db-0").await.unwrap().is_none());
        operators(&world, 2).await;
        world.settled("1/1").await;
        assert!(world.records("db-0").await >= before, "records are lost");
        world.end_workload().await;
    });
}
