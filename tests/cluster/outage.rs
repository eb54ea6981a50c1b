//! The API server is away, or says no to all: nothing wrong is answered, nothing is lost, and all is
//! whole again soon after.

use std::time::Duration;

use pliant::api::{Phase, VolumeRequest};
use pliant::testing::FakeApi;
use pliant::volume::{NewVolume, NodeVolumes, Page, Reason, Volumes};

use crate::world::{World, growth, id, refused, stage, want};

const MINUTE: Duration = Duration::from_secs(60);

/// All watch again, within seconds.
async fn whole_again(world: &World, watches: usize) {
    let back = tokio::time::Instant::now();
    world.api.until("all watch again", |api: &FakeApi| api.watches() == watches).await;
    assert!(back.elapsed() <= Duration::from_secs(12), "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_the_api_server_is_survived() {
    let (world, cluster, machine) = World::with_a_node().await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    let (watches, lvs) = (world.api.watches(), machine.host.group("vg0").unwrap().lvs);
    world.api.go_down();
    for _ in 0..60 {
        refused(cluster.ensure(&want("pvc-2", 100, &[])).await, Reason::Unavailable);
        refused(cluster.grow(&made.id, growth(200)).await, Reason::Unavailable);
        refused(cluster.remove(&made.id).await, Reason::Unavailable);
        // What is known is told.
        assert_eq!(cluster.find(&made.id).await.unwrap().unwrap().volume, made);
        assert_eq!(cluster.list(&Page::default()).await.unwrap().volumes.len(), 1);
        tokio::time::sleep(MINUTE).await;
    }
    machine.node.stage(&stage()).await.unwrap();
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), lvs.len());
    world.api.come_back();
    whole_again(&world, watches).await;
    let grown = cluster.grow(&made.id, growth(200)).await.unwrap();
    assert!(!grown.node_expansion_required, "it is mounted: {grown:?}");
    cluster.ensure(&want("pvc-2", 100, &[])).await.unwrap();
    assert_eq!(cluster.list(&Page::default()).await.unwrap().volumes.len(), 2);
    world.cleaned().await;
}

#[tokio::test(start_paused = true)]
async fn what_changes_meanwhile_is_told_soon_after() {
    let (world, cluster, machine) = World::with_a_node().await;
    world.api.go_down();
    machine.node.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    tokio::time::sleep(10 * MINUTE + Duration::from_secs(7)).await;
    world.api.come_back();
    let back = tokio::time::Instant::now();
    world.api.until("it is told", |_| world.storage("alpha").volume_count == 1).await;
    assert!(back.elapsed() <= Duration::from_secs(10), "{:?}", back.elapsed());
    cluster
        .nodes()
        .until(|| cluster.nodes().all()[0].status.as_ref()?.volumes.first().cloned())
        .await;
    assert_eq!(cluster.list(&Page::default()).await.unwrap().volumes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_without_the_api_server_is_told_when_that_is_back() {
    let (world, cluster, machine) = World::with_a_node().await;
    let want = want("pvc-1", 100, &[]);
    machine.host.hold_after(machine.host.effects().len() + 1);
    let outage = async {
        machine.host.held().await;
        world.api.go_down();
        machine.host.let_go();
        tokio::time::sleep(MINUTE).await;
    };
    let (said, ()) = tokio::join!(cluster.ensure(&want), outage);
    refused(said, Reason::Unavailable); // Nobody could tell that it was taken up.
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 1, "the work went on to its end");
    world.api.come_back();
    world.phase(Phase::Succeeded).await;
    assert_eq!(cluster.ensure(&want).await.unwrap().id, id("alpha", "pvc-1"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_without_the_api_server_serves_its_volumes() {
    let (world, cluster, machine) = World::with_a_node().await;
    cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.api.go_down();
    let writes = world.api.writes().len();
    let host = machine.host.after_power_cut();
    drop(machine);
    // It does not know its pools.
    let machine = world.restart("alpha", host).await;
    machine.node.stage(&stage()).await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    world.api.come_back();
    world.api.until("it tells", |api| api.writes().len() > writes).await;
    assert!(cluster.find(&id("alpha", "pvc-1")).await.unwrap().is_some());
    cluster.ensure(&want("pvc-2", 100, &["alpha"])).await.unwrap();
}

/// What has ended is removed by one call for all, also what the controller has not seen yet.
#[tokio::test(start_paused = true)]
async fn work_whose_request_is_gone_before_the_watch_is_back_is_answered() {
    let (world, cluster, _machine) = World::with_a_node().await;
    let watches = world.api.watches();
    for round in 0..8 {
        world.api.go_down();
        tokio::time::sleep(2 * MINUTE).await; // Each watch is back at another time, within 10 s.
        world.api.come_back();
        let want = want(&format!("pvc-{round}"), 4, &[]);
        let removed = async {
            world.phase(Phase::Succeeded).await;
            let request = world.request();
            world.api.delete::<VolumeRequest>(&request.metadata.name.expect("it has a name"));
        };
        let (made, ()) = tokio::join!(cluster.ensure(&want), removed);
        assert_eq!(made.unwrap().id, id("alpha", &want.name));
        whole_again(&world, watches).await;
        world.cleaned().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_starts_without_the_api_server_waits_for_it() {
    let (world, cluster, _machine) = World::with_a_node().await;
    drop(cluster);
    world.api.go_down();
    let start = async {
        tokio::time::sleep(10 * MINUTE).await;
        world.api.come_back();
    };
    let (cluster, ()) = tokio::join!(world.controller(), start);
    cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_no_to_all_is_one_that_is_away() {
    for code in [401, 403, 429, 500, 503, 504] {
        let (world, cluster, machine) = World::with_a_node().await;
        let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
        let watches = world.api.watches();
        world.api.refuse_all(code);
        let second: NewVolume = want("pvc-2", 100, &[]);
        let said = refused(cluster.ensure(&second).await, Reason::Unavailable);
        assert!(said.contains("through the API server"), "{code}: {said}");
        refused(cluster.remove(&made.id).await, Reason::Unavailable);
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 1, "{code}");
        world.api.come_back();
        whole_again(&world, watches).await;
        cluster.ensure(&second).await.unwrap();
        cluster.remove(&made.id).await.unwrap();
    }
}
