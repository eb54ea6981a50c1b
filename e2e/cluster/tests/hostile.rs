//! What a tenant may write, on a real API server, and what that does to others.

use kube::api::PostParams;
use pliant::admission::{Service, Workload, is_covered};
use pliant::api::PvcAutoscaler;
use serde_json::{Value, json};

use crate::world::{World, run};

/// A PvcAutoscaler for a StatefulSet of this name.
fn naming(stateful_set: &str) -> PvcAutoscaler {
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"metadata": {"name": "data"}, "spec": spec});
    let whole: Value = json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler", "metadata": {"generateName": "a-"},
        "spec": {"statefulSetName": stateful_set, "volumeClaimTemplate": template},
    });
    serde_json::from_value(whole).unwrap()
}

#[test]
fn no_name_that_a_tenant_writes_takes_the_webhook_from_others() {
    run("bank", |world: World| async move {
        let autoscalers = world.api::<PvcAutoscaler>();
        for name in ["'", "x'] && false && 'y' in ['z", "x'] || true || 'y' in ['z", "../x", "X"] {
            let made = autoscalers.create(&PostParams::default(), &naming(name)).await;
            let refusal = made.expect_err(name).to_string();
            assert!(refusal.contains("spec.statefulSetName"), "{name}: {refusal}");
        }
        // A name that is one, of a StatefulSet that is not there.
        autoscalers.create(&PostParams::default(), &naming("x")).await.unwrap();
        let class = world.class(json!({"pool": "fast", "fs-type": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        let service: Service = "pliant-system/pliant-webhook".parse().unwrap();
        let db = Workload::parse(&world.name, "db").unwrap();
        assert!(is_covered(&world.client, &service, &db).await.unwrap());
        world.end_workload().await;
    });
}
