//! Tells people what happens to their volumes and nodes, as events on the objects that they look at.
//!
//! Only what no other program tells: how a call ends is told by the sidecar that made it. Each change
//! is one event, whose name follows from what it tells; so of several replicas one writes it, and none
//! writes it again after a restart.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::causes;
use crate::cluster::{Cluster, Kept};
use crate::controllers::events::fact::{Fact, Seen, Sights, Sizes, facts};
use crate::controllers::events::told::{Telling, Told};
use crate::controllers::pools::WRITER;
use crate::volume::DRIVER;

mod fact;
mod reason;
mod told;

pub use reason::EventReason;

/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Between two looks: many volumes change together.
const PAUSE: Duration = Duration::from_secs(1);

/// Where events of objects without a namespace are kept.
const NO_NAMESPACE: &str = "default";

/// Tell of every change, until `stop`.
pub async fn tell(client: &Client, cluster: &Cluster, kept: &Kept, stop: CancellationToken) {
    let told = async {
        kept.watched().known().await;
        let mut changes = [
            cluster.nodes().watched().changes(),
            cluster.requests().watched().changes(),
            kept.watched().changes(),
        ];
        let mut teller = Teller::new(client);
        loop {
            let next = teller.look(cluster, kept).await;
            let [nodes, requests, pvs] = &mut changes;
            tokio::select! {
                _ = nodes.changed() => {}
                _ = requests.changed() => {}
                _ = pvs.changed() => {}
                () = until(next) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    stop.run_until_cancelled(told).await;
}

async fn until(next: Option<Duration>) {
    match next {
        Some(next) => tokio::time::sleep(next).await,
        None => std::future::pending().await,
    }
}

/// What is known of the time before.
struct Teller {
    client: Client,
    told: Told,
    sizes: Sizes,
    /// What has happened and is not told yet.
    happened: Vec<Fact>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").finish_non_exhaustive()
    }
}

impl Teller {
    fn new(client: &Client) -> Self {
        Teller {
            client: client.clone(),
            told: Told::default(),
            sizes: Sizes::default(),
            happened: Vec::new(),
        }
    }

    /// Tell what is new; how long it is until there may be more without a change.
    async fn look(&mut self, cluster: &Cluster, kept: &Kept) -> Option<Duration> {
        let (differences, lasts) = kept.differences(cluster);
        let (nodes, pvs) = (cluster.nodes().all(), kept.watched().all());
        let requests = cluster.requests().watched().all();
        let (away, waits) = cluster.requests().away();
        self.happened.extend(self.sizes.extended(&nodes));
        let seen = Seen {
            nodes: &nodes,
            pvs: &pvs,
            requests: &requests,
            differences: &differences,
            away: &away,
        };
        let facts = [facts(&seen), self.happened.clone()].concat();
        let sights = Sights::of(&seen);
        let steps = self.told.plan(&facts, |about| sights.sight(about));
        for step in steps {
            if let Some(telling) = step.telling()
                && let Err(error) = write(&self.client, &telling).await
            {
                let error = causes::in_full(&error);
                tracing::warn!(error, "an event is not written yet");
                return Some(AGAIN);
            }
            self.told.note(step);
        }
        self.happened.clear();
        [lasts, waits].into_iter().flatten().min()
    }
}

/// Write an event; one that is there already, or that nobody can have any more, is done.
async fn write(client: &Client, telling: &Telling) -> Result<(), kube::Error> {
    let namespace = telling.about.namespace.as_deref().unwrap_or(NO_NAMESPACE);
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { field_manager: Some(WRITER.to_owned()), ..PostParams::default() };
    match api.create(&params, &event(telling, namespace)).await {
        Err(kube::Error::Api(answer)) if answer.is_already_exists() => Ok(()),
        // Its namespace is being deleted, or we may not: asking again would not help.
        Err(kube::Error::Api(answer)) if answer.code < 429 => {
            let (name, why) = (&telling.name, &answer.message);
            tracing::warn!(event = name, why, "an event is refused");
            Ok(())
        }
        written => written.map(drop),
    }
}

fn event(telling: &Telling, namespace: &str) -> Event {
    let kind = if telling.reason.is_warning() { "Warning" } else { "Normal" };
    let mut event = Event {
        action: Some("Watch".to_owned()),
        event_time: Some(MicroTime(Timestamp::now())),
        note: Some(telling.text.clone()),
        reason: Some(telling.reason.to_string()),
        regarding: Some(telling.about.reference()),
        reporting_controller: Some(DRIVER.to_owned()),
        reporting_instance: Some(WRITER.to_owned()),
        type_: Some(kind.to_owned()),
        ..Event::default()
    };
    event.metadata.name = Some(telling.name.clone());
    event.metadata.namespace = Some(namespace.to_owned());
    event
}
