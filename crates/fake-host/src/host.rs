//! The trait, method by method.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use nix::libc::{EINVAL, EIO, ENXIO};
use pliant_lvm::host::{
    Cmd, DeviceNumber, Disk, DmDevice, DmInfo, DmTarget, GroupLock, HeldDevice, HeldFor, Holder,
    Host, HostError, Kernel, Mount, NewMount, Output, PathKind, XfsGeometry,
};
use pliant_volume::bytes::Bytes;
use pliant_volume::{FsKind, FsUsage};

use crate::device::DISK_MAJOR;
use crate::disk::{Fault, system};
use crate::lvm::check_for_shell;
use crate::superblocks::FakeFs;
use crate::{FakeHost, World};

static ZEROES: [u8; 4096] = [0; 4096];
const EXT: [FsKind; 3] = [FsKind::Ext2, FsKind::Ext3, FsKind::Ext4];

struct Locked {
    host: FakeHost,
    group: String,
}

impl GroupLock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        self.host.drop_lock(&self.group);
    }
}

/// A device that the driver holds open.
#[derive(Debug)]
struct Held {
    host: FakeHost,
    device: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(count) = self.host.lock().held.get_mut(&self.device) {
            *count = count.saturating_sub(1);
        }
    }
}

#[async_trait]
impl HeldDevice for Held {
    async fn write_zeroes(&self, range: Range<u64>) -> Result<(), HostError> {
        self.host.write_zeroes(&self.device, range).await
    }

    async fn discard(&self, range: Range<u64>) -> Result<(), HostError> {
        self.host.discard(&self.device, range).await
    }

    async fn flush(&self) -> Result<(), HostError> {
        self.host.flush(&self.device).await
    }
}

impl FakeHost {
    /// Look at the world: no effect.
    async fn look<T: Send>(&self, count: &'static str, look: impl FnOnce(&World) -> T + Send) -> T {
        self.turn().await;
        let mut world = self.lock();
        world.count(count);
        look(&world)
    }

    /// Change the world: an effect.
    async fn change<T: Send>(
        &self,
        count: &'static str,
        what: String,
        change: impl FnOnce(&mut World) -> Result<T, HostError> + Send,
    ) -> Result<T, HostError> {
        self.lock().count(count);
        self.failure_of(&what)?;
        self.effect(what, change).await
    }
}

#[async_trait]
impl Host for FakeHost {
    async fn run(&self, cmd: Cmd) -> Result<Output, HostError> {
        self.run_program(&cmd).await
    }

    async fn run_on_image(&self, cmd: Cmd, size: Bytes) -> Result<Output, HostError> {
        self.try_program(&cmd, size).await
    }

    async fn lvm(&self, lane: &str, cmd: Cmd) -> Result<String, HostError> {
        if cmd.to_string() == "lvm version" {
            return Ok(String::new()); // It touches no disk.
        }
        check_for_shell(lane, &cmd);
        self.run_lvm(lane, &cmd).await.map(|(_, report)| report)
    }

    async fn pin_devices(&self, lane: &str, devices: &[PathBuf]) -> Result<(), HostError> {
        self.turn().await;
        let pinned = devices.iter().cloned().collect();
        self.lock().pinned.insert(lane.to_owned(), pinned);
        Ok(())
    }

    fn set_thin_mark(&self, lane: &str, percent: u32) {
        self.lock().thin_marks.insert(lane.to_owned(), percent);
    }

    async fn try_lock_group(&self, group: &str) -> Result<Option<Box<dyn GroupLock>>, HostError> {
        self.turn().await;
        let free = self.lock().locks.insert(group.to_owned());
        let locked = || Locked { host: self.clone(), group: group.to_owned() };
        Ok(free.then(|| Box::new(locked()) as Box<dyn GroupLock>))
    }

    async fn disks(&self) -> Result<Vec<Disk>, HostError> {
        self.panic_if_asked("list disks");
        let list = |world: &World| {
            let there = |(_, disk): &(&PathBuf, &crate::FakeDisk)| {
                disk.fault != Some(Fault::Gone) && !disk.is_below
            };
            let disks = world.disks.iter().filter(there);
            let disk = |(path, disk): (&PathBuf, &crate::FakeDisk)| Disk {
                path: path.clone(),
                number: DeviceNumber { major: DISK_MAJOR, minor: disk.minor },
                size: disk.size,
                source: disk.source,
                read_only: disk.read_only,
                partitioned: false,
                logical_block: disk.logical_block,
                optimal_io: disk.optimal_io,
            };
            disks.map(disk).collect()
        };
        Ok(self.look("disk_lists", list).await)
    }

    async fn device_size(&self, device: &Path) -> Result<Bytes, HostError> {
        self.look("device_reads", |world| world.size_of(device)).await
    }

    async fn read_at(
        &self,
        device: &Path,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, HostError> {
        let call = format!("read {}", device.display());
        self.panic_if_asked(&call);
        self.hold_in(&call).await;
        self.look("device_reads", |world| world.read(device, offset, length as u64)).await
    }

    async fn is_zero(&self, device: &Path, range: Range<u64>) -> Result<bool, HostError> {
        let length = range.end - range.start;
        let content = self.look("device_reads", |world| world.read(device, range.start, length));
        // By the piece: an unoptimised build takes its time for each byte.
        Ok(content.await?.chunks(ZEROES.len()).all(|piece| *piece == ZEROES[..piece.len()]))
    }

    async fn copy_range(
        &self,
        from: &Path,
        to: &Path,
        range: Range<u64>,
        leave_zeroes: bool,
    ) -> Result<(), HostError> {
        let what = format!("copy {range:?} of {} to {}", from.display(), to.display());
        let typed = what.clone();
        let copy = |world: &mut World| {
            world.may_copy_to(to, &typed);
            let content = world.held_in(from, &range)?;
            if !leave_zeroes {
                world.zero(to, range.clone(), &typed)?;
            }
            content.into_iter().try_for_each(|(at, bytes)| world.write(to, at, &bytes))
        };
        self.change("device_copies", what, copy).await
    }

    async fn write_blocks(
        &self,
        device: &Path,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), HostError> {
        let what = format!("write {} bytes at {offset} of {}", bytes.len(), device.display());
        let typed = what.clone();
        let write = |world: &mut World| {
            world.may_copy_to(device, &typed);
            world.write(device, offset, &bytes)
        };
        self.change("device_writes", what, write).await
    }

    async fn is_same(
        &self,
        one: &Path,
        other: &Path,
        range: Range<u64>,
    ) -> Result<bool, HostError> {
        let compare =
            |world: &World| Ok(world.held_in(one, &range)? == world.held_in(other, &range)?);
        self.look("device_reads", compare).await
    }

    async fn write_zeroes(&self, device: &Path, range: Range<u64>) -> Result<(), HostError> {
        let what = format!("BLKZEROOUT {} {range:?}", device.display());
        let zero = |world: &mut World| {
            world.may_wipe(device, &range, "BLKZEROOUT");
            world.zero(device, range.clone(), "BLKZEROOUT")
        };
        self.change("zero_writes", what, zero).await
    }

    async fn discard(&self, device: &Path, range: Range<u64>) -> Result<(), HostError> {
        let what = format!("BLKDISCARD {} {range:?}", device.display());
        let discard = |world: &mut World| {
            world.may_wipe(device, &range, "BLKDISCARD");
            world.discard(device, range.clone())
        };
        self.change("discards", what, discard).await
    }

    async fn hold(
        &self,
        device: &Path,
        number: DeviceNumber,
        _: HeldFor,
    ) -> Result<Box<dyn HeldDevice>, HostError> {
        self.turn().await;
        self.hold_in(&format!("open {}", device.display())).await;
        let mut world = self.lock();
        world.count("device_reads");
        if world.number_of(device) != Some(number) {
            return Err(system(format!("open {}", device.display()), ENXIO));
        }
        *world.held.entry(device.to_owned()).or_default() += 1;
        Ok(Box::new(Held { host: self.clone(), device: device.to_owned() }))
    }

    async fn is_claimed(&self, device: &Path) -> Result<bool, HostError> {
        let held = |world: &World| match world.device_at(device) {
            Some(found) => world.used_count(found) > 0,
            None => world.openers.get(device).is_some_and(|openers| *openers > 0),
        };
        Ok(self.look("device_reads", held).await)
    }

    async fn holders(&self, device: DeviceNumber) -> Result<Vec<Holder>, HostError> {
        let find = |world: &World| {
            let held = world.holders.iter();
            let on = held.filter(|(path, _)| world.number_of(path) == Some(device));
            on.flat_map(|(_, holders)| holders.clone()).collect()
        };
        Ok(self.look("device_reads", find).await)
    }

    async fn flush(&self, device: &Path) -> Result<(), HostError> {
        let what = format!("fsync {}", device.display());
        self.change("fsyncs", what, |world| world.flush(device)).await
    }

    async fn dm_list(&self) -> Result<Vec<DmDevice>, HostError> {
        Ok(self.look("dm_reads", World::dm_devices).await)
    }

    async fn dm_info(&self, uuid: &str) -> Result<Option<DmInfo>, HostError> {
        Ok(self.look("dm_reads", |world| world.dm_info(uuid)).await)
    }

    async fn dm_table(&self, uuid: &str) -> Result<Option<(DmInfo, Vec<DmTarget>)>, HostError> {
        let find = |world: &World| Some((world.dm_info(uuid)?, world.dm_table(uuid)));
        Ok(self.look("dm_reads", find).await)
    }

    async fn dm_status(&self, uuid: &str) -> Result<Option<(DmInfo, Vec<DmTarget>)>, HostError> {
        let find = |world: &World| Some((world.dm_info(uuid)?, world.dm_status(uuid)));
        Ok(self.look("dm_reads", find).await)
    }

    async fn dm_event(&self, uuid: &str, seen: u32) -> Result<(), HostError> {
        let events = self.lock().dm_events.clone();
        loop {
            let mut sent = std::pin::pin!(events.notified());
            sent.as_mut().enable();
            self.turn().await;
            if self.lock().dm_info(uuid).is_none_or(|info| info.events != seen) {
                return Ok(());
            }
            sent.await;
        }
    }

    async fn dm_clear(&self, uuid: &str) -> Result<(), HostError> {
        let what = format!("DM_TABLE_CLEAR {uuid}");
        self.change("dm_changes", what, |world| world.dm_clear(uuid)).await
    }

    async fn dm_resume(&self, uuid: &str) -> Result<(), HostError> {
        let what = format!("DM_DEV_SUSPEND {uuid}");
        self.change("dm_changes", what, |world| world.dm_resume(uuid)).await
    }

    /// Its commands of LVM tell their thin pools all at once, so that nothing is left to be told.
    async fn dm_message(&self, uuid: &str, message: &str) -> Result<(), HostError> {
        Err(system(format!("DM_TARGET_MSG {uuid} {message}"), EINVAL))
    }

    async fn dm_remove(&self, uuid: &str) -> Result<(), HostError> {
        let what = format!("DM_DEV_REMOVE {uuid}");
        self.change("dm_changes", what, |world| world.dm_remove(uuid)).await
    }

    async fn mounts(&self) -> Result<Vec<Mount>, HostError> {
        Ok(self.look("mount_table_reads", World::mount_table).await)
    }

    async fn ext_errors(
        &self,
        devices: &[DeviceNumber],
    ) -> Result<BTreeMap<DeviceNumber, u64>, HostError> {
        let told = |world: &World| {
            let errors = devices.iter().filter_map(|device| world.fs_errors.get_key_value(device));
            errors.map(|(device, count)| (*device, *count)).collect()
        };
        Ok(self.look("fs_reads", told).await)
    }

    async fn mount(&self, mount: &NewMount) -> Result<(), HostError> {
        let (device, target) = (mount.device.display(), mount.target.display());
        let what = format!("mount {device} {target} {:?}", mount.options);
        self.change("mounts", what, |world| world.mount(mount)).await
    }

    async fn bind(&self, source: &Path, target: &Path, flags: &[String]) -> Result<(), HostError> {
        let what = format!("bind {} {} {flags:?}", source.display(), target.display());
        self.change("binds", what, |world| world.bind(source, target, flags)).await
    }

    async fn mount_writable(&self, target: &Path, flags: &[String]) -> Result<(), HostError> {
        let what = format!("mount writable {} {flags:?}", target.display());
        self.change("mounts", what, |world| world.mount_writable(target)).await
    }

    async fn unmount(&self, target: &Path) -> Result<(), HostError> {
        let what = format!("umount {}", target.display());
        self.change("unmounts", what, |world| world.unmount(target)).await
    }

    async fn path_kind(&self, path: &Path) -> Result<Option<PathKind>, HostError> {
        Ok(self.look("path_calls", |world| world.path_kind(path)).await)
    }

    async fn real_path(&self, path: &Path) -> Result<Option<PathBuf>, HostError> {
        Ok(self.look("path_calls", |world| world.real_path(path)).await)
    }

    async fn make_dir(&self, path: &Path) -> Result<(), HostError> {
        let what = format!("mkdir {}", path.display());
        self.change("path_calls", what, |world| world.make_dir(path)).await
    }

    async fn make_file(&self, path: &Path) -> Result<(), HostError> {
        let what = format!("create {}", path.display());
        self.change("path_calls", what, |world| world.make_file(path)).await
    }

    async fn remove_path(&self, path: &Path) -> Result<(), HostError> {
        let what = format!("remove {}", path.display());
        self.change("path_calls", what, |world| world.remove_path(path)).await
    }

    async fn usage(&self, path: &Path) -> Result<FsUsage, HostError> {
        self.panic_if_asked(&format!("statfs {}", path.display()));
        self.failure_of(&format!("statfs {}", path.display()))?;
        self.look("fs_reads", |world| world.usage(path)).await
    }

    async fn trim(
        &self,
        mounted: &Path,
        device: DeviceNumber,
        range: Range<u64>,
    ) -> Result<Bytes, HostError> {
        self.look("fs_trims", |world| world.trim(mounted, device, &range)).await
    }

    async fn ext_resize(&self, mounted: &Path, blocks: u64) -> Result<(), HostError> {
        let what = format!("EXT4_IOC_RESIZE_FS {} {blocks}", mounted.display());
        let size = Bytes::new(blocks.saturating_mul(FakeFs::BLOCK));
        let grow =
            |world: &mut World| world.grow_mounted(mounted, &EXT, Some(size), "EXT4_IOC_RESIZE_FS");
        self.change("fs_grows", what, grow).await
    }

    async fn xfs_geometry(&self, mounted: &Path) -> Result<XfsGeometry, HostError> {
        let geometry = |world: &World| {
            let (fs, _, _) = world.mounted_fs(mounted, "XFS_IOC_FSGEOMETRY")?;
            if fs.kind != FsKind::Xfs {
                return Err(system("XFS_IOC_FSGEOMETRY", EINVAL));
            }
            Ok(XfsGeometry {
                block_size: u32::try_from(FakeFs::BLOCK).map_err(|_| system("block size", EIO))?,
                data_blocks: fs.covers.get() / FakeFs::BLOCK,
                inode_max_percent: 25,
            })
        };
        self.look("fs_reads", geometry).await
    }

    async fn xfs_grow(
        &self,
        mounted: &Path,
        blocks: u64,
        inode_max_percent: u32,
    ) -> Result<(), HostError> {
        assert_eq!(inode_max_percent, 25, "the inode share is passed back unchanged");
        let what = format!("XFS_IOC_FSGROWFSDATA {} {blocks}", mounted.display());
        let size = Bytes::new(blocks.saturating_mul(FakeFs::BLOCK));
        let grow = |world: &mut World| {
            world.grow_mounted(mounted, &[FsKind::Xfs], Some(size), "XFS_IOC_FSGROWFSDATA")
        };
        self.change("fs_grows", what, grow).await
    }

    async fn btrfs_device_bytes(&self, mounted: &Path) -> Result<Bytes, HostError> {
        let bytes = |world: &World| {
            let (fs, _, _) = world.mounted_fs(mounted, "BTRFS_IOC_DEV_INFO")?;
            let btrfs = fs.kind == FsKind::Btrfs;
            btrfs.then_some(fs.covers).ok_or_else(|| system("BTRFS_IOC_DEV_INFO", EINVAL))
        };
        self.look("fs_reads", bytes).await
    }

    async fn btrfs_grow_to_device(&self, mounted: &Path) -> Result<(), HostError> {
        let what = format!("BTRFS_IOC_RESIZE {}", mounted.display());
        let grow = |world: &mut World| {
            world.grow_mounted(mounted, &[FsKind::Btrfs], None, "BTRFS_IOC_RESIZE")
        };
        self.change("fs_grows", what, grow).await
    }

    async fn btrfs_shrink(&self, mounted: &Path, to: Bytes) -> Result<(), HostError> {
        let what = format!("BTRFS_IOC_RESIZE {} {to}", mounted.display());
        self.change("fs_shrinks", what, |world| world.shrink_btrfs(mounted, to)).await
    }

    fn kernel(&self) -> Kernel {
        Kernel { release: self.lock().kernel.clone(), page_size: Bytes::new(4096) }
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.lock().counts.clone()
    }
}
