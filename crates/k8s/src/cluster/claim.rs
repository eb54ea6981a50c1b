//! Sizes and binding of a claim.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};

use crate::api::{PvcAutoscaler, Quantity};
use crate::bytes::ParseBytesError;
use crate::cluster::volume_of;
use crate::volume::VolumeKey;

/// Annotation of a claim: the size for which the resizer of Kubernetes was notified.
pub const RESIZER_WOKEN_FOR: &str = "pliant.io/resizer-notified-for";

/// Annotation of a claim that got another volume under its own name: the handle of that volume.
pub const VOLUME: &str = "pliant.io/volume";

/// Annotation of the same claim: the StorageClass of that volume. The class in the specification of
/// a claim never changes.
pub const CLASS: &str = "pliant.io/storage-class";

/// Annotation of the PersistentVolumes of two claims while they exchange their volumes: the target
/// state of both.
pub const EXCHANGE: &str = "pliant.io/rebind";

/// Annotation of the PersistentVolume of an old claim: uid of the claim that is populated from it, once the volume
/// is proved unused. On that of the new claim: its own uid, once it has replaced the old one.
pub const DETACHED_FOR: &str = "pliant.io/detached-for";

/// Label of claims and sources: the PvcAutoscaler that created them.
pub const KEPT_BY: &str = "pliant.io/pvc-autoscaler";

/// The finalizer of a claim that a swap holds.
pub const HELD_BY_SWAP: &str = "pliant.io/swap-protection";

/// Finalizer of a claim and its source while it is populated.
pub const HELD_BY_POPULATOR: &str = "pliant.io/populator-protection";

/// Returns true if the claim of a pod does not exist with the uid that these PvcAutoscalers know: another client
/// may have created one of its name.
///
/// # Errors
/// An error of the API server.
pub async fn lacks_claim(
    client: &Client,
    namespace: &str,
    pod: &Pod,
    autoscalers: &[PvcAutoscaler],
) -> Result<bool, kube::Error> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    for (name, uid) in autoscalers.iter().filter_map(|one| one.known_claim(pod)) {
        let there = claims.get_metadata_opt(name).await?;
        if there.is_none_or(|there| there.metadata.uid.as_deref() != Some(uid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Binding of a claim, from its controller.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Binding {
    /// The claim has no volume yet.
    #[default]
    Pending,
    /// The claim has its volume.
    Bound,
    /// The volume of the claim is gone.
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

/// Returns the volume handle of a claim.
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

/// A size on a claim that cannot be read: it is not 0, and nothing is decided by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} of claim {claim} is invalid, so the claim is not changed: {why}")]
pub struct UnreadableSize {
    claim: String,
    field: &'static str,
    why: ParseBytesError,
}

impl UnreadableSize {
    /// The name of the claim.
    pub fn claim(&self) -> &str {
        &self.claim
    }
}

/// Requested size and capacity of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimSizes {
    /// Requested size.
    pub requested: Quantity,
    /// Capacity of the volume.
    pub capacity: Quantity,
}

impl ClaimSizes {
    /// Both sizes of a claim.
    ///
    /// # Errors
    /// [`UnreadableSize`] if one of them cannot be read.
    pub fn of(claim: &PersistentVolumeClaim) -> Result<ClaimSizes, UnreadableSize> {
        Ok(ClaimSizes { requested: requested(claim)?, capacity: capacity(claim)? })
    }

    /// Returns true if the claim requests more than it has.
    pub fn wants_more(self) -> bool {
        self.requested > self.capacity
    }
}

/// Returns annotations about the volume of a claim that contradict its PersistentVolume: a claim from a backup has
/// the annotations of that time, and another volume.
pub fn untrue_notes(claim: &PersistentVolumeClaim, pv: &PersistentVolume) -> Vec<&'static str> {
    let key = volume_of(pv).map(|id| id.key().clone());
    let class = pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    let note = |key: &str| claim.metadata.annotations.as_ref().and_then(|notes| notes.get(key));
    let volume = note(VOLUME).filter(|name| key != Some(VolumeKey::of(name))).map(|_| VOLUME);
    let class = note(CLASS).filter(|told| class != Some(*told)).map(|_| CLASS);
    volume.into_iter().chain(class).collect()
}

/// Returns the requested size of a claim; 0 without one.
///
/// # Errors
/// [`UnreadableSize`] if it is invalid.
pub fn requested(claim: &PersistentVolumeClaim) -> Result<Quantity, UnreadableSize> {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let size = read(claim, "spec.resources.requests.storage", requests)?;
    Ok(size.unwrap_or_default())
}

/// Returns the capacity of a claim; 0 without one.
///
/// # Errors
/// [`UnreadableSize`] if it is invalid.
pub fn capacity(claim: &PersistentVolumeClaim) -> Result<Quantity, UnreadableSize> {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    Ok(read(claim, "status.capacity.storage", capacity)?.unwrap_or_default())
}

/// Returns the message of the last failed expansion of a claim.
pub fn resize_error(claim: &PersistentVolumeClaim) -> Option<&str> {
    let conditions = claim.status.as_ref()?.conditions.iter().flatten();
    let mut failed = conditions.filter(|one| one.type_.ends_with("ResizeError"));
    failed.find_map(|one| one.message.as_deref()).map(own_words)
}

/// Returns the size that the resizer could not give a claim; it may request another one by now.
///
/// # Errors
/// [`UnreadableSize`] if it is invalid.
pub fn refused_size(claim: &PersistentVolumeClaim) -> Result<Option<Quantity>, UnreadableSize> {
    let Some(status) = &claim.status else { return Ok(None) };
    let resize = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
    if resize.is_none_or(|resize| resize != "ControllerResizeInfeasible") {
        return Ok(None);
    }
    tried_size(claim)
}

/// The size that the resizer has tried last to give a claim.
///
/// # Errors
/// [`UnreadableSize`] if that is no size.
pub fn tried_size(claim: &PersistentVolumeClaim) -> Result<Option<Quantity>, UnreadableSize> {
    let tried = claim.status.as_ref().and_then(|status| status.allocated_resources.as_ref());
    read(claim, "status.allocatedResources.storage", tried)
}

/// Returns the driver's reason why a claim does not get its requested size; `None` if it gets it, or the
/// driver has not answered for that size yet.
///
/// # Errors
/// [`UnreadableSize`] if one of its sizes is invalid.
pub fn refusal(claim: &PersistentVolumeClaim) -> Result<Option<&str>, UnreadableSize> {
    let sizes = ClaimSizes::of(claim)?;
    // A size that cannot be read is not the one that is asked for.
    let is_its = refused_size(claim).is_ok_and(|refused| refused == Some(sizes.requested));
    let is_refused = is_its && sizes.wants_more();
    Ok(is_refused.then(|| resize_error(claim).unwrap_or("the driver reported no reason")))
}

/// Returns true if an expansion of a claim is reported as running, or as rejected.
pub fn is_resizing(claim: &PersistentVolumeClaim) -> bool {
    let statuses = claim.status.as_ref().and_then(|it| it.allocated_resource_statuses.as_ref());
    statuses.is_some_and(|all| all.contains_key("storage"))
}

/// Returns the driver's part of a message: a sidecar adds its operation and the code before it.
pub fn own_words(text: &str) -> &str {
    text.rsplit(" desc = ").next().unwrap_or(text)
}

fn read(
    claim: &PersistentVolumeClaim,
    field: &'static str,
    sizes: Option<&BTreeMap<String, Written>>,
) -> Result<Option<Quantity>, UnreadableSize> {
    let Some(Written(text)) = sizes.and_then(|sizes| sizes.get("storage")) else { return Ok(None) };
    let name = || claim.metadata.name.clone().unwrap_or_default();
    let size = text.parse().map_err(|why| UnreadableSize { claim: name(), field, why })?;
    Ok(Some(Quantity(size)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::volume::{DRIVER, NodeKey, VolumeId};

    fn claim(asked: &str, status: &Value) -> PersistentVolumeClaim {
        let claim = json!({"metadata": {"name": "data"}, "status": status,
                           "spec": {"resources": {"requests": {"storage": asked}}}});
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_size_of_a_claim_is_read_as_the_api_server_stores_it() {
        let grows = claim("1181116006400m", &json!({"capacity": {"storage": "1e9"}}));
        let sizes = ClaimSizes::of(&grows).unwrap();
        assert_eq!(
            (sizes.requested.0.get(), sizes.capacity.0.get()),
            (1_181_116_007, 1_000_000_000)
        );
        assert!(sizes.wants_more());
        assert_eq!(capacity(&claim("1Gi", &json!({}))), Ok(Quantity::default()), "it has none yet");
    }

    #[test]
    fn a_size_that_cannot_be_read_is_not_nothing() {
        let has = |size: &str| json!({"capacity": {"storage": size}});
        let asks = claim("1e50", &has("1Gi"));
        let words = "spec.resources.requests.storage of claim data is invalid, so the claim is not changed: \
                     `1e50` is not a size: its exponent is larger than 40";
        assert_eq!(requested(&asks).unwrap_err().to_string(), words);
        assert_eq!(ClaimSizes::of(&asks).unwrap_err().to_string(), words);
        assert!(refusal(&asks).is_err());
        let has = claim("1Gi", &has("100E"));
        let why = ClaimSizes::of(&has).unwrap_err().to_string();
        assert!(why.starts_with("status.capacity.storage of claim data is invalid"), "{why}");
        let refused = json!({"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "1e50"},
                             "allocatedResourceStatuses": {"storage": "ControllerResizeInfeasible"}});
        let refused = claim("2Gi", &refused);
        assert!(refused_size(&refused).is_err());
        assert_eq!(refusal(&refused), Ok(None), "it asks for another one by now");
    }

    #[test]
    fn what_a_claim_tells_of_its_volume_is_true_if_its_persistent_volume_tells_it_too() {
        let handle = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1")).to_string();
        let pv = |driver: &str| -> PersistentVolume {
            let csi = json!({"driver": driver, "volumeHandle": handle});
            serde_json::from_value(json!({"spec": {"storageClassName": "ssd", "csi": csi}}))
                .unwrap()
        };
        let untrue = |driver: &str, volume: &str, class: &str| {
            let claim = json!({"metadata": {"annotations": { VOLUME: volume, CLASS: class }}});
            untrue_notes(&serde_json::from_value(claim).unwrap(), &pv(driver))
        };
        assert_eq!(untrue(DRIVER, "pvc-1", "ssd"), Vec::<&str>::new());
        assert_eq!(untrue(DRIVER, "pvc-2", "ssd"), [VOLUME]);
        assert_eq!(untrue(DRIVER, "pvc-1", "hdd"), [CLASS]);
        assert_eq!(untrue("other.example.com", "pvc-1", "ssd"), [VOLUME]);
    }
}
