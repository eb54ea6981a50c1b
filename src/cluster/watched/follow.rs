//! Follows a watch: what it tells is decoded, kept, and told to whoever follows the records.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{DefaultBackoff, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::causes;
use crate::cluster::decode::{Guarded, guarded};
use crate::cluster::watched::changes::{Followed, Place, locked, place, reference};
use crate::cluster::watched::decoder::Decoder;

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

/// How long after one list the next one is at the earliest, for namespaces of which less is there by then.
pub(super) const RELIST: Duration = Duration::from_secs(600);

/// What a watch keeps, and whom it tells.
pub(super) struct Watching<K: Resource<DynamicType = ()> + Clone + 'static> {
    pub decoder: Decoder<K>,
    /// Leaves of each record what is kept of it.
    pub cut: fn(&mut K),
    pub writer: Writer<K>,
    pub store: Store<K>,
    pub followed: Arc<Mutex<Followed<K>>>,
    pub told: watch::Sender<()>,
}

impl<K> Watching<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Follow the watch, until `stop`.
    pub async fn follow(mut self, api: Api<K>, config: watcher::Config, stop: CancellationToken) {
        let api = guarded(api);
        let begin = || Box::pin(watcher(api.clone(), config.clone()).backoff(Pauses::default()));
        let (mut events, mut listed) = (begin(), Instant::now());
        loop {
            let later = self.decoder.is_any_beyond().then(|| listed + RELIST);
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                next = events.next() => next,
                () = until(later) => {
                    listed = Instant::now();
                    self.decoder.report_again();
                    if self.decoder.has_space_again() {
                        events = begin();
                    }
                    continue;
                }
            };
            let Some(event) = next else { break };
            match event {
                Ok(event) => self.take(event),
                Err(error) => {
                    let error = causes::in_full(&error);
                    tracing::warn!(kind = %K::kind(&()), error, "the watch broke; it is taken up again");
                }
            }
            self.told.send_replace(());
        }
    }

    /// Take an event: decode it, and apply what it says of records that are kept.
    fn take(&mut self, event: Event<Guarded<K>>) {
        let of_event = place_of(&event);
        let events = self.decoder.decoded(event, self.cut);
        let mut is_noted = of_event.is_none();
        for event in &events {
            let of_record = place_in(event);
            is_noted |= of_record == of_event;
            apply(&self.followed, (&mut self.writer, &self.store), Some(event), of_record);
        }
        if !is_noted {
            apply(&self.followed, (&mut self.writer, &self.store), None, of_event);
        }
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

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
