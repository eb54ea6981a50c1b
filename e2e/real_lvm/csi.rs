//! A driver with a client, and a volume's way through it: what most tests here stand on.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pliant::bytes::Bytes;
use pliant::csi::pb;
use pliant::self_test::client::{CallError, Client};
use pliant::volume::{FsKind, Mode, VolumeId};
use tokio::runtime::Runtime;

use crate::machine::{Disk, Driver, attempt, run};

/// The socket of the driver; one runs at a time.
const SOCKET: &str = "/run/pliant/csi.sock";
/// Where volumes are staged and published.
const MOUNTS: &str = "/run/volumes";

pub const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

/// A running driver and a client of it. Dropped, the driver is killed and its mounts are gone.
pub struct Rig {
    pub driver: Option<Driver>,
    pub calls: Calls,
    arguments: Vec<String>,
}

impl Rig {
    /// Starts a driver with these arguments: `["--pool", "default=vg0"]`.
    pub fn with(arguments: &[&str]) -> Rig {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let driver = Some(start(&arguments));
        Rig { driver, calls: Calls::connect(), arguments }
    }

    /// Ends the driver as a power cut of the process does, and starts the next.
    pub fn crash(&mut self) {
        let killed = self.driver.take().map(Driver::kill);
        assert!(killed.is_some_and(|status| status.is_ok()));
        self.restart();
    }

    /// Starts the driver after its end.
    pub fn restart(&mut self) {
        self.driver = Some(start(&self.arguments));
        self.calls = Calls::connect();
    }

    /// Ends the driver and starts it with other arguments.
    pub fn restart_with(&mut self, arguments: &[&str]) {
        self.stop();
        self.arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        self.restart();
    }

    /// Ends the driver with SIGTERM.
    pub fn stop(&mut self) {
        let status = self.driver.take().map(Driver::stop);
        assert_eq!(status.expect("a driver").expect("wait").code(), Some(0));
    }
}

fn start(arguments: &[String]) -> Driver {
    let mut words = vec!["--node-id", "n1"];
    words.extend(arguments.iter().map(String::as_str));
    Driver::standalone(Path::new(SOCKET), &words)
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.driver = None;
        // What a failed test left mounted would keep its disks.
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = |path: &&str| path.starts_with(MOUNTS) || path.starts_with("/run/pliant/");
        for target in table.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(ours) {
            let _ = attempt("umount", &["--lazy", target]);
        }
        let _ = fs::remove_dir_all(MOUNTS);
    }
}

/// A client that waits for each answer. A thread that calls at the same time makes its own.
pub struct Calls {
    runtime: Runtime,
    client: Client,
}

impl Calls {
    /// Connects to the running driver.
    pub fn connect() -> Calls {
        // A thread of its own, so that it takes notice when the driver ends.
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("runtime");
        let client = runtime.block_on(Client::connect(Path::new(SOCKET))).expect("connect");
        Calls { runtime, client }
    }

    /// Makes a volume; the parameters are `"wipe=None pool=fast"`.
    pub fn create(
        &mut self,
        name: &str,
        size: Bytes,
        mode: Mode,
        parameters: &str,
    ) -> Result<Volume, CallError> {
        self.create_with(name, size, mode, &words(parameters))
    }

    /// The same with parameters that have blanks in them.
    pub fn create_with(
        &mut self,
        name: &str,
        size: Bytes,
        mode: Mode,
        parameters: &BTreeMap<String, String>,
    ) -> Result<Volume, CallError> {
        let made = self.runtime.block_on(self.client.create(name, size, mode, parameters))?;
        Ok(Volume { id: made.0, mode, dir: Path::new(MOUNTS).join(name) })
    }

    pub fn delete(&mut self, volume: &Volume) -> Result<(), CallError> {
        self.runtime.block_on(self.client.delete(&volume.id))
    }

    /// Grows a volume; says its new size and whether the node step is needed.
    pub fn grow(&mut self, volume: &Volume, size: Bytes) -> Result<(Bytes, bool), CallError> {
        self.runtime.block_on(self.client.grow(&volume.id, size, volume.mode))
    }

    pub fn node_grow(&mut self, volume: &Volume, size: Bytes) -> Result<(), CallError> {
        let (target, staging) = (volume.target(), volume.staging());
        let call = self.client.node_expand(&volume.id, &target, &staging, size, volume.mode);
        self.runtime.block_on(call)
    }

    pub fn stage(&mut self, volume: &Volume) -> Result<(), CallError> {
        fs::create_dir_all(volume.staging()).expect("staging directory");
        let staging = volume.staging();
        self.runtime.block_on(self.client.stage(&volume.id, &staging, volume.mode))
    }

    pub fn unstage(&mut self, volume: &Volume) -> Result<(), CallError> {
        let staging = volume.staging();
        self.runtime.block_on(self.client.unstage(&volume.id, &staging))
    }

    /// Stages and publishes.
    pub fn show(&mut self, volume: &Volume) {
        self.stage(volume).expect("stage");
        let (staging, target) = (volume.staging(), volume.target());
        let call = self.client.publish(&volume.id, &staging, &target, volume.mode);
        self.runtime.block_on(call).expect("publish");
    }

    /// Unpublishes and unstages.
    pub fn hide(&mut self, volume: &Volume) {
        let target = volume.target();
        self.runtime.block_on(self.client.unpublish(&volume.id, &target)).expect("unpublish");
        self.unstage(volume).expect("unstage");
    }

    /// The size that the workload sees.
    pub fn shown_size(&mut self, volume: &Volume) -> Bytes {
        let stats = self.stats(volume).expect("stats");
        let in_bytes = i32::from(pb::volume_usage::Unit::Bytes);
        let bytes = stats.usage.iter().find(|usage| usage.unit == in_bytes);
        Bytes::from_i64(bytes.expect("bytes").total).expect("a size")
    }

    pub fn stats(&mut self, volume: &Volume) -> Result<pb::NodeGetVolumeStatsResponse, CallError> {
        let target = volume.target();
        self.runtime.block_on(self.client.stats(&volume.id, &target))
    }

    /// The ids of all volumes.
    pub fn ids(&mut self) -> Vec<String> {
        let entries = self.runtime.block_on(self.client.list()).expect("list").into_iter();
        entries.filter_map(|entry| Some(entry.volume?.volume_id)).collect()
    }

    /// Free bytes and the largest possible volume of a class.
    pub fn room(&mut self, parameters: &str) -> Result<(Bytes, Bytes), CallError> {
        let parameters = words(parameters);
        let room = self.runtime.block_on(self.client.capacity(&parameters))?;
        let bytes = |number| Bytes::from_i64(number).expect("a size");
        Ok((bytes(room.available_capacity), bytes(room.maximum_volume_size.unwrap_or_default())))
    }
}

fn words(parameters: &str) -> BTreeMap<String, String> {
    let pairs = parameters.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// A volume, and where the tests show it.
#[derive(Debug, Clone)]
pub struct Volume {
    pub id: String,
    pub mode: Mode,
    dir: PathBuf,
}

impl Volume {
    pub fn staging(&self) -> PathBuf {
        self.dir.join("staging")
    }

    pub fn target(&self) -> PathBuf {
        self.dir.join("target")
    }

    /// A file of the volume; for a raw one the device itself, whatever the name.
    pub fn file(&self, name: &str) -> File {
        let path = match self.mode {
            Mode::Block => self.target(),
            Mode::Filesystem(_) => self.target().join(name),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(self.mode != Mode::Block);
        options.open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A volume with the id that another name of this key would have on this node.
    pub fn renamed(&self, key: &str) -> Volume {
        let node = self.id.split('-').next().expect("a node key");
        Volume { id: format!("{node}-{key}"), ..self.clone() }
    }

    /// The logical volume in its group.
    pub fn lv(&self, group: &str) -> String {
        let id: VolumeId = self.id.parse().expect("an id of ours");
        format!("{group}/pliant-{}", id.key().as_str())
    }
}

/// Makes a group on these disks.
pub fn group(name: &str, disks: &[&Disk]) {
    let devices: Vec<&str> = disks.iter().map(|disk| disk.device()).collect();
    group_of(name, &[&["--metadatasize", "16m"], &devices[..]].concat());
}

/// Makes a group with these words after `vgcreate`.
pub fn group_of(name: &str, words: &[&str]) {
    // Without udev the links of a group whose disks were torn away by a failed test stay.
    let _ = fs::remove_dir_all(Path::new("/dev").join(name));
    run("vgcreate", &[&["-y", name], words].concat());
}

/// The logical volumes of a group as plain LVM sees them.
pub fn volumes_of(group: &str) -> Vec<String> {
    let names = run("lvs", &["--noheadings", "-a", "-o", "lv_name", group]);
    names.split_whitespace().map(str::to_owned).collect()
}

/// The same with their sizes in MiB.
pub fn volume_sizes(group: &str) -> BTreeMap<String, u64> {
    let fields = ["--noheadings", "--nosuffix", "--units", "b", "-a", "-o", "lv_name,lv_size"];
    let lines = run("lvs", &[&fields[..], &[group]].concat());
    let size = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some((words.next()?, words.next()?.parse::<u64>().ok()? >> 20))
    };
    lines.lines().filter_map(size).collect()
}

/// The path of the live device of a logical volume `vg0/name`.
pub fn device_of(lv: &str) -> PathBuf {
    let numbers = run("lvs", &["--noheadings", "-o", "lv_kernel_minor", lv]);
    PathBuf::from(format!("/dev/dm-{}", numbers.trim()))
}

/// Bytes that do not compress and differ for each number.
pub fn noise(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).collect()
}

/// Writes MiB number `from` to `to` with noise and makes it durable.
pub fn fill(file: &File, mib: std::ops::Range<u64>) {
    for number in mib {
        file.write_all_at(&noise(number, 1 << 20), number << 20).expect("write");
    }
    file.sync_all().expect("fsync");
}

/// Whether these MiB hold what [`fill`] wrote.
pub fn holds(file: &File, mib: std::ops::Range<u64>) -> bool {
    let mut seen = vec![0; 1 << 20];
    mib.into_iter().all(|number| {
        file.read_exact_at(&mut seen, number << 20).expect("read");
        seen == noise(number, 1 << 20)
    })
}
