//! The objects of a host: disks, device-mapper devices, mounts, paths.

use std::fmt;
use std::path::PathBuf;

use crate::bytes::Bytes;

/// A device number; prints as `major:minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver's number.
    pub major: u32,
    /// The device's number within the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Parses it as the kernel prints it: `8:16`.
    pub(crate) fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Location of the bytes of a disk, which determines what may have written them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskBacking {
    /// In this host, as far as the kernel shows.
    Local,
    /// In a file, through a loop device.
    File,
    /// In another storage system or another host (nbd, rbd, iSCSI, NVMe over fabrics, block storage
    /// of a cloud, …), whose driver may have given the disk to a workload.
    Foreign,
}

/// A block device of the host that could carry a physical volume, from sysfs.
///
/// Devices of size zero, device-mapper volumes, and the members of another device, such as an md
/// array, a multipath map, bcache or drbd, are left out: they are never the top of a stack. So is
/// what a workload writes: a loop device over a block device, over a file of the kubelet's, or over
/// a file on a volume of this driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `/dev/` and the kernel's name.
    pub path: PathBuf,
    /// Device number.
    pub number: DeviceNumber,
    /// Size of the disk.
    pub size: Bytes,
    /// Location of its bytes.
    pub source: DiskBacking,
    /// True if the kernel refuses writes.
    pub read_only: bool,
    /// True if it has partitions.
    pub partitioned: bool,
    /// The smallest that it reads or writes.
    pub logical_block: Bytes,
    /// Preferred size of a write; zero if it is unknown.
    pub optimal_io: Bytes,
}

/// A device-mapper device as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmDevice {
    /// The dm name: `vg-lv` with hyphens doubled.
    pub name: String,
    /// The dm uuid; for a logical volume `LVM-`, the group's and the volume's uuid without dashes,
    /// and for hidden layers a suffix such as `-real` or `-cow`.
    pub uuid: String,
    /// Device number: `/dev/dm-<minor>` is its node in devtmpfs.
    pub number: DeviceNumber,
}

/// The live state of one device-mapper device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // They are the kernel's flags.
pub struct DmInfo {
    /// Device number.
    pub number: DeviceNumber,
    /// Number of openers and mounts that hold it.
    pub open_count: u32,
    /// I/O waits until it is resumed.
    pub suspended: bool,
    /// True if it has a table that serves I/O.
    pub live_table: bool,
    /// True if it has a loaded table that waits to become live.
    pub inactive_table: bool,
    /// True if it refuses writes.
    pub read_only: bool,
    /// Number of events that it has sent.
    pub events: u32,
}

/// A block device that is stacked on another one and holds it open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The kernel's name below `/dev`: `md127`, `dm-7`, `loop3`.
    pub name: String,
    /// The dm name, if it is a device-mapper device: `vg--x-root`.
    pub dm_name: Option<String>,
}

impl Holder {
    /// The command that stops it once nothing uses it.
    pub fn command_to_stop(&self) -> String {
        let name = &self.name;
        match &self.dm_name {
            Some(dm_name) => format!("dmsetup remove {dm_name}"),
            None if name.starts_with("md") => format!("mdadm --stop /dev/{name}"),
            None if name.starts_with("loop") => format!("losetup --detach /dev/{name}"),
            None => format!("lsblk /dev/{name}"),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dm_name.as_ref().unwrap_or(&self.name))
    }
}

/// One line of a live device-mapper table; units are sectors of 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmTarget {
    /// First sector of the device that it maps.
    pub start: u64,
    /// Number of sectors.
    pub length: u64,
    /// The target type: `linear`, `snapshot-origin`, …
    pub kind: String,
    /// The rest of the line, as the kernel prints it.
    pub params: String,
}

impl DmTarget {
    /// The devices that it stands on: of the words of a table only these have the form of a number.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceNumber> {
        self.params.split(' ').filter_map(DeviceNumber::parse)
    }
}

/// One line of the mount table, octal escapes decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mounted device.
    pub device: DeviceNumber,
    /// The part of the file system that is mounted: `/`, or a path inside for bind mounts. For a
    /// bind-mounted device node: the node's path inside devtmpfs, such as `/dm-3`.
    pub root: PathBuf,
    /// Mount point.
    pub target: PathBuf,
    /// File system type as the kernel names it.
    pub kind: String,
    /// The source as given to mount.
    pub source: String,
    /// Per-mount options: `ro`, `nodev`, …
    pub mount_options: Vec<String>,
    /// Options of the file system itself: `ro` here means that it is read-only everywhere.
    pub super_options: Vec<String>,
}

impl Mount {
    /// The kernel's name of the device whose node a bind mount shows, such as `dm-3`; also where the node
    /// itself has been removed since.
    pub(crate) fn shown_node(&self) -> Option<&str> {
        let root = self.root.to_str().filter(|_| self.kind == "devtmpfs")?;
        root.strip_suffix("//deleted").unwrap_or(root).strip_prefix('/')
    }
}

impl Mount {
    /// Returns whether writes through this mount are refused, by the mount or by its file system.
    pub fn read_only(&self) -> bool {
        self.mount_options.iter().chain(&self.super_options).any(|option| option == "ro")
    }
}

/// A file system to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMount {
    /// The block device.
    pub device: PathBuf,
    /// An existing directory.
    pub target: PathBuf,
    /// The kernel's name of the type.
    pub kind: &'static str,
    /// Mount options, one an element: flags by name (`ro`, `nodev`, `noatime`), the rest goes to the
    /// file system.
    pub options: Vec<String>,
}

/// Type of a path, without following a link at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A block device node.
    Block(DeviceNumber),
    /// Anything else: a link, a socket, …
    Other,
}

/// Geometry of a mounted xfs (`XFS_IOC_FSGEOMETRY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XfsGeometry {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks of the data section.
    pub data_blocks: u64,
    /// Largest share of inodes in percent; growing passes it back unchanged.
    pub inode_max_percent: u32,
}
