//! Who plays Kubernetes: what its controllers do to claims and volumes, and kubelets to fill pods. They
//! write past all clients, so they take no number among the writes of the operator.

pub mod node_plugins;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Resource, ResourceExt};
use pliant::bytes::Bytes;
use pliant::testing::FakeApi;
use pliant::volume::{DRIVER, Fence, NodeKey, Standing, Use, VolumeId, VolumeKey};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The node that the scheduler has chosen for the volume of a claim.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Keeps a claim for as long as a pod uses it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a PersistentVolume for as long as it has its claim.
const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
/// On a claim that has got another volume: what its node calls it.
const GIVEN: &str = "pliant.io/volume";
/// Has the controller of volumes look at a claim.
const NUDGED: &str = "pliant.io/volume-rebound-to";

/// On a pod that fills a volume, or sends to one that does.
const FILL: &str = "pliant.io/populator";

/// On a fill pod that only tries whether its volume can be filled.
pub const PROBES: &str = "pliant.io/probe";

/// What is in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Empty,
    /// A pod writes to it, or did.
    Half,
    /// What the pod was told to put there.
    Whole(String),
}

/// What becomes of shrinks that node plugins are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(dead_code)] // Not all who play ask for all of them.
pub enum Shrinks {
    #[default]
    AtOnce,
    /// They are not at their end when they are asked for: the next call finds them so.
    Slow,
    /// They are left unanswered.
    Left,
}

/// How a fill pod ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Done,
    /// With this termination message.
    Failed(String),
    /// Never.
    Hangs,
}

/// What those who play are told, and what they have done.
#[derive(Default)]
pub struct Play {
    /// Where pods of a claim are scheduled to, in order.
    pub nodes: BTreeMap<String, Vec<String>>,
    /// The class that claims without one get.
    pub default_class: Option<&'static str>,
    /// Nodes without room.
    pub full: BTreeSet<String>,
    /// The largest size to which a volume can grow; without one there is room for all.
    pub room: Option<Bytes>,
    /// How the next fill pods end; then all are done.
    pub ends: VecDeque<End>,
    /// How many bytes the next rounds carry; then none do.
    pub rounds: VecDeque<u64>,
    /// How many fill pods have run.
    pub pods: usize,
    /// How the next pods end that only try whether a volume can be filled; then all are done.
    pub probe_ends: VecDeque<End>,
    /// How many of those have run.
    pub probes: usize,
    /// Whether no pod of a workload is started.
    pub starts_no_pod: bool,
    /// Why no pod of ours is scheduled, if none is.
    pub unschedulable: Option<&'static str>,
    pub contents: BTreeMap<String, Content>,
    /// The volumes of this driver that nodes have, with what the driver calls them.
    pub volumes: BTreeMap<String, String>,
    /// Volumes that were deleted with what was in them.
    pub destroyed: Vec<Content>,
    /// What the pods of workloads have written, by the name of the pod.
    pub written: BTreeMap<String, String>,
    /// What volumes are told of who may use them.
    pub fences: BTreeMap<String, Fence>,
    /// The file system on all volumes; without one it is ext4.
    pub file_system: Option<&'static str>,
    /// How much files have of every volume: none can be smaller.
    pub used: Bytes,
    /// Whether file systems refuse to be written, and so to shrink.
    pub is_read_only: bool,
    /// What becomes of shrinks that node plugins are asked for.
    pub shrinks: Shrinks,
    /// The sizes of volumes of this driver.
    pub sizes: BTreeMap<String, Bytes>,
    /// The sizes beyond which volumes do not grow.
    pub limits: BTreeMap<String, Bytes>,
    /// Volumes that somebody has open whom nobody knows of.
    pub held: BTreeSet<String>,
    /// Whether the node plugins of nodes do nothing.
    pub are_node_plugins_away: bool,
    /// What was seen that must not be.
    pub wrong: Vec<String>,
    /// How a pod that runs will end.
    running: BTreeMap<String, End>,
    /// What a pod that runs has read.
    reads: BTreeMap<String, Option<Content>>,
}

impl Play {
    /// What a volume lets one do.
    pub fn lets(&self, volume: &str) -> Use {
        self.fences.get(volume).map_or(Use::Any, Fence::lets)
    }

    /// Whether a volume says on itself that it is no whole; those of other drivers say nothing.
    fn is_half_copied(&self, volume: &str) -> bool {
        self.fences.get(volume).is_some_and(|fence| fence.standing == Standing::HalfCopied)
    }
}

impl Play {
    /// Have the fill pods that hang come to their end.
    pub fn end_hanging(&mut self) {
        self.running.values_mut().for_each(|end| *end = End::Done);
    }
}

/// Make an object of JSON.
pub fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).expect("an object")
}

/// The pods that fill volumes.
pub fn fill_pods(api: &FakeApi) -> Vec<Pod> {
    api.list::<Pod>().into_iter().filter(|pod| pod.labels().contains_key(FILL)).collect()
}

pub fn phase(claim: &PersistentVolumeClaim) -> String {
    claim.status.clone().unwrap_or_default().phase.unwrap_or_default()
}

/// Play until the cluster is dropped; `more` is what else is played, one thing at a time, too.
pub async fn run(api: FakeApi, play: Arc<Mutex<Play>>, more: fn(&FakeApi, &mut Play) -> bool) {
    loop {
        let changed = api.changed();
        let is_done = {
            let mut play = play.lock().expect("nobody panicked");
            step(&api, &mut play) || more(&api, &mut play)
        };
        if is_done {
            tokio::task::yield_now().await;
            continue;
        }
        changed.await;
        // Others take their time.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Do one thing, if there is one to do.
fn step(api: &FakeApi, play: &mut Play) -> bool {
    for claim in api.list::<PersistentVolumeClaim>() {
        if give_class(api, play, &claim)
            || protect(api, &claim)
            || schedule(api, play, &claim)
            || bind(api, play, &claim)
            || lose(api, &claim)
            || find_again(api, &claim)
            || provision(api, play, &claim)
            || resize(api, play, &claim)
        {
            return true;
        }
    }
    let pvs = api.list::<PersistentVolume>();
    pvs.iter().any(|pv| protect_volume(api, pv) || reclaim(api, play, pv))
        || fill_pods(api).iter().any(|pod| kubelet(api, play, pod) || send(api, play, pod))
        || api.list::<Secret>().iter().any(|secret| collect(api, secret))
        || api.list::<NetworkPolicy>().iter().any(|policy| collect(api, policy))
}

/// A claim without a class gets the default one, if there is one.
fn give_class(api: &FakeApi, play: &Play, claim: &PersistentVolumeClaim) -> bool {
    let spec = claim.spec.clone().unwrap_or_default();
    let Some(class) = play.default_class.filter(|_| spec.storage_class_name.is_none()) else {
        return false;
    };
    let mut changed = claim.clone();
    changed.spec.get_or_insert_default().storage_class_name = Some(class.to_owned());
    api.put(&changed);
    true
}

/// A claim is kept while a pod uses it that is on a node, one that has ended too.
fn protect(api: &FakeApi, claim: &PersistentVolumeClaim) -> bool {
    let is_kept = claim.finalizers().iter().any(|one| one == PROTECTION);
    let mut changed = claim.clone();
    if claim.metadata.deletion_timestamp.is_none() {
        if !is_kept {
            changed.finalizers_mut().push(PROTECTION.to_owned());
            api.put(&changed);
        }
        return !is_kept;
    }
    let used = api.list::<Pod>().iter().any(|pod| uses(pod, claim) && has_begun(pod));
    if !is_kept || used {
        return false;
    }
    changed.finalizers_mut().retain(|one| one != PROTECTION);
    let is_last = changed.finalizers().is_empty();
    api.put(&changed);
    if is_last {
        api.delete::<PersistentVolumeClaim>(&path(claim));
    }
    true
}

fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    pod.namespace() == claim.namespace()
        && volumes.any(|volume| {
            let named = volume.persistent_volume_claim.as_ref();
            named.is_some_and(|named| named.claim_name == claim.name_any())
        })
}

fn has_begun(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() != Some("Pending"))
}

fn path(claim: &PersistentVolumeClaim) -> String {
    format!("{}/{}", claim.namespace().unwrap(), claim.name_any())
}

fn is_pending(claim: &PersistentVolumeClaim) -> bool {
    phase(claim) == "Pending" || phase(claim).is_empty()
}

/// The scheduler chooses a node for the volume of a claim that a pod uses.
fn schedule(api: &FakeApi, play: &mut Play, claim: &PersistentVolumeClaim) -> bool {
    let waits = is_pending(claim) && !claim.annotations().contains_key(SELECTED_NODE);
    let nodes = play.nodes.get_mut(&claim.name_any()).filter(|nodes| waits && !nodes.is_empty());
    let Some(nodes) = nodes else { return false };
    let mut changed = claim.clone();
    changed.annotations_mut().insert(SELECTED_NODE.to_owned(), nodes.remove(0));
    api.put(&changed);
    true
}

/// A volume that names a claim becomes its volume.
fn bind(api: &FakeApi, play: &mut Play, claim: &PersistentVolumeClaim) -> bool {
    if !is_pending(claim) {
        return false;
    }
    let its = api.list::<PersistentVolume>().into_iter().find(|pv| owner(pv) == claim.uid());
    let Some(pv) = its else { return false };
    if play.is_half_copied(&volume_in(&pv)) {
        play.wrong.push(format!("{} gets a volume that is half copied", claim.name_any()));
    }
    let mut changed = serde_json::to_value(claim).unwrap();
    changed["spec"]["volumeName"] = json!(pv.name_any());
    changed["status"]["phase"] = json!("Bound");
    changed["status"]["capacity"] = changed["spec"]["resources"]["requests"].clone();
    api.put(&object::<PersistentVolumeClaim>(changed));
    true
}

fn owner(pv: &PersistentVolume) -> Option<String> {
    pv.spec.as_ref()?.claim_ref.as_ref()?.uid.clone()
}

/// A claim whose volume is another's is lost; its controller sees that when the claim is written to.
fn lose(api: &FakeApi, claim: &PersistentVolumeClaim) -> bool {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    let Some(named) = named.filter(|_| phase(claim) == "Bound") else { return false };
    let pv = api.get::<PersistentVolume>(&named);
    let has_gone = pv.is_none();
    let is_others = pv.is_some_and(|pv| owner(&pv) != claim.uid());
    let looks = claim.annotations().contains_key(NUDGED);
    let sees_it = has_gone || is_others && looks;
    if !sees_it {
        return false;
    }
    let mut changed = serde_json::to_value(claim).unwrap();
    changed["status"]["phase"] = json!("Lost");
    api.put(&object::<PersistentVolumeClaim>(changed));
    true
}

/// A claim that is lost has a volume again when one of its name names it; its controller sees that when the
/// claim is written to, and the claim then has what that has.
fn find_again(api: &FakeApi, claim: &PersistentVolumeClaim) -> bool {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    let named = named.filter(|_| phase(claim) == "Lost");
    let pv = named.and_then(|named| api.get::<PersistentVolume>(&named));
    let Some(pv) = pv.filter(|pv| owner(pv) == claim.uid()) else { return false };
    if claim.annotations().get(GIVEN) != Some(&volume_in(&pv)) {
        return false;
    }
    let mut changed = serde_json::to_value(claim).unwrap();
    changed["status"]["phase"] = json!("Bound");
    changed["status"]["capacity"] = serde_json::to_value(pv.spec.unwrap().capacity).unwrap();
    api.put(&object::<PersistentVolumeClaim>(changed));
    true
}

/// A PersistentVolume is kept for as long as it has its claim.
fn protect_volume(api: &FakeApi, pv: &PersistentVolume) -> bool {
    let is_kept = pv.finalizers().iter().any(|one| one == PV_PROTECTION);
    let mut changed = pv.clone();
    if pv.metadata.deletion_timestamp.is_none() {
        if !is_kept {
            changed.finalizers_mut().push(PV_PROTECTION.to_owned());
            api.put(&changed);
        }
        return !is_kept;
    }
    let claims = api.list::<PersistentVolumeClaim>();
    let has_owner = claims.iter().any(|claim| claim.uid() == owner(pv));
    if has_owner || !is_kept {
        return false;
    }
    changed.finalizers_mut().clear();
    api.put(&changed);
    api.delete::<PersistentVolume>(&pv.name_any());
    true
}

/// What its node calls the volume of a PersistentVolume.
pub fn volume_in(pv: &PersistentVolume) -> String {
    let csi = pv.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    let name = csi.and_then(|csi| csi.volume_attributes.as_ref()?.get("name").cloned());
    name.unwrap_or_else(|| pv.name_any())
}

/// What its node calls the volume of a claim.
pub fn volume_of_claim(api: &FakeApi, claim: &PersistentVolumeClaim) -> Option<String> {
    let named = claim.spec.as_ref()?.volume_name.clone()?;
    Some(api.get::<PersistentVolume>(&named).map_or(named, |pv| volume_in(&pv)))
}

/// The provisioner makes the volume of a claim that has no source, or takes a full node away.
fn provision(api: &FakeApi, play: &mut Play, claim: &PersistentVolumeClaim) -> bool {
    let spec = claim.spec.clone().unwrap_or_default();
    let is_wanted = is_pending(claim)
        && spec.data_source_ref.is_none()
        && claim.metadata.deletion_timestamp.is_none();
    let waits = spec.storage_class_name.as_deref() != Some("now");
    let node = claim.annotations().get(SELECTED_NODE).cloned();
    let node = if waits { node } else { Some("alpha".to_owned()) };
    let Some(node) = node.filter(|_| is_wanted) else { return false };
    if play.full.contains(&node) {
        // Of a class that does not wait for a pod no node was chosen: it only tries again.
        let mut changed = claim.clone();
        let is_taken = changed.annotations_mut().remove(SELECTED_NODE).is_some();
        if is_taken {
            api.put(&changed);
        }
        return is_taken;
    }
    let name = format!("pv-{}", claim.uid().unwrap());
    let size = spec.resources.clone().and_then(|all| all.requests).unwrap_or_default();
    let is_ours = spec.storage_class_name.as_deref() != Some("fixed");
    let driver = if is_ours { DRIVER } else { "other.example.com" };
    let handle = VolumeId::new(NodeKey::of(&node), VolumeKey::of(&name)).to_string();
    let term = json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
    ]});
    api.put(&object::<PersistentVolume>(json!({
        "metadata": {"name": name, "finalizers": [PV_PROTECTION]},
        "spec": {
            "capacity": size,
            "storageClassName": spec.storage_class_name,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid()},
            "csi": {"driver": driver, "volumeHandle": handle, "volumeAttributes": {"name": name}},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    })));
    play.contents.insert(name.clone(), Content::Empty);
    if is_ours {
        let bytes = size.get("storage").and_then(|size| size.0.parse().ok());
        play.sizes.extend(bytes.map(|bytes| (name.clone(), bytes)));
        play.volumes.insert(name, handle);
    }
    true
}

/// The volume of a claim grows to what the claim asks for, if there is room.
fn resize(api: &FakeApi, play: &mut Play, claim: &PersistentVolumeClaim) -> bool {
    let mut changed = serde_json::to_value(claim).unwrap();
    let wanted = changed["spec"]["resources"]["requests"].clone();
    let status = changed["status"].take();
    if phase(claim) != "Bound" || status["capacity"] == wanted {
        return false;
    }
    let size = |all: &Value| Bytes::parse_capped(all["storage"].as_str()?).ok();
    let (has, wants) = (size(&status["capacity"]), size(&wanted));
    // One that has got a larger volume under its own name has more than it asks for.
    if has > wants && claim.annotations().contains_key(GIVEN) {
        return false;
    }
    assert!(wants > has, "{}: no claim can ask for what it has, or less", claim.name_any());
    let pv = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    let volume = volume_of_claim(api, claim).unwrap_or_default();
    let limit = play.limits.get(&volume);
    let is_refused = play.room.iter().chain(limit).any(|most| wants > Some(*most));
    if is_refused && status["allocatedResources"] == wanted {
        return false;
    }
    changed["status"] = json!({"phase": "Bound", "capacity": wanted});
    if is_refused {
        let why = "resize volume failed: rpc error: code = OutOfRange desc = no room for that";
        let failed = json!({"type": "ControllerResizeError", "status": "True", "message": why});
        changed["status"] = json!({
            "phase": "Bound", "capacity": status["capacity"], "allocatedResources": wanted,
            "allocatedResourceStatuses": {"storage": "ControllerResizeInfeasible"},
            "conditions": [failed],
        });
    }
    if !is_refused {
        raise(api, &pv, &wanted);
        if let (Some(size), Some(wants)) = (play.sizes.get_mut(&volume), wants) {
            *size = wants.max(*size);
        }
    }
    api.put(&object::<PersistentVolumeClaim>(changed));
    true
}

/// The resizer tells a PersistentVolume what it has now.
fn raise(api: &FakeApi, volume: &str, size: &Value) {
    let Some(pv) = api.get::<PersistentVolume>(volume) else { return };
    let mut changed = serde_json::to_value(&pv).unwrap();
    changed["spec"]["capacity"] = size.clone();
    api.put(&object::<PersistentVolume>(changed));
}

/// A volume whose claim is gone goes too, if its policy says so.
fn reclaim(api: &FakeApi, play: &mut Play, pv: &PersistentVolume) -> bool {
    let claims = api.list::<PersistentVolumeClaim>();
    let has_owner = claims.iter().any(|claim| claim.uid() == owner(pv));
    let spec = pv.spec.clone().unwrap_or_default();
    let is_deleted = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    if has_owner || !is_deleted {
        return false;
    }
    let mut freed = pv.clone();
    freed.finalizers_mut().clear();
    api.put(&freed);
    api.delete::<PersistentVolume>(&pv.name_any());
    play.volumes.remove(&volume_in(pv));
    play.limits.remove(&volume_in(pv));
    play.destroyed.extend(play.contents.remove(&volume_in(pv)));
    true
}

/// A kubelet runs a fill pod whose claims are bound.
fn kubelet(api: &FakeApi, play: &mut Play, pod: &Pod) -> bool {
    let now = pod.status.clone().unwrap_or_default().phase.unwrap_or_default();
    if volume_read(api, pod).is_some_and(|source| play.lets(&source) == Use::None) {
        return false;
    }
    let runs = is_runnable(api, pod) && has_keys(api, pod);
    let Some(pv) = target(api, pod).filter(|_| runs) else { return false };
    let uid = pod.uid().unwrap();
    if let Some(why) = play.unschedulable.filter(|_| now.is_empty() || now == "Pending") {
        return leave_pending(api, pod, why);
    }
    if pod.annotations().contains_key(PROBES) {
        return probe(api, play, pod);
    }
    match now.as_str() {
        "" | "Pending" => {
            play.pods += 1;
            if play.volumes.contains_key(&pv) && !play.is_half_copied(&pv) {
                play.wrong.push(format!("{} fills a volume that seems whole", pod.name_any()));
            }
            let end = play.ends.pop_front().unwrap_or(End::Done);
            play.running.insert(uid.clone(), end);
            // What it reads is what is there when it begins.
            play.reads.insert(uid, source(api, play, pod));
            play.contents.insert(pv, Content::Half);
            let log = "{\"bytes\":536870912,\"of\":1073741824,\"rate\":1048576,\"left\":512}\n";
            let place = format!("{}/{}/populator", pod.namespace().unwrap(), pod.name_any());
            api.put_log(&place, log);
            put_phase(api, pod, "Running", &Value::Null);
        }
        "Running" => match play.running.get(&uid).cloned() {
            // What it leaves is half: others have written meanwhile.
            Some(End::Done) if told(pod).contains("--pre-copy") => {
                let bytes = play.rounds.pop_front().unwrap_or_default();
                let message =
                    json!({"outcome": "done", "bytes": bytes, "seconds": 1.5}).to_string();
                put_phase(api, pod, "Succeeded", &json!({"exitCode": 0, "message": message}));
            }
            Some(End::Done) => {
                let read = play.reads.remove(&uid).flatten();
                play.contents.insert(pv, read.unwrap_or_else(|| Content::Whole(told(pod))));
                let said =
                    json!({"exitCode": 0, "message": "{\"outcome\":\"done\",\"digest\":\"abc\"}"});
                put_phase(api, pod, "Succeeded", &said);
            }
            Some(End::Failed(message)) => {
                put_phase(api, pod, "Failed", &json!({"exitCode": 5, "message": message}));
            }
            Some(End::Hangs) | None => return false,
        },
        _ => return false,
    }
    true
}

/// The scheduler finds no node for a pod, and says so once.
fn leave_pending(api: &FakeApi, pod: &Pod, why: &str) -> bool {
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": why}]);
    let mut changed = serde_json::to_value(pod).unwrap();
    changed["status"] = json!({"phase": "Pending", "conditions": conditions});
    let changed = object::<Pod>(changed);
    let is_news = changed != *pod;
    if is_news {
        api.put(&changed);
    }
    is_news
}

/// A kubelet runs a pod that only tries whether its volume can be filled: it writes nothing.
fn probe(api: &FakeApi, play: &mut Play, pod: &Pod) -> bool {
    let phase = pod.status.clone().unwrap_or_default().phase.unwrap_or_default();
    if !phase.is_empty() && phase != "Pending" {
        return false;
    }
    if volume_read(api, pod).is_some() {
        play.wrong.push(format!("{} reads the source before its pod is stopped", pod.name_any()));
    }
    play.probes += 1;
    match play.probe_ends.pop_front().unwrap_or(End::Done) {
        End::Done => {
            let said = json!({"exitCode": 0, "message": "{\"outcome\":\"done\",\"bytes\":0}"});
            put_phase(api, pod, "Succeeded", &said);
        }
        End::Failed(message) => {
            put_phase(api, pod, "Failed", &json!({"exitCode": 5, "message": message}));
        }
        End::Hangs => put_phase(api, pod, "Running", &Value::Null),
    }
    true
}

/// What belongs to a claim goes with it.
fn collect<K>(api: &FakeApi, object: &K) -> bool
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let owners: Vec<String> = object.owner_references().iter().map(|one| one.uid.clone()).collect();
    let claims = api.list::<PersistentVolumeClaim>();
    let is_owned = claims.iter().filter_map(ResourceExt::uid).any(|uid| owners.contains(&uid));
    let goes = !owners.is_empty() && !is_owned;
    if goes {
        let namespace = object.namespace().unwrap_or_default();
        api.delete::<K>(&format!("{namespace}/{}", object.name_any()));
    }
    goes
}

/// A kubelet runs a pod that sends a volume, until that is deleted.
fn send(api: &FakeApi, play: &mut Play, pod: &Pod) -> bool {
    let is_new = pod.status.as_ref().is_none_or(|status| status.phase.is_none());
    let may_read = volume_read(api, pod).is_some_and(|source| play.lets(&source) != Use::None);
    let runs = sends(pod) && is_new && may_read && is_runnable(api, pod) && has_keys(api, pod);
    if runs {
        let mut changed = serde_json::to_value(pod).unwrap();
        changed["status"] = json!({"phase": "Running", "podIP": ADDRESS});
        api.put(&object::<Pod>(changed));
    }
    runs
}

fn sends(pod: &Pod) -> bool {
    pod.name_any().starts_with("send-")
}

/// Where all pods are that send.
const ADDRESS: &str = "10.0.0.7";

/// Whether the Secret is there that a pod mounts, if it mounts one.
fn has_keys(api: &FakeApi, pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut names = volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.clone());
    let namespace = pod.namespace().unwrap_or_default();
    names.all(|name| api.get::<Secret>(&format!("{namespace}/{name}")).is_some())
}

/// The volume that a pod copies from, also through another that sends it.
fn volume_copied(api: &FakeApi, pod: &Pod) -> Option<String> {
    if !told(pod).contains(&format!("--from {ADDRESS}:")) {
        return volume_read(api, pod);
    }
    let is_its = |one: &&Pod| one.labels().get(FILL) == pod.labels().get(FILL) && sends(one);
    volume_read(api, fill_pods(api).iter().find(is_its)?)
}

/// The volume that a pod copies from, and mounts.
pub fn volume_read(api: &FakeApi, pod: &Pod) -> Option<String> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let named = volumes.find(|one| one.name == "source")?.persistent_volume_claim.clone()?;
    let path = format!("{}/{}", pod.namespace()?, named.claim_name);
    volume_of_claim(api, &api.get::<PersistentVolumeClaim>(&path)?)
}

/// What is in it.
fn source(api: &FakeApi, play: &Play, pod: &Pod) -> Option<Content> {
    let volume = volume_copied(api, pod)?;
    play.contents.get(&volume).filter(|content| **content != Content::Empty).cloned()
}

/// The claim that a pod has first of all.
pub fn claim_of(api: &FakeApi, pod: &Pod) -> Option<PersistentVolumeClaim> {
    let volume = pod.spec.as_ref()?.volumes.as_ref()?.first()?;
    let name = &volume.persistent_volume_claim.as_ref()?.claim_name;
    api.get(&format!("{}/{name}", pod.namespace()?))
}

/// The volume of a pod whose claim is bound.
pub fn volume_of(api: &FakeApi, pod: &Pod) -> Option<String> {
    volume_of_claim(api, &claim_of(api, pod)?)
}

pub fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
}

/// What a pod was told to put there.
fn told(pod: &Pod) -> String {
    let args = pod.spec.as_ref().unwrap().containers[0].args.clone();
    args.unwrap_or_default().join(" ")
}

/// The volume that a pod fills, if that is really the volume of its claim: a kubelet looks, too.
fn target(api: &FakeApi, pod: &Pod) -> Option<String> {
    let claim: PersistentVolumeClaim =
        api.get(&format!("{}/{}", pod.namespace()?, pod.name_any()))?;
    let pv: PersistentVolume = api.get(&claim.spec.as_ref()?.volume_name.clone()?)?;
    (owner(&pv) == claim.uid()).then(|| volume_in(&pv))
}

/// Whether all volumes of a pod are there, and on one node.
fn is_runnable(api: &FakeApi, pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let named = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    let namespace = pod.namespace().unwrap_or_default();
    let claims = named.map(|named| {
        let claim = api.get::<PersistentVolumeClaim>(&format!("{namespace}/{}", named.claim_name));
        claim.filter(|claim| phase(claim) == "Bound")
    });
    let Some(claims) = claims.collect::<Option<Vec<_>>>() else { return false };
    let nodes: BTreeSet<String> = claims.iter().filter_map(|claim| node_of(api, claim)).collect();
    pod.meta().deletion_timestamp.is_none() && nodes.len() <= 1
}

/// The node of the volume of a claim.
fn node_of(api: &FakeApi, claim: &PersistentVolumeClaim) -> Option<String> {
    let pv: PersistentVolume = api.get(claim.spec.as_ref()?.volume_name.as_ref()?)?;
    let terms = pv.spec?.node_affinity?.required?.node_selector_terms;
    terms.first()?.match_expressions.as_ref()?.first()?.values.as_ref()?.first().cloned()
}

fn put_phase(api: &FakeApi, pod: &Pod, phase: &str, terminated: &Value) {
    let mut changed = serde_json::to_value(pod).unwrap();
    let state = if terminated.is_null() { json!({}) } else { json!({"terminated": terminated}) };
    let container = json!({"name": "populator", "image": "", "imageID": "", "ready": false,
                           "restartCount": 0, "state": state});
    changed["status"] = json!({"phase": phase, "containerStatuses": [container]});
    api.put(&object::<Pod>(changed));
}
