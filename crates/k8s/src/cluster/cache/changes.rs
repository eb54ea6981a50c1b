//! Changes of the objects of a watch for each subscriber, and the indexes of the objects.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tokio::sync::watch;

use crate::cluster::Record;
use crate::cluster::cache::records::Records;
use crate::cluster::locked::locked;

/// Maximum number of pending changes of one subscriber: beyond that it reads all objects.
pub(super) const MOST_CHANGES: usize = 1024;

/// Namespace and name of an object; the namespace is empty for a cluster-scoped one.
pub type NamespacedName = (String, String);

/// Index keys of an object, besides its names.
pub(super) type IndexKeys<K> = fn(&K) -> Vec<String>;

/// An object before and after a change. Both are `None` for one that cannot be decoded.
#[derive(Debug, Clone)]
pub struct Change<K> {
    /// Namespace and name of the object.
    pub place: NamespacedName,
    /// State before; `None` if it did not exist.
    pub before: Option<Arc<K>>,
    /// Present state; `None` if it was deleted.
    pub now: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// Returns the states before and after the change.
    pub fn both(&self) -> impl Iterator<Item = &Arc<K>> {
        self.before.iter().chain(&self.now)
    }
}

/// Changes since a subscriber's last take.
#[derive(Debug, Clone)]
pub enum Changed<K> {
    /// Any object may have changed. These exist now.
    Everything(Vec<Arc<K>>),
    /// Changed objects, each once.
    These(Vec<Change<K>>),
}

/// Deleted and changed objects among those that a subscriber manages.
#[derive(Debug, Clone)]
pub struct Turnover<K, U> {
    /// Deleted objects, by uid.
    pub gone: Vec<U>,
    /// As they are now.
    pub there: Vec<Arc<K>>,
}

impl<K> Changed<K> {
    /// Returns the changed objects; none, and sets `is_all`, if any may have changed.
    pub fn these(self, is_all: &mut bool) -> Vec<Change<K>> {
        match self {
            Changed::Everything(_) => {
                *is_all = true;
                Vec::new()
            }
            Changed::These(these) => these,
        }
    }

    /// Returns the deleted and changed objects for a subscriber: of the uids that are `known`, and new ones; an
    /// object that `is_looked_after` no longer selects counts as deleted.
    pub fn turnover<'a, U>(
        self,
        known: impl Iterator<Item = &'a U>,
        is_looked_after: impl Fn(&K) -> bool,
    ) -> Turnover<K, U>
    where
        K: Record,
        U: AsRef<str> + for<'s> From<&'s str> + Clone + 'a,
    {
        match self {
            Changed::Everything(mut there) => {
                there.retain(|one| is_looked_after(one));
                let uids: HashSet<&str> = there.iter().map(|one| one.id()).collect();
                let is_gone = |known: &&U| {
                    let uid: &str = (*known).as_ref();
                    !uids.contains(uid)
                };
                let gone = known.filter(is_gone).cloned().collect();
                Turnover { gone, there }
            }
            Changed::These(changes) => {
                let (mut gone, mut there) = (Vec::new(), Vec::new());
                for Change { before, now, .. } in changes {
                    let now = now.filter(|one| is_looked_after(one));
                    let before = before.as_ref().map(|one| one.id());
                    let stays = now.as_ref().map(|one| one.id());
                    gone.extend(before.filter(|_| before != stays).map(U::from));
                    there.extend(now);
                }
                Turnover { gone, there }
            }
        }
    }
}

/// Pending changes of one subscriber: each object once, however often it changed.
#[derive(Debug)]
pub struct PendingChanges<K> {
    followed: Arc<Mutex<Followed<K>>>,
    number: u64,
    told: watch::Receiver<()>,
    read: Arc<AtomicUsize>,
}

/// Objects and their subscribers, under one lock for a consistent view.
#[derive(Debug)]
pub(super) struct Followed<K> {
    records: Records<K>,
    /// True once the first list is complete.
    pub is_known: bool,
    by_key: KeyIndex<K>,
    pub subscribers: HashMap<u64, PendingChange<K>>,
    subscribed: u64,
}

#[derive(Debug)]
pub(super) enum PendingChange<K> {
    Everything,
    /// Each as it was before.
    These(HashMap<NamespacedName, Option<Arc<K>>>),
}

/// Index of objects by their keys. The keys are not stored, as they take as much memory as a small object: they are
/// computed from the object again.
#[derive(Debug)]
struct KeyIndex<K> {
    keys: IndexKeys<K>,
    table: HashTable<Keyed<K>>,
    state: RandomState,
}

/// Objects of one key, and the hash of the key.
#[derive(Debug)]
struct Keyed<K> {
    hash: u64,
    few: Few<K>,
}

impl<K> KeyIndex<K> {
    fn new(keys: IndexKeys<K>) -> Self {
        KeyIndex { keys, table: HashTable::new(), state: RandomState::new() }
    }

    fn get(&self, key: &str) -> Option<&Few<K>> {
        let (hash, is_its) = search(self.keys, &self.state, key);
        self.table.find(hash, is_its).map(|found| &found.few)
    }

    fn insert(&mut self, record: &Arc<K>) {
        for key in (self.keys)(record) {
            let (hash, is_its) = search(self.keys, &self.state, &key);
            match self.table.entry(hash, is_its, |one| one.hash) {
                Entry::Occupied(mut found) => found.get_mut().few.insert(record.clone()),
                Entry::Vacant(none) => {
                    none.insert(Keyed { hash, few: Few::One(record.clone()) });
                }
            }
        }
    }

    fn remove(&mut self, record: &Arc<K>) {
        for key in (self.keys)(record) {
            let (hash, is_its) = search(self.keys, &self.state, &key);
            let Ok(mut found) = self.table.find_entry(hash, is_its) else { continue };
            if found.get_mut().few.remove(record) {
                found.remove();
            }
        }
    }
}

/// Returns the hash of a key, and the predicate that finds its objects.
fn search<K>(
    keys: IndexKeys<K>,
    state: &RandomState,
    key: &str,
) -> (u64, impl Fn(&Keyed<K>) -> bool) {
    let hash = state.hash_one(key);
    let is_its = move |one: &Keyed<K>| {
        let has_it = |record: &Arc<K>| keys(record).iter().any(|one| one == key);
        one.hash == hash && one.few.all().first().is_some_and(has_it)
    };
    (hash, is_its)
}

/// Objects of a key: most have one.
#[derive(Debug)]
enum Few<K> {
    One(Arc<K>),
    Many(Vec<Arc<K>>),
}

impl<K> Few<K> {
    fn all(&self) -> &[Arc<K>] {
        match self {
            Few::One(one) => std::slice::from_ref(one),
            Few::Many(all) => all,
        }
    }

    fn insert(&mut self, record: Arc<K>) {
        match self {
            Few::One(one) => *self = Few::Many(vec![one.clone(), record]),
            Few::Many(all) => all.push(record),
        }
    }

    /// Removes an object; returns true if none is left.
    fn remove(&mut self, record: &Arc<K>) -> bool {
        match self {
            Few::One(one) => Arc::ptr_eq(one, record),
            Few::Many(all) => {
                if let Some(at) = all.iter().position(|one| Arc::ptr_eq(one, record)) {
                    all.swap_remove(at);
                }
                all.is_empty()
            }
        }
    }
}

impl<K> PendingChange<K> {
    fn note(&mut self, place: (&str, &str), before: Option<&Arc<K>>) {
        let PendingChange::These(all) = self else { return };
        all.entry(owned(place)).or_insert_with(|| before.cloned());
        if all.len() > MOST_CHANGES {
            *self = PendingChange::Everything;
        }
    }
}

/// Change of the objects in a watch.
#[derive(Debug)]
pub(super) enum CacheChange<K> {
    /// An object exists in this state.
    There(Arc<K>),
    /// An object was deleted.
    Gone(NamespacedName),
    /// These objects exist, and no others.
    All(Records<K>),
}

impl<K> CacheChange<K> {
    /// Returns true if it is about this object.
    pub fn is_of(&self, place: (&str, &str)) -> bool
    where
        K: Record,
    {
        match self {
            CacheChange::There(record) => record.place() == place,
            CacheChange::Gone(gone) => at(gone) == place,
            CacheChange::All(_) => false,
        }
    }
}

impl<K: Record> Followed<K> {
    /// Creates an empty state; objects are indexed by these keys.
    pub fn new(keys: IndexKeys<K>) -> Self {
        Followed {
            records: Records::default(),
            is_known: false,
            by_key: KeyIndex::new(keys),
            subscribers: HashMap::new(),
            subscribed: 0,
        }
    }

    /// Returns an object.
    pub fn get(&self, place: (&str, &str)) -> Option<Arc<K>> {
        self.records.get(place).cloned()
    }

    /// Returns all objects, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.records.all()
    }

    /// Returns the objects with a key, in no order.
    pub fn with_key(&self, key: &str) -> Vec<Arc<K>> {
        self.by_key.get(key).map(|few| few.all().to_vec()).unwrap_or_default()
    }

    /// Returns true if an object has a key.
    pub fn has_key(&self, key: &str) -> bool {
        self.by_key.get(key).is_some()
    }

    /// Applies a change.
    pub fn take(&mut self, told: CacheChange<K>) {
        match told {
            CacheChange::There(record) => {
                let before = self.records.insert(record.clone());
                if let Some(before) = &before {
                    self.by_key.remove(before);
                }
                self.by_key.insert(&record);
                self.note(record.place(), before.as_ref());
            }
            CacheChange::Gone(place) => {
                let before = self.records.remove(at(&place));
                if let Some(before) = &before {
                    self.by_key.remove(before);
                }
                self.note(at(&place), before.as_ref());
            }
            CacheChange::All(records) => {
                (self.records, self.is_known) = (records, true);
                self.by_key = KeyIndex::new(self.by_key.keys);
                self.records.all().iter().for_each(|one| self.by_key.insert(one));
                self.subscribers
                    .values_mut()
                    .for_each(|waiting| *waiting = PendingChange::Everything);
            }
        }
    }

    /// Notifies subscribers of an event about an object that does not change its reduced state.
    pub fn touch(&mut self, place: (&str, &str)) {
        let there = self.get(place);
        self.note(place, there.as_ref());
    }

    fn note(&mut self, place: (&str, &str), before: Option<&Arc<K>>) {
        self.subscribers.values_mut().for_each(|waiting| waiting.note(place, before));
    }
}

impl<K: Record> PendingChanges<K> {
    /// Creates the changes of a new subscriber: `told` wakes it, and `read` counts what it takes.
    pub(super) fn of(
        followed: Arc<Mutex<Followed<K>>>,
        told: watch::Receiver<()>,
        read: Arc<AtomicUsize>,
    ) -> Self {
        let mut all = locked(&followed);
        all.subscribed += 1;
        let number = all.subscribed;
        all.subscribers.insert(number, PendingChange::Everything);
        drop(all);
        PendingChanges { followed, number, told, read }
    }

    /// Takes the changes since the last time; the first time that is everything.
    pub fn take(&mut self) -> Changed<K> {
        // First: what changes from here on wakes its subscriber, also if it is taken already.
        self.told.mark_unchanged();
        let mut followed = locked(&self.followed);
        let none = PendingChange::These(HashMap::new());
        let taken = followed.subscribers.insert(self.number, none);
        let changed = match taken {
            Some(PendingChange::These(all)) => {
                let changes = all.into_iter().map(|(place, before)| {
                    let now = followed.get(at(&place));
                    Change { place, before, now }
                });
                Changed::These(changes.collect())
            }
            Some(PendingChange::Everything) | None => Changed::Everything(followed.all()),
        };
        let count = match &changed {
            Changed::Everything(all) => all.len(),
            Changed::These(all) => all.len(),
        };
        self.read.fetch_add(count, Ordering::Relaxed);
        changed
    }

    /// Waits until there may be something to take.
    pub async fn changed(&mut self) {
        if self.told.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl<K> Drop for PendingChanges<K> {
    fn drop(&mut self) {
        locked(&self.followed).subscribers.remove(&self.number);
    }
}

/// A place, to look for.
pub(super) fn at((namespace, name): &NamespacedName) -> (&str, &str) {
    (namespace, name)
}

/// Returns an owned namespace and name, to store.
pub(super) fn owned((namespace, name): (&str, &str)) -> NamespacedName {
    (namespace.to_owned(), name.to_owned())
}
