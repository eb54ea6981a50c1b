//! The work of a loop for single objects, several at once.

use std::collections::HashSet;
use std::hash::Hash;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::fair::{Due, Queue, Slots};

/// How much work a loop does at once: half of it for one namespace.
const SLOTS: Slots = Slots { all: 16, of_namespace: 8, not_urgent: 0 };

/// The work of a loop for single objects: that of one whose calls hang holds up no other.
#[derive(Debug)]
pub struct Works<K> {
    queue: Queue<K>,
    /// Those that wait, and those for which something is done.
    taken: HashSet<K>,
    /// What is done; each says in the end whether that is all.
    under_way: JoinSet<(Due<K>, bool)>,
}

impl<K: Ord + Clone + Hash> Default for Works<K> {
    fn default() -> Self {
        Works { queue: Queue::new(SLOTS), taken: HashSet::new(), under_way: JoinSet::new() }
    }
}

impl<K: Ord + Clone + Hash + Send + 'static> Works<K> {
    /// Have something be done for one, unless that waits or is done already.
    pub fn add(&mut self, key: &K, namespace: &str, since: Instant) {
        if self.taken.insert(key.clone()) {
            let (key, namespace) = (key.clone(), namespace.to_owned());
            self.queue.insert(Due { key, namespace, is_urgent: false, since });
        }
    }

    /// Begin as much as may be done at once; for one without work nothing is to be done any more.
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

    /// Wait until something ends: for which one, and whether it is done. While there is nothing, that is for ever.
    pub async fn ended(&mut self) -> (K, bool) {
        loop {
            match self.under_way.join_next().await {
                None => std::future::pending().await,
                // Whoever begins it catches its panics.
                Some(Err(error)) => {
                    tracing::error!(%error, "the work for an object has no outcome");
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
