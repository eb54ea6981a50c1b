//! The explanation of a claim or a PersistentVolume.

use std::str::FromStr;

use serde::Serialize;

use super::verdict::NodeSays;
use crate::commands::address::{AddressKind, address};
use crate::doctor::FindingSeverity;

/// A claim or a PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOrVolume {
    /// A claim, by its name.
    Claim(String),
    /// A PersistentVolume, by its name.
    Volume(String),
}

/// Reads `pvc/NAME` or `NAME` for a claim, or `pv/NAME`.
impl FromStr for ClaimOrVolume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = address(text, &[AddressKind::Claim, AddressKind::Volume])?;
        Ok(if kind == AddressKind::Volume {
            ClaimOrVolume::Volume(name)
        } else {
            ClaimOrVolume::Claim(name)
        })
    }
}

/// State of a claim or a PersistentVolume, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Explained object: `namespace/claim`, or the name of a PersistentVolume.
    #[serde(rename = "subject")]
    pub about: String,
    /// State, for programs.
    pub state: ClaimState,
    /// Severity of the state.
    pub severity: FindingSeverity,
    /// Sentences for people, the first of which continues the subject.
    #[serde(rename = "message")]
    pub why: String,
    /// Verdict of each node, if the answer depends on it.
    pub nodes: Vec<NodeSays>,
    /// Alternative actions.
    pub remediation: Vec<Remediation>,
    /// Kinds that the caller may not read, so the answer may be incomplete.
    #[serde(rename = "forbidden")]
    pub unseen: Vec<String>,
    /// Objects that this version cannot decode, so the answer may be incomplete.
    #[serde(rename = "undecodable")]
    pub unreadable: Vec<String>,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remediation {
    /// Description of the action.
    #[serde(rename = "description")]
    pub what: String,
    /// Command to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Remediation {
    pub(super) fn hint(what: impl Into<String>) -> Remediation {
        Remediation { what: what.into(), command: None }
    }

    pub(super) fn command(what: impl Into<String>, command: impl Into<String>) -> Remediation {
        Remediation { what: what.into(), command: Some(command.into()) }
    }
}

/// State of a claim or a PersistentVolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // Each is explained by its sentence.
pub enum ClaimState {
    Healthy,
    Provisioning,
    Populating,
    PopulationFailed,
    Superseded,
    Swapping,
    ProvisioningFailed,
    WaitForFirstConsumer,
    WaitForPodScheduled,
    PodSchedulingGated,
    PodNodeNameSet,
    PodUnschedulable,
    InsufficientCapacity,
    PoolNotFound,
    PoolUnavailable,
    NodePluginUnavailable,
    StorageClassNotSet,
    StorageClassNotFound,
    StorageClassInvalid,
    OtherDriver,
    VolumeConflict,
    Expanding,
    InvalidSize,
    ExpansionRetrying,
    ExpansionFailed,
    OfflineExpansionPending,
    NodeExpansionPending,
    VolumeUnhealthy,
    VolumeFenced,
    VolumeNotFound,
    VolumeStatusUnknown,
    Lost,
    Deleting,
    Available,
    Retained,
    DeletionFailed,
    Forbidden,
}

impl ClaimState {
    pub(super) fn severity(self) -> FindingSeverity {
        match self {
            ClaimState::Healthy
            | ClaimState::Superseded
            | ClaimState::WaitForFirstConsumer
            | ClaimState::OfflineExpansionPending
            | ClaimState::Available => FindingSeverity::Ok,
            ClaimState::Provisioning
            | ClaimState::Populating
            | ClaimState::Swapping
            | ClaimState::WaitForPodScheduled
            | ClaimState::PodSchedulingGated
            | ClaimState::Expanding
            | ClaimState::NodeExpansionPending
            | ClaimState::Deleting
            | ClaimState::Retained
            | ClaimState::OtherDriver
            | ClaimState::Forbidden => FindingSeverity::Warning,
            ClaimState::ProvisioningFailed
            | ClaimState::PopulationFailed
            | ClaimState::PodNodeNameSet
            | ClaimState::PodUnschedulable
            | ClaimState::InsufficientCapacity
            | ClaimState::PoolNotFound
            | ClaimState::PoolUnavailable
            | ClaimState::NodePluginUnavailable
            | ClaimState::StorageClassNotSet
            | ClaimState::StorageClassNotFound
            | ClaimState::StorageClassInvalid
            | ClaimState::VolumeConflict
            | ClaimState::InvalidSize
            | ClaimState::ExpansionRetrying
            | ClaimState::ExpansionFailed
            | ClaimState::VolumeUnhealthy
            | ClaimState::VolumeFenced
            | ClaimState::VolumeNotFound
            | ClaimState::VolumeStatusUnknown
            | ClaimState::Lost
            | ClaimState::DeletionFailed => FindingSeverity::Error,
        }
    }
}
