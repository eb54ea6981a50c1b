//! Thin volumes, snapshots and restores, and what a writer notices of them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode};

use crate::bench::table::{Millis, REPEATS, measured, median, timed};
use crate::bench::{Bench, GROUP, directory, plain_device};
use crate::machine::run;

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);
const THIN: &[(&str, &str)] = &[("layout", "thin")];
const LINEAR: &[(&str, &str)] = &[];
const SMALL: Bytes = Bytes::mib(64);
/// What is copied.
const LARGE: Bytes = Bytes::mib(512);
const MIB: usize = 1 << 20;
/// A write that takes longer has waited for space, not for the disk.
const STALL: Duration = Duration::from_secs(1);

impl Bench {
    /// Small volumes of a thin pool, beside those of plain LVM and beside linear ones.
    pub fn create_thin(&mut self) {
        run(
            "lvcreate",
            &["-y", "--type", "thin-pool", "-L", "1g", "-Zy", "-n", "plainpool", GROUP],
        );
        let words = |n: u32| format!("plain-{n}");
        let plain = median(|n| {
            let (name, size) = (words(n), "64m");
            timed(|| {
                drop(run(
                    "lvcreate",
                    &["-y", "-V", size, "--thinpool", "plainpool", "-n", &name, GROUP],
                ));
            })
        });
        let mut made = Vec::new();
        let ours = measured(|n| {
            timed(|| {
                made.push(self.client.create_from(&format!("thin-{n}"), SMALL, EXT4, THIN, None));
            })
        });
        self.table.both("thin_create", "create a thin volume: lvcreate -V", plain, ours);
        let linear = median(|n| {
            let name = format!("linear-{n}");
            timed(|| made.push(self.client.create_from(&name, SMALL, EXT4, LINEAR, None)))
        });
        self.table.figure("thin_create_ratio_linear", linear / ours.millis);
        for id in &made {
            self.client.delete(id);
        }
    }

    /// Snapshots of mounted volumes under a writer: how long they take, and the longest write meanwhile.
    pub fn snapshot_under_a_writer(&mut self) {
        for (layout, parameters, plain) in [
            ("thin", THIN, &["-V", "64m", "--thinpool", "plainpool"][..]),
            ("linear", LINEAR, &["-L", "64m"][..]),
        ] {
            let name = format!("{layout}-origin");
            run("lvcreate", &[&["-y", "-n", &name], plain, &[GROUP]].concat());
            let at = directory(&name);
            run("mkfs.ext4", &["-q", &plain_device(&name)]);
            run("mount", &[&plain_device(&name), &at.to_string_lossy()]);
            let of = format!("{GROUP}/{name}");
            let room: &[&str] = if layout == "thin" { &[] } else { &["-L", "16m"] };
            let writer = Writer::start(&at);
            let mut plain_pauses = Vec::new();
            let plain = median(|n| {
                let name = format!("{layout}-snapshot-{n}");
                let words = [&["-y", "-s", "-n", &name][..], room, &[&of]].concat();
                let took = writer.paused_by(|| drop(run("lvcreate", &words)), &mut plain_pauses);
                run("lvremove", &["-y", "-f", &format!("{GROUP}/{name}")]);
                took
            });
            writer.stop();
            run("umount", &[&at.to_string_lossy()]);
            run("lvremove", &["-y", "-f", &of]);

            let id = self.client.create_from(
                &format!("{layout}-of-ours"),
                SMALL,
                EXT4,
                parameters,
                None,
            );
            self.client.stage(&id, &at, EXT4);
            let writer = Writer::start(&at);
            let mut pauses = Vec::new();
            let ours = measured(|n| {
                let name = format!("{layout}-snapshot-{n}");
                let took = writer.paused_by(|| drop(self.client.snapshot(&name, &id)), &mut pauses);
                let snapshot = self.client.snapshot_when_ready(&name, &id);
                self.client.delete_snapshot(&snapshot);
                took
            });
            writer.stop();
            self.client.unstage(&id, &at);
            self.client.delete(&id);
            let what = format!("snapshot of a mounted {layout} volume: lvcreate -s");
            self.table.both(&format!("snapshot_{layout}"), &what, plain, ours);
            self.table.figure(&format!("snapshot_{layout}_ratio"), plain / ours.millis);
            let pause = |pauses: Vec<Duration>| middle(pauses).as_secs_f64() * 1000.0;
            let (plain, ours) = (pause(plain_pauses), pause(pauses));
            println!("{:<52}{plain:>9.1}{ours:>9.1}", "  longest write meanwhile, median");
            self.table.figure(&format!("snapshot_{layout}_pause_plain_ms"), plain);
            self.table.figure(&format!("snapshot_{layout}_pause_ms"), ours);
        }
    }

    /// A snapshot of a linear volume is copied under a writer; then it is restored, beside `dd`.
    pub fn copy_and_restore(&mut self) {
        let at = directory("copied");
        let id = self.client.create_from("copied", LARGE, EXT4, LINEAR, None);
        self.client.stage(&id, &at, EXT4);
        let fill = format!(
            "dd if=/dev/urandom of={}/content bs=1M count=400 conv=fsync status=none",
            at.display()
        );
        run("sh", &["-c", &fill]);
        let writer = Writer::start(&at);
        let before = writer.count();
        let copying = timed(|| drop(self.client.snapshot_when_ready("copied", &id)));
        let meanwhile = writer.count() - before;
        let before = writer.count();
        thread::park_timeout(copying);
        let after = writer.count() - before;
        writer.stop();
        let rate = meanwhile as f64 / after.max(1) as f64;
        println!(
            "{:<52}{:>9}{:>9}{rate:>8.2}×",
            "writes while a snapshot is copied, and afterwards", after, meanwhile
        );
        self.table.figure("copy_writer_rate_ratio", rate);

        let snapshot = self.client.snapshot_when_ready("copied", &id);
        let source =
            run("lvs", &["--noheadings", "-o", "lv_name", "-S", "lv_name=~\\.snap$", GROUP]);
        let source = format!("{GROUP}/{}", source.trim());
        run("lvchange", &["-ay", "-K", &source]);
        let plain = median(|_| {
            let took = timed(|| {
                run("lvcreate", &["-y", "-n", "restored", "-L", "512m", GROUP]);
                let words = format!(
                    "dd if=/dev/{source} of={} bs=1M iflag=direct oflag=direct conv=fsync status=none",
                    plain_device("restored")
                );
                run("sh", &["-c", &words]);
            });
            run("lvremove", &["-y", "-f", &format!("{GROUP}/restored")]);
            took
        });
        run("lvchange", &["-an", &source]);
        let ours = measured(|n| {
            let name = format!("restored-{n}");
            let start = Instant::now();
            let id = self.client.create_from(&name, LARGE, EXT4, LINEAR, Some(&snapshot));
            let took = start.elapsed();
            self.client.delete(&id);
            took
        });
        self.table.both("restore", "restore 512 MiB: lvcreate, dd", plain, ours);
        self.table.figure("restore_rate_ratio_dd", plain / ours.millis);
        self.client.delete_snapshot(&snapshot);
        self.client.unstage(&id, &at);
        self.client.delete(&id);
    }

    /// A writer at full speed into a thin pool that begins with a quarter of what it becomes.
    pub fn write_into_a_growing_pool(&mut self) {
        let size = Bytes::gib(2);
        let id = self.client.create_from("full-speed", size, Mode::Block, THIN, None);
        let at = directory("full-speed");
        self.client.stage(&id, &at, Mode::Block);
        let path =
            run("sh", &["-c", "ls /dev/mapper/vg0-pliant--* | grep -v thinpool | head -n 1"]);
        let device = direct(Path::new(path.trim()));
        let block = Aligned::of(MIB);
        let mut times: Vec<Duration> = (0..size.get() >> 20)
            .map(|at| timed(|| device.write_all_at(block.bytes(), at << 20).expect("write")))
            .collect();
        drop(device);
        let stalls = times.iter().filter(|took| **took > STALL).count();
        times.sort();
        let longest: Millis = times.last().expect("writes").as_secs_f64() * 1000.0;
        println!("{:<52}{:>9}{longest:>9.1}", "longest write into a growing thin pool", "");
        self.table.figure("thin_writer_longest_ms", longest);
        self.table.figure("thin_writer_stalls", stalls as f64);
        self.client.unstage(&id, &at);
        self.client.delete(&id);
    }
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let opened = options.write(true).custom_flags(nix::libc::O_DIRECT).open(path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Bytes at an address that O_DIRECT takes.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    fn of(length: usize) -> Aligned {
        let bytes = vec![7; length + 4096];
        let from = bytes.as_ptr().align_offset(4096);
        Aligned { bytes, from, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.length]
    }
}

/// Writes 4 KiB after 4 KiB, each durable before the next.
struct Writer {
    shared: Arc<Shared>,
    work: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    count: AtomicU64,
    longest: AtomicU64,
}

impl Writer {
    fn start(at: &Path) -> Writer {
        let shared = Arc::new(Shared::default());
        let (seen, path) = (shared.clone(), at.join("written"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).custom_flags(nix::libc::O_DSYNC);
        let file = options.open(path).expect("file");
        let work = thread::spawn(move || {
            let block = [7; 4096];
            while !seen.stop.load(Ordering::SeqCst) {
                let at = seen.count.load(Ordering::SeqCst) % 1024 * 4096;
                let took = timed(|| file.write_all_at(&block, at).expect("write"));
                let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                seen.longest.fetch_max(took, Ordering::SeqCst);
                seen.count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Writer { shared, work }
    }

    fn count(&self) -> u64 {
        self.shared.count.load(Ordering::SeqCst)
    }

    /// How long the work takes; the longest write that began before its end is added.
    fn paused_by(&self, work: impl FnOnce(), pauses: &mut Vec<Duration>) -> Duration {
        self.shared.longest.store(0, Ordering::SeqCst);
        let took = timed(work);
        // The one that is under way counts.
        let now = self.count();
        while self.count() < now + 1 {
            thread::yield_now();
        }
        if pauses.len() < REPEATS as usize {
            pauses.push(Duration::from_nanos(self.shared.longest.load(Ordering::SeqCst)));
        }
        took
    }

    fn stop(self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.work.join().expect("the writer");
    }
}
