//! Look at the disks of a group: whether it has changed since the last reading, and what it is now.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::host::HostError;
use crate::lvm::LvmError;
use crate::lvm::group::Group;
use crate::lvm::read::{self, ReadError};
use crate::lvm::scan::{Member, Scan, scan, scan_disks};
use crate::lvm::volume_group::VolumeGroup;
use crate::volume::few;

impl VolumeGroup {
    pub(super) async fn look(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        self.refuse_if_hung()?;
        let (carriers, seen) = {
            let known = self.known();
            (known.carriers.clone(), known.seen.clone())
        };
        // A disk that was away shows in no change check of the others, so look for it each time.
        if let Some(group) = seen.filter(|group| group.missing().next().is_none()) {
            if self.is_unchanged(&carriers).await? {
                self.known().read_at = Some(Instant::now());
                return Ok(group);
            }
            if let Some(group) = self.read_carriers().await? {
                return Ok(group);
            }
        }
        self.read_all_disks().await
    }

    /// Read the group after a command on it, without looking first whether it has changed.
    ///
    /// # Errors
    /// As [`VolumeGroup::read`].
    pub(in crate::lvm) async fn read_changed(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        self.refuse_if_hung()?;
        match self.read_carriers().await? {
            Some(group) => Ok(group),
            None => self.read_all_disks().await,
        }
    }

    /// Read the disks that carried the group; `None` if they do not make a whole one any more.
    async fn read_carriers(self: &Arc<Self>) -> Result<Option<Arc<Group>>, LvmError> {
        let carriers = self.known().carriers.clone();
        let disks = carriers.into_iter().map(|carrier| carrier.disk).collect();
        let scan = scan_disks(&self.host, disks).await;
        if let Some(what) = scan.hanging() {
            return Err(self.hangs(what.to_owned()));
        }
        let group = self.accept(&scan).ok();
        Ok(group.filter(|group| group.missing().next().is_none()))
    }

    async fn read_all_disks(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        let scan = scan(&self.host).await.map_err(|source| self.failed(source))?;
        self.accept(&scan)
    }

    /// Take over what a scan of the disks says of this group.
    ///
    /// # Errors
    /// As [`VolumeGroup::read`].
    pub fn accept(self: &Arc<Self>, scan: &Scan) -> Result<Arc<Group>, LvmError> {
        let group = Arc::new(self.choose(scan)?);
        let devices: BTreeSet<&PathBuf> =
            group.pvs.values().filter_map(|pv| pv.device.as_ref()).collect();
        let carriers =
            scan.members.iter().filter(|member| devices.contains(&member.disk.path)).cloned();
        // One that has just joined may keep metadata and tell of no group yet.
        let old = |member: &Member| {
            let tells = member.mark.is_some() && devices.contains(&member.disk.path);
            tells && member.group.as_ref().is_none_or(|own| own.seqno < group.seqno)
        };
        let mut known = self.known();
        known.uneven = scan.members.iter().any(old);
        known.carriers = carriers.map(|member| Member { group: None, ..member }).collect();
        known.seen = Some(group.clone());
        known.read_at = Some(Instant::now());
        Ok(group)
    }

    /// The newest description of the group that its disks hold, with the devices filled in.
    fn choose(self: &Arc<Self>, scan: &Scan) -> Result<Group, LvmError> {
        let members: Vec<&Member> = scan.of(&self.name).collect();
        let newest = members
            .iter()
            .filter_map(|member| member.group.as_ref())
            .max_by_key(|group| group.seqno)
            .ok_or_else(|| self.absent(scan))?;
        if let Some(other) =
            members.iter().find(|m| m.group.as_ref().is_some_and(|g| g.uuid != newest.uuid))
        {
            let first =
                members.iter().find(|m| m.group.as_ref().is_some_and(|g| g.uuid == newest.uuid));
            return Err(self.unusable(format!(
                "two groups have this name, one on {} and one on {}; rename one with `vgrename UUID NEW`",
                first.map_or_else(String::new, |m| m.disk.path.display().to_string()),
                other.disk.path.display()
            )));
        }
        let mut group = newest.clone();
        let full = |member: &&Member| member.group.as_ref().is_some_and(|g| g.metadata_full);
        group.metadata_full = members.iter().any(full);
        for pv in group.pvs.values_mut() {
            let carriers: Vec<&Member> =
                scan.members.iter().filter(|m| m.label.pv_uuid == pv.uuid).collect();
            match carriers[..] {
                [] => {}
                [member] => pv.device = Some(member.disk.path.clone()),
                [one, two, ..] => {
                    return Err(self.unusable(format!(
                        "{} and {} carry the same physical volume {}; detach one, or give the copy new ids with `vgimportclone`",
                        one.disk.path.display(),
                        two.disk.path.display(),
                        pv.uuid
                    )));
                }
            }
        }
        Ok(group)
    }

    /// Why no disk describes the group: damage or a hanging disk explain it, else it is absent.
    fn absent(self: &Arc<Self>, scan: &Scan) -> LvmError {
        let carriers = self.known().carriers.clone();
        let was_ours = |path: &Path| carriers.iter().any(|carrier| carrier.disk.path == path);
        let mut damage = scan.members.iter().filter(|member| was_ours(&member.disk.path));
        if let Some(source) = damage.find_map(|member| member.damage.clone()) {
            return LvmError::Damaged { group: self.name.clone(), source };
        }
        let hanging = scan.unreadable.iter().find_map(|(path, error)| match error {
            HostError::TimedOut { what, .. } if was_ours(path) => Some(what.clone()),
            _ => None,
        });
        hanging.map_or_else(
            || LvmError::Absent { group: self.name.clone(), others: groups_of(scan) },
            |what| self.hangs(what),
        )
    }

    fn unusable(&self, reason: String) -> LvmError {
        LvmError::Unusable { group: self.name.clone(), reason }
    }

    /// Whether the change check of every disk is as it was: one sector a disk, side by side.
    async fn is_unchanged(self: &Arc<Self>, carriers: &[Member]) -> Result<bool, LvmError> {
        let mut reads = JoinSet::new();
        for carrier in carriers.iter().cloned() {
            let host = self.host.clone();
            reads.spawn(async move {
                let mark = read::mark(host.as_ref(), &carrier.disk.path, &carrier.label).await;
                mark.map(|mark| mark == carrier.mark)
            });
        }
        let mut unchanged = true;
        while let Some(read) = reads.join_next().await {
            match read {
                Ok(Ok(same)) => unchanged &= same,
                Ok(Err(ReadError::Host(HostError::TimedOut { what, .. }))) => {
                    return Err(self.hangs(what));
                }
                Ok(Err(_)) | Err(_) => unchanged = false,
            }
        }
        Ok(unchanged)
    }
}

/// Which groups a scan has found, for a message.
fn groups_of(scan: &Scan) -> String {
    let groups = scan.members.iter().filter_map(|member| member.group.as_ref());
    let names: BTreeSet<&str> = groups.map(|group| group.name.as_str()).collect();
    if names.is_empty() {
        "there is none here".to_owned()
    } else {
        format!("here are {}", few(names))
    }
}
