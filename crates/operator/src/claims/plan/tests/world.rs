//! One pod and its claim, and all that can happen to them: two operators that look, do one effect after
//! the other and die between any two of them; a node that does what it is asked late, or in another order;
//! a controller that makes pods, a kubelet that starts them, a populator that copies and may fail; somebody
//! who kills pods, edits the template, scales, deletes the PvcAutoscaler, and writes to a volume past all of
//! them; a user who edits and deletes the objects of a swap; and time.

use crate::claims::observe::leave_out_taken;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::retries::Tries;
use super::tampering::Tampering;
use crate::api::{
    Abort, AutoscalerPhase, PopulatorPod, PvcAutoscaler, PvcAutoscalerSpec, PvcAutoscalerStatus,
    Quantity, Rollback, Rollout,
};
use crate::bytes::Bytes;
use crate::claims::can_be_aborted;
use crate::claims::coverage::WorkloadCoverage;
use crate::claims::observed::{Claims, ClockSeen, ObservedWorkload, PodController};
use crate::claims::steps::Step;
use crate::claims::swap_context::SwapContext;
use crate::cluster::{ClockSkew, OperationRequest, PodSummary};
use crate::volume::Fence;

/// The templates, in the order in which they are edited: size in GiB and class.
pub(super) const TEMPLATES: [(u64, &str); 3] = [(4, "hdd"), (2, "ssd"), (8, "ssd")];

/// How long claims that others have taken the place of are kept.
pub(super) const RETENTION: &str = "1h";

/// How often each of what need not happen does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(super) struct Left {
    pub edits: u8,
    pub kills: u8,
    pub deaths: u8,
    pub failures: u8,
    pub scalings: u8,
    pub days: u8,
    /// How often the clock of the first operator is put days ahead, or right again.
    pub skews: u8,
    /// How often another node lies about the volumes of this one.
    pub lies: u8,
    /// How often the node of the volumes lies about them, until it tells the truth again.
    pub own_lies: u8,
    /// How often somebody whom nobody knows of has a volume open, and writes to it at last.
    pub holds: u8,
    /// How often the PvcAutoscaler is deleted, and made again.
    pub deletions: u8,
    /// How often the claim of a pod that is to get another one is deleted.
    pub claim_deletions: u8,
    /// How often somebody wants the pod to have again what it had before.
    pub backs: u8,
    /// How often the template is edited back to what it was.
    pub edits_back: u8,
    /// How often a person gives a swap up.
    pub aborts: u8,
    /// How often a user edits or deletes an object of a swap.
    pub meddles: u8,
    /// How often a user does so to what keeps a swap safe, or to what one before has left.
    pub tampers: u8,
    /// How often a pod that copies is refused.
    pub refusals: u8,
    /// How often a copy that runs goes on no more, or an exchange does not begin.
    pub stalls: u8,
    /// Whether each of them is, for as long as there is one.
    pub refuses_all: bool,
    /// Whether nodes do what they are asked in another order, too.
    pub is_disordered: bool,
    /// Whether claims are copied ahead.
    pub is_hot: bool,
    /// Whether the workload makes the claims, so that they keep their names.
    pub keeps_names: bool,
    /// Whether a copy that fails came out different, so that it is tried again.
    pub differs: bool,
    /// How many operators there are.
    pub operators: usize,
}

/// The template is edited once, and nothing else goes on.
pub(super) const NOTHING: Left = Left {
    edits: 1,
    kills: 0,
    deaths: 0,
    failures: 0,
    scalings: 0,
    days: 0,
    skews: 0,
    lies: 0,
    own_lies: 0,
    holds: 0,
    deletions: 0,
    claim_deletions: 0,
    backs: 0,
    edits_back: 0,
    aborts: 0,
    meddles: 0,
    tampers: 0,
    refusals: 0,
    stalls: 0,
    refuses_all: false,
    is_disordered: false,
    is_hot: false,
    keeps_names: false,
    differs: false,
    operators: 1,
};

/// The same, and the claim is copied ahead while its pod runs.
pub(super) const HOT: Left = Left { is_hot: true, ..NOTHING };

/// The same, and the claims keep their names.
pub(super) const SAME: Left = Left { keeps_names: true, ..NOTHING };

/// The same, and a copy that fails is tried again after hours.
pub(super) const RETRIED: Left = Left { differs: true, ..NOTHING };

/// How much of what was written is in a volume: the number of the last write.
pub(super) type Data = u8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(super) struct Claim {
    pub uid: u8,
    pub gib: u64,
    /// The volume that it has, or will have.
    pub volume: u8,
    pub class: &'static str,
    pub is_copy: bool,
    /// What is in its volume, once it has one.
    pub content: Option<Data>,
    pub has_labels: bool,
    /// Whether its label names another PvcAutoscaler.
    pub is_anothers: bool,
    pub superseded: bool,
    /// The claim that has taken its place as a user has written, who may lie.
    pub forged_by: Option<String>,
    /// How often that was changed: who has seen it before does not change it.
    pub marks: u8,
    pub is_ending: bool,
    /// Whether its PersistentVolume is being made anew.
    pub is_lost: bool,
    /// Who may use its volume, as that says itself.
    pub fence: Fence,
    /// Whether somebody whom nobody knows of has its device open.
    pub is_held: bool,
    /// Whether a copy has it mounted, so read-only.
    pub is_read: bool,
    /// Whether a swap keeps it from going.
    pub has_finalizer: bool,
    /// Whether its volume stays when it goes.
    pub is_volume_kept: bool,
    /// Whether its PersistentVolume says that a populator has filled it.
    pub is_filled: bool,
    /// Uid of the claim that is complete, as its PersistentVolume says; none has 0.
    pub detached_for: u8,
    /// Whether a user has made it larger.
    pub is_grown: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(super) struct Source {
    pub from: String,
    pub paused: bool,
    pub copies_ahead: bool,
    pub phase: FillingPhaseKey,
    /// Whether that is told of a time at which it was paused.
    pub is_told_of_before: bool,
    /// What its pod has read.
    pub read: Option<Data>,
    /// Whether it has our labels.
    pub has_labels: bool,
}

/// The phases of a filling that matter here; the type of the API cannot be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FillingPhaseKey {
    Waiting,
    /// The pod that copies, or the one that tries whether that can be, is refused.
    Refused,
    /// It has its room, and waits until it is not paused any more.
    Held,
    Filling,
    /// The pod that fills it is not known to go on.
    Stalled,
    Ahead,
    Filled,
    Failed,
    /// What was copied is not what was read.
    Different,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PodModel {
    pub uid: u8,
    pub claim: String,
    pub is_running: bool,
    pub is_gated: bool,
}

/// What an operator has decided and not done yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decided {
    /// The status that it saw, and the one that it writes first.
    pub note: Option<(PvcAutoscalerStatus, PvcAutoscalerStatus)>,
    /// How often each claim had been marked then.
    pub marks: BTreeMap<String, u8>,
    /// What each source was filled from then: one that was made again is another object.
    pub froms: BTreeMap<String, String>,
    pub steps: VecDeque<Step>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct World {
    pub template: usize,
    pub replicas: i32,
    pub status: PvcAutoscalerStatus,
    pub claims: BTreeMap<String, Claim>,
    pub sources: BTreeMap<String, Source>,
    pub pod: Option<PodModel>,
    pub data: Data,
    pub hours: i64,
    /// Whether the clock of the first operator is days ahead.
    pub is_ahead: bool,
    /// What the records of nodes say that is not so.
    pub lie: Option<Lie>,
    pub next_uid: u8,
    pub operators: [Option<Decided>; 2],
    /// What nodes are asked and have not done yet, whoever has asked.
    pub asks: BTreeSet<(String, String)>,
    /// What each operator has asked, and been answered; the last is what is asked for no swap.
    pub asked: [BTreeMap<String, OperationRequest>; 3],
    /// The PvcAutoscaler, of those that had its name; `None` while there is none.
    pub keeper: Option<u8>,
    /// The two claims that change their volumes right now, so that neither has one.
    pub exchange: Option<(String, String)>,
    /// The claim revision that somebody wants to be left, and what the pod had before that.
    pub back: Option<(i64, Data)>,
    /// Whether that was done, or refused with words.
    pub is_answered: bool,
    /// How often the specification was edited.
    pub edited: u8,
    /// The swap that a person gives up, by the specification that it was begun with.
    pub abort: Option<i64>,
    /// What is in a volume whose claim was deleted, and that stays.
    pub kept: Option<Data>,
    /// How swaps came out that are tried again.
    pub tries: Tries,
    /// Whether a user has paused the PvcAutoscaler.
    pub is_paused: bool,
    /// What a user tampers with in this story.
    pub tampering: &'static [Tampering],
    pub left: Left,
}

/// What the record of a node says of volumes that is not so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lie {
    /// Another node tells of all of them, with other fences.
    OfAnother,
    /// Their node says that others took the place of all of them.
    Superseded,
    /// Their node says so with the highest number that there is.
    Highest,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
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
    Answer,
    AnswerLast,
    Sweep,
    Hold,
    LetGo,
    Unmount,
    Delete,
    Create,
    DeleteClaim,
    Exchange,
    OpenGate,
    RollBack,
    AwaitRetry,
    AwaitLimit,
    Refuse,
    Stall,
    EditBack,
    Abort,
    TurnClock,
    Lie,
    LieOfItsOwn,
    TellTruth,
    Meddle(Meddling),
    Tamper(Tampering),
}

/// What a user does to an object of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meddling {
    /// Set `spec.paused` of the PvcSourcePopulator to false.
    LetCopyBegin,
    /// Set it to true.
    HoldCopy,
    DeleteSource,
    DeleteNewClaim,
    /// Take our labels off the new claim.
    Unlabel,
    /// Take our scheduling gate off the pod.
    Ungate,
    /// Pause the PvcAutoscaler, or let it go on.
    Pause,
}

pub(super) const MOVES: [Move; 48] = [
    Move::Exchange,
    Move::OpenGate,
    Move::LetGo,
    Move::Unmount,
    Move::Create,
    Move::Answer,
    Move::Sweep,
    Move::Look(0),
    Move::Do(0),
    Move::Provision,
    Move::MakePod,
    Move::StartPod,
    Move::CopyAhead,
    Move::AwaitLimit,
    Move::BeginCopy,
    Move::EndCopy,
    Move::Vanish,
    Move::Wait,
    Move::AwaitRetry,
    Move::TellTruth,
    Move::Look(1),
    Move::Do(1),
    Move::Die(0),
    Move::Die(1),
    Move::KillPod,
    Move::FailAhead,
    Move::FailCopy,
    Move::Edit,
    Move::Scale,
    Move::AnswerLast,
    Move::Hold,
    Move::Delete,
    Move::DeleteClaim,
    Move::RollBack,
    Move::Refuse,
    Move::Stall,
    Move::EditBack,
    Move::Abort,
    Move::TurnClock,
    Move::Lie,
    Move::LieOfItsOwn,
    Move::Meddle(Meddling::LetCopyBegin),
    Move::Meddle(Meddling::HoldCopy),
    Move::Meddle(Meddling::DeleteSource),
    Move::Meddle(Meddling::DeleteNewClaim),
    Move::Meddle(Meddling::Unlabel),
    Move::Meddle(Meddling::Ungate),
    Move::Meddle(Meddling::Pause),
];

/// Those that always happen in the end.
pub(super) const FAIR: usize = 20;

impl World {
    pub fn new(left: Left) -> World {
        World {
            template: 0,
            replicas: 1,
            status: PvcAutoscalerStatus::default(),
            claims: BTreeMap::new(),
            sources: BTreeMap::new(),
            pod: None,
            data: 0,
            hours: 0,
            is_ahead: false,
            lie: None,
            next_uid: 0,
            operators: [None, None],
            asks: BTreeSet::new(),
            asked: [const { BTreeMap::new() }; 3],
            keeper: Some(0),
            exchange: None,
            back: None,
            is_answered: true,
            edited: 0,
            abort: None,
            kept: None,
            tries: Tries::default(),
            is_paused: false,
            tampering: &[],
            left,
        }
    }

    pub fn key(&self) -> u64 {
        // Of every state explored: a text that grows is moved again and again.
        let mut text = String::with_capacity(32 << 10);
        write!(text, "{self:?}").expect("a text takes all");
        let digest = Sha256::digest(text);
        u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"))
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(self.hours)
    }

    fn autoscaler(&self) -> PvcAutoscaler {
        let (gib, class) = TEMPLATES[self.template];
        let mut autoscaler = PvcAutoscaler::new("db", PvcAutoscalerSpec::default());
        autoscaler.metadata.namespace = Some("shop".to_owned());
        autoscaler.metadata.uid = self.keeper.map(|uid| uid.to_string());
        autoscaler.metadata.generation = Some(i64::from(self.edited) + 1);
        let spec = &mut autoscaler.spec;
        spec.stateful_set_name = Some("db".to_owned());
        spec.retention = RETENTION.parse().unwrap();
        spec.pre_copy = self.left.is_hot;
        let paused = Rollout { partition: 0, paused: true, max_unavailable: 1 };
        spec.rollout = self.is_paused.then_some(paused);
        let back = self.back.map(|(revision, _)| Rollback { ordinal: 0, claim_revision: revision });
        spec.rollback = back.into_iter().collect();
        let abort = self.abort.map(|generation| Abort { ordinal: 0, spec_generation: generation });
        spec.abort = abort.into_iter().collect();
        let template = &mut spec.volume_claim_template;
        template.metadata.name = "data".to_owned();
        template.spec.access_modes = vec!["ReadWriteOnce".to_owned()];
        template.spec.storage_class_name = Some(class.to_owned());
        template.spec.resources.requests.storage = Quantity(Bytes::gib(gib));
        autoscaler.status = Some(self.status.clone());
        autoscaler
    }

    pub fn seen(&self, n: usize) -> ObservedWorkload {
        let replicas = self.replicas;
        let claims = Claims::Numbered(0..replicas);
        let makes_claims = self.left.keeps_names;
        let workload = PodController {
            claims,
            makes_claims,
            other_volumes: None,
            has_unnamed: false,
            min_ready: 0,
            habits: Vec::new(),
            populator_pod: PopulatorPod::default(),
        };
        let claims = self.claims.iter().map(|(name, claim)| (name.clone(), claim.object(name)));
        let labelled = self.sources.iter().filter(|(_, source)| source.has_labels);
        let sources = labelled.map(|(name, source)| {
            (name.clone(), source.object(name, self.claims.get(name).map_or(0, |claim| claim.uid)))
        });
        let volumes = self.claims.keys().map(|name| (name.clone(), self.volume(name, n)));
        let (now, clock) = self.clock(n);
        let mut seen = ObservedWorkload {
            now,
            clock,
            taken: BTreeMap::new(),
            autoscaler: self.autoscaler(),
            siblings: Vec::new(),
            workload: Some(workload),
            claims: claims.collect(),
            sources: sources.collect(),
            pods: self.pods(),
            elder: None,
            left: BTreeSet::new(),
            classes: [("hdd".to_owned(), true), ("ssd".to_owned(), true)].into(),
            foreign: BTreeSet::new(),
            around: SwapContext::default(),
            exchanges: self.exchanges(),
            usage: BTreeMap::new(),
            silent: BTreeMap::new(),
            volumes: volumes.collect(),
            handed_over: self.handed_over(),
            unmarked: BTreeSet::new(),
            detached: self.detached(),
            untrue_notes: BTreeMap::new(),
            may_still_run: BTreeMap::new(),
            superseded: self.superseded(),
            coverage: WorkloadCoverage::Covered,
            refusal: None,
        };
        leave_out_taken(&mut seen);
        seen
    }

    /// The pod, and those that copy.
    pub fn pods(&self) -> Vec<PodSummary> {
        let copying =
            self.sources.iter().filter(|(name, source)| self.reads((name, source), &source.from));
        let copying = copying.map(|(_, source)| source.pod());
        self.pod.iter().map(PodModel::object).chain(copying).collect()
    }

    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = self.claims.get_mut(name) {
            change(claim);
        }
    }

    pub fn uid(&mut self) -> u8 {
        self.next_uid += 1;
        self.next_uid
    }

    /// What the world is after a move; `None` if that cannot happen now.
    ///
    /// # Panics
    /// If it must never happen.
    pub fn after(&self, one: Move) -> Option<World> {
        if !self.may(one) {
            return None;
        }
        let mut next = self.clone();
        let is_done = match one {
            Move::Look(n) => next.look(n),
            Move::Do(n) => next.act(n),
            Move::Die(n) => next.die(n),
            Move::MakePod => next.make_pod(),
            Move::StartPod => next.start_pod(),
            Move::KillPod => next.kill_pod(),
            Move::Provision => next.provision(),
            Move::CopyAhead => next.copy_ahead(FillingPhaseKey::Ahead),
            Move::BeginCopy => next.begin_copy(),
            Move::EndCopy => next.end_copy(),
            Move::FailAhead => next.fails() && next.copy_ahead(FillingPhaseKey::Failed),
            Move::FailCopy => next.fails() && next.fail_copy(),
            Move::Edit => next.edit(),
            Move::Scale => next.scale(),
            Move::Wait => next.wait(),
            Move::Vanish => next.vanish(),
            Move::Answer => next.answer(false),
            Move::AnswerLast => next.answer(true),
            Move::Sweep => next.sweep(),
            Move::Hold => next.hold(),
            Move::LetGo => next.let_go(),
            Move::Unmount => next.unmount(),
            Move::Delete => next.delete(),
            Move::Create => next.create(),
            Move::DeleteClaim => next.delete_claim(),
            Move::Exchange => next.end_exchange(),
            Move::OpenGate => next.open_gate(),
            Move::RollBack => next.ask_for_before(),
            Move::AwaitRetry => next.await_retry(),
            Move::AwaitLimit => next.await_limit(),
            Move::Refuse => next.refuse(),
            Move::Stall => next.stall(),
            Move::EditBack => next.edit_back(),
            Move::Abort => next.abort(),
            Move::TurnClock => next.turn_clock(),
            Move::Lie => next.lie(),
            Move::LieOfItsOwn => next.lie_of_its_own(),
            Move::TellTruth => next.tell_truth(),
            Move::Meddle(meddling) => next.meddle(meddling),
            Move::Tamper(tampering) => next.tamper(tampering),
        };
        next.forget();
        is_done.then_some(next)
    }

    /// Whether a move may happen, as far as that is seen without trying it.
    fn may(&self, one: Move) -> bool {
        let left = &self.left;
        match one {
            Move::Look(n) => {
                n < left.operators && self.operators[n].is_none() && self.keeper.is_some()
            }
            Move::Do(n) => self.operators[n].is_some(),
            Move::Die(n) => left.deaths > 0 && self.operators[n].is_some(),
            Move::KillPod => left.kills > 0 && self.pod.is_some(),
            Move::FailAhead | Move::FailCopy => left.failures > 0,
            Move::Edit => left.edits > 0,
            Move::Scale => left.scalings > 0,
            Move::Wait => left.days > 0,
            Move::Answer => !self.asks.is_empty(),
            Move::AnswerLast => left.is_disordered && self.asks.len() > 1,
            Move::Hold => left.holds > 0,
            Move::Delete => left.deletions > 0,
            Move::RollBack => left.backs > 0,
            Move::DeleteClaim => left.claim_deletions > 0,
            Move::Create => self.keeper.is_none(),
            Move::Exchange => self.exchange.is_some(),
            Move::OpenGate => self.pod.as_ref().is_some_and(|pod| pod.is_gated),
            Move::AwaitRetry => self.next_try().is_some(),
            Move::AwaitLimit => {
                let may_stall = left.refuses_all || left.refusals > 0 || left.stalls > 0;
                may_stall || self.stalls() || self.is_held_up_by_user()
            }
            Move::Refuse => left.refusals > 0,
            Move::Stall => left.stalls > 0,
            Move::EditBack => left.edits_back > 0,
            Move::Abort => left.aborts > 0,
            Move::Meddle(_) => left.meddles > 0,
            Move::Tamper(_) => left.tampers > 0,
            Move::TurnClock => left.skews > 0,
            Move::Lie => left.lies > 0 && self.lie.is_none(),
            Move::LieOfItsOwn => left.own_lies > 0 && self.lie.is_none(),
            Move::TellTruth => self.lie.is_some_and(|lie| lie != Lie::OfAnother),
            Move::CopyAhead | Move::BeginCopy | Move::EndCopy => !self.sources.is_empty(),
            Move::MakePod => self.pod.is_none(),
            Move::StartPod => {
                let is_started = |pod: &PodModel| pod.is_running && self.replicas > 0;
                self.pod.as_ref().is_some_and(|pod| !is_started(pod))
            }
            Move::Provision => {
                !self.sources.is_empty() || self.has_one(|claim| claim.content.is_none())
            }
            Move::Vanish => self.has_one(|claim| claim.is_ending),
            Move::LetGo => self.has_one(|claim| claim.is_held),
            Move::Unmount => self.has_one(|claim| claim.is_read),
            Move::Sweep => true,
        }
    }

    fn has_one(&self, like: impl Fn(&Claim) -> bool) -> bool {
        self.claims.values().any(like)
    }

    fn die(&mut self, n: usize) -> bool {
        self.left.deaths -= 1;
        self.operators[n] = None;
        self.asked[n].clear();
        true
    }

    fn kill_pod(&mut self) -> bool {
        self.left.kills -= 1;
        self.pod = None;
        true
    }

    fn fails(&mut self) -> bool {
        self.left.failures -= 1;
        true
    }

    fn edit(&mut self) -> bool {
        self.left.edits -= 1;
        self.template += 1;
        self.edited += 1;
        true
    }

    fn edit_back(&mut self) -> bool {
        self.left.edits_back -= 1;
        self.edited += 1;
        let is_edited = self.template > 0;
        self.template = self.template.saturating_sub(1);
        is_edited
    }

    /// A person gives the swap up that goes on.
    fn abort(&mut self) -> bool {
        let swap = self.status.of(0).and_then(|entry| entry.swap.as_ref());
        let swap = swap.filter(|swap| can_be_aborted(swap.phase)).map(|swap| swap.spec_generation);
        self.left.aborts -= 1;
        self.edited += 1;
        self.abort = swap;
        swap.is_some()
    }

    fn scale(&mut self) -> bool {
        self.left.scalings -= 1;
        self.replicas = 1 - self.replicas;
        true
    }

    fn wait(&mut self) -> bool {
        self.left.days -= 1;
        self.hours += 24;
        true
    }

    fn turn_clock(&mut self) -> bool {
        self.left.skews -= 1;
        self.is_ahead = !self.is_ahead;
        true
    }

    /// What the clock of an operator shows, and what it knows of that: it asks the API server.
    fn clock(&self, n: usize) -> (Timestamp, ClockSeen) {
        if n > 0 || !self.is_ahead {
            return (self.now(), ClockSeen::Agrees);
        }
        let ahead = SignedDuration::from_hours(72);
        (self.now() + ahead, ClockSeen::Differs(ClockSkew::Ahead(ahead)))
    }

    /// Somebody wants the pod to have again what it had before; in the midst of its first swap that is nothing.
    fn ask_for_before(&mut self) -> bool {
        let asked = self.status.of(0).and_then(|entry| {
            let before = entry.before().and_then(|before| self.claims.get(&before.name)?.content);
            let is_first = entry.claim_revision == 0 && entry.swap.is_some();
            let before = before.filter(|_| entry.claim_revision > 0);
            Some((entry.claim_revision, before.or(is_first.then_some(Data::MAX))?))
        });
        self.left.backs -= 1;
        self.edited += 1;
        (self.back, self.is_answered) = (asked, false);
        asked.is_some()
    }

    /// Note that the status says what became of what somebody wanted back.
    pub(super) fn note_answer(&mut self) {
        let Some((revision, _)) = self.back else { return };
        let Some(entry) = self.status.of(0) else { return };
        let late = format!("from claim revision {revision}, but");
        let is_told = self.status.message.as_ref().is_some_and(|why| why.contains(&late));
        self.is_answered |= entry.last_rollback_revision == Some(revision) || is_told;
    }

    /// Whether this is what the pod had before, and somebody wants it to have that again.
    pub(super) fn is_wanted_back(&self, content: Data) -> bool {
        self.back.is_some_and(|(_, before)| before == content)
    }

    /// Whether all is as the newest template has it, or the swap to it has failed; and nothing is left.
    pub fn has_ended_well(&self) -> bool {
        let is_ambiguous = self.status.reason.as_deref() == Some("AmbiguousClaimName");
        let Some(entry) = self.status.of(0) else { return self.replicas == 0 || is_ambiguous };
        let (gib, class) = TEMPLATES[self.template];
        let active = self.claims.get(&entry.active_claim);
        let is_wanted = active.is_some_and(|claim| {
            let is_large = claim.gib == gib || claim.is_grown && claim.gib > gib;
            is_large && claim.class == class
        });
        let has_failed = self.status.phase == AutoscalerPhase::Failed && self.is_given_up();
        let runs = self.pod.as_ref().is_some_and(|pod| pod.is_running);
        // Of a PvcAutoscaler that was deleted nobody knows how long the claims before are kept, unless pods name
        // theirs by themselves.
        let is_known = self.keeper == Some(0) || self.left.keeps_names;
        let is_kept = !is_known || self.claims.len() <= 1 + entry.retained_claims.len();
        let is_marked = active.is_some_and(|claim| claim.superseded);
        let has_source = self.sources.values().any(|source| source.has_labels);
        let is_clean = !has_source && is_kept && !is_marked;
        let is_kept_back = self.kept == Some(self.data);
        // Deleted under its pod, it goes when that ends; only then there is another one.
        let waits = runs && active.is_some_and(|claim| claim.is_ending);
        let is_back = entry.rollback.is_some() && entry.swap.is_none();
        let is_aborted = entry.aborted.is_some() && entry.swap.is_none();
        // What never was cannot be had again: that is said, and nothing else begins until it is taken back.
        let is_heard = self.is_answered
            || self.back.is_none_or(|(revision, _)| entry.claim_revision <= revision);
        let is_back_lost = entry.before().is_none() && !self.tampering.is_empty();
        let never = self.back.filter(|(revision, _)| *revision == entry.claim_revision);
        let is_impossible = never.is_some_and(|(_, content)| content == Data::MAX || is_back_lost)
            && self.status.reason.as_deref() == Some("RollbackPending");
        if self.waits_for_user(runs) {
            return true;
        }
        let is_heard = is_heard || is_impossible;
        (is_wanted || has_failed || waits || is_back || is_aborted || is_impossible)
            && is_clean
            && is_heard
            && (runs || is_kept_back || self.replicas == 0)
    }
}
