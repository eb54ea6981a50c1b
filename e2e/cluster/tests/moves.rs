//! A workload whose class is on another node moves there, and a pod goes back to what it had before.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::calls::{persist, said};
use crate::exhaustive::exhaustive;
use crate::people::pliant;
use crate::world::{World, run};

impl World {
    /// The node of a pod.
    async fn node_of(&self, pod: &str) -> String {
        let pods = self.api::<Pod>();
        let pod = persist(|| pods.get(pod)).await.unwrap();
        pod.spec.unwrap().node_name.expect("it is scheduled")
    }

    /// A node other than this one.
    async fn another_node(&self, than: &str) -> String {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let all = ListParams::default();
        let all = persist(|| nodes.list(&all)).await.unwrap();
        let names = all.iter().map(ResourceExt::name_any);
        names.into_iter().find(|name| name != than).expect("two nodes")
    }
}

/// This one of two variants, or both: what a swap takes here is half a minute of two processors.
fn one_of_both(first: bool) -> impl Iterator<Item = bool> {
    std::iter::once(first).chain(exhaustive().then_some(!first))
}

/// The templates of a StatefulSet that makes its claims by itself, or none.
fn own(class: &str, is_own: bool) -> Value {
    if !is_own {
        return json!([]);
    }
    json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "128Mi"}}}}])
}

#[test]
fn a_workload_follows_its_class_to_another_node_and_back() {
    run("a_workload_follows_its_class_to_another_node_and_back", |world| async move {
        for is_own in one_of_both(true) {
            let here = world.class(json!({"pool": "fast"})).await;
            world.workload(1, own(&here, is_own)).await;
            world.autoscaler(&here, "128Mi", json!({})).await;
            world.settled("1/1").await;
            let before = world.node_of("db-0").await;
            let there = world.another_node(&before).await;
            let mut records = world.records("db-0").await;
            for node in [&there, &before] {
                let class = format!("{here}-{node}");
                world.class_on(&class, node, json!({"pool": "fast"})).await;
                let more = json!({"retention": "5s", "preCopy": node == &before});
                world.autoscaler(&class, "128Mi", more).await;
                world.settled("1/1").await;
                let now = world.records("db-0").await;
                assert_eq!(&world.node_of("db-0").await, node);
                assert!(now > records, "{now} records after {records}");
                assert_eq!(world.bytes_lost("db-0").await, 0);
                records = now;
            }
            world.until_alone(1).await;
            let claim = world.active(0).await.name_any();
            world.end_workload().await;
            world.remove_claim(&claim).await;
        }
    });
}

#[test]
fn a_pod_goes_back_to_what_it_had_before_its_swap() {
    run("a_pod_goes_back_to_what_it_had_before_its_swap", |world| async move {
        for is_own in one_of_both(false) {
            let class =
                world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"})).await;
            let small = format!("{class}-small");
            world
                .class_named(&small, json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"}))
                .await;
            let templates = own(&class, is_own);
            let templates = templates.to_string().replace("128Mi", "400Mi");
            world.workload(1, serde_json::from_str(&templates).unwrap()).await;
            world.autoscaler(&class, "400Mi", json!({})).await;
            world.settled("1/1").await;
            world.autoscaler(&small, "128Mi", json!({})).await;
            let swapped = world.settled("1/1").await;
            world.exec_when_back("db-0", "echo since >/data/since; sync").await;
            let before = swapped.of(0).unwrap().retained_claims[0].name.clone();
            let active = swapped.of(0).unwrap().active_claim.clone();

            let types = [
                "rollback",
                &active,
                "--namespace",
                &world.name,
                "--yes",
                "--wait",
                "--timeout",
                "5m",
            ];
            let told = pliant(&types).await;
            assert!(told.status.success(), "{}", said(&told));
            let back = world
                .until_status("has what it had", |status| {
                    let one = status.of(0);
                    one.is_some_and(|one| one.rollback.is_some() && one.swap.is_none())
                })
                .await;
            let entry = back.of(0).unwrap();
            assert_eq!(entry.active_claim == before, !is_own, "{entry:?}");
            assert_eq!(back.reason.as_deref(), Some("RolledBack"));
            let found = world.exec_when_back("db-0", "ls /data; grep ' /data ' /proc/mounts").await;
            assert!(!found.contains("since") && found.contains(" xfs "), "{found}");
            assert_eq!(world.bytes_lost("db-0").await, 0);
            // It writes to that again, and an edit of the template keeps it.
            let records = world.records("db-0").await;
            world.autoscaler(&class, "400Mi", json!({})).await;
            world.settled("1/1").await;
            assert!(world.records("db-0").await >= records);
            world.remove_claim(&entry.retained_claims[0].name).await;
            world.until_alone(1).await;
            let claim = world.active(0).await.name_any();
            world.end_workload().await;
            world.remove_claim(&claim).await;
        }
    });
}
