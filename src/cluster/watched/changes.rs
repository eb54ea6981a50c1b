//! What has changed of the records that a watch keeps, for each who follows them, and by what they are found.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::watch;

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
pub struct Turnover<K> {
    /// By uid.
    pub gone: Vec<String>,
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
    pub fn turnover<'a>(
        self,
        known: impl Iterator<Item = &'a String>,
        is_looked_after: impl Fn(&K) -> bool,
    ) -> Turnover<K>
    where
        K: Resource,
    {
        let uid = |one: &Arc<K>| one.meta().uid.clone().unwrap_or_default();
        match self {
            Changed::Everything(mut there) => {
                there.retain(|one| is_looked_after(one));
                let uids: HashSet<String> = there.iter().map(uid).collect();
                let gone = known.filter(|known| !uids.contains(*known)).cloned().collect();
                Turnover { gone, there }
            }
            Changed::These(changes) => {
                let (mut gone, mut there) = (Vec::new(), Vec::new());
                for Change { before, now, .. } in changes {
                    let now = now.filter(|one| is_looked_after(one));
                    let before = before.as_ref().map(uid);
                    gone.extend(
                        before.filter(|before| now.as_ref().map(uid).as_ref() != Some(before)),
                    );
                    there.extend(now);
                }
                Turnover { gone, there }
            }
        }
    }
}

/// What one subscriber has not taken yet: each record once, however often it changed.
#[derive(Debug)]
pub struct Changes<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    followed: Arc<Mutex<Followed<K>>>,
    number: u64,
    told: watch::Receiver<()>,
    read: Arc<AtomicUsize>,
}

/// What changes with the records, under one lock: who has it sees all of it as it is at one moment.
#[derive(Debug)]
pub(super) struct Followed<K> {
    keys: Keys<K>,
    by_key: HashMap<String, Vec<Arc<K>>>,
    pub subscribers: HashMap<u64, Waiting<K>>,
    subscribed: u64,
}

#[derive(Debug)]
pub(super) enum Waiting<K> {
    Everything,
    /// Each as it was before.
    These(HashMap<Place, Option<Arc<K>>>),
}

impl<K> Waiting<K> {
    fn note(&mut self, place: &Place, before: Option<&Arc<K>>) {
        let Waiting::These(all) = self else { return };
        all.entry(place.clone()).or_insert_with(|| before.cloned());
        if all.len() > MOST_CHANGES {
            *self = Waiting::Everything;
        }
    }
}

impl<K> Followed<K> {
    /// Nothing is followed yet; records are found by these keys.
    pub fn new(keys: Keys<K>) -> Self {
        Followed { keys, by_key: HashMap::new(), subscribers: HashMap::new(), subscribed: 0 }
    }

    /// The records that have a key, in no order.
    pub fn with_key(&self, key: &str) -> Vec<Arc<K>> {
        self.by_key.get(key).cloned().unwrap_or_default()
    }

    /// True if a record has a key.
    pub fn has_key(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    fn insert(&mut self, record: &Arc<K>) {
        for key in (self.keys)(record) {
            self.by_key.entry(key).or_default().push(record.clone());
        }
    }

    fn remove(&mut self, record: &Arc<K>) {
        for key in (self.keys)(record) {
            let Some(all) = self.by_key.get_mut(&key) else { continue };
            if let Some(at) = all.iter().position(|one| Arc::ptr_eq(one, record)) {
                all.swap_remove(at);
            }
            if all.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Note what has become of the record at a place.
    pub fn note(&mut self, place: &Place, before: Option<&Arc<K>>, now: Option<&Arc<K>>) {
        if let Some(before) = before {
            self.remove(before);
        }
        if let Some(now) = now {
            self.insert(now);
        }
        self.subscribers.values_mut().for_each(|waiting| waiting.note(place, before));
    }

    /// Note that any record may be another one; these are there.
    pub fn begin_again(&mut self, all: &[Arc<K>]) {
        self.by_key = HashMap::new();
        for one in all {
            self.insert(one);
        }
        self.subscribers.values_mut().for_each(|waiting| *waiting = Waiting::Everything);
    }
}

impl<K> Changes<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Those of a new subscriber: `told` wakes it, and what it takes is counted in `read`.
    pub(super) fn of(
        store: Store<K>,
        followed: Arc<Mutex<Followed<K>>>,
        told: watch::Receiver<()>,
        read: Arc<AtomicUsize>,
    ) -> Self {
        let mut all = locked(&followed);
        all.subscribed += 1;
        let number = all.subscribed;
        all.subscribers.insert(number, Waiting::Everything);
        drop(all);
        Changes { store, followed, number, told, read }
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
                let now = |place: &Place| self.store.get(&reference(place));
                let changes = all.into_iter().map(|(place, before)| {
                    let now = now(&place);
                    Change { place, before, now }
                });
                Changed::These(changes.collect())
            }
            Some(Waiting::Everything) | None => Changed::Everything(self.store.state()),
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

impl<K: Resource<DynamicType = ()> + 'static> Drop for Changes<K> {
    fn drop(&mut self) {
        locked(&self.followed).subscribers.remove(&self.number);
    }
}

/// The record at a place.
pub(super) fn reference<K: Resource<DynamicType = ()>>((namespace, name): &Place) -> ObjectRef<K> {
    let named = ObjectRef::new(name);
    if namespace.is_empty() { named } else { named.within(namespace) }
}

/// Where a record is.
pub(super) fn place(metadata: &ObjectMeta) -> Place {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

/// A lock is good after a panic: whoever holds it leaves all as it was, or as it is to be.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
