//! Snapshots through the requests of a cluster, with a node plugin on a machine in memory.

use pliant::volume::{
    Mode, NewSnapshot, NewVolume, Reason, Snapshot, SnapshotPage, Snapshots, Source, Volumes,
};

use crate::world::{World, id, want};

fn of(volume: &str, name: &str) -> NewSnapshot {
    NewSnapshot { name: name.to_owned(), source: id("alpha", volume) }
}

/// Take a snapshot, and wait until its node tells that it is ready.
async fn ready(cluster: &pliant::cluster::Cluster, want: &NewSnapshot) -> Snapshot {
    cluster.ensure_snapshot(want).await.unwrap();
    let look = || {
        cluster.nodes().all().iter().any(|node| {
            let told = node.status.iter().flat_map(|status| &status.snapshots);
            told.filter(|one| one.snapshot_handle == want.id().to_string())
                .any(|one| one.ready_to_use)
        })
    };
    cluster.nodes().until(|| look().then_some(())).await;
    cluster.find_snapshot(&want.id()).await.unwrap().expect("it is told")
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_taken_told_restored_and_deleted() {
    let (_world, cluster, _machine) = World::with_a_node().await;
    let source = NewVolume { mode: Mode::Block, ..want("pvc-1", 100, &[]) };
    cluster.ensure(&source).await.unwrap();
    let taken = ready(&cluster, &of("pvc-1", "snapshot-1")).await;
    assert_eq!(cluster.ensure_snapshot(&of("pvc-1", "snapshot-1")).await.unwrap(), taken);
    let listed = cluster.list_snapshots(&SnapshotPage::default()).await.unwrap().snapshots;
    assert_eq!(listed, std::slice::from_ref(&taken));

    cluster.ensure(&NewVolume { mode: Mode::Block, ..want("pvc-2", 100, &[]) }).await.unwrap();
    let same_name = cluster.ensure_snapshot(&of("pvc-2", "snapshot-1")).await.unwrap_err();
    assert_eq!(same_name.reason(), Reason::AlreadyExists);
    let missing = cluster.ensure_snapshot(&of("pvc-9", "snapshot-9")).await.unwrap_err();
    assert_eq!(missing.reason(), Reason::NotFound);

    let source = Some(Source::Snapshot(taken.id.clone()));
    let restored = NewVolume { mode: Mode::Block, source, ..want("pvc-3", 120, &["alpha"]) };
    let made = cluster.ensure(&restored).await.unwrap();
    assert_eq!((made.size.get() >> 20, made.node.as_str()), (120, "alpha"));
    let elsewhere =
        NewVolume { name: "pvc-4".to_owned(), nodes: vec!["beta".to_owned()], ..restored };
    let refused = cluster.ensure(&elsewhere).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::TopologyMismatch, "{refused}");

    cluster.remove(&id("alpha", "pvc-1")).await.unwrap();
    for _again in 0..2 {
        cluster.remove_snapshot(&taken.id).await.unwrap();
    }
    assert_eq!(cluster.find_snapshot(&taken.id).await.unwrap(), None);
}
