//! What a claim says of its size.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;

use crate::api::Quantity;

/// On a claim: the size for which the resizer of Kubernetes was woken.
pub const RESIZER_WOKEN_FOR: &str = "pliant.io/resizer-woken-for";

/// What a claim asks for; nothing is 0.
pub fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    quantity(requests.and_then(|all| all.get("storage")))
}

/// What a claim has; nothing is 0.
pub fn capacity(claim: &PersistentVolumeClaim) -> Quantity {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    quantity(capacity.and_then(|all| all.get("storage")))
}

fn quantity(written: Option<&Written>) -> Quantity {
    let parsed = written.and_then(|written| written.0.parse().ok());
    Quantity(parsed.unwrap_or_default())
}
