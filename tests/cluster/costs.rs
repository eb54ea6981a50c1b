//! What volumes cost the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use pliant::api::{NodeStorage, VolumeRequest};
use pliant::volume::{NodeKey, Volumes};
use serde_json::json;
use tokio::task::JoinSet;

use crate::tally::figures;
use crate::world::{World, id, want};

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

/// What a change costs the loops of a controller: how many records are read for it, of each kind that is watched.
#[tokio::test(start_paused = true)]
async fn a_change_costs_no_loop_of_a_controller_what_has_not_changed() {
    const NODES: usize = 200;
    const VOLUMES: usize = 10;
    let world = World::new();
    let node = |at: usize| format!("n{at:03}");
    let volume = |at: usize, number: usize| format!("pvc-{at}-{number}");
    let record = |at: usize, used: usize| {
        let volumes = (0..VOLUMES).map(|number| {
            json!({"volumeHandle": id(&node(at), &volume(at, number)).to_string(), "name": "n", "pool": "fast",
                   "size": "1Gi", "requestedSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready"})
        });
        let usage = json!({"volumeHandle": id(&node(at), &volume(at, 0)).to_string(),
                           "observedTime": "2026-01-01T00:00:00Z", "capacity": "100", "used": used.to_string(),
                           "available": "1"});
        let pool = json!({"name": "fast", "configured": true, "default": true, "capacity": "1Gi",
                          "available": "1Gi", "volumeCount": VOLUMES, "health": "Healthy"});
        json!({"metadata": {"name": node(at)}, "spec": {"nodeHash": NodeKey::of(&node(at)).as_str()},
               "status": {"health": "Healthy", "volumes": volumes.collect::<Vec<_>>(),
                          "usage": [usage], "pools": [pool]}})
    };
    let request = |at: usize, progress: &str| {
        json!({"metadata": {"name": format!("fence-{at}"), "generation": 1},
               "spec": {"nodeName": node(at), "volumeHandle": id(&node(at), &volume(at, 0)).to_string(),
                        "operation": {"expand": {"minSize": "2Gi"}}},
               "status": {"observedGeneration": 1, "phase": "Pending", "progress": progress}})
    };
    for at in 0..NODES {
        world.api.put_json::<Node>(json!({"metadata": {"name": node(at)}}));
        world.api.put_json::<NodeStorage>(record(at, 0));
        world.api.put_json::<VolumeRequest>(request(at, "none"));
        (0..VOLUMES).for_each(|number| world.keep(&node(at), &volume(at, number)));
    }
    let controller = world.controller().await;
    let quiet = Duration::from_secs(900); // Longer than anything is waited for.
    tokio::time::sleep(quiet).await;
    let read = || {
        [
            ("NodeStorages", controller.nodes().watched().records_read()),
            ("VolumeRequests", controller.requests().watched().records_read()),
            ("PersistentVolumes", controller.kept.watched().records_read()),
        ]
    };
    let changes: [(&str, &dyn Fn()); 3] = [
        ("PersistentVolume", &|| world.keep(&node(7), &volume(7, 7))),
        ("VolumeRequest", &|| world.api.put_json::<VolumeRequest>(request(7, "some"))),
        ("NodeStorage", &|| world.api.put_json::<NodeStorage>(record(7, 9))),
    ];
    for (changed, change) in changes {
        let before = read();
        change();
        tokio::time::sleep(quiet).await;
        for ((kind, before), (_, after)) in before.into_iter().zip(read()) {
            let read = after - before;
            assert!(read <= 4 * VOLUMES, "{read} {kind} are read for a change of one {changed}");
        }
    }
}
