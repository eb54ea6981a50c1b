//! Shrink a file system to the beginning of its device, mounted or not.

use std::path::Path;

use nix::libc::ENOSPC;

use crate::bytes::Bytes;
use crate::fs::grow::{leave, mount_privately, seen};
use crate::fs::read::known;
use crate::fs::run::run_to_success;
use crate::fs::{Check, FsError, check, tools};
use crate::host::Host;
use crate::volume::{FsKind, Shrinks};

/// Returns the size that a file system needs at most, now and after a power failure; `mounted` is
/// any of its mount points.
///
/// While btrfs shrinks, the kernel reports the new size from the beginning, and the data beyond it
/// is still being moved. On the disk it has the old size until all of that is durable.
///
/// # Errors
/// [`FsError::Unexpected`] if the device carries something else, [`FsError::Host`].
pub async fn covers(
    host: &dyn Host,
    device: &Path,
    mounted: Option<&Path>,
    kind: FsKind,
) -> Result<Bytes, FsError> {
    let written = known(host, device, kind).await?.covers;
    Ok(seen(host, device, mounted, kind).await?.covers.max(written))
}

/// Shrinks a mounted file system; does nothing at or below the size. The data beyond it is moved.
///
/// # Errors
/// [`FsError::CannotShrink`] if its type cannot [shrink while it is mounted](Shrinks::Mounted), or
/// if its content does not fit: it is unchanged then.
pub async fn shrink_mounted(
    host: &dyn Host,
    mounted: &Path,
    device: &Path,
    kind: FsKind,
    to: Bytes,
) -> Result<(), FsError> {
    if covers(host, device, Some(mounted), kind).await? <= to {
        return Ok(());
    }
    if kind.shrinks() != Shrinks::Mounted {
        return Err(cannot(device, to, format!("{kind} cannot shrink while it is mounted")));
    }
    host.btrfs_shrink(mounted, to).await.map_err(|error| match error.errno() {
        Some(ENOSPC) => cannot(device, to, "its content does not fit".to_owned()),
        _ => FsError::Host(error),
    })?;
    shrunk(device, to, covers(host, device, Some(mounted), kind).await?)
}

/// Shrinks a file system that is mounted nowhere; at or below the size already is success.
///
/// ext is checked before and after. What shrinks while it is mounted is mounted at `private_mount_dir`
/// for that moment, as for a [growth](crate::fs::grow_unmounted).
///
/// # Errors
/// [`FsError::Damaged`] if the check leaves errors, [`FsError::CannotShrink`] as for a mounted one;
/// nothing is changed then. [`FsError::Failed`] if `resize2fs` did not come to its end: because what it
/// holds does not fit, or half-way.
pub async fn shrink_unmounted(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    to: Bytes,
    private_mount_dir: &Path,
) -> Result<(), FsError> {
    leave(host, private_mount_dir).await?;
    if known(host, device, kind).await?.covers <= to {
        return Ok(());
    }
    match kind.shrinks() {
        Shrinks::Never => return Err(cannot(device, to, format!("{kind} cannot shrink"))),
        Shrinks::Mounted => {
            mount_privately(host, device, kind, private_mount_dir).await?;
            let shrunk = shrink_mounted(host, private_mount_dir, device, kind, to).await;
            leave(host, private_mount_dir).await?;
            shrunk?;
        }
        Shrinks::Unmounted => {
            check(host, device, kind, Check::Repair).await?;
            // It looks first whether it fits, and says in its words how much is needed.
            run_to_success(host, tools::shrink_ext(device, to)).await?;
            check(host, device, kind, Check::Look).await?;
        }
    }
    shrunk(device, to, known(host, device, kind).await?.covers)
}

fn shrunk(device: &Path, to: Bytes, covers: Bytes) -> Result<(), FsError> {
    if covers <= to {
        return Ok(());
    }
    Err(cannot(device, to, format!("it still covers {covers}")))
}

fn cannot(device: &Path, to: Bytes, why: String) -> FsError {
    FsError::CannotShrink { device: device.to_owned(), to, why }
}
