//! What makes an orphaned volume usable again.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde::Serialize;

/// Objects that make an orphaned volume usable again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Adoption {
    /// PersistentVolume to create.
    pub volume: PersistentVolume,
    /// Claim to create; `None` for one that exists and has lost its PersistentVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<PersistentVolumeClaim>,
}

impl Adoption {
    /// Describes the objects in one line for people.
    pub fn in_words(&self) -> String {
        let spec = self.volume.spec.as_ref();
        let claim = spec.and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
        let (namespace, name) =
            (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
        let id = spec.and_then(|spec| Some(spec.csi.as_ref()?.volume_handle.clone()));
        format!(
            "{}: PersistentVolume {} for claim {namespace}/{name}",
            id.unwrap_or_default(),
            self.volume.metadata.name.as_deref().unwrap_or_default()
        )
    }
}
