//! Removes the records of nodes that are gone.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::NodeStorage;
use crate::cluster::{Lasting, Nodes, Watched, audit, begun_again, every};
use crate::controllers::{is_done, until};

/// What panics are counted under.
const LOOP: &str = "nodestorages";

/// How long a node is gone before its record is: one that registers anew is away for a moment.
const GONE: Duration = Duration::from_secs(600);

/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Remove the record of a node that is not in the cluster any more, if it tells of no volume, until `stop`.
///
/// One that tells of volumes stays: they may still lie on the disks of the node, and people are told so
/// for as long as it is there. An agent that is alive after all writes its record anew.
pub async fn forget_gone(client: &Client, nodes: &Nodes, stop: CancellationToken) {
    let every = every();
    let there = Watched::start_cut(Api::<Node>::all(client.clone()), every, &stop, name_only);
    let records: Api<NodeStorage> = Api::all(client.clone());
    let forgotten = begun_again(LOOP, async || {
        there.known().await;
        let mut gone = Lasting::new(GONE);
        let mut changes = (there.changes(), nodes.watched().changes());
        loop {
            let is_gone = |record: &Arc<NodeStorage>| there.get(name(record)).is_none();
            let useless = nodes
                .all()
                .into_iter()
                .filter(|record| is_gone(record) && tells_of_nothing(record));
            let names = useless.map(|record| name(&record).to_owned()).collect();
            let (long, mut next) = gone.of(names, Instant::now());
            for record in long.iter().filter_map(|name| nodes.watched().get(name)) {
                if !is_done(LOOP, name(&record), remove(&records, &record)).await {
                    next = Some(AGAIN);
                }
            }
            tokio::select! {
                _ = changes.0.changed() => {}
                _ = changes.1.changed() => {}
                () = until(next) => {}
            }
        }
    });
    stop.run_until_cancelled(forgotten).await;
}

/// Remove this very state of a record; gone or changed meanwhile is no error.
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

/// Whether it could read all that it has, and has no volume.
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
