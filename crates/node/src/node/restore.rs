//! Makes a volume with the content of a snapshot or of another volume of this node.
//!
//! Where both are thin and in one pool it shares the chunks of its source, at once. Else the content is copied, behind the
//! answer if that takes long; a source that is in use is cut first.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::lvm::{Lv, NewLv, layout};
use crate::node::Node;
use crate::node::allocate::{keeps_limit, make_somewhere, no_room};
use crate::node::copies::LvCopy;
use crate::node::cuts::{find_cut, make_cut, remove_cut, remove_half_cut, room_of_cut};
use crate::node::find::{search, usable};
use crate::node::found::{Found, FoundVolume};
use crate::node::lv_tags::{self, StoredState, VolumeTags};
use crate::node::pools::{Pool, served};
use crate::node::snapshots::{find_snapshot, refuse_unless_whole, resume_snapshots, tidy_up};
use crate::node::wipe::ends;
use crate::volume::{Layout, Mode, NewVolume, Source, VolumeError, error_chain};

/// What a new volume gets.
struct SourceContent {
    /// The logical volume that has it.
    has: Found<()>,
    /// The volume itself, if it may change while it is copied.
    live: Option<FoundVolume>,
    mode: Mode,
    /// True if it was never shown to a workload, and so is nothing.
    empty: bool,
}

/// Makes the volume with the content of its source, at least as large as that.
///
/// # Errors
/// [`VolumeError::NotFound`] if the source does not exist, [`VolumeError::InvalidArgument`] if it has another volume mode
/// or file system, [`VolumeError::SizeOutOfRange`] if it is larger than the request allows.
pub(super) async fn make_restored(
    node: &Node,
    want: &NewVolume,
    source: &Source,
    pool: &Arc<Pool>,
    size: Bytes,
) -> Result<FoundVolume, VolumeError> {
    let content = content_of(node, source).await?;
    if content.mode != want.mode {
        return Err(VolumeError::InvalidArgument {
            field: "volume_content_source".to_owned(),
            reason: format!("{source} is {}, and {} was requested", content.mode, want.mode),
        });
    }
    let size = size.max(content.has.size());
    keeps_limit(content.has.size(), want.size)?;
    if content.empty {
        return make_somewhere(node, pool, want, size, StoredState::New).await;
    }
    let shares = content.has.lv.layout() == Layout::Thin
        && want.class.layout == Layout::Thin
        && content.has.pool.name == pool.name;
    if shares {
        return share(node, want, &content, size).await;
    }
    let made = make_somewhere(node, pool, want, size, StoredState::Copying).await?;
    match fill(node, made.clone(), &content).await {
        Err(error @ VolumeError::InsufficientCapacity { .. }) => {
            // Who asks takes that for nothing made.
            give_up_copy(node, &made).await?;
            made.group.turn().await?.remove(&made.lv.name).await?;
            made.group.flush().await?;
            Err(error)
        }
        filled => filled,
    }
}

/// Goes on with a volume that does not have all of its content or of its size yet.
pub(super) async fn complete(
    node: &Node,
    found: FoundVolume,
    want: &NewVolume,
) -> Result<FoundVolume, VolumeError> {
    let Some(source) = found.record.source.clone().filter(|_| found.record.source == want.source)
    else {
        return Ok(found); // Another volume than what is asked for, which its caller says.
    };
    match found.record.life {
        StoredState::Copying => {
            let content = content_of(node, &source).await?;
            fill(node, found, &content).await
        }
        StoredState::Restored => {
            node.copies.settle(&found.path()).await?;
            tidy_up_after(node, &found, &source).await?;
            enlarge(found, want.size.at_least).await
        }
        StoredState::New | StoredState::Shown | StoredState::Deleting => Ok(found),
    }
}

/// Clears away what a copy that came to its end has failed to.
async fn tidy_up_after(
    node: &Node,
    found: &FoundVolume,
    source: &Source,
) -> Result<(), VolumeError> {
    remove_cuts_for(node, found).await?;
    found.deactivate_if_idle(node.host.as_ref()).await?;
    if let Source::Snapshot(id) = source
        && let Ok(Some(snapshot)) = find_snapshot(node, id).await
    {
        tidy_up(node, &snapshot).await?;
    }
    Ok(())
}

/// Stops the copy to a volume, and removes what it was copied from.
pub(super) async fn give_up_copy(node: &Node, found: &FoundVolume) -> Result<(), VolumeError> {
    node.copies.stop(&found.path()).await;
    remove_cuts_for(node, found).await
}

async fn remove_cuts_for(node: &Node, found: &FoundVolume) -> Result<(), VolumeError> {
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

/// Goes on with the copies that an earlier run of the driver has begun, and removes what those have left that came to
/// their end.
pub(super) async fn resume_copies(node: &Node) {
    remove_done_cuts(node).await;
    for (_, group) in served(&node.pools()) {
        let Some(seen) = group.remembered() else { continue };
        for (lv, record) in lv_tags::volumes(&seen) {
            if record.life != StoredState::Copying
                || node.copies.progress(&path(group.name(), lv)).is_some()
            {
                continue;
            }
            if let Err(error) = resume(node, &record).await {
                tracing::warn!(volume = %record.id, %error, "failed to go on with the copy to a volume");
            }
        }
    }
    resume_snapshots(node).await;
}

/// Removes the cuts whose targets are whole, or gone.
async fn remove_done_cuts(node: &Node) {
    let pools = node.pools();
    let is_copying = |target: &str| {
        served(&pools).filter_map(|(_, group)| group.remembered()).any(|seen| {
            let copying = StoredState::Copying.tag();
            seen.lvs.get(target).is_some_and(|lv| lv.tags.contains(&copying))
        })
    };
    for (_, group) in served(&pools) {
        let Some(seen) = group.remembered() else { continue };
        let cuts = seen.lvs.keys().filter_map(|name| lv_tags::target_of_cut(name));
        for target in cuts.filter(|target| !is_copying(target)) {
            let removed = async {
                let turn = group.turn().await?;
                turn.remove(&lv_tags::cut_name(target)).await
            };
            if let Err(error) = removed.await {
                let error = error_chain::in_full(&error);
                tracing::warn!(target, error, "failed to remove the cut of a copy that has ended");
            }
        }
    }
}

fn path(group: &str, lv: &Lv) -> String {
    format!("{group}/{}", lv.name)
}

async fn resume(node: &Node, record: &VolumeTags) -> Result<(), VolumeError> {
    let Some(source) = &record.source else { return Ok(()) };
    let (Some(found), _) = search(node, record.id.key(), |_| true).await? else { return Ok(()) };
    let content = content_of(node, source).await?;
    let copy = copy_of(&found, &content).await?;
    node.copies.start(copy)
}

async fn content_of(node: &Node, source: &Source) -> Result<SourceContent, VolumeError> {
    match source {
        Source::Snapshot(id) => {
            let found = find_snapshot(node, id).await?;
            let found =
                found.ok_or_else(|| VolumeError::SnapshotNotFound { id: id.to_string() })?;
            let found = found.reachable()?;
            if !found.record.is_ready() {
                return Err(VolumeError::InProgress {
                    what: format!("snapshot {id}"),
                    progress: node
                        .copies
                        .progress(&found.path())
                        .unwrap_or_else(|| "it is not ready".to_owned()),
                });
            }
            let (mode, empty) = (found.record.mode, found.record.empty);
            Ok(SourceContent { has: found.bare(), live: None, mode, empty })
        }
        Source::Volume(id) => {
            let found = usable(node, id).await?;
            refuse_unless_whole(&found)?;
            let (mode, empty) = (found.record.mode, found.record.is_new());
            Ok(SourceContent { has: found.bare(), live: Some(found), mode, empty })
        }
    }
}

/// Lets the new volume share the chunks of its source.
async fn share(
    node: &Node,
    want: &NewVolume,
    content: &SourceContent,
    size: Bytes,
) -> Result<FoundVolume, VolumeError> {
    let Found { pool, group, .. } = &content.has;
    let turn = group.turn().await?;
    let read = turn.read().await?;
    if layout::largest_new(&read, Layout::Thin, &pool.terms) < size.div_ceil(read.extent_size) {
        drop(turn);
        return Err(no_room(pool, Layout::Thin, size, Vec::new()).await);
    }
    let life = StoredState::Restored;
    let record = VolumeTags { life, ..VolumeTags::new(&node.settings.key, want) };
    let extents = content.has.lv.extents();
    let (name, tags) = (record.lv_name(), record.tags());
    let new = NewLv { name, layout: Layout::Thin, extents, tags };
    let lv = turn.snapshot(&content.has.lv.name, &new).await?;
    let seen = turn.seen().await?;
    drop(turn);
    enlarge(Found { pool: pool.clone(), group: group.clone(), seen, lv, record }, size).await
}

/// Expands a thin volume that shares the chunks of a smaller one to the size that is asked for. Its file system grows when
/// it is first mounted.
async fn enlarge(found: FoundVolume, size: Bytes) -> Result<FoundVolume, VolumeError> {
    let extents = size.div_ceil(found.seen.extent_size);
    if found.lv.extents() >= extents || found.lv.layout() != Layout::Thin {
        return Ok(found);
    }
    let turn = found.group.turn().await?;
    let lv = turn.extend(&found.lv.name, extents, &[]).await?;
    let seen = turn.seen().await?;
    Ok(Found { seen, lv, ..found })
}

/// Copies the content, and waits for its end.
async fn fill(
    node: &Node,
    found: FoundVolume,
    content: &SourceContent,
) -> Result<FoundVolume, VolumeError> {
    found.group.flush().await?;
    let copy = copy_of(&found, content).await?;
    node.copies.finish(copy).await?;
    let whole = search(node, found.record.id.key(), |_| true).await?.0;
    whole.ok_or_else(|| VolumeError::NotFound { id: found.record.id.to_string() })?.reachable()
}

async fn copy_of(found: &FoundVolume, content: &SourceContent) -> Result<LvCopy, VolumeError> {
    let from = match &content.live {
        Some(live) => cut_of(live, found).await?,
        None => content.has.clone(),
    };
    let size = content.has.size();
    let behind = size.get()..found.size().get();
    let zeroes = match (found.lv.layout(), found.record.mode) {
        _ if behind.is_empty() => Vec::new(),
        (Layout::Thin, _) => Vec::new(),
        (Layout::Linear, Mode::Block) => std::iter::once(behind).collect(),
        // The file system guards its bytes; no signature is to be found there before it has grown.
        (Layout::Linear, Mode::Filesystem(_)) => ends(behind),
    };
    let whole = vec![StoredState::Restored.tag()];
    let ends_source = content.live.is_some();
    let of = found.record.id.clone();
    Ok(LvCopy { of, from, size, to: found.bare(), zeroes, whole, ends_source })
}

/// The cut of a volume for a new one: made now, unless an earlier call has made it.
async fn cut_of(live: &FoundVolume, target: &FoundVolume) -> Result<Found<()>, VolumeError> {
    let turn = live.group.turn().await?;
    turn.read().await?;
    remove_half_cut(&turn, &target.lv.name).await?;
    let read = turn.seen().await?;
    let lv = if let Some(cut) = find_cut(&read, &target.lv.name) {
        cut.clone()
    } else {
        if !room_of_cut(&read, live) {
            drop(turn);
            return Err(no_room(&live.pool, live.lv.layout(), live.size(), Vec::new()).await);
        }
        make_cut(&turn, live, &target.lv.name).await?
    };
    let seen = turn.seen().await?;
    drop(turn);
    // Before a byte of it is copied: a later cut has other bytes, and those of this one would stay between them.
    live.group.flush().await?;
    Ok(Found { seen, lv, ..live.bare() })
}
