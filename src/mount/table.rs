//! The mount table, read once and asked often.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::host::{DeviceNumber, Host, HostError, Mount, PathKind};

/// The mounts of this machine at one moment.
///
/// A node with a thousand volumes has thousands of mounts and asks for those of each volume at once,
/// so they are found by index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountTable {
    mounts: Vec<Mount>,
    /// Which mounts lie on a device.
    of_device: HashMap<DeviceNumber, Vec<usize>>,
    /// Which mounts show a device's node, by the kernel's name of the device.
    of_node: HashMap<String, Vec<usize>>,
}

impl MountTable {
    /// Read the table.
    ///
    /// The kernel lists btrfs with a number of its own; here each has the number of its device, as
    /// all others do, where the device's node still tells it.
    pub async fn read(host: &dyn Host) -> Result<MountTable, HostError> {
        let mut mounts = host.mounts().await?;
        let mut numbers = BTreeMap::new();
        for mount in mounts.iter_mut().filter(|mount| mount.kind == "btrfs") {
            if !numbers.contains_key(&mount.source) {
                let number = block_number(host, Path::new(&mount.source)).await?;
                numbers.insert(mount.source.clone(), number);
            }
            if let Some(Some(number)) = numbers.get(&mount.source) {
                mount.device = *number;
            }
        }
        Ok(MountTable::of_mounts(mounts))
    }

    fn of_mounts(mounts: Vec<Mount>) -> MountTable {
        let mut of_device: HashMap<_, Vec<usize>> = HashMap::new();
        let mut of_node: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, mount) in mounts.iter().enumerate() {
            of_device.entry(mount.device).or_default().push(index);
            if let Some(name) = shown_node(mount) {
                of_node.entry(name.to_owned()).or_default().push(index);
            }
        }
        MountTable { mounts, of_device, of_node }
    }

    fn indexed<'a>(&'a self, indices: Option<&'a Vec<usize>>) -> impl Iterator<Item = &'a Mount> {
        indices.into_iter().flatten().map(|index| &self.mounts[*index])
    }

    /// The mount that is seen at `target`: the topmost.
    pub fn at(&self, target: &Path) -> Option<&Mount> {
        self.mounts.iter().rfind(|mount| mount.target == target)
    }

    /// The mount points below a directory, the innermost first.
    pub fn below(&self, directory: &Path) -> Vec<PathBuf> {
        let inside = self.mounts.iter().rev().filter(|mount| mount.target.starts_with(directory));
        inside.map(|mount| mount.target.clone()).collect()
    }

    /// How many mounts lie on each other at `target`.
    pub fn layers(&self, target: &Path) -> usize {
        self.mounts.iter().filter(|mount| mount.target == target).count()
    }

    /// All mounts of the file system on a device, bind mounts among them.
    pub fn of(&self, device: DeviceNumber) -> impl Iterator<Item = &Mount> {
        self.indexed(self.of_device.get(&device))
    }

    /// All bind mounts of a device's node, by the kernel's name of the device, such as `dm-3`.
    ///
    /// Finds them also where the node itself has been removed since.
    pub fn of_node(&self, kernel_name: &str) -> impl Iterator<Item = &Mount> {
        self.indexed(self.of_node.get(kernel_name))
    }
}

/// The kernel's name of the device whose node a bind mount shows.
fn shown_node(mount: &Mount) -> Option<&str> {
    let root = mount.root.to_str().filter(|_| mount.kind == "devtmpfs")?;
    root.strip_suffix("//deleted").unwrap_or(root).strip_prefix('/')
}

/// The number of the device that a btrfs names as its source: a node, or a device-mapper name, which
/// is a link that udev keeps.
async fn block_number(host: &dyn Host, source: &Path) -> Result<Option<DeviceNumber>, HostError> {
    // A mount of others may name anything; what is on the way to it must not keep ours from being seen.
    if !source.starts_with("/dev") {
        return Ok(None);
    }
    if let Ok(name) = source.strip_prefix("/dev/mapper") {
        let devices = host.dm_list().await?;
        let device = devices.iter().find(|device| Path::new(&device.name) == name);
        return Ok(device.map(|device| device.number));
    }
    Ok(match host.path_kind(source).await? {
        Some(PathKind::Block(number)) => Some(number),
        _ => None,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::testing::FakeHost;

    fn mount(device: (u32, u32), root: &str, target: &str, kind: &str) -> Mount {
        Mount {
            device: number(device),
            root: root.into(),
            target: target.into(),
            kind: kind.to_owned(),
            source: "/dev/dm-3".to_owned(),
            mount_options: vec!["rw".to_owned(), "nodev".to_owned()],
            super_options: vec!["rw".to_owned()],
        }
    }

    pub(in super::super) fn number((major, minor): (u32, u32)) -> DeviceNumber {
        DeviceNumber { major, minor }
    }

    pub(in super::super) fn table() -> MountTable {
        MountTable::of_mounts(vec![
            mount((254, 1), "/", "/staging", "xfs"),
            mount((254, 3), "/", "/staging", "ext4"),
            mount((254, 3), "/", "/target", "ext4"),
            mount((0, 5), "/dm-3", "/block", "devtmpfs"),
            mount((0, 5), "/dm-3//deleted", "/gone", "devtmpfs"),
            mount((0, 5), "/dm-33", "/other", "devtmpfs"),
            mount((0, 6), "/dm-3", "/lookalike", "tmpfs"),
        ])
    }

    fn targets<'a>(mounts: impl Iterator<Item = &'a Mount>) -> Vec<&'a str> {
        mounts.filter_map(|mount| mount.target.to_str()).collect()
    }

    #[test]
    fn the_topmost_is_seen() {
        let table = table();
        let seen = table.at(Path::new("/staging")).map(|mount| mount.device);
        assert_eq!(seen, Some(number((254, 3))));
        assert_eq!(table.layers(Path::new("/staging")), 2);
        assert_eq!(table.at(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_device_has_its_mounts_and_its_node_has_its_own() {
        let table = table();
        assert_eq!(targets(table.of(number((254, 3)))), ["/staging", "/target"]);
        assert_eq!(targets(table.of_node("dm-3")), ["/block", "/gone"]);
    }

    #[tokio::test]
    async fn what_others_name_as_a_source_is_not_followed() {
        let host = FakeHost::new();
        for source in ["/proc/self/fd/3", "none", "/home/x/../device"] {
            let number = block_number(&host, Path::new(source)).await;
            assert_eq!(number.expect("no look, no error"), None);
        }
        assert_eq!(host.counts().get("path_calls"), None);
    }

    #[tokio::test]
    async fn a_device_mapper_name_as_a_source_is_its_device() {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::mib(100));
        host.add_group("vg0", std::slice::from_ref(&disk));
        host.pin_devices("vg0", &[disk]).await.unwrap();
        let make = "-y -Wn -Zn --setautoactivation n -ay -l 4 -n data vg0".split(' ');
        host.lvm("vg0", crate::host::Cmd::new("lvcreate").args(make)).await.unwrap();
        let device = &host.dm_list().await.unwrap()[0];
        for (name, number) in [("vg0-data", Some(device.number)), ("vg0-other", None)] {
            let source = Path::new("/dev/mapper").join(name);
            assert_eq!(block_number(&host, &source).await.unwrap(), number, "{name}");
        }
    }

    #[test]
    fn the_innermost_mount_below_a_directory_comes_first() {
        let table = MountTable::of_mounts(vec![
            mount((254, 3), "/", "/run/grow/a", "ext4"),
            mount((254, 4), "/", "/run/grow/a/b", "ext4"),
            mount((254, 5), "/", "/run/growth", "ext4"),
        ]);
        let below = table.below(Path::new("/run/grow"));
        assert_eq!(below, [Path::new("/run/grow/a/b"), Path::new("/run/grow/a")]);
    }
}
