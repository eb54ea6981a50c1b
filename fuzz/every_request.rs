//! Any bytes as any request: shared by the fuzz target and by the test that runs its corpus.

use std::path::Path;

use pliant::csi::parse::{
    Defaults, Enlargement, Expansion, ParseError, StatsArgs, Unpublish, Unstage, Validation,
    capacity_query, new_volume, page_of_health, page_of_volumes, publish, removed, stage,
};
use pliant::csi::pb;
use pliant::volume::{Access, NewVolume, Publish, Stage, VolumeId};
use prost::Message;

/// Parse bytes as the request that the first of them picks; what is taken must be harmless.
///
/// Says whether it was taken.
pub fn parse(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else {
        return false;
    };
    let or = Defaults::default();
    match kind % 12 {
        0 => taken(bytes, |r| new_volume(&r, &or)).inspect(check_volume).is_some(),
        1 => taken(bytes, |r| removed(&r)).inspect(|id| id.iter().for_each(harmless)).is_some(),
        2 => taken(bytes, |r: pb::ListVolumesRequest| page_of_volumes(&r)).is_some(),
        3 => taken(bytes, |r| page_of_health(&r)).is_some(),
        4 => taken(bytes, |r| capacity_query(&r, &or)).is_some(),
        5 => taken(bytes, |r| Enlargement::parse(&r)).inspect(|e| harmless(&e.id)).is_some(),
        6 => taken(bytes, |r| Validation::parse(r, &or)).inspect(|v| harmless(&v.id)).is_some(),
        7 => taken(bytes, |r| stage(&r)).inspect(check_stage).is_some(),
        8 => taken(bytes, |r| publish(&r)).inspect(check_publish).is_some(),
        9 => taken(bytes, |r| Unstage::parse(&r)).inspect(|u| path(&u.staging)).is_some(),
        10 => taken(bytes, |r| Unpublish::parse(&r)).inspect(|u| path(&u.target)).is_some(),
        _ => {
            taken(bytes, |r| StatsArgs::parse(&r)).is_some()
                || taken(bytes, |r| Expansion::parse(&r)).is_some()
        }
    }
}

fn taken<R: Message + Default, T>(
    bytes: &[u8],
    parse: impl FnOnce(R) -> Result<T, ParseError>,
) -> Option<T> {
    parse(R::decode(bytes).ok()?).ok()
}

fn check_volume(volume: &NewVolume) {
    assert!((1..=128).contains(&volume.name.chars().count()));
    assert!(volume.size.at_most.is_none_or(|most| volume.size.at_least <= most));
    for pair in volume.class.mkfs_options.words().chunks(2) {
        assert!(pair[0].starts_with('-') && !pair[1].starts_with('-') && !pair[1].contains('/'));
    }
}

fn harmless(id: &VolumeId) {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let text = id.to_string();
    assert!(text.bytes().all(plain) && !text.starts_with('-'));
}

fn check_stage(stage: &Stage) {
    harmless(&stage.id);
    path(&stage.staging);
    access(&stage.access);
}

fn check_publish(publish: &Publish) {
    harmless(&publish.id);
    path(&publish.staging);
    path(&publish.target);
    access(&publish.access);
}

fn path(path: &Path) {
    assert!(path.is_absolute() && !path.components().any(|part| part.as_os_str() == ".."));
}

fn access(access: &Access) {
    if let Access::Mount { options, .. } = access {
        assert!(options.iter().all(|option| !option.contains([',', '/', '\n'])));
    }
}
