//! The binary as a person types it against a cluster, over a real connection.

#![allow(clippy::disallowed_methods)] // No room of the driver: it starts the binary itself.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use pliant::bytes::Bytes;
use pliant::volume::Volumes;
use serde_json::{Value, json};

use crate::people::{claim, furnish, typed, user};
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

    /// Exit code, and what a terminal shows of the command and of this answer to its question.
    pub async fn answers(&self, args: &[&str], answer: &str) -> (Option<i32>, String) {
        let typed = format!("{} {}", cargo_bin("pliant").display(), args.join(" "));
        let mut command = self.command(Path::new("script"), &["-qec", &typed, "/dev/null"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(answer.as_bytes()).unwrap();
        // The cluster goes on meanwhile.
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
        let ended = ended.await.unwrap();
        (ended.status.code(), String::from_utf8(ended.stdout).unwrap().replace('\r', ""))
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
    default/db is Pending: it requests 1.95 GiB of class fast, and no node that may
    run its pod db-0 has that much in one pool.
      alpha  880 MiB  1.09 GiB short
      beta   880 MiB  1.09 GiB short
    Do one of:
      request 880Mi or less: create the claim again, it has no volume yet
        kubectl delete pvc db --namespace default
      add a disk to pool fast of beta
        kubectl edit storagepool fast
    ");
    for form in ["json", "yaml"] {
        let (code, text, _) = desk.types(&["explain", "db", "-o", form]).await;
        let told: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            (code, told["state"].as_str()),
            (Some(0), Some("InsufficientCapacity")),
            "{text}"
        );
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

/// A claim of this name that waits for its first pod.
fn waiting(name: &str) -> PersistentVolumeClaim {
    typed(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    }))
}

#[tokio::test(start_paused = true)]
async fn each_claim_of_a_workload_is_explained() {
    let desk = Desk::new().await;
    for name in ["data-db-0", "data-db-1", "data-db-1x", "data-dbs-0", "shared", "other"] {
        desk.world.api.put(&waiting(name));
    }
    let named = |claim: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
    let template = |claim: &str| json!({"spec": {"containers": [], "volumes": [named(claim)]}});
    desk.world.api.put::<StatefulSet>(&typed(json!({
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"selector": {}, "serviceName": "db", "template": template("shared"),
                 "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]},
    })));
    desk.world.api.put::<Deployment>(&typed(json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {}, "template": template("other")},
    })));
    for (address, claims) in [
        ("sts/db", &["data-db-0", "data-db-1", "shared"][..]),
        ("StatefulSet/db", &["data-db-0", "data-db-1", "shared"]),
        ("deploy/web", &["other"]),
    ] {
        let (code, text, errors) = desk.types(&["explain", address, "-o", "json"]).await;
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{address}");
        let told: Vec<Value> = serde_json::from_str(&text).unwrap();
        let about: Vec<&str> = told.iter().filter_map(|one| one["subject"].as_str()).collect();
        let expected: Vec<String> = claims.iter().map(|name| format!("default/{name}")).collect();
        assert_eq!(about, expected, "{address}");
        assert!(told.iter().all(|one| one["state"] == "WaitForFirstConsumer"), "{text}");
    }
    let (_, text, _) = desk.types(&["explain", "sts/db"]).await;
    assert_eq!(text.matches("is Pending: waiting for a pod").count(), 3, "{text}");
    for (address, words) in [
        ("sts/none", "there is no StatefulSet none in namespace default"),
        ("deploy/none", "there is no Deployment none in namespace default"),
        ("pvcas/none", "there is no PvcAutoscaler none in namespace default"),
        ("node/none", "there is no node none"),
        ("pool/none", "there is no pool none"),
    ] {
        let (code, _, errors) = desk.types(&["explain", address]).await;
        assert_eq!((code, errors.contains(words)), (Some(1), true), "{address}: {errors}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_and_a_pool_are_explained_by_their_findings() {
    let desk = Desk::new().await;
    let (code, text, errors) = desk.types(&["explain", "node/alpha"]).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert_eq!(text, desk.types(&["doctor", "node/alpha"]).await.1);
    assert_eq!(text, desk.types(&["doctor", "alpha"]).await.1);
    let (code, text, errors) = desk.types(&["explain", "pool/fast"]).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for node in ["alpha", "beta"] {
        let line = format!("✓ node {node}, pool fast: 880 MiB of 880 MiB free, volumes: 0\n");
        assert!(text.contains(&line), "{text}");
    }
    let (_, text, _) = desk.types(&["explain", "pool/fast", "-o", "json"]).await;
    let findings: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(findings[1]["severity"], "ok", "{text}");
}

#[tokio::test(start_paused = true)]
async fn versions_are_those_of_the_client_and_of_the_server() {
    let desk = Desk::new().await;
    let version = env!("CARGO_PKG_VERSION");
    let (_, text, _) = desk.types(&["version", "-o", "json"]).await;
    let told: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({"clientVersion": version, "serverVersion": {"nodes": {version: 2}}});
    assert_eq!(told, expected);
    let (code, text, errors) = desk.types(&["version", "--context", "nowhere"]).await;
    assert_eq!((code, text), (Some(1), format!("Client version: {version}\n")));
    assert!(errors.contains("no context nowhere"), "{errors}");
}

#[tokio::test(start_paused = true)]
async fn what_is_recovered_and_reported_is_printed_as_documents() {
    let desk = Desk::new().await;
    let (code, text, _) = desk.types(&["recover", "--all"]).await;
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "no volume is orphaned: each has its PersistentVolume\n")
    );
    let made = desk.cluster.ensure(&want("pvc-1", 100, &["beta"])).await.unwrap().id.to_string();
    desk.world
        .api
        .delete::<pliant::api::VolumeRequest>(&desk.world.request().metadata.name.unwrap());
    let (code, text, errors) = desk.types(&["recover", "--all", "--dry-run"]).await;
    assert_eq!((code, text.as_str()), (Some(1), ""), "nobody told the namespace");
    assert!(errors.contains("name one with --namespace and --claim"), "{errors}");
    let (_, text, _) = desk.types(&["recover", &made, "-n", "default", "--dry-run"]).await;
    let kinds = text.split("---\n").skip(1).map(|one| {
        let object: Value = serde_saphyr::from_str(one).unwrap();
        object["kind"].as_str().unwrap().to_owned()
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["PersistentVolume", "PersistentVolumeClaim"]);

    let (code, text, _) = desk.types(&["report"]).await;
    let first: Value = serde_saphyr::from_str(text.split("---\n").nth(1).unwrap()).unwrap();
    assert_eq!((code, first["section"].as_str()), (Some(0), Some("report")), "{text}");
    let file = desk.place.path().join("report.yaml");
    let (code, text, _) = desk.types(&["report", "--output-file", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(std::fs::read_to_string(file).unwrap().contains(&made));
}

#[tokio::test(start_paused = true)]
async fn a_report_to_a_dash_is_standard_output_and_no_file() {
    let desk = Desk::new().await;
    let mut command = desk.command(&cargo_bin("pliant"), &["report", "--output-file", "-"]);
    command.current_dir(desk.place.path());
    let (code, text, errors) = said(command).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(!desk.place.path().join("-").exists(), "no file has the name of standard output");
    let documents = text.split("---\n").skip(1);
    let parts: Vec<Value> = documents.map(|one| serde_saphyr::from_str(one).unwrap()).collect();
    let contents = parts[0]["content"]["sections"].as_array().unwrap();
    assert_eq!(contents.len() + 1, parts.len(), "nothing but the report is printed: {text}");
}

#[tokio::test(start_paused = true)]
async fn every_size_that_kubernetes_takes_can_be_asked_for() {
    let desk = Desk::new().await;
    for (size, bytes) in [
        ("1.2e9", 1_200_000_000),
        ("12E8", 1_200_000_000),
        ("1200M", 1_200_000_000),
        ("1.1Gi", 1_181_116_007),
        ("1181116006400m", 1_181_116_007),
        ("+1Gi", 1 << 30),
        ("1073741824", 1 << 30),
    ] {
        let mut bound = claim("1Mi");
        bound.status = typed(json!({"phase": "Bound", "capacity": {"storage": size}}));
        desk.world.api.delete::<PersistentVolumeClaim>("default/db");
        desk.world.api.put(&bound);
        let (code, text, errors) = desk.types(&["expand", "db", size]).await;
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{size}");
        let line = format!("request     {}, accepted\n", Bytes::new(bytes));
        let see = "see         pliant explain pvc/db --namespace default\n";
        assert_eq!(text, format!("{line}{see}"), "{size}");
        let claim: PersistentVolumeClaim = desk.world.api.get("default/db").unwrap();
        let asked = &claim.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].0;
        assert_eq!(asked.parse(), Ok(Bytes::new(bytes)), "{size}: {asked}");
    }
    for size in ["1GiB", "1 Gi", "much"] {
        let (code, _, errors) = desk.types(&["expand", "db", size]).await;
        assert_eq!(code, Some(2), "{errors}");
        let says = format!("`{size}` is not a size");
        assert!(errors.contains(&says), "{errors}");
    }
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

#[tokio::test(start_paused = true)]
async fn a_person_says_which_cluster_is_asked_and_as_whom() {
    let desk = Desk::new().await;
    let other = desk.place.path().join("other");
    let config = std::fs::read_to_string(desk.place.path().join("config")).unwrap();
    // Its current context leads nowhere.
    let config = config.replace("current-context: c", "current-context: none");
    std::fs::write(&other, &config).unwrap();
    let other = other.to_str().unwrap();
    let (code, text, errors) =
        desk.types(&["version", "--kubeconfig", other, "--context", "c"]).await;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert_eq!(text, format!("Client version: {version}\nServer version: {version} (2 nodes)\n"));
    let (code, _, errors) = desk.types(&["status", "--context", "nowhere"]).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("the kubeconfig has no context nowhere; `kubectl config"), "{errors}");
    let (code, text, _) =
        desk.types(&["version", "--client", "-o", "json", "--context", "none"]).await;
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, told), (Some(0), json!({"clientVersion": version})));

    let groups = ["--as-group", "dba", "--as-group", "ops"];
    let args = [&["status", "--as", "eve"][..], &groups].concat();
    let (code, _, errors) = desk.types(&args).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let acted = desk.world.api.acted_as();
    assert!(!acted.is_empty());
    let expected = ("eve".to_owned(), vec!["dba".to_owned(), "ops".to_owned()]);
    assert!(acted.iter().all(|one| *one == expected), "{acted:?}");
    let (code, _, errors) = desk.types(&["status", "--as-group", "dba"]).await;
    assert_eq!((code, errors.contains("--as <USER>")), (Some(2), true), "{errors}");
}

/// What a program prints next, up to these words.
async fn read_until(mut printed: ChildStdout, end: &'static str) -> (String, ChildStdout) {
    let read = move || {
        let mut text = String::new();
        while !text.contains(end) {
            let mut some = [0; 4096];
            let read = printed.read(&mut some).unwrap();
            assert_ne!(read, 0, "it goes on: {text}");
            text += &String::from_utf8_lossy(&some[..read]);
        }
        (text, printed)
    };
    // The cluster goes on meanwhile.
    tokio::task::spawn_blocking(read).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_is_printed_again_when_it_has_changed() {
    let desk = Desk::new().await;
    let put = |ready: i32| {
        desk.world.api.put::<pliant::api::PvcAutoscaler>(&typed(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"statefulSetName": "db", "volumeClaimTemplate": {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                         "resources": {"requests": {"storage": "8Gi"}}}}},
            "status": {"observedGeneration": 1, "phase": "InSync",
                       "claimCount": 1, "readyClaimCount": ready, "ordinals": []},
        })));
    };
    put(0);
    let mut command = desk.command(&cargo_bin("pliant"), &["plan", "-A", "--watch"]);
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let printed = watching.stdout.take().unwrap();
    let end = "No claim exists yet.\n";
    let (first, printed) = read_until(printed, end).await;
    assert!(
        first.starts_with("shop/db manages the claims of StatefulSet db: InSync, 0/1"),
        "{first}"
    );
    put(1);
    let (second, _) = read_until(printed, end).await;
    assert!(
        second.starts_with("\nshop/db manages the claims of StatefulSet db: InSync, 1/1"),
        "{second}"
    );
    watching.kill().unwrap();
    watching.wait().unwrap();
}
