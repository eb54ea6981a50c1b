//! What a check of a cluster reads.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::api::{NodeStorage, StoragePool, VolumeRequest};
use crate::ask::{NODES, names};
use crate::cluster::{Pv, Unreadable};
use crate::volume::VolumeId;

/// Objects of the driver in a cluster, and those around it.
#[derive(Debug, Default)]
pub struct Seen {
    pub(in crate::ask) definitions: Vec<CustomResourceDefinition>,
    pub(in crate::ask) driver: Option<CSIDriver>,
    pub(in crate::ask) classes: Vec<StorageClass>,
    pub(in crate::ask) pools: Vec<StoragePool>,
    pub(in crate::ask) nodes: Vec<Node>,
    pub(in crate::ask) kubelets: Vec<CSINode>,
    pub(in crate::ask) storages: Vec<NodeStorage>,
    /// The pods of the driver.
    pub(in crate::ask) pods: Vec<Pod>,
    pub(in crate::ask) volumes: Vec<Pv>,
    /// Released PersistentVolumes with the policy Retain.
    pub(in crate::ask) released: Vec<Released>,
    pub(in crate::ask) requests: Vec<VolumeRequest>,
    /// Events that a namespace has too many objects, on one object of each kind.
    pub(in crate::ask) too_large: Vec<Event>,
    /// Kinds that the caller may not read.
    pub(in crate::ask) unseen: Vec<&'static str>,
    /// Objects that this version cannot decode.
    pub(in crate::ask) unreadable: Vec<Unreadable>,
    /// Kinds with objects that this version cannot decode.
    pub(in crate::ask) partial: Vec<&'static str>,
}

pub(in crate::ask) const DEFINITIONS: &str = "custom resource definitions";
pub(in crate::ask) const DRIVERS: &str = "csidrivers";
pub(in crate::ask) const CLASSES: &str = "storage classes";
pub(in crate::ask) const POOLS: &str = "storagepools";
pub(in crate::ask) const KUBELETS: &str = "csinodes";
pub(in crate::ask) const PODS: &str = "the pods of the driver";
pub(in crate::ask) const REQUESTS: &str = "volumerequests";
pub(in crate::ask) const EVENTS: &str = "events";

impl Seen {
    /// True if all objects of this kind were read.
    pub(in crate::ask) fn sees(&self, what: &str) -> bool {
        !self.unseen.contains(&what) && !self.partial.contains(&what)
    }

    /// Names of the nodes of the cluster; `None` if they cannot be listed.
    pub(in crate::ask) fn names(&self) -> Option<Vec<String>> {
        self.sees(NODES).then(|| names(&self.nodes))
    }

    /// The NodeStorage of the node with this name.
    pub(in crate::ask) fn storage(&self, node: &str) -> Option<&NodeStorage> {
        self.storages.iter().find(|one| one.metadata.name.as_deref() == Some(node))
    }
}

/// A Released PersistentVolume with the policy Retain.
#[derive(Debug)]
pub(in crate::ask) struct Released {
    pub name: String,
    pub volume: VolumeId,
    pub size: String,
    /// Deleted claim of the PersistentVolume.
    pub claim: String,
}
