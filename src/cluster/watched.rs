//! All records of a kind, as a watch keeps them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::Record;
use crate::cluster::decode::{PAGE, Unreadable};
use crate::cluster::share::Whole;
use crate::cluster::watched::changes::{Followed, Keys, locked};
use crate::cluster::watched::decoder::{Decoder, Unread};
use crate::cluster::watched::follow::Watching;

mod changes;
mod decoder;
mod follow;
mod records;

pub use changes::{Change, Changed, Changes, Place, Turnover};
pub use follow::Pauses;

/// Watches all records of a kind, whose first list comes in small pages: a page is in memory as a whole, before
/// its records are cut.
pub fn every() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// All records of a kind, or those that a selector leaves, as the last event told them.
///
/// A watch that breaks is taken up where it was, after a pause that grows and is different for each
/// who waits, so that many do not come back at once. What is told may be old, never made up.
///
/// A record that cannot be decoded stays as it was decoded last; one that never could be is left out. Both are
/// [`unreadable`](Watched::unreadable): whoever concludes something from what there is not asks
/// [`decodes_all_of`](Watched::decodes_all_of) first.
///
/// A namespace whose records take too much memory has as many as its share holds, and less where all namespaces together
/// take too much and it takes the most. One of the others is unreadable, for all of them.
#[derive(Debug)]
pub struct Watched<K> {
    unreadable: Arc<Mutex<Unread>>,
    changes: watch::Sender<()>,
    followed: Arc<Mutex<Followed<K>>>,
    read: Arc<AtomicUsize>,
}

impl<K: Record> Watched<K> {
    /// Begin to watch, until `stop`.
    pub fn start(api: Api<K::Object>, config: watcher::Config, stop: &CancellationToken) -> Self {
        Watched::start_cut(api, config, stop, |_| {})
    }

    /// As [`Watched::start`]; of each record only what `cut` leaves is kept in memory.
    pub fn start_cut(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
        cut: fn(&mut K),
    ) -> Self {
        Watched::start_keyed(api, config, stop, cut, |_| Vec::new())
    }

    /// As [`Watched::start_cut`]; records are found by these keys, too.
    pub fn start_keyed(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
        cut: fn(&mut K),
        keys: Keys<K>,
    ) -> Self {
        let client = Some(Client::from(api.clone()));
        Watched::begin(api, config, stop, (cut, keys), client, Whole::of_process())
    }

    /// As [`Watched::start`], by a process that may not write events: what it cannot decode is only logged and
    /// counted.
    pub fn start_without_events(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
    ) -> Self {
        Watched::begin(api, config, stop, (|_| {}, |_| Vec::new()), None, Whole::of_process())
    }

    fn begin(
        api: Api<K::Object>,
        config: watcher::Config,
        stop: &CancellationToken,
        (cut, keys): (fn(&mut K), Keys<K>),
        client: Option<Client>,
        whole: Arc<Whole>,
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

    /// The records that cannot be decoded, by namespace and name.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let all = locked(&self.unreadable);
        all.records.values().cloned().collect()
    }

    /// True if all records of a namespace are here: a record that is not here is not there.
    pub fn decodes_all_of(&self, namespace: &str) -> bool {
        let all = locked(&self.unreadable);
        let first = (namespace.to_owned(), String::new());
        let next = all.records.range(first..).next();
        !all.beyond.contains(namespace) && next.is_none_or(|((place, _), _)| place != namespace)
    }

    /// Wait until the first list is here.
    pub async fn known(&self) {
        self.until(|all| all.is_known().then_some(())).await;
    }

    /// Whether the first list is here: before it, what there is not may be.
    pub fn is_known(&self) -> bool {
        locked(&self.followed).is_known
    }

    /// The record of a name.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.get_in("", name)
    }

    /// The record of a name in a namespace.
    pub fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        locked(&self.followed).get((namespace, name))
    }

    /// The records that have a key, in no order: as many as there are, whatever else there is.
    pub fn with_key(&self, key: &str) -> Vec<Arc<K>> {
        let found = locked(&self.followed).with_key(key);
        self.read.fetch_add(found.len(), Ordering::Relaxed);
        found
    }

    /// True if a record has a key.
    pub fn has_key(&self, key: &str) -> bool {
        locked(&self.followed).has_key(key)
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Tells from now on which records have changed; the first time that is everything.
    pub fn subscribe(&self) -> Changes<K> {
        Changes::of(self.followed.clone(), self.changes.subscribe(), self.read.clone())
    }

    /// All records, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        let all = locked(&self.followed).all();
        self.read.fetch_add(all.len(), Ordering::Relaxed);
        all
    }

    /// How many records were handed out so far, each as often as it was: what a change costs beyond what has changed
    /// shows in it.
    pub fn records_read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
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
mod tests;
