//! Look at a volume as closely as can be done without a process: who has it open, and how full it is.

use std::path::Path;

use crate::bytes::Bytes;
use crate::fs;
use crate::host::DmInfo;
use crate::mount::MountTable;
use crate::node::Node;
use crate::node::find::{live_device, must_find};
use crate::node::found::FoundVolume;
use crate::node::stats::{describe, look, usage_unless_suspended};
use crate::volume::{FsKind, FsUsage, Inspection, Mode, VolumeError, VolumeId, VolumeStatus};

/// Looks at the volume now; `None` only if all groups were looked at and it is not there.
///
/// # Errors
/// [`VolumeError::Unavailable`] if its group, or its mounted file system, cannot be asked now: what
/// was not seen is no answer.
pub(super) async fn inspect_volume(
    node: &Node,
    id: &VolumeId,
) -> Result<Option<Inspection>, VolumeError> {
    let found = match must_find(node, id).await {
        Ok(found) => found.reachable()?,
        Err(VolumeError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let look = look(node).await?;
    let mut status = describe(node, &found, &look);
    let Some((device, info)) = live_device(node, &found).await? else {
        // Without a device no one can have it open.
        return Ok(Some(Inspection { status, open_count: 0, usage: None, smallest: None }));
    };
    let usage = usage_if_mounted(node, &look.table, &info, &mut status).await?;
    let smallest = smallest(node, &found, &device).await;
    Ok(Some(Inspection { status, open_count: info.open_count, usage, smallest }))
}

async fn usage_if_mounted(
    node: &Node,
    table: &MountTable,
    info: &DmInfo,
    status: &mut VolumeStatus,
) -> Result<Option<FsUsage>, VolumeError> {
    let shown = node.shown(table, info.number);
    let Some(mount) = shown.first() else { return Ok(None) };
    usage_unless_suspended(node, &mount.target, info, &mut status.ailments).await
}

/// What the file system cannot become smaller than, where its superblock alone tells.
async fn smallest(node: &Node, found: &FoundVolume, device: &Path) -> Option<Bytes> {
    if found.record.mode != Mode::Filesystem(FsKind::Xfs) || found.record.is_new() {
        return None;
    }
    let superblock = fs::superblock_of(node.host.as_ref(), device).await.ok().flatten()?;
    (superblock.kind == FsKind::Xfs).then_some(superblock.covers)
}
