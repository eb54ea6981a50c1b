//! The scenarios on real LVM.

#[path = "../../tests/scenarios/mod.rs"]
mod shared;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nix::sys::stat::{major, minor};
use pliant::bytes::Bytes;
use pliant::host::{DeviceNumber, Host, RealHost};
use pliant::lvm::THIN_POOL;
use pliant::volume::{FsKind, Mode, ThinSettings};

use crate::csi::{noise, volume_sizes};
use crate::machine::{Disk, attempt, run};
use shared::site::{GROUP, Site};
use shared::{Place, Shown, play_on};

const DIR: &str = "/run/scenario";
const WRITTEN_AT: u64 = 9 << 20;

/// The throw-away kernel; what a scenario mounted and wrote goes with it.
struct RealMachine {
    disks: Vec<Disk>,
}

impl RealMachine {
    fn new() -> RealMachine {
        fs::create_dir_all(DIR).expect("a directory");
        RealMachine { disks: Vec::new() }
    }

    fn on(&self, path: &Path) -> &Disk {
        let disk = self.disks.iter().find(|disk| Path::new(disk.device()) == path);
        disk.expect("a disk of this machine")
    }

    fn file(shown: &Shown) -> File {
        let path = match shown.mode {
            Mode::Block => shown.device.clone(),
            Mode::Filesystem(_) => shown.dir.join("written"),
        };
        let mut options = OpenOptions::new();
        options.read(true);
        let writable = options.clone().write(true).create(shown.mode != Mode::Block).open(&path);
        writable.or_else(|_| options.open(&path)).expect("the volume can be opened")
    }
}

#[async_trait]
impl Place for RealMachine {
    fn disk(&mut self, mib: u64) -> PathBuf {
        self.disks.push(Disk::of(mib << 20));
        PathBuf::from(self.disks[self.disks.len() - 1].device())
    }

    async fn group(&mut self, name: &str, disks: &[PathBuf]) {
        let disks: Vec<&Disk> = disks.iter().map(|disk| self.on(disk)).collect();
        crate::csi::group(name, &disks);
    }

    async fn type_in(&mut self, _group: &str, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        run(words[0], &words[1..]);
    }

    fn door(&mut self) -> Arc<dyn Host> {
        Arc::new(RealHost::new(Path::new(DIR).join("state")).expect("a host"))
    }

    fn dir(&self) -> PathBuf {
        PathBuf::from(DIR)
    }

    fn pull(&mut self, disk: &Path) {
        self.on(disk).detach();
    }

    fn put_back(&mut self, disk: &Path) {
        self.on(disk).attach();
    }

    async fn sizes(&self, group: &str) -> BTreeMap<String, u64> {
        volume_sizes(group)
    }

    async fn write(&self, shown: &Shown) {
        let file = RealMachine::file(shown);
        file.write_all_at(&noise(1, 1 << 20), WRITTEN_AT).expect("write");
        file.sync_all().expect("fsync");
    }

    async fn fill(&self, shown: &Shown, mib: u64) {
        let file = RealMachine::file(shown);
        let fill = move || {
            let mut times = Vec::new();
            for at in (0..mib).map(|number| number << 20) {
                let begin = Instant::now();
                file.write_all_at(&noise(1, 1 << 20), at).expect("write");
                file.sync_data().expect("fdatasync");
                times.push(begin.elapsed());
            }
            times.sort();
            (times[times.len() / 2], times[times.len() - 1])
        };
        let (median, longest) = tokio::task::spawn_blocking(fill).await.expect("it writes");
        println!("a MiB takes {median:?} at the median, {longest:?} at the longest");
        assert!(longest < Duration::from_secs(1), "a writer waited {longest:?}");
    }

    async fn holds(&self, shown: &Shown) -> bool {
        let mut read = vec![0; 1 << 20];
        let whole = RealMachine::file(shown).read_exact_at(&mut read, WRITTEN_AT);
        whole.is_ok() && read == noise(1, 1 << 20)
    }
}

impl Drop for RealMachine {
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = |path: &&str| path.starts_with(DIR);
        for target in table.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(ours) {
            let _ = attempt("umount", &["--lazy", target]);
        }
        let _ = fs::remove_dir_all(DIR);
    }
}

play_on! { RealMachine::new(), #[ignore = "needs the throw-away kernel: e2e/real-lvm"] }

/// Bytes of the thin pool that are in use.
fn used() -> f64 {
    let pool = format!("{GROUP}/{THIN_POOL}");
    let options = ["--noheadings", "--nosuffix", "--units", "b", "-o", "lv_size,data_percent"];
    let said = run("lvs", &[&options[..], &[&pool]].concat());
    let words: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    words[0] * words[1] / 100.0
}

/// What is deleted goes back to the thin pool; what is mounted at its path by then is no one else's.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_trimmed_file_system_gives_back_what_was_deleted() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let site = Site::thin(RealMachine::new(), 2048, ThinSettings::default()).await;
        for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            let (name, mode) = (kind.to_string(), Mode::Filesystem(kind));
            site.create(&name, mode, 320).await.expect("create");
            let shown = site.show(&name, mode).await;
            let before = used();
            let large = File::create(shown.dir.join("large")).expect("a file");
            large.write_all_at(&noise(1, 64 << 20), 0).expect("write");
            large.sync_all().expect("fsync");
            let full = used();
            assert!(full - before > 60e6, "{kind}: {before} bytes, then {full}");
            large.set_len(0).expect("truncate");
            run("sync", &["--file-system", shown.dir.to_str().unwrap()]);

            let device = fs::metadata(&shown.device).expect("a device").rdev();
            let part = |number: u64| u32::try_from(number).expect("a number");
            let number = DeviceNumber { major: part(major(device)), minor: part(minor(device)) };
            let all = if kind == FsKind::Btrfs { 0..u64::MAX } else { 0..320 << 20 };
            let other = DeviceNumber { minor: number.minor + 1, ..number };
            let error = site.host.trim(&shown.dir, other, all.clone()).await.unwrap_err();
            assert_eq!(error.errno(), Some(nix::libc::ESTALE), "{kind}: {error}");
            assert!((used() - full).abs() < 4e6, "{kind}: nothing of another is trimmed");
            let trimmed = site.host.trim(&shown.dir, number, all).await.expect("it is trimmed");
            assert!(trimmed >= Bytes::mib(60), "{kind}: {trimmed}");
            let after = used();
            assert!(full - after > 50e6, "{kind}: {full} bytes, then {after}");
            if kind != FsKind::Btrfs {
                let behind = site.host.trim(&shown.dir, number, 400 << 20..401 << 20).await;
                assert_eq!(behind.unwrap_err().errno(), Some(nix::libc::EINVAL), "{kind}");
            }
            drop(large);
            site.hide(&name).await;
            site.delete(&name).await.expect("delete");
        }
    });
}
