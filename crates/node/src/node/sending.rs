//! Lets other nodes read volumes and snapshots of this one. Whoever permits it also ends it; a cut that was made for it
//! goes then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::bytes::Bytes;
use crate::host::HeldFor;
use crate::lvm::{Group, Lv, VolumeGroup};
use crate::node::Node;
use crate::node::copies::activate_and_hold;
use crate::node::cuts::{find_cut, size_of_cut};
use crate::node::found::Found;
use crate::node::lv_tags::{self, StoredState};
use crate::node::pools::served;
use crate::node::restore::{content_of, cut_of};
use crate::node::sends::{Allowed, SendPermit, Sendable, SentDevice, no_more};
use crate::volume::{Layout, Mode, Source, VolumeError, VolumeId, VolumeKey};

/// How long a call waits until what it is to make ready is allowed: both come from the same object, by two watches.
const ALLOWED_WITHIN: Duration = Duration::from_secs(10);

/// Returns whether the node plugin with this fingerprint may read anything.
pub fn may_read(node: &Node, peer: &str) -> bool {
    node.sends.all().values().any(|one| one.send.peer == peer)
}

/// Lets other nodes read exactly this from now on. Connections that read something else are ended, and cuts that were
/// made for something else removed. A repeated call changes nothing.
///
/// # Errors
/// [`VolumeError`] if a cut could not be removed: a repeated call goes on.
pub async fn set_sends(node: &Node, sends: Vec<SendPermit>) -> Result<(), VolumeError> {
    let _turn = node.sends.turn.lock().await;
    let wanted: BTreeMap<VolumeKey, SendPermit> =
        sends.into_iter().map(|send| (send.target.key().clone(), send)).collect();
    let mut stale = BTreeSet::new();
    let ended = {
        let mut all = node.sends.all();
        let (stays, ended) = std::mem::take(&mut *all)
            .into_iter()
            .partition(|(key, one)| wanted.get(key) == Some(&one.send));
        *all = stays;
        let ended: BTreeMap<VolumeKey, Allowed> = ended;
        let is_other = |(key, one): &(&VolumeKey, &Allowed)| {
            wanted.get(*key).is_some_and(|now| now.source != one.send.source)
        };
        stale.extend(ended.iter().filter(is_other).map(|(key, _)| key.clone()));
        for (key, send) in wanted {
            all.entry(key).or_insert(Allowed { send, open: Weak::new(), path: None });
        }
        ended
    };
    // A cut is removed, or read again.
    let is_snapshot = |one: &&Allowed| matches!(one.send.source, Source::Snapshot(_));
    let paths = ended.values().filter(is_snapshot).filter_map(|one| one.path.clone());
    node.sends.unread().extend(paths);
    for open in ended.values().filter_map(|one| one.open.upgrade()) {
        open.close().await;
    }
    node.sends.news.send_replace(());
    // What fails for one keeps no other.
    let mut done = remove_cuts_of_no_send(node, &stale).await;
    let unread = node.sends.unread().clone();
    for path in unread {
        let deactivated = deactivate(node, &path).await;
        if deactivated.is_ok() {
            node.sends.unread().remove(&path);
        }
        done = done.and(deactivated);
    }
    done
}

/// Removes cuts that nothing is sent from, and those of another volume than what is sent now.
async fn remove_cuts_of_no_send(
    node: &Node,
    stale: &BTreeSet<VolumeKey>,
) -> Result<(), VolumeError> {
    let wanted: BTreeSet<String> = {
        let all = node.sends.all();
        let live = all.iter().filter(|(key, one)| {
            matches!(one.send.source, Source::Volume(_)) && !stale.contains(key)
        });
        live.map(|(key, _)| lv_tags::cut_name(&lv_tags::remote_name(key))).collect()
    };
    let mut done = Ok(());
    for (_, group) in served(&node.pools()) {
        let Some(seen) = group.remembered() else { continue };
        let is_remote =
            |name: &&String| lv_tags::target_of_cut(name).is_some_and(lv_tags::is_remote);
        for name in seen.lvs.keys().filter(is_remote).filter(|name| !wanted.contains(*name)) {
            done = done.and(remove_if_there(group, name).await);
        }
    }
    done
}

async fn remove_if_there(group: &Arc<VolumeGroup>, name: &str) -> Result<(), VolumeError> {
    let turn = group.turn().await?;
    if turn.seen().await?.lvs.contains_key(name) {
        turn.remove(name).await?;
    }
    Ok(())
}

/// Deactivates a snapshot that nobody reads any more.
async fn deactivate(node: &Node, path: &str) -> Result<(), VolumeError> {
    for (pool, group) in served(&node.pools()) {
        let Some(seen) = group.remembered() else { continue };
        let is_it = |lv: &&Lv| format!("{}/{}", group.name(), lv.name) == path;
        let Some(lv) = seen.lvs.values().find(is_it).cloned() else { continue };
        let (pool, group) = (pool.clone(), group.clone());
        let found = Found { pool, group, seen, lv, record: () };
        found.deactivate_if_idle(node.host.as_ref()).await?;
    }
    Ok(())
}

/// Makes the content ready that the volume of another node gets: a volume, which may be in use, is cut. A repeated call
/// changes nothing.
///
/// # Errors
/// [`VolumeError::Unavailable`] if it is not [allowed](set_sends), [`VolumeError::NotFound`] if the source does not
/// exist, [`VolumeError::InvalidArgument`] if it has another volume mode or file system.
pub async fn prepare_send(
    node: &Node,
    send: &SendPermit,
    mode: Mode,
) -> Result<Sendable, VolumeError> {
    // An earlier permit for the same volume may be there: it is for another key, or another source.
    let is_there = || node.sends.find(&send.target).as_ref() == Some(send);
    let mut news = node.sends.news.subscribe();
    let is_allowed = news.wait_for(|()| is_there());
    if tokio::time::timeout(ALLOWED_WITHIN, is_allowed).await.is_err() {
        return Err(no_more());
    }
    let _turn = node.sends.turn.lock().await;
    if !is_there() {
        return Err(no_more());
    }
    if let Some((_, size)) = find_remote_cut(node, send) {
        return Ok(Sendable { size, is_empty: false });
    }
    let content = content_of(node, &send.source).await?;
    content.refuse_other_mode(&send.source, mode)?;
    if let Some(live) = content.live.as_ref().filter(|_| !content.empty) {
        cut_of(node, live, &lv_tags::remote_name(send.target.key())).await?;
    }
    Ok(Sendable { size: content.has.size(), is_empty: content.empty })
}

/// Opens what the volume of another node gets, for the node plugin with this fingerprint.
///
/// # Errors
/// [`VolumeError::Unavailable`] if that is not [allowed](set_sends), or not [ready](prepare_send).
pub async fn open_send(
    node: &Node,
    peer: &str,
    target: &str,
) -> Result<Arc<SentDevice>, VolumeError> {
    let _turn = node.sends.turn.lock().await;
    let target: VolumeId = target.parse().map_err(|_| no_more())?;
    let send = node.sends.find(&target).filter(|send| send.peer == peer);
    let send = send.ok_or_else(no_more)?;
    let before = node.sends.all().get(target.key()).and_then(|one| one.open.upgrade());
    if let Some(open) = before {
        return Ok(open);
    }
    let (from, size) = match &send.source {
        Source::Volume(_) => find_remote_cut(node, &send).ok_or_else(no_more)?,
        Source::Snapshot(_) => {
            let content = content_of(node, &send.source).await?;
            let size = content.has.size();
            (content.has, size)
        }
    };
    let held = activate_and_hold(node.host.as_ref(), &from, HeldFor::Programs).await?;
    let open = Arc::new(SentDevice::new(
        node.host.clone(),
        held,
        from.path(),
        size,
        node.copies.limit.clone(),
    ));
    if let Some(one) = node.sends.all().get_mut(target.key()) {
        (one.open, one.path) = (Arc::downgrade(&open), Some(from.path()));
    }
    // Whoever deletes it looks for readers after it has said so; so look whether it has, as a reader.
    if let Err(error) = refuse_if_it_goes(&from).await {
        open.close().await;
        return Err(error);
    }
    Ok(open)
}

/// # Errors
/// [`VolumeError::NotFound`] if a logical volume is gone, or about to be deleted.
async fn refuse_if_it_goes(found: &Found<()>) -> Result<(), VolumeError> {
    let now = found.group.read().await?;
    let deleting = StoredState::Deleting.tag();
    let is_it = |lv: &&Lv| lv.uuid == found.lv.uuid && !lv.tags.contains(&deleting);
    match now.lvs.get(&found.lv.name).filter(is_it) {
        Some(_) => Ok(()),
        None => Err(VolumeError::NotFound { id: found.path() }),
    }
}

/// The cut that was made for this permit, and the size of what it shows.
fn find_remote_cut(node: &Node, send: &SendPermit) -> Option<(Found<()>, Bytes)> {
    let target = lv_tags::remote_name(send.target.key());
    let source = lv_tags::lv_name(send.source.volume().key());
    served(&node.pools()).find_map(|(pool, group): (_, &Arc<VolumeGroup>)| {
        let seen = group.remembered()?;
        let lv = find_cut(&seen, &target).filter(|cut| is_cut_of(&seen, cut, &source))?.clone();
        let size = size_of_cut(&seen, &lv);
        Some((Found { pool: pool.clone(), group: group.clone(), seen, lv, record: () }, size))
    })
}

/// Returns whether this is a cut of the logical volume with this name, which may be gone if it is thin.
fn is_cut_of(group: &Group, cut: &Lv, source: &str) -> bool {
    let of_lv = |lv: &Lv| group.snapshots_of(lv).any(|name| *name == cut.name);
    let origin = cut.segments.first().and_then(|segment| segment.volumes.get("origin"));
    match cut.layout() {
        Layout::Linear => group.lvs.get(source).is_some_and(of_lv),
        Layout::Thin => origin.is_none_or(|origin| origin == source),
    }
}
