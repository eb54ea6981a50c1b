//! Checks the driver in a cluster, and reports what exists, what is missing and which commands to run, as
//! [`doctor`](crate::doctor) does for one host. Changes nothing.
//!
//! [`observe`] asks the API server, [`judge`] decides.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{ListParams, ObjectMeta};
use kube::{Client, Resource};
use serde::Deserialize;

use crate::cluster::{Driver, NAMESPACE_TOO_LARGE, PvSpec, PvStatus, PvSummary};
use crate::commands::read::ListReader;
use crate::commands::{AskError, DRIVER_PODS, NODES, STORAGES, VOLUMES, may_not_list};
use crate::doctor::Finding;
use crate::volume::DRIVER;

mod cluster;
mod node;
mod seen;

pub use seen::ObservedCluster;
use seen::{CLASSES, DEFINITIONS, DRIVERS, EVENTS, KUBELETS, PODS, POOLS, REQUESTS, Released};

/// The fields of a PersistentVolume that name its volume and its reclaim policy.
#[derive(Resource, Deserialize, Debug, Clone)]
#[resource(inherit = PersistentVolume)]
struct PvReclaim {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: VolumeSpec,
    #[serde(default)]
    status: PvStatus,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    #[serde(flatten)]
    names: PvSpec,
    capacity: BTreeMap<String, String>,
}

impl PvReclaim {
    fn named(self) -> PvSummary {
        PvSummary { metadata: self.metadata, spec: self.spec.names, status: self.status }
    }

    fn released(&self) -> Option<Released> {
        let is_kept = self.spec.names.persistent_volume_reclaim_policy.as_deref() == Some("Retain");
        let is_released = self.status.phase.as_deref() == Some("Released");
        let names = &self.spec.names;
        let ours = names.csi.as_ref().filter(|csi| csi.driver == Driver::Own)?;
        let claim =
            names.claim_ref.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name));
        (is_kept && is_released).then_some(Released {
            name: self.metadata.name.clone()?,
            volume: ours.volume_handle.parse().ok()?,
            size: self.spec.capacity.get("storage").cloned().unwrap_or_default(),
            claim: claim?,
        })
    }
}

/// Reads the objects of the driver, and those around it.
///
/// # Errors
/// [`AskError::Api`].
pub async fn observe(client: &Client) -> Result<ObservedCluster, AskError> {
    let mut ask = ListReader::new(client);
    let all = ListParams::default;
    let volumes: Vec<PvReclaim> = ask.list(ask.all(), all(), VOLUMES).await?;
    let too_large = all().fields(&format!("reason={NAMESPACE_TOO_LARGE}"));
    let mut seen = ObservedCluster {
        definitions: ask.list(ask.all(), all(), DEFINITIONS).await?,
        driver: ask.get(ask.all(), DRIVER, DRIVERS).await?,
        classes: ask.list(ask.all(), all(), CLASSES).await?,
        pools: ask.list(ask.all(), all(), POOLS).await?,
        nodes: ask.list(ask.all(), all(), NODES).await?,
        kubelets: ask.list(ask.all(), all(), KUBELETS).await?,
        storages: ask.storages().await?,
        pods: ask.list(ask.all(), all().labels(DRIVER_PODS), PODS).await?,
        released: volumes.iter().filter_map(PvReclaim::released).collect(),
        volumes: volumes.into_iter().map(PvReclaim::named).collect(),
        requests: ask.list(ask.all(), all(), REQUESTS).await?,
        too_large: ask.list(ask.all(), too_large, EVENTS).await?,
        unseen: Vec::new(),
        unreadable: Vec::new(),
        partial: Vec::new(),
    };
    (seen.unseen, seen.unreadable, seen.partial) = (ask.unseen, ask.unreadable, ask.partial);
    Ok(seen)
}

/// Checks the whole cluster or one node; `program` is the name by which the caller runs this program.
///
/// # Errors
/// [`AskError::Refused`] if there is no such node, [`AskError::Forbidden`] if that may not be seen.
pub fn judge(
    seen: &ObservedCluster,
    program: &str,
    node: Option<&str>,
) -> Result<Vec<Finding>, AskError> {
    let mut findings = Vec::new();
    if !seen.unseen.is_empty() {
        let what = format!("you may not read {}", seen.unseen.join(", "));
        findings.push(Finding::warning(what, "ask an administrator of the cluster to run this"));
    }
    findings.extend(seen.unreadable.iter().map(|one| {
        let todo = "use one version of all parts of the driver and its CRDs, or correct the field";
        Finding::error(format!("{one}; it is ignored"), todo)
    }));
    let names = node::names(seen);
    match node {
        Some(name) if names.contains(name) => findings.extend(node::judge(seen, program, name)),
        Some(_) if seen.unseen.contains(&NODES) => {
            return Err(may_not_list(NODES, "in this cluster"));
        }
        Some(name) if !seen.sees(NODES) || !seen.sees(STORAGES) => {
            let unreadable: Vec<String> = seen.unreadable.iter().map(ToString::to_string).collect();
            let reason =
                format!("it is not known whether node {name} exists: {}", unreadable.join("; "));
            return Err(AskError::Refused { reason });
        }
        Some(name) => {
            let reason = format!("there is no node {name}; `kubectl get nodes` lists them");
            return Err(AskError::Refused { reason });
        }
        None => {
            findings.extend(cluster::judge(seen, program));
            findings.extend(names.into_iter().flat_map(|name| node::judge(seen, program, name)));
        }
    }
    findings.extend(cluster::differences(seen, program, node));
    findings.extend(cluster::released(seen, program, node));
    Ok(findings)
}

/// Checks one pool on all nodes that have it; `program` is the name by which the caller runs this program.
///
/// # Errors
/// [`AskError::Refused`] if there is no such pool, [`AskError::Forbidden`] if that may not be seen.
pub fn judge_pool(
    seen: &ObservedCluster,
    program: &str,
    name: &str,
) -> Result<Vec<Finding>, AskError> {
    let Some(pool) = seen.pools.iter().find(|one| one.metadata.name.as_deref() == Some(name))
    else {
        if seen.unseen.contains(&POOLS) {
            return Err(may_not_list(POOLS, "in this cluster"));
        }
        let reason = format!("there is no pool {name}; `kubectl get storagepools` lists them");
        return Err(AskError::Refused { reason });
    };
    let nodes = node::names(seen).into_iter();
    let on_nodes = nodes.flat_map(|node| node::of_pool(seen, program, node, name));
    Ok(std::iter::once(cluster::pool(pool)).chain(on_nodes).collect())
}

#[cfg(test)]
mod tests;
