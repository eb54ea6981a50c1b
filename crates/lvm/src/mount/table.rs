//! The mount table, read once and asked often.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::host::{DeviceNumber, Host, HostError, Mount, PathKind};

/// The mounts of this host at one moment.
///
/// A node with a thousand volumes has thousands of mounts and looks up those of each volume, so
/// they are found by index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountTable {
    mounts: Vec<Mount>,
    /// Which mounts lie on a device.
    of_device: HashMap<DeviceNumber, Vec<usize>>,
    /// Which mounts show a device's node, by the kernel's name of the device.
    of_node: HashMap<String, Vec<usize>>,
}

impl MountTable {
    /// Reads the table.
    ///
    /// The kernel lists btrfs with a number of its own; here each has the number of its device, as
    /// all others do, if the device's node still has it.
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

    pub(super) fn of_mounts(mounts: Vec<Mount>) -> MountTable {
        let mut of_device: HashMap<_, Vec<usize>> = HashMap::new();
        let mut of_node: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, mount) in mounts.iter().enumerate() {
            of_device.entry(mount.device).or_default().push(index);
            if let Some(name) = mount.shown_node() {
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

    /// Returns the number of mounts on top of each other at `target`.
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

/// Returns the number of the device that a btrfs names as its source: a node, or a device-mapper
/// name, which is a link of udev; `None` where it names none.
///
/// # Errors
/// [`HostError`] if the path cannot be looked at.
pub async fn block_number(
    host: &dyn Host,
    source: &Path,
) -> Result<Option<DeviceNumber>, HostError> {
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
