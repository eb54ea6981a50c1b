//! Requests that no node plugin processes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::VolumeRequest;
use crate::cluster::{PendingChanges, Timers, Turnover};

/// Time after which a node plugin with a pending request counts as not responding: longer than a restart
/// takes.
const AWAY: Duration = Duration::from_secs(60);

/// Pending requests with the time of their first observation: times in objects are from other clocks.
#[derive(Debug)]
pub struct UnprocessedRequests {
    changes: PendingChanges<VolumeRequest>,
    /// The node of each, by the uid of the request.
    nodes: HashMap<String, String>,
    /// Requests that have not been pending for long.
    young: Timers<String>,
    /// Requests that have been pending for long, by node.
    long: BTreeMap<String, BTreeSet<String>>,
}

impl UnprocessedRequests {
    /// Creates an empty state.
    pub fn new(changes: PendingChanges<VolumeRequest>) -> UnprocessedRequests {
        let (nodes, young, long) = (HashMap::new(), Timers::default(), BTreeMap::new());
        UnprocessedRequests { changes, nodes, young, long }
    }

    /// Takes the changes; returns the nodes that do not process requests, and the time until there will be more.
    pub fn take(&mut self, now: Instant) -> (Vec<String>, Option<Duration>) {
        let Turnover { gone, there } =
            self.changes.take().turnover(self.nodes.keys(), VolumeRequest::is_waiting);
        for uid in &gone {
            self.remove(uid);
        }
        for one in &there {
            self.note(one, now);
        }
        while let Some((uid, _)) = self.young.take_due(now) {
            let Some(node) = self.nodes.get(&uid) else { continue };
            self.long.entry(node.clone()).or_default().insert(uid);
        }
        let next = self.young.next().map(|at| at.saturating_duration_since(now));
        (self.long.keys().cloned().collect(), next)
    }

    fn note(&mut self, request: &VolumeRequest, now: Instant) {
        let (uid, node) = (uid(request), &request.spec.node_name);
        if self.nodes.get(uid) != Some(node) {
            self.remove(uid);
            self.nodes.insert(uid.to_owned(), node.clone());
            self.young.set(uid.to_owned(), now + AWAY);
        }
    }

    fn remove(&mut self, uid: &str) {
        let Some(node) = self.nodes.remove(uid) else { return };
        self.young.remove(&uid.to_owned());
        if let Some(long) = self.long.get_mut(&node) {
            long.remove(uid);
            if long.is_empty() {
                self.long.remove(&node);
            }
        }
    }
}

fn uid(request: &VolumeRequest) -> &str {
    request.metadata.uid.as_deref().unwrap_or_default()
}
