//! The figures of a node, and of a cluster, for whoever scrapes them: from the last readings, no disk is touched.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::host::Host;
use crate::lvm::Spent;
use crate::metrics::{FigureSource, Figures};
use crate::node::Node;

mod cluster;

pub use cluster::ControllerFigures;

/// Tells a node's figures.
pub struct NodeFigures {
    node: Arc<Node>,
    host: Arc<dyn Host>,
}

impl NodeFigures {
    /// The figures of this node on this machine.
    pub fn new(node: Arc<Node>, host: Arc<dyn Host>) -> Self {
        NodeFigures { node, host }
    }
}

#[async_trait]
impl FigureSource for NodeFigures {
    async fn figures(&self) -> Figures {
        Figures {
            pools: self.node.remembered_pools(),
            volumes: self.node.remembered_volumes().await.unwrap_or_default(),
            usages: self.node.remembered_usages(),
            growths: self.node.growth_outcomes(),
            host_calls: self.host.counts(),
            lvm_commands: self.node.lvm_spent().into_iter().map(runs_and_time).collect(),
            wiped: self.node.wiped(),
            ..Figures::default()
        }
    }
}

fn runs_and_time((command, spent): (&'static str, Spent)) -> (&'static str, (u64, Duration)) {
    (command, (spent.runs, spent.time))
}

#[cfg(test)]
mod tests;
