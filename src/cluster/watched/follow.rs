//! Follows a watch: what it tells is decoded, kept, and told to whoever follows the records.

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

use crate::causes;
use crate::cluster::Record;
use crate::cluster::decode::{Guarded, guarded};
use crate::cluster::timers::until;
use crate::cluster::watched::changes::{Followed, Place, at, locked};
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
pub(super) struct Watching<K: Record> {
    pub decoder: Decoder<K>,
    /// Leaves of each record what is kept of it.
    pub cut: fn(&mut K),
    pub followed: Arc<Mutex<Followed<K>>>,
    pub told: watch::Sender<()>,
}

impl<K: Record> Watching<K> {
    /// Follow the watch, until `stop`.
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
                    let error = causes::in_full(&error);
                    tracing::warn!(kind = %K::Object::kind(&()), error, "the watch broke; it is taken up again");
                }
            }
            self.told.send_replace(());
        }
    }

    /// Take an event: decode it, and keep what it says.
    fn take(&mut self, event: Event<Guarded<K::Object>>) {
        let about = place_of(&event);
        let all = self.decoder.decoded(event, self.cut);
        let mut followed = locked(&self.followed);
        // One that says nothing of the records that are kept may say that a record can no longer be decoded, or that
        // such a one is gone.
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
fn place_of<K: Resource<DynamicType = ()>>(event: &Event<Guarded<K>>) -> Option<Place> {
    match event {
        Event::Apply(object) | Event::Delete(object) => {
            let meta = object.meta();
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            Some((text(&meta.namespace), text(&meta.name)))
        }
        Event::Init | Event::InitApply(_) | Event::InitDone => None,
    }
}
