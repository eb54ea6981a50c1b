//! Conversions between the types of volumes and those of the API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::api::{
    ContentPeer, ContentSource, Create, Delete, DeleteSnapshot, Expand, Failure, FenceState,
    FenceStatus, FsType, Inspect, InspectionStatus, Operation, Quantity, Restore, SendContent,
    ShrinkTo, SnapshotOnNode, TakeSnapshot, Unpin, UsageStatus, VolumeHealthStatus, VolumeMode,
    VolumeOnNode, VolumeRequestStatus, VolumeState,
};
use crate::bytes::Bytes;
use crate::volume::{
    Class, Fence, ForeignId, FsKind, FsUsage, Grown, Growth, Inspection, Mode, NewSnapshot,
    NewVolume, Reason, RequestedSize, Severity, Snapshot, SnapshotId, Source, Standing, State,
    Volume, VolumeCondition, VolumeError, VolumeId, VolumeStatus,
};

pub(super) fn create(want: &NewVolume) -> Operation {
    let (volume_mode, fs_type) = fields_of(want.mode);
    let volume = Create {
        name: want.name.clone(),
        min_size: Quantity(want.size.at_least),
        max_size: want.size.at_most.map(Quantity),
        volume_mode,
        fs_type,
        parameters: want.class.parameters(),
    };
    match &want.source {
        None => Operation::Create(volume),
        Some(source) => {
            let source = content_source(source);
            Operation::Restore(Box::new(Restore { volume, source, from: None }))
        }
    }
}

/// As [`create`], with the content of another node.
pub(super) fn receive(want: &NewVolume, from: ContentPeer) -> Operation {
    match create(want) {
        Operation::Restore(restore) => {
            Operation::Restore(Box::new(Restore { from: Some(from), ..*restore }))
        }
        other => other, // There is nothing to receive.
    }
}

/// Lets the node plugin with this fingerprint read what a volume of its node begins with.
pub(super) fn send(
    want: &NewVolume,
    source: &Source,
    target: &VolumeId,
    fingerprint: &str,
) -> Operation {
    let (volume_mode, fs_type) = fields_of(want.mode);
    Operation::Send(Box::new(SendContent {
        snapshot_handle: content_source(source).snapshot_handle,
        target_handle: target.to_string(),
        certificate_fingerprint: fingerprint.to_owned(),
        volume_mode,
        fs_type,
    }))
}

/// Converts the source, the receiver and its volume mode of a request to send.
///
/// # Errors
/// [`VolumeError::InvalidArgument`] for what this version does not know.
pub fn sent(id: &VolumeId, send: &SendContent) -> Result<(Source, VolumeId, Mode), VolumeError> {
    let invalid =
        |field: &str, reason| VolumeError::InvalidArgument { field: field.to_owned(), reason };
    let foreign = |field: &'static str| move |error: ForeignId| invalid(field, error.to_string());
    let source = match &send.snapshot_handle {
        None => Source::Volume(id.clone()),
        Some(text) => text.parse().map(Source::Snapshot).map_err(foreign("snapshotHandle"))?,
    };
    if source.volume() != id {
        return Err(invalid("snapshotHandle", format!("{source} is not a snapshot of {id}")));
    }
    let target = send.target_handle.parse().map_err(foreign("targetHandle"))?;
    let mode = mode_of(send.volume_mode, send.fs_type);
    Ok((source, target, mode.map_err(|reason| invalid("volumeMode", reason))?))
}

fn content_source(source: &Source) -> ContentSource {
    let (snapshot_handle, volume_handle) = match source {
        Source::Snapshot(id) => (Some(id.to_string()), None),
        Source::Volume(id) => (None, Some(id.to_string())),
    };
    ContentSource { snapshot_handle, volume_handle }
}

/// Converts the source of a new volume.
///
/// # Errors
/// Reason why it is not the source of one.
fn source_of(told: &ContentSource) -> Result<Source, String> {
    let foreign = |error: ForeignId| error.to_string();
    match (&told.snapshot_handle, &told.volume_handle) {
        (Some(id), None) => id.parse().map(Source::Snapshot).map_err(foreign),
        (None, Some(id)) => id.parse().map(Source::Volume).map_err(foreign),
        _ => Err("exactly one of snapshotHandle and volumeHandle is to be set".to_owned()),
    }
}

pub(super) fn snapshot(want: &NewSnapshot) -> Operation {
    Operation::Snapshot(TakeSnapshot { name: want.name.clone() })
}

pub(super) fn delete_snapshot(id: &SnapshotId) -> Operation {
    Operation::DeleteSnapshot(DeleteSnapshot { snapshot_handle: id.to_string() })
}

/// Converts a snapshot for the NodeStorage of its node.
pub fn snapshot_on_node(snapshot: &Snapshot) -> SnapshotOnNode {
    let (volume_mode, fs_type) = fields_of(snapshot.mode);
    SnapshotOnNode {
        snapshot_handle: snapshot.id.to_string(),
        name: snapshot.name.clone(),
        pool: snapshot.pool.to_string(),
        size: Quantity(snapshot.size),
        restore_size: Quantity(snapshot.restore_size),
        volume_mode,
        fs_type,
        creation_time: Time(Timestamp::try_from(snapshot.taken).unwrap_or_default()),
        ready_to_use: snapshot.ready,
    }
}

/// Converts a snapshot from the NodeStorage of its node.
///
/// # Errors
/// [`VolumeError::Unavailable`] for an entry that this version does not understand.
pub(super) fn snapshot_told(node: &str, told: &SnapshotOnNode) -> Result<Snapshot, VolumeError> {
    let parsed = || -> Result<Snapshot, String> {
        Ok(Snapshot {
            id: told.snapshot_handle.parse().map_err(|error: ForeignId| error.to_string())?,
            name: told.name.clone(),
            node: node.to_owned(),
            pool: told.pool.parse()?,
            size: told.size.0,
            restore_size: told.restore_size.0,
            mode: mode_of(told.volume_mode, told.fs_type)?,
            taken: told.creation_time.0.into(),
            ready: told.ready_to_use,
        })
    };
    parsed().map_err(|reason| VolumeError::Unavailable {
        reason: format!(
            "the NodeStorage of node {node} has snapshot {} with {reason}",
            told.snapshot_handle
        ),
    })
}

pub(super) fn expand(growth: Growth) -> Operation {
    Operation::Expand(Expand {
        min_size: Quantity(growth.size.at_least),
        max_size: growth.size.at_most.map(Quantity),
        volume_mode: growth
            .block
            .map(|is_block| if is_block { VolumeMode::Block } else { VolumeMode::Filesystem }),
    })
}

pub(super) fn shrink(to: Bytes) -> Operation {
    Operation::Shrink(ShrinkTo { size: Quantity(to) })
}

pub(super) fn unpin() -> Operation {
    Operation::Unpin(Unpin {})
}

pub(super) fn delete() -> Operation {
    Operation::Delete(Delete {})
}

pub(super) fn fence(fence: Fence) -> Operation {
    Operation::Fence(FenceStatus::from(fence))
}

impl From<Fence> for FenceStatus {
    fn from(fence: Fence) -> FenceStatus {
        FenceStatus {
            state: match fence.standing {
                Standing::HalfCopied => FenceState::Incomplete,
                Standing::Active => FenceState::Active,
                Standing::Superseded => FenceState::Superseded,
            },
            generation: fence.generation,
            copy_in_progress: fence.copying,
        }
    }
}

impl From<&FenceStatus> for Fence {
    fn from(told: &FenceStatus) -> Fence {
        Fence {
            standing: match told.state {
                FenceState::Incomplete => Standing::HalfCopied,
                FenceState::Active => Standing::Active,
                // Unknown rights admit no one.
                FenceState::Superseded | FenceState::Unknown => Standing::Superseded,
            },
            generation: told.generation,
            copying: told.copy_in_progress,
        }
    }
}

pub(super) fn inspect(wait_until_unused: bool) -> Operation {
    Operation::Inspect(Inspect { wait_until_unused })
}

/// Converts a request into the volume to create on this node.
///
/// # Errors
/// [`VolumeError::InvalidArgument`] for fields that this version does not know: another one wrote it.
pub fn new_volume(node: &str, create: &Create) -> Result<NewVolume, VolumeError> {
    let invalid =
        |field: &str, reason| VolumeError::InvalidArgument { field: field.to_owned(), reason };
    let mode = mode_of(create.volume_mode, create.fs_type);
    let mode = mode.map_err(|reason| invalid("volumeMode", reason))?;
    let fs = match mode {
        Mode::Filesystem(kind) => kind,
        Mode::Block => FsKind::Ext4, // Whatever: a block volume has no options for making one.
    };
    let class = Class::parse(&create.parameters, Some(fs), fs);
    Ok(NewVolume {
        name: create.name.clone(),
        size: wanted(create.min_size, create.max_size),
        mode,
        class: class.map_err(|error| invalid("parameters", error.to_string()))?,
        nodes: vec![node.to_owned()],
        source: None,
    })
}

/// Converts a request into the volume to create with content on this node.
///
/// # Errors
/// As [`new_volume`].
pub fn restored_volume(node: &str, restore: &Restore) -> Result<NewVolume, VolumeError> {
    let source = source_of(&restore.source)
        .map_err(|reason| VolumeError::InvalidArgument { field: "source".to_owned(), reason })?;
    Ok(NewVolume { source: Some(source), ..new_volume(node, &restore.volume)? })
}

impl From<&Expand> for Growth {
    fn from(expand: &Expand) -> Growth {
        let block = match expand.volume_mode {
            Some(VolumeMode::Block) => Some(true),
            Some(VolumeMode::Filesystem) => Some(false),
            Some(VolumeMode::Unknown) | None => None,
        };
        Growth { size: wanted(expand.min_size, expand.max_size), block }
    }
}

/// Converts a volume mode into the fields of the API: volume mode and file system.
fn fields_of(mode: Mode) -> (VolumeMode, Option<FsType>) {
    match mode {
        Mode::Block => (VolumeMode::Block, None),
        Mode::Filesystem(kind) => (VolumeMode::Filesystem, Some(kind.into())),
    }
}

/// Converts the fields of the API into a volume mode.
///
/// # Errors
/// Reason why it is unknown: another version wrote them.
pub fn mode_of(volume_mode: VolumeMode, fs_type: Option<FsType>) -> Result<Mode, String> {
    match (volume_mode, fs_type) {
        (VolumeMode::Block, _) => Ok(Mode::Block),
        (VolumeMode::Filesystem, Some(kind)) => kind_of(kind).map(Mode::Filesystem),
        (VolumeMode::Filesystem, None) => Err("fsType is missing".to_owned()),
        (VolumeMode::Unknown, _) => Err("this version does not know the volume mode".to_owned()),
    }
}

impl From<FsKind> for FsType {
    fn from(kind: FsKind) -> FsType {
        match kind {
            FsKind::Ext2 => FsType::Ext2,
            FsKind::Ext3 => FsType::Ext3,
            FsKind::Ext4 => FsType::Ext4,
            FsKind::Xfs => FsType::Xfs,
            FsKind::Btrfs => FsType::Btrfs,
        }
    }
}

fn kind_of(fs_type: FsType) -> Result<FsKind, String> {
    match fs_type {
        FsType::Ext2 => Ok(FsKind::Ext2),
        FsType::Ext3 => Ok(FsKind::Ext3),
        FsType::Ext4 => Ok(FsKind::Ext4),
        FsType::Xfs => Ok(FsKind::Xfs),
        FsType::Btrfs => Ok(FsKind::Btrfs),
        FsType::Unknown => Err("this version does not know the file system".to_owned()),
    }
}

fn wanted(at_least: Quantity, at_most: Option<Quantity>) -> RequestedSize {
    RequestedSize { at_least: at_least.0, at_most: at_most.map(|most| most.0) }
}

/// Converts the outcome of an expansion: a size outside the requested range is rejected, as it becomes
/// that of the PersistentVolume.
///
/// # Errors
/// [`VolumeError::Failed`] if the node did not report a size, or one that was not requested.
pub(super) fn grown(growth: Growth, done: &VolumeRequestStatus) -> Result<Grown, VolumeError> {
    let (Some(Quantity(size)), Some(node_expansion_required)) =
        (done.size, done.node_expansion_required)
    else {
        return Err(VolumeError::Failed {
            what: "the node expanded the volume without reporting its size; its node plugin is of another \
                   version"
                .to_owned(),
        });
    };
    let RequestedSize { at_least, at_most } = growth.size;
    let is_more = at_most.is_some_and(|most| size > most) || i64::try_from(size.get()).is_err();
    if size < at_least || is_more {
        let bound = at_most.map_or_else(String::new, |most| format!(" and {most} or less"));
        return Err(VolumeError::Failed {
            what: format!(
                "the node reports a size of {size} after an expansion to {at_least} or more{bound}: see \
                 `kubectl get nodestorages` and the log of its node plugin"
            ),
        });
    }
    Ok(Grown { size, node_expansion_required })
}

/// Converts the outcome of a shrink: less than requested if it had less before.
///
/// # Errors
/// [`VolumeError::Failed`] if the node did not report it.
pub(super) fn shrunk(done: &VolumeRequestStatus) -> Result<Bytes, VolumeError> {
    done.size.map(|size| size.0).ok_or_else(|| VolumeError::Failed {
        what:
            "the node shrank the volume without reporting its size; its node plugin is of another version"
                .to_owned(),
    })
}

/// Converts an inspection for a status; `None`: the volume does not exist.
pub fn inspection_status(seen: Option<&Inspection>) -> InspectionStatus {
    InspectionStatus {
        volume: seen.map(|seen| volume_on_node(&seen.status)),
        mounted: seen.map(|seen| seen.status.published),
        open_count: seen.map(|seen| i64::from(seen.open_count)),
        usage: seen.and_then(|seen| seen.usage.as_ref()).map(usage_status),
        min_size: seen.and_then(|seen| seen.smallest).map(Quantity),
    }
}

/// Converts the usage of a file system for a status.
pub fn usage_status(usage: &FsUsage) -> UsageStatus {
    let counted = usage.inodes > 0;
    UsageStatus {
        capacity: Quantity(usage.total),
        used: Quantity(usage.used),
        available: Quantity(usage.available),
        inodes: counted.then(|| signed(usage.inodes)),
        inodes_used: counted.then(|| signed(usage.inodes.saturating_sub(usage.inodes_free))),
    }
}

fn usage(told: &UsageStatus) -> FsUsage {
    let inodes = unsigned(told.inodes);
    FsUsage {
        total: told.capacity.0,
        used: told.used.0,
        available: told.available.0,
        inodes,
        inodes_free: inodes.saturating_sub(unsigned(told.inodes_used)),
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn unsigned(count: Option<i64>) -> u64 {
    count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
}

/// Converts the outcome of an inspection; `None`: the volume does not exist.
///
/// # Errors
/// [`VolumeError::Failed`] if the node did not report it.
pub(super) fn inspection(
    node: &str,
    done: &VolumeRequestStatus,
) -> Result<Option<Inspection>, VolumeError> {
    let silent = || {
        VolumeError::Failed {
        what: "the node inspected the volume without reporting the result; its node plugin is of another \
               version"
            .to_owned(),
    }
    };
    let told = done.inspection.as_ref().ok_or_else(silent)?;
    let Some(volume) = &told.volume else { return Ok(None) };
    let published = told.mounted.ok_or_else(silent)?;
    let open_count = told.open_count.and_then(|count| u32::try_from(count).ok());
    Ok(Some(Inspection {
        status: VolumeStatus { published, ..volume_status(node, volume)? },
        open_count: open_count.ok_or_else(silent)?,
        usage: told.usage.as_ref().map(usage),
        smallest: told.min_size.map(|size| size.0),
    }))
}

/// Maximum length of a message in a status, in characters; a longer one would be rejected.
const LONGEST_MESSAGE: usize = 4096;

impl From<&VolumeError> for Failure {
    fn from(error: &VolumeError) -> Failure {
        let message = crate::error_chain::in_full(error).chars().take(LONGEST_MESSAGE).collect();
        Failure { reason: error.reason().to_string(), message }
    }
}

impl From<&Failure> for VolumeError {
    fn from(failure: &Failure) -> VolumeError {
        let word = serde_json::Value::String(failure.reason.clone());
        // A node plugin of another version may report more of them.
        let reason: Reason = serde_json::from_value(word).unwrap_or(Reason::Failed);
        VolumeError::Reported { reason, message: failure.message.clone() }
    }
}

impl From<State> for VolumeState {
    fn from(state: State) -> VolumeState {
        match state {
            State::Creating => VolumeState::Creating,
            State::Ready => VolumeState::Ready,
            State::Resizing => VolumeState::Resizing,
            State::Resized => VolumeState::Resized,
            State::Deleting { .. } => VolumeState::Deleting,
        }
    }
}

/// Converts the state of a volume; the field does not show the progress of a wipe.
fn state_of(state: VolumeState) -> Result<State, String> {
    Ok(match state {
        VolumeState::Creating => State::Creating,
        VolumeState::Ready => State::Ready,
        VolumeState::Resizing => State::Resizing,
        VolumeState::Resized => State::Resized,
        VolumeState::Deleting => State::Deleting { wiped: Bytes::ZERO },
        VolumeState::Unknown => return Err("this version does not know its state".to_owned()),
    })
}

/// Converts a volume for the NodeStorage of its node.
pub fn volume_on_node(one: &VolumeStatus) -> VolumeOnNode {
    let volume = &one.volume;
    let ailment = |ailment: &VolumeCondition| VolumeHealthStatus {
        status: format!("{:?}", ailment.severity),
        reason: ailment.reason.to_owned(),
        message: ailment.message.clone(),
    };
    let (volume_mode, fs_type) = fields_of(volume.mode);
    VolumeOnNode {
        volume_handle: volume.id.to_string(),
        name: volume.name.clone(),
        pool: volume.pool.to_string(),
        size: Quantity(volume.size),
        requested_size: Quantity(volume.requested),
        volume_mode,
        fs_type,
        state: one.state.into(),
        fence: (one.fence != Fence::default()).then(|| one.fence.into()),
        max_size: one.limit.map(Quantity),
        health_statuses: one.ailments.iter().map(ailment).collect(),
    }
}

/// Converts a volume from the NodeStorage of its node, which does not show whether a workload uses
/// it.
///
/// # Errors
/// [`VolumeError::Unavailable`] for an entry that this version does not understand.
pub(super) fn volume_status(node: &str, told: &VolumeOnNode) -> Result<VolumeStatus, VolumeError> {
    let parsed = || -> Result<VolumeStatus, String> {
        Ok(VolumeStatus {
            volume: Volume {
                id: told.volume_handle.parse().map_err(|error| format!("{error}"))?,
                name: told.name.clone(),
                pool: told.pool.parse()?,
                node: node.to_owned(),
                size: told.size.0,
                requested: told.requested_size.0,
                mode: mode_of(told.volume_mode, told.fs_type)?,
            },
            state: state_of(told.state)?,
            published: false,
            fence: told.fence.as_ref().map(Fence::from).unwrap_or_default(),
            limit: told.max_size.map(|limit| limit.0),
            ailments: told.health_statuses.iter().map(ailment).collect(),
        })
    };
    parsed().map_err(|reason| VolumeError::Unavailable {
        reason: format!(
            "the report of node {node} about volume {} is invalid: {reason}",
            told.volume_handle
        ),
    })
}

fn ailment(told: &VolumeHealthStatus) -> VolumeCondition {
    let severity = [Severity::DataLoss, Severity::Inaccessible]
        .into_iter()
        .find(|severity| format!("{severity:?}") == told.status);
    VolumeCondition {
        severity: severity.unwrap_or(Severity::Degraded),
        reason: VolumeCondition::reason_of(&told.reason),
        message: told.message.clone(),
    }
}

#[cfg(test)]
mod tests;
