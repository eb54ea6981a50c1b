//! What people type: why a claim waits, what is lost, and how it is taken back.

use std::collections::BTreeSet;
use std::process::Output;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pliant::volume::DRIVER;
use serde_json::json;

use crate::calls::{output, said, until_swept};
use crate::claim::capacity;
use crate::repository::{blocks, files, read};
use crate::world::{World, run};

/// Run the command.
pub async fn pliant(args: &[&str]) -> Output {
    output(env!("CARGO_BIN_EXE_pliant"), args).await
}

/// What `pliant explain` says of a claim.
pub async fn explained(world: &World, claim: &str) -> String {
    let told = pliant(&["explain", claim, "--namespace", &world.name]).await;
    assert!(told.status.success(), "{told:?}");
    said(&told)
}

#[test]
fn a_claim_that_waits_is_explained() {
    run("a_claim_that_waits_is_explained", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let told = explained(&world, "data").await;
        assert!(told.contains("is Pending: waiting for a pod"), "{told}");

        world.pod("app", "data", "sleep 9999", json!({})).await;
        let told = explained(&world, "data").await;
        assert!(told.contains("64 MiB") && told.contains("node"), "{told}");
    });
}

/// The id by which the driver knows the volume of a PersistentVolume.
pub async fn handle(world: &World, volume: &str) -> String {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let source = volumes.get(volume).await.unwrap().spec.unwrap().csi.unwrap();
    assert_eq!(source.driver, DRIVER);
    source.volume_handle
}

/// Change what becomes of a volume whose claim is removed: what was adopted is kept.
pub async fn keep(world: &World, volume: &str, policy: &str) {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({"spec": {"persistentVolumeReclaimPolicy": policy}}));
    volumes.patch(volume, &PatchParams::default(), &patch).await.unwrap();
}

/// Claim and PersistentVolume are removed by mistake; the volume with its data is still there, is told
/// of, and taken back.
#[test]
fn a_volume_that_nobody_names_is_found_and_adopted() {
    run("a_volume_that_nobody_names_is_found_and_adopted", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        world.pod("app", "data", "echo kept >/data/file; sync; sleep 9999", json!({})).await;
        let volume = world.get_claim("data").await.spec.unwrap().volume_name.unwrap();
        let id = handle(&world, &volume).await;
        keep(&world, &volume, "Retain").await;
        world.remove_pod("app").await;
        world.forget_claim("data").await;

        // While a request for it is there, it may be on its way.
        until_swept(&world.client, |one| one == id || one == volume).await;
        let told = pliant(&["doctor", "--cluster"]).await;
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        assert!(said(&told).contains(&id), "{told:?}");

        let again = [
            "recover",
            &id,
            "--namespace",
            &world.name,
            "--claim",
            "back",
            "--storage-class",
            "pliant",
        ];
        let told = pliant(&again).await;
        assert!(told.status.success(), "{told:?}");
        world.pod("again", "back", "sleep 9999", json!({})).await;
        assert_eq!(world.exec("again", "cat /data/file").await, "kept");
        let volume = world.get_claim("back").await.spec.unwrap().volume_name.unwrap();
        keep(&world, &volume, "Delete").await;
    });
}

/// Remove a PersistentVolume by hand, and what holds it.
async fn force(world: &World, volume: &str) {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    volumes.delete(volume, &DeleteParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch(volume, &PatchParams::default(), &patch).await.unwrap();
}

fn phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

/// A PersistentVolume, whose policy is Delete, is removed by hand under a pod: the volume stays and is told of,
/// the pod goes on, and the claim gets its volume back.
#[test]
fn a_claim_that_lost_its_volume_gets_it_back() {
    run("a_claim_that_lost_its_volume_gets_it_back", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let node =
            world.pod("app", "data", "echo kept >/data/file; sync; sleep 9999", json!({})).await;
        let volume = world.get_claim("data").await.spec.unwrap().volume_name.unwrap();
        let id = handle(&world, &volume).await;
        // While a request for it is there, it may be on its way.
        until_swept(&world.client, |one| one == id || one == volume).await;
        force(&world, &volume).await;
        let is = |wanted| move |claim: &PersistentVolumeClaim| phase(claim) == Some(wanted);
        world.until::<PersistentVolumeClaim>("data", "is Lost", is("Lost")).await;

        let told = pliant(&["doctor", "--cluster"]).await;
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        assert!(said(&told).contains(&id), "{told:?}");
        assert_eq!(world.on_nodes(&volume).await, Some(node));

        let told = pliant(&["recover", &id]).await;
        assert!(told.status.success(), "{told:?}");
        keep(&world, &volume, "Delete").await;
        world.until::<PersistentVolumeClaim>("data", "is Bound again", is("Bound")).await;
        world.resize("data", "96Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == "96Mi"
            })
            .await;
        assert_eq!(world.exec("app", "cat /data/file").await, "kept");
    });
}

/// Commands of kubectl in the blocks of a page, without what follows a sign of the shell.
fn kubectl_commands(page: &str) -> Vec<String> {
    let blocks = blocks(page).into_iter();
    let blocks = blocks.filter(|(kind, _)| kind == "sh" || kind.starts_with("console"));
    let text = blocks.map(|(_, text)| text).collect::<String>().replace("\\\n", " ");
    let lines = text.lines().map(|line| line.trim().trim_start_matches("$ "));
    let ours = |line: &&str| line.starts_with("kubectl ") && !line.starts_with("kubectl pliant");
    let until_sign = |line: &str| {
        let ends = [" |", " <<", " >", " &&", " -- ", " #"];
        let end = ends.iter().filter_map(|sign| line.find(sign)).min();
        line[..end.unwrap_or(line.len())].to_owned()
    };
    lines.filter(ours).map(until_sign).collect()
}

/// kubectl reads the flags of a command before it shows its help.
#[test]
fn kubectl_knows_every_flag_of_a_command_in_the_documents() {
    let pages = files("docs/src", "md").into_iter().map(|page| read(&page));
    let commands: BTreeSet<String> = pages.flat_map(|page| kubectl_commands(&page)).collect();
    assert!(commands.len() > 100, "only {} are found", commands.len());
    let mut wrong = Vec::new();
    for command in commands {
        let script = format!("{command} --help");
        let ran = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        if !ran.status.success() {
            wrong.push(format!("{command}: {}", String::from_utf8_lossy(&ran.stderr)));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
