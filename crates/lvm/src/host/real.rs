//! The host on which this process runs.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::blocking_pool::BlockedCalls;
use super::counters::CallCounters;
use super::disks::Backings;
use super::exec::{self, Environment};
use super::held::{self, AllHeld, OpenDevice};
use super::shell::Shells;
use super::state::{self, StateDirectory};
use super::{
    Cmd, DeviceNumber, Disk, DmDevice, DmInfo, DmTarget, GroupLock, HeldDevice, HeldFor, Holder,
    Host, HostError, Kernel, Mount, NewMount, Output, PathKind, XfsGeometry,
};
use super::{block, devmapper, disks, holders, image, lock, mounts, paths, resize};
use crate::bytes::Bytes;
use crate::volume::FsUsage;

/// How long a system call may take whose answer is in memory, or else not needed.
const SHORT: Duration = Duration::from_secs(3);
/// How long a system call may take that moves little data.
const SMALL: Duration = Duration::from_secs(30);
/// How long one may take that writes a range, flushes a disk, or grows a file system.
const LARGE: Duration = Duration::from_secs(600);
/// How long one may take that moves what a file system holds.
const MOVING: Duration = Duration::from_secs(3600);

/// The lane of commands that concern no group: it sees no disk.
const OWN_LANE: &str = "-";

/// The host on which this process runs.
///
/// Needs root. Its waits are tokio's, so it needs a runtime. A runtime that is dropped waits for
/// threads that hang in the kernel unless it is shut down in the background.
#[derive(Debug)]
pub struct RealHost {
    state: StateDirectory,
    lock_dir: PathBuf,
    env: Environment,
    shells: Shells,
    waiting: Arc<BlockedCalls>,
    counts: Arc<CallCounters>,
    held: AllHeld,
}

impl RealHost {
    /// Creates the state directory with LVM's private configuration.
    ///
    /// `state_dir` is absolute, on a file system of the host (`/run/pliant`); nothing in it must
    /// outlive a boot. A repeated call with the same directory changes nothing. No program is
    /// started.
    ///
    /// # Errors
    /// [`HostError::System`] if the directory cannot be made or written.
    pub fn new(state_dir: impl AsRef<Path>) -> Result<Self, HostError> {
        let state_dir = state_dir.as_ref();
        let lock_dir = PathBuf::from(lock::LOCK_DIR);
        let state = StateDirectory::make(state_dir, &lock_dir).and_then(|state| {
            let own = state.make_lane(OWN_LANE)?;
            Ok((state, own))
        });
        let (state, own) = state.map_err(|source| HostError::System {
            what: format!("make {}", state_dir.display()),
            source,
        })?;
        let env = Environment { lvm_dir: own.lvm_dir };
        let counts = Arc::new(CallCounters::default());
        Ok(RealHost {
            shells: Shells::new(state.clone(), Arc::clone(&counts)),
            waiting: Arc::default(),
            state,
            lock_dir,
            env,
            counts,
            held: AllHeld::default(),
        })
    }

    /// Counts a blocking call on a path and make it; its name and the path say what it was.
    async fn call<T: Send + 'static>(
        &self,
        count: &'static str,
        name: &str,
        path: &Path,
        limit: Duration,
        call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, HostError> {
        self.counts.add(count);
        let what = format!("{name} {}", path.display());
        let owned = path.to_owned();
        self.waiting.call(what, path, limit, move || call(&owned)).await
    }

    /// What is below these loop devices, each asked apart: a file on a server that is missing must
    /// not hide the disks. One that does not tell is none.
    async fn backings(&self, loops: Vec<PathBuf>) -> Backings {
        let asks = loops.into_iter().map(|device| async move {
            let what = "LOOP_GET_STATUS64";
            let told = self.call("device_reads", what, &device, SHORT, disks::backing).await;
            Some((device, told.ok()?))
        });
        join_all(asks).await.into_iter().flatten().collect()
    }

    /// The block devices behind these loop devices, each asked apart as well.
    async fn behind(&self, names: Vec<String>) -> holders::Loops {
        let asks = names.into_iter().map(|name| async move {
            let (what, node) = ("LOOP_GET_STATUS64", Path::new("/dev").join(&name));
            let told = self.call("device_reads", what, &node, SHORT, holders::behind).await;
            Some((name, told.ok()??))
        });
        join_all(asks).await.into_iter().flatten().collect()
    }

    /// The same about a device-mapper device. Each is waited for apart: one that is being resumed
    /// onto a hung disk must not keep the others from being looked at.
    async fn dm<T: Send + 'static>(
        &self,
        count: &'static str,
        name: &str,
        uuid: &str,
        call: impl FnOnce(&str) -> io::Result<T> + Send + 'static,
    ) -> Result<T, HostError> {
        self.counts.add(count);
        let what = format!("{name} {uuid}");
        let owned = uuid.to_owned();
        let object = Path::new(devmapper::CONTROL).join(uuid);
        self.waiting.call(what, &object, SMALL, move || call(&owned)).await
    }
}

#[async_trait]
impl Host for RealHost {
    async fn run(&self, cmd: Cmd) -> Result<Output, HostError> {
        self.counts.add("processes");
        if cmd.program == "lvm" {
            self.counts.add("lvm_commands");
            return exec::run(&self.env, cmd, Vec::new()).await;
        }
        let open = self.held.among(&cmd.args);
        let open = open.map_err(exec::system(&cmd.to_string()))?;
        exec::run(&self.env, cmd, open).await
    }

    async fn run_on_image(&self, cmd: Cmd, size: Bytes) -> Result<Output, HostError> {
        self.counts.add("processes");
        let what = format!("make an image in memory for {}", cmd.program);
        let image = image::make(size).map_err(|source| HostError::System { what, source })?;
        exec::run_on(&self.env, cmd, image).await
    }

    async fn lvm(&self, lane: &str, cmd: Cmd) -> Result<String, HostError> {
        self.shells.run(lane, cmd).await
    }

    async fn pin_devices(&self, lane: &str, devices: &[PathBuf]) -> Result<(), HostError> {
        let (state, name, devices) = (self.state.clone(), lane.to_owned(), devices.to_vec());
        let pin = move |_: &Path| state::pin(&state.make_lane(&name)?.pv_dir, &devices);
        let dir = self.state.lane(lane).pv_dir;
        self.call("path_calls", "pin devices in", &dir, SMALL, pin).await
    }

    fn set_thin_mark(&self, lane: &str, percent: u32) {
        self.state.set_thin_mark(lane, percent); // Each command writes the configuration of its lane.
    }

    async fn try_lock_group(&self, group: &str) -> Result<Option<Box<dyn GroupLock>>, HostError> {
        let (name, group) = (format!("lock {group} in"), group.to_owned());
        let lock = move |dir: &Path| lock::try_lock(dir, &group);
        self.call("path_calls", &name, &self.lock_dir, SMALL, lock).await
    }

    async fn disks(&self) -> Result<Vec<Disk>, HostError> {
        let sys = Path::new(disks::SYS_BLOCK);
        let loops =
            self.call("path_calls", "list loop devices of", sys, SMALL, disks::loops).await?;
        let backings = self.backings(loops).await;
        let list = move |sys: &Path| disks::list(sys, &backings);
        self.call("disk_lists", "list", sys, SMALL, list).await
    }

    async fn device_size(&self, device: &Path) -> Result<Bytes, HostError> {
        let size = |device: &Path| block::size(device).map(Bytes::new);
        self.call("device_reads", "BLKGETSIZE64", device, SMALL, size).await
    }

    async fn read_at(
        &self,
        device: &Path,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, HostError> {
        let read = move |device: &Path| block::read_at(device, offset, length);
        self.call("device_reads", "read", device, SMALL, read).await
    }

    async fn is_zero(&self, device: &Path, range: Range<u64>) -> Result<bool, HostError> {
        let look = move |device: &Path| block::is_zero(device, &range);
        self.call("device_reads", "compare with zeroes", device, SMALL, look).await
    }

    async fn copy_range(
        &self,
        from: &Path,
        to: &Path,
        range: Range<u64>,
        leave_zeroes: bool,
    ) -> Result<(), HostError> {
        let from = from.to_owned();
        let copy = move |to: &Path| block::copy(&from, to, &range, leave_zeroes);
        self.call("device_copies", "copy to", to, LARGE, copy).await
    }

    async fn write_blocks(
        &self,
        device: &Path,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), HostError> {
        let write = move |device: &Path| block::write_at(device, offset, &bytes);
        self.call("device_writes", "write", device, LARGE, write).await
    }

    async fn is_same(
        &self,
        one: &Path,
        other: &Path,
        range: Range<u64>,
    ) -> Result<bool, HostError> {
        let one = one.to_owned();
        let compare = move |other: &Path| block::is_same(&one, other, &range);
        self.call("device_reads", "compare with", other, LARGE, compare).await
    }

    async fn write_zeroes(&self, device: &Path, range: Range<u64>) -> Result<(), HostError> {
        let write = move |device: &Path| block::write_zeroes(device, &range);
        self.call("zero_writes", "BLKZEROOUT", device, LARGE, write).await
    }

    async fn discard(&self, device: &Path, range: Range<u64>) -> Result<(), HostError> {
        let discard = move |device: &Path| block::discard(device, &range);
        self.call("discards", "BLKDISCARD", device, LARGE, discard).await
    }

    async fn hold(
        &self,
        device: &Path,
        number: DeviceNumber,
        held_for: HeldFor,
    ) -> Result<Box<dyn HeldDevice>, HostError> {
        let open = move |device: &Path| held::open(device, number, held_for);
        let file = Arc::new(self.call("device_reads", "open", device, SMALL, open).await?);
        self.held.add(device, &file);
        Ok(Box::new(OpenDevice {
            file,
            path: device.to_owned(),
            limit: LARGE,
            waiting: Arc::clone(&self.waiting),
            counts: Arc::clone(&self.counts),
        }))
    }

    async fn is_claimed(&self, device: &Path) -> Result<bool, HostError> {
        self.call("device_reads", "open", device, SMALL, block::is_claimed).await
    }

    async fn holders(&self, device: DeviceNumber) -> Result<Vec<Holder>, HostError> {
        let sys = Path::new(holders::SYS);
        let names =
            self.call("path_calls", "list loop devices of", sys, SMALL, holders::loops).await?;
        let loops = self.behind(names).await;
        let name = format!("list the holders of {device} in");
        let above = move |sys: &Path| holders::above(sys, device, loops);
        self.call("path_calls", &name, sys, SMALL, above).await
    }

    async fn flush(&self, device: &Path) -> Result<(), HostError> {
        self.call("fsyncs", "fsync", device, LARGE, block::flush).await
    }

    async fn dm_list(&self) -> Result<Vec<DmDevice>, HostError> {
        self.dm("dm_reads", "DM_LIST_DEVICES", "of all", |_| devmapper::list()).await
    }

    async fn dm_info(&self, uuid: &str) -> Result<Option<DmInfo>, HostError> {
        self.dm("dm_reads", "DM_DEV_STATUS", uuid, devmapper::info).await
    }

    async fn dm_table(&self, uuid: &str) -> Result<Option<(DmInfo, Vec<DmTarget>)>, HostError> {
        self.dm("dm_reads", "DM_TABLE_STATUS", uuid, devmapper::table).await
    }

    async fn dm_status(&self, uuid: &str) -> Result<Option<(DmInfo, Vec<DmTarget>)>, HostError> {
        self.dm("dm_reads", "DM_TABLE_STATUS", uuid, devmapper::status).await
    }

    async fn dm_event(&self, uuid: &str, seen: u32) -> Result<(), HostError> {
        let what = || format!("wait for an event of {uuid}");
        devmapper::event(uuid, seen)
            .await
            .map_err(|source| HostError::System { what: what(), source })
    }

    async fn dm_clear(&self, uuid: &str) -> Result<(), HostError> {
        self.dm("dm_changes", "DM_TABLE_CLEAR", uuid, devmapper::clear).await
    }

    async fn dm_resume(&self, uuid: &str) -> Result<(), HostError> {
        self.dm("dm_changes", "DM_DEV_SUSPEND (resume)", uuid, devmapper::resume).await
    }

    async fn dm_message(&self, uuid: &str, message: &str) -> Result<(), HostError> {
        let text = message.to_owned();
        let send = move |uuid: &str| devmapper::message(uuid, &text);
        self.dm("dm_changes", "DM_TARGET_MSG", uuid, send).await
    }

    async fn dm_remove(&self, uuid: &str) -> Result<(), HostError> {
        self.dm("dm_changes", "DM_DEV_REMOVE", uuid, devmapper::remove).await
    }

    async fn mounts(&self) -> Result<Vec<Mount>, HostError> {
        let table = Path::new(mounts::TABLE);
        self.call("mount_table_reads", "read", table, SMALL, mounts::list).await
    }

    async fn ext_errors(
        &self,
        devices: &[DeviceNumber],
    ) -> Result<BTreeMap<DeviceNumber, u64>, HostError> {
        let devices = devices.to_owned();
        let read = move |sys: &Path| mounts::ext_errors(sys, &devices);
        self.call("fs_reads", "read", Path::new(mounts::SYS_EXT), SMALL, read).await
    }

    async fn mount(&self, mount: &NewMount) -> Result<(), HostError> {
        let name = format!("mount {} at", mount.device.display());
        let new = mount.clone();
        let call = move |_: &Path| mounts::mount(&new);
        // Replaying a journal takes as long as the disk takes.
        self.call("mounts", &name, &mount.target, LARGE, call).await
    }

    async fn bind(&self, source: &Path, target: &Path, flags: &[String]) -> Result<(), HostError> {
        let name = format!("bind {} to", source.display());
        let (source, flags) = (source.to_owned(), flags.to_vec());
        let bind = move |target: &Path| mounts::bind(&source, target, &flags);
        self.call("binds", &name, target, SMALL, bind).await
    }

    async fn mount_writable(&self, target: &Path, flags: &[String]) -> Result<(), HostError> {
        let flags = flags.to_vec();
        let call = move |target: &Path| mounts::mount_writable(target, &flags);
        self.call("mounts", "mount writable", target, LARGE, call).await
    }

    async fn unmount(&self, target: &Path) -> Result<(), HostError> {
        // The last unmount of a file system writes back all that is dirty.
        self.call("unmounts", "unmount", target, LARGE, mounts::unmount).await
    }

    async fn path_kind(&self, path: &Path) -> Result<Option<PathKind>, HostError> {
        self.call("path_calls", "stat", path, SMALL, paths::kind).await
    }

    async fn real_path(&self, path: &Path) -> Result<Option<PathBuf>, HostError> {
        self.call("path_calls", "follow", path, SMALL, paths::real).await
    }

    async fn make_dir(&self, path: &Path) -> Result<(), HostError> {
        self.call("path_calls", "mkdir", path, SMALL, paths::make_dir).await
    }

    async fn make_file(&self, path: &Path) -> Result<(), HostError> {
        self.call("path_calls", "create", path, SMALL, paths::make_file).await
    }

    async fn remove_path(&self, path: &Path) -> Result<(), HostError> {
        self.call("path_calls", "remove", path, SMALL, paths::remove).await
    }

    async fn usage(&self, path: &Path) -> Result<FsUsage, HostError> {
        self.call("fs_reads", "statfs", path, SMALL, paths::usage).await
    }

    async fn trim(
        &self,
        mounted: &Path,
        device: DeviceNumber,
        range: Range<u64>,
    ) -> Result<Bytes, HostError> {
        let trim = move |mounted: &Path| resize::trim(mounted, device, &range).map(Bytes::new);
        self.call("fs_trims", "FITRIM", mounted, LARGE, trim).await
    }

    async fn ext_resize(&self, mounted: &Path, blocks: u64) -> Result<(), HostError> {
        let grow = move |mounted: &Path| resize::ext_resize(mounted, blocks);
        self.call("fs_grows", "EXT4_IOC_RESIZE_FS", mounted, LARGE, grow).await
    }

    async fn xfs_geometry(&self, mounted: &Path) -> Result<XfsGeometry, HostError> {
        self.call("fs_reads", "XFS_IOC_FSGEOMETRY", mounted, SMALL, resize::xfs_geometry).await
    }

    async fn xfs_grow(
        &self,
        mounted: &Path,
        blocks: u64,
        inode_max_percent: u32,
    ) -> Result<(), HostError> {
        let grow = move |mounted: &Path| resize::xfs_grow(mounted, blocks, inode_max_percent);
        self.call("fs_grows", "XFS_IOC_FSGROWFSDATA", mounted, LARGE, grow).await
    }

    async fn btrfs_device_bytes(&self, mounted: &Path) -> Result<Bytes, HostError> {
        let bytes = |mounted: &Path| resize::btrfs_device_bytes(mounted).map(Bytes::new);
        self.call("fs_reads", "BTRFS_IOC_DEV_INFO", mounted, SMALL, bytes).await
    }

    async fn btrfs_grow_to_device(&self, mounted: &Path) -> Result<(), HostError> {
        let grow = resize::btrfs_grow_to_device;
        self.call("fs_grows", "BTRFS_IOC_RESIZE", mounted, LARGE, grow).await
    }

    async fn btrfs_shrink(&self, mounted: &Path, to: Bytes) -> Result<(), HostError> {
        let shrink = move |mounted: &Path| resize::btrfs_shrink(mounted, to.get());
        self.call("fs_shrinks", "BTRFS_IOC_RESIZE", mounted, MOVING, shrink).await
    }

    fn kernel(&self) -> Kernel {
        image::kernel()
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.read()
    }
}
