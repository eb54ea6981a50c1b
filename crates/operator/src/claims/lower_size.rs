//! Lowers the size of a claim in Kubernetes, which does not support that.
//!
//! A claim never requests less than it has. So its capacity is set to a byte less than the new size, which
//! it then requests: the resizer sees an expansion by a byte, calls the driver, and writes the real size.
//! Meanwhile the driver rejects any larger size.
//!
//! Source: the rules of `ValidatePersistentVolumeClaimUpdate` in Kubernetes, and the resizer's of KEP-1790.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::api::Quantity;
use crate::bytes::Bytes;
use crate::claims::context::ClaimsController;
use crate::claims::objects::uid;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{capacity, writes};

/// Lowers the request of a claim whose volume was shrunk; repeating it changes nothing.
///
/// # Errors
/// An error of the API server; a conflict or an invalid patch if something was written meanwhile.
pub(super) async fn lower_size(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
    to: Quantity,
) -> Result<(), kube::Error> {
    let api = ctx.of::<PersistentVolumeClaim>(&claim.namespace().unwrap_or_default());
    let claim = lower(&ctx.client, claim, to).await?;
    let patch = json!({
        "metadata": {"resourceVersion": claim.metadata.resource_version},
        "spec": {"resources": {"requests": {"storage": to}}},
    });
    writes::patch(&api, &claim.name_any(), &Patch::Merge(patch), OPERATOR).await
}

/// Lowers the capacity of a claim and its PersistentVolume, and clears expansions that were started.
///
/// # Errors
/// A conflict if the claim has changed since it was read; nothing is written then. An error of the API
/// server.
pub(super) async fn lower(
    client: &Client,
    claim: &PersistentVolumeClaim,
    to: Quantity,
) -> Result<PersistentVolumeClaim, kube::Error> {
    let api = Api::<PersistentVolumeClaim>::namespaced(
        client.clone(),
        &claim.namespace().unwrap_or_default(),
    );
    let less = Quantity(Bytes::new(to.0.get().saturating_sub(1)));
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let pvs: Api<PersistentVolume> = Api::all(client.clone());
    let pv = pvs.get(volume.unwrap_or_default()).await?;
    // After the PersistentVolume: another replica may have lowered the claim since, and the resizer may
    // have set its right size already.
    let now = api.get(&claim.name_any()).await?;
    if now.resource_version() != claim.resource_version() {
        return Err(writes::outdated("the claim has changed since it was looked at"));
    }
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": pv.resource_version()},
        {"op": "test", "path": "/spec/claimRef/uid", "value": uid(&claim.metadata)},
        {"op": "replace", "path": "/spec/capacity/storage", "value": less},
    ]);
    writes::patch(&pvs, &pv.name_any(), &writes::by_json(patch), OPERATOR).await?;
    let status = claim.status.clone().unwrap_or_default();
    let began = [
        ("allocatedResources", status.allocated_resources.is_some()),
        ("allocatedResourceStatuses", status.allocated_resource_statuses.is_some()),
    ];
    let gone = began.iter().filter(|(_, is_there)| *is_there);
    let gone: Vec<Value> = gone
        .map(|(field, _)| json!({"op": "remove", "path": format!("/status/{field}")}))
        .collect();
    if gone.is_empty() && capacity(claim) == Ok(less) {
        return Ok(claim.clone());
    }
    let version = &claim.metadata.resource_version;
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
        json!({"op": "replace", "path": "/status/capacity/storage", "value": less}),
    ];
    patch.extend(gone);
    let params = PatchParams { field_manager: Some(OPERATOR.to_owned()), ..PatchParams::default() };
    let patch = writes::by_json(Value::Array(patch));
    api.patch_status(&claim.name_any(), &params, &patch).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use pliant_fake_apiserver::{FakeApi, Kinds};

    /// What a replica of the operator does that was held up while another one has done all of it, and the
    /// resizer its part.
    #[tokio::test(start_paused = true)]
    async fn a_persistent_volume_that_was_put_right_meanwhile_is_let_be() {
        let api = FakeApi::new(&Kinds::with(&crate::api::definitions()));
        let claim = |size: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({
                "metadata": {"name": "db", "namespace": "shop", "uid": "u"},
                "spec": {"volumeName": "pv", "resources": {"requests": {"storage": size}}},
                "status": {"phase": "Bound", "capacity": {"storage": size}},
            }))
            .unwrap()
        };
        let pv = |size: &str| -> PersistentVolume {
            serde_json::from_value(json!({
                "metadata": {"name": "pv"},
                "spec": {"capacity": {"storage": size}, "claimRef": {"uid": "u"}},
            }))
            .unwrap()
        };
        api.put(&claim("4Gi"));
        api.put(&pv("4Gi"));
        let client = api.client_of("operator");
        let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), "shop");
        let looked_at = claims.get("db").await.unwrap();
        let has = || {
            let pv: PersistentVolume = api.get("pv").unwrap();
            pv.spec.unwrap().capacity.unwrap()["storage"].0.clone()
        };

        api.put(&claim("2Gi"));
        api.put(&pv("2Gi"));
        let to = Quantity(Bytes::gib(2));
        let late = lower(&client, &looked_at, to).await.unwrap_err();
        assert_eq!(has(), "2Gi");
        assert!(late.to_string().contains("changed"), "{late}");

        let now = claims.get("db").await.unwrap();
        lower(&client, &now, to).await.unwrap();
        assert_eq!(has(), (Bytes::gib(2).get() - 1).to_string());
    }
}
