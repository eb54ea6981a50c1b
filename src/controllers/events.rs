//! Tells people what happens to their volumes and nodes, as events on the objects that they look at.
//!
//! Only what no other program tells: how a call ends is told by the sidecar that made it. Each change
//! is one event, whose name follows from what it tells; so of several replicas one writes it, and none
//! writes it again after a restart.

use std::fmt;
use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::causes;
use crate::cluster::{Cluster, Kept};
use crate::controllers::events::fact::{Fact, Seen, Sights, Sizes, facts};
use crate::controllers::events::told::Told;
use crate::controllers::pools::WRITER;

mod fact;
mod reason;
mod told;

pub use reason::EventReason;

/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Between two looks: many volumes change together.
const PAUSE: Duration = Duration::from_secs(1);

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
                && let Err(error) = telling.event().write(&self.client, WRITER).await
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
