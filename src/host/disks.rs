//! The disks of the machine, from sysfs: no device is opened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{DeviceNumber, Disk};
use crate::bytes::Bytes;

/// Where the kernel lists its block devices.
pub(super) const SYS_BLOCK: &str = "/sys/block";
/// sysfs counts in these, whatever the disk's own sectors are.
const SECTOR: u64 = 512;

/// List the disks and partitions that could carry a physical volume, by path.
pub(super) fn list(sys_block: &Path) -> io::Result<Vec<Disk>> {
    let mut disks = Vec::new();
    for entry in names(sys_block)? {
        let whole = sys_block.join(&entry);
        // Logical volumes first: there may be thousands, and one read tells them.
        if is_memory(&entry) || is_volume(&whole, sys_block)? {
            continue;
        }
        if !is_there(&whole) || is_member(&whole, sys_block)? {
            continue;
        }
        let mut partitions = partitions(&whole)?;
        if let Some(disk) = disk(&whole, &entry, !partitions.is_empty()) {
            disks.push(disk);
        }
        partitions.sort();
        for name in partitions {
            let part = whole.join(&name);
            if !is_member(&part, sys_block)? {
                disks.extend(disk(&part, &name, false));
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

/// Whether it is a logical volume or lies on one: what is on it is its tenant's business, and could
/// be a copy of a label. Other device-mapper devices, multipath and encryption, carry groups.
fn is_volume(device: &Path, sys_block: &Path) -> io::Result<bool> {
    if is_logical_volume(device) {
        return Ok(true);
    }
    for below in names(&device.join("slaves"))? {
        if is_volume(&sys_block.join(below), sys_block)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_logical_volume(device: &Path) -> bool {
    attribute(device, "dm/uuid").is_some_and(|uuid| uuid.starts_with("LVM-"))
}

/// Whether it has a node in `/dev`, and a file behind it if it is a loop device.
fn is_there(device: &Path) -> bool {
    let is_loop = device.join("loop").is_dir();
    let hidden = attribute(device, "hidden").is_some_and(|hidden| hidden != "0");
    let bound = attribute(device, "loop/backing_file").is_some();
    !hidden && (!is_loop || bound)
}

/// Whether an md array or a device-mapper device that is no logical volume holds it: that one shows
/// what is on it, and only the top of a stack is looked at.
fn is_member(device: &Path, sys_block: &Path) -> io::Result<bool> {
    let holders = names(&device.join("holders"))?;
    Ok(holders.iter().any(|holder| {
        holder.starts_with("md")
            || (holder.starts_with("dm-") && !is_logical_volume(&sys_block.join(holder)))
    }))
}

fn partitions(whole: &Path) -> io::Result<Vec<String>> {
    let mut names = names(whole)?;
    names.retain(|name| whole.join(name).join("partition").is_file());
    Ok(names)
}

/// `None` for a device of size zero, and for one that goes away while it is looked at.
fn disk(device: &Path, name: &str, partitioned: bool) -> Option<Disk> {
    let sectors: u64 = attribute(device, "size")?.parse().ok()?;
    let number = attribute(device, "dev")?;
    let (major, minor) = number.split_once(':')?;
    (sectors > 0).then_some(Disk {
        path: PathBuf::from("/dev").join(name.replace('!', "/")),
        number: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        size: Bytes::new(sectors.checked_mul(SECTOR)?),
        read_only: attribute(device, "ro")? != "0",
        partitioned,
    })
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
            read_only: false,
            partitioned,
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
        assert_eq!(
            list(root).unwrap(),
            [
                array,
                expected("/dev/dm-1", 254, 1, 2048, false),
                expected("/dev/dm-3", 254, 3, 2048, false),
                expected("/dev/loop0", 7, 0, 2048, false),
                expected("/dev/sda", 8, 0, 2048, true),
                expected("/dev/sda1", 8, 1, 1024, false),
                expected("/dev/sdb", 8, 16, 2048, false),
            ]
        );
    }

    #[test]
    fn a_machine_without_disks_has_none() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(list(&sys.path().join("missing")).unwrap(), []);
    }
}
