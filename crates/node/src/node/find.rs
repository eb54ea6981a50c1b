//! Find volumes. Not found, and not able to look, are two answers.

use std::path::PathBuf;
use std::sync::Arc;

use crate::host::DmInfo;
use crate::lvm::{Group, VolumeGroup};
use crate::node::Node;
use crate::node::found::FoundVolume;
use crate::node::lv_tags::{self, StoredState, VolumeTags};
use crate::node::pools::{self, Pool, served};
use crate::node::recover::heal_what_died;
use crate::volume::{VolumeError, VolumeId, VolumeKey};

/// Searches for the key of a name, and reports why some volume groups could not be read.
///
/// The search begins where it was found last: then it does not wait for a disk that hangs
/// elsewhere. For pools that cannot have it the last reading is used. If a volume group cannot
/// be read now, its last reading counts: nothing reaches its disks, so nothing changes it.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if two logical volumes claim the key, or its tags cannot be read.
pub(super) async fn search(
    node: &Node,
    key: &VolumeKey,
    may_hold_it: impl Fn(&Pool) -> bool + Send,
) -> Result<(Option<FoundVolume>, Option<VolumeError>), VolumeError> {
    heal_what_died(node).await;
    let name = lv_tags::lv_name(key);
    let pools = node.pools();
    let (first, rest): (Vec<_>, Vec<_>) = served(&pools).partition(|(_, group)| {
        group.remembered().is_some_and(|seen| seen.lvs.contains_key(&name))
    });
    let mut unread = hidden(node, &may_hold_it);
    let mut found = None::<FoundVolume>;
    for (at, (pool, group)) in first.iter().chain(&rest).enumerate() {
        let was_elsewhere = at >= first.len();
        if was_elsewhere && (found.is_some() || !may_hold_it(pool)) {
            continue;
        }
        let read = group.read().await;
        let Some(seen) = read.as_ref().ok().cloned().or_else(|| group.remembered()) else {
            unread = read.err().map(VolumeError::from);
            continue;
        };
        let Some(here) = find_in(pool, group, seen, key)? else { continue };
        if let Some(other) = &found {
            return Err(twins(other, &here));
        }
        found = Some(here);
    }
    Ok((found, unread))
}

/// Returns what hides a volume group of these pools completely.
pub(super) fn hidden(node: &Node, may_hold_it: &impl Fn(&Pool) -> bool) -> Option<VolumeError> {
    let pools = node.pools();
    pools.iter().filter(|pool| may_hold_it(pool)).find_map(|pool| {
        let trouble = pools::listed(pool.trouble.iter().cloned())?;
        Some(VolumeError::Unavailable { reason: format!("pool {}: {trouble}", pool.name) })
    })
}

/// Finds a volume by the key of its name, to do something with it.
///
/// # Errors
/// [`VolumeError::Unavailable`] if its group cannot be read now, or if it was not seen and a group
/// was never read: it may be there.
pub(super) async fn find_key(
    node: &Node,
    key: &VolumeKey,
) -> Result<Option<FoundVolume>, VolumeError> {
    match search(node, key, |_| true).await? {
        (None, Some(unread)) => Err(unread),
        (Some(found), _) => found.reachable().map(Some),
        (None, None) => Ok(None),
    }
}

/// Finds the volume with this id, to report it or to release it: the last reading is enough.
///
/// # Errors
/// [`VolumeError::NotFound`] only if all volume groups were read.
pub(super) async fn must_find(node: &Node, id: &VolumeId) -> Result<FoundVolume, VolumeError> {
    let (found, unread) = search(node, id.key(), |_| true).await?;
    let not_found = || unread.unwrap_or_else(|| VolumeError::NotFound { id: id.to_string() });
    found.filter(|found| found.record.id == *id).ok_or_else(not_found)
}

/// Finds a volume that may be used.
///
/// # Errors
/// [`VolumeError::NotFound`], or [`VolumeError::InProgress`] while it is being removed.
pub(super) async fn usable(node: &Node, id: &VolumeId) -> Result<FoundVolume, VolumeError> {
    let found = must_find(node, id).await?.reachable()?;
    match found.record.life {
        StoredState::New | StoredState::Restored | StoredState::Shown => Ok(found),
        StoredState::Copying | StoredState::Deleting => Err(VolumeError::InProgress {
            what: format!("volume {id}"),
            progress: format!("it is {}", node.state(&found)),
        }),
    }
}

/// Finds a volume by the last reading of its group, so that no disk is touched; else by a new one.
pub(super) async fn recall(node: &Node, id: &VolumeId) -> Result<FoundVolume, VolumeError> {
    for (pool, group) in served(&node.pools()) {
        let Some(seen) = group.remembered() else { continue };
        if let Some(found) = find_in(pool, group, seen, id.key())?
            && found.record.id == *id
        {
            return Ok(found);
        }
    }
    must_find(node, id).await
}

/// The live device of a volume; `None` while it is inactive.
pub(super) async fn live_device(
    node: &Node,
    found: &FoundVolume,
) -> Result<Option<(PathBuf, DmInfo)>, VolumeError> {
    found.live_device(node.host.as_ref()).await
}

/// As [`Found::activate`].
pub(super) async fn activate(
    node: &Node,
    found: &FoundVolume,
) -> Result<(PathBuf, DmInfo), VolumeError> {
    found.activate(node.host.as_ref()).await
}

/// # Errors
/// [`VolumeError::PreconditionFailed`] if a logical volume of ours is there and does not say what it is: taking
/// it for absent would lose it.
fn find_in(
    pool: &Arc<Pool>,
    group: &Arc<VolumeGroup>,
    seen: Arc<Group>,
    key: &VolumeKey,
) -> Result<Option<FoundVolume>, VolumeError> {
    let named = seen.lvs.get(&lv_tags::lv_name(key));
    let Some(lv) = named.filter(|lv| lv_tags::is_marked(lv)).cloned() else {
        return Ok(None);
    };
    let record = VolumeTags::read(&lv).ok_or_else(|| VolumeError::PreconditionFailed {
        reason: lv_tags::says_nothing(group.name(), &lv),
    })?;
    Ok(Some(FoundVolume { pool: pool.clone(), group: group.clone(), seen, lv, record }))
}

fn twins(one: &FoundVolume, other: &FoundVolume) -> VolumeError {
    VolumeError::PreconditionFailed {
        reason: format!(
            "logical volume {} exists in volume groups {} and {}; check both, and remove or rename \
             the one that is not in use",
            one.lv.name,
            one.group.name(),
            other.group.name()
        ),
    }
}
