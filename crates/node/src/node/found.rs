//! A volume as its volume group has it.

use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::bytes::Bytes;
use crate::fs::superblock;
use crate::host::{DeviceNumber, DmInfo, Host};
use crate::lvm::{Group, Lv, VolumeGroup};
use crate::node::error::failed;
use crate::node::lv_tags::{self, VolumeTags};
use crate::node::pools::Pool;
use crate::volume::VolumeError;

/// A logical volume that was found, as its group had it then, with what its tags describe.
#[derive(Debug, Clone)]
pub(super) struct Found<Record> {
    pub pool: Arc<Pool>,
    pub group: Arc<VolumeGroup>,
    pub seen: Arc<Group>,
    pub lv: Lv,
    pub record: Record,
}

/// A volume that was found.
pub(super) type FoundVolume = Found<VolumeTags>;

impl<Record> Found<Record> {
    /// The same logical volume, whatever its tags describe.
    pub fn bare(&self) -> Found<()> {
        let (pool, group) = (self.pool.clone(), self.group.clone());
        Found { pool, group, seen: self.seen.clone(), lv: self.lv.clone(), record: () }
    }

    /// The real size.
    pub fn size(&self) -> Bytes {
        self.seen.size_of(self.lv.extents())
    }

    /// The volume itself, unless its group could not be read just now.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] with the reason.
    pub fn reachable(self) -> Result<Self, VolumeError> {
        match self.group.trouble() {
            None => Ok(self),
            Some(reason) => Err(VolumeError::Unavailable { reason }),
        }
    }

    /// Bytes of a chunk of its thin pool; `None` for a volume with extents of its own.
    pub fn thin_chunk(&self) -> Option<u64> {
        self.lv.thin_pool()?;
        Some(self.seen.thin_pool()?.segment.chunk.get().max(1))
    }

    /// The device-mapper uuid of its logical volume.
    pub fn dm_uuid(&self) -> String {
        self.seen.dm_uuid(&self.lv)
    }

    /// Returns the live device; `None` while it is inactive.
    pub async fn live_device(
        &self,
        host: &dyn Host,
    ) -> Result<Option<(PathBuf, DmInfo)>, VolumeError> {
        let info = host.dm_info(&self.dm_uuid()).await.map_err(failed("device-mapper"))?;
        Ok(info.map(|info| (device_node(info.number), info)))
    }

    /// Makes its device live, complete and not suspended. A repeated call changes nothing.
    pub async fn activate(&self, host: &dyn Host) -> Result<(PathBuf, DmInfo), VolumeError> {
        let turn = self.group.turn().await?;
        // The table of a copy-on-write snapshot is none of its own metadata: the repair of its origin makes it, and wakes
        // what a killed command left suspended of both. One that has none serves nothing.
        let live = self.live_device(host).await?;
        let is_half_made = live.is_some_and(|(_, info)| !info.live_table);
        let origin = self.seen.origin_of(&self.lv).filter(|_| !is_half_made);
        turn.heal(origin.unwrap_or(&self.lv)).await?;
        if let Some(live) = self.live_device(host).await? {
            return Ok(live);
        }
        turn.activate(&self.lv.name).await?;
        // With the activation-skip flag LVM succeeds and does nothing; so look.
        self.live_device(host).await?.ok_or_else(|| VolumeError::PreconditionFailed {
            reason: format!(
                "logical volume {}/{} did not become active; see `lvs -o+lv_skip_activation`",
                self.group.name(),
                self.lv.name
            ),
        })
    }

    /// Deactivates it unless it is open. A repeated call changes nothing.
    pub async fn deactivate_if_idle(&self, host: &dyn Host) -> Result<(), VolumeError> {
        match self.live_device(host).await? {
            Some((_, info)) if info.open_count == 0 => {
                let turn = self.group.turn().await?;
                turn.deactivate(&self.lv.name).await.map_err(VolumeError::from)
            }
            _ => Ok(()),
        }
    }

    /// Its name as LVM's commands take it.
    pub fn path(&self) -> String {
        format!("{}/{}", self.group.name(), self.lv.name)
    }
}

impl FoundVolume {
    /// The uuid of the file system that is made on it, and on no other logical volume.
    pub fn file_system_uuid(&self) -> String {
        let digest = Sha256::digest(self.dm_uuid());
        let mut bytes: [u8; 16] = std::array::from_fn(|at| digest[at]);
        // Version 8: made by a rule of its own. RFC 9562, section 5.8.
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        superblock::uuid_text(u128::from_be_bytes(bytes))
    }

    /// Returns whether an interrupted resize left its snapshot.
    pub fn has_snapshot(&self) -> bool {
        self.seen.lvs.contains_key(&lv_tags::safety_name(self.record.id.key()))
    }
}

/// The node of a device-mapper device that devtmpfs keeps; never a link that may be stale.
pub(super) fn device_node(number: DeviceNumber) -> PathBuf {
    PathBuf::from(format!("/dev/dm-{}", number.minor))
}
