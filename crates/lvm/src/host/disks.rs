//! The disks of the host, from sysfs. No device is opened but loop devices, which alone do not show
//! there what is below them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::{DeviceNumber, Disk, DiskBacking, Mount, ioctl, mounts};
use crate::bytes::Bytes;

/// Directory in which the kernel lists its block devices.
pub(super) const SYS_BLOCK: &str = "/sys/block";
/// sysfs counts in these, whatever the disk's own sectors are.
const SECTOR: u64 = 512;
/// What the device-mapper names of the volumes of this driver have behind the name of their group.
const OURS: &str = "-pliant--";
/// Devices of drivers that bring in what another host or another storage system keeps.
const FOREIGN: [&str; 6] = ["nbd", "rbd", "rnbd", "drbd", "ublkb", "zd"];
/// How a disk of NVMe over fabrics is reached; `pcie` is in the host.
const FABRICS: [&str; 4] = ["tcp", "rdma", "fc", "loop"];
/// How disks of the block storage of clouds call themselves, which look as if they were in the
/// host: EBS, Google's persistent disks by NVMe and by SCSI, and Azure's managed disks. What such a
/// host has itself has other names.
const CLOUD_DISKS: [&str; 4] =
    ["Amazon Elastic Block Store", "nvme_card-pd", "PersistentDisk", "MSFT NVMe Accelerator v1.0"];

/// What is below a loop device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backing {
    /// A block device.
    Device,
    /// A file of the file system on the device with this number.
    File(DeviceNumber),
    /// A file of a file system on a volume of this driver, or of one that cannot be distinguished
    /// from it.
    Volume,
}

/// What is below loop devices, by their paths.
pub(super) type Backings = BTreeMap<PathBuf, Backing>;

/// Returns the paths of the loop devices that, by sysfs alone, a workload may write to.
pub(super) fn loops(sys_block: &Path) -> io::Result<Vec<PathBuf>> {
    let mut loops = names(sys_block)?;
    loops.retain(|name| {
        let file = attribute(&sys_block.join(name), "loop/backing_file");
        file.is_some_and(|file| !is_of_the_kubelet(Path::new(&file)))
    });
    loops.sort();
    Ok(loops.iter().map(|name| node(name)).collect())
}

/// Queries what is below a loop device. The path in sysfs may be that of another namespace.
pub(super) fn backing(device: &Path) -> io::Result<Backing> {
    let info = ioctl::loop_info(&File::open(device)?)?;
    let [file_system, _, of_device, ..] = info;
    if of_device != 0 {
        return Ok(Backing::Device);
    }
    let number_of = |path: &Path| Some(number(fs::metadata(path).ok()?.dev()));
    places().settle(device, number(file_system), number_of)
}

/// Where the kernel shows the device of a file whose file system has a number and no device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    /// The kernel's list of block devices.
    pub block: &'a Path,
    /// Directory of btrfs in sysfs, with the file systems that are mounted, in any namespace.
    pub btrfs: &'a Path,
    /// The mount table.
    pub mounts: &'a Path,
}

/// The places on this host.
pub(super) fn places() -> Places<'static> {
    let [block, btrfs] = [SYS_BLOCK, "/sys/fs/btrfs"].map(Path::new);
    Places { block, btrfs, mounts: Path::new(mounts::TABLE) }
}

impl Places<'_> {
    /// Returns what is below a loop device over a file of a file system with this number.
    ///
    /// The files of btrfs have a number for each subvolume, which is that of no device, and which
    /// the mount table does not have either. So the file is looked for at the places where btrfs is
    /// mounted. If it is not found, as that of a subvolume inside another one, it counts as one on
    /// a volume while there is such a volume.
    pub fn settle(
        &self,
        device: &Path,
        number: DeviceNumber,
        number_of: impl Fn(&Path) -> Option<DeviceNumber>,
    ) -> io::Result<Backing> {
        let elsewhere = Backing::File(number);
        if number.major != 0 {
            return Ok(elsewhere);
        }
        let volumes = self.volumes()?;
        if volumes.is_empty() {
            return Ok(elsewhere);
        }
        let all = mounts::list(self.mounts)?;
        let (btrfs, others): (Vec<Mount>, Vec<Mount>) =
            all.into_iter().partition(|mount| mount.kind == "btrfs");
        if others.iter().any(|mount| mount.device == number) {
            return Ok(elsewhere);
        }
        let name = device.file_name().unwrap_or_default();
        let file = attribute(&self.block.join(name), "loop/backing_file").map(PathBuf::from);
        let targets = btrfs.iter().map(|mount| mount.target.clone());
        for path in file.into_iter().chain(targets) {
            let is_its = number_of(&path) == Some(number);
            let around = btrfs.iter().filter(|mount| path.starts_with(&mount.target));
            let mount = around.max_by_key(|mount| mount.target.components().count());
            if let (true, Some(mount)) = (is_its, mount) {
                let is_volume = is_of_a_volume(&mount.source, &volumes);
                return Ok(if is_volume { Backing::Volume } else { elsewhere });
            }
        }
        Ok(Backing::Volume)
    }

    /// The kernel's names of the volumes of this driver whose btrfs is mounted.
    fn volumes(&self) -> io::Result<Vec<String>> {
        let mut volumes = Vec::new();
        for file_system in names(self.btrfs)? {
            let devices = names(&self.btrfs.join(file_system).join("devices"))?;
            volumes.extend(devices.into_iter().filter(|name| is_ours(&self.block.join(name))));
        }
        Ok(volumes)
    }
}

/// Returns whether the source of a mount is one of these volumes.
fn is_of_a_volume(source: &str, volumes: &[String]) -> bool {
    let real = Path::new(source).canonicalize().unwrap_or_else(|_| PathBuf::from(source));
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    name.contains(OURS) || volumes.iter().any(|volume| *volume == name)
}

/// Returns whether a block device is a volume of this driver.
fn is_ours(device: &Path) -> bool {
    let name = attribute(device, "dm/name").unwrap_or_default();
    is_logical_volume(device) && name.contains(OURS)
}

/// A device number as the kernel packs it into 64 bits.
pub(super) fn number(packed: u64) -> DeviceNumber {
    let part = |bits: u64| u32::try_from(bits).unwrap_or(u32::MAX);
    DeviceNumber {
        major: part((packed & 0xf_ff00) >> 8),
        minor: part((packed & 0xff) | ((packed >> 12) & 0xf_ff00)),
    }
}

/// Returns whether a file is in the kubelet's directory, wherever that is: for each raw volume of a pod it has a
/// loop device made over the volume, or over the file that stands for it.
fn is_of_the_kubelet(file: &Path) -> bool {
    let known = |name: &str| name == "kubelet" || name.starts_with("kubernetes.io");
    let mut parts = file.components();
    parts.any(|part| matches!(part, Component::Normal(name) if known(&name.to_string_lossy())))
}

/// Lists the disks and partitions that could carry a physical volume, by path. A loop device that
/// is not in `backings` is left out.
pub(super) fn list(sys_block: &Path, backings: &Backings) -> io::Result<Vec<Disk>> {
    let sys = Sys { block: sys_block, backings };
    let mut disks = Vec::new();
    for entry in names(sys_block)? {
        let whole = sys_block.join(&entry);
        // Logical volumes first: there may be thousands, and one read tells them.
        if is_memory(&entry) || sys.is_volume(&whole)? {
            continue;
        }
        if !is_there(&whole) || is_member(&whole, sys_block)? {
            continue;
        }
        let source = sys.source(&whole)?;
        let mut partitions = partitions(&whole)?;
        let queue = QueueLimits::of(&whole);
        if let Some(disk) = disk(&whole, &entry, source, !partitions.is_empty(), queue) {
            disks.push(disk);
        }
        partitions.sort();
        for name in partitions {
            let part = whole.join(&name);
            if !is_member(&part, sys_block)? {
                disks.extend(disk(&part, &name, source, false, queue));
            }
        }
    }
    disks.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(disks)
}

fn is_memory(name: &str) -> bool {
    let number = name.strip_prefix("ram");
    number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The kernel's tree of block devices, with what it does not say of loop devices.
struct Sys<'a> {
    block: &'a Path,
    backings: &'a Backings,
}

impl Sys<'_> {
    /// Returns whether it is a logical volume or lies on one: what is on it is its tenant's business, and could
    /// be a copy of a label. Other device-mapper devices, multipath and encryption, carry groups.
    fn is_volume(&self, device: &Path) -> io::Result<bool> {
        if is_logical_volume(device) || self.is_loop_of_a_workload(device) {
            return Ok(true);
        }
        for below in self.below(device)? {
            if self.is_volume(&below)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether it is a loop device over what a workload may write. The kernel calls no loop device the
    /// holder of the device below it.
    fn is_loop_of_a_workload(&self, device: &Path) -> bool {
        let Some(file) = attribute(device, "loop/backing_file") else { return false };
        let name = device.file_name().unwrap_or_default().to_string_lossy();
        match self.backings.get(&node(&name)) {
            None | Some(Backing::Device | Backing::Volume) => true,
            Some(Backing::File(_)) if is_of_the_kubelet(Path::new(&file)) => true,
            Some(Backing::File(file_system)) => self.is_volume_of_ours(*file_system),
        }
    }

    /// Returns whether a file system is on a volume of this driver.
    fn is_volume_of_ours(&self, number: DeviceNumber) -> bool {
        let device = self.block.join(format!("dm-{}", number.minor));
        let same = attribute(&device, "dev").is_some_and(|dev| dev == number.to_string());
        same && is_ours(&device)
    }

    /// Where the bytes of a device are; the farthest of those below it.
    fn source(&self, device: &Path) -> io::Result<DiskBacking> {
        let mut source = own_source(device)?;
        for below in self.below(device)? {
            source = source.max(self.source(&below)?);
        }
        Ok(source)
    }

    /// The whole devices below a device, also where it is on a part of one.
    fn below(&self, device: &Path) -> io::Result<Vec<PathBuf>> {
        let mut below = Vec::new();
        for name in names(&device.join("slaves"))? {
            let whole = self.block.join(&name);
            if whole.is_dir() {
                below.push(whole);
                continue;
            }
            let wholes = names(self.block)?.into_iter().map(|whole| self.block.join(whole));
            below.extend(wholes.filter(|whole| whole.join(&name).is_dir()));
        }
        Ok(below)
    }
}

/// Where the bytes of a device are, without those below it.
fn own_source(device: &Path) -> io::Result<DiskBacking> {
    if device.join("loop").is_dir() {
        return Ok(DiskBacking::File);
    }
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let numbered = |driver: &&str| {
        name.strip_prefix(driver).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let foreign = FOREIGN.iter().any(numbered)
        || is_in_a_cloud(device)
        || is_behind_a_session(device)
        || is_behind_a_fabric(device)?;
    Ok(if foreign { DiskBacking::Foreign } else { DiskBacking::Local })
}

/// Returns whether it is a disk of the block storage of a cloud.
fn is_in_a_cloud(device: &Path) -> bool {
    attribute(device, "device/model").is_some_and(|model| CLOUD_DISKS.contains(&model.as_str()))
}

/// Returns whether it is a disk of an iSCSI session or of a port of a fibre channel.
fn is_behind_a_session(device: &Path) -> bool {
    let Ok(place) = device.canonicalize() else { return false };
    let remote = |name: &str| {
        let session = name.strip_prefix("session");
        name.starts_with("rport-")
            || session.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut parts = place.components();
    parts.any(|part| matches!(part, Component::Normal(name) if remote(&name.to_string_lossy())))
}

/// Returns whether it is a disk of NVMe over fabrics. With several paths its `device` is a subsystem, in which
/// the controllers are.
fn is_behind_a_fabric(device: &Path) -> io::Result<bool> {
    let owner = device.join("device");
    let controllers = names(&owner)?.into_iter().filter(|name| name.starts_with("nvme"));
    let mut places = controllers.map(|name| owner.join(name)).chain([owner.clone()]);
    Ok(places.any(|place| {
        attribute(&place, "transport").is_some_and(|word| FABRICS.contains(&word.as_str()))
    }))
}

fn is_logical_volume(device: &Path) -> bool {
    attribute(device, "dm/uuid").is_some_and(|uuid| uuid.starts_with("LVM-"))
}

/// Returns whether it has a node in `/dev`, and a file behind it if it is a loop device.
fn is_there(device: &Path) -> bool {
    let is_loop = device.join("loop").is_dir();
    let hidden = attribute(device, "hidden").is_some_and(|hidden| hidden != "0");
    let bound = attribute(device, "loop/backing_file").is_some();
    !hidden && (!is_loop || bound)
}

/// Returns whether a device that is no logical volume holds it, such as an md array, a multipath map, bcache or
/// drbd: that one shows what is on it, and only the top of a stack is looked at.
fn is_member(device: &Path, sys_block: &Path) -> io::Result<bool> {
    let holders = names(&device.join("holders"))?;
    Ok(holders.iter().any(|holder| !is_logical_volume(&sys_block.join(holder))))
}

fn partitions(whole: &Path) -> io::Result<Vec<String>> {
    let mut names = names(whole)?;
    names.retain(|name| whole.join(name).join("partition").is_file());
    Ok(names)
}

/// What the kernel says of how a disk is read and written, for its partitions too.
#[derive(Clone, Copy)]
struct QueueLimits {
    logical_block: Bytes,
    optimal_io: Bytes,
}

impl QueueLimits {
    fn of(whole: &Path) -> QueueLimits {
        let number = |name| attribute(whole, name).and_then(|text| text.parse::<u32>().ok());
        QueueLimits {
            logical_block: number("queue/logical_block_size").map_or(Bytes::new(SECTOR), bytes),
            optimal_io: number("queue/optimal_io_size").map_or(Bytes::ZERO, bytes),
        }
    }
}

fn bytes(count: u32) -> Bytes {
    Bytes::new(count.into())
}

/// `None` for a device of size zero, and for one that goes away while it is looked at.
fn disk(
    device: &Path,
    name: &str,
    source: DiskBacking,
    partitioned: bool,
    queue: QueueLimits,
) -> Option<Disk> {
    let sectors: u64 = attribute(device, "size")?.parse().ok()?;
    let number = DeviceNumber::parse(&attribute(device, "dev")?)?;
    (sectors > 0).then_some(Disk {
        path: node(name),
        number,
        size: Bytes::new(sectors.checked_mul(SECTOR)?),
        source,
        read_only: attribute(device, "ro")? != "0",
        partitioned,
        logical_block: queue.logical_block,
        optimal_io: queue.optimal_io,
    })
}

/// The node of a device by its name in sysfs.
fn node(name: &str) -> PathBuf {
    PathBuf::from("/dev").join(name.replace('!', "/"))
}

fn attribute(device: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(device.join(name)).ok()?;
    Some(text.trim().to_owned())
}

/// The names in a directory; none if it is not there.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
    }

    fn device(root: &Path, path: &str, dev: &str, sectors: &str) {
        for (name, text) in [("dev", dev), ("size", sectors), ("ro", "0")] {
            put(root, &[(&format!("{path}/{name}"), text)]);
        }
    }

    fn expected(path: &str, major: u32, minor: u32, sectors: u64, partitioned: bool) -> Disk {
        Disk {
            path: path.into(),
            number: DeviceNumber { major, minor },
            size: Bytes::new(sectors * 512),
            source: DiskBacking::Local,
            read_only: false,
            partitioned,
            logical_block: Bytes::new(512),
            optimal_io: Bytes::ZERO,
        }
    }

    #[test]
    fn the_tops_of_stacks_are_listed_and_volumes_are_not() {
        let sys = tempfile::tempdir().unwrap();
        let root = sys.path();
        device(root, "sda", "8:0", "2048");
        device(root, "sda/sda1", "8:1", "1024");
        device(root, "sda/sda2", "8:2", "512");
        put(root, &[("sda/sda1/partition", "1"), ("sda/sda2/partition", "2")]);
        put(root, &[("sda/sda2/holders/md127/x", "")]);
        device(root, "sdb", "8:16", "2048");
        put(root, &[("sdb/holders/dm-0/x", ""), ("dm-0/dm/uuid", "LVM-abc")]);
        device(root, "sdc", "8:32", "2048");
        put(root, &[("sdc/holders/dm-1/x", ""), ("dm-1/dm/uuid", "mpath-3600")]);
        device(root, "sdc/sdc1", "8:33", "1024");
        put(root, &[("sdc/sdc1/partition", "1")]);
        device(root, "dm-0", "254:0", "2048");
        device(root, "dm-1", "254:1", "2048");
        device(root, "dm-2", "254:2", "2048");
        put(root, &[("dm-2/dm/uuid", "CRYPT-on-a-volume"), ("dm-2/slaves/dm-0/x", "")]);
        device(root, "sdd", "8:48", "2048");
        put(root, &[("sdd/holders/dm-3/x", "")]);
        device(root, "dm-3", "254:3", "2048");
        put(root, &[("dm-3/slaves/sdd/x", "")]);
        device(root, "ram0", "1:0", "8192");
        device(root, "nbd0", "43:0", "0");
        device(root, "nvme0c0n1", "259:1", "2048");
        put(root, &[("nvme0c0n1/hidden", "1")]);
        device(root, "loop0", "7:0", "2048");
        put(root, &[("loop0/loop/backing_file", "/f")]);
        device(root, "loop1", "7:1", "2048");
        fs::create_dir_all(root.join("loop1/loop")).unwrap();
        device(root, "cciss!c0d0", "104:0", "64");
        put(root, &[("cciss!c0d0/ro", "1")]);

        let mut array = expected("/dev/cciss/c0d0", 104, 0, 64, false);
        array.read_only = true;
        let mut in_a_file = expected("/dev/loop0", 7, 0, 2048, false);
        in_a_file.source = DiskBacking::File;
        assert_eq!(
            list(root, &on_files(&["loop0"])).unwrap(),
            [
                array,
                expected("/dev/dm-1", 254, 1, 2048, false),
                expected("/dev/dm-3", 254, 3, 2048, false),
                in_a_file,
                expected("/dev/sda", 8, 0, 2048, true),
                expected("/dev/sda1", 8, 1, 1024, false),
                expected("/dev/sdb", 8, 16, 2048, false),
            ]
        );
    }

    #[test]
    fn a_disk_below_any_device_but_a_logical_volume_is_not_listed() {
        let sys = tempfile::tempdir().unwrap();
        let root = sys.path();
        for (disk, holder) in
            [("sda", "bcache0"), ("sdb", "drbd1"), ("sdc", "rnbd!server"), ("sdd", "dm-0")]
        {
            device(root, disk, "8:0", "2048");
            put(root, &[(&format!("{disk}/holders/{holder}/x"), "")]);
        }
        put(root, &[("dm-0/dm/uuid", "LVM-abc")]);
        device(root, "bcache0", "252:0", "2048");
        put(root, &[("bcache0/slaves/sda/x", "")]);
        let listed: Vec<_> =
            list(root, &Backings::default()).unwrap().into_iter().map(|disk| disk.path).collect();
        assert_eq!(listed, [PathBuf::from("/dev/bcache0"), PathBuf::from("/dev/sdd")]);
    }

    #[test]
    fn how_a_disk_is_written_is_said_of_its_partitions_too() {
        let sys = tempfile::tempdir().unwrap();
        let root = sys.path();
        device(root, "sda", "8:0", "2048");
        device(root, "sda/sda1", "8:1", "1024");
        put(root, &[("sda/sda1/partition", "1"), ("sda/queue/logical_block_size", "4096")]);
        put(root, &[("sda/queue/optimal_io_size", "33553920")]);
        for disk in list(root, &Backings::default()).unwrap() {
            assert_eq!(disk.logical_block, Bytes::kib(4), "{disk:?}");
            assert_eq!(disk.optimal_io, Bytes::new(33_553_920), "{disk:?}");
        }
    }

    #[test]
    fn a_machine_without_disks_has_none() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(list(&sys.path().join("missing"), &Backings::new()).unwrap(), []);
    }

    /// Backings of loop devices over files of a file system on no volume.
    fn on_files(loops: &[&str]) -> Backings {
        let file = Backing::File(DeviceNumber { major: 8, minor: 1 });
        loops.iter().map(|name| (node(name), file)).collect()
    }

    fn paths(root: &Path, backings: &Backings) -> Vec<(String, DiskBacking)> {
        let disks = list(root, backings).unwrap().into_iter();
        disks.map(|disk| (disk.path.display().to_string(), disk.source)).collect()
    }

    #[test]
    fn a_loop_device_over_what_a_workload_writes_is_no_disk() {
        let sys = tempfile::tempdir().unwrap();
        let root = sys.path();
        let kubelet =
            "/data/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/3c1e0a5e (deleted)";
        let files = ["/dev/dm-0", "/pvc", kubelet, "/images/disk", "/images/file", "/hung"];
        for (minor, file) in files.iter().enumerate() {
            device(root, &format!("loop{minor}"), &format!("7:{minor}"), "2048");
            put(root, &[(&format!("loop{minor}/loop/backing_file"), file)]);
        }
        device(root, "dm-0", "254:0", "2048");
        put(root, &[("dm-0/dm/uuid", "LVM-abc"), ("dm-0/dm/name", "vg0-pliant--abc")]);
        device(root, "md0", "9:0", "2048");
        put(root, &[("md0/slaves/loop1p1/x", ""), ("loop1/loop1p1/partition", "1")]);
        assert_eq!(
            loops(root).unwrap(),
            ["loop0", "loop1", "loop3", "loop4", "loop5"].map(node),
            "of the kubelet's alone the name tells"
        );

        let mut backings = on_files(&["loop2", "loop4"]);
        backings.insert(node("loop0"), Backing::Device);
        backings.insert(node("loop1"), Backing::Volume);
        backings.insert(node("loop3"), Backing::File(DeviceNumber { major: 254, minor: 0 }));
        assert_eq!(paths(root, &backings), [("/dev/loop4".to_owned(), DiskBacking::File)]);
    }

    /// A machine with a btrfs on a volume and one on a disk, and where they are mounted.
    #[test]
    fn a_loop_device_over_a_file_on_a_btrfs_volume_is_no_disk() {
        let machine = tempfile::tempdir().unwrap();
        let at = |path: &str| machine.path().join(path);
        let (block, btrfs, mounts) = (at("block"), at("btrfs"), at("mountinfo"));
        put(&block, &[("dm-0/dm/uuid", "LVM-abc"), ("dm-0/dm/name", "vg0-pliant--abc")]);
        put(&block, &[("dm-1/dm/uuid", "LVM-abd"), ("dm-1/dm/name", "vg0-root")]);
        put(&block, &[("loop3/loop/backing_file", "/images/disk")]);
        put(
            &btrfs,
            &[("features/x", ""), ("2b1d/devices/dm-1/x", ""), ("77aa/devices/sda2/x", "")],
        );
        let anonymous = |minor: u32| DeviceNumber { major: 0, minor };
        let line = |target: &str, source: &str| {
            format!("36 1 0:99 / {} rw - btrfs {source} rw\n", at(target).display())
        };
        let settled = |mounted: &str, number: DeviceNumber| {
            let other = "37 1 0:7 / /tmp rw - tmpfs tmpfs rw\n";
            fs::write(&mounts, format!("{mounted}{other}")).unwrap();
            let places = Places { block: &block, btrfs: &btrfs, mounts: &mounts };
            let is_found = |path: &Path| path == at("host") || path == Path::new("/images/disk");
            let number_of = |path: &Path| is_found(path).then(|| anonymous(44));
            places.settle(Path::new("/dev/loop3"), number, number_of).unwrap()
        };
        let is_file = |number| Backing::File(number);
        let host = line("host", "/dev/sda2");
        // While no volume has a btrfs, none is on one.
        assert_eq!(settled(&host, anonymous(45)), is_file(anonymous(45)));

        put(&btrfs, &[("5c0e/devices/dm-0/x", "")]);
        assert_eq!(settled(&host, anonymous(45)), Backing::Volume, "found nowhere");
        assert_eq!(settled(&host, anonymous(7)), is_file(anonymous(7)), "of a tmpfs");
        let disk = DeviceNumber { major: 8, minor: 1 };
        assert_eq!(settled(&host, disk), is_file(disk));
        let found = anonymous(44);
        assert_eq!(settled(&host, found), is_file(found), "the host's own");
        for source in ["/dev/mapper/vg0-pliant--abc", "/dev/dm-0"] {
            assert_eq!(settled(&line("host", source), found), Backing::Volume, "{source}");
        }
    }

    #[test]
    fn what_another_storage_system_keeps_is_told_from_a_disk_of_the_machine() {
        let sys = tempfile::tempdir().unwrap();
        let root = sys.path();
        let foreign =
            ["drbd0", "nbd0", "nvme1n1", "nvme2n1", "nvme3n1", "rbd0", "sdb", "ublkb0", "zd0"];
        let local = ["dm-8", "md1", "nvme0n1", "nvme4n1", "sda", "zdata", "dm-9", "md2"];
        for (minor, name) in foreign.iter().chain(&local).enumerate() {
            device(root, name, &format!("300:{minor}"), "2048");
        }
        put(root, &[("nvme0n1/device/transport", "pcie"), ("nvme1n1/device/transport", "tcp")]);
        put(root, &[("nvme2n1/device/nvme2/transport", "rdma"), ("nvme2n1/device/x", "")]);
        let models = [("nvme3n1", "Amazon Elastic Block Store"), ("sdb", "PersistentDisk")];
        let own = [("nvme4n1", "Amazon EC2 NVMe Instance Storage"), ("sda", "EphemeralDisk")];
        for (name, model) in models.into_iter().chain(own) {
            // The kernel fills it with spaces.
            put(root, &[(&format!("{name}/device/model"), &format!("{model:<40}\n"))]);
        }
        put(root, &[("dm-8/slaves/sda/x", ""), ("md1/slaves/sda1/x", "")]);
        put(root, &[("sda/sda1/partition", "1")]);
        put(root, &[("dm-9/slaves/rbd0/x", ""), ("md2/slaves/nbd0p1/x", "")]);
        put(root, &[("nbd0/nbd0p1/partition", "1")]);
        let hosts = tempfile::tempdir().unwrap();
        for (name, host) in [("sdy", "host3/rport-3:0-1"), ("sdz", "host2/session1")] {
            let place = hosts.path().join(host).join("block").join(name);
            device(hosts.path(), &format!("{host}/block/{name}"), "8:0", "2048");
            std::os::unix::fs::symlink(place, root.join(name)).unwrap();
        }
        let far: Vec<String> = paths(root, &Backings::new())
            .into_iter()
            .filter(|(_, source)| *source == DiskBacking::Foreign)
            .map(|(path, _)| path)
            .collect();
        let mut expected = foreign.to_vec();
        expected.extend(["dm-9", "md2", "sdy", "sdz"]);
        expected.sort_unstable();
        assert_eq!(far, expected.iter().map(|name| format!("/dev/{name}")).collect::<Vec<_>>());
    }

    #[test]
    fn device_numbers_are_unpacked() {
        for (packed, major, minor) in
            [(0x0801, 8, 1), (0xfe05, 254, 5), (0x0010_0700, 7, 256), (0x1_0300, 259, 0)]
        {
            let expected = DeviceNumber { major, minor };
            assert_eq!(number(packed), expected, "{packed:x}");
        }
    }
}
