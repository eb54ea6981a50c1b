//! Make a file system on a blank device.

use crate::fs::{Blank, FsError, known, run_to_success, tools};
use crate::host::Host;
use crate::volume::{FsKind, MkfsOptions};

/// Make a file system, durable when this returns; a second look has seen it whole.
///
/// Takes the permission to format with it: the device has to be probed again before another try.
///
/// # Errors
/// [`FsError::TooSmall`] before anything is written, [`FsError::Failed`] if mkfs fails,
/// [`FsError::Unexpected`] or [`FsError::NotFilled`] if what it made is not what was wanted.
pub async fn make(
    host: &dyn Host,
    blank: Blank,
    kind: FsKind,
    options: &MkfsOptions,
) -> Result<(), FsError> {
    let (device, size) = (blank.device(), blank.size());
    if size < kind.smallest() {
        return Err(FsError::TooSmall {
            device: device.to_owned(),
            kind,
            size,
            smallest: kind.smallest(),
        });
    }
    run_to_success(host, tools::mkfs(kind, options.words(), device)).await?;
    let made = known(host, device, kind).await?;
    if made.half_made() || made.covers > size || !made.fills(size) {
        return Err(FsError::NotFilled { device: device.to_owned(), covers: made.covers, size });
    }
    // mkfs.ext4 and mkfs.btrfs flush, but that is nowhere promised.
    Ok(host.flush(device).await?)
}
