//! Calls of a test: to the API server, which may be away, and to programs, which may not come back.

use std::future::Future;
use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use pliant::api::VolumeRequest;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything here takes, on a machine where all is slow.
pub const PATIENCE: Duration = Duration::from_secs(150);
/// How long a connection may be silent: a watch is asked for again, a call too.
const SILENCE: Duration = Duration::from_secs(60);
/// A command in a pod whose node has died has no end.
const COMMAND: Duration = Duration::from_secs(60);

/// How long after a growth a claim may be edited again. The resizer writes the claim as it has read it into
/// the cache of its own watch: an edit that comes in the milliseconds between is lost to it, until
/// something else changes the claim (external-resizer 2.2.0, `claims.Update`).
pub const SETTLED: Duration = Duration::from_secs(1);

/// The client of `e2e/cluster/with`.
pub async fn client() -> Client {
    let mut config = Config::infer().await.expect("run by e2e/cluster/test");
    config.read_timeout = Some(SILENCE);
    Client::try_from(config).unwrap()
}

/// Ask the API server until it answers: while it is away or comes back it is asked again.
pub async fn persist<T, F>(mut ask: impl FnMut() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        let passes = match &answer {
            Ok(_) => false,
            Err(kube::Error::Api(status)) => status.code >= 500 || status.code == 429,
            Err(_) => true,
        };
        if !passes || Instant::now() > end {
            return answer;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Run kubectl, which `e2e/cluster/with` puts into PATH; `None` if it has not ended within a minute.
pub async fn kubectl(args: &[&str]) -> Option<Output> {
    let command = Command::new("kubectl").args(args).kill_on_drop(true).output();
    timeout(COMMAND, command).await.ok().map(|output| output.expect("kubectl runs"))
}

/// Run a program to its end.
pub async fn output(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().await.expect("the program runs")
}

/// Run a program that has to succeed.
pub async fn must(program: &str, args: &[&str]) {
    let told = output(program, args).await;
    assert!(told.status.success(), "{program} {args:?}: {told:?}");
}

/// Install the chart of this repository with these values, or upgrade to it, and wait until all of it runs.
pub async fn install(values: &[&str]) {
    must("e2e/cluster/install", values).await;
}

/// What a program has said.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// The requests that are there, ended or not.
pub async fn requests(client: &Client) -> Vec<VolumeRequest> {
    let all: Api<VolumeRequest> = Api::all(client.clone());
    let params = ListParams::default();
    persist(|| all.list(&params)).await.unwrap().items
}

/// Wait until the requests are removed that concern such volumes: they are asked for by their id, and
/// by their name where they are made.
pub async fn until_swept(client: &Client, of: impl Fn(&str) -> bool) {
    let concerns = |request: &VolumeRequest| {
        let made = request.spec.operation.creates().is_some_and(|create| of(&create.name));
        made || of(&request.spec.volume_handle)
    };
    let end = Instant::now() + PATIENCE;
    while requests(client).await.iter().any(concerns) {
        assert!(Instant::now() < end, "requests are left");
        sleep(Duration::from_secs(1)).await;
    }
}

/// What the pods of a component of ours tell as metrics.
pub async fn scraped(client: &Client, component: &str) -> String {
    let port = if component == "node" { 9808 } else { 9809 };
    let mut told = String::new();
    for pod in pods_of(client, component).await {
        let path = format!("/api/v1/namespaces/pliant-system/pods/{pod}:{port}/proxy/metrics");
        told += &get(client, &path).await.unwrap_or_default();
    }
    told
}

/// The names of the pods of a component of ours.
pub async fn pods_of(client: &Client, component: &str) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "pliant-system");
    let ours = format!("app.kubernetes.io/component={component}");
    let ours = ListParams::default().labels(&ours);
    let pods = persist(|| pods.list(&ours)).await.unwrap();
    pods.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

pub async fn get(client: &Client, path: &str) -> Result<String, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).expect("a path");
    client.request_text(request).await
}
