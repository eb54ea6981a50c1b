//! The ioctls, each as a safe function. All `unsafe` is here, but one call for the heap.
//!
//! # Source
//! The kernel's headers `linux/fs.h`, `linux/btrfs.h`, `linux/dm-ioctl.h`, `linux/loop.h`, `ext4.h` and `xfs_fs.h`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::libc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::dm;

/// `struct xfs_fsop_geom`: block size at 0, largest inode share at 28, data blocks at 32.
pub(super) type XfsGeometryBytes = [u8; 256];
/// `struct btrfs_ioctl_vol_args`: a descriptor that is not used here, and a name from 8.
pub(super) type BtrfsVolume = [u8; 4096];
/// `struct btrfs_ioctl_dev_info_args`: device id at 0, total bytes at 32.
pub(super) type BtrfsDevice = [u8; 4096];
/// `struct btrfs_ioctl_fs_info_args`: largest device id at 0, count of devices at 8.
pub(super) type BtrfsInfo = [u8; 1024];
/// `struct loop_info64`: the device of the file system with the backing file at 0, and that of the
/// backing file itself, where it is one, at 2.
pub(super) type LoopInfo = [u64; 29];

/// `struct xfs_growfs_data`.
#[repr(C)]
struct XfsGrowData {
    blocks: u64,
    inode_max_percent: u32,
}

/// `struct fstrim_range`.
#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    least: u64,
}

mod raw {
    use super::{
        BtrfsDevice, BtrfsInfo, BtrfsVolume, LoopInfo, TrimRange, XfsGeometryBytes, XfsGrowData,
    };

    nix::ioctl_read!(size, 0x12, 114, u64);
    nix::ioctl_write_ptr_bad!(zero_out, nix::request_code_none!(0x12, 127), [u64; 2]);
    nix::ioctl_write_ptr_bad!(discard, nix::request_code_none!(0x12, 119), [u64; 2]);
    nix::ioctl_readwrite!(trim, b'X', 121, TrimRange);
    nix::ioctl_write_ptr!(ext_resize, b'f', 16, u64);
    nix::ioctl_read!(xfs_geometry, b'X', 126, XfsGeometryBytes);
    nix::ioctl_write_ptr!(xfs_grow, b'X', 110, XfsGrowData);
    nix::ioctl_write_ptr!(btrfs_resize, 0x94, 3, BtrfsVolume);
    nix::ioctl_readwrite!(btrfs_device, 0x94, 30, BtrfsDevice);
    nix::ioctl_read!(btrfs_info, 0x94, 31, BtrfsInfo);
    nix::ioctl_read_bad!(loop_info, 0x4c05, LoopInfo);
}

/// `LOOP_GET_STATUS64`.
pub(super) fn loop_info(device: &File) -> io::Result<LoopInfo> {
    let mut info = [0; 29];
    // SAFETY: the kernel writes one structure of 232 bytes.
    unsafe { raw::loop_info(device.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// `BLKGETSIZE64`: bytes.
pub(super) fn size(device: &File) -> io::Result<u64> {
    let mut bytes = 0;
    // SAFETY: the kernel writes eight bytes to a u64.
    unsafe { raw::size(device.as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes)
}

/// `BLKZEROOUT` of `length` bytes from `start`.
pub(super) fn zero_out(device: &File, start: u64, length: u64) -> io::Result<()> {
    // SAFETY: the kernel reads two u64 and keeps no pointer.
    unsafe { raw::zero_out(device.as_raw_fd(), &raw const *&[start, length]) }?;
    Ok(())
}

/// `FITRIM` of `length` bytes from `start`; how many were discarded.
pub(super) fn trim(mounted: &File, start: u64, length: u64) -> io::Result<u64> {
    let mut range = TrimRange { start, length, least: 0 };
    // SAFETY: the kernel reads and writes one structure of 24 bytes.
    unsafe { raw::trim(mounted.as_raw_fd(), &raw mut range) }?;
    Ok(range.length)
}

/// `BLKDISCARD` of `length` bytes from `start`.
pub(super) fn discard(device: &File, start: u64, length: u64) -> io::Result<()> {
    // SAFETY: the kernel reads two u64 and keeps no pointer.
    unsafe { raw::discard(device.as_raw_fd(), &raw const *&[start, length]) }?;
    Ok(())
}

/// `EXT4_IOC_RESIZE_FS` to this count of blocks.
pub(super) fn ext_resize(mounted: &File, blocks: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one u64 and keeps no pointer.
    unsafe { raw::ext_resize(mounted.as_raw_fd(), &raw const blocks) }?;
    Ok(())
}

/// `XFS_IOC_FSGEOMETRY`.
pub(super) fn xfs_geometry(mounted: &File) -> io::Result<XfsGeometryBytes> {
    let mut geometry = [0; 256];
    // SAFETY: the request's number carries the size 256, and the kernel writes no more than that.
    unsafe { raw::xfs_geometry(mounted.as_raw_fd(), &raw mut geometry) }?;
    Ok(geometry)
}

/// `XFS_IOC_FSGROWFSDATA`.
pub(super) fn xfs_grow(mounted: &File, blocks: u64, inode_max_percent: u32) -> io::Result<()> {
    let data = XfsGrowData { blocks, inode_max_percent };
    // SAFETY: the kernel reads one structure of the size in the request's number.
    unsafe { raw::xfs_grow(mounted.as_raw_fd(), &raw const data) }?;
    Ok(())
}

/// `BTRFS_IOC_RESIZE`; a positive result means that another resize is in progress.
pub(super) fn btrfs_resize(mounted: &File, volume: &BtrfsVolume) -> io::Result<()> {
    // SAFETY: the kernel reads 4096 bytes and keeps no pointer.
    match unsafe { raw::btrfs_resize(mounted.as_raw_fd(), volume) }? {
        0 => Ok(()),
        _ => Err(nix::errno::Errno::EBUSY.into()),
    }
}

/// `BTRFS_IOC_DEV_INFO` of the device with the id in `device`.
pub(super) fn btrfs_device(mounted: &File, device: &mut BtrfsDevice) -> io::Result<()> {
    // SAFETY: the kernel reads and writes 4096 bytes.
    unsafe { raw::btrfs_device(mounted.as_raw_fd(), device) }?;
    Ok(())
}

/// `BTRFS_IOC_FS_INFO`.
pub(super) fn btrfs_info(mounted: &File) -> io::Result<BtrfsInfo> {
    let mut info = [0; 1024];
    // SAFETY: the kernel reads flags from and writes at most 1024 bytes.
    unsafe { raw::btrfs_info(mounted.as_raw_fd(), &raw mut info) }?;
    Ok(info)
}

/// The control node of device-mapper, to wait until it is readable.
pub(super) fn wait_for_events(control: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: a file has one descriptor, which it closes when it is dropped and not before.
    Ok(unsafe { AsyncFd::register_with_interest(control, Interest::READABLE) }?)
}

/// A device-mapper ioctl: the request goes out and the reply comes back in one buffer.
pub(super) fn device_mapper(
    control: &File,
    command: dm::DmCommand,
    buffer: &mut dm::Buffer,
) -> io::Result<()> {
    let code = nix::request_code_readwrite!(0xfd, command as u8, dm::HEADER);
    // SAFETY: the kernel reads and writes as many bytes as the header's `data_size` says, which a
    // `Buffer` keeps equal to its length.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), code, buffer.bytes_mut().as_mut_ptr()) };
    nix::errno::Errno::result(result)?;
    Ok(())
}
