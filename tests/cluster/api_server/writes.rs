use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::*;

async fn merge(api: &FakeApi, name: &str, patch: Value) -> kube::Result<VolumeRequest> {
    requests(api).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn json_patch(api: &FakeApi, name: &str, patch: Value) -> kube::Result<VolumeRequest> {
    let patch: JsonPatch = serde_json::from_value(patch).unwrap();
    requests(api).patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
}

#[tokio::test]
async fn a_new_object_gets_what_the_server_adds() {
    let api = fake_api();
    let mut sent = request("a", "one");
    sent.status = Some(running());
    let made = requests(&api).create(&PostParams::default(), &sent).await.unwrap();
    assert_eq!(made.spec, sent.spec);
    assert_eq!(made.status, None, "the status has its own path");
    assert_eq!(made.metadata.generation, Some(1));
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    assert_eq!(version(&made), "1");
    assert_eq!(api.get("a"), Some(made.clone()));
    assert_eq!(api.get::<VolumeRequest>("b"), None);
    let other = create(&api, "b", "one").await;
    assert_ne!(other.metadata.uid, made.metadata.uid);
}

#[tokio::test]
async fn what_cannot_be_created_is_refused() {
    let api = fake_api();
    let made = create(&api, "a", "one").await;
    let (all, params) = (requests(&api), PostParams::default());
    let again = all.create(&params, &request("a", "two")).await;
    assert_eq!(refusal(again), refused(409, "AlreadyExists"));
    let mut old = made;
    old.metadata.name = Some("b".to_owned());
    assert_eq!(refusal(all.create(&params, &old).await), refused(500, "InternalError"));
    let bad = all.create(&params, &request("A_b", "one")).await;
    assert_eq!(refusal(bad), refused(422, "Invalid"));
    assert_eq!(api.list::<VolumeRequest>().len(), 1);
}

#[tokio::test]
async fn names_are_generated() {
    let api = fake_api();
    let mut sent = request("", "one");
    sent.metadata = ObjectMeta { generate_name: Some("work-".to_owned()), ..sent.metadata };
    sent.metadata.name = None;
    let all = requests(&api);
    let one = all.create(&PostParams::default(), &sent).await.unwrap().metadata.name.unwrap();
    let two = all.create(&PostParams::default(), &sent).await.unwrap().metadata.name.unwrap();
    assert!(one.starts_with("work-") && two.starts_with("work-") && one != two, "{one} {two}");
}

#[tokio::test]
async fn a_stale_put_is_a_conflict() {
    let api = fake_api();
    let (all, params) = (requests(&api), PostParams::default());
    let first = create(&api, "a", "one").await;
    let mut newer = first.clone();
    newer.spec.operation = grow(2);
    let second = all.replace("a", &params, &newer).await.unwrap();
    assert_eq!((second.metadata.generation, version(&second)), (Some(2), "2".to_owned()));
    assert_eq!(second.metadata.uid, first.metadata.uid);
    assert_eq!(refusal(all.replace("a", &params, &newer).await), refused(409, "Conflict"));
    let blind = all.replace("a", &params, &request("a", "one")).await;
    assert_eq!(refusal(blind), refused(422, "Invalid"));
    let mut other = second.clone();
    other.metadata.uid = Some("another".to_owned());
    assert_eq!(refusal(all.replace("a", &params, &other).await), refused(409, "Conflict"));
    assert_eq!(refusal(all.replace("b", &params, &request("b", "one")).await).0, 404);
    // Some kinds of Kubernetes take it.
    let node = Node { metadata: named("n"), ..Node::default() };
    api.put(&node);
    Api::<Node>::all(api.client()).replace("n", &params, &node).await.unwrap();
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let api = fake_api();
    let all = requests(&api);
    let mut wished = create(&api, "a", "one").await;
    wished.status = Some(running());
    wished.spec.operation = grow(2);
    let params = PostParams::default();
    let told = all.replace_status("a", &params, &wished).await.unwrap();
    assert_eq!(told.spec.operation, grow(1), "the path of the status does not write the spec");
    assert_eq!((told.status.clone(), told.metadata.generation), (Some(running()), Some(1)));
    let mut wished = told.clone();
    wished.status = None;
    wished.spec.operation = grow(2);
    let changed = all.replace("a", &params, &wished).await.unwrap();
    assert_eq!(changed.status, Some(running()), "the other path does not write the status");
    assert_eq!(changed.metadata.generation, Some(2));
    let patch =
        Patch::Merge(json!({ "status": { "phase": "Succeeded" }, "spec": { "nodeName": "two" } }));
    let done = all.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((done.status.unwrap().phase, done.spec), (Phase::Succeeded, changed.spec));
    assert_eq!(all.get_status("a").await.unwrap().metadata.generation, Some(2));
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_no_new_version() {
    let api = fake_api();
    let made = create(&api, "a", "one").await;
    let all = requests(&api);
    let same = all.replace("a", &PostParams::default(), &made).await.unwrap();
    assert_eq!(same, made);
    // Empty labels are no labels.
    let same = merge(&api, "a", json!({ "metadata": { "labels": {} } })).await.unwrap();
    assert_eq!(same, made);
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    let labelled = merge(&api, "a", labels).await.unwrap();
    assert_eq!((version(&labelled), labelled.metadata.generation), ("2".to_owned(), Some(1)));
}

#[tokio::test]
async fn a_merge_patch_sets_and_removes() {
    let api = fake_api();
    create(&api, "a", "one").await;
    let all = requests(&api);
    let patch = |status: Value| Patch::Merge(json!({ "status": status }));
    let params = PatchParams::default();
    let first = patch(json!({ "phase": "Running", "progress": "5 %" }));
    let told = all.patch_status("a", &params, &first).await.unwrap().status.unwrap();
    assert_eq!((told.phase, told.progress.as_deref()), (Phase::Running, Some("5 %")));
    let second = patch(json!({ "progress": null }));
    let told = all.patch_status("a", &params, &second).await.unwrap().status.unwrap();
    assert_eq!((told.phase, told.progress), (Phase::Running, None));
    let stale = merge(&api, "a", json!({ "metadata": { "resourceVersion": "1" } })).await;
    assert_eq!(refusal(stale), refused(409, "Conflict"));
    assert_eq!(refusal(merge(&api, "b", json!({})).await), refused(404, "NotFound"));
    assert_eq!(refusal(merge(&api, "a", json!([])).await), refused(400, "BadRequest"));
    let strategic = all.patch("a", &params, &Patch::Strategic(json!({}))).await;
    assert_eq!(refusal(strategic), refused(415, "UnsupportedMediaType"));
}

#[tokio::test]
async fn a_json_patch_is_done_if_its_tests_hold() {
    let api = fake_api();
    create(&api, "a", "one").await;
    let size = ["", "spec", "operation", "expand", "minSize"].join("/");
    let patch = |tested: &str| {
        json!([
            { "op": "test", "path": size, "value": tested },
            { "op": "replace", "path": size, "value": "2Gi" },
        ])
    };
    let changed = json_patch(&api, "a", patch("1Gi")).await.unwrap();
    assert_eq!((changed.spec.operation, changed.metadata.generation), (grow(2), Some(2)));
    assert_eq!(refusal(json_patch(&api, "a", patch("1Gi")).await), refused(422, "Invalid"));
    assert_eq!(api.get::<VolumeRequest>("a").unwrap().spec.operation, grow(2));
}

#[tokio::test]
async fn fixed_fields_do_not_change() {
    let api = fake_api();
    create(&api, "a", "one").await;
    for spec in [json!({ "nodeName": "two" }), json!({ "volumeHandle": "another" })] {
        let moved = merge(&api, "a", json!({ "spec": spec })).await;
        assert_eq!(refusal(moved), refused(422, "Invalid"));
    }
}

#[tokio::test]
async fn a_deletion_can_be_bound_to_what_was_seen() {
    let api = fake_api();
    let (all, made) = (requests(&api), create(&api, "a", "one").await);
    let bound = |uid: Option<&str>, version: Option<&str>| DeleteParams {
        preconditions: Some(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        }),
        ..DeleteParams::default()
    };
    for params in [bound(Some("another"), None), bound(None, Some("7"))] {
        assert_eq!(refusal(all.delete("a", &params).await), refused(409, "Conflict"));
    }
    let params = bound(made.metadata.uid.as_deref(), Some("1"));
    assert!(all.delete("a", &params).await.unwrap().is_right());
    assert_eq!(refusal(all.delete("a", &params).await), refused(404, "NotFound"));
    assert_eq!(api.get::<VolumeRequest>("a"), None);
}

#[tokio::test]
async fn a_finalizer_keeps_what_is_deleted() {
    let api = fake_api();
    let mut sent = request("a", "one");
    sent.metadata.finalizers = Some(vec!["pliant.io/work".to_owned()]);
    let (all, params) = (requests(&api), DeleteParams::default());
    all.create(&PostParams::default(), &sent).await.unwrap();
    let marked = all.delete("a", &params).await.unwrap().left().expect("it is still there");
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert_eq!(marked.metadata.generation, Some(2), "a deletion is a wish");
    assert_eq!(all.delete("a", &params).await.unwrap().left(), Some(marked));
    let finalizers = |names: &[&str]| json!({ "metadata": { "finalizers": names } });
    let more = merge(&api, "a", finalizers(&["pliant.io/work", "x.io/y"])).await;
    assert_eq!(refusal(more), refused(422, "Invalid"));
    merge(&api, "a", finalizers(&[])).await.unwrap();
    assert_eq!(api.get::<VolumeRequest>("a"), None);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let api = fake_api();
    for (name, node) in [("a", "one"), ("b", "two"), ("c", "one")] {
        create(&api, name, node).await;
    }
    let chosen = ListParams::default().fields("spec.nodeName=one");
    let gone = requests(&api).delete_collection(&DeleteParams::default(), &chosen).await.unwrap();
    assert_eq!(gone.left().unwrap().items.len(), 2);
    let left: Vec<String> =
        api.list::<VolumeRequest>().into_iter().map(|one| one.spec.node_name).collect();
    assert_eq!(left, ["two"]);
}

#[tokio::test]
async fn a_test_writes_and_reads_past_the_clients() {
    let api = fake_api();
    let mut object = request("a", "one");
    object.status = Some(running());
    let made = api.put(&object);
    assert_eq!((made.status.clone(), made.metadata.generation), (Some(running()), Some(1)));
    assert_eq!(api.put(&made), made);
    object.spec.operation = grow(2);
    let changed = api.put(&object);
    assert_eq!(changed.metadata.generation, Some(2));
    assert_eq!(changed.metadata.uid, made.metadata.uid);
    api.put(&Pod { metadata: named("p"), ..Pod::default() });
    assert!(api.get::<Pod>("default/p").is_some());
    assert_eq!(
        Api::<Pod>::default_namespaced(api.client())
            .get("p")
            .await
            .unwrap()
            .metadata
            .name
            .as_deref(),
        Some("p")
    );
    api.delete::<Pod>("default/p");
    assert!(api.list::<Pod>().is_empty());
    assert_eq!((api.writes(), api.calls()), (vec![], 1));
}

#[tokio::test]
#[should_panic(expected = "FakeApi does not serve GET /api/v1/serviceaccounts")]
async fn what_is_not_served_is_a_panic() {
    use k8s_openapi::api::core::v1::ServiceAccount;
    let api = fake_api();
    let _ = Api::<ServiceAccount>::all(api.client()).list(&ListParams::default()).await;
}
