//! Stages a volume on this node: active, formatted once, mounted, with its file system grown to its
//! device.

use std::path::Path;

use crate::fs::{self};
use crate::host::{DmInfo, NewMount};
use crate::lvm::tags;
use crate::mount::{self, MountTable};
use crate::node::cuts::is_copied;
use crate::node::error::{failed, fs_failed, mount_failed};
use crate::node::find::{activate, live_device, must_find, usable};
use crate::node::found::FoundVolume;
use crate::node::grow::{grow_mounted, note_refused_growth};
use crate::node::held::refuse_if_held;
use crate::node::lv_tags::StoredState;
use crate::node::publish::unmount;
use crate::node::resize_offline::{
    conclude_cut_resize, grow_unmounted, hold_for_programs, leave_private_mount, misses_snapshot,
    private_mount_point, read_superblock, was_in_use,
};
use crate::node::this_node::LastGrowth;
use crate::node::wipe::Task;
use crate::node::{Node, fence, lv_tags};
use crate::volume::{Access, FsKind, Mode, Stage, Use, VolumeError, VolumeId, parse_mount_options};

/// Makes the volume usable at its staging path. A repeated call changes nothing.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if the content of the device does not match the record: nothing is
/// formatted then. The same if it is fenced.
pub(super) async fn stage_volume(node: &Node, stage: &Stage) -> Result<(), VolumeError> {
    let found = usable(node, &stage.id).await?;
    let read_only = stage.read_only || fence::admit(&found)? == Use::Read;
    let stage = &Stage { read_only, ..stage.clone() };
    match (&stage.access, found.record.mode) {
        (Access::Block, Mode::Block) => {
            if found.record.is_new() {
                node.wipes.wipe(Task::before_first_use(&found)).await?;
            }
            if !found.record.was_shown() {
                note_shown(&found).await?;
            }
            activate(node, &found).await.map(|_| ())
        }
        (Access::Mount { fs, options }, Mode::Filesystem(kind))
            if fs.is_none_or(|wanted| wanted == kind) =>
        {
            let options = mount_options(kind, options, stage.read_only)?;
            stage_file_system(node, found, kind, stage, options).await
        }
        (Access::Block, mode) => Err(differs("a block device", mode)),
        (Access::Mount { fs: Some(wanted), .. }, mode) => Err(differs(wanted.as_str(), mode)),
        (Access::Mount { fs: None, .. }, mode) => Err(differs("a file system", mode)),
    }
}

async fn stage_file_system(
    node: &Node,
    found: FoundVolume,
    kind: FsKind,
    stage: &Stage,
    options: Vec<String>,
) -> Result<(), VolumeError> {
    let (device, info) = activate(node, &found).await?;
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    if node.shown(&table, info.number).is_empty() {
        conclude_cut_resize(node, &found, kind).await?;
        prepare(node, &found, kind, &device, stage.read_only).await?;
    }
    // Until it is mounted its number could become that of another volume, which is mounted then.
    let held = hold_for_programs(node, &found, &device).await?;
    node.host
        .make_dir(&stage.staging)
        .await
        .map_err(failed("failed to create the staging path"))?;
    let target = stage.staging.clone();
    let new = NewMount { device: device.clone(), target, kind: fs::driver(kind), options };
    mount_verified(node, &table, &new, &info).await?;
    drop(held);
    if stage.read_only || found.is_shrinking() {
        return Ok(());
    }
    grow_staged(node, &found, kind, &device, &stage.staging).await;
    Ok(())
}

/// Grows what was restored larger than its source, or whose growth was interrupted: no one else
/// will ask. What could not grow is used as it is: its data is good, and the volume's condition
/// and the node's step of the growth say why.
async fn grow_staged(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
    staging: &Path,
) {
    if let Err(error) = try_to_grow_staged(node, found, kind, device, staging).await {
        note_refused_growth(node, found, &error);
    }
}

async fn try_to_grow_staged(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
    staging: &Path,
) -> Result<(), VolumeError> {
    let superblock = read_superblock(node, found, kind, device).await?;
    if superblock.fills(found.size()) || fs::grows_online(&superblock) {
        return grow_mounted(node, found, kind, device, staging).await;
    }
    let key = found.record.id.key();
    let missed = misses_snapshot(found).await?;
    let reason = missed.or_else(|| node.waits_to_grow(key)).unwrap_or_else(|| {
        "it can only grow while it is not mounted; stop the workload, and it grows before the \
             next use"
            .to_owned()
    });
    node.note_growth(key, LastGrowth::Waits(reason));
    Ok(())
}

async fn mount_verified(
    node: &Node,
    table: &MountTable,
    new: &NewMount,
    info: &DmInfo,
) -> Result<(), VolumeError> {
    let mounted = mount::ensure_mounted(node.host.as_ref(), table, new, info.number).await;
    let what = || format!("failed to mount {} at {}", new.kind, new.target.display());
    mounted.map(|_| ()).map_err(|error| mount_failed(what())(error))
}

/// Ensures that the device carries its file system: format it if that was never completed,
/// look at it if it was.
async fn prepare(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
    read_only: bool,
) -> Result<(), VolumeError> {
    if found.record.is_new() {
        return format(node, found, kind, device, read_only).await;
    }
    let superblock = fs::superblock_of(node.host.as_ref(), device)
        .await
        .map_err(fs_failed("failed to read the device"))?;
    let Some(superblock) = superblock.filter(|superblock| superblock.kind == kind) else {
        return Err(VolumeError::PreconditionFailed {
            reason: format!(
                "volume {} is tagged as {kind}, but its device {device} does not contain that \
                     file system; nothing was formatted: inspect it with `blkid -p {device}`",
                found.record.id,
                device = device.display()
            ),
        });
    };
    if !found.record.was_shown() {
        take_identity(node, found, kind, device).await?;
    }
    if read_only {
        return Ok(());
    }
    let superblock = if superblock.has_errors() {
        repair(node, found, kind, device).await?;
        read_superblock(node, found, kind, device).await?
    } else {
        superblock
    };
    let smaller = !superblock.fills(found.size()) && !found.is_shrinking();
    // What the kernel refused while it was mounted may grow now, after a check.
    let refused = node.waits_to_grow(found.record.id.key()).is_some();
    let now = smaller && (refused || !fs::grows_online(&superblock));
    if now && !superblock.has_errors() && misses_snapshot(found).await?.is_none() {
        grow_before_use(node, found, kind).await?;
    }
    Ok(())
}

/// Grows an unmounted file system. One that could not grow is still good for use, and one that cannot
/// be staged for nothing.
///
/// # Errors
/// As [`Node::grow_unmounted`], if the file system is not surely as good as it was.
async fn grow_before_use(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
) -> Result<(), VolumeError> {
    let Err(error) = grow_unmounted(node, found, kind).await else { return Ok(()) };
    match is_as_before(node, found, kind).await {
        Ok(true) => {
            note_refused_growth(node, found, &error);
            Ok(())
        }
        Ok(false) | Err(_) => Err(error),
    }
}

/// Returns whether a growth that failed has left nothing half done: no way back that is still to be taken,
/// and no note of a resize that has begun, which is that of an error.
async fn is_as_before(node: &Node, found: &FoundVolume, kind: FsKind) -> Result<bool, VolumeError> {
    let safety = lv_tags::safety_name(found.record.id.key());
    if found.group.read().await?.lvs.contains_key(&safety) {
        return Ok(false);
    }
    let (device, _) = activate(node, found).await?;
    Ok(!read_superblock(node, found, kind, &device).await?.has_errors())
}

/// Repairs what can be repaired without a question, where the kernel has found errors. What is
/// left keeps no one from the data: the volume's condition tells of it.
///
/// # Errors
/// [`VolumeError::InUse`] while a check is under way, this one or one that no one waits for any
/// more.
async fn repair(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
) -> Result<(), VolumeError> {
    let held = hold_for_programs(node, found, device).await?;
    let checked = fs::check(node.host.as_ref(), device, kind, fs::Check::Repair).await;
    drop(held);
    let (volume, repaired) = (&found.record.id, checked.is_ok());
    tracing::warn!(%volume, repaired, "checked a file system with errors");
    refuse_if_held(node, found, None).await
}

/// Wipes and format a volume that was never shown, whatever its extents hold, and note that, durably, before any
/// mount.
async fn format(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
    read_only: bool,
) -> Result<(), VolumeError> {
    if read_only {
        return Err(VolumeError::PreconditionFailed {
            reason: format!(
                "volume {} has no file system yet, and a read-only mount does not format it; \
                     mount it once with write access",
                found.record.id
            ),
        });
    }
    refuse_if_held(node, found, None).await?; // By a format that no one waits for any more.
    if !was_in_use(node, found, device).await? {
        let uuid = found.file_system_uuid();
        node.wipes.wipe(Task::before_first_use(found)).await?;
        let held = hold_for_programs(node, found, device).await?;
        let host = node.host.as_ref();
        let switches = node.formats.switches(host, kind).await;
        fs::make(host, device, kind, &found.record.mkfs, switches, &uuid)
            .await
            .map_err(fs_failed(format!("failed to create {kind}")))?;
        drop(held);
    }
    note_shown(found).await
}

/// Gives a restored file system a uuid of its own, before any mount that a workload sees: it can be mounted beside the one
/// that it comes from.
async fn take_identity(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
) -> Result<(), VolumeError> {
    refuse_if_held(node, found, None).await?; // By a program that no one waits for any more.
    let held = hold_for_programs(node, found, device).await?;
    let (dir, uuid) = (private_mount_point(node, found), found.file_system_uuid());
    let given = fs::give_uuid(node.host.as_ref(), device, kind, &uuid, &dir).await;
    given.map_err(fs_failed(format!("failed to give the restored {kind} a uuid of its own")))?;
    drop(held);
    note_shown(found).await
}

/// Notes, durably, that a volume may hold data from now on.
async fn note_shown(found: &FoundVolume) -> Result<(), VolumeError> {
    let before = found.record.life.tag();
    let turn = found.group.turn().await?;
    let seen = turn.read().await?;
    // Else its last wipe would pass over what was wiped now.
    let now = seen.lvs.get(&found.lv.name).into_iter();
    let wiped = now.flat_map(|lv| tags::find_all(&lv.tags, lv_tags::WIPED));
    let gone: Vec<&str> = std::iter::once(before.as_str()).chain(wiped).collect();
    turn.retag(&found.lv.name, &gone, &[StoredState::Shown.tag()]).await?;
    drop(turn);
    found.group.flush().await.map_err(VolumeError::from)
}

/// Undoes [`Node::stage`]; not staged, or no such volume, is success.
///
/// # Errors
/// [`VolumeError::InUse`] if something still holds the volume; it stays staged then.
pub(super) async fn unstage_volume(
    node: &Node,
    id: &VolumeId,
    staging: &Path,
) -> Result<(), VolumeError> {
    let found = match must_find(node, id).await {
        Ok(found) => found,
        Err(VolumeError::NotFound { .. }) => return unmount(node, id, None, staging).await,
        Err(error) => return Err(error),
    };
    let Some((_, info)) = live_device(node, &found).await? else {
        return unmount(node, id, None, staging).await;
    };
    let is_shown = found.record.life == lv_tags::StoredState::Shown;
    if !is_shown && node.wipes.runs(id.key()) {
        // The driver's own wipe needs the device.
        return unmount(node, id, Some(info.number), staging).await;
    }
    node.wipes.settle(id.key()).await?; // That of a shrink holds it open.
    leave_private_mount(node, &found).await?;
    refuse_if_held(node, &found, Some(staging)).await?;
    node.trimming.settle(&found.dm_uuid()).await;
    unmount(node, id, Some(info.number), staging).await?;
    refuse_if_held(node, &found, None).await?; // A mount that is not seen from here holds it too.
    if is_copied(&found) {
        return Ok(()); // The cut is on its device.
    }
    let turn = found.group.turn().await?;
    turn.heal(&found.lv).await?;
    turn.deactivate(&found.lv.name).await.map_err(VolumeError::from)
}

/// What is always mounted with, what was asked for, and `ro` for a read-only use.
fn mount_options(
    kind: FsKind,
    asked: &[String],
    read_only: bool,
) -> Result<Vec<String>, VolumeError> {
    let asked =
        parse_mount_options(Some(kind), asked).map_err(|reason| VolumeError::InvalidArgument {
            field: "volume_capability.mount.mount_flags".to_owned(),
            reason,
        })?;
    let mut options: Vec<String> =
        fs::always_mounted_with(kind).iter().map(|option| (*option).to_owned()).collect();
    options.extend(asked);
    if read_only {
        options.push("ro".to_owned());
    }
    options.dedup();
    Ok(options)
}

fn differs(wanted: &str, mode: Mode) -> VolumeError {
    VolumeError::InvalidArgument {
        field: "volume_capability".to_owned(),
        reason: format!("{wanted} was requested, but the volume is {mode}"),
    }
}
