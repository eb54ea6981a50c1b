//! Requests about snapshots.

use crate::parse::page::most_of;
use crate::parse::{ParseError, bounded, id, name};
use crate::pb;
use crate::volume::{NewSnapshot, SnapshotId, SnapshotPage, Source};

/// The parameters that the snapshotter adds with `--extra-create-metadata`.
const METADATA: &str = "csi.storage.k8s.io/";

/// Parses the snapshot that `CreateSnapshot` asks for.
///
/// # Errors
/// [`ParseError`]; a parameter besides `method: Copy` is unknown.
pub fn new_snapshot(request: &pb::CreateSnapshotRequest) -> Result<NewSnapshot, ParseError> {
    let name = name(&request.name)?;
    if request.source_volume_id.is_empty() {
        return Err(ParseError::missing("source_volume_id"));
    }
    let source = id(&request.source_volume_id)?;
    let parameters = bounded("parameters", &request.parameters)?;
    for (key, value) in parameters.iter().filter(|(key, _)| !key.starts_with(METADATA)) {
        let reason = match (key.as_str(), value.as_str()) {
            ("method", "Copy") => continue,
            ("method", _) => "not supported; the only method is Copy",
            _ => "unknown; the parameter of a VolumeSnapshotClass is method",
        };
        return Err(ParseError::invalid(format!("parameters[{key:?}]"), reason));
    }
    Ok(NewSnapshot { name, source })
}

/// Parses the id of the snapshot that `DeleteSnapshot` names; `None` if no snapshot can have it, which is the same as
/// already gone.
pub fn removed_snapshot(
    request: &pb::DeleteSnapshotRequest,
) -> Result<Option<SnapshotId>, ParseError> {
    if request.snapshot_id.is_empty() {
        return Err(ParseError::missing("snapshot_id"));
    }
    Ok(request.snapshot_id.parse().ok())
}

/// Parses the id of a snapshot that must be there.
pub fn held_snapshot(snapshot_id: &str) -> Result<SnapshotId, ParseError> {
    if snapshot_id.is_empty() {
        return Err(ParseError::missing("snapshot_id"));
    }
    snapshot_id.parse().map_err(|_| foreign_snapshot(snapshot_id))
}

/// What `ListSnapshots` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedSnapshots {
    /// This one, if it is there.
    One(SnapshotId),
    /// One page of those of a volume, or of all.
    Page(SnapshotPage),
    /// What no snapshot can match.
    None,
}

/// Parses what `ListSnapshots` asks for. An id that is not of this driver is no error there: nothing has it.
pub fn wanted_snapshots(request: &pb::ListSnapshotsRequest) -> Result<WantedSnapshots, ParseError> {
    let most = most_of(request.max_entries)?;
    if !request.snapshot_id.is_empty() {
        return Ok(request.snapshot_id.parse().map_or(WantedSnapshots::None, WantedSnapshots::One));
    }
    let after = Some(&request.starting_token).filter(|token| !token.is_empty());
    let after = after.map(|token| token.parse().map_err(|_| ParseError::Token)).transpose()?;
    let source = Some(&request.source_volume_id).filter(|id| !id.is_empty());
    match source.map(|id| id.parse()).transpose() {
        Ok(source) => Ok(WantedSnapshots::Page(SnapshotPage { after, most, source })),
        Err(_) => Ok(WantedSnapshots::None),
    }
}

/// Parses what a new volume begins with.
pub(super) fn source(
    given: Option<&pb::VolumeContentSource>,
) -> Result<Option<Source>, ParseError> {
    use pb::volume_content_source::Type;
    let Some(given) = given else { return Ok(None) };
    match &given.r#type {
        Some(Type::Snapshot(one)) => held_snapshot(&one.snapshot_id).map(Source::Snapshot),
        Some(Type::Volume(one)) => id(&one.volume_id).map(Source::Volume),
        None => {
            let reason = "names neither a snapshot nor a volume";
            return Err(ParseError::invalid("volume_content_source", reason));
        }
    }
    .map(Some)
}

fn foreign_snapshot(id: &str) -> ParseError {
    ParseError::ForeignSnapshot { id: id.chars().take(64).collect() }
}
