//! Metrics that only a controller has.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::series::{Labels, float, gauges};
use super::table;
use crate::bytes::Bytes;

/// Values of a cluster. Only a controller has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFigures {
    /// Number of VolumeRequests, by operation and phase.
    pub requests: BTreeMap<(&'static str, &'static str), u64>,
    /// Creation time of the oldest unfinished VolumeRequest, since 1970, by operation.
    pub oldest: BTreeMap<&'static str, Duration>,
    /// Number of nodes, by health.
    pub nodes: BTreeMap<&'static str, u64>,
    /// Each node by name.
    pub each: BTreeMap<String, NodeFigure>,
    /// Capacity and free space of each pool on all nodes.
    pub pools: BTreeMap<String, (Bytes, Bytes)>,
}

/// Values of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeFigure {
    /// True if its node plugin is not responding: a request waits.
    pub is_away: bool,
    /// Volumes without a PersistentVolume.
    pub without_pv: u64,
    /// PersistentVolumes without their volume.
    pub without_volume: u64,
    /// PersistentVolumes that are retained without a claim.
    pub released: u64,
}

pub(super) fn put(registry: &mut Registry, cluster: &ClusterFigures) {
    let requests = cluster.requests.iter().map(|((work, phase), count)| {
        (labels([("operation", work), ("phase", phase)]), Some(float(*count)))
    });
    table::REQUESTS.put(registry, gauges(requests));
    let oldest = cluster.oldest.iter();
    let oldest =
        oldest.map(|(work, made)| (labels([("operation", work)]), Some(made.as_secs_f64())));
    table::REQUEST_OLDEST.put(registry, gauges(oldest));
    let nodes = cluster.nodes.iter();
    let nodes = nodes.map(|(health, count)| (labels([("health", health)]), Some(float(*count))));
    table::NODES.put(registry, gauges(nodes));
    let each = |figure: fn(&NodeFigure) -> u64| {
        let each = cluster.each.iter();
        gauges(
            each.map(move |(node, it)| (labels([("nodestorage", node)]), Some(float(figure(it))))),
        )
    };
    table::NODE_PLUGIN_UP.put(registry, each(|node| u64::from(!node.is_away)));
    table::ORPHANED.put(registry, each(|node| node.without_pv));
    table::MISSING.put(registry, each(|node| node.without_volume));
    table::RELEASED.put(registry, each(|node| node.released));
    let pools = |figure: fn(&(Bytes, Bytes)) -> Bytes| {
        let pools = cluster.pools.iter();
        gauges(
            pools.map(move |(pool, it)| (labels([("pool", pool)]), Some(float(figure(it).get())))),
        )
    };
    table::CLUSTER_SIZE.put(registry, pools(|(size, _)| *size));
    table::CLUSTER_FREE.put(registry, pools(|(_, free)| *free));
}

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}
