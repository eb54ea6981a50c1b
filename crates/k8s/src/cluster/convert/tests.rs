use super::*;
use crate::bytes::Bytes;
use crate::volume::{NodeKey, State, VolumeId, VolumeKey};

#[test]
fn a_volume_that_was_written_is_read_again() {
    let want = NewVolume {
        name: "pvc-1".to_owned(),
        size: RequestedSize { at_least: Bytes::gib(2), at_most: Some(Bytes::gib(3)) },
        mode: Mode::Filesystem(FsKind::Xfs),
        class: Class { pool: Some("fast".parse().unwrap()), ..Class::default() },
        nodes: vec!["alpha".to_owned()],
        source: None,
    };
    let Operation::Create(record) = create(&want) else { panic!("no creation") };
    assert_eq!(new_volume("alpha", &record).unwrap(), want);
    let volume = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-0"));
    let snapshot = SnapshotId::new(volume.clone(), VolumeKey::of("snapshot-0"));
    for source in [Source::Volume(volume), Source::Snapshot(snapshot)] {
        let want = NewVolume { source: Some(source), ..want.clone() };
        let Operation::Restore(record) = create(&want) else { panic!("no restore") };
        assert_eq!(restored_volume("alpha", &record).unwrap(), want);
    }
    let growth = Growth { size: want.size, block: Some(false) };
    let Operation::Expand(record) = expand(growth) else { panic!("no growth") };
    assert_eq!(Growth::from(&record), growth);
}

#[test]
fn a_listed_volume_is_read_again() {
    let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"));
    let ailing = |severity, reason| VolumeCondition { severity, reason, message: "why".to_owned() };
    for (state, mode) in [
        (State::Creating, Mode::Block),
        (State::Resized, Mode::Filesystem(FsKind::Btrfs)),
        (State::Deleting { wiped: Bytes::ZERO }, Mode::Block),
    ] {
        let status = VolumeStatus {
            volume: Volume {
                id: id.clone(),
                name: "pvc-1".to_owned(),
                pool: "fast".parse().unwrap(),
                node: "alpha".to_owned(),
                size: Bytes::gib(4),
                requested: Bytes::gib(3),
                mode,
            },
            state,
            published: false,
            fence: Fence { generation: 3, standing: Standing::Superseded, copying: true },
            limit: Some(Bytes::gib(3)),
            ailments: vec![
                ailing(Severity::DataLoss, "DiskMissing"),
                ailing(Severity::Degraded, "VolumeSuspended"),
            ],
        };
        assert_eq!(volume_status("alpha", &volume_on_node(&status)).unwrap(), status);
    }
}

#[test]
fn what_a_look_saw_is_read_again_and_what_it_did_not_see_is_no_zero() {
    let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"));
    let (pool, node) = ("fast".parse().unwrap(), "alpha".to_owned());
    let (size, requested) = (Bytes::gib(4), Bytes::gib(3));
    let (name, mode) = ("pvc-1".to_owned(), Mode::Filesystem(FsKind::Xfs));
    let volume = Volume { id, name, pool, node, size, requested, mode };
    let (state, fence, limit, ailments) = (State::Ready, Fence::default(), None, Vec::new());
    let status = VolumeStatus { volume, state, published: true, fence, limit, ailments };
    let usage = FsUsage {
        total: Bytes::gib(4),
        used: Bytes::gib(1),
        available: Bytes::gib(3),
        inodes: 100,
        inodes_free: 90,
    };
    let whole =
        Inspection { status, open_count: 1, usage: Some(usage), smallest: Some(Bytes::gib(4)) };
    let uncounted = FsUsage { inodes: 0, inodes_free: 0, ..usage };
    let btrfs = Inspection { usage: Some(uncounted), smallest: None, ..whole.clone() };
    let not_in_use = Inspection { usage: None, open_count: 0, ..whole.clone() };
    for seen in [Some(whole), Some(btrfs), Some(not_in_use), None] {
        let inspection = Some(Box::new(inspection_status(seen.as_ref())));
        let done = VolumeRequestStatus { inspection, ..Default::default() };
        assert_eq!(super::inspection("alpha", &done).unwrap(), seen);
        let mut done = done;
        let Some(told) = done.inspection.as_mut().filter(|told| told.volume.is_some()) else {
            continue;
        };
        told.open_count = None;
        assert_eq!(super::inspection("alpha", &done).unwrap_err().reason(), Reason::Failed);
    }
    let older = VolumeRequestStatus::default();
    assert_eq!(super::inspection("alpha", &older).unwrap_err().reason(), Reason::Failed);
}

#[test]
fn a_failure_keeps_its_reason_and_its_sentence() {
    let error = VolumeError::PreconditionFailed { reason: "it is mounted elsewhere".to_owned() };
    let failure = Failure::from(&error);
    assert_eq!(failure.reason, "PreconditionFailed");
    let told = VolumeError::from(&failure);
    assert_eq!((told.reason(), told.to_string()), (Reason::PreconditionFailed, error.to_string()));
    let long = VolumeError::Failed { what: "\u{e4}".repeat(LONGEST_MESSAGE + 1) };
    assert_eq!(Failure::from(&long).message.chars().count(), LONGEST_MESSAGE);
    let newer = Failure { reason: "Frobnicated".to_owned(), message: "x".to_owned() };
    assert_eq!(VolumeError::from(&newer).reason(), Reason::Failed);
}

/// What a node answers that has done its work.
fn answer(size: Bytes) -> VolumeRequestStatus {
    let (size, node_expansion_required) = (Some(Quantity(size)), Some(false));
    VolumeRequestStatus { size, node_expansion_required, ..VolumeRequestStatus::default() }
}

#[test]
fn a_growth_ends_within_what_was_asked_or_it_has_failed() {
    let (least, most) = (Bytes::gib(2), Bytes::gib(3));
    let growth = |at_most| Growth { size: RequestedSize { at_least: least, at_most }, block: None };
    for (at_most, size, is_taken) in [
        (None, least, true),
        (None, Bytes::gib(9), true),
        (None, Bytes::new(least.get() - 1), false),
        (None, Bytes::ZERO, false),
        (None, Bytes::new(u64::MAX), false),
        (Some(most), most, true),
        (Some(most), Bytes::new(most.get() + 1), false),
    ] {
        match grown(growth(at_most), &answer(size)) {
            Ok(grown) => assert!(is_taken && grown.size == size, "{size}: {grown:?}"),
            Err(error) => {
                assert!(!is_taken && error.reason() == Reason::Failed, "{size}: {error}");
                assert!(error.to_string().contains("to 2 GiB or more"), "{error}");
            }
        }
    }
    let silent = VolumeRequestStatus::default();
    assert_eq!(grown(growth(None), &silent).unwrap_err().reason(), Reason::Failed);
}
