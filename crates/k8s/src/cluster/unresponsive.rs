//! Node plugins that do not process requests.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::api::VolumeRequest;
use crate::cluster::{Changed, PendingChanges, Requests};

/// Last observed nodes whose node plugins do not respond, and the time of the next check.
#[derive(Debug)]
pub struct AwaySeen {
    requests: PendingChanges<VolumeRequest>,
    nodes: BTreeSet<String>,
    /// Time at which the next one may be added.
    next: Option<Instant>,
}

impl AwaySeen {
    /// Creates an empty state.
    pub fn of(requests: &Requests) -> AwaySeen {
        let requests = requests.watched().subscribe();
        AwaySeen { requests, nodes: BTreeSet::new(), next: None }
    }

    /// The nodes, as they were taken last.
    pub fn nodes(&self) -> &BTreeSet<String> {
        &self.nodes
    }

    /// Checks again, if there may be one more, or one less; returns the nodes that have come or gone.
    pub fn take(&mut self, requests: &Requests) -> Vec<String> {
        let has_changed =
            !matches!(self.requests.take(), Changed::These(changes) if changes.is_empty());
        if !has_changed && self.next.is_none_or(|at| at > Instant::now()) {
            return Vec::new();
        }
        let (nodes, next) = requests.away();
        let nodes: BTreeSet<String> = nodes.into_iter().collect();
        let changed = nodes.symmetric_difference(&self.nodes).cloned().collect();
        (self.nodes, self.next) = (nodes, next.map(|next| Instant::now() + next));
        changed
    }

    /// Waits until there may be something to take.
    pub async fn changed(&mut self) {
        let next = self.next;
        let due = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.requests.changed() => {}
            () = due => {}
        }
    }
}
