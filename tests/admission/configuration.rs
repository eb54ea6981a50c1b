//! For which pods the API server asks, in a time that passes when all wait.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use pliant::api::PvcAutoscaler;
use pliant::testing::FakeApi;
use pliant::webhook::{Coverage, LIFE, StatefulSetRef, coverage, covers};
use serde_json::json;
use tokio::time::sleep;

use crate::world::{
    NAME, Replica, SHOP, autoscaler, cluster, configuration, service, stateful_set,
    stateful_set_in, workload,
};

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn replica(api: &FakeApi) -> Replica {
    Replica::start(api, LIFE, Arc::new(|| NOW))
}

fn names(api: &FakeApi, name: &str) -> bool {
    let workload = StatefulSetRef::parse(SHOP, name).unwrap();
    covers(&configuration(api), &workload)
}

fn webhooks(api: &FakeApi) -> usize {
    configuration(api).webhooks.unwrap_or_default().len()
}

#[tokio::test(start_paused = true)]
async fn only_stateful_sets_that_are_named_are_asked_for() {
    let api = cluster();
    let _replicas = [replica(&api), replica(&api)];
    sleep(Duration::from_secs(60)).await;
    assert_eq!(webhooks(&api), 0);
    workload(&api, "db", &json!([]));
    api.until("db is covered", |api| names(api, "db")).await;
    assert!(!names(&api, "web"));
    workload(&api, "web", &json!([]));
    api.until("web is covered too", |api| names(api, "db") && names(api, "web")).await;
    api.delete::<PvcAutoscaler>("shop/db");
    api.until("db is not covered", |api| names(api, "web") && !names(api, "db")).await;
    let looked = async |name: &str| {
        let workload = StatefulSetRef::parse(SHOP, name).unwrap();
        coverage(&api.client(), &service(), &workload).await.unwrap() == Coverage::Covered
    };
    assert_eq!((looked("web").await, looked("db").await), (true, false));
    api.delete::<PvcAutoscaler>("shop/web");
    api.until("nobody is asked", |api| webhooks(api) == 0).await;
    api.delete::<MutatingWebhookConfiguration>(NAME);
    assert!(!looked("web").await);
}

/// StatefulSets change all day, and PvcAutoscalers with each step of a swap.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_of_no_name_has_no_name_read() {
    let api = cluster();
    let replica = replica(&api);
    for at in 0..50 {
        workload(&api, &format!("db-{at}"), &json!([]));
    }
    api.until("all are covered", |api| (0..50).all(|at| names(api, &format!("db-{at}")))).await;
    sleep(Duration::from_secs(60)).await;
    let before = replica.autoscalers.records_read();
    let mut set: StatefulSet = api.get("shop/db-7").expect("it is there");
    set.metadata.annotations = Some([("note".to_owned(), "x".to_owned())].into());
    api.put(&set);
    let swap = json!([{"ordinal": 0, "activeClaim": "a"}]);
    workload(&api, "db-8", &swap);
    sleep(Duration::from_secs(60)).await;
    let read = replica.autoscalers.records_read() - before;
    assert!((1..=4).contains(&read), "{read} PvcAutoscalers are read");
    api.delete::<StatefulSet>("shop/db-7");
    workload(&api, "web", &json!([]));
    api.until("a new name is still seen", |api| names(api, "web")).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_takes_the_webhook_from_nobody_else() {
    let api = cluster();
    let _replica = replica(&api);
    for name in ["'", "a'] && false && 'y' in ['z", "a'] || true || 'y' in ['z"] {
        workload(&api, name, &json!([])); // A definition of before had no pattern.
    }
    workload(&api, "db", &json!([]));
    api.until("db is covered", |api| names(api, "db")).await;
    let webhooks = configuration(&api).webhooks.unwrap();
    let conditions = webhooks[0].match_conditions.as_ref().unwrap();
    assert!(conditions[0].expression.ends_with(" in ['shop/db'])"), "{conditions:?}");
}

#[tokio::test(start_paused = true)]
async fn only_stateful_sets_that_exist_are_asked_for() {
    let api = cluster();
    let _replicas = [replica(&api), replica(&api)];
    workload(&api, "db", &json!([]));
    autoscaler(&api, SHOP, "web", &json!([]));
    api.until("db is covered", |api| names(api, "db")).await;
    sleep(Duration::from_secs(60)).await;
    assert!(!names(&api, "web"));
    stateful_set(&api, "web");
    api.until("web is covered as soon as it is there", |api| names(api, "web")).await;
    // It is deleted and made again, perhaps in the middle of a swap.
    api.delete::<StatefulSet>("shop/web");
    sleep(Duration::from_secs(60)).await;
    assert!(names(&api, "web") && names(&api, "db"));
    api.delete::<PvcAutoscaler>("shop/web");
    api.until("nobody names web", |api| !names(api, "web") && names(api, "db")).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_of_ten_thousand_names_takes_the_webhook_from_nobody_else() {
    let api = cluster();
    for number in 0..10_000 {
        let name = format!("{number:0253}");
        autoscaler(&api, "a-tenant", &name, &json!([]));
        if number % 2 == 0 {
            stateful_set_in(&api, "a-tenant", &name);
        }
    }
    let _replica = replica(&api);
    workload(&api, "db", &json!([]));
    api.until("db is covered", |api| names(api, "db")).await;
    let written = serde_json::to_vec(&configuration(&api)).unwrap().len();
    assert!(written < 100 << 10, "the configuration has {written} bytes");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_change_who_is_asked_writes_nothing() {
    let api = cluster();
    let _replicas = [replica(&api), replica(&api)];
    workload(&api, "db", &json!([]));
    api.until("db is covered", |api| names(api, "db")).await;
    sleep(Duration::from_secs(60)).await;
    api.forget_writes();
    for ordinal in 0..10 {
        workload(&api, "db", &json!([{"ordinal": ordinal, "activeClaim": "data"}]));
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(api.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_others_write_over_is_written_again() {
    let api = cluster();
    let _replica = replica(&api);
    workload(&api, "db", &json!([]));
    api.until("db is covered", |api| names(api, "db")).await;
    sleep(Duration::from_secs(60)).await;
    let (kept, mut other) = (configuration(&api).webhooks, configuration(&api));
    other.webhooks.as_mut().unwrap()[0].failure_policy = Some("Ignore".to_owned());
    api.put(&other);
    api.until("it is as before", |api| configuration(api).webhooks == kept).await;
    api.put(&MutatingWebhookConfiguration { webhooks: None, ..other });
    api.until("it is as before again", |api| configuration(api).webhooks == kept).await;
}

#[tokio::test(start_paused = true)]
async fn who_sees_late_writes_what_is_so_now() {
    let api = cluster();
    workload(&api, "db", &json!([]));
    api.hold_events();
    workload(&api, "web", &json!([]));
    // No watch tells them of it; that there is no certificate yet is their reason to write.
    let _replicas = [replica(&api), replica(&api)];
    let both = |api: &FakeApi| names(api, "db") && names(api, "web");
    api.until("both are named", both).await;
    sleep(Duration::from_secs(60)).await;
    assert!(both(&api));
    api.release_events();
    sleep(Duration::from_secs(60)).await;
    assert!(both(&api));
}

/// Whose pods are shown to the webhook hangs on nothing but the name.
#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_decoded_is_covered_and_hides_no_other_one() {
    let api = cluster();
    let metadata = json!({"name": "odd", "namespace": SHOP});
    let spec = json!({"statefulSetName": "odd", "volumeClaimTemplate": 7, "mode": "Newer"});
    api.put_json::<PvcAutoscaler>(json!({"metadata": metadata, "spec": spec}));
    stateful_set(&api, "odd");
    workload(&api, "db", &json!([]));
    let _replica = replica(&api);
    api.until("both are covered", |api| names(api, "db") && names(api, "odd")).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_configuration_is_written_is_not_the_end_of_it() {
    let api = cluster();
    let _replica = replica(&api);
    workload(&api, "db", &json!([]));
    api.until("db is covered", |api| names(api, "db")).await;
    api.panic_at(Some(&format!("GET mutatingwebhookconfigurations/{NAME}")));
    workload(&api, "web", &json!([]));
    sleep(Duration::from_secs(60)).await;
    assert!(!names(&api, "web"));
    api.panic_at(None);
    api.until("web is covered too", |api| names(api, "db") && names(api, "web")).await;
}
