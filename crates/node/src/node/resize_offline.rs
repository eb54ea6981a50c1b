//! Checks and resizes an unmounted file system, with a rollback.
//!
//! A resize of an unmounted ext file system moves metadata. Before it, a snapshot of the logical
//! volume is taken if there is enough space. It is removed when the result was verified, and merged
//! back when the result is not good. An existing snapshot belongs to an interrupted attempt.

use std::path::Path;
use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::fs::{self, FsError, Superblock};
use crate::host::{HeldDevice, HeldFor};
use crate::lvm::{Group, NewLv, layout};
use crate::node::error::{failed, fs_failed};
use crate::node::find::activate;
use crate::node::found::FoundVolume;
use crate::node::held::{refuse_if_held, refuse_if_stacked_on};
use crate::node::lv_tags::{self, StoredState};
use crate::node::this_node::LastGrowth;
use crate::node::{Node, wipe};
use crate::volume::{FsKind, Layout, Safety, VolumeError};

/// The share of the volume that a safety snapshot may take: one in this many extents.
const SHARE: u64 = 8;
/// But at least this many extents, since the first metadata block copied takes a chunk of its own.
const LEAST: u64 = 4;
/// What helps where one is required and there is not enough space.
const WHAT_TO_DO: &str = "; free some space, or set resizeSnapshot to BestEffort";
/// What helps where a shrink needs one and there is not enough space.
const FREE_SOME: &str = "; free some space, or add a disk to the pool";
/// How long a merge may take; it copies no more than the snapshot holds.
const MERGE_LIMIT: std::time::Duration = std::time::Duration::from_secs(3600);

/// What becomes of an unmounted file system.
#[derive(Debug, Clone, Copy)]
enum OfflineResize {
    ToDevice,
    To(Bytes),
}

/// Grows an unmounted file system to its device, which is active afterwards.
pub(super) async fn grow_unmounted(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
) -> Result<(), VolumeError> {
    conclude_cut_resize(node, found, kind).await?;
    let (device, _) = activate(node, found).await?;
    let full = fills(node, found, kind, &device).await?;
    if !full {
        refuse_if_claimed(node, found, &device).await?;
        found.group.flush().await?; // As before a growth of a mounted one.
        resize_with_a_way_back(node, found, kind, &device, OfflineResize::ToDevice).await?;
        node.note_growth(found.record.id.key(), LastGrowth::Done);
    }
    Ok(())
}

/// # Errors
/// [`VolumeError::InUse`] if a mount that is not seen from here has the device.
async fn refuse_if_claimed(
    node: &Node,
    found: &FoundVolume,
    device: &Path,
) -> Result<(), VolumeError> {
    let claimed = node.host.is_claimed(device).await;
    if !claimed.map_err(failed("failed to open the device"))? {
        return Ok(());
    }
    refuse_if_stacked_on(node, found).await?;
    let (id, device) = (found.record.id.to_string(), device.display());
    let holder = format!(
        "{device} is mounted in another mount namespace; see `grep -l {device} /proc/*/mountinfo`"
    );
    Err(VolumeError::InUse { id, holder })
}

/// Returns whether the superblock covers the device; that of a mounted one may lag behind.
pub(super) async fn fills(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
) -> Result<bool, VolumeError> {
    let superblock = read_superblock(node, found, kind, device).await?;
    fs::fills(node.host.as_ref(), device, &superblock, found.size())
        .await
        .map_err(failed("failed to read the copies of the superblock"))
}

/// # Errors
/// [`VolumeError::PreconditionFailed`] if the device carries something else.
pub(super) async fn read_superblock(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
) -> Result<Superblock, VolumeError> {
    let superblock = fs::superblock_of(node.host.as_ref(), device)
        .await
        .map_err(fs_failed("failed to read the device"))?;
    match superblock {
        Some(superblock) if superblock.kind == kind => Ok(superblock),
        other => Err(VolumeError::PreconditionFailed {
            reason: format!(
                "volume {} should contain {kind}, but contains {}; nothing was changed",
                found.record.id,
                other.map_or("no known file system".to_owned(), |other| other.kind.to_string())
            ),
        }),
    }
}

/// Shrinks an unmounted file system, whose device is active afterwards; at or below the size already
/// changes nothing.
pub(super) async fn shrink_unmounted(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    to: Bytes,
) -> Result<(), VolumeError> {
    let (device, _) = activate(node, found).await?;
    if read_superblock(node, found, kind, &device).await?.covers <= to {
        return Ok(());
    }
    refuse_if_claimed(node, found, &device).await?;
    resize_with_a_way_back(node, found, kind, &device, OfflineResize::To(to)).await
}

async fn resize_with_a_way_back(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &Path,
    resize: OfflineResize,
) -> Result<(), VolumeError> {
    let snapshot = if kind.is_ext() { take_snapshot(found, resize).await? } else { None };
    let (dir, host) = (private_mount_point(node, found), node.host.as_ref());
    let held = hold_for_programs(node, found, device).await?;
    let (verb, resized) = match resize {
        OfflineResize::ToDevice => {
            ("grow", fs::grow_unmounted(host, device, kind, &dir).await.map(drop))
        }
        OfflineResize::To(to) => {
            ("shrink", fs::shrink_unmounted(host, device, kind, to, &dir).await)
        }
    };
    drop(held); // A snapshot is merged only while the volume is not open.
    if resized.is_ok() {
        // A snapshot is the only way back until the result is durable.
        node.host.flush(device).await.map_err(failed("flushing the resized file system"))?;
    }
    match (resized, snapshot) {
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(name)) => {
            let turn = found.group.turn().await?;
            turn.remove(&name).await?;
            // A snapshot that came back after a power cut would be merged over newer data.
            found.group.flush().await.map_err(VolumeError::from)
        }
        (Err(error), None) => {
            Err(fs_failed(format!("failed to {verb} the unmounted {kind} file system"))(error))
        }
        (Err(error), Some(name)) => {
            roll_back(node, found, &name).await?;
            Err(fs_failed(format!(
                "failed to {verb} the unmounted {kind} file system, which is as it was before"
            ))(error))
        }
    }
}

/// Returns why an unmounted file system may not grow now: the class requires a resize snapshot,
/// and there is not enough space for it.
pub(super) async fn misses_snapshot(found: &FoundVolume) -> Result<Option<String>, VolumeError> {
    if found.record.safety != Safety::Required {
        return Ok(None);
    }
    let group = found.group.read().await?;
    let growth = OfflineResize::ToDevice;
    Ok(no_room_for_snapshot(found, growth, &group).map(|words| words + WHAT_TO_DO))
}

/// Takes the resize snapshot that the class asks for. A shrink, which moves content and which no
/// one needs, is not done without one unless the class wants none.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if it is needed and there is not enough space for it.
async fn take_snapshot(
    found: &FoundVolume,
    resize: OfflineResize,
) -> Result<Option<String>, VolumeError> {
    let safety = found.record.safety;
    if safety == Safety::Off {
        return Ok(None);
    }
    let turn = found.group.turn().await?;
    let group = turn.read().await?;
    if let Some(words) = no_room_for_snapshot(found, resize, &group) {
        if matches!(resize, OfflineResize::To(_)) {
            return Err(VolumeError::PreconditionFailed { reason: words + FREE_SOME });
        }
        if safety == Safety::Required {
            return Err(VolumeError::PreconditionFailed { reason: words + WHAT_TO_DO });
        }
        tracing::warn!("{words}; resizing without a snapshot");
        return Ok(None);
    }
    let extents = snapshot_extents(found, resize);
    let name = lv_tags::safety_name(found.record.id.key());
    let tags = vec![StoredState::Shown.tag()];
    let new = NewLv { name, layout: found.lv.layout(), extents, tags };
    turn.snapshot(&found.lv.name, &new).await?;
    found.group.flush().await?;
    Ok(Some(new.name))
}

/// Holds the device open while programs are given its path.
pub(super) async fn hold_for_programs(
    node: &Node,
    found: &FoundVolume,
    device: &Path,
) -> Result<Box<dyn HeldDevice>, VolumeError> {
    let held = wipe::hold(node.host.as_ref(), &found.dm_uuid(), device, HeldFor::Programs).await;
    held.map_err(failed("failed to hold the device open"))
}

/// Merges a snapshot back: the volume is then as it was when it was taken.
async fn roll_back(node: &Node, found: &FoundVolume, snapshot: &str) -> Result<(), VolumeError> {
    // While the volume is open LVM only notes the merge, for the next activation: whatever
    // was written until then would be lost.
    leave_private_mount(node, found).await?;
    refuse_if_held(node, found, None).await?; // By a program that did not come back in time, too.
    let turn = found.group.turn().await?;
    if found.lv.layout() == Layout::Thin {
        turn.deactivate(&found.lv.name).await?; // LVM merges none that is active.
    }
    if let Err(error) = turn.merge(snapshot, MERGE_LIMIT).await {
        return Err(VolumeError::PreconditionFailed {
            reason: format!(
                "the resize of volume {} failed, and so did the merge of its resize snapshot \
                     {}/{snapshot}: {error}; check both before you change anything",
                found.record.id,
                found.group.name(),
            ),
        });
    }
    found.group.flush().await.map_err(VolumeError::from)
}

/// Unmounts what a growth that failed or was interrupted has left mounted for itself.
pub(super) async fn leave_private_mount(
    node: &Node,
    found: &FoundVolume,
) -> Result<(), VolumeError> {
    let left = fs::leave(node.host.as_ref(), &private_mount_point(node, found)).await;
    left.map_err(failed("failed to unmount the private mount of an expansion"))
}

/// Finishes an interrupted attempt: a good file system keeps its state and the snapshot is
/// removed; else the snapshot is merged back.
pub(super) async fn conclude_cut_resize(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
) -> Result<(), VolumeError> {
    leave_private_mount(node, found).await?;
    let name = lv_tags::safety_name(found.record.id.key());
    if !found.seen.lvs.contains_key(&name) {
        return Ok(());
    }
    let (device, _) = activate(node, found).await?;
    refuse_if_claimed(node, found, &device).await?; // A checker that is turned away finds nothing.
    let held = hold_for_programs(node, found, &device).await?;
    let checked = fs::check(node.host.as_ref(), &device, kind, fs::Check::Repair).await;
    drop(held); // A snapshot is merged only while the volume is not open.
    let good = match checked {
        Ok(()) => true,
        // Of a file system without a superblock the checker says no more than that it failed.
        Err(FsError::Damaged { .. } | FsError::Failed { .. }) => false,
        Err(unknown) => {
            return Err(fs_failed("failed to check the file system")(unknown));
        }
    };
    tracing::warn!(volume = %found.record.id, good, "concluding an interrupted resize");
    if !good {
        return roll_back(node, found, &name).await;
    }
    node.host.flush(&device).await.map_err(failed("flushing the checked file system"))?;
    let turn = found.group.turn().await?;
    turn.remove(&name).await?;
    // A snapshot that came back after a power cut would be merged over newer data.
    found.group.flush().await.map_err(VolumeError::from)
}

/// How many extents a safety snapshot takes. What a shrink moves from behind the new end goes where
/// something else may have been, all of which the snapshot keeps; its own notes are below a hundredth.
fn snapshot_extents(found: &FoundVolume, resize: OfflineResize) -> u64 {
    let all = found.lv.extents();
    let moved = match resize {
        OfflineResize::ToDevice => 0,
        OfflineResize::To(to) => {
            let stays = to.div_ceil(found.seen.extent_size);
            stays.min(all.saturating_sub(stays))
        }
    };
    (moved + moved / 64 + all / SHARE).max(LEAST)
}

fn no_room_for_snapshot(
    found: &FoundVolume,
    resize: OfflineResize,
    group: &Group,
) -> Option<String> {
    let terms = found.pool.terms.of_growth();
    let (wanted, free) = (snapshot_extents(found, resize), layout::available(group, &terms));
    // That of a thin volume is in its pool, which is as large as what its volumes are promised.
    (found.lv.layout() == Layout::Linear && free < wanted).then(|| {
        format!(
            "a resize snapshot of volume {} needs {}, and {} is free in volume group {}",
            found.record.id,
            group.size_of(wanted),
            group.size_of(free),
            group.name
        )
    })
}

/// Returns the private mount point of an unmounted file system.
pub(super) fn private_mount_point(node: &Node, found: &FoundVolume) -> PathBuf {
    node.settings.private_mounts().join(found.record.id.key().as_str())
}

/// Returns whether a volume that is marked as new has its own file system, which was in use.
pub(super) async fn was_in_use(
    node: &Node,
    found: &FoundVolume,
    device: &Path,
) -> Result<bool, VolumeError> {
    let carried = fs::superblock_of(node.host.as_ref(), device)
        .await
        .map_err(fs_failed("failed to read the device"))?;
    // Only this volume's own file system has this uuid. Where it was in use the record is older than it is:
    // an administrator has restored the group's metadata.
    let uuid = found.file_system_uuid();
    let is_used = |superblock: &Superblock| {
        superblock.uuid == uuid && superblock.mounted_before() && !superblock.half_made()
    };
    Ok(carried.as_ref().is_some_and(is_used))
}
