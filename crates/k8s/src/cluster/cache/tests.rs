//! What a watch keeps of what the API server tells.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::api::StoragePool;
use crate::cluster::cache::changes::MOST_CHANGES;
use crate::cluster::cache::follow::RELIST;
use crate::cluster::summary::weight;
use crate::cluster::{NAMESPACE_TOO_LARGE, unreadable_by_kind};
use pliant_fake_apiserver::{FakeApi, Kinds};

#[tokio::test(start_paused = true)]
async fn all_who_wait_for_the_first_list_are_told() {
    let (api, stop) =
        (FakeApi::new(&Kinds::with(&crate::api::definitions())), CancellationToken::new());
    let watched: Watched<StoragePool> = Watched::start(Api::all(api.client()), every(), &stop);
    let waited = async { tokio::join!(watched.known(), watched.known(), watched.known()) };
    assert!(!watched.is_known());
    tokio::time::timeout(Duration::from_secs(60), waited).await.expect("all are told");
    assert!(watched.is_known());
}

fn labelled(name: &str, team: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name,
                        "labels": {"team": team}}})
}

/// What a subscriber takes, by name: the team before and now.
fn taken(changes: &mut PendingChanges<ConfigMap>) -> Vec<(String, Option<String>, Option<String>)> {
    let team = |one: &Arc<ConfigMap>| one.labels().get("team").cloned().unwrap_or_default();
    let mut all: Vec<_> = match changes.take() {
        Changed::Everything(all) => {
            all.iter().map(|one| (one.name_any(), None, Some(team(one)))).collect()
        }
        Changed::These(all) => all
            .iter()
            .map(|one| {
                (one.place.1.clone(), one.before.as_ref().map(team), one.now.as_ref().map(team))
            })
            .collect(),
    };
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_takes_each_record_once_as_it_was_and_as_it_is() {
    let (api, stop) =
        (FakeApi::new(&Kinds::with(&crate::api::definitions())), CancellationToken::new());
    let put = |name: &str, team: &str| api.put_json::<ConfigMap>(labelled(name, team));
    let text = |text: &str| Some(text.to_owned());
    let keys = |one: &ConfigMap| one.labels().get("team").cloned().into_iter().collect();
    let all = Api::all(api.client());
    let watched: Watched<ConfigMap> = Watched::start_keyed(all, every(), &stop, |_| {}, keys);
    let mut changes = watched.subscribe();
    put("a", "red");
    put("b", "red");
    tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
    watched.until(|all| all.get_in("shop", "b")).await;
    let both = [("a".to_owned(), None, text("red")), ("b".to_owned(), None, text("red"))];
    assert_eq!(taken(&mut changes), both, "the first list is everything");
    assert_eq!(taken(&mut changes), [], "once");

    // One that has another label now is found by that one, and whoever followed it by the old one is told.
    put("a", "green");
    put("a", "blue");
    api.delete::<ConfigMap>("shop/b");
    put("c", "red");
    api.delete::<ConfigMap>("shop/c");
    put("d", "red");
    watched.until(|all| all.get_in("shop", "d")).await;
    let expected = [
        ("a".to_owned(), text("red"), text("blue")),
        ("b".to_owned(), text("red"), None),
        ("c".to_owned(), None, None),
        ("d".to_owned(), None, text("red")),
    ];
    assert_eq!(taken(&mut changes), expected);
    let by = |key: &str| -> Vec<String> {
        watched.with_key(key).iter().map(|one| one.name_any()).collect()
    };
    assert_eq!(
        (by("red"), by("blue"), by("green")),
        (vec!["d".to_owned()], vec!["a".to_owned()], vec![])
    );
    assert!(!watched.has_key("green"));

    // What changed while no watch ran is found by the next list.
    api.compact();
    api.cut_watches();
    put("d", "white");
    watched.until(|all| all.has_key("white").then_some(())).await;
    let expected = [("a".to_owned(), None, text("blue")), ("d".to_owned(), None, text("white"))];
    assert_eq!(taken(&mut changes), expected, "everything may have changed");
    assert_eq!(by("red"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_subscriber_is_bounded_and_wakes_it() {
    let (api, stop) =
        (FakeApi::new(&Kinds::with(&crate::api::definitions())), CancellationToken::new());
    let watched: Watched<ConfigMap> = Watched::start(Api::all(api.client()), every(), &stop);
    tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
    let mut changes = watched.subscribe();
    assert_eq!(taken(&mut changes), []);
    let put = |at: usize| api.put_json::<ConfigMap>(labelled(&format!("c{at:04}"), "red"));
    put(0);
    let woken = tokio::time::timeout(Duration::from_secs(60), changes.changed()).await;
    assert_eq!((woken, taken(&mut changes).len()), (Ok(()), 1));
    (1..=MOST_CHANGES + 1).for_each(put);
    watched.until(|all| all.get_in("shop", &format!("c{:04}", MOST_CHANGES + 1))).await;
    let all = changes.take();
    assert!(matches!(&all, Changed::Everything(all) if all.len() == MOST_CHANGES + 2));
    drop(changes);
    assert_eq!(locked(&watched.followed).subscribers.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_decoded_hides_no_other_one() {
    let (api, stop) =
        (FakeApi::new(&Kinds::with(&crate::api::definitions())), CancellationToken::new());
    let pool =
        |name: &str, disks: Value| json!({"metadata": {"name": name}, "spec": {"disks": disks}});
    api.put_json::<StoragePool>(pool("bad", json!("all")));
    api.put_json::<StoragePool>(pool("good", json!([])));
    let watched: Watched<StoragePool> = Watched::start(Api::all(api.client()), every(), &stop);
    tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
    let names = || -> Vec<String> {
        let mut names: Vec<_> = watched.all().iter().map(|pool| pool.name_any()).collect();
        names.sort();
        names
    };
    assert_eq!((names(), watched.unreadable().len()), (vec!["good".to_owned()], 1));
    assert!(!watched.decodes_all_of(""));
    let told = |api: &FakeApi| api.list::<Event>().len();
    api.until("it is told", |api| told(api) == 1).await;
    assert_eq!(unreadable_by_kind().get("StoragePool"), Some(&1));

    // It becomes readable, and the other one is no longer: that one stays as it was, also over a new list.
    api.put_json::<StoragePool>(pool("bad", json!([])));
    api.put_json::<StoragePool>(pool("good", json!(7)));
    let both = vec!["bad".to_owned(), "good".to_owned()];
    watched.until(|all| (all.all().len() == 2 && !all.unreadable().is_empty()).then_some(())).await;
    watched.until(|all| (all.unreadable()[0].name() == "good").then_some(())).await;
    api.compact();
    api.cut_watches();
    api.put_json::<StoragePool>(pool("third", json!([])));
    watched.until(|all| all.get("third")).await;
    assert_eq!((names()[..2].to_vec(), watched.unreadable().len()), (both, 1));
    api.until("each is told once", |api| told(api) == 2).await;

    api.delete::<StoragePool>("good");
    watched.until(|all| all.unreadable().is_empty().then_some(())).await;
    assert_eq!(names(), ["bad", "third"]);
    assert_eq!(unreadable_by_kind().get("StoragePool"), None);
}

/// A kind of which one object makes the program stumble.
#[derive(Resource, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[resource(inherit = LimitRange)]
#[serde(from = "LimitRange")]
struct Fragile {
    metadata: ObjectMeta,
}

impl From<LimitRange> for Fragile {
    fn from(from: LimitRange) -> Self {
        let is_of = |name: &str| from.metadata.name.as_deref() == Some(name);
        assert!(!is_of("undecodable"), "a fault of the decoder");
        Fragile { metadata: from.metadata }
    }
}

fn cut_fragile(one: &mut Fragile) {
    assert!(one.name_any() != "uncut", "a fault of who cuts");
}

#[tokio::test(start_paused = true)]
async fn a_panic_over_one_record_is_that_record_unreadable_and_not_the_end_of_the_watch() {
    let (api, stop) =
        (FakeApi::new(&Kinds::with(&crate::api::definitions())), CancellationToken::new());
    let put = |name: &str| {
        let metadata = json!({"name": name, "namespace": "shop", "uid": name});
        api.put_json::<LimitRange>(json!({"metadata": metadata}));
    };
    ["undecodable", "uncut", "good"].into_iter().for_each(put);
    let all = Api::all(api.client());
    let watched: Watched<Fragile> = Watched::start_cut(all, every(), &stop, cut_fragile);
    tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
    let names = |watched: &Watched<Fragile>| -> Vec<String> {
        watched.unreadable().iter().map(|one| one.name().to_owned()).collect()
    };
    assert_eq!(names(&watched), ["uncut", "undecodable"]);
    let why = watched.unreadable()[0].to_string();
    assert!(why.contains("a fault of who cuts"), "{why}");
    put("uncut");
    put("other");
    watched.until(|all| all.get_in("shop", "other")).await;
    assert_eq!((watched.all().len(), names(&watched).len()), (2, 2));
}

// The figure is of the whole process: what two tests leave out is of different kinds.
#[tokio::test(start_paused = true)]
async fn a_namespace_takes_its_share_and_no_more() {
    let (api, stop) =
        (FakeApi::new(&Kinds::with(&crate::api::definitions())), CancellationToken::new());
    let text = "x".repeat(1 << 20);
    let put = |namespace: &str, name: &str| {
        let metadata = json!({"name": name, "namespace": namespace, "uid": name,
                              "annotations": {"note": text}});
        api.put_json::<ConfigMap>(json!({"metadata": metadata, "data": {}}));
    };
    for at in 0..20 {
        put("crowd", &format!("c{at:02}"));
    }
    put("shop", "web");
    let watched: Watched<ConfigMap> = Watched::start(Api::all(api.client()), every(), &stop);
    tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
    let of = |namespace: &str| {
        watched.all().iter().filter(|one| one.namespace().as_deref() == Some(namespace)).count()
    };
    assert_eq!((of("crowd"), of("shop")), (15, 1));
    assert!(!watched.decodes_all_of("crowd") && watched.decodes_all_of("shop"));
    assert_eq!(watched.unreadable()[0].reason, NAMESPACE_TOO_LARGE);
    assert_eq!(unreadable_by_kind().get("ConfigMap"), Some(&1));
    let told = |api: &FakeApi| api.list::<Event>().len();
    api.until("it is reported", |api| told(api) == 1).await;

    // Others go on, and what changes in the namespace that is full takes no more than before.
    put("crowd", "c99");
    put("crowd", "c00");
    put("shop", "db");
    watched.until(|all| all.get_in("shop", "db")).await;
    assert_eq!((of("crowd"), of("shop"), told(&api)), (15, 2, 1), "once for all");

    // Once it has become smaller the others of it are read.
    (0..10).for_each(|at| api.delete::<ConfigMap>(&format!("crowd/c{at:02}")));
    watched.until(|all| all.get_in("crowd", "c99")).await;
    assert_eq!((of("crowd"), watched.unreadable().len()), (11, 0));
    assert!(watched.decodes_all_of("crowd"));
    assert_eq!(unreadable_by_kind().get("ConfigMap"), None);
}

#[tokio::test(start_paused = true)]
async fn small_namespaces_fit_however_many_large_ones_there_are() {
    const KIB: usize = 1 << 10;
    let (api, stop) =
        (FakeApi::new(&Kinds::with(&crate::api::definitions())), CancellationToken::new());
    let put = |namespace: &str, name: &str, size: usize| {
        let metadata = json!({"name": name, "namespace": namespace,
                              "uid": format!("{namespace}/{name}"),
                              "annotations": {"note": "x".repeat(size)}});
        api.put_json::<Secret>(json!({"metadata": metadata, "data": {}}));
    };
    for (crowd, at) in (0..8).flat_map(|crowd| (0..10).map(move |at| (crowd, at))) {
        put(&format!("crowd{crowd}"), &format!("c{at}"), 16 * KIB);
    }
    put("shop", "web", KIB);
    put("zoo", "web", KIB);
    let all: Api<Secret> = Api::all(api.client());
    let (client, whole) = (Some(api.client()), Arc::new(MemoryLimits::of(512 * KIB)));
    let watched: Watched<Secret> =
        Watched::begin(all, every(), &stop, (|_| {}, |_| Vec::new()), client, whole.clone());
    tokio::time::timeout(Duration::from_secs(60), watched.known()).await.expect("it is known");
    let of = |namespace: &str| {
        let all = watched.all();
        all.iter().filter(|one| one.namespace().as_deref() == Some(namespace)).count()
    };
    let taken = || -> usize { watched.all().iter().map(|one| weight(&**one)).sum() };
    assert_eq!((of("shop"), of("zoo")), (1, 1), "the last of the list, too");
    assert!(taken() <= 512 * KIB && taken() > 256 * KIB, "{}", taken());
    assert!(watched.decodes_all_of("shop") && !watched.decodes_all_of("crowd0"));
    let why = watched.unreadable()[0].to_string();
    assert!(why.contains("all of them together"), "{why}");

    // As they come, too: what is there of the large ones leaves its place.
    for at in 0..20 {
        put("shop", &format!("s{at:02}"), KIB);
        put(&format!("late{at:02}"), "one", KIB);
    }
    put("crowd1", "more", 16 * KIB);
    watched.until(|all| all.get_in("late19", "one")).await;
    assert_eq!(of("shop"), 21);
    assert!(taken() <= 512 * KIB, "{}", taken());
    assert!(watched.decodes_all_of("shop") && watched.decodes_all_of("late19"));

    // It is said again for as long as it is so.
    let told = |api: &FakeApi| {
        let events = api.list::<Event>().into_iter();
        events.filter(|event| event.reason.as_deref() == Some(NAMESPACE_TOO_LARGE)).count()
    };
    api.until("it is told", |api| told(api) == 8).await;
    for event in api.list::<Event>() {
        api.delete::<Event>(&format!("{}/{}", event.namespace().unwrap(), event.name_any()));
    }
    tokio::time::sleep(RELIST).await;
    api.until("it is told again", |api| told(api) == 8).await;

    // And read again when there is space.
    for (crowd, at) in (1..8).flat_map(|crowd| (0..10).map(move |at| (crowd, at))) {
        api.delete::<Secret>(&format!("crowd{crowd}/c{at}"));
    }
    watched.until(|all| all.unreadable().is_empty().then_some(())).await;
    assert_eq!(of("crowd0"), 10);
    stop.cancel();
}
