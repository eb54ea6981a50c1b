use std::pin::pin;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio_stream::{Stream, StreamExt};

use super::*;

/// What is told next, without waiting.
async fn told(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<VolumeRequest>>> + Unpin),
) -> Option<String> {
    let word = |kind: &str, object: &VolumeRequest| {
        format!("{kind} {} {}", object.name_any(), version(object))
    };
    let next = tokio::time::timeout(Duration::from_millis(1), events.next()).await;
    Some(match next.ok()?.map_or(Ok(None), |event| event.map(Some)).unwrap() {
        None => "END".to_owned(),
        Some(WatchEvent::Added(object)) => word("ADDED", &object),
        Some(WatchEvent::Modified(object)) => word("MODIFIED", &object),
        Some(WatchEvent::Deleted(object)) => word("DELETED", &object),
        Some(WatchEvent::Bookmark(mark)) => format!("BOOKMARK {}", mark.metadata.resource_version),
        Some(WatchEvent::Error(status)) => format!("ERROR {} {}", status.code, status.reason),
    })
}

async fn label(api: &FakeApi, name: &str, value: &str) {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "for": value } } }));
    requests(api).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happens_after_its_version() {
    let api = fake_api();
    create(&api, "a", "one").await;
    create(&api, "b", "one").await;
    let mut events = pin!(requests(&api).watch(&WatchParams::default(), "1").await.unwrap());
    label(&api, "a", "x").await;
    requests(&api).delete("b", &DeleteParams::default()).await.unwrap();
    for expected in ["ADDED b 2", "MODIFIED a 3", "DELETED b 4"] {
        assert_eq!(told(&mut events).await.as_deref(), Some(expected));
    }
    assert_eq!(told(&mut events).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_tells_first_what_there_is() {
    let api = fake_api();
    create(&api, "a", "one").await;
    for start in ["", "0"] {
        let mut events = pin!(requests(&api).watch(&WatchParams::default(), start).await.unwrap());
        assert_eq!(told(&mut events).await.as_deref(), Some("ADDED a 1"));
        assert_eq!(told(&mut events).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_stops_to_match_is_deleted_for_its_watch() {
    let api = fake_api();
    let fields = WatchParams::default().fields("spec.nodeName=one");
    let labels = WatchParams::default().labels("for=me");
    let mut of_node = pin!(requests(&api).watch(&fields, "0").await.unwrap());
    let mut labelled = pin!(requests(&api).watch(&labels, "0").await.unwrap());
    create(&api, "a", "one").await;
    create(&api, "b", "two").await;
    label(&api, "a", "me").await;
    label(&api, "a", "you").await;
    for expected in ["ADDED a 1", "MODIFIED a 3", "MODIFIED a 4"] {
        assert_eq!(told(&mut of_node).await.as_deref(), Some(expected));
    }
    for expected in ["ADDED a 3", "DELETED a 4"] {
        assert_eq!(told(&mut labelled).await.as_deref(), Some(expected));
    }
    assert_eq!((told(&mut of_node).await, told(&mut labelled).await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_tells_how_far_a_watch_is() {
    let api = fake_api();
    let params = WatchParams::default().fields("spec.nodeName=one");
    let mut events = pin!(requests(&api).watch(&params, "0").await.unwrap());
    let without = params.clone().disable_bookmarks();
    let mut unmarked = pin!(requests(&api).watch(&without, "0").await.unwrap());
    create(&api, "a", "two").await;
    api.bookmark();
    assert_eq!(told(&mut events).await.as_deref(), Some("BOOKMARK 1"));
    assert_eq!(told(&mut unmarked).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_over() {
    let api = fake_api();
    let mut events =
        pin!(requests(&api).watch(&WatchParams::default().timeout(20), "0").await.unwrap());
    assert_eq!(told(&mut events).await, None);
    tokio::time::advance(Duration::from_secs(19)).await;
    assert_eq!(told(&mut events).await, None);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(told(&mut events).await.as_deref(), Some("END"));
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_ends() {
    let api = fake_api();
    let mut events = pin!(requests(&api).watch(&WatchParams::default(), "0").await.unwrap());
    assert_eq!(api.watches(), 1);
    create(&api, "a", "one").await;
    api.cut_watches();
    assert_eq!(api.watches(), 0);
    assert_eq!(told(&mut events).await.as_deref(), Some("ADDED a 1"), "it was under way");
    assert_eq!(told(&mut events).await.as_deref(), Some("END"));
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_version_is_an_error_event() {
    let api = fake_api();
    create(&api, "a", "one").await;
    let params = WatchParams::default();
    let mut quiet = pin!(requests(&api).watch(&params, "1").await.unwrap());
    api.hold_events();
    create(&api, "b", "one").await;
    let mut late = pin!(requests(&api).watch(&params, "1").await.unwrap());
    api.release_events();
    assert_eq!(told(&mut late).await.as_deref(), Some("ADDED b 2"));
    api.compact();
    let mut from_before = pin!(requests(&api).watch(&params, "2").await.unwrap());
    assert_eq!(told(&mut from_before).await.as_deref(), Some("ERROR 410 Expired"));
    assert_eq!(told(&mut from_before).await.as_deref(), Some("END"));
    assert_eq!(told(&mut quiet).await.as_deref(), Some("ADDED b 2"));
    assert_eq!(told(&mut quiet).await, None, "who was told all goes on");
}

#[tokio::test(start_paused = true)]
async fn a_running_watch_that_is_late_ends_with_the_compaction() {
    let api = fake_api();
    let mut events = pin!(requests(&api).watch(&WatchParams::default(), "0").await.unwrap());
    api.hold_events();
    create(&api, "a", "one").await;
    assert_eq!(told(&mut events).await, None);
    api.compact();
    assert_eq!(told(&mut events).await.as_deref(), Some("ERROR 410 Expired"));
    assert_eq!(told(&mut events).await.as_deref(), Some("END"));
}

#[tokio::test(start_paused = true)]
async fn events_come_late_and_twice_if_a_test_says_so() {
    let api = fake_api();
    let mut events = pin!(requests(&api).watch(&WatchParams::default(), "0").await.unwrap());
    api.duplicate_events(true);
    create(&api, "a", "one").await;
    api.duplicate_events(false);
    api.hold_events();
    label(&api, "a", "x").await;
    api.delete::<VolumeRequest>("a");
    for expected in ["ADDED a 1", "ADDED a 1"] {
        assert_eq!(told(&mut events).await.as_deref(), Some(expected));
    }
    assert_eq!(told(&mut events).await, None);
    api.release_events();
    for expected in ["MODIFIED a 2", "DELETED a 3"] {
        assert_eq!(told(&mut events).await.as_deref(), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_as_a_watch_is_refused() {
    let api = fake_api();
    let result = requests(&api).watch(&WatchParams::default().initial_events(), "0").await;
    assert_eq!(refusal(result.map(drop)), refused(422, "Invalid"));
}

/// What the watcher of kube says next.
async fn next(
    stream: &mut (impl Stream<Item = watcher::Result<Event<VolumeRequest>>> + Unpin),
) -> String {
    match stream.next().await.unwrap() {
        Ok(Event::Init) => "init".to_owned(),
        Ok(Event::InitApply(object)) => format!("init {}", object.name_any()),
        Ok(Event::InitDone) => "init done".to_owned(),
        Ok(Event::Apply(object)) => format!("apply {}", object.name_any()),
        Ok(Event::Delete(object)) => format!("delete {}", object.name_any()),
        Err(watcher::Error::WatchError(status)) => format!("error {}", status.code),
        Err(watcher::Error::WatchStartFailed(_)) => "not started".to_owned(),
        Err(watcher::Error::InitialListFailed(_)) => "not listed".to_owned(),
        Err(other) => panic!("{other}"),
    }
}

macro_rules! says {
    ($stream:expr, $($expected:literal),+) => {
        $(assert_eq!(next(&mut $stream).await, $expected);)+
    };
}

#[tokio::test(start_paused = true)]
async fn a_watcher_goes_on_after_a_cut() {
    let api = fake_api();
    create(&api, "a", "one").await;
    let mut stream = pin!(watcher(requests(&api), watcher::Config::default()));
    says!(stream, "init", "init a", "init done");
    create(&api, "b", "one").await;
    says!(stream, "apply b");
    api.cut_watches();
    create(&api, "c", "one").await;
    api.delete::<VolumeRequest>("a");
    says!(stream, "apply c", "delete a");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_lists_anew_after_a_compaction() {
    let api = fake_api();
    create(&api, "a", "one").await;
    let mut stream = pin!(watcher(requests(&api), watcher::Config::default()));
    says!(stream, "init", "init a", "init done");
    create(&api, "b", "one").await;
    says!(stream, "apply b");
    api.cut_watches();
    api.delete::<VolumeRequest>("a");
    api.compact();
    says!(stream, "error 410", "init", "init b", "init done");
    create(&api, "c", "one").await;
    says!(stream, "apply c");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_lives_through_an_outage() {
    let api = fake_api();
    let mut stream = pin!(watcher(requests(&api), watcher::Config::default()));
    says!(stream, "init", "init done");
    create(&api, "a", "one").await;
    says!(stream, "apply a");
    api.go_down();
    says!(stream, "not started", "not started");
    api.refuse_all(503);
    says!(stream, "not started");
    api.come_back();
    create(&api, "b", "one").await;
    says!(stream, "apply b");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_late_what_was_held() {
    let api = fake_api();
    let mut stream = pin!(watcher(requests(&api), watcher::Config::default().page_size(1)));
    create(&api, "a", "one").await;
    create(&api, "b", "one").await;
    says!(stream, "init", "init a", "init b", "init done");
    create(&api, "c", "one").await;
    says!(stream, "apply c");
    api.hold_events();
    api.delete::<VolumeRequest>("a");
    assert!(tokio::time::timeout(Duration::from_secs(1), stream.next()).await.is_err());
    api.release_events();
    says!(stream, "delete a");
}
