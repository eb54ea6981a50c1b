//! All objects of a kind in memory, updated by a watch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::Record;
use crate::cluster::cache::changes::{Followed, IndexKeys};
use crate::cluster::cache::decoder::{Decoder, UndecodedObjects};
use crate::cluster::cache::follow::Watching;
use crate::cluster::decode::{PAGE, Unreadable};
use crate::cluster::locked::locked;
use crate::cluster::memory_limits::MemoryLimits;

mod changes;
mod decoder;
mod follow;
mod records;

pub use changes::{Change, Changed, NamespacedName, PendingChanges, Turnover};
pub use follow::Pauses;

/// Configures a watch of all objects of a kind whose first list has small pages: a whole page is in memory
/// before its objects are cut.
pub fn every() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// All objects of a kind, or those of a selector, as of the last event.
///
/// A broken watch resumes where it was, after a growing random delay, so that clients do not reconnect all at once.
/// Its state may be old, but is never made up.
///
/// An object that cannot be decoded stays as it was decoded last; one that never could be is left out. Both are
/// [`unreadable`](Watched::unreadable): decisions that depend on what does not exist check
/// [`decodes_all_of`](Watched::decodes_all_of) first.
///
/// A namespace whose objects take too much memory has as many as fit into its share, and less if all namespaces
/// together take too much and it is the largest. One of the others is reported as unreadable for all of them.
#[derive(Debug)]
pub struct Watched<K> {
    unreadable: Arc<Mutex<UndecodedObjects>>,
    changes: watch::Sender<()>,
    followed: Arc<Mutex<Followed<K>>>,
    read: Arc<AtomicUsize>,
}

impl<K: Record> Watched<K> {
    /// Starts to watch, until `stop`.
    pub fn start(api: Api<K::Object>, config: watcher::Config, stop: &CancellationToken) -> Self {
        Watched::start_cut(api, config, stop, |_| {})
    }

    /// Like [`Watched::start`]; only what `cut` leaves of each object is in memory.
    pub fn start_cut(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
        cut: fn(&mut K),
    ) -> Self {
        Watched::start_keyed(api, config, stop, cut, |_| Vec::new())
    }

    /// Like [`Watched::start_cut`]; objects are also indexed by these keys.
    pub fn start_keyed(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
        cut: fn(&mut K),
        keys: IndexKeys<K>,
    ) -> Self {
        let client = Some(Client::from(api.clone()));
        Watched::begin(api, config, stop, (cut, keys), client, MemoryLimits::of_process())
    }

    /// As [`Watched::start`], by a process that may not write events: what it cannot decode is only logged and
    /// counted.
    pub fn start_without_events(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
    ) -> Self {
        Watched::begin(
            api,
            config,
            stop,
            (|_| {}, |_| Vec::new()),
            None,
            MemoryLimits::of_process(),
        )
    }

    fn begin(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
        (cut, keys): (fn(&mut K), IndexKeys<K>),
        client: Option<Client>,
        whole: Arc<MemoryLimits>,
    ) -> Self {
        let followed = Arc::new(Mutex::new(Followed::new(keys)));
        let changes = watch::Sender::new(());
        let unreadable = Arc::default();
        let decoder = Decoder::new(followed.clone(), Arc::clone(&unreadable), client, whole);
        let watching = Watching { decoder, cut, followed: followed.clone(), told: changes.clone() };
        let stop = stop.clone();
        tokio::spawn(async move { watching.follow(api, config, stop).await });
        Watched { unreadable, changes, followed, read: Arc::default() }
    }

    /// Returns the objects that cannot be decoded, by namespace and name.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let all = locked(&self.unreadable);
        all.records.values().cloned().collect()
    }

    /// Returns true if all objects of a namespace are known: a missing one does not exist.
    pub fn decodes_all_of(&self, namespace: &str) -> bool {
        let all = locked(&self.unreadable);
        let first = (namespace.to_owned(), String::new());
        let next = all.records.range(first..).next();
        !all.beyond.contains(namespace) && next.is_none_or(|((place, _), _)| place != namespace)
    }

    /// Waits until the first list is complete.
    pub async fn known(&self) {
        self.until(|all| all.is_known().then_some(())).await;
    }

    /// Returns true if the first list is complete: before that, a missing object may exist.
    pub fn is_known(&self) -> bool {
        locked(&self.followed).is_known
    }

    /// Returns the object of a name.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.get_in("", name)
    }

    /// Returns the object of a name in a namespace.
    pub fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        locked(&self.followed).get((namespace, name))
    }

    /// Returns the objects with a key, in no order: the cost depends on their number only.
    pub fn with_key(&self, key: &str) -> Vec<Arc<K>> {
        let found = locked(&self.followed).with_key(key);
        self.read.fetch_add(found.len(), Ordering::Relaxed);
        found
    }

    /// Returns true if an object has a key.
    pub fn has_key(&self, key: &str) -> bool {
        locked(&self.followed).has_key(key)
    }

    /// Subscribes to a notification of each change.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Subscribes to changed objects; the first time that is everything.
    pub fn subscribe(&self) -> PendingChanges<K> {
        PendingChanges::of(self.followed.clone(), self.changes.subscribe(), self.read.clone())
    }

    /// Returns all objects, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        let all = locked(&self.followed).all();
        self.read.fetch_add(all.len(), Ordering::Relaxed);
        all
    }

    /// Returns the number of objects handed out so far, with repetitions: it shows the cost of a change beyond what
    /// has changed.
    pub fn records_read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    /// Checks now and after each change, until there is a result.
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
mod tests;
