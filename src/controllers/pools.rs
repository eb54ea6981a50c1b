//! Computes the nodes of each pool, and applies the pools on a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::{
    Health, Judged, NodeStorage, NodeStorageStatus, PoolDisk, PoolNode, PoolOnNode, Quantity,
    READY, Share, StoragePool, StoragePoolStatus, ThinDiscards, ThinPoolSpec, WhenThinPoolFull,
};
use crate::bytes::Bytes;
use crate::cluster::writes::CONTROLLER;
use crate::cluster::{Changed, Nodes, Watched, begun_again, every};
use crate::controllers::is_done;
use crate::controllers::storage::StorageRecord;
use crate::error_chain;
use crate::node::{GroupSource, NewDisk, Node as Machine, PoolPlan};
use crate::panics::{AFTER_PANIC, caught, caught_now};
use crate::volume::Terms;
use crate::volume::{Discards, Part, PoolName, ThinSettings, WhenFull};

/// What panics are counted under.
const LOOP: &str = "storagepools";

/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Between two writes of statuses: the room in a pool changes with each volume, and people read it.
const PAUSE: Duration = Duration::from_secs(5);

/// How often a node looks whether its disks are as its pools want them; what is so is left alone.
const LOOK: Duration = Duration::from_secs(60);

/// Publishes in the status of each pool its nodes and their state, until `stop`.
///
/// A status is a sum over the nodes of its pool. It is computed when one of its inputs has changed,
/// so the usage that nodes report each minute costs nothing.
pub async fn report(client: &Client, storage: &Nodes, stop: CancellationToken) {
    let pools: Watched<StoragePool> = Watched::start(Api::all(client.clone()), every(), &stop);
    let nodes: Watched<Node> =
        Watched::start_cut(Api::all(client.clone()), every(), &stop, labels_only);
    let api: Api<StoragePool> = Api::all(client.clone());
    let told = begun_again(LOOP, async || {
        pools.known().await;
        nodes.known().await;
        let mut changes = (pools.subscribe(), nodes.subscribe(), storage.watched().subscribe());
        loop {
            let of_pools = has_changed(changes.0.take(), |_, _| true);
            let of_nodes = has_changed(changes.1.take(), |before, now| {
                before.metadata.labels != now.metadata.labels
            });
            let of_storage =
                has_changed(changes.2.take(), |before, now| told_of(before) != told_of(now));
            let statuses = if of_pools || of_nodes || of_storage {
                plan(&pools, &nodes, &storage.all())
            } else {
                Vec::new()
            };
            let mut is_any_left = false;
            for (name, status) in &statuses {
                if is_done(LOOP, name, write(&api, name, status)).await {
                    settle(&pools, name, status).await;
                } else {
                    is_any_left = true;
                }
            }
            if is_any_left {
                tokio::time::sleep(AGAIN).await;
                changes.0 = pools.subscribe(); // All is new.
                continue;
            }
            if !statuses.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
            tokio::select! {
                () = changes.0.changed() => {}
                () = changes.1.changed() => {}
                () = changes.2.changed() => {}
            }
        }
    });
    stop.run_until_cancelled(told).await;
}

/// Returns whether something has come, gone, or changed like this.
fn has_changed<K>(changed: Changed<K>, differs: impl Fn(&K, &K) -> bool) -> bool {
    let Changed::These(these) = changed else { return true };
    these.iter().any(|one| match (&one.before, &one.now) {
        (Some(before), Some(now)) => differs(before, now),
        (before, now) => before.is_some() || now.is_some(),
    })
}

/// What a node tells of pools.
fn told_of(record: &NodeStorage) -> &[PoolOnNode] {
    record.status.as_ref().map(|status| &*status.pools).unwrap_or_default()
}

/// Of a node only its name and its labels matter.
fn labels_only(node: &mut Node) {
    (node.spec, node.status, node.metadata.annotations) = (None, None, None);
}

/// Waits until the watch tells what was written: else it would be written once more.
async fn settle(pools: &Watched<StoragePool>, name: &str, status: &StoragePoolStatus) {
    let told = pools.until(|pools| {
        let told = pools.get(name).is_none_or(|pool| pool.status.as_ref() == Some(status));
        told.then_some(())
    });
    // Someone may have written over it.
    let _ = tokio::time::timeout(AGAIN, told).await;
}

async fn write(
    api: &Api<StoragePool>,
    name: &str,
    status: &StoragePoolStatus,
) -> Result<(), kube::Error> {
    let patch =
        json!({"apiVersion": "pliant.io/v1alpha1", "kind": "StoragePool", "status": status});
    let params = PatchParams::apply(CONTROLLER).force();
    match api.patch_status(name, &params, &Patch::Apply(patch)).await {
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        written => written.map(drop),
    }
}

/// The pools whose status is not what it should be, and what it should be.
fn plan(
    pools: &Watched<StoragePool>,
    nodes: &Watched<Node>,
    storage: &[Arc<NodeStorage>],
) -> Vec<(String, StoragePoolStatus)> {
    let unreadable = nodes.unreadable();
    let unreadable: BTreeSet<&str> = unreadable.iter().map(|node| node.place().1).collect();
    let nodes = nodes.all();
    let labels: BTreeMap<&str, BTreeMap<String, String>> = nodes
        .iter()
        .filter_map(|node| {
            let labels = node.metadata.labels.clone().unwrap_or_default();
            Some((node.metadata.name.as_deref()?, labels))
        })
        .collect();
    let storage: BTreeMap<&str, &NodeStorageStatus> = storage
        .iter()
        .filter_map(|record| Some((record.metadata.name.as_deref()?, record.status.as_ref()?)))
        .collect();
    let pools = pools.all();
    let statuses = pools.iter().filter_map(|pool| {
        let status = caught_now(LOOP, || status_of(pool, &labels, &unreadable, &storage));
        let status = status.map_err(
            |panicked| tracing::error!(%panicked, "failed to compute the status of a pool"),
        );
        let status = status.ok()?;
        let stale = pool.status.as_ref() != Some(&status);
        stale.then(|| (pool.metadata.name.clone().unwrap_or_default(), status))
    });
    statuses.collect()
}

/// The status of a pool. A node whose labels cannot be read stays one of its nodes, if it was: the
/// node plugin there would give the pool up.
fn status_of(
    pool: &StoragePool,
    nodes: &BTreeMap<&str, BTreeMap<String, String>>,
    unreadable: &BTreeSet<&str>,
    storage: &BTreeMap<&str, &NodeStorageStatus>,
) -> StoragePoolStatus {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let selected = |labels: &BTreeMap<String, String>| {
        pool.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let here = nodes.iter().filter(|(_, labels)| selected(labels)).map(|(node, _)| *node);
    let before = pool.status.iter().flat_map(|status| &status.nodes).map(|one| &*one.name);
    let here: BTreeSet<&str> =
        here.chain(before.filter(|node| unreadable.contains(node))).collect();
    let (mut size, mut free, mut ready) = (Bytes::ZERO, Bytes::ZERO, 0);
    let mut message = name.parse::<PoolName>().err(); // The node plugins leave it out.
    let mut told = Vec::new();
    for node in here {
        let on_node =
            storage.get(node).and_then(|status| status.pools.iter().find(|one| one.name == name));
        let mut line = PoolNode {
            name: node.to_owned(),
            planned_actions: Vec::new(),
            rejected_disks: Vec::new(),
        };
        if let Some(on_node) = on_node {
            (size, free) = (size + on_node.capacity.0, free + on_node.available.0);
            ready += i32::from(
                on_node.health != Health::Unavailable && on_node.capacity.0 > Bytes::ZERO,
            );
            line.planned_actions.clone_from(&on_node.planned_actions);
            line.rejected_disks.clone_from(&on_node.rejected_disks);
            let first = on_node.rejected_disks.first().map(String::as_str).or(on_node.problem());
            message = message.or_else(|| first.map(|words| format!("{node}: {words}")));
        }
        told.push(line);
    }
    let generation = pool.metadata.generation.unwrap_or_default();
    let message =
        message.or_else(|| told.is_empty().then(|| "no node matches the node selector".to_owned()));
    let before = pool.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let mut is_ready = readiness(ready, told.len(), message.as_deref()).condition(
        READY,
        before,
        &Time(Timestamp::now()),
    );
    is_ready.observed_generation = Some(generation);
    let mut status = StoragePoolStatus {
        observed_generation: generation,
        ready_node_count: ready,
        node_count: i32::try_from(told.len()).unwrap_or(i32::MAX),
        capacity: Some(Quantity(size)),
        available: Some(Quantity(free)),
        conditions: vec![is_ready],
        nodes: told,
    };
    status.bound();
    status
}

/// Whether a pool can be used that is usable on so many of so many nodes.
fn readiness(ready: i32, nodes: usize, message: Option<&str>) -> Judged {
    let is_so = nodes > 0 && usize::try_from(ready).is_ok_and(|ready| ready == nodes);
    let reason = match ready {
        _ if nodes == 0 => "NoMatchingNode",
        _ if is_so => "PoolsUsable",
        0 => "PoolUnavailable",
        _ => "PoolDegraded",
    };
    let counted = format!("usable on {ready} of {nodes} nodes");
    let message = match message {
        Some(message) => format!("{counted}; {message}"),
        None => counted,
    };
    Judged { is_so, reason: reason.to_owned(), message }
}

/// Make the pools of a node those that are for it, whenever that changes, until `stop`.
pub async fn follow(
    name: &str,
    wanted: &Watched<StoragePool>,
    node: &Machine,
    storage: &StorageRecord,
    stop: CancellationToken,
) {
    let followed = begun_again(LOOP, async || {
        wanted.known().await;
        let mut made: Option<Vec<PoolPlan>> = None;
        loop {
            // Now and then also without a change: a disk may have come, or a volume gone.
            let before = made.as_deref().unwrap_or_default();
            let changed = wanted.until(|pools| {
                Some(plans(name, &pools.all(), before)).filter(|p| made.as_ref() != Some(p))
            });
            let plans = match timeout(LOOK, changed).await {
                Ok(plans) => plans,
                Err(_) => made.clone().unwrap_or_default(),
            };
            match caught(LOOP, node.set_pools(plans.clone())).await {
                Ok(Ok(())) if made.as_ref() == Some(&plans) => {}
                Ok(Ok(())) => {
                    made = Some(plans);
                    storage.note(); // Also that there are none: its loop begins with this.
                }
                Ok(Err(error)) => {
                    let error = error_chain::in_full(&error);
                    tracing::error!(
                        error,
                        "failed to set the pools; the previous ones stay in use"
                    );
                    tokio::time::sleep(AGAIN).await;
                }
                Err(panicked) => {
                    tracing::error!(%panicked, "failed to set the pools; the previous ones stay in \
                                                use");
                    tokio::time::sleep(AFTER_PANIC).await;
                }
            }
        }
    });
    stop.run_until_cancelled(followed).await;
}

/// What this node makes of the pools that are for it, the oldest first; names that no pool can have are left
/// out. A pool that the program stumbles over stays as it was `made`.
fn plans(node: &str, pools: &[Arc<StoragePool>], made: &[PoolPlan]) -> Vec<PoolPlan> {
    let ours = |pool: &&Arc<StoragePool>| {
        let nodes = pool.status.iter().flat_map(|status| &status.nodes);
        nodes.into_iter().any(|one| one.name == node)
    };
    let mut ours: Vec<&Arc<StoragePool>> = pools.iter().filter(ours).collect();
    ours.sort_by(|one, other| age(one).cmp(&age(other)));
    let planned = ours.into_iter().filter_map(|pool| {
        caught_now(LOOP, || plan_of(pool)).unwrap_or_else(|panicked| {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            tracing::error!(pool = name, %panicked, "failed to plan a pool; its previous plan \
                                                     stays in use");
            made.iter().find(|plan| plan.name.as_str() == name).cloned()
        })
    });
    planned.collect()
}

/// By this pools are in order: those that were made in the same second by name.
fn age(pool: &StoragePool) -> (Option<Timestamp>, Option<&str>) {
    let made = pool.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (made, pool.metadata.name.as_deref())
}

/// The settings of thin pools; `None`, and a word in the log, for what the schema of this version forbids.
fn thin_settings(pool: &StoragePool, spec: &ThinPoolSpec) -> Option<ThinSettings> {
    let part = |share: Share| match share {
        Share::Percent(percent) => Part::Percent(percent),
        Share::Bytes(size) => Part::Size(size.0),
    };
    let percent = |number: i32| u32::try_from(number).unwrap_or_default();
    let thin = ThinSettings {
        size: part(spec.size),
        max_overcommit: percent(spec.max_overcommit_percent),
        grow_at: percent(spec.grow_at_percent),
        metadata_grow_at: percent(spec.metadata.grow_at_percent),
        reserve: spec.reserve.map_or(Part::Percent(0), part),
        when_full: match spec.when_full {
            WhenThinPoolFull::Error | WhenThinPoolFull::Unknown => WhenFull::Error,
            WhenThinPoolFull::Queue => WhenFull::Queue,
        },
        discards: match spec.discards {
            ThinDiscards::PassDown | ThinDiscards::Unknown => Discards::PassDown,
            ThinDiscards::NoPassDown => Discards::NoPassDown,
            ThinDiscards::Ignore => Discards::Ignore,
        },
        chunk: spec.chunk_size.map(|size| size.0),
    };
    let fault = thin.fault();
    if let Some(fault) = &fault {
        tracing::error!(pool = pool.metadata.name, fault, "invalid settings of a thin pool");
    }
    fault.is_none().then_some(thin)
}

fn plan_of(pool: &StoragePool) -> Option<PoolPlan> {
    let name = pool.metadata.name.as_deref()?;
    let name = name.parse().map_err(|error| tracing::warn!(pool = name, error, "no pool")).ok()?;
    let disk =
        |disk: &PoolDisk| NewDisk { path: disk.device.clone().into(), wipe: disk.wipe_existing };
    let existing = pool.spec.volume_groups.iter().cloned().map(GroupSource::Existing);
    let made = pool.spec.disks.iter().map(disk).map(GroupSource::Create);
    Some(PoolPlan {
        name,
        groups: existing.chain(made).collect(),
        standby_disks: pool.spec.standby_disks.iter().map(disk).collect(),
        create: pool.spec.create_volume_groups,
        terms: Terms {
            reserve: pool.spec.reserve.map_or(Bytes::ZERO, |reserve| reserve.0),
            thin: pool.spec.thin.as_ref().and_then(|thin| thin_settings(pool, thin)),
        },
    })
}
