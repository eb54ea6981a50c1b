//! A machine in memory: disks, LVM, device-mapper, file systems and mounts behind the trait
//! [`Host`](pliant_lvm::host::Host).
//!
//! Its truth about volume groups is what lies on its disks, in LVM's own format, so production code
//! reads it with the production parser. Programs are understood word by word; an unknown command line
//! is a panic that names it. Every change is an *effect* with a number, counted from 1: the machine
//! can be stopped before and after each of them ([`FakeHost::cut_at`]), held there while others go on
//! ([`FakeHost::hold_after`]), and started again with
//! ([`FakeHost::after_crash`]) or without ([`FakeHost::after_power_cut`]) what its kernel knew.
//!
//! Any call can be made to fail ([`FakeHost::fail`]), and LVM to die alone ([`FakeHost::kill_lvm_after`]).
//!
//! What no caller may ever do is a panic too: see the module `door`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use pliant_lvm::host::{DeviceNumber, Holder, Mount};
use pliant_volume::bytes::Bytes;

mod cuts;
mod device;
mod devices;
mod disk;
mod disks;
mod door;
mod effects;
mod failures;
mod faults;
mod groups;
mod host;
mod lvm;
mod mounts;
mod pages;
mod programs;
mod render;
mod state;
mod superblocks;
mod thin;
mod thin_pools;
mod told;

pub use effects::Side;
pub use faults::Failing;
pub use state::{DeviceState, GroupState, MachineState, VolumeState};

use device::Device;
use disk::FakeDisk;
use effects::Effects;
use faults::Faults;
use pages::Pages;
use thin_pools::FakeThinPool;

/// A handle to a machine in memory; clones are handles to the same machine.
#[derive(Clone)]
pub struct FakeHost {
    world: Arc<Mutex<World>>,
    unlocked: Arc<Notify>,
    stopped: watch::Sender<bool>,
    held: watch::Sender<bool>,
}

/// The LVM of the image, which a machine has unless it is given another.
const LVM_VERSION: &str = "2.03.31";

/// All of the machine. Cloning it is what a restart does.
#[derive(Clone, Default)]
struct World {
    disks: BTreeMap<PathBuf, FakeDisk>,
    /// What the LVM commands of each lane see.
    pinned: BTreeMap<String, BTreeSet<PathBuf>>,
    devices: BTreeMap<String, Device>,
    mounts: Vec<Mount>,
    /// Directories (`true`) and files (`false`) of the root file system.
    paths: BTreeMap<PathBuf, bool>,
    /// Other names of disks.
    links: BTreeMap<PathBuf, PathBuf>,
    locks: BTreeSet<String>,
    /// Processes that hold a device open, by its path.
    openers: BTreeMap<PathBuf, u32>,
    /// How often the driver itself holds a device open.
    held: BTreeMap<PathBuf, u32>,
    /// What is stacked on a device, by its path: the topmost first.
    holders: BTreeMap<PathBuf, Vec<Holder>>,
    /// How many errors the kernel has found in the file system on a device.
    fs_errors: BTreeMap<DeviceNumber, u64>,
    /// How many bytes files have, by where their file system is mounted.
    used: BTreeMap<PathBuf, Bytes>,
    /// What each thick snapshot shows, by its volume's uuid.
    frozen: BTreeMap<String, Pages>,
    /// The thin pools, by their dm uuids.
    thin_pools: BTreeMap<String, FakeThinPool>,
    /// Tells of events of thin pools.
    dm_events: Arc<Notify>,
    /// The marks of thin pools, by lane.
    thin_marks: BTreeMap<String, u32>,
    uuids: u64,
    lvm_version: &'static str,
    /// What mkfs says of options that it does not take, by a part of the command.
    bad_options: BTreeMap<String, String>,
    /// The release of the kernel.
    kernel: String,
    effects: Effects,
    faults: Faults,
    counts: BTreeMap<&'static str, u64>,
}

impl Default for FakeHost {
    fn default() -> Self {
        FakeHost::new()
    }
}

impl FakeHost {
    /// A machine without disks.
    pub fn new() -> Self {
        let mut world = World { lvm_version: LVM_VERSION, ..World::default() };
        world.boot();
        for path in ["/", "/dev", "/run", "/var", "/var/lib", "/var/lib/kubelet"] {
            world.paths.insert(PathBuf::from(path), true);
        }
        FakeHost::of(world)
    }

    fn of(world: World) -> Self {
        FakeHost {
            world: Arc::new(Mutex::new(world)),
            unlocked: Arc::new(Notify::new()),
            stopped: watch::Sender::new(false),
            held: watch::Sender::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add a blank disk of this size and return its path: `/dev/fake0`, `/dev/fake1`, …
    ///
    /// LVM commands do not see it before [`pin_devices`](pliant_lvm::host::Host::pin_devices).
    pub fn add_disk(&self, size: Bytes) -> PathBuf {
        let mut world = self.lock();
        let minor = u32::try_from(world.disks.len()).expect("few disks");
        let path = PathBuf::from(format!("/dev/fake{minor}"));
        world.disks.insert(path.clone(), FakeDisk::new(minor, size));
        path
    }

    /// Let a disk have another name, as udev gives it one in `/dev/disk/by-id`.
    pub fn link(&self, name: &Path, disk: &Path) {
        self.lock().links.insert(name.to_owned(), disk.to_owned());
    }

    /// Make a volume group with extents of 4 MiB on these disks, durable and without effects, as an
    /// administrator did before the driver came.
    pub fn add_group(&self, name: &str, disks: &[PathBuf]) {
        let mut world = self.lock();
        world.make_group(name, disks, &[]);
        for disk in world.disks.values_mut() {
            disk.flush();
        }
    }

    /// Change what a volume group says of itself, durable and without effects, as an administrator did;
    /// `None` without such a group.
    pub fn change_group(
        &self,
        name: &str,
        change: impl FnOnce(&mut pliant_lvm::lvm::Group),
    ) -> Option<()> {
        let mut world = self.lock();
        let mut group = world.groups(None).remove(name)?;
        change(&mut group);
        group.seqno += 1;
        for disk in group.pvs.values().filter_map(|pv| pv.device.clone()) {
            world.commit(&disk, &group);
        }
        world.disks.values_mut().for_each(FakeDisk::flush);
        Some(())
    }

    /// Write to a disk or an active volume as its user would; it is not flushed and no effect.
    ///
    /// # Panics
    /// If the device is not there or too small.
    pub fn write_at(&self, device: &Path, offset: u64, bytes: &[u8]) {
        self.lock().write(device, offset, bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Put a signature that this driver does not know onto a device: `blkid` prints it as its TYPE
    /// until its first 4 KiB are written over.
    pub fn set_foreign_signature(&self, device: &Path, name: &str) {
        self.write_at(device, superblocks::FOREIGN_AT, &superblocks::foreign(name));
    }

    /// Let the kernel find one more error in the mounted file system on a device.
    pub fn find_error(&self, device: DeviceNumber) {
        *self.lock().fs_errors.entry(device).or_default() += 1;
    }

    /// Let mkfs refuse a command with this part, and say so.
    pub fn refuse_options(&self, part: &str, stderr: &str) {
        self.lock().bad_options.insert(part.to_owned(), stderr.to_owned());
    }

    /// Let the kernel be of this release.
    pub fn run_kernel(&self, release: &str) {
        release.clone_into(&mut self.lock().kernel);
    }

    /// Let files have so many bytes of the file system that is mounted here.
    pub fn fill(&self, mounted: &Path, used: Bytes) {
        self.lock().used.insert(mounted.to_owned(), used);
    }

    /// Hold a device open, and nobody else's, as a mount of another namespace does.
    pub fn open(&self, device: &Path) {
        *self.lock().openers.entry(device.to_owned()).or_default() += 1;
    }

    /// Stack devices on a device, the topmost first, as a host's udev may do with what a tenant wrote;
    /// none takes them away.
    pub fn stack(&self, device: &Path, above: Vec<Holder>) {
        let mut world = self.lock();
        if above.is_empty() {
            world.holders.remove(device);
        } else {
            world.holders.insert(device.to_owned(), above);
        }
    }

    /// Undo one [`FakeHost::open`].
    pub fn close(&self, device: &Path) {
        if let Some(count) = self.lock().openers.get_mut(device) {
            *count = count.saturating_sub(1);
        }
    }

    /// The path `/dev/dm-<minor>` of an active logical volume.
    pub fn device_of(&self, group: &str, lv: &str) -> Option<PathBuf> {
        let world = self.lock();
        let group = world.groups(None).remove(group)?;
        let device = world.devices.get(&group.dm_uuid(group.lvs.get(lv)?))?;
        Some(device.path())
    }

    /// A volume group as its disks have it now, failing disks too.
    pub fn group(&self, name: &str) -> Option<pliant_lvm::lvm::Group> {
        self.lock().groups(None).remove(name)
    }
}

impl std::fmt::Debug for FakeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeHost").finish_non_exhaustive()
    }
}

impl World {
    /// What there is after a start: the kernel knows nothing but its root, and /run is empty.
    fn boot(&mut self) {
        self.pinned.clear();
        let run = Path::new("/run");
        self.paths.retain(|path, _| path == run || !path.starts_with(run));
        self.devices.clear();
        self.openers.clear();
        self.held.clear();
        self.holders.clear();
        self.locks.clear();
        let root = |minor, target: &str, kind: &str| Mount {
            device: DeviceNumber { major: 0, minor },
            root: PathBuf::from("/"),
            target: PathBuf::from(target),
            kind: kind.to_owned(),
            source: kind.to_owned(),
            mount_options: vec!["rw".to_owned(), "relatime".to_owned()],
            super_options: vec!["rw".to_owned()],
        };
        self.mounts = vec![root(1, "/", "ext4"), root(device::DEVTMPFS, "/dev", "devtmpfs")];
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The next uuid with LVM's dashes.
    fn uuid(&mut self) -> String {
        self.uuids += 1;
        let digits = format!("{:032}", self.uuids);
        let cuts = [0, 6, 10, 14, 18, 22, 26, 32];
        let parts: Vec<&str> = cuts.windows(2).map(|cut| &digits[cut[0]..cut[1]]).collect();
        parts.join("-")
    }
}

#[cfg(test)]
mod tests;
