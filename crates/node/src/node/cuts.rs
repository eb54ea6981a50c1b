//! The cut of a volume: a snapshot of LVM that keeps its content of one instant while that is copied.

use crate::bytes::Bytes;
use crate::lvm::{Group, Lv, LvmError, NewLv, VgGuard, layout};
use crate::mount::MountTable;
use crate::node::Node;
use crate::node::error::failed;
use crate::node::found::{Found, FoundVolume};
use crate::node::lv_tags::{self, StoredState};
use crate::node::pools::served;
use crate::node::thin_figures::thin_usage;
use crate::volume::{Layout, Mode, VolumeError};

/// Cuts a volume, whose content is then kept for the logical volume of this name.
pub(super) async fn make_cut(
    turn: &VgGuard,
    source: &FoundVolume,
    target: &str,
) -> Result<Lv, VolumeError> {
    let layout = source.lv.layout();
    let extents = extents_of_cut(source);
    let (name, tags) = (lv_tags::cut_name(target), vec![StoredState::Shown.tag()]);
    let new = NewLv { name, layout, extents, tags };
    turn.snapshot(&source.lv.name, &new).await.map_err(VolumeError::from)
}

/// The cut for the logical volume of this name. What a killed command left, which is no snapshot yet, is none.
pub(super) fn find_cut<'a>(group: &'a Group, target: &str) -> Option<&'a Lv> {
    let found = group.lvs.get(&lv_tags::cut_name(target));
    found.filter(|cut| cut.layout() == Layout::Thin || group.is_snapshot(cut))
}

/// The size of what a cut shows: a copy-on-write snapshot has another one than its origin.
pub(super) fn size_of_cut(group: &Group, cut: &Lv) -> Bytes {
    let is_origin = |lv: &&Lv| group.snapshots_of(lv).any(|name| *name == cut.name);
    let shown = group.lvs.values().find(is_origin).unwrap_or(cut);
    group.size_of(shown.extents())
}

/// # Errors
/// [`VolumeError::InProgress`] if the volume is not as it was found, or a program works on its file system: its content
/// would be half of one and half of another. [`VolumeError::Failed`] if the kernel does not report its mounts.
pub(super) async fn refuse_unless_quiet(
    node: &Node,
    now: &Group,
    source: &FoundVolume,
) -> Result<(), VolumeError> {
    let busy = |progress: &str| VolumeError::InProgress {
        what: format!("volume {}", source.record.id),
        progress: progress.to_owned(),
    };
    let safety = lv_tags::safety_name(source.record.id.key());
    if now.lvs.get(&source.lv.name) != Some(&source.lv) || now.lvs.contains_key(&safety) {
        return Err(busy("it is being changed"));
    }
    let Some((_, info)) = source.live_device(node.host.as_ref()).await? else { return Ok(()) };
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    let is_mounted = table.of(info.number).next().is_some();
    if source.record.mode != Mode::Block && info.open_count > 0 && !is_mounted {
        return Err(busy("a program checks or changes its file system"));
    }
    Ok(())
}

/// Removes what a killed command left of a cut, and what takes the room of the next one.
pub(super) async fn remove_half_cut(turn: &VgGuard, target: &str) -> Result<(), LvmError> {
    let (seen, name) = (turn.seen().await?, lv_tags::cut_name(target));
    if seen.lvs.contains_key(&name) && find_cut(&seen, target).is_none() {
        turn.remove(&name).await?;
    }
    Ok(())
}

/// Removes the cut that a logical volume was to be copied from, if there is one.
pub(super) async fn remove_cut(found: &Found<()>) -> Result<(), VolumeError> {
    let cut = lv_tags::cut_name(&found.lv.name);
    let turn = found.group.turn().await?;
    if turn.seen().await?.lvs.contains_key(&cut) {
        turn.remove(&cut).await?;
    }
    Ok(())
}

/// Stops the copy to a volume, and removes what it was copied from.
pub(super) async fn give_up_copy(node: &Node, found: &FoundVolume) -> Result<(), VolumeError> {
    node.copies.stop(&found.path()).await;
    remove_cuts_for(node, found).await
}

/// Removes the cut that a volume was to be copied from, in whatever group it is.
pub(super) async fn remove_cuts_for(node: &Node, found: &FoundVolume) -> Result<(), VolumeError> {
    for (pool, group) in served(&node.pools()) {
        let Some(seen) = group.remembered() else { continue };
        if let Some(lv) = seen.lvs.get(&lv_tags::cut_name(&found.lv.name)).cloned() {
            let lv = Lv { name: found.lv.name.clone(), ..lv };
            let (pool, group) = (pool.clone(), group.clone());
            remove_cut(&Found { pool, group, seen, lv, record: () }).await?;
        }
    }
    Ok(())
}

/// Returns whether it has a cut that is being copied: LVM neither resizes nor deactivates it meanwhile.
pub(super) fn is_copied(found: &FoundVolume) -> bool {
    cut_on(found).is_some()
}

fn cut_on(found: &FoundVolume) -> Option<&String> {
    found.seen.snapshots_of(&found.lv).find(|name| lv_tags::target_of_cut(name).is_some())
}

/// # Errors
/// [`VolumeError::InProgress`] while the volume has a cut that is being copied.
pub(super) fn refuse_while_copied(node: &Node, found: &FoundVolume) -> Result<(), VolumeError> {
    let Some(cut) = cut_on(found) else { return Ok(()) };
    let target = lv_tags::target_of_cut(cut).unwrap_or_default();
    let progress = node.copies.progress_to(target);
    let is_sent = lv_tags::is_remote(target);
    let else_it = if is_sent { "another node reads it" } else { "it is about to end" };
    Err(VolumeError::InProgress {
        what: format!("copying volume {} for a snapshot or a clone", found.record.id),
        progress: progress.unwrap_or_else(|| else_it.to_owned()),
    })
}

/// Returns whether the group of a volume has room for a cut of it.
pub(super) async fn room_of_cut(group: &Group, source: &FoundVolume) -> bool {
    let (layout, usage) = (source.lv.layout(), thin_usage(&source.group).await);
    let largest = layout::largest_new(group, layout, &source.pool.terms, usage.as_ref());
    largest >= extents_of_cut(source)
}

fn extents_of_cut(source: &FoundVolume) -> u64 {
    match source.lv.layout() {
        Layout::Thin => source.lv.extents(),
        Layout::Linear => cut_extents(source.lv.extents(), source.seen.extent_size),
    }
}

/// The room of a whole copy-on-write snapshot, which cannot overflow: all of its origin, and what it notes of each part.
pub(super) fn cut_extents(origin: u64, extent_size: Bytes) -> u64 {
    // 16 bytes for each chunk of 4 KiB, in chunks, and a header.
    let chunks = origin.saturating_mul(extent_size.get() / 4096);
    let notes = chunks.div_ceil(256) + 2;
    origin.saturating_add((notes * 4096).div_ceil(extent_size.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_has_room_for_all_of_its_origin() {
        assert_eq!(cut_extents(32, Bytes::mib(4)), 33);
        assert_eq!(cut_extents(256_000, Bytes::mib(4)), 257_001);
    }
}
