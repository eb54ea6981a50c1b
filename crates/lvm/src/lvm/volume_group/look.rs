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
use crate::lvm::volume_group::believe::{Believed, Disbelief, PreviousGroup, believe};
use crate::lvm::volume_group::{VolumeGroup, failed, hangs, refuse_if_hung};
use crate::volume::few;

impl VolumeGroup {
    /// Reads the volume group as its disks have it now.
    ///
    /// A physical volume whose disk is missing or cannot be read has no `device`.
    ///
    /// # Errors
    /// [`LvmError::Absent`], [`LvmError::Unusable`], [`LvmError::Hung`], [`LvmError::Damaged`].
    pub async fn read(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        let read = look(self).await;
        self.known().trouble = read.as_ref().err().map(ToString::to_string);
        read
    }

    /// Adopts the result of a scan of the disks for this volume group.
    ///
    /// # Errors
    /// As [`VolumeGroup::read`].
    pub fn accept(self: &Arc<Self>, scan: &Scan) -> Result<Arc<Group>, LvmError> {
        let believed = believe_scan(self, scan)?;
        note_strangers(self, believed.strangers.clone());
        Ok(take_over(self, scan, believed))
    }

    /// Adopts where a scan found the disks of a known volume group, unless it has changed since.
    pub fn accept_places(self: &Arc<Self>, scan: &Scan) {
        let seqno = self.remembered().map_or(0, |seen| seen.seqno);
        if let Ok(believed) = believe_scan(self, scan)
            && believed.group.seqno >= seqno
        {
            note_strangers(self, believed.strangers.clone());
            take_over(self, scan, believed);
        }
    }

    /// Notes which disks of the host describe the volume group and are not trusted; changes nothing
    /// else.
    pub fn look_for_strangers(self: &Arc<Self>, scan: &Scan) {
        if let Ok(believed) = believe_scan(self, scan) {
            note_strangers(self, believed.strangers);
        }
    }
}

pub(super) async fn look(vg: &Arc<VolumeGroup>) -> Result<Arc<Group>, LvmError> {
    refuse_if_hung(vg)?;
    let (carriers, seen) = {
        let known = vg.known();
        (known.carriers.clone(), known.seen.clone())
    };
    // A disk that was missing shows in no change check of the others, so look for it each time.
    if let Some(group) = seen.filter(|group| group.missing().next().is_none()) {
        if is_unchanged(vg, &carriers).await? {
            vg.known().read_at = Some(Instant::now());
            return Ok(group);
        }
        if let Some(group) = read_carriers(vg).await? {
            return Ok(group);
        }
    }
    read_all_disks(vg).await
}

/// Reads the group after a command on it, without looking first whether it has changed.
///
/// # Errors
/// As [`VolumeGroup::read`].
pub(in crate::lvm) async fn read_changed(vg: &Arc<VolumeGroup>) -> Result<Arc<Group>, LvmError> {
    refuse_if_hung(vg)?;
    match read_carriers(vg).await? {
        Some(group) => Ok(group),
        None => read_all_disks(vg).await,
    }
}

/// Reads the disks that carried the group; `None` if they do not make a whole one any more.
async fn read_carriers(vg: &Arc<VolumeGroup>) -> Result<Option<Arc<Group>>, LvmError> {
    let (carriers, named) = {
        let known = vg.known();
        (known.carriers.clone(), known.named.clone())
    };
    let disks = carriers.into_iter().map(|carrier| carrier.disk).collect();
    let scan = scan_disks(&vg.host, disks, &named).await;
    if let Some(what) = scan.hanging() {
        return Err(hangs(vg, what.to_owned()));
    }
    let group = believe_scan(vg, &scan).ok().map(|believed| take_over(vg, &scan, believed));
    Ok(group.filter(|group| group.missing().next().is_none()))
}

pub(in crate::lvm) async fn read_all_disks(vg: &Arc<VolumeGroup>) -> Result<Arc<Group>, LvmError> {
    let named = vg.known().named.clone();
    let scan = scan(&vg.host, &named).await.map_err(|source| failed(vg, source))?;
    vg.accept(&scan)
}

fn believe_scan(vg: &Arc<VolumeGroup>, scan: &Scan) -> Result<Believed, LvmError> {
    let (seen, carriers) = {
        let known = vg.known();
        (known.seen.clone(), known.carriers.clone())
    };
    let known = seen.as_deref().map(|seen| PreviousGroup { seen, carriers: &carriers });
    believe(&vg.name, scan, known.as_ref()).map_err(|disbelief| match disbelief {
        Disbelief::Absent => absent(vg, scan),
        Disbelief::Disputed(reason) => unusable(vg, reason),
    })
}

fn take_over(vg: &Arc<VolumeGroup>, scan: &Scan, believed: Believed) -> Arc<Group> {
    let group = Arc::new(believed.group);
    let mut known = vg.known();
    known.named = scan.named.clone();
    known.uneven = believed.uneven;
    known.carriers = believed.carriers;
    known.seen = Some(group.clone());
    known.read_at = Some(Instant::now());
    group
}

fn note_strangers(vg: &VolumeGroup, now: Option<String>) {
    let before = std::mem::replace(&mut vg.known().strangers, now.clone());
    if let Some(strangers) = now.filter(|now| before.as_ref() != Some(now)) {
        tracing::warn!(group = vg.name, strangers, "ignoring an untrusted disk");
    }
}

/// Why no disk describes the group: damage or a hanging disk explain it, else it is absent.
fn absent(vg: &Arc<VolumeGroup>, scan: &Scan) -> LvmError {
    let carriers = vg.known().carriers.clone();
    let was_ours = |path: &Path| carriers.iter().any(|carrier| carrier.disk.path == path);
    let mut damage = scan.members.iter().filter(|member| was_ours(&member.disk.path));
    if let Some(source) = damage.find_map(|member| member.damage.clone()) {
        return LvmError::Damaged { group: vg.name.clone(), source };
    }
    let hanging = scan.unreadable.iter().find_map(|(path, error)| match error {
        HostError::TimedOut { what, .. } if was_ours(path) => Some(what.clone()),
        _ => None,
    });
    hanging.map_or_else(
        || LvmError::Absent { group: vg.name.clone(), others: groups_of(scan) },
        |what| hangs(vg, what),
    )
}

fn unusable(vg: &VolumeGroup, reason: String) -> LvmError {
    LvmError::Unusable { group: vg.name.clone(), reason }
}

/// Returns whether the change check of every disk is unchanged: one sector a disk, side by side.
async fn is_unchanged(vg: &Arc<VolumeGroup>, carriers: &[Member]) -> Result<bool, LvmError> {
    let mut reads = JoinSet::new();
    for carrier in carriers.iter().cloned() {
        let host = vg.host.clone();
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
                return Err(hangs(vg, what));
            }
            Ok(Err(_)) | Err(_) => unchanged = false,
        }
    }
    Ok(unchanged)
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
