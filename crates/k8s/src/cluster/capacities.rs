//! Storage capacity for the scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;

use crate::api::{NodeStorage, Quantity};
use crate::bytes::Bytes;
use crate::cluster::list;
use crate::cluster::nodes::capacity_on;
use crate::cluster::writes::CONTROLLER;
use crate::error_chain;
use crate::volume::{CapacityQuery, DRIVER, FsKind, TOPOLOGY};

/// Whose objects they are, by the label that the provisioner gives them.
const LABEL: &str = "csi.storage.k8s.io/drivername";

/// The refusal that waits for it has been waited for long enough.
const PATIENCE: Duration = Duration::from_secs(5);

/// CSIStorageCapacity objects, in which the scheduler reads the free space of a class on a node.
///
/// The provisioner creates them, and updates them from time to time. A scheduler that reads an outdated one
/// sends the pod to the full node again and again: RESOURCE_EXHAUSTED alone does not send it to another
/// one.
#[derive(Debug)]
pub(super) struct Capacities {
    objects: Api<CSIStorageCapacity>,
    classes: Api<StorageClass>,
    nodes: Api<NodeStorage>,
}

impl Capacities {
    /// Uses the objects of the driver in the namespace of this client.
    pub fn new(client: &Client) -> Self {
        Capacities {
            objects: Api::default_namespaced(client.clone()),
            classes: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
        }
    }

    /// Updates the free space of the nodes, before a volume is refused for lack of it.
    ///
    /// An error, or a timeout after some seconds, is only logged: the provisioner updates it later.
    pub async fn request_resync(&self, nodes: &[String]) {
        let told = timeout(PATIENCE, self.tell_each(nodes)).await;
        let failed = match told {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error_chain::in_full(&error),
            Err(_) => format!("timed out after {} s", PATIENCE.as_secs()),
        };
        tracing::warn!(error = failed, "failed to update the storage capacity for the scheduler");
    }

    async fn tell_each(&self, nodes: &[String]) -> Result<(), kube::Error> {
        let ours = ListParams::default().labels(&format!("{LABEL}={DRIVER}"));
        let mut classes = BTreeMap::new();
        for object in list(&self.objects, &ours).await?.items {
            let Some(node) = node_of(&object).filter(|node| nodes.contains(node)) else { continue };
            let name = &object.storage_class_name;
            if !classes.contains_key(name) {
                classes.insert(name.clone(), self.class(name).await?);
            }
            if let Some(Some(query)) = classes.get(name) {
                self.tell_one(&object, node, query).await?;
            }
        }
        Ok(())
    }

    /// Returns the capacity query for a class, if it exists and is valid.
    async fn class(&self, name: &str) -> Result<Option<CapacityQuery>, kube::Error> {
        let class = self.classes.get_opt(name).await?;
        let parameters = class.map(|class| class.parameters.unwrap_or_default());
        // The driver's own file system decides about the options of a class that names none.
        Ok(parameters.and_then(|all| CapacityQuery::of_class(&all, FsKind::Ext4).ok()))
    }

    async fn tell_one(
        &self,
        object: &CSIStorageCapacity,
        node: &str,
        query: &CapacityQuery,
    ) -> Result<(), kube::Error> {
        // A watch may be older than what the node has just reported.
        let status = self.nodes.get_opt(node).await?.and_then(|node| node.status);
        let room = status.and_then(|status| capacity_on(&status, query)).unwrap_or_default();
        let now = (bytes(object.capacity.as_ref()), bytes(object.maximum_volume_size.as_ref()));
        if now == (Some(room.free), Some(room.largest)) {
            return Ok(());
        }
        let patch = json!({
            "capacity": Quantity(room.free),
            "maximumVolumeSize": Quantity(room.largest),
        });
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let params =
            PatchParams { field_manager: Some(CONTROLLER.to_owned()), ..Default::default() };
        match self.objects.patch(name, &params, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            written => written.map(drop),
        }
    }
}

fn node_of(object: &CSIStorageCapacity) -> Option<&String> {
    object.node_topology.as_ref()?.match_labels.as_ref()?.get(TOPOLOGY)
}

fn bytes(
    quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
) -> Option<Bytes> {
    quantity?.0.parse().ok()
}
