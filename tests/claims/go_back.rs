//! Pods get again what they had before a swap, as it was then.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use pliant::api::{AutoscalerPhase, PvcAutoscalerStatus, SwapPhase};
use serde_json::{Value, json};

use crate::block_on;
use crate::play::{Content, volume_of_claim};
use crate::world::World;

/// One pod that has been swapped, and has written since; what it had written before.
async fn swapped(world: &World, templates: &[&str]) -> String {
    world.set(1, templates);
    world.want("4Gi", "hdd", &json!({}));
    world.settled("1/1").await;
    world.write();
    let before = written(world);
    world.want("2Gi", "ssd", &json!({}));
    world.settled("1/1").await;
    world.write();
    assert_ne!(written(world), before);
    before
}

fn written(world: &World) -> String {
    world.play().written["nginx-0"].clone()
}

/// From here on a pod is to find what it had written by then.
fn forget_since(world: &World, before: &str) {
    world.play().written.insert("nginx-0".to_owned(), before.to_owned());
}

fn back(revision: i64) -> Value {
    json!({"rollback": [{"ordinal": 0, "claimRevision": revision}]})
}

async fn rolled_back(world: &World) {
    let is_done = |status: &PvcAutoscalerStatus| {
        status.of(0).is_some_and(|one| one.rollback.is_some() && one.swap.is_none())
    };
    world.until("it is rolled back", is_done).await;
    world.rest().await;
}

fn volume(world: &World, claim: &str) -> String {
    volume_of_claim(&world.api, &world.claim(claim).unwrap()).unwrap()
}

#[test]
fn a_pod_gets_its_old_claim_again_with_what_that_had_then() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let before = swapped(&world, &[]).await;
        let (new, old) =
            (world.ordinal(0).active_claim, world.ordinal(0).retained_claims[0].clone());
        let (since, pod) = (written(&world), world.pod("nginx-0"));
        forget_since(&world, &before);
        world.want("2Gi", "ssd", &back(1));
        rolled_back(&world).await;
        let entry = world.ordinal(0);
        assert_eq!((&entry.active_claim, entry.claim_revision), (&old.name, 2));
        assert_ne!(world.pod("nginx-0"), pod);
        assert_eq!(written(&world), format!("{before}w"), "it has started with what it had then");
        let kept: Vec<&str> = entry.retained_claims.iter().map(|old| old.name.as_str()).collect();
        assert_eq!(kept, [new.as_str()], "what was written since is kept");
        assert_eq!(world.play().contents[&volume(&world, &new)], Content::Whole(since));
        assert!(!world.active(0).annotations().contains_key("pliant.io/superseded-by"));
        assert_eq!((world.told("SwapStarted"), world.told("SwapSucceeded")), (2, 2));
        let events = world.api.list::<Event>();
        let since = |event: &Event| {
            event.note.as_deref().is_some_and(|note| note.contains("what was written since 20"))
        };
        assert!(events.iter().any(since), "it is told from when on it has less");
        world.write();

        // The template still wants another one, and the pod is left alone with what it has.
        let status = world.status();
        assert_eq!(status.phase, AutoscalerPhase::Waiting);
        assert_eq!(status.reason.as_deref(), Some("RolledBack"));
        world.want("2Gi", "ssd", &json!({}));
        world.rest().await;
        assert_eq!((world.ordinal(0).claim_revision, world.told("SwapStarted")), (2, 2));

        // An edit of the template is another wish.
        world.want("3Gi", "ssd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.ordinal(0).claim_revision, world.ordinal(0).rollback), (3, None));
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_claim_that_keeps_its_name_gets_its_old_volume_again() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let before = swapped(&world, &["www"]).await;
        let claim = world.active(0);
        let kept = world.ordinal(0).retained_claims[0].name.clone();
        let (new, old) = (volume(&world, "www-nginx-0"), volume(&world, &kept));
        let since = written(&world);
        forget_since(&world, &before);
        world.want("2Gi", "ssd", &back(1));
        rolled_back(&world).await;
        assert_eq!(world.active(0).uid(), claim.uid());
        assert_eq!(
            (volume(&world, "www-nginx-0"), volume(&world, &kept)),
            (old.clone(), new.clone())
        );
        let has = |claim: &PersistentVolumeClaim| {
            claim.status.clone().unwrap().capacity.unwrap()["storage"].0.clone()
        };
        assert_eq!(has(&world.active(0)), "4Gi", "as large as it was then");
        assert_eq!(world.ordinal(0).retained_claims.len(), 1);
        assert_eq!(world.play().contents[&new], Content::Whole(since));
        assert_eq!((world.ordinal(0).claim_revision, world.told("SwapSucceeded")), (2, 2));
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.write();
        assert_eq!((world.ordinal(0).claim_revision, world.left()), (3, Vec::<String>::new()));
    });
}

#[test]
fn a_claim_that_has_grown_since_is_told_that_its_old_volume_is_smaller() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let before = swapped(&world, &["www"]).await;
        world.want("6Gi", "ssd", &json!({}));
        world.settled("1/1").await;
        let kept = world.ordinal(0).retained_claims[0].name.clone();
        let old = volume(&world, &kept);
        forget_since(&world, &before);
        world.want("6Gi", "ssd", &back(1));
        rolled_back(&world).await;
        let claim = world.active(0);
        assert_eq!(volume(&world, "www-nginx-0"), old);
        let asks = &claim.spec.as_ref().unwrap().resources.as_ref().unwrap().requests;
        assert_eq!(asks.as_ref().unwrap()["storage"].0, "4Gi");
        assert_eq!(world.status().reason.as_deref(), Some("RolledBack"));
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_swap_that_is_not_over_is_given_up_for_what_the_pod_had_before() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let before = swapped(&world, &[]).await;
        let old = world.ordinal(0).retained_claims[0].name.clone();
        world.play().ends.push_back(crate::play::End::Hangs);
        world.want("3Gi", "ssd", &json!({}));
        world.settled("1/1").await;
        world.want("2Gi", "ssd", &json!({}));
        let is_copied = |status: &PvcAutoscalerStatus| {
            let swap = status.of(0).and_then(|one| one.swap.clone());
            swap.is_some_and(|swap| swap.phase == SwapPhase::FinalCopy)
        };
        world.until("it is copied", is_copied).await;
        world.want("2Gi", "ssd", &back(1));
        let turns = |status: &PvcAutoscalerStatus| {
            let swap = status.of(0).and_then(|one| one.swap.clone());
            swap.is_some_and(|swap| swap.is_rollback)
        };
        world.until("its pod is to go once more", turns).await;
        forget_since(&world, &before);
        rolled_back(&world).await;
        assert_eq!(world.ordinal(0).active_claim, old);
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn what_is_to_come_back_is_not_deleted_when_its_time_is_over() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        let hour = json!({"retention": "1h"});
        world.want("2Gi", "ssd", &hour);
        world.settled("1/1").await;
        let old = world.ordinal(0).retained_claims[0].name.clone();
        let paused = json!({"retention": "1h", "rollout": {"paused": true},
                            "rollback": [{"ordinal": 0, "claimRevision": 1}]});
        world.want("2Gi", "ssd", &paused);
        tokio::time::sleep(Duration::from_secs(7200)).await;
        assert!(world.claim(&old).is_some(), "it waits for the rollout to go on");
        assert!(world.status().planned_action.unwrap().contains("what was written"));
        forget_since(&world, "w");
        world.want("2Gi", "ssd", &json!({"retention": "1h", "rollback": paused["rollback"]}));
        rolled_back(&world).await;
        assert_eq!(world.ordinal(0).active_claim, old);
        world.write();
    });
}

#[test]
fn without_what_was_before_nothing_is_stopped() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        swapped(&world, &[]).await;
        let old = world.ordinal(0).retained_claims[0].name.clone();
        let pod = world.pod("nginx-0");
        world.api.delete::<PersistentVolumeClaim>(&format!("shop/{old}"));
        world.want("2Gi", "ssd", &back(1));
        world
            .until("it says why", |status| status.reason.as_deref() == Some("RollbackPending"))
            .await;
        world.rest().await;
        assert_eq!((world.pod("nginx-0"), world.ordinal(0).claim_revision), (pod, 1));
        assert_eq!(world.status().ready_claims(), "0/1", "it waits");
        // Another number is of no swap.
        world.want("2Gi", "ssd", &back(7));
        world.settled("1/1").await;
        world.write();
    });
}
