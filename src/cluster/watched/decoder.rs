//! Decodes the events of a watch, and keeps its records within their share of memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};

use crate::causes;
use crate::cluster::decode::{
    Guarded, NAMESPACE_TOO_LARGE, Unreadable, note_readable, note_unreadable,
};
use crate::cluster::share::{BEYOND_WHOLE, Found, Shares, Whole};
use crate::cluster::summary::weight;
use crate::cluster::watched::changes::{Place, locked, place, reference};
use crate::panics::caught_now;

/// Who writes the events of watches, for the API server.
const WRITER: &str = "pliant";

/// How many events one watch writes of objects that it cannot decode: the figure and the log have all.
const MOST_EVENTS: usize = 100;

/// Records that are left out.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// By namespace and name; of a namespace that has too much only the first one.
    pub records: BTreeMap<Place, Unreadable>,
    /// The namespaces that have too much.
    pub beyond: BTreeSet<String>,
}

/// Decodes the events of a watch.
pub(super) struct Decoder<K: Resource<DynamicType = ()> + 'static> {
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

impl<K> Decoder<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Nothing is decoded yet.
    pub fn new(
        store: Store<K>,
        unreadable: Arc<Mutex<Unread>>,
        client: Option<Client>,
        whole: Arc<Whole>,
    ) -> Self {
        let shares = Shares::new(whole);
        Decoder {
            store,
            unreadable,
            listed: Unread::default(),
            listed_shares: shares.of_list(),
            shares,
            listed_records: BTreeMap::new(),
            client,
            events: 0,
        }
    }

    /// What an event says of records that are kept. A record that no longer can be decoded stays as it was.
    pub fn decoded(&mut self, event: Event<Guarded<K>>, cut: fn(&mut K)) -> Vec<Event<K>> {
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
                self.take_listed(before, bad);
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
    fn take_listed(&mut self, record: Option<K>, bad: Option<Unreadable>) {
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
    pub fn is_any_beyond(&self) -> bool {
        !self.lock().beyond.is_empty()
    }

    /// True if a namespace that had too much takes so little that its records can be read again.
    pub fn has_space_again(&self) -> bool {
        self.lock().beyond.iter().any(|namespace| self.shares.has_space(namespace))
    }

    /// Write the events of namespaces that still have too much once more, if the API server has them no more: it
    /// forgets them after an hour, and people ask later.
    pub fn report_again(&mut self) {
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
