//! The volume groups on the disks, read without LVM.

use std::path::PathBuf;
use std::sync::Arc;

use crate::host::{Host, HostError};
use crate::lvm::{Group, NamedDisks, scan};
use crate::volume::error_chain;

/// A disk that carries a physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDisk {
    /// The disk.
    pub disk: PathBuf,
    /// The physical volume's uuid; `None` if its label is damaged.
    pub pv_uuid: Option<String>,
    /// Size of its metadata area in bytes.
    pub area_size: u64,
    /// Volume group by the metadata of this disk; `None` if it is in none or has no copy.
    pub group: Option<Group>,
    /// Reason why the rest is not known.
    pub fault: Option<Fault>,
}

/// Reason why the metadata of a disk is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The disk could not be read.
    Unreadable(String),
    /// The metadata is damaged.
    Damaged(String),
}

/// Finds the disks that carry a physical volume, and reads their metadata.
pub(super) async fn find(host: &Arc<dyn Host>) -> Result<Vec<FoundDisk>, HostError> {
    let scan = scan(host, &NamedDisks::default()).await?;
    let members = scan.members.into_iter().map(|member| FoundDisk {
        disk: member.disk.path,
        pv_uuid: Some(member.label.pv_uuid),
        area_size: member.label.areas.last().map_or(0, |area| area.size),
        group: member.group,
        fault: member.damage.map(|error| Fault::Damaged(error.to_string())),
    });
    let damaged = scan.damaged.into_iter();
    let damaged = damaged.map(|(disk, error)| unknown(disk, Fault::Damaged(error.to_string())));
    let unreadable = scan.unreadable.into_iter();
    let unreadable = unreadable
        .map(|(disk, error)| unknown(disk, Fault::Unreadable(error_chain::in_full(&error))));
    let mut found: Vec<FoundDisk> = members.chain(damaged).chain(unreadable).collect();
    found.sort_by(|a, b| a.disk.cmp(&b.disk));
    Ok(found)
}

fn unknown(disk: PathBuf, fault: Fault) -> FoundDisk {
    FoundDisk { disk, pv_uuid: None, area_size: 0, group: None, fault: Some(fault) }
}

#[cfg(test)]
mod tests;
