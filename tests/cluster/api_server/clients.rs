//! What others wrote against a real server has to go on here.

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::api::events::v1::Event as Record;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder};
use serde_json::json;

use super::*;

#[tokio::test]
async fn an_event_is_written_once_and_then_counted() {
    let api = fake_api();
    let recorder = Recorder::new(api.client(), "pliant".into());
    let event = Event {
        type_: EventType::Warning,
        reason: "PoolFull".to_owned(),
        note: Some("no room".to_owned()),
        action: "Create".to_owned(),
        secondary: None,
    };
    let about: ObjectReference = request("a", "one").object_ref(&());
    recorder.publish(&event, &about).await.unwrap();
    recorder.publish(&event, &about).await.unwrap();
    let records = api.list::<Record>();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].series.as_ref().map(|series| series.count), Some(2));
    assert_eq!(records[0].regarding.as_ref().and_then(|it| it.name.as_deref()), Some("a"));
}

#[tokio::test]
#[should_panic(expected = "FakeApi does not merge lists: PATCH nodes/n")]
async fn a_strategic_merge_of_lists_is_a_panic() {
    let api = fake_api();
    api.put(&Node { metadata: named("n"), ..Node::default() });
    let patch = Patch::Strategic(json!({ "spec": { "taints": [] } }));
    let _ = Api::<Node>::all(api.client()).patch("n", &PatchParams::default(), &patch).await;
}
