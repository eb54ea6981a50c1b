//! All records of a kind, as a watch keeps them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::causes;
use crate::cluster::decode::{
    Guarded, NAMESPACE_TOO_LARGE, PAGE, Unreadable, guarded, note_readable, note_unreadable,
};
use crate::cluster::share::{BEYOND_WHOLE, Found, Shares, Whole};
use crate::cluster::summary::weight;
use crate::panics::caught_now;

/// Watches all records of a kind, whose first list comes in small pages: a page is in memory as a whole, before
/// its records are cut.
pub fn every() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

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

/// Who writes the events of watches, for the API server.
const WRITER: &str = "pliant";

/// How many events one watch writes of objects that it cannot decode: the figure and the log have all.
const MOST_EVENTS: usize = 100;

/// How many changes one subscriber may have waiting: of more he has to look at all records.
const MOST_CHANGES: usize = 1024;

/// How long after one list the next one is at the earliest, for namespaces of which less is there by then.
const RELIST: Duration = Duration::from_secs(600);

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
pub struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    unreadable: Arc<Mutex<Unread>>,
    changes: watch::Sender<()>,
    followed: Arc<Mutex<Followed<K>>>,
    read: Arc<AtomicUsize>,
}

/// Namespace and name of a record; the namespace is empty for one without.
pub type Place = (String, String);

/// What a record is found by, beside its place.
type Keys<K> = fn(&K) -> Vec<String>;

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
struct Followed<K> {
    keys: Keys<K>,
    by_key: HashMap<String, Vec<Arc<K>>>,
    subscribers: HashMap<u64, Waiting<K>>,
    subscribed: u64,
}

#[derive(Debug)]
enum Waiting<K> {
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

    fn note(&mut self, place: &Place, before: Option<&Arc<K>>, now: Option<&Arc<K>>) {
        if let Some(before) = before {
            self.remove(before);
        }
        if let Some(now) = now {
            self.insert(now);
        }
        self.subscribers.values_mut().for_each(|waiting| waiting.note(place, before));
    }

    fn begin_again(&mut self, all: &[Arc<K>]) {
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

/// Records that are left out.
#[derive(Debug, Default)]
struct Unread {
    /// By namespace and name; of a namespace that has too much only the first one.
    records: BTreeMap<Place, Unreadable>,
    /// The namespaces that have too much.
    beyond: BTreeSet<String>,
}

/// Decodes the events of a watch.
struct Decoder<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    /// What is known now, as others see it.
    unreadable: Arc<Mutex<Unread>>,
    /// What the list that is being read has; it becomes what is known when that has ended.
    listed: Unread,
    shares: Shares,
    /// As `listed`.
    listed_shares: Shares,
    /// The records of the list that is being read, by namespace and name: one of them may still have to go.
    listed_records: BTreeMap<(String, String), K>,
    /// Who writes events; `None` may not.
    client: Option<Client>,
    events: usize,
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
        Watched::start_keyed(api, config, stop, cut, |_| Vec::new())
    }

    /// As [`Watched::start_cut`]; records are found by these keys, too.
    pub fn start_keyed(
        api: Api<K>,
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
        api: Api<K>,
        config: watcher::Config,
        stop: &CancellationToken,
    ) -> Self {
        Watched::begin(api, config, stop, (|_| {}, |_| Vec::new()), None, Whole::of_process())
    }

    fn begin(
        api: Api<K>,
        config: watcher::Config,
        stop: &CancellationToken,
        (cut, keys): (fn(&mut K), Keys<K>),
        client: Option<Client>,
        whole: Arc<Whole>,
    ) -> Self {
        let (store, mut writer) = reflector::store();
        let followed = Arc::new(Mutex::new(Followed {
            keys,
            by_key: HashMap::new(),
            subscribers: HashMap::new(),
            subscribed: 0,
        }));
        let changes = watch::Sender::new(());
        let (told, stop) = (changes.clone(), stop.clone());
        let unreadable = Arc::default();
        let shares = Shares::new(whole);
        let mut decoder = Decoder {
            store: store.clone(),
            unreadable: Arc::clone(&unreadable),
            listed: Unread::default(),
            listed_shares: shares.of_list(),
            shares,
            listed_records: BTreeMap::new(),
            client,
            events: 0,
        };
        let (kept, noted) = (store.clone(), followed.clone());
        tokio::spawn(async move {
            let api = guarded(api);
            let begin =
                || Box::pin(watcher(api.clone(), config.clone()).backoff(Pauses::default()));
            let (mut events, mut listed) = (begin(), Instant::now());
            loop {
                let later = decoder.is_any_beyond().then(|| listed + RELIST);
                let next = tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    next = events.next() => next,
                    () = until(later) => {
                        listed = Instant::now();
                        decoder.report_again();
                        if decoder.has_space_again() {
                            events = begin();
                        }
                        continue;
                    }
                };
                let Some(event) = next else { break };
                match event {
                    Ok(event) => {
                        let of_event = place_of(&event);
                        let events = decoder.decoded(event, cut);
                        let mut is_noted = of_event.is_none();
                        for event in &events {
                            let of_record = place_in(event);
                            is_noted |= of_record == of_event;
                            apply(&noted, (&mut writer, &kept), Some(event), of_record);
                        }
                        if !is_noted {
                            apply(&noted, (&mut writer, &kept), None, of_event);
                        }
                    }
                    Err(error) => {
                        let error = causes::in_full(&error);
                        tracing::warn!(kind = %K::kind(&()), error, "the watch broke; it is taken up again");
                    }
                }
                told.send_replace(());
            }
        });
        Watched { store, unreadable, changes, followed, read: Arc::default() }
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
        self.read.fetch_add(1, Ordering::Relaxed);
        self.store.get(&ObjectRef::new(name))
    }

    /// The record of a name in a namespace.
    pub fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// The records that have a key, in no order: as many as there are, whatever else there is.
    pub fn with_key(&self, key: &str) -> Vec<Arc<K>> {
        let found = locked(&self.followed).by_key.get(key).cloned().unwrap_or_default();
        self.read.fetch_add(found.len(), Ordering::Relaxed);
        found
    }

    /// True if a record has a key.
    pub fn has_key(&self, key: &str) -> bool {
        locked(&self.followed).by_key.contains_key(key)
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Tells from now on which records have changed; the first time that is everything.
    pub fn subscribe(&self) -> Changes<K> {
        let told = self.changes.subscribe();
        let mut followed = locked(&self.followed);
        followed.subscribed += 1;
        let number = followed.subscribed;
        followed.subscribers.insert(number, Waiting::Everything);
        drop(followed);
        let (store, followed) = (self.store.clone(), self.followed.clone());
        Changes { store, followed, number, told, read: self.read.clone() }
    }

    /// All records, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        let all = self.store.state();
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

impl<K> Decoder<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// What an event says of records that are kept. A record that no longer can be decoded stays as it was.
    fn decoded(&mut self, event: Event<Guarded<K>>, cut: fn(&mut K)) -> Vec<Event<K>> {
        match cut_in(event, cut) {
            Event::Init => {
                (self.listed, self.listed_shares) = (Unread::default(), self.shares.of_list());
                self.listed_records = BTreeMap::new();
                Vec::new()
            }
            Event::InitDone => self.end_list(),
            Event::InitApply(Guarded(read)) => {
                let (before, bad) = match read {
                    Ok(record) => (Some(record), None),
                    Err(unreadable) => (self.before(&unreadable.metadata), Some(unreadable)),
                };
                self.list(before, bad);
                Vec::new()
            }
            Event::Apply(Guarded(Ok(record))) => {
                let taken = self.taken_by(record.meta());
                let Some(mut events) = self.place(record.meta(), taken, weight(&record)) else {
                    return Vec::new();
                };
                note_readable::<K>(record.meta());
                self.lock().records.remove(&place(record.meta()));
                events.push(Event::Apply(record));
                events
            }
            Event::Apply(Guarded(Err(unreadable))) => {
                let (before, taken) =
                    (self.before(&unreadable.metadata), self.taken_by(&unreadable.metadata));
                let then = weight(&unreadable) + before.as_ref().map_or(0, weight);
                let Some(events) = self.place(&unreadable.metadata, taken, then) else {
                    return Vec::new();
                };
                self.report(&unreadable);
                self.lock().records.insert(place(&unreadable.metadata), unreadable);
                events
            }
            Event::Delete(Guarded(last)) => {
                let metadata = last.as_ref().map_or_else(|bad| &bad.metadata, K::meta).clone();
                let taken = self.taken_by(&metadata);
                self.shares.give_back(&metadata, taken);
                note_readable::<K>(&metadata);
                self.lock().records.remove(&place(&metadata));
                let last = last.ok().or_else(|| self.before(&metadata));
                last.map(Event::Delete).into_iter().collect()
            }
        }
    }

    /// What there is from now on is what the list has.
    fn end_list(&mut self) -> Vec<Event<K>> {
        self.shares.replace(&mut self.listed_shares);
        let listed = std::mem::take(&mut self.listed);
        let before = std::mem::replace(&mut *self.lock(), listed).records;
        let known = self.lock().records.clone();
        let gone = before.into_iter().filter(|(place, _)| !known.contains_key(place));
        gone.for_each(|(_, gone)| note_readable::<K>(&gone.metadata));
        let records = std::mem::take(&mut self.listed_records).into_values();
        let applied = records.map(Event::InitApply).chain([Event::InitDone]);
        std::iter::once(Event::Init).chain(applied).collect()
    }

    /// Take a record into the list that is read, as it is or as it was decoded last, and what cannot be decoded of
    /// it.
    fn list(&mut self, record: Option<K>, bad: Option<Unreadable>) {
        let metadata = match (&record, &bad) {
            (_, Some(bad)) => bad.metadata.clone(),
            (Some(record), None) => record.meta().clone(),
            (None, None) => return,
        };
        let taken = record.as_ref().map_or(0, weight) + bad.as_ref().map_or(0, weight);
        loop {
            match self.listed_shares.take(&metadata, 0, taken, self.shares.sum()) {
                Found::Taken => break,
                Found::Beyond(why) => return self.skip_listed(&metadata, why),
                Found::Above(level) if self.cut_list(level) => {}
                Found::Above(_) => return self.skip_listed(&metadata, BEYOND_WHOLE),
            }
        }
        if let Some(bad) = bad {
            self.report(&bad);
            self.listed.records.insert(place(&metadata), bad);
        } else {
            note_readable::<K>(&metadata);
        }
        if let Some(record) = record {
            self.listed_records.insert(place(&metadata), record);
        }
    }

    /// Skip so many records of the namespaces that take more than this that they do no more; whether there were any.
    fn cut_list(&mut self, level: usize) -> bool {
        let mut is_any = false;
        let places: Vec<(String, String)> = self.listed_records.keys().rev().cloned().collect();
        for place in places {
            if self.listed_shares.taken_by(&place.0) <= level {
                continue;
            }
            let Some(record) = self.listed_records.remove(&place) else { continue };
            self.listed_shares.give_back(record.meta(), weight(&record));
            self.skip_listed(record.meta(), BEYOND_WHOLE);
            is_any = true;
        }
        is_any
    }

    /// Find a place for a record, in that of what it took before: the records that leave it to this one, or `None` if
    /// it is skipped.
    fn place(&mut self, metadata: &ObjectMeta, taken: usize, then: usize) -> Option<Vec<Event<K>>> {
        let mut left = Vec::new();
        loop {
            match self.shares.take(metadata, taken, then, 0) {
                Found::Taken => return Some(left),
                Found::Beyond(why) => {
                    self.skip(metadata, why);
                    return None;
                }
                Found::Above(level) => {
                    let cut = self.cut(level, &place(metadata));
                    if cut.is_empty() {
                        self.skip(metadata, BEYOND_WHOLE);
                        return None;
                    }
                    left.extend(cut);
                }
            }
        }
    }

    /// As [`Decoder::cut_list`], of what there is, but for the record `but`.
    fn cut(&mut self, level: usize, but: &(String, String)) -> Vec<Event<K>> {
        let mut left = Vec::new();
        for record in self.store.state() {
            let meta = record.meta();
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            if self.shares.taken_by(namespace) <= level || place(meta) == *but {
                continue;
            }
            self.shares.give_back(meta, weight(&*record));
            self.skip(meta, BEYOND_WHOLE);
            left.push(Event::Delete((*record).clone()));
        }
        left
    }

    /// How many bytes a record takes that is here, as it was decoded and as it cannot be.
    fn taken_by(&self, metadata: &ObjectMeta) -> usize {
        let here = self.before(metadata).as_ref().map_or(0, weight);
        here + self.lock().records.get(&place(metadata)).map_or(0, weight)
    }

    /// Skip a record that has no place; the first one of its namespace is reported for all.
    fn skip(&mut self, metadata: &ObjectMeta, why: &str) {
        let skipped = Unreadable::beyond::<K>(metadata, why);
        if self.lock().beyond.insert(skipped.namespace().to_owned()) {
            self.report(&skipped);
            self.lock().records.entry(place(metadata)).or_insert(skipped);
        }
    }

    /// As [`Decoder::skip`], while the list is read.
    fn skip_listed(&mut self, metadata: &ObjectMeta, why: &str) {
        let skipped = Unreadable::beyond::<K>(metadata, why);
        if self.listed.beyond.insert(skipped.namespace().to_owned()) {
            self.report(&skipped);
            self.listed.records.entry(place(metadata)).or_insert(skipped);
        }
    }

    /// True if records of a namespace are skipped.
    fn is_any_beyond(&self) -> bool {
        !self.lock().beyond.is_empty()
    }

    /// True if a namespace that had too much takes so little that its records can be read again.
    fn has_space_again(&self) -> bool {
        self.lock().beyond.iter().any(|namespace| self.shares.has_space(namespace))
    }

    /// Write the events of namespaces that still have too much once more, if the API server has them no more: it
    /// forgets them after an hour, and people ask later.
    fn report_again(&mut self) {
        let all = self.lock().records.clone();
        let still = all.into_values().filter(|one| one.reason == NAMESPACE_TOO_LARGE);
        still.take(MOST_EVENTS).for_each(|one| self.write(&one));
    }

    /// A record as it was decoded last.
    fn before(&self, metadata: &ObjectMeta) -> Option<K> {
        self.store.get(&reference(&place(metadata))).map(|record| (*record).clone())
    }

    /// Report once that a record is left out.
    fn report(&mut self, unreadable: &Unreadable) {
        if note_unreadable(unreadable) && self.events < MOST_EVENTS {
            self.events += 1;
            self.write(unreadable);
        }
    }

    fn write(&self, unreadable: &Unreadable) {
        let Some(client) = &self.client else { return };
        let (event, client) = (unreadable.event(), client.clone());
        // An API server that does not take it holds up no watch.
        tokio::spawn(async move {
            if let Err(error) = event.write(&client, WRITER).await {
                let error = causes::in_full(&error);
                tracing::warn!(event = event.name, error, "failed to write an event");
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Unread> {
        locked(&self.unreadable)
    }
}

/// Apply an event to the records, and to all that changes with them. One that says nothing of the records that are
/// kept may say that a record can no longer be decoded, or that such a one is gone.
fn apply<K>(
    followed: &Mutex<Followed<K>>,
    (writer, store): (&mut Writer<K>, &Store<K>),
    event: Option<&Event<K>>,
    place: Option<Place>,
) where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let mut followed = locked(followed);
    let found = |place: &Place| store.get(&reference(place));
    let before = place.as_ref().and_then(found);
    if let Some(event) = event {
        writer.apply_watcher_event(event);
    }
    if let Some(place) = place {
        followed.note(&place, before.as_ref(), found(&place).as_ref());
    }
    if matches!(event, Some(Event::InitDone)) {
        followed.begin_again(&store.state());
    }
}

/// The record that an event is about, while no list is read.
fn place_of<K: Resource<DynamicType = ()>>(event: &Event<Guarded<K>>) -> Option<Place> {
    match event {
        Event::Apply(Guarded(Ok(record))) | Event::Delete(Guarded(Ok(record))) => {
            Some(place(record.meta()))
        }
        Event::Apply(Guarded(Err(bad))) | Event::Delete(Guarded(Err(bad))) => {
            Some(place(&bad.metadata))
        }
        Event::Init | Event::InitApply(_) | Event::InitDone => None,
    }
}

/// The record that an event of those that are kept is about, while no list is read.
fn place_in<K: Resource<DynamicType = ()>>(event: &Event<K>) -> Option<Place> {
    match event {
        Event::Apply(record) | Event::Delete(record) => Some(place(record.meta())),
        Event::Init | Event::InitApply(_) | Event::InitDone => None,
    }
}

fn reference<K: Resource<DynamicType = ()>>((namespace, name): &Place) -> ObjectRef<K> {
    let named = ObjectRef::new(name);
    if namespace.is_empty() { named } else { named.within(namespace) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leave of the record of an event what `cut` leaves; one over which that stumbles cannot be read.
fn cut_in<K>(event: Event<Guarded<K>>, cut: fn(&mut K)) -> Event<Guarded<K>>
where
    K: Resource<DynamicType = ()>,
{
    let guarded = |Guarded(read): Guarded<K>| {
        let mut record = match read {
            Ok(record) => record,
            Err(unreadable) => return Guarded(Err(unreadable)),
        };
        Guarded(match caught_now("objects", || cut(&mut record)) {
            Ok(()) => Ok(record),
            Err(panicked) => Err(Unreadable::of_record(&record, &panicked.to_string())),
        })
    };
    match event {
        Event::Apply(record) => Event::Apply(guarded(record)),
        Event::InitApply(record) => Event::InitApply(guarded(record)),
        event @ (Event::Delete(_) | Event::Init | Event::InitDone) => event,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn place(metadata: &ObjectMeta) -> Place {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::api::events::v1::Event;
    use kube::ResourceExt;
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Pool;
    use crate::cluster::unreadable_by_kind;
    use crate::testing::FakeApi;

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_the_first_list_are_told() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let watched: Watched<Pool> = Watched::start(Api::all(api.client()), every(), &stop);
        let waited = async { tokio::join!(watched.known(), watched.known(), watched.known()) };
        assert!(!watched.is_known());
        tokio::time::timeout(Duration::from_secs(60), waited).await.expect("all are told");
        assert!(watched.is_known());
    }

    fn labelled(name: &str, team: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": name,
                            "labels": {"team": team}}})
    }

    /// What a subscriber takes, by name: the team before and now.
    fn taken(changes: &mut Changes<ConfigMap>) -> Vec<(String, Option<String>, Option<String>)> {
        let team = |one: &Arc<ConfigMap>| one.labels().get("team").cloned().unwrap_or_default();
        let mut all: Vec<_> = match changes.take() {
            Changed::Everything(all) => {
                all.iter().map(|one| (one.name_any(), None, Some(team(one)))).collect()
            }
            Changed::These(all) => all
                .iter()
                .map(|one| {
                    (one.place.1.clone(), one.before.as_ref().map(team), one.now.as_ref().map(team))
                })
                .collect(),
        };
        all.sort();
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscriber_takes_each_record_once_as_it_was_and_as_it_is() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let put = |name: &str, team: &str| api.put_json::<ConfigMap>(labelled(name, team));
        let text = |text: &str| Some(text.to_owned());
        let keys = |one: &ConfigMap| one.labels().get("team").cloned().into_iter().collect();
        let all = Api::all(api.client());
        let watched: Watched<ConfigMap> = Watched::start_keyed(all, every(), &stop, |_| {}, keys);
        let mut changes = watched.subscribe();
        put("a", "red");
        put("b", "red");
        tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
        watched.until(|all| all.get_in("shop", "b")).await;
        let both = [("a".to_owned(), None, text("red")), ("b".to_owned(), None, text("red"))];
        assert_eq!(taken(&mut changes), both, "the first list is everything");
        assert_eq!(taken(&mut changes), [], "once");

        // One that has another label now is found by that one, and whoever followed it by the old one is told.
        put("a", "green");
        put("a", "blue");
        api.delete::<ConfigMap>("shop/b");
        put("c", "red");
        api.delete::<ConfigMap>("shop/c");
        put("d", "red");
        watched.until(|all| all.get_in("shop", "d")).await;
        let expected = [
            ("a".to_owned(), text("red"), text("blue")),
            ("b".to_owned(), text("red"), None),
            ("c".to_owned(), None, None),
            ("d".to_owned(), None, text("red")),
        ];
        assert_eq!(taken(&mut changes), expected);
        let by = |key: &str| -> Vec<String> {
            watched.with_key(key).iter().map(|one| one.name_any()).collect()
        };
        assert_eq!(
            (by("red"), by("blue"), by("green")),
            (vec!["d".to_owned()], vec!["a".to_owned()], vec![])
        );
        assert!(!watched.has_key("green"));

        // What changed while no watch ran is found by the next list.
        api.compact();
        api.cut_watches();
        put("d", "white");
        watched.until(|all| all.has_key("white").then_some(())).await;
        let expected =
            [("a".to_owned(), None, text("blue")), ("d".to_owned(), None, text("white"))];
        assert_eq!(taken(&mut changes), expected, "everything may have changed");
        assert_eq!(by("red"), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_subscriber_is_bounded_and_wakes_it() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let watched: Watched<ConfigMap> = Watched::start(Api::all(api.client()), every(), &stop);
        tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
        let mut changes = watched.subscribe();
        assert_eq!(taken(&mut changes), []);
        let put = |at: usize| api.put_json::<ConfigMap>(labelled(&format!("c{at:04}"), "red"));
        put(0);
        let woken = tokio::time::timeout(Duration::from_secs(60), changes.changed()).await;
        assert_eq!((woken, taken(&mut changes).len()), (Ok(()), 1));
        (1..=MOST_CHANGES + 1).for_each(put);
        watched.until(|all| all.get_in("shop", &format!("c{:04}", MOST_CHANGES + 1))).await;
        let all = changes.take();
        assert!(matches!(&all, Changed::Everything(all) if all.len() == MOST_CHANGES + 2));
        drop(changes);
        assert_eq!(locked(&watched.followed).subscribers.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_cannot_be_decoded_hides_no_other_one() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let pool = |name: &str, disks: Value| json!({"metadata": {"name": name}, "spec": {"disks": disks}});
        api.put_json::<Pool>(pool("bad", json!("all")));
        api.put_json::<Pool>(pool("good", json!([])));
        let watched: Watched<Pool> = Watched::start(Api::all(api.client()), every(), &stop);
        tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
        let names = || -> Vec<String> {
            let mut names: Vec<_> = watched.all().iter().map(|pool| pool.name_any()).collect();
            names.sort();
            names
        };
        assert_eq!((names(), watched.unreadable().len()), (vec!["good".to_owned()], 1));
        assert!(!watched.decodes_all_of(""));
        let told = |api: &FakeApi| api.list::<Event>().len();
        api.until("it is told", |api| told(api) == 1).await;
        assert_eq!(unreadable_by_kind().get("Pool"), Some(&1));

        // It becomes readable, and the other one is no longer: that one stays as it was, also over a new list.
        api.put_json::<Pool>(pool("bad", json!([])));
        api.put_json::<Pool>(pool("good", json!(7)));
        let both = vec!["bad".to_owned(), "good".to_owned()];
        watched
            .until(|all| (all.all().len() == 2 && !all.unreadable().is_empty()).then_some(()))
            .await;
        watched.until(|all| (all.unreadable()[0].name() == "good").then_some(())).await;
        api.compact();
        api.cut_watches();
        api.put_json::<Pool>(pool("third", json!([])));
        watched.until(|all| all.get("third")).await;
        assert_eq!((names()[..2].to_vec(), watched.unreadable().len()), (both, 1));
        api.until("each is told once", |api| told(api) == 2).await;

        api.delete::<Pool>("good");
        watched.until(|all| all.unreadable().is_empty().then_some(())).await;
        assert_eq!(names(), ["bad", "third"]);
        assert_eq!(unreadable_by_kind().get("Pool"), None);
    }

    /// A kind of which one object makes the program stumble.
    #[derive(Resource, Serialize, Deserialize, Debug, Clone, PartialEq)]
    #[resource(inherit = ConfigMap)]
    #[serde(from = "ConfigMap")]
    struct Fragile {
        metadata: ObjectMeta,
    }

    impl From<ConfigMap> for Fragile {
        fn from(from: ConfigMap) -> Self {
            let is_of = |name: &str| from.metadata.name.as_deref() == Some(name);
            assert!(!is_of("undecodable"), "a fault of the decoder");
            Fragile { metadata: from.metadata }
        }
    }

    fn cut_fragile(one: &mut Fragile) {
        assert!(one.name_any() != "uncut", "a fault of who cuts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_over_one_record_is_that_record_unreadable_and_not_the_end_of_the_watch() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let put = |name: &str| {
            let metadata = json!({"name": name, "namespace": "shop", "uid": name});
            api.put_json::<ConfigMap>(json!({"metadata": metadata}));
        };
        ["undecodable", "uncut", "good"].into_iter().for_each(put);
        let all = Api::all(api.client());
        let watched: Watched<Fragile> = Watched::start_cut(all, every(), &stop, cut_fragile);
        tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
        let names = |watched: &Watched<Fragile>| -> Vec<String> {
            watched.unreadable().iter().map(|one| one.name().to_owned()).collect()
        };
        assert_eq!(names(&watched), ["uncut", "undecodable"]);
        let why = watched.unreadable()[0].to_string();
        assert!(why.contains("a fault of who cuts"), "{why}");
        put("uncut");
        put("other");
        watched.until(|all| all.get_in("shop", "other")).await;
        assert_eq!((watched.all().len(), names(&watched).len()), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_takes_its_share_and_no_more() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let text = "x".repeat(1 << 20);
        let put = |namespace: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": namespace, "uid": name,
                                  "annotations": {"note": text}});
            api.put_json::<ConfigMap>(json!({"metadata": metadata, "data": {}}));
        };
        for at in 0..20 {
            put("crowd", &format!("c{at:02}"));
        }
        put("shop", "web");
        let watched: Watched<ConfigMap> = Watched::start(Api::all(api.client()), every(), &stop);
        tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
        let of = |namespace: &str| {
            watched.all().iter().filter(|one| one.namespace().as_deref() == Some(namespace)).count()
        };
        assert_eq!((of("crowd"), of("shop")), (15, 1));
        assert!(!watched.decodes_all_of("crowd") && watched.decodes_all_of("shop"));
        assert_eq!(watched.unreadable()[0].reason, NAMESPACE_TOO_LARGE);
        assert_eq!(unreadable_by_kind().get("ConfigMap"), Some(&1));
        let told = |api: &FakeApi| api.list::<Event>().len();
        api.until("it is reported", |api| told(api) == 1).await;

        // Others go on, and what changes in the namespace that is full takes no more than before.
        put("crowd", "c99");
        put("crowd", "c00");
        put("shop", "db");
        watched.until(|all| all.get_in("shop", "db")).await;
        assert_eq!((of("crowd"), of("shop"), told(&api)), (15, 2, 1), "once for all");

        // Once it has become smaller the others of it are read.
        (0..10).for_each(|at| api.delete::<ConfigMap>(&format!("crowd/c{at:02}")));
        watched.until(|all| all.get_in("crowd", "c99")).await;
        assert_eq!((of("crowd"), watched.unreadable().len()), (11, 0));
        assert!(watched.decodes_all_of("crowd"));
        assert_eq!(unreadable_by_kind().get("ConfigMap"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn small_namespaces_fit_however_many_large_ones_there_are() {
        const KIB: usize = 1 << 10;
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let put = |namespace: &str, name: &str, size: usize| {
            let metadata = json!({"name": name, "namespace": namespace,
                                  "uid": format!("{namespace}/{name}"),
                                  "annotations": {"note": "x".repeat(size)}});
            api.put_json::<ConfigMap>(json!({"metadata": metadata, "data": {}}));
        };
        for (crowd, at) in (0..8).flat_map(|crowd| (0..10).map(move |at| (crowd, at))) {
            put(&format!("crowd{crowd}"), &format!("c{at}"), 16 * KIB);
        }
        put("shop", "web", KIB);
        put("zoo", "web", KIB);
        let all: Api<ConfigMap> = Api::all(api.client());
        let (client, whole) = (Some(api.client()), Arc::new(Whole::of(512 * KIB)));
        let watched =
            Watched::begin(all, every(), &stop, (|_| {}, |_| Vec::new()), client, whole.clone());
        tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
        let of = |namespace: &str| {
            let all = watched.all();
            all.iter().filter(|one| one.namespace().as_deref() == Some(namespace)).count()
        };
        let taken = || -> usize { watched.all().iter().map(|one| weight(&**one)).sum() };
        assert_eq!((of("shop"), of("zoo")), (1, 1), "the last of the list, too");
        assert!(taken() <= 512 * KIB && taken() > 256 * KIB, "{}", taken());
        assert!(watched.decodes_all_of("shop") && !watched.decodes_all_of("crowd0"));
        let why = watched.unreadable()[0].to_string();
        assert!(why.contains("all of them together"), "{why}");

        // As they come, too: what is there of the large ones leaves its place.
        for at in 0..20 {
            put("shop", &format!("s{at:02}"), KIB);
            put(&format!("late{at:02}"), "one", KIB);
        }
        put("crowd1", "more", 16 * KIB);
        watched.until(|all| all.get_in("late19", "one")).await;
        assert_eq!(of("shop"), 21);
        assert!(taken() <= 512 * KIB, "{}", taken());
        assert!(watched.decodes_all_of("shop") && watched.decodes_all_of("late19"));

        // It is said again for as long as it is so.
        let told = |api: &FakeApi| {
            let events = api.list::<Event>().into_iter();
            events.filter(|event| event.reason.as_deref() == Some(NAMESPACE_TOO_LARGE)).count()
        };
        api.until("it is told", |api| told(api) == 8).await;
        for event in api.list::<Event>() {
            api.delete::<Event>(&format!("{}/{}", event.namespace().unwrap(), event.name_any()));
        }
        tokio::time::sleep(RELIST).await;
        api.until("it is told again", |api| told(api) == 8).await;

        // And read again when there is space.
        for (crowd, at) in (1..8).flat_map(|crowd| (0..10).map(move |at| (crowd, at))) {
            api.delete::<ConfigMap>(&format!("crowd{crowd}/c{at}"));
        }
        watched.until(|all| all.unreadable().is_empty().then_some(())).await;
        assert_eq!(of("crowd0"), 10);
        stop.cancel();
    }
}
