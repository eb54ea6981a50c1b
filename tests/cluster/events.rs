//! What people are told by events, and how often.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use pliant::api::NodeStorage;
use pliant::cluster::audit::GRACE;
use pliant::cluster::{PersistentVolumes, VolumeDifferences};
use pliant::testing::FakeApi;
use pliant::volume::{DRIVER, Reason, Volumes};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::{World, id, refused, want};

/// Longer than anything is waited for before it is told.
const LONG: Duration = Duration::from_secs(400);

/// What was told so far: how often, by the object, `Kind/name`, and the reason.
fn told(api: &FakeApi) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::new();
    for event in api.list::<Event>() {
        let about = event.regarding.unwrap_or_default();
        let object =
            format!("{}/{}", about.kind.unwrap_or_default(), about.name.unwrap_or_default());
        *told.entry(format!("{object} {}", event.reason.unwrap_or_default())).or_default() += 1;
    }
    told
}

/// That these were told, each once, and nothing else.
#[track_caller]
fn only(api: &FakeApi, expected: &[&str]) {
    let once = expected.iter().map(|one| ((*one).to_owned(), 1)).collect();
    assert_eq!(told(api), once);
}

async fn is_told(world: &World, what: &str) {
    world.api.until(what, |api| told(api).contains_key(what)).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_a_pv_and_a_pv_without_its_volume_are_told_after_a_while() {
    let (world, cluster, _machine) = World::with_a_node().await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    world.keep("alpha", "pvc-1");
    cluster.ensure(&want("pvc-2", 8, &[])).await.unwrap();
    world.keep("alpha", "pvc-3");
    tokio::time::sleep(Duration::from_secs(290)).await;
    only(&world.api, &[]);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let lost = [
        "NodeStorage/alpha OrphanedVolume",
        "PersistentVolume/pvc-3 VolumeMissing",
        "PersistentVolumeClaim/claim-of-pvc-3 VolumeMissing",
    ];
    only(&world.api, &lost);
    let of_claims: Vec<Event> = world
        .api
        .list()
        .into_iter()
        .filter(|one: &Event| one.metadata.namespace.as_deref() == Some("shop"))
        .collect();
    let [claim] = of_claims.as_slice() else { panic!("{of_claims:#?}") };
    assert_eq!(claim.type_.as_deref(), Some("Warning"));
    assert!(claim.note.as_deref().unwrap().contains("does not exist on node alpha"), "{claim:?}");
    // Both are put right.
    cluster.remove(&id("alpha", "pvc-2")).await.unwrap();
    world.api.delete::<PersistentVolume>("pvc-3");
    tokio::time::sleep(LONG).await;
    only(&world.api, &[&lost[..], &["NodeStorage/alpha Recovered"]].concat());
}

#[tokio::test(start_paused = true)]
async fn as_long_as_the_pvs_are_not_known_no_volume_lacks_one() {
    let (world, cluster, _machine) = World::with_a_node().await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    world.cleaned().await;
    world.api.go_down();
    let kept =
        PersistentVolumes::watch(&world.api.client_of("controller"), &CancellationToken::new());
    for _ in 0..2 {
        assert_eq!(kept.differences(&cluster), VolumeDifferences::default());
        tokio::time::sleep(LONG).await;
    }
    world.api.come_back();
    kept.watched().known().await;
    let VolumeDifferences { lasting, young, next } = kept.differences(&cluster);
    assert_eq!((lasting.len(), young.len(), next), (0, 1, Some(GRACE)));
    tokio::time::sleep(GRACE).await;
    let VolumeDifferences { lasting, young, next } = kept.differences(&cluster);
    assert_eq!((lasting.len(), young.len(), next), (1, 0, None));
}

#[tokio::test(start_paused = true)]
async fn two_controllers_and_one_that_starts_anew_tell_what_one_would() {
    let (world, cluster, _machine) = World::with_a_node().await;
    let second = world.controller().await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    world.cleaned().await;
    tokio::time::sleep(LONG).await;
    only(&world.api, &["NodeStorage/alpha OrphanedVolume"]);
    drop(second);
    let _third = world.controller().await;
    tokio::time::sleep(LONG).await;
    only(&world.api, &["NodeStorage/alpha OrphanedVolume"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_starts_anew_goes_on_with_what_was_told() {
    let (world, cluster, machine) = World::with_a_node().await;
    let disk = Path::new("/dev/fake0");
    let of_disk = |api: &FakeApi| {
        let told = told(api);
        ["DiskMissing", "Recovered"]
            .map(|reason| told.get(&format!("NodeStorage/alpha {reason}")).copied().unwrap_or(0))
    };
    machine.host.remove_disk(disk);
    is_told(&world, "NodeStorage/alpha DiskMissing").await;
    // While none runs it is over, of the disk and of its pool.
    drop(cluster);
    machine.host.heal_disk(disk);
    tokio::time::sleep(LONG).await;
    let cluster = world.controller().await;
    tokio::time::sleep(LONG).await;
    assert_eq!(of_disk(&world.api), [1, 2], "what is over is told");
    drop(cluster);
    let old = world.controller().await;
    machine.host.remove_disk(disk);
    tokio::time::sleep(LONG).await;
    assert_eq!(of_disk(&world.api), [2, 2], "the second time is told too");
    machine.host.heal_disk(disk);
    tokio::time::sleep(LONG).await;
    // Kubernetes keeps events for an hour; then one starts that knows of neither time.
    for event in world.api.list::<Event>() {
        world.api.delete::<Event>(&format!("default/{}", event.metadata.name.unwrap()));
    }
    let new = world.controller().await;
    machine.host.remove_disk(disk);
    tokio::time::sleep(LONG).await;
    assert_eq!(of_disk(&world.api), [1, 0], "two that know of different times tell it once");
    drop((old, new));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_goes_and_comes_back_is_told_to_who_has_the_node_and_who_has_the_claim() {
    let (world, cluster, machine) = World::with_a_node().await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    world.keep("alpha", "pvc-1");
    let disk = Path::new("/dev/fake0");
    machine.host.remove_disk(disk);
    is_told(&world, "PersistentVolumeClaim/claim-of-pvc-1 VolumeGroupUnavailable").await;
    is_told(&world, "NodeStorage/alpha PoolUnavailable").await;
    is_told(&world, "NodeStorage/alpha DiskMissing").await;
    machine.host.heal_disk(disk);
    tokio::time::sleep(LONG).await;
    machine.host.remove_disk(disk);
    tokio::time::sleep(LONG).await;
    let twice = |what: &str| (what.to_owned(), 2);
    let once = |what: &str| (what.to_owned(), 1);
    let expected = [
        twice("NodeStorage/alpha DiskMissing"),
        twice("NodeStorage/alpha PoolUnavailable"),
        twice("NodeStorage/alpha Recovered"), // Once the disk, once the pool.
        twice("PersistentVolume/pvc-1 VolumeGroupUnavailable"),
        once("PersistentVolume/pvc-1 Recovered"),
        twice("PersistentVolumeClaim/claim-of-pvc-1 VolumeGroupUnavailable"),
        once("PersistentVolumeClaim/claim-of-pvc-1 Recovered"),
    ];
    assert_eq!(told(&world.api), BTreeMap::from(expected));
}

#[tokio::test(start_paused = true)]
async fn a_volume_on_a_disk_that_is_away_at_the_start_is_unseen_and_not_missing() {
    let (world, cluster, machine) = World::with_a_node().await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    world.keep("alpha", "pvc-1");
    world.cleaned().await;
    let host = machine.host.after_crash();
    drop(machine);
    let disk = Path::new("/dev/fake0");
    host.remove_disk(disk);
    let machine = world.restart("alpha", host).await;
    tokio::time::sleep(LONG).await;
    let mut expected = vec![
        "NodeStorage/alpha PoolUnavailable",
        "PersistentVolume/pvc-1 VolumeStatusUnknown",
        "PersistentVolumeClaim/claim-of-pvc-1 VolumeStatusUnknown",
    ];
    only(&world.api, &expected);
    machine.host.heal_disk(disk);
    tokio::time::sleep(LONG).await;
    expected.extend([
        "NodeStorage/alpha Recovered",
        "PersistentVolume/pvc-1 Recovered",
        "PersistentVolumeClaim/claim-of-pvc-1 Recovered",
    ]);
    only(&world.api, &expected);
}

#[tokio::test(start_paused = true)]
async fn a_node_plugin_that_lets_work_wait_is_told_of_its_node() {
    let (world, cluster, machine) = World::with_a_node().await;
    drop(machine);
    refused(cluster.ensure(&want("pvc-1", 8, &[])).await, Reason::Unavailable);
    only(&world.api, &[]);
    is_told(&world, "NodeStorage/alpha NodePluginNotResponding").await;
    tokio::time::sleep(LONG).await;
    only(&world.api, &["NodeStorage/alpha NodePluginNotResponding"]);
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_the_api_server_is_away_is_told_when_it_is_back() {
    let (world, cluster, _machine) = World::with_a_node().await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    world.cleaned().await;
    world.api.go_down();
    tokio::time::sleep(LONG).await;
    world.api.come_back();
    is_told(&world, "NodeStorage/alpha OrphanedVolume").await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_lacks_something_is_not_ready_until_it_has_it() {
    let world = World::new();
    world.lacks.0.lock().unwrap().push("lvm is not installed: apt-get install lvm2".to_owned());
    let machine = world.node("alpha").await;
    let _controller = world.controller().await;
    is_told(&world, "NodeStorage/alpha PrerequisitesNotMet").await;
    assert_eq!(ready(&world), ("False".to_owned(), "PrerequisitesNotMet".to_owned()));
    // A node plugin that starts anew finds it as it was, and since when.
    let host = machine.host.after_crash();
    drop(machine);
    let of_alpha = || world.api.get::<NodeStorage>("alpha").unwrap();
    let mut node = of_alpha();
    for condition in &mut node.status.as_mut().unwrap().conditions {
        condition.last_transition_time.0 = Timestamp::UNIX_EPOCH;
    }
    let before = world.api.put(&node).status.unwrap().conditions;
    let _machine = world.restart("alpha", host).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(of_alpha().status.unwrap().conditions, before);
    world.lacks.0.lock().unwrap().clear();
    tokio::time::sleep(LONG).await;
    assert_eq!(ready(&world), ("True".to_owned(), "PoolsUsable".to_owned()));
    only(&world.api, &["NodeStorage/alpha PrerequisitesNotMet", "NodeStorage/alpha Recovered"]);
}

fn ready(world: &World) -> (String, String) {
    let conditions = world.storage("alpha").conditions;
    let ready = conditions.into_iter().find(|one| one.type_ == "Ready").unwrap();
    (ready.status, ready.reason)
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_has_got_a_disk_is_told() {
    let (world, _cluster, _machine) = World::with_a_node().await;
    let mut node: NodeStorage = world.api.get("alpha").unwrap();
    let group = &mut node.status.as_mut().unwrap().volume_groups[0];
    group.size.0 = group.size.0 + group.size.0;
    world.api.put(&node);
    is_told(&world, "NodeStorage/alpha VolumeGroupExtended").await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_takes_no_events_silences_no_other_object() {
    let (world, _cluster, machine) = World::with_a_node().await;
    world.keep("alpha", "pvc-1"); // Its volume is missing.
    world.api.slow_down("shop", Duration::from_hours(24));
    tokio::time::sleep(LONG).await;
    is_told(&world, "PersistentVolume/pvc-1 VolumeMissing").await;
    machine.host.remove_disk(Path::new("/dev/fake0"));
    is_told(&world, "NodeStorage/alpha DiskMissing").await;
    machine.host.heal_disk(Path::new("/dev/fake0"));
    tokio::time::sleep(LONG).await;
    is_told(&world, "NodeStorage/alpha Recovered").await;
    assert!(!told(&world.api).contains_key("PersistentVolumeClaim/claim-of-pvc-1 VolumeMissing"));
    world.api.slow_down("shop", Duration::ZERO);
    tokio::time::sleep(LONG).await; // What failed is tried again after pauses that grow.
    is_told(&world, "PersistentVolumeClaim/claim-of-pvc-1 VolumeMissing").await;
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_tenant_that_counts_to_the_end_silences_nothing() {
    let (world, _cluster, machine) = World::with_a_node().await;
    world.keep("alpha", "pvc-1"); // Its volume is missing.
    let (claim, volume) = ("claim-of-pvc-1", id("alpha", "pvc-1"));
    world.api.put_json::<Event>(json!({
        "metadata": {"name": "forged", "namespace": "shop", "annotations":
                     {"pliant.io/event-key": format!("{} VolumeMissing volume {volume}", u32::MAX)}},
        "regarding": {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": claim,
                      "uid": format!("uid-of-{claim}")},
        "reason": "Recovered", "reportingController": DRIVER, "type": "Normal",
    }));
    tokio::time::sleep(LONG).await;
    is_told(&world, "PersistentVolumeClaim/claim-of-pvc-1 VolumeMissing").await;
    machine.host.remove_disk(Path::new("/dev/fake0"));
    is_told(&world, "NodeStorage/alpha DiskMissing").await;
}
