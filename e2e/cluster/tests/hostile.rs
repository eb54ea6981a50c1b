//! What a tenant may write, on a real API server, and what that does to others.

use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pliant::admission::{Service, Workload, is_covered};
use pliant::api::{PvcAutoscaler, PvcAutoscalerStatus};
use serde_json::{Value, json};

use crate::autoscaler::is_ready;
use crate::calls::persist;
use crate::claim::capacity;
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

impl World {
    /// Whether the API server takes a PvcAutoscaler as a tenant types it, whatever this program could read
    /// of it. Nothing is made.
    async fn is_taken(&self, spec: Value) -> bool {
        let kind = ApiResource::erase::<PvcAutoscaler>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.name, &kind);
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
            "metadata": {"name": "hostile"}, "spec": spec,
        }))
        .unwrap();
        let tried = PostParams { dry_run: true, ..PostParams::default() };
        match persist(|| api.create(&tried, &object)).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 422 => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// A claim that is bound to a volume; the name of its PersistentVolume.
    async fn bound_claim(&self, name: &str, size: &str) -> String {
        let class = self.class_that_binds_at_once(json!({"pool": "fast"})).await;
        self.claim(name, &class, size, "Filesystem").await;
        let is_bound = |claim: &PersistentVolumeClaim| capacity(claim) == size;
        let bound = self.until::<PersistentVolumeClaim>(name, "is bound", is_bound).await;
        bound.spec.unwrap().volume_name.unwrap()
    }

    /// A pod whose claim is to be swapped in a namespace that makes no further pod.
    async fn swap_waits(&self, class: &str) -> PvcAutoscalerStatus {
        self.autoscaler(class, "100Mi", json!({})).await;
        self.until_status("says why its swap waits", |status| status.reason.is_some()).await
    }
}

fn template(size: &str) -> Value {
    json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "pliant",
        "resources": {"requests": {"storage": size}}}})
}

#[test]
fn a_size_that_no_disk_has_is_refused() {
    run("tenant_sizes", |world| async move {
        let of = |size, most| {
            json!({"statefulSetName": "db", "volumeClaimTemplate": template(size),
                   "autoscale": {"growAt": 80, "maxSize": most}})
        };
        assert!(world.is_taken(of("64Mi", "1Ti")).await);
        assert!(!world.is_taken(of("8Ei", "1Ti")).await, "of a template");
        assert!(!world.is_taken(of("64Mi", "8Ei")).await, "of a policy");
    });
}

#[test]
fn a_finalizer_that_a_tenant_writes_retains_no_volume() {
    run("tenant_finalizer", |world| async move {
        let volume = world.bound_claim("data", "32Mi").await;
        let claims = world.api::<PersistentVolumeClaim>();
        let ours = Patch::Merge(json!({"metadata": {"finalizers": ["pliant.io/swap"]}}));
        let (patch, delete) = (PatchParams::default(), DeleteParams::default());
        claims.patch("data", &patch, &ours).await.unwrap();
        claims.delete("data", &delete).await.unwrap();
        let pvs: Api<PersistentVolume> = Api::all(world.client.clone());
        world.until_gone(pvs, &volume).await;
        assert_eq!(world.on_nodes(&volume).await, None, "its volume is left");
    });
}

#[test]
fn a_namespace_that_makes_no_further_pod_keeps_the_one_that_runs() {
    run("tenant_quota", |world| async move {
        let class = world.class(json!({"pool": "fast", "fs-type": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        let quotas = world.api::<ResourceQuota>();
        let quota: ResourceQuota = serde_json::from_value(
            json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "1"}}}),
        )
        .unwrap();
        quotas.create(&PostParams::default(), &quota).await.unwrap();
        world
            .until::<ResourceQuota>("pods", "is counted", |quota| {
                quota.status.as_ref().is_some_and(|status| status.used.is_some())
            })
            .await;
        let pods = world.api::<Pod>();
        let uid = pods.get("db-0").await.unwrap().uid();
        let status = world.swap_waits(&class).await;
        let pod = pods.get("db-0").await.unwrap();
        assert_eq!(pod.uid(), uid, "its pod was stopped: {status:?}");
        assert!(is_ready(&pod), "its pod does not run: {status:?}");
        quotas.delete("pods", &DeleteParams::default()).await.unwrap();
        world.settled("1/1").await;
        assert_eq!(capacity(&world.active(0).await), "100Mi");
        world.end_workload().await;
    });
}

#[test]
fn a_restricted_namespace_keeps_its_pod() {
    run("tenant_restricted", |world| async move {
        let class = world.class(json!({"pool": "fast", "fs-type": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        // What runs stays; what is made from now on has to be restricted.
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        let enforce = "pod-security.kubernetes.io/enforce";
        let labels = Patch::Merge(json!({"metadata": {"labels": {enforce: "restricted"}}}));
        namespaces.patch(&world.name, &PatchParams::default(), &labels).await.unwrap();
        let pods = world.api::<Pod>();
        let uid = pods.get("db-0").await.unwrap().uid();
        let status = world.swap_waits(&class).await;
        assert_eq!(pods.get("db-0").await.unwrap().uid(), uid, "its pod was stopped: {status:?}");
        let said = status.message.unwrap_or_default();
        assert!(said.contains("restricted"), "{said}");
        // The edit back ends it: there is nothing to be undone.
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        assert_eq!(pods.get("db-0").await.unwrap().uid(), uid);
        let none = Patch::Merge(json!({"metadata": {"labels": {enforce: null}}}));
        namespaces.patch(&world.name, &PatchParams::default(), &none).await.unwrap();
        world.end_workload().await;
    });
}
