//! Takes, finds and deletes snapshots.
//!
//! That of a thin volume is one in its pool: instant, and independent of its volume from then on. That of a volume with
//! extents of its own becomes so, too: a copy-on-write snapshot of LVM keeps the content of the cut while it is copied to
//! a logical volume of its own, and goes when the copy is whole.

use std::sync::Arc;

use tokio::sync::watch;

use crate::lvm::{Group, Lv, LvmError, NewLv, ThinUsage, VolumeGroup, layout};
use crate::node::Node;
use crate::node::copies::LvCopy;
use crate::node::cuts::{cut_extents, find_cut, make_cut, refuse_unless_quiet, remove_cut};
use crate::node::find::{hidden, usable};
use crate::node::found::{Found, FoundVolume};
use crate::node::lv_tags::{self, StoredState};
use crate::node::pools::{Pool, served};
use crate::node::recover::heal_what_died;
use crate::node::snapshot_tags::{FoundSnapshot, SnapshotTags, snapshots};
use crate::node::thin_figures::thin_usage;
use crate::node::wipe::{Task, whole_lv};
use crate::volume::{
    Layout, NewSnapshot, Snapshot, SnapshotId, Standing, VolumeError, VolumeKey, Wipe,
};

/// Takes the snapshot, durably. One that has to be copied is not ready when this returns.
pub(super) async fn ensure_snapshot(
    node: &Node,
    want: &NewSnapshot,
) -> Result<FoundSnapshot, VolumeError> {
    let id = want.id();
    let found = match search_snapshot(node, id.key()).await? {
        (Some(found), _) => found.reachable()?,
        (None, _) => take(node, want).await?,
    };
    if found.record.id != id {
        return Err(VolumeError::AlreadyExists {
            name: want.name.clone(),
            difference: format!("it is a snapshot of volume {}", found.record.id.source()),
        });
    }
    match found.record.life {
        StoredState::Deleting => Err(VolumeError::InProgress {
            what: format!("deleting the earlier snapshot {:?}", want.name),
            progress: "its bytes are being wiped".to_owned(),
        }),
        StoredState::Copying if found.is_taken() => {
            found.group.flush().await?;
            copy_behind(node, &found)?;
            Ok(found)
        }
        StoredState::Copying => {
            // A killed command left it.
            found.group.turn().await?.remove(&found.lv.name).await?;
            take(node, want).await
        }
        StoredState::New | StoredState::Restored | StoredState::Shown => {
            tidy_up(node, &found).await?;
            found.group.flush().await?;
            Ok(found)
        }
    }
}

/// Clears away what a copy that came to its end has failed to: its cut, and an active device that nobody uses.
pub(super) async fn tidy_up(node: &Node, found: &FoundSnapshot) -> Result<(), VolumeError> {
    if node.copies.progress(&found.path()).is_some() {
        return Ok(());
    }
    if found.cut().is_some() {
        remove_cut(&found.bare()).await?;
    }
    found.deactivate_if_idle(node.host.as_ref()).await
}

/// Deletes the snapshot, durably. A repeated call goes on with what is left of it.
pub(super) async fn remove_snapshot(node: &Node, id: &SnapshotId) -> Result<(), VolumeError> {
    let (found, unread) = search_snapshot(node, id.key()).await?;
    let Some(found) = found.filter(|found| found.record.id == *id) else {
        // An earlier call may have removed it and died before its flush.
        return match unread {
            Some(unread) => Err(unread),
            None => node.flush_all().await,
        };
    };
    let found = found.reachable()?;
    node.copies.stop(&found.path()).await;
    remove_cut(&found.bare()).await?;
    // Its copy may have come to its end meanwhile.
    let Some(found) = find_snapshot(node, id).await? else { return node.flush_all().await };
    if found.record.life != StoredState::Deleting {
        refuse_if_open(node, &found).await?;
        let turn = found.group.turn().await?;
        let (gone, new) = (found.record.life.tag(), StoredState::Deleting.tag());
        turn.retag(&found.lv.name, &[&gone], &[new]).await?;
        drop(turn);
        // Before the first byte goes: after a power cut it would be there, and half empty.
        found.group.flush().await?;
    }
    // From now on no copy begins to read it.
    if let Some(progress) = node.copies.reader_of(&found.path()) {
        return Err(VolumeError::InProgress { what: format!("restoring snapshot {id}"), progress });
    }
    if node.sends.is_read(&found.path()) {
        return Err(VolumeError::InProgress {
            what: format!("restoring snapshot {id}"),
            progress: "another node reads it".to_owned(),
        });
    }
    let has_bytes = !found.record.empty;
    if has_bytes && (found.record.wipe != Wipe::None || found.lv.layout() == Layout::Thin) {
        let task = whole_lv(id.key(), &found.bare());
        node.wipes.wipe(Task { how: found.record.wipe, ..task }).await?;
    }
    let turn = found.group.turn().await?;
    turn.remove(&found.lv.name).await?;
    drop(turn);
    found.group.flush().await.map_err(VolumeError::from)
}

/// Finds the snapshot with this id; `None` only if all volume groups were read.
pub(super) async fn find_snapshot(
    node: &Node,
    id: &SnapshotId,
) -> Result<Option<FoundSnapshot>, VolumeError> {
    let (found, unread) = search_snapshot(node, id.key()).await?;
    match (found.filter(|found| found.record.id == *id), unread) {
        (None, Some(unread)) => Err(unread),
        (found, _) => Ok(found),
    }
}

/// All snapshots of this node.
///
/// # Errors
/// [`VolumeError::Unavailable`] if a volume group was never read.
pub(super) async fn list_snapshots(node: &Node) -> Result<Vec<Snapshot>, VolumeError> {
    heal_what_died(node).await;
    if let Some(unread) = hidden(node, &|_| true) {
        return Err(unread);
    }
    let mut all = Vec::new();
    for (pool, group) in served(&node.pools()) {
        let seen = last_reading(group).await?;
        let its = snapshots_in(node, pool, group, &seen);
        if !its.is_empty() {
            group.flush().await?; // Who reads the list takes each for durable.
        }
        all.extend(its);
    }
    Ok(all)
}

/// Hears of the end of each copy to a snapshot or a volume of the node.
pub fn copied(node: &Node) -> watch::Receiver<()> {
    node.copies.ends()
}

/// Lists the snapshots of the last readings, without accessing a disk.
pub fn remembered_snapshots(node: &Node) -> Vec<Snapshot> {
    let mut all = Vec::new();
    for (pool, group) in served(&node.pools()) {
        if let Some(seen) = group.remembered() {
            all.extend(snapshots_in(node, pool, group, &seen));
        }
    }
    all
}

fn snapshots_in(
    node: &Node,
    pool: &Arc<Pool>,
    group: &Arc<VolumeGroup>,
    seen: &Arc<Group>,
) -> Vec<Snapshot> {
    let found = |(lv, record): (&Lv, SnapshotTags)| {
        let (pool, group, seen) = (pool.clone(), group.clone(), seen.clone());
        Found { pool, group, seen, lv: lv.clone(), record }
    };
    let taken = snapshots(seen).map(found).filter(FoundSnapshot::is_listed);
    taken.map(|found| snapshot(node, &found)).collect()
}

/// The snapshot as its callers know it.
pub(super) fn snapshot(node: &Node, found: &FoundSnapshot) -> Snapshot {
    let record = &found.record;
    Snapshot {
        id: record.id.clone(),
        name: record.name.clone(),
        node: node.settings.name.clone(),
        pool: found.pool.name.clone(),
        size: found.size(),
        restore_size: record.requested,
        mode: record.mode,
        taken: record.taken,
        ready: record.is_ready() && node.copies.progress(&found.path()).is_none(),
    }
}

impl FoundSnapshot {
    /// Returns whether there was a cut: before it there is only the place for a copy.
    fn is_taken(&self) -> bool {
        self.record.life != StoredState::Copying || self.cut().is_some()
    }

    /// Returns whether callers know it: it was taken, and is not about to go.
    fn is_listed(&self) -> bool {
        self.is_taken() && self.record.life != StoredState::Deleting
    }

    /// The cut that it is copied from.
    fn cut(&self) -> Option<&Lv> {
        find_cut(&self.seen, &self.lv.name)
    }
}

async fn last_reading(group: &Arc<VolumeGroup>) -> Result<Arc<Group>, LvmError> {
    match group.read().await {
        Ok(read) => Ok(read),
        Err(error) => group.remembered().ok_or(error),
    }
}

/// Searches for the key of a name, and reports why some volume groups could not be read.
async fn search_snapshot(
    node: &Node,
    key: &VolumeKey,
) -> Result<(Option<FoundSnapshot>, Option<VolumeError>), VolumeError> {
    heal_what_died(node).await;
    let name = lv_tags::snapshot_name(key);
    let mut unread = hidden(node, &|_| true);
    for (pool, group) in served(&node.pools()) {
        let seen = match last_reading(group).await {
            Ok(seen) => seen,
            Err(error) => {
                unread = Some(error.into());
                continue;
            }
        };
        let Some(lv) = seen.lvs.get(&name).filter(|lv| lv_tags::is_marked(lv)).cloned() else {
            continue;
        };
        let record = SnapshotTags::read(&lv).ok_or_else(|| VolumeError::PreconditionFailed {
            reason: lv_tags::says_nothing(group.name(), &lv),
        })?;
        let (pool, group) = (pool.clone(), group.clone());
        return Ok((Some(Found { pool, group, seen, lv, record }), unread));
    }
    Ok((None, unread))
}

async fn take(node: &Node, want: &NewSnapshot) -> Result<FoundSnapshot, VolumeError> {
    let source = usable(node, &want.source).await?;
    refuse_unless_whole(&source)?;
    let record = SnapshotTags::new(want, &source);
    match source.lv.layout() {
        Layout::Thin => take_thin(node, &source, record).await,
        Layout::Linear => take_copy(node, &source, record).await,
    }
}

/// Goes on with the copies of snapshots that an earlier run of the driver has begun.
pub(super) async fn resume_snapshots(node: &Node) {
    for (pool, group) in served(&node.pools()) {
        let Some(seen) = group.remembered() else { continue };
        for (lv, record) in snapshots(&seen) {
            let (pool, group, seen, lv) = (pool.clone(), group.clone(), seen.clone(), lv.clone());
            let found = Found { pool, group, seen, lv, record };
            if found.record.life == StoredState::Copying
                && let Err(error) = copy_behind(node, &found)
            {
                tracing::warn!(snapshot = %found.record.id, %error, "failed to go on with a snapshot");
            }
        }
    }
}

/// # Errors
/// [`VolumeError::PreconditionFailed`] if the volume does not have its content yet, [`VolumeError::InProgress`] while it
/// is copied or resized.
pub(super) fn refuse_unless_whole(source: &FoundVolume) -> Result<(), VolumeError> {
    let id = &source.record.id;
    if source.record.fence.standing == Standing::HalfCopied {
        return Err(VolumeError::PreconditionFailed {
            reason: format!(
                "a populator or a swap copies data to volume {id}; wait until that ends"
            ),
        });
    }
    if source.has_snapshot() {
        return Err(VolumeError::InProgress {
            what: format!("volume {id}"),
            progress: "its file system is being resized".to_owned(),
        });
    }
    Ok(())
}

/// It says that it is there after the kernel has made it, and not with the commit before that.
async fn take_thin(
    node: &Node,
    source: &FoundVolume,
    record: SnapshotTags,
) -> Result<FoundSnapshot, VolumeError> {
    let turn = source.group.turn().await?;
    let read = turn.read().await?;
    refuse_unless_quiet(node, &read, source).await?;
    let record = SnapshotTags { life: StoredState::Copying, ..record };
    let new = new_lv(&record, Layout::Thin, source.lv.extents());
    let usage = thin_usage(&source.group).await;
    refuse_without_room(&read, &source.pool, Layout::Thin, new.extents, usage.as_ref())?;
    let lv = turn.snapshot(&source.lv.name, &new).await?;
    let record = SnapshotTags { life: StoredState::Shown, ..record };
    let lv = turn.retag(&lv.name, &[&StoredState::Copying.tag()], &[record.life.tag()]).await?;
    let seen = turn.seen().await?;
    drop(turn);
    source.group.flush().await?;
    let (pool, group) = (source.pool.clone(), source.group.clone());
    Ok(Found { pool, group, seen, lv, record })
}

/// Makes the place for the copy, and then the cut: so no cut is without a place to go.
async fn take_copy(
    node: &Node,
    source: &FoundVolume,
    record: SnapshotTags,
) -> Result<FoundSnapshot, VolumeError> {
    let extents = source.lv.extents();
    let turn = source.group.turn().await?;
    let read = turn.read().await?;
    refuse_unless_quiet(node, &read, source).await?;
    // What was never shown to a workload has no content.
    let cut = if record.empty { 0 } else { cut_extents(extents, read.extent_size) };
    let left = lv_tags::cut_name(&record.lv_name());
    if read.lvs.contains_key(&left) {
        turn.remove(&left).await?; // A killed command left it: without its target it was never taken.
    }
    let seen = turn.seen().await?;
    refuse_without_room(&seen, &source.pool, Layout::Linear, extents + cut, None)?;
    let life = if record.empty { StoredState::Shown } else { StoredState::Copying };
    let record = SnapshotTags { life, ..record };
    let lv = turn.create(&new_lv(&record, Layout::Linear, extents)).await?;
    if !record.empty
        && let Err(error) = make_cut(&turn, source, &lv.name).await
    {
        turn.remove(&lv.name).await?; // Who asks takes that for nothing made.
        return Err(error);
    }
    let seen = turn.seen().await?;
    drop(turn);
    let (pool, group) = (source.pool.clone(), source.group.clone());
    let found = Found { pool, group, seen, lv, record };
    found.group.flush().await?;
    copy_behind(node, &found)?;
    Ok(found)
}

fn copy_behind(node: &Node, found: &FoundSnapshot) -> Result<(), VolumeError> {
    let Some(cut) = found.cut().cloned() else { return Ok(()) };
    let whole = vec![StoredState::Shown.tag()];
    let from = Found { lv: cut, ..found.bare() };
    let (to, zeroes) = (found.bare(), Vec::new());
    let (of, size) = (found.record.id.source().clone(), found.size());
    node.copies.start(LvCopy { of, from, size, to, zeroes, whole, ends_source: true })
}

fn new_lv(record: &SnapshotTags, layout: Layout, extents: u64) -> NewLv {
    NewLv { name: record.lv_name(), layout, extents, tags: record.tags() }
}

/// # Errors
/// [`VolumeError::PreconditionFailed`], which has no numbers: each new text of an error is a write to the snapshot's
/// object.
pub(super) fn refuse_without_room(
    group: &Group,
    pool: &Pool,
    layout: Layout,
    extents: u64,
    usage: Option<&ThinUsage>,
) -> Result<(), VolumeError> {
    if layout::largest_new(group, layout, &pool.terms, usage) >= extents {
        return Ok(());
    }
    let name = &group.name;
    let needs = match layout {
        Layout::Thin => "as much as its volume has, which the snapshot may come to use",
        Layout::Linear => "twice the size of its volume, until it is copied",
    };
    Err(VolumeError::PreconditionFailed {
        reason: format!(
            "volume group {name} of pool {} has not enough free space for the snapshot, which needs {needs}; see \
             `vgs {name}`, and delete volumes or snapshots, or add a disk to the volume group",
            pool.name
        ),
    })
}

/// # Errors
/// [`VolumeError::InUse`] while a volume is restored from it.
async fn refuse_if_open(node: &Node, found: &FoundSnapshot) -> Result<(), VolumeError> {
    let live = found.live_device(node.host.as_ref()).await?;
    match live.filter(|(_, info)| info.open_count > 0) {
        None => Ok(()),
        Some((device, _)) => Err(VolumeError::InUse {
            id: found.record.id.to_string(),
            holder: format!(
                "a volume is being restored from it, or a process has {device} open; see `fuser -v {device}`",
                device = device.display()
            ),
        }),
    }
}
