//! Repairs a volume group: what a dead LVM command or process left, and the wipes that it had begun.

use std::sync::Arc;

use crate::lvm::{Group, LvmError, VgGuard, VolumeGroup};
use crate::node::cuts::{find_cut, remove_half_cut};
use crate::node::found::FoundVolume;
use crate::node::lv_tags::StoredState;
use crate::node::pools::{Pool, served};
use crate::node::snapshot_tags::snapshots;
use crate::node::thin_pool::complete_thin_pool;
use crate::node::wipe_tasks::{last_wipe, start_first_wipe};
use crate::node::{Node, lv_tags};
use crate::volume::error_chain;

/// Repairs the volume groups on which an LVM command has died: a volume that it left suspended
/// would block its workload, and the answer that nothing is left to do would be no help.
pub(super) async fn heal_what_died(node: &Node) {
    for (_, group) in served(&node.pools()) {
        if group.note_cut(false) {
            // To its end, also if the caller leaves: half-way something could stay suspended.
            let _ = tokio::spawn(heal_after_death(group.clone())).await;
        }
    }
}

/// Brings the kernel in line with the metadata, and go on with the wipes of new and of deleted volumes.
pub(super) async fn recover(
    node: &Node,
    pool: &Arc<Pool>,
    group: &Arc<VolumeGroup>,
) -> Result<(), LvmError> {
    let turn = group.turn().await?;
    let thin = pool.terms.thin.unwrap_or_default();
    // Before anything loads the thin pool: without it the kernel says nothing until the pool is full.
    node.host.set_thin_mark(group.name(), thin.grow_at);
    let seen = heal(&turn).await?;
    complete_thin_pool(&turn, &thin).await?;
    let ours = |record: &lv_tags::VolumeTags| lv_tags::is_here(&seen, record, &node.settings);
    for (_, record) in lv_tags::volumes(&seen).filter(|(_, record)| ours(record)) {
        // A growth that was interrupted starts again when it is asked for again.
        let more = lv_tags::more_name(record.id.key());
        if seen.lvs.contains_key(&more) {
            turn.remove(&more).await?;
        }
    }
    if let Err(error) = tidy_copies(node, &turn, &seen).await {
        let error = error_chain::in_full(&error);
        tracing::warn!(group = group.name(), error, "failed to clean up after a copy");
    }
    drop(turn);
    remove_private_mount_points(node, &seen).await;
    for (lv, record) in lv_tags::volumes(&seen).filter(|(_, record)| ours(record)) {
        let (pool, group, seen) = (pool.clone(), group.clone(), seen.clone());
        let found = FoundVolume { pool, group, seen, lv: lv.clone(), record };
        match found.record.life {
            StoredState::New => start_first_wipe(node, &found),
            // Copies go on when all groups are known.
            StoredState::Copying | StoredState::Restored | StoredState::Shown => {}
            StoredState::Deleting => match last_wipe(&found).await {
                Ok(task) => node.wipes.start(task),
                Err(error) => {
                    let error = error_chain::in_full(&error);
                    tracing::warn!(lv = found.lv.name, error, "wipe deferred");
                }
            },
        }
    }
    Ok(())
}

/// Removes what was not yet a snapshot when its making was cut off, which no answer has named, and deactivates what a copy
/// has left active.
async fn tidy_copies(node: &Node, turn: &VgGuard, seen: &Group) -> Result<(), LvmError> {
    for name in seen.lvs.keys() {
        if let Some(target) = lv_tags::target_of_cut(name) {
            remove_half_cut(turn, target).await?;
        }
    }
    for (lv, record) in snapshots(seen) {
        if record.life == StoredState::Copying && find_cut(seen, &lv.name).is_none() {
            turn.remove(&lv.name).await?;
        }
    }
    let filled = lv_tags::volumes(seen).filter(|(_, record)| record.life == StoredState::Restored);
    let ready = snapshots(seen).filter(|(_, record)| record.is_ready());
    for lv in filled.map(|(lv, _)| lv).chain(ready.map(|(lv, _)| lv)) {
        let live = node.host.dm_info(&seen.dm_uuid(lv)).await.ok().flatten();
        if live.is_some_and(|info| info.open_count == 0) {
            turn.deactivate(&lv.name).await?;
        }
    }
    Ok(())
}

/// Removes the directories at which a growth that was interrupted had mounted volumes of a
/// group.
async fn remove_private_mount_points(node: &Node, seen: &Group) {
    let private = node.settings.private_mounts();
    if let Ok(None) = node.host.path_kind(&private).await {
        return;
    }
    for (_, record) in lv_tags::volumes(seen) {
        let left = private.join(record.id.key().as_str());
        if let Err(error) = node.host.remove_path(&left).await {
            tracing::warn!(%error, "failed to remove a directory of an earlier run");
        }
    }
}

async fn heal_after_death(group: Arc<VolumeGroup>) {
    let healed = async { heal(&group.turn().await?).await };
    if let Err(error) = healed.await {
        group.note_cut(true);
        let error = error_chain::in_full(&error);
        tracing::error!(group = group.name(), error, "failed to recover the volume group");
    }
}

/// Brings all disks of a group to the same state, and the kernel in line with it.
async fn heal(turn: &VgGuard) -> Result<Arc<Group>, LvmError> {
    turn.level().await?;
    let seen = turn.read().await?;
    turn.heal_all(lv_tags::healable(&seen)).await?;
    Ok(seen)
}
