//! All records of a kind, as a watch keeps them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::causes;
use crate::cluster::decode::{Guarded, PAGE, Unreadable, guarded, note_readable, note_unreadable};

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

/// All records of a kind, or those that a selector leaves, as the last event told them.
///
/// A watch that breaks is taken up where it was, after a pause that grows and is different for each
/// who waits, so that many do not come back at once. What is told may be old, never made up.
///
/// A record that cannot be decoded stays as it was decoded last; one that never could be is left out. Both are
/// [`unreadable`](Watched::unreadable): whoever concludes something from what there is not asks
/// [`decodes_all_of`](Watched::decodes_all_of) first.
#[derive(Debug)]
pub struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    unreadable: Arc<Mutex<Unread>>,
    changes: watch::Sender<()>,
}

/// Records that cannot be decoded, by namespace and name.
type Unread = BTreeMap<(String, String), Unreadable>;

/// Decodes the events of a watch.
struct Decoder<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    /// What is known now, as others see it.
    unreadable: Arc<Mutex<Unread>>,
    /// What the list that is being read has; it becomes what is known when that has ended.
    listed: Unread,
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
        let client = Some(Client::from(api.clone()));
        Watched::begin(api, config, stop, cut, client)
    }

    /// As [`Watched::start`], by a process that may not write events: what it cannot decode is only logged and
    /// counted.
    pub fn start_without_events(
        api: Api<K>,
        config: watcher::Config,
        stop: &CancellationToken,
    ) -> Self {
        Watched::begin(api, config, stop, |_| {}, None)
    }

    fn begin(
        api: Api<K>,
        config: watcher::Config,
        stop: &CancellationToken,
        cut: fn(&mut K),
        client: Option<Client>,
    ) -> Self {
        let (store, mut writer) = reflector::store();
        let changes = watch::Sender::new(());
        let (told, stop) = (changes.clone(), stop.clone());
        let unreadable = Arc::default();
        let mut decoder = Decoder {
            store: store.clone(),
            unreadable: Arc::clone(&unreadable),
            listed: Unread::new(),
            client,
            events: 0,
        };
        tokio::spawn(async move {
            let events = watcher(guarded(api), config).backoff(Pauses::default());
            let mut events = std::pin::pin!(events);
            while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
                match event {
                    Ok(event) => {
                        if let Some(event) = decoder.decoded(event, cut) {
                            writer.apply_watcher_event(&event);
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
        Watched { store, unreadable, changes }
    }

    /// The records that cannot be decoded, by namespace and name.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let all = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().cloned().collect()
    }

    /// True if all records of a namespace can be decoded: a record that is not here is not there.
    pub fn decodes_all_of(&self, namespace: &str) -> bool {
        let all = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        !all.keys().any(|(place, _)| place == namespace)
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

impl<K> Decoder<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// What an event tells of records that can be decoded. A record that no longer can be stays as it was.
    fn decoded(&mut self, event: Event<Guarded<K>>, cut: fn(&mut K)) -> Option<Event<K>> {
        Some(match event {
            Event::Init => {
                self.listed.clear();
                Event::Init
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = std::mem::replace(&mut *self.lock(), listed);
                let known = self.lock().clone();
                let gone = before.into_iter().filter(|(place, _)| !known.contains_key(place));
                gone.for_each(|(_, gone)| note_readable::<K>(&gone.metadata));
                Event::InitDone
            }
            Event::InitApply(Guarded(Ok(mut record))) => {
                note_readable::<K>(record.meta());
                cut(&mut record);
                Event::InitApply(record)
            }
            Event::InitApply(Guarded(Err(unreadable))) => {
                let before = self.before(&unreadable);
                self.report(&unreadable);
                self.listed.insert(place(&unreadable.metadata), unreadable);
                Event::InitApply(before?)
            }
            Event::Apply(Guarded(Ok(mut record))) => {
                note_readable::<K>(record.meta());
                self.lock().remove(&place(record.meta()));
                cut(&mut record);
                Event::Apply(record)
            }
            Event::Apply(Guarded(Err(unreadable))) => {
                self.report(&unreadable);
                self.lock().insert(place(&unreadable.metadata), unreadable);
                return None;
            }
            Event::Delete(Guarded(last)) => {
                let record = last.map_err(Box::new);
                let record =
                    record.or_else(|unreadable| self.before(&unreadable).ok_or(unreadable));
                let metadata = record.as_ref().map_or_else(|bad| &bad.metadata, K::meta);
                note_readable::<K>(metadata);
                self.lock().remove(&place(metadata));
                Event::Delete(record.ok()?)
            }
        })
    }

    /// A record as it was decoded last.
    fn before(&self, unreadable: &Unreadable) -> Option<K> {
        let mut named = ObjectRef::new(unreadable.name());
        if let Some(namespace) = &unreadable.metadata.namespace {
            named = named.within(namespace);
        }
        self.store.get(&named).map(|record| (*record).clone())
    }

    /// Report once that a record cannot be decoded.
    fn report(&mut self, unreadable: &Unreadable) {
        let is_new = note_unreadable(unreadable);
        let Some(client) = self.client.as_ref().filter(|_| is_new && self.events < MOST_EVENTS)
        else {
            return;
        };
        self.events += 1;
        let (event, client) = (unreadable.event(), client.clone());
        // An API server that does not take it holds up no watch.
        tokio::spawn(async move {
            if let Err(error) = event.write(&client, WRITER).await {
                let error = causes::in_full(&error);
                tracing::warn!(event = event.name, error, "failed to write an event");
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Unread> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(metadata: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::events::v1::Event;
    use kube::ResourceExt;
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
}
