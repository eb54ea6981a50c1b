//! The binary as a person types it against a cluster, over a real connection.

#![allow(clippy::disallowed_methods)] // No room of the driver: it starts the binary itself.

use std::path::Path;
use std::process::{Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use pliant::volume::Volumes;
use serde_json::Value;

use crate::people::{claim, furnish, user};
use crate::world::{Controller, Machine, World, want};

/// A cluster, and what a person at a terminal needs to reach it.
pub struct Desk {
    pub world: World,
    place: tempfile::TempDir,
    cluster: Controller,
    _machines: [Machine; 2],
}

impl Desk {
    pub async fn new() -> Desk {
        let (world, cluster, machines) = World::with_two_nodes().await;
        furnish(&world);
        tokio::time::resume(); // The binary lives in the time of the machine.
        let server = world.api.serve().await.unwrap();
        let place = tempfile::tempdir().unwrap();
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, users: [{{name: u, user: {{}}}}], \
             clusters: [{{name: c, cluster: {{server: \"http://{server}\"}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
        );
        std::fs::write(place.path().join("config"), config).unwrap();
        std::os::unix::fs::symlink(cargo_bin("pliant"), place.path().join("kubectl-pliant"))
            .unwrap();
        Desk { world, place, cluster, _machines: machines }
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("KUBECONFIG", self.place.path().join("config"));
        command
    }

    /// Exit code, standard output, standard error.
    pub async fn types(&self, args: &[&str]) -> (Option<i32>, String, String) {
        said(self.command(&cargo_bin("pliant"), args)).await
    }
}

async fn said(mut command: Command) -> (Option<i32>, String, String) {
    // The cluster goes on meanwhile.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_a_cluster_is_answered_in_the_form_that_was_asked_for() {
    let desk = Desk::new().await;
    desk.world.api.put(&claim("2000Mi"));
    let mut pod = user();
    pod.spec.as_mut().unwrap().node_selector = None;
    desk.world.api.put(&pod);
    let (code, text, errors) = desk.types(&["explain", "pvc/db"]).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    insta::assert_snapshot!(text, @r"
    default/db is Pending: it asks for 1.95 GiB of class fast, and no node that may
    run its pod db-0 has that much in one pool.
      alpha  880 MiB  1.09 GiB short
      beta   880 MiB  1.09 GiB short
    Do one of:
      ask for 880Mi or less: make the claim anew, it has no volume yet
        kubectl delete pvc db --namespace default
      add a disk to pool fast of beta
        kubectl edit pool fast
    ");
    for form in ["json", "yaml"] {
        let (code, text, _) = desk.types(&["explain", "db", "-o", form]).await;
        let told: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!((code, told["state"].as_str()), (Some(0), Some("NoRoom")), "{text}");
        let (_, text, _) = desk.types(&["status", "-o", form]).await;
        let told: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(told[1]["metadata"]["name"], "beta", "{text}");
    }
    let (code, text, errors) = desk.types(&["explain", "none", "--namespace", "x"]).await;
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(errors.starts_with("pliant: there is no claim none in namespace x;"), "{errors}");
}

#[tokio::test(start_paused = true)]
async fn doctor_looks_at_the_cluster_when_kubectl_or_a_flag_says_so() {
    let desk = Desk::new().await;
    let plugin = desk.place.path().join("kubectl-pliant");
    let (code, all, _) = desk.types(&["doctor", "--cluster"]).await;
    assert_eq!(code, Some(1), "there is no CSIDriver: {all}");
    assert!(all.contains("✓ node beta: 880 MiB of 880 MiB free, volumes: 0"), "{all}");
    let by_kubectl = said(desk.command(&plugin, &["doctor"])).await;
    assert_eq!(by_kubectl.1, all.replace("pliant crds", "kubectl pliant crds"));
    let (code, one, _) = desk.types(&["doctor", "alpha"]).await;
    assert_eq!((code, one.lines().count()), (Some(0), 2), "{one}");
    let (code, _, errors) = desk.types(&["doctor", "gamma"]).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("there is no node gamma"), "{errors}");
}

#[tokio::test(start_paused = true)]
async fn what_is_adopted_and_reported_is_printed_as_documents() {
    let desk = Desk::new().await;
    let (code, text, _) = desk.types(&["adopt", "--all"]).await;
    assert_eq!((code, text.as_str()), (Some(0), "every volume has its PersistentVolume\n"));
    let made = desk.cluster.ensure(&want("pvc-1", 100, &["beta"])).await.unwrap().id.to_string();
    desk.world
        .api
        .delete::<pliant::api::VolumeRequest>(&desk.world.request().metadata.name.unwrap());
    let (code, text, errors) = desk.types(&["adopt", "--all", "--dry-run"]).await;
    assert_eq!((code, text.as_str()), (Some(1), ""), "nobody told the namespace");
    assert!(errors.contains("name one with --namespace and --claim"), "{errors}");
    let (_, text, _) = desk.types(&["adopt", &made, "-n", "default", "--dry-run"]).await;
    let kinds = text.split("---\n").skip(1).map(|one| {
        let object: Value = serde_saphyr::from_str(one).unwrap();
        object["kind"].as_str().unwrap().to_owned()
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["PersistentVolume", "PersistentVolumeClaim"]);

    let (code, text, _) = desk.types(&["report"]).await;
    let first: Value = serde_saphyr::from_str(text.split("---\n").nth(1).unwrap()).unwrap();
    assert_eq!((code, first["what"].as_str()), (Some(0), Some("report")), "{text}");
    let file = desk.place.path().join("report.yaml");
    let (code, text, _) = desk.types(&["report", "--output", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(std::fs::read_to_string(file).unwrap().contains(&made));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_is_no_failure() {
    let desk = Desk::new().await;
    let mut command = desk.command(&cargo_bin("pliant"), &["report"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended =
        tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}
