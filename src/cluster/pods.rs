//! Pods, as far as they say what uses a claim, where it may run and how it is.
//!
//! A pod may be 1 MiB, and a namespace may have ten thousand: they are listed in small pages, and of each only this is
//! kept.

use k8s_openapi::api::core::v1::{EphemeralVolumeSource, Pod, PodSpec, PodStatus, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::ListParams;

use crate::cluster::decode::pages;

/// What our own annotations begin with.
const OURS: &str = "pliant.io/";

/// List all pods of a namespace, each cut.
///
/// # Errors
/// What the API server says, and that a pod cannot be decoded: it might write to a claim.
pub async fn pods(api: &Api<Pod>) -> Result<Vec<Pod>, kube::Error> {
    let (mut all, mut unreadable) = (Vec::new(), None);
    pages(api, &ListParams::default(), |one: Result<Pod, _>| match one {
        Ok(mut pod) => {
            cut(&mut pod);
            all.push(pod);
        }
        Err(one) => unreadable = Some(one),
    })
    .await?;
    match unreadable {
        Some(one) => Err(kube::Error::SerdeError(serde::de::Error::custom(one))),
        None => Ok(all),
    }
}

/// Leave of a pod what uses a claim, where it may run, and how it is.
fn cut(pod: &mut Pod) {
    pod.metadata = names(std::mem::take(&mut pod.metadata));
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        affinity: spec.affinity,
        node_name: spec.node_name,
        node_selector: spec.node_selector,
        scheduling_gates: spec.scheduling_gates,
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        tolerations: spec.tolerations,
        volumes: spec.volumes.map(|all| all.into_iter().filter_map(of_a_claim).collect()),
        ..PodSpec::default()
    });
    pod.status = pod.status.take().map(|status| {
        let mut conditions = status.conditions;
        for condition in conditions.iter_mut().flatten() {
            condition.message = None;
        }
        PodStatus { phase: status.phase, conditions, ..PodStatus::default() }
    });
}

/// Leave of a pod what names it and what it waits for: a watch tells only when to look.
pub fn cut_to_gates(pod: &mut Pod) {
    pod.metadata = names(std::mem::take(&mut pod.metadata));
    pod.spec = pod.spec.take().map(|spec| PodSpec {
        node_name: spec.node_name,
        scheduling_gates: spec.scheduling_gates,
        ..PodSpec::default()
    });
    pod.status = None;
}

fn names(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        labels: metadata.labels,
        owner_references: metadata.owner_references,
        annotations: metadata.annotations.map(|mut all| {
            all.retain(|key, _| key.starts_with(OURS));
            all
        }),
        ..ObjectMeta::default()
    }
}

/// A volume that is a claim, or becomes one, without all else.
fn of_a_claim(volume: Volume) -> Option<Volume> {
    let is_ephemeral = volume.ephemeral.is_some();
    (is_ephemeral || volume.persistent_volume_claim.is_some()).then(|| Volume {
        name: volume.name,
        persistent_volume_claim: volume.persistent_volume_claim,
        ephemeral: is_ephemeral.then(EphemeralVolumeSource::default),
        ..Volume::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::FakeApi;

    /// A pod of about 1 MB, most of which nobody here asks for.
    fn fat(name: &str) -> Value {
        let text = "x".repeat(100_000);
        let variables: Vec<Value> =
            (0..8).map(|at| json!({"name": format!("V{at}"), "value": text})).collect();
        json!({
            "metadata": {"name": name, "namespace": "shop", "annotations": {"note": text},
                         "labels": {"app": "db"}, "finalizers": ["a/b"]},
            "spec": {
                "containers": [{"name": "c", "env": variables}], "nodeName": "alpha",
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                    {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                    {"name": "config", "configMap": {"name": "c"}},
                ],
            },
            "status": {"phase": "Running", "message": text,
                       "conditions": [{"type": "Ready", "status": "True", "message": text}]},
        })
    }

    #[tokio::test]
    async fn of_fat_pods_only_what_uses_claims_is_kept_and_a_page_is_read_at_a_time() {
        let api = FakeApi::new();
        for at in 0..60 {
            api.put_json::<Pod>(fat(&format!("db-{at:02}")));
        }
        let before = api.calls();
        let all = pods(&Api::namespaced(api.client(), "shop")).await.unwrap();
        assert_eq!((all.len(), api.calls() - before), (60, 2), "in pages of 50");
        let bytes: usize = all.iter().map(|pod| serde_json::to_vec(pod).unwrap().len()).sum();
        assert!(bytes < 60 * 1024, "{bytes} bytes are kept of 60 MB");
        let volumes = all[0].spec.as_ref().unwrap().volumes.as_ref().unwrap();
        let names: Vec<&str> = volumes.iter().map(|volume| &*volume.name).collect();
        assert_eq!(names, ["data", "tmp"]);
        let phase = all[0].status.as_ref().unwrap().phase.as_deref();
        assert_eq!(phase, Some("Running"));
    }

    #[tokio::test]
    async fn a_pod_that_cannot_be_decoded_is_no_pod_that_is_not_there() {
        let api = FakeApi::new();
        api.put_json::<Pod>(json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": 7}));
        let all = pods(&Api::namespaced(api.client(), "shop")).await;
        assert!(all.unwrap_err().to_string().contains("Pod shop/a cannot be decoded"));
    }
}
