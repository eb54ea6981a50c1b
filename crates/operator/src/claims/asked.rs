//! What the specification asks of the swap of one pod: an abort or a rollback. Pure.

use sha2::{Digest, Sha256};

use crate::api::{OrdinalStatus, PvcAutoscalerSpec};
use crate::claims::observed::ObservedWorkload;

/// Returns true if the present swap of a pod is to be aborted.
pub fn is_wanted_aborted(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    let Some(swap) = &one.swap else { return false };
    spec.abort
        .iter()
        .any(|abort| (abort.ordinal, abort.spec_generation) == (one.ordinal, swap.spec_generation))
}

/// Returns true if a person aborted the swap to the present template, so that the pod retains its claim.
pub fn is_aborted(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    one.aborted.as_ref().is_some_and(|aborted| aborted.template_hash == digest(spec))
}

/// Returns true if a pod was rolled back from the present template, so that it is not changed.
pub fn is_rolled_back(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    one.rollback.as_ref().is_some_and(|done| done.template_hash == digest(spec))
}

/// Returns true if a rollback of a pod is requested.
pub fn is_wanted_back(spec: &PvcAutoscalerSpec, one: &OrdinalStatus) -> bool {
    let mut asked = spec.rollback.iter();
    asked.any(|back| (back.ordinal, back.claim_revision) == (one.ordinal, one.claim_revision))
}

/// A digest of the template, without the labels and annotations of its claims.
pub(super) fn digest(spec: &PvcAutoscalerSpec) -> String {
    let written = serde_json::to_vec(&spec.volume_claim_template.spec).unwrap_or_default();
    let digest = Sha256::digest(written);
    let first = <[u8; 8]>::try_from(&digest[..8]).unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}

impl ObservedWorkload {
    /// Returns true if a person aborted the swap to the present template.
    pub fn is_aborted(&self, one: &OrdinalStatus) -> bool {
        is_aborted(&self.autoscaler.spec, one)
    }

    /// Returns true if a pod was rolled back from the present template.
    pub fn is_rolled_back(&self, one: &OrdinalStatus) -> bool {
        is_rolled_back(&self.autoscaler.spec, one)
    }

    /// Returns true if a rollback of a pod is requested.
    pub fn is_wanted_back(&self, one: &OrdinalStatus) -> bool {
        is_wanted_back(&self.autoscaler.spec, one)
    }
}
