//! Claims are filled from archives and from other claims.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::FillingPhase;
use pliant::populators::PopulationSettings;
use pliant::populators::validator::ReportMode;
use pliant::testing::Lines;
use serde_json::{Value, json};

use crate::world::{Content, End, SELECTED_NODE, SHOP, World, fill_pods, phase};

const NOTHING: Vec<String> = Vec::new();

#[tokio::test(start_paused = true)]
async fn an_archive_fills_a_claim_when_a_pod_uses_it() {
    let (world, operator) = World::with_an_operator().await;
    world.archive("site");
    world.claim("web", "fast", "ArchivePopulator", "site");
    world.shows("web", "WaitForFirstConsumer").await;
    world.settled().await;
    assert_eq!((world.left(), world.reasons("web").len()), (NOTHING, 0), "that is usual");
    world.schedule("web", &["beta"]);
    world.filled("web").await;
    assert_eq!(world.left(), NOTHING);
    let Some(Content::Whole(args)) = world.content("web") else { panic!() };
    assert!(args.contains("unpack --url https://example.com/site.tar.gz"), "{args}");
    let told = world.told("site").unwrap();
    assert_eq!((told.phase, told.failures), (FillingPhase::Succeeded, 0));
    assert_eq!(told.checksum.as_deref(), Some("abc"));
    assert_eq!(world.reasons("web"), [("PopulatorFinished".to_owned(), 1)].into());
    assert_eq!((operator.counts.of("fill success"), operator.counts.of("fill error")), (1, 0));
    assert_eq!(world.destroyed(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_for_a_claim_is_logged_with_its_name() {
    let (lines, (world, _operator)) = (Lines::begin(), World::with_an_operator().await);
    world.archive("site");
    for name in ["one", "two"] {
        world.claim(name, "now", "ArchivePopulator", "site");
    }
    let mut claims = BTreeSet::new();
    for name in ["one", "two"] {
        world.filled(name).await;
    }
    for one in lines.with("applying a step to a claim") {
        assert_eq!(
            (&one["span"]["name"], &one["span"]["controller"]),
            (&json!("reconcile"), &json!("claims"))
        );
        claims.insert(one["span"]["object"].as_str().unwrap().to_owned());
    }
    assert_eq!(claims, ["one", "two"].map(|name| format!("{SHOP}/{name}")).into());
}

#[tokio::test(start_paused = true)]
async fn a_class_that_binds_at_once_needs_no_pod() {
    let (world, _operator) = World::with_an_operator().await;
    world.config_map("files", "site.tgz");
    let from = json!({"name": "files", "key": "site.tgz"});
    world.archive_of("site", &json!({"configMapRef": from, "sha256": "0".repeat(64)}));
    world.claim("web", "now", "ArchivePopulator", "site");
    world.filled("web").await;
    assert_eq!(world.left(), NOTHING);
    let Some(Content::Whole(args)) = world.content("web") else { panic!() };
    assert!(args.contains("--file /source/archive"), "{args}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_the_content_of_another_one() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.schedule("new", &["alpha"]);
    world.filled("new").await;
    assert_eq!(world.left(), NOTHING);
    let whole = "copy /source /target --final --result /dev/termination-log".to_owned();
    assert_eq!(world.content("new"), Some(Content::Whole(whole)));
    assert_eq!(world.content("old"), Some(Content::Empty), "nobody writes to the source");
    assert_eq!(world.told_of_copy("old").unwrap().phase, FillingPhase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_hot_copy_begins_on_the_node_of_its_source() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "beta").await;
    world.copy_of("old", &json!({"waitForConsumer": false}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.filled("new").await;
    let claim = world.get_claim("new").unwrap();
    assert_eq!(claim.annotations()[SELECTED_NODE], "beta");
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn rounds_are_copied_ahead_while_a_pod_writes_and_the_rest_when_it_is_gone() {
    let (world, operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.pod_of("shop-0", "old", "Running");
    world.play().rounds = [1000 << 20, 400 << 20, 300 << 20].into();
    world.copy_of("old", &json!({"waitForConsumer": false, "paused": true, "preCopy": true}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "PreCopied: SourcePaused: PvcSourcePopulator old is paused").await;
    world.settled().await;
    let ahead = world.told_of_copy("old").unwrap().pre_copy.unwrap();
    assert_eq!((ahead.passes, ahead.written_bytes >> 20, ahead.duration_seconds), (3, 300, 1));
    assert_eq!((world.pods(), phase(&world.get_claim("new").unwrap())), (3, "Pending".to_owned()));
    assert_eq!(world.reasons("new").len(), 0, "that is usual");
    // As long as the pod is there the rest is not begun.
    world.unpause("old");
    world.shows("new", "SourceInUse").await;
    world.settled().await;
    assert_eq!(world.pods(), 3);
    world.api.delete::<Pod>("shop/shop-0");
    world.filled("new").await;
    assert_eq!((world.left(), world.pods()), (NOTHING, 4));
    let whole = "copy /source /target --final --result /dev/termination-log".to_owned();
    assert_eq!(world.content("new"), Some(Content::Whole(whole)));
    let told = world.told_of_copy("old").unwrap();
    assert_eq!((told.checksum.as_deref(), told.pre_copy.unwrap().passes), (Some("abc"), 3));
    assert_eq!((operator.counts.of("fill success"), world.destroyed()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_paused_source_has_its_room_before_anything_is_copied() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({"waitForConsumer": false, "paused": true}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "Waiting: SourcePaused: PvcSourcePopulator old is paused").await;
    let uid = world.get_claim("new").unwrap().uid().unwrap();
    let prime: PersistentVolumeClaim = world.api.get(&format!("{SHOP}/prime-{uid}")).unwrap();
    assert_eq!((phase(&prime), world.pods()), ("Bound".to_owned(), 0));
    world.unpause("old");
    world.filled("new").await;
    assert_eq!((world.left(), world.pods()), (NOTHING, 1));
}

/// A claim of a raw device that is to be copied ahead while it is paused.
async fn raw_devices(world: &World, access: &str) {
    let raw = json!({"volumeMode": "Block", "accessModes": [access]});
    world.play().nodes.insert("old".to_owned(), vec!["alpha".to_owned()]);
    world.claim_of("old", "fast", &Value::Null, &raw);
    world.until("old", "is bound", |claim| phase(claim) == "Bound").await;
    world.pod_of("shop-0", "old", "Running");
    world.copy_of("old", &json!({"waitForConsumer": false, "paused": true, "preCopy": true}));
    let from = json!({"apiGroup": "pliant.io", "kind": "PvcSourcePopulator", "name": "old"});
    world.claim_of("new", "fast", &from, &raw);
}

#[tokio::test(start_paused = true)]
async fn a_raw_device_is_copied_ahead_too() {
    let (world, _operator) = World::with_an_operator().await;
    world.play().rounds = [1000 << 20, 40 << 20].into();
    raw_devices(&world, "ReadWriteOnce").await;
    world.shows("new", "PreCopied: SourcePaused: PvcSourcePopulator old is paused").await;
    world.settled().await;
    let ahead = world.told_of_copy("old").unwrap().pre_copy.unwrap();
    assert_eq!((ahead.passes, ahead.written_bytes >> 20, world.pods()), (2, 40, 2));
    world.api.delete::<Pod>("shop/shop-0");
    world.unpause("old");
    world.filled("new").await;
    let whole = "copy /source /target --final --result /dev/termination-log --device".to_owned();
    assert_eq!(world.content("new"), Some(Content::Whole(whole)));
    assert_eq!((world.left(), world.pods()), (NOTHING, 3));
}

#[tokio::test(start_paused = true)]
async fn a_raw_device_of_one_pod_is_not_copied_ahead_and_that_is_told() {
    let (world, _operator) = World::with_an_operator().await;
    raw_devices(&world, "ReadWriteOncePod").await;
    world.shows("new", "Waiting: PreCopySkipped: claim old is ReadWriteOncePod").await;
    world.api.delete::<Pod>("shop/shop-0");
    world.unpause("old");
    world.filled("new").await;
    assert_eq!((world.left(), world.pods()), (NOTHING, 1));
}

#[tokio::test(start_paused = true)]
async fn a_prime_claim_is_as_the_first_one() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().ends.push_back(End::Hangs);
    let more = json!({"volumeAttributesClassName": "gold", "accessModes": ["ReadWriteOncePod"]});
    let from = json!({"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "site"});
    world.claim_of("web", "fast", &from, &more);
    world.schedule("web", &["beta"]);
    world.pod_runs().await;
    let uid = world.get_claim("web").unwrap().uid().unwrap();
    let prime: PersistentVolumeClaim = world.api.get(&format!("{SHOP}/prime-{uid}")).unwrap();
    assert_eq!(prime.annotations()[SELECTED_NODE], "beta");
    let spec = prime.spec.unwrap();
    assert_eq!(spec.volume_attributes_class_name.as_deref(), Some("gold"));
    assert_eq!(spec.access_modes, Some(vec!["ReadWriteOncePod".to_owned()]));
    assert_eq!((spec.data_source, spec.data_source_ref), (None, None));
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_every_few_seconds_and_no_more_often() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.play().ends.push_back(End::Hangs);
    world.claim("web", "now", "ArchivePopulator", "site");
    world.shows("web", "Populating: 50 % (512 MiB of 1 GiB), 1 MiB/s, 9 min left").await;
    let told = world.told("site").unwrap();
    assert_eq!((told.percent, told.remaining_seconds), (Some(50), Some(512)));
    let pod = fill_pods(&world.api).remove(0).name_any();
    let (mut written, mut updates) = (told.written_bytes, vec![0]);
    for second in 1..=60 {
        let line = json!({"bytes": (512 << 20) + second, "bytesTotal": 1 << 30});
        world.api.put_log(&format!("shop/{pod}/populator"), &format!("{line}\n"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = world.told("site").unwrap().written_bytes;
        if now != written {
            written = now;
            updates.push(second);
        }
    }
    // Kubernetes writes times in whole seconds: by the fraction at which the test began, a look comes too early.
    let gaps: Vec<i64> = updates.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps.len() >= 2 && gaps.iter().all(|gap| (10..=30).contains(gap)), "{updates:?}");
    tokio::time::sleep(Duration::from_secs(60)).await; // The last of it is told by then.
    world.api.forget_writes();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.api.writes(), Vec::<String>::new(), "what has not changed is told already");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_written_to_is_waited_for() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.pod_of("shop-0", "old", "Running");
    world.copy_of("old", &json!({"waitForConsumer": false}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "SourceInUse: its source, claim old, is used by shop-0").await;
    world.settled().await;
    assert_eq!((world.left(), world.reasons("new")["SourceInUse"]), (NOTHING, 1));
    world.pod_of("shop-0", "old", "Succeeded");
    world.filled("new").await;
}

#[tokio::test(start_paused = true)]
async fn a_source_in_use_is_copied_if_that_is_wanted() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.pod_of("shop-0", "old", "Running");
    world.copy_of("old", &json!({"waitForConsumer": false, "allowInUseSource": true}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.filled("new").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_waited_for_and_told_once() {
    let (world, _operator) = World::with_an_operator().await;
    world.claim("web", "now", "ArchivePopulator", "site");
    world.shows("web", "PopulatorDataSourceNotFound").await;
    let from = json!({"name": "files", "key": "site.tgz"});
    world.archive_of("site", &json!({"configMapRef": from, "sha256": "0".repeat(64)}));
    world.shows("web", "no key site.tgz in ConfigMap files").await;
    world.settled().await;
    assert_eq!(world.left(), NOTHING);
    world.config_map("files", "site.tgz");
    world.filled("web").await;
    let reasons = world.reasons("web");
    assert!(
        reasons["PopulatorDataSourceNotFound"] <= 2 && reasons["PopulatorFinished"] == 1,
        "{reasons:?}"
    );
}

/// What can never be is told once, and leaves nothing.
async fn refused(world: &World, claim: &str, reason: &str) {
    world.shows(claim, &format!("Failed: {reason}")).await;
    world.settled().await;
    assert_eq!(world.reasons(claim), [(reason.to_owned(), 1)].into());
    assert_eq!((world.left(), world.pods()), (NOTHING, 0));
}

#[tokio::test(start_paused = true)]
async fn an_archive_is_not_unpacked_to_a_raw_device() {
    let (world, operator) = World::with_an_operator().await;
    world.archive("site");
    let from = json!({"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "site"});
    world.claim_of("web", "now", &from, &json!({"volumeMode": "Block"}));
    refused(&world, "web", "VolumeModeMismatch").await;
    assert_eq!(operator.counts.of("fill error"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_on_another_node_than_its_source_gets_what_a_pod_there_sends() {
    let (world, operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.put_content("old", "records");
    world.copy_of("old", &json!({}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.schedule("new", &["beta"]);
    world.filled("new").await;
    assert_eq!(world.content("new"), Some(Content::Whole("records".to_owned())));
    assert_eq!((world.left(), operator.counts.of("fill success")), (NOTHING, 1));
    assert_eq!(world.pods(), 1, "one pod has filled it");
    let writes = world.api.writes();
    let at = |what: &str| writes.iter().position(|line| line.starts_with(what));
    let (policy, keys) = (at("POST networkpolicies"), at("POST secrets"));
    assert!(policy.is_some() && policy < keys, "nobody else ever reaches who sends: {writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_room_beside_its_source_is_filled_on_another_node() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.put_content("old", "records");
    world.play().full.insert("alpha".to_owned());
    world.copy_of("old", &json!({}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.schedule("new", &["alpha", "beta"]);
    world.filled("new").await;
    assert_eq!(world.content("new"), Some(Content::Whole("records".to_owned())));
    assert_eq!(world.left(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_source_has_lost_its_node_is_refused() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.api.delete::<Node>("alpha");
    world.copy_of("old", &json!({}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.schedule("new", &["beta"]);
    world.shows("new", "Failed: SourceNodeNotFound").await;
    let told = world.told_of_copy("old").unwrap();
    assert!(told.message.unwrap().contains("can only be read on a node that no longer exists"));
}

#[tokio::test(start_paused = true)]
async fn a_source_of_another_namespace_is_refused() {
    let (world, _operator) = World::with_an_operator().await;
    let source = json!({"sourcePvcRef": {"name": "old", "namespace": "bank"}});
    world.copy_of("old", &source);
    world.claim("new", "now", "PvcSourcePopulator", "old");
    refused(&world, "new", "NamespaceMismatch").await;
}

#[tokio::test(start_paused = true)]
async fn two_claims_are_filled_from_one_archive() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    for name in ["web-0", "web-1"] {
        world.claim(name, "now", "ArchivePopulator", "site");
    }
    world.filled("web-0").await;
    world.filled("web-1").await;
    assert_eq!(world.left(), NOTHING);
    let archive: pliant::api::ArchivePopulator = world.api.get("shop/site").unwrap();
    let phases: Vec<_> = archive.status.unwrap().claims.iter().map(|one| one.phase).collect();
    assert_eq!(phases, [FillingPhase::Succeeded, FillingPhase::Succeeded]);
}

#[tokio::test(start_paused = true)]
async fn what_needs_nothing_of_the_claim_is_made_elsewhere() {
    let world = World::new();
    let allowed = vec!["10.2.0.0/16".to_owned()];
    let namespace = Some("fills".to_owned());
    let settings = PopulationSettings { namespace, allowed, ..PopulationSettings::default() };
    let _operator = world.operator_with(settings, ReportMode::Auto).await;
    world.archive("site");
    world.play().ends.push_back(End::Hangs);
    world.claim("web", "now", "ArchivePopulator", "site");
    world.pod_runs().await;
    let pod = &fill_pods(&world.api)[0];
    assert_eq!(pod.namespace().as_deref(), Some("fills"));
    // What its owner could not reach from the namespace of the claim it does not reach for him.
    let args = pod.spec.as_ref().unwrap().containers[0].args.as_ref().unwrap().join(" ");
    assert!(args.ends_with("/target --public-only --allow-cidr=10.2.0.0/16"), "{args}");
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({"waitForConsumer": false}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.filled("new").await;
    world.api.delete::<PersistentVolumeClaim>("shop/web");
    world
        .api
        .until("it is gone", |api| api.get::<PersistentVolumeClaim>("shop/web").is_none())
        .await;
    world.settled().await;
    assert_eq!(world.left(), NOTHING);
    let pv = world.get_claim("new").unwrap().spec.unwrap().volume_name.unwrap();
    let pv: PersistentVolume = world.api.get(&pv).unwrap();
    assert_eq!(pv.spec.unwrap().claim_ref.unwrap().namespace.as_deref(), Some(SHOP));
}

#[tokio::test(start_paused = true)]
async fn claims_of_others_are_let_be() {
    let (world, _operator) = World::with_an_operator().await;
    world.claim_of("plain", "now", &Value::Null, &json!({}));
    let other = json!({"apiGroup": "example.com", "kind": "ArchivePopulator", "name": "site"});
    world.claim_of("others", "now", &other, &json!({}));
    world.until("plain", "is bound", |claim| phase(claim) == "Bound").await;
    world.settled().await;
    let claims = world.api.writes().into_iter().filter(|line| line.contains("persistentvolume"));
    assert_eq!(claims.collect::<Vec<_>>(), NOTHING);
}
