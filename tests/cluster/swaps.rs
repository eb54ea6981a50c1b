//! What a swap of volumes asks of a node, through its node plugin.

use pliant::api::{FenceState, FenceStatus, NodeStorage, VolumeRequest};
use pliant::volume::{Fence, NodeVolumes, Reason, Standing, Volumes};

use crate::world::{EXT4, World, id, refused, stage, want};

const fn superseded(generation: i64) -> Fence {
    Fence { generation, standing: Standing::Superseded, copying: false }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_fenced_off_and_proved_unused() {
    let (world, cluster, alpha) = World::with_a_node().await;
    let volume = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap().id;
    alpha.node.stage(&stage()).await.unwrap();
    cluster.fence(&volume, superseded(3)).await.unwrap();

    let used = cluster.inspect(&volume).await.unwrap().unwrap();
    assert_eq!((used.open_count, used.status.published), (1, true));
    assert_eq!((used.status.fence, used.status.volume.mode), (superseded(3), EXT4));
    assert!(used.usage.is_some());
    let said = refused(alpha.node.stage(&stage()).await, Reason::PreconditionFailed);
    assert!(said.contains("is superseded"), "{said}");

    alpha.node.unstage(&volume, &stage().staging).await.unwrap();
    let unused = cluster.inspect(&volume).await.unwrap().unwrap();
    assert_eq!((unused.open_count, unused.status.published, unused.usage), (0, false, None));
    let told: NodeStorage = world.api.get("alpha").unwrap();
    let (state, generation) = (FenceState::Superseded, 3);
    let fence = Some(FenceStatus { state, generation, copy_in_progress: false });
    assert_eq!(told.status.unwrap().volumes[0].fence, fence);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_replaced_lets_nobody_in() {
    let (_world, cluster, _alpha) = World::with_a_node().await;
    let volume = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap().id;
    cluster.fence(&volume, superseded(3)).await.unwrap();
    let late = Fence { generation: 2, ..Fence::default() };
    let said = refused(cluster.fence(&volume, late).await, Reason::PreconditionFailed);
    assert!(said.contains("since generation 3"), "{said}");
    assert_eq!(cluster.inspect(&volume).await.unwrap().unwrap().status.fence, superseded(3));
    cluster.fence(&volume, superseded(3)).await.unwrap();
    cluster.remove(&volume).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_look_at_what_is_gone_is_answered_and_each_look_is_a_new_one() {
    let (world, cluster, alpha) = World::with_a_node().await;
    let nobody = id("alpha", "pvc-9");
    assert_eq!(cluster.inspect(&nobody).await.unwrap(), None);
    refused(cluster.fence(&nobody, superseded(1)).await, Reason::NotFound);

    let volume = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap().id;
    for staged in [false, true] {
        if staged {
            alpha.node.stage(&stage()).await.unwrap();
        }
        let seen = cluster.inspect(&volume).await.unwrap().unwrap();
        assert_eq!(seen.open_count, u32::from(staged), "not what was seen before");
    }
    let looks = |one: &VolumeRequest| one.spec.volume_handle == volume.to_string();
    let requests = world.api.list::<VolumeRequest>();
    let names: Vec<_> = requests.iter().filter(|one| looks(one)).collect();
    assert!(names.iter().any(|one| one.metadata.name == Some(format!("inspect-{volume}"))));
    world.cleaned().await;
}
