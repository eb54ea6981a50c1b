//! The loops: each observes, plans and applies, and asks nobody whether it is its turn.
//!
//! On a node, [`agent`] carries out the requests for it, [`storage`] tells what it has, [`usage`] how
//! full that is, and [`pools::follow`] makes its pools those that the administrator wants. In the
//! controller, [`pools`] says which nodes a pool is for, [`cleaner`] removes requests that have ended,
//! [`nodes`] the records of nodes that are gone, and [`events`] tells people what has happened. In the
//! operator, which watches claims, [`nudge`] wakes the resizer for edits that it has missed, and [`topology`]
//! says on claims that no node fits their class. Every replica of the controller runs its loops: an effect that another one had already is none.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::causes;
use crate::cluster::{Due, Queue, Slots, caught_in_time};

pub mod agent;
pub mod cleaner;
mod conditions;
pub mod events;
pub mod nodes;
pub mod nudge;
pub mod pools;
pub mod storage;
pub mod topology;
pub mod usage;

/// Do the work for one object of a loop; true if it is done. An error, a panic or a call that hangs is that object's:
/// the loop goes on with the others.
async fn is_done(
    in_loop: &'static str,
    object: &str,
    work: impl Future<Output = Result<(), kube::Error>>,
) -> bool {
    let error = match caught_in_time(in_loop, work).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => causes::in_full(&error),
        Err(why) => why.to_string(),
    };
    tracing::warn!(in_loop, object, error, "the work for an object is not done yet");
    false
}

/// How much work a loop does at once: half of it for one namespace.
const SLOTS: Slots = Slots { all: 16, of_namespace: 8, not_urgent: 0 };

/// The work of a loop for single objects: that of one whose calls hang holds up no other.
#[derive(Debug)]
struct Works<K> {
    queue: Queue<K>,
    /// Those that wait, and those for which something is done.
    taken: HashSet<K>,
    /// What is done; each says in the end whether that is all.
    under_way: JoinSet<(Due<K>, bool)>,
}

impl<K: Ord + Clone + Hash + Send + 'static> Works<K> {
    /// Nothing is to be done.
    fn new() -> Self {
        Works { queue: Queue::new(SLOTS), taken: HashSet::new(), under_way: JoinSet::new() }
    }

    /// Have something be done for one, unless that waits or is done already.
    fn add(&mut self, key: &K, namespace: &str, since: Instant) {
        if self.taken.insert(key.clone()) {
            let (key, namespace) = (key.clone(), namespace.to_owned());
            self.queue.insert(Due { key, namespace, is_urgent: false, since });
        }
    }

    /// Begin as much as may be done at once; for one without work nothing is to be done any more.
    fn begin<F>(&mut self, mut work: impl FnMut(&K) -> Option<F>)
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
    async fn ended(&mut self) -> (K, bool) {
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

/// Wait so long; without a time, for ever.
async fn until(next: Option<Duration>) {
    match next {
        Some(next) => tokio::time::sleep(next).await,
        None => std::future::pending().await,
    }
}
