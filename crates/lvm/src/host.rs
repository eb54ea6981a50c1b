//! The host interface: the only module of the driver that accesses the host.
//!
//! Everything that this driver does to a host or reads from it goes through the trait [`Host`]:
//! programs, LVM commands, block devices, device-mapper, mounts, file system ioctls. [`RealHost`]
//! implements it. The fake of the tests is a host in memory that can lose its power before and
//! after each effect. Nothing in here decides anything.

mod block;
mod blocking_pool;
mod cmd;
mod counters;
mod devmapper;
mod disks;
mod dm;
mod exec;
mod held;
mod holders;
mod image;
mod ioctl;
mod json_stream;
mod lock;
mod lvm_shell_quote;
mod mounts;
mod paths;
mod real;
mod resize;
mod shell;
mod state;
mod tools;
mod types;
mod udev;
mod version;

pub use cmd::{Cmd, Output};
pub use exec::is_installed;
pub use real::RealHost;
pub use state::{StateLock, lock_state};
pub use tools::{TOOLS, Tool};
pub use types::{
    DeviceNumber, Disk, DiskBacking, DmDevice, DmInfo, DmTarget, Holder, Mount, NewMount, PathKind,
    XfsGeometry,
};
pub use udev::{UDEV_RULES, UDEV_RULES_FILE, write_udev_rules};
pub use version::{at_least, version_in};

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::volume::FsUsage;

/// Error of the host interface.
///
/// The variants are the decisions that a caller can take; the messages are for people.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The program could not be started: it is not installed or may not be executed.
    #[error("failed to start `{what}`{}", tools::to_install(what, source))]
    NotStarted {
        /// The command as one would type it.
        what: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The call has not come back within its limit. **It still runs**: nothing was killed.
    #[error("`{what}` has not returned after {} s", limit.as_secs())]
    TimedOut {
        /// The command or call as one would type it.
        what: String,
        /// The limit that passed.
        limit: Duration,
    },
    /// The program was killed before it finished; its effects may be incomplete.
    #[error("`{what}` was killed before it finished")]
    Died {
        /// The command as one would type it.
        what: String,
    },
    /// A system call failed.
    #[error("{what}{}", of_links(source))]
    System {
        /// The call with its main argument, such as `BLKZEROOUT /dev/dm-3`.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What the kernel's words for it do not say: a path of a caller is opened without following a link.
fn of_links(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(nix::libc::ELOOP) => {
            " (the path contains a symbolic link, and none is followed: use the path without it)"
        }
        _ => "",
    }
}

impl HostError {
    /// The errno of a failed system call.
    pub fn errno(&self) -> Option<i32> {
        match self {
            HostError::System { source, .. } | HostError::NotStarted { source, .. } => {
                source.raw_os_error()
            }
            HostError::TimedOut { .. } | HostError::Died { .. } => None,
        }
    }
}

/// The kernel of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its release as `uname -r` prints it, such as `6.1.0-30-amd64`; empty if it could not be
    /// read.
    pub release: String,
    /// Page size.
    pub page_size: Bytes,
}

/// A block device that is open, and so stays the one that it was when it was opened: the kernel gives its
/// number to no other before this is dropped.
#[async_trait]
pub trait HeldDevice: Send + Sync + fmt::Debug {
    /// As [`Host::write_zeroes`].
    async fn write_zeroes(&self, range: Range<u64>) -> Result<(), HostError>;

    /// As [`Host::discard`].
    async fn discard(&self, range: Range<u64>) -> Result<(), HostError>;

    /// As [`Host::flush`].
    async fn flush(&self) -> Result<(), HostError>;
}

/// Purpose of holding a device open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldFor {
    /// To change it through this.
    Writing,
    /// A program will open it by its path. The kernel may refuse to mount what is open for writing.
    Programs,
}

/// Excludes other LVM commands from a volume group until it is dropped.
pub trait GroupLock: Send {}

/// The host.
///
/// Every path is absolute. A call that changes something may be repeated: each method describes
/// what it does if the target already exists or is already removed. For the caller no call takes
/// longer than its limit; none is ever killed.
///
/// # Errors
/// Each method: [`HostError::System`] with the errno, [`HostError::TimedOut`] when the kernel did
/// not return, and for programs the other variants.
#[async_trait]
pub trait Host: Send + Sync + fmt::Debug + 'static {
    // Programs.

    /// Runs a program to its end and returns its result; a non-zero exit is not an error here.
    ///
    /// The program `lvm` takes devices as [`Host::lvm`] does.
    async fn run(&self, cmd: Cmd) -> Result<Output, HostError>;

    /// Runs a program with an image of this size as its last argument: all of it is a hole, it is in memory, and gone
    /// afterwards, however that ends.
    async fn run_on_image(&self, cmd: Cmd, size: Bytes) -> Result<Output, HostError>;

    /// Runs one LVM command (`lvcreate …`, without `lvm`) in the shell that serves `lane`, and return
    /// the JSON object that it wrote to its report descriptor (report, then command log).
    ///
    /// Its last log row has `log_type` `status` and `log_context` `shell`; `log_ret_code` is 1 for
    /// success. Physical volumes are named `/dev/NAME`, with `:FIRST-LAST` for extents; LVM itself
    /// prints other paths for them, so compare uuids. A command that the shell cannot read from a
    /// line (too many words, an unquotable one) runs as its own process.
    ///
    /// Commands of one lane run one after the other; lanes run in parallel. A lane is a volume
    /// group's name.
    async fn lvm(&self, lane: &str, cmd: Cmd) -> Result<String, HostError>;

    /// Makes exactly these block devices visible to the LVM commands of one lane.
    ///
    /// Every LVM command reads the label of every disk that it can see, so a lane sees only its own:
    /// the hung disk of another group does not hang it.
    async fn pin_devices(&self, lane: &str, devices: &[PathBuf]) -> Result<(), HostError>;

    /// Lets the kernel send an event when so many percent of a thin pool are in use, for pools that the commands of
    /// the lane make, activate or expand from then on. It is forgotten with the process.
    fn set_thin_mark(&self, lane: &str, percent: u32);

    /// Takes the lock file of a group as LVM does, or `None` while another command holds it.
    async fn try_lock_group(&self, group: &str) -> Result<Option<Box<dyn GroupLock>>, HostError>;

    // Disks and volumes as block devices.

    /// Lists the disks that could carry a physical volume.
    async fn disks(&self) -> Result<Vec<Disk>, HostError>;

    /// The size of a block device.
    async fn device_size(&self, device: &Path) -> Result<Bytes, HostError>;

    /// Reads from a block device past the page cache; short only at its end.
    async fn read_at(
        &self,
        device: &Path,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, HostError>;

    /// Returns whether a part of a block device contains only zeroes, read past the page cache.
    async fn is_zero(&self, device: &Path, range: Range<u64>) -> Result<bool, HostError>;

    /// Writes zeroes, unmapping nothing that would not read back as zeroes (`BLKZEROOUT`).
    async fn write_zeroes(&self, device: &Path, range: Range<u64>) -> Result<(), HostError>;

    /// Discards (`BLKDISCARD`): the content is undefined afterwards unless the disk promises zeroes.
    async fn discard(&self, device: &Path, range: Range<u64>) -> Result<(), HostError>;

    /// Copies a range of whole blocks from one block device to the same place on another, past the page cache; with
    /// `leave_zeroes` blocks of zeroes are not written, for a target that has zeroes there.
    async fn copy_range(
        &self,
        from: &Path,
        to: &Path,
        range: Range<u64>,
        leave_zeroes: bool,
    ) -> Result<(), HostError>;

    /// Writes whole blocks to a block device, past the page cache.
    async fn write_blocks(
        &self,
        device: &Path,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), HostError>;

    /// Returns whether two block devices have the same bytes in a range of whole blocks, read past the page cache.
    async fn is_same(&self, one: &Path, other: &Path, range: Range<u64>)
    -> Result<bool, HostError>;

    /// Opens a block device and holds it open, if its node is that of the device with this number.
    /// Others can open and mount it all the same. A program that is then [run](Host::run) on it
    /// holds it open too, to its end.
    async fn hold(
        &self,
        device: &Path,
        number: DeviceNumber,
        held_for: HeldFor,
    ) -> Result<Box<dyn HeldDevice>, HostError>;

    /// Returns whether something has claimed the block device: a mount of any namespace, or a
    /// device on it.
    async fn is_claimed(&self, device: &Path) -> Result<bool, HostError>;

    /// Lists the devices that the kernel has stacked on a block device, on each other, and on loop
    /// devices over it: the topmost first, the order in which they can be stopped.
    async fn holders(&self, device: DeviceNumber) -> Result<Vec<Holder>, HostError>;

    /// Makes everything written to the device durable (`fsync`, which sends a cache flush).
    async fn flush(&self, device: &Path) -> Result<(), HostError>;

    // Device-mapper.

    /// Lists all device-mapper devices.
    async fn dm_list(&self) -> Result<Vec<DmDevice>, HostError>;

    /// Finds a device by its dm uuid.
    async fn dm_info(&self, uuid: &str) -> Result<Option<DmInfo>, HostError>;

    /// Finds a device by its dm uuid, with its live table, which is empty where it has none.
    async fn dm_table(&self, uuid: &str) -> Result<Option<(DmInfo, Vec<DmTarget>)>, HostError>;

    /// Finds a device by its dm uuid, with the state of its targets as the kernel prints it. Waits for no I/O.
    async fn dm_status(&self, uuid: &str) -> Result<Option<(DmInfo, Vec<DmTarget>)>, HostError>;

    /// Waits until the device has had another count of events than `seen`, or is not there. Has no limit.
    async fn dm_event(&self, uuid: &str, seen: u32) -> Result<(), HostError>;

    /// Drops the table that waits (`DM_TABLE_CLEAR`).
    async fn dm_clear(&self, uuid: &str) -> Result<(), HostError>;

    /// Lets I/O go on with the table that is live, or with the waiting one if there is one.
    async fn dm_resume(&self, uuid: &str) -> Result<(), HostError>;

    /// `DM_TARGET_MSG`: sends a message to the first target of a device.
    async fn dm_message(&self, uuid: &str, message: &str) -> Result<(), HostError>;

    /// Removes a device that is not open; success if it does not exist.
    async fn dm_remove(&self, uuid: &str) -> Result<(), HostError>;

    // Mounts and paths.

    /// Reads the mount table.
    async fn mounts(&self) -> Result<Vec<Mount>, HostError>;

    /// Returns those of these device-mapper devices with a mounted ext file system in which the
    /// kernel has found errors since its last check, with the number of errors.
    ///
    /// If its journal was aborted by them, the mount table still shows it as writable.
    async fn ext_errors(
        &self,
        devices: &[DeviceNumber],
    ) -> Result<BTreeMap<DeviceNumber, u64>, HostError>;

    /// Mount a file system.
    async fn mount(&self, mount: &NewMount) -> Result<(), HostError>;

    /// Binds `source` (a directory, or a device node onto a file) to `target`, with per-mount flags by
    /// name (`ro`, `nodev`, `nosuid`, `noexec`, `noatime`, …).
    async fn bind(&self, source: &Path, target: &Path, flags: &[String]) -> Result<(), HostError>;

    /// Makes a file system writable that was mounted read-only at `target`, and this mount of it, with the
    /// flags by name that it has beside that. Other mounts of it stay what they are.
    async fn mount_writable(&self, target: &Path, flags: &[String]) -> Result<(), HostError>;

    /// Unmounts the topmost mount at `target`.
    async fn unmount(&self, target: &Path) -> Result<(), HostError>;

    /// Returns the type of `path`, or `None` if it does not exist. No symbolic link on the path is
    /// followed.
    async fn path_kind(&self, path: &Path) -> Result<Option<PathKind>, HostError>;

    /// Resolves all links in `path`; `None` if it does not exist. A disk in `/dev/disk/by-id`
    /// becomes the one of [`Host::disks`].
    async fn real_path(&self, path: &Path) -> Result<Option<PathBuf>, HostError>;

    /// Creates a directory with its parents; there already is success.
    async fn make_dir(&self, path: &Path) -> Result<(), HostError>;

    /// Creates an empty file in an existing directory; there already is success.
    async fn make_file(&self, path: &Path) -> Result<(), HostError>;

    /// Removes an empty directory, an empty file or a link; success if it does not exist. A file
    /// with content, and any other entry, is an error and stays.
    async fn remove_path(&self, path: &Path) -> Result<(), HostError>;

    /// Reads the usage of a mounted file system.
    async fn usage(&self, path: &Path) -> Result<FsUsage, HostError>;

    /// `FITRIM`: discards what the file system of `device`, which is mounted here, does not use within a range of it; returns
    /// how many bytes.
    ///
    /// # Errors
    /// `ESTALE` if another file system is mounted here, `EINVAL` for a range behind its end, `EOPNOTSUPP` if the device has
    /// no discards.
    async fn trim(
        &self,
        mounted: &Path,
        device: DeviceNumber,
        range: Range<u64>,
    ) -> Result<Bytes, HostError>;

    // Resizing mounted file systems.

    /// `EXT4_IOC_RESIZE_FS`: the new count of file system blocks.
    async fn ext_resize(&self, mounted: &Path, blocks: u64) -> Result<(), HostError>;

    /// `XFS_IOC_FSGEOMETRY`.
    async fn xfs_geometry(&self, mounted: &Path) -> Result<XfsGeometry, HostError>;

    /// `XFS_IOC_FSGROWFSDATA`: the new count of data blocks, and the inode share to preserve.
    async fn xfs_grow(
        &self,
        mounted: &Path,
        blocks: u64,
        inode_max_percent: u32,
    ) -> Result<(), HostError>;

    /// `BTRFS_IOC_DEV_INFO` of the only device: how many bytes the file system uses of it.
    async fn btrfs_device_bytes(&self, mounted: &Path) -> Result<Bytes, HostError>;

    /// `BTRFS_IOC_RESIZE` of the only device to all of it.
    async fn btrfs_grow_to_device(&self, mounted: &Path) -> Result<(), HostError>;

    /// `BTRFS_IOC_RESIZE` of the only device to this many bytes of it: the data beyond is moved
    /// first.
    async fn btrfs_shrink(&self, mounted: &Path, to: Bytes) -> Result<(), HostError>;

    // What it is.

    /// The kernel that runs.
    fn kernel(&self) -> Kernel;

    // What was spent.

    /// Counts since the start, by name: `processes`, `lvm_commands`, `fsyncs`, and one per kind of
    /// call. Benchmarks and metrics print them.
    fn counts(&self) -> BTreeMap<&'static str, u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_link_is_said_in_words() {
        let error = |errno| HostError::System {
            what: "mkdir /a".to_owned(),
            source: io::Error::from_raw_os_error(errno),
        };
        let said = error(nix::libc::ELOOP).to_string();
        assert!(said.starts_with("mkdir /a (the path contains a symbolic link"), "{said}");
        assert_eq!(error(nix::libc::EIO).to_string(), "mkdir /a");
    }
}
