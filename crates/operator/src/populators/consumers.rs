//! Users and writers of a claim. Pure.

use std::collections::BTreeSet;

use kube::ResourceExt;

use crate::cluster::{PodSummary, VolumeSummary};
use crate::populators::LABEL;

/// Returns the pods that may write to a claim of their namespace: all that use it and have not ended,
/// but those that can only read it. A pod that was only just made counts too, but not one that waits
/// behind our gate: it is on no node.
pub fn writers(pods: &[PodSummary], claim: &str) -> Vec<String> {
    writing(pods, claim).map(ResourceExt::name_any).collect()
}

/// Returns true if a pod populates a claim for Pliant. It only reads its source.
pub fn fills(pod: &PodSummary) -> bool {
    pod.labels().contains_key(LABEL)
}

/// Returns the uid of the claim that a pod of Pliant populates, or sends to.
pub fn claim_filled_by(pod: &PodSummary) -> Option<&str> {
    pod.labels().get(LABEL).map(String::as_str)
}

/// Returns the nodes on which these pods are.
pub(super) fn nodes_of_writers(pods: &[PodSummary], claim: &str) -> BTreeSet<String> {
    writing(pods, claim).filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}

fn writing<'a>(pods: &'a [PodSummary], claim: &'a str) -> impl Iterator<Item = &'a PodSummary> {
    let writes = move |pod: &&PodSummary| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let name = pod.name_any();
        let uses = volumes.into_iter().any(|volume| is_written(volume, &name, claim));
        uses && !has_ended && !fills(pod) && !pod.is_gated()
    };
    pods.iter().filter(writes)
}

fn is_written(volume: &VolumeSummary, pod: &str, claim: &str) -> bool {
    let named = volume.persistent_volume_claim.as_ref();
    let named = named.filter(|named| named.claim_name == claim && named.read_only != Some(true));
    let is_ephemeral = volume.ephemeral.is_some() && format!("{pod}-{}", volume.name) == claim;
    named.is_some() || is_ephemeral
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn whoever_may_write_is_named() {
        let pod = |name: &str, phase: &str, labels: Value, volume: Value| -> PodSummary {
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": labels},
                "spec": {"containers": [], "volumes": [volume]},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let of = |claim: &str, read_only: bool| json!({"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}});
        let pods = vec![
            pod("runs", "Running", json!({}), of("db", false)),
            pod("waits", "Pending", json!({}), of("db", false)),
            pod("reads", "Running", json!({}), of("db", true)),
            pod("ended", "Succeeded", json!({}), of("db", false)),
            pod("died", "Failed", json!({}), of("db", false)),
            pod("unknown", "Unknown", json!({}), of("db", false)),
            pod("other", "Running", json!({}), of("web", false)),
            pod("fills", "Running", json!({LABEL: "u"}), of("db", false)),
            pod("web", "Running", json!({}), json!({"name": "tmp", "ephemeral": {}})),
        ];
        assert_eq!(writers(&pods, "db"), ["runs", "waits", "unknown"]);
        assert_eq!(writers(&pods, "web-tmp"), ["web"]);
    }
}
