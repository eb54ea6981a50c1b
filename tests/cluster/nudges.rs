//! Edits of claims that the resizer has not seen.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use pliant::controllers::resync::wake_resizer;
use pliant::populators::Watches;
use pliant::testing::{FakeApi, fake_api};
use pliant::volume::DRIVER;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const WOKEN_FOR: &str = "pliant.io/resizer-notified-for";

/// A claim `data` that has 1 GiB, with a volume of this driver or another one's.
fn claim(api: &FakeApi, asks: &str, driver: &str, more: &Value) {
    claim_in(api, "shop/data", asks, driver, more);
}

fn claim_in(api: &FakeApi, place: &str, asks: &str, driver: &str, more: &Value) {
    let (namespace, name) = place.split_once('/').unwrap();
    let volume = format!("pv-{namespace}-{name}");
    let mut claim = json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"volumeName": volume, "resources": {"requests": {"storage": asks}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    });
    claim["status"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.put(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap());
    let pv = json!({
        "metadata": {"name": volume},
        "spec": {"csi": {"driver": driver, "volumeHandle": "k-1"}},
    });
    api.put(&serde_json::from_value::<PersistentVolume>(pv).unwrap());
}

/// For which size the resizer was woken after a minute, and how many requests wrote something.
async fn woken(api: &FakeApi) -> (Option<String>, usize) {
    tokio::time::sleep(Duration::from_secs(60)).await;
    let claim: PersistentVolumeClaim = api.get("shop/data").unwrap();
    (claim.annotations().get(WOKEN_FOR).cloned(), api.writes().len())
}

fn two_operators(api: &FakeApi, stop: &CancellationToken) {
    for name in ["one", "other"] {
        let (client, stop) = (api.client_of(name), stop.clone());
        tokio::spawn(async move {
            let watches = Watches::start(&client, &stop);
            wake_resizer(&client, watches.claims(), stop.clone()).await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn the_resizer_is_woken_once_for_an_edit_that_nobody_takes_up() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    claim(&api, "1Gi", DRIVER, &json!({}));
    two_operators(&api, &stop);
    assert_eq!(woken(&api).await, (None, 0));
    claim(&api, "2Gi", DRIVER, &json!({}));
    let (size, writes) = woken(&api).await;
    assert_eq!(size.as_deref(), Some("2Gi"));
    assert!(writes <= 2, "{:?}", api.writes());
    let (_, after) = woken(&api).await;
    assert_eq!(after, writes, "once is enough");
    stop.cancel();
}

/// A backup brings it back as it was, and the resizer of then has heard of the size.
#[tokio::test(start_paused = true)]
async fn what_a_restored_claim_says_of_the_resizer_is_not_believed() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    claim(&api, "2Gi", DRIVER, &json!({}));
    let mut restored: PersistentVolumeClaim = api.get("shop/data").unwrap();
    restored.annotations_mut().insert(WOKEN_FOR.to_owned(), "2Gi".to_owned());
    api.put(&restored);
    let version = || api.get::<PersistentVolumeClaim>("shop/data").unwrap().resource_version();
    let before = version();
    two_operators(&api, &stop);
    let (_, writes) = woken(&api).await;
    assert!(version() != before, "the resizer sees no change: {:?}", api.writes());
    assert!(writes <= 2, "{:?}", api.writes());
    assert_eq!(woken(&api).await.1, writes, "once is enough");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_no_word_of_what_is_asked_for_since() {
    let refused = |size: &str| {
        json!({"allocatedResources": {"storage": size},
               "allocatedResourceStatuses": {"storage": "ControllerResizeInfeasible"}})
    };
    for (refused, woken_for) in [(refused("2Gi"), None), (refused("8Gi"), Some("2Gi"))] {
        let (api, stop) = (fake_api(), CancellationToken::new());
        two_operators(&api, &stop);
        claim(&api, "2Gi", DRIVER, &refused);
        assert_eq!(woken(&api).await.0.as_deref(), woken_for);
        stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_size_is_read_as_the_api_server_stores_it() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    claim(&api, "1181116006400m", DRIVER, &json!({}));
    two_operators(&api, &stop);
    assert_eq!(woken(&api).await.0.as_deref(), Some("1181116007"));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_size_that_cannot_be_read_wakes_nobody_and_is_reported_once() {
    for (driver, reports) in [(DRIVER, 1), ("other.example.com", 0)] {
        let (api, stop) = (fake_api(), CancellationToken::new());
        claim(&api, "1e50", driver, &json!({}));
        two_operators(&api, &stop);
        assert_eq!(woken(&api).await.0, None);
        assert_eq!(woken(&api).await.0, None);
        let events: Vec<Event> = api.list();
        assert_eq!(events.len(), reports, "{events:?}");
        for event in events {
            assert_eq!(event.reason.as_deref(), Some("InvalidObject"));
            let note = event.note.unwrap();
            assert!(note.contains("spec.resources.requests.storage of claim data"), "{note}");
        }
        stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_at_it_is_let_be() {
    for (asks, driver, more) in [
        ("2Gi", DRIVER, json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}})),
        ("2Gi", DRIVER, json!({"phase": "Pending"})),
        ("2Gi", DRIVER, json!({"capacity": {"storage": "2Gi"}})),
        ("2Gi", "other.example.com", json!({})),
    ] {
        let (api, stop) = (fake_api(), CancellationToken::new());
        two_operators(&api, &stop);
        claim(&api, asks, driver, &more);
        assert_eq!(woken(&api).await, (None, 0), "{driver} {more}");
        stop.cancel();
    }
}

/// Those of a namespace whose calls hang wait for themselves alone, and so do sizes of it that cannot be read.
#[tokio::test(start_paused = true)]
async fn claims_whose_calls_hang_hold_up_none_of_another_namespace() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    api.slow_down("hung", Duration::from_hours(24));
    for at in 0..20 {
        claim_in(&api, &format!("hung/data{at}"), "2Gi", DRIVER, &json!({}));
        claim_in(&api, &format!("hung/bad{at}"), "1e50", DRIVER, &json!({}));
    }
    two_operators(&api, &stop);
    tokio::time::sleep(Duration::from_secs(10)).await;
    claim(&api, "2Gi", DRIVER, &json!({}));
    assert_eq!(woken(&api).await.0.as_deref(), Some("2Gi"));
    stop.cancel();
}
