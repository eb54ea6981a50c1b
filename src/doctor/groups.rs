//! The volume groups on the disks, read without LVM.

use std::path::PathBuf;

use crate::host::{Disk, Host, HostError};
use crate::lvm::Group;
use crate::lvm::metadata::{self, Area, MetadataError};

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
    /// Why it could not be read.
    pub fault: Option<String>,
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
    let mut found = Found {
        disk: disk.path,
        pv_uuid: None,
        area_size: 0,
        group: None,
        fault: None,
    };
    let start = match host.read_at(&found.disk, 0, LABEL_BYTES).await {
        Ok(start) => start,
        Err(error) => {
            found.fault = Some(super::look::in_words(&error));
            return Some(found);
        }
    };
    let label = match metadata::find_label(&start) {
        Ok(label) => label?,
        Err(error) => {
            found.fault = Some(error.to_string());
            return Some(found);
        }
    };
    found.pv_uuid = Some(label.pv_uuid);
    for area in label.areas {
        found.area_size = area.size;
        match read_area(host, &found, area).await {
            Ok(group) => found.group = found.group.take().or(group),
            Err(fault) => found.fault = Some(fault),
        }
    }
    Some(found)
}

async fn read_area(host: &dyn Host, on: &Found, area: Area) -> Result<Option<Group>, String> {
    let told = |error: MetadataError| error.to_string();
    let header = read(host, on, area.offset, metadata::SECTOR as u64).await?;
    let header = metadata::parse_area(&header).map_err(told)?;
    let Some(location) = header.text else {
        return Ok(None);
    };
    let mut text = Vec::new();
    for range in header.text_ranges() {
        text.extend(read(host, on, range.start, range.end - range.start).await?);
    }
    if !metadata::check_text(&text, location.checksum) {
        return Err(MetadataError::Checksum("metadata text").to_string());
    }
    metadata::parse_group(&text).map(Some).map_err(told)
}

async fn read(host: &dyn Host, on: &Found, offset: u64, length: u64) -> Result<Vec<u8>, String> {
    let length = usize::try_from(length).map_err(|_| "the metadata is too long".to_owned())?;
    host.read_at(&on.disk, offset, length)
        .await
        .map_err(|error| super::look::in_words(&error))
}
