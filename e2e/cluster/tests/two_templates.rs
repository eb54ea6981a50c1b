//! A StatefulSet whose pods have two volumes and start one after the other, and whose pods nobody but
//! their deletion renews: each of its volumes has a PvcAutoscaler.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DeleteParams, PostParams};
use pliant::api::{AutoscalerPhase, PvcAutoscaler};
use serde_json::{Value, json};

use crate::claim::capacity;
use crate::world::{World, run};

const VOLUMES: [&str; 2] = ["data", "log"];

impl World {
    /// Two pods, each with both volumes, under the policies that swaps have least to say in.
    async fn workload_with_two_volumes(&self) {
        let volume =
            |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
        let of_all = |make: &dyn Fn(&str) -> Value| VOLUMES.map(make);
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "db"},
            "spec": {
                "serviceName": "db",
                "replicas": 2,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "OnDelete"},
                "selector": {"matchLabels": {"app": "db"}},
                "template": {
                    "metadata": {"labels": {"app": "db"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "dnsPolicy": "Default",
                        "containers": [{
                            "name": "app", "image": "pliant.test/busybox:1", "command": ["sleep", "9999"],
                            "volumeMounts": of_all(&mount),
                        }],
                        "volumes": of_all(&volume),
                    },
                },
            },
        }))
        .unwrap();
        self.api::<StatefulSet>().create(&PostParams::default(), &set).await.unwrap();
    }

    async fn both_settled(&self) {
        for name in VOLUMES {
            self.until_status_of(name, "has both claims settled", |status| {
                status.phase == AutoscalerPhase::InSync && status.ready_claims() == "2/2"
            })
            .await;
        }
    }

    async fn want_of_both(&self, class: &str, size: &str) {
        for name in VOLUMES {
            self.autoscaler_of(name, name, (class, size), json!({})).await;
        }
    }
}

#[test]
fn both_volumes_of_pods_that_start_in_order_become_others() {
    run("two_templates", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload_with_two_volumes().await;
        world.want_of_both(&class, "160Mi").await;
        world.both_settled().await;
        for pod in ["db-0", "db-1"] {
            for volume in VOLUMES {
                let write = format!("echo {pod} {volume} >/{volume}/whose; sync");
                world.exec_when_back(pod, &write).await;
            }
        }
        world.want_of_both(&class, "96Mi").await;
        world.both_settled().await;
        for (ordinal, pod) in [(0, "db-0"), (1, "db-1")] {
            for volume in VOLUMES {
                let status =
                    world.api::<PvcAutoscaler>().get(volume).await.unwrap().status.unwrap();
                let entry = status.of(ordinal).unwrap().clone();
                assert_eq!(capacity(&world.get_claim(&entry.active_claim).await), "96Mi");
                let told = world.exec_when_back(pod, &format!("cat /{volume}/whose")).await;
                assert_eq!((told.trim(), entry.claim_revision), (&*format!("{pod} {volume}"), 1));
            }
        }
        let now = DeleteParams::default();
        world.api::<StatefulSet>().delete("db", &now).await.unwrap();
        for name in VOLUMES {
            world.api::<PvcAutoscaler>().delete(name, &now).await.unwrap();
        }
    });
}
