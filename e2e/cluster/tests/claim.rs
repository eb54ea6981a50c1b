//! What a claim says of itself.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// The size that it has, as the API server tells it.
pub fn capacity(claim: &PersistentVolumeClaim) -> String {
    let capacity =
        claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    capacity.map(|size| size.0.clone()).unwrap_or_default()
}

/// The conditions that hold.
pub fn conditions(claim: &PersistentVolumeClaim) -> Vec<String> {
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|one| one.status == "True").map(|one| one.type_.clone()).collect()
}

/// What is told of the resize under way, such as `ControllerResizeInfeasible`.
pub fn resize(claim: &PersistentVolumeClaim) -> Option<String> {
    claim.status.as_ref()?.allocated_resource_statuses.as_ref()?.get("storage").cloned()
}
