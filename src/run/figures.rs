//! The metrics of a node, and of a cluster, at a scrape: from the last readings, no disk is
//! accessed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::cluster::unreadable_by_kind;
use crate::host::Host;
use crate::lvm::{STEPS, Spent};
use crate::metrics::{
    CommandFigure, DiskFigure, FigureSource, Figures, GroupFigure, ThinPoolFigure,
};
use crate::node::storage::{DiskReport, DiskUse, GroupReport};
use crate::node::{Node, read_thin_usages};
use crate::panics::panics;
use crate::run::log;

mod cluster;

pub use cluster::ControllerFigures;

/// Provides the metrics of a node.
pub struct NodeFigures {
    node: Arc<Node>,
    host: Arc<dyn Host>,
}

impl NodeFigures {
    /// Creates the metrics of this node on this host.
    pub fn new(node: Arc<Node>, host: Arc<dyn Host>) -> Self {
        NodeFigures { node, host }
    }
}

#[async_trait]
impl FigureSource for NodeFigures {
    async fn figures(&self) -> Figures {
        read_thin_usages(&self.node).await;
        let storage = self.node.storage();
        Figures {
            groups: storage.groups.into_iter().map(group).collect(),
            disks: storage.disks.into_iter().map(disk).collect(),
            pools: self.node.remembered_pools(),
            volumes: self.node.remembered_volumes().await.unwrap_or_default(),
            usages: self.node.remembered_usages(),
            growths: self.node.growth_outcomes(),
            host_calls: self.host.counts(),
            lvm_commands: self.node.lvm_spent().into_iter().map(command).collect(),
            wiped: self.node.wiped(),
            unreadable: unreadable_by_kind(),
            panics: panics(),
            lost_log_lines: log::lost(),
            ..Figures::default()
        }
    }
}

fn command((command, spent): (&'static str, Spent)) -> (&'static str, CommandFigure) {
    let Spent { runs, time, steps, failed } = spent;
    let steps = STEPS.into_iter().map(Duration::from_millis).zip(steps).collect();
    (command, CommandFigure { runs, time, steps, failed })
}

fn group(group: GroupReport) -> GroupFigure {
    // One that was never read has no extents; one that was has some.
    let room = (group.size > Bytes::ZERO).then_some((group.size, group.free));
    let thin_pool = group.thin_pool.map(|pool| ThinPoolFigure {
        data: (pool.size, pool.maximum),
        metadata: (pool.metadata_size, pool.metadata_maximum),
        provisioned: (pool.provisioned, pool.maximum_provisioned),
        used: pool.now.map(|used| (used.data, used.metadata)),
    });
    GroupFigure { group: group.name, pool: group.pool.to_string(), room, thin_pool }
}

fn disk(disk: DiskReport) -> DiskFigure {
    let state = match disk.state {
        DiskUse::Used => "used",
        DiskUse::Standby => "standby",
        DiskUse::Refused => "rejected",
        DiskUse::Missing => "missing",
    };
    DiskFigure { disk: disk.device, state }
}

#[cfg(test)]
mod tests;
