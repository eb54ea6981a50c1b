//! All records of a kind, as a watch keeps them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::causes;
use crate::cluster::decode::{Guarded, PAGE, Unreadable, guarded, note_readable, note_unreadable};
use crate::cluster::summary::weight;

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

/// How many bytes the records of one namespace may take in one watch. Some ten thousand claims do.
pub(crate) const SHARE: usize = 16 << 20;

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
/// A namespace whose records take too much memory has as many as its share holds. One of the others is
/// unreadable, for all of them.
#[derive(Debug)]
pub struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    unreadable: Arc<Mutex<Unread>>,
    changes: watch::Sender<()>,
}

/// Records that are left out.
#[derive(Debug, Default)]
struct Unread {
    /// By namespace and name; of a namespace that has too much only the first one.
    records: BTreeMap<(String, String), Unreadable>,
    /// The namespaces that have too much.
    beyond: BTreeSet<String>,
}

/// How many bytes the records of each namespace take. Those without a namespace are no tenant's.
#[derive(Debug, Default)]
struct Shares(HashMap<String, usize>);

impl Shares {
    /// Take so much in the place of what was there before, if the namespace has as much left.
    fn take(&mut self, metadata: &ObjectMeta, before: usize, weight: usize) -> bool {
        let Some(namespace) = &metadata.namespace else { return true };
        let taken = self.0.entry(namespace.clone()).or_default();
        let then = taken.saturating_sub(before) + weight;
        let fits = weight <= before || then <= SHARE;
        if fits {
            *taken = then;
        }
        fits
    }

    fn give_back(&mut self, metadata: &ObjectMeta, weight: usize) {
        let Some(namespace) = &metadata.namespace else { return };
        if let Some(taken) = self.0.get_mut(namespace) {
            *taken = taken.saturating_sub(weight);
            if *taken == 0 {
                self.0.remove(namespace);
            }
        }
    }

    /// True if a namespace takes so little that records of it fit again.
    fn has_space(&self, namespace: &str) -> bool {
        self.0.get(namespace).is_none_or(|taken| *taken < SHARE / 4 * 3)
    }
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
            listed: Unread::default(),
            shares: Shares::default(),
            listed_shares: Shares::default(),
            client,
            events: 0,
        };
        tokio::spawn(async move {
            let api = guarded(api);
            let begin =
                || Box::pin(watcher(api.clone(), config.clone()).backoff(Pauses::default()));
            let (mut events, mut listed) = (begin(), Instant::now());
            loop {
                let relist = decoder.has_space_again().then(|| listed + RELIST);
                let next = tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    next = events.next() => next,
                    () = until(relist) => {
                        (events, listed) = (begin(), Instant::now());
                        continue;
                    }
                };
                let Some(event) = next else { break };
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
        all.records.values().cloned().collect()
    }

    /// True if all records of a namespace are here: a record that is not here is not there.
    pub fn decodes_all_of(&self, namespace: &str) -> bool {
        let all = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        !all.beyond.contains(namespace) && !all.records.keys().any(|(place, _)| place == namespace)
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
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// What an event says of records that are kept. A record that no longer can be decoded stays as it was.
    fn decoded(&mut self, event: Event<Guarded<K>>, cut: fn(&mut K)) -> Option<Event<K>> {
        Some(match event {
            Event::Init => {
                (self.listed, self.listed_shares) = (Unread::default(), Shares::default());
                Event::Init
            }
            Event::InitDone => {
                self.shares = std::mem::take(&mut self.listed_shares);
                let listed = std::mem::take(&mut self.listed);
                let before = std::mem::replace(&mut *self.lock(), listed).records;
                let known = self.lock().records.clone();
                let gone = before.into_iter().filter(|(place, _)| !known.contains_key(place));
                gone.for_each(|(_, gone)| note_readable::<K>(&gone.metadata));
                Event::InitDone
            }
            Event::InitApply(Guarded(Ok(mut record))) => {
                cut(&mut record);
                if !self.listed_shares.take(record.meta(), 0, weight(&record)) {
                    self.skip_listed(record.meta());
                    return None;
                }
                note_readable::<K>(record.meta());
                Event::InitApply(record)
            }
            Event::InitApply(Guarded(Err(unreadable))) => {
                let before = self.before(&unreadable.metadata);
                let taken = weight(&unreadable) + before.as_ref().map_or(0, weight);
                if !self.listed_shares.take(&unreadable.metadata, 0, taken) {
                    self.skip_listed(&unreadable.metadata);
                    return None;
                }
                self.report(&unreadable);
                self.listed.records.insert(place(&unreadable.metadata), unreadable);
                Event::InitApply(before?)
            }
            Event::Apply(Guarded(Ok(mut record))) => {
                cut(&mut record);
                let taken = self.taken_by(record.meta());
                if !self.shares.take(record.meta(), taken, weight(&record)) {
                    self.skip(record.meta());
                    return None;
                }
                note_readable::<K>(record.meta());
                self.lock().records.remove(&place(record.meta()));
                Event::Apply(record)
            }
            Event::Apply(Guarded(Err(unreadable))) => {
                let (before, taken) =
                    (self.before(&unreadable.metadata), self.taken_by(&unreadable.metadata));
                let then = weight(&unreadable) + before.as_ref().map_or(0, weight);
                if !self.shares.take(&unreadable.metadata, taken, then) {
                    self.skip(&unreadable.metadata);
                    return None;
                }
                self.report(&unreadable);
                self.lock().records.insert(place(&unreadable.metadata), unreadable);
                return None;
            }
            Event::Delete(Guarded(last)) => {
                let metadata = last.as_ref().map_or_else(|bad| &bad.metadata, K::meta).clone();
                let taken = self.taken_by(&metadata);
                self.shares.give_back(&metadata, taken);
                note_readable::<K>(&metadata);
                self.lock().records.remove(&place(&metadata));
                Event::Delete(last.ok().or_else(|| self.before(&metadata))?)
            }
        })
    }

    /// How many bytes a record takes that is here, as it was decoded and as it cannot be.
    fn taken_by(&self, metadata: &ObjectMeta) -> usize {
        let here = self.before(metadata).as_ref().map_or(0, weight);
        here + self.lock().records.get(&place(metadata)).map_or(0, weight)
    }

    /// Skip a record that does not fit into the share of its namespace; the first one is reported for all.
    fn skip(&mut self, metadata: &ObjectMeta) {
        let skipped = Unreadable::beyond::<K>(metadata, SHARE);
        if self.lock().beyond.insert(skipped.namespace().to_owned()) {
            self.report(&skipped);
            self.lock().records.entry(place(metadata)).or_insert(skipped);
        }
    }

    /// As [`Decoder::skip`], while the list is read.
    fn skip_listed(&mut self, metadata: &ObjectMeta) {
        let skipped = Unreadable::beyond::<K>(metadata, SHARE);
        if self.listed.beyond.insert(skipped.namespace().to_owned()) {
            self.report(&skipped);
            self.listed.records.entry(place(metadata)).or_insert(skipped);
        }
    }

    /// True if a namespace that had too much takes so little that its records can be read again.
    fn has_space_again(&self) -> bool {
        self.lock().beyond.iter().any(|namespace| self.shares.has_space(namespace))
    }

    /// A record as it was decoded last.
    fn before(&self, metadata: &ObjectMeta) -> Option<K> {
        let mut named = ObjectRef::new(metadata.name.as_deref().unwrap_or_default());
        if let Some(namespace) = &metadata.namespace {
            named = named.within(namespace);
        }
        self.store.get(&named).map(|record| (*record).clone())
    }

    /// Report once that a record is left out.
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

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn place(metadata: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::api::events::v1::Event;
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Pool;
    use crate::cluster::{NAMESPACE_TOO_LARGE, unreadable_by_kind};
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
}
