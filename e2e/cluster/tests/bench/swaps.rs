//! How long a swap stops a pod, what it asks of the API server, and what the operator holds of ten
//! thousand claims.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use pliant::api::{AutoscalerPhase, LastSwap, PvcAutoscaler};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{AT_ONCE, Figures, Writes, resident, written};
use crate::calls::{must, persist};
use crate::world::World;

/// What is copied ahead of a swap and in it, in MiB. The whole group has 36 GiB, for the old and the new one.
const SMALL: usize = FILE;
const LARGE: usize = 12 * FILE;
/// One file of it: a script in a pod has to end within a minute.
const FILE: usize = 1280;
/// Class and size, which are changed there and back.
const ROOMY: (&str, &str) = ("bench-swaps-ext4", "18000Mi");
const TIGHT: (&str, &str) = ("bench-swaps-xfs", "17900Mi");
/// What was written a shorter time ago is compared once more, which a volume in use has behind it.
const AGED: Duration = Duration::from_secs(60);
/// What changes meanwhile, if something does: 4 MiB a second, in place.
const BUSY: &str = "\
    dd if=/dev/urandom of=/data/busy bs=1M count=64 2>/dev/null; n=0; \
    while true; do dd if=/dev/urandom of=/data/busy bs=1M count=4 seek=$((n % 16 * 4)) conv=notrunc,fsync 2>/dev/null; \
        n=$((n + 1)); sleep 1; done";
/// Whatever a swap writes, by whom ever.
const TOUCHED: [&str; 7] = [
    "pvcautoscalers",
    "pvcsourcepopulators",
    "volumerequests",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "nodestorages",
];

const WORKLOADS: u32 = 100;
const REPLICAS: u32 = 100;
/// Making ten thousand claims takes some minutes.
const WHILE_ALL_ARE_MADE: Duration = Duration::from_secs(1800);

/// Seconds for which a pod is stopped, with all copied meanwhile and with most of it ahead, by how much
/// there is and whether it changes.
pub async fn pauses(world: &World, figures: &mut Figures) {
    let world = &world.with_patience(Duration::from_secs(900));
    for (class, fs) in [("bench-swaps-ext4", "ext4"), ("bench-swaps-xfs", "xfs")] {
        world.class_named(class, json!({"pool": "fast", "fs-type": fs})).await;
    }
    world.prompt_workload().await;
    world.autoscaler(ROOMY.0, ROOMY.1, json!({"retention": "1s"})).await;
    world.settled("1/1").await;
    fill(world, 0, SMALL).await;
    for (busy, of) in [(false, "idle"), (true, "busy")] {
        let cold = there_and_back(world, How::Cold, busy).await;
        let all = there_and_back(world, How::Hot, busy).await;
        let changed = there_and_back(world, How::HotCompared, busy).await;
        println!(
            "{SMALL} MiB, {of}: {:.1} s stopped cold, {:.1} s hot, {:.1} s hot and compared ahead ({} rounds)",
            cold.pause, all.pause, changed.pause, changed.rounds
        );
    }
    fill(world, SMALL, LARGE).await;
    let cold = there_and_back(world, How::Cold, false).await;
    let hot = there_and_back(world, How::HotCompared, false).await;
    println!("{LARGE} MiB, idle:");
    figures.tell("swap_pause_seconds_cold", cold.pause);
    figures.tell("swap_pause_seconds_hot", hot.pause);
    figures.tell("swap_pause_hot_percent_of_cold", 100.0 * hot.pause / cold.pause);
    figures.tell("api_writes_per_swap", cold.writes);
    world.end_workload().await;
}

/// Fill files of it, from the one after so many MiB.
async fn fill(world: &World, from: usize, to: usize) {
    for number in from / FILE..to / FILE {
        let fill = format!(
            "dd if=/dev/urandom of=/data/filling-{number} bs=1M count={FILE} 2>/dev/null; sync"
        );
        world.exec_when_back("db-0", &fill).await;
    }
}

/// How a swap is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Cold,
    Hot,
    HotCompared,
}

/// What a swap takes, in the mean.
struct Cost {
    pause: f64,
    rounds: i32,
    writes: f64,
}

/// To the other class and back: the pod is as it was, and no direction is favoured.
async fn there_and_back(world: &World, how: How, busy: bool) -> Cost {
    let there = swap(world, TIGHT, how, busy).await;
    let back = swap(world, ROOMY, how, busy).await;
    Cost {
        pause: f64::midpoint(there.pause, back.pause),
        rounds: there.rounds.max(back.rounds),
        writes: f64::midpoint(there.writes, back.writes),
    }
}

async fn swap(world: &World, (class, size): (&str, &str), how: How, busy: bool) -> Cost {
    if how == How::HotCompared {
        sleep(AGED).await;
    }
    if busy {
        // It ends with its pod.
        world.exec_when_back("db-0", &format!("({BUSY}) </dev/null >/dev/null 2>&1 &")).await;
    }
    let before = of_swaps(&written(&world.client).await);
    let mut more = json!({"retention": "1s", "hotCopy": how != How::Cold});
    if how == How::HotCompared {
        more["compare"] = json!("Changed");
    }
    world.autoscaler(class, size, more).await;
    let status = world.settled("1/1").await;
    let last: LastSwap = status.of(0).and_then(|one| one.last_swap.clone()).expect("a swap");
    world.until_alone(1).await;
    let writes = of_swaps(&written(&world.client).await) - before;
    let pause = i32::try_from(last.pause_seconds.expect("a pod")).expect("less than years");
    Cost { pause: f64::from(pause), rounds: last.rounds, writes }
}

fn of_swaps(written: &Writes) -> f64 {
    written
        .iter()
        .filter(|(what, _)| TOUCHED.contains(&what.resource.as_str()))
        .map(|(_, n)| n)
        .sum()
}

/// A hundred workloads of a hundred pods, whose ten thousand claims the operator makes and then watches.
pub async fn many_claims(world: &World, figures: &mut Figures) {
    // It would make pods.
    must("e2e/cluster/control", &["kube-controller-manager", "kill"]).await;
    figures.tell("operator_rss_mib", resident(&world.client, "operator").await);
    let begun = Instant::now();
    stream::iter(0..WORKLOADS).for_each_concurrent(AT_ONCE, |number| keep(world, number)).await;
    let claims = world.api::<PersistentVolumeClaim>();
    until_made(&claims).await;
    let took = begun.elapsed().as_secs_f64();
    println!("{} claims after {took:.0} s", WORKLOADS * REPLICAS);
    figures.tell("operator_claims_made_per_second", f64::from(WORKLOADS * REPLICAS) / took);
    let names = claims.list_metadata(&ListParams::default()).await.unwrap();
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    stream::iter(names)
        .for_each_concurrent(AT_ONCE, |claim| {
            let (claims, patch) = (&claims, Patch::Merge(&bound));
            async move {
                let (name, merge) = (claim.name_any(), PatchParams::default());
                persist(|| claims.patch_status(&name, &merge, &patch)).await.unwrap();
            }
        })
        .await;
    until_settled(&world.api()).await;
    figures.tell("operator_rss_mib_10000_claims", resident(&world.client, "operator").await);
}

/// A StatefulSet whose pods nobody makes, and the declaration of its claims.
async fn keep(world: &World, number: u32) {
    let name = format!("w{number}");
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "pliant.test/busybox:1"}]},
            },
        },
    }))
    .unwrap();
    let autoscaler: PvcAutoscaler = serde_json::from_value(json!({
        "apiVersion": "pliant.io/v1alpha1",
        "kind": "PvcAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "statefulSetName": name,
            "volumeClaimTemplate": {"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "pliant",
                "resources": {"requests": {"storage": "1Gi"}}}},
        },
    }))
    .unwrap();
    let params = PostParams::default();
    let (sets, autoscalers) = (world.api::<StatefulSet>(), world.api::<PvcAutoscaler>());
    persist(|| sets.create(&params, &set)).await.unwrap();
    persist(|| autoscalers.create(&params, &autoscaler)).await.unwrap();
}

async fn until_made(claims: &Api<PersistentVolumeClaim>) {
    let (end, all) = (Instant::now() + WHILE_ALL_ARE_MADE, ListParams::default());
    loop {
        let there = persist(|| claims.list_metadata(&all)).await.unwrap().items.len();
        if there == (WORKLOADS * REPLICAS) as usize {
            return;
        }
        assert!(Instant::now() < end, "only {there} claims are made");
        sleep(Duration::from_secs(2)).await;
    }
}

async fn until_settled(autoscalers: &Api<PvcAutoscaler>) {
    let (end, any) = (Instant::now() + WHILE_ALL_ARE_MADE, ListParams::default());
    let wanted = format!("{REPLICAS}/{REPLICAS}");
    let is_settled = |one: &PvcAutoscaler| {
        let status = one.status.as_ref();
        status.is_some_and(|status| {
            status.claims == wanted && status.phase == AutoscalerPhase::Settled
        })
    };
    loop {
        let all = persist(|| autoscalers.list(&any)).await.unwrap().items;
        let settled = all.iter().filter(|one| is_settled(one)).count();
        if settled == WORKLOADS as usize {
            return;
        }
        assert!(Instant::now() < end, "only {settled} workloads are settled");
        sleep(Duration::from_secs(2)).await;
    }
}
