//! The work of a loop for single objects, several at once.

use std::collections::HashSet;
use std::hash::Hash;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::fair::{Due, FairQueue, Slots};

/// Maximum number of concurrent reconciles of a loop: half of them in one namespace.
const SLOTS: Slots = Slots { all: 16, of_namespace: 8, not_urgent: 0 };

/// The work of a loop for single objects: that of one whose calls hang holds up no other.
#[derive(Debug)]
pub struct Works<K> {
    queue: FairQueue<K>,
    /// Waiting and running keys.
    taken: HashSet<K>,
    /// Running reconciles; each returns true if it is done.
    under_way: JoinSet<(Due<K>, bool)>,
}

impl<K: Ord + Clone + Hash> Default for Works<K> {
    fn default() -> Self {
        Works { queue: FairQueue::new(SLOTS), taken: HashSet::new(), under_way: JoinSet::new() }
    }
}

impl<K: Ord + Clone + Hash + Send + 'static> Works<K> {
    /// Enqueues a key, unless it waits or runs already.
    pub fn add(&mut self, key: &K, namespace: &str, since: Instant) {
        if self.taken.insert(key.clone()) {
            let (key, namespace) = (key.clone(), namespace.to_owned());
            self.queue.insert(Due { key, namespace, is_urgent: false, since });
        }
    }

    /// Starts as many reconciles as allowed; a key without work is done.
    pub fn begin<F>(&mut self, mut work: impl FnMut(&K) -> Option<F>)
    where
        F: Future<Output = bool> + Send + 'static,
    {
        while let Some(due) = self.queue.choose() {
            if let Some(work) = work(&due.key) {
                self.under_way.spawn(async move { (due, work.await) });
            } else {
                self.queue.end(&due);
                self.taken.remove(&due.key);
            }
        }
    }

    /// Waits until a reconcile ends, and returns its key, and true if it is done. Without one, waits forever.
    pub async fn ended(&mut self) -> (K, bool) {
        loop {
            match self.under_way.join_next().await {
                None => std::future::pending().await,
                // The caller catches its panics.
                Some(Err(error)) => {
                    tracing::error!(%error, "reconcile of an object aborted");
                }
                Some(Ok((due, is_done))) => {
                    self.queue.end(&due);
                    self.taken.remove(&due.key);
                    return (due.key, is_done);
                }
            }
        }
    }
}
