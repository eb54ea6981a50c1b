//! Every order of what can happen to one pod and its claim, explored: two operators that look, do one
//! effect after the other and die between any two of them; a controller that makes pods, a kubelet that
//! starts them, a populator that copies and may fail, somebody who kills pods, edits the template and
//! scales; and time. In each state that can be reached nothing is lost, and from each all ends well.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus,
    PersistentVolumeClaimVolumeSource, Pod, PodCondition, PodSpec, PodStatus, TypedObjectReference,
    Volume, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::api::{Filling, FillingPhase, PopulatorStatus, PvcAutoscaler, PvcSourcePopulator};
use crate::bytes::Bytes;

#[path = "../../../tests/tally/figures.rs"]
mod figures;

/// The templates, in the order in which they are edited: size in GiB and class.
const TEMPLATES: [(u64, &str); 3] = [(4, "hdd"), (2, "ssd"), (8, "ssd")];

/// How often each of what need not happen does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Left {
    edits: u8,
    kills: u8,
    deaths: u8,
    failures: u8,
    scalings: u8,
    days: u8,
    /// Whether claims are copied ahead.
    is_hot: bool,
    /// How many operators there are.
    operators: usize,
}

/// The template is edited once, and nothing else goes on.
const NOTHING: Left = Left {
    edits: 1,
    kills: 0,
    deaths: 0,
    failures: 0,
    scalings: 0,
    days: 0,
    is_hot: false,
    operators: 1,
};

/// The same, and the claim is copied ahead while its pod runs.
const HOT: Left = Left { is_hot: true, ..NOTHING };

/// How much of what was written is in a volume: the number of the last write.
type Data = u8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
struct Claim {
    uid: u8,
    gib: u64,
    class: &'static str,
    is_copy: bool,
    /// What is in its volume, once it has one.
    content: Option<Data>,
    has_labels: bool,
    superseded: bool,
    is_ending: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Source {
    from: String,
    paused: bool,
    copies_ahead: bool,
    phase: FillingPhaseKey,
    /// Whether that is told of a time at which it was paused.
    is_told_of_before: bool,
    /// What its pod has read.
    read: Option<Data>,
}

/// The phases of a filling that matter here; the type of the API cannot be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FillingPhaseKey {
    Waiting,
    Filling,
    Ahead,
    Filled,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PodModel {
    uid: u8,
    claim: String,
    is_running: bool,
}

/// What an operator has decided and not done yet.
#[derive(Debug, Clone, PartialEq)]
struct Decided {
    /// The status that it saw, and the one that it writes first.
    note: Option<(PvcAutoscalerStatus, PvcAutoscalerStatus)>,
    steps: VecDeque<Step>,
}

#[derive(Debug, Clone, PartialEq)]
struct World {
    template: usize,
    replicas: i32,
    status: PvcAutoscalerStatus,
    claims: BTreeMap<String, Claim>,
    sources: BTreeMap<String, Source>,
    pod: Option<PodModel>,
    data: Data,
    hours: i64,
    next_uid: u8,
    operators: [Option<Decided>; 2],
    left: Left,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Look(usize),
    Do(usize),
    Die(usize),
    MakePod,
    StartPod,
    KillPod,
    Provision,
    CopyAhead,
    BeginCopy,
    EndCopy,
    FailAhead,
    FailCopy,
    Edit,
    Scale,
    Wait,
    Vanish,
}

const MOVES: [Move; 19] = [
    Move::Look(0),
    Move::Do(0),
    Move::Provision,
    Move::MakePod,
    Move::StartPod,
    Move::CopyAhead,
    Move::BeginCopy,
    Move::EndCopy,
    Move::Vanish,
    Move::Wait,
    Move::Look(1),
    Move::Do(1),
    Move::Die(0),
    Move::Die(1),
    Move::KillPod,
    Move::FailAhead,
    Move::FailCopy,
    Move::Edit,
    Move::Scale,
];

/// Those that always happen in the end.
const FAIR: usize = 10;

impl World {
    fn new(left: Left) -> World {
        World {
            template: 0,
            replicas: 1,
            status: PvcAutoscalerStatus::default(),
            claims: BTreeMap::new(),
            sources: BTreeMap::new(),
            pod: None,
            data: 0,
            hours: 0,
            next_uid: 0,
            operators: [None, None],
            left,
        }
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        hasher.finish()
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(self.hours)
    }

    fn autoscaler(&self) -> PvcAutoscaler {
        let (gib, class) = TEMPLATES[self.template];
        let mut autoscaler = PvcAutoscaler::new("db", crate::api::PvcAutoscalerSpec::default());
        autoscaler.metadata.namespace = Some("shop".to_owned());
        autoscaler.metadata.uid = Some("a".to_owned());
        autoscaler.metadata.generation = Some(i64::try_from(self.template).unwrap() + 1);
        let spec = &mut autoscaler.spec;
        spec.stateful_set_name = "db".to_owned();
        spec.retention = "1h".parse().unwrap();
        spec.hot_copy = self.left.is_hot;
        let template = &mut spec.volume_claim_template;
        template.metadata.name = "data".to_owned();
        template.spec.access_modes = vec!["ReadWriteOnce".to_owned()];
        template.spec.storage_class_name = Some(class.to_owned());
        template.spec.resources.requests.storage = Quantity(Bytes::gib(gib));
        autoscaler.status = Some(self.status.clone());
        autoscaler
    }

    fn seen(&self) -> Seen {
        let replicas = self.replicas;
        let workload = Workload { first: 0, replicas, makes_claims: false, min_ready: 0 };
        let claims = self.claims.iter().map(|(name, claim)| (name.clone(), claim.object(name)));
        let sources = self.sources.iter().map(|(name, source)| {
            (name.clone(), source.object(name, self.claims.get(name).map_or(0, |claim| claim.uid)))
        });
        Seen {
            now: self.now(),
            autoscaler: self.autoscaler(),
            workload: Some(workload),
            claims: claims.collect(),
            sources: sources.collect(),
            pods: self.pod.iter().map(PodModel::object).collect(),
            classes: [("hdd".to_owned(), true), ("ssd".to_owned(), true)].into(),
            usage: BTreeMap::new(),
            is_covered: true,
            refusal: None,
        }
    }

    /// The claim that the webhook gives a pod.
    fn injected(&self) -> Option<String> {
        let entry = self.status.of(0)?;
        let is_new = |phase| matches!(phase, SwapPhase::Draining | SwapPhase::FinalCopy);
        let new = entry.swap.as_ref().filter(|swap| is_new(swap.phase));
        Some(new.map_or(&entry.active_claim, |swap| &swap.claim).clone())
    }

    fn writes_to(&self, claim: &str) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.claim == claim)
    }

    fn uid(&mut self) -> u8 {
        self.next_uid += 1;
        self.next_uid
    }

    /// What the world is after a move; `None` if that cannot happen now.
    ///
    /// # Panics
    /// If it must never happen.
    fn after(&self, one: Move) -> Option<World> {
        let mut next = self.clone();
        let is_done = match one {
            Move::Look(n) => next.look(n),
            Move::Do(n) => next.act(n),
            Move::Die(n) => {
                next.left.deaths > 0 && next.operators[n].is_some() && {
                    next.left.deaths -= 1;
                    next.operators[n] = None;
                    true
                }
            }
            Move::MakePod => next.make_pod(),
            Move::StartPod => next.start_pod(),
            Move::KillPod => {
                next.left.kills > 0 && next.pod.is_some() && {
                    next.left.kills -= 1;
                    next.pod = None;
                    true
                }
            }
            Move::Provision => next.provision(),
            Move::CopyAhead => next.copy_ahead(FillingPhaseKey::Ahead),
            Move::BeginCopy => next.begin_copy(),
            Move::EndCopy => next.end_copy(),
            Move::FailAhead => {
                next.left.failures > 0 && {
                    next.left.failures -= 1;
                    next.copy_ahead(FillingPhaseKey::Failed)
                }
            }
            Move::FailCopy => {
                next.left.failures > 0 && {
                    next.left.failures -= 1;
                    next.fail_copy()
                }
            }
            Move::Edit => {
                next.left.edits > 0 && {
                    next.left.edits -= 1;
                    next.template += 1;
                    true
                }
            }
            Move::Scale => {
                next.left.scalings > 0 && {
                    next.left.scalings -= 1;
                    next.replicas = 1 - next.replicas;
                    true
                }
            }
            Move::Wait => {
                next.left.days > 0 && {
                    next.left.days -= 1;
                    next.hours += 24;
                    true
                }
            }
            Move::Vanish => next.vanish(),
        };
        is_done.then_some(next)
    }

    fn look(&mut self, n: usize) -> bool {
        let plan = plan(&self.seen());
        let note = (plan.status != self.status).then(|| (self.status.clone(), plan.status));
        let steps: VecDeque<Step> =
            plan.steps.into_iter().filter(|step| !matches!(step, Step::Tell { .. })).collect();
        let is_new = n < self.left.operators
            && self.operators[n].is_none()
            && (note.is_some() || !steps.is_empty());
        if is_new {
            self.operators[n] = Some(Decided { note, steps });
        }
        is_new
    }

    /// The next effect of an operator; one that meets another world than it was decided in fails, and the
    /// operator looks again.
    fn act(&mut self, n: usize) -> bool {
        let Some(mut decided) = self.operators[n].take() else { return false };
        if let Some((before, after)) = decided.note.take() {
            if before != self.status {
                return true;
            }
            self.status = after;
        } else if let Some(step) = decided.steps.pop_front() {
            self.apply(step);
        }
        if !decided.steps.is_empty() {
            self.operators[n] = Some(decided);
        }
        true
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::MakeClaim { claim, size, .. } => self.make(claim, size, false),
            Step::MakeCopy { claim, size, .. } => self.make(claim, size, true),
            Step::Adopt { claim, .. } => self.change(&claim, |claim| claim.has_labels = true),
            Step::Grow { claim, size } => {
                let gib = size.0.get() >> 30;
                self.change(&claim, |claim| claim.gib = claim.gib.max(gib));
            }
            Step::MakeSource { claim, from, .. } => {
                let source = Source {
                    from,
                    paused: true,
                    copies_ahead: self.left.is_hot,
                    phase: FillingPhaseKey::Waiting,
                    is_told_of_before: false,
                    read: None,
                };
                self.sources.entry(claim).or_insert(source);
            }
            Step::StartCopy { claim } => {
                if let Some(source) = self.sources.get_mut(&claim).filter(|source| source.paused) {
                    (source.paused, source.is_told_of_before) = (false, true);
                }
            }
            Step::Evict { uid, .. } => {
                let phase =
                    self.status.of(0).and_then(|one| one.swap.as_ref()).map(|one| one.phase);
                let runs = matches!(phase, Some(SwapPhase::Planned | SwapPhase::HotCopy));
                let is_alone = self.left.operators == 1;
                assert!(!(runs && is_alone), "a pod is stopped too early, in {self:#?}");
                self.pod.take_if(|pod| pod.uid.to_string() == uid);
            }
            Step::DropPod { uid, .. } => {
                if let Some(pod) = self.pod.take_if(|pod| pod.uid.to_string() == uid) {
                    assert!(!pod.is_running, "a pod that has been started is deleted");
                }
            }
            Step::Supersede { claim, .. } => self.change(&claim, |claim| claim.superseded = true),
            Step::DropSource { claim } => drop(self.sources.remove(&claim)),
            Step::DropClaim { claim, uid, unbound } => {
                let is_bound = self.claims.get(&claim).is_some_and(|one| one.content.is_some());
                if unbound.is_none() || !is_bound {
                    self.drop_claim(&claim, &uid);
                }
            }
            Step::Count { .. } | Step::Tell { .. } => {}
        }
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = self.claims.get_mut(name) {
            change(claim);
        }
    }

    fn make(&mut self, name: String, size: Quantity, is_copy: bool) {
        let (uid, class) = (self.uid(), TEMPLATES[self.template].1);
        self.claims.entry(name).or_insert(Claim {
            uid,
            gib: size.0.get() >> 30,
            class,
            is_copy,
            content: None,
            has_labels: true,
            superseded: false,
            is_ending: false,
        });
    }

    fn drop_claim(&mut self, name: &str, uid: &str) {
        let Some(claim) = self.claims.get(name).filter(|claim| claim.uid.to_string() == uid) else {
            return;
        };
        let others = self.claims.iter().filter(|(other, _)| *other != name);
        let mut others = others.filter(|(_, other)| !other.is_ending);
        let has_all = claim.content.is_some();
        let is_elsewhere = others.any(|(_, other)| other.content == Some(self.data));
        assert!(!has_all || is_elsewhere, "the only copy, {name}, is deleted in {self:#?}");
        self.change(name, |claim| claim.is_ending = true);
    }

    fn make_pod(&mut self) -> bool {
        let claim = self.injected().filter(|_| self.pod.is_none() && self.replicas > 0);
        let Some(claim) = claim else { return false };
        let uid = self.uid();
        self.pod = Some(PodModel { uid, claim, is_running: false });
        true
    }

    /// A pod finds all that was ever written, and writes more; a pod that the workload wants no more ends.
    fn start_pod(&mut self) -> bool {
        if self.replicas == 0 {
            return self.pod.take().is_some();
        }
        let Some(pod) = self.pod.clone().filter(|pod| !pod.is_running) else { return false };
        let Some(claim) = self.claims.get(&pod.claim).filter(|claim| !claim.is_ending) else {
            return false;
        };
        let Some(content) = claim.content else { return false };
        assert_eq!(content, self.data, "a pod starts without what was written, in {self:#?}");
        assert!(!claim.superseded, "a pod starts on a superseded claim, in {self:#?}");
        self.data += 1;
        let data = self.data;
        self.change(&pod.claim, |claim| claim.content = Some(data));
        self.pod = Some(PodModel { is_running: true, ..pod });
        true
    }

    fn provision(&mut self) -> bool {
        let waits = |claim: &&mut Claim| !claim.is_copy && claim.content.is_none();
        let Some(claim) = self.claims.values_mut().find(waits) else { return false };
        claim.content = Some(0);
        true
    }

    /// The source of a claim that is still wanted.
    fn source_that(&self, is: impl Fn(&Source) -> bool) -> Option<String> {
        let is_it = |(name, source): &(&String, &Source)| {
            self.claims.get(*name).is_some_and(|claim| !claim.is_ending) && is(source)
        };
        self.sources.iter().find(is_it).map(|(name, _)| name.clone())
    }

    fn tell(&mut self, name: &str, phase: FillingPhaseKey) {
        let source = self.sources.get_mut(name).expect("it was found");
        (source.phase, source.is_told_of_before) = (phase, false);
    }

    /// The populator ends its rounds, whoever writes.
    fn copy_ahead(&mut self, to: FillingPhaseKey) -> bool {
        let is_it = |source: &Source| {
            source.paused && source.copies_ahead && source.phase == FillingPhaseKey::Waiting
        };
        let Some(name) = self.source_that(is_it) else { return false };
        self.tell(&name, to);
        true
    }

    /// The populator begins the one copy that it can.
    fn begin_copy(&mut self) -> bool {
        let is_it = |source: &Source| {
            let is_open = source.phase == FillingPhaseKey::Waiting || source.is_told_of_before;
            is_open && !source.paused && !self.writes_to(&source.from)
        };
        let Some(name) = self.source_that(is_it) else { return false };
        let from = &self.sources[&name].from;
        let read = self.claims.get(from).and_then(|claim| claim.content);
        self.tell(&name, FillingPhaseKey::Filling);
        self.sources.get_mut(&name).expect("it was found").read = read;
        read.is_some()
    }

    /// It ends, and its volume is the claim's.
    fn end_copy(&mut self) -> bool {
        let is_it = |source: &Source| {
            source.phase == FillingPhaseKey::Filling && !self.writes_to(&source.from)
        };
        let Some(name) = self.source_that(is_it) else { return false };
        self.tell(&name, FillingPhaseKey::Filled);
        let read = self.sources[&name].read;
        self.change(&name, |claim| claim.content = read);
        true
    }

    fn fail_copy(&mut self) -> bool {
        let runs = |source: &&mut Source| source.phase == FillingPhaseKey::Filling;
        let Some(source) = self.sources.values_mut().find(runs) else { return false };
        source.phase = FillingPhaseKey::Failed;
        true
    }

    /// A claim that was deleted goes when no pod has it.
    fn vanish(&mut self) -> bool {
        let used = self.pod.as_ref().map(|pod| pod.claim.clone());
        let goes =
            |(name, claim): &(&String, &Claim)| claim.is_ending && used.as_ref() != Some(*name);
        let Some(name) = self.claims.iter().find(goes).map(|(name, _)| name.clone()) else {
            return false;
        };
        self.claims.remove(&name);
        true
    }

    /// Whether all is as the newest template has it, or the swap to it has failed; and nothing is left.
    fn has_ended_well(&self) -> bool {
        let Some(entry) = self.status.of(0) else { return self.replicas == 0 };
        let (gib, class) = TEMPLATES[self.template];
        let active = self.claims.get(&entry.active_claim);
        let is_wanted = active.is_some_and(|claim| (claim.gib, claim.class) == (gib, class));
        let has_failed = self.status.phase == AutoscalerPhase::Failed;
        let runs = self.pod.as_ref().is_some_and(|pod| pod.is_running);
        let is_clean = self.sources.is_empty() && self.claims.len() <= 1 + entry.retained.len();
        (is_wanted || has_failed) && is_clean && (runs || self.replicas == 0)
    }
}

impl Claim {
    fn object(&self, name: &str) -> PersistentVolumeClaim {
        let size = || BTreeMap::from([("storage".to_owned(), Text(format!("{}Gi", self.gib)))]);
        let mut metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(self.uid.to_string()),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        };
        if self.has_labels {
            let labels = [(KEPT_BY, "db"), (ORDINAL, "0")];
            let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            metadata.labels = Some(labels.into_iter().map(own).collect());
        }
        if self.superseded {
            metadata.annotations = Some([(SUPERSEDED_BY.to_owned(), "x".to_owned())].into());
        }
        metadata.deletion_timestamp = self.is_ending.then_some(Time(Timestamp::UNIX_EPOCH));
        let phase = if self.content.is_some() { "Bound" } else { "Pending" };
        PersistentVolumeClaim {
            metadata,
            spec: Some(PersistentVolumeClaimSpec {
                access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
                storage_class_name: Some(self.class.to_owned()),
                resources: Some(VolumeResourceRequirements {
                    requests: Some(size()),
                    ..VolumeResourceRequirements::default()
                }),
                data_source_ref: self.is_copy.then(TypedObjectReference::default),
                ..PersistentVolumeClaimSpec::default()
            }),
            status: Some(PersistentVolumeClaimStatus {
                phase: Some(phase.to_owned()),
                capacity: self.content.map(|_| size()),
                ..PersistentVolumeClaimStatus::default()
            }),
        }
    }
}

impl Source {
    fn object(&self, name: &str, claim: u8) -> PvcSourcePopulator {
        let phase = match self.phase {
            FillingPhaseKey::Waiting => FillingPhase::Waiting,
            FillingPhaseKey::Filling => FillingPhase::Filling,
            FillingPhaseKey::Ahead => FillingPhase::Ahead,
            FillingPhaseKey::Filled => FillingPhase::Filled,
            FillingPhaseKey::Failed => FillingPhase::Failed,
        };
        let filling = Filling {
            claim: name.to_owned(),
            uid: claim.to_string(),
            phase,
            generation: if self.paused || self.is_told_of_before { 1 } else { 2 },
            digest: Some("d".to_owned()),
            ..Filling::default()
        };
        let spec = json!({"sourcePvcRef": {"name": self.from}, "paused": self.paused,
                          "copyAhead": self.copies_ahead});
        let spec = serde_json::from_value(spec).unwrap();
        let mut source = PvcSourcePopulator::new(name, spec);
        source.metadata.generation = Some(if self.paused { 1 } else { 2 });
        source.status = Some(PopulatorStatus { claims: vec![filling] });
        source
    }
}

impl PodModel {
    fn object(&self) -> Pod {
        let claim_name = self.claim.clone();
        let claim = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        let volume = Volume {
            name: "data".to_owned(),
            persistent_volume_claim: Some(claim),
            ..Volume::default()
        };
        let ready = PodCondition {
            type_: "Ready".to_owned(),
            status: if self.is_running { "True" } else { "False" }.to_owned(),
            last_transition_time: Some(Time(Timestamp::UNIX_EPOCH)),
            ..PodCondition::default()
        };
        Pod {
            metadata: ObjectMeta {
                name: Some("db-0".to_owned()),
                uid: Some(self.uid.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                volumes: Some(vec![volume]),
                node_name: self.is_running.then(|| "alpha".to_owned()),
                ..PodSpec::default()
            }),
            status: Some(PodStatus { conditions: Some(vec![ready]), ..PodStatus::default() }),
        }
    }
}

/// Let all happen that always happens, and nothing else.
fn settle(world: &World) -> World {
    let mut world = world.clone();
    world.left = Left { edits: 0, is_hot: world.left.is_hot, ..NOTHING };
    if world.replicas == 0 {
        world.replicas = 1;
    }
    for _ in 0..200 {
        let mut both = MOVES[..FAIR].iter().chain([&Move::Do(1)]);
        let Some(next) = both.find_map(|one| world.after(*one)) else { break };
        world = next;
    }
    world
}

/// Explore all that can be reached; how many states that are.
fn explore(left: Left) -> usize {
    let first = World::new(left);
    let mut known: HashSet<u64> = [first.key()].into();
    let mut open = VecDeque::from([first]);
    while let Some(world) = open.pop_front() {
        for next in MOVES.into_iter().filter_map(|one| world.after(one)) {
            if known.insert(next.key()) {
                if known.len().is_multiple_of(16) {
                    let end = settle(&next);
                    assert!(end.has_ended_well(), "no good end, from {next:#?} to {end:#?}");
                }
                open.push_back(next);
            }
        }
    }
    known.len()
}

#[test]
fn in_every_state_nothing_is_lost_and_all_ends_well() {
    let stories = [
        Left { operators: 2, ..NOTHING },
        Left { deaths: 3, ..NOTHING },
        Left { kills: 2, deaths: 1, ..NOTHING },
        Left { failures: 1, deaths: 1, ..NOTHING },
        Left { scalings: 2, deaths: 1, ..NOTHING },
        Left { days: 2, deaths: 1, ..NOTHING },
        Left { edits: 2, deaths: 1, ..NOTHING },
        Left { operators: 2, ..HOT },
        Left { deaths: 3, ..HOT },
        Left { kills: 2, deaths: 1, ..HOT },
        Left { failures: 2, deaths: 1, ..HOT },
        Left { scalings: 2, deaths: 1, ..HOT },
        Left { edits: 2, deaths: 1, ..HOT },
    ];
    let found: Vec<(Left, std::thread::Result<usize>)> = std::thread::scope(|scope| {
        let all = stories.map(|left| (left, scope.spawn(move || explore(left))));
        all.map(|(left, explored)| (left, explored.join())).into()
    });
    let (mut states, mut broken) = (0, 0);
    for (left, explored) in found {
        println!("{explored:?} states with {left:?}");
        states += explored.as_ref().unwrap_or(&0);
        broken += usize::from(explored.is_err());
    }
    figures::figures(
        "swaps.txt",
        &[("swap_states_explored", states), ("swap_invariant_violations", broken)],
    );
    assert_eq!(broken, 0, "stories in which something is lost or does not end well");
    assert!(states > 10_000, "only {states} states");
}
