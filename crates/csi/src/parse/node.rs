//! Requests of the Node service. Missing or malformed fields are reported before volumes that do
//! not exist.

use std::path::PathBuf;

use crate::parse::volume::is_block;
use crate::parse::{Capability, ParseError, id, path, size};
use crate::pb;
use crate::volume::{Growth, VolumeId};
use crate::volume::{Publish, Stage};

/// Parses what `NodeStageVolume` asks for.
pub fn stage(request: &pb::NodeStageVolumeRequest) -> Result<Stage, ParseError> {
    let staging = path("staging_target_path", &request.staging_target_path)?;
    let capability = Capability::required(request.volume_capability.as_ref())?;
    let id = id(&request.volume_id)?;
    Ok(Stage { id, staging, access: capability.access, read_only: capability.read_only })
}

/// Parses what `NodePublishVolume` asks for; the volume must have been staged.
pub fn publish(request: &pb::NodePublishVolumeRequest) -> Result<Publish, ParseError> {
    let target = path("target_path", &request.target_path)?;
    let capability = Capability::required(request.volume_capability.as_ref())?;
    let id = id(&request.volume_id)?;
    if request.staging_target_path.is_empty() {
        return Err(ParseError::Unstaged);
    }
    Ok(Publish {
        id,
        staging: path("staging_target_path", &request.staging_target_path)?,
        target,
        access: capability.access,
        read_only: request.readonly || capability.read_only,
        alone: capability.alone,
    })
}

/// Arguments of `NodeUnstageVolume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unstage {
    /// The volume.
    pub id: VolumeId,
    /// Staging path.
    pub staging: PathBuf,
}

impl Unstage {
    /// Parses the request.
    pub fn parse(request: &pb::NodeUnstageVolumeRequest) -> Result<Self, ParseError> {
        Ok(Unstage {
            staging: path("staging_target_path", &request.staging_target_path)?,
            id: id(&request.volume_id)?,
        })
    }
}

/// Arguments of `NodeUnpublishVolume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpublish {
    /// The volume.
    pub id: VolumeId,
    /// Target path.
    pub target: PathBuf,
}

impl Unpublish {
    /// Parses the request.
    pub fn parse(request: &pb::NodeUnpublishVolumeRequest) -> Result<Self, ParseError> {
        Ok(Unpublish {
            target: path("target_path", &request.target_path)?,
            id: id(&request.volume_id)?,
        })
    }
}

/// Arguments of `NodeGetVolumeStats`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsArgs {
    /// The volume.
    pub id: VolumeId,
    /// Staging or target path.
    pub path: PathBuf,
}

impl StatsArgs {
    /// Parses the request.
    pub fn parse(request: &pb::NodeGetVolumeStatsRequest) -> Result<Self, ParseError> {
        let (id, path) = published(&request.volume_id, &request.volume_path)?;
        Ok(StatsArgs { id, path })
    }
}

/// Arguments of `NodeExpandVolume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// The volume.
    pub id: VolumeId,
    /// Staging or target path.
    pub path: PathBuf,
    /// Requested size; `None`: the size of its device.
    pub growth: Option<Growth>,
}

impl Expansion {
    /// Parses the request; capacity range and capability may be missing.
    pub fn parse(request: &pb::NodeExpandVolumeRequest) -> Result<Self, ParseError> {
        let (id, path) = published(&request.volume_id, &request.volume_path)?;
        let block = is_block(request.volume_capability.as_ref())?;
        let range = request.capacity_range;
        let range = range.filter(|range| *range != pb::CapacityRange::default());
        let size = range.map(|range| size::stated(Some(range))).transpose()?;
        Ok(Expansion { id, path, growth: size.map(|size| Growth { size, block }) })
    }
}

/// Parses a volume and the path where it is said to be. Where nothing can be published, nothing is.
fn published(volume: &str, at: &str) -> Result<(VolumeId, PathBuf), ParseError> {
    if volume.is_empty() {
        return Err(ParseError::missing("volume_id"));
    }
    let path = path("volume_path", at).map_err(|error| match at {
        "" => error,
        _ => ParseError::Nowhere { reason: error.to_string() },
    })?;
    Ok((id(volume)?, path))
}
