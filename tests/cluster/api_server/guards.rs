//! Who looks at new objects, and dry runs.

use kube::api::PostParams;

use super::{create, refusal, refused, request, requests};
use pliant::testing::fake_api;

#[tokio::test]
async fn who_guards_a_kind_refuses_new_objects_and_sees_those_that_are_there() {
    let api = fake_api();
    api.guard("volumerequests", |object, others| {
        let is_full = others.len() == 1;
        is_full.then(|| format!("no place for {}", object["metadata"]["name"]))
    });
    create(&api, "first", "alpha").await;
    let second = || requests(&api);
    let made = second().create(&PostParams::default(), &request("second", "alpha")).await;
    let Err(kube::Error::Api(status)) = &made else { panic!("{made:?}") };
    let expected = "volumerequests.pliant.io \"second\" is forbidden: no place for \"second\"";
    assert_eq!(status.message, expected);
    assert_eq!(refusal(made), refused(403, "Forbidden"));
    api.unguard("volumerequests");
    create(&api, "second", "alpha").await;
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_keeps_nothing() {
    let api = fake_api();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    requests(&api).create(&dry, &request("first", "alpha")).await.unwrap();
    assert_eq!((requests(&api).get_opt("first").await.unwrap(), api.writes()), (None, vec![]));
    assert_eq!(api.rehearsals(), ["POST volumerequests"]);
    create(&api, "first", "alpha").await;
    let again = requests(&api).create(&dry, &request("first", "alpha")).await;
    assert_eq!(refusal(again), refused(409, "AlreadyExists"));
    api.guard("volumerequests", |_, _| Some("no".to_owned()));
    let other = requests(&api).create(&dry, &request("other", "alpha")).await;
    assert_eq!(refusal(other), refused(403, "Forbidden"));
}
