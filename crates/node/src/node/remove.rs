//! Deletes a volume: it must not be open, its bytes are made unreadable, then its extents are
//! freed.

use crate::node::lv_tags::{self, StoredState};
use crate::node::wipe::Task;
use crate::node::{FoundVolume, Node};
use crate::volume::{VolumeError, VolumeId, Wipe};

impl Node {
    /// Deletes the volume, durably.
    pub(super) async fn remove_volume(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let key = id.key();
        // The same name on another node gives the same key.
        let Some(found) = self.find_key(key).await?.filter(|found| found.record.id == *id) else {
            // An earlier call may have removed it and died before its flush.
            return self.flush_all().await;
        };
        refuse_if_copied(&found)?;
        match found.record.life {
            StoredState::Deleting => {} // Our own wipe may hold it; no one else can any more.
            StoredState::New => {
                self.wipes.stop(key).await?;
                self.refuse_if_held(&found, None).await?;
            }
            StoredState::Shown => {
                self.leave_private_mount(&found).await?;
                // That of a growth that was aborted, or of a shrink, which holds the device open.
                self.wipes.settle(key).await?;
                self.refuse_if_held(&found, None).await?;
            }
        }
        self.remove_helpers(&found).await?;
        // What was never shown to a tenant holds nothing to hide; what its extents held is wiped before they are shown.
        if !found.record.is_new() && found.record.wipe != Wipe::None {
            let found = self.mark_deleting(&found).await?;
            let task = self.last_wipe(&found).await?;
            self.wipes.wipe(task).await?;
        }
        let turn = found.group.turn().await?;
        let removed = turn.remove(&found.lv.name).await;
        drop(turn);
        if let Err(refused) = removed {
            // What lies on the volume may have been taken for a part of an array while it was wiped.
            self.refuse_if_stacked_on(&found).await?;
            return Err(refused.into());
        }
        self.forget(key);
        found.group.flush().await.map_err(VolumeError::from)
    }

    /// # Errors
    /// [`VolumeError::InUse`] if the kernel has stacked other devices on the volume.
    pub(super) async fn refuse_if_stacked_on(
        &self,
        found: &FoundVolume,
    ) -> Result<(), VolumeError> {
        let Some((_, info)) = self.live_device(found).await? else { return Ok(()) };
        match self.stacked_on(info.number).await? {
            Some(holder) => Err(VolumeError::InUse { id: found.record.id.to_string(), holder }),
            None => Ok(()),
        }
    }

    async fn mark_deleting(&self, found: &FoundVolume) -> Result<FoundVolume, VolumeError> {
        let mut deleting = found.clone();
        if found.record.life != StoredState::Deleting {
            let turn = found.group.turn().await?;
            let (gone, new) = (found.record.life.tag(), StoredState::Deleting.tag());
            deleting.lv = turn.retag(&found.lv.name, &[&gone], &[new]).await?;
            deleting.record.life = StoredState::Deleting;
        }
        Ok(deleting)
    }

    /// The wipe at a volume's end, from where it stopped.
    ///
    /// That the volume goes is durable before its first byte does: a power cut would leave a volume
    /// that is in use and half empty.
    pub(super) async fn last_wipe(&self, found: &FoundVolume) -> Result<Task, VolumeError> {
        found.group.flush().await?;
        Ok(Task { how: found.record.wipe, ..Task::whole(found) })
    }

    /// Removes the logical volumes that a cut growth left beside the volume. They hold nothing that
    /// the volume does not hold, or wiped extents, and they go before it.
    pub(super) async fn remove_helpers(&self, found: &FoundVolume) -> Result<(), VolumeError> {
        let key = found.record.id.key();
        self.remove_helper(found, &lv_tags::safety_name(key)).await?;
        self.remove_helper(found, &lv_tags::more_name(key)).await
    }

    /// Removes extents that were to join the volume and did not yet.
    pub(super) async fn give_up_more(&self, found: &FoundVolume) -> Result<(), VolumeError> {
        let key = found.record.id.key();
        self.wipes.settle(key).await?;
        self.remove_helper(found, &lv_tags::more_name(key)).await
    }

    async fn remove_helper(&self, found: &FoundVolume, name: &str) -> Result<(), VolumeError> {
        if found.seen.lvs.contains_key(name) {
            let turn = found.group.turn().await?;
            turn.remove(name).await?;
        }
        Ok(())
    }
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
