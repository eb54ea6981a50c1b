use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{GetParams, ListParams, VersionMatch};

use super::*;

async fn names(api: &FakeApi, params: ListParams) -> Vec<String> {
    let list = requests(api).list(&params).await.unwrap();
    list.items.iter().map(ResourceExt::name_any).collect()
}

async fn three(api: &FakeApi) {
    for (name, node) in [("c", "one"), ("a", "one"), ("b", "two")] {
        let mut object = request(name, node);
        object.labels_mut().insert("for".to_owned(), node.to_owned());
        if name == "c" {
            object.labels_mut().insert("extra".to_owned(), String::new());
        }
        requests(api).create(&PostParams::default(), &object).await.unwrap();
    }
}

#[tokio::test]
async fn a_list_is_what_its_selectors_say() {
    let api = fake_api();
    three(&api).await;
    let all = ListParams::default;
    for (params, expected) in [
        (all(), vec!["a", "b", "c"]),
        (all().fields("spec.nodeName=one"), vec!["a", "c"]),
        (all().fields("spec.nodeName!=one"), vec!["b"]),
        (all().fields("spec.nodeName==one,metadata.name!=a"), vec!["c"]),
        (all().fields("metadata.name=b"), vec!["b"]),
        (all().fields("metadata.namespace="), vec!["a", "b", "c"]),
        (all().labels("for=two"), vec!["b"]),
        (all().labels("for!=two,extra"), vec!["c"]),
        (all().labels("extra!=x,!extra"), vec!["a", "b"]),
        (all().labels("for=one").fields("metadata.name=c"), vec!["c"]),
    ] {
        assert_eq!(names(&api, params.clone()).await, expected, "{params:?}");
    }
    for params in [all().fields("spec.volumeHandle=x"), all().labels("for in (one)")] {
        assert_eq!(refusal(requests(&api).list(&params).await), refused(400, "BadRequest"));
    }
}

#[tokio::test]
async fn a_list_comes_in_pages_of_one_version() {
    let api = fake_api();
    three(&api).await;
    let first = requests(&api).list(&ListParams::default().limit(2)).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    create(&api, "b2", "one").await;
    api.delete::<VolumeRequest>("c");
    let next = || ListParams::default().limit(2).continue_token(&token);
    let second = requests(&api).list(&next()).await.unwrap();
    assert_eq!(second.metadata.continue_, None);
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(names(&api, next()).await, ["c"], "what came and went since is not seen");
    api.compact();
    assert_eq!(refusal(requests(&api).list(&next()).await), refused(410, "Expired"));
}

#[tokio::test]
async fn a_list_can_be_asked_for_a_version() {
    let api = fake_api();
    three(&api).await;
    let at = |version: &str, how| ListParams::default().at(version).matching(how);
    assert_eq!(names(&api, at("2", VersionMatch::Exact)).await, ["a", "c"]);
    assert_eq!(names(&api, at("2", VersionMatch::NotOlderThan)).await, ["a", "b", "c"]);
    let future = requests(&api).list(&at("9", VersionMatch::NotOlderThan)).await;
    assert_eq!(refusal(future), refused(504, "Timeout"));
    api.compact();
    let past = requests(&api).list(&at("2", VersionMatch::Exact)).await;
    assert_eq!(refusal(past), refused(410, "Expired"));
}

#[tokio::test]
async fn a_read_of_any_version_can_be_late() {
    let api = fake_api();
    api.hold_events();
    create(&api, "a", "one").await;
    assert!(names(&api, ListParams::default().match_any()).await.is_empty());
    assert_eq!(refusal(requests(&api).get_with("a", &GetParams::any()).await).0, 404);
    assert_eq!(names(&api, ListParams::default()).await, ["a"]);
    requests(&api).get("a").await.unwrap();
    api.release_events();
    assert_eq!(names(&api, ListParams::default().match_any()).await, ["a"]);
}

#[tokio::test]
async fn namespaces_are_apart() {
    let api = fake_api();
    let lease = Lease { metadata: named("l"), ..Lease::default() };
    for namespace in ["one", "two"] {
        let leases = Api::<Lease>::namespaced(api.client(), namespace);
        let made = leases.create(&PostParams::default(), &lease).await.unwrap();
        assert_eq!(made.metadata.namespace.as_deref(), Some(namespace));
    }
    let count =
        async |leases: Api<Lease>| leases.list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(count(Api::all(api.client())).await, 2);
    assert_eq!(count(Api::namespaced(api.client(), "two")).await, 1);
    assert!(api.get::<Lease>("two/l").is_some());
}
