//! The scenarios on real LVM.

#[path = "../../tests/scenarios/mod.rs"]
mod shared;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pliant::host::{Host, RealHost};
use pliant::volume::Mode;

use crate::csi::{noise, volume_sizes};
use crate::machine::{Disk, attempt, run};
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
