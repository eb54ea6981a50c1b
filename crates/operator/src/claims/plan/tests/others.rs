//! Another pod beside the one that the explored world has, which runs on a claim as that was.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use super::settle;
use super::world::{NOTHING, PodModel, TEMPLATES, World};
use crate::api::{OrdinalStatus, Quantity, Rollout, Swap, SwapPhase};
use crate::bytes::Bytes;
use crate::claims::ORDINAL;
use crate::claims::observed::{Claims, ObservedWorkload};
use crate::claims::plan::plan;
use crate::claims::topology::ReadableNode;
use crate::cluster::{NodeOperation, NotDone, ObservedVolume, OperationRequest};
use crate::volume::{Fence, Reason};

/// The ordinal of the other pod, and what its claim is called.
const ANOTHER: (i32, &str) = (1, "data-db-1");

impl World {
    /// What an operator sees if there is another pod, and so many may be away at a time.
    pub(super) fn seen_with_another(&self, n: usize, may_be_away: u16) -> ObservedWorkload {
        let (ordinal, name) = ANOTHER;
        let mut world = self.clone();
        let (gib, class) = TEMPLATES[0];
        world.make_of(name.to_owned(), Quantity(Bytes::gib(gib)), class, false);
        world.change(name, |claim| claim.content = Some(0));
        let mut seen = world.seen(n);
        let claim = seen.claims.get_mut(name).expect("it was made");
        claim.labels_mut().insert(ORDINAL.to_owned(), ordinal.to_string());
        let pod =
            PodModel { uid: u8::MAX, claim: name.to_owned(), is_running: true, is_gated: false };
        let mut pod = pod.object();
        pod.metadata.name = Some(format!("db-{ordinal}"));
        seen.pods.push(pod);
        seen.workload.as_mut().expect("there is one").claims = Claims::Numbered(0..ordinal + 1);
        let active_claim = name.to_owned();
        let entry = OrdinalStatus { ordinal, active_claim, ..OrdinalStatus::default() };
        seen.autoscaler.status.as_mut().expect("there is one").ordinals.push(entry);
        let rollout = Rollout { partition: 0, paused: false, max_unavailable: may_be_away };
        seen.autoscaler.spec.rollout = Some(rollout);
        seen
    }
}

/// Whether the claim of the other pod is begun with.
pub(super) fn begins_with_another(seen: &ObservedWorkload) -> bool {
    plan(seen).status.of(ANOTHER.0).is_some_and(|entry| entry.swap.is_some())
}

/// Whether another pod is begun with beside one whose swap is so; the template was edited before.
fn begins_beside(swap: Option<Swap>, may_be_away: u16) -> bool {
    let mut world = settle(&World::new(NOTHING));
    (world.template, world.edited) = (1, 1);
    world.status.ordinals[0].swap = swap;
    begins_with_another(&world.seen_with_another(0, may_be_away))
}

/// A swap for the template as it is edited; so many have failed for it.
fn swap(phase: SwapPhase, failures: i32) -> Swap {
    Swap { phase, failures, spec_generation: 2, claim: "new".to_owned(), ..Swap::default() }
}

#[test]
fn nobody_else_is_stopped_from_a_failure_until_a_try_has_come_to_a_good_end() {
    use SwapPhase::{
        Draining, Failed, Fenced, FinalCopy, Pending, PreCopy, Rebinding, RollingBack, Soaking,
    };
    let under_way = [Pending, PreCopy, Draining, Fenced, FinalCopy, Rebinding];
    for phase in under_way {
        assert!(begins_beside(Some(swap(phase, 0)), 2), "{phase:?} of the first try");
        assert!(!begins_beside(Some(swap(phase, 0)), 1), "{phase:?}, and one may be away");
        assert!(!begins_beside(Some(swap(phase, 1)), 2), "{phase:?} of another try");
    }
    for failures in [0, 1] {
        assert!(!begins_beside(Some(swap(RollingBack, failures)), 2), "{failures} failures");
        assert!(begins_beside(Some(swap(Soaking, failures)), 2), "{failures} failures");
    }
    let now = World::new(NOTHING).now();
    for may_be_away in [1, 2] {
        assert!(begins_beside(None, may_be_away));
        for hours in [None, Some(-1), Some(0), Some(1)] {
            let next_retry_time = hours.map(|hours| Time(now + SignedDuration::from_hours(hours)));
            let failed = Swap { next_retry_time, ..swap(Failed, 1) };
            assert!(!begins_beside(Some(failed.clone()), may_be_away), "tried again at {hours:?}");
            let before = Swap { spec_generation: 1, ..failed };
            assert!(begins_beside(Some(before), may_be_away), "it was for another template");
        }
    }
}

#[test]
fn the_node_of_the_highest_pod_is_waited_for_and_not_for_long() {
    let mut world = settle(&World::new(NOTHING));
    (world.template, world.edited) = (1, 1);
    let (name, node) = (ANOTHER.1, "alpha".to_owned());
    let begins = |answer: Option<Result<ObservedVolume, NotDone>>| {
        let mut seen = world.seen_with_another(0, 1);
        let place =
            ReadableNode { node: node.clone(), is_allowed: true, is_ready: true, takes_pods: true };
        seen.around.places.insert(name.to_owned(), vec![place]);
        let volume = seen.volumes.get_mut(name).and_then(Option::as_mut).expect("it has one");
        let (wish, is_old) = (NodeOperation::Look, false);
        volume.asked = Some(OperationRequest { wish, answer, is_old, is_recent: true });
        let told = plan(&seen).status;
        [0, ANOTHER.0].map(|ordinal| told.of(ordinal).unwrap().swap.is_some())
    };
    let look = ObservedVolume { node: node.clone(), fence: Fence::default(), open_count: 1 };
    let away = NotDone { reason: Reason::Unavailable, why: "its node plugin is away".to_owned() };
    assert_eq!(begins(None), [false, false], "it is asked, and nobody else is stopped before");
    assert_eq!(begins(Some(Ok(look))), [false, true]);
    assert_eq!(begins(Some(Err(away))), [true, false], "the other one has another node, maybe");
}

#[test]
fn the_claims_of_many_new_pods_are_made_some_at_a_time() {
    let mut seen = settle(&World::new(NOTHING)).seen(0);
    seen.workload.as_mut().expect("there is one").claims = Claims::Numbered(0..1000);
    let plan = plan(&seen);
    assert!((2..=65).contains(&plan.status.ordinals.len()), "{}", plan.status.ordinals.len());
    assert_eq!(plan.status.ready_claims(), "1/1000");
}
