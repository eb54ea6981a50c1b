//! Make a file system.

use std::path::Path;

use crate::fs::{FsError, known, run_to_success, tools};
use crate::host::Host;
use crate::volume::{FsKind, MkfsOptions};

/// Make a file system of this uuid over whatever the device carries, durable when this returns; a second look has
/// seen it whole.
///
/// # Errors
/// [`FsError::TooSmall`] before anything is written, [`FsError::Failed`] if mkfs fails,
/// [`FsError::Unexpected`] or [`FsError::NotFilled`] if what it made is not what was wanted.
pub async fn make(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    options: &MkfsOptions,
    uuid: &str,
) -> Result<(), FsError> {
    let size = host.device_size(device).await?;
    if size < kind.smallest() {
        return Err(FsError::TooSmall {
            device: device.to_owned(),
            kind,
            size,
            smallest: kind.smallest(),
        });
    }
    run_to_success(host, tools::mkfs(kind, options.words(), uuid, device)).await?;
    let made = known(host, device, kind).await?;
    if made.uuid != uuid {
        let (device, found) = (device.to_owned(), format!("uuid {} instead of {uuid}", made.uuid));
        return Err(FsError::Unexpected { device, found, wanted: kind });
    }
    if made.half_made() || made.covers > size || !made.fills(size) {
        return Err(FsError::NotFilled { device: device.to_owned(), covers: made.covers, size });
    }
    // mkfs.ext4 and mkfs.btrfs flush, but that is nowhere promised.
    Ok(host.flush(device).await?)
}
