//! Many workloads, and some that are no good: each has its turn.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use pliant::api::{AutoscalerPhase, PvcAutoscaler, PvcAutoscalerStatus};
use serde_json::json;

use crate::block_on;
use crate::play::object;
use crate::world::{CROWDED, FULL_SHARE, PANICS, World};

/// Swap the claim of a pod beside so many that wait for their StatefulSets; how many looks that took.
fn looks_of_a_swap_beside(waiting: usize) -> usize {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        let is = |phase| move |status: &PvcAutoscalerStatus| status.phase == phase;
        world.until("it is settled", is(AutoscalerPhase::Settled)).await;
        world.write();
        for at in 0..waiting {
            world.want_elsewhere(&format!("w{at}"), "missing");
        }
        let before = world.looks("nginx");
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is swapped", is(AutoscalerPhase::Swapping)).await;
        world.until("it is settled", is(AutoscalerPhase::Settled)).await;
        world.looks("nginx") - before
    })
}

#[test]
fn a_swap_beside_many_that_wait_has_its_usual_number_of_looks() {
    let (alone, beside) = (looks_of_a_swap_beside(0), looks_of_a_swap_beside(300));
    assert!(beside <= alone + 3, "{beside} looks, and {alone} alone");
}

/// Whoever waits for the webhook learns why it will not come by waiting.
#[test]
fn a_share_of_the_webhook_that_is_used_up_is_said_to_be() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.api.put(&object::<StatefulSet>(json!({
            "metadata": {"name": CROWDED, "namespace": "other"},
            "spec": {"replicas": 0, "selector": {}, "serviceName": CROWDED, "template": {}},
        })));
        world.want_elsewhere("one", CROWDED);
        let told = |api: &pliant::testing::FakeApi| {
            let there: Option<PvcAutoscaler> = api.get("other/one");
            there.and_then(|one| one.status).filter(|status| status.reason.is_some())
        };
        world.api.until("it is told", |api| told(api).is_some()).await;
        let status = told(&world.api).expect("it is told");
        assert_eq!(status.reason.as_deref(), Some("WebhookMissing"));
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
