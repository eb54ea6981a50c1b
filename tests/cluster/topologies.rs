//! Claims of classes whose allowedTopologies no node fits.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use pliant::controllers::topology::{self, TOPOLOGY_KEY_UNKNOWN};
use pliant::populators::Watches;
use pliant::testing::{FakeApi, fake_api};
use pliant::volume::{DRIVER, TOPOLOGY};
use serde_json::json;
use tokio_util::sync::CancellationToken;

fn class(api: &FakeApi, name: &str, driver: &str, key: &str) {
    let terms = json!([{"matchLabelExpressions": [{"key": key, "values": ["node1"]}]}]);
    let class = json!({
        "metadata": {"name": name}, "provisioner": driver, "allowedTopologies": terms,
    });
    api.put(&serde_json::from_value::<StorageClass>(class).unwrap());
}

fn claim(api: &FakeApi, name: &str, class: &str, phase: &str) {
    claim_in(api, "shop", name, class, phase);
}

fn claim_in(api: &FakeApi, namespace: &str, name: &str, class: &str, phase: &str) {
    let claim = json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": phase},
    });
    api.put(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_class_names_keys_of_others_is_told_once_which_key_there_is() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    class(&api, "hostname", DRIVER, "kubernetes.io/hostname");
    class(&api, "ours", DRIVER, TOPOLOGY);
    class(&api, "other", "csi.example.com", "kubernetes.io/hostname");
    for name in ["hostname", "ours", "other", "missing"] {
        claim(&api, name, name, "Pending");
    }
    claim(&api, "bound", "hostname", "Bound");
    for name in ["one", "other"] {
        let (client, stop) = (api.client_of(name), stop.clone());
        tokio::spawn(async move {
            let watches = Watches::start(&client, &stop);
            topology::report(&client, watches.claims(), stop.clone()).await;
        });
    }
    let told = async || {
        tokio::time::sleep(Duration::from_secs(60)).await;
        api.list::<Event>()
    };
    let events = told().await;
    let [event] = events.as_slice() else { panic!("one event, not {events:#?}") };
    assert_eq!(event.reason.as_deref(), Some(TOPOLOGY_KEY_UNKNOWN));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let about = event.regarding.clone().unwrap();
    assert_eq!(
        (about.kind.as_deref(), about.name.as_deref()),
        (Some("PersistentVolumeClaim"), Some("hostname"))
    );
    let text = event.note.clone().unwrap();
    for words in [
        "StorageClass hostname use kubernetes.io/hostname",
        "only the key topology.lvm.csi.pliant.io/node, with node names as values",
        "allowedTopologies: [{matchLabelExpressions: [{key: topology.lvm.csi.pliant.io/node, values: [NODE]}]}]",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // It is looked at once; one that is made anew is another claim.
    assert_eq!(told().await.len(), 1);
    api.delete::<PersistentVolumeClaim>("shop/hostname");
    claim(&api, "hostname", "hostname", "Pending");
    assert_eq!(told().await.len(), 2);
    // A class may come after its claim.
    claim(&api, "early", "later", "Pending");
    assert_eq!(told().await.len(), 2);
    class(&api, "later", DRIVER, "kubernetes.io/hostname");
    assert_eq!(told().await.len(), 3);
    // One that is bound in time is never looked at.
    claim(&api, "quick", "hostname", "Pending");
    tokio::time::sleep(Duration::from_secs(5)).await;
    claim(&api, "quick", "hostname", "Bound");
    assert_eq!(told().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn claims_whose_calls_hang_hold_up_none_of_another_namespace() {
    let (api, stop) = (fake_api(), CancellationToken::new());
    class(&api, "hostname", DRIVER, "kubernetes.io/hostname");
    api.slow_down("hung", Duration::from_hours(24));
    for at in 0..20 {
        claim_in(&api, "hung", &format!("data{at}"), "hostname", "Pending");
    }
    let (client, ended) = (api.client_of("one"), stop.clone());
    tokio::spawn(async move {
        let watches = Watches::start(&client, &ended);
        topology::report(&client, watches.claims(), ended.clone()).await;
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    claim(&api, "late", "hostname", "Pending");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let events: Vec<Event> = api.list();
    let about: Vec<_> = events.into_iter().filter_map(|event| event.regarding?.name).collect();
    assert_eq!(about, ["late"]);
    stop.cancel();
}
