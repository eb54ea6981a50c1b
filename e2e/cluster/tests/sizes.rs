//! Sizes that are no whole number of bytes: the API server keeps them in thousandths. They need more of a node than
//! other tests leave, so no other one runs beside.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use pliant::bytes::Bytes;
use serde_json::json;

use crate::claim::capacity;
use crate::people::explained;
use crate::world::{World, run};

/// Wait until a claim has so many bytes, or up to an extent more.
async fn until_it_has(world: &World, claim: &str, bytes: u64) {
    let has = |claim: &PersistentVolumeClaim| {
        let size = capacity(claim).parse::<Bytes>();
        size.is_ok_and(|size| (bytes..bytes + (4 << 20)).contains(&size.get()))
    };
    world.until::<PersistentVolumeClaim>(claim, &format!("has {bytes} bytes"), has).await;
}

fn asked(claim: &PersistentVolumeClaim) -> String {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    resources.and_then(|all| all.requests.as_ref()).map(|all| all["storage"].0.clone()).unwrap()
}

#[test]
fn a_claim_of_a_part_of_a_gibibyte_is_as_any_other() {
    run("part_of_a_gibibyte", |world| async move {
        world.quota("20Gi").await;
        world.claim("data", "pliant", "1.1Gi", "Filesystem").await;
        assert_eq!(asked(&world.get_claim("data").await), "1181116006400m");
        world.until_charged_in_extents("1181116006400m").await;
        let told = explained(&world, "data").await;
        assert!(told.contains("is Pending: waiting for a pod"), "{told}");

        world.pod("app", "data", "sleep 9999", json!({})).await;
        until_it_has(&world, "data", 1_181_116_007).await;
        world.resize("data", "2.3Gi").await.unwrap();
        until_it_has(&world, "data", 2_469_606_196).await;
        world.until_charged_in_extents("2469606195200m").await;
        let told = explained(&world, "data").await;
        assert!(told.contains("is healthy: 2.3 GiB"), "{told}");
    });
}

/// Its template says 0.2Gi, and so do the claims of the StatefulSet: neither is larger than the other, and what one of
/// them grows to is more than it has.
#[test]
fn a_claim_of_a_part_of_a_gibibyte_grows_by_itself() {
    run("part_of_a_gibibyte_grows", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        let template = json!([{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "resources": {"requests": {"storage": "0.2Gi"}}},
        }]);
        world.workload(1, template).await;
        let policy = json!({"growAtPercent": 70, "minStep": "100Mi", "maxSize": "400Mi"});
        world.autoscaler(&class, "0.2Gi", json!({"autoscale": policy})).await;
        world.settled("1/1").await;
        let claim = world.active(0).await;
        assert_eq!(asked(&claim), "214748364800m");
        world.exec_when_back("db-0", "head -c 160000000 /dev/zero >/data/big; sync").await;
        let grown = world
            .until::<PersistentVolumeClaim>(&claim.name_any(), "grows", |claim| {
                capacity(claim).parse().is_ok_and(|size: Bytes| size > Bytes::mib(290))
            })
            .await;
        assert!(asked(&grown).parse::<Bytes>().unwrap() > Bytes::mib(290));
        let status = world.settled("1/1").await;
        assert_eq!(status.of(0).unwrap().claim_revision, 0, "its pod has gone on");
        world.until_told("db", "AutoscaleExpand", 1).await;
        world.end_workload().await;
    });
}
