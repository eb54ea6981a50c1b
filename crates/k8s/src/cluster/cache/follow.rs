//! Follows a watch: decodes its events, stores the objects, and notifies subscribers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{DefaultBackoff, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::cluster::Record;
use crate::cluster::cache::changes::{Followed, NamespacedName, at};
use crate::cluster::cache::decoder::Decoder;
use crate::cluster::decode::{Guarded, guarded};
use crate::cluster::locked::locked;
use crate::cluster::timers::until;
use crate::error_chain;

/// Delays before a broken watch reconnects: a sixth of those of Kubernetes' own clients, so 10 s at
/// most. A caller after an outage then finds a node plugin that starts the operation in time.
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

/// Minimum interval between two lists, for namespaces that take less by then.
pub(super) const RELIST: Duration = Duration::from_secs(600);

/// State of a watch, and its subscribers.
pub(super) struct Watching<K: Record> {
    pub decoder: Decoder<K>,
    /// Reduces each object.
    pub cut: fn(&mut K),
    pub followed: Arc<Mutex<Followed<K>>>,
    pub told: watch::Sender<()>,
}

impl<K: Record> Watching<K> {
    /// Follows the watch, until `stop`.
    pub async fn follow(
        mut self,
        api: Api<K::Object>,
        config: watcher::Config,
        stop: CancellationToken,
    ) {
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
                    let error = error_chain::in_full(&error);
                    tracing::warn!(kind = %K::Object::kind(&()), error, "watch failed, reconnecting");
                }
            }
            self.told.send_replace(());
        }
    }

    /// Takes an event: decodes it, and stores its change.
    fn take(&mut self, event: Event<Guarded<K::Object>>) {
        let about = place_of(&event);
        let all = self.decoder.decoded(event, self.cut);
        let mut followed = locked(&self.followed);
        // A change without an effect on the stored objects may be that an object can no longer be decoded, or that
        // such a one was deleted.
        let unnoted = about.filter(|about| !all.iter().any(|told| told.is_of(at(about))));
        for told in all {
            followed.take(told);
        }
        if let Some(place) = unnoted {
            followed.touch(at(&place));
        }
    }
}

/// The object that an event is about, while no list is read.
fn place_of<K: Resource<DynamicType = ()>>(event: &Event<Guarded<K>>) -> Option<NamespacedName> {
    match event {
        Event::Apply(object) | Event::Delete(object) => {
            let meta = object.meta();
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            Some((text(&meta.namespace), text(&meta.name)))
        }
        Event::Init | Event::InitApply(_) | Event::InitDone => None,
    }
}
