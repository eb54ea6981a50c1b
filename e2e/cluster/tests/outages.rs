//! Who is needed stands still for a while, in the midst of work, and goes on. No other test may run.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use pliant::api::VolumeRequest;
use serde_json::json;
use tokio::time::sleep;
use tokio_stream::StreamExt;

use crate::calls::{must, requests};
use crate::claim::capacity;
use crate::deaths::{Grave, leaked};
use crate::expansion::{CHECK, WRITER};
use crate::world::{World, run};

/// Longer than a lease lasts: the sidecars give up theirs.
const AWAY: Duration = Duration::from_secs(30);
/// Several looks of the kubelet whether it lives, and fewer than those after which it would be killed.
const STILL: Duration = Duration::from_secs(20);

/// How often each container of the driver was started anew. Those of the sidecars may be: a leader that
/// cannot keep its lease ends.
async fn restarts(world: &World) -> BTreeMap<String, i32> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "pliant-system");
    let pods = pods.list(&ListParams::default()).await.unwrap();
    let counts = pods.into_iter().flat_map(|pod| {
        let name = pod.name_any();
        let statuses = pod.status.and_then(|status| status.container_statuses);
        let ours = statuses.into_iter().flatten().filter(|one| one.image.contains("test/pliant:"));
        ours.map(move |one| (format!("{name}/{}", one.name), one.restart_count))
    });
    counts.collect()
}

/// Wait until a request is there that was not there before.
async fn until_requested(world: &World, before: &HashSet<String>) {
    let seen = watcher(Api::<VolumeRequest>::all(world.client.clone()), watcher::Config::default());
    let mut new = std::pin::pin!(
        seen.touched_objects()
            .filter_map(Result::ok)
            .filter(|request| !before.contains(&request.name_any()))
    );
    new.next().await.expect("a watch has no end");
}

async fn requested(world: &World) -> HashSet<String> {
    requests(&world.client).await.iter().map(ResourceExt::name_any).collect()
}

async fn grown(world: &World, claim: &str, size: &str) {
    world
        .until::<PersistentVolumeClaim>(claim, "has its new size", |claim| capacity(claim) == size)
        .await;
}

/// Nobody answers for half a minute while a volume is made and another one grows: nothing of the driver is
/// started anew, and both come to their end.
#[test]
fn an_api_server_that_is_away_loses_no_work() {
    run("api_server_away", |world| async move {
        world.claim("old", "pliant", "64Mi", "Filesystem").await;
        world.pod("old", "old", WRITER, json!({})).await;
        let (restarted, before) = (restarts(&world).await, requested(&world).await);
        world.claim("new", "pliant", "64Mi", "Filesystem").await;
        world.make_pod("new", "new", "echo kept >/data/file; sync; sleep 9999").await;
        world.resize("old", "128Mi").await.unwrap();
        until_requested(&world, &before).await;
        must("e2e/cluster/control", &["kube-apiserver", "stop"]).await;
        sleep(AWAY).await;
        must("e2e/cluster/control", &["kube-apiserver", "continue"]).await;

        grown(&world, "old", "128Mi").await;
        grown(&world, "new", "64Mi").await;
        assert_eq!(world.exec_when_back("new", "cat /data/file").await, "kept");
        assert_eq!(world.exec("old", CHECK).await, "0", "what was written has changed");
        assert_eq!(restarts(&world).await, restarted);
        assert!(leaked(&world.client).await.is_empty());
    });
}

/// A node plugin gets no time in the midst of a growth, and the claim is edited meanwhile: it goes on where it was.
#[test]
fn a_node_plugin_that_stands_still_loses_no_work() {
    run("node_plugin_stands_still", |world| async move {
        let grave = Grave::dug(&world).await;
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let node = world.pod("writer", "data", WRITER, json!({})).await;
        let (restarted, before) = (restarts(&world).await, requested(&world).await);
        let signal =
            |name: &str| format!("kill -{name} $(ps | awk '/[p]liant node/ {{ print $1 }}')");
        world.resize("data", "96Mi").await.unwrap();
        until_requested(&world, &before).await;
        assert!(grave.run(&node, &signal("STOP")).await, "a node plugin runs on {node}");
        world.resize("data", "160Mi").await.unwrap();
        sleep(STILL).await;
        assert_ne!(capacity(&world.get_claim("data").await), "160Mi", "nobody could grow it");
        assert!(grave.run(&node, &signal("CONT")).await);

        grown(&world, "data", "160Mi").await;
        assert_eq!(world.exec("writer", CHECK).await, "0", "what was written has changed");
        assert_eq!(restarts(&world).await, restarted);
    });
}
