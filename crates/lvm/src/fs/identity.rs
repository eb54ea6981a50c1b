//! Give a copied file system an identity of its own.

use std::path::Path;

use crate::fs::grow::{leave, mount_privately_with};
use crate::fs::read::known;
use crate::fs::run::run_to_success;
use crate::fs::{Check, FsError, check, tools};
use crate::host::Host;
use crate::volume::FsKind;

/// Gives an unmounted file system this uuid, so that it can be mounted beside the one that it is a copy of; does nothing
/// if it has it. Durable when this returns.
///
/// What the source had in its journal at the cut is replayed first: ext by its check, xfs by a mount at
/// `private_mount_dir`. btrfs has to have its own uuid before any mount, since the kernel takes two of one uuid for one.
///
/// # Errors
/// [`FsError::Damaged`] if the check leaves errors, [`FsError::Unexpected`] if it has another uuid afterwards: the program
/// of xfs reports success where it did nothing.
pub async fn give_uuid(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    uuid: &str,
    private_mount_dir: &Path,
) -> Result<(), FsError> {
    leave(host, private_mount_dir).await?;
    let superblock = known(host, device, kind).await?;
    if superblock.uuid == uuid {
        return Ok(host.flush(device).await?); // An earlier call may have been cut off before its own.
    }
    match kind {
        // Its checksums begin with the uuid, so the program wants them checked.
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => {
            check(host, device, kind, Check::Repair).await?;
        }
        FsKind::Xfs => {
            mount_privately_with(host, device, kind, private_mount_dir, &["nouuid"]).await?;
            leave(host, private_mount_dir).await?;
        }
        FsKind::Btrfs => {}
    }
    run_to_success(host, tools::set_uuid(&superblock, uuid, device)).await?;
    host.flush(device).await?;
    let has = known(host, device, kind).await?.uuid;
    if has != uuid {
        let (device, found) = (device.to_owned(), format!("uuid {has} instead of {uuid}"));
        return Err(FsError::Unexpected { device, found, wanted: kind });
    }
    Ok(())
}
