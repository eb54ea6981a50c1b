//! What a claim says of its size, and how it is bound.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use serde::{Deserialize, Serialize};

use crate::api::Quantity;

/// On a claim: the size for which the resizer of Kubernetes was woken.
pub const RESIZER_WOKEN_FOR: &str = "pliant.io/resizer-woken-for";

/// On a claim that has got another volume under its own name: what its node calls that volume.
pub const VOLUME: &str = "pliant.io/volume";

/// Beside it: the StorageClass of that volume. What the claim names itself never changes.
pub const CLASS: &str = "pliant.io/storage-class";

/// On the PersistentVolumes of two claims, while they change their volumes: what both are to be.
pub const EXCHANGE: &str = "pliant.io/exchange";

/// The label of claims and sources by which each says which PvcAutoscaler made it.
pub const KEPT_BY: &str = "pliant.io/pvc-autoscaler";

/// The finalizer of a claim that a swap holds.
pub const HELD_BY_SWAP: &str = "pliant.io/swap";

/// The finalizer of what fills a claim, and of the claim.
pub const HELD_BY_POPULATOR: &str = "pliant.io/populator";

/// How a claim is bound, as its controller says.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Binding {
    /// It has no volume yet.
    #[default]
    Pending,
    /// It has its volume.
    Bound,
    /// Its volume is gone.
    Lost,
}

impl Binding {
    /// Returns how a claim is bound.
    pub fn of(claim: &PersistentVolumeClaim) -> Binding {
        match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Bound") => Binding::Bound,
            Some("Lost") => Binding::Lost,
            _ => Binding::Pending,
        }
    }
}

/// What its node calls the volume of a claim.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let given = claim.metadata.annotations.as_ref().and_then(|notes| notes.get(VOLUME));
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
    named.map(|named| given.unwrap_or(named).as_str())
}

/// The class of the volume of a claim.
pub fn class_of(claim: &PersistentVolumeClaim) -> Option<&String> {
    let given = claim.metadata.annotations.as_ref().and_then(|notes| notes.get(CLASS));
    given.or_else(|| claim.spec.as_ref()?.storage_class_name.as_ref())
}

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

/// What was said of the last growth of a claim that failed.
pub fn resize_error(claim: &PersistentVolumeClaim) -> Option<&str> {
    let conditions = claim.status.as_ref()?.conditions.iter().flatten();
    let mut failed = conditions.filter(|one| one.type_.ends_with("ResizeError"));
    failed.find_map(|one| one.message.as_deref()).map(own_words)
}

/// The size that a claim cannot get, as the resizer says; it may ask for another one by now.
pub fn refused_size(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let status = claim.status.as_ref()?;
    let resize = status.allocated_resource_statuses.as_ref()?.get("storage")?;
    let tried = status.allocated_resources.as_ref()?.get("storage")?;
    (resize == "ControllerResizeInfeasible").then(|| quantity(Some(tried)))
}

/// Why the driver does not give a claim what it asks for, in its words; `None` if it gives it, or has not
/// answered to that size yet.
pub fn refusal(claim: &PersistentVolumeClaim) -> Option<&str> {
    let asked = requested(claim);
    let is_refused = refused_size(claim) == Some(asked) && asked > capacity(claim);
    is_refused.then(|| resize_error(claim).unwrap_or("the driver did not say why"))
}

/// Whether a growth of a claim is told as under way, or as refused.
pub fn is_resizing(claim: &PersistentVolumeClaim) -> bool {
    let statuses = claim.status.as_ref().and_then(|it| it.allocated_resource_statuses.as_ref());
    statuses.is_some_and(|all| all.contains_key("storage"))
}

/// What the driver said, of what a sidecar tells: that writes what it did and the code in front of it.
pub fn own_words(text: &str) -> &str {
    text.rsplit(" desc = ").next().unwrap_or(text)
}

fn quantity(written: Option<&Written>) -> Quantity {
    let parsed = written.and_then(|written| written.0.parse().ok());
    Quantity(parsed.unwrap_or_default())
}
