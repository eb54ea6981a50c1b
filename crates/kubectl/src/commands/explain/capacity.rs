//! Verdict of each node about a claim that has no volume yet. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, PodSpec};
use k8s_openapi::api::storage::v1::StorageClass;

use super::fit::{Bar, Objection, companion, in_one, objections};
use super::gather::{ClaimFacts, NODES, STORAGES, is_registered};
use super::verdict::{NodeSays, NodeVerdict};
use crate::api::{Health, NodeStorage, PoolOnNode, Quantity};
use crate::bytes::Bytes;
use crate::cluster::{largest, pool_of, topology};
use crate::commands::thin_pools::provisioned;
use crate::volume::{Class, Layout, TOPOLOGY, few};

/// Volume to place.
pub(super) struct VolumeToPlace<'a> {
    pub size: Bytes,
    pub storage_class: &'a StorageClass,
    pub class: &'a Class,
    /// Pod that decides on which node the volume is; `None` if the class binds immediately.
    pub pod: Option<&'a PodSpec>,
}

/// Verdicts of all nodes, by name.
pub(super) fn nodes_say(facts: &ClaimFacts, wish: &VolumeToPlace<'_>) -> Vec<NodeSays> {
    let known = facts.nodes.iter().filter_map(|node| node.metadata.name.as_deref());
    let told = facts.storages.iter().filter_map(|node| node.metadata.name.as_deref());
    let names: BTreeSet<&str> = known.chain(told).collect();
    names.into_iter().map(|name| node_says(facts, wish, name)).collect()
}

fn node_says(facts: &ClaimFacts, wish: &VolumeToPlace<'_>, name: &str) -> NodeSays {
    let storage = facts.storage(name);
    let pool = storage.and_then(|node| pool_of(node.status.as_ref()?, wish.class));
    let objections = excluded(facts, wish, name);
    let is_excluded = !objections.is_empty();
    let (verdict, why) = is_excluded
        .then(|| (NodeVerdict::Excluded, format!("excluded: {}", in_one(&objections))))
        .or_else(|| without_node_plugin(facts, storage, name))
        .unwrap_or_else(|| match pool {
            Some(pool) => in_pool(storage, pool, wish),
            None => (NodeVerdict::PoolNotFound, no_pool(storage, wish.class)),
        });
    NodeSays {
        node: name.to_owned(),
        pool: pool.map(|pool| pool.name.clone()),
        largest: pool.map(|pool| Quantity(largest(pool, wish.class.layout))),
        verdict,
        why,
        bars: objections.into_iter().map(|one| one.bar).collect(),
    }
}

fn excluded(facts: &ClaimFacts, wish: &VolumeToPlace<'_>, name: &str) -> Vec<Objection> {
    let is_it = |node: &&Node| node.metadata.name.as_deref() == Some(name);
    let mut found = Vec::new();
    match facts.nodes.iter().find(is_it) {
        Some(node) => {
            found.extend(wish.pod.iter().flat_map(|pod| objections(pod, node)));
            found.extend(facts.companions.iter().filter_map(|volume| companion(volume, node)));
        }
        None if facts.sees(NODES) => found.push(Bar::Node.says("the node no longer exists")),
        None => {}
    }
    if !topology::allows(wish.storage_class, name) {
        let named = topology::named_nodes(wish.storage_class).unwrap_or_default();
        let words = format!("its class allows only {TOPOLOGY}={}", few(named));
        found.push(Bar::Class.says(words));
    }
    found
}

fn without_node_plugin(
    facts: &ClaimFacts,
    storage: Option<&NodeStorage>,
    name: &str,
) -> Option<(NodeVerdict, String)> {
    let has_told = storage.is_some_and(|node| node.status.is_some());
    let silent = !has_told && facts.sees(STORAGES);
    let trouble = facts.node_plugin_trouble(name);
    let unknown = is_registered(facts, name) == Some(false);
    let why = match (trouble, silent, unknown) {
        (Some(trouble), ..) => trouble,
        (None, true, _) => "its node plugin has not reported its pools".to_owned(),
        (None, false, true) => "its kubelet has not registered the driver yet".to_owned(),
        (None, false, false) => return None,
    };
    Some((NodeVerdict::NodePluginUnavailable, why))
}

fn no_pool(storage: Option<&NodeStorage>, class: &Class) -> String {
    let pools = storage.iter().flat_map(|node| &node.status).flat_map(|status| &status.pools);
    let names: Vec<&str> =
        pools.filter(|pool| pool.configured).map(|pool| pool.name.as_str()).collect();
    match (&class.pool, names.as_slice()) {
        (Some(pool), []) => format!("no pool {pool}, and no other"),
        (Some(pool), names) => format!("no pool {pool}; it has {}", few(names)),
        (None, _) => "no pool".to_owned(),
    }
}

fn in_pool(
    storage: Option<&NodeStorage>,
    pool: &PoolOnNode,
    wish: &VolumeToPlace<'_>,
) -> (NodeVerdict, String) {
    let largest = largest(pool, wish.class.layout);
    let message = pool.problem().map(str::to_owned);
    let besides = message.as_ref().map(|told| format!("; {told}")).unwrap_or_default();
    if pool.health == Health::Unavailable {
        let why = message.unwrap_or_else(|| "its pool cannot be used".to_owned());
        return (NodeVerdict::PoolUnavailable, why);
    }
    if largest >= wish.size {
        return (NodeVerdict::Fits, "has enough free space".to_owned());
    }
    let promised = storage
        .filter(|_| wish.class.layout == Layout::Thin)
        .and_then(|node| provisioned(node, &pool.name))
        .map(|words| format!("; {words}"))
        .unwrap_or_default();
    (
        NodeVerdict::InsufficientCapacity,
        format!("{} short{promised}{besides}", wish.size.saturating_sub(largest)),
    )
}
