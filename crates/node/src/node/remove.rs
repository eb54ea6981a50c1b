//! Deletes a volume: it must not be open, its bytes are made unreadable, then its extents are
//! freed.

use crate::node::Node;
use crate::node::cuts::{give_up_copy, refuse_while_copied};
use crate::node::find::find_key;
use crate::node::found::FoundVolume;
use crate::node::held::{refuse_if_held, refuse_if_stacked_on};
use crate::node::lv_tags::{self, StoredState};
use crate::node::resize_offline::leave_private_mount;
use crate::node::wipe_tasks::{last_wipe, loses_its_bytes_first};
use crate::volume::{Reason, VolumeError, VolumeId, error_chain};

/// Deletes the volume, durably.
pub(super) async fn remove_volume(node: &Node, id: &VolumeId) -> Result<(), VolumeError> {
    let key = id.key();
    // The same name on another node gives the same key.
    let Some(found) = find_key(node, key).await?.filter(|found| found.record.id == *id) else {
        // An earlier call may have removed it and died before its flush.
        return node.flush_all().await;
    };
    let found = if found.record.life == StoredState::Copying {
        give_up_copy(node, &found).await?;
        // Its copy may have come to its end meanwhile.
        let now = find_key(node, key).await?;
        now.ok_or_else(|| VolumeError::NotFound { id: id.to_string() })?
    } else {
        found
    };
    refuse_while_copied(node, &found)?;
    refuse_if_copied(&found)?;
    match found.record.life {
        // Our own wipe may hold it; no one else can any more. No one has used what is not whole.
        StoredState::Deleting | StoredState::Copying => {}
        StoredState::New => {
            node.wipes.stop(key).await?;
            refuse_if_held(node, &found, None).await?;
        }
        StoredState::Restored | StoredState::Shown => {
            leave_private_mount(node, &found).await?;
            // That of a growth that was aborted, or of a shrink, which holds the device open.
            node.wipes.settle(key).await?;
            refuse_if_held(node, &found, None).await?;
        }
    }
    remove_helpers(&found).await?;
    // What was never shown to a tenant holds nothing to hide; what its extents held is wiped before they are shown.
    if !found.record.is_new() && loses_its_bytes_first(&found) {
        let found = mark_deleting(&found).await?;
        let task = last_wipe(&found).await?;
        node.wipes.wipe(task).await?;
    }
    let turn = found.group.turn().await?;
    let removed = turn.remove(&found.lv.name).await;
    drop(turn);
    if let Err(refused) = removed {
        // What lies on the volume may have been taken for a part of an array while it was wiped.
        refuse_if_stacked_on(node, &found).await?;
        return Err(refused.into());
    }
    node.forget(key);
    found.group.flush().await.map_err(VolumeError::from)
}

/// As [`remove_volume`], for one who asks for a volume and not for its end.
///
/// # Errors
/// None that is the last word: the volume is still there.
pub(super) async fn remove_for_retry(node: &Node, id: &VolumeId) -> Result<(), VolumeError> {
    Box::pin(remove_volume(node, id)).await.map_err(to_be_retried)
}

/// The error of who cannot give up what is there: whoever asks comes again.
pub(super) fn to_be_retried(error: VolumeError) -> VolumeError {
    match error.reason() {
        Reason::InProgress | Reason::Unavailable => error,
        _ => VolumeError::Unavailable { reason: error_chain::in_full(&error) },
    }
}

async fn mark_deleting(found: &FoundVolume) -> Result<FoundVolume, VolumeError> {
    let mut deleting = found.clone();
    if found.record.life != StoredState::Deleting {
        let turn = found.group.turn().await?;
        let (gone, new) = (found.record.life.tag(), StoredState::Deleting.tag());
        deleting.lv = turn.retag(&found.lv.name, &[&gone], &[new]).await?;
        deleting.record.life = StoredState::Deleting;
    }
    Ok(deleting)
}

/// Removes the logical volumes that a cut growth left beside the volume. They hold nothing that
/// the volume does not hold, or wiped extents, and they go before it.
pub(super) async fn remove_helpers(found: &FoundVolume) -> Result<(), VolumeError> {
    let key = found.record.id.key();
    remove_helper(found, &lv_tags::safety_name(key)).await?;
    remove_helper(found, &lv_tags::more_name(key)).await
}

/// Removes extents that were to join the volume and did not yet.
pub(super) async fn give_up_more(node: &Node, found: &FoundVolume) -> Result<(), VolumeError> {
    let key = found.record.id.key();
    node.wipes.settle(key).await?;
    remove_helper(found, &lv_tags::more_name(key)).await
}

async fn remove_helper(found: &FoundVolume, name: &str) -> Result<(), VolumeError> {
    if found.seen.lvs.contains_key(name) {
        let turn = found.group.turn().await?;
        turn.remove(name).await?;
    }
    Ok(())
}

/// # Errors
/// [`VolumeError::InUse`] if another process has taken a snapshot of the volume: LVM would remove
/// that with it.
fn refuse_if_copied(found: &FoundVolume) -> Result<(), VolumeError> {
    let own = lv_tags::safety_name(found.record.id.key());
    let others = found.seen.snapshots_of(&found.lv).find(|name| **name != own);
    others.map_or(Ok(()), |name| {
        let copy = format!("{}/{name}", found.group.name());
        Err(VolumeError::InUse {
            id: found.record.id.to_string(),
            holder: format!("{copy} is a snapshot of it; remove that first with `lvremove {copy}`"),
        })
    })
}
