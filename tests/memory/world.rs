//! What a running operator keeps of the objects of a kind.

#![allow(unsafe_code)] // One call, which reads a figure of the heap.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use pliant::api::{ArchivePopulator, PvcAutoscaler, PvcSourcePopulator};
use pliant::claims::{ClaimsController, Webhook, WorkloadCoverage};
use pliant::cluster::{Asks, Watched, every};
use pliant::controllers::{resync, topology};
use pliant::populators::validator::ReportMode;
use pliant::populators::{PopulationSettings, Populator, Watches, registry, validator};
use pliant::testing::{FakeApi, fake_api};
use pliant::volume::DRIVER;
use pliant::webhook::Naming;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Objects of a kind, how many there are and how many are measured.
pub struct Kind {
    pub name: &'static str,
    pub there: usize,
    pub measured: usize,
    pub put: fn(&FakeApi, usize),
}

/// What there is most of, each alone.
pub const KINDS: [Kind; 3] = [
    Kind {
        name: "claims",
        there: 10_000,
        measured: 10_000,
        put: |api, at| api.put_json::<PersistentVolumeClaim>(claim(at / 3, at % 3)),
    },
    Kind {
        name: "PersistentVolumes",
        there: 10_000,
        measured: 10_000,
        put: |api, at| api.put_json::<PersistentVolume>(volume(at)),
    },
    Kind {
        name: "StatefulSets",
        there: 3_333,
        measured: 3_333,
        put: |api, at| api.put_json::<StatefulSet>(set(at)),
    },
];

/// The largest world. A look at a PvcAutoscaler asks the API server: of those fewer are measured.
pub const WORLD: [Kind; 2] = [
    Kind {
        name: "PvcAutoscalers with a StatefulSet and three claims",
        there: 3_333,
        measured: 150,
        put: |api, at| {
            (0..3).for_each(|ordinal| api.put_json::<PersistentVolumeClaim>(claim(at, ordinal)));
            api.put_json::<StatefulSet>(set(at));
            api.put_json::<PvcAutoscaler>(autoscaler(at));
        },
    },
    Kind {
        name: "PvcAutoscalers that wait for a StatefulSet",
        there: 5_000,
        measured: 150,
        put: |api, at| api.put_json::<PvcAutoscaler>(autoscaler(at)),
    },
];

/// How the API server says who wrote what: as much as all else of an object.
fn written() -> Value {
    let field =
        json!({"f:spec": {"f:volumeClaimTemplate": {".": {}, "f:metadata": {}, "f:spec": {}}}});
    let by = |who: &str| {
        json!({"manager": who, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
               "time": "2026-11-01T00:00:00Z", "fieldsV1": field})
    };
    json!([by("kubectl"), by("pliant-operator")])
}

fn metadata(kind: &str, name: &str, at: usize) -> Value {
    json!({"name": name, "namespace": format!("team-{}", at % 3), "uid": format!("{kind:0>8}-0000-0000-0000-{at:012}"),
           "creationTimestamp": "2026-11-01T00:00:00Z", "generation": 1, "managedFields": written()})
}

fn claim(of: usize, ordinal: usize) -> Value {
    let at = of * 3 + ordinal;
    let mut metadata = metadata("c", &format!("data-w{of}-{ordinal}"), of);
    metadata["uid"] = json!(format!("0000000c-0000-0000-0000-{at:012}"));
    metadata["labels"] = json!({"pliant.io/pvc-autoscaler": format!("w{of}"), "pliant.io/ordinal": ordinal.to_string()});
    metadata["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    json!({
        "metadata": metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "pliant", "volumeMode": "Filesystem",
                 "volumeName": format!("pvc-0000000c-0000-0000-0000-{at:012}"),
                 "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    })
}

fn volume(at: usize) -> Value {
    json!({
        "metadata": {"name": format!("pvc-0000000c-0000-0000-0000-{at:012}"),
                     "uid": format!("0000000d-0000-0000-0000-{at:012}"), "managedFields": written()},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "pliant",
                 "claimRef": {"namespace": "team-0", "name": format!("data-w{at}-0"),
                              "uid": format!("0000000c-0000-0000-0000-{at:012}")},
                 "csi": {"driver": DRIVER, "volumeHandle": format!("0123abcd-{at:026}")}},
        "status": {"phase": "Bound"},
    })
}

fn set(at: usize) -> Value {
    let name = format!("w{at}");
    json!({
        "metadata": metadata("5", &name, at),
        "spec": {"serviceName": name, "replicas": 3, "selector": {"matchLabels": {"app": name}},
                 "template": {"metadata": {"labels": {"app": name}},
                              "spec": {"containers": [{"name": "app", "image": "busybox:1"}]}}},
        "status": {"replicas": 3, "observedGeneration": 1},
    })
}

fn autoscaler(at: usize) -> Value {
    let name = format!("w{at}");
    json!({
        "metadata": metadata("a", &name, at),
        "spec": {"statefulSetName": name, "volumeClaimTemplate": {"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "pliant",
            "resources": {"requests": {"storage": "1Gi"}}}}},
    })
}

/// Bytes of the heap that are in use, of whichever arena.
fn in_use() -> usize {
    // SAFETY: takes nothing, and returns integers.
    let heap = unsafe { nix::libc::mallinfo2() };
    heap.uordblks + heap.hblkhd
}

struct Everything;

#[async_trait]
impl Webhook for Everything {
    async fn coverage(&self, _: &str, _: &str) -> Result<WorkloadCoverage, kube::Error> {
        Ok(WorkloadCoverage::Covered)
    }
}

struct Nobody;

impl pliant::populators::PopulationMetrics for Nobody {
    fn validated(&self, _: &'static str) {}
    fn filled(&self, _: &'static str, _: Duration) {}
}

impl pliant::claims::ClaimsMetrics for Nobody {
    fn paused(&self, _: Duration) {}
}

/// How many bytes a running operator takes beside such objects, once it has seen all of them.
pub fn kept(put: impl Fn(&FakeApi)) -> usize {
    let api = fake_api();
    put(&api);
    // The first one writes what there is to write, which is kept by the API server.
    run(&api, || 0);
    api.compact();
    let before = in_use();
    run(&api, in_use).saturating_sub(before)
}

/// Run an operator, and end all of it.
fn run(api: &FakeApi, measure: fn() -> usize) -> usize {
    block_on(operate(api, measure))
}

/// Run in virtual time; what was begun meanwhile is gone when this returns.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(work)
}

/// Run an operator until it has nothing left to do, and measure then.
async fn operate(api: &FakeApi, measure: fn() -> usize) -> usize {
    let (client, stop) = (api.client(), CancellationToken::new());
    let settings =
        PopulationSettings { image: "pliant".to_owned(), ..PopulationSettings::default() };
    let tally: Arc<dyn pliant::populators::PopulationMetrics> = Arc::new(Nobody);
    let watches = Arc::new(Watches::start(&client, &stop));
    let asks = Asks::start(&client, &stop);
    let archives: Arc<Populator<ArchivePopulator>> =
        Populator::start(&client, &settings, &watches, &asks, &tally, &stop);
    let copies: Arc<Populator<PvcSourcePopulator>> =
        Populator::start(&client, &settings, &watches, &asks, &tally, &stop);
    let keeper = ClaimsController::start(
        &client,
        &watches,
        &asks,
        Arc::new(Everything),
        Arc::new(Nobody),
        &stop,
    );
    let names: Watched<Naming> = Watched::start(Api::all(client.clone()), every(), &stop);
    let kinds = registry::watch(&client, &stop).await;
    let loops = async {
        tokio::join!(
            keeper.run(stop.clone()),
            archives.run(stop.clone()),
            copies.run(stop.clone()),
            validator::run(
                &client,
                ReportMode::Auto,
                watches.claims(),
                &kinds,
                &tally,
                stop.clone()
            ),
            resync::wake_resizer(&client, watches.claims(), stop.clone()),
            topology::report(&client, watches.claims(), stop.clone()),
        )
    };
    let measured = async {
        names.known().await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let measured = measure();
        stop.cancel();
        measured
    };
    tokio::join!(measured, loops).0
}
