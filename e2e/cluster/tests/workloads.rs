//! The claim of a Deployment is grown and made smaller under its pod, which names it by itself.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use pliant::api::{AutoscalerPhase, PvcAutoscaler, PvcAutoscalerStatus};
use serde_json::{Value, json};

use crate::claim::capacity;
use crate::world::{World, run};

impl World {
    /// A Deployment whose pod writes to the claim `files`.
    async fn deployment(&self) {
        let made: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "dnsPolicy": "Default",
                        "containers": [{
                            "name": "app", "image": "pliant.test/busybox:1", "command": ["sleep", "9999"],
                            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        }],
                        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "files"}}],
                    },
                },
            },
        }))
        .unwrap();
        self.api::<Deployment>().create(&PostParams::default(), &made).await.unwrap();
    }

    async fn only_pod(&self) -> Pod {
        let pods = self.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
        let [pod] = &pods[..] else { panic!("{} pods", pods.len()) };
        pod.clone()
    }
}

fn of_web() -> Value {
    json!({"statefulSetName": null, "workload": {"deploymentName": "web"}})
}

#[test]
fn the_claim_of_a_deployment_is_grown_and_shrunk_under_its_pod() {
    run("the_claim_of_a_deployment", |world| async move {
        let class =
            world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "btrfs"})).await;
        world.claim("files", &class, "300Mi", "Filesystem").await;
        world.deployment().await;
        world.autoscaler(&class, "300Mi", of_web()).await;
        let settled = |status: &PvcAutoscalerStatus| {
            status.phase == AutoscalerPhase::InSync && status.ready_claims() == "1/1"
        };
        world.until_status("has its claim", settled).await;
        let pod = world.only_pod().await;
        let name = pod.name_any();
        world.exec_when_back(&name, "head -c 20000000 /dev/urandom >/data/big; sync").await;
        let digest = world.exec(&name, "sha256sum </data/big").await;
        for size in ["400Mi", "320Mi", "360Mi"] {
            world.autoscaler(&class, size, of_web()).await;
            let status = world.until_status("is settled", settled).await;
            assert_eq!(status.workload.as_deref(), Some("Deployment/web"));
            assert_eq!(capacity(&world.get_claim("files").await), size);
            assert_eq!(world.exec(&name, "sha256sum </data/big").await, digest, "{size}");
        }
        assert_eq!(world.only_pod().await.meta().uid, pod.meta().uid, "it ran all the time");
        world.autoscaler("pliant", "360Mi", of_web()).await;
        let fixed =
            |status: &PvcAutoscalerStatus| status.reason.as_deref() == Some("SwapUnsupported");
        world.until_status("says that its claim stays", fixed).await;

        // Whose claims they are is written in one way, and some of it does not change.
        let autoscalers = world.api::<PvcAutoscaler>();
        for (wrong, says) in [
            (json!({"workload": null}), "write either spec.statefulSetName or spec.workload"),
            (
                json!({"statefulSetName": "db"}),
                "write either spec.statefulSetName or spec.workload",
            ),
            (json!({"workload": {"deploymentName": "other"}}), "workload cannot change"),
            (
                json!({"workload": {"podSelector": {"matchLabels": {"app": "web"}}}}),
                "podSelector and claimNamePattern go together",
            ),
            (
                json!({"workload": {"podSelector": {"matchLabels": {}}}}),
                "should have at least 1 properties",
            ),
            (
                json!({"reactivate": [{"ordinal": 0, "fenceGeneration": 1}]}),
                "reactivate is for the claims of a StatefulSet",
            ),
            // The template has none, which stands for a file system.
            (
                json!({"volumeClaimTemplate": {"spec": {"volumeMode": "Block"}}}),
                "volumeMode cannot change",
            ),
            (json!({"autoscale": {"maxSize": "1Gi", "growBy": 25}}), "must be of type string"),
        ] {
            let patch = Patch::Merge(json!({ "spec": wrong }));
            let told = autoscalers.patch("db", &PatchParams::default(), &patch).await.unwrap_err();
            assert!(told.to_string().contains(says), "{wrong}: {told}");
        }
        world.api::<Deployment>().delete("web", &DeleteParams::default()).await.unwrap();
        autoscalers.delete("db", &DeleteParams::default()).await.unwrap();
    });
}
