//! What has changed of the records that a watch keeps, for each who follows them, and by what they are found.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tokio::sync::watch;

use crate::cluster::Record;
use crate::cluster::watched::records::Records;

/// How many changes one subscriber may have waiting: of more he has to look at all records.
pub(super) const MOST_CHANGES: usize = 1024;

/// Namespace and name of a record; the namespace is empty for one without.
pub type Place = (String, String);

/// What a record is found by, beside its place.
pub(super) type Keys<K> = fn(&K) -> Vec<String>;

/// One record as it was when its subscriber looked last, and as it is now. Both are `None` for one that cannot be
/// decoded.
#[derive(Debug, Clone)]
pub struct Change<K> {
    /// Where it is.
    pub place: Place,
    /// As it was; `None` if it was not there.
    pub before: Option<Arc<K>>,
    /// As it is; `None` if it is gone.
    pub now: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// As it was and as it is.
    pub fn both(&self) -> impl Iterator<Item = &Arc<K>> {
        self.before.iter().chain(&self.now)
    }
}

/// What has changed since a subscriber looked last.
#[derive(Debug, Clone)]
pub enum Changed<K> {
    /// Any record may be new, another one, or gone. These are there now.
    Everything(Vec<Arc<K>>),
    /// These records, each once.
    These(Vec<Change<K>>),
}

/// Which of the records that a subscriber looks after are gone, and which there are that have changed.
#[derive(Debug, Clone)]
pub struct Turnover<K, U> {
    /// By uid.
    pub gone: Vec<U>,
    /// As they are now.
    pub there: Vec<Arc<K>>,
}

impl<K> Changed<K> {
    /// The records that have changed; none, and `is_all` is set, if any may have.
    pub fn these(self, is_all: &mut bool) -> Vec<Change<K>> {
        match self {
            Changed::Everything(_) => {
                *is_all = true;
                Vec::new()
            }
            Changed::These(these) => these,
        }
    }

    /// What has become of the records that a subscriber looks after: of those whose uids are `known`, and of those that
    /// are new; a record that `is_looked_after` no longer is gone.
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

/// What one subscriber has not taken yet: each record once, however often it changed.
#[derive(Debug)]
pub struct Changes<K> {
    followed: Arc<Mutex<Followed<K>>>,
    number: u64,
    told: watch::Receiver<()>,
    read: Arc<AtomicUsize>,
}

/// The records and what changes with them, under one lock: who has it sees all of it as it is at one moment.
#[derive(Debug)]
pub(super) struct Followed<K> {
    records: Records<K>,
    /// Whether the first list is here.
    pub is_known: bool,
    by_key: Index<K>,
    pub subscribers: HashMap<u64, Waiting<K>>,
    subscribed: u64,
}

#[derive(Debug)]
pub(super) enum Waiting<K> {
    Everything,
    /// Each as it was before.
    These(HashMap<Place, Option<Arc<K>>>),
}

/// Records by their keys. Their texts are not kept, as they take as much memory as a small record: each is made from a
/// record again.
#[derive(Debug)]
struct Index<K> {
    keys: Keys<K>,
    table: HashTable<Keyed<K>>,
    state: RandomState,
}

/// The records of one key, and the hash of that.
#[derive(Debug)]
struct Keyed<K> {
    hash: u64,
    few: Few<K>,
}

impl<K> Index<K> {
    fn new(keys: Keys<K>) -> Self {
        Index { keys, table: HashTable::new(), state: RandomState::new() }
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

/// The hash of a key, and what finds its records by it.
fn search<K>(keys: Keys<K>, state: &RandomState, key: &str) -> (u64, impl Fn(&Keyed<K>) -> bool) {
    let hash = state.hash_one(key);
    let is_its = move |one: &Keyed<K>| {
        let has_it = |record: &Arc<K>| keys(record).iter().any(|one| one == key);
        one.hash == hash && one.few.all().first().is_some_and(has_it)
    };
    (hash, is_its)
}

/// The records of a key: most have one.
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

    /// Take a record out; whether none is left.
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

impl<K> Waiting<K> {
    fn note(&mut self, place: (&str, &str), before: Option<&Arc<K>>) {
        let Waiting::These(all) = self else { return };
        all.entry(owned(place)).or_insert_with(|| before.cloned());
        if all.len() > MOST_CHANGES {
            *self = Waiting::Everything;
        }
    }
}

/// What is told of the records.
#[derive(Debug)]
pub(super) enum Told<K> {
    /// One is there, as it is now.
    There(Arc<K>),
    /// One is gone.
    Gone(Place),
    /// These are there, and no others.
    All(Records<K>),
}

impl<K> Told<K> {
    /// Whether it is about the record of a place.
    pub fn is_of(&self, place: (&str, &str)) -> bool
    where
        K: Record,
    {
        match self {
            Told::There(record) => record.place() == place,
            Told::Gone(gone) => at(gone) == place,
            Told::All(_) => false,
        }
    }
}

impl<K: Record> Followed<K> {
    /// Nothing is followed yet; records are found by these keys.
    pub fn new(keys: Keys<K>) -> Self {
        Followed {
            records: Records::default(),
            is_known: false,
            by_key: Index::new(keys),
            subscribers: HashMap::new(),
            subscribed: 0,
        }
    }

    /// The record of a place.
    pub fn get(&self, place: (&str, &str)) -> Option<Arc<K>> {
        self.records.get(place).cloned()
    }

    /// All records, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.records.all()
    }

    /// The records that have a key, in no order.
    pub fn with_key(&self, key: &str) -> Vec<Arc<K>> {
        self.by_key.get(key).map(|few| few.all().to_vec()).unwrap_or_default()
    }

    /// True if a record has a key.
    pub fn has_key(&self, key: &str) -> bool {
        self.by_key.get(key).is_some()
    }

    /// Keep what is told.
    pub fn take(&mut self, told: Told<K>) {
        match told {
            Told::There(record) => {
                let before = self.records.insert(record.clone());
                if let Some(before) = &before {
                    self.by_key.remove(before);
                }
                self.by_key.insert(&record);
                self.note(record.place(), before.as_ref());
            }
            Told::Gone(place) => {
                let before = self.records.remove(at(&place));
                if let Some(before) = &before {
                    self.by_key.remove(before);
                }
                self.note(at(&place), before.as_ref());
            }
            Told::All(records) => {
                (self.records, self.is_known) = (records, true);
                self.by_key = Index::new(self.by_key.keys);
                self.records.all().iter().for_each(|one| self.by_key.insert(one));
                self.subscribers.values_mut().for_each(|waiting| *waiting = Waiting::Everything);
            }
        }
    }

    /// Note that something was told of the record of a place that does not change what is kept of it.
    pub fn touch(&mut self, place: (&str, &str)) {
        let there = self.get(place);
        self.note(place, there.as_ref());
    }

    fn note(&mut self, place: (&str, &str), before: Option<&Arc<K>>) {
        self.subscribers.values_mut().for_each(|waiting| waiting.note(place, before));
    }
}

impl<K: Record> Changes<K> {
    /// Those of a new subscriber: `told` wakes it, and what it takes is counted in `read`.
    pub(super) fn of(
        followed: Arc<Mutex<Followed<K>>>,
        told: watch::Receiver<()>,
        read: Arc<AtomicUsize>,
    ) -> Self {
        let mut all = locked(&followed);
        all.subscribed += 1;
        let number = all.subscribed;
        all.subscribers.insert(number, Waiting::Everything);
        drop(all);
        Changes { followed, number, told, read }
    }

    /// Take what has changed since the last time; the first time that is everything.
    pub fn take(&mut self) -> Changed<K> {
        // First: what changes from here on wakes its subscriber, also if it is taken already.
        self.told.mark_unchanged();
        let mut followed = locked(&self.followed);
        let none = Waiting::These(HashMap::new());
        let taken = followed.subscribers.insert(self.number, none);
        let changed = match taken {
            Some(Waiting::These(all)) => {
                let changes = all.into_iter().map(|(place, before)| {
                    let now = followed.get(at(&place));
                    Change { place, before, now }
                });
                Changed::These(changes.collect())
            }
            Some(Waiting::Everything) | None => Changed::Everything(followed.all()),
        };
        let count = match &changed {
            Changed::Everything(all) => all.len(),
            Changed::These(all) => all.len(),
        };
        self.read.fetch_add(count, Ordering::Relaxed);
        changed
    }

    /// Wait until there may be something to take.
    pub async fn changed(&mut self) {
        if self.told.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl<K> Drop for Changes<K> {
    fn drop(&mut self) {
        locked(&self.followed).subscribers.remove(&self.number);
    }
}

/// A place, to look for.
pub(super) fn at((namespace, name): &Place) -> (&str, &str) {
    (namespace, name)
}

/// A place, to be kept.
pub(super) fn owned((namespace, name): (&str, &str)) -> Place {
    (namespace.to_owned(), name.to_owned())
}

/// A lock is good after a panic: whoever holds it leaves all as it was, or as it is to be.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
