//! Emits events about volumes and nodes, on the objects that users look at.
//!
//! Only events that no other program emits: a sidecar reports the end of each of its calls. Each change is one
//! event, whose name follows from its content and from the events before it in the API server; so one of several
//! replicas writes it, and a restarted one continues.
//!
//! The events about one node and its volumes are a part: a change costs the evaluation of its part, and a panic
//! in one part does not prevent events of others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::Client;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::{NodeStorage, VolumeRequest};
use crate::cluster::writes::CONTROLLER;
use crate::cluster::{
    AwaySeen, Cluster, PendingChanges, PersistentVolumes, PvSummary, Timers, begun_again,
    caught_in_time,
};
use crate::controllers::events::fact::{Fact, FactInputs, Sights, Sizes, differences, facts};
use crate::controllers::events::history::History;
use crate::controllers::events::told::{EventStep, FactKey, ReportedFacts};
use crate::controllers::until;
use crate::error_chain;
use crate::panics::{caught, caught_now};
use crate::volume::{NodeKey, VolumeId};

mod fact;
mod history;
mod reason;
mod told;

pub use reason::EventReason;

/// Name for panics.
const LOOP: &str = "events";

/// Delay after the API server did not respond; it doubles each time, up to the maximum.
const AGAIN: Duration = Duration::from_secs(10);

/// Maximum delay of a retry.
const LONGEST: Duration = Duration::from_secs(80);

/// Timeout of one event: a webhook for events may hang.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// Maximum number of namespaces in which events are written concurrently: one that hangs delays no
/// other.
const AT_ONCE: usize = 16;

/// Delay between two evaluations: many volumes change together.
const PAUSE: Duration = Duration::from_secs(1);

/// Emits events for all changes, until `stop`.
pub async fn emit(
    client: &Client,
    cluster: &Cluster,
    kept: &PersistentVolumes,
    stop: CancellationToken,
) {
    let told = begun_again(LOOP, async || {
        kept.watched().known().await;
        let mut news = EventChanges::of(cluster, kept);
        let mut teller = Teller::start(client).await;
        loop {
            teller.due.extend(news.take(cluster));
            if std::mem::take(&mut news.is_all) {
                teller.due.extend(all(cluster, kept));
                teller.due.extend(teller.parts.keys().cloned());
            }
            teller.look(cluster, kept, news.away.nodes()).await;
            let next = teller.later.next();
            let next = next.map(|at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = news.changed() => {}
                () = until(next) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    stop.run_until_cancelled(told).await;
}

/// Changes since the last take.
struct EventChanges {
    nodes: PendingChanges<NodeStorage>,
    requests: PendingChanges<VolumeRequest>,
    pvs: PendingChanges<PvSummary>,
    away: AwaySeen,
    /// True if anything may have changed.
    is_all: bool,
}

impl EventChanges {
    /// All is new.
    fn of(cluster: &Cluster, kept: &PersistentVolumes) -> EventChanges {
        EventChanges {
            nodes: cluster.nodes().watched().subscribe(),
            requests: cluster.requests().watched().subscribe(),
            pvs: kept.watched().subscribe(),
            away: AwaySeen::of(cluster.requests()),
            is_all: false,
        }
    }

    /// The nodes of whose parts something may have changed.
    fn take(&mut self, cluster: &Cluster) -> BTreeSet<NodeKey> {
        let of_volume = |id: &str| id.parse().ok().map(|id: VolumeId| id.node().clone());
        let mut nodes: BTreeSet<NodeKey> = BTreeSet::new();
        for change in self.nodes.take().these(&mut self.is_all) {
            nodes.insert(NodeKey::of(&change.place.1));
        }
        for change in self.requests.take().these(&mut self.is_all) {
            nodes.extend(change.both().filter_map(|one| of_volume(&one.spec.volume_handle)));
        }
        for change in self.pvs.take().these(&mut self.is_all) {
            nodes.extend(change.both().filter_map(|one| of_volume(one.handle()?)));
        }
        nodes.extend(self.away.take(cluster.requests()).iter().map(|node| NodeKey::of(node)));
        nodes
    }

    /// Waits until there may be something to take.
    async fn changed(&mut self) {
        tokio::select! {
            () = self.nodes.changed() => {}
            () = self.requests.changed() => {}
            () = self.pvs.changed() => {}
            () = self.away.changed() => {}
        }
    }
}

/// The nodes that there are something of.
fn all(cluster: &Cluster, kept: &PersistentVolumes) -> BTreeSet<NodeKey> {
    let records = cluster.nodes().all();
    let records = records.iter().filter_map(|one| one.metadata.name.as_deref()).map(NodeKey::of);
    let pvs = kept.watched().all();
    let volumes = pvs.iter().filter_map(|pv| pv.handle()?.parse::<VolumeId>().ok());
    records.chain(volumes.map(|id| id.node().clone())).collect()
}

/// State of the emitted events.
struct Teller {
    client: Client,
    parts: HashMap<NodeKey, NodeAndVolumes>,
    /// Parts to evaluate now.
    due: BTreeSet<NodeKey>,
    /// Parts to evaluate later, without a change.
    later: Timers<NodeKey>,
    /// Events that timed out: all others of their namespaces come first.
    slow: HashSet<FactKey>,
}

/// State of a node and its volumes.
#[derive(Debug, Default)]
struct NodeAndVolumes {
    told: ReportedFacts,
    sizes: Sizes,
    /// Facts that happened and are not reported yet.
    happened: Vec<Fact>,
    /// Number of consecutive evaluations with unreported facts.
    faults: u32,
}

/// Outcome of the writes of a namespace.
#[derive(Debug, Default)]
struct NamespaceWrites {
    done: Vec<(NodeKey, EventStep)>,
    failed: BTreeSet<NodeKey>,
    slow: HashSet<FactKey>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").finish_non_exhaustive()
    }
}

impl Teller {
    /// Restores the state from existing events; waits until the API server returns them.
    async fn start(client: &Client) -> Self {
        let told = loop {
            match History::read(client).await {
                Ok(history) => break history.holding(),
                Err(error) => not_yet(&error),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let parts = told.by_node().into_iter();
        let parts: HashMap<NodeKey, NodeAndVolumes> = parts
            .map(|(node, told)| (node, NodeAndVolumes { told, ..NodeAndVolumes::default() }))
            .collect();
        let due = parts.keys().cloned().collect();
        let (later, slow) = (Timers::default(), HashSet::new());
        Teller { client: client.clone(), parts, due, later, slow }
    }

    /// Emits events about the parts that are due.
    async fn look(&mut self, cluster: &Cluster, kept: &PersistentVolumes, away: &BTreeSet<String>) {
        let now = Instant::now();
        while let Some((node, _)) = self.later.take_due(now) {
            self.due.insert(node);
        }
        let due = std::mem::take(&mut self.due);
        let (mut steps, mut failed) = (Vec::new(), BTreeSet::new());
        for node in &due {
            self.later.remove(node);
            let part = self.parts.entry(node.clone()).or_default();
            match caught_now(LOOP, || part.plan(node, cluster, kept, away)) {
                Ok((planned, next)) => {
                    steps.extend(planned.into_iter().map(|step| (node.clone(), step)));
                    if let Some(next) = next {
                        self.later.set(node.clone(), now + next);
                    }
                }
                Err(panicked) => {
                    let key = node.as_str();
                    tracing::error!(node = key, %panicked, "failed to evaluate the events of a node");
                    failed.insert(node.clone());
                }
            }
        }
        failed.extend(self.apply(steps).await);
        for node in due {
            let Some(part) = self.parts.get_mut(&node) else { continue };
            if failed.contains(&node) {
                let pause = AGAIN.saturating_mul(2_u32.saturating_pow(part.faults)).min(LONGEST);
                part.faults = part.faults.saturating_add(1);
                let next = self.later.remove(&node);
                let again = Instant::now() + pause;
                self.later.set(node, next.map_or(again, |next| next.min(again)));
                continue;
            }
            part.faults = 0;
            part.happened.clear();
            if part.told.is_empty() && cluster.nodes().record_by(&node).is_none() {
                self.parts.remove(&node);
            }
        }
    }

    /// Writes the events; returns the nodes with unwritten events.
    async fn apply(&mut self, steps: Vec<(NodeKey, EventStep)>) -> BTreeSet<NodeKey> {
        // Reads all events of this driver each time: those of other replicas are among them.
        let history = if steps.iter().any(|(_, step)| step.is_told()) {
            match caught_in_time(LOOP, History::read(&self.client)).await {
                Ok(Ok(history)) => history,
                Ok(Err(error)) => {
                    not_yet(&error);
                    return steps.into_iter().map(|(node, _)| node).collect();
                }
                Err(why) => {
                    tracing::warn!(error = %why, "failed to write events, retrying");
                    return steps.into_iter().map(|(node, _)| node).collect();
                }
            }
        } else {
            History::default()
        };
        let tried: HashSet<_> = steps.iter().map(|(_, step)| step.key()).collect();
        let mut by_namespace: BTreeMap<Option<String>, Vec<(NodeKey, EventStep)>> = BTreeMap::new();
        for (node, step) in steps {
            by_namespace.entry(step.about().namespace.clone()).or_default().push((node, step));
        }
        for steps in by_namespace.values_mut() {
            steps.sort_by_key(|(_, step)| self.slow.contains(&step.key()));
        }
        let (client, history) = (&self.client, &history);
        let written = by_namespace.into_values().map(|steps| write_all(client, history, steps));
        let written: Vec<NamespaceWrites> =
            stream::iter(written).buffer_unordered(AT_ONCE).collect().await;
        let mut failed = BTreeSet::new();
        self.slow.retain(|key| !tried.contains(key));
        for written in written {
            for (node, step) in written.done {
                self.parts.entry(node).or_default().told.note(step);
            }
            failed.extend(written.failed);
            self.slow.extend(written.slow);
        }
        failed
    }
}

impl NodeAndVolumes {
    /// Plans the events, and the time until there may be more without a change.
    fn plan(
        &mut self,
        node: &NodeKey,
        cluster: &Cluster,
        kept: &PersistentVolumes,
        away: &BTreeSet<String>,
    ) -> (Vec<EventStep>, Option<Duration>) {
        let nodes: Vec<_> = cluster.nodes().record_by(node).into_iter().collect();
        let (pvs, requests) = (kept.of_volumes_on(node), cluster.requests().of_volumes_on(node));
        let found = kept.differences_on(cluster, node);
        self.happened.extend(self.sizes.extended(&nodes));
        let names = nodes.iter().filter_map(|record| record.metadata.name.clone());
        let away: Vec<String> = names.filter(|name| away.contains(name)).collect();
        let seen = FactInputs {
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
        (steps, found.next)
    }
}

/// Applies the steps of one namespace, one after the other. A failed one is planned again; after a timeout the
/// rest is not tried for now.
async fn write_all(
    client: &Client,
    history: &History,
    steps: Vec<(NodeKey, EventStep)>,
) -> NamespaceWrites {
    let mut written = NamespaceWrites::default();
    for (node, step) in steps {
        if !written.slow.is_empty() && step.is_told() {
            written.failed.insert(node);
            continue;
        }
        let Some(telling) = history.telling(&step) else {
            written.done.push((node, step));
            continue;
        };
        let event = telling.event();
        match timeout(LONGEST_WRITE, caught(LOOP, event.write(client, CONTROLLER))).await {
            Ok(Ok(Ok(_))) => {
                written.done.push((node, step));
                continue;
            }
            Ok(Ok(Err(error))) => not_yet(&error),
            Ok(Err(panicked)) => {
                tracing::error!(event = event.name, %panicked, "failed to write an event");
            }
            Err(_) => {
                tracing::warn!(event = event.name, "failed to write an event in time");
                written.slow.insert(step.key());
            }
        }
        written.failed.insert(node);
    }
    written
}

fn not_yet(error: &kube::Error) {
    tracing::warn!(error = error_chain::in_full(error), "failed to write events, retrying");
}
