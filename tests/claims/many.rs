//! Many workloads, and some that are no good: each has its turn.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use pliant::api::{AutoscalerPhase, GATE, PvcAutoscaler, PvcAutoscalerStatus};
use pliant::testing::FakeApi;
use serde_json::json;

use crate::block_on;
use crate::play::object;
use crate::world::{CROWDED, FULL_SHARE, Operator, PANICS, SHOP, World, one_pod};

/// Swap the claim of a pod beside so many that wait for their StatefulSets, with slow calls; how many looks that took,
/// and how long.
fn looks_of_a_swap_beside(waiting: usize) -> (usize, Duration) {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        let is = |phase| move |status: &PvcAutoscalerStatus| status.phase == phase;
        world.until("it is settled", is(AutoscalerPhase::InSync)).await;
        world.write();
        world.api.slow_down("other", SLOW);
        for at in 0..waiting {
            world.want_elsewhere(&format!("w{at}"), "missing");
        }
        let (before, begun) = (world.looks("nginx"), tokio::time::Instant::now());
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is swapped", is(AutoscalerPhase::Swapping)).await;
        world.until("it is settled", is(AutoscalerPhase::InSync)).await;
        (world.looks("nginx") - before, begun.elapsed())
    })
}

#[test]
fn a_swap_beside_many_that_wait_has_its_usual_number_of_looks() {
    let (alone, usual) = looks_of_a_swap_beside(0);
    let (beside, took) = looks_of_a_swap_beside(300);
    assert!(beside <= alone + 3, "{beside} looks, and {alone} alone");
    assert!(took <= usual + 4 * SLOW, "{took:?}, and {usual:?} alone");
}

/// How many wait for their StatefulSets beside a pod: more than can be looked at within a minute.
const CROWD: usize = 120;

/// How long each call takes in the namespace of those that wait.
const SLOW: Duration = Duration::from_millis(250);

/// So many wait in a namespace, with slow calls, and all are due.
async fn crowd(world: &World, namespace: &str) {
    world.api.slow_down(namespace, SLOW);
    for at in 0..CROWD {
        world.want_in(namespace, &format!("w{at:03}"), "missing");
    }
    let is_begun = |_: &FakeApi| world.looks("missing") > 0;
    world.api.until("the first ones are looked at", is_begun).await;
}

#[test]
fn a_swap_comes_before_all_of_its_namespace_that_wait() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        world.want("2Gi", "hdd", &json!({}));
        let is_swapped = |status: &PvcAutoscalerStatus| status.phase == AutoscalerPhase::Swapping;
        world.until("it is swapped", is_swapped).await;
        crowd(&world, SHOP).await;
        let (own, others) = (world.looks("nginx"), world.looks("missing"));
        let has_had_three = |_: &FakeApi| world.looks("nginx") >= own + 3;
        world.api.until("the swap was looked at three times", has_had_three).await;
        let others = world.looks("missing") - others;
        assert!(others <= 72, "{others} looks at others beside three at the swap");
    });
}

#[test]
fn an_edit_comes_before_those_of_a_namespace_that_has_many_that_wait() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        crowd(&world, "other").await;
        let others = world.looks("missing");
        world.want("5Gi", "hdd", &json!({}));
        let generation: PvcAutoscaler = world.api.get("shop/nginx").expect("it is there");
        let generation = generation.metadata.generation.unwrap_or_default();
        world.until("it is seen", |status| status.observed_generation == generation).await;
        let others = world.looks("missing") - others;
        assert!(others <= 16, "{others} looks at others before it");
    });
}

/// As many as one namespace has that wait for ever.
const MANY: usize = 5000;

#[test]
fn an_edit_is_looked_at_at_once_beside_five_thousand_of_another_namespace() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        for at in 0..MANY {
            world.want_in("other", &format!("w{at:04}"), "missing");
        }
        let is_begun = |_: &pliant::testing::FakeApi| world.looks("missing") > 0;
        world.api.until("the first ones are looked at", is_begun).await;
        let (others, calls) = (world.looks("missing"), world.api.calls());
        world.want("5Gi", "hdd", &json!({}));
        let begun = tokio::time::Instant::now();
        let looks = world.looks("nginx");
        world.api.until("it is looked at", |_| world.looks("nginx") > looks).await;
        let (others, calls) = (world.looks("missing") - others, world.api.calls() - calls);
        let took = begun.elapsed();
        assert!(
            others <= 16 && calls <= 200,
            "{others} looks at others and {calls} calls before it"
        );
        assert!(took <= Duration::from_secs(2), "{took:?}");
    });
}

/// A StatefulSet that is not there is watched: nothing is asked until it is.
#[test]
fn who_waits_for_a_stateful_set_is_looked_at_again_once_that_is_there() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.want_elsewhere("w", "late");
        world.api.until("it is looked at", |_| world.looks("late") > 0).await;
        world.rest().await;
        let looks = world.looks("late");
        tokio::time::sleep(Duration::from_mins(10)).await;
        let again = world.looks("late") - looks;
        assert!(again <= 1, "{again} looks within ten minutes of which nothing changes");
        world.api.put(&object::<StatefulSet>(json!({
            "metadata": {"name": "late", "namespace": "other"},
            "spec": {"replicas": 0, "selector": {}, "serviceName": "late", "template": {}},
        })));
        let is_settled = |api: &pliant::testing::FakeApi| {
            let one: Option<PvcAutoscaler> = api.get("other/w");
            one.and_then(|one| one.status).is_some_and(|told| told.phase == AutoscalerPhase::InSync)
        };
        world.api.until("it is settled", is_settled).await;
    });
}

/// What a change costs: how many records are read for it, of each kind that is watched.
#[test]
fn a_change_costs_nothing_for_what_does_not_change() {
    let (autoscalers, claims) = (1000, 3000);
    block_on(async {
        let mut world = World::new();
        world.stop_kubernetes();
        for at in 0..autoscalers {
            let (namespace, name) = (format!("team{:02}", at % 20), format!("w{at:04}"));
            world.want_in(&namespace, &name, &name);
            world.api.put(&object::<StatefulSet>(json!({
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"replicas": 0, "selector": {}, "serviceName": name, "template": {}},
            })));
            // A claim as a swap makes it.
            world.api.put(&object::<PersistentVolumeClaim>(json!({
                "metadata": {"name": format!("copy-{name}"), "namespace": namespace},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                         "resources": {"requests": {"storage": "1Gi"}},
                         "dataSourceRef": {"apiGroup": "pliant.io", "kind": "PvcSourcePopulator",
                                           "name": format!("copy-{name}")}},
                "status": {"phase": "Bound"},
            })));
            for number in 0..claims / autoscalers {
                world.api.put(&object::<PersistentVolumeClaim>(json!({
                    "metadata": {"name": format!("www-{name}-{number}"), "namespace": namespace},
                    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                             "resources": {"requests": {"storage": "1Gi"}}},
                    "status": {"phase": "Pending"},
                })));
            }
        }
        let Operator { keeper, watches, .. } = &world.operator();
        let is_settled = |one: &PvcAutoscaler| {
            let told = one.status.as_ref().map(|status| (status.observed_generation, status.phase));
            told == Some((one.metadata.generation.unwrap_or_default(), AutoscalerPhase::InSync))
        };
        while !world.api.list::<PvcAutoscaler>().iter().all(is_settled) {
            world.rest().await;
        }
        world.rest().await;
        let read = || {
            [
                ("PvcAutoscalers", keeper.autoscalers().records_read()),
                ("StatefulSets", keeper.stateful_sets().records_read()),
                ("claims", watches.claims().records_read()),
                ("volumes", watches.pvs().records_read()),
            ]
        };
        let before = read();
        let mut edited: PvcAutoscaler = world.api.get("team07/w0407").expect("it is there");
        let size = serde_json::from_value(json!("2Gi")).expect("a size");
        edited.spec.volume_claim_template.spec.resources.requests.storage = size;
        world.api.put(&edited);
        let is_seen = |one: PvcAutoscaler| is_settled(&one) && one.spec == edited.spec;
        world.api.until("it is seen", |api| api.get("team07/w0407").is_some_and(is_seen)).await;
        world.rest().await;
        for ((kind, before), (_, after)) in before.into_iter().zip(read()) {
            let read = after - before;
            assert!(read <= 60, "{read} {kind} are read for an edit of one PvcAutoscaler");
        }
    });
}

/// One that waits for the webhook, of which nothing is watched.
fn crowded(world: &World) {
    world.api.put(&object::<StatefulSet>(json!({
        "metadata": {"name": CROWDED, "namespace": "other"},
        "spec": {"replicas": 0, "selector": {}, "serviceName": CROWDED, "template": {}},
    })));
    world.want_elsewhere("one", CROWDED);
}

#[test]
fn one_that_waits_and_of_which_nothing_changes_is_looked_at_twice_a_minute() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        crowded(&world);
        world.api.until("it is looked at", |_| world.looks(CROWDED) > 0).await;
        world.rest().await;
        let looks = world.looks(CROWDED);
        tokio::time::sleep(Duration::from_mins(10)).await;
        let again = world.looks(CROWDED) - looks;
        assert!((18..=21).contains(&again), "{again} looks within ten minutes");
    });
}

/// Whoever waits for the webhook learns why it will not come by waiting.
#[test]
fn a_share_of_the_webhook_that_is_used_up_is_said_to_be() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        crowded(&world);
        let told = |api: &FakeApi| {
            let there: Option<PvcAutoscaler> = api.get("other/one");
            there.and_then(|one| one.status).filter(|status| status.reason.is_some())
        };
        world.api.until("it is told", |api| told(api).is_some()).await;
        let status = told(&world.api).expect("it is told");
        assert_eq!(status.reason.as_deref(), Some("WebhookNotReady"));
        let message = status.message.unwrap_or_default();
        assert!(
            message.contains(FULL_SHARE) && !message.contains("log of the operator"),
            "{message}"
        );
    });
}

#[test]
fn a_panic_of_one_look_is_the_back_off_of_that_one() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.want_elsewhere("bad", PANICS);
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.told("InternalError"), 1, "it is told once");
        let looks = world.looks(PANICS);
        assert!((1..=4).contains(&looks), "after 10 s, 20 s, 40 s: {looks} looks");
        world.rest().await;
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert!(world.looks(PANICS) <= looks + 3, "the pause grows");
    });
}

#[test]
fn looks_whose_calls_hang_are_stopped_and_others_of_their_namespace_have_their_turn() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.api.slow_down("other", Duration::from_hours(24));
        let all: Vec<String> = (0..20).map(|at| format!("hung{at}")).collect();
        for name in &all {
            world.want_elsewhere(name, "missing");
        }
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        world.api.slow_down("other", Duration::ZERO);
        // Calls that hang from before do so for a day.
        tokio::time::sleep(Duration::from_mins(12)).await;
        let is_told = |name: &String| {
            let there: Option<PvcAutoscaler> = world.api.get(&format!("other/{name}"));
            let status = there.and_then(|one| one.status);
            status.is_some_and(|status| status.reason.is_some())
        };
        let left: Vec<&String> = all.iter().filter(|name| !is_told(name)).collect();
        assert_eq!(left, Vec::<&String>::new());
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
    });
}

/// A pod behind our gate, with a claim.
fn gated(api: &FakeApi, namespace: &str, name: &str) {
    let claim = json!({"name": "www", "persistentVolumeClaim": {"claimName": name}});
    api.put(&object::<Pod>(json!({
        "metadata": {"name": name, "namespace": namespace, "labels": { GATE: "true" }},
        "spec": {"containers": [], "schedulingGates": [{"name": GATE}], "volumes": [claim]},
        "status": {"phase": "Pending"},
    })));
}

/// A claim that names a volume, which is not there.
fn without_volume(api: &FakeApi, namespace: &str, name: &str, note: usize) {
    api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": name, "namespace": namespace, "labels": {"note": note.to_string()}},
        "spec": {"volumeName": "missing"},
    })));
}

fn is_open(api: &FakeApi, pod: &str) -> bool {
    let pod: Pod = api.get(pod).expect("a pod");
    pod.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default().is_empty()
}

#[test]
fn gated_pods_and_held_claims_whose_calls_hang_hold_up_no_other() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.api.slow_down("other", Duration::from_hours(24));
        let held = |namespace: &str, name: &str| {
            world.api.put(&object::<PersistentVolumeClaim>(json!({
                "metadata": {"name": name, "namespace": namespace, "finalizers": ["pliant.io/swap-protection"]},
                "spec": {},
            })));
        };
        for at in 0..20 {
            gated(&world.api, "other", &format!("hung{at}"));
            held("other", &format!("held{at}"));
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        gated(&world.api, SHOP, "waits");
        held(SHOP, "held");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(is_open(&world.api, "shop/waits"), "a gate is held by pods of another namespace");
        let claim = world.claim("held").expect("it is there");
        let is_held = claim
            .metadata
            .finalizers
            .iter()
            .flatten()
            .any(|one| one == "pliant.io/swap-protection");
        assert!(!is_held, "a claim is held by those of another namespace");
    });
}

/// How many calls a minute takes in which the claim of a gated pod changes each second, beside so many pods that wait in
/// another namespace.
fn calls_of_changes_beside(waiting: usize) -> usize {
    block_on(async {
        let mut world = World::new();
        world.stop_kubernetes();
        for at in 0..waiting {
            let name = format!("waits{at}");
            without_volume(&world.api, "other", &name, 0);
            gated(&world.api, "other", &name);
        }
        without_volume(&world.api, SHOP, "own", 0);
        gated(&world.api, SHOP, "own");
        let _operator = world.operator();
        world.rest().await;
        let before = world.api.calls();
        for second in 0..60 {
            without_volume(&world.api, SHOP, "own", second);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.api.calls() - before
    })
}

#[test]
fn a_change_costs_no_look_at_pods_that_wait_elsewhere() {
    // Each is looked at every 10 s, by four calls, and the one whose claim changes each second.
    let calls = calls_of_changes_beside(30);
    assert!(calls <= (30 * 7 + 61) * 4, "{calls} calls beside 30 pods that wait");
}

/// More pods than a status can list: nothing is read for them.
#[test]
fn too_many_replicas_are_refused_before_anything_is_read() {
    for replicas in [1025, i32::MAX] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            world.set(replicas, &[]);
            world.want("4Gi", "hdd", &json!({}));
            let is_refused =
                |status: &PvcAutoscalerStatus| status.reason.as_deref() == Some("TooManyReplicas");
            world.until("it is refused", is_refused).await;
            let message = world.status().message.unwrap_or_default();
            assert!(message.contains(&format!("{replicas} replicas")), "{message}");
            assert_eq!((world.looks("nginx"), world.claims()), (0, Vec::new()));
            world.set(1, &[]);
            world.settled("1/1").await;
        });
    }
}

#[test]
fn a_negative_number_of_replicas_is_none() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(-1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("0/0").await;
    });
}
