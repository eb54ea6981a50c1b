//! The life of one volume in a group with few others.

use std::path::Path;
use std::time::{Duration, Instant};

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode};

use crate::bench::client::Spent;
use crate::bench::table::{Ours, measured, median, timed};
use crate::bench::{Bench, GROUP, directory, plain_device};
use crate::machine::run;

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);
/// Small, so that wiping does not hide everything else.
const SMALL: Bytes = Bytes::mib(16);
/// What each growth adds.
const STEP: u64 = 64;
/// A driver that only waits is watched for so long.
const WATCHED: Duration = Duration::from_secs(10);

/// Makes a logical volume as anybody would.
pub fn lvcreate(name: &str, size: Bytes) {
    run("lvcreate", &["-y", "-n", name, "-L", &format!("{}b", size.get()), GROUP]);
}

fn lvremove(name: &str) {
    run("lvremove", &["-y", "-f", &format!("{GROUP}/{name}")]);
}

/// Looks at the group, as a driver does before a change and after it to know what it has now.
fn look() {
    run("lvs", &["-o", "lv_name,lv_size,lv_tags,vg_free", "--reportformat", "json", GROUP]);
}

/// Zeroes a part of a device, or all of it, through to the disk.
fn zero(name: &str, at: Bytes, length: Bytes) {
    let (at, length) = (at.get().to_string(), length.get().to_string());
    run("blkdiscard", &["-z", "-o", &at, "-l", &length, &plain_device(name)]);
    run("sync", &[&plain_device(name)]);
}

impl Bench {
    /// Small volumes for a file system: nothing is wiped at the create, all bytes at the delete. Each as a driver
    /// does the RPC that runs a process a step, and its one command alone; the delete with the bytes wiped that ours
    /// wipes, too.
    pub fn create_and_delete(&mut self) {
        let plain_rpc = median(|n| {
            timed(|| {
                look();
                lvcreate(&format!("rpc-{n}"), SMALL);
                look();
            })
        });
        let plain = median(|n| timed(|| lvcreate(&format!("plain-{n}"), SMALL)));
        let mut ids = Vec::new();
        let ours = measured(|n| {
            timed(|| ids.push(self.client.create(&format!("small-{n}"), SMALL, EXT4)))
        });
        self.table.both("create", "create 16 MiB for ext4: lvs, lvcreate, lvs", plain_rpc, ours);
        self.table.both("create_bare", "  lvcreate alone", plain, ours);
        let at = directory("ours");
        for id in &ids {
            // What was never used is not wiped at its end.
            self.client.stage(id, &at, EXT4);
            self.client.unstage(id, &at);
        }
        median(|n| timed(|| lvcreate(&format!("wiped-{n}"), SMALL)));

        let plain_rpc = median(|n| {
            timed(|| {
                look();
                lvremove(&format!("rpc-{n}"));
                look();
            })
        });
        let plain = median(|n| timed(|| lvremove(&format!("plain-{n}"))));
        let plain_wiped = median(|n| {
            timed(|| {
                let name = format!("wiped-{n}");
                zero(&name, Bytes::ZERO, SMALL);
                lvremove(&name);
            })
        });
        let mut ids = ids.iter();
        let ours = measured(|_| timed(|| self.client.delete(ids.next().expect("a volume"))));
        self.table.both(
            "delete",
            "delete 16 MiB, zeroing all: lvs, lvremove, lvs",
            plain_rpc,
            ours,
        );
        self.table.both("delete_bare", "  lvremove alone", plain, ours);
        self.table.both("delete_wiped", "  all zeroed, lvremove", plain_wiped, ours);
    }

    /// Grow what was never used, and remove it.
    pub fn grow_new(&mut self) {
        lvcreate("plain-new", SMALL);
        let plain = median(|_| timed(|| lvextend("plain-new", false)));
        lvremove("plain-new");
        let id = self.client.create("new", SMALL, EXT4);
        let ours = self.grow_by_steps(&id, 16, EXT4);
        self.client.delete(&id);
        self.table.both("grow_new", "grow what was never used: lvextend", plain, ours);
    }

    /// Raw block volumes: all is wiped behind the create and before the first stage.
    pub fn create_block(&mut self) {
        self.create_block_of(SMALL, "create_block", "create 16 MiB block: lvcreate", false);
        let what = "create and stage 16 MiB block: lvcreate, all zeroed";
        self.create_block_of(SMALL, "create_block_wiped", what, true);
        let what = "create and stage 1 GiB block: lvcreate, all zeroed";
        self.create_block_of(Bytes::gib(1), "create_block_1gib_wiped", what, true);
    }

    fn create_block_of(&mut self, size: Bytes, name: &str, what: &str, wiped: bool) {
        let plain = median(|_| {
            let took = timed(|| {
                lvcreate("plain", size);
                if wiped {
                    zero("plain", Bytes::ZERO, size);
                }
            });
            lvremove("plain");
            took
        });
        let mut spent = Spent::default();
        let mut ours = measured(|n| {
            let before = Spent::until_now();
            let start = Instant::now();
            let id = self.client.create(&format!("{name}-{n}"), size, Mode::Block);
            if wiped {
                self.client.stage(&id, &directory("raw"), Mode::Block);
            }
            let took = start.elapsed();
            spent = Spent::until_now().each(before, 1.0);
            self.client.delete(&id);
            took
        });
        ours.spent = spent;
        self.table.both(name, what, plain, ours);
    }

    /// The first stage of a volume, with its format, and a later one.
    pub fn stage(&mut self) {
        let (plain_at, at) = (directory("plain"), directory("ours"));
        let plain = median(|n| {
            let name = format!("staged-{n}");
            lvcreate(&name, Bytes::mib(64));
            let device = plain_device(&name);
            let took = timed(|| {
                run("mkfs.ext4", &["-q", "-b", "4096", &device]);
                run("mount", &[&device, text(&plain_at)]);
            });
            run("umount", &[text(&plain_at)]);
            took
        });
        let mut spent = Spent::default();
        let mut ours = measured(|n| {
            let id = self.client.create(&format!("staged-{n}"), Bytes::mib(64), EXT4);
            let before = Spent::until_now();
            let took = timed(|| self.client.stage(&id, &at, EXT4));
            spent = Spent::until_now().each(before, 1.0);
            self.client.unstage(&id, &at);
            took
        });
        ours.spent = spent;
        self.table.both("stage_new", "first stage of ext4: mkfs, mount", plain, ours);
        self.stage_again(&plain_at, &at);
    }

    /// Activate and mount what has a file system.
    fn stage_again(&mut self, plain_at: &Path, at: &Path) {
        let lv = format!("{GROUP}/staged-0");
        let plain = median(|_| {
            run("lvchange", &["-an", &lv]);
            let took = timed(|| {
                run("lvchange", &["-ay", &lv]);
                run("mount", &[&plain_device("staged-0"), text(plain_at)]);
            });
            run("umount", &[text(plain_at)]);
            took
        });
        let id = self.client.create("staged-0", Bytes::mib(64), EXT4);
        let mut spent = Spent::default();
        let mut ours = measured(|_| {
            let before = Spent::until_now();
            let took = timed(|| self.client.stage(&id, at, EXT4));
            spent = Spent::until_now().each(before, 1.0);
            self.client.unstage(&id, at);
            took
        });
        ours.spent = spent;
        self.table.both("stage", "later stages: lvchange -ay, mount", plain, ours);
    }

    /// Grow each file system while it is mounted, and a raw block volume.
    pub fn grow_online(&mut self) {
        for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            self.grow_mounted(kind);
        }
        let mut size = STEP;
        lvcreate("plain-block", Bytes::mib(size));
        let plain = median(|_| {
            size += STEP;
            timed(|| {
                lvextend("plain-block", false);
                zero("plain-block", Bytes::mib(size - STEP), Bytes::mib(STEP));
            })
        });
        let id = self.client.create("grow-block", Bytes::mib(STEP), Mode::Block);
        self.client.stage(&id, &directory("raw"), Mode::Block);
        let ours = self.grow_by_steps(&id, STEP, Mode::Block);
        let what = "grow block by 64 MiB, zeroed: lvextend, zeroed";
        self.table.both("grow_block_wiped", what, plain, ours);
    }

    fn grow_mounted(&mut self, kind: FsKind) {
        const FIRST: u64 = 320;
        let (name, at) = (format!("plain-{kind}"), directory(&format!("plain-{kind}")));
        lvcreate(&name, Bytes::mib(FIRST));
        let device = plain_device(&name);
        run(&format!("mkfs.{kind}"), &["-q", &device]);
        run("mount", &[&device, text(&at)]);
        let plain = median(|_| {
            timed(|| {
                // This LVM's fsadm does not know btrfs.
                lvextend(&name, kind != FsKind::Btrfs);
                if kind == FsKind::Btrfs {
                    run("btrfs", &["filesystem", "resize", "max", text(&at)]);
                }
            })
        });
        let (mode, at) = (Mode::Filesystem(kind), directory(&format!("ours-{kind}")));
        let id = self.client.create(&format!("grow-{kind}"), Bytes::mib(FIRST), mode);
        self.client.stage(&id, &at, mode);
        let ours = self.grow_by_steps(&id, FIRST, mode);
        let command = match kind {
            FsKind::Btrfs => "lvextend, btrfs filesystem resize",
            _ => "lvextend --resizefs",
        };
        let what = format!("grow mounted {kind}: {command}");
        self.table.both(&format!("grow_{kind}"), &what, plain, ours);
        if kind == FsKind::Ext4 {
            self.table.figure("grow_processes", ours.spent.processes);
            self.table.figure("grow_lvm_commands", ours.spent.lvm_commands);
            self.table.figure("grow_fsyncs", ours.spent.fsyncs);
        }
    }

    fn grow_by_steps(&mut self, id: &str, first: u64, mode: Mode) -> Ours {
        let mut size = first;
        measured(|_| {
            size += STEP;
            timed(|| self.client.grow(id, Bytes::mib(size), mode))
        })
    }

    /// Grow an ext4 that nobody has mounted; it is checked before and after.
    pub fn grow_offline(&mut self) {
        lvcreate("plain-offline", Bytes::mib(STEP));
        run("mkfs.ext4", &["-q", "-b", "4096", &plain_device("plain-offline")]);
        let plain = median(|_| timed(|| lvextend("plain-offline", true)));

        let (id, at) = (self.client.create("offline", Bytes::mib(STEP), EXT4), directory("ours"));
        self.client.stage(&id, &at, EXT4);
        self.client.unstage(&id, &at);
        let ours = self.grow_by_steps(&id, STEP, EXT4);
        let what = "grow unmounted ext4: lvextend --resizefs";
        self.table.both("grow_offline_ext4", what, plain, ours);
    }

    /// How full a mounted volume is.
    pub fn stats(&mut self) {
        let (plain_at, at) = (directory("plain-ext4"), directory("ours-ext4"));
        let plain = median(|_| {
            timed(|| {
                run("lvs", &["--noheadings", "-o", "lv_size", &format!("{GROUP}/plain-ext4")]);
                run(
                    "df",
                    &["-B1", "--output=size,used,avail,itotal,iused,iavail", text(&plain_at)],
                );
            })
        });
        let id = self.client.create("grow-ext4", Bytes::mib(320), EXT4);
        let ours = measured(|_| timed(|| assert_eq!(self.client.stats(&id, &at), 2)));
        self.table.both("stats", "stats of ext4: lvs, df", plain, ours);
    }

    /// What a driver does that nobody asks anything.
    pub fn idle(&mut self) {
        let before = Spent::until_now();
        std::thread::sleep(WATCHED);
        let per_minute = 60.0 / WATCHED.as_secs_f64();
        let spent = Spent::until_now().each(before, 1.0 / per_minute);
        self.table.figure("idle_lvm_commands_per_minute", spent.lvm_commands);
        self.table.figure("idle_processes_per_minute", spent.processes);
        println!("idle: {} LVM commands a minute", spent.lvm_commands);
    }
}

fn lvextend(name: &str, resize_fs: bool) {
    let (more, lv) = (format!("+{STEP}m"), format!("{GROUP}/{name}"));
    let mut args = vec!["-y", "-L", &more, &lv];
    if resize_fs {
        args.push("--resizefs");
    }
    run("lvextend", &args);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this bench")
}
