//! The mount table, the tree of paths, and mounted file systems.

use std::ops::Range;
use std::path::{Path, PathBuf};

use nix::libc::{EBUSY, EEXIST, EINVAL, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, EROFS, ESTALE};
use pliant_lvm::host::{DeviceNumber, HostError, Mount, NewMount, PathKind};
use pliant_volume::bytes::Bytes;
use pliant_volume::{FsKind, FsUsage};

use crate::World;
use crate::disk::{Fault, system};
use crate::superblocks::{FakeFs, HEAD};

/// The first minor number of those that the kernel makes up.
const ANONYMOUS: u32 = 100;

/// What the kernel keeps for each mount; any other option belongs to the file system.
const PER_MOUNT: [&str; 10] = [
    "ro",
    "rw",
    "nodev",
    "nosuid",
    "noexec",
    "noatime",
    "nodiratime",
    "relatime",
    "strictatime",
    "nosymfollow",
];

/// Options of a mount as the kernel prints them.
fn per_mount(flags: &[String]) -> Vec<String> {
    let read_only = flags.iter().any(|flag| flag == "ro");
    let mut options = vec![if read_only { "ro" } else { "rw" }.to_owned()];
    let others = flags.iter().filter(|flag| !["ro", "rw"].contains(&flag.as_str()));
    options.extend(others.cloned());
    if !flags.iter().any(|flag| flag.ends_with("atime")) {
        options.push("relatime".to_owned());
    }
    options
}

/// Whether a kernel's file system type mounts this kind; ext4 mounts its forerunners too.
fn drives(driver: &str, kind: FsKind) -> bool {
    kind.as_str() == driver || kind.is_ext() && driver == "ext4"
}

impl World {
    /// The mount table as the kernel shows it: btrfs has a number of its own there.
    pub fn mount_table(&self) -> Vec<Mount> {
        let shown = self.mounts.iter().cloned().map(|mut mount| {
            if mount.kind == "btrfs" {
                let minor = ANONYMOUS + mount.device.minor;
                mount.device = DeviceNumber { major: 0, minor };
            }
            mount
        });
        shown.collect()
    }

    pub fn path_kind(&self, path: &Path) -> Option<PathKind> {
        let top = self.mounts.iter().rev().find(|mount| mount.target == path);
        if let Some(top) = top {
            let node = Path::new("/dev").join(top.root.strip_prefix("/").unwrap_or(&top.root));
            let node = self.number_of(&node).filter(|_| top.kind == "devtmpfs");
            return Some(node.map_or(PathKind::Directory, PathKind::Block));
        }
        if let Some(number) = self.number_of(path) {
            return Some(PathKind::Block(number));
        }
        let directory = *self.paths.get(path)?;
        Some(if directory { PathKind::Directory } else { PathKind::File })
    }

    pub fn real_path(&self, path: &Path) -> Option<PathBuf> {
        let path = self.links.get(path).map_or(path, PathBuf::as_path);
        let gone = self.disks.get(path).is_some_and(|disk| disk.fault == Some(Fault::Gone));
        self.path_kind(path).filter(|_| !gone).map(|_| path.to_owned())
    }

    pub fn make_dir(&mut self, path: &Path) -> Result<(), HostError> {
        for parent in path.ancestors() {
            if self.path_kind(parent).is_some_and(|kind| kind != PathKind::Directory) {
                return Err(system(format!("mkdir {}", path.display()), ENOTDIR));
            }
        }
        let missing = path.ancestors().map(|path| (path.to_owned(), true));
        self.paths.extend(missing);
        Ok(())
    }

    pub fn make_file(&mut self, path: &Path) -> Result<(), HostError> {
        let what = format!("create {}", path.display());
        let parent = path.parent().and_then(|parent| self.path_kind(parent));
        match (parent, self.path_kind(path)) {
            (None, _) => Err(system(what, ENOENT)),
            (Some(PathKind::Directory), None) => {
                self.paths.insert(path.to_owned(), false);
                Ok(())
            }
            (Some(PathKind::Directory), Some(PathKind::File | PathKind::Block(_))) => Ok(()),
            _ => Err(system(what, ENOTDIR)),
        }
    }

    pub fn remove_path(&mut self, path: &Path) -> Result<(), HostError> {
        let what = format!("remove {}", path.display());
        if self.mounts.iter().any(|mount| mount.target == path) {
            return Err(system(what, EBUSY));
        }
        if self.paths.keys().any(|other| other.parent() == Some(path)) {
            return Err(system(what, ENOTEMPTY));
        }
        self.paths.remove(path);
        Ok(())
    }

    /// What the kernel says to a file system that has the uuid of another mounted one.
    fn doubles(
        &self,
        fs: &FakeFs,
        head: &[u8],
        device: DeviceNumber,
        options: &[String],
    ) -> Option<i32> {
        let errno = match fs.kind {
            FsKind::Xfs if !options.iter().any(|option| option == "nouuid") => EINVAL,
            FsKind::Btrfs => EEXIST,
            _ => return None,
        };
        let others = self.mounts.iter().filter(|mount| mount.device != device);
        let mut heads =
            others.filter_map(|mount| self.read(Path::new(&mount.source), 0, HEAD).ok());
        let same = |other: &[u8]| {
            let other = FakeFs::read(other).map(|found| (found.kind, found.uuid(other)));
            other == Some((fs.kind, fs.uuid(head)))
        };
        heads.any(|other| same(&other)).then_some(errno)
    }

    pub fn mount(&mut self, new: &NewMount) -> Result<(), HostError> {
        let what = format!("mount {} at {}", new.device.display(), new.target.display());
        match self.path_kind(&new.target) {
            Some(PathKind::Directory) => {}
            Some(_) => return Err(system(what, ENOTDIR)),
            None => return Err(system(what, ENOENT)),
        }
        let number = self.number_of(&new.device);
        let device = number.ok_or_else(|| system(what.clone(), ENOENT))?;
        let mut head = self.read(&new.device, 0, HEAD)?;
        let found = FakeFs::read(&head).filter(|fs| drives(new.kind, fs.kind));
        let fs = found.ok_or_else(|| system(what.clone(), EINVAL))?;
        let read_only = new.options.iter().any(|option| option == "ro");
        let own = |option: &&String| !PER_MOUNT.contains(&option.as_str());
        let mut super_options = vec![if read_only { "ro" } else { "rw" }.to_owned()];
        super_options.extend(new.options.iter().filter(own).cloned());
        let mut others = self.mounts.iter().filter(|mount| mount.device == device);
        if others.any(|other| other.super_options[0] != super_options[0]) {
            return Err(system(what, EBUSY));
        }
        if let Some(errno) = self.doubles(&fs, &head, device, &new.options) {
            return Err(system(what, errno));
        }
        if !read_only {
            fs.mounted(&mut head);
            self.write(&new.device, 0, &head)?;
        }
        self.mounts.push(Mount {
            device,
            root: PathBuf::from("/"),
            target: new.target.clone(),
            kind: new.kind.to_owned(),
            source: new.device.to_string_lossy().into_owned(),
            mount_options: per_mount(&new.options),
            super_options,
        });
        Ok(())
    }

    pub fn bind(
        &mut self,
        source: &Path,
        target: &Path,
        flags: &[String],
    ) -> Result<(), HostError> {
        let what = format!("bind {} to {}", source.display(), target.display());
        let mount = match (self.path_kind(source), self.path_kind(target)) {
            (None, _) | (_, None) => return Err(system(what, ENOENT)),
            (Some(PathKind::Directory), Some(PathKind::Directory))
            | (Some(PathKind::Block(_)), Some(PathKind::File | PathKind::Block(_))) => {
                self.mount_of(source)
            }
            _ => return Err(system(what, ENOTDIR)),
        };
        let inside = source.strip_prefix(&mount.target).unwrap_or(source);
        let root = if inside.as_os_str().is_empty() {
            mount.root.clone()
        } else {
            mount.root.join(inside)
        };
        self.mounts.push(Mount {
            root,
            target: target.to_owned(),
            mount_options: per_mount(flags),
            ..mount
        });
        Ok(())
    }

    pub fn mount_writable(&mut self, target: &Path) -> Result<(), HostError> {
        let what = format!("mount writable {}", target.display());
        let top = self.mounts.iter().rposition(|mount| mount.target == target);
        let top = top.ok_or_else(|| system(what.clone(), EINVAL))?;
        let device = self.mounts[top].device;
        "rw".clone_into(&mut self.mounts[top].mount_options[0]);
        for mount in self.mounts.iter_mut().filter(|mount| mount.device == device) {
            "rw".clone_into(&mut mount.super_options[0]);
        }
        let node = self.node(device).ok_or_else(|| system(what, ENOENT))?;
        let mut head = self.read(&node, 0, HEAD)?;
        if let Some(fs) = FakeFs::read(&head) {
            fs.mounted(&mut head);
            self.write(&node, 0, &head)?;
        }
        Ok(())
    }

    pub fn unmount(&mut self, target: &Path) -> Result<(), HostError> {
        let what = format!("umount {}", target.display());
        let top = self.mounts.iter().rposition(|mount| mount.target == target);
        let top = top.ok_or_else(|| system(what.clone(), EINVAL))?;
        let below = |mount: &Mount| mount.target != target && mount.target.starts_with(target);
        if self.mounts[top..].iter().any(below) {
            return Err(system(what, EBUSY));
        }
        self.mounts.remove(top);
        Ok(())
    }

    /// The topmost mount that a path lies on.
    fn mount_of(&self, path: &Path) -> Mount {
        let deepest = self
            .mounts
            .iter()
            .enumerate()
            .filter(|(_, mount)| path.starts_with(&mount.target))
            .max_by_key(|(place, mount)| (mount.target.components().count(), *place));
        deepest.expect("a root is mounted").1.clone()
    }

    /// The node of a file system's device, by its number.
    fn node(&self, number: DeviceNumber) -> Option<PathBuf> {
        let disks = self.disks.keys().cloned();
        let devices = self.devices.values().map(crate::device::Device::path);
        disks.chain(devices).find(|path| self.number_of(path) == Some(number))
    }

    /// The file system that a path lies on, its device's node and the device's size.
    pub fn mounted_fs(
        &self,
        path: &Path,
        what: &str,
    ) -> Result<(FakeFs, PathBuf, Bytes), HostError> {
        if self.path_kind(path).is_none() {
            return Err(system(what, ENOENT));
        }
        let mount = self.mount_of(path);
        let node = self.node(mount.device);
        let node = node.ok_or_else(|| system(what, EINVAL))?;
        let head = self.read(&node, 0, HEAD)?;
        let fs = FakeFs::read(&head).ok_or_else(|| system(what, EINVAL))?;
        let size = self.size_of(&node)?;
        Ok((fs, node, size))
    }

    pub fn usage(&self, path: &Path) -> Result<FsUsage, HostError> {
        let (fs, _, _) = self.mounted_fs(path, &format!("statfs {}", path.display()))?;
        let inodes = if fs.kind == FsKind::Btrfs { 0 } else { fs.covers.get() / (16 << 10) };
        let used = self.used.get(path).copied().unwrap_or(Bytes::mib(1));
        Ok(FsUsage {
            total: fs.covers,
            used,
            available: fs.covers.saturating_sub(used),
            inodes,
            inodes_free: inodes.saturating_sub(11),
        })
    }

    /// Discard what a mounted file system does not use: here that is what lies behind its first MiB.
    pub fn trim(
        &self,
        path: &Path,
        device: DeviceNumber,
        range: &Range<u64>,
    ) -> Result<Bytes, HostError> {
        let (fs, node, _) = self.mounted_fs(path, "FITRIM")?;
        if self.number_of(&node) != Some(device) {
            return Err(system("FITRIM", ESTALE));
        }
        let end = fs.covers.get();
        if range.start >= end {
            return Err(system("FITRIM", EINVAL));
        }
        Ok(Bytes::new(range.end.min(end).saturating_sub(range.start.max(1 << 20))))
    }

    /// Grow a mounted file system to this many bytes, or to its device.
    pub fn grow_mounted(
        &mut self,
        path: &Path,
        kinds: &[FsKind],
        to: Option<Bytes>,
        what: &str,
    ) -> Result<(), HostError> {
        let (fs, node, size) = self.mounted_fs(path, what)?;
        if self.mount_of(path).super_options[0] == "ro" {
            return Err(system(what, EROFS));
        }
        let covers = to.unwrap_or(size);
        if !kinds.contains(&fs.kind) || covers > size || covers < fs.covers {
            return Err(system(what, EINVAL));
        }
        self.resize(&node, FakeFs { covers, ..fs })
    }

    pub fn shrink_btrfs(&mut self, path: &Path, to: Bytes) -> Result<(), HostError> {
        const CALL: &str = "BTRFS_IOC_RESIZE";
        let (fs, node, _) = self.mounted_fs(path, CALL)?;
        if self.mount_of(path).super_options[0] == "ro" {
            return Err(system(CALL, EROFS));
        }
        if fs.kind != FsKind::Btrfs || to > fs.covers || to < FsKind::Btrfs.smallest() {
            return Err(system(CALL, EINVAL));
        }
        if self.used.get(path).is_some_and(|used| *used > to) {
            return Err(system(CALL, ENOSPC));
        }
        self.resize(&node, FakeFs { covers: to, ..fs })
    }

    pub fn resize(&mut self, node: &Path, fs: FakeFs) -> Result<(), HostError> {
        let mut head = self.read(node, 0, HEAD)?;
        fs.resize(&mut head);
        self.write(node, 0, &head)
    }
}
