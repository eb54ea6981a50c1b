//! PersistentVolumes, reduced to their volume and their claim.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::volume::{DRIVER, VolumeId};

/// A PersistentVolume without unused fields.
///
/// A cluster may have a hundred thousand: the whole type takes 3.4 KB of memory for each, even if it is
/// empty.
#[derive(Resource, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[resource(inherit = PersistentVolume)]
pub struct PvSummary {
    /// Name and uid.
    pub metadata: ObjectMeta,
    /// Volume and claim.
    #[serde(default)]
    pub spec: PvSpec,
    /// State of the PersistentVolume.
    #[serde(default)]
    pub status: PvStatus,
}

/// The phase of a PersistentVolume whose claim is gone.
const RELEASED: &str = "Released";

/// State of a PersistentVolume.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(default)]
pub struct PvStatus {
    /// Phase; a watch retains only `Released`.
    pub phase: Option<Box<str>>,
}

/// Volume and claim of a PersistentVolume.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct PvSpec {
    /// The claim that has it.
    pub claim_ref: Option<Box<ClaimRef>>,
    /// The volume of a CSI driver.
    pub csi: Option<CsiSource>,
    /// Reclaim policy; a watch retains it for released ones.
    pub persistent_volume_reclaim_policy: Option<Box<str>>,
}

/// A claim.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(default)]
pub struct ClaimRef {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Uid of the claim; `None` if it does not exist yet.
    pub uid: Option<String>,
}

/// The volume of a CSI driver.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// The driver.
    pub driver: Driver,
    /// Volume handle.
    pub volume_handle: Box<str>,
}

/// A CSI driver. The name of this driver is not stored for each volume.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(from = "String", into = "String")]
pub enum Driver {
    /// This one.
    Own,
    /// Another one, by its name.
    Other(Box<str>),
}

impl Default for Driver {
    fn default() -> Self {
        Driver::Other("".into())
    }
}

impl From<String> for Driver {
    fn from(name: String) -> Self {
        if name == DRIVER { Driver::Own } else { Driver::Other(name.into()) }
    }
}

impl From<Driver> for String {
    fn from(driver: Driver) -> Self {
        match driver {
            Driver::Own => DRIVER.to_owned(),
            Driver::Other(name) => name.into(),
        }
    }
}

/// The volume that a PersistentVolume names, if that is one of this driver.
pub fn volume_of(pv: &PersistentVolume) -> Option<VolumeId> {
    let csi = pv.spec.as_ref()?.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
    csi.volume_handle.parse().ok()
}

impl PvSummary {
    /// The volume that it names, if that is one of this driver.
    pub fn handle(&self) -> Option<&str> {
        let source = self.spec.csi.as_ref()?;
        (source.driver == Driver::Own).then_some(&*source.volume_handle)
    }

    /// The uid of the claim that has it.
    pub fn owner(&self) -> Option<&str> {
        self.spec.claim_ref.as_ref()?.uid.as_deref()
    }

    /// Returns true if its claim is gone and its volume is retained.
    pub fn is_retained_without_claim(&self) -> bool {
        self.status.phase.as_deref() == Some(RELEASED)
            && self.spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain")
    }

    /// Reduces it to its volume, its claim, its retention and these annotations; that of another driver to its name
    /// and these annotations.
    pub fn cut(&mut self, notes: &[&str]) {
        let metadata = std::mem::take(&mut self.metadata);
        self.metadata = ObjectMeta {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            deletion_timestamp: metadata.deletion_timestamp,
            annotations: metadata.annotations.and_then(|mut all| {
                all.retain(|key, _| notes.contains(&key.as_str()));
                (!all.is_empty()).then_some(all)
            }),
            ..ObjectMeta::default()
        };
        if self.handle().is_none() {
            self.spec = PvSpec::default();
        }
        if !self.is_retained_without_claim() {
            (self.status.phase, self.spec.persistent_volume_reclaim_policy) = (None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_persistent_volume_only_the_names_are_kept() {
        let cut = |driver: &str| {
            let mut pv: PvSummary = serde_json::from_value(json!({
                "metadata": {"name": "pvc-1", "uid": "u", "annotations": {"a": "b", "c": "d"}},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {"kind": "x", "namespace": "n", "name": "c", "uid": "v"},
                    "csi": {"driver": driver, "volumeHandle": "h", "volumeAttributes": {"p": "q"}},
                },
                "status": {"phase": "Bound"},
            }))
            .unwrap();
            pv.cut(&["c"]);
            serde_json::to_value(pv).unwrap()
        };
        let metadata = json!({"name": "pvc-1", "uid": "u", "annotations": {"c": "d"}});
        let spec = json!({
            "claimRef": {"namespace": "n", "name": "c", "uid": "v"},
            "csi": {"driver": DRIVER, "volumeHandle": "h"},
            "persistentVolumeReclaimPolicy": null,
        });
        let status = json!({"phase": null});
        assert_eq!(cut(DRIVER), json!({"metadata": metadata, "spec": spec, "status": status}));
        let nothing = json!({"claimRef": null, "csi": null, "persistentVolumeReclaimPolicy": null});
        let bare = json!({"metadata": metadata, "spec": nothing, "status": status});
        assert_eq!(cut("other"), bare);
    }

    #[test]
    fn only_a_released_volume_that_is_retained_waits_for_somebody() {
        let is_kept = |driver: &str, phase: &str, policy: &str| {
            let csi = json!({"driver": driver, "volumeHandle": "h"});
            let spec = json!({"csi": csi, "persistentVolumeReclaimPolicy": policy});
            let pv = json!({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}});
            let mut pv: PvSummary = serde_json::from_value(pv).unwrap();
            pv.cut(&[]);
            pv.is_retained_without_claim()
        };
        assert!(is_kept(DRIVER, "Released", "Retain"));
        assert!(!is_kept(DRIVER, "Bound", "Retain") && !is_kept(DRIVER, "Released", "Delete"));
        assert!(!is_kept("other", "Released", "Retain"));
    }

    #[test]
    fn a_hundred_thousand_fit_into_memory() {
        assert!(size_of::<PvSummary>() <= 512, "{} B, without the texts", size_of::<PvSummary>());
    }
}
