use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::*;

fn applied(parts: &Value) -> Patch<Value> {
    let mut whole = json!({ "apiVersion": "pliant.io/v1alpha1", "kind": "VolumeRequest" });
    json_patch::merge(&mut whole, parts);
    Patch::Apply(whole)
}

fn spec(gib: u64) -> Value {
    let request = request("a", "one");
    let mut spec = serde_json::to_value(request.spec).unwrap();
    spec["operation"] = json!({ "expand": { "minSize": format!("{gib}Gi") } });
    json!({ "metadata": {}, "spec": spec })
}

#[tokio::test]
async fn an_apply_creates_and_then_changes_nothing() {
    let api = fake_api();
    let all = requests(&api);
    let params = PatchParams::apply("node-plugin");
    let mut sent = spec(1);
    sent["status"] = json!({ "phase": "Succeeded" });
    let made = all.patch("a", &params, &applied(&sent)).await.unwrap();
    assert_eq!((made.status.clone(), made.metadata.generation), (None, Some(1)));
    let same = all.patch("a", &params, &applied(&spec(1))).await.unwrap();
    assert_eq!(same, made);
    let grown = all.patch("a", &params, &applied(&spec(2))).await.unwrap();
    assert_eq!((grown.spec.operation, grown.metadata.generation), (grow(2), Some(2)));
}

#[tokio::test]
async fn an_applied_status_needs_its_object() {
    let api = fake_api();
    let all = requests(&api);
    let params = PatchParams::apply("node-plugin");
    let told = |status: Value| applied(&json!({ "metadata": {}, "status": status }));
    let missing = all.patch_status("a", &params, &told(json!({ "phase": "Running" }))).await;
    assert_eq!(refusal(missing), refused(404, "NotFound"));
    create(&api, "a", "one").await;
    let first = json!({ "phase": "Running", "progress": "5 %" });
    let told_first = all.patch_status("a", &params, &told(first)).await.unwrap();
    assert_eq!(told_first.status.unwrap().progress.as_deref(), Some("5 %"));
    let second =
        all.patch_status("a", &params, &told(json!({ "phase": "Running" }))).await.unwrap();
    assert_eq!(second.status, Some(running()), "what is no longer sent is removed");
    assert_eq!(second.metadata.generation, Some(1));
}

#[tokio::test]
async fn an_apply_removes_only_its_own() {
    let api = fake_api();
    create(&api, "a", "one").await;
    let labels = |labels: Value| applied(&json!({ "metadata": { "labels": labels } }));
    let apply = async |manager: &str, set: Value, force: bool| {
        let params = PatchParams { force, ..PatchParams::apply(manager) };
        requests(&api).patch("a", &params, &labels(set)).await
    };
    apply("one", json!({ "x": "1", "y": "1" }), false).await.unwrap();
    apply("two", json!({ "y": "1", "z": "2" }), false).await.unwrap();
    let left = apply("one", json!({}), false).await.unwrap().metadata.labels.unwrap();
    assert_eq!(json!(left), json!({ "y": "1", "z": "2" }), "the other one owns y too");
    let disputed = apply("one", json!({ "z": "1" }), false).await;
    assert_eq!(refusal(disputed), refused(409, "Conflict"));
    apply("one", json!({ "z": "1" }), true).await.unwrap();
    let left = apply("two", json!({ "y": "1" }), false).await.unwrap().metadata.labels.unwrap();
    assert_eq!(json!(left), json!({ "y": "1", "z": "1" }), "z was taken over");
    apply("two", json!({}), false).await.unwrap();
    let kept = apply("two", json!({ "y": "1" }), false).await.unwrap().metadata.labels.unwrap();
    assert_eq!(json!(kept), json!({ "y": "1", "z": "1" }));
    apply("two", json!({}), false).await.unwrap();
    assert_eq!(apply("one", json!({}), false).await.unwrap().metadata.labels, None);
}

#[tokio::test]
async fn who_writes_otherwise_takes_a_field_from_who_applied_it() {
    let api = fake_api();
    let all = requests(&api);
    let params = PatchParams::apply("one");
    let mut sent = spec(1);
    sent["metadata"] = json!({ "labels": { "x": "1" } });
    all.patch("a", &params, &applied(&sent)).await.unwrap();
    let merge = Patch::Merge(json!({ "metadata": { "labels": { "x": "2" } } }));
    all.patch("a", &PatchParams::default(), &merge).await.unwrap();
    let left = all.patch("a", &params, &applied(&spec(1))).await.unwrap();
    assert_eq!(json!(left.metadata.labels), json!({ "x": "2" }));
    // Also the same name, if it does not apply.
    let same = PatchParams { field_manager: Some("one".to_owned()), ..PatchParams::default() };
    let merge = Patch::Merge(json!({ "spec": { "operation": {"expand": {"minSize": "2Gi" } } } }));
    all.patch("a", &same, &merge).await.unwrap();
    let disputed = all.patch("a", &params, &applied(&spec(1))).await;
    assert_eq!(refusal(disputed), refused(409, "Conflict"));
}

#[tokio::test]
async fn an_apply_tells_who_and_of_which_version() {
    let api = fake_api();
    let all = requests(&api);
    create(&api, "a", "one").await;
    let nobody = all.patch("a", &PatchParams::default(), &applied(&spec(1))).await;
    assert_eq!(refusal(nobody), refused(422, "Invalid"));
    let mut stale = spec(2);
    stale["metadata"]["resourceVersion"] = json!("7");
    let stale = all.patch("a", &PatchParams::apply("one"), &applied(&stale)).await;
    assert_eq!(refusal(stale), refused(409, "Conflict"));
    let moved = applied(&json!({ "metadata": {}, "spec": { "nodeName": "two" } }));
    let forced = PatchParams::apply("one").force();
    let disputed = all.patch("a", &PatchParams::apply("one"), &moved).await;
    assert_eq!(refusal(disputed), refused(409, "Conflict"), "it was created by another name");
    let moved = all.patch("a", &forced, &moved).await;
    assert_eq!(refusal(moved), refused(422, "Invalid"));
}
