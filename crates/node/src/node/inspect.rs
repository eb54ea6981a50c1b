//! Look at a volume as closely as can be done without a process: who has it open, and how full it is.

use std::path::Path;

use crate::bytes::Bytes;
use crate::fs;
use crate::host::DmInfo;
use crate::mount::MountTable;
use crate::node::{FoundVolume, Node};
use crate::volume::{FsKind, FsUsage, Inspection, Mode, VolumeError, VolumeId, VolumeStatus};

impl Node {
    /// Looks at the volume now; `None` only if all groups were looked at and it is not there.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if its group, or its mounted file system, cannot be asked now: what
    /// was not seen is no answer.
    pub(super) async fn inspect_volume(
        &self,
        id: &VolumeId,
    ) -> Result<Option<Inspection>, VolumeError> {
        let found = match self.must_find(id).await {
            Ok(found) => found.reachable()?,
            Err(VolumeError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let look = self.look().await?;
        let mut status = self.describe(&found, &look);
        let Some((device, info)) = self.live_device(&found).await? else {
            // Without a device no one can have it open.
            return Ok(Some(Inspection { status, open_count: 0, usage: None, smallest: None }));
        };
        let usage = self.usage_if_mounted(&look.table, &info, &mut status).await?;
        let smallest = self.smallest(&found, &device).await;
        Ok(Some(Inspection { status, open_count: info.open_count, usage, smallest }))
    }

    async fn usage_if_mounted(
        &self,
        table: &MountTable,
        info: &DmInfo,
        status: &mut VolumeStatus,
    ) -> Result<Option<FsUsage>, VolumeError> {
        let shown = self.shown(table, info.number);
        let Some(mount) = shown.first() else { return Ok(None) };
        self.usage_unless_suspended(&mount.target, info, &mut status.ailments).await
    }

    /// What the file system cannot become smaller than, where its superblock alone tells.
    async fn smallest(&self, found: &FoundVolume, device: &Path) -> Option<Bytes> {
        if found.record.mode != Mode::Filesystem(FsKind::Xfs) || found.record.is_new() {
            return None;
        }
        let superblock = fs::superblock_of(self.host.as_ref(), device).await.ok().flatten()?;
        (superblock.kind == FsKind::Xfs).then_some(superblock.covers)
    }
}
