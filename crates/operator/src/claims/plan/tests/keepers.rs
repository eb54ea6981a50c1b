//! Two PvcAutoscalers of one StatefulSet, explored: each is about to stop another pod, and one at a time may be
//! stopped.

use std::collections::{HashSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::settle;
use super::world::{FillingPhaseKey, NOTHING, Source, TEMPLATES, World};
use crate::api::{PvcAutoscalerStatus, Quantity, Swap, SwapPhase};
use crate::bytes::Bytes;
use crate::claims::observed::ObservedWorkload;
use crate::claims::plan::plan;
use crate::claims::steps::Step;

/// What one that looked has decided: the status that it saw and writes first, and the pods that it stops then.
#[derive(Debug, Clone, PartialEq)]
struct Decided {
    note: Option<(PvcAutoscalerStatus, PvcAutoscalerStatus)>,
    stops: Vec<usize>,
}

/// Both of them, and which pods run.
#[derive(Debug, Clone, PartialEq)]
struct Two {
    told: [PvcAutoscalerStatus; 2],
    decided: [Option<Decided>; 2],
    runs: [bool; 2],
}

/// What one sees that has all that its swap needs: the first is about to stop pod 0, the second pod 1.
fn base(keeper: usize) -> ObservedWorkload {
    let mut world = settle(&World::new(NOTHING));
    world.template = 1;
    let (gib, class) = TEMPLATES[1];
    let active = [world.status.ordinals[0].active_claim.clone(), "data-db-1".to_owned()];
    let copy = format!("copy-{keeper}");
    world.make_of(copy.clone(), Quantity(Bytes::gib(gib)), class, true);
    let source = Source {
        from: active[keeper].clone(),
        paused: true,
        copies_ahead: false,
        phase: FillingPhaseKey::Held,
        is_told_of_before: false,
        read: None,
        has_labels: true,
    };
    world.sources.insert(copy.clone(), source);
    let mut seen = world.seen_with_another(0, 1);
    for name in active {
        let claim = seen.claims.get_mut(&name).expect("it was made");
        claim.finalizers_mut().push("pliant.io/swap-protection".to_owned());
    }
    let metadata = &mut seen.autoscaler.metadata;
    metadata.name = Some(format!("db-{keeper}"));
    metadata.uid = Some(format!("uid-{keeper}"));
    metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    for claim in seen.claims.values_mut() {
        claim.labels_mut().insert("pliant.io/pvc-autoscaler".to_owned(), format!("db-{keeper}"));
    }
    let generation = seen.generation();
    let status = seen.autoscaler.status.as_mut().expect("there is one");
    let swap = Swap {
        phase: SwapPhase::Pending,
        claim: copy,
        spec_generation: generation,
        ..Swap::default()
    };
    status.ordinals[keeper].swap = Some(swap);
    seen
}

impl Two {
    fn seen(&self, bases: &[ObservedWorkload; 2], keeper: usize) -> ObservedWorkload {
        let mut seen = bases[keeper].clone();
        seen.autoscaler.status = Some(self.told[keeper].clone());
        let other = 1 - keeper;
        let mut sibling = bases[other].autoscaler.clone();
        sibling.status = Some(self.told[other].clone());
        seen.siblings = vec![sibling];
        seen.pods.retain(|pod| {
            let name = pod.name_any();
            (0..2).any(|ordinal| name == format!("db-{ordinal}") && self.runs[ordinal])
        });
        seen
    }

    fn look(&self, bases: &[ObservedWorkload; 2], keeper: usize) -> Option<Two> {
        if self.decided[keeper].is_some() {
            return None;
        }
        let plan = plan(&self.seen(bases, keeper));
        let stops = plan.steps.iter().filter_map(|step| match step {
            Step::Evict { pod, .. } => pod.strip_prefix("db-")?.parse().ok(),
            _ => None,
        });
        let note = (plan.status != self.told[keeper])
            .then(|| (self.told[keeper].clone(), plan.status.clone()));
        let decided = Decided { note, stops: stops.collect() };
        let is_new = decided.note.is_some() || !decided.stops.is_empty();
        let mut next = self.clone();
        next.decided[keeper] = Some(decided);
        is_new.then_some(next)
    }

    fn act(&self, keeper: usize) -> Option<Two> {
        let mut next = self.clone();
        let mut decided = next.decided[keeper].take()?;
        if let Some((before, after)) = decided.note.take() {
            if before != next.told[keeper] {
                return Some(next);
            }
            next.told[keeper] = after;
        } else if let Some(ordinal) = decided.stops.pop() {
            next.runs[ordinal] = false;
        }
        next.decided[keeper] = (!decided.stops.is_empty()).then_some(decided);
        Some(next)
    }
}

#[test]
fn two_of_one_workload_never_stop_more_pods_than_may_be_away() {
    let bases = [base(0), base(1)];
    let told = bases.each_ref().map(|seen| seen.autoscaler.status.clone().unwrap());
    let first = Two { told, decided: [None, None], runs: [true, true] };
    let mut known: HashSet<String> = [format!("{first:?}")].into();
    let mut open = VecDeque::from([first]);
    let mut stopped = [0, 0];
    while let Some(two) = open.pop_front() {
        assert_ne!(two.runs, [false, false], "both pods are stopped, in {two:#?}");
        for (ordinal, count) in stopped.iter_mut().enumerate() {
            *count += usize::from(!two.runs[ordinal]);
        }
        let moves =
            [0, 1].into_iter().flat_map(|keeper| [two.look(&bases, keeper), two.act(keeper)]);
        for next in moves.flatten() {
            if known.insert(format!("{next:?}")) {
                open.push_back(next);
            }
        }
        assert!(known.len() < 20_000, "it has no end");
    }
    assert!(stopped.iter().all(|count| *count > 0), "each may be the first: {stopped:?}");
}
