//! A volume of this driver says on itself that it is half copied, from before a pod writes to it until all of
//! it is there.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::{ArchivePopulator, FenceStatus, FillingPhase, NodeStorage, VolumeRequest};
use pliant::testing::FakeApi;
use pliant::volume::{Fence, Standing};
use serde_json::json;

use crate::world::{Content, End, Operator, SHOP, World};

const fn half_copied(generation: i64) -> Fence {
    Fence { generation, standing: Standing::HalfCopied, copying: true }
}

const fn active(generation: i64) -> Fence {
    Fence { generation, standing: Standing::Active, copying: false }
}

impl World {
    /// The volume that is filled for a claim.
    fn volume_for(&self, claim: &str) -> String {
        let uid = self.get_claim(claim).unwrap().uid().unwrap();
        let prime: PersistentVolumeClaim = self.api.get(&format!("{SHOP}/prime-{uid}")).unwrap();
        prime.spec.unwrap().volume_name.unwrap()
    }

    fn fence(&self, volume: &str) -> Option<Fence> {
        self.play().fences.get(volume).copied()
    }

    /// What the nodes tell of a volume.
    fn told_by_node(&self, volume: &str) -> Option<Fence> {
        let nodes = self.api.list::<NodeStorage>().into_iter();
        let mut volumes = nodes.filter_map(|node| node.status).flat_map(|status| status.volumes);
        volumes.find(|one| one.name == volume)?.fence.as_ref().map(Fence::from)
    }

    /// The volume of a claim that has it.
    fn volume_of(&self, claim: &str) -> String {
        self.get_claim(claim).unwrap().spec.unwrap().volume_name.unwrap()
    }

    fn call_node_plugins_back(&self) {
        self.play().are_node_plugins_away = false;
        self.poke();
    }

    /// Have the pod that hangs come to its end.
    fn end_pod(&self) {
        self.play().end_hanging();
        self.poke();
    }
}

/// A claim whose volume is being filled until [`World::end_pod`]; that volume.
async fn underway() -> (World, Operator, String) {
    let (world, operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().ends.push_back(End::Hangs);
    world.claim("web", "fast", "ArchivePopulator", "site");
    world.schedule("web", &["beta"]);
    world.pod_runs().await;
    let volume = world.volume_for("web");
    (world, operator, volume)
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_half_copied_while_it_is_filled_and_active_when_the_claim_has_it() {
    let (world, _operator, volume) = underway().await;
    world.settled().await;
    let half = half_copied(1);
    assert_eq!((world.fence(&volume), world.told_by_node(&volume)), (Some(half), Some(half)));
    assert_eq!(world.told("site").unwrap().fence, Some(FenceStatus::from(half)));
    world.end_pod();
    world.filled("web").await;
    assert_eq!(world.volume_of("web"), volume);
    let whole = active(2);
    assert_eq!((world.fence(&volume), world.told_by_node(&volume)), (Some(whole), Some(whole)));
    assert_eq!(world.told("site").unwrap().fence, Some(FenceStatus::from(whole)));
    assert_eq!(world.left(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn rounds_that_are_copied_ahead_leave_it_half_copied() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.pod_of("shop-0", "old", "Running");
    world.play().rounds = [1000 << 20, 400 << 20, 300 << 20].into();
    world.copy_of("old", &json!({"waitForConsumer": false, "paused": true, "preCopy": true}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "PreCopied: SourcePaused").await;
    world.settled().await;
    let volume = world.volume_for("new");
    assert_eq!((world.fence(&volume), world.pods()), (Some(half_copied(1)), 3));
    world.api.delete::<Pod>("shop/shop-0");
    world.unpause("old");
    world.filled("new").await;
    assert_eq!(world.fence(&volume), Some(active(2)));
    assert_eq!(world.fence(&world.volume_of("old")), None, "the source is told nothing");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_fails_leaves_it_half_copied_for_the_next_one() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({"waitForConsumer": false}));
    world.play().ends.push_back(End::Failed(String::new()));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "attempt 1 of 5 failed").await;
    let volume = world.volume_for("new");
    assert_eq!(world.fence(&volume), Some(half_copied(1)));
    world.filled("new").await;
    assert_eq!((world.fence(&world.volume_of("new")), world.pods()), (Some(active(2)), 2));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_filled_before_its_node_has_answered_and_the_claim_says_so() {
    let (world, _operator) = World::with_an_operator().await;
    world.play().are_node_plugins_away = true;
    world.archive("site");
    world.claim("web", "now", "ArchivePopulator", "site");
    world.shows("web", "Provisioning: VolumeNotFenced: volume ").await;
    world.settled().await;
    world.settled().await;
    let told = world.told("site").unwrap();
    let reason = told.reason.as_deref();
    assert_eq!((told.phase, reason), (FillingPhase::Provisioning, Some("VolumeNotFenced")));
    assert!(told.message.unwrap().contains("is to be incomplete, but its node has not"));
    assert_eq!((world.pods(), world.reasons("web").len()), (0, 0), "it may be over in a moment");
    // Whoever had it before has written a number of his own.
    let volume = world.volume_for("web");
    world.play().fences.insert(volume.clone(), active(7));
    world.call_node_plugins_back();
    world.filled("web").await;
    assert_eq!(world.fence(&volume), Some(active(9)));
    assert_eq!(world.left(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn no_claim_gets_a_volume_before_its_node_has_answered() {
    let (world, _operator, volume) = underway().await;
    world.play().are_node_plugins_away = true;
    world.end_pod();
    world.shows("web", "Binding: VolumeNotFenced: volume ").await;
    world.settled().await;
    world.settled().await;
    assert_eq!(crate::world::phase(&world.get_claim("web").unwrap()), "Pending");
    assert!(world.told("site").unwrap().message.unwrap().contains("the node plugin of node beta"));
    assert_eq!(world.fence(&volume), Some(half_copied(1)));
    world.call_node_plugins_back();
    world.filled("web").await;
    assert_eq!((world.fence(&volume), world.pods()), (Some(active(2)), 1));
    assert_eq!(world.left(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_while_its_node_does_not_answer_leaves_nothing() {
    let (world, _operator, _volume) = underway().await;
    world.play().are_node_plugins_away = true;
    world.end_pod();
    world.shows("web", "Binding: VolumeNotFenced").await;
    world.api.delete::<PersistentVolumeClaim>("shop/web");
    let gone = |api: &FakeApi| api.get::<PersistentVolumeClaim>("shop/web").is_none();
    world.api.until("it is gone", gone).await;
    world.settled().await;
    assert_eq!(world.left(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_next_operator_sees_what_was_told() {
    let (world, operator, volume) = underway().await;
    drop(operator);
    world.end_pod();
    world.settled().await;
    assert_eq!(world.fence(&volume), Some(half_copied(1)));
    let before = world.api.list::<VolumeRequest>().len();
    let next = world.operator().await;
    world.filled("web").await;
    assert_eq!(world.fence(&volume), Some(active(2)));
    assert_eq!((next.counts.of("fill success"), before), (1, 1), "a fence");
}

#[tokio::test(start_paused = true)]
async fn a_fill_that_a_version_without_fences_has_begun_is_gone_on_with() {
    let (world, operator, volume) = underway().await;
    drop(operator);
    // So that version would have left it.
    world.play().fences.clear();
    let mut archive: ArchivePopulator = world.api.get("shop/site").unwrap();
    archive.status.as_mut().unwrap().claims[0].fence = None;
    world.api.put(&archive);
    let _next = world.operator().await;
    world.settled().await;
    assert_eq!(world.fence(&volume), None, "its pod is let be");
    world.end_pod();
    world.filled("web").await;
    assert_eq!((world.fence(&volume), world.pods()), (Some(active(1)), 1));
    assert_eq!(world.left(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn volumes_of_other_drivers_are_filled_without() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.claim("web", "fixed", "ArchivePopulator", "site");
    world.schedule("web", &["alpha"]);
    world.filled("web").await;
    assert!(matches!(world.content("web"), Some(Content::Whole(_))));
    assert_eq!(
        (world.fence(&world.volume_of("web")), world.told("site").unwrap().fence),
        (None, None)
    );
    assert!(world.api.list::<VolumeRequest>().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_node_is_asked_is_asked_again() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.api.panic_at(Some("POST volumerequests"));
    world.claim("web", "fast", "ArchivePopulator", "site");
    world.schedule("web", &["beta"]);
    world.settled().await;
    assert_eq!(world.fence(&world.volume_for("web")), None);
    world.api.panic_at(None);
    world.filled("web").await;
}
