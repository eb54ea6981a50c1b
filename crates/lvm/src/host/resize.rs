//! Resizing and trimming mounted file systems by ioctl on their mount point.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::ioctl::{self, BtrfsDevice};
use super::paths::{number, open};
use super::{DeviceNumber, XfsGeometry};

/// Grows ext3 or ext4 to this many blocks.
pub(super) fn ext_resize(mounted: &Path, blocks: u64) -> io::Result<()> {
    ioctl::ext_resize(&directory(mounted)?, blocks)
}

/// The geometry of an xfs.
pub(super) fn xfs_geometry(mounted: &Path) -> io::Result<XfsGeometry> {
    let geometry = ioctl::xfs_geometry(&directory(mounted)?)?;
    Ok(XfsGeometry {
        block_size: u32::from_ne_bytes(field(&geometry, 0)),
        data_blocks: u64::from_ne_bytes(field(&geometry, 32)),
        inode_max_percent: u32::from_ne_bytes(field(&geometry, 28)),
    })
}

/// Grows an xfs to this many data blocks.
pub(super) fn xfs_grow(mounted: &Path, blocks: u64, inode_max_percent: u32) -> io::Result<()> {
    ioctl::xfs_grow(&directory(mounted)?, blocks, inode_max_percent)
}

/// Returns the number of bytes that a btrfs uses of its only device.
pub(super) fn btrfs_device_bytes(mounted: &Path) -> io::Result<u64> {
    let device = only_device(&directory(mounted)?)?;
    Ok(u64::from_ne_bytes(field(&device, 32)))
}

/// Grows a btrfs to all of its only device.
pub(super) fn btrfs_grow_to_device(mounted: &Path) -> io::Result<()> {
    btrfs_resize(mounted, "max")
}

/// Shrinks a btrfs to this many bytes of its only device.
pub(super) fn btrfs_shrink(mounted: &Path, to: u64) -> io::Result<()> {
    btrfs_resize(mounted, &to.to_string())
}

/// Discards what the file system of this device does not use within a range; how many bytes.
pub(super) fn trim(mounted: &Path, device: DeviceNumber, range: &Range<u64>) -> io::Result<u64> {
    let mounted = directory(mounted)?;
    // It may be unmounted by now: what is below its path then is the host's.
    if !is_on(&mounted, device)? {
        return Err(Errno::ESTALE.into());
    }
    ioctl::trim(&mounted, range.start, range.end.saturating_sub(range.start))
}

/// Returns whether a directory is on the file system of a device. That of a btrfs has a number of its own.
fn is_on(directory: &File, device: DeviceNumber) -> io::Result<bool> {
    if number(directory.metadata()?.dev()) == device {
        return Ok(true);
    }
    let Ok(own) = only_device(directory) else { return Ok(false) };
    let path: Vec<u8> = own[3072..].iter().copied().take_while(|byte| *byte != 0).collect();
    let path = Path::new(OsStr::from_bytes(&path));
    Ok(path.metadata().is_ok_and(|it| number(it.rdev()) == device))
}

fn btrfs_resize(mounted: &Path, to: &str) -> io::Result<()> {
    let mounted = directory(mounted)?;
    let device = only_device(&mounted)?;
    let id = u64::from_ne_bytes(field(&device, 0));
    let name = format!("{id}:{to}");
    let mut volume = [0; 4096];
    volume[8..8 + name.len()].copy_from_slice(name.as_bytes());
    ioctl::btrfs_resize(&mounted, &volume)
}

/// The only device of a btrfs; its id is not 1 for ever, replacing a device counts on.
fn only_device(mounted: &File) -> io::Result<BtrfsDevice> {
    let info = ioctl::btrfs_info(mounted)?;
    let largest = u64::from_ne_bytes(field(&info, 0));
    let devices = u64::from_ne_bytes(field(&info, 8));
    if devices != 1 {
        return Err(Errno::ENOTUNIQ.into());
    }
    for id in (1..=largest).rev() {
        let mut device = [0; 4096];
        device[..8].copy_from_slice(&id.to_ne_bytes());
        match ioctl::btrfs_device(mounted, &mut device) {
            Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => {}
            other => return other.map(|()| device),
        }
    }
    Err(Errno::ENODEV.into())
}

fn directory(mounted: &Path) -> io::Result<File> {
    open(mounted, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map(File::from)
}

fn field<const N: usize>(structure: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| structure[at + byte])
}
