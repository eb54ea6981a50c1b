//! What can go wrong when claims are swapped: a test each, named by where it would go wrong.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use pliant::api::{
    AutoscalerPhase, PvcAutoscaler, PvcAutoscalerStatus, PvcSourcePopulator, SwapPhase,
};
use pliant::volume::VolumeKey;
use serde_json::json;

use crate::autoscaler::is_ready;
use crate::calls::persist;
use crate::claim::capacity;
use crate::world::{World, run};

/// A workload whose pods have claims of 200 MiB; the name of their class.
async fn workload(world: &World, replicas: i32) -> String {
    let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
    world.workload(replicas, json!([])).await;
    world.autoscaler(&class, "200Mi", json!({})).await;
    world.settled(&format!("{replicas}/{replicas}")).await;
    class
}

impl World {
    pub async fn scale(&self, replicas: i32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let (sets, params) = (self.api::<StatefulSet>(), PatchParams::default());
        persist(|| sets.patch("db", &params, &patch)).await.unwrap();
    }

    async fn uid_of_pod(&self, name: &str) -> String {
        self.api::<Pod>().get(name).await.unwrap().uid().unwrap()
    }

    /// The node of the volume of a claim.
    async fn node_of_claim(&self, claim: &PersistentVolumeClaim) -> String {
        let volume = claim.spec.clone().unwrap().volume_name.unwrap();
        self.on_nodes(&volume).await.expect("a node has it")
    }

    /// Start a pod that has the device of a claim open on its node, past Kubernetes.
    async fn hold_device(&self, pod: &str, claim: &PersistentVolumeClaim) {
        let volume = claim.spec.clone().unwrap().volume_name.unwrap();
        let key = VolumeKey::of(&volume);
        let script = format!("exec 3<$(echo /dev/mapper/*{}); sleep 9999", key.as_str());
        let pod = json!({
            "metadata": {"name": pod},
            "spec": {
                "nodeName": self.node_of_claim(claim).await,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "app",
                    "image": "pliant.test/busybox:1",
                    "command": ["sh", "-c", script],
                    "securityContext": {"privileged": true},
                    "volumeMounts": [{"name": "dev", "mountPath": "/dev"}],
                }],
                "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}],
            },
        });
        self.start(pod).await;
    }

    async fn until_waiting_for(&self, reason: &str) -> PvcAutoscalerStatus {
        self.until_status(&format!("waits: {reason}"), |status| {
            status.reason.as_deref() == Some(reason)
        })
        .await
    }
}

fn phase_of(status: &PvcAutoscalerStatus, ordinal: i32) -> Option<SwapPhase> {
    status.of(ordinal)?.swap.as_ref().map(|swap| swap.phase)
}

#[test]
fn adopt_never_renames_the_claims_of_a_template() {
    run("hazard_adopt", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        let template = json!([{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "200Mi"}}}}]);
        world.workload(1, template).await;
        world.until::<Pod>("db-0", "is ready", is_ready).await;
        let uid = world.uid_of_pod("db-0").await;
        let claim = world.get_claim("data-db-0").await.uid();
        world.exec("db-0", "head -c 20000000 /dev/urandom >/data/kept; sync").await;
        let digest = world.exec("db-0", "sha256sum </data/kept").await;
        let other = format!("{class}-other");
        world
            .class_named(&other, json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"}))
            .await;
        world.autoscaler(&other, "320Mi", json!({})).await;
        world.settled("1/1").await;
        let after = world.active(0).await;
        let is_same = (after.name_any(), after.uid()) == ("data-db-0".to_owned(), claim);
        assert!(is_same, "the claim is the one that it was: {after:?}");
        assert_ne!(world.uid_of_pod("db-0").await, uid, "its pod was stopped for it");
        assert_eq!(world.exec("db-0", "sha256sum </data/kept").await, digest);
        world.end_workload().await;
    });
}

#[test]
fn copy_waits_for_a_second_pod_on_the_claim() {
    run("hazard_second_pod", |world| async move {
        let class = workload(&world, 1).await;
        let old = world.active(0).await.name_any();
        world.pod("by-hand", &old, "sleep 9999", json!({})).await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        world.until_waiting_for("ClaimInUse").await;
        world.exec("by-hand", "echo late >/data/late; sync /data/late").await;
        world.remove_pod("by-hand").await;
        world.settled("1/1").await;
        assert_eq!(world.exec_when_back("db-0", "cat /data/late").await, "late");
        assert_eq!(capacity(&world.active(0).await), "100Mi");
        world.end_workload().await;
    });
}

#[test]
fn copy_waits_for_whoever_has_the_device_open_and_then_nobody_gets_at_it() {
    run("hazard_open_device", |world| async move {
        let class = workload(&world, 1).await;
        let before = world.records("db-0").await;
        let old = world.active(0).await;
        world.hold_device("holder", &old).await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        let status = world
            .until_status("waits for the holder", |status| {
                // By it, and by the mount, which stays for as long as somebody has the device open.
                let says = |message: &String| message.contains("(2 times)");
                status.reason.as_deref() == Some("ClaimInUse")
                    && status.message.as_ref().is_some_and(says)
            })
            .await;
        assert_eq!(phase_of(&status, 0), Some(SwapPhase::Fenced));
        let node = world.node_of_claim(&old).await;
        let message = status.message.unwrap();
        assert!(message.contains(&format!("is open on node {node}")), "{message}");
        world.until_told("db", "ClaimInUse", 1).await;
        let sources = world.api::<PvcSourcePopulator>().list(&ListParams::default()).await.unwrap();
        assert!(sources.items.iter().all(|source| source.spec.paused), "nothing is copied");
        world.remove_pod("holder").await;
        world.settled("1/1").await;
        assert!(world.records("db-0").await >= before, "records are lost");

        world.make_pod("by-hand", &old.name_any(), "sleep 9999").await;
        world.until_told("by-hand", "FailedMount", 1).await;
        let events = world.events("by-hand").await;
        let is_refused = |(_, text): &(String, String)| text.contains("is superseded");
        assert!(events.iter().any(is_refused), "{events:?}");
        let pod = world.api::<Pod>().get("by-hand").await.unwrap();
        assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
        world.remove_pod("by-hand").await;
        world.end_workload().await;
    });
}

#[test]
fn copy_is_made_on_the_node_of_its_source() {
    run("hazard_node", |world| async move {
        let class = workload(&world, 2).await;
        let mut before = Vec::new();
        for ordinal in [0, 1] {
            before.push(world.node_of_claim(&world.active(ordinal).await).await);
        }
        world.autoscaler(&class, "100Mi", json!({})).await;
        world.settled("2/2").await;
        for (ordinal, node) in [0, 1].into_iter().zip(before) {
            assert_eq!(world.node_of_claim(&world.active(ordinal).await).await, node);
        }
        world.end_workload().await;
    });
}

#[test]
fn rollout_stops_after_a_pod_that_does_not_get_ready() {
    run("hazard_unready", |world| async move {
        let class = workload(&world, 2).await;
        let uid = world.uid_of_pod("db-0").await;
        // Its next start finds a record that is none.
        world.exec("db-1", "echo 0 >>/data/records").await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        world
            .until_status("has swapped the claim of db-1", |status| {
                phase_of(status, 1) == Some(SwapPhase::Soaking)
            })
            .await;
        world
            .until::<Pod>("db-1", "has failed again", |pod| {
                let all = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
                all.into_iter().any(|one| one.restart_count >= 2)
            })
            .await;
        let status = world.api::<PvcAutoscaler>().get("db").await.unwrap().status.unwrap();
        assert_eq!((phase_of(&status, 0), status.of(0).unwrap().claim_revision), (None, 0));
        assert_eq!(world.uid_of_pod("db-0").await, uid, "it was not stopped");
        world.end_workload().await;
    });
}

#[test]
fn rollout_goes_on_when_the_workload_is_scaled() {
    run("hazard_scale", |world| async move {
        let class = workload(&world, 2).await;
        let before = world.records("db-1").await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        world.until_status("swaps", |status| phase_of(status, 1).is_some()).await;
        world.scale(1).await;
        world.settled("1/1").await;
        world.scale(2).await;
        world.settled("2/2").await;
        assert_eq!(capacity(&world.active(1).await), "100Mi");
        assert!(world.records("db-1").await >= before, "records of db-1 are lost");
        world.end_workload().await;
    });
}

#[test]
fn rollout_ends_with_the_last_of_two_edits() {
    run("hazard_edits", |world| async move {
        let class = workload(&world, 2).await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        world.until_status("swaps", |status| phase_of(status, 1).is_some()).await;
        world.autoscaler(&class, "80Mi", json!({})).await;
        world.settled("2/2").await;
        for ordinal in [0, 1] {
            assert_eq!(capacity(&world.active(ordinal).await), "80Mi");
        }
        world.end_workload().await;
    });
}

#[test]
fn rollout_asks_those_who_protect_a_pod() {
    run("hazard_budget", |world| async move {
        let class = workload(&world, 1).await;
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "db"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        }))
        .unwrap();
        let budgets = world.api::<PodDisruptionBudget>();
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        world
            .until::<PodDisruptionBudget>("db", "counts its pod", |budget| {
                budget.status.as_ref().is_some_and(|status| status.expected_pods == 1)
            })
            .await;
        let uid = world.uid_of_pod("db-0").await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        world.until_told("db", "EvictionBlocked", 1).await;
        assert_eq!(world.uid_of_pod("db-0").await, uid, "it goes on");
        budgets.delete("db", &DeleteParams::default()).await.unwrap();
        world.settled("1/1").await;
        assert_eq!(capacity(&world.active(0).await), "100Mi");
        world.end_workload().await;
    });
}

#[test]
fn rollout_survives_the_end_of_its_workload() {
    run("hazard_workload", |world| async move {
        let class = workload(&world, 1).await;
        let before = world.records("db-0").await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        world.until_status("swaps", |status| phase_of(status, 0).is_some()).await;
        world.api::<StatefulSet>().delete("db", &DeleteParams::default()).await.unwrap();
        world.until_waiting_for("WorkloadNotFound").await;
        world.workload(1, json!([])).await;
        world.settled("1/1").await;
        assert_eq!(capacity(&world.active(0).await), "100Mi");
        assert!(world.records("db-0").await >= before, "records are lost");
        world.end_workload().await;
    });
}

#[test]
fn delete_of_the_autoscaler_takes_no_claim_along() {
    run("hazard_delete", |world| async move {
        workload(&world, 1).await;
        let claim = world.active(0).await.name_any();
        let uid = world.uid_of_pod("db-0").await;
        let autoscalers = world.api::<PvcAutoscaler>();
        autoscalers.delete("db", &DeleteParams::default()).await.unwrap();
        let kept = world.get_claim(&claim).await;
        assert_eq!(
            (kept.metadata.deletion_timestamp, kept.metadata.owner_references),
            (None, None)
        );
        assert_eq!(world.uid_of_pod("db-0").await, uid);
        world.api::<StatefulSet>().delete("db", &DeleteParams::default()).await.unwrap();
    });
}

#[test]
fn quota_is_met_before_a_pod_is_stopped() {
    run("hazard_quota", |world| async move {
        let class = workload(&world, 1).await;
        let uid = world.uid_of_pod("db-0").await;
        world.quota("250Mi").await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        let status = world.until_waiting_for("ExceedsQuota").await;
        assert!(status.message.unwrap().starts_with("ResourceQuota storage leaves "));
        world.until_told("db", "ExceedsQuota", 1).await;
        assert_eq!(world.uid_of_pod("db-0").await, uid, "it was not stopped");
        world.api::<ResourceQuota>().delete("storage", &DeleteParams::default()).await.unwrap();
        world.settled("1/1").await;
        assert_eq!(capacity(&world.active(0).await), "100Mi");
        world.end_workload().await;
    });
}

#[test]
fn gitops_owns_the_specification_alone() {
    run("hazard_gitops", |world| async move {
        let class = workload(&world, 1).await;
        world.autoscaler(&class, "100Mi", json!({})).await;
        world.settled("1/1").await;
        let autoscaler = world.api::<PvcAutoscaler>().get("db").await.unwrap();
        let fields = autoscaler.metadata.managed_fields.unwrap();
        let others = fields.iter().filter(|one| one.manager.as_deref() != Some("test"));
        let written: Vec<_> = others.map(|one| one.subresource.as_deref()).collect();
        assert_eq!(written, [Some("status")], "{fields:?}");
        world.end_workload().await;
    });
}

#[test]
fn retention_ends_for_no_claim_whose_successor_is_unused() {
    run("hazard_retention", |world| async move {
        let class = workload(&world, 1).await;
        let old = world.active(0).await.name_any();
        world.exec("db-0", "echo 0 >>/data/records").await;
        world.autoscaler(&class, "100Mi", json!({"retention": "1s"})).await;
        world
            .until::<Pod>("db-0", "has failed again", |pod| {
                let all = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
                all.into_iter().any(|one| one.restart_count >= 3)
            })
            .await;
        let status = world.api::<PvcAutoscaler>().get("db").await.unwrap().status.unwrap();
        assert_ne!(status.phase, AutoscalerPhase::InSync);
        assert_eq!(world.get_claim(&old).await.metadata.deletion_timestamp, None);
        let claims = world.api::<PersistentVolumeClaim>();
        assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), 2);
        world.end_workload().await;
    });
}
