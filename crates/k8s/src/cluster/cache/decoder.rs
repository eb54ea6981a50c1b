//! Decodes the events of a watch within the memory share of each namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::watcher::Event;

use crate::cluster::cache::changes::{CacheChange, Followed, NamespacedName, at, owned};
use crate::cluster::cache::records::Records;
use crate::cluster::decode::{
    Guarded, NAMESPACE_TOO_LARGE, Unreadable, note_readable, note_unreadable,
};
use crate::cluster::locked::locked;
use crate::cluster::memory_limits::{BEYOND_WHOLE, MemoryLimits, NamespaceShares, Reservation};
use crate::cluster::summary::weight;
use crate::cluster::{Namespaces, Record};
use crate::error_chain;
use crate::panics::caught_now;

/// Name of the field manager for events of watches.
const WRITER: &str = "pliant";

/// Maximum number of events of one watch about objects that it cannot decode: the metric and the log
/// have all.
const MOST_EVENTS: usize = 100;

/// Objects that are left out.
#[derive(Debug, Default)]
pub(super) struct UndecodedObjects {
    /// Left-out objects by namespace and name; for a namespace beyond its share only the first one.
    pub records: BTreeMap<NamespacedName, Unreadable>,
    /// The namespaces that have too much.
    pub beyond: BTreeSet<String>,
}

/// Decodes the events of a watch.
pub(super) struct Decoder<K> {
    followed: Arc<Mutex<Followed<K>>>,
    /// Left-out objects for readers.
    unreadable: Arc<Mutex<UndecodedObjects>>,
    /// Left-out objects of a list in progress, which replace the known ones at its end.
    listed: UndecodedObjects,
    shares: NamespaceShares,
    /// As `listed`.
    listed_shares: NamespaceShares,
    /// Objects of a list in progress: some of them may still be skipped.
    listed_records: Records<K>,
    namespaces: Namespaces,
    /// Client for events; `None` without permission.
    client: Option<Client>,
    events: usize,
}

impl<K: Record> Decoder<K> {
    /// Creates a decoder without objects.
    pub fn new(
        followed: Arc<Mutex<Followed<K>>>,
        unreadable: Arc<Mutex<UndecodedObjects>>,
        client: Option<Client>,
        whole: Arc<MemoryLimits>,
    ) -> Self {
        let shares = NamespaceShares::new(whole);
        Decoder {
            followed,
            unreadable,
            listed: UndecodedObjects::default(),
            listed_shares: shares.of_list(),
            shares,
            listed_records: Records::default(),
            namespaces: Namespaces::default(),
            client,
            events: 0,
        }
    }

    /// Decodes an event into changes. An object that no longer can be decoded stays as it was.
    pub fn decoded(
        &mut self,
        event: Event<Guarded<K::Object>>,
        cut: fn(&mut K),
    ) -> Vec<CacheChange<K>> {
        match event {
            Event::Init => {
                (self.listed, self.listed_shares) =
                    (UndecodedObjects::default(), self.shares.of_list());
                self.listed_records = Records::default();
                Vec::new()
            }
            Event::InitDone => vec![self.end_list()],
            Event::InitApply(read) => {
                match record_of(read, cut) {
                    Ok(mut record) => {
                        self.share(&mut record);
                        self.take_listed(Some(Arc::new(record)), None);
                    }
                    Err(bad) => self.take_listed(self.before(bad.place()), Some(*bad)),
                }
                Vec::new()
            }
            Event::Apply(read) => match record_of(read, cut) {
                Ok(record) => self.take(record),
                Err(bad) => self.take_bad(*bad),
            },
            Event::Delete(Guarded(last)) => {
                let gone = match &last {
                    Ok(last) => owned(last.place()),
                    Err(bad) => owned(bad.place()),
                };
                let taken = self.taken_by(at(&gone));
                self.shares.give_back(&gone.0, taken);
                note_readable::<K::Object>(at(&gone));
                self.lock().records.remove(&gone);
                vec![CacheChange::Gone(gone)]
            }
        }
    }

    fn take(&mut self, mut record: K) -> Vec<CacheChange<K>> {
        self.share(&mut record);
        let taken = self.taken_by(record.place());
        let about = || record.reference();
        let Some(mut told) = self.place(record.place(), about, taken, weight(&record)) else {
            return Vec::new();
        };
        note_readable::<K::Object>(record.place());
        self.lock().records.remove(&owned(record.place()));
        told.push(CacheChange::There(Arc::new(record)));
        told
    }

    fn take_bad(&mut self, bad: Unreadable) -> Vec<CacheChange<K>> {
        let (before, taken) = (self.before(bad.place()), self.taken_by(bad.place()));
        let then = weight(&bad) + before.as_ref().map_or(0, weight);
        let about = || bad.reference();
        let Some(told) = self.place(bad.place(), about, taken, then) else {
            return Vec::new();
        };
        self.report(&bad);
        self.lock().records.insert(owned(bad.place()), bad);
        told
    }

    /// Replaces the objects by those of the list.
    fn end_list(&mut self) -> CacheChange<K> {
        self.shares.replace(&mut self.listed_shares);
        let listed = std::mem::take(&mut self.listed);
        let before = std::mem::replace(&mut *self.lock(), listed).records;
        let known = self.lock().records.clone();
        let gone = before.into_keys().filter(|place| !known.contains_key(place));
        gone.for_each(|gone| note_readable::<K::Object>(at(&gone)));
        CacheChange::All(std::mem::take(&mut self.listed_records))
    }

    /// Adds an object to the list in progress, as it is or as it was decoded last, and its error.
    fn take_listed(&mut self, record: Option<Arc<K>>, bad: Option<Unreadable>) {
        let about = match (&record, &bad) {
            (_, Some(bad)) => bad.reference(),
            (Some(record), None) => record.reference(),
            (None, None) => return,
        };
        let place = place_in(&about);
        let taken = record.as_ref().map_or(0, weight) + bad.as_ref().map_or(0, weight);
        loop {
            match self.listed_shares.take(&place.0, 0, taken, self.shares.sum()) {
                Reservation::Taken => break,
                Reservation::Beyond(why) => return self.skip_listed(&about, why),
                Reservation::Above(level) if self.cut_list(level) => {}
                Reservation::Above(_) => return self.skip_listed(&about, BEYOND_WHOLE),
            }
        }
        if let Some(bad) = bad {
            self.report(&bad);
            self.listed.records.insert(place, bad);
        } else {
            note_readable::<K::Object>(at(&place));
        }
        if let Some(record) = record {
            self.listed_records.insert(record);
        }
    }

    /// Skips objects of namespaces above this level until they are below it; returns true if there were any.
    fn cut_list(&mut self, level: usize) -> bool {
        let mut is_any = false;
        let mut last_first = self.listed_records.all();
        last_first.sort_by(|a, b| b.place().cmp(&a.place()));
        for record in last_first {
            let namespace = record.place().0;
            if self.listed_shares.taken_by(namespace) <= level {
                continue;
            }
            self.listed_records.remove(record.place());
            self.listed_shares.give_back(namespace, weight(&record));
            self.skip_listed(&record.reference(), BEYOND_WHOLE);
            is_any = true;
        }
        is_any
    }

    /// Finds space for an object, including that of its previous version: returns the objects that are skipped for
    /// it, or `None` if it is skipped.
    fn place(
        &mut self,
        place: (&str, &str),
        about: impl Fn() -> ObjectReference,
        taken: usize,
        then: usize,
    ) -> Option<Vec<CacheChange<K>>> {
        let mut left = Vec::new();
        loop {
            match self.shares.take(place.0, taken, then, 0) {
                Reservation::Taken => return Some(left),
                Reservation::Beyond(why) => {
                    self.skip(&about(), why);
                    return None;
                }
                Reservation::Above(level) => {
                    let cut = self.cut(level, place);
                    if cut.is_empty() {
                        self.skip(&about(), BEYOND_WHOLE);
                        return None;
                    }
                    left.extend(cut);
                }
            }
        }
    }

    /// Like [`Decoder::cut_list`], for the present objects except `but`.
    fn cut(&mut self, level: usize, but: (&str, &str)) -> Vec<CacheChange<K>> {
        let mut left = Vec::new();
        let all = locked(&self.followed).all();
        for record in all {
            let namespace = record.place().0;
            if self.shares.taken_by(namespace) <= level || record.place() == but {
                continue;
            }
            self.shares.give_back(namespace, weight(&record));
            self.skip(&record.reference(), BEYOND_WHOLE);
            left.push(CacheChange::Gone(owned(record.place())));
        }
        left
    }

    /// Returns the memory of an object, decoded or not, in bytes.
    fn taken_by(&self, place: (&str, &str)) -> usize {
        let here = self.before(place).as_ref().map_or(0, weight);
        let unread = self.lock();
        if unread.records.is_empty() {
            return here;
        }
        here + unread.records.get(&owned(place)).map_or(0, weight)
    }

    /// Skips an object without space; the first one of its namespace is reported for all.
    fn skip(&mut self, about: &ObjectReference, why: &str) {
        let skipped = Unreadable::beyond(about, why);
        if self.lock().beyond.insert(skipped.namespace().to_owned()) {
            self.report(&skipped);
            self.lock().records.entry(place_in(about)).or_insert(skipped);
        }
    }

    /// As [`Decoder::skip`], while the list is read.
    fn skip_listed(&mut self, about: &ObjectReference, why: &str) {
        let skipped = Unreadable::beyond(about, why);
        if self.listed.beyond.insert(skipped.namespace().to_owned()) {
            self.report(&skipped);
            self.listed.records.entry(place_in(about)).or_insert(skipped);
        }
    }

    /// Returns true if objects of a namespace are skipped.
    pub fn is_any_beyond(&self) -> bool {
        !self.lock().beyond.is_empty()
    }

    /// Returns true if a namespace beyond its share now takes so little that its objects can be
    /// read again.
    pub fn has_space_again(&self) -> bool {
        self.lock().beyond.iter().any(|namespace| self.shares.has_space(namespace))
    }

    /// Repeats the events of namespaces that still exceed their share, if the API server no longer has them: it
    /// forgets them after an hour, and people ask later.
    pub fn report_again(&mut self) {
        let all = self.lock().records.clone();
        let still = all.into_values().filter(|one| one.reason == NAMESPACE_TOO_LARGE);
        still.take(MOST_EVENTS).for_each(|one| self.write(&one));
    }

    /// Shares the strings of an object with others.
    fn share(&mut self, record: &mut K) {
        let before = self.before(record.place());
        record.share(before.as_deref(), &mut self.namespaces);
    }

    /// Returns the object as it was decoded last.
    fn before(&self, place: (&str, &str)) -> Option<Arc<K>> {
        locked(&self.followed).get(place)
    }

    /// Reports once that an object is left out.
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
                let error = error_chain::in_full(&error);
                tracing::warn!(event = event.name, error, "failed to write an event");
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, UndecodedObjects> {
        locked(&self.unreadable)
    }
}

/// Reduces an object, and cuts it; one over which that panics counts as invalid.
fn record_of<K: Record>(
    Guarded(read): Guarded<K::Object>,
    cut: fn(&mut K),
) -> Result<K, Box<Unreadable>> {
    let object = read?;
    let unreadable = Unreadable::of_record(&object, "");
    let made = caught_now("objects", || {
        let mut record = K::of(object);
        cut(&mut record);
        record
    });
    made.map_err(|panicked| Box::new(Unreadable { why: panicked.to_string(), ..unreadable }))
}

fn place_in(about: &ObjectReference) -> NamespacedName {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&about.namespace), text(&about.name))
}
