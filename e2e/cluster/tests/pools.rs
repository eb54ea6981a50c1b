//! A StoragePool: told first, made on request, extended when a volume needs it.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use pliant::api::{StoragePool, StoragePoolSpec};
use serde_json::json;

use crate::claim::capacity;
use crate::world::{World, run};

/// A StatefulSet gets claims of this class, in another group and with another file system, and those that it
/// had before.
async fn a_workload_moves_there_and_back(world: &World, there: &str) {
    let here = format!("{there}-here");
    world.class_named(&here, json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
    world.workload(1, json!([])).await;
    world.autoscaler(&here, "400Mi", json!({})).await;
    world.settled("1/1").await;
    let mut before = world.records("db-0").await;
    for (class, kind) in [(there, " xfs "), (&here, " ext4 ")] {
        world.autoscaler(class, "400Mi", json!({"retention": "5s"})).await;
        world.settled("1/1").await;
        let claim = world.active(0).await.spec.unwrap();
        assert_eq!(claim.storage_class_name.as_deref(), Some(class));
        assert!(world.exec_when_back("db-0", "grep ' /data ' /proc/mounts").await.contains(kind));
        let now = world.records("db-0").await;
        assert!(now > before, "{now} records after {before}");
        assert_eq!(world.bytes_lost("db-0").await, 0);
        before = now;
    }
    world.until_alone(1).await;
    world.end_workload().await;
}

/// The disks of a node that `values.yaml` leaves blank are of 4 GiB each.
#[test]
fn a_growth_beyond_the_group_takes_a_standby_disk() {
    run("a_growth_beyond_the_group_takes_a_standby_disk", |world| async move {
        let pools: Api<StoragePool> = Api::all(world.client.clone());
        let _ = pools.delete(&world.name, &DeleteParams::default()).await;
        let spec: StoragePoolSpec = serde_json::from_value(json!({
            "disks": [{"device": "/dev/ubdc"}],
            "standbyDisks": [{"device": "/dev/ubdd"}],
        }))
        .unwrap();
        pools.create(&PostParams::default(), &StoragePool::new(&world.name, spec)).await.unwrap();
        let told = world
            .until_named(
                &pools,
                &world.name,
                "tells what each node would do",
                |pool: &StoragePool| {
                    let nodes = pool.status.iter().flat_map(|status| &status.nodes);
                    nodes.filter(|node| !node.planned_actions.is_empty()).count() == 2
                },
            )
            .await;
        let status = told.status.unwrap();
        assert_eq!(status.ready_node_count, 0, "nothing was done yet: {status:?}");
        let may = Patch::Merge(json!({"spec": {"createVolumeGroups": true}}));
        pools.patch(&world.name, &PatchParams::default(), &may).await.unwrap();
        world
            .until_named(&pools, &world.name, "is ready on both nodes", |pool: &StoragePool| {
                pool.status.as_ref().is_some_and(|status| status.ready_node_count == 2)
            })
            .await;

        let class =
            world.class(json!({"pool": world.name, "csi.storage.k8s.io/fstype": "xfs"})).await;
        world.claim("data", &class, "3Gi", "Filesystem").await;
        world.pod("app", "data", "echo kept >/data/file; sync; sleep 9999", json!({})).await;
        world.resize("data", "6Gi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == "6Gi"
            })
            .await;
        let size: u64 =
            world.exec("app", "df -k /data | tail -n 1 | awk '{print $2}'").await.parse().unwrap();
        assert!(size > 5 << 20, "{size} KiB");
        assert_eq!(world.exec("app", "cat /data/file").await, "kept");

        world.remove_pod("app").await;
        world.remove_claim("data").await;
        a_workload_moves_there_and_back(&world, &class).await;
        pools.delete(&world.name, &DeleteParams::default()).await.unwrap();
    });
}
