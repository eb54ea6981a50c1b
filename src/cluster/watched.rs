//! All records of a kind, as a watch keeps them.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

/// The pauses before a watch that broke is taken up again: a sixth of those of Kubernetes' own clients,
/// so 10 s at most. Who asks after an outage then finds an agent that takes up the work in time.
#[derive(Default)]
pub struct Pauses(DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause / 6)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// All records of a kind, or those that a selector leaves, as the last event told them.
///
/// A watch that breaks is taken up where it was, after a pause that grows and is different for each
/// who waits, so that many do not come back at once. What is told may be old, never made up.
#[derive(Debug)]
pub struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    changes: watch::Sender<()>,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Begin to watch, until `stop`.
    pub fn start(api: Api<K>, config: watcher::Config, stop: &CancellationToken) -> Self {
        Watched::start_cut(api, config, stop, |_| {})
    }

    /// As [`Watched::start`]; of each record only what `cut` leaves is kept in memory.
    pub fn start_cut(
        api: Api<K>,
        config: watcher::Config,
        stop: &CancellationToken,
        cut: fn(&mut K),
    ) -> Self {
        let (store, writer) = reflector::store();
        let changes = watch::Sender::new(());
        let (told, stop) = (changes.clone(), stop.clone());
        tokio::spawn(async move {
            let keep = move |record: &mut K| {
                record.meta_mut().managed_fields = None; // Nobody here asks who wrote what.
                cut(record);
            };
            let events = watcher(api, config).modify(keep).backoff(Pauses::default());
            let mut events = std::pin::pin!(reflector::reflector(writer, events));
            while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
                if let Err(error) = event {
                    let error = crate::causes::in_full(&error);
                    tracing::warn!(kind = %K::kind(&()), error, "the watch broke; it is taken up again");
                }
                told.send_replace(());
            }
        });
        Watched { store, changes }
    }

    /// Wait until the first list is here.
    pub async fn known(&self) {
        if self.store.wait_until_ready().await.is_err() {
            // The watch was stopped: nobody is left to be told.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the first list is here: before it, what there is not may be.
    pub fn is_known(&self) -> bool {
        let known = std::pin::pin!(self.known());
        known.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// The record of a name.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name))
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// All records, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Look now and after each change, until there is something to see.
    pub async fn until<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
