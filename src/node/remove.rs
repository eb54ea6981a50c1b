//! Remove a volume: nobody holds it, its bytes are unreadable, then its extents are free.

use crate::node::error::unavailable;
use crate::node::record::{self, Stage};
use crate::node::wipe::Task;
use crate::node::{Found, Node};
use crate::volume::{VolumeError, VolumeId, Wipe};

impl Node {
    /// Make the volume gone, durably.
    pub(super) async fn remove_volume(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let key = id.key();
        // One of the same name that another node has made is not the one that is meant.
        let Some(found) = self.find_key(key).await?.filter(|found| found.record.id == *id) else {
            // An earlier call may have removed it and died before its flush.
            return self.flush_all().await;
        };
        match found.record.stage {
            Stage::Deleting => {} // Our own wipe may hold it; nobody else can any more.
            Stage::Creating => self.wipes.settle(key).await?,
            Stage::Ready => {
                self.leave_private_mount(&found).await?;
                self.refuse_if_held(&found, None).await?;
                self.wipes.settle(key).await?; // Of what was to join it.
            }
        }
        self.remove_helpers(&found).await?;
        // What was never ready was never shown to a tenant: there is nothing to hide.
        if found.record.stage != Stage::Creating && found.record.wipe != Wipe::None {
            let found = self.mark_deleting(&found).await?;
            let task = self.last_wipe(&found).await?;
            self.wipes.wipe(task).await?;
        }
        let turn = found.group.turn().await.map_err(unavailable)?;
        turn.remove(&found.lv.name).await.map_err(unavailable)?;
        drop(turn);
        self.forget(key);
        found.group.flush().await.map_err(unavailable)
    }

    async fn mark_deleting(&self, found: &Found) -> Result<Found, VolumeError> {
        let mut deleting = found.clone();
        if found.record.stage != Stage::Deleting {
            let turn = found.group.turn().await.map_err(unavailable)?;
            let (gone, new) = (found.record.stage.tag(), Stage::Deleting.tag());
            deleting.lv =
                turn.retag(&found.lv.name, &[&gone], &[new]).await.map_err(unavailable)?;
            deleting.record.stage = Stage::Deleting;
        }
        Ok(deleting)
    }

    /// The wipe at a volume's end, from where it stopped.
    ///
    /// That the volume goes is durable before its first byte does: a power cut would leave a volume
    /// that is ready and half empty.
    pub(super) async fn last_wipe(&self, found: &Found) -> Result<Task, VolumeError> {
        found.group.flush().await.map_err(unavailable)?;
        let (device, _) = self.activate(found).await?;
        let size = found.size().get();
        let from = found.record.wiped.get().min(size);
        Ok(Task {
            key: found.record.id.key().clone(),
            lv: found.dm_uuid(),
            device,
            ranges: std::iter::once(from..size).collect(),
            how: found.record.wipe,
            write_down: Some((found.group.clone(), found.lv.name.clone())),
        })
    }

    /// Remove the logical volumes that a cut growth left beside the volume. They hold nothing that
    /// the volume does not hold, or wiped extents, and they go before it.
    pub(super) async fn remove_helpers(&self, found: &Found) -> Result<(), VolumeError> {
        let key = found.record.id.key();
        self.remove_helper(found, &record::safety_name(key)).await?;
        self.remove_helper(found, &record::more_name(key)).await
    }

    /// Remove extents that were to join the volume and did not yet.
    pub(super) async fn give_up_more(&self, found: &Found) -> Result<(), VolumeError> {
        let key = found.record.id.key();
        self.wipes.settle(key).await?;
        self.remove_helper(found, &record::more_name(key)).await
    }

    async fn remove_helper(&self, found: &Found, name: &str) -> Result<(), VolumeError> {
        if found.seen.lvs.contains_key(name) {
            let turn = found.group.turn().await.map_err(unavailable)?;
            turn.remove(name).await.map_err(unavailable)?;
        }
        Ok(())
    }
}
