//! Pods, reduced to their claims, their scheduling and their state.
//!
//! A pod may be 1 MiB, and a namespace may have ten thousand: they are listed in small pages, and only these fields
//! are decoded.

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::cluster::decode::pages;
use crate::cluster::memory_limits::SHARE;
use crate::cluster::summary::{LARGEST_POD, PodSummary, weight};

/// Lists the pods of a namespace that have a claim, or that a StatefulSet creates.
///
/// # Errors
/// An error of the API server, or a pod that cannot be decoded or is too large: it might write to a claim.
pub async fn pods(client: &Client, namespace: &str) -> Result<Vec<PodSummary>, kube::Error> {
    let (mut all, mut taken, mut fault) = (Vec::new(), 0, None);
    let api = Api::namespaced(client.clone(), namespace);
    pages(&api, &ListParams::default(), |one: Result<PodSummary, _>| match one {
        Ok(pod) if pod.is_read() => {
            let weight = weight(&pod);
            taken += weight;
            if weight > LARGEST_POD {
                let name = pod.name_any();
                fault.get_or_insert(format!(
                    "pod {namespace}/{name} has more than {} KiB of labels, volumes, tolerations and node \
                     selectors",
                    LARGEST_POD >> 10
                ));
            } else if taken <= SHARE {
                all.push(pod);
            }
        }
        Ok(_) => {}
        Err(one) => drop(fault.get_or_insert(one.to_string())),
    })
    .await?;
    if taken > SHARE {
        fault.get_or_insert(format!(
            "the pods with claims of namespace {namespace} take more than {} MiB",
            SHARE >> 20
        ));
    }
    match fault {
        Some(fault) => Err(kube::Error::SerdeError(serde::de::Error::custom(fault))),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;
    use pliant_fake_apiserver::{FakeApi, Kinds};

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
        let api = FakeApi::new(&Kinds::with(&crate::api::definitions()));
        for at in 0..60 {
            api.put_json::<Pod>(fat(&format!("db-{at:02}")));
        }
        let before = api.calls();
        let all = pods(&api.client(), "shop").await.unwrap();
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
        let api = FakeApi::new(&Kinds::with(&crate::api::definitions()));
        api.put_json::<Pod>(json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": 7}));
        let all = pods(&api.client(), "shop").await;
        assert!(all.unwrap_err().to_string().contains("Pod shop/a cannot be decoded"));
    }
}
