//! What is known to go wrong with populators, each by name; see docs/src/explanation/tests.md.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::{ArchivePopulator, FillingPhase};
use pliant::testing::FakeApi;
use serde_json::json;

use crate::world::{Content, End, FINALIZER, SELECTED_NODE, SHOP, World, fill_pods};

const NOTHING: Vec<String> = Vec::new();

fn is_gone(api: &FakeApi, claim: &str) -> bool {
    api.get::<PersistentVolumeClaim>(&format!("{SHOP}/{claim}")).is_none()
}

/// A claim whose fill pod runs for as long as it is let.
async fn underway() -> (World, crate::world::Operator) {
    let (world, operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().ends.push_back(End::Hangs);
    world.claim("web", "fast", "ArchivePopulator", "site");
    world.schedule("web", &["alpha"]);
    world.pod_runs().await;
    (world, operator)
}

#[tokio::test(start_paused = true)]
async fn two_replicas_fill_a_claim_as_one_does() {
    let (world, first) = World::with_an_operator().await;
    let second = world.operator().await;
    world.archive("site");
    for number in 0..5 {
        let name = format!("web-{number}");
        world.claim(&name, "now", "ArchivePopulator", "site");
    }
    for number in 0..5 {
        let name = format!("web-{number}");
        world.filled(&name).await;
        assert_eq!(world.reasons(&name), [("PopulatorFinished".to_owned(), 1)].into());
    }
    assert_eq!((world.left(), world.pods()), (NOTHING, 5));
    assert_eq!(first.counts.of("fill success") + second.counts.of("fill success"), 5);
    assert_eq!(world.destroyed(), []);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_deleted_midway_is_let_go_and_nothing_is_left() {
    let (world, _operator) = underway().await;
    world.api.delete::<ArchivePopulator>("shop/site");
    let gone = |api: &FakeApi| api.get::<ArchivePopulator>("shop/site").is_none();
    world.api.until("the source is gone", gone).await;
    world.settled().await;
    assert_eq!(world.left(), NOTHING);
    assert_eq!(world.destroyed(), [Content::Half]);
    assert_eq!(world.reasons("web"), [("PopulatorDataSourceNotFound".to_owned(), 1)].into());
    // It comes back, and so all begins anew.
    world.archive("site");
    world.filled("web").await;
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_midway_leaves_nothing() {
    let (world, _operator) = underway().await;
    world.api.delete::<PersistentVolumeClaim>("shop/web");
    world.api.until("it is gone", |api| is_gone(api, "web")).await;
    world.settled().await;
    assert_eq!((world.left(), world.destroyed()), (NOTHING, vec![Content::Half]));
    let archive: ArchivePopulator = world.api.get("shop/site").unwrap();
    assert_eq!(archive.finalizers(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_while_no_operator_runs_is_let_go_by_the_next() {
    let (world, operator) = underway().await;
    drop(operator);
    world.api.delete::<PersistentVolumeClaim>("shop/web");
    world.settled().await;
    assert!(world.get_claim("web").unwrap().finalizers().contains(&FINALIZER.to_owned()));
    let _next = world.operator().await;
    world.api.until("it is gone", |api| is_gone(api, "web")).await;
    world.settled().await;
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_prime_claim_without_room_goes_to_another_node() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().full.insert("alpha".to_owned());
    world.claim("web", "fast", "ArchivePopulator", "site");
    world.schedule("web", &["alpha", "beta"]);
    world.filled("web").await;
    let claim = world.get_claim("web").unwrap();
    assert_eq!(claim.annotations()[SELECTED_NODE], "beta");
    assert_eq!(world.left(), NOTHING);
    let reasons = [("PopulatorRescheduled".to_owned(), 1), ("PopulatorFinished".to_owned(), 1)];
    assert_eq!(world.reasons("web"), reasons.into());
    assert_eq!(world.told("site").unwrap().failures, 0, "a full node is no failed try");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_moved_midway_is_filled_where_it_goes() {
    let (world, _operator) = underway().await;
    let mut claim = world.get_claim("web").unwrap();
    claim.annotations_mut().insert(SELECTED_NODE.to_owned(), "beta".to_owned());
    world.api.put(&claim);
    world.filled("web").await;
    assert_eq!((world.left(), world.destroyed()), (NOTHING, vec![Content::Half]));
    let pv = world.get_claim("web").unwrap().spec.unwrap().volume_name.unwrap();
    let pv = serde_json::to_string(&world.api.get::<PersistentVolume>(&pv).unwrap()).unwrap();
    assert!(pv.contains("beta"), "{pv}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_lost_its_node_midway_waits_for_another_one() {
    let (world, _operator) = underway().await;
    let mut claim = world.get_claim("web").unwrap();
    claim.annotations_mut().remove(SELECTED_NODE);
    world.api.put(&claim);
    world.shows("web", "WaitForFirstConsumer").await;
    world.schedule("web", &["beta"]);
    world.filled("web").await;
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_fails_is_tried_again_and_not_for_ever() {
    let (world, operator) = World::with_an_operator().await;
    world.archive("site");
    let end = End::Failed(r#"{"outcome":"failed","message":"read: EIO"}"#.to_owned());
    world.play().ends.extend(vec![end; 5]);
    world.claim("web", "now", "ArchivePopulator", "site");
    world.shows("web", "attempt 1 of 5 failed: read: EIO; the next one is in 10 s").await;
    for _ in 0..20 {
        world.settled().await;
    }
    let told = world.told("site").unwrap();
    assert_eq!(
        (told.phase, told.reason.as_deref()),
        (FillingPhase::Failed, Some("BackoffLimitExceeded"))
    );
    assert_eq!((world.pods(), world.left()), (5, NOTHING));
    let reasons = [("PopulatorRetrying".to_owned(), 4), ("BackoffLimitExceeded".to_owned(), 1)];
    assert_eq!(world.reasons("web"), reasons.into());
    assert_eq!((operator.counts.of("fill retry"), operator.counts.of("fill error")), (4, 1));
    // A change of the source is another wish.
    world.archive_of(
        "site",
        &json!({"url": "https://example.com/new.tar", "sha256": "1".repeat(64)}),
    );
    world.filled("web").await;
    let Some(Content::Whole(args)) = world.content("web") else { panic!() };
    assert!(args.contains("new.tar"), "{args}");
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn each_try_of_an_archive_begins_with_an_empty_volume() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().ends.push_back(End::Failed(String::new()));
    world.claim("web", "now", "ArchivePopulator", "site");
    world.filled("web").await;
    assert_eq!((world.pods(), world.destroyed()), (2, vec![Content::Half]));
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_on_where_the_try_before_ended() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({"waitForConsumer": false}));
    world.play().ends.push_back(End::Failed(String::new()));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.filled("new").await;
    assert_eq!((world.pods(), world.destroyed()), (2, vec![]));
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn what_differs_or_is_refused_is_not_tried_again() {
    for (outcome, reason) in [("mismatch", "ChecksumMismatch"), ("refused", "ContentRejected")] {
        let (world, operator) = World::with_an_operator().await;
        world.archive("site");
        let said = json!({"outcome": outcome, "message": "so it is"}).to_string();
        world.play().ends.push_back(End::Failed(said));
        world.claim("web", "now", "ArchivePopulator", "site");
        world.shows("web", &format!("Failed: {reason}: so it is")).await;
        world.settled().await;
        world.settled().await;
        assert_eq!((world.pods(), world.left()), (1, NOTHING));
        assert_eq!(world.reasons("web"), [(reason.to_owned(), 1)].into());
        assert_eq!(operator.counts.of("fill error"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanishes_is_a_failed_try() {
    let (world, operator) = underway().await;
    world.shows("web", "Populating").await;
    let pod = fill_pods(&world.api).remove(0);
    world.api.delete::<Pod>(&format!("{SHOP}/{}", pod.name_any()));
    world.filled("web").await;
    assert_eq!((operator.counts.of("fill retry"), operator.counts.of("fill success")), (1, 1));
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_told_once_however_often_all_is_looked_at() {
    let (world, operator) = World::with_an_operator().await;
    world.claim("web", "now", "ArchivePopulator", "site");
    for _ in 0..5 {
        world.settled().await;
    }
    assert_eq!(world.reasons("web"), [("PopulatorDataSourceNotFound".to_owned(), 1)].into());
    world.archive("site");
    world.filled("web").await;
    drop(operator);
    let _next = world.operator().await;
    for _ in 0..5 {
        world.settled().await;
    }
    let reasons =
        [("PopulatorDataSourceNotFound".to_owned(), 1), ("PopulatorFinished".to_owned(), 1)];
    assert_eq!(world.reasons("web"), reasons.into());
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_is_changed_midway_is_unpacked_as_it_is_now() {
    let (world, _operator) = underway().await;
    world.archive_of(
        "site",
        &json!({"url": "https://example.com/new.tar", "sha256": "1".repeat(64)}),
    );
    world.filled("web").await;
    let Some(Content::Whole(args)) = world.content("web") else { panic!() };
    assert!(args.contains("new.tar"), "{args}");
    assert_eq!((world.left(), world.destroyed()), (NOTHING, vec![Content::Half]));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_gets_a_volume_by_hand_is_let_be() {
    let (world, _operator) = underway().await;
    let claim = world.get_claim("web").unwrap();
    world.api.put(&crate::world::object::<PersistentVolume>(json!({
        "metadata": {"name": "by-hand"},
        "spec": {"persistentVolumeReclaimPolicy": "Delete",
                 "claimRef": {"namespace": SHOP, "name": "web", "uid": claim.uid()}},
    })));
    world.filled("web").await;
    assert_eq!(world.left(), NOTHING);
    assert_eq!(
        world.get_claim("web").unwrap().spec.unwrap().volume_name.as_deref(),
        Some("by-hand")
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_midway_is_lived_through() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.claim("web", "now", "ArchivePopulator", "site");
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.api.go_down();
    world.settled().await;
    world.api.come_back();
    world.filled("web").await;
    assert_eq!(
        (world.left(), world.reasons("web")),
        (NOTHING, [("PopulatorFinished".to_owned(), 1)].into())
    );
}

/// Those of a namespace whose webhooks hang, and those whose sources never come, hold up no other one.
#[tokio::test(start_paused = true)]
async fn a_slow_namespace_and_many_that_wait_hold_up_no_other_claim() {
    let (world, _operator) = World::with_an_operator().await;
    world.api.slow_down("slow", Duration::from_secs(120));
    let from = json!({"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "none"});
    for at in 0..400 {
        let namespace = if at < 40 { "slow" } else { "waits" };
        let metadata = json!({"name": format!("c{at}"), "namespace": namespace});
        let spec = json!({"storageClassName": "fast", "dataSourceRef": from});
        let claim = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}});
        world.api.put(&crate::world::object::<PersistentVolumeClaim>(claim));
    }
    world.archive("site");
    world.claim("web", "now", "ArchivePopulator", "site");
    world.filled("web").await;
}
