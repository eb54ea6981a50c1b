//! Claims that become larger and smaller by themselves.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use pliant::api::{
    AutoscalerPhase, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, VolumeRequest,
};
use pliant::bytes::Bytes;
use serde_json::{Value, json};

use crate::block_on;
use crate::play::{End, object};
use crate::world::{SHOP, World};

const MINUTE: Duration = Duration::from_secs(60);

/// So many pods with claims of 4 GiB, and this policy besides that they grow by 16 GiB.
async fn pods(world: &World, count: i32, policy: &Value) {
    world.set(count, &[]);
    want(world, policy);
    world.settled(&format!("{count}/{count}")).await;
    world.write();
}

fn want(world: &World, policy: &Value) {
    let mut whole = json!({"maxSize": "100Gi", "growBy": "16Gi", "cooldown": "1m"});
    whole.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    world.want("4Gi", "hdd", &json!({ "autoscale": whole }));
}

fn capacity(world: &World, ordinal: i32) -> String {
    world.active(ordinal).status.unwrap().capacity.unwrap()["storage"].0.clone()
}

/// Wait for what takes hours.
pub async fn until(world: &World, what: &str, is: impl Fn(&OrdinalStatus) -> bool) {
    let wait = async {
        loop {
            let changed = world.api.changed();
            if world.status().of(0).is_some_and(&is) {
                return;
            }
            changed.await;
        }
    };
    let waited = tokio::time::timeout(10 * 60 * MINUTE, wait).await;
    assert!(waited.is_ok(), "waited in vain until {what}: {:#?}", world.status());
}

async fn until_said(world: &World, words: &str) {
    let says =
        |one: &OrdinalStatus| one.last_decision.as_ref().is_some_and(|why| why.contains(words));
    until(world, words, says).await;
}

/// The claim of the pod has grown to 20 GiB, and is nearly empty from then on.
async fn grown_and_emptied(world: &World) {
    world.fill(0, 85, 0);
    until(world, "it grows", |one| one.autoscaled_size.is_some()).await;
    world.rest().await;
    assert_eq!(capacity(world, 0), "20Gi");
    world.fill(0, 10, 1);
    until(world, "it is seen", |one| one.peak_usage.is_some()).await;
}

/// Hours of the day that begin in so many and last for two, by the clock of this machine.
fn hours_in(hours: i64) -> Value {
    let at = |hours| (Timestamp::now() + SignedDuration::from_hours(hours)).to_string();
    let hour = |hours| at(hours)[11..16].to_owned();
    json!({"start": hour(hours), "end": hour(hours + 2)})
}

#[test]
fn a_step_without_room_is_halved_until_it_fits_or_is_too_small() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({})).await;
        world.play().room = Some(Bytes::gib(10));
        world.fill(0, 85, 0);
        until(&world, "it grows", |one| one.autoscaled_size.is_some()).await;
        world.settled("1/1").await;
        assert_eq!(capacity(&world, 0), "8Gi", "20 and 12 GiB were refused");
        assert_eq!((world.told("AutoscaleExpand"), world.told("ExpansionFailed")), (1, 2));
        world.play().room = Some(Bytes::gib(8));
        world.fill(0, 85, 1);
        until_said(&world, "and this is retried: no room for that").await;
        let status = world.status();
        assert_eq!(
            (status.phase, status.reason.as_deref()),
            (AutoscalerPhase::Waiting, Some("ExpansionFailed"))
        );
        let writes = world.api.writes().len();
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(world.api.writes().len(), writes, "it waits, and says so once");
        world.play().room = None;
        world.fill(0, 60, 1);
        world.settled("1/1").await;
        assert_eq!(capacity(&world, 0), "8704Mi", "half of the smallest step");
        assert_eq!((world.claims().len(), world.ordinal(0).claim_revision), (1, 0));
    });
}

#[test]
fn a_template_that_asks_for_too_much_can_ask_for_less_in_place() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.play().room = Some(Bytes::gib(10));
        world.want("20Gi", "hdd", &json!({}));
        world
            .until("it is told", |status| status.reason.as_deref() == Some("ExpansionFailed"))
            .await;
        assert!(world.status().message.unwrap().contains("set a smaller size above"));
        world.want("9Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((capacity(&world, 0), world.ordinal(0).claim_revision), ("9Gi".to_owned(), 0));
        assert_eq!(world.play().written["nginx-0"], "w", "its pod went on");
    });
}

/// The API server keeps `4.1Gi` so, where a StatefulSet or a person asked for it.
#[test]
fn a_claim_of_a_part_of_a_gibibyte_grows_by_itself() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        let policy = json!({"maxSize": "100Gi", "growBy": "16Gi", "cooldown": "1m"});
        world.want("4.1Gi", "hdd", &json!({ "autoscale": policy }));
        world.settled("1/1").await;
        let (mut claim, size) = (world.active(0), json!({"storage": "4402341478400m"}));
        claim.spec.as_mut().unwrap().resources = Some(object(json!({ "requests": size })));
        claim.status.as_mut().unwrap().capacity = object(size);
        world.api.put(&claim);
        world.rest().await;
        assert_eq!(
            (world.status().ready_claims(), world.ordinal(0).claim_revision),
            ("1/1".to_owned(), 0)
        );
        world.fill(0, 85, 0);
        until(&world, "it grows", |one| one.autoscaled_size.is_some()).await;
        world.rest().await;
        let has: Bytes = capacity(&world, 0).parse().unwrap();
        assert!(has >= Bytes::gib(20), "{has}");
    });
}

#[test]
fn a_fast_writer_is_grown_before_its_claim_is_full() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({"growBeforeFull": "6h"})).await;
        world.fill(0, 60, 0);
        until_said(&world, "60 % of its bytes are used; it grows at 80 % or 6h before").await;
        world.fill_from(0, 55, 60, 0);
        world.rest().await;
        assert_eq!(capacity(&world, 0), "4Gi", "that takes eight hours");
        world.fill_from(0, 50, 60, 0);
        until(&world, "it grows", |one| one.autoscaled_size.is_some()).await;
        world.rest().await;
        assert_eq!((capacity(&world, 0), world.told("AutoscaleExpand")), ("20Gi".to_owned(), 1));
    });
}

#[test]
fn claims_that_grow_together_are_of_one_size() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 3, &json!({"uniformSize": true, "growBy": "25%"})).await;
        world.fill(1, 85, 0);
        world
            .until("all grow", |status| {
                status.ordinals.iter().all(|one| one.autoscaled_size.is_some())
            })
            .await;
        world.settled("3/3").await;
        let sizes = [0, 1, 2].map(|ordinal| capacity(&world, ordinal));
        assert_eq!(sizes, ["5Gi", "5Gi", "5Gi"]);
        // Whoever comes later is as large, and none becomes smaller if they part.
        world.set(4, &[]);
        world.settled("4/4").await;
        assert_eq!(capacity(&world, 3), "5Gi");
        want(&world, &json!({}));
        world.settled("4/4").await;
        assert_eq!(capacity(&world, 0), "5Gi");
        assert_eq!(world.ordinal(3).claim_revision, 0);
    });
}

#[test]
fn a_claim_that_is_nearly_empty_for_long_is_swapped_for_a_smaller_one() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({"shrink": {"stabilizationWindow": "10m", "cooldown": "10m"}}))
            .await;
        let old = world.ordinal(0).active_claim;
        grown_and_emptied(&world).await;
        until_said(&world, "10 % at most since").await;
        tokio::time::sleep(5 * MINUTE).await;
        // Fuller, though not too full: that counts, and the window goes on.
        world.fill(0, 20, 2);
        until(&world, "it is fuller", |one| {
            one.peak_usage.as_ref().is_some_and(|now| now.percent == 20)
        })
        .await;
        assert_eq!(world.ordinal(0).active_claim, old, "the window is not over");
        until(&world, "it is swapped", |one| one.claim_revision == 1).await;
        world.settled("1/1").await;
        // 32 % of 20 GiB, and half of that besides.
        assert_eq!(capacity(&world, 0), "9831Mi");
        let entry = world.ordinal(0);
        assert_eq!((&entry.retained_claims[0].name, world.told("AutoscaleShrink")), (&old, 1));
        assert!(entry.peak_usage.is_none() && entry.swap.is_none());
        world.write();
        let writes = world.api.writes().len();
        tokio::time::sleep(60 * MINUTE).await;
        assert_eq!(world.api.writes().len(), writes, "without a sample no decision");
        assert_eq!((world.left(), capacity(&world, 0)), (vec![], "9831Mi".to_owned()));
    });
}

#[test]
fn a_window_begins_anew_when_the_claim_is_fuller_or_not_seen() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({"shrink": {"stabilizationWindow": "30m", "cooldown": "1m"}})).await;
        grown_and_emptied(&world).await;
        tokio::time::sleep(20 * MINUTE).await;
        world.fill(0, 45, 2);
        until(&world, "it is fuller", |one| one.peak_usage.is_none()).await;
        world.fill(0, 10, 3);
        until(&world, "it is emptied", |one| one.peak_usage.is_some()).await;
        tokio::time::sleep(20 * MINUTE).await;
        world.api.delete::<pliant::api::NodeStorage>("alpha");
        until(&world, "nobody sees it", |one| one.peak_usage.is_none()).await;
        assert!(world.ordinal(0).last_decision.unwrap().contains("no decision"));
        let is_told = || world.api.get::<pliant::api::NodeStorage>("alpha").is_some();
        world.until("its node plugin tells again", |_| is_told()).await;
        world.fill(0, 10, 4);
        tokio::time::sleep(20 * MINUTE).await;
        assert_eq!((world.ordinal(0).claim_revision, capacity(&world, 0)), (0, "20Gi".to_owned()));
        until(&world, "it is swapped", |one| one.claim_revision == 1).await;
    });
}

#[test]
fn a_claim_shrinks_only_in_its_hours_and_while_pods_may_be_stopped() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let policy = json!({"stabilizationWindow": "10m", "cooldown": "1m", "maintenanceWindow": hours_in(3)});
        let policy = json!({"autoscale": {"maxSize": "100Gi", "growBy": "16Gi", "cooldown": "1m",
                                          "shrink": policy}, "rollout": {"paused": true}});
        world.set(1, &[]);
        world.want("4Gi", "hdd", &policy);
        world.settled("1/1").await;
        grown_and_emptied(&world).await;
        until_said(&world, "UTC").await;
        until_said(&world, "not yet: spec.rollout.paused is true").await;
        assert_eq!((world.ordinal(0).claim_revision, world.told("AutoscaleShrink")), (0, 0));
        let mut edited: PvcAutoscaler = world.api.get(&format!("{SHOP}/nginx")).unwrap();
        edited.spec.rollout = None;
        world.api.put(&edited);
        until(&world, "it is swapped", |one| one.claim_revision == 1).await;
    });
}

#[test]
fn a_shrink_is_only_told_if_that_is_wanted() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({})).await;
        world.fill(0, 85, 0);
        until(&world, "it grows", |one| one.autoscaled_size.is_some()).await;
        world.rest().await;
        world.fill(0, 10, 1);
        let shrink = json!({"stabilizationWindow": "10m", "cooldown": "1m"});
        let policy = json!({"maxSize": "100Gi", "shrink": shrink});
        world.want("4Gi", "hdd", &json!({"mode": "DryRun", "autoscale": policy}));
        until_said(&world, "it shrinks from 20Gi to 6759Mi").await;
        assert_eq!(world.status().phase, AutoscalerPhase::DryRun);
        assert!(world.status().planned_action.unwrap().contains("it shrinks from 20Gi to 6759Mi"));
        tokio::time::sleep(30 * MINUTE).await;
        assert_eq!((capacity(&world, 0), world.told("AutoscaleShrink")), ("20Gi".to_owned(), 0));
    });
}

#[test]
fn a_shrink_that_fails_is_tried_again_when_it_has_rested() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({"shrink": {"stabilizationWindow": "10m", "cooldown": "2h"}})).await;
        let old = world.ordinal(0).active_claim;
        grown_and_emptied(&world).await;
        let said = json!({"outcome": "mismatch", "message": "a.txt differs"}).to_string();
        world.play().ends.push_back(End::Failed(said));
        until(&world, "it is tried", |one| one.swap.is_some()).await;
        until(&world, "it has failed", |one| {
            one.autoscaled_size.as_ref().unwrap().failure_time.is_some()
        })
        .await;
        world.settled("1/1").await;
        assert_eq!((world.ordinal(0).active_claim, world.told("SwapFailed")), (old, 1));
        assert_eq!(capacity(&world, 0), "20Gi");
        world.write();
        tokio::time::sleep(60 * MINUTE).await;
        assert_eq!(world.ordinal(0).claim_revision, 0, "it rests");
        until(&world, "it is swapped", |one| one.claim_revision == 1).await;
        world.settled("1/1").await;
        assert_eq!(capacity(&world, 0), "6759Mi");
    });
}

#[test]
fn a_claim_that_could_not_shrink_still_grows() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({"shrink": {"stabilizationWindow": "10m", "cooldown": "2h"}})).await;
        grown_and_emptied(&world).await;
        let said = json!({"outcome": "refused", "message": "too small"}).to_string();
        world.play().ends.push_back(End::Failed(said));
        until(&world, "it is tried", |one| one.swap.is_some()).await;
        // Full meanwhile: its node says so once.
        world.fill(0, 90, 1);
        until(&world, "it has failed", |one| one.swap.is_none()).await;
        world.settled("1/1").await;
        assert_eq!((capacity(&world, 0), world.ordinal(0).claim_revision), ("36Gi".to_owned(), 0));
    });
}

#[test]
fn a_shrink_that_is_late_is_given_up_before_its_pod_is_stopped() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({"shrink": {"stabilizationWindow": "10m", "cooldown": "1m"}})).await;
        let shrink = json!({"stabilizationWindow": "10m", "cooldown": "1m", "maintenanceWindow": hours_in(1)});
        let policy =
            json!({"maxSize": "100Gi", "growBy": "16Gi", "cooldown": "1m", "shrink": shrink});
        world.want("4Gi", "hdd", &json!({"preCopy": true, "autoscale": policy}));
        let pod = world.pod("nginx-0");
        grown_and_emptied(&world).await;
        world.play().ends.push_back(End::Hangs);
        until(&world, "it is begun", |one| one.swap.is_some()).await;
        assert!(world.ordinal(0).swap.unwrap().automatic);
        until(&world, "it is given up", |one| one.swap.is_none()).await;
        world.settled("1/1").await;
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
        assert_eq!((world.told("SwapFailed"), world.ordinal(0).claim_revision), (1, 0));
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn nothing_is_decided_by_what_a_node_told_whose_node_plugin_is_away_by_now() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({})).await;
        world.play().are_node_plugins_away = true;
        world.fill(0, 85, 0);
        world
            .until("it is told", |status| status.reason.as_deref() == Some("StaleUsageMetrics"))
            .await;
        world.rest().await;
        assert_eq!(
            (capacity(&world, 0), world.ordinal(0).autoscaled_size),
            ("4Gi".to_owned(), None)
        );
        let said = world.ordinal(0).last_decision.unwrap_or_default();
        assert!(said.contains("does not respond") || said.contains("is not responding"), "{said}");
        world.play().are_node_plugins_away = false;
        until(&world, "it grows", |one| one.autoscaled_size.is_some()).await;
        world.settled("1/1").await;
        assert_eq!(capacity(&world, 0), "20Gi");
    });
}

#[test]
fn a_claim_that_another_client_made_larger_is_reported_and_its_pod_goes_on() {
    for templates in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            world.set(1, templates);
            world.want("4Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            let (pod, name) = (world.pod("nginx-0"), world.ordinal(0).active_claim);
            let asks_for = |size: &str| {
                let mut claim = world.claim(&name).unwrap();
                claim.spec.as_mut().unwrap().resources =
                    Some(object(json!({"requests": {"storage": size}})));
                world.api.put(&claim);
            };
            asks_for("8Gi");
            let is_told =
                |status: &PvcAutoscalerStatus| status.reason.as_deref() == Some("ClaimLarger");
            world.until("it is told", is_told).await;
            world.rest().await;
            assert_eq!((world.pod("nginx-0"), world.ordinal(0).claim_revision), (pod.clone(), 0));
            // Also after another edit that is still smaller.
            world.want("6Gi", "hdd", &json!({}));
            world.rest().await;
            assert_eq!((world.pod("nginx-0"), world.ordinal(0).claim_revision), (pod, 0));
            world.want("8Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            // From now on a lower template is meant so.
            world.want("4Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            let requests = world.active(0).spec.unwrap().resources.unwrap().requests.unwrap();
            assert_eq!(requests["storage"].0, "4Gi");
            world.write();
        });
    }
}

/// With autoscaling too: nothing that nobody asked for stops a pod.
#[test]
fn a_claim_that_is_larger_than_the_template_stays_while_autoscaling_comes_and_goes() {
    for policy in [json!({}), json!({"shrink": {"belowPercent": 30}})] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            pods(&world, 1, &policy).await;
            let (pod, name) = (world.pod("nginx-0"), world.ordinal(0).active_claim);
            let stays = |size: &str, what: &str| {
                let one = world.ordinal(0);
                assert_eq!((world.pod("nginx-0"), one.claim_revision), (pod.clone(), 0), "{what}");
                assert_eq!(capacity(&world, 0), size, "{what}");
            };
            let mut claim = world.claim(&name).unwrap();
            claim.spec.as_mut().unwrap().resources =
                Some(object(json!({"requests": {"storage": "8Gi"}})));
            world.api.put(&claim);
            world.settled("1/1").await;
            stays("8Gi", "a person made it larger");
            world.fill(0, 85, 0);
            until(&world, "it grows", |one| {
                one.autoscaled_size.as_ref().is_some_and(|own| own.size.0 == Bytes::gib(24))
            })
            .await;
            world.fill(0, 50, 1);
            world.settled("1/1").await;
            stays("24Gi", "it was full");
            world.want("4Gi", "hdd", &json!({}));
            let is_told =
                |status: &PvcAutoscalerStatus| status.reason.as_deref() == Some("ClaimLarger");
            world.until("it is told", is_told).await;
            want(&world, &policy);
            world.settled("1/1").await;
            world.rest().await;
            stays("24Gi", "autoscaling came back");
            // A template that is lowered is an order.
            let mut lower = json!({"maxSize": "100Gi"});
            lower.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
            world.fill(0, 5, 1);
            world.want("3Gi", "hdd", &json!({ "autoscale": lower }));
            world.settled("1/1").await;
            assert_eq!(capacity(&world, 0), "3Gi");
            world.write();
        });
    }
}

#[test]
fn what_another_node_tells_of_a_volume_changes_nothing() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        pods(&world, 1, &json!({})).await;
        world.lie();
        world.api.forget_writes();
        tokio::time::sleep(60 * MINUTE).await;
        assert_eq!((capacity(&world, 0), world.told("AutoscaleExpand")), ("4Gi".to_owned(), 0));
        let claims: Vec<String> = world
            .api
            .writes()
            .into_iter()
            .filter(|line| line.contains("persistentvolume"))
            .collect();
        assert_eq!(claims, Vec::<String>::new());
        assert!(world.api.list::<VolumeRequest>().is_empty(), "no node is asked for anything");
        // Its own node is believed.
        world.fill(0, 85, 0);
        until(&world, "it grows", |one| one.autoscaled_size.is_some()).await;
    });
}
