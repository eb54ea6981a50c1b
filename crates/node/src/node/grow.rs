//! Grow a volume, and its file system with it.

use std::collections::BTreeMap;

use crate::fs;
use crate::host::Mount;
use crate::lvm::{ExtentRun, NewLv, layout};
use crate::mount::MountTable;
use crate::node::allocate::keeps_limit;
use crate::node::cuts::refuse_while_copied;
use crate::node::error::{failed, fs_failed};
use crate::node::find::{live_device, usable};
use crate::node::found::FoundVolume;
use crate::node::held::deactivate_unless_held;
use crate::node::lv_tags::{self, StoredState};
use crate::node::remove::{give_up_more, remove_helpers};
use crate::node::resize_offline::{conclude_cut_resize, fills, grow_unmounted};
use crate::node::shrink::{conclude_cut_shrink, keeps_below_limit};
use crate::node::standby::add_standby_disks;
use crate::node::thin_figures::{thin_hindrance, thin_usage};
use crate::node::this_node::LastGrowth;
use crate::node::wipe::Task;
use crate::node::{Node, pools};
use crate::volume::{FsKind, Grown, Growth, Layout, Mode, VolumeError, VolumeId, error_chain};

/// What takes the extents of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// The logical volume that grows.
    Itself,
    /// Another one, which is to join it.
    OneMore,
}

impl Node {
    /// Returns the number of growths since the start, by result: `full` with their file system,
    /// `volume_only` if NodeExpandVolume expands the file system, `error`.
    pub fn growth_outcomes(&self) -> BTreeMap<&'static str, u64> {
        self.outcomes.counts()
    }
}

/// Grows the volume to the wanted size or beyond, and its file system where that is ours to do.
pub(super) async fn grow_volume(
    node: &Node,
    id: &VolumeId,
    growth: Growth,
) -> Result<Grown, VolumeError> {
    let found = usable(node, id).await?;
    let found = conclude_cut_shrink(node, found).await?;
    let block = found.record.mode == Mode::Block;
    if growth.block.is_some_and(|wanted| wanted != block) {
        return Err(VolumeError::InvalidArgument {
            field: "volume_capability".to_owned(),
            reason: format!("the volume is {}", found.record.mode),
        });
    }
    let found = grow_device(node, found, growth).await?;
    let size = found.size();
    let node_expansion_required = match found.record.mode {
        Mode::Block => false,
        // It is made as large as its device when it is first used.
        Mode::Filesystem(_) if !found.record.was_shown() => false,
        // Of a volume that shrank the kubelet remembers that it was larger, and makes no second step.
        Mode::Filesystem(_) if node.settings.two_step && found.record.limit.is_none() => true,
        Mode::Filesystem(kind) => !grow_file_system_here(node, &found, kind).await,
    };
    found.group.flush().await?;
    Ok(Grown { size, node_expansion_required })
}

/// Grows the logical volume; at or beyond the wanted size already changes nothing.
pub(super) async fn grow_device(
    node: &Node,
    found: FoundVolume,
    growth: Growth,
) -> Result<FoundVolume, VolumeError> {
    let wanted = growth.size.at_least.div_ceil(found.seen.extent_size);
    let now = found.lv.extents();
    keeps_below_limit(&found, growth.size.at_least)?;
    if wanted > now {
        refuse_while_copied(node, &found)?;
    }
    keeps_limit(found.seen.size_of(wanted.max(now)), growth.size)?;
    if wanted <= now {
        // A growth that was asked for before and aborted may have left its helper.
        if !node.wipes.runs(found.record.id.key()) && !found.has_snapshot() {
            give_up_more(node, &found).await?;
        }
        return Ok(found);
    }
    match found.record.mode {
        _ if found.record.is_new() => extend(node, found, wanted).await,
        // Its pool zeroes what it gives.
        Mode::Block if found.lv.layout() == Layout::Thin => extend(node, found, wanted).await,
        Mode::Filesystem(kind) => {
            // LVM grows no origin of a snapshot.
            conclude_cut_resize(node, &found, kind).await?;
            // Its file system guards its bytes: no one sees the new extents before it takes
            // them over, and where signatures stand it wipes them then.
            extend(node, found, wanted).await
        }
        Mode::Block => grow_raw(node, found, wanted).await,
    }
}

/// Lets standby disks join if the growth needs them.
///
/// # Errors
/// [`VolumeError::ExpansionOutOfRange`] with what is possible, [`VolumeError::Unavailable`] while the
/// group cannot be changed.
async fn make_room(
    node: &Node,
    found: &FoundVolume,
    more: u64,
    takes: Takes,
) -> Result<(), VolumeError> {
    let turn = found.group.turn().await?;
    let (layout, terms) = (found.lv.layout(), found.pool.terms.of_growth());
    let not_taken = add_standby_disks(node, &found.pool, &turn, layout, (more, terms)).await?;
    let group = turn.read().await?;
    if let Some(reason) = group.frozen() {
        return Err(VolumeError::Unavailable {
            reason: format!("pool {}: volume group {}: {reason}", found.pool.name, group.name),
        });
    }
    let refused = takes == Takes::OneMore && group.has_most_volumes();
    let usage = thin_usage(&found.group).await;
    let largest = if refused { 0 } else { layout::largest(&group, layout, &terms, usage.as_ref()) };
    let why = group.hindrance().filter(|_| refused || group.allocates_narrowly());
    if largest >= more {
        return Ok(());
    }
    let of_thin = thin_hindrance(&found.pool.terms, &found.group, &group);
    let of_thin = of_thin.filter(|_| layout == Layout::Thin);
    Err(VolumeError::ExpansionOutOfRange {
        pool: found.pool.name.clone(),
        asked: group.size_of(found.lv.extents() + more),
        free: group.size_of(group.free_extents()),
        largest: group.size_of(found.lv.extents() + largest),
        hindrance: pools::listed(why.into_iter().chain(of_thin).chain(not_taken.reasons)),
    })
}

/// Lets the logical volume take more extents, whatever they hold.
async fn extend(node: &Node, found: FoundVolume, wanted: u64) -> Result<FoundVolume, VolumeError> {
    make_room(node, &found, wanted - found.lv.extents(), Takes::Itself).await?;
    let turn = found.group.turn().await?;
    let lv = turn.extend(&found.lv.name, wanted, &[]).await?;
    let seen = turn.seen().await?;
    Ok(FoundVolume { seen, lv, ..found })
}

/// Grows a raw volume, which shows its bytes to its tenant as soon as they join. So they are wiped
/// before, in a logical volume of their own, and then joined exactly as they are placed on the disks.
async fn grow_raw(
    node: &Node,
    found: FoundVolume,
    wanted: u64,
) -> Result<FoundVolume, VolumeError> {
    let more = take_more(node, &found, wanted - found.lv.extents()).await?;
    let all = Task { is_written_down: false, ..Task::before_first_use(&more) };
    node.wipes.wipe(all).await?;
    let pieces: Vec<ExtentRun> = more.lv.segments.iter().flat_map(|s| s.pieces.clone()).collect();
    let turn = found.group.turn().await?;
    turn.remove(&more.lv.name).await?;
    let lv = turn.extend(&found.lv.name, wanted, &pieces).await?;
    let seen = turn.seen().await?;
    Ok(FoundVolume { seen, lv, ..found })
}

/// Takes the extents that are to join, or find them taken by an earlier call.
async fn take_more(
    node: &Node,
    found: &FoundVolume,
    extents: u64,
) -> Result<FoundVolume, VolumeError> {
    let name = lv_tags::more_name(found.record.id.key());
    let taken = found.seen.lvs.get(&name);
    if let Some(lv) = taken.filter(|lv| lv.extents() == extents) {
        return Ok(FoundVolume { lv: lv.clone(), ..found.clone() });
    }
    node.wipes.settle(found.record.id.key()).await?;
    remove_helpers(found).await?;
    make_room(node, found, extents, Takes::OneMore).await?;
    let tags = vec![StoredState::New.tag()];
    let turn = found.group.turn().await?;
    let lv = turn.create(&NewLv { name, layout: Layout::Linear, extents, tags }).await;
    let lv = lv?;
    let seen = turn.seen().await?;
    Ok(FoundVolume { seen, lv, ..found.clone() })
}

/// Grows the file system if this host can do it now, without a workload noticing; says whether
/// it fills the device. A failure is no failure of the growth: the node step will say it.
async fn grow_file_system_here(node: &Node, found: &FoundVolume, kind: FsKind) -> bool {
    match try_to_grow_file_system(node, found, kind).await {
        Ok(filled) => filled,
        Err(error) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(volume = %found.record.id, error, "failed to grow the file system");
            false
        }
    }
}

async fn try_to_grow_file_system(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
) -> Result<bool, VolumeError> {
    let table = MountTable::read(node.host.as_ref())
        .await
        .map_err(failed("failed to read the mount table"))?;
    let live = live_device(node, found).await?;
    let mounts: Vec<&Mount> = match &live {
        Some((_, info)) => node.shown(&table, info.number),
        None => Vec::new(),
    };
    if mounts.is_empty() {
        grow_unmounted(node, found, kind).await?;
        // Whether it was active before says nothing: an attempt that was cut off leaves it so.
        deactivate_unless_held(node, found).await?;
        return Ok(true);
    }
    let Some(mount) = mounts.iter().find(|mount| !mount.read_only()) else {
        return Ok(false);
    };
    let Some((device, _)) = live else {
        return Ok(false);
    };
    grow_mounted(node, found, kind, &device, &mount.target.clone()).await.map(|()| true)
}

/// Grows a mounted file system to its device.
///
/// Its extents are durably its own before it counts on them: a power cut would leave a file system
/// that is larger than its device.
pub(super) async fn grow_mounted(
    node: &Node,
    found: &FoundVolume,
    kind: FsKind,
    device: &std::path::Path,
    mounted: &std::path::Path,
) -> Result<(), VolumeError> {
    if !fills(node, found, kind, device).await? {
        found.group.flush().await?;
    }
    let grew = fs::grow_mounted(node.host.as_ref(), mounted, device, kind)
        .await
        .map_err(fs_failed(format!("failed to grow the {kind} file system")))?;
    let (key, grown) = (found.record.id.key(), grew.from != grew.to);
    if grown {
        // The kernel flushes its journal, but not the copies of the superblock.
        node.host.flush(device).await.map_err(failed("flushing the grown file system"))?;
    }
    if grown || node.waits_to_grow(key).is_some() {
        node.note_growth(key, LastGrowth::Done);
    }
    Ok(())
}

/// Notes why the file system is smaller than its device.
pub(super) fn note_refused_growth(node: &Node, found: &FoundVolume, error: &VolumeError) {
    let (volume, reason) = (&found.record.id, error_chain::in_full(error));
    tracing::warn!(%volume, error = reason, "failed to grow the file system");
    node.note_growth(volume.key(), LastGrowth::Waits(reason));
}
