//! Each request of the operator that changes something is lost, before and after it is carried out, or
//! kills the operator; alone and beside another replica. All ends where a run without a fault ends, and
//! no pod ever misses what it had written.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pliant::api::{AutoscalerPhase, PvcAutoscaler};
use pliant::bytes::Bytes;
use pliant::testing::Lost;
use serde_json::{Value, json};

use crate::block_on;
use crate::exhaustive::exhaustive;
use crate::play::End as PodEnd;
use crate::tally::{Tally, Verdict, for_each, points};
use crate::world::{World, refuse_copies};

/// A story of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Its claims are made, and grow.
    Grow,
    /// Both of its pods get smaller claims of another class, and the old ones are deleted.
    Swap,
    /// Its pod gets a smaller claim, which is copied ahead while it runs.
    Hot,
    /// The copy fails, and the pod has its old claim.
    Failed,
    /// Every pod that copies is refused from the stop of the pod on, so that the swap is given up.
    GivenUp,
    /// The same, and a person gives it up.
    Aborted,
    /// The same, and the template is edited back.
    EditedBack,
    /// The template is edited while a pod gets its claim.
    EditedTwice,
    /// The workload is made smaller while a pod gets its claim, and larger again.
    Scaled,
    /// The claim that its template made becomes smaller where its volume lies.
    InPlace,
    /// The claim that its template made gets a smaller volume of another class, under its own name.
    SameName,
    /// Its claim is full, and there is no room for a whole step.
    Refused,
    /// Its claim has grown, and is nearly empty for long.
    Shrunk,
}

const CASES: [Case; 13] = [
    Case::Grow,
    Case::Swap,
    Case::Hot,
    Case::Failed,
    Case::GivenUp,
    Case::Aborted,
    Case::EditedBack,
    Case::EditedTwice,
    Case::Scaled,
    Case::InPlace,
    Case::SameName,
    Case::Refused,
    Case::Shrunk,
];

/// Who suffers from a lost request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// Whoever sent it, and lives on.
    Sender,
    /// One that sent it and lives on, beside another replica.
    OneOfTwo,
    /// The operator dies, and starts again.
    Operator,
}

const ALL: [Victim; 3] = [Victim::Sender, Victim::OneOfTwo, Victim::Operator];

/// How all ended.
#[derive(Debug, Clone, PartialEq)]
struct End {
    phase: AutoscalerPhase,
    /// Size, class and generation of the active claims.
    active: Vec<(String, String, i64)>,
    /// How many claims there are.
    claims: usize,
    told: BTreeMap<&'static str, usize>,
    left: Vec<String>,
    wrong: Vec<String>,
}

impl Case {
    /// Two pods have more requests than two times one: only what is between them needs two.
    fn pods(self) -> i32 {
        if self == Case::Swap { 2 } else { 1 }
    }

    fn victims(self) -> &'static [Victim] {
        if self == Case::Swap { &ALL[2..] } else { &ALL }
    }

    /// Whether a victim is taken where not all are: on a sixth of the sides of its requests, where it is alone, and
    /// else on a quarter of them one of three.
    fn has_its_turn(self, victim: usize, n: usize, lost: Lost) -> bool {
        let turn = n + usize::from(lost == Lost::Answer);
        match self.victims().len() {
            1 => turn.is_multiple_of(6),
            all => turn % (4 * all) == 4 * victim,
        }
    }

    async fn live(self, world: &World) -> End {
        let has_own = matches!(self, Case::InPlace | Case::SameName);
        let own: &[&str] = if has_own { &["www"] } else { &[] };
        world.set(self.pods(), own);
        let soon = json!({"retention": "5m"});
        world.want("4Gi", "hdd", &soon);
        self.until_phase(world, AutoscalerPhase::InSync).await;
        world.lie();
        world.write();
        let failed = json!({"outcome": "mismatch", "message": "no"}).to_string();
        match self {
            Case::Grow => world.want("8Gi", "hdd", &soon),
            Case::Swap | Case::SameName => world.want("2Gi", "ssd", &soon),
            Case::Hot => {
                world.play().rounds = [1000 << 20, 400 << 20].into();
                world.want("2Gi", "ssd", &json!({"retention": "5m", "preCopy": true}));
                self.until_begun(world).await;
                world.write();
            }
            Case::Failed => {
                world.play().ends.push_back(PodEnd::Failed(failed));
                world.want("2Gi", "hdd", &soon);
            }
            Case::GivenUp | Case::Aborted | Case::EditedBack => {
                refuse_copies(world);
                world.want("2Gi", "ssd", &soon);
                self.give_up(world, soon).await;
            }
            Case::EditedTwice => {
                world.want("2Gi", "ssd", &soon);
                self.until_begun(world).await;
                world.want("8Gi", "ssd", &soon);
            }
            Case::Scaled => {
                world.want("2Gi", "ssd", &soon);
                self.until_begun(world).await;
                world.set(0, &[]);
                world.api.delete::<k8s_openapi::api::core::v1::Pod>("shop/nginx-0");
                tokio::time::sleep(Duration::from_secs(60)).await;
                world.set(1, &[]);
            }
            Case::InPlace => {
                world.play().file_system = Some("btrfs");
                world.want("2Gi", "hdd", &soon);
            }
            Case::Refused => {
                world.play().room = Some(Bytes::gib(10));
                world.want("4Gi", "hdd", &sizing());
                world.fill(0, 85, 0);
                self.until_sized(world, "8Gi").await;
            }
            Case::Shrunk => {
                world.want("4Gi", "hdd", &sizing());
                world.fill(0, 85, 0);
                self.until_sized(world, "20Gi").await;
                world.fill(0, 10, 1);
                self.until_sized(world, "6759Mi").await;
            }
        }
        let ends = match self {
            Case::Failed | Case::GivenUp => AutoscalerPhase::Failed,
            Case::Aborted => AutoscalerPhase::Waiting,
            _ => AutoscalerPhase::InSync,
        };
        self.until_phase(world, ends).await;
        // The old claims go, also if an operator has begun anew with the hour of this machine.
        tokio::time::sleep(Duration::from_secs(900)).await;
        world.write();
        end(world)
    }

    /// Wait until the copy is refused, and give the swap up as the story has it.
    async fn give_up(self, world: &World, mut spec: Value) {
        for _ in 0..60 {
            if world.status().reason.as_deref() == Some("PopulatorCreationError") {
                break;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        match self {
            Case::Aborted => {
                let swap = world.ordinal(0).swap.unwrap_or_default();
                spec["abort"] = json!([{"ordinal": 0, "specGeneration": swap.spec_generation}]);
                world.want("2Gi", "ssd", &spec);
            }
            Case::EditedBack => world.want("4Gi", "hdd", &spec),
            _ => tokio::time::sleep(Duration::from_secs(600)).await,
        }
    }

    async fn until_begun(self, world: &World) {
        world
            .until("a swap is begun", |status| {
                status.ordinals.iter().any(|one| one.swap.is_some() || one.claim_revision > 0)
            })
            .await;
    }

    /// Wait until the claim of the first pod has this size, for as long as a window and a rest take that
    /// begin anew with the hour of this machine.
    async fn until_sized(self, world: &World, size: &str) {
        for _ in 0..200 {
            let claim = world.claim(&world.ordinal(0).active_claim).unwrap_or_default();
            let has = claim.status.and_then(|status| status.capacity).unwrap_or_default();
            if has.get("storage").is_some_and(|has| has.0 == size) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    /// Wait for the phase, for as long as a few lost answers take; what comes then is compared.
    async fn until_phase(self, world: &World, phase: AutoscalerPhase) {
        for _ in 0..60 {
            let there: Option<PvcAutoscaler> = world.api.get("shop/nginx");
            let generation = there.and_then(|one| one.metadata.generation).unwrap_or_default();
            let status = world.status();
            let claims = format!("{0}/{0}", self.pods());
            let is_whole = phase != AutoscalerPhase::InSync || status.ready_claims() == claims;
            if (status.phase, status.observed_generation) == (phase, generation) && is_whole {
                break;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        tokio::time::sleep(Duration::from_secs(25)).await;
    }

    fn reference(self) -> (End, usize) {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            let end = self.live(&world).await;
            (end, world.api.writes().len())
        })
    }

    async fn lose(self, reference: &End, n: usize, lost: Lost, victim: Victim) -> Verdict {
        let (world, operator) = World::with_an_operator();
        let mut operators = vec![operator];
        if victim == Victim::OneOfTwo {
            operators.push(world.operator());
        }
        world.api.fail_at(n, lost);
        let mut live = std::pin::pin!(self.live(&world));
        let is_lost = async {
            while world.api.writes().len() < n {
                world.api.changed().await;
            }
        };
        let end = tokio::select! {
            end = &mut live => end, // A run may need fewer requests than another.
            () = is_lost => {
                if victim == Victim::Operator {
                    operators.clear();
                    operators.push(world.operator());
                }
                live.await
            }
        };
        if end == *reference {
            return Verdict::new();
        }
        vec![format!("{end:?}, not {reference:?}")]
    }
}

/// Claims size themselves.
fn sizing() -> Value {
    let shrink = json!({"stabilizationWindow": "1m", "cooldown": "1m"});
    let policy = json!({"maxSize": "100Gi", "growBy": "16Gi", "cooldown": "1m", "shrink": shrink});
    json!({"retention": "5m", "autoscale": policy})
}

fn end(world: &World) -> End {
    let entries = world.status().ordinals;
    let active = entries.iter().map(|one| {
        let claim = world.claim(&one.active_claim).unwrap_or_default();
        let spec = claim.spec.unwrap_or_default();
        let requests = spec.resources.and_then(|all| all.requests).unwrap_or_default();
        let size = requests.get("storage").map(|size| size.0.clone()).unwrap_or_default();
        let of_volume =
            claim.metadata.annotations.and_then(|all| all.get("pliant.io/storage-class").cloned());
        let class = of_volume.or(spec.storage_class_name).unwrap_or_default();
        (size, class, one.claim_revision)
    });
    let told = [
        "SwapStarted",
        "SwapSucceeded",
        "SwapFailed",
        "SwapAborted",
        "AutoscaleExpand",
        "ExpansionFailed",
        "AutoscaleShrink",
        "ShrinkSucceeded",
    ];
    End {
        phase: world.status().phase,
        active: active.collect(),
        claims: world.claims().len(),
        told: told.into_iter().map(|reason| (reason, world.told(reason))).collect(),
        left: world.left(),
        wrong: std::mem::take(&mut world.play().wrong),
    }
}

#[test]
fn every_lost_request_of_the_operator_and_its_death_are_survived() {
    let (tally, told) = (Tally::default(), Mutex::new(Vec::new()));
    for_each(&CASES, |case| {
        let (reference, writes) = case.reference();
        assert_eq!((&reference.left, &reference.wrong), (&vec![], &vec![]), "{case:?}");
        println!("{case:?}: {writes} requests, {reference:?}");
        told.lock().unwrap().push((*case, reference, writes));
    });
    // One after the other of all cases: of some each point takes ten times as long as of others.
    let told = told.into_inner().unwrap();
    let mut all = Vec::new();
    for (case, reference, writes) in &told {
        for (n, lost) in points(*writes, Lost::BOTH) {
            for (at, victim) in case.victims().iter().enumerate() {
                if exhaustive() || case.has_its_turn(at, n, lost) {
                    all.push((*case, reference, n, lost, *victim));
                }
            }
        }
    }
    for_each(&all, |(case, reference, n, lost, victim)| {
        let named = || format!("{case:?}: {victim:?} at request {n}, {lost:?} lost");
        tally.take(named, case.lose(reference, *n, *lost, *victim));
    });
    let (points, survived) =
        (tally.cuts.load(Ordering::Relaxed), tally.survived.load(Ordering::Relaxed));
    assert!(points >= 300, "only {points} crash points");
    let figures =
        [("autoscaler_crash_points", points), ("autoscaler_crash_points_survived", survived)];
    tally.close("autoscaler_crash_points.txt", &figures);
}
