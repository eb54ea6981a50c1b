//! What the status of a populator says of all of its claims, for `kubectl wait` and deployment tools.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use pliant::api::{ArchivePopulator, PopulatorStatus};
use pliant::testing::FakeApi;

use crate::world::{End, SHOP, World};

const MISMATCH: &str = r#"{"outcome":"mismatch","message":"the checksum differs"}"#;
const TORN: &str = r#"{"outcome":"failed","message":"read: EIO"}"#;

fn status(api: &FakeApi) -> Option<PopulatorStatus> {
    api.get::<ArchivePopulator>(&format!("{SHOP}/site"))?.status
}

/// The conditions as `Ready=True Populated`, and how many claims are listed.
fn said(api: &FakeApi) -> (Vec<String>, i32) {
    let status = status(api).unwrap_or_default();
    let short = |one: &Condition| format!("{}={} {}", one.type_, one.status, one.reason);
    (status.conditions.iter().map(short).collect(), status.claim_count)
}

fn wanted(ready: &str, stalled: &str, claims: i32) -> (Vec<String>, i32) {
    (vec![format!("Ready={ready}"), format!("Stalled={stalled}")], claims)
}

async fn until(world: &World, ready: &str, stalled: &str, claims: i32) {
    let wanted = wanted(ready, stalled, claims);
    world.api.until(&format!("it says {wanted:?}"), |api| said(api) == wanted).await;
}

/// Let the only claim of an archive fail for good.
async fn fail_finally(world: &World) {
    world.archive("site");
    world.play().ends.push_back(End::Failed(MISMATCH.to_owned()));
    world.claim("web", "now", "ArchivePopulator", "site");
    until(world, "False PopulationFailed", "True ChecksumMismatch", 1).await;
    world.settled().await;
}

/// Edit the archive, to another checksum.
fn edit(world: &World, digit: &str) {
    let mut archive: ArchivePopulator = world.api.get(&format!("{SHOP}/site")).unwrap();
    archive.spec.sha256 = digit.repeat(64);
    world.api.put(&archive);
}

#[tokio::test(start_paused = true)]
async fn a_populator_that_has_finally_failed_is_stalled_until_its_spec_changes() {
    let (world, _operator) = World::with_an_operator().await;
    fail_finally(&world).await;
    let failed = status(&world.api).unwrap();
    let message = "claim web: Failed: ChecksumMismatch: the checksum differs";
    assert!(failed.conditions.iter().all(|one| one.message == message), "{failed:#?}");
    assert_eq!(failed.observed_generation, 1);
    edit(&world, "1");
    world.filled("web").await;
    assert_eq!(said(&world.api), wanted("True Populated", "False NotStalled", 1));
    assert_eq!(status(&world.api).unwrap().observed_generation, 2);
}

#[tokio::test(start_paused = true)]
async fn a_populator_that_is_retried_is_not_stalled() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().ends.push_back(End::Failed(TORN.to_owned()));
    world.claim("web", "now", "ArchivePopulator", "site");
    world.shows("web", "PopulatorRetrying").await;
    assert_eq!(said(&world.api), wanted("False Populating", "False NotStalled", 1));
    world.filled("web").await;
    assert_eq!(said(&world.api), wanted("True Populated", "False NotStalled", 1));
}

#[tokio::test(start_paused = true)]
async fn the_last_of_several_attempts_makes_a_populator_stalled() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().ends.extend((0..5).map(|_| End::Failed(TORN.to_owned())));
    world.claim("web", "now", "ArchivePopulator", "site");
    tokio::time::sleep(Duration::from_mins(8)).await; // The pauses between them.
    until(&world, "False PopulationFailed", "True BackoffLimitExceeded", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_populator_without_claims_is_ready_and_its_status_follows_its_spec() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    until(&world, "True NoClaims", "False NotStalled", 0).await;
    world.claim("web", "now", "ArchivePopulator", "site");
    world.filled("web").await;
    // No claim is in progress that would write it.
    edit(&world, "1");
    let is_seen = |api: &FakeApi| status(api).is_some_and(|one| one.observed_generation == 2);
    world.api.until("the edit is observed", is_seen).await;
    assert_eq!(said(&world.api), wanted("True Populated", "False NotStalled", 1));
    world.settled().await;
    world.api.forget_writes();
    world.settled().await;
    assert_eq!(world.api.writes(), Vec::<String>::new(), "again it writes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_after_it_has_failed_is_forgotten() {
    let (world, _operator) = World::with_an_operator().await;
    fail_finally(&world).await;
    world.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/web"));
    until(&world, "True NoClaims", "False NotStalled", 0).await;
    // Another claim of that name has an entry of its own.
    world.claim("web", "now", "ArchivePopulator", "site");
    world.filled("web").await;
    let uid = world.get_claim("web").unwrap().uid().unwrap();
    let claims = status(&world.api).unwrap().claims;
    assert_eq!(claims.iter().map(|one| &one.uid).collect::<Vec<_>>(), [&uid]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_user_binds_meanwhile_does_not_keep_its_populator_from_being_ready() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.claim("web", "fast", "ArchivePopulator", "site");
    until(&world, "False Populating", "False NotStalled", 1).await;
    let mut claim = world.get_claim("web").unwrap();
    claim.spec.as_mut().unwrap().volume_name = Some("by-hand".to_owned());
    claim.status.as_mut().unwrap().phase = Some("Bound".to_owned());
    world.api.put(&claim);
    until(&world, "True NoClaims", "False NotStalled", 0).await;
}
