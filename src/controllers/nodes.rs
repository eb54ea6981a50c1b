//! Deletes the NodeStorage objects of nodes that were removed from the cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, Resource};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::NodeStorage;
use crate::cluster::{Changed, Nodes, Timers, Watched, audit, begun_again, every};
use crate::controllers::{is_done, until};

/// What panics are counted under.
const LOOP: &str = "nodestorages";

/// How long a node is gone before its record is: one that registers again is missing for a moment.
const GONE: Duration = Duration::from_secs(600);

/// After this a record that is still there is to go once more.
const AGAIN: Duration = Duration::from_secs(10);

/// Deletes the NodeStorage of a node that is no longer in the cluster, if it lists no volume, until
/// `stop`.
///
/// One that lists volumes stays: they may still be on the disks of the node, and events report them
/// as long as it exists. A node plugin that is still running creates its object again.
pub async fn forget_gone(client: &Client, nodes: &Nodes, stop: CancellationToken) {
    let every = every();
    let there = Watched::start_cut(Api::<Node>::all(client.clone()), every, &stop, name_only);
    let records: Api<NodeStorage> = Api::all(client.clone());
    let forgotten = begun_again(LOOP, async || {
        there.known().await;
        // What cannot be decoded is there.
        let is_there = |name: &str| {
            there.get(name).is_some()
                || there.unreadable().iter().any(|node| node.place() == ("", name))
        };
        // When the record of each goes that is useless: so long after it was first seen to be.
        let mut due: Timers<String> = Timers::default();
        let mut changes = (there.subscribe(), nodes.watched().subscribe());
        loop {
            let now = Instant::now();
            let of_nodes = names(changes.0.take(), nodes);
            for name in of_nodes.into_iter().chain(names(changes.1.take(), nodes)) {
                let record = nodes.watched().get(&name);
                let is_useless =
                    record.is_some_and(|record| tells_of_nothing(&record)) && !is_there(&name);
                let before = due.remove(&name);
                if is_useless {
                    due.set(name, before.unwrap_or(now + GONE));
                }
            }
            while let Some((name, _)) = due.take_due(now) {
                let Some(record) = nodes.watched().get(&name) else { continue };
                is_done(LOOP, &name, remove(&records, &record)).await;
                due.set(name, Instant::now() + AGAIN); // Unless the watch tells by then that it is gone.
            }
            let next = due.next();
            let next = next.map(|at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = changes.0.changed() => {}
                () = changes.1.changed() => {}
                () = until(next) => {}
            }
        }
    });
    stop.run_until_cancelled(forgotten).await;
}

/// The names of those that have changed; if any may have, of all records.
fn names<K: Resource>(changed: Changed<K>, records: &Nodes) -> Vec<String> {
    match changed {
        Changed::Everything(_) => {
            records.all().iter().map(|record| name(record).to_owned()).collect()
        }
        Changed::These(these) => these.into_iter().map(|one| one.place.1).collect(),
    }
}

/// Removes this very state of a record; gone or changed meanwhile is no error.
async fn remove(records: &Api<NodeStorage>, record: &NodeStorage) -> Result<(), kube::Error> {
    let only = Preconditions {
        uid: record.metadata.uid.clone(),
        resource_version: record.metadata.resource_version.clone(),
    };
    let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
    match records.delete(name(record), &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}

/// Returns whether it could read all that it has, and has no volume.
fn tells_of_nothing(record: &NodeStorage) -> bool {
    let told = record.status.as_ref();
    told.is_none_or(|status| status.volumes.is_empty() && audit::is_complete(status))
}

fn name(record: &NodeStorage) -> &str {
    record.metadata.name.as_deref().unwrap_or_default()
}

/// Of a node only that it is there matters.
fn name_only(node: &mut Node) {
    (node.spec, node.status) = (None, None);
    (node.metadata.labels, node.metadata.annotations) = (None, None);
}
