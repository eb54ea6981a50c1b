//! Claims that a PvcAutoscaler keeps.

use super::*;
use crate::commands::plan::tests::{around, said as plan_said, swapping};

/// A claim of a PvcAutoscaler whose pods have three claims, one of them being swapped.
fn kept(name: &str, phase: &str) -> ClaimFacts {
    let facts = with_claim(cluster(), "/metadata/name", json!(name));
    let facts = with_claim(facts, "/status/phase", json!(phase));
    ClaimFacts { autoscalers: vec![swapping()], ..facts }
}

#[test]
fn a_claim_says_by_whom_it_is_kept_and_whether_it_is_the_one_of_its_pod() {
    assert_eq!(said(&kept("data-db-2", "Lost")).0, ClaimState::Lost);
    let told = all(vec![
        (kept("data-db-0", "Pending"), ClaimState::WaitForFirstConsumer),
        (kept("data-db-1-ba51f", "Pending"), ClaimState::Populating),
        (kept("data-db-2", "Bound"), ClaimState::Superseded),
        (kept("other", "Pending"), ClaimState::WaitForFirstConsumer),
    ]);
    insta::assert_snapshot!(told, @r"
    default/data-db-0 is Pending: waiting for a pod. This is normal: its class
    creates the volume when the first pod that uses the claim is scheduled. It is
    the active claim of pod db-0, managed by PvcAutoscaler db: to change its size or
    class, edit its template. Last sizing decision: 41 % of its bytes are used; it
    grows at 80 %.
    What to do:
      wait until its pod db-0 starts
    default/data-db-1-ba51f is being populated, to become the claim of pod db-1 (8Gi
    → 2Gi, class hdd → ssd; FinalCopy: 62 % (4.96 GiB of 8 GiB), 180 MiB/s, 17 s
    left). PvcAutoscaler db does it; until then the data is in the present claim of
    the pod.
    What to do:
      see what it does next
        pliant plan db --namespace default
    default/data-db-2 is retained until 2026-12-01T10:00:00Z, and then deleted with
    its data: claim data-db-2-1c0ff has replaced it as the claim of pod db-2, with a
    verified copy of its data. PvcAutoscaler db did it.
    default/other is Pending: waiting for a pod. This is normal: its class creates
    the volume when the first pod that uses the claim is scheduled.
    What to do:
      start a pod that uses it
    ");
}

#[test]
fn a_claim_that_fits_nowhere_is_made_smaller_in_its_template_first() {
    let mut pod = pod();
    pod["spec"]["nodeSelector"] = json!({"zone": "b"});
    let mut by = swapping();
    let mut explained = |gib| {
        let facts = with_claim(with_pod(pod.clone()), "/metadata/name", json!("data-db-0"));
        let requests = &mut by.spec.volume_claim_template.spec.resources.requests;
        requests.storage = Quantity(crate::bytes::Bytes::gib(gib));
        let (state, text) = said(&ClaimFacts { autoscalers: vec![by.clone()], ..facts });
        assert_eq!(state, ClaimState::InsufficientCapacity);
        text
    };
    let delete = "kubectl delete pvc data-db-0";
    let too_large = explained(200);
    let edit =
        "in the template\n    kubectl edit pvcautoscaler db --namespace default\n  then delete";
    assert!(too_large.contains(edit) && too_large.contains(delete), "{too_large}");
    let lowered = explained(4);
    assert!(
        !lowered.contains("kubectl edit pvcautoscaler") && lowered.contains(delete),
        "{lowered}"
    );
}

/// Who reads that the other claim has a copy of all deletes this one.
#[test]
fn a_claim_that_a_rollback_left_has_the_only_copy_of_what_was_written_since() {
    let of = |name: &str, revision: i64, rolled_back_from: i64| {
        let mut facts = kept(name, "Bound");
        let status = facts.autoscalers[0].status.as_mut().unwrap();
        let entry = status.ordinals.iter_mut().find(|one| one.ordinal == 2).unwrap();
        (entry.claim_revision, entry.last_rollback_revision) = (revision, Some(rolled_back_from));
        let mut older = entry.retained_claims[0].clone();
        (older.name, older.uid) = ("older".to_owned(), "older".to_owned());
        entry.retained_claims.insert(0, older);
        let uid = if name == "older" { json!(name) } else { json!(entry.retained_claims[1].uid) };
        flat(&with_claim(facts, "/metadata/uid", uid))
    };
    let left = |revision, from| (of("data-db-2", revision, from), of("older", revision, from));
    let (last, first) = left(1, 0);
    assert!(last.contains("verified copy") && first.contains("verified copy"), "{last} {first}");
    let (last, first) = left(2, 1);
    assert!(last.contains("Only this claim has that data"), "{last}");
    assert!(first.contains("may lack what was written to this one"), "{first}");
    let (last, first) = left(3, 1);
    assert!(last.contains("verified copy"), "{last}");
    assert!(first.contains("may lack what was written to this one"), "{first}");
}

#[test]
fn before_there_is_a_status_the_label_says_it() {
    let labels = json!({"pliant.io/pvc-autoscaler": "db", "pliant.io/ordinal": "2"});
    let mut facts = with_claim(kept("new", "Pending"), "/metadata/labels", labels);
    facts.autoscalers[0].status = None;
    let text = flat(&facts);
    assert!(text.contains("pod db-2, managed by PvcAutoscaler db"), "{text}");
}

#[test]
fn the_claim_of_a_pod_that_is_stopped_for_a_swap_is_not_said_to_be_unusable() {
    let stopped = |change: &dyn Fn(&mut crate::api::PvcAutoscaler)| {
        let mut facts = kept("data-db-1", "Bound");
        let status = facts.autoscalers[0].status.as_mut().unwrap();
        let swap = status.ordinals[1].swap.as_mut().unwrap();
        swap.pod_stop_time = Some(typed(json!("2026-11-01T10:00:00Z")));
        change(&mut facts.autoscalers[0]);
        facts
    };
    let waits = stopped(&|one| {
        let status = one.status.as_mut().unwrap();
        status.ordinals[1].swap.as_mut().unwrap().progress = None;
        status.reason = Some("PopulatorCreationError".to_owned());
        status.message = Some("exceeded quota: small".to_owned());
    });
    let over = stopped(&|one| {
        let swap = one.status.as_mut().unwrap().ordinals[1].swap.as_mut().unwrap();
        swap.phase = typed(json!("Soaking"));
    });
    assert_ne!(said(&over).0, ClaimState::Swapping);
    assert_ne!(said(&kept("data-db-1", "Bound")).0, ClaimState::Swapping, "its pod runs");
    let told = all(vec![(stopped(&|_| {}), ClaimState::Swapping), (waits, ClaimState::Swapping)]);
    insta::assert_snapshot!(told, @r"
    default/data-db-1 is in a PVC swap (8Gi → 2Gi, class hdd → ssd; FinalCopy: 62 %
    (4.96 GiB of 8 GiB), 180 MiB/s, 17 s left), for which pod db-1 is stopped; so no
    pod can be started with it. PvcAutoscaler db copies it to claim data-db-1-ba51f,
    which the pod gets, and then the pod starts.
    Do one of:
      see what it does next
        pliant plan db --namespace default
      abort the PVC swap; the pod continues with its claim
        pliant abort pvc/data-db-1 --namespace default
    default/data-db-1 is in a PVC swap (8Gi → 2Gi, class hdd → ssd; FinalCopy), for
    which pod db-1 is stopped; so no pod can be started with it. PvcAutoscaler db
    copies it to claim data-db-1-ba51f, which the pod gets, and then the pod starts.
    It waits: exceeded quota: small.
    Do one of:
      see what it does next
        pliant plan db --namespace default
      abort the PVC swap; the pod continues with its claim
        pliant abort pvc/data-db-1 --namespace default
    ");
}

/// The swap that took the volume may be one of which nothing is known after a restore of the API server.
#[test]
fn where_a_volume_is_superseded_the_plan_that_is_advised_says_what_to_type() {
    let mut facts = kept("data-db-0", "Bound");
    let bound = super::growing::bound();
    (facts.volume, facts.storages) = (bound.volume, bound.storages);
    facts.storages[0].status.as_mut().unwrap().volumes[0].fence =
        Some(typed(json!({"state": "Superseded", "generation": 3})));
    let patch = "`kubectl patch pvcautoscaler db --namespace default --type=merge -p …`";
    let status = facts.autoscalers[0].status.as_mut().unwrap();
    status.reason = Some("VolumeSuperseded".to_owned());
    status.message = Some(format!("have the pod use this one as it is: {patch}"));
    let told = judge(&facts);
    assert_eq!(told.state, ClaimState::VolumeFenced);
    let [todo] = told.remediation.as_slice() else { panic!("{told:?}") };
    assert_eq!(todo.command.as_deref(), Some("pliant plan db --namespace default"));
    let plan = plan_said(&around(facts.autoscalers.remove(0)), false);
    assert!(plan.contains("VolumeSuperseded: have the pod use this one as it is"), "{plan}");
}
