//! Tells people what happens to their volumes and nodes, as events on the objects that they look at.
//!
//! Only what no other program tells: how a call ends is told by the sidecar that made it. Each change
//! is one event, whose name follows from what it tells and from the events before it, which stand in the
//! API server; so of several replicas one writes it, and one that starts anew goes on where it was.

use std::fmt;
use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::causes;
use crate::cluster::{Cluster, Kept, begun_again};
use crate::controllers::events::fact::{Fact, Seen, Sights, Sizes, differences, facts};
use crate::controllers::events::history::History;
use crate::controllers::events::told::{Step, Told};
use crate::controllers::pools::WRITER;
use crate::controllers::until;
use crate::panics::caught;

mod fact;
mod history;
mod reason;
mod told;

pub use reason::EventReason;

/// What panics are counted under.
const LOOP: &str = "events";

/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Between two looks: many volumes change together.
const PAUSE: Duration = Duration::from_secs(1);

/// Tell of every change, until `stop`.
pub async fn tell(client: &Client, cluster: &Cluster, kept: &Kept, stop: CancellationToken) {
    let told = begun_again(LOOP, async || {
        kept.watched().known().await;
        let mut changes = [
            cluster.nodes().watched().changes(),
            cluster.requests().watched().changes(),
            kept.watched().changes(),
        ];
        let mut teller = Teller::start(client).await;
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
    });
    stop.run_until_cancelled(told).await;
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
    /// Go on from what was told before; it waits as long as the API server does not say that.
    async fn start(client: &Client) -> Self {
        let told = loop {
            match History::read(client).await {
                Ok(history) => break history.holding(),
                Err(error) => not_yet(&error),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let (client, sizes) = (client.clone(), Sizes::default());
        Teller { client, told, sizes, happened: Vec::new() }
    }

    /// Tell what is new; how long it is until there may be more without a change.
    async fn look(&mut self, cluster: &Cluster, kept: &Kept) -> Option<Duration> {
        let found = kept.differences(cluster);
        let (nodes, pvs) = (cluster.nodes().all(), kept.watched().all());
        let requests = cluster.requests().watched().all();
        let (away, waits) = cluster.requests().away();
        self.happened.extend(self.sizes.extended(&nodes));
        let seen = Seen {
            nodes: &nodes,
            pvs: &pvs,
            requests: &requests,
            differences: &found.lasting,
            away: &away,
        };
        let facts = [facts(&seen), self.happened.clone()].concat();
        let sights = Sights::of(&seen);
        let young = differences(&seen, &found.young);
        let steps = self.told.plan(&facts, &young, |about| sights.sight(about));
        if let Err(error) = self.apply(steps).await {
            not_yet(&error);
            return Some(AGAIN);
        }
        self.happened.clear();
        [found.next, waits].into_iter().flatten().min()
    }

    async fn apply(&mut self, steps: Vec<Step>) -> Result<(), kube::Error> {
        let history = if steps.iter().any(Step::is_told) {
            History::read(&self.client).await?
        } else {
            History::default()
        };
        for step in steps {
            if let Some(telling) = history.telling(&step) {
                let event = telling.event();
                match caught(LOOP, event.write(&self.client, WRITER)).await {
                    Ok(written) => drop(written?),
                    Err(panicked) => {
                        tracing::error!(event = event.name, %panicked, "failed to write an event");
                        continue; // It is planned again at the next look.
                    }
                }
            }
            self.told.note(step);
        }
        Ok(())
    }
}

fn not_yet(error: &kube::Error) {
    tracing::warn!(error = causes::in_full(error), "events are not written yet");
}
