//! What volumes cost the API server.

use std::time::Duration;

use pliant::volume::Volumes;
use tokio::task::JoinSet;

use crate::tally::figures;
use crate::world::{World, want};

/// Let so many volumes live at once; the changing requests that it took.
async fn lives(volumes: usize) -> Vec<String> {
    let (world, cluster, _machine) = World::with_a_node().await;
    world.api.forget_writes();
    let mut lives = JoinSet::new();
    for number in 0..volumes {
        let cluster = (*cluster).clone();
        lives.spawn(async move {
            let made = cluster.ensure(&want(&format!("pvc-{number}"), 8, &[])).await.unwrap();
            // All that follows its making is written meanwhile.
            tokio::time::sleep(Duration::from_secs(60)).await;
            cluster.remove(&made.id).await.unwrap();
        });
    }
    lives.join_all().await;
    world.cleaned().await;
    world.api.writes()
}

#[tokio::test(start_paused = true)]
async fn a_volume_costs_few_writes_and_many_at_once_no_more() {
    let (one, many) = (lives(1).await, lives(50).await);
    let each = many.len().div_ceil(50);
    figures(
        "api_writes.txt",
        &[("api_writes_per_volume_fakes", one.len()), ("api_writes_per_volume_of_50_fakes", each)],
    );
    // To be made: the request, what the node has now, the outcome, the room in its pool. To go: as
    // much. And the sweeps. Pools and sweeps are shared.
    assert!(one.len() <= 10, "{one:#?}");
    assert!(each <= 7, "{many:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_asked_for_again_costs_no_write() {
    for is_old in [true, false] {
        let (world, cluster, _machine) = World::with_a_node().await;
        let made = cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
        if is_old {
            world.cleaned().await; // Else the request that made it is still there.
        }
        cluster.remove(&made.id).await.unwrap();
        world.api.forget_writes();
        cluster.remove(&made.id).await.unwrap();
        let writes = world.api.writes();
        assert!(writes.iter().all(|line| !line.contains("volumerequests/")), "{writes:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_made_again_is_removed_again() {
    let (world, cluster, _machine) = World::with_a_node().await;
    let first = cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    cluster.remove(&first.id).await.unwrap();
    let again = cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    assert_eq!(again.id, first.id);
    cluster.remove(&again.id).await.unwrap();
    assert_eq!(cluster.find(&again.id).await.unwrap(), None);
    assert_eq!(world.storage("alpha").volumes, []);
    world.cleaned().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_its_turn_in_a_burst_costs_no_write() {
    let (world, cluster, machine) = World::with_a_node().await;
    machine.host.slow_down("lvcreate", Duration::from_millis(500));
    world.api.forget_writes();
    let mut burst = JoinSet::new();
    for number in 0..50 {
        let cluster = (*cluster).clone();
        burst.spawn(async move { cluster.ensure(&want(&format!("pvc-{number}"), 8, &[])).await });
    }
    for made in burst.join_all().await {
        made.unwrap();
    }
    let writes = world.api.writes();
    let told = writes.iter().filter(|line| line.starts_with("PATCH volumerequests/")).count();
    // The outcomes, and in 25 s in which nothing ends one a time that somebody is at work.
    assert!(told <= 50 + 25 / 5, "{writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_happens() {
    let (world, cluster, _machines) = World::with_two_nodes().await;
    let made = cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    world.keep(&made.node, "pvc-1");
    cluster.ensure(&want("pvc-2", 8, &[])).await.unwrap(); // It is told once that nobody keeps it.
    world.cleaned().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let minutes = 60;
    let before = world.api.writes();
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let after: Vec<String> = world.api.writes().split_off(before.len());
    assert_eq!(after, Vec::<String>::new());
    let rate = after.len().div_ceil(usize::try_from(minutes).unwrap());
    figures("api_writes_idle.txt", &[("api_writes_idle_per_minute", rate)]);
}
