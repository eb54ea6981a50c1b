//! What a check of a cluster reads.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::api::{NodeStorage, StoragePool, VolumeRequest};
use crate::cluster::{PvSummary, Unreadable};
use crate::commands::{NODES, names};
use crate::volume::VolumeId;

/// Objects of the driver in a cluster, and those around it.
#[derive(Debug, Default)]
pub struct ObservedCluster {
    pub(in crate::commands) definitions: Vec<CustomResourceDefinition>,
    pub(in crate::commands) driver: Option<CSIDriver>,
    pub(in crate::commands) classes: Vec<StorageClass>,
    pub(in crate::commands) pools: Vec<StoragePool>,
    pub(in crate::commands) nodes: Vec<Node>,
    pub(in crate::commands) kubelets: Vec<CSINode>,
    pub(in crate::commands) storages: Vec<NodeStorage>,
    /// The pods of the driver.
    pub(in crate::commands) pods: Vec<Pod>,
    pub(in crate::commands) volumes: Vec<PvSummary>,
    /// Released PersistentVolumes with the policy Retain.
    pub(in crate::commands) released: Vec<Released>,
    pub(in crate::commands) requests: Vec<VolumeRequest>,
    /// Events that a namespace has too many objects, on one object of each kind.
    pub(in crate::commands) too_large: Vec<Event>,
    /// Kinds that the caller may not read.
    pub(in crate::commands) unseen: Vec<&'static str>,
    /// Objects that this version cannot decode.
    pub(in crate::commands) unreadable: Vec<Unreadable>,
    /// Kinds with objects that this version cannot decode.
    pub(in crate::commands) partial: Vec<&'static str>,
}

pub(in crate::commands) const DEFINITIONS: &str = "custom resource definitions";
pub(in crate::commands) const DRIVERS: &str = "csidrivers";
pub(in crate::commands) const CLASSES: &str = "storage classes";
pub(in crate::commands) const POOLS: &str = "storagepools";
pub(in crate::commands) const KUBELETS: &str = "csinodes";
pub(in crate::commands) const PODS: &str = "the pods of the driver";
pub(in crate::commands) const REQUESTS: &str = "volumerequests";
pub(in crate::commands) const EVENTS: &str = "events";

impl ObservedCluster {
    /// True if all objects of this kind were read.
    pub(in crate::commands) fn sees(&self, what: &str) -> bool {
        !self.unseen.contains(&what) && !self.partial.contains(&what)
    }

    /// Names of the nodes of the cluster; `None` if they cannot be listed.
    pub(in crate::commands) fn names(&self) -> Option<Vec<String>> {
        self.sees(NODES).then(|| names(&self.nodes))
    }

    /// The NodeStorage of the node with this name.
    pub(in crate::commands) fn storage(&self, node: &str) -> Option<&NodeStorage> {
        self.storages.iter().find(|one| one.metadata.name.as_deref() == Some(node))
    }
}

/// A Released PersistentVolume with the policy Retain.
#[derive(Debug)]
pub(in crate::commands) struct Released {
    pub name: String,
    pub volume: VolumeId,
    pub size: String,
    /// Deleted claim of the PersistentVolume.
    pub claim: String,
}
