//! The devices that the kernel has stacked on a block device: arrays, device-mapper devices, loop
//! devices.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::{DeviceNumber, Holder, disks, ioctl};

/// Directory in which the kernel describes its devices.
pub(super) const SYS: &str = "/sys";

/// Loop devices that have a block device behind them, and which: the kernel links no holder for those.
pub(super) type Loops = Vec<(String, DeviceNumber)>;

/// The names of the loop devices that have something behind them.
pub(super) fn loops(sys: &Path) -> io::Result<Vec<String>> {
    let mut loops = names(&sys.join("block"))?;
    loops.retain(|name| sys.join("block").join(name).join("loop/backing_file").exists());
    Ok(loops)
}

/// The block device behind a loop device; `None` if that is a file.
pub(super) fn behind(device: &Path) -> io::Result<Option<DeviceNumber>> {
    let [_, _, of_device, ..] = ioctl::loop_info(&File::open(device)?)?;
    Ok((of_device != 0).then(|| disks::number(of_device)))
}

/// Lists what is stacked on a device, the topmost first: in this order it can be stopped.
pub(super) fn above(sys: &Path, device: DeviceNumber, loops: Loops) -> io::Result<Vec<Holder>> {
    let mut found = HolderStack { sys, loops, met: BTreeSet::new(), holders: Vec::new() };
    found.climb(device)?;
    Ok(found.holders)
}

struct HolderStack<'a> {
    sys: &'a Path,
    loops: Loops,
    met: BTreeSet<String>,
    holders: Vec<Holder>,
}

impl HolderStack<'_> {
    fn climb(&mut self, device: DeviceNumber) -> io::Result<()> {
        let linked = self.sys.join(format!("dev/block/{device}/holders"));
        let loops = self.loops.iter().filter(|(_, below)| *below == device);
        let above: Vec<String> =
            names(&linked)?.into_iter().chain(loops.map(|(name, _)| name.clone())).collect();
        for name in above {
            if !self.met.insert(name.clone()) {
                continue;
            }
            let entry = self.sys.join("block").join(&name);
            if let Some(number) = number(&entry) {
                self.climb(number)?;
            }
            let dm_name = attribute(&entry, "dm/name");
            self.holders.push(Holder { name: name.replace('!', "/"), dm_name });
        }
        Ok(())
    }
}

fn number(entry: &Path) -> Option<DeviceNumber> {
    DeviceNumber::parse(&attribute(entry, "dev")?)
}

fn attribute(entry: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(entry.join(name)).ok()?;
    Some(text.trim().to_owned())
}

/// The names in a directory, sorted; none if it is not there.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    #[test]
    fn stacks_are_listed_from_their_top_down() {
        let sys = tempfile::tempdir().unwrap();
        let root = sys.path();
        for (name, number) in [("dm-3", "254:3"), ("md127", "9:127"), ("dm-9", "254:9")] {
            put(root, &format!("block/{name}/dev"), number);
        }
        put(root, "block/dm-9/dm/name", "vg--x-root");
        put(root, "dev/block/254:3/holders/md127/x", "");
        put(root, "dev/block/9:127/holders/dm-9/x", "");
        put(root, "dev/block/254:9/holders/dm-9/x", ""); // A ring, which no kernel makes.

        put(root, "block/loop3/dev", "7:3");
        put(root, "block/loop3/loop/backing_file", "/dev/dm-3");
        put(root, "block/loop4/dev", "7:4");
        put(root, "block/loop4/loop/x", "");
        assert_eq!(loops(root).unwrap(), ["loop3"]);
        let loops = || vec![("loop3".to_owned(), DeviceNumber { major: 254, minor: 3 })];

        let above = above(root, DeviceNumber { major: 254, minor: 3 }, loops()).unwrap();

        let holder = |name: &str, dm_name: Option<&str>| Holder {
            name: name.to_owned(),
            dm_name: dm_name.map(str::to_owned),
        };
        assert_eq!(
            above,
            [holder("dm-9", Some("vg--x-root")), holder("md127", None), holder("loop3", None)]
        );
        assert_eq!(
            above.iter().map(Holder::command_to_stop).collect::<Vec<_>>(),
            ["dmsetup remove vg--x-root", "mdadm --stop /dev/md127", "losetup --detach /dev/loop3"]
        );
        let free = DeviceNumber { major: 254, minor: 4 };
        assert_eq!(super::above(root, free, loops()).unwrap(), []);
    }
}
