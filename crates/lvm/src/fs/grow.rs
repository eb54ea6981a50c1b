//! Grow a file system to the end of its device, mounted or not.

use std::path::Path;

use nix::libc::{ENOTTY, EOPNOTSUPP, EPERM};

use crate::bytes::Bytes;
use crate::fs::read::known;
use crate::fs::run::run_to_success;
use crate::fs::{
    Check, FsError, FsFacts, Superblock, check, grows_online, stale_signatures, superblock, tools,
};
use crate::host::{Host, HostError, NewMount};
use crate::volume::FsKind;

/// Of so many copies each is read.
const MOST_COPIES: u64 = 1024;
/// Bytes of a copy of a superblock that are read.
const COPY: usize = 4096;

/// Size that a file system covers, before and after a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grew {
    /// Before.
    pub from: Bytes,
    /// Size afterwards; the same if it covered its device already.
    pub to: Bytes,
}

/// Grows a mounted file system to the size of its device; does nothing if it has that size. The
/// device's end is wiped before, and also where the file system cannot use it.
///
/// Decides by the superblock and the device, never by statfs, which leaves out metadata. The kernel
/// is asked directly.
///
/// # Errors
/// [`FsError::OnlyUnmounted`] if this one cannot grow while it is mounted, [`FsError::Damaged`] if the
/// kernel has found errors in it, [`FsError::NotFilled`] if the growth did not reach the end,
/// [`FsError::Host`] with the kernel's answer, such as EROFS.
pub async fn grow_mounted(
    host: &dyn Host,
    mount_point: &Path,
    device: &Path,
    kind: FsKind,
) -> Result<Grew, FsError> {
    let size = host.device_size(device).await?;
    let before = seen(host, device, Some(mount_point), kind).await?;
    let may_grow = may_grow_mounted(&before, device);
    if may_grow.is_ok() {
        stale_signatures::wipe_behind(host, device, Some(mount_point), &before, size).await?;
    }
    if fills(host, device, &before, size).await? {
        return Ok(unchanged(&before));
    }
    may_grow?;
    match ask_kernel(host, mount_point, size, &before).await {
        // The tools make the same calls, so they could do no better.
        Err(error) if matches!(error.errno(), Some(ENOTTY | EOPNOTSUPP)) => {
            return Err(only_unmounted(device));
        }
        // The superblock tells of errors some seconds after the kernel knows of them.
        Err(error) if kind.is_ext() && error.errno() == Some(EPERM) => {
            return Err(recorded_errors(kind, device));
        }
        answer => answer?,
    }
    let after = seen(host, device, Some(mount_point), kind).await?;
    filled(device, size, &before, &after)
}

/// Grows an unmounted file system to the size of its device; does nothing if it has that size.
///
/// It is mounted at `private_mount_dir` for that moment, because the kernel's growth goes through
/// the journal; a `resize2fs` that is killed leaves an ext that needs a manual repair. That tool is
/// only run where the kernel cannot grow the file system. ext is checked before and after. The
/// directory is created and removed here, and a mount that an interrupted call has left there is
/// unmounted first.
///
/// # Errors
/// [`FsError::Damaged`] if the check leaves errors: nothing is grown then. Else as [`grow_mounted`].
pub async fn grow_unmounted(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    private_mount_dir: &Path,
) -> Result<Grew, FsError> {
    let size = host.device_size(device).await?;
    leave(host, private_mount_dir).await?;
    let before = known(host, device, kind).await?;
    if fills(host, device, &before, size).await? {
        return Ok(unchanged(&before));
    }
    check(host, device, kind, Check::Repair).await?;
    if grows_online(&before) {
        mount_privately(host, device, kind, private_mount_dir).await?;
        let grew = grow_mounted(host, private_mount_dir, device, kind).await;
        leave(host, private_mount_dir).await?;
        grew?;
    } else {
        let checked = known(host, device, kind).await?;
        stale_signatures::wipe_behind(host, device, None, &checked, size).await?;
        run_to_success(host, tools::resize_ext(device)).await?;
    }
    if kind.is_ext() {
        check(host, device, kind, Check::Look).await?;
    }
    let after = known(host, device, kind).await?;
    filled(device, size, &before, &after)
}

/// Mounts a file system at a private path, to resize it; [`leave`] unmounts it.
pub(super) async fn mount_privately(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    dir: &Path,
) -> Result<(), HostError> {
    mount_privately_with(host, device, kind, dir, &[]).await
}

/// As [`mount_privately`], with more options.
pub(super) async fn mount_privately_with(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    dir: &Path,
    more: &[&str],
) -> Result<(), HostError> {
    host.make_dir(dir).await?;
    let options = ["nodev", "nosuid", "noexec"].iter().chain(more);
    host.mount(&NewMount {
        device: device.to_owned(),
        target: dir.to_owned(),
        kind: tools::driver(kind),
        options: options.map(|option| (*option).to_owned()).collect(),
    })
    .await
}

/// Unmounts and remove a private mount, also one that an earlier resize has left; none is success.
pub async fn leave(host: &dyn Host, private_mount_dir: &Path) -> Result<(), HostError> {
    let mounts = host.mounts().await?;
    for _ in mounts.iter().filter(|mount| mount.target == private_mount_dir) {
        host.unmount(private_mount_dir).await?;
    }
    match host.path_kind(private_mount_dir).await? {
        Some(_) => host.remove_path(private_mount_dir).await,
        None => Ok(()),
    }
}

/// The superblock as the kernel would write it now.
pub(super) async fn seen(
    host: &dyn Host,
    device: &Path,
    mounted: Option<&Path>,
    kind: FsKind,
) -> Result<Superblock, FsError> {
    let written = known(host, device, kind).await?;
    let covers = match (kind, mounted) {
        (FsKind::Xfs, Some(mounted)) => {
            let geometry = host.xfs_geometry(mounted).await?;
            Bytes::new(u64::from(geometry.block_size).saturating_mul(geometry.data_blocks))
        }
        (FsKind::Btrfs, Some(mounted)) => host.btrfs_device_bytes(mounted).await?,
        // The kernel writes out its journal at the end of a growth.
        _ => written.covers,
    };
    Ok(Superblock { covers, ..written })
}

/// Returns whether a file system covers a device of this size as far as it can, and its copies of
/// the superblock agree.
///
/// # Errors
/// [`HostError`] if the copies could not be read.
pub async fn fills(
    host: &dyn Host,
    device: &Path,
    superblock: &Superblock,
    size: Bytes,
) -> Result<bool, HostError> {
    Ok(superblock.fills(size) && !copies_lag(host, device, superblock).await?)
}

/// Returns whether copies of the superblock lack the last growth.
///
/// xfs writes them after the growth itself, so a power cut may come between. The kernel never looks
/// at them again, but a repair does. Asked to grow to the size that it has, xfs writes them all
/// again. Where there are very many, writing them is cheaper than a look at each.
///
/// # Source
/// `xfs_growfs_data` and `xfs_update_secondary_sbs` in the kernel's `fs/xfs`.
async fn copies_lag(
    host: &dyn Host,
    device: &Path,
    superblock: &Superblock,
) -> Result<bool, HostError> {
    let FsFacts::Xfs { group, .. } = superblock.facts else { return Ok(false) };
    let last = superblock.covers.get().saturating_sub(1) / group.get().max(1);
    if last > MOST_COPIES {
        return Ok(true);
    }
    // Of those in a disk's cache a power cut keeps any.
    for number in 1..=last {
        let copy = host.read_at(device, number * group.get(), COPY).await?;
        if superblock::parse(&copy).is_none_or(|copy| copy.covers != superblock.covers) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn recorded_errors(kind: FsKind, device: &Path) -> FsError {
    FsError::Damaged {
        device: device.to_owned(),
        meaning: "the kernel found errors in it, and does not grow it until it is checked; stop \
                  the workload, and it is checked before the next use"
            .to_owned(),
        repair: tools::repair_by_hand(kind, device),
    }
}

fn may_grow_mounted(superblock: &Superblock, device: &Path) -> Result<(), FsError> {
    if superblock.has_errors() {
        return Err(recorded_errors(superblock.kind, device));
    }
    if !grows_online(superblock) {
        return Err(only_unmounted(device));
    }
    Ok(())
}

fn only_unmounted(device: &Path) -> FsError {
    FsError::OnlyUnmounted { device: device.to_owned() }
}

async fn ask_kernel(
    host: &dyn Host,
    mount_point: &Path,
    size: Bytes,
    superblock: &Superblock,
) -> Result<(), HostError> {
    let blocks = size.get() / superblock.block_size.get();
    match superblock.kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => host.ext_resize(mount_point, blocks).await,
        FsKind::Xfs => {
            let geometry = host.xfs_geometry(mount_point).await?;
            host.xfs_grow(mount_point, blocks, geometry.inode_max_percent).await
        }
        FsKind::Btrfs => host.btrfs_grow_to_device(mount_point).await,
    }
}

fn unchanged(superblock: &Superblock) -> Grew {
    Grew { from: superblock.covers, to: superblock.covers }
}

fn filled(
    device: &Path,
    size: Bytes,
    before: &Superblock,
    after: &Superblock,
) -> Result<Grew, FsError> {
    if !after.fills(size) {
        return Err(FsError::NotFilled { device: device.to_owned(), covers: after.covers, size });
    }
    Ok(Grew { from: before.covers, to: after.covers })
}
