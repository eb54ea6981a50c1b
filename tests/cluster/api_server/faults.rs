use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::*;
use pliant::testing::Lost;

fn is_broken<T>(result: &kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Service(_)))
}

#[tokio::test]
async fn the_log_tells_who_wrote_what() {
    let api = fake_api();
    let all = Api::<VolumeRequest>::all(api.client_of("controller/1"));
    all.create(&PostParams::default(), &request("a", "one")).await.unwrap();
    all.get("a").await.unwrap();
    let status = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    let params =
        PatchParams { field_manager: Some("node-plugin".to_owned()), ..PatchParams::default() };
    requests(&api).patch_status("a", &params, &status).await.unwrap();
    requests(&api).delete("a", &DeleteParams::default()).await.unwrap();
    assert!(requests(&api).delete("a", &DeleteParams::default()).await.is_err());
    let expected = [
        "POST volumerequests by controller/1",
        "PATCH volumerequests/a/status by node-plugin",
        "DELETE volumerequests/a",
        "DELETE volumerequests/a",
    ];
    assert_eq!(api.writes(), expected);
    assert_eq!(api.calls(), 5);
    api.forget_writes();
    assert!(api.writes().is_empty());
}

#[tokio::test]
async fn a_request_is_lost_before_or_its_answer_after() {
    let api = fake_api();
    let all = requests(&api);
    for (name, side, is_there) in [("a", Lost::Request, false), ("b", Lost::Answer, true)] {
        api.forget_writes();
        create(&api, &format!("{name}1"), "one").await;
        api.fail_at(2, side);
        let lost = all.create(&PostParams::default(), &request(name, "one")).await;
        assert!(is_broken(&lost));
        assert_eq!(api.get::<VolumeRequest>(name).is_some(), is_there);
        create(&api, &format!("{name}2"), "one").await;
        assert_eq!(api.writes().len(), 3);
    }
}

#[tokio::test]
async fn a_server_that_is_away_answers_nothing() {
    let api = fake_api();
    let all = requests(&api);
    api.go_down();
    assert!(is_broken(&all.list(&ListParams::default()).await));
    assert!(is_broken(&all.create(&PostParams::default(), &request("a", "one")).await));
    api.refuse_all(503);
    let refused_one = all.list(&ListParams::default()).await;
    assert_eq!(refusal(refused_one), refused(503, "ServiceUnavailable"));
    assert_eq!((api.calls(), api.writes()), (3, vec![]));
    api.come_back();
    assert!(all.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_test_waits_for_what_is_to_come() {
    let api = fake_api();
    let writer = api.clone();
    let task = tokio::spawn(async move { create(&writer, "a", "one").await });
    api.until("it is there", |api| api.get::<VolumeRequest>("a").is_some()).await;
    task.await.unwrap();
    let changed = api.changed();
    api.put(&request("b", "one"));
    changed.await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited in vain until it is there")]
async fn a_test_does_not_wait_for_ever() {
    let api = fake_api();
    api.until("it is there", |api| api.get::<VolumeRequest>("a").is_some()).await;
}
