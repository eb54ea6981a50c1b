//! Snapshots over the socket, and volumes that begin with the content of one.

use pliant::bytes::Bytes;
use pliant::csi::pb;
use pliant::volume::{NewSnapshot, SnapshotId};
use tonic::Code;

use crate::driver::{Driver, code, create, described, id_of};

fn snapshot_of(volume: &str, name: &str) -> pb::CreateSnapshotRequest {
    pb::CreateSnapshotRequest {
        source_volume_id: id_of(volume).to_string(),
        name: name.to_owned(),
        ..Default::default()
    }
}

fn snapshot_id(volume: &str, name: &str) -> SnapshotId {
    NewSnapshot { name: name.to_owned(), source: id_of(volume) }.id()
}

fn list(source: &str, most: i32, token: &str) -> pb::ListSnapshotsRequest {
    pb::ListSnapshotsRequest {
        source_volume_id: source.to_owned(),
        max_entries: most,
        starting_token: token.to_owned(),
        ..Default::default()
    }
}

fn ids(listed: &pb::ListSnapshotsResponse) -> Vec<&str> {
    let entries = listed.entries.iter().filter_map(|entry| entry.snapshot.as_ref());
    entries.map(|snapshot| snapshot.snapshot_id.as_str()).collect()
}

#[tokio::test]
async fn a_snapshot_is_taken_found_and_deleted() {
    let mut driver = Driver::start().await;
    driver.behind.put("db", Bytes::gib(1), vec![]);
    let client = &mut driver.controller;
    let expected = pb::Snapshot {
        size_bytes: 1 << 30,
        snapshot_id: snapshot_id("db", "one").to_string(),
        source_volume_id: id_of("db").to_string(),
        creation_time: Some(prost_types::Timestamp { seconds: 7, nanos: 8 }),
        ready_to_use: true,
        ..Default::default()
    };
    for _again in 0..2 {
        let metadata = ("csi.storage.k8s.io/volumesnapshot/name".to_owned(), "x".to_owned());
        let copy = ("method".to_owned(), "Copy".to_owned());
        let parameters = [metadata, copy].into();
        let request = pb::CreateSnapshotRequest { parameters, ..snapshot_of("db", "one") };
        let taken = client.create_snapshot(request).await.unwrap().into_inner();
        assert_eq!(taken.snapshot, Some(expected.clone()));
    }
    let snapshot_id = expected.snapshot_id.clone();
    let get = pb::GetSnapshotRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
    let found = client.get_snapshot(get.clone()).await.unwrap().into_inner();
    assert_eq!(found.snapshot, Some(expected));
    for _again in 0..2 {
        let gone =
            pb::DeleteSnapshotRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
        assert_eq!(code(client.delete_snapshot(gone).await), Code::Ok);
    }
    assert_eq!(code(client.get_snapshot(get).await), Code::NotFound);
}

#[tokio::test]
async fn snapshots_are_listed_in_pages_by_volume_and_by_id() {
    let mut driver = Driver::start().await;
    let client = &mut driver.controller;
    for (volume, name) in [("a", "1"), ("a", "2"), ("b", "3")] {
        driver.behind.put(volume, Bytes::gib(1), vec![]);
        client.create_snapshot(snapshot_of(volume, name)).await.unwrap();
    }
    let all = client.list_snapshots(list("", 0, "")).await.unwrap().into_inner();
    assert_eq!((ids(&all).len(), all.next_token.as_str()), (3, ""));
    let first = client.list_snapshots(list("", 2, "")).await.unwrap().into_inner();
    let rest = client.list_snapshots(list("", 0, &first.next_token)).await.unwrap().into_inner();
    assert_eq!([ids(&first), ids(&rest)].concat(), ids(&all));
    let of_a = id_of("a").to_string();
    let of_a = client.list_snapshots(list(&of_a, 0, "")).await.unwrap().into_inner();
    assert_eq!(ids(&of_a).len(), 2);
    let by_id =
        |id: &str| pb::ListSnapshotsRequest { snapshot_id: id.to_owned(), ..list("", 0, "") };
    let one = snapshot_id("b", "3").to_string();
    let found = client.list_snapshots(by_id(&one)).await.unwrap().into_inner();
    assert_eq!(ids(&found), [one.as_str()]);
    for nothing in [by_id(&snapshot_id("b", "4").to_string()), by_id("x"), list("x", 0, "")] {
        let listed = client.list_snapshots(nothing).await.unwrap().into_inner();
        assert_eq!(ids(&listed), [""; 0]);
    }
    assert_eq!(code(client.list_snapshots(list("", 0, "x")).await), Code::Aborted);
    assert_eq!(code(client.list_snapshots(list("", -1, "")).await), Code::InvalidArgument);
}

#[tokio::test]
async fn a_volume_says_what_it_began_with() {
    use pb::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let mut driver = Driver::start().await;
    let client = &mut driver.controller;
    let snapshot_id = snapshot_id("db", "one").to_string();
    let volume_id = id_of("db").to_string();
    for source in [
        Type::Snapshot(SnapshotSource { snapshot_id: snapshot_id.clone() }),
        Type::Volume(VolumeSource { volume_id: volume_id.clone() }),
    ] {
        let volume_content_source = Some(pb::VolumeContentSource { r#type: Some(source) });
        let request = pb::CreateVolumeRequest {
            volume_content_source: volume_content_source.clone(),
            ..create("copy")
        };
        let made = client.create_volume(request).await.unwrap().into_inner();
        let expected =
            pb::Volume { content_source: volume_content_source, ..described("copy", 1 << 30) };
        assert_eq!(made.volume, Some(expected));
    }
    for (source, expected) in [
        (None, Code::InvalidArgument),
        (
            Some(Type::Snapshot(SnapshotSource { snapshot_id: String::new() })),
            Code::InvalidArgument,
        ),
        (Some(Type::Snapshot(SnapshotSource { snapshot_id: volume_id })), Code::NotFound),
        (Some(Type::Volume(VolumeSource { volume_id: snapshot_id })), Code::NotFound),
    ] {
        let volume_content_source = Some(pb::VolumeContentSource { r#type: source });
        let request = pb::CreateVolumeRequest { volume_content_source, ..create("copy") };
        assert_eq!(code(client.create_volume(request).await), expected);
    }
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_is_refused() {
    let mut driver = Driver::start().await;
    let client = &mut driver.controller;
    let with = |key: &str, value: &str| pb::CreateSnapshotRequest {
        parameters: [(key.to_owned(), value.to_owned())].into(),
        ..snapshot_of("db", "one")
    };
    let of = |source: &str| pb::CreateSnapshotRequest {
        source_volume_id: source.to_owned(),
        ..snapshot_of("db", "one")
    };
    for (request, expected) in [
        (snapshot_of("db", ""), Code::InvalidArgument),
        (of(""), Code::InvalidArgument),
        (of("x"), Code::NotFound),
        (snapshot_of("missing", "one"), Code::NotFound),
        (with("method", "Cow"), Code::InvalidArgument),
        (with("freeze", "None"), Code::InvalidArgument),
    ] {
        let asked = format!("{:?} of {:?}", request.parameters, request.source_volume_id);
        assert_eq!(code(client.create_snapshot(request).await), expected, "{asked}");
    }
    let gone =
        |id: &str| pb::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
    assert_eq!(code(client.delete_snapshot(gone("")).await), Code::InvalidArgument);
    assert_eq!(code(client.delete_snapshot(gone("x")).await), Code::Ok);
    let get =
        |id: &str| pb::GetSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
    assert_eq!(code(client.get_snapshot(get("")).await), Code::InvalidArgument);
    assert_eq!(code(client.get_snapshot(get("x")).await), Code::NotFound);
}
