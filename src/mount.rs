//! The mount table and what is done to it.
//!
//! Every verb takes the table as its caller has read it, so that one request reads it once. A verb
//! that changes something looks again: by what device it sees, not by what the call returned.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use nix::libc::EINVAL;

use crate::host::{DeviceNumber, Host, HostError, Mount, NewMount, PathKind};

/// Why a mount is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Something else is there; nothing was changed.
    #[error("{target} shows {found}, not {wanted}; see `findmnt {target}`, and if that can go, `umount {target}`", target = target.display())]
    Occupied {
        /// Where.
        target: PathBuf,
        /// What is there.
        found: String,
        /// What was wanted.
        wanted: String,
    },
    /// Nothing is there, and something has to be.
    #[error("nothing is mounted at {}, not {wanted}", target.display())]
    NotMounted {
        /// Where.
        target: PathBuf,
        /// What was wanted.
        wanted: String,
    },
    /// It is still mounted after all its layers were unmounted: somebody mounts it again.
    #[error("{} is mounted again by somebody else", target.display())]
    StillMounted {
        /// Where.
        target: PathBuf,
    },
    /// The machine refused a call.
    #[error(transparent)]
    Host(#[from] HostError),
}

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

/// Mount a file system at its target; `true` if that changed anything.
///
/// `device` is the number of the device that must be seen there. Mounted there already with the same
/// right to write is success; other options are not compared.
///
/// # Errors
/// [`MountError::Occupied`] if something else is there, before or after.
pub async fn ensure_mounted(
    host: &dyn Host,
    before: &MountTable,
    new: &NewMount,
    device: DeviceNumber,
) -> Result<bool, MountError> {
    let read_only = new.options.iter().any(|option| option == "ro");
    let wanted = Wanted { target: &new.target, device, root: Path::new("/"), read_only };
    if wanted.is_in(before)? {
        return Ok(false);
    }
    host.mount(new).await?;
    wanted.must_be_in(&MountTable::read(host).await?)?;
    Ok(true)
}

/// Bind a mounted directory to its target; `true` if that changed anything.
///
/// `source` is a mount point in `before`; what is seen there must be seen at `target`. Bound there
/// already with the same right to write is success; other flags are not compared.
///
/// # Errors
/// [`MountError::Occupied`] if something else is at `target`, before or after,
/// [`MountError::NotMounted`] if nothing is mounted at `source`.
pub async fn ensure_bound(
    host: &dyn Host,
    before: &MountTable,
    source: &Path,
    target: &Path,
    flags: &[String],
) -> Result<bool, MountError> {
    let Some(shown) = before.at(source) else {
        return Err(MountError::NotMounted {
            target: source.to_owned(),
            wanted: format!("what is to be seen at {}", target.display()),
        });
    };
    let wanted = Wanted {
        target,
        device: shown.device,
        root: &shown.root,
        read_only: flags.iter().any(|flag| flag == "ro"),
    };
    if wanted.is_in(before)? {
        return Ok(false);
    }
    host.bind(source, target, flags).await?;
    wanted.must_be_in(&MountTable::read(host).await?)?;
    Ok(true)
}

/// Bind a device's node to a file; `true` if that changed anything.
///
/// `device` is the number that must be seen there. Needs no second look at the table: the node at
/// `target` itself tells its number.
///
/// # Errors
/// [`MountError::Occupied`] if something else is at `target`, before or after.
pub async fn ensure_node_bound(
    host: &dyn Host,
    before: &MountTable,
    node: &Path,
    device: DeviceNumber,
    target: &Path,
) -> Result<bool, MountError> {
    let mounted = before.at(target).is_some();
    if !mounted {
        host.bind(node, target, &[]).await?;
    }
    match host.path_kind(target).await? {
        Some(PathKind::Block(number)) if number == device => Ok(!mounted),
        other => Err(MountError::Occupied {
            target: target.to_owned(),
            found: named(other),
            wanted: format!("block device {device}"),
        }),
    }
}

/// Unmount all layers at `target`; `true` if there were any.
///
/// # Errors
/// [`MountError::Host`] with EBUSY while a process uses it, [`MountError::StillMounted`] if somebody
/// else mounts it at the same time.
pub async fn ensure_unmounted(
    host: &dyn Host,
    before: &MountTable,
    target: &Path,
) -> Result<bool, MountError> {
    let layers = before.layers(target);
    if layers == 0 {
        return Ok(false);
    }
    for _ in 0..layers {
        match host.unmount(target).await {
            // No mount any more: somebody else was quicker.
            Err(error) if error.errno() == Some(EINVAL) => break,
            answer => answer?,
        }
    }
    if MountTable::read(host).await?.at(target).is_some() {
        return Err(MountError::StillMounted { target: target.to_owned() });
    }
    Ok(true)
}

/// What has to be seen at a target.
struct Wanted<'a> {
    target: &'a Path,
    device: DeviceNumber,
    root: &'a Path,
    read_only: bool,
}

impl Wanted<'_> {
    /// Whether the table has it; an error if it has something else there.
    fn is_in(&self, table: &MountTable) -> Result<bool, MountError> {
        match table.at(self.target) {
            None => Ok(false),
            Some(mount) if self.is(mount) => Ok(true),
            Some(mount) => Err(MountError::Occupied {
                target: self.target.to_owned(),
                found: describe(mount),
                wanted: self.in_words(),
            }),
        }
    }

    fn must_be_in(&self, table: &MountTable) -> Result<(), MountError> {
        if self.is_in(table)? {
            return Ok(());
        }
        Err(MountError::NotMounted { target: self.target.to_owned(), wanted: self.in_words() })
    }

    /// A file system that the kernel has turned read-only after an error is still the one wanted.
    fn is(&self, mount: &Mount) -> bool {
        let read_only = mount.mount_options.iter().any(|option| option == "ro");
        (mount.device, mount.root.as_path(), read_only) == (self.device, self.root, self.read_only)
    }

    fn in_words(&self) -> String {
        let access = access(self.read_only);
        format!("{} of device {}, {access}", self.root.display(), self.device)
    }
}

fn describe(mount: &Mount) -> String {
    let access = access(mount.mount_options.iter().any(|option| option == "ro"));
    let (root, device) = (mount.root.display(), mount.device);
    format!("{root} of device {device} ({} {}), {access}", mount.kind, mount.source)
}

fn access(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "writable" }
}

fn named(kind: Option<PathKind>) -> String {
    match kind {
        Some(PathKind::Block(number)) => format!("block device {number}"),
        Some(PathKind::Directory) => "a directory".to_owned(),
        Some(PathKind::File) => "a file".to_owned(),
        Some(PathKind::Other) => "something that is no device".to_owned(),
        None => "nothing".to_owned(),
    }
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
mod tests {
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

    fn number((major, minor): (u32, u32)) -> DeviceNumber {
        DeviceNumber { major, minor }
    }

    fn table() -> MountTable {
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
        let host = crate::testing::FakeHost::new();
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

    /// A machine with a directory bound to another.
    async fn bound() -> FakeHost {
        let host = FakeHost::new();
        for dir in ["/a", "/b"] {
            host.make_dir(Path::new(dir)).await.unwrap();
        }
        host.bind(Path::new("/a"), Path::new("/b"), &[]).await.unwrap();
        host
    }

    #[tokio::test]
    async fn all_layers_are_unmounted_and_somebody_elses_haste_is_no_error() {
        let host = bound().await;
        let b = Path::new("/b");
        host.bind(Path::new("/a"), b, &[]).await.unwrap();
        let table = MountTable::read(&host).await.unwrap();
        assert!(ensure_unmounted(&host, &table, b).await.unwrap());
        assert_eq!(MountTable::read(&host).await.unwrap().layers(b), 0);
        assert!(ensure_unmounted(&host, &table, b).await.unwrap(), "by a table that is old now");
    }

    #[tokio::test]
    async fn what_is_mounted_again_meanwhile_is_told() {
        let host = bound().await;
        let b = Path::new("/b");
        let table = MountTable::read(&host).await.unwrap();
        host.bind(Path::new("/a"), b, &[]).await.unwrap();
        let answer = ensure_unmounted(&host, &table, b).await;
        assert!(matches!(answer, Err(MountError::StillMounted { .. })), "{answer:?}");
    }

    #[tokio::test]
    async fn what_was_bound_is_looked_at() {
        let host = bound().await;
        let (b, c) = (Path::new("/b"), Path::new("/c"));
        host.make_dir(c).await.unwrap();
        let table = MountTable::read(&host).await.unwrap();
        // Meanwhile the source shows something else.
        host.bind(Path::new("/dev"), b, &[]).await.unwrap();
        let answer = ensure_bound(&host, &table, b, c, &[]).await;
        assert!(matches!(answer, Err(MountError::Occupied { .. })), "{answer:?}");
    }

    #[tokio::test]
    async fn a_node_that_is_another_devices_is_not_taken_for_this_one() {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::mib(1));
        host.make_file(Path::new("/block")).await.unwrap();
        let table = MountTable::read(&host).await.unwrap();
        let device = number((254, 9));
        let answer = ensure_node_bound(&host, &table, &disk, device, Path::new("/block")).await;
        assert!(matches!(answer, Err(MountError::Occupied { .. })), "{answer:?}");
    }

    #[test]
    fn the_wanted_is_told_from_all_else() {
        let table = table();
        let wanted = |device, read_only| Wanted {
            target: Path::new("/target"),
            device: number(device),
            root: Path::new("/"),
            read_only,
        };
        assert!(wanted((254, 3), false).is_in(&table).expect("it is there"));
        let other = wanted((254, 4), true).is_in(&table).expect_err("it is not");
        assert_eq!(
            other.to_string(),
            "/target shows / of device 254:3 (ext4 /dev/dm-3), writable, not / of device 254:4, \
             read-only; see `findmnt /target`, and if that can go, `umount /target`"
        );
        assert!(wanted((254, 3), true).is_in(&table).is_err());
    }
}
