//! Read the metadata of one physical volume, consistently and without a lock.
//!
//! LVM writes new text to fresh space of the ring and commits it by one sector write, which holds the
//! text's checksum too. So: read the header and the text it points to. Text that fits its checksum is
//! what the header meant; text that does not was written over meanwhile, if the header has moved, and
//! then all is read again.

use std::path::Path;

use crate::host::{Host, HostError};
use crate::lvm::group::Group;
use crate::lvm::metadata::{self, AreaHeader, Label, MetadataError};

/// Bytes of a metadata area's header.
const HEADER_BYTES: usize = 512;

/// A group changes at most this often while it is being read, unless something is very wrong.
const TRIES: usize = 16;

/// Content of one physical volume.
#[derive(Debug)]
pub struct Copy {
    /// Change check: equal bytes mean equal metadata. `None` if this disk has no metadata.
    pub mark: Option<[u8; 24]>,
    /// The volume group; `None` if the disk has no metadata or belongs to no volume group.
    pub group: Option<Group>,
}

/// Reason why the metadata of a disk could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A call to the host failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// What is on the disk is no metadata of LVM, or damaged.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// Reads only the change check of a disk: one sector.
///
/// # Errors
/// [`ReadError`] if the sector cannot be read, or is no header.
pub async fn mark(
    host: &dyn Host,
    device: &Path,
    label: &Label,
) -> Result<Option<[u8; 24]>, ReadError> {
    Ok(header(host, device, label, &[]).await?.map(|header| header.raw))
}

/// Reads the metadata of a disk, whose first bytes are known: they may hold the header.
///
/// # Errors
/// [`ReadError`] if the disk cannot be read, or its metadata is damaged.
pub async fn copy(
    host: &dyn Host,
    device: &Path,
    label: &Label,
    mut head: &[u8],
) -> Result<Copy, ReadError> {
    for _ in 0..TRIES {
        let Some(before) = header(host, device, label, head).await? else {
            return Ok(Copy { mark: None, group: None });
        };
        let Some(text) = before.text.as_ref() else {
            return Ok(Copy { mark: Some(before.raw), group: None });
        };
        let mut bytes = Vec::new();
        for range in before.text_ranges() {
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            bytes.extend(host.read_at(device, range.start, length).await?);
        }
        if metadata::check_text(&bytes, text.checksum) {
            let mut group = metadata::parse_group(&bytes)?;
            group.metadata_full = before.is_full();
            return Ok(Copy { mark: Some(before.raw), group: Some(group) });
        }
        head = &[];
        let after = header(host, device, label, head).await?;
        if after.is_none_or(|after| after.raw == before.raw) {
            return Err(MetadataError::Checksum("metadata text").into());
        }
    }
    Err(MetadataError::Checksum("metadata text, which changes at every read,").into())
}

/// The header of the first metadata area that LVM has not set aside.
async fn header(
    host: &dyn Host,
    device: &Path,
    label: &Label,
    head: &[u8],
) -> Result<Option<AreaHeader>, ReadError> {
    for area in &label.areas {
        let start = usize::try_from(area.offset).unwrap_or(usize::MAX);
        let sector = match head.get(start..start.saturating_add(HEADER_BYTES)) {
            Some(sector) => sector.to_vec(),
            None => host.read_at(device, area.offset, HEADER_BYTES).await?,
        };
        let header = metadata::parse_area(&sector, area.offset)?;
        if !header.ignored {
            return Ok(Some(header));
        }
    }
    Ok(None)
}
