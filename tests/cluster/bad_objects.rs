//! One object that cannot be decoded, of each kind that a controller or a node plugin watches: all others go on.

use k8s_openapi::api::events::v1::Event;
use pliant::api::{NodeStorage, StoragePool, VolumeRequest};
use pliant::bytes::Bytes;
use pliant::testing::FakeApi;
use pliant::volume::Volumes;
use serde_json::json;

use crate::world::{World, growth, id, want};

/// Put an object of each kind there that no version has ever written.
fn put_bad_ones(api: &FakeApi) {
    api.put_json::<StoragePool>(
        json!({"metadata": {"name": "bad"}, "spec": {"volumeGroups": "all"}}),
    );
    let status = json!({"pools": 7});
    api.put_json::<NodeStorage>(
        json!({"metadata": {"name": "bad"}, "spec": {"nodeHash": ""}, "status": status}),
    );
    let spec = json!({"nodeName": "alpha", "volumeHandle": id("alpha", "pvc-9").to_string(), "operation": 5});
    api.put_json::<VolumeRequest>(json!({"metadata": {"name": "bad"}, "spec": spec}));
}

/// The kinds of which it is told that one cannot be decoded.
fn told(api: &FakeApi) -> Vec<String> {
    let events = api.list::<Event>().into_iter();
    let told = events.filter(|event| event.reason.as_deref() == Some("InvalidObject"));
    let mut kinds: Vec<String> = told.filter_map(|event| event.regarding?.kind).collect();
    kinds.sort();
    kinds
}

#[tokio::test(start_paused = true)]
async fn a_volume_lives_beside_objects_that_cannot_be_decoded() {
    let (world, cluster, alpha) = World::with_a_node().await;
    let host = alpha.host.clone();
    put_bad_ones(&world.api);
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.expect("the loops that run go on");
    world.api.until("each is told", |api| told(api).len() == 3).await;
    drop((cluster, alpha));

    // Those that start have never seen a list without them.
    let _alpha = world.restart("alpha", host).await;
    let cluster = world.controller().await;
    cluster.knows_pools_of(1).await;
    let grown = cluster.grow(&made.id, growth(200)).await.expect("the node plugin goes on");
    assert_eq!(grown.size, Bytes::mib(200));
    cluster.remove(&made.id).await.expect("it is removed");
    world.cleaned().await;
    assert_eq!(told(&world.api), ["NodeStorage", "StoragePool", "VolumeRequest"], "each once");
}
