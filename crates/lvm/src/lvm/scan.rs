//! Find out which disks carry which group, by reading their labels.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};

use crate::bytes::Bytes;
use crate::host::{Disk, DiskBacking, Host, HostError};
use crate::lvm::group::Group;
use crate::lvm::metadata::{self, Area, Label, MetadataError};
use crate::lvm::read;

/// Holds the label, which stands in one of the first four sectors, and mostly the header of the
/// metadata too, at 4096.
const HEAD_BYTES: usize = 8192;
/// Where the first metadata area begins.
const FIRST_AREA: u64 = 4096;

/// A disk with an LVM label.
#[derive(Debug, Clone)]
pub struct Member {
    /// The disk.
    pub disk: Disk,
    /// Label of the physical volume.
    pub label: Label,
    /// Change check that belongs to `group`; `None` if it has no metadata.
    pub mark: Option<[u8; 24]>,
    /// The volume group that its metadata describes; `None` for a physical volume without a volume
    /// group, and for one without metadata of its own.
    pub group: Option<Group>,
    /// Why its metadata could not be parsed.
    pub damage: Option<Arc<MetadataError>>,
}

impl Member {
    /// Returns whether it certainly belongs to no volume group: it has metadata, which is empty.
    pub fn is_orphan(&self) -> bool {
        self.group.is_none() && self.damage.is_none() && !self.label.areas.is_empty()
    }
}

/// The disks that a plan names, by the kernel's names.
pub type NamedDisks = Arc<BTreeSet<PathBuf>>;

/// Content of the disks of the host.
#[derive(Debug, Default)]
pub struct Scan {
    /// The disks that a plan names: they are read wherever their bytes are.
    pub named: NamedDisks,
    /// The disks that were not read, since their bytes are in another storage system and no plan names
    /// them: a workload may have written what is on them.
    pub unread: Vec<PathBuf>,
    /// The disks with a label, in the order of their paths.
    pub members: Vec<Member>,
    /// The disks whose label makes no sense. That is no label to LVM either, so they are in no group;
    /// blank they are not.
    pub damaged: Vec<(PathBuf, MetadataError)>,
    /// The disks that could not be read.
    pub unreadable: Vec<(PathBuf, HostError)>,
}

/// What one disk says.
enum Looked {
    NoLabel,
    Damaged(MetadataError),
    Member(Box<Member>),
}

impl Scan {
    /// The members of the group of this name.
    pub fn of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Member> {
        self.members.iter().filter(move |m| m.group.as_ref().is_some_and(|g| g.name == group))
    }

    /// Returns whether this member takes precedence over others: it is on a disk in the host
    /// itself, or a plan names its disk.
    pub fn is_trusted(&self, member: &Member) -> bool {
        member.disk.source == DiskBacking::Local || self.named.contains(&member.disk.path)
    }

    /// The member on this disk.
    pub fn on(&self, path: &Path) -> Option<&Member> {
        self.members.iter().find(|member| member.disk.path == path)
    }

    /// The group of a physical volume, by its own metadata or by that of another disk.
    pub fn group_of(&self, member: &Member) -> Option<&Group> {
        let groups = self.members.iter().filter_map(|other| other.group.as_ref());
        let lists_it =
            |group: &&Group| group.pvs.values().any(|pv| pv.uuid == member.label.pv_uuid);
        groups.filter(lists_it).max_by_key(|group| group.seqno)
    }

    /// The call on a disk that has not come back, if there is one.
    pub(crate) fn hanging(&self) -> Option<&str> {
        self.unreadable.iter().find_map(|(_, error)| match error {
            HostError::TimedOut { what, .. } => Some(what.as_str()),
            _ => None,
        })
    }
}

/// Reads the labels and metadata of the disks of the host, of those in another storage system only
/// if they are named.
///
/// # Errors
/// [`HostError`] if the disks cannot be listed; a disk that cannot be read is part of the result.
pub async fn scan(host: &Arc<dyn Host>, named: &NamedDisks) -> Result<Scan, HostError> {
    Ok(scan_disks(host, host.disks().await?, named).await)
}

/// Reads the labels and metadata of these disks as [`scan()`] does, each with its own time limit, side by
/// side.
pub async fn scan_disks(host: &Arc<dyn Host>, disks: Vec<Disk>, named: &NamedDisks) -> Scan {
    let may_be_read =
        |disk: &Disk| disk.source != DiskBacking::Foreign || named.contains(&disk.path);
    let (disks, unread): (Vec<_>, Vec<_>) = disks.into_iter().partition(may_be_read);
    let (mut reads, mut paths) = (JoinSet::new(), HashMap::new());
    for disk in disks {
        let (host, path) = (host.clone(), disk.path.clone());
        let read = reads.spawn(async move { look(host.as_ref(), disk).await });
        paths.insert(read.id(), path);
    }
    let unread = unread.into_iter().map(|disk| disk.path).collect();
    let mut scan = Scan { named: named.clone(), unread, ..Scan::default() };
    while let Some(read) = reads.join_next_with_id().await {
        let (id, looked) = match read {
            Ok(read) => read,
            // What is on it is not known: it is not blank.
            Err(lost) => (lost.id(), Err(fault(&lost))),
        };
        let Some(path) = paths.remove(&id) else { continue };
        match looked {
            Ok(Looked::Member(member)) => scan.members.push(*member),
            Ok(Looked::Damaged(error)) => scan.damaged.push((path, error)),
            Err(error) => scan.unreadable.push((path, error)),
            Ok(Looked::NoLabel) => {}
        }
    }
    scan.members.sort_by(|a, b| a.disk.path.cmp(&b.disk.path));
    scan.damaged.sort_by(|a, b| a.0.cmp(&b.0));
    scan.unreadable.sort_by(|a, b| a.0.cmp(&b.0));
    scan
}

/// The driver's own fault in the look at a disk; the log has where.
fn fault(lost: &JoinError) -> HostError {
    let what = "reading it ended in an internal error of the driver".to_owned();
    HostError::System { what, source: io::Error::other(lost.to_string()) }
}

async fn look(host: &dyn Host, disk: Disk) -> Result<Looked, HostError> {
    let head = host.read_at(&disk.path, 0, HEAD_BYTES).await?;
    let label = match metadata::find_label(&head) {
        Ok(Some(label)) => label,
        Ok(None) => return Ok(Looked::NoLabel),
        Err(error) => return Ok(Looked::Damaged(error)),
    };
    let mut member = Member { disk, label, mark: None, group: None, damage: None };
    match read::copy(host, &member.disk.path, &member.label, &head).await {
        Ok(copy) => {
            member.mark = copy.mark;
            member.group = copy.group;
        }
        Err(read::ReadError::Metadata(error)) => member.damage = Some(Arc::new(error)),
        Err(read::ReadError::Host(error)) => return Err(error),
    }
    Ok(Looked::Member(Box::new(member)))
}

/// The group that a disk without a label still describes, where LVM puts the metadata behind the label.
///
/// # Errors
/// [`HostError`] if the disk cannot be read.
pub async fn without_label(host: &dyn Host, disk: &Path) -> Result<Option<Group>, HostError> {
    let areas = vec![Area { offset: FIRST_AREA, size: 0 }];
    let label = Label { pv_uuid: String::new(), device_size: Bytes::ZERO, areas };
    match read::copy(host, disk, &label, &[]).await {
        Ok(copy) => Ok(copy.group),
        Err(read::ReadError::Metadata(_)) => Ok(None),
        Err(read::ReadError::Host(error)) => Err(error),
    }
}
