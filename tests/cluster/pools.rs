//! From a StoragePool to the disks of its nodes, and back into its status.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use pliant::api::{
    NodeStorage, NodeStorageStatus, PoolDisk, StoragePool, StoragePoolSpec, StoragePoolStatus,
};
use pliant::bytes::Bytes;
use pliant::testing::{FakeApi, FakeHost};
use pliant::volume::{Reason, Volumes};
use serde_json::json;

use crate::capacities::{class, object, told};
use crate::world::{Controller, Machine, World, growth, machine, refused, want};

/// Put a node there, or change its labels.
fn node(world: &World, name: &str, label: Option<&str>) {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.labels = label.map(|value| [("disks".to_owned(), value.to_owned())].into());
    world.api.put(&node);
}

/// Put a pool there, or change what it is to be.
fn pool(world: &World, name: &str, spec: StoragePoolSpec) {
    let mut pool =
        world.api.get(name).unwrap_or_else(|| StoragePool::new(name, StoragePoolSpec::default()));
    pool.spec = spec;
    world.api.put(&pool);
}

fn of_groups(groups: &[&str]) -> StoragePoolSpec {
    StoragePoolSpec {
        node_selector: BTreeMap::from([("disks".to_owned(), "fast".to_owned())]),
        volume_groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..StoragePoolSpec::default()
    }
}

fn of_disks(disks: &[&str], create: bool) -> StoragePoolSpec {
    let disk = |device: &&str| PoolDisk { device: (*device).to_owned(), wipe_existing: false };
    StoragePoolSpec {
        disks: disks.iter().map(disk).collect(),
        create_volume_groups: create,
        ..StoragePoolSpec::default()
    }
}

/// A node that knows no pools but those of the cluster.
async fn bare(world: &World, name: &'static str, host: FakeHost) -> Machine {
    world.restart(name, host).await
}

/// A controller and the nodes alpha, which has the label, and beta, which has not.
async fn labelled() -> (World, Controller, [Machine; 2]) {
    let world = World::without_pools();
    node(&world, "alpha", Some("fast"));
    node(&world, "beta", None);
    let machines = [bare(&world, "alpha", machine()).await, bare(&world, "beta", machine()).await];
    world.told(2).await;
    let cluster = world.controller().await;
    (world, cluster, machines)
}

/// Wait until the status of a pool is so.
async fn status(
    world: &World,
    name: &str,
    holds: impl Fn(&StoragePoolStatus) -> bool,
) -> StoragePoolStatus {
    let told = |api: &FakeApi| api.get::<StoragePool>(name).and_then(|pool| pool.status);
    world.api.until("the pool tells it", |api| told(api).is_some_and(|one| holds(&one))).await;
    told(&world.api).unwrap()
}

/// The message of the condition `Ready`.
fn message(status: &StoragePoolStatus) -> &str {
    status.conditions.first().map_or("", |ready| &ready.message)
}

fn nodes(status: &StoragePoolStatus) -> Vec<&str> {
    status.nodes.iter().map(|one| one.name.as_str()).collect()
}

/// Wait until the controller knows that a node is so.
async fn known(cluster: &Controller, name: &str, holds: impl Fn(&NodeStorageStatus) -> bool) {
    let is = |node: &NodeStorage| {
        node.metadata.name.as_deref() == Some(name) && node.status.as_ref().is_some_and(&holds)
    };
    cluster.nodes().until(|| cluster.nodes().all().iter().any(|one| is(one)).then_some(())).await;
}

fn is_configured(status: &NodeStorageStatus) -> bool {
    status.pools.iter().any(|pool| pool.configured)
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_on_the_nodes_with_its_labels() {
    let (world, cluster, _machines) = labelled().await;
    pool(&world, "fast", of_groups(&["vg0"]));
    let told = status(&world, "fast", |told| told.ready_node_count == 1).await;
    assert_eq!((nodes(&told), told.observed_generation, told.node_count), (vec!["alpha"], 1, 1));
    assert_eq!(message(&told), "usable on 1 of 1 nodes");
    let storage = world.storage("alpha");
    assert_eq!(
        (told.capacity.unwrap(), told.available.unwrap()),
        (storage.capacity, storage.available)
    );
    assert!(storage.capacity.0 > Bytes::mib(800) && world.storage("beta").pools.is_empty());
    known(&cluster, "alpha", is_configured).await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    assert_eq!(made.node, "alpha");
    let free = told.available;
    status(&world, "fast", |told| told.available < free).await;
    let ready = |conditions: &[Condition]| {
        let short = |one: &Condition| format!("{}={} {}", one.type_, one.status, one.reason);
        conditions.iter().map(short).collect::<Vec<_>>()
    };
    assert_eq!(ready(&storage.pools[0].conditions), ["Ready=True Healthy"]);
    assert_eq!(ready(&storage.volume_groups[0].conditions), ["Ready=True Healthy"]);
    let said =
        refused(cluster.ensure(&want("pvc-2", 100, &["beta"])).await, Reason::TopologyMismatch);
    assert!(said.contains("it is on alpha"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_labels_no_node_has_says_so() {
    let (world, _cluster, _machines) = labelled().await;
    let selector = BTreeMap::from([("disks".to_owned(), "slow".to_owned())]);
    pool(&world, "slow", StoragePoolSpec { node_selector: selector, ..of_groups(&["vg0"]) });
    let told = status(&world, "slow", |told| !told.conditions.is_empty()).await;
    let ready = &told.conditions[0];
    assert_eq!(
        (ready.type_.as_str(), ready.status.as_str(), ready.reason.as_str()),
        ("Ready", "False", "NoMatchingNode")
    );
    assert_eq!(ready.message, "usable on 0 of 0 nodes; no node matches the node selector");
    node(&world, "beta", Some("slow"));
    status(&world, "slow", |told| told.conditions[0].reason == "PoolsUsable").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_plugin_that_starts_anew_takes_no_pool_away() {
    let (world, cluster, [alpha, _beta]) = labelled().await;
    pool(&world, "fast", of_groups(&["vg0"]));
    known(&cluster, "alpha", is_configured).await;
    cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    let host = alpha.host.after_crash();
    drop(alpha);
    let (before, restarted) = (world.api.writes(), async {
        let alpha = bare(&world, "alpha", host).await;
        // Asked for in the same moment, when its pools are not known yet.
        cluster.ensure(&want("pvc-2", 100, &["alpha"])).await.unwrap();
        alpha
    });
    let watched = async {
        loop {
            assert!(is_configured(&world.storage("alpha")), "pods would be sent away");
            world.api.changed().await;
        }
    };
    tokio::select! {
        _ = restarted => {}
        () = watched => {}
    }
    let writes = world.api.writes().split_off(before.len());
    let of_the_node = writes.iter().filter(|line| line.contains("nodestorages")).count();
    assert!(of_the_node <= 2, "its start and the new volume: {writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_label_brings_a_pool_and_takes_it_but_not_the_volumes_in_it() {
    let (world, cluster, [alpha, _beta]) = labelled().await;
    pool(&world, "fast", of_groups(&["vg0"]));
    let one = status(&world, "fast", |told| told.ready_node_count == 1).await;
    known(&cluster, "alpha", is_configured).await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    node(&world, "beta", Some("fast"));
    let both = status(&world, "fast", |told| told.ready_node_count == 2).await;
    assert_eq!(nodes(&both), ["alpha", "beta"]);
    assert!(both.capacity > one.capacity);
    node(&world, "alpha", Some("slow"));
    let other = status(&world, "fast", |told| nodes(told) == ["beta"]).await;
    assert_eq!((other.ready_node_count, other.capacity), (1, one.capacity));
    known(&cluster, "alpha", |told| !is_configured(told)).await;
    // It is served all the same, and no new ones are made beside it.
    cluster.grow(&made.id, growth(200)).await.unwrap();
    refused(cluster.ensure(&want("pvc-2", 100, &["alpha"])).await, Reason::TopologyMismatch);
    known(&cluster, "beta", is_configured).await;
    assert_eq!(cluster.ensure(&want("pvc-2", 100, &[])).await.unwrap().node, "beta");
    cluster.remove(&made.id).await.unwrap();
    assert!(alpha.host.group("vg0").unwrap().lvs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_edited_or_removed_is_followed() {
    let (world, cluster, [alpha, _beta]) = labelled().await;
    let disk = alpha.host.add_disk(Bytes::mib(300));
    alpha.host.add_group("vg1", &[disk]);
    pool(&world, "fast", of_groups(&["vg0"]));
    let small = status(&world, "fast", |told| told.ready_node_count == 1).await;
    known(&cluster, "alpha", is_configured).await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    pool(&world, "fast", of_groups(&["vg0", "vg1"]));
    let large = status(&world, "fast", |told| told.capacity > small.capacity).await;
    assert_eq!(large.observed_generation, 2);

    world.api.delete::<StoragePool>("fast");
    known(&cluster, "alpha", |told| !is_configured(told)).await;
    assert!(cluster.find(&made.id).await.unwrap().is_some(), "its volumes stay");
    cluster.grow(&made.id, growth(200)).await.unwrap();
    refused(cluster.ensure(&want("pvc-2", 100, &[])).await, Reason::TopologyMismatch);

    pool(&world, "fast", of_groups(&["vg0"]));
    known(&cluster, "alpha", is_configured).await;
    cluster.ensure(&want("pvc-2", 100, &[])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_would_be_done_is_told_before_it_is_done() {
    let (world, host) = (World::without_pools(), FakeHost::new());
    host.add_disk(Bytes::mib(500));
    node(&world, "alpha", None);
    let alpha = bare(&world, "alpha", host).await;
    let cluster = world.controller().await;
    pool(&world, "fast", of_disks(&["/dev/fake0"], false));
    let plan = |told: &StoragePoolStatus| told.nodes.first().map(|one| one.planned_actions.clone());
    let told = status(&world, "fast", |told| plan(told).is_some_and(|plan| !plan.is_empty())).await;
    let steps = plan(&told).unwrap().join("; ");
    assert!(steps.contains("/dev/fake0"), "{steps}");
    assert_eq!(told.ready_node_count, 0);
    assert_eq!(alpha.host.state().groups.len(), 0, "nothing was done");
    refused(cluster.ensure(&want("pvc-1", 100, &["alpha"])).await, Reason::Unavailable);
    pool(&world, "fast", of_disks(&["/dev/fake0"], true));
    let told = status(&world, "fast", |told| told.ready_node_count == 1).await;
    assert_eq!(plan(&told), Some(Vec::new()));
    known(&cluster, "alpha", |told| told.capacity.0 > Bytes::ZERO).await;
    cluster.ensure(&want("pvc-1", 100, &["alpha"])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_disk_is_told_by_its_name() {
    let (world, host) = (World::without_pools(), FakeHost::new());
    let used = host.add_disk(Bytes::mib(500));
    host.set_foreign_signature(&used, "zfs_member");
    node(&world, "alpha", None);
    let alpha = bare(&world, "alpha", host).await;
    let _cluster = world.controller().await;
    pool(&world, "fast", of_disks(&["/dev/fake0"], true));
    let told = status(&world, "fast", |told| message(told).contains("; ")).await;
    let message = message(&told);
    assert!(
        message.starts_with("usable on 0 of 1 nodes; alpha: ") && message.contains("/dev/fake0"),
        "{message}"
    );
    assert!(message.contains("zfs_member"), "{message}");
    assert_eq!(told.nodes[0].rejected_disks.len(), 1);
    let on_node = &world.storage("alpha").pools[0];
    let fault = on_node.fault().expect("it is not healthy");
    assert_eq!((fault.status.as_str(), fault.reason.as_str()), ("False", "PoolIncomplete"));
    assert_eq!(alpha.host.state().groups.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_can_be_nowhere_says_why() {
    let world = World::without_pools();
    node(&world, "alpha", None);
    let _alpha = bare(&world, "alpha", machine()).await;
    let _cluster = world.controller().await;
    pool(&world, "fast", of_groups(&["vg0"]));
    let told = status(&world, "fast", |told| message(told).contains("; ")).await;
    assert_eq!(message(&told), "usable on 0 of 0 nodes; no node matches the node selector");
    pool(
        &world,
        "fast.ssd",
        StoragePoolSpec { node_selector: BTreeMap::new(), ..of_groups(&["vg0"]) },
    );
    let told = status(&world, "fast.ssd", |told| message(told).contains("; ")).await;
    assert!(message(&told).contains("is not a pool name"));
    world.told(1).await;
    assert!(world.storage("alpha").pools.is_empty());
}

#[tokio::test(start_paused = true)]
async fn statuses_settle() {
    let (world, cluster, _machines) = labelled().await;
    node(&world, "beta", Some("fast"));
    pool(&world, "fast", of_groups(&["vg0"]));
    pool(
        &world,
        "slow",
        StoragePoolSpec { volume_groups: vec!["none".to_owned()], ..of_groups(&[]) },
    );
    status(&world, "fast", |told| told.ready_node_count == 2).await;
    status(&world, "slow", |told| message(told).contains("; ")).await;
    known(&cluster, "alpha", is_configured).await;
    let mut want = want("pvc-1", 100, &["alpha"]);
    want.class.pool = Some("fast".parse().unwrap());
    cluster.ensure(&want).await.unwrap();
    world.keep("alpha", "pvc-1");
    world.cleaned().await;
    // Two controllers agree, too, once the second has found what the first has told.
    let _other = world.controller().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.api.duplicate_events(true);
    let before = world.api.writes().len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.api.writes().split_off(before), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_pool_waits_for_a_controller_and_a_node_that_come_later() {
    let world = World::without_pools();
    pool(&world, "fast", of_groups(&["vg0"]));
    let _cluster = world.controller().await;
    status(&world, "fast", |told| told.nodes.is_empty()).await;
    node(&world, "alpha", Some("fast"));
    let told = status(&world, "fast", |told| nodes(told) == ["alpha"]).await;
    assert_eq!(told.ready_node_count, 0);
    let _alpha = bare(&world, "alpha", machine()).await;
    status(&world, "fast", |told| told.ready_node_count == 1).await;
}

/// Make a pool that is as old as this.
fn pool_of_age(world: &World, name: &str, second: i64, spec: StoragePoolSpec) {
    let mut made = StoragePool::new(name, spec);
    made.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
    world.api.put(&made);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_names_no_pool_goes_on_beside_a_pool_that_plans_is_refused_or_is_new() {
    let (world, host) = (World::without_pools(), machine());
    host.add_disk(Bytes::mib(500));
    let used = host.add_disk(Bytes::mib(500));
    host.set_foreign_signature(&used, "zfs_member");
    let fourth = host.add_disk(Bytes::mib(300));
    host.add_group("vg9", &[fourth]);
    node(&world, "alpha", Some("fast"));
    let _alpha = bare(&world, "alpha", host).await;
    let cluster = world.controller().await;
    // By name it would be the last of them, and among those with a group it is the oldest.
    pool_of_age(&world, "zeta", 50, of_groups(&["vg0"]));
    known(&cluster, "alpha", is_configured).await;
    let class = class("any", &json!({}));
    world.api.put(&class);
    world.api.put(&object("a-any", "alpha", "any", "1Mi"));
    let beside = [
        ("looks", 40, of_disks(&["/dev/fake1"], false)),
        ("refused", 60, of_disks(&["/dev/fake2"], true)),
        ("new", 70, of_groups(&["vg9"])),
    ];
    for (at, (name, age, spec)) in beside.into_iter().enumerate() {
        pool_of_age(&world, name, age, spec);
        let has_it = |told: &NodeStorageStatus| told.pools.iter().any(|pool| pool.name == name);
        known(&cluster, "alpha", has_it).await;
        let volume = format!("pvc-{at}");
        let made = cluster.ensure(&want(&volume, 100, &["alpha"])).await.unwrap();
        assert_eq!(made.pool.as_str(), "zeta", "beside {name}");
        refused(
            cluster.ensure(&want("large", 9000, &["alpha"])).await,
            Reason::InsufficientCapacity,
        );
        let room = world.storage("alpha").pools.into_iter().find(|pool| pool.name == "zeta");
        let free = room.unwrap().available;
        let told = told(&world, "a-any").0;
        assert_eq!(told, free.to_string(), "the scheduler reads it beside {name}");
    }
    pool_of_age(&world, "default", 90, of_groups(&["vg9"]));
    world.api.delete::<StoragePool>("new");
    let is_there = |told: &NodeStorageStatus| {
        told.pools.iter().any(|pool| pool.name == "default" && pool.capacity.0 > Bytes::ZERO)
    };
    known(&cluster, "alpha", is_there).await;
    let made = cluster.ensure(&want("pvc-9", 100, &["alpha"])).await.unwrap();
    assert_eq!(made.pool.as_str(), "default", "its name says that it is for them");
}

#[tokio::test(start_paused = true)]
async fn classes_go_on_where_another_node_leaves() {
    let (world, cluster, [_alpha, beta]) = World::with_two_nodes().await;
    drop(beta);
    world.api.delete::<NodeStorage>("beta");
    for (name, pool) in [("pvc-1", None), ("pvc-2", Some("fast"))] {
        let mut want = want(name, 100, &[]);
        want.class.pool = pool.map(|pool| pool.parse().unwrap());
        assert_eq!(cluster.ensure(&want).await.unwrap().node, "alpha");
    }
}
