//! How long a swap stops a pod, what it asks of the API server, and what the operator holds of ten
//! thousand claims.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use pliant::api::{AutoscalerPhase, LastSwap, PvcAutoscaler, PvcAutoscalerStatus};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{AT_ONCE, Figures, Writes, Writing, resident, written};
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

/// Ten thousand claims, in few large workloads and in many small ones.
const LARGE_ONES: Workloads = Workloads { count: 100, replicas: 100 };
/// Those of one of three namespaces: the webhook names some two thousand workloads of one at most.
const SMALL_ONES: Workloads = Workloads { count: 1111, replicas: 3 };
/// PvcAutoscalers of one namespace that wait for a StatefulSet that is not there.
const WAITING: u32 = 5000;
/// Sizes of a claim that is to be swapped.
const LARGER: &str = "200Mi";
const SMALLER: &str = "100Mi";
/// Making ten thousand claims takes some minutes.
const WHILE_ALL_ARE_MADE: Duration = Duration::from_secs(1800);

/// Seconds for which a pod is stopped, with all copied meanwhile and with most of it ahead, by how much
/// there is and whether it changes.
pub async fn pauses(world: &World, figures: &mut Figures) {
    let world = &world.with_patience(Duration::from_secs(900));
    for (class, fs) in [("bench-swaps-ext4", "ext4"), ("bench-swaps-xfs", "xfs")] {
        world.class_named(class, json!({"pool": "fast", "csi.storage.k8s.io/fstype": fs})).await;
    }
    world.prompt_workload().await;
    world.autoscaler(ROOMY.0, ROOMY.1, json!({"retention": "1s"})).await;
    world.settled("1/1").await;
    fill(world, 0, SMALL).await;
    for (busy, of) in [(false, "idle"), (true, "busy")] {
        let cold = there_and_back(world, How::Cold, busy).await;
        if !busy {
            // Of a larger claim progress is written more often.
            figures.tell("api_writes_per_swap", cold.writes.values().sum());
            for (Writing { verb, resource, part }, count) in &cold.writes {
                println!("  {count:6.1} {verb} {resource} {part}");
            }
        }
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
    /// To the API server, by whom ever.
    writes: Writes,
}

/// To the other class and back: the pod is as it was, and no direction is favoured.
async fn there_and_back(world: &World, how: How, busy: bool) -> Cost {
    let there = swap(world, TIGHT, how, busy).await;
    let back = swap(world, ROOMY, how, busy).await;
    Cost {
        pause: f64::midpoint(there.pause, back.pause),
        rounds: there.rounds.max(back.rounds),
        writes: mean(&there.writes, &back.writes),
    }
}

fn mean(one: &Writes, other: &Writes) -> Writes {
    let all = one.keys().chain(other.keys());
    let of = |writes: &Writes, what: &Writing| writes.get(what).copied().unwrap_or_default();
    all.map(|what| (what.clone(), f64::midpoint(of(one, what), of(other, what)))).collect()
}

async fn swap(world: &World, (class, size): (&str, &str), how: How, busy: bool) -> Cost {
    if how == How::HotCompared {
        sleep(AGED).await;
    }
    if busy {
        // It ends with its pod.
        world.exec_when_back("db-0", &format!("({BUSY}) </dev/null >/dev/null 2>&1 &")).await;
    }
    let before = written(&world.client).await;
    let mut more = json!({"retention": "1s", "preCopy": how != How::Cold});
    if how == How::HotCompared {
        more["verification"] = json!("ChangedOnly");
    }
    world.autoscaler(class, size, more).await;
    let status = world.settled("1/1").await;
    let last: LastSwap = status.of(0).and_then(|one| one.last_swap.clone()).expect("a swap");
    world.until_alone(1).await;
    let writes = of_swap(&before, written(&world.client).await);
    let pause = i32::try_from(last.downtime_seconds.expect("a pod")).expect("less than years");
    Cost { pause: f64::from(pause), rounds: last.pre_copy_passes, writes }
}

/// What was written since then of what swaps touch.
fn of_swap(before: &Writes, now: Writes) -> Writes {
    let its = now.into_iter().filter(|(what, _)| TOUCHED.contains(&what.resource.as_str()));
    let since = its.map(|(what, count)| {
        (what.clone(), count - before.get(&what).copied().unwrap_or_default())
    });
    since.filter(|(_, count)| *count > 0.0).collect()
}

/// A hundred workloads of a hundred pods, whose ten thousand claims the operator makes and then watches.
pub async fn many_claims(world: &World, figures: &mut Figures) {
    // It would make pods.
    must("e2e/cluster/control", &["kube-controller-manager", "kill"]).await;
    figures.tell("operator_rss_mib", resident(&world.client, "operator").await);
    let took = make(world, LARGE_ONES).await;
    figures.tell("operator_claims_made_per_second", f64::from(LARGE_ONES.claims()) / took);
    figures.tell("operator_rss_mib_10000_claims", resident(&world.client, "operator").await);
}

/// How soon one edit of a template is taken up beside 3,333 other PvcAutoscalers, and beside 5,000 more of
/// another namespace that wait for what never comes.
pub async fn many_autoscalers(world: &World, figures: &mut Figures) {
    let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
    let second = world.beside("second").await;
    for one in [world, &second] {
        one.workload(1, json!([])).await;
        one.autoscaler(&class, LARGER, json!({})).await;
        one.settled("1/1").await;
    }
    must("e2e/cluster/control", &["kube-controller-manager", "kill"]).await;
    for name in ["one", "two", "three"] {
        make(&world.beside(name).await, SMALL_ONES).await;
    }
    figures.tell("operator_rss_mib_3333_autoscalers", resident(&world.client, "operator").await);
    figures.tell("edit_to_first_step_seconds_3333_autoscalers", first_step(world, &class).await);

    let neighbour = world.beside("waiting").await;
    stream::iter(0..WAITING)
        .for_each_concurrent(AT_ONCE, |number| declare(&neighbour, format!("w{number}")))
        .await;
    let is_waiting = |status: &PvcAutoscalerStatus| status.phase == AutoscalerPhase::Waiting;
    until_all(&neighbour.api(), WAITING, is_waiting).await;
    figures.tell("operator_rss_mib_5000_waiting", resident(&world.client, "operator").await);
    figures.tell("edit_to_first_step_seconds_5000_waiting", first_step(&second, &class).await);

    // Nothing of it is for the controllers, which come back to remove the claims and their volumes.
    for one in [world, &second] {
        let (sets, all) = (one.api::<StatefulSet>(), ListParams::default());
        sets.delete_collection(&DeleteParams::default(), &all).await.unwrap();
    }
    must("e2e/cluster/control", &["kube-controller-manager", "start"]).await;
}

/// Seconds from an edit that asks for a smaller claim until its swap has begun. Without a controller that
/// binds claims it goes no further, and the edit back asks for its end, which comes when that is back.
async fn first_step(world: &World, class: &str) -> f64 {
    let begun = Instant::now();
    world.autoscaler(class, SMALLER, json!({})).await;
    let begins = |status: &PvcAutoscalerStatus| status.of(0).is_some_and(|one| one.swap.is_some());
    world.until_status("begins a swap", begins).await;
    let took = begun.elapsed().as_secs_f64();
    world.autoscaler(class, LARGER, json!({})).await;
    took
}

/// Workloads of one size.
#[derive(Clone, Copy)]
struct Workloads {
    count: u32,
    replicas: u32,
}

impl Workloads {
    fn claims(self) -> u32 {
        self.count * self.replicas
    }
}

/// Make workloads, and wait until their claims are made, bound and settled; how many seconds making took.
async fn make(world: &World, workloads: Workloads) -> f64 {
    let begun = Instant::now();
    stream::iter(0..workloads.count)
        .for_each_concurrent(AT_ONCE, |number| keep(world, number, workloads.replicas))
        .await;
    let claims = world.api::<PersistentVolumeClaim>();
    until_made(&claims, workloads).await;
    let took = begun.elapsed().as_secs_f64();
    println!("{} claims after {took:.0} s", workloads.claims());
    let all = claims.list(&ListParams::default()).await.unwrap();
    let pending = all
        .into_iter()
        .filter(|claim| claim.status.as_ref().is_none_or(|status| status.capacity.is_none()));
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    stream::iter(pending)
        .for_each_concurrent(AT_ONCE, |claim| {
            let (claims, patch) = (&claims, Patch::Merge(&bound));
            async move {
                let (name, merge) = (claim.name_any(), PatchParams::default());
                persist(|| claims.patch_status(&name, &merge, &patch)).await.unwrap();
            }
        })
        .await;
    let wanted = format!("{0}/{0}", workloads.replicas);
    let is_settled = |status: &PvcAutoscalerStatus| {
        status.phase == AutoscalerPhase::InSync && status.ready_claims() == wanted
    };
    until_all(&world.api(), workloads.count, is_settled).await;
    took
}

/// A StatefulSet whose pods are made by no controller, and the declaration of its claims.
async fn keep(world: &World, number: u32, replicas: u32) {
    let name = format!("w{number}");
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "pliant.test/busybox:1"}]},
            },
        },
    }))
    .unwrap();
    let (params, sets) = (PostParams::default(), world.api::<StatefulSet>());
    persist(|| sets.create(&params, &set)).await.unwrap();
    declare(world, name).await;
}

/// The declaration of the claims of a StatefulSet of this name.
async fn declare(world: &World, name: String) {
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
    let (params, autoscalers) = (PostParams::default(), world.api::<PvcAutoscaler>());
    persist(|| autoscalers.create(&params, &autoscaler)).await.unwrap();
}

async fn until_made(claims: &Api<PersistentVolumeClaim>, workloads: Workloads) {
    let (end, all) = (Instant::now() + WHILE_ALL_ARE_MADE, ListParams::default());
    loop {
        let there = persist(|| claims.list_metadata(&all)).await.unwrap().items.len();
        if there >= workloads.claims() as usize {
            return;
        }
        assert!(Instant::now() < end, "only {there} claims are made");
        sleep(Duration::from_secs(2)).await;
    }
}

/// Wait until so many PvcAutoscalers have such a status.
async fn until_all(
    autoscalers: &Api<PvcAutoscaler>,
    count: u32,
    is: impl Fn(&PvcAutoscalerStatus) -> bool,
) {
    let (end, any) = (Instant::now() + WHILE_ALL_ARE_MADE, ListParams::default());
    loop {
        let all = persist(|| autoscalers.list(&any)).await.unwrap().items;
        let so = all.iter().filter(|one| one.status.as_ref().is_some_and(&is)).count();
        if so >= count as usize {
            return;
        }
        assert!(Instant::now() < end, "only {so} of {count} PvcAutoscalers are so");
        sleep(Duration::from_secs(2)).await;
    }
}
