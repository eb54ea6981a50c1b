//! Whose pods change, by a watch of the metadata of all pods that stores none of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::api::controlling_stateful_set;
use crate::cluster::decode::{Guarded, guarded};
use crate::cluster::locked::locked;
use crate::cluster::{NamespacedName, Pauses, every};
use crate::error_chain;

/// Events of pods, of which only the StatefulSet or the namespace is noted: what a pod is like is read when it
/// matters, and ten thousand pods take no memory.
///
/// A broken watch resumes where it was, after a growing random delay. If that is not possible, all may have changed.
#[derive(Debug)]
pub struct PodEvents {
    news: Arc<Mutex<PodNews>>,
    told: watch::Sender<()>,
}

/// Whose pods have changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PodNews {
    /// True if any pod may have changed.
    pub all: bool,
    /// Namespaces and names of StatefulSets with pods that have changed.
    pub stateful_sets: BTreeSet<NamespacedName>,
    /// Namespaces from which a pod is gone, of whatever owner: it may have had a claim of another's.
    pub namespaces: BTreeSet<String>,
}

impl PodEvents {
    /// Starts to watch, until `stop`.
    pub fn start(client: &Client, stop: &CancellationToken) -> Self {
        let events = PodEvents { news: Arc::default(), told: watch::Sender::new(()) };
        let (news, told) = (events.news.clone(), events.told.clone());
        let pods = guarded(Api::<PartialObjectMeta<Pod>>::all(client.clone()));
        let stop = stop.clone();
        tokio::spawn(async move {
            let all = Box::pin(watcher(pods, every()).backoff(Pauses::default()));
            stop.run_until_cancelled(follow(all, &news, &told)).await;
        });
        events
    }

    /// Takes what has changed since the last time.
    pub fn take(&self) -> PodNews {
        std::mem::take(&mut *locked(&self.news))
    }

    /// Subscribes to a notification of each change.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }
}

async fn follow(
    mut events: impl StreamExt<Item = watcher::Result<Event<Guarded<PartialObjectMeta<Pod>>>>> + Unpin,
    news: &Mutex<PodNews>,
    told: &watch::Sender<()>,
) {
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => locked(news).note(&event),
            Err(error) => {
                let error = error_chain::in_full(&error);
                tracing::warn!(kind = "Pod", error, "watch failed, reconnecting");
            }
        }
        told.send_replace(());
    }
}

impl PodNews {
    fn note(&mut self, event: &Event<Guarded<PartialObjectMeta<Pod>>>) {
        match event {
            // After a first list too, since nothing tells what was before.
            Event::InitDone => self.all = true,
            Event::Init | Event::InitApply(_) => {}
            Event::Apply(pod) | Event::Delete(pod) => {
                if matches!(event, Event::Delete(_)) {
                    self.namespaces.extend(pod.namespace());
                }
                let owner = controlling_stateful_set(pod).map(|owner| owner.name.clone());
                self.stateful_sets.extend(pod.namespace().zip(owner));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_whose_pods_change_is_noted() {
        let pod = |owner: &str| {
            let owner = json!([{"apiVersion": "apps/v1", "kind": owner, "name": "db", "uid": "u",
                                "controller": true}]);
            let metadata = json!({"name": "db-0", "namespace": "shop", "ownerReferences": owner});
            serde_json::from_value::<Guarded<PartialObjectMeta<Pod>>>(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
            }))
            .unwrap()
        };
        let mut news = PodNews::default();
        news.note(&Event::Init);
        news.note(&Event::InitApply(pod("StatefulSet")));
        news.note(&Event::Apply(pod("ReplicaSet")));
        assert_eq!(news, PodNews::default());
        news.note(&Event::Apply(pod("StatefulSet")));
        let stateful_sets = BTreeSet::from([("shop".to_owned(), "db".to_owned())]);
        assert_eq!(news, PodNews { stateful_sets: stateful_sets.clone(), ..PodNews::default() });
        news.note(&Event::Delete(pod("ReplicaSet")));
        let namespaces = BTreeSet::from(["shop".to_owned()]);
        assert_eq!(news, PodNews { all: false, stateful_sets, namespaces });
        news.note(&Event::InitDone);
        assert!(news.all);
    }
}
