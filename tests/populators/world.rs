//! A cluster in memory whose claims are filled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret,
};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use pliant::api::{ArchivePopulator, Filling, PvcSourcePopulator};
use pliant::cluster::Asks;
use pliant::populators::validator::ReportMode;
use pliant::populators::{
    PopulationMetrics, PopulationSettings, Populator, Watches, registry, validator,
};
use pliant::testing::{FakeApi, fake_api};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::play::{self, node_plugins};

pub use crate::play::{Content, End, Play, SELECTED_NODE, fill_pods, object, phase};

/// The namespace of all claims here.
pub const SHOP: &str = "shop";
/// On what is being filled and filled from.
pub const FINALIZER: &str = "pliant.io/populator-protection";
pub const SHOWN: &str = "pliant.io/population-progress";

/// A cluster in memory, and who plays Kubernetes in it.
pub struct World {
    pub api: FakeApi,
    pub play: Arc<Mutex<Play>>,
    _kubernetes: JoinSet<()>,
}

/// An operator, which dies when this is dropped.
pub struct Operator {
    pub counts: Arc<Counts>,
    _tasks: JoinSet<()>,
    _stop: DropGuard,
}

/// What an operator has counted.
#[derive(Default)]
pub struct Counts(Mutex<BTreeMap<String, usize>>);

impl Counts {
    fn count(&self, what: &str) {
        *self.0.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    pub fn of(&self, what: &str) -> usize {
        self.0.lock().unwrap().get(what).copied().unwrap_or_default()
    }
}

impl PopulationMetrics for Counts {
    fn validated(&self, result: &'static str) {
        self.count(result);
    }

    fn filled(&self, result: &'static str, _took: Duration) {
        self.count(&format!("fill {result}"));
    }
}

impl World {
    /// Two nodes, and a class of each binding mode: `fast` waits for a pod, `now` does not; `fixed` is another
    /// driver's.
    pub fn new() -> World {
        let api = fake_api();
        for node in ["alpha", "beta"] {
            let labels = json!({"kubernetes.io/hostname": node});
            api.put(&object::<Node>(json!({"metadata": {"name": node, "labels": labels}})));
        }
        for (class, mode) in [
            ("fast", "WaitForFirstConsumer"),
            ("now", "Immediate"),
            ("fixed", "WaitForFirstConsumer"),
        ] {
            let class =
                json!({"metadata": {"name": class}, "provisioner": "x", "volumeBindingMode": mode});
            api.put(&object::<StorageClass>(class));
        }
        let play = Arc::new(Mutex::new(Play::default()));
        let mut kubernetes = JoinSet::new();
        kubernetes.spawn(play::run(api.clone(), play.clone(), node_plugins::step));
        World { api, play, _kubernetes: kubernetes }
    }

    /// A cluster with one operator that has registered its kinds.
    pub async fn with_an_operator() -> (World, Operator) {
        let world = World::new();
        let operator = world.operator().await;
        (world, operator)
    }

    pub fn play(&self) -> std::sync::MutexGuard<'_, Play> {
        self.play.lock().unwrap()
    }

    /// How many fill pods have run.
    pub fn pods(&self) -> usize {
        self.play().pods
    }

    /// What was in the volumes that were deleted.
    pub fn destroyed(&self) -> Vec<Content> {
        self.play().destroyed.clone()
    }

    /// Start an operator, and wait until it watches.
    pub async fn operator(&self) -> Operator {
        self.operator_with(PopulationSettings::default(), ReportMode::Auto).await
    }

    pub async fn operator_with(&self, settings: PopulationSettings, mode: ReportMode) -> Operator {
        let (client, stop) = (self.api.client_of("operator"), CancellationToken::new());
        let settings = PopulationSettings { image: "pliant:test".to_owned(), ..settings };
        let counts = Arc::new(Counts::default());
        let tally: Arc<dyn PopulationMetrics> = counts.clone();
        let watches = Arc::new(Watches::start(&client, &stop));
        let asks = Asks::start(&client, &stop);
        let archives: Arc<Populator<ArchivePopulator>> =
            Populator::start(&client, &settings, &watches, &asks, &tally, &stop);
        let copies: Arc<Populator<PvcSourcePopulator>> =
            Populator::start(&client, &settings, &watches, &asks, &tally, &stop);
        let mut tasks = JoinSet::new();
        tasks.spawn(archives.run(stop.clone()));
        tasks.spawn(copies.run(stop.clone()));
        let known = Arc::new(registry::watch(&client, &stop).await);
        watches.known().await;
        let (ended, registered, kinds) = (stop.clone(), client.clone(), known.clone());
        tasks.spawn(async move { registry::run(&registered, &kinds, ended).await });
        let ended = stop.clone();
        tasks.spawn(async move {
            validator::run(&client, mode, watches.claims(), &known, &tally, ended).await;
        });
        let registered = |api: &FakeApi| api.list::<pliant::api::VolumePopulator>().len() >= 2;
        self.api.until("the kinds are registered", registered).await;
        Operator { counts, _tasks: tasks, _stop: stop.drop_guard() }
    }

    /// An archive at an address.
    pub fn archive(&self, name: &str) {
        let spec = json!({"url": "https://example.com/site.tar.gz", "sha256": "0".repeat(64)});
        self.archive_of(name, &spec);
    }

    pub fn archive_of(&self, name: &str, spec: &Value) {
        self.api.put(&object::<ArchivePopulator>(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "ArchivePopulator",
            "metadata": {"name": name, "namespace": SHOP}, "spec": spec,
        })));
    }

    /// A populator that copies a claim.
    pub fn copy_of(&self, source: &str, more: &Value) {
        let mut spec = json!({"sourcePvcRef": {"name": source}});
        if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more.clone()) {
            spec.extend(more);
        }
        self.api.put(&object::<PvcSourcePopulator>(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcSourcePopulator",
            "metadata": {"name": source, "namespace": SHOP}, "spec": spec,
        })));
    }

    /// Let a copy begin that was paused.
    pub fn unpause(&self, name: &str) {
        let mut copy: PvcSourcePopulator = self.api.get(&format!("{SHOP}/{name}")).unwrap();
        copy.spec.paused = false;
        self.api.put(&copy);
    }

    /// A claim without a source, and its volume on a node.
    pub async fn source(&self, name: &str, node: &str) {
        self.play().nodes.insert(name.to_owned(), vec![node.to_owned()]);
        self.claim_of(name, "fast", &Value::Null, &json!({}));
        self.until(name, "is bound", |claim| phase(claim) == "Bound").await;
    }

    /// A claim that is filled from an object of this kind.
    pub fn claim(&self, name: &str, class: &str, kind: &str, from: &str) {
        let from = json!({"apiGroup": "pliant.io", "kind": kind, "name": from});
        self.claim_of(name, class, &from, &json!({}));
    }

    pub fn claim_of(&self, name: &str, class: &str, from: &Value, more: &Value) {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}, "dataSourceRef": from,
        });
        if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more.clone()) {
            spec.extend(more);
        }
        let claim = json!({"metadata": {"name": name, "namespace": SHOP}, "spec": spec,
                           "status": {"phase": "Pending"}});
        self.api.put(&object::<PersistentVolumeClaim>(claim));
    }

    /// A pod of the claim is scheduled: to these nodes, one after the other, as often as it has to be.
    pub fn schedule(&self, claim: &str, nodes: &[&str]) {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        self.play().nodes.insert(claim.to_owned(), nodes);
        self.poke();
    }

    /// Let those look who play Kubernetes.
    pub fn poke(&self) {
        let mut node: Node = self.api.get("beta").unwrap();
        let count = node.annotations().get("poke").map_or(0, |text| text.parse().unwrap_or(0));
        node.annotations_mut().insert("poke".to_owned(), (count + 1).to_string());
        self.api.put(&node);
    }

    /// A pod of somebody that uses a claim.
    pub fn pod_of(&self, name: &str, claim: &str, phase: &str) {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        self.api.put(&object::<Pod>(json!({
            "metadata": {"name": name, "namespace": SHOP},
            "spec": {"containers": [], "volumes": [volume]}, "status": {"phase": phase},
        })));
    }

    pub fn config_map(&self, name: &str, key: &str) {
        let data = json!({ key: "" });
        let metadata = json!({"name": name, "namespace": SHOP});
        self.api.put(&object::<ConfigMap>(json!({"metadata": metadata, "binaryData": data})));
    }

    pub fn get_claim(&self, name: &str) -> Option<PersistentVolumeClaim> {
        self.api.get(&format!("{SHOP}/{name}"))
    }

    /// Wait until a claim is as it should be.
    pub async fn until(&self, name: &str, what: &str, is: impl Fn(&PersistentVolumeClaim) -> bool) {
        let seen =
            |api: &FakeApi| api.get(&format!("{SHOP}/{name}")).is_some_and(|claim| is(&claim));
        self.api.until(&format!("claim {name} {what}"), seen).await;
    }

    /// Wait until a claim has its volume, and nothing of the filling is left.
    pub async fn filled(&self, name: &str) {
        self.until(name, "is filled", |claim| {
            phase(claim) == "Bound" && !claim.finalizers().contains(&FINALIZER.to_owned())
        })
        .await;
        self.settled().await;
    }

    /// Wait until a claim tells this.
    pub async fn shows(&self, name: &str, text: &str) {
        let what = format!("shows {text}");
        self.until(name, &what, |claim| {
            claim.annotations().get(SHOWN).is_some_and(|shown| shown.contains(text))
        })
        .await;
    }

    /// Wait until a fill pod runs.
    pub async fn pod_runs(&self) {
        let runs = |pod: &Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        self.api.until("a fill pod runs", |api| fill_pods(api).iter().any(runs)).await;
    }

    /// Let pass what is still under way, and whatever would be repeated by mistake.
    pub async fn settled(&self) {
        tokio::time::sleep(Duration::from_secs(40)).await;
    }

    /// What the status of an archive tells of the claim that it lists first.
    pub fn told(&self, archive: &str) -> Option<Filling> {
        let archive: ArchivePopulator = self.api.get(&format!("{SHOP}/{archive}"))?;
        archive.status?.claims.into_iter().next()
    }

    pub fn told_of_copy(&self, of: &str) -> Option<Filling> {
        let copy: PvcSourcePopulator = self.api.get(&format!("{SHOP}/{of}"))?;
        copy.status?.claims.into_iter().next()
    }

    /// How often each reason was told on a claim.
    pub fn reasons(&self, claim: &str) -> BTreeMap<String, usize> {
        let mut told = BTreeMap::new();
        for event in self.api.list::<Event>() {
            if event.regarding.unwrap_or_default().name.as_deref() == Some(claim) {
                *told.entry(event.reason.unwrap_or_default()).or_default() += 1;
            }
        }
        told
    }

    /// Put this into a claim's volume.
    pub fn put_content(&self, claim: &str, what: &str) {
        let volume = self.get_claim(claim).unwrap().spec.unwrap().volume_name.unwrap();
        self.play().contents.insert(volume, Content::Whole(what.to_owned()));
    }

    /// What a claim's volume contains.
    pub fn content(&self, claim: &str) -> Option<Content> {
        let volume = self.get_claim(claim)?.spec?.volume_name?;
        self.play().contents.get(&volume).cloned()
    }

    /// What is left of fillings: prime claims, fill pods, finalizers and marks of ours, volumes of
    /// nobody.
    pub fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let claims = self.api.list::<PersistentVolumeClaim>();
        for claim in &claims {
            let name = claim.name_any();
            if name.starts_with("prime-") {
                left.push(format!("claim {name}"));
            }
            if claim.finalizers().contains(&FINALIZER.to_owned()) {
                left.push(format!("finalizer of claim {name}"));
            }
        }
        left.extend(fill_pods(&self.api).iter().map(|pod| format!("pod {}", pod.name_any())));
        let secrets = self.api.list::<Secret>();
        left.extend(secrets.iter().map(|secret| format!("secret {}", secret.name_any())));
        let policies = self.api.list::<NetworkPolicy>();
        left.extend(policies.iter().map(|policy| format!("policy {}", policy.name_any())));
        let archives = self.api.list::<ArchivePopulator>();
        let held = archives.iter().filter(|one| one.finalizers().contains(&FINALIZER.to_owned()));
        left.extend(held.map(|one| format!("finalizer of archive {}", one.name_any())));
        let copies = self.api.list::<PvcSourcePopulator>();
        let held = copies.iter().filter(|one| one.finalizers().contains(&FINALIZER.to_owned()));
        left.extend(held.map(|one| format!("finalizer of copy {}", one.name_any())));
        for pv in self.api.list::<PersistentVolume>() {
            let spec = pv.spec.clone().unwrap_or_default();
            let owner = spec.claim_ref.unwrap_or_default().uid;
            if !claims.iter().any(|claim| claim.metadata.uid == owner) {
                left.push(format!("volume of nobody {}", pv.name_any()));
            }
            if spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete")
                || pv.annotations().contains_key("pliant.io/reclaim-policy")
            {
                left.push(format!("marks of volume {}", pv.name_any()));
            }
        }
        left
    }
}

/// In every test the operator writes only what is its own, and no volume is used that is half copied.
impl Drop for World {
    fn drop(&mut self) {
        let writes = self.api.writes();
        let strange = writes.iter().find(|line| !is_allowed(line));
        if !std::thread::panicking() {
            assert_eq!(strange, None, "in {writes:#?}");
            assert_eq!(self.play().wrong, Vec::<String>::new());
        }
    }
}

fn is_allowed(line: &str) -> bool {
    let (call, who) = line.split_once(" by ").expect("all say who they are");
    let (verb, path) = call.split_once(' ').expect("a verb and a path");
    let path: Vec<&str> = path.split('/').collect();
    let sources = ["archivepopulators", "pvcsourcepopulators"];
    // Of an object that cannot be decoded.
    if who == "pliant" {
        return matches!((verb, path.as_slice()), ("POST", ["events", _]));
    }
    who.ends_with("operator")
        && match (verb, path.as_slice()) {
            ("POST", [kind, _]) => {
                ["persistentvolumeclaims", "pods", "secrets", "networkpolicies", "events"]
                    .contains(kind)
            }
            ("PATCH", ["volumepopulators", name]) => name.starts_with("pliant-"),
            ("PATCH", ["persistentvolumeclaims", _, _] | ["persistentvolumes", _])
            | ("POST", ["volumerequests"])
            | ("DELETE", ["volumerequests", _]) => true,
            ("PATCH", [kind, _, _] | [kind, _, _, "status"]) => sources.contains(kind),
            // Nothing is deleted that it has not made.
            ("DELETE", ["persistentvolumeclaims" | "pods", _, name]) => {
                name.starts_with("prime-") || name.starts_with("send-")
            }
            _ => false,
        }
}
