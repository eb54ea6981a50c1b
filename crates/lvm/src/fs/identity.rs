//! Give a copied file system an identity of its own.

use std::path::Path;

use crate::fs::grow::{leave, mount_privately_with};
use crate::fs::read::known;
use crate::fs::run::run_to_success;
use crate::fs::superblock::btrfs;
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
    if kind != FsKind::Btrfs || !rewrite_superblocks(host, device, uuid).await? {
        run_to_success(host, tools::set_uuid(&superblock, uuid, device)).await?;
    }
    host.flush(device).await?;
    let has = known(host, device, kind).await?.uuid;
    if has != uuid {
        let (device, found) = (device.to_owned(), format!("uuid {has} instead of {uuid}"));
        return Err(FsError::Unexpected { device, found, wanted: kind });
    }
    Ok(())
}

/// Gives a btrfs this uuid by its superblocks alone, the first of them last; says whether it could.
///
/// Its own program commits a transaction, which may write over the log of what was last made durable: no tree counts the
/// blocks of that as used.
///
/// # Errors
/// [`FsError::Damaged`] if there is such a log and the superblock cannot be rewritten.
async fn rewrite_superblocks(host: &dyn Host, device: &Path, uuid: &str) -> Result<bool, FsError> {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let wanted = u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes();
    let size = host.device_size(device).await?.get();
    let (mut rewritten, mut has_log) = (Vec::new(), false);
    for place in btrfs::PLACES.into_iter().filter(|place| place + btrfs::LENGTH as u64 <= size) {
        let block = host.read_at(device, place, btrfs::LENGTH).await?;
        has_log |= place == btrfs::PLACES[0] && btrfs::has_log(&block);
        rewritten.extend(btrfs::with_uuid(&block, place, wanted).map(|block| (place, block)));
    }
    if rewritten.first().is_none_or(|(place, _)| *place != btrfs::PLACES[0]) {
        let meaning = "its log has to be replayed, and its checksums are not crc32c".to_owned();
        let (device, repair) = (device.to_owned(), format!("btrfs check {}", device.display()));
        return if has_log { Err(FsError::Damaged { device, meaning, repair }) } else { Ok(false) };
    }
    for (place, block) in rewritten.into_iter().rev() {
        host.write_blocks(device, place, block).await?;
    }
    Ok(true)
}
