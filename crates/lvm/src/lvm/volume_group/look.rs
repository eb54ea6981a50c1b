//! Look at the disks of a group: whether it has changed since the last reading, and what it is now.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::host::HostError;
use crate::lvm::LvmError;
use crate::lvm::group::Group;
use crate::lvm::read::{self, ReadError};
use crate::lvm::scan::{Member, Scan, scan, scan_disks};
use crate::lvm::volume_group::VolumeGroup;
use crate::lvm::volume_group::believe::{Believed, Disbelief, PreviousGroup, believe};
use crate::volume::few;

impl VolumeGroup {
    pub(super) async fn look(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        self.refuse_if_hung()?;
        let (carriers, seen) = {
            let known = self.known();
            (known.carriers.clone(), known.seen.clone())
        };
        // A disk that was missing shows in no change check of the others, so look for it each time.
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

    /// Reads the group after a command on it, without looking first whether it has changed.
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

    /// Reads the disks that carried the group; `None` if they do not make a whole one any more.
    async fn read_carriers(self: &Arc<Self>) -> Result<Option<Arc<Group>>, LvmError> {
        let (carriers, named) = {
            let known = self.known();
            (known.carriers.clone(), known.named.clone())
        };
        let disks = carriers.into_iter().map(|carrier| carrier.disk).collect();
        let scan = scan_disks(&self.host, disks, &named).await;
        if let Some(what) = scan.hanging() {
            return Err(self.hangs(what.to_owned()));
        }
        let group = self.believe(&scan).ok().map(|believed| self.take_over(&scan, believed));
        Ok(group.filter(|group| group.missing().next().is_none()))
    }

    pub(in crate::lvm) async fn read_all_disks(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        let named = self.known().named.clone();
        let scan = scan(&self.host, &named).await.map_err(|source| self.failed(source))?;
        self.accept(&scan)
    }

    /// Adopts the result of a scan of the disks for this volume group.
    ///
    /// # Errors
    /// As [`VolumeGroup::read`].
    pub fn accept(self: &Arc<Self>, scan: &Scan) -> Result<Arc<Group>, LvmError> {
        let believed = self.believe(scan)?;
        self.note_strangers(believed.strangers.clone());
        Ok(self.take_over(scan, believed))
    }

    /// Adopts where a scan found the disks of a known volume group, unless it has changed since.
    pub fn accept_places(self: &Arc<Self>, scan: &Scan) {
        let seqno = self.remembered().map_or(0, |seen| seen.seqno);
        if let Ok(believed) = self.believe(scan)
            && believed.group.seqno >= seqno
        {
            self.note_strangers(believed.strangers.clone());
            self.take_over(scan, believed);
        }
    }

    /// Notes which disks of the host describe the volume group and are not trusted; changes nothing
    /// else.
    pub fn look_for_strangers(self: &Arc<Self>, scan: &Scan) {
        if let Ok(believed) = self.believe(scan) {
            self.note_strangers(believed.strangers);
        }
    }

    fn believe(self: &Arc<Self>, scan: &Scan) -> Result<Believed, LvmError> {
        let (seen, carriers) = {
            let known = self.known();
            (known.seen.clone(), known.carriers.clone())
        };
        let known = seen.as_deref().map(|seen| PreviousGroup { seen, carriers: &carriers });
        believe(&self.name, scan, known.as_ref()).map_err(|disbelief| match disbelief {
            Disbelief::Absent => self.absent(scan),
            Disbelief::Disputed(reason) => self.unusable(reason),
        })
    }

    fn take_over(self: &Arc<Self>, scan: &Scan, believed: Believed) -> Arc<Group> {
        let group = Arc::new(believed.group);
        let mut known = self.known();
        known.named = scan.named.clone();
        known.uneven = believed.uneven;
        known.carriers = believed.carriers;
        known.seen = Some(group.clone());
        known.read_at = Some(Instant::now());
        group
    }

    fn note_strangers(&self, now: Option<String>) {
        let before = std::mem::replace(&mut self.known().strangers, now.clone());
        if let Some(strangers) = now.filter(|now| before.as_ref() != Some(now)) {
            tracing::warn!(group = self.name, strangers, "ignoring an untrusted disk");
        }
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

    /// Returns whether the change check of every disk is unchanged: one sector a disk, side by side.
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
    let here = if names.is_empty() {
        "the node has no volume groups".to_owned()
    } else {
        format!("the node has {}", few(names))
    };
    if scan.unread.is_empty() {
        return here;
    }
    let unread = few(scan.unread.iter().map(|path| path.display()));
    format!(
        "{here}; {unread} was not read, because it belongs to another storage system and no pool \
         names it"
    )
}
