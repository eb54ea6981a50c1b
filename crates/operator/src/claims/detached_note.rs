//! The note on a PersistentVolume about which claim has its content. Pure.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;

use crate::cluster::DETACHED_FOR;

/// Note on the PersistentVolume of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DetachedNote {
    /// Uid of the claim that has all that the volume had when it was proved unused.
    pub copy: Option<String>,
    /// Version of the PersistentVolume.
    pub version: Option<String>,
}

impl DetachedNote {
    pub fn of(pv: &PersistentVolume) -> DetachedNote {
        DetachedNote { copy: note(pv).cloned(), version: pv.resource_version() }
    }
}

pub(super) fn note(pv: &PersistentVolume) -> Option<&String> {
    pv.annotations().get(DETACHED_FOR)
}
