//! A cluster in memory with a StatefulSet whose claims are kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pliant::api::{
    AutoscalerPhase, GATE, NodeStorage, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus,
    PvcSourcePopulator, Swap, is_gated,
};
use pliant::claims::{ClaimsController, Webhook, WorkloadCoverage};
use pliant::cluster::{Asks, EXCHANGE};
use pliant::populators::{PopulationMetrics, PopulationSettings, Populator, Watches};
use pliant::testing::{FakeApi, fake_api};
use pliant::volume::{DRIVER, Use};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::play::{self, Content, Play, SELECTED_NODE, node_plugins, object, phase};
use crate::play::{claim_of, is_running, volume_of};

/// The namespace of all here.
pub const SHOP: &str = "shop";

/// One pod with 4 GiB of class hdd.
pub async fn one_pod(own: &[&str]) -> (World, Operator) {
    let (world, operator) = World::with_an_operator();
    world.set(1, own);
    world.want("4Gi", "hdd", &json!({}));
    world.settled("1/1").await;
    world.write();
    (world, operator)
}

/// How many PersistentVolumes are in an exchange.
pub fn in_exchange(api: &FakeApi) -> usize {
    let all = api.list::<PersistentVolume>();
    all.iter().filter(|pv| pv.annotations().contains_key(EXCHANGE)).count()
}

/// The swap of the first pod.
pub fn swap(status: &PvcAutoscalerStatus) -> Option<Swap> {
    status.of(0).and_then(|one| one.swap.clone())
}

/// A cluster in memory, and who plays Kubernetes in it.
pub struct World {
    pub api: FakeApi,
    play: Arc<Mutex<Play>>,
    pauses: Arc<Pauses>,
    webhook: Arc<Everything>,
    kubernetes: JoinSet<()>,
}

/// An operator, which dies when this is dropped.
pub struct Operator {
    pub keeper: Arc<ClaimsController>,
    pub watches: Arc<Watches>,
    _tasks: JoinSet<()>,
    _stop: DropGuard,
}

struct Nobody;

impl PopulationMetrics for Nobody {
    fn validated(&self, _: &'static str) {}
    fn filled(&self, _: &'static str, _: Duration) {}
}

/// How long pods were away, as the operators have counted it.
#[derive(Default)]
struct Pauses(Mutex<Vec<Duration>>);

impl pliant::claims::ClaimsMetrics for Pauses {
    fn paused(&self, away: Duration) {
        self.0.lock().unwrap().push(away);
    }
}

/// A StatefulSet about which no call ever ends.
pub const HUNG: &str = "hung";

/// A StatefulSet at which every look ends in a panic.
pub const PANICS: &str = "panics";

/// A StatefulSet whose namespace has used up its share of the webhook.
pub const CROWDED: &str = "crowded";

/// What is said of that share.
pub const FULL_SHARE: &str = "its namespace has too many";

/// How often each StatefulSet was asked about: once in each look.
#[derive(Default)]
struct Everything(Mutex<BTreeMap<String, usize>>);

#[async_trait]
impl Webhook for Everything {
    async fn coverage(&self, _: &str, set: &str) -> Result<WorkloadCoverage, kube::Error> {
        *self.0.lock().unwrap().entry(set.to_owned()).or_default() += 1;
        assert_ne!(set, PANICS, "as it is wanted");
        match set {
            HUNG => std::future::pending().await,
            CROWDED => Ok(WorkloadCoverage::ShareIsFull(FULL_SHARE.to_owned())),
            _ => Ok(WorkloadCoverage::Covered),
        }
    }
}

impl World {
    /// A node and four classes: `hdd` and `ssd` wait for a pod and can grow, `fixed` cannot grow, and `now`
    /// does not wait.
    pub fn new() -> World {
        let api = fake_api();
        let labels = json!({"kubernetes.io/hostname": "alpha"});
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        api.put(&object::<Node>(
            json!({"metadata": {"name": "alpha", "labels": labels}, "status": ready}),
        ));
        let late = "WaitForFirstConsumer";
        for (class, mode, can_grow) in [
            ("hdd", late, true),
            ("ssd", late, true),
            ("fixed", late, false),
            ("now", "Immediate", true),
        ] {
            api.put(&object::<StorageClass>(json!({
                "metadata": {"name": class},
                "provisioner": if class == "fixed" { "other.example.com" } else { DRIVER },
                "volumeBindingMode": mode, "allowVolumeExpansion": can_grow,
            })));
        }
        api.put(&object::<Namespace>(json!({"metadata": {"name": SHOP}})));
        let play = Arc::new(Mutex::new(Play::default()));
        let mut kubernetes = JoinSet::new();
        kubernetes.spawn(play::run(api.clone(), play.clone(), workloads));
        World { api, play, pauses: Arc::default(), webhook: Arc::default(), kubernetes }
    }

    /// The same with an operator.
    pub fn with_an_operator() -> (World, Operator) {
        let world = World::new();
        let operator = world.operator();
        (world, operator)
    }

    /// From now on nobody plays Kubernetes.
    pub fn stop_kubernetes(&mut self) {
        self.kubernetes.abort_all();
    }

    pub fn play(&self) -> MutexGuard<'_, Play> {
        self.play.lock().unwrap()
    }

    pub fn operator(&self) -> Operator {
        let (client, stop) = (self.api.client_of("operator"), CancellationToken::new());
        let settings =
            PopulationSettings { image: "pliant:test".to_owned(), ..PopulationSettings::default() };
        let tally: Arc<dyn PopulationMetrics> = Arc::new(Nobody);
        let watches = Arc::new(Watches::start(&client, &stop));
        let asks = Asks::start(&client, &stop);
        let copies: Arc<Populator<PvcSourcePopulator>> =
            Populator::start(&client, &settings, &watches, &asks, &tally, &stop);
        let (webhook, pauses) = (self.webhook.clone(), self.pauses.clone());
        let keeper = ClaimsController::start(&client, &watches, &asks, webhook, pauses, &stop);
        let mut tasks = JoinSet::new();
        tasks.spawn(copies.run(stop.clone()));
        tasks.spawn(keeper.clone().run(stop.clone()));
        Operator { keeper, watches, _tasks: tasks, _stop: stop.drop_guard() }
    }

    /// A StatefulSet with so many pods; `templates` are those of its own.
    pub fn set(&self, replicas: i32, templates: &[&str]) {
        let templates: Vec<Value> =
            templates.iter().map(|name| json!({"metadata": {"name": name}, "spec": {}})).collect();
        self.api.put(&object::<StatefulSet>(json!({
            "metadata": {"name": "nginx", "namespace": SHOP},
            "spec": {"replicas": replicas, "selector": {}, "serviceName": "nginx",
                     "template": {}, "volumeClaimTemplates": templates},
        })));
    }

    /// Declare what its claims are to be; `more` is laid over the specification.
    pub fn want(&self, size: &str, class: &str, more: &Value) {
        self.api.put(&self.wanted(size, class, more));
    }

    /// The declaration, with the status that is there.
    pub fn wanted(&self, size: &str, class: &str, more: &Value) -> PvcAutoscaler {
        let mut spec = json!({
            "statefulSetName": "nginx",
            "volumeClaimTemplate": {
                "metadata": {"name": "www"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                         "volumeMode": "Filesystem",
                         "resources": {"requests": {"storage": size}}},
            },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let before: Option<PvcAutoscaler> = self.api.get(&format!("{SHOP}/nginx"));
        let status = before.and_then(|one| one.status);
        object(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
            "metadata": {"name": "nginx", "namespace": SHOP}, "spec": spec, "status": status,
        }))
    }

    pub fn status(&self) -> PvcAutoscalerStatus {
        let there: Option<PvcAutoscaler> = self.api.get(&format!("{SHOP}/nginx"));
        there.and_then(|one| one.status).unwrap_or_default()
    }

    pub fn ordinal(&self, ordinal: i32) -> OrdinalStatus {
        self.status().of(ordinal).cloned().unwrap_or_default()
    }

    pub fn claim(&self, name: &str) -> Option<PersistentVolumeClaim> {
        self.api.get(&format!("{SHOP}/{name}"))
    }

    pub fn claims(&self) -> Vec<String> {
        let all = self.api.list::<PersistentVolumeClaim>();
        all.iter().map(ResourceExt::name_any).collect()
    }

    /// The active claim of a pod.
    pub fn active(&self, ordinal: i32) -> PersistentVolumeClaim {
        self.claim(&self.ordinal(ordinal).active_claim).expect("an active claim")
    }

    /// Wait until the status is as it should be.
    pub async fn until(&self, what: &str, is: impl Fn(&PvcAutoscalerStatus) -> bool) {
        let seen = |api: &FakeApi| {
            let there: Option<PvcAutoscaler> = api.get(&format!("{SHOP}/nginx"));
            there.and_then(|one| one.status).is_some_and(|status| is(&status))
        };
        self.api.until(what, seen).await;
    }

    /// The uid of a pod.
    pub fn pod(&self, name: &str) -> String {
        let pod: Pod = self.api.get(&format!("{SHOP}/{name}")).expect("a pod");
        pod.uid().unwrap()
    }

    /// Wait until all claims are as they are wanted, for the specification as it is.
    pub async fn settled(&self, claims: &str) {
        let generation: Option<PvcAutoscaler> = self.api.get(&format!("{SHOP}/nginx"));
        let generation = generation.and_then(|one| one.metadata.generation).unwrap_or_default();
        self.until(&format!("{claims} are settled"), |status| {
            status.observed_generation == generation
                && status.phase == AutoscalerPhase::InSync
                && status.ready_claims() == claims
        })
        .await;
        self.rest().await;
    }

    /// Let pass what is still under way, and whatever would be repeated by mistake.
    pub async fn rest(&self) {
        tokio::time::sleep(Duration::from_secs(40)).await;
    }

    /// Have the pods write once more.
    pub fn write(&self) {
        let mut play = self.play();
        for pod in self.api.list::<Pod>() {
            if is_running(&pod) && !pod.labels().contains_key("pliant.io/populator") {
                write(&self.api, &mut play, &pod);
            }
        }
    }

    /// The node tells how full the volume of a pod is in percent, so many hours from now.
    pub fn fill(&self, ordinal: i32, percent: u64, hours: i64) {
        self.tell_usage(ordinal, percent, hours, &Value::Null);
    }

    /// The same, and how full it was an hour before.
    pub fn fill_from(&self, ordinal: i32, before: u64, percent: u64, hours: i64) {
        let at = Timestamp::now() + SignedDuration::from_hours(hours - 1);
        let before = json!({"observedTime": at, "used": before.to_string()});
        self.tell_usage(ordinal, percent, hours, &before);
    }

    /// The node tells that files have so much of so much.
    pub fn holds(&self, ordinal: i32, used: &str, of: &str) {
        self.tell(
            ordinal,
            &json!({"observedTime": Timestamp::now(), "capacity": of, "used": used,
                                   "available": "0"}),
        );
    }

    /// Another node says of the volumes of alpha that they are its own: each is full, a shrink of nobody holds it, and
    /// a copy that nobody makes.
    pub fn lie(&self) {
        let mut liar: NodeStorage = self.api.get("alpha").expect("it is there");
        let told = liar.status.as_mut().expect("its node plugin has told of its volumes");
        assert!(!told.volumes.is_empty(), "there is nothing to lie about");
        let limit = serde_json::from_value(json!("1Mi")).expect("a size");
        let fence = json!({"state": "Superseded", "generation": 9, "copyInProgress": true});
        for volume in &mut told.volumes {
            (volume.size, volume.max_size) = (limit, Some(limit));
            volume.fence = serde_json::from_value(fence.clone()).expect("a fence");
        }
        let full = |id: &String| json!({"volumeHandle": id, "observedTime": Timestamp::now(), "capacity": "100", "used": "99", "available": "1"});
        let usages: Vec<Value> = told.volumes.iter().map(|one| full(&one.volume_handle)).collect();
        told.usage = serde_json::from_value(json!(usages)).expect("usages");
        liar.metadata = ObjectMeta { name: Some("aaa".to_owned()), ..ObjectMeta::default() };
        self.api.put(&liar);
    }

    fn tell_usage(&self, ordinal: i32, percent: u64, hours: i64, before: &Value) {
        let at = Timestamp::now() + SignedDuration::from_hours(hours);
        self.tell(
            ordinal,
            &json!({"observedTime": at, "capacity": "100", "used": percent.to_string(),
                    "available": (100 - percent).to_string(), "previous": before}),
        );
    }

    fn tell(&self, ordinal: i32, usage: &Value) {
        let volume = play::volume_of_claim(&self.api, &self.active(ordinal)).unwrap();
        let mut node: NodeStorage =
            self.api.get("alpha").expect("its node plugin has told of its volumes");
        let told = node.status.as_mut().unwrap();
        let id = told.volumes.iter().find(|one| one.name == volume).unwrap().volume_handle.clone();
        let mut usage = usage.clone();
        usage["volumeHandle"] = json!(id);
        told.usage = vec![object(usage)];
        self.api.put(&node);
    }

    /// How many looks at the claims of a StatefulSet have come as far as to ask for its webhook.
    pub fn looks(&self, set: &str) -> usize {
        self.webhook.0.lock().unwrap().get(set).copied().unwrap_or_default()
    }

    /// Declare claims of a StatefulSet that is another one in another namespace.
    pub fn want_elsewhere(&self, name: &str, set: &str) {
        self.want_in("other", name, set);
    }

    /// Declare claims of another StatefulSet.
    pub fn want_in(&self, namespace: &str, name: &str, set: &str) {
        let mut other = self.wanted("1Gi", "hdd", &json!({}));
        other.metadata.name = Some(name.to_owned());
        other.metadata.namespace = Some(namespace.to_owned());
        other.spec.stateful_set_name = Some(set.to_owned());
        other.status = None;
        self.api.put(&other);
    }

    /// How often a pod was away to get another claim.
    pub fn pauses(&self) -> usize {
        self.pauses.0.lock().unwrap().len()
    }

    /// How often each reason was told.
    pub fn told(&self, reason: &str) -> usize {
        let all = self.api.list::<Event>();
        all.iter().filter(|event| event.reason.as_deref() == Some(reason)).count()
    }

    /// What was told for a reason.
    pub fn texts(&self, reason: &str) -> Vec<String> {
        let all = self.api.list::<Event>().into_iter();
        all.filter(|event| event.reason.as_deref() == Some(reason))
            .filter_map(|one| one.note)
            .collect()
    }

    /// A person deletes a claim.
    pub fn delete_claim(&self, name: &str) {
        self.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/{name}"));
    }

    /// Claims and sources that are of no use any more, and volumes that are not what is told of them.
    pub fn left(&self) -> Vec<String> {
        let status = self.status();
        let known: Vec<&String> = status
            .ordinals
            .iter()
            .flat_map(|one| {
                [&one.active_claim]
                    .into_iter()
                    .chain(one.retained_claims.iter().map(|old| &old.name))
            })
            .collect();
        let strange = self.claims().into_iter().filter(|name| !known.contains(&name));
        let sources = self.api.list::<PvcSourcePopulator>();
        let sources = sources.iter().map(ResourceExt::name_any);
        strange.chain(sources).chain(self.untrue()).collect()
    }

    /// Volumes that do not grow, and claims that have another size than their volumes.
    fn untrue(&self) -> Vec<String> {
        let play = self.play();
        let limited = play.limits.keys().map(|volume| format!("{volume} does not grow"));
        let sizes = self.api.list::<PersistentVolumeClaim>().into_iter().filter_map(|claim| {
            let volume = play::volume_of_claim(&self.api, &claim)?;
            let has = claim.status.as_ref()?.capacity.as_ref()?.get("storage")?.0.clone();
            let size = *play.sizes.get(&volume)?;
            let is_true = has.parse() == Ok(size);
            (!is_true).then(|| format!("{} tells of {has} and has {size}", claim.name_any()))
        });
        limited.chain(sizes).collect()
    }
}

/// What a quota says.
pub const FULL: &str = "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1";

/// Every pod that copies is refused once the pod of the claim is stopped.
pub fn refuse_copies(world: &World) {
    world.api.guard("pods", |pod, others| {
        let mounts_source = pod["spec"]["volumes"].to_string().contains("source");
        let runs = |pod: &Value| {
            let is_fill = !pod["metadata"]["labels"]["pliant.io/populator"].is_null();
            !is_fill && pod["status"]["phase"] == "Running"
        };
        (mounts_source && !others.iter().any(runs)).then(|| FULL.to_owned())
    });
}

/// A claim of another client is made, and is bound to a volume of its own.
pub async fn restored(world: &World, name: &str, labels: &Value, annotations: &Value) {
    let mut claim: PersistentVolumeClaim = object(json!({
        "metadata": {"name": name, "namespace": SHOP, "labels": labels, "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                 "resources": {"requests": {"storage": "4Gi"}}},
        "status": {"phase": "Pending"},
    }));
    claim.annotations_mut().insert(SELECTED_NODE.to_owned(), "alpha".to_owned());
    world.api.put(&claim);
    let is_bound = |api: &FakeApi| {
        let claim: Option<PersistentVolumeClaim> = api.get(&format!("{SHOP}/{name}"));
        claim.is_some_and(|claim| phase(&claim) == "Bound")
    };
    world.api.until("it is bound", is_bound).await;
}

/// What the controller of StatefulSets, the webhook and the kubelets do.
fn workloads(api: &FakeApi, play: &mut Play) -> bool {
    let pods = api.list::<Pod>();
    let ours = || pods.iter().filter(|pod| !pod.labels().contains_key("pliant.io/populator"));
    node_plugins::step(api, play)
        || api.list::<StatefulSet>().iter().any(|set| make_pod(api, set))
        || ours().any(|pod| choose_node(api, play, pod) || start(api, play, pod))
}

/// A pod that is missing is made, with the claim that it is to have.
fn make_pod(api: &FakeApi, set: &StatefulSet) -> bool {
    let spec = set.spec.clone().unwrap();
    let missing = (0..spec.replicas.unwrap())
        .find(|ordinal| api.get::<Pod>(&format!("{SHOP}/nginx-{ordinal}")).is_none());
    let Some(ordinal) = missing else { return false };
    let own = spec.volume_claim_templates.is_some_and(|own| !own.is_empty());
    let claim = if own { Some(own_claim(api, ordinal)) } else { injected(api, ordinal) };
    let Some(claim) = claim else { return false };
    let volume = json!({"name": "www", "persistentVolumeClaim": {"claimName": claim}});
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "nginx",
                       "uid": "of-nginx", "controller": true});
    let mut pod = json!({
        "metadata": {"name": format!("nginx-{ordinal}"), "namespace": SHOP,
                     "ownerReferences": [owner]},
        "spec": {"containers": [], "volumes": [volume]}, "status": {"phase": "Pending"},
    });
    let keeper: Option<PvcAutoscaler> = api.get(&format!("{SHOP}/nginx"));
    if keeper.is_some_and(|keeper| keeper.holds(&object(pod.clone()))) || lacks_own(api, ordinal) {
        pod["spec"]["schedulingGates"] = json!([{ "name": GATE }]);
        pod["metadata"]["labels"] = json!({ GATE: "true" });
    }
    api.put(&object::<Pod>(pod));
    // Its status tells of the pod, whoever watches only that.
    let mut set = set.clone();
    let count = set.annotations().get("pods").map_or(0, |text| text.parse().unwrap_or(0));
    set.annotations_mut().insert("pods".to_owned(), (count + 1).to_string());
    api.put(&set);
    true
}

fn own_claim(api: &FakeApi, ordinal: i32) -> String {
    let name = format!("www-nginx-{ordinal}");
    if api.get::<PersistentVolumeClaim>(&format!("{SHOP}/{name}")).is_none() {
        api.put(&object::<PersistentVolumeClaim>(json!({
            "metadata": {"name": name, "namespace": SHOP},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                     "resources": {"requests": {"storage": "4Gi"}}},
            "status": {"phase": "Pending"},
        })));
    }
    name
}

/// Whether the claim that a pod is to have is not there, as its swap knows it.
fn lacks_own(api: &FakeApi, ordinal: i32) -> bool {
    let keeper: Option<PvcAutoscaler> = api.get(&format!("{SHOP}/nginx"));
    let entry = keeper.and_then(|keeper| keeper.status?.of(ordinal).cloned());
    entry.is_some_and(|entry| {
        let name = entry.claim_of_pod();
        let there: Option<PersistentVolumeClaim> = api.get(&format!("{SHOP}/{name}"));
        let there = there.and_then(|claim| claim.metadata.uid);
        entry.known_uid(name).is_some_and(|known| there.as_deref() != Some(known))
    })
}

/// The claim that the webhook gives a pod.
fn injected(api: &FakeApi, ordinal: i32) -> Option<String> {
    let autoscaler: PvcAutoscaler = api.get(&format!("{SHOP}/nginx"))?;
    let entry = autoscaler.status?.of(ordinal).cloned()?;
    let new = entry.swap.filter(Swap::gives_new_claim).map(|swap| swap.claim);
    Some(new.unwrap_or(entry.active_claim))
}

/// The scheduler chooses a node for the claim of a pod.
fn choose_node(api: &FakeApi, play: &Play, pod: &Pod) -> bool {
    if play.full.contains("alpha") {
        return false; // It knows from the capacity that no volume would fit.
    }
    let Some(mut claim) = claim_of(api, pod).filter(|_| !is_gated(pod)) else { return false };
    if ["Bound", "Lost"].contains(&&*phase(&claim))
        || claim.annotations().contains_key(SELECTED_NODE)
    {
        return false;
    }
    claim.annotations_mut().insert(SELECTED_NODE.to_owned(), "alpha".to_owned());
    api.put(&claim);
    true
}

/// A kubelet starts a pod whose claim is bound: it finds all that it has ever written, and writes more.
fn start(api: &FakeApi, play: &mut Play, pod: &Pod) -> bool {
    let claim = claim_of(api, pod).filter(|claim| phase(claim) == "Bound");
    if is_running(pod)
        || is_gated(pod)
        || play.starts_no_pod
        || claim.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
    {
        return false;
    }
    let volume = volume_of(api, pod).unwrap();
    match play.lets(&volume) {
        Use::Any => {}
        Use::None => return false, // It is not staged.
        Use::Read => {
            let wrong = format!("{} finds its volume read-only", pod.name_any());
            if !play.wrong.contains(&wrong) {
                play.wrong.push(wrong);
            }
            return false;
        }
    }
    if node_plugins::is_read(api, &volume) {
        play.wrong.push(format!("{} finds its volume mounted by a copy", pod.name_any()));
    }
    write(api, play, pod);
    let ready = json!({"type": "Ready", "status": "True",
                       "lastTransitionTime": Timestamp::UNIX_EPOCH});
    let mut changed = serde_json::to_value(pod).unwrap();
    changed["spec"]["nodeName"] = json!("alpha");
    changed["status"] = json!({"phase": "Running", "conditions": [ready]});
    api.put(&object::<Pod>(changed));
    true
}

/// A pod writes: it must find what it wrote before, in the volume that it has.
fn write(api: &FakeApi, play: &mut Play, pod: &Pod) {
    let name = pod.name_any();
    let claim = claim_of(api, pod).unwrap();
    let volume = play::volume_of_claim(api, &claim).unwrap();
    let found = match play.contents.get(&volume) {
        Some(Content::Whole(text)) => text.clone(),
        Some(Content::Empty) | None => String::new(),
        Some(Content::Half) => "half".to_owned(),
    };
    let written = play.written.entry(name.clone()).or_default();
    if found != *written {
        play.wrong.push(format!("{name} finds {found:?} in {}, not {written:?}", claim.name_any()));
    }
    written.push('w');
    play.contents.insert(volume, Content::Whole(written.clone()));
}

/// In every test the operator writes only what is its own, and no pod missed what it had written.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let writes = self.api.writes();
        let strange = writes.iter().find(|line| !is_allowed(line));
        assert_eq!(strange, None, "in {writes:#?}");
        assert_eq!(self.play().wrong, Vec::<String>::new());
    }
}

fn is_allowed(line: &str) -> bool {
    let (call, who) = line.split_once(" by ").expect("all say who they are");
    let (verb, path) = call.split_once(' ').expect("a verb and a path");
    let path: Vec<&str> = path.split('/').collect();
    // The secrets are keys by which pods that send and fill know each other, and the policies say that
    // no others may connect to them.
    let made = [
        "persistentvolumeclaims",
        "pods",
        "events",
        "pvcsourcepopulators",
        "secrets",
        "networkpolicies",
    ];
    let is_request = matches!(
        (verb, path.as_slice()),
        ("POST", ["volumerequests"]) | ("DELETE", ["volumerequests", _])
    );
    // Of an object that cannot be decoded.
    let is_undecoded =
        who == "pliant" && matches!((verb, path.as_slice()), ("POST", ["events", _]));
    is_undecoded
        || who.ends_with("operator")
            && match (verb, path.as_slice()) {
                _ if is_request => true,
                ("POST", [kind, _]) => made.contains(kind),
                ("POST", ["persistentvolumes"] | ["pods", _, _, "eviction"])
                | ("DELETE" | "PATCH", ["persistentvolumes", _]) => true,
                ("PATCH", [kind, _, _, "status"]) => {
                    ["pvcautoscalers", "pvcsourcepopulators", "persistentvolumeclaims"]
                        .contains(kind)
                }
                ("DELETE" | "PATCH", [kind, _, _]) => {
                    ["persistentvolumeclaims", "pods", "pvcsourcepopulators"].contains(kind)
                }
                _ => false,
            }
}
