//! All records of a kind, as a watch keeps them.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
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
    ///
    /// Many can wait: the store itself would wake only the one who asked last.
    pub async fn known(&self) {
        self.until(|all| all.is_known().then_some(())).await;
    }

    /// Whether the first list is here: before it, what there is not may be.
    pub fn is_known(&self) -> bool {
        let ready = std::pin::pin!(self.store.wait_until_ready());
        ready.poll(&mut Context::from_waker(Waker::noop())).map(|ready| ready.is_ok())
            == Poll::Ready(true)
    }

    /// The record of a name.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name))
    }

    /// The record of a name in a namespace.
    pub fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Pool;
    use crate::testing::FakeApi;

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_the_first_list_are_told() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let every = watcher::Config::default();
        let watched: Watched<Pool> = Watched::start(Api::all(api.client()), every, &stop);
        let waited = async { tokio::join!(watched.known(), watched.known(), watched.known()) };
        assert!(!watched.is_known());
        tokio::time::timeout(Duration::from_secs(60), waited).await.expect("all are told");
        assert!(watched.is_known());
    }
}
