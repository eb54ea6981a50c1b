//! Shrinks a volume in place: first its file system, then the logical volume below it.
//!
//! The file system never relies on a byte that the logical volume does not have. The shrink and its
//! size are recorded on the volume before it begins: nothing grows the file system again meanwhile,
//! and an interrupted shrink is finished or aborted by the next call. The size stays recorded as a
//! maximum size until it is [released](crate::volume::Volumes::release).

use std::ops::Range;
use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::fs;
use crate::mount::MountTable;
use crate::node::cuts::refuse_while_copied;
use crate::node::error::{failed, fs_failed};
use crate::node::find::{activate, live_device, usable};
use crate::node::found::FoundVolume;
use crate::node::held::deactivate_unless_held;
use crate::node::remove::give_up_more;
use crate::node::resize_offline::{conclude_cut_resize, shrink_unmounted, was_in_use};
use crate::node::wipe::Task;
use crate::node::{Node, lv_tags};
use crate::volume::{Discards, FsKind, Mode, Shrinks, VolumeError, VolumeId, Wipe};

impl FoundVolume {
    /// Returns whether a shrink is in progress: the file system, or the logical volume below it, is
    /// about to become smaller, and the one must not be grown to the size of the other.
    pub fn is_shrinking(&self) -> bool {
        self.record.limit.is_some_and(|limit| limit < self.size())
    }
}

/// Shrinks the volume to the wanted size, and prevents growth beyond it; returns its real size.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if it is larger and its content cannot shrink,
/// [`VolumeError::InUse`] if it cannot while it is mounted, [`VolumeError::SizeOutOfRange`], or
/// [`VolumeError::Failed`] for ext, if its content does not fit: it is unchanged then.
pub(super) async fn shrink_volume(
    node: &Node,
    id: &VolumeId,
    to: Bytes,
) -> Result<Bytes, VolumeError> {
    let found = usable(node, id).await?;
    let wanted = to.div_ceil(found.seen.extent_size);
    let size = found.seen.size_of(wanted);
    if wanted > found.lv.extents() {
        // Smaller already; one that was shrunk further before may grow so far.
        let limit = found.record.limit.map(|limit| limit.max(size));
        return Ok(set_limit(node, found, limit).await?.size());
    }
    let found = if wanted == found.lv.extents() {
        // So small already, and kept so, whatever is in it.
        set_limit(node, found, Some(size)).await?
    } else {
        refuse_while_copied(node, &found)?;
        let kind = shrinkable(&found)?;
        if size < kind.smallest() {
            return Err(too_small(&found, kind, size));
        }
        shrink_to(node, found, kind, size).await?
    };
    if mounts_of(node, &found).await?.is_empty() {
        deactivate_unless_held(node, &found).await?;
    }
    Ok(found.size())
}

async fn shrink_to(
    node: &Node,
    found: FoundVolume,
    kind: FsKind,
    size: Bytes,
) -> Result<FoundVolume, VolumeError> {
    give_up_cut_growth(node, &found).await?;
    conclude_cut_resize(node, &found, kind).await?;
    let fits = ends_before(node, &found, kind, size).await?;
    let mounted = if fits { None } else { mounted_for_shrink(node, &found, kind).await? };
    let found = set_limit(node, found, Some(size)).await?;
    if !fits {
        let shrunk = shrink_file_system(node, &found, kind, size, mounted).await;
        if let Err(error) = shrunk {
            // One that is in doubt keeps its mark: the next call looks again.
            if file_system_covers(node, &found, kind).await.is_ok_and(|covers| covers > size) {
                set_limit(node, found, None).await?;
            }
            return Err(error);
        }
    }
    let found = give_back(node, found).await?;
    found.group.flush().await?;
    Ok(found)
}

/// Removes the maximum size, so that the volume can grow again.
///
/// # Errors
/// [`VolumeError::InProgress`] after an interrupted shrink that was finished only now: the caller
/// does not know yet how small the volume is, and has to update its claim first.
pub(super) async fn release_volume(node: &Node, id: &VolumeId) -> Result<(), VolumeError> {
    let found = usable(node, id).await?;
    let before = found.size();
    let found = conclude_cut_shrink(node, found).await?;
    if found.size() < before {
        found.group.flush().await?;
        return Err(VolumeError::InProgress {
            what: format!("shrinking volume {id}"),
            progress: format!("it has {} now, of {before}", found.size()),
        });
    }
    set_limit(node, found, None).await.map(drop)
}

/// Removes the extents of a growth that was aborted. The wipe of what a shrink gives back goes
/// on.
async fn give_up_cut_growth(node: &Node, found: &FoundVolume) -> Result<(), VolumeError> {
    if found.seen.lvs.contains_key(&lv_tags::more_name(found.record.id.key())) {
        give_up_more(node, found).await?;
    }
    Ok(())
}

/// Finishes or aborts an interrupted shrink: the logical volume follows its file system.
pub(super) async fn conclude_cut_shrink(
    node: &Node,
    found: FoundVolume,
) -> Result<FoundVolume, VolumeError> {
    let (Mode::Filesystem(kind), Some(limit), true) =
        (found.record.mode, found.record.limit, found.is_shrinking())
    else {
        return Ok(found);
    };
    give_up_cut_growth(node, &found).await?;
    conclude_cut_resize(node, &found, kind).await?;
    if !ends_before(node, &found, kind, limit).await? {
        return set_limit(node, found, None).await;
    }
    give_back(node, found).await
}

/// Where the file system is mounted, to be shrunk there; `None` if it is mounted nowhere.
///
/// # Errors
/// [`VolumeError::InUse`] if it shrinks only while it is not mounted, or cannot be written where it
/// is.
async fn mounted_for_shrink(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
) -> Result<Option<PathBuf>, VolumeError> {
    let mounts = mounts_of(node, found).await?;
    let Some((target, _)) = mounts.first() else { return Ok(None) };
    let id = found.record.id.to_string();
    if kind.shrinks() != Shrinks::Mounted {
        let holder = format!(
            "{kind} cannot shrink while it is mounted, as it is at {}; stop the workload",
            target.display()
        );
        return Err(VolumeError::InUse { id, holder });
    }
    if let Some((writable, _)) = mounts.iter().find(|(_, read_only)| !read_only) {
        return Ok(Some(writable.clone()));
    }
    let holder = format!("it is mounted read-only at {}", target.display());
    Err(VolumeError::InUse { id, holder })
}

/// Where workloads have the file system mounted, and whether it refuses writes there.
async fn mounts_of(node: &Node, found: &FoundVolume) -> Result<Vec<(PathBuf, bool)>, VolumeError> {
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    let Some((_, info)) = live_device(node, found).await? else { return Ok(Vec::new()) };
    let shown = node.shown(&table, info.number).into_iter();
    Ok(shown.map(|mount| (mount.target.clone(), mount.read_only())).collect())
}

async fn shrink_file_system(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    to: Bytes,
    mounted: Option<PathBuf>,
) -> Result<(), VolumeError> {
    let Some(mounted) = mounted else { return shrink_unmounted(node, found, kind, to).await };
    let (device, _) = activate(node, found).await?;
    fs::shrink_mounted(node.host.as_ref(), &mounted, &device, kind, to)
        .await
        .map_err(fs_failed(format!("failed to shrink the mounted {kind} file system")))?;
    node.host.flush(&device).await.map_err(failed("flushing the shrunk file system"))
}

/// Returns whether nothing that has to be kept lies behind `size`. A new volume has nothing, unless it is in use after all.
async fn ends_before(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    size: Bytes,
) -> Result<bool, VolumeError> {
    if found.record.is_new() {
        let (device, _) = activate(node, found).await?;
        if !was_in_use(node, found, &device).await? {
            return Ok(true);
        }
    }
    Ok(file_system_covers(node, found, kind).await? <= size)
}

/// How much of the device the file system covers now.
async fn file_system_covers(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
) -> Result<Bytes, VolumeError> {
    let mounts = mounts_of(node, found).await?;
    let mounted = mounts.first().map(|(target, _)| target.as_path());
    let (device, _) = activate(node, found).await?;
    fs::covers(node.host.as_ref(), &device, mounted, kind)
        .await
        .map_err(fs_failed("failed to read the size of the file system"))
}

/// Wipes what lies behind the shrunk file system, as it would be at the volume's end, and give it
/// back to the group.
async fn give_back(node: &Node, found: FoundVolume) -> Result<FoundVolume, VolumeError> {
    let Some(limit) = found.record.limit.filter(|_| found.is_shrinking()) else {
        return Ok(found);
    };
    let behind = limit.get()..found.size().get();
    for task in tasks_behind(&found, behind).into_iter().filter(|_| !found.record.is_new()) {
        node.wipes.wipe(task).await?;
    }
    let turn = found.group.turn().await?;
    let lv = turn.reduce(&found.lv.name, limit.div_ceil(found.seen.extent_size)).await?;
    let seen = turn.seen().await?;
    Ok(FoundVolume { seen, lv, ..found })
}

/// What is to be done with what lies behind the shrunk file system, in order.
///
/// LVM gives the extents of a linear volume back itself; a thin volume would have its chunks until it is deleted. So these
/// are discarded, and only what shares a chunk with something else is wiped.
fn tasks_behind(found: &FoundVolume, behind: Range<u64>) -> Vec<Task> {
    let how = found.record.wipe;
    let is_hidden = how != Wipe::None;
    let Some(chunk) = found.thin_chunk() else {
        let whole = Task { how, ..Task::new(found, vec![behind]) };
        return if is_hidden { vec![whole] } else { Vec::new() };
    };
    let first = behind.start.next_multiple_of(chunk).min(behind.end);
    let last = (behind.end - behind.end % chunk).max(first);
    let parts = [behind.start..first, last..behind.end].into_iter().filter(|part| !part.is_empty());
    let parts = Task::new(found, parts.filter(|_| is_hidden).collect());
    let whole = std::iter::once(first..last).collect();
    let chunks = Task { how: Wipe::Discard, unit: chunk, ..Task::new(found, whole) };
    // A pool that ignores discards would have zeroes written instead, which take space.
    let discards = found.pool.terms.thin.unwrap_or_default().discards != Discards::Ignore;
    let takes_back = (is_hidden || discards) && first < last;
    let all = (!parts.ranges.is_empty()).then_some(parts);
    all.into_iter().chain(takes_back.then_some(chunks)).collect()
}

/// Writes down, durably, beyond which size the volume does not grow.
async fn set_limit(
    node: &Node,
    found: FoundVolume,
    limit: Option<Bytes>,
) -> Result<FoundVolume, VolumeError> {
    let mut found = found;
    if found.record.limit != limit {
        // It wipes behind the limit as it was.
        node.wipes.settle(found.record.id.key()).await?;
        let gone: Vec<&str> = lv_tags::find_limit_tag(&found.lv).into_iter().collect();
        let new: Vec<String> = limit.map(lv_tags::limit_tag).into_iter().collect();
        let turn = found.group.turn().await?;
        let lv = turn.retag(&found.lv.name, &gone, &new).await?;
        found.seen = turn.seen().await?;
        found.lv = lv;
        found.record.limit = limit;
    }
    // Also of what an earlier call has said that died before its flush.
    found.group.flush().await?;
    Ok(found)
}

/// What kind of file system is to shrink.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if it never does.
fn shrinkable(found: &FoundVolume) -> Result<FsKind, VolumeError> {
    match found.record.mode {
        Mode::Filesystem(kind) if kind.shrinks() != Shrinks::Never => Ok(kind),
        mode => Err(VolumeError::PreconditionFailed {
            reason: format!(
                "volume {} is {mode}, which cannot shrink; copy its content to a smaller volume",
                found.record.id
            ),
        }),
    }
}

/// # Errors
/// [`VolumeError::SizeOutOfRange`] if a volume that was shrunk is to grow before that is over.
pub(super) fn keeps_below_limit(found: &FoundVolume, asked: Bytes) -> Result<(), VolumeError> {
    let Some(limit) = found.record.limit.filter(|limit| asked > *limit) else { return Ok(()) };
    let tag = lv_tags::find_limit_tag(&found.lv).unwrap_or_default();
    Err(VolumeError::SizeOutOfRange {
        reason: format!(
            "volume {} was shrunk to {limit} and cannot grow until its claim has that size; the \
             limit is then removed automatically, and if it is not, run `lvchange --deltag {tag} \
             {}/{}` on its node",
            found.record.id,
            found.group.name(),
            found.lv.name
        ),
    })
}

fn too_small(found: &FoundVolume, kind: FsKind, asked: Bytes) -> VolumeError {
    VolumeError::SizeOutOfRange {
        reason: format!(
            "volume {} cannot shrink to {asked}: {kind} needs at least {}",
            found.record.id,
            kind.smallest()
        ),
    }
}
