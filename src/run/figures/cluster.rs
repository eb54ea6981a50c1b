//! The metrics of a cluster, from what its controller watches, without a request.

use std::borrow::Borrow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use crate::api::{Health, NodeStorage, Operation, Phase, VolumeRequest};
use crate::cluster::audit::UnmatchedVolume;
use crate::cluster::{Cluster, PersistentVolumes, PvSummary, is_on, unreadable_by_kind};
use crate::metrics::{ClusterFigures, FigureSource, Figures};
use crate::panics::panics;
use crate::run::log;
use crate::volume::VolumeId;

/// Provides the metrics of a cluster as soon as it is known.
#[derive(Debug, Default)]
pub struct ControllerFigures(OnceLock<(Arc<Cluster>, Arc<PersistentVolumes>)>);

impl ControllerFigures {
    /// Sets the cluster to report from now on.
    pub fn tell_of(&self, cluster: Arc<Cluster>, kept: Arc<PersistentVolumes>) {
        let _ = self.0.set((cluster, kept)); // There is one cluster.
    }
}

#[async_trait]
impl FigureSource for ControllerFigures {
    async fn figures(&self) -> Figures {
        let Some((cluster, kept)) = self.0.get() else { return Figures::default() };
        let differences = kept.differences(cluster).lasting;
        let (away, _) = cluster.requests().away();
        let (nodes, requests) = (cluster.nodes().all(), cluster.requests().watched().all());
        let mut figures = of_nodes(&nodes, &differences, &away);
        count_released(&mut figures, &nodes, &kept.watched().all());
        count_requests(&mut figures, &requests);
        Figures {
            cluster: figures,
            unreadable: unreadable_by_kind(),
            panics: panics(),
            lost_log_lines: log::lost(),
            ..Figures::default()
        }
    }
}

fn of_nodes<N: Borrow<NodeStorage>>(
    nodes: &[N],
    differences: &[UnmatchedVolume],
    away: &[String],
) -> ClusterFigures {
    let mut figures = ClusterFigures::default();
    figures.nodes.extend(Health::ALL.map(|health| (health.as_str(), 0)));
    for node in nodes.iter().map(Borrow::borrow) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let is_away = away.contains(&name);
        figures.each.entry(name).or_default().is_away = is_away;
        let Some(status) = &node.status else { continue };
        *figures.nodes.entry(status.health.as_str()).or_default() += 1;
        for pool in &status.pools {
            let (size, free) = figures.pools.entry(pool.name.clone()).or_default();
            (*size, *free) = (*size + pool.capacity.0, *free + pool.available.0);
        }
    }
    for one in differences {
        match one {
            UnmatchedVolume::VolumeWithoutPv { node, .. } => {
                figures.each.entry(node.clone()).or_default().without_pv += 1;
            }
            UnmatchedVolume::PvWithoutVolume { node, .. } => {
                figures.each.entry(node.clone()).or_default().without_volume += 1;
            }
        }
    }
    figures
}

/// Counts the PersistentVolumes that are retained without a claim; those of nodes without a record are on no node.
fn count_released<N: Borrow<NodeStorage>, P: Borrow<PvSummary>>(
    figures: &mut ClusterFigures,
    nodes: &[N],
    pvs: &[P],
) {
    let released = pvs.iter().map(Borrow::borrow).filter(|pv| pv.is_retained_without_claim());
    for id in released.filter_map(|pv| pv.handle()?.parse::<VolumeId>().ok()) {
        let node = nodes.iter().map(Borrow::borrow).find(|node| is_on(node, &id));
        if let Some(name) = node.and_then(|node| node.metadata.name.clone()) {
            figures.each.entry(name).or_default().released += 1;
        }
    }
}

fn count_requests<R: Borrow<VolumeRequest>>(figures: &mut ClusterFigures, requests: &[R]) {
    for work in Operation::KINDS {
        figures.requests.extend(Phase::ALL.map(|phase| ((work, phase.as_str()), 0)));
    }
    for request in requests.iter().map(Borrow::borrow) {
        let work = request.spec.operation.kind();
        let phase = request.status.as_ref().map(|status| status.phase).unwrap_or_default();
        *figures.requests.entry((work, phase.as_str())).or_default() += 1;
        if !request.has_ended() {
            let made = creation_time(request);
            let oldest = figures.oldest.entry(work).or_insert(made);
            *oldest = made.min(*oldest);
        }
    }
}

/// When a request was made by the clock of the API server, since 1970.
fn creation_time(request: &VolumeRequest) -> Duration {
    let made = request.metadata.creation_timestamp.as_ref().map(|at| at.0.as_second());
    made.and_then(|second| u64::try_from(second).ok()).map(Duration::from_secs).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::bytes::Bytes;
    use crate::metrics::NodeFigure;
    use crate::volume::{DRIVER, NodeKey, VolumeKey};

    fn node(name: &str, health: Health, gib: u64) -> NodeStorage {
        let pool = json!({"name": "fast", "configured": true, "default": true, "capacity": format!("{gib}Gi"),
                          "available": "1Gi", "volumeCount": 0, "health": "Healthy"});
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"nodeHash": ""},
            "status": {"health": health, "pools": [pool]},
        }))
        .unwrap()
    }

    #[test]
    fn nodes_are_counted_and_pools_summed() {
        let silent = NodeStorage::new("gamma", crate::api::NodeStorageSpec::default());
        let nodes = [node("alpha", Health::Healthy, 4), node("beta", Health::Degraded, 5), silent];
        let leaked = |volume: &str| UnmatchedVolume::VolumeWithoutPv {
            node: "beta".to_owned(),
            volume: volume.to_owned(),
            name: String::new(),
            pool: String::new(),
            size: Bytes::ZERO,
        };
        let (node, volume, pv) = ("alpha".to_owned(), String::new(), String::new());
        let missing = UnmatchedVolume::PvWithoutVolume { node, volume, pv };
        let differences = [leaked("a"), leaked("b"), missing];
        let figures = of_nodes(&nodes, &differences, &["gamma".to_owned()]);
        let each = |is_away, without_pv, without_volume| NodeFigure {
            is_away,
            without_pv,
            without_volume,
            released: 0,
        };
        let expected = ClusterFigures {
            nodes: BTreeMap::from([("healthy", 1), ("degraded", 1), ("unavailable", 0)]),
            each: BTreeMap::from([
                ("alpha".to_owned(), each(false, 0, 1)),
                ("beta".to_owned(), each(false, 2, 0)),
                ("gamma".to_owned(), each(true, 0, 0)),
            ]),
            pools: BTreeMap::from([("fast".to_owned(), (Bytes::gib(9), Bytes::gib(2)))]),
            ..ClusterFigures::default()
        };
        assert_eq!(figures, expected);
    }

    #[test]
    fn volumes_that_are_retained_without_a_claim_are_counted_at_their_node() {
        let alpha = node("alpha", Health::Healthy, 4);
        let pv = |node: &str, phase: &str| -> PvSummary {
            let handle = VolumeId::new(NodeKey::of(node), VolumeKey::of("pvc-1")).to_string();
            let csi = json!({"driver": DRIVER, "volumeHandle": handle});
            serde_json::from_value(json!({
                "metadata": {"name": "pv"},
                "spec": {"csi": csi, "persistentVolumeReclaimPolicy": "Retain"},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let pvs = [pv("alpha", "Released"), pv("alpha", "Bound"), pv("gone", "Released")];
        let mut figures = ClusterFigures::default();
        count_released(&mut figures, &[alpha], &pvs);
        let counted: Vec<_> =
            figures.each.iter().map(|(node, it)| (&**node, it.released)).collect();
        assert_eq!(counted, [("alpha", 1)]);
    }

    #[test]
    fn requests_are_counted_and_the_oldest_unfinished_one_is_known() {
        let request = |second: &str, phase: Phase| -> VolumeRequest {
            serde_json::from_value(json!({
                "metadata": {"name": "r", "generation": 1,
                             "creationTimestamp": format!("1970-01-01T00:00:{second}Z")},
                "spec": {"nodeName": "a", "volumeHandle": "v", "operation": {"expand": {"minSize": "1Gi"}}},
                "status": {"observedGeneration": 1, "phase": phase},
            }))
            .unwrap()
        };
        let requests = [
            request("10", Phase::Succeeded),
            request("20", Phase::Running),
            request("30", Phase::Resizing),
            request("59", Phase::Running),
        ];
        let mut figures = ClusterFigures::default();
        count_requests(&mut figures, &requests);
        assert_eq!(figures.oldest, BTreeMap::from([("expand", Duration::from_secs(20))]));
        let all = Operation::KINDS.len() * Phase::ALL.len();
        assert_eq!(figures.requests.len(), all, "all that there can be have a line");
        let grow = |phase| figures.requests[&("expand", phase)];
        assert_eq!(["succeeded", "running", "resizing", "pending"].map(grow), [1, 2, 1, 0]);
    }
}
