//! A group with many volumes.

use std::fmt::Write;
use std::fs;

use pliant::bytes::Bytes;
use pliant::node::lv_tags::{StoredState, VolumeTags};
use pliant::volume::{Class, FsKind, Mode, NewVolume, NodeKey, RequestedSize};

use crate::bench::client::{Client, Spent};
use crate::bench::life::lvcreate;
use crate::bench::table::{Ours, measured, median, timed};
use crate::bench::{Bench, GROUP, LINEAR, SOCKET, start_driver};
use crate::machine::{Disk, run};

impl Bench {
    /// Start over with a group of so many volumes, all of them active, and measure what depends on
    /// their number.
    pub fn with_volumes(self, count: usize) -> Bench {
        let Bench { mut table, driver, disk, client, .. } = self;
        drop(client);
        driver.stop().expect("the driver ends");
        unmount_all();
        run("vgchange", &["-an", GROUP]);
        drop(disk);
        let disk = Disk::of(8 << 30);
        run("vgcreate", &["--metadatasize", "16m", GROUP, disk.device()]);
        fill(count);

        let mut start = None;
        let took = median(|_| {
            drop(start.take());
            timed(|| start = Some(start_driver(LINEAR)))
        });
        let driver = start.expect("a driver");
        let spent = Spent::until_now();
        let what = format!("start with {count} volumes");
        table.only_ours(&format!("start_{count}"), &what, Ours { millis: took, spent });
        let client = Client::connect(std::path::Path::new(SOCKET));
        let mut bench = Bench { table, client, driver, disk };
        bench.list(count);
        bench.create_among(count);
        bench
    }

    fn list(&mut self, count: usize) {
        let columns = "lv_uuid,lv_name,lv_size,lv_tags,lv_attr,lv_path";
        let plain = median(|_| {
            timed(|| {
                run("lvs", &["-o", columns, "--units", "b", "--reportformat", "json", GROUP]);
            })
        });
        let ours = measured(|_| timed(|| assert_eq!(self.client.list(), count)));
        let what = format!("list {count} volumes: lvs --reportformat json");
        self.table.both(&format!("list_{count}"), &what, plain, ours);
        if count == 1000 {
            self.table.figure("list_processes", ours.spent.processes);
        }
    }

    /// Make one more among many.
    fn create_among(&mut self, count: usize) {
        let size = Bytes::mib(16);
        let plain = median(|n| timed(|| lvcreate(&format!("plain-{n}"), size)));
        let mode = Mode::Filesystem(FsKind::Ext4);
        let ours = measured(|n| {
            timed(|| {
                self.client.create(&format!("more-{n}"), size, mode);
            })
        });
        let what = format!("create 16 MiB for ext4 among {count}: lvcreate");
        self.table.both(&format!("create_among_{count}"), &what, plain, ours);
    }

    /// How much memory the driver holds.
    pub fn memory(&mut self) {
        let pid = self.driver.pid().as_raw();
        let [all, heap] = ["VmRSS:", "RssAnon:"].map(|line| resident_mib(pid, line));
        self.table.figure("rss_mib_1000_volumes", all);
        self.table.figure("heap_mib_1000_volumes", heap);
        println!("resident with 1000 volumes: {all:.1} MiB, {heap:.1} of them not the program's");
    }
}

/// Gives the group so many volumes of ours, as its metadata text, and activates them.
fn fill(count: usize) {
    let (before, after) = ("/tmp/group.before", "/tmp/group.after");
    run("vgcfgbackup", &["-f", before, GROUP]);
    let text = fs::read_to_string(before).expect("metadata text");
    let end = text.rfind('}').expect("the end of the group");
    let mut volumes = String::new();
    for number in 0..count {
        volumes.push_str(&volume(number));
    }
    let text = format!("{}logical_volumes {{\n{volumes}}}\n{}", &text[..end], &text[end..]);
    fs::write(after, text).expect("metadata text");
    run("vgcfgrestore", &["-f", after, GROUP]);
    run("vgchange", &["-ay", GROUP]);
}

/// One volume of one extent in the language of LVM's metadata.
fn volume(number: usize) -> String {
    let want = NewVolume {
        name: format!("pvc-{number:08}-aaaa-bbbb-cccc-dddddddddddd"),
        size: RequestedSize { at_least: Bytes::mib(4), at_most: None },
        mode: Mode::Filesystem(FsKind::Ext4),
        class: Class::default(),
        nodes: [].into(),
        source: None,
    };
    let record =
        VolumeTags { life: StoredState::Shown, ..VolumeTags::new(&NodeKey::of("n1"), &want) };
    let tags: Vec<String> = record.tags().iter().map(|tag| format!("\"{tag}\"")).collect();
    let mut text = String::new();
    writeln!(
        text,
        r#"{name} {{ id = "BenchX-0000-0000-0000-0000-0000-{number:06}"
status = ["READ", "WRITE", "VISIBLE"] flags = [] tags = [{tags}]
creation_time = 1700000000 creation_host = "bench" segment_count = 1
segment1 {{ start_extent = 0 extent_count = 1 type = "striped" stripe_count = 1
stripes = ["pv0", {number}] }} }}"#,
        name = record.lv_name(),
        tags = tags.join(", "),
    )
    .expect("a string takes all");
    text
}

/// Unmounts what the scenes before have mounted.
fn unmount_all() {
    let table = fs::read_to_string("/proc/self/mounts").expect("mount table");
    for line in table.lines().rev() {
        let target = line.split(' ').nth(1).unwrap_or_default();
        if target.starts_with("/run/bench/") {
            run("umount", &[target]);
        }
    }
}

/// Memory of a process that is resident, as a line of its status has it.
fn resident_mib(pid: i32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of status");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib / 1024.0
}
