//! Reads what a device carries.

use std::path::Path;

use super::error::FsError;
use super::superblock::{self, Superblock};
use crate::host::Host;
use crate::volume::FsKind;

/// Reads the superblock of a device; `None` if no kind known here is on it.
///
/// # Errors
/// [`FsError::Host`] if the device is missing or cannot be read.
pub async fn superblock_of(host: &dyn Host, device: &Path) -> Result<Option<Superblock>, FsError> {
    let head = host.read_at(device, 0, superblock::HEAD).await?;
    Ok(superblock::parse(&head))
}

/// The superblock of a device that must carry this kind.
pub(super) async fn known(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
) -> Result<Superblock, FsError> {
    let found = superblock_of(host, device).await?;
    match found {
        Some(superblock) if superblock.kind == kind => Ok(superblock),
        other => Err(FsError::Unexpected {
            device: device.to_owned(),
            found: other.map_or("no known content".to_owned(), |sb| sb.kind.to_string()),
            wanted: kind,
        }),
    }
}
