//! Each request of the operator that changes something is lost, before and after it is carried out, or
//! kills the operator; alone and beside another replica. All ends where a run without a fault ends.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use pliant::api::{ArchivePopulator, FillingPhase, PvcSourcePopulator};
use pliant::testing::{FakeApi, Lost};
use serde_json::json;

use crate::block_on;
use crate::exhaustive::exhaustive;
use crate::tally::{Tally, Verdict, for_each, points};
use crate::world::{Content, End as PodEnd, World, phase};

/// A story of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Archive,
    Copy,
    /// The source is sent from another node.
    Far,
    /// Rounds are copied ahead, then the pod of the source goes and the rest is copied.
    Ahead,
    ClaimDeleted,
    SourceDeleted,
    Retried,
    Refused,
    Rescheduled,
}

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

/// How all ended.
#[derive(Debug, Clone, PartialEq)]
struct End {
    phase: Option<String>,
    content: Option<Content>,
    told: Option<(FillingPhase, Option<String>)>,
    reasons: BTreeMap<String, usize>,
    left: Vec<String>,
    /// Volumes with all of their content that were deleted: there is never one.
    lost: usize,
    /// What was seen that must not be: a volume that is used and seems, or is, no whole.
    wrong: Vec<String>,
}

const CASES: [Case; 9] = [
    Case::Archive,
    Case::Copy,
    Case::Far,
    Case::Ahead,
    Case::ClaimDeleted,
    Case::SourceDeleted,
    Case::Retried,
    Case::Refused,
    Case::Rescheduled,
];

impl Case {
    /// What is there before the operator has anything to do.
    async fn begin(self, world: &World) {
        if matches!(self, Case::Copy | Case::Far | Case::Ahead) {
            world.source("old", "alpha").await;
        }
        if self == Case::Ahead {
            world.pod_of("shop-0", "old", "Running");
            world.play().rounds = [1000 << 20, 400 << 20, 300 << 20].into();
        }
    }

    /// What somebody wants.
    fn want(self, world: &World) {
        match self {
            Case::Copy => {
                world.copy_of("old", &json!({"waitForConsumer": false}));
                world.claim("web", "fast", "PvcSourcePopulator", "old");
                return;
            }
            Case::Far => {
                world.put_content("old", "records");
                world.copy_of("old", &json!({}));
                world.claim("web", "fast", "PvcSourcePopulator", "old");
                world.schedule("web", &["beta"]);
                return;
            }
            Case::Ahead => {
                let more = json!({"waitForConsumer": false, "paused": true, "preCopy": true});
                world.copy_of("old", &more);
                world.claim("web", "fast", "PvcSourcePopulator", "old");
                return;
            }
            Case::Archive => {}
            Case::ClaimDeleted | Case::SourceDeleted => world.play().ends.push_back(PodEnd::Hangs),
            Case::Retried => world.play().ends.push_back(PodEnd::Failed(String::new())),
            Case::Refused => {
                let said = json!({"outcome": "mismatch", "message": "no"}).to_string();
                world.play().ends.push_back(PodEnd::Failed(said));
            }
            Case::Rescheduled => drop(world.play().full.insert("alpha".to_owned())),
        }
        world.archive("site");
        world.claim("web", "fast", "ArchivePopulator", "site");
        world.schedule("web", &["alpha", "beta"]);
    }

    /// What somebody does midway.
    async fn midway(self, world: &World) {
        match self {
            Case::ClaimDeleted => {
                world.pod_runs().await;
                world.api.delete::<PersistentVolumeClaim>("shop/web");
            }
            Case::SourceDeleted => {
                world.pod_runs().await;
                world.api.delete::<ArchivePopulator>("shop/site");
            }
            Case::Ahead => {
                self.until(world, |api| {
                    let copy = api.get::<PvcSourcePopulator>("shop/old");
                    let told = copy.and_then(|one| one.status?.claims.into_iter().next());
                    told.is_some_and(|told| told.phase == FillingPhase::PreCopied)
                })
                .await;
                world.api.delete::<Pod>("shop/shop-0");
                world.unpause("old");
            }
            _ => {}
        }
    }

    fn has_ended(self, api: &FakeApi) -> bool {
        let claim = api.get::<PersistentVolumeClaim>("shop/web");
        match self {
            Case::ClaimDeleted => claim.is_none(),
            Case::SourceDeleted => api.get::<ArchivePopulator>("shop/site").is_none(),
            Case::Refused => {
                let archive = api.get::<ArchivePopulator>("shop/site");
                let told = archive.and_then(|one| one.status?.claims.into_iter().next());
                told.is_some_and(|told| told.phase == FillingPhase::Failed)
            }
            _ => claim.is_some_and(|claim| phase(&claim) == "Bound"),
        }
    }

    /// Longer than one wait is: a lost answer is waited for, and a try has its pause.
    async fn until(self, world: &World, holds: impl Fn(&FakeApi) -> bool) {
        let mut tries = 0;
        while !holds(&world.api) && tries < 20 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            tries += 1;
        }
    }

    async fn until_ended(self, world: &World) {
        self.until(world, |api| self.has_ended(api)).await;
        tokio::time::sleep(Duration::from_secs(25)).await;
    }

    async fn live(self, world: &World) -> End {
        self.want(world);
        self.midway(world).await;
        self.until_ended(world).await;
        end(world)
    }

    fn reference(self) -> (End, usize) {
        block_on(async {
            let (world, _operator) = World::with_an_operator().await;
            self.begin(&world).await;
            world.api.forget_writes();
            let end = self.live(&world).await;
            (end, world.api.writes().len())
        })
    }

    async fn lose(self, reference: &End, n: usize, lost: Lost, victim: Victim) -> Verdict {
        let (world, operator) = World::with_an_operator().await;
        self.begin(&world).await;
        let mut operators = vec![operator];
        if victim == Victim::OneOfTwo {
            operators.push(world.operator().await);
        }
        world.api.forget_writes();
        world.api.fail_at(n, lost);
        let (end, ()) = tokio::join!(self.live(&world), async {
            if victim == Victim::Operator {
                world.api.until("it is lost", |api: &FakeApi| api.writes().len() >= n).await;
                operators.clear();
                operators.push(world.operator().await);
            }
        });
        if end == *reference {
            return Verdict::new();
        }
        vec![format!("{end:?}, not {reference:?}")]
    }
}

fn end(world: &World) -> End {
    let told = world.told("site").or_else(|| world.told_of_copy("old"));
    let whole = |content: &&Content| matches!(content, Content::Whole(_));
    End {
        phase: world.get_claim("web").map(|claim| phase(&claim)),
        content: world.content("web"),
        told: told.map(|told| (told.phase, told.reason)),
        reasons: world.reasons("web"),
        left: world.left(),
        lost: world.destroyed().iter().filter(whole).count(),
        wrong: std::mem::take(&mut world.play().wrong),
    }
}

#[test]
fn every_lost_request_of_the_operator_and_its_death_are_survived() {
    let (tally, told) = (Tally::default(), Mutex::new(Vec::new()));
    for_each(&CASES, |case| {
        let (reference, writes) = case.reference();
        let bad = (&reference.left, reference.lost, &reference.wrong);
        assert_eq!(bad, (&vec![], 0, &vec![]), "{case:?}: {reference:?}");
        println!("{case:?}: {writes} requests, {reference:?}");
        told.lock().unwrap().push((*case, reference, writes));
    });
    let told = told.into_inner().unwrap();
    let mut all = Vec::new();
    for (case, reference, writes) in &told {
        for (n, lost) in points(*writes, Lost::BOTH) {
            let victims = [Victim::Sender, Victim::OneOfTwo, Victim::Operator];
            for (at, victim) in victims.into_iter().enumerate() {
                // Where not all are taken, each side of each request has one of them.
                if exhaustive() || (n + usize::from(lost == Lost::Answer)) % 3 == at {
                    all.push((*case, reference, n, lost, victim));
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
        [("populator_crash_points", points), ("populator_crash_points_survived", survived)];
    tally.close("populator_crash_points.txt", &figures);
}
