//! Find volumes. Not found, and not able to look, are two answers.

use std::path::PathBuf;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::host::DmInfo;
use crate::lvm::{Group, Lv, VolumeGroup};
use crate::node::error::{failed, unavailable};
use crate::node::pools::Pool;
use crate::node::record::{self, Record};
use crate::node::{Node, device_node};
use crate::volume::{VolumeError, VolumeId, VolumeKey};

/// A volume that was found, as its group had it then.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub pool: Arc<Pool>,
    pub group: Arc<VolumeGroup>,
    pub seen: Arc<Group>,
    pub lv: Lv,
    pub record: Record,
}

impl Found {
    /// The real size.
    pub fn size(&self) -> Bytes {
        self.seen.size_of(self.lv.extents())
    }

    /// Whether a resize that was cut short left its safety snapshot.
    pub fn has_snapshot(&self) -> bool {
        self.seen.lvs.contains_key(&record::safety_name(self.record.id.key()))
    }
}

impl Node {
    /// Look for the key of a name in all groups, and say why some could not be looked at.
    ///
    /// Where a group cannot be read now, its last reading counts: nothing reaches its disks, so
    /// nobody changes it.
    ///
    /// # Errors
    /// [`VolumeError::Refused`] if two logical volumes claim the key, or its tags cannot be read.
    pub(super) async fn search(
        &self,
        key: &VolumeKey,
    ) -> Result<(Option<Found>, Option<VolumeError>), VolumeError> {
        let (mut found, mut unread) = (None::<Found>, None);
        for pool in &self.pools {
            if let Some(trouble) = pool.trouble.as_ref().filter(|trouble| trouble.may_hide_volumes)
            {
                let (what, reason) = (format!("pool {}", pool.name), trouble.words.clone());
                unread = Some(VolumeError::Unavailable { what, reason });
            }
            for group in &pool.groups {
                let seen = match group.read().await {
                    Ok(seen) => Some(seen),
                    Err(error) => {
                        let remembered = group.remembered();
                        if remembered.is_none() {
                            unread = Some(unavailable(error));
                        }
                        remembered
                    }
                };
                let Some(seen) = seen else { continue };
                let Some(here) = find_in(pool, group, seen, key)? else { continue };
                if let Some(other) = &found {
                    return Err(twins(other, &here));
                }
                found = Some(here);
            }
        }
        Ok((found, unread))
    }

    /// Find a volume by the key of its name.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if it was not seen and a group was never read: it may be there.
    pub(super) async fn find_key(&self, key: &VolumeKey) -> Result<Option<Found>, VolumeError> {
        match self.search(key).await? {
            (None, Some(unread)) => Err(unread),
            (found, _) => Ok(found),
        }
    }

    /// Find the volume with this id.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`] only if all groups were looked at.
    pub(super) async fn must_find(&self, id: &VolumeId) -> Result<Found, VolumeError> {
        let found = self.find_key(id.key()).await?.filter(|found| found.record.id == *id);
        found.ok_or_else(|| VolumeError::NotFound { id: id.to_string() })
    }

    /// Find a volume that is ready for use.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`], or [`VolumeError::Working`] while it is being made or removed.
    pub(super) async fn usable(&self, id: &VolumeId) -> Result<Found, VolumeError> {
        let found = self.must_find(id).await?;
        match found.record.stage {
            record::Stage::Ready => Ok(found),
            record::Stage::Creating | record::Stage::Deleting => Err(VolumeError::Working {
                what: format!("volume {id} is {}", self.state(&found)),
                progress: "it can not be used".to_owned(),
            }),
        }
    }

    /// Find a volume by the last reading of its group, so that no disk is touched; else by a new one.
    pub(super) async fn recall(&self, id: &VolumeId) -> Result<Found, VolumeError> {
        for pool in &self.pools {
            for group in &pool.groups {
                let Some(seen) = group.remembered() else { continue };
                if let Some(found) = find_in(pool, group, seen, id.key())?
                    && found.record.id == *id
                {
                    return Ok(found);
                }
            }
        }
        self.must_find(id).await
    }

    /// The live device of a volume; `None` while it is inactive.
    pub(super) async fn live_device(
        &self,
        found: &Found,
    ) -> Result<Option<(PathBuf, DmInfo)>, VolumeError> {
        let uuid = found.seen.dm_uuid(&found.lv);
        let info = self.host.dm_info(&uuid).await.map_err(failed("device-mapper"))?;
        Ok(info.map(|info| (device_node(info.number), info)))
    }

    /// Make the volume's device live, whole and unsuspended; again changes nothing.
    pub(super) async fn activate(&self, found: &Found) -> Result<(PathBuf, DmInfo), VolumeError> {
        let turn = found.group.turn().await.map_err(unavailable)?;
        turn.heal(&found.lv).await.map_err(unavailable)?;
        if self.live_device(found).await?.is_none() {
            turn.activate(&found.lv.name).await.map_err(unavailable)?;
        }
        // With the activation-skip flag LVM succeeds and does nothing; so look.
        self.live_device(found).await?.ok_or_else(|| VolumeError::Refused {
            reason: format!(
                "logical volume {}/{} does not become active; see `lvs -o+lv_skip_activation`",
                found.group.name(),
                found.lv.name
            ),
        })
    }
}

/// # Errors
/// [`VolumeError::Refused`] if a logical volume of ours is there and does not say what it is: taking
/// it for absent would lose it.
fn find_in(
    pool: &Arc<Pool>,
    group: &Arc<VolumeGroup>,
    seen: Arc<Group>,
    key: &VolumeKey,
) -> Result<Option<Found>, VolumeError> {
    let Some(lv) = seen.lvs.get(&record::lv_name(key)).cloned() else { return Ok(None) };
    let record = Record::read(&lv).ok_or_else(|| VolumeError::Refused {
        reason: format!(
            "the tags of logical volume {}/{} do not say what it is; see `lvs -o+lv_tags`, and put \
             back what was changed, or rename it if it is not a volume of this driver",
            group.name(),
            lv.name
        ),
    })?;
    Ok(Some(Found { pool: pool.clone(), group: group.clone(), seen, lv, record }))
}

fn twins(one: &Found, other: &Found) -> VolumeError {
    VolumeError::Refused {
        reason: format!(
            "logical volume {} is in volume groups {} and {}; look at both, and remove or rename \
             the one that is not in use",
            one.lv.name,
            one.group.name(),
            other.group.name()
        ),
    }
}
