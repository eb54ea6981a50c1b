//! Claims of kinds that nobody fills are told so; the cases are those of KEP-1495.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use k8s_openapi::api::events::v1::Event;
use pliant::api::VolumePopulator;
use pliant::panics::panics;
use pliant::populators::PopulationSettings;
use pliant::populators::validator::ReportMode;
use pliant::testing::FakeApi;
use serde_json::{Value, json};

use crate::world::{SHOP, World, object};

const REASON: &str = "UnrecognizedDataSourceKind";

fn from(group: &str, kind: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": "x"})
}

impl World {
    /// A claim that waits: its class has no provisioner here.
    fn waiting(&self, name: &str, from: &Value) {
        self.claim_of(name, "fast", from, &json!({}));
    }

    /// The same, of a kind that nobody has registered, in another namespace.
    fn waiting_in(&self, namespace: &str, name: &str) {
        let spec = json!({"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                          "dataSourceRef": from("example.com", "Backup"),
                          "resources": {"requests": {"storage": "1Gi"}}});
        let metadata = json!({"name": name, "namespace": namespace});
        self.api.put(&object::<PersistentVolumeClaim>(json!({
            "metadata": metadata, "spec": spec, "status": {"phase": "Pending"},
        })));
    }

    async fn is_told(&self, claim: &str) {
        let what = format!("{claim} is told");
        self.api.until(&what, |_| self.reasons(claim).contains_key(REASON)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_source_or_with_a_known_one_has_no_events() {
    let (world, operator) = World::with_an_operator().await;
    world.waiting("empty", &Value::Null);
    world.waiting("pvc", &json!({"kind": "PersistentVolumeClaim", "name": "x"}));
    world.waiting("snapshot", &from("snapshot.storage.k8s.io", "VolumeSnapshot"));
    let ours = VolumePopulator::new("theirs", "example.com", "Backup");
    world.api.put(&ours);
    world.waiting("backup", &from("example.com", "Backup"));
    world.settled().await;
    assert_eq!(world.api.list::<Event>(), []);
    for result in ["empty", "pvc", "snapshot", "populator"] {
        assert_eq!(operator.counts.of(result), 1, "{result}");
    }
    assert_eq!((operator.counts.of("invalid"), operator.counts.of("error")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unregistered_kind_is_told_once_also_after_a_restart_and_by_two() {
    let (world, first) = World::with_an_operator().await;
    let second = world.operator().await;
    world.waiting("backup", &from("example.com", "Backup"));
    world.is_told("backup").await;
    world.settled().await;
    let (event, about) = {
        let event = world.api.list::<Event>().remove(0);
        (event.clone(), event.regarding.unwrap())
    };
    assert_eq!(
        (event.type_.as_deref(), about.kind.as_deref()),
        (Some("Warning"), Some("PersistentVolumeClaim"))
    );
    let note = event.note.unwrap();
    assert!(note.contains("registered the kind Backup of group \"example.com\""), "{note}");
    drop((first, second));
    let third = world.operator().await;
    world.settled().await;
    assert_eq!(world.reasons("backup"), [(REASON.to_owned(), 1)].into());
    assert_eq!(third.counts.of("invalid"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_looked_at_again_when_its_kind_is_registered_or_no_longer() {
    let (world, operator) = World::with_an_operator().await;
    world.api.put(&VolumePopulator::new("theirs", "example.com", "Backup"));
    world.waiting("backup", &from("example.com", "Backup"));
    world.settled().await;
    assert_eq!((operator.counts.of("populator"), world.reasons("backup").len()), (1, 0));
    world.api.delete::<VolumePopulator>("theirs");
    world.is_told("backup").await;
    world.api.put(&VolumePopulator::new("theirs", "example.com", "Backup"));
    world.settled().await;
    assert_eq!((operator.counts.of("populator"), operator.counts.of("invalid")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_another_validator_has_told_is_let_be() {
    let (world, operator) = World::with_an_operator().await;
    world.waiting("backup", &from("example.com", "Backup"));
    let claim = world.get_claim("backup").unwrap();
    let about = ObjectReference {
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(SHOP.to_owned()),
        name: Some("backup".to_owned()),
        uid: claim.metadata.uid,
        ..ObjectReference::default()
    };
    world.api.put(&object::<Event>(json!({
        "metadata": {"name": "told", "namespace": SHOP}, "reason": REASON, "regarding": about,
        "reportingController": "", "eventTime": null,
    })));
    world.settled().await;
    assert_eq!(world.reasons("backup"), [(REASON.to_owned(), 1)].into());
    assert_eq!(operator.counts.of("invalid"), 1, "it is counted all the same");
}

#[tokio::test(start_paused = true)]
async fn it_can_be_on_at_once_and_off() {
    let world = World::new();
    let off = world.operator_with(PopulationSettings::default(), ReportMode::Off).await;
    world.waiting("backup", &from("example.com", "Backup"));
    world.settled().await;
    assert_eq!((world.reasons("backup").len(), off.counts.of("invalid")), (0, 0));
    drop(off);
    let _on = world.operator_with(PopulationSettings::default(), ReportMode::On).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.reasons("backup").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_told_is_counted_and_tried_again() {
    let (world, operator) = World::with_an_operator().await;
    world.waiting("backup", &from("example.com", "Backup"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.api.go_down();
    world.settled().await;
    assert!(operator.counts.of("error") > 0);
    world.api.come_back();
    world.is_told("backup").await;
}

#[tokio::test(start_paused = true)]
async fn our_kinds_are_registered_again_if_somebody_takes_that_away() {
    let (world, _operator) = World::with_an_operator().await;
    world.settled().await;
    world.api.delete::<VolumePopulator>("pliant-archive");
    let again = |api: &FakeApi| api.list::<VolumePopulator>().len() == 2;
    world.api.until("it is registered again", again).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_one_claim_is_told_keeps_no_other_one_waiting() {
    let (world, _operator) = World::with_an_operator().await;
    world.api.panic_at(Some("events/other"));
    world.waiting_in("other", "bad");
    world.settled().await;
    world.waiting("backup", &from("example.com", "Backup"));
    world.is_told("backup").await;
    assert_eq!(world.reasons("bad").len(), 0);
    assert!(panics().contains_key("validations"), "{:?}", panics());
    world.api.panic_at(None);
    world.is_told("bad").await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_one_kind_is_registered_keeps_no_other_one_waiting() {
    let (world, _operator) = World::with_an_operator().await;
    world.settled().await;
    world.api.panic_at(Some("PATCH volumepopulators/pliant-archive"));
    world.api.delete::<VolumePopulator>("pliant-archive");
    world.settled().await;
    world.api.delete::<VolumePopulator>("pliant-pvc-source");
    let has = |api: &FakeApi, name: &str| api.get::<VolumePopulator>(name).is_some();
    world.api.until("the other one is registered", |api| has(api, "pliant-pvc-source")).await;
    assert!(!has(&world.api, "pliant-archive"));
    world.api.panic_at(None);
    world.api.until("it is registered", |api| has(api, "pliant-archive")).await;
}

#[tokio::test(start_paused = true)]
async fn claims_whose_calls_hang_hold_up_none_of_another_namespace() {
    let (world, _operator) = World::with_an_operator().await;
    world.api.slow_down("hung", Duration::from_hours(24));
    for at in 0..20 {
        world.waiting_in("hung", &format!("backup{at}"));
    }
    tokio::time::sleep(Duration::from_secs(15)).await;
    world.waiting("backup", &from("example.com", "Backup"));
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(world.reasons("backup").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_decoded_may_be_that_of_a_claim() {
    let (world, operator) = World::with_an_operator().await;
    let unreadable = json!({"metadata": {"name": "theirs"},
                            "sourceKind": {"group": "example.com", "kind": ["Backup"]}});
    world.api.put_json::<VolumePopulator>(unreadable);
    world.waiting("backup", &from("example.com", "Backup"));
    world.settled().await;
    assert_eq!(world.reasons("backup").len(), 0);
    assert_eq!((operator.counts.of("unknown"), operator.counts.of("invalid")), (1, 0));
    world.api.delete::<VolumePopulator>("theirs");
    world.is_told("backup").await;
}
