//! The volume groups on the disks, read without LVM.

use std::path::PathBuf;

use crate::host::{Disk, Host, HostError};
use crate::lvm::Group;
use crate::lvm::metadata::{self, Area, Label, MetadataError};

/// A disk that carries a physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The disk.
    pub disk: PathBuf,
    /// The physical volume's uuid; `None` if its label is damaged.
    pub pv_uuid: Option<String>,
    /// Size of its metadata area in bytes.
    pub area_size: u64,
    /// The group as this disk tells it; `None` if it is in none or keeps no copy.
    pub group: Option<Group>,
    /// Why the rest is not known.
    pub fault: Option<Fault>,
}

/// Why it is not known what a disk says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The disk could not be read.
    Unreadable(String),
    /// What was read makes no sense.
    Damaged(String),
}

impl From<HostError> for Fault {
    fn from(error: HostError) -> Self {
        Fault::Unreadable(super::look::in_words(&error))
    }
}

impl From<MetadataError> for Fault {
    fn from(error: MetadataError) -> Self {
        Fault::Damaged(error.to_string())
    }
}

/// A label is in the first four sectors.
const LABEL_BYTES: usize = 4 * metadata::SECTOR;

/// Find the disks that carry a physical volume, and read what they say.
pub(super) async fn find(host: &dyn Host) -> Result<Vec<Found>, HostError> {
    let mut found = Vec::new();
    for disk in host.disks().await? {
        found.extend(examine(host, disk).await);
    }
    Ok(found)
}

async fn examine(host: &dyn Host, disk: Disk) -> Option<Found> {
    let mut found =
        Found { disk: disk.path, pv_uuid: None, area_size: 0, group: None, fault: None };
    match read_label(host, &found).await {
        Ok(None) => return None,
        Err(fault) => found.fault = Some(fault),
        Ok(Some(label)) => {
            found.pv_uuid = Some(label.pv_uuid);
            for area in label.areas {
                found.area_size = area.size;
                match read_group(host, &found, area).await {
                    Ok(group) => found.group = found.group.take().or(group),
                    Err(fault) => found.fault = Some(fault),
                }
            }
        }
    }
    Some(found)
}

async fn read_label(host: &dyn Host, on: &Found) -> Result<Option<Label>, Fault> {
    let start = host.read_at(&on.disk, 0, LABEL_BYTES).await?;
    Ok(metadata::find_label(&start)?)
}

async fn read_group(host: &dyn Host, on: &Found, area: Area) -> Result<Option<Group>, Fault> {
    let sector = host.read_at(&on.disk, area.offset, metadata::SECTOR).await?;
    let header = metadata::parse_area(&sector)?;
    let Some(location) = header.text else {
        return Ok(None);
    };
    let mut text = Vec::new();
    for range in header.text_ranges() {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        text.extend(host.read_at(&on.disk, range.start, length).await?);
    }
    if !metadata::check_text(&text, location.checksum) {
        return Err(MetadataError::Checksum("metadata text").into());
    }
    Ok(Some(metadata::parse_group(&text)?))
}

#[cfg(test)]
mod tests;
