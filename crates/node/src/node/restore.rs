//! Makes a volume with the content of a snapshot or of another volume of this node.
//!
//! Where both are thin and in one pool it shares the chunks of its source, at once. Else the content is copied, behind the
//! answer if that takes long; a source that is in use is cut first.

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::lvm::{Group, Lv, NewLv, VolumeGroup, layout};
use crate::node::Node;
use crate::node::allocate::{keeps_limit, make_somewhere, no_room};
use crate::node::copies::{LvCopy, RemoteCopy};
use crate::node::cuts::{
    find_cut, give_up_copy, make_cut, refuse_unless_quiet, remove_cuts_for, remove_half_cut,
    room_of_cut, size_of_cut,
};
use crate::node::find::{hidden, search, usable};
use crate::node::found::{Found, FoundVolume};
use crate::node::lv_tags::{self, StoredState, VolumeTags};
use crate::node::pools::{Pool, served};
use crate::node::remove::{remove_for_retry, to_be_retried};
use crate::node::snapshots::{find_snapshot, refuse_unless_whole, resume_snapshots, tidy_up};
use crate::node::thin_figures::thin_usage;
use crate::node::transfers::RemoteSource;
use crate::node::wipe::ends;
use crate::volume::{Layout, Mode, NewVolume, Reason, Source, VolumeError, error_chain};

/// What a new volume gets.
pub(super) struct SourceContent {
    /// The logical volume that has it.
    pub has: Found<()>,
    /// The volume itself, if it may change while it is copied.
    pub live: Option<FoundVolume>,
    mode: Mode,
    /// True if it was never shown to a workload, and so is nothing.
    pub empty: bool,
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
    content.refuse_other_mode(source, want.mode)?;
    let size = size.max(content.has.size());
    keeps_limit(content.has.size(), want.size)?;
    if content.empty {
        return make_somewhere(node, pool, want, size, StoredState::New).await;
    }
    if content.shares_with(want.class.layout, pool) {
        return share(node, want, &content, size).await;
    }
    let made = make_somewhere(node, pool, want, size, StoredState::Copying).await?;
    let filled = fill(node, made.clone(), source).await;
    give_up_if_final(node, &made, filled).await
}

/// Goes on with a volume that does not have all of its content or of its size yet.
pub(super) async fn complete(
    node: &Node,
    found: FoundVolume,
    want: &NewVolume,
    remote: Option<&RemoteSource>,
) -> Result<FoundVolume, VolumeError> {
    let Some(source) = found.record.source.clone().filter(|_| found.record.source == want.source)
    else {
        return Ok(found); // Another volume than what is asked for, which its caller says.
    };
    match found.record.life {
        StoredState::Copying if is_elsewhere(node, &source) => {
            let filled = go_on_receiving(node, &found, remote).await;
            give_up_if_final(node, &found, filled).await
        }
        StoredState::Copying => {
            let filled = go_on(node, &found, want, &source).await;
            give_up_if_final(node, &found, filled).await
        }
        StoredState::Restored => {
            node.copies.settle(&found.path()).await?;
            tidy_up_after(node, &found, &source).await?;
            enlarge(found, want.size.at_least).await
        }
        StoredState::New | StoredState::Shown | StoredState::Deleting => Ok(found),
    }
}

/// Returns whether the source is on another node.
fn is_elsewhere(node: &Node, source: &Source) -> bool {
    *source.volume().node() != node.settings.key
}

async fn go_on(
    node: &Node,
    found: &FoundVolume,
    want: &NewVolume,
    source: &Source,
) -> Result<FoundVolume, VolumeError> {
    if cut_for(node, found).is_some() || node.copies.progress(&found.path()).is_some() {
        return fill(node, found.clone(), source).await;
    }
    let content = content_of(node, source).await?;
    if !content.shares_with(found.lv.layout(), &found.pool) {
        return fill(node, found.clone(), source).await;
    }
    // A killed command left it, perhaps before the kernel has shared anything.
    found.group.turn().await?.remove(&found.lv.name).await?;
    let size = want.size.at_least.max(content.has.size());
    share(node, want, &content, size).await
}

/// Removes a volume that gets no content, if that is the last word: who asks takes a final error for nothing made. Of a
/// source that is gone it may have a part, which is wiped as its class says.
async fn give_up_if_final(
    node: &Node,
    made: &FoundVolume,
    filled: Result<FoundVolume, VolumeError>,
) -> Result<FoundVolume, VolumeError> {
    let Err(error) = filled else { return filled };
    match error.reason() {
        Reason::InProgress | Reason::Unavailable => {}
        Reason::NotFound => remove_for_retry(node, &made.record.id).await?,
        _ => remove_blank(node, made).await.map_err(to_be_retried)?,
    }
    Err(error)
}

/// Removes a volume of which nothing was written.
async fn remove_blank(node: &Node, made: &FoundVolume) -> Result<(), VolumeError> {
    give_up_copy(node, made).await?;
    made.group.turn().await?.remove(&made.lv.name).await?;
    made.group.flush().await.map_err(VolumeError::from)
}

/// Makes the volume with the content of what another node has, at least as large as that.
///
/// # Errors
/// As [`make_restored`]; [`VolumeError::Unavailable`] if the content did not come: a repeated call goes on.
pub(super) async fn make_received(
    node: &Node,
    want: &NewVolume,
    source: &RemoteSource,
    pool: &Arc<Pool>,
    size: Bytes,
) -> Result<FoundVolume, VolumeError> {
    let size = size.max(source.size);
    keeps_limit(source.size, want.size)?;
    if source.is_empty {
        return make_somewhere(node, pool, want, size, StoredState::New).await;
    }
    let made = make_somewhere(node, pool, want, size, StoredState::Copying).await?;
    let filled = receive(node, made.clone(), source, false).await;
    give_up_if_final(node, &made, filled).await
}

/// Receives the content from another node, and waits for its end.
async fn receive(
    node: &Node,
    found: FoundVolume,
    source: &RemoteSource,
    resumes: bool,
) -> Result<FoundVolume, VolumeError> {
    found.group.flush().await?;
    let found = enlarge(found, source.size).await?;
    let copy = RemoteCopy {
        of: found.record.id.clone(),
        from: source.content.clone(),
        size: source.size,
        to: found.bare(),
        zeroes: if resumes {
            behind(&found, source.size)
        } else {
            zeroes_behind(&found, source.size)
        },
        whole: vec![StoredState::Restored.tag()],
        resumes,
    };
    node.copies.finish_remote(copy).await?;
    as_it_is_now(node, &found).await
}

/// Goes on with a volume whose content is on another node. Without a source it never gets it: whoever asks knows that the
/// other node does not have it any more.
async fn go_on_receiving(
    node: &Node,
    found: &FoundVolume,
    source: Option<&RemoteSource>,
) -> Result<FoundVolume, VolumeError> {
    if node.copies.progress(&found.path()).is_some() {
        node.copies.settle(&found.path()).await?;
        return as_it_is_now(node, found).await;
    }
    let source = source.ok_or_else(|| VolumeError::Reported {
        reason: Reason::NotFound,
        message: format!("volume {} never gets its content from another node", found.record.id),
    })?;
    receive(node, found.clone(), source, true).await
}

async fn as_it_is_now(node: &Node, found: &FoundVolume) -> Result<FoundVolume, VolumeError> {
    let whole = search(node, found.record.id.key(), |_| true).await?.0;
    whole.ok_or_else(|| VolumeError::NotFound { id: found.record.id.to_string() })?.reachable()
}

impl SourceContent {
    /// # Errors
    /// [`VolumeError::InvalidArgument`] if a volume of this mode cannot have it.
    pub fn refuse_other_mode(&self, source: &Source, mode: Mode) -> Result<(), VolumeError> {
        if self.mode == mode {
            return Ok(());
        }
        Err(VolumeError::InvalidArgument {
            field: "volume_content_source".to_owned(),
            reason: format!("{source} is {}, and {mode} was requested", self.mode),
        })
    }

    /// # Errors
    /// [`VolumeError::InProgress`] if it is not as it was found.
    async fn refuse_unless_quiet(&self, node: &Node, now: &Group) -> Result<(), VolumeError> {
        if let Some(live) = &self.live {
            return refuse_unless_quiet(node, now, live).await;
        }
        let name = &self.has.lv.name;
        let deleting = StoredState::Deleting.tag();
        match now.lvs.get(name).filter(|lv| !lv.tags.contains(&deleting)) {
            Some(_) => Ok(()),
            None => Err(VolumeError::InProgress {
                what: format!("snapshot {}", self.has.path()),
                progress: "it is being deleted".to_owned(),
            }),
        }
    }

    /// Returns whether a volume of this layout in this pool shares the chunks of it, at once.
    fn shares_with(&self, layout: Layout, pool: &Pool) -> bool {
        layout == Layout::Thin
            && self.has.lv.layout() == Layout::Thin
            && self.has.pool.name == pool.name
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
    let is_unread = |group: &VolumeGroup| group.remembered().is_none() || group.trouble().is_some();
    if hidden(node, &|_| true).is_some() || served(&pools).any(|(_, group)| is_unread(group)) {
        return; // A target that is not seen is not gone.
    }
    let is_copying = |target: &str| {
        served(&pools).filter_map(|(_, group)| group.remembered()).any(|seen| {
            let copying = StoredState::Copying.tag();
            seen.lvs.get(target).is_some_and(|lv| lv.tags.contains(&copying))
        })
    };
    for (_, group) in served(&pools) {
        let Some(seen) = group.remembered() else { continue };
        let cuts = seen.lvs.keys().filter_map(|name| lv_tags::target_of_cut(name));
        // Those for other nodes go when they are not allowed any more.
        let cuts = cuts.filter(|target| !lv_tags::is_remote(target));
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
    // With what another node has only whoever asks for it goes on: keys and addresses last no longer than processes.
    let here = record.source.as_ref().filter(|source| !is_elsewhere(node, source));
    let Some(source) = here else { return Ok(()) };
    let (Some(found), _) = search(node, record.id.key(), |_| true).await? else { return Ok(()) };
    if found.record.life != StoredState::Copying {
        return Ok(()); // Its copy has come to its end meanwhile.
    }
    if cut_for(node, &found).is_none() {
        let content = content_of(node, source).await?;
        if content.live.is_some() || content.shares_with(found.lv.layout(), &found.pool) {
            return Ok(()); // Whoever asks for it again has it cut.
        }
    }
    let copy = copy_of(node, &found, source).await?;
    node.copies.start(copy)
}

/// The cut that an earlier call has made for this volume.
fn cut_for(node: &Node, target: &FoundVolume) -> Option<Found<()>> {
    served(&node.pools()).find_map(|(pool, group)| {
        let seen = group.remembered()?;
        let lv = find_cut(&seen, &target.lv.name)?.clone();
        Some(Found { pool: pool.clone(), group: group.clone(), seen, lv, record: () })
    })
}

pub(super) async fn content_of(node: &Node, source: &Source) -> Result<SourceContent, VolumeError> {
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
    content.refuse_unless_quiet(node, &read).await?;
    let (all, extents) = (size.div_ceil(read.extent_size), content.has.lv.extents());
    keeps_limit(read.size_of(all.max(extents)), want.size)?;
    let usage = thin_usage(group).await;
    if layout::largest_new(&read, Layout::Thin, &pool.terms, usage.as_ref()) < all {
        drop(turn);
        return Err(no_room(pool, Layout::Thin, size, Vec::new()).await);
    }
    // It says that it has its content after the kernel has given it that, and not with the commit before.
    let record =
        VolumeTags { life: StoredState::Copying, ..VolumeTags::new(&node.settings.key, want) };
    let (name, tags) = (record.lv_name(), record.tags());
    let new = NewLv { name, layout: Layout::Thin, extents, tags };
    let lv = turn.snapshot(&content.has.lv.name, &new).await?;
    let record = VolumeTags { life: StoredState::Restored, ..record };
    let lv = turn.retag(&lv.name, &[&StoredState::Copying.tag()], &[record.life.tag()]).await?;
    let seen = turn.seen().await?;
    drop(turn);
    enlarge(Found { pool: pool.clone(), group: group.clone(), seen, lv, record }, size).await
}

/// Expands a volume that is not as large as it is to be. Its file system grows when it is first mounted.
async fn enlarge(found: FoundVolume, size: Bytes) -> Result<FoundVolume, VolumeError> {
    let extents = size.div_ceil(found.seen.extent_size);
    if found.lv.extents() >= extents {
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
    source: &Source,
) -> Result<FoundVolume, VolumeError> {
    found.group.flush().await?;
    if node.copies.progress(&found.path()).is_some() {
        node.copies.settle(&found.path()).await?;
    } else {
        let copy = copy_of(node, &found, source).await?;
        node.copies.finish(copy).await?;
    }
    as_it_is_now(node, &found).await
}

/// The copy that fills a volume. If there is a cut for it, that is all that is needed: its source may have changed, or be
/// gone.
async fn copy_of(node: &Node, found: &FoundVolume, source: &Source) -> Result<LvCopy, VolumeError> {
    let (from, size, ends_source) = if let Some(cut) = cut_for(node, found) {
        let size = size_of_cut(&cut.seen, &cut.lv);
        (cut, size, true)
    } else {
        let content = content_of(node, source).await?;
        if let Some(live) = &content.live {
            let cut = cut_of(node, live, &found.lv.name).await?;
            let size = size_of_cut(&cut.seen, &cut.lv);
            (cut, size, true)
        } else {
            let size = content.has.size();
            (content.has, size, false)
        }
    };
    let found = enlarge(found.clone(), size).await?;
    let zeroes = zeroes_behind(&found, size);
    let whole = vec![StoredState::Restored.tag()];
    let of = found.record.id.clone();
    Ok(LvCopy { of, from, size, to: found.bare(), zeroes, whole, ends_source })
}

/// The ranges of a volume behind content of this size that are to have zeroes, if nothing was written there.
fn zeroes_behind(found: &FoundVolume, size: Bytes) -> Vec<Range<u64>> {
    match found.lv.layout() {
        Layout::Thin => Vec::new(),
        Layout::Linear => behind(found, size),
    }
}

/// As [`zeroes_behind`], where the end of a larger content may be: what was received before is another one.
fn behind(found: &FoundVolume, size: Bytes) -> Vec<Range<u64>> {
    let behind = size.get()..found.size().get();
    match found.record.mode {
        _ if behind.is_empty() => Vec::new(),
        Mode::Block => std::iter::once(behind).collect(),
        // The file system guards its bytes; no signature is to be found there before it has grown.
        Mode::Filesystem(_) => ends(behind),
    }
}

/// Cuts a volume for the logical volume of this name, here or on another node.
pub(super) async fn cut_of(
    node: &Node,
    live: &FoundVolume,
    target: &str,
) -> Result<Found<()>, VolumeError> {
    let turn = live.group.turn().await?;
    turn.read().await?;
    remove_half_cut(&turn, target).await?;
    let read = turn.seen().await?;
    refuse_unless_quiet(node, &read, live).await?;
    if !room_of_cut(&read, live).await {
        drop(turn);
        return Err(no_room(&live.pool, live.lv.layout(), live.size(), Vec::new()).await);
    }
    let lv = make_cut(&turn, live, target).await?;
    let seen = turn.seen().await?;
    drop(turn);
    // Before a byte of it is copied: a later cut has other bytes, and those of this one would stay between them.
    live.group.flush().await?;
    Ok(Found { seen, lv, ..live.bare() })
}
