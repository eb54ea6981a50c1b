//! A panic in the work for one object ends neither its loop nor the process.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use pliant::api::{
    Delete, NodeStorage, NodeStorageSpec, Operation, StoragePool, VolumeRequest, VolumeRequestSpec,
};
use pliant::cluster::Cluster;
use pliant::controllers::{nodes, pools, request_gc, resync};
use pliant::panics::panics;
use pliant::populators::Watches;
use pliant::testing::{FakeApi, Lines, fake_api};
use pliant::volume::DRIVER;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Longer than anything is kept that is of no use.
const LONG: Duration = Duration::from_secs(1500);

/// The loops of a controller and the one that wakes the resizer; none of them may end.
fn run(api: &FakeApi, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let (client, stop) = (api.client(), stop.clone());
    tokio::spawn(async move {
        let cluster = Cluster::start(&client, &stop).await;
        let watches = Watches::start(&client, &stop);
        tokio::join!(
            request_gc::run(cluster.requests(), cluster.nodes(), stop.clone()),
            nodes::forget_gone(&client, cluster.nodes(), stop.clone()),
            pools::report(&client, cluster.nodes(), stop.clone()),
            resync::wake_resizer(&client, watches.claims(), stop.clone()),
        );
    })
}

fn put_all(api: &FakeApi, name: &str) {
    let work = Operation::Delete(Delete {});
    let spec = VolumeRequestSpec {
        node_name: "gone".to_owned(),
        volume_handle: name.to_owned(),
        operation: work,
    };
    api.put(&VolumeRequest::new(name, spec));
    api.put(&NodeStorage::new(name, NodeStorageSpec::default()));
    api.put_json::<StoragePool>(json!({"metadata": {"name": name}, "spec": {"disks": []}}));
    api.put_json::<PersistentVolumeClaim>(json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"volumeName": name, "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }));
    let csi = json!({"driver": DRIVER, "volumeHandle": "k-1"});
    api.put_json::<PersistentVolume>(json!({"metadata": {"name": name}, "spec": {"csi": csi}}));
}

#[tokio::test(start_paused = true)]
async fn a_line_of_the_work_for_an_object_says_whose_it_is() {
    let (lines, api, stop) = (Lines::begin(), fake_api(), CancellationToken::new());
    put_all(&api, "bad");
    api.panic_at(Some("/bad"));
    let running = run(&api, &stop);
    tokio::time::sleep(LONG).await;
    let said = lines.with("failed to reconcile an object; retrying");
    let told = |one: &serde_json::Value, key| one["span"][key].as_str().unwrap().to_owned();
    let whose: BTreeSet<(String, String)> =
        said.iter().map(|one| (told(one, "controller"), told(one, "object"))).collect();
    let expected = [
        ("nodestorages", "bad"),
        ("resizes", "shop/bad"),
        ("storagepools", "bad"),
        ("volumerequests", "bad"),
    ];
    assert_eq!(whose, expected.map(|(one, of)| (one.to_owned(), of.to_owned())).into());
    stop.cancel();
    running.await.expect("it ends");
}

/// What is done about an object of each kind: request, record, pool and claim.
fn is_done(api: &FakeApi, name: &str) -> [bool; 4] {
    let claim: PersistentVolumeClaim = api.get(&format!("shop/{name}")).unwrap();
    [
        api.get::<VolumeRequest>(name).is_none(),
        api.get::<NodeStorage>(name).is_none(),
        api.get::<StoragePool>(name).unwrap().status.is_some(),
        claim.annotations().contains_key("pliant.io/resizer-notified-for"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_work_for_one_object_keeps_no_other_one_waiting() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    put_all(&api, "bad");
    put_all(&api, "good");
    api.panic_at(Some("/bad"));
    let running = run(&api, &stop);
    tokio::time::sleep(LONG).await;
    assert!(!running.is_finished(), "the loops have ended");
    assert_eq!(is_done(&api, "good"), [true; 4]);
    assert_eq!(is_done(&api, "bad"), [false; 4]);
    let counted = panics();
    for in_loop in ["volumerequests", "nodestorages", "storagepools", "resizes"] {
        assert!(counted.contains_key(in_loop), "{in_loop}: {counted:?}");
    }
    api.panic_at(None);
    tokio::time::sleep(LONG).await;
    assert_eq!(is_done(&api, "bad"), [true; 4]);
    stop.cancel();
    running.await.expect("it ends");
}
