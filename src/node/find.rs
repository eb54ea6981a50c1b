//! Find volumes. Not found, and not able to look, are two answers.

use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::bytes::Bytes;
use crate::fs::superblock;
use crate::host::{DmInfo, Host};
use crate::lvm::{Group, Lv, VolumeGroup};
use crate::node::error::failed;
use crate::node::plan::served;
use crate::node::pools::{self, Pool};
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

    /// The volume itself, unless its group could not be read just now.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] with the reason.
    pub fn reachable(self) -> Result<Found, VolumeError> {
        match self.group.trouble() {
            None => Ok(self),
            Some(reason) => Err(VolumeError::Unavailable { reason }),
        }
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
        turn.heal(&self.lv).await?;
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
        self.seen.lvs.contains_key(&record::safety_name(self.record.id.key()))
    }
}

impl Node {
    /// Searches for the key of a name, and reports why some volume groups could not be read.
    ///
    /// The search begins where it was found last: then it does not wait for a disk that hangs
    /// elsewhere. For pools that cannot have it the last reading is used. If a volume group cannot
    /// be read now, its last reading counts: nothing reaches its disks, so nothing changes it.
    ///
    /// # Errors
    /// [`VolumeError::PreconditionFailed`] if two logical volumes claim the key, or its tags cannot be read.
    pub(super) async fn search(
        &self,
        key: &VolumeKey,
        may_hold_it: impl Fn(&Pool) -> bool + Send,
    ) -> Result<(Option<Found>, Option<VolumeError>), VolumeError> {
        self.heal_what_died().await;
        let name = record::lv_name(key);
        let pools = self.pools();
        let (first, rest): (Vec<_>, Vec<_>) = served(&pools).partition(|(_, group)| {
            group.remembered().is_some_and(|seen| seen.lvs.contains_key(&name))
        });
        let mut unread = self.hidden(&may_hold_it);
        let mut found = None::<Found>;
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
    pub(super) fn hidden(&self, may_hold_it: &impl Fn(&Pool) -> bool) -> Option<VolumeError> {
        let pools = self.pools();
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
    pub(super) async fn find_key(&self, key: &VolumeKey) -> Result<Option<Found>, VolumeError> {
        match self.search(key, |_| true).await? {
            (None, Some(unread)) => Err(unread),
            (Some(found), _) => found.reachable().map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Finds the volume with this id, to report it or to release it: the last reading is enough.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`] only if all volume groups were read.
    pub(super) async fn must_find(&self, id: &VolumeId) -> Result<Found, VolumeError> {
        let (found, unread) = self.search(id.key(), |_| true).await?;
        let not_found = || unread.unwrap_or_else(|| VolumeError::NotFound { id: id.to_string() });
        found.filter(|found| found.record.id == *id).ok_or_else(not_found)
    }

    /// Finds a volume that may be used.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`], or [`VolumeError::InProgress`] while it is being removed.
    pub(super) async fn usable(&self, id: &VolumeId) -> Result<Found, VolumeError> {
        let found = self.must_find(id).await?.reachable()?;
        match found.record.life {
            record::Life::New | record::Life::Shown => Ok(found),
            record::Life::Deleting => Err(VolumeError::InProgress {
                what: format!("volume {id}"),
                progress: format!("it is {}", self.state(&found)),
            }),
        }
    }

    /// Finds a volume by the last reading of its group, so that no disk is touched; else by a new one.
    pub(super) async fn recall(&self, id: &VolumeId) -> Result<Found, VolumeError> {
        for (pool, group) in served(&self.pools()) {
            let Some(seen) = group.remembered() else { continue };
            if let Some(found) = find_in(pool, group, seen, id.key())?
                && found.record.id == *id
            {
                return Ok(found);
            }
        }
        self.must_find(id).await
    }

    /// The live device of a volume; `None` while it is inactive.
    pub(super) async fn live_device(
        &self,
        found: &Found,
    ) -> Result<Option<(PathBuf, DmInfo)>, VolumeError> {
        found.live_device(self.host.as_ref()).await
    }

    /// As [`Found::activate`].
    pub(super) async fn activate(&self, found: &Found) -> Result<(PathBuf, DmInfo), VolumeError> {
        found.activate(self.host.as_ref()).await
    }
}

/// # Errors
/// [`VolumeError::PreconditionFailed`] if a logical volume of ours is there and does not say what it is: taking
/// it for absent would lose it.
fn find_in(
    pool: &Arc<Pool>,
    group: &Arc<VolumeGroup>,
    seen: Arc<Group>,
    key: &VolumeKey,
) -> Result<Option<Found>, VolumeError> {
    let named = seen.lvs.get(&record::lv_name(key));
    let Some(lv) = named.filter(|lv| record::is_marked(lv)).cloned() else {
        return Ok(None);
    };
    let record = Record::read(&lv).ok_or_else(|| VolumeError::PreconditionFailed {
        reason: says_nothing(group.name(), &lv),
    })?;
    Ok(Some(Found { pool: pool.clone(), group: group.clone(), seen, lv, record }))
}

/// The message for a logical volume of this driver whose tags do not identify it.
pub(super) fn says_nothing(group: &str, lv: &Lv) -> String {
    format!(
        "the tags of logical volume {group}/{} do not identify it; see `lvs -o+lv_tags`, and \
         restore the tags that were changed, or rename it if it is not a volume of this driver",
        lv.name
    )
}

fn twins(one: &Found, other: &Found) -> VolumeError {
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
