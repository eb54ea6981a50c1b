//! What of the explored world an API server would show.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus,
    PersistentVolumeClaimVolumeSource, PodSchedulingGate, TypedObjectReference,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::world::{Claim, FillingPhaseKey, PodModel, Source};
use crate::api::{Filling, FillingPhase, GATE, PopulatorStatus, PvcSourcePopulator};
use crate::claims::{ORDINAL, SUPERSEDED_BY};
use crate::cluster::KEPT_BY;
use crate::cluster::{
    PodConditionSummary, PodSpecSummary, PodStatusSummary, PodSummary, VolumeSummary,
};
use crate::populators::PopulatorReason;

impl Claim {
    /// What changes with each write to it that matters for who would delete it.
    pub fn version(&self) -> String {
        format!("{}/{}/{}", self.marks, self.content.is_some(), self.volume)
    }

    pub fn object(&self, name: &str) -> PersistentVolumeClaim {
        let size = || BTreeMap::from([("storage".to_owned(), Text(format!("{}Gi", self.gib)))]);
        let mut metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(self.uid.to_string()),
            resource_version: Some(self.version()),
            ..ObjectMeta::default()
        };
        if self.has_labels {
            let by = if self.is_anothers { "other" } else { "db" };
            let labels = [(KEPT_BY, by), (ORDINAL, "0")];
            let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            metadata.labels = Some(labels.into_iter().map(own).collect());
        }
        if self.superseded {
            let by = self.forged_by.clone().unwrap_or_else(|| "x".to_owned());
            metadata.annotations = Some([(SUPERSEDED_BY.to_owned(), by)].into());
        }
        metadata.finalizers =
            self.has_finalizer.then(|| vec!["pliant.io/swap-protection".to_owned()]);
        metadata.deletion_timestamp = self.is_ending.then_some(Time(Timestamp::UNIX_EPOCH));
        let phase = match self.content {
            Some(_) if self.is_lost => "Lost",
            Some(_) => "Bound",
            None => "Pending",
        };
        PersistentVolumeClaim {
            metadata,
            spec: Some(PersistentVolumeClaimSpec {
                access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
                storage_class_name: Some(self.class.to_owned()),
                resources: Some(VolumeResourceRequirements {
                    requests: Some(size()),
                    ..VolumeResourceRequirements::default()
                }),
                data_source_ref: self.is_copy.then(|| TypedObjectReference {
                    api_group: Some("pliant.io".to_owned()),
                    kind: "PvcSourcePopulator".to_owned(),
                    name: name.to_owned(),
                    namespace: None,
                }),
                ..PersistentVolumeClaimSpec::default()
            }),
            status: Some(PersistentVolumeClaimStatus {
                phase: Some(phase.to_owned()),
                capacity: self.content.map(|_| size()),
                ..PersistentVolumeClaimStatus::default()
            }),
        }
    }
}

impl Source {
    pub fn object(&self, name: &str, claim: u8) -> PvcSourcePopulator {
        let phase = match self.phase {
            FillingPhaseKey::Waiting | FillingPhaseKey::Held | FillingPhaseKey::Refused => {
                FillingPhase::Waiting
            }
            FillingPhaseKey::Filling | FillingPhaseKey::Stalled => FillingPhase::Populating,
            FillingPhaseKey::Ahead => FillingPhase::PreCopied,
            FillingPhaseKey::Filled => FillingPhase::Succeeded,
            FillingPhaseKey::Failed | FillingPhaseKey::Different => FillingPhase::Failed,
        };
        let reason = match self.phase {
            FillingPhaseKey::Held => Some(PopulatorReason::SourcePaused),
            FillingPhaseKey::Refused => Some(PopulatorReason::PopulatorCreationError),
            FillingPhaseKey::Stalled => Some(PopulatorReason::PopulatorPodPending),
            FillingPhaseKey::Different => Some(PopulatorReason::ChecksumMismatch),
            _ => None,
        };
        let filling = Filling {
            name: name.to_owned(),
            uid: claim.to_string(),
            phase,
            observed_generation: if self.paused || self.is_told_of_before { 1 } else { 2 },
            reason: reason.map(|reason| reason.to_string()),
            checksum: Some("d".to_owned()),
            ..Filling::default()
        };
        let spec = json!({"sourcePvcRef": {"name": self.from}, "paused": self.paused,
                          "preCopy": self.copies_ahead});
        let spec = serde_json::from_value(spec).unwrap();
        let mut source = PvcSourcePopulator::new(name, spec);
        source.metadata.generation = Some(if self.paused { 1 } else { 2 });
        source.status =
            Some(PopulatorStatus { claims: vec![filling], ..PopulatorStatus::default() });
        source
    }
}

impl Source {
    /// The pod that copies.
    pub fn pod(&self) -> PodSummary {
        let spec = json!({"containers": [], "volumes": [
            {"name": "source", "persistentVolumeClaim": {"claimName": self.from, "readOnly": true}},
        ]});
        let metadata =
            json!({"name": "fill", "uid": "fill", "labels": {"pliant.io/populator": "x"}});
        let status = json!({"phase": "Running"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
            .unwrap()
    }
}

impl PodModel {
    pub fn object(&self) -> PodSummary {
        let claim_name = self.claim.clone();
        let claim = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        let volume = VolumeSummary {
            name: "data".to_owned(),
            persistent_volume_claim: Some(claim),
            ..VolumeSummary::default()
        };
        let ready = PodConditionSummary {
            type_: "Ready".to_owned(),
            status: if self.is_running { "True" } else { "False" }.to_owned(),
            last_transition_time: Some(Time(Timestamp::UNIX_EPOCH)),
        };
        PodSummary {
            metadata: ObjectMeta {
                name: Some("db-0".to_owned()),
                uid: Some(self.uid.to_string()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "apps/v1".to_owned(),
                    kind: "StatefulSet".to_owned(),
                    name: "db".to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: Some(Box::new(PodSpecSummary {
                volumes: Some(vec![volume]),
                scheduling_gates: self
                    .is_gated
                    .then(|| vec![PodSchedulingGate { name: GATE.to_owned() }]),
                node_name: self.is_running.then(|| "alpha".to_owned()),
                ..PodSpecSummary::default()
            })),
            status: Some(Box::new(PodStatusSummary {
                phase: Some(if self.is_running { "Running" } else { "Pending" }.to_owned()),
                conditions: Some(vec![ready]),
                ..PodStatusSummary::default()
            })),
        }
    }
}
