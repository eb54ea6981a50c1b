//! Claims of pods that no StatefulSet makes, and that name them by themselves.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use pliant::api::AutoscalerPhase;
use serde_json::{Value, json};

use crate::block_on;
use crate::play::object;
use crate::world::{SHOP, World};

impl World {
    /// A Deployment whose pods name this claim as volume `www`.
    fn deployment(&self, claim: &str) {
        let volume = json!({"name": "www", "persistentVolumeClaim": {"claimName": claim}});
        self.api.put(&object::<Deployment>(json!({
            "metadata": {"name": "web", "namespace": SHOP},
            "spec": {"replicas": 1, "selector": {},
                     "template": {"spec": {"containers": [], "volumes": [volume]}}},
        })));
    }

    /// A pod with such a label, which names this claim.
    fn labelled(&self, name: &str, app: &str, claim: &str) {
        let volume = json!({"name": "any", "persistentVolumeClaim": {"claimName": claim}});
        self.api.put(&object::<Pod>(json!({
            "metadata": {"name": name, "namespace": SHOP, "labels": {"app": app}},
            "spec": {"containers": [], "volumes": [volume]}, "status": {"phase": "Pending"},
        })));
    }

    fn made_by_others(&self, claim: &str) {
        self.api.put(&object::<PersistentVolumeClaim>(json!({
            "metadata": {"name": claim, "namespace": SHOP},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                     "resources": {"requests": {"storage": "4Gi"}}},
            "status": {"phase": "Pending"},
        })));
    }

    fn size(&self, claim: &str) -> String {
        let status = self.claim(claim).expect("a claim").status.expect("a status");
        status.capacity.expect("a capacity")["storage"].0.clone()
    }
}

fn of_web() -> Value {
    json!({"statefulSetName": null, "workload": {"deploymentName": "web"}})
}

fn of_pods() -> Value {
    let selector = json!({"matchLabels": {"app": "kafka"}});
    let chosen = json!({"podSelector": selector, "claimNamePattern": "data-*"});
    json!({"statefulSetName": null, "workload": chosen})
}

#[test]
fn the_claim_of_a_deployment_is_grown_and_shrunk_under_its_pod() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.play().file_system = Some("btrfs");
        world.made_by_others("files");
        world.deployment("files");
        world.labelled("web-x", "web", "files");
        world.want("4Gi", "hdd", &of_web());
        world.settled("1/1").await;
        let pod = world.pod("web-x");
        assert_eq!((world.claims(), &*world.size("files")), (vec!["files".to_owned()], "4Gi"));
        assert_eq!(world.status().workload.as_deref(), Some("Deployment/web"));
        for size in ["6Gi", "2Gi", "3Gi"] {
            world.want(size, "hdd", &of_web());
            world.settled("1/1").await;
            assert_eq!((world.claims().len(), &*world.size("files")), (1, size));
        }
        assert_eq!(world.pod("web-x"), pod, "it was not started again");
        assert_eq!(world.left(), Vec::<String>::new());

        world.want("3Gi", "ssd", &of_web());
        world
            .until("it is told", |status| status.reason.as_deref() == Some("SwapUnsupported"))
            .await;
        world.rest().await;
        let message = world.status().message.unwrap_or_default();
        assert!(message.contains("Deployment web names claim files itself"), "{message}");
        assert_eq!((world.claims().len(), world.pod("web-x")), (1, pod));
    });
}

#[test]
fn the_pod_of_a_deployment_is_stopped_by_hand_where_its_volume_needs_that() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.play().file_system = Some("ext4");
        world.made_by_others("files");
        world.deployment("files");
        world.labelled("web-x", "web", "files");
        world.want("4Gi", "hdd", &of_web());
        world.settled("1/1").await;
        world.want("2Gi", "hdd", &of_web());
        world.until("it is told", |status| status.reason.as_deref() == Some("ClaimInUse")).await;
        let message = world.status().message.unwrap_or_default();
        assert!(message.contains("stop pod web-x"), "{message}");
        assert!(message.contains("`kubectl scale deployment web --replicas=0`"), "{message}");
        assert_eq!(world.status().ready_claims(), "0/1", "it is larger than the template has it");
        world.api.delete::<Pod>(&format!("{SHOP}/web-x"));
        world.settled("1/1").await;
        assert_eq!(world.size("files"), "2Gi");
    });
}

#[test]
fn a_deployment_that_names_another_claim_has_that_one_kept() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.made_by_others("files");
        world.deployment("files");
        world.labelled("web-x", "web", "files");
        world.want("4Gi", "hdd", &of_web());
        world.settled("1/1").await;
        world.made_by_others("more");
        world.deployment("more");
        world.labelled("web-y", "web", "more");
        world.until("it is kept", |status| status.ordinals.len() == 2).await;
        world.settled("1/1").await;
        world.want("6Gi", "hdd", &of_web());
        world.settled("1/1").await;
        assert_eq!((&*world.size("files"), &*world.size("more")), ("4Gi", "6Gi"));
        let claims = world.status().ordinals.into_iter().map(|one| one.active_claim);
        assert_eq!(claims.collect::<Vec<_>>(), ["files", "more"], "it may name the first again");
    });
}

#[test]
fn claims_are_found_by_the_labels_of_pods_and_by_their_names() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        for claim in ["data-a", "data-b", "data-c", "log-a"] {
            world.made_by_others(claim);
        }
        for (pod, app, claim) in [
            ("a", "kafka", "data-a"),
            ("b", "kafka", "data-b"),
            ("c", "other", "data-c"),
            ("d", "kafka", "log-a"),
        ] {
            world.labelled(pod, app, claim);
        }
        world.want("4Gi", "hdd", &of_pods());
        world.settled("2/2").await;
        assert_eq!(world.status().workload.as_deref(), Some("Pods/app=kafka"));
        world.want("6Gi", "hdd", &of_pods());
        world.settled("2/2").await;
        let sizes = ["data-a", "data-b", "data-c", "log-a"].map(|claim| world.size(claim));
        assert_eq!(sizes, ["6Gi", "6Gi", "4Gi", "4Gi"]);

        // One more pod, whose claim was there before; and one that is away keeps its place.
        world.api.delete::<Pod>(&format!("{SHOP}/a"));
        world.api.delete::<Pod>(&format!("{SHOP}/c"));
        world.labelled("c", "kafka", "data-c");
        world.until("it is found", |status| status.ready_claims() == "3/3").await;
        world.rest().await;
        assert_eq!(world.size("data-c"), "6Gi");
        let claims = world.status().ordinals.into_iter().map(|one| one.active_claim);
        assert_eq!(claims.collect::<Vec<_>>(), ["data-a", "data-b", "data-c"]);
    });
}

#[test]
fn a_workload_without_claims_is_told() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.want("4Gi", "hdd", &of_web());
        world
            .until("it is told", |status| status.reason.as_deref() == Some("WorkloadNotFound"))
            .await;
        let message = world.status().message.unwrap_or_default();
        assert!(message.contains("no Deployment web"), "{message}");
        world.api.put(&object::<Deployment>(json!({
            "metadata": {"name": "web", "namespace": SHOP},
            "spec": {"selector": {}, "template": {}},
        })));
        let is_told = |status: &pliant::api::PvcAutoscalerStatus| {
            status.reason.as_deref() == Some("ClaimsNotFound")
                && status.phase == AutoscalerPhase::Waiting
        };
        world.until("it is told", is_told).await;
        let message = world.status().message.unwrap_or_default();
        assert!(message.contains("no claim as volume www"), "{message}");
        world.want("4Gi", "hdd", &of_pods());
        let is_of_pods = |status: &pliant::api::PvcAutoscalerStatus| {
            status.message.as_ref().is_some_and(|why| why.contains("none has a claim data-*"))
        };
        world.until("it is told", is_of_pods).await;
        assert_eq!(world.claims(), Vec::<String>::new());
    });
}

#[test]
fn a_claim_that_is_not_there_is_told_and_never_made() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.deployment("files");
        world.labelled("web-x", "web", "files");
        world.want("4Gi", "hdd", &of_web());
        world
            .until("it is told", |status| status.reason.as_deref() == Some("ClaimsNotFound"))
            .await;
        world.rest().await;
        assert_eq!(world.claims(), Vec::<String>::new());
        // Its owner makes it a moment later, with what is to be in it.
        world.made_by_others("files");
        world.settled("1/1").await;
    });
}

#[test]
fn a_claim_that_another_one_keeps_is_let_be() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.made_by_others("files");
        let mut claim = world.claim("files").expect("a claim");
        claim.metadata.labels =
            Some([("pliant.io/pvc-autoscaler".to_owned(), "other".to_owned())].into());
        world.api.put(&claim);
        world.deployment("files");
        world.labelled("web-x", "web", "files");
        world.want("6Gi", "hdd", &of_web());
        world.until("it is told", |status| status.reason.as_deref() == Some("ClaimConflict")).await;
        world.rest().await;
        let message = world.status().message.unwrap_or_default();
        assert!(message.contains("managed by PvcAutoscaler other"), "{message}");
        assert_eq!(world.size("files"), "4Gi");
    });
}

#[test]
fn what_a_person_fills_for_a_deployment_is_not_swept() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.made_by_others("files");
        let mut filled = world.claim("files").expect("a claim");
        let source = json!({"apiGroup": "pliant.io", "kind": "PvcSourcePopulator", "name": "copy"});
        filled.metadata.name = Some("copy".to_owned());
        filled.metadata.uid = None;
        filled.spec.as_mut().unwrap().data_source_ref = Some(object(source));
        world.api.put(&filled);
        world.deployment("copy");
        world.want("4Gi", "hdd", &of_web());
        world.until("it is kept", |status| status.ordinals.len() == 1).await;
        world.rest().await;
        world.deployment("files");
        world.until("the other is kept", |status| status.ordinals.len() == 2).await;
        world.api.delete::<Deployment>(&format!("{SHOP}/web"));
        world.rest().await;
        assert_eq!(world.claims(), ["copy", "files"]);
    });
}
