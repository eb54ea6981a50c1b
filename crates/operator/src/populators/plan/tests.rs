use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::api::{FenceStatus, Filling, PreCopy};
use crate::cluster::{NodeOperation, NotDone, ObservedVolume, OperationRequest, VolumeSeen};
use crate::populators::observed::SourceSeen;
use crate::populators::status::filling;
use crate::populators::{
    FINALIZER, Far, Fill, NUDGED, POLICY, POPULATES, PodProgress, SELECTED_NODE, SHOWN,
};
use crate::volume::{Fence, NodeKey, Reason, VolumeId, VolumeKey};

fn of<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

fn claim(phase: &str, node: Option<&str>, shown: Option<&str>) -> PersistentVolumeClaim {
    of(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "finalizers": [FINALIZER],
                     "annotations": {SELECTED_NODE: node.unwrap_or_default(), SHOWN: shown.unwrap_or_default()}},
        "spec": {"dataSourceRef": {"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "site"}},
        "status": {"phase": phase},
    }))
}

fn prime(phase: &str, node: Option<&str>) -> PersistentVolumeClaim {
    of(json!({
        "metadata": {"name": "prime-u", "namespace": "shop", "uid": "p",
                     "annotations": {SELECTED_NODE: node.unwrap_or_default(), "pliant.io/node": "alpha"}},
        "spec": {"volumeName": "pv"}, "status": {"phase": phase},
    }))
}

fn pv(owner: &str, retained: bool) -> PersistentVolume {
    let marks = match (owner, retained) {
        (_, true) => json!({POPULATES: "u", POLICY: "Delete"}),
        ("u", false) => json!({POPULATES: "u"}),
        _ => json!({}),
    };
    of(
        json!({"metadata": {"name": "pv", "annotations": marks}, "spec": {"claimRef": {"uid": owner}}}),
    )
}

fn pod(phase: &str, message: &str) -> Pod {
    let state = json!({"terminated": {"exitCode": 1, "message": message}});
    let state = if ["Succeeded", "Failed"].contains(&phase) { state } else { json!({}) };
    let container = json!({"name": "populator", "image": "", "imageID": "", "ready": false,
                           "restartCount": 0, "state": state});
    of(json!({
        "metadata": {"name": "prime-u", "uid": "pod", "annotations": {"pliant.io/generation": "1"}},
        "status": {"phase": phase, "containerStatuses": [container]},
    }))
}

/// What a pod that has filled its volume says.
const DONE: &str = r#"{"outcome":"done","digest":"sha256:0"}"#;

/// A claim that somebody else has bound to a volume, which has no mark of ours.
fn by_hand(prime_phase: Option<&str>) -> Box<ObservedPopulation> {
    fresh().with(|seen| {
        seen.claim = claim("Bound", None, None);
        seen.prime = prime_phase.map(|phase| prime(phase, None));
        seen.pv =
            Some(of(json!({"metadata": {"name": "hand"}, "spec": {"claimRef": {"uid": "u"}}})));
    })
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A claim whose source is there and can be put into it, and of which nothing is made yet.
fn fresh() -> Box<ObservedPopulation> {
    let source = SourceSeen {
        generation: 1,
        is_ending: false,
        is_held: true,
        anew: true,
        early: false,
        told: None,
        sight: Some(SourceState::Ready(Box::default())),
    };
    Box::new(ObservedPopulation {
        now: at(1000),
        claim: claim("Pending", Some("alpha"), None),
        image: "image".to_owned(),
        waits_for_consumer: true,
        source: Some(source),
        prime: None,
        is_unrecorded: false,
        stranger: None,
        strange_pod: None,
        pv: None,
        pv_nodes: None,
        volume: None,
        pod: None,
        sender: None,
        progress: None,
    })
}

impl ObservedPopulation {
    fn with(
        mut self: Box<Self>,
        change: impl FnOnce(&mut ObservedPopulation),
    ) -> Box<ObservedPopulation> {
        change(&mut self);
        self
    }

    fn sight(self: Box<Self>, sight: SourceState) -> Box<ObservedPopulation> {
        self.with(|seen| seen.source.as_mut().unwrap().sight = Some(sight))
    }

    fn tells(self: Box<Self>, change: impl FnOnce(&mut Filling)) -> Box<ObservedPopulation> {
        let mut told = filling(&self, FillingPhase::Waiting);
        change(&mut told);
        self.with(|seen| seen.source.as_mut().unwrap().told = Some(told))
    }
}

/// The prime claim has its volume.
fn provisioned() -> Box<ObservedPopulation> {
    fresh().with(|seen| {
        seen.prime = Some(prime("Bound", Some("alpha")));
        seen.pv = Some(pv("p", false));
    })
}

/// A pod is there.
fn running(phase: &str, message: &str) -> Box<ObservedPopulation> {
    provisioned().with(|seen| {
        seen.pod = Some(pod(phase, message));
        seen.source.as_mut().unwrap().sight = None;
    })
}

/// The volume is the claim's.
fn rebound(claim_phase: &str, prime_phase: Option<&str>) -> Box<ObservedPopulation> {
    fresh().with(|seen| {
        seen.claim = claim(claim_phase, Some("alpha"), None);
        seen.prime = prime_phase.map(|phase| prime(phase, Some("alpha")));
        seen.pv = Some(pv("u", true));
    })
}

fn ending<K: kube::Resource>(object: &mut K) {
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1));
    object.meta_mut().deletion_timestamp = Some(time);
}

/// The names of the steps; of what is told also what.
fn names(steps: &[PopulationStep]) -> String {
    let name = |step: &PopulationStep| match step {
        PopulationStep::Tell(reason, _) => format!("Tell {reason}"),
        PopulationStep::Note(filling) => format!("Note {:?}", filling.phase),
        PopulationStep::Count(result, _) => format!("Count {result}"),
        PopulationStep::Pin(node) => format!("Pin {node}"),
        PopulationStep::Show(_) => "Show".to_owned(),
        PopulationStep::Ask { wish, .. } => format!("Ask {wish}"),
        other => format!("{other:?}"),
    };
    steps.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn check<const N: usize>(cases: [(&str, Box<ObservedPopulation>, &str); N]) {
    for (what, seen, expected) in cases {
        assert_eq!(names(&plan(&seen)), expected, "{what}");
    }
}

fn only(node: &str) -> BTreeSet<String> {
    BTreeSet::from([node.to_owned()])
}

fn readable_on(node: &str) -> SourceState {
    SourceState::Ready(Box::new(Fill { nodes: Some(only(node)), ..Fill::default() }))
}

#[test]
fn before_there_is_a_pod_a_volume_is_made_where_the_source_can_be_read() {
    let reason = PopulatorReason::SourceInUse;
    let no_node = |seen: &mut ObservedPopulation| seen.claim = claim("Pending", None, None);
    check([
        ("fresh", fresh(), "Note Provisioning, Show, MakePrime"),
        (
            "not held",
            fresh().with(|seen| {
                seen.claim.metadata.finalizers = None;
                seen.source.as_mut().unwrap().is_held = false;
            }),
            "Hold, HoldSource, Note Provisioning, Show, MakePrime",
        ),
        ("no node", fresh().with(no_node), "Note Waiting, Show"),
        (
            "pinned",
            fresh()
                .with(no_node)
                .with(|seen| {
                    seen.source.as_mut().unwrap().early = true;
                })
                .sight(readable_on("beta")),
            "Pin beta",
        ),
        (
            "at once",
            fresh().with(no_node).with(|seen| seen.waits_for_consumer = false),
            "Note Provisioning, Show, MakePrime",
        ),
        (
            "in use",
            fresh().sight(SourceState::Waits(reason, "x".to_owned())),
            "Tell SourceInUse, Note Waiting, Show",
        ),
        (
            "never",
            fresh().sight(SourceState::Never(PopulatorReason::NamespaceMismatch, "x".to_owned())),
            "Tell NamespaceMismatch, Note Failed, Show, Count error, Release",
        ),
        (
            "elsewhere",
            fresh().sight(readable_on("beta")),
            "Tell SourceNodeNotFound, Note Failed, Show, Count error, Release",
        ),
        (
            "no source",
            fresh().with(|seen| seen.source = None),
            "Tell PopulatorDataSourceNotFound, Show, Release",
        ),
        (
            "provisioning",
            fresh().with(|seen| seen.prime = Some(prime("Pending", Some("alpha")))),
            "Note Provisioning, Show",
        ),
        (
            "no room",
            fresh().with(|seen| seen.prime = Some(prime("Pending", None))),
            "Tell PopulatorRescheduled, Note Waiting, Show, Unpin, DropPrime",
        ),
        (
            "no room where alone it can be read",
            fresh()
                .with(|seen| seen.prime = Some(prime("Pending", None)))
                .sight(readable_on("alpha")),
            "Tell PopulatorRescheduled, Note Waiting, Show, DropPrime",
        ),
        (
            "moved",
            provisioned().with(|seen| seen.claim = claim("Pending", Some("beta"), None)),
            "DropPrime",
        ),
        (
            "moved after no room",
            fresh().with(|seen| {
                seen.claim = claim("Pending", Some("beta"), None);
                seen.prime = Some(prime("Pending", None));
            }),
            "DropPrime",
        ),
        ("provisioned", provisioned(), "MakePod"),
        (
            "volume elsewhere",
            provisioned()
                .with(|seen| {
                    seen.waits_for_consumer = false;
                    seen.pv_nodes = Some(only("alpha"));
                })
                .sight(readable_on("beta")),
            "Tell SourceNodeNotFound, Note Failed, Show, Count error, DropPrime",
        ),
    ]);
}

/// A source on beta, which can be sent, and a volume on alpha.
fn far() -> Box<ObservedPopulation> {
    let fill = Fill { nodes: Some(only("beta")), far: Some(Far::default()), ..Fill::default() };
    provisioned()
        .with(|seen| seen.pv_nodes = Some(only("alpha")))
        .sight(SourceState::Ready(Box::new(fill)))
}

/// The pod that sends.
fn sender(phase: &str) -> Pod {
    of(json!({
        "metadata": {"name": "send-u", "uid": "sender"},
        "status": {"phase": phase, "podIP": "10.0.0.7", "message": "evicted"},
    }))
}

fn held() -> (PopulatorReason, String) {
    (PopulatorReason::SourcePaused, "x".to_owned())
}

#[test]
fn a_source_on_another_node_is_sent() {
    let nodes = |seen: &mut ObservedPopulation, nodes: BTreeSet<String>| {
        let Some(SourceState::Ready(fill)) = &mut seen.source.as_mut().unwrap().sight else {
            return;
        };
        fill.nodes = Some(nodes);
    };
    let fill = |seen: &mut ObservedPopulation, change: fn(&mut Fill)| {
        if let Some(SourceState::Ready(fill)) = &mut seen.source.as_mut().unwrap().sight {
            change(fill);
        }
    };
    check([
        (
            "its volume is made where the claim is",
            far().with(|seen| (seen.prime, seen.pv, seen.pv_nodes) = (None, None, None)),
            "Note Provisioning, Show, MakePrime",
        ),
        ("nobody sends", far(), "MakeKeys, MakeSender"),
        ("it starts", far().with(|seen| seen.sender = Some(sender("Pending"))), ""),
        ("it sends", far().with(|seen| seen.sender = Some(sender("Running"))), "MakePod"),
        (
            "it goes",
            far().with(|seen| {
                seen.sender = Some(sender("Running"));
                ending(seen.sender.as_mut().unwrap());
            }),
            "",
        ),
        (
            "it has ended",
            far().with(|seen| seen.sender = Some(sender("Failed"))),
            "Tell PopulatorRetrying, Note Waiting, Show, Count retry, DropPrime, DropSender",
        ),
        (
            "its node is gone",
            far().with(|seen| nodes(seen, BTreeSet::new())),
            "Tell SourceNodeNotFound, Note Failed, Show, Count error, DropPrime",
        ),
        (
            "it is near after all",
            far().with(|seen| {
                seen.sender = Some(sender("Running"));
                nodes(seen, only("alpha"));
            }),
            "DropSender",
        ),
        (
            "it is paused",
            far().with(|seen| {
                seen.sender = Some(sender("Running"));
                fill(seen, |fill| fill.held = Some(held()));
            }),
            "DropSender",
        ),
        (
            "the claim is deleted",
            far().with(|seen| {
                seen.sender = Some(sender("Running"));
                ending(&mut seen.claim);
            }),
            "DropSender",
        ),
        (
            "it is filled",
            running("Succeeded", DONE).with(|seen| {
                seen.sender = Some(sender("Running"));
                seen.pv = Some(pv("u", true));
            }),
            "DropPod, DropSender, Nudge",
        ),
        (
            "no room on the node of the claim",
            far().with(|seen| {
                seen.prime = Some(prime("Pending", None));
                (seen.pv, seen.pv_nodes) = (None, None);
            }),
            "Tell PopulatorRescheduled, Note Waiting, Show, Unpin, DropPrime",
        ),
        (
            "no room where it can be read, and nobody would choose another node",
            far().with(|seen| {
                seen.prime = Some(prime("Pending", None));
                (seen.pv, seen.pv_nodes) = (None, None);
                seen.source.as_mut().unwrap().early = true;
                nodes(seen, only("alpha"));
            }),
            "Tell PopulatorRescheduled, Note Waiting, Show, DropPrime",
        ),
    ]);
}

#[test]
fn a_paused_source_gets_a_volume_and_no_pod() {
    let paused = || SourceState::Ready(Box::new(Fill { held: Some(held()), ..Fill::default() }));
    check([
        ("fresh", fresh().sight(paused()), "Note Provisioning, Show, MakePrime"),
        ("provisioned", provisioned().sight(paused()), "Note Waiting, Show"),
    ]);
}

#[test]
fn a_pod_is_watched_until_it_has_ended() {
    let failed = r#"{"outcome":"failed","message":"EIO"}"#;
    let mismatch = r#"{"outcome":"mismatch","message":"sum"}"#;
    check([
        ("running", running("Running", ""), "Note Populating, Show"),
        (
            "running elsewhere",
            running("Running", "").with(|seen| {
                seen.claim = claim("Pending", Some("beta"), None);
            }),
            "Note Waiting, Show, DropPrime, DropPod",
        ),
        ("succeeded", running("Succeeded", DONE), "Note Binding, Show, Retain"),
        (
            "retained",
            running("Succeeded", DONE).with(|seen| seen.pv = Some(pv("p", true))),
            "Note Binding, Show, Rebind",
        ),
        (
            "failed",
            running("Failed", failed),
            "Tell PopulatorRetrying, Note Waiting, Show, Count retry, DropPrime, DropPod",
        ),
        (
            "mismatch",
            running("Failed", mismatch),
            "Tell ChecksumMismatch, Note Failed, Show, Count error, DropPod",
        ),
        (
            "failed for the fifth time",
            running("Failed", failed).tells(|told| told.failures = 4),
            "Tell BackoffLimitExceeded, Note Failed, Show, Count error, DropPrime, DropPod",
        ),
    ]);
}

#[test]
fn what_was_made_goes_in_order() {
    check([
        (
            "deleted, running",
            running("Running", "").with(|seen| ending(&mut seen.claim)),
            "DropPod",
        ),
        (
            "deleted, retained",
            provisioned().with(|seen| {
                ending(&mut seen.claim);
                seen.pv = Some(pv("p", true));
            }),
            "Restore, DropPrime",
        ),
        (
            "deleted, clear",
            fresh().tells(|_| {}).with(|seen| ending(&mut seen.claim)),
            "Forget, Release",
        ),
        (
            "source deleted",
            running("Running", "").with(|seen| {
                seen.source.as_mut().unwrap().is_ending = true;
            }),
            "Tell PopulatorDataSourceNotFound, Show, DropPod",
        ),
        ("rebound", rebound("Pending", Some("Bound")), "Nudge"),
        ("bound, prime claim not lost yet", rebound("Bound", Some("Bound")), "Nudge"),
        ("bound and lost", rebound("Bound", Some("Lost")), "DropPrime"),
        (
            "prime claim gone",
            rebound("Bound", None),
            "Restore, Tell PopulatorFinished, Note Succeeded, Count success, Release",
        ),
        ("prime claim gone, not bound", rebound("Pending", None), ""),
        (
            "rebound and deleted",
            rebound("Pending", None).with(|seen| ending(&mut seen.claim)),
            "Restore, Release",
        ),
        (
            "rebound, source deleted",
            rebound("Bound", None).with(|seen| seen.source = None),
            "Restore, Tell PopulatorFinished, Release",
        ),
        ("by hand", fresh().with(|seen| seen.claim = claim("Bound", None, None)), "Release"),
        ("by hand, and known", by_hand(None), "Release"),
        ("by hand, with a prime claim that has no room", by_hand(Some("Pending")), "DropPrime"),
        (
            "by hand to another volume, just as this one was handed over",
            rebound("Bound", Some("Lost")).with(|seen| {
                seen.claim.spec.as_mut().unwrap().volume_name = Some("other".to_owned());
            }),
            "Restore, DropPrime",
        ),
        (
            "by hand, with a class that retains",
            running("Running", "").with(|seen| {
                seen.claim = claim("Bound", None, None);
                seen.pod = None;
                let spec = seen.pv.as_mut().unwrap().spec.as_mut().unwrap();
                spec.persistent_volume_reclaim_policy = Some("Retain".to_owned());
            }),
            "Restore, DropPrime",
        ),
    ]);
}

#[test]
fn a_second_claim_is_never_deleted_while_it_may_take_the_volume_along() {
    for claim_phase in ["Pending", "Bound"] {
        for prime_phase in ["Pending", "Bound", "Lost"] {
            for retained in [true, false] {
                let mut seen = rebound(claim_phase, Some(prime_phase));
                seen.pv = Some(pv("u", retained));
                let drops = plan(&seen).contains(&PopulationStep::DropPrime);
                let may = (claim_phase, prime_phase) == ("Bound", "Lost");
                assert_eq!(drops, may, "{claim_phase} {prime_phase} {retained}");
            }
        }
    }
}

#[test]
fn a_plan_after_its_own_apply_is_empty() {
    let told = |seen: Box<ObservedPopulation>,
                phase: FillingPhase,
                reason: Option<PopulatorReason>,
                shown: &str| {
        let seen = seen.tells(|told| {
            told.phase = phase;
            told.reason = reason.map(|reason| reason.to_string());
            told.message = reason.map(|_| "x".to_owned());
            told.pod_uid = (phase == FillingPhase::Populating).then(|| "pod".to_owned());
        });
        seen.with(|seen| seen.claim = claim("Pending", Some("alpha"), Some(shown)))
    };
    let reason = PopulatorReason::SourceInUse;
    let waits = fresh().sight(SourceState::Waits(reason, "x".to_owned()));
    let pending = fresh().with(|seen| seen.prime = Some(prime("Pending", Some("alpha"))));
    for seen in [
        told(waits, FillingPhase::Waiting, Some(reason), "Waiting: SourceInUse: x"),
        told(pending, FillingPhase::Provisioning, None, "Provisioning"),
        told(running("Running", ""), FillingPhase::Populating, None, "Populating"),
        rebound("Bound", Some("Bound")).with(|seen| {
            let prime = seen.prime.as_mut().unwrap();
            prime.annotations_mut().insert(NUDGED.to_owned(), "pv".to_owned());
        }),
    ] {
        assert_eq!(names(&plan(&seen)), "");
    }
}

#[test]
fn the_next_try_waits_for_its_time() {
    let retry = |seen: Box<ObservedPopulation>, left: i64| {
        seen.tells(|told| {
            told.next_retry_time =
                at(1000).checked_add(SignedDuration::from_secs(left)).ok().map(Time);
            told.failures = 1;
        })
    };
    let copies = |seen: Box<ObservedPopulation>| {
        seen.with(|seen| seen.source.as_mut().unwrap().anew = false)
    };
    assert_eq!(names(&plan(&retry(fresh(), 5))), "");
    assert_eq!(names(&plan(&retry(fresh(), 0))), "Note Provisioning, Show, MakePrime");
    assert_eq!(names(&plan(&retry(provisioned(), 5))), "DropPrime", "each try begins anew");
    assert_eq!(names(&plan(&copies(retry(provisioned(), 5)))), "");
    assert_eq!(names(&plan(&copies(retry(provisioned(), 0)))), "MakePod");
    // Another wish is not made to wait for the one before.
    let changed = retry(fresh(), 5).with(|seen| seen.source.as_mut().unwrap().generation = 2);
    assert_eq!(names(&plan(&changed)), "Note Provisioning, Show, MakePrime");
}

#[test]
fn what_was_given_up_stays_so_until_the_source_is_changed() {
    let failed = fresh().tells(|told| told.phase = FillingPhase::Failed);
    assert_eq!(names(&plan(&failed)), "Release");
    let changed = failed.with(|seen| seen.source.as_mut().unwrap().generation = 2);
    assert_eq!(names(&plan(&changed)), "Note Provisioning, Show, MakePrime");
}

#[test]
fn a_pod_that_does_not_run_is_told_after_a_while() {
    let pending = |age: i64| {
        running("Pending", "").with(|seen| {
            let pod = seen.pod.as_mut().unwrap();
            pod.metadata.creation_timestamp = Some(Time(at(1000 - age)));
            pod.status.as_mut().unwrap().container_statuses = None;
            let why = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                              "message": "0/2 nodes"}]);
            pod.status.as_mut().unwrap().conditions = Some(of(why));
        })
    };
    assert_eq!(names(&plan(&pending(29))), "Note Populating, Show");
    let told = plan(&pending(30));
    assert_eq!(names(&told), "Tell PopulatorPodPending, Note Populating, Show");
    assert!(format!("{told:?}").contains("does not run: Unschedulable: 0/2 nodes"), "{told:?}");
}

#[test]
fn of_an_image_that_is_not_pulled_it_is_told_which_secrets_have_to_be_there() {
    let waits = |reason: &str, secrets: Value| {
        let seen = running("Pending", "").with(|seen| {
            let pod = seen.pod.as_mut().unwrap();
            pod.metadata.creation_timestamp = Some(Time(at(900)));
            pod.metadata.namespace = Some("shop".to_owned());
            let message = format!("Back-off: 401 Unauthorized {}", "x".repeat(5000));
            let waiting = json!({"waiting": {"reason": reason, "message": message}});
            let status = json!([{"name": "populator", "image": "", "imageID": "", "ready": false,
                                 "restartCount": 0, "state": waiting}]);
            pod.status.as_mut().unwrap().container_statuses = Some(of(status));
            pod.spec = Some(of(json!({"containers": [], "imagePullSecrets": secrets})));
        });
        let told = plan(&seen).into_iter().find_map(|step| match step {
            PopulationStep::Tell(PopulatorReason::PopulatorPodPending, text) => Some(text),
            _ => None,
        });
        told.unwrap()
    };
    let named = json!([{"name": "registry"}, {"name": "mirror"}]);
    for reason in ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"] {
        let told = waits(reason, named.clone());
        assert!(told.contains(&format!("does not run: {reason}: Back-off: 401")), "{told}");
        let look = "`kubectl get secret -n shop registry mirror`";
        assert!(told.contains(look) && told.len() < 1024, "{told}");
        let told = waits(reason, Value::Null);
        assert!(told.contains("ServiceAccount default of namespace shop names a Secret"), "{told}");
    }
    let told = waits("CreateContainerError", named);
    assert!(!told.contains("get secret"), "{told}");
}

#[test]
fn progress_is_told_every_few_seconds_and_less_often_the_longer_it_takes() {
    let progress = PodProgress { bytes: 50, of: Some(100), rate: None, left: None };
    let told = |ago: i64, since: i64| {
        running("Running", "").with(|seen| seen.progress = Some(progress)).tells(|told| {
            told.phase = FillingPhase::Populating;
            told.pod_uid = Some("pod".to_owned());
            told.last_progress_time = Some(Time(at(1000 - ago)));
            told.start_time = Some(Time(at(1000 - since)));
        })
    };
    for (since, pause) in [(0, 10), (20, 10), (40, 20), (60, 30), (900, 30), (-60, 10)] {
        assert_eq!(names(&plan(&told(pause - 1, since))), "", "after {since} s");
        assert_eq!(names(&plan(&told(pause, since))), "Note Populating, Show", "after {since} s");
    }
}

/// What a pod says that has copied so many MiB ahead.
fn round_of(mib: u64) -> String {
    json!({"outcome": "done", "bytes": mib << 20, "changing": 1, "seconds": 3.0}).to_string()
}

/// A pod of a round, and a source that is still paused.
fn copies_ahead(phase: &str, message: &str) -> Box<ObservedPopulation> {
    let ahead_of = Some((PopulatorReason::SourcePaused, "x".to_owned()));
    running(phase, message)
        .with(|seen| {
            seen.source.as_mut().unwrap().anew = false;
            prime::mark_ahead(seen.pod.as_mut().unwrap());
        })
        .sight(SourceState::Ready(Box::new(Fill { ahead_of, is_live: true, ..Fill::default() })))
}

/// So many passes have ended, the last one with this much and by this pod.
fn rounds(
    seen: Box<ObservedPopulation>,
    phase: FillingPhase,
    passes: i32,
    mib: u64,
    pod: &str,
) -> Box<ObservedPopulation> {
    seen.tells(|told| {
        let (written_bytes, pod_uid) = (counted(mib << 20), pod.to_owned());
        told.phase = phase;
        told.pre_copy = Some(PreCopy { passes, written_bytes, pod_uid, ..PreCopy::default() });
    })
}

#[test]
fn rounds_are_copied_ahead_until_little_is_left_and_then_it_waits() {
    use FillingPhase::{Populating, PreCopied};
    let failed = r#"{"outcome":"failed","message":"EIO"}"#;
    let without_pod = |seen: Box<ObservedPopulation>| seen.with(|seen| seen.pod = None);
    let unpaused = |seen: Box<ObservedPopulation>| {
        seen.sight(SourceState::Ready(Box::default())).with(|seen| {
            seen.source.as_mut().unwrap().generation = 2;
        })
    };
    let one = |phase, pod| rounds(copies_ahead("Succeeded", &round_of(1000)), phase, 1, 1000, pod);
    check([
        ("the first", without_pod(copies_ahead("", "")), "MakePod"),
        ("ended", copies_ahead("Succeeded", &round_of(1000)), "Note Populating, Show, DropPod"),
        ("told", one(Populating, "pod"), "DropPod"),
        ("the next", without_pod(one(Populating, "pod")), "MakePod"),
        (
            "it ended with little",
            rounds(copies_ahead("Succeeded", &round_of(10)), Populating, 1, 1000, "other"),
            "Note PreCopied, Show, DropPod",
        ),
        ("it ended with as much", one(Populating, "other"), "Note PreCopied, Show, DropPod"),
        ("paused no more", without_pod(unpaused(one(PreCopied, "pod"))), "MakePod"),
        (
            "paused no more while one runs",
            unpaused(one(Populating, "other")).with(|seen| {
                let mut runs = pod("Running", "");
                prime::mark_ahead(&mut runs);
                seen.pod = Some(runs);
            }),
            "Note Waiting, Show, DropPod",
        ),
        (
            "paused no more as one ends",
            unpaused(copies_ahead("Succeeded", &round_of(1000))),
            "Note Populating, Show, DropPod",
        ),
        (
            "failed",
            copies_ahead("Failed", failed),
            "Tell PopulatorRetrying, Note Waiting, Show, Count retry, DropPod",
        ),
        (
            "its volume is gone",
            without_pod(one(Populating, "pod")).with(|seen| seen.prime = None),
            "Note Provisioning, Show, MakePrime",
        ),
    ]);
    let ahead = without_pod(one(PreCopied, "pod")).tells(|told| {
        told.phase = PreCopied;
        (told.reason, told.message) = (Some("SourcePaused".to_owned()), Some("x".to_owned()));
    });
    let shown = "PreCopied: SourcePaused: x";
    let ahead = ahead.with(|seen| seen.claim = claim("Pending", Some("alpha"), Some(shown)));
    assert_eq!(names(&plan(&ahead)), "", "it waits");
}

#[test]
fn a_volume_that_was_made_anew_has_no_rounds_in_it() {
    let gone = rounds(copies_ahead("", ""), FillingPhase::Populating, 3, 1000, "pod");
    let gone = gone.with(|seen| (seen.pod, seen.prime) = (None, None));
    let told = plan(&gone).into_iter().find_map(|step| match step {
        PopulationStep::Note(filling) => Some(filling),
        _ => None,
    });
    assert_eq!(told.unwrap().pre_copy, None);
}

#[test]
fn a_copy_is_out_of_date_if_a_pod_came_and_it_was_paused_again() {
    let ended = running("Succeeded", DONE);
    let sight = copies_ahead("", "").source.unwrap().sight.unwrap();
    let steps = names(&plan(&ended.sight(sight)));
    assert_eq!(
        steps,
        "Tell PopulatorRetrying, Note Waiting, Show, Count retry, DropPrime, DropPod"
    );
}

#[test]
fn what_was_copied_for_an_earlier_edit_is_copied_again() {
    let edited = |seen: Box<ObservedPopulation>| {
        seen.with(|seen| seen.source.as_mut().unwrap().generation = 2)
    };
    let copied = edited(running("Succeeded", DONE));
    check([("ended before the edit", copied, "Note Waiting, Show, DropPrime, DropPod")]);
}

#[test]
fn what_differs_because_a_pod_wrote_is_tried_again() {
    let mismatch = r#"{"outcome":"mismatch","message":"a.txt"}"#;
    let live = Fill { is_live: true, ..Fill::default() };
    let ended = running("Failed", mismatch).sight(SourceState::Ready(Box::new(live)));
    let ended = ended.with(|seen| seen.source.as_mut().unwrap().anew = false);
    let steps = plan(&ended);
    assert_eq!(names(&steps), "Tell PopulatorRetrying, Note Waiting, Show, Count retry, DropPod");
    assert!(format!("{steps:?}").contains("a pod writes to the source"), "{steps:?}");
}

#[test]
fn the_longer_there_is_no_room_the_seldomer_it_is_tried() {
    for (waited, pause) in [(0, 10), (60, 15), (86_400, 120)] {
        let seen = fresh().with(|seen| seen.prime = Some(prime("Pending", None)));
        let since = seen.now - SignedDuration::from_secs(waited);
        let seen = seen.tells(|told| told.start_time = Some(Time(since)));
        let noted = plan(&seen).into_iter().find_map(|step| match step {
            PopulationStep::Note(filling) => filling.next_retry_time,
            _ => None,
        });
        let left = noted.expect("it is tried again").0.duration_since(seen.now);
        assert_eq!(left, SignedDuration::from_secs(pause), "after {waited} s");
    }
}

/// A fence as it stands on the volume.
fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

/// Its volume is one of this driver, of which its node tells this, and the status that.
fn ours(
    seen: Box<ObservedPopulation>,
    node: Option<&str>,
    told: Option<&str>,
) -> Box<ObservedPopulation> {
    let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("v"));
    let fence = node.map(self::fence);
    let told = told.map(|told| FenceStatus::from(self::fence(told)));
    let before =
        seen.status_entry().cloned().unwrap_or_else(|| filling(&seen, FillingPhase::Waiting));
    let told = Filling { fence: told, ..before };
    seen.with(|seen| {
        seen.source.as_mut().unwrap().told = Some(told);
        seen.volume = Some(VolumeSeen { id, mode: None, is_limited: false, fence, asked: None });
    })
}

impl ObservedPopulation {
    /// Its node was asked this, and has answered so.
    fn asked(
        self: Box<Self>,
        wish: &str,
        answer: Option<Result<&str, &str>>,
    ) -> Box<ObservedPopulation> {
        let look =
            |text| ObservedVolume { node: "alpha".to_owned(), fence: fence(text), open_count: 0 };
        let failed = |why: &str| NotDone { reason: Reason::Unavailable, why: why.to_owned() };
        let answer = answer.map(|answer| answer.map(look).map_err(failed));
        let wish = NodeOperation::Fence(fence(wish));
        let asked = OperationRequest { wish, answer, is_old: false, is_recent: true };
        self.with(|seen| seen.volume.as_mut().unwrap().asked = Some(asked))
    }
}

#[test]
fn a_volume_is_half_copied_before_a_pod_gets_it() {
    let bound = |node: Option<&str>, told: Option<&str>| ours(provisioned(), node, told);
    let (half, whole) = ("incomplete:1:copying", "active:2");
    let paused = SourceState::Ready(Box::new(Fill { held: Some(held()), ..Fill::default() }));
    check([
        (
            "nothing is told yet",
            bound(Some("active:0"), None),
            "Note Provisioning, Show, Ask incomplete:1:copying",
        ),
        (
            "its node does not tell of it yet",
            bound(None, None),
            "Note Provisioning, Show, Ask incomplete:1:copying",
        ),
        (
            "also while the source is paused",
            bound(None, None).sight(paused),
            "Note Provisioning, Show, Ask incomplete:1:copying",
        ),
        (
            "who wrote so died before its node was asked",
            bound(Some("active:0"), Some(half)),
            "Note Provisioning, Show, Ask incomplete:1:copying",
        ),
        ("its node tells so", bound(Some(half), Some(half)), "MakePod"),
        (
            "its node has answered, and tells so later",
            bound(Some("active:0"), Some(half)).asked(half, Some(Ok(half))),
            "MakePod",
        ),
        (
            "another one has told it something",
            bound(Some("superseded:4"), None),
            "Note Provisioning, Show, Ask incomplete:5:copying",
        ),
        (
            "what was told came before what its node tells",
            bound(Some("active:7"), Some(half)),
            "Note Provisioning, Show, Ask incomplete:8:copying",
        ),
        (
            "it was filled, and its pod vanished before it was the claim's",
            bound(Some(half), Some(whole)),
            "Note Provisioning, Show, Ask incomplete:3:copying",
        ),
        ("the status has lost what it was told", bound(Some(half), None), "MakePod"),
        ("another driver's", provisioned(), "MakePod"),
        (
            "it waits for the next try",
            bound(None, None)
                .tells(|told| {
                    told.next_retry_time = Some(Time(at(1005)));
                })
                .with(|seen| seen.source.as_mut().unwrap().anew = false),
            "",
        ),
    ]);
}

#[test]
fn a_volume_is_active_before_it_is_the_claims() {
    let filled = |node: &str, told: Option<&str>| {
        let ended = ours(running("Succeeded", DONE), Some(node), told);
        ended.with(|seen| seen.pv = Some(pv("p", true)))
    };
    let (half, whole) = ("incomplete:1:copying", "active:2");
    check([
        ("filled", filled(half, Some(half)), "Note Binding, Show, Ask active:2"),
        (
            "it is retained meanwhile",
            filled(half, Some(half)).with(|seen| seen.pv = Some(pv("p", false))),
            "Note Binding, Show, Ask active:2, Retain",
        ),
        ("its node tells so", filled(whole, Some(whole)), "Note Binding, Show, Rebind"),
        ("the status has lost what it was told", filled(whole, None), "Note Binding, Show, Rebind"),
        (
            "its node has answered, and tells so later",
            filled(half, Some(whole)).asked(whole, Some(Ok(whole))),
            "Note Binding, Show, Rebind",
        ),
        (
            "a version that knew of no fence has begun it",
            filled("active:0", None),
            "Note Binding, Show, Ask active:1",
        ),
        (
            "one that knew of none has handed it over",
            ours(rebound("Bound", None), Some(half), Some(half)),
            "Restore, Note Binding, Show, Ask active:2",
        ),
        (
            "and its node has answered",
            ours(rebound("Bound", None), Some(half), Some(whole)).asked(whole, Some(Ok(whole))),
            "Restore, Tell PopulatorFinished, Note Succeeded, Count success, Release",
        ),
        (
            "a pod came to the source",
            filled(whole, Some(whole))
                .sight(SourceState::Waits(PopulatorReason::SourceInUse, "x".to_owned())),
            "Tell PopulatorRetrying, Note Waiting, Show, Count retry, Restore, DropPrime, DropPod",
        ),
    ]);
}

#[test]
fn while_a_node_does_not_answer_nothing_goes_on_and_the_status_says_so() {
    let (half, whole) = ("incomplete:1:copying", "active:2");
    let away = |seen: Box<ObservedPopulation>, wish| seen.asked(wish, Some(Err("it is away")));
    let before = away(ours(provisioned(), Some("active:0"), Some(half)), half);
    let after = ours(running("Succeeded", DONE), Some(half), Some(whole));
    let after = away(after.with(|seen| seen.pv = Some(pv("p", true))), whole);
    for (seen, phase, what) in
        [(before, "Provisioning", "incomplete"), (after, "Binding", "active")]
    {
        let steps = plan(&seen);
        assert_eq!(names(&steps), format!("Note {phase}, Show"));
        let said = format!("is to be {what}, but its node has not confirmed that yet: it is away");
        assert!(format!("{steps:?}").contains(&said), "{steps:?}");
        let is_told = steps.into_iter().fold(seen, |seen, step| match step {
            PopulationStep::Note(filling) => seen.tells(|told| *told = *filling),
            PopulationStep::Show(shown) => {
                seen.with(|seen| seen.claim = claim("Pending", Some("alpha"), Some(&shown)))
            }
            _ => seen,
        });
        assert_eq!(names(&plan(&is_told)), "");
        let asked_again = is_told.with(|seen| {
            seen.volume.as_mut().unwrap().asked.as_mut().unwrap().is_old = true;
        });
        let again = names(&plan(&asked_again));
        assert!(again.starts_with("Ask ") && !again.contains(", "), "{again}");
    }
}

#[test]
fn while_a_node_is_asked_it_is_waited_for() {
    let half = "incomplete:1:copying";
    let asked = ours(provisioned(), None, Some(half)).tells(|told| {
        told.phase = FillingPhase::Provisioning;
        told.fence = Some(FenceStatus::from(fence(half)));
    });
    let shown = |seen: &mut ObservedPopulation| {
        seen.claim = claim("Pending", Some("alpha"), Some("Provisioning"));
    };
    assert_eq!(names(&plan(&asked.with(shown).asked(half, None))), "");
}

#[test]
fn a_volume_that_is_made_anew_is_told_from_the_beginning() {
    let gone = ours(provisioned(), None, Some("active:2")).with(|seen| {
        (seen.prime, seen.pv, seen.volume) = (None, None, None);
    });
    let told = plan(&gone).into_iter().find_map(|step| match step {
        PopulationStep::Note(filling) => Some(filling),
        _ => None,
    });
    assert_eq!(told.unwrap().fence, None);
}

/// A paused source whose copy is tried before.
fn tried(seen: Box<ObservedPopulation>) -> Box<ObservedPopulation> {
    let rehearsal = Some(Box::new(Fill::default()));
    let fill = Fill { held: Some(held()), rehearsal, ..Fill::default() };
    seen.sight(SourceState::Ready(Box::new(fill)))
        .with(|seen| seen.source.as_mut().unwrap().anew = false)
}

/// The pod that tries it.
fn tries(phase: &str, message: &str) -> Box<ObservedPopulation> {
    tried(running(phase, message).with(|seen| prime::mark_probe(seen.pod.as_mut().unwrap())))
}

#[test]
fn what_fills_a_volume_is_tried_while_its_source_is_paused() {
    let done = r#"{"outcome":"done","bytes":0}"#;
    let refused = |seen: Box<ObservedPopulation>| {
        seen.tells(|told| told.reason = Some("PopulatorCreationError".to_owned()))
    };
    let is_known =
        |seen: Box<ObservedPopulation>| seen.tells(|told| told.probe_time = Some(Time(at(900))));
    let edited = |seen: Box<ObservedPopulation>| {
        seen.with(|seen| seen.source.as_mut().unwrap().generation = 2)
    };
    check([
        ("its volume is there", tried(provisioned()), "RehearsePod, MakePod"),
        ("it runs", tries("Running", ""), "Note Provisioning, Show"),
        ("it ended", tries("Succeeded", done), "Note Provisioning, Show, DropPod"),
        ("it ended, and the status says so", is_known(tries("Succeeded", done)), "DropPod"),
        (
            "what else is needed is refused",
            refused(tries("Succeeded", done)),
            "Note Waiting, Show, DropPod",
        ),
        (
            "it is not asked for at once again",
            refused(tried(provisioned())).with(|seen| {
                let told = seen.source.as_mut().unwrap().told.as_mut().unwrap();
                told.next_retry_time = Some(Time(at(1030)));
            }),
            "",
        ),
        (
            "it failed",
            tries("Failed", "no such image"),
            "Tell PopulatorRetrying, Note Waiting, Show, Count retry, DropPod",
        ),
        (
            "it did what it was not made for",
            tries("Succeeded", ""),
            "Tell PopulatorRetrying, Note Waiting, Show, Count retry, DropPod",
        ),
        ("paused no more", edited(tries("Running", "")), "Note Waiting, Show, DropPod"),
        ("it was tried", is_known(tried(provisioned())), "Note Waiting, Show"),
        ("for another wish", edited(is_known(tried(provisioned()))), "RehearsePod, MakePod"),
        (
            "its volume was lost",
            is_known(tried(provisioned())).with(|seen| seen.prime = None),
            "Note Provisioning, Show, MakePrime",
        ),
    ]);
    let made = plan(&is_known(tried(provisioned())).with(|seen| seen.prime = None));
    assert!(!format!("{made:?}").contains("probe_time: Some"), "another volume is tried, too");
}

#[test]
fn a_claim_whose_size_cannot_be_read_is_not_filled() {
    let asks = |size: &str| {
        fresh().with(|seen| {
            let spec = seen.claim.spec.as_mut().unwrap();
            spec.resources = Some(of(json!({"requests": {"storage": size}})));
        })
    };
    let steps = plan(&asks("1181116006400m"));
    assert!(steps.contains(&PopulationStep::MakePrime), "{steps:?}");
    let steps = plan(&asks("1e50"));
    assert!(!steps.contains(&PopulationStep::MakePrime), "{steps:?}");
    let said = format!("{steps:?}");
    assert!(said.contains("InvalidSize") && said.contains("`1e50` is not a size"), "{said}");
}
