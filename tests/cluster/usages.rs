//! How full volumes are, as their nodes tell it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pliant::api::{NodeStorage, VolumeUsage};
use pliant::bytes::Bytes;
use pliant::controllers::sampling;
use pliant::testing::{Failing, FakeApi};
use pliant::volume::{NodeVolumes, Stage, Volumes};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::world::{Controller, Machine, World, growth, id, stage, want};

const PERIOD: Duration = Duration::from_secs(30);

fn staged(name: &str) -> Stage {
    let staging = PathBuf::from("/var/lib/kubelet").join(name);
    Stage { id: id("alpha", name), staging, ..stage() }
}

/// A node whose file systems are asked how full they are, with these volumes staged.
async fn world(names: &[&str]) -> (World, Controller, Machine, JoinHandle<()>) {
    let (world, cluster, alpha) = World::with_a_node().await;
    for name in names {
        cluster.ensure(&want(name, 100, &[])).await.unwrap();
        world.keep("alpha", name);
        alpha.node.stage(&staged(name)).await.unwrap();
    }
    world.cleaned().await;
    let asked = asked(&alpha);
    (world, cluster, alpha, asked)
}

fn asked(alpha: &Machine) -> JoinHandle<()> {
    let (node, storage) = (alpha.node.clone(), alpha.storage.clone());
    tokio::spawn(sampling::report(node, storage, PERIOD, CancellationToken::new()))
}

fn told(api: &FakeApi) -> Vec<VolumeUsage> {
    api.get::<NodeStorage>("alpha").and_then(|record| record.status).unwrap_or_default().usage
}

fn used(api: &FakeApi) -> Vec<u64> {
    told(api).iter().map(|one| one.usage.used.0.get() >> 20).collect()
}

fn fill(alpha: &Machine, name: &str, mib: u64) {
    alpha.host.fill(&staged(name).staging, Bytes::mib(mib));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_moves() {
    let (world, _cluster, alpha, _asked) = world(&["pvc-1", "pvc-2"]).await;
    world.api.until("the first samples are told", |api| told(api).len() == 2).await;
    world.api.forget_writes();
    for minute in 0..60 {
        fill(&alpha, "pvc-1", 1 + minute % 9);
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(world.api.writes(), Vec::<String>::new());
    assert_eq!(alpha.node.remembered_usages()[&id("alpha", "pvc-1")].used, Bytes::mib(1 + 59 % 9));
}

#[tokio::test(start_paused = true)]
async fn many_that_move_are_told_by_one_write() {
    let names = ["pvc-1", "pvc-2", "pvc-3", "pvc-4"];
    let (world, _cluster, alpha, _asked) = world(&names).await;
    world.api.until("the first samples are told", |api| told(api).len() == 4).await;
    world.api.forget_writes();
    for (turn, mib) in (1..).zip([50, 71, 86, 96]) {
        for name in names {
            fill(&alpha, name, mib);
        }
        world.api.until("they are told", |api| used(api) == [mib; 4]).await;
        sleep(PERIOD).await;
        assert_eq!(world.api.writes().len(), turn);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_size_is_told() {
    let (world, cluster, _alpha, _asked) = world(&["pvc-1"]).await;
    let size = |api: &FakeApi| told(api).first().map(|one| one.usage.capacity.0);
    world.api.until("it is told", |api| size(api) == Some(Bytes::mib(100))).await;
    cluster.grow(&id("alpha", "pvc-1"), growth(200)).await.unwrap();
    world.api.until("the new size is told", |api| size(api) == Some(Bytes::mib(200))).await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_answer_is_not_told_and_the_others_are() {
    let (world, _cluster, alpha, _asked) = world(&["pvc-1", "pvc-2"]).await;
    world.api.until("both are told", |api| told(api).len() == 2).await;
    let hung = staged("pvc-1").staging;
    alpha.host.fail(&format!("statfs {}", hung.display()), Failing::Always);
    fill(&alpha, "pvc-2", 90);
    world.api.until("the other one is told", |api| used(api) == [90]).await;
    assert_eq!(told(&world.api)[0].volume_handle, id("alpha", "pvc-2").to_string());
    alpha.host.mend();
    world.api.until("it answers again", |api| told(api).len() == 2).await;
    alpha.node.unstage(&id("alpha", "pvc-1"), Path::new(&hung)).await.unwrap();
    world.api.until("it is no longer mounted", |api| told(api).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_one_file_system_is_asked_is_no_silence_of_the_others() {
    let (world, _cluster, alpha, _asked) = world(&["pvc-1", "pvc-2"]).await;
    world.api.until("both are told", |api| told(api).len() == 2).await;
    alpha.host.panic_at(&format!("statfs {}", staged("pvc-1").staging.display()));
    fill(&alpha, "pvc-2", 90);
    world.api.until("the other one is told", |api| used(api) == [90]).await;
    alpha.host.mend();
    world.api.until("it answers again", |api| told(api).len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_plugin_that_starts_anew_writes_nothing_of_what_has_not_moved() {
    let (world, _cluster, alpha, asked_before) = world(&["pvc-1"]).await;
    world.api.until("it is told", |api| told(api).len() == 1).await;
    let before = told(&world.api);
    asked_before.abort();
    // The process dies, the kernel and its mounts live on.
    let (host, node) = (alpha.host.clone(), alpha.node.clone());
    drop((alpha, node));
    let alpha = world.restart("alpha", host).await;
    alpha.storage.until_published().await;
    let _asked = asked(&alpha);
    sleep(PERIOD * 4).await;
    assert_eq!(told(&world.api), before);
}
