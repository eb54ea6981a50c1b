//! How much memory the objects of tenants take in the operator. A test binary of its own: it measures the process.

#[path = "../tally/figures.rs"]
mod figures;
mod world;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use pliant::cluster::{ClaimSummary, PodVersion, Watched, every, pods};
use pliant::testing::fake_api;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::figures::figures;
use crate::world::{KINDS, Kind, WORLD, kept};

const MANY: usize = 10_000;

/// What the objects of the largest world may take in the operator: 10,000 claims of 3,333 PvcAutoscalers, and 5,000
/// PvcAutoscalers that wait for ever. The program itself takes 20 MiB, and 40 MiB is what it may have.
const ALL: usize = 17 << 20;

/// Resident memory, in bytes.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("it is there");
    let pages: usize = statm.split(' ').nth(1).expect("a number").parse().expect("a number");
    pages * 4096
}

fn claim(at: usize, fat: &str) -> Value {
    json!({
        "metadata": {"name": format!("data-db-{at}"), "namespace": "shop", "uid": format!("3b0c-{at:032}"),
                     "labels": {"app": "db", "pliant.io/pvc-autoscaler": "db", "pliant.io/ordinal": "0"},
                     "annotations": {"note": fat}, "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                 "volumeName": format!("pvc-3b0c-{at:032}"),
                 "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    })
}

fn pod(at: usize, fat: &str) -> Value {
    json!({
        "metadata": {"name": format!("db-{at}"), "namespace": "shop", "uid": format!("4c1d-{at:032}"),
                     "labels": {"app": "db", "pliant.io/populator": "u"}, "annotations": {"note": fat},
                     "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db",
                                          "uid": "s", "controller": true}]},
        "spec": {"containers": [{"name": "db", "env": [{"name": "A", "value": fat}]}], "nodeName": "alpha",
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("data-db-{at}")}},
                             {"name": "conf", "configMap": {"name": "db"}}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z"}]},
    })
}

/// Held by the test that measures, until all that it has begun is gone: the process is one.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Once in vain: what the thread of another test has left is freed meanwhile, and what is made once is made.
fn kept_of_nothing() -> usize {
    kept(|_| {});
    kept(|_| {})
}

#[test]
fn ten_thousand_claims_and_pods_take_less_than_40_mib() {
    let _alone = alone();
    world::block_on(measure_claims_and_pods());
}

async fn measure_claims_and_pods() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    let fat = "x".repeat(4 << 10);
    for at in 0..MANY {
        api.put_json::<PersistentVolumeClaim>(claim(at, &fat));
        api.put_json::<Pod>(pod(at, &fat));
    }
    let before = resident();
    let claims: Watched<ClaimSummary> = Watched::start(Api::all(api.client()), every(), &stop);
    let versions: Watched<PodVersion> = Watched::start(Api::all(api.client()), every(), &stop);
    let known = async { tokio::join!(claims.known(), versions.known()) };
    tokio::time::timeout(Duration::from_secs(60), known).await.expect("all are known");
    let watched = resident().saturating_sub(before);
    let before = resident();
    let read = pods(&api.client(), "shop").await.expect("all are read");
    let listed = resident().saturating_sub(before);
    assert_eq!((claims.all().len(), versions.all().len(), read.len()), (MANY, MANY, MANY));
    println!(
        "{} bytes for each claim and pod, {} while pods are read",
        watched / MANY,
        listed / MANY
    );
    assert!(watched < 40 << 20, "{watched} bytes are kept");
    assert!(listed < 40 << 20, "{listed} bytes are listed");
}

/// A cluster may have a hundred thousand of them.
#[test]
fn a_persistent_volume_takes_less_than_900_bytes_of_the_operator() {
    let _alone = alone();
    let nothing = kept_of_nothing();
    let volumes = KINDS.iter().find(|kind| kind.name == "PersistentVolumes").expect("it is one");
    let all = kept(|api| (0..volumes.measured).for_each(|at| (volumes.put)(api, at)));
    let each = all.saturating_sub(nothing) / volumes.measured;
    figures("persistent_volume_heap.txt", &[("heap_bytes_per_persistent_volume", each)]);
    assert!(each < 900, "{each} bytes for each");
}

/// Of each kind some are measured, and from that as many as there are.
#[test]
fn the_largest_world_takes_less_than_17_mib_of_the_operator() {
    let _alone = alone();
    let nothing = kept_of_nothing();
    let measure = |kind: &Kind| {
        let measured = kept(|api| (0..kind.measured).for_each(|at| (kind.put)(api, at)));
        let each = measured.saturating_sub(nothing) / kind.measured;
        println!("{each:5} bytes for each of {} {}", kind.there, kind.name);
        each * kind.there
    };
    let _of_kinds: usize = KINDS.iter().map(measure).sum();
    let all: usize = WORLD.iter().map(measure).sum();
    println!("{} KiB for all, beside {} KiB for none", all >> 10, nothing >> 10);
    assert!(all < ALL, "{all} bytes are kept");
}
