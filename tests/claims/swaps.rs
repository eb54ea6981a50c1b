//! Pods get other claims, with all that was written.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use pliant::api::{
    AutoscalerPhase, FillingPhase, PvcAutoscaler, PvcAutoscalerStatus, PvcSourcePopulator,
    Retained, SwapPhase,
};
use pliant::testing::FakeApi;
use pliant::volume::DRIVER;
use serde_json::json;

use crate::block_on;
use crate::play::{End, object};
use crate::world::{SHOP, World, one_pod, swap};

async fn two_pods(world: &World) {
    two_pods_of(world, "hdd").await;
}

async fn two_pods_of(world: &World, class: &str) {
    world.set(2, &[]);
    world.want("4Gi", class, &json!({}));
    world.settled("2/2").await;
    world.write();
}

fn class(world: &World, ordinal: i32) -> String {
    world.active(ordinal).spec.unwrap().storage_class_name.unwrap()
}

#[test]
fn a_smaller_template_of_another_class_swaps_one_pod_after_the_other() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let before = [world.ordinal(0).active_claim, world.ordinal(1).active_claim];
        world.want("2Gi", "ssd", &json!({}));
        world.until("the last is begun with", |status| status.of(1).unwrap().swap.is_some()).await;
        assert!(world.ordinal(0).swap.is_none(), "one after the other");
        world.settled("2/2").await;
        for ordinal in [0, 1] {
            let entry = world.ordinal(ordinal);
            assert_eq!((entry.claim_revision, &*class(&world, ordinal)), (1, "ssd"));
            let old = &entry.retained_claims[0];
            assert_eq!(old.name, before[usize::try_from(ordinal).unwrap()]);
            assert!(old.replacement_ready_time.is_some(), "its pod was ready with the new one");
        }
        world.write();
        assert_eq!(world.play().written["nginx-0"], "wwww", "two starts, and each once more");
        assert_eq!((world.told("SwapStarted"), world.told("SwapSucceeded")), (2, 2));
        assert_eq!(warnings(&world), [""; 0]);
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

/// What was told as a warning.
fn warnings(world: &World) -> Vec<String> {
    let is_warning = |event: &Event| event.type_.as_deref() == Some("Warning");
    let warnings = world.api.list::<Event>().into_iter().filter(is_warning);
    warnings.filter_map(|event| event.note).collect()
}

#[test]
fn swaps_by_several_replicas_warn_of_nothing_either() {
    for own in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            let _others = [world.operator(), world.operator()];
            world.set(2, own);
            world.want("4Gi", "hdd", &json!({}));
            world.settled("2/2").await;
            for size in ["3Gi", "2Gi", "1Gi"] {
                world.write();
                world.want(size, "hdd", &json!({}));
                world.settled("2/2").await;
            }
            assert_eq!(warnings(&world), [""; 0]);
        });
    }
}

#[test]
fn a_pod_is_not_stopped_before_its_new_claim_has_its_room() {
    for (class, said) in [("hdd", "could be created on node alpha"), ("now", "has no volume yet")] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            two_pods_of(&world, class).await;
            let pod = world.pod("nginx-1");
            world.play().full.insert("alpha".to_owned());
            world.want("2Gi", class, &json!({}));
            let is_said =
                |message: &Option<String>| message.as_ref().is_some_and(|it| it.contains(said));
            world
                .until(said, |status| {
                    let swap = status.of(1).and_then(|one| one.swap.as_ref());
                    swap.is_some_and(|swap| is_said(&swap.message)) && is_said(&status.progress)
                })
                .await;
            world.rest().await;
            assert_eq!(world.ordinal(1).swap.unwrap().phase, SwapPhase::Pending);
            assert_eq!((world.pod("nginx-1"), world.told("SwapStarted")), (pod, 0));

            world.want("4Gi", class, &json!({}));
            world.settled("2/2").await;
            assert_eq!(world.left(), Vec::<String>::new());
            world.want("2Gi", class, &json!({}));
            world.until("it is begun again", |status| status.of(1).unwrap().swap.is_some()).await;
            world.play().full.clear();
            world.settled("2/2").await;
            assert_eq!((world.ordinal(0).claim_revision, world.told("SwapSucceeded")), (1, 2));
            world.write();
        });
    }
}

#[test]
fn the_old_claim_goes_after_its_time_and_not_before() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let old = world.ordinal(1).active_claim;
        world.want("2Gi", "hdd", &json!({"retention": "1h"}));
        world.settled("2/2").await;
        tokio::time::sleep(Duration::from_secs(3000)).await;
        assert!(world.claim(&old).is_some());
        tokio::time::sleep(Duration::from_secs(700)).await;
        assert!(world.claim(&old).is_none());
        assert!(world.ordinal(1).retained_claims.is_empty());
        assert_eq!(world.claims().len(), 2);
        world.write();
    });
}

#[test]
fn a_copy_that_fails_gives_the_pod_its_old_claim_and_stops_the_rollout() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let old = world.ordinal(1).active_claim;
        let said = json!({"outcome": "mismatch", "message": "a.txt differs"}).to_string();
        world.play().ends.push_back(End::Failed(said));
        world.want("2Gi", "hdd", &json!({}));
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        let entry = world.ordinal(1);
        assert_eq!((&entry.active_claim, entry.claim_revision), (&old, 0));
        let swap = entry.swap.unwrap();
        assert_eq!(swap.phase, SwapPhase::Failed);
        assert!(swap.message.unwrap().contains("a.txt differs"));
        assert!(world.ordinal(0).swap.is_none(), "no further pod is stopped");
        assert_eq!(world.claims().len(), 2, "nothing of it is left");
        assert_eq!(world.left(), Vec::<String>::new());
        assert_eq!(world.told("SwapFailed"), 1);
        world.write();
        // Another template is tried.
        world.want("3Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        world.write();
    });
}

/// A copy that came out different, as the pod that makes it says it.
fn differs() -> End {
    End::Failed(json!({"outcome": "mismatch", "message": "a.txt differs"}).to_string())
}

#[test]
fn a_copy_that_came_out_different_is_made_again_after_an_hour() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let pod = world.pod("nginx-0");
        world.play().ends.push_back(differs());
        world.want("2Gi", "hdd", &json!({}));
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        let failed = world.ordinal(1).swap.unwrap();
        assert_eq!((failed.reason.as_deref(), failed.failures), (Some("ChecksumMismatch"), 1));
        let at = failed.next_retry_time.unwrap().0;
        assert!(world.status().message.unwrap().contains(&format!("retried at {at}")));
        tokio::time::sleep(Duration::from_secs(3400)).await;
        assert_eq!(world.ordinal(1).swap.unwrap().phase, SwapPhase::Failed);
        assert_eq!(world.pod("nginx-0"), pod, "no further pod is stopped before");
        tokio::time::sleep(Duration::from_secs(300)).await;
        world.settled("2/2").await;
        assert_eq!((world.told("SwapFailed"), world.told("SwapSucceeded")), (1, 2));
        assert_eq!(world.left(), Vec::<String>::new());
        world.write();
    });
}

#[test]
fn a_copy_that_comes_out_different_each_time_is_given_up() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let old = world.ordinal(1).active_claim;
        world.play().ends.extend([differs(), differs(), differs(), differs()]);
        world.want("2Gi", "hdd", &json!({}));
        for (times, hours) in [(1, 1), (2, 4), (3, 16), (4, 64)] {
            let has_failed = |status: &PvcAutoscalerStatus| {
                let swap = status.of(1).and_then(|entry| entry.swap.as_ref());
                swap.is_some_and(|swap| swap.phase == SwapPhase::Failed && swap.failures == times)
            };
            world.until(&format!("it has failed {times} times"), has_failed).await;
            tokio::time::sleep(Duration::from_hours(hours)).await;
        }
        let entry = world.ordinal(1);
        assert_eq!((entry.active_claim, entry.swap.unwrap().next_retry_time), (old, None));
        assert_eq!(world.told("SwapFailed"), 4);
        assert_eq!((world.claims().len(), world.left()), (2, vec![]));
        world.write();
        // Another template has all its tries.
        world.play().ends.push_back(differs());
        world.want("3Gi", "hdd", &json!({}));
        tokio::time::sleep(Duration::from_hours(2)).await;
        world.settled("2/2").await;
        world.write();
    });
}

#[test]
fn no_other_pod_is_stopped_before_a_copy_that_failed_has_come_to_a_good_end() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(3, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("3/3").await;
        world.write();
        let pod = world.pod("nginx-0");
        let is_as_before = |world: &World| {
            let entry = world.ordinal(0);
            (entry.swap, entry.claim_revision, world.pod("nginx-0")) == (None, 0, pod.clone())
        };
        world.play().ends.push_back(differs());
        world.want("2Gi", "hdd", &json!({"rollout": {"maxUnavailable": 2}}));
        let phase = |status: &PvcAutoscalerStatus, ordinal| {
            status.of(ordinal).and_then(|entry| entry.swap.as_ref()).map(|swap| swap.phase)
        };
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        let failed = if phase(&world.status(), 2) == Some(SwapPhase::Failed) { 2 } else { 1 };
        assert_eq!(world.ordinal(3 - failed).claim_revision, 1, "that one was begun with before");
        assert!(is_as_before(&world), "the first try has failed");
        world.play().ends.push_back(End::Hangs);
        tokio::time::sleep(Duration::from_mins(61)).await;
        let is_copied =
            |status: &PvcAutoscalerStatus| phase(status, failed) == Some(SwapPhase::FinalCopy);
        world.until("it is copied again", is_copied).await;
        world.rest().await;
        assert!(is_as_before(&world), "the second try goes on");
        world.play().end_hanging();
        // What the play has changed is nothing that is watched.
        let pod = format!("shop/nginx-{failed}");
        world.api.put(&world.api.get::<k8s_openapi::api::core::v1::Pod>(&pod).unwrap());
        world.settled("3/3").await;
        assert_eq!((world.ordinal(0).claim_revision, world.told("SwapStarted")), (1, 4));
        world.write();
    });
}

#[test]
fn a_template_that_is_edited_twice_ends_at_the_newest() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is begun with", |status| status.of(1).unwrap().swap.is_some()).await;
        world.want("3Gi", "ssd", &json!({}));
        world.settled("2/2").await;
        assert_eq!((class(&world, 0), class(&world, 1)), ("ssd".to_owned(), "ssd".to_owned()));
        world.write();
    });
}

#[test]
fn a_claim_whose_class_cannot_grow_is_swapped_for_a_larger_one() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "fixed", &json!({}));
        world.settled("1/1").await;
        world.want("8Gi", "fixed", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.ordinal(0).claim_revision, 1);
        world.write();
    });
}

#[test]
fn nothing_is_stopped_while_another_pod_is_not_ready_or_the_rollout_is_paused() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        world.want("2Gi", "hdd", &json!({"rollout": {"paused": true}}));
        world.until("it waits", |status| status.phase == AutoscalerPhase::Waiting).await;
        world.rest().await;
        assert!(world.ordinal(1).swap.is_none());
        world.want("2Gi", "hdd", &json!({"rollout": {"partition": 1}}));
        world.until("the last has it", |status| status.of(1).unwrap().claim_revision == 1).await;
        world.rest().await;
        assert_eq!(world.ordinal(0).claim_revision, 0);
        world.want("2Gi", "nvme", &json!({}));
        world
            .until("it is told", |status| status.reason.as_deref() == Some("StorageClassNotFound"))
            .await;
        world.write();
    });
}

#[test]
fn as_many_pods_as_may_be_away_are_stopped_at_a_time() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        world.want("2Gi", "hdd", &json!({"rollout": {"maxUnavailable": 2}}));
        let is_away = |status: &pliant::api::PvcAutoscalerStatus, ordinal| {
            let swap = status.of(ordinal).and_then(|one| one.swap.as_ref());
            swap.is_some_and(|swap| swap.phase == SwapPhase::FinalCopy)
        };
        world.until("both are copied", |status| is_away(status, 0) && is_away(status, 1)).await;
        world.settled("2/2").await;
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn somebody_else_who_writes_to_the_old_claim_is_waited_for() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let old = world.ordinal(1).active_claim;
        let pod = world.pod("nginx-1");
        let volume = json!({"name": "x", "persistentVolumeClaim": {"claimName": old}});
        world.api.put(&crate::play::object::<k8s_openapi::api::core::v1::Pod>(json!({
            "metadata": {"name": "debug", "namespace": "shop"},
            "spec": {"containers": [], "volumes": [volume]}, "status": {"phase": "Running"},
        })));
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is told", |status| status.reason.as_deref() == Some("ClaimInUse")).await;
        world.rest().await;
        assert_eq!(world.ordinal(1).active_claim, old);
        assert!(world.status().message.unwrap().contains("pod debug"));
        assert_eq!((world.pod("nginx-1"), world.told("ClaimInUse")), (pod, 1), "its pod goes on");
        world.api.delete::<k8s_openapi::api::core::v1::Pod>("shop/debug");
        world.settled("2/2").await;
    });
}

#[test]
fn a_replica_whose_clock_is_30_days_ahead_deletes_nothing() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let old = world.ordinal(1).active_claim;
        world.want("2Gi", "hdd", &json!({"retention": "7d"}));
        world.settled("2/2").await;
        assert_eq!(world.told("ClockSkew"), 0);
        // Its machine is that far ahead of all others: it was switched on before its clock was set.
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        world.api.set_ahead(days(-30));
        tokio::time::sleep(Duration::from_hours(24 * 7 + 1)).await;
        assert!(world.claim(&old).is_some() && world.told("ClockSkew") == 1);
        let text = world.texts("ClockSkew").join("");
        assert!(
            text.contains("clock of an operator is 720h") && text.contains("ahead of"),
            "{text}"
        );
        world.api.set_ahead(days(0));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(world.claim(&old).is_none(), "it goes as soon as the clocks agree");
    });
}

#[test]
fn a_replica_whose_clock_is_behind_does_not_tell_from_when_a_claim_is_retained() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        world.api.set_ahead(SignedDuration::from_hours(24 * 30));
        world.want("2Gi", "hdd", &json!({"retention": "7d"}));
        world.settled("2/2").await;
        assert_eq!(
            world.ordinal(1).retained_claims[0].replacement_ready_time,
            None,
            "it would be long over for others"
        );
        world.api.set_ahead(SignedDuration::ZERO);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(world.ordinal(1).retained_claims[0].replacement_ready_time.is_some());
    });
}

#[test]
fn no_swap_begins_with_more_old_claims_than_can_be_told_of() {
    for templates in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            world.set(1, templates);
            world.want("4Gi", "hdd", &json!({"retention": "30d"}));
            world.settled("1/1").await;
            for swap in 1..=15 {
                let class = if swap % 2 == 0 { "hdd" } else { "ssd" };
                world.want("4Gi", class, &json!({"retention": "30d"}));
                world.settled("1/1").await;
                assert_eq!(world.ordinal(0).claim_revision, swap);
            }
            world.want("4Gi", "hdd", &json!({"retention": "30d"}));
            let is_told = |status: &PvcAutoscalerStatus| {
                status.reason.as_deref() == Some("TooManyRetainedClaims")
            };
            world.until("it is told", is_told).await;
            world.rest().await;
            let entry = world.ordinal(0);
            assert_eq!((entry.swap, entry.retained_claims.len()), (None, 15));
            world.write();
            // One that is not needed is deleted, so two more can be.
            world.delete_claim(&entry.retained_claims[0].name);
            world.settled("1/1").await;
            world.delete_claim(&entry.retained_claims[1].name);
            world.want("4Gi", "ssd", &json!({"retention": "30d"}));
            world.settled("1/1").await;
            assert_eq!(world.ordinal(0).claim_revision, 17);
            world.write();
        });
    }
}

#[test]
fn a_swap_between_classes_of_the_longest_names_is_told_of_in_short() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let class = |letter: &str| letter.repeat(250);
        for letter in ["a", "b"] {
            world.api.put(&object::<StorageClass>(json!({
                "metadata": {"name": class(letter)}, "provisioner": DRIVER,
                "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
            })));
        }
        world.set(1, &[]);
        world.want("4Gi", &class("a"), &json!({}));
        world.settled("1/1").await;
        world.write();
        world.want("4Gi", &class("b"), &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.told("SwapSucceeded"), world.told("InvalidStatus")), (1, 0));
        world.write();
    });
}

#[test]
fn a_status_that_is_refused_is_an_error_and_no_change_by_others() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        // Status lists more of them than the definition takes: it was of another version then.
        let mut there: PvcAutoscaler = world.api.get("shop/nginx").unwrap();
        let old = object::<PersistentVolumeClaim>(json!({
            "metadata": {"name": "old", "namespace": "shop"}, "spec": {}}));
        let uid = world.api.put(&old).metadata.uid.unwrap();
        let old = Retained { name: "old".to_owned(), uid, ..Retained::default() };
        there.status.as_mut().unwrap().ordinals[0].retained_claims = vec![old; 17];
        world.api.put(&there);
        world.rest().await;
        assert_eq!(world.told("InvalidStatus"), 1);
        let text = world.texts("InvalidStatus").join("");
        assert!(text.contains("must have at most 16 items"), "{text}");
        world.api.forget_writes();
        world.rest().await;
        let writes = world.api.writes();
        let tries = writes.iter().filter(|line| line.contains("pvcautoscalers")).count();
        assert!(tries <= 5, "{tries} in 40 s");
    });
}

#[test]
fn an_old_claim_is_kept_for_as_long_as_the_specification_says_now() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let old = world.ordinal(1).active_claim;
        world.want("2Gi", "hdd", &json!({"retention": "1h"}));
        world.settled("2/2").await;
        tokio::time::sleep(Duration::from_secs(3000)).await;
        world.want("2Gi", "hdd", &json!({"retention": "3h"}));
        tokio::time::sleep(Duration::from_hours(2)).await;
        assert!(world.claim(&old).is_some(), "it was to be kept for longer in time");
        world.want("2Gi", "hdd", &json!({"retention": "1h"}));
        world.rest().await;
        assert!(world.claim(&old).is_none(), "it is over by what is said now");
    });
}

#[test]
fn no_old_claim_goes_while_nothing_is_to_be_changed_or_its_pod_is_not_ready() {
    for held in [json!({"mode": "DryRun"}), json!({"rollout": {"paused": true}})] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            two_pods(&world).await;
            let old = world.ordinal(1).active_claim;
            world.want("2Gi", "hdd", &json!({"retention": "1h"}));
            world.settled("2/2").await;
            let mut more = held;
            more["retention"] = json!("1h");
            world.want("2Gi", "hdd", &more);
            tokio::time::sleep(Duration::from_hours(2)).await;
            assert!(world.claim(&old).is_some(), "{more}");
            world.want("2Gi", "hdd", &json!({"retention": "1h"}));
            tokio::time::sleep(Duration::from_secs(120)).await;
            assert!(world.claim(&old).is_none());
        });
    }
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        two_pods(&world).await;
        let old = world.ordinal(1).active_claim;
        world.want("2Gi", "hdd", &json!({"retention": "1h"}));
        world.settled("2/2").await;
        let mut pod: Pod = world.api.get("shop/nginx-1").unwrap();
        let ready = std::mem::take(&mut pod.status.as_mut().unwrap().conditions);
        world.api.put(&pod);
        tokio::time::sleep(Duration::from_hours(2)).await;
        assert!(world.claim(&old).is_some(), "its pod has crashed since");
        pod.status.as_mut().unwrap().conditions = ready;
        pod.metadata.resource_version = None;
        world.api.put(&pod);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(world.claim(&old).is_none());
    });
}

#[test]
fn a_pod_that_only_has_the_name_of_one_is_not_stopped() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        // The StatefulSet is made again under another name, and its pod is run by hand.
        let mut pod: Pod = world.api.get("shop/nginx-0").unwrap();
        pod.metadata.owner_references = None;
        world.api.put(&pod);
        world.want("2Gi", "hdd", &json!({}));
        let is_told = |status: &PvcAutoscalerStatus| status.reason.as_deref() == Some("ClaimInUse");
        world.until("it is told", is_told).await;
        world.rest().await;
        assert_eq!(world.pod("nginx-0"), pod.metadata.uid.unwrap());
    });
}

#[test]
fn a_source_that_is_deleted_when_its_claim_is_filled_is_needed_no_more() {
    for templates in [&[][..], &["www"]] {
        block_on(async {
            let (world, operator) = World::with_an_operator();
            world.set(1, templates);
            world.want("4Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            world.write();
            world.want("2Gi", "hdd", &json!({}));
            let is_filled = |api: &FakeApi| {
                let all = api.list::<PvcSourcePopulator>().into_iter();
                let mut told = all.filter_map(|one| one.status).flat_map(|status| status.claims);
                told.any(|one| one.phase == FillingPhase::Succeeded)
            };
            world.api.until("it is filled", is_filled).await;
            // No operator looks before the source is gone.
            drop(operator);
            for mut source in world.api.list::<PvcSourcePopulator>() {
                source.metadata.finalizers = None;
                let name = world.api.put(&source).metadata.name.unwrap();
                world.api.delete::<PvcSourcePopulator>(&format!("shop/{name}"));
            }
            let _operator = world.operator();
            world.settled("1/1").await;
            assert_eq!(world.ordinal(0).claim_revision, 1);
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
        });
    }
}

/// As many as the crash points of a swap: `api_writes_per_swap` of the figures is what they become on a cluster.
#[test]
fn a_swap_asks_for_few_writes() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({"retention": "1s"}));
        world.settled("1/1").await;
        world.write();
        world.api.forget_writes();
        world.want("2Gi", "ssd", &json!({"retention": "1s"}));
        world.settled("1/1").await;
        world.rest().await;
        let writes = world.api.writes();
        assert!(writes.len() <= 56, "{}: {writes:#?}", writes.len());
    });
}

/// A pod of others that has the old claim is not looked for again and again, and its end is seen when it comes.
#[test]
fn the_end_of_a_pod_is_seen_at_once_and_not_looked_for() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let name = format!("{SHOP}/nginx-0");
        let mut pod: Pod = world.api.get(&name).unwrap();
        pod.finalizers_mut().push("example.com/late".to_owned());
        world.api.put(&pod);
        let old = world.ordinal(0).active_claim;
        world.want("2Gi", "hdd", &json!({}));
        let is_in = |phase| {
            move |status: &PvcAutoscalerStatus| swap(status).is_some_and(|swap| swap.phase == phase)
        };
        world.until("its pod stops", is_in(SwapPhase::Draining)).await;
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": old}});
        let other: Pod = serde_json::from_value(json!({
            "metadata": {"name": "other", "namespace": SHOP},
            "spec": {"containers": [], "nodeName": "alpha", "volumes": [volume]},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        world.api.put(&other);
        let mut pod: Pod = world.api.get(&name).unwrap();
        pod.metadata.finalizers = None;
        world.api.put(&pod);
        world.api.delete::<Pod>(&name);
        world.rest().await;
        let before = world.looks("nginx");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let looks = world.looks("nginx") - before;
        assert!(looks <= 7, "{looks} looks in a minute at a pod that runs");
        let message = world.status().message.unwrap();
        assert!(message.starts_with("pod other writes to claim"), "{message}");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let begin = tokio::time::Instant::now();
        world.api.delete::<Pod>(&format!("{SHOP}/other"));
        world.until("it is copied", |status| !is_in(SwapPhase::Draining)(status)).await;
        assert!(
            begin.elapsed() < Duration::from_secs(1),
            "{:?} until that was seen",
            begin.elapsed()
        );
        world.settled("1/1").await;
    });
}
