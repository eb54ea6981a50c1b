//! Growing: what was written before, meanwhile and after is there, whoever cuts in.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode};
use tonic::Code;

use crate::csi::{EXT4, Rig, Volume, device_of, fill, group, holds, noise, volumes_of};
use crate::machine::{Disk, attempt, figure, run, sha256};

const RECORD: usize = 4096;
/// The content that stands before growth lies in these MiB, the writer's records behind it.
const CONTENT: std::ops::Range<u64> = 0..16;
const RECORDS_AT: u64 = 16 << 20;
/// How many places the writer writes, one after the other, again and again.
const PLACES: u64 = 2048;

/// Writes records without a pause until it is stopped; each is acknowledged by an fsync.
struct Writer {
    stop: Arc<AtomicBool>,
    acknowledged: Receiver<u64>,
    work: JoinHandle<HashMap<u64, u64>>,
}

impl Writer {
    fn start(file: File) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, acknowledged) = mpsc::channel();
        let stopped = stop.clone();
        let work = std::thread::spawn(move || {
            let mut last = HashMap::new();
            let mut number = 0u64;
            while !stopped.load(Ordering::SeqCst) {
                // A prime step, so that neighbours are written at different times.
                let at = RECORDS_AT + number * 769 % PLACES * RECORD as u64;
                file.write_all_at(&record(at, number), at).expect("write");
                file.sync_data().expect("fdatasync");
                last.insert(at, number);
                number += 1;
                tell.send(number).expect("a listener");
            }
            last
        });
        Writer { stop, acknowledged, work }
    }

    /// Waits until so many more records were acknowledged from now on.
    fn goes_on(&self, records: usize) {
        while self.acknowledged.try_recv().is_ok() {}
        assert_eq!(self.acknowledged.iter().take(records).count(), records, "the writer ended");
    }

    /// The number of the last record at each place.
    fn stop(self) -> HashMap<u64, u64> {
        self.stop.store(true, Ordering::SeqCst);
        self.work.join().expect("the writer")
    }
}

/// Place and number, then noise of both: a record that is torn, old or elsewhere differs.
fn record(at: u64, number: u64) -> Vec<u8> {
    let mut record = noise(at ^ number.rotate_left(32), RECORD);
    record[..8].copy_from_slice(&at.to_le_bytes());
    record[8..16].copy_from_slice(&number.to_le_bytes());
    record
}

fn records_are_there(file: &File, records: &HashMap<u64, u64>) {
    let mut seen = vec![0; RECORD];
    for (at, number) in records {
        file.read_exact_at(&mut seen, *at).expect("read");
        assert!(seen == record(*at, *number), "record {number} at {at} is not what was written");
    }
}

/// The first size: what the file system needs, and room for what the tests write.
fn first_size(mode: Mode) -> u64 {
    match mode {
        Mode::Filesystem(FsKind::Xfs) => 320,
        Mode::Filesystem(FsKind::Btrfs) => 256,
        _ => 64,
    }
}

fn modes() -> [Mode; 6] {
    let kinds = [FsKind::Ext2, FsKind::Ext3, FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];
    let [a, b, c, d, e] = kinds.map(Mode::Filesystem);
    [a, b, c, d, e, Mode::Block]
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_is_acknowledged_under_growth_is_there_afterwards() {
    let disk = Disk::of(2 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let mut records = 0;

    for mode in modes() {
        let first = first_size(mode);
        let volume = rig.calls.create("grown", Bytes::mib(first), mode, "").expect("create");
        rig.calls.show(&volume);
        let before = rig.calls.shown_size(&volume);
        fill(&volume.file("content"), CONTENT);

        let writer = Writer::start(volume.file("records"));
        writer.goes_on(32);
        for size in [first + 64, first + 128] {
            let grown = rig.calls.grow(&volume, Bytes::mib(size)).expect("grow");
            assert_eq!(grown, (Bytes::mib(size), false), "{mode}");
            writer.goes_on(32);
        }
        let written = writer.stop();
        records += written.len();
        all_is_there(&volume, &written);
        let online = rig.calls.shown_size(&volume);
        assert!(online >= before + Bytes::mib(110), "{mode}: {before} became {online}");
        rig.calls.hide(&volume);

        let grown = rig.calls.grow(&volume, Bytes::mib(first + 192)).expect("grow");
        assert_eq!(grown, (Bytes::mib(first + 192), false), "{mode}");
        assert_eq!(volumes_of("vg0").len(), 1, "{mode}");
        is_sound(&volume);
        rig.calls.show(&volume);
        all_is_there(&volume, &written);
        let offline = rig.calls.shown_size(&volume);
        assert!(offline >= online + Bytes::mib(55), "{mode}: {online} became {offline}");
        the_new_room_holds_data(&volume, first);
        all_is_there(&volume, &written);
        rig.calls.hide(&volume);
        is_sound(&volume);
        rig.calls.delete(&volume).expect("delete");
    }

    assert_eq!(volumes_of("vg0"), [""; 0]);
    figure("growth_records_verified", records as f64);
}

fn all_is_there(volume: &Volume, records: &HashMap<u64, u64>) {
    assert!(holds(&volume.file("content"), CONTENT), "{}", volume.mode);
    records_are_there(&volume.file("records"), records);
}

/// Writes more than the volume could hold at first.
fn the_new_room_holds_data(volume: &Volume, first: u64) {
    let file = volume.file("ballast");
    let mib = match volume.mode {
        Mode::Block => first..first + 192,
        Mode::Filesystem(_) => 0..first.min(100) + 32,
    };
    fill(&file, mib.clone());
    assert!(holds(&file, mib), "{}", volume.mode);
}

/// Lets the checker of the file system look at the unstaged volume.
fn is_sound(volume: &Volume) {
    let lv = volume.lv("vg0");
    run("lvchange", &["-ay", &lv]);
    let device = device_of(&lv).to_string_lossy().into_owned();
    match volume.mode {
        Mode::Block => String::new(),
        Mode::Filesystem(FsKind::Xfs) => run("xfs_repair", &["-n", &device]),
        Mode::Filesystem(FsKind::Btrfs) => run("btrfs", &["check", "--readonly", &device]),
        Mode::Filesystem(_) => run("e2fsck", &["-f", "-n", &device]),
    };
    run("lvchange", &["-an", &lv]);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn in_two_steps_the_file_system_waits_for_the_node_step() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0", "--filesystem-expansion", "node"]);
    for mode in [EXT4, Mode::Filesystem(FsKind::Xfs)] {
        let first = first_size(mode);
        let volume = rig.calls.create("steps", Bytes::mib(first), mode, "").expect("create");
        rig.calls.show(&volume);
        fill(&volume.file("content"), CONTENT);
        let before = rig.calls.shown_size(&volume);

        let size = Bytes::mib(first + 64);
        assert_eq!(rig.calls.grow(&volume, size).expect("grow"), (size, true));
        assert_eq!(rig.calls.shown_size(&volume), before);
        assert_eq!(rig.calls.grow(&volume, size).expect("again"), (size, true));
        rig.calls.node_grow(&volume, size).expect("node step");
        rig.calls.node_grow(&volume, size).expect("again");

        assert!(rig.calls.shown_size(&volume) >= before + Bytes::mib(55));
        assert!(holds(&volume.file("content"), CONTENT));
        rig.calls.hide(&volume);
        rig.calls.delete(&volume).expect("delete");
    }
    let block = rig.calls.create("block", Bytes::mib(8), Mode::Block, "").expect("create");
    let grown = rig.calls.grow(&block, Bytes::mib(16)).expect("grow");
    assert_eq!(grown, (Bytes::mib(16), false));
    rig.calls.delete(&block).expect("delete");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_volume_that_is_larger_than_its_file_system_is_grown_when_it_is_staged() {
    let disk = Disk::of(2 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    for mode in modes().into_iter().filter(|mode| *mode != Mode::Block) {
        let volume = rig.calls.create("cut", Bytes::mib(first_size(mode)), mode, "");
        let volume = volume.expect("create");
        rig.calls.show(&volume);
        fill(&volume.file("content"), CONTENT);
        let before = rig.calls.shown_size(&volume);
        rig.calls.hide(&volume);

        run("lvextend", &["-L", "+64m", &volume.lv("vg0")]);
        rig.calls.show(&volume);

        let after = rig.calls.shown_size(&volume);
        assert!(after >= before + Bytes::mib(55), "{mode}: {before} became {after}");
        assert!(holds(&volume.file("content"), CONTENT), "{mode}");
        rig.calls.hide(&volume);
        is_sound(&volume);
        rig.calls.delete(&volume).expect("delete");
    }
}

/// LVM would note a merge of the safety snapshot for the next activation, and lose what was written
/// until then.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_another_mount_namespace_shows_is_not_grown_under_it() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = rig.calls.create("held", Bytes::mib(64), EXT4, "resizeSnapshot=Required");
    let volume = volume.expect("create");
    rig.calls.show(&volume);
    fill(&volume.file("content"), CONTENT);
    let before = rig.calls.shown_size(&volume);
    let namespace = "mkdir /run/ns && mount --bind /run/ns /run/ns && mount --make-private /run/ns \
                     && touch /run/ns/mnt && unshare --mount=/run/ns/mnt --propagation private true";
    run("sh", &["-c", namespace]);
    for path in [volume.target(), volume.staging()] {
        run("umount", &[&path.display().to_string()]);
    }

    let grown = rig.calls.grow(&volume, Bytes::mib(128)).expect("grow");
    assert_eq!(grown, (Bytes::mib(128), true));
    assert_eq!(volumes_of("vg0").len(), 1, "no snapshot is left");
    let later = format!("echo later >{0}/later && sync {0}/later", volume.staging().display());
    run("nsenter", &["--mount=/run/ns/mnt", "sh", "-c", &later]);
    run("umount", &["/run/ns/mnt"]);

    run("lvchange", &["-an", &volume.lv("vg0")]);
    rig.calls.show(&volume);
    assert_eq!(std::fs::read(volume.target().join("later")).expect("it was synced"), b"later\n");
    assert!(holds(&volume.file("content"), CONTENT));
    assert!(rig.calls.shown_size(&volume) >= before + Bytes::mib(55));
    rig.calls.hide(&volume);
    is_sound(&volume);
    rig.calls.delete(&volume).expect("delete");
}

/// A former tenant's bytes at a device's end could be a signature of md or GPT.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_a_former_tenant_left_at_the_new_end_is_gone() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    for mode in modes().into_iter().filter(|mode| *mode != Mode::Block) {
        let first = first_size(mode);
        let volume = rig.calls.create("heir", Bytes::mib(first), mode, "").expect("create");
        rig.calls.show(&volume);
        fill(&volume.file("content"), CONTENT);
        for (size, online) in [(first + 64, true), (first + 128, false)] {
            if !online {
                rig.calls.hide(&volume);
            }
            leave_old_bytes(64);
            rig.calls.grow(&volume, Bytes::mib(size)).expect("grow");
            let lv = volume.lv("vg0");
            run("lvchange", &["-ay", &lv]);
            let mut end = vec![0; OLD];
            let device = File::open(device_of(&lv)).expect("the device");
            device.read_exact_at(&mut end, (size << 20) - OLD as u64).expect("its end");
            assert!(end != noise(7, OLD), "{mode}, online: {online}");
        }
        run("lvchange", &["-an", &volume.lv("vg0")]);
        is_sound(&volume);
        rig.calls.show(&volume);
        assert!(holds(&volume.file("content"), CONTENT), "{mode}");
        rig.calls.hide(&volume);
        rig.calls.delete(&volume).expect("delete");
    }
}

const OLD: usize = 64 << 10;

/// Lets a volume be there that ends in noise, of so many MiB, where the next extents are taken from.
fn leave_old_bytes(mib: u64) {
    run("lvcreate", &["-y", "-Wn", "-L", &format!("{mib}m"), "-n", "old", "vg0"]);
    let old = File::options().write(true).open(device_of("vg0/old")).expect("the device");
    old.write_all_at(&noise(7, OLD), (mib << 20) - OLD as u64).expect("write");
    old.sync_all().expect("sync");
    drop(old);
    run("lvremove", &["-y", "-f", "vg0/old"]);
}

/// The kernel does not grow an ext4 with `sparse_super2` while it is mounted.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_the_kernel_does_not_grow_is_grown_between_two_uses() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = sparse_super2(&mut rig, "");
    let before = rig.calls.shown_size(&volume);

    let online = rig.calls.grow(&volume, Bytes::mib(128)).expect("grow");
    let refused = rig.calls.node_grow(&volume, Bytes::mib(128)).expect_err("no online growth");
    assert_eq!(online, (Bytes::mib(128), true));
    assert_eq!(refused.code, Code::FailedPrecondition, "{refused}");
    assert_eq!(rig.calls.shown_size(&volume), before);
    rig.calls.hide(&volume);
    rig.calls.show(&volume);
    let staged = rig.calls.shown_size(&volume);
    assert!(staged >= before + Bytes::mib(55), "{before} became {staged}");
    rig.calls.hide(&volume);

    let offline = rig.calls.grow(&volume, Bytes::mib(192)).expect("grow");
    assert_eq!(offline, (Bytes::mib(192), false));
    is_sound(&volume);
    rig.calls.show(&volume);
    assert!(rig.calls.shown_size(&volume) >= staged + Bytes::mib(55));
    assert!(holds(&volume.file("content"), CONTENT));
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
}

/// A volume of 64 MiB with content, formatted by hand as the driver would not; published.
fn sparse_super2(rig: &mut Rig, parameters: &str) -> Volume {
    let volume = rig.calls.create("sparse", Bytes::mib(64), EXT4, parameters).expect("create");
    rig.calls.stage(&volume).expect("stage");
    rig.calls.unstage(&volume).expect("unstage");
    let lv = volume.lv("vg0");
    run("lvchange", &["-ay", &lv]);
    let device = device_of(&lv).to_string_lossy().into_owned();
    run("mkfs.ext4", &["-q", "-F", "-O", "sparse_super2,^resize_inode", &device]);
    rig.calls.show(&volume);
    fill(&volume.file("content"), CONTENT);
    volume
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_safety_snapshot_is_taken_where_there_is_room_and_gone_afterwards() {
    let disk = Disk::of(256 << 20);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    for (safety, taken) in [("Required", true), ("BestEffort", true), ("Off", false)] {
        let parameters = format!("resizeSnapshot={safety}");
        let volume = rig.calls.create(safety, Bytes::mib(64), EXT4, &parameters).expect("create");
        rig.calls.show(&volume);
        fill(&volume.file("content"), CONTENT);
        rig.calls.hide(&volume);

        let grown = rig.calls.grow(&volume, Bytes::mib(128)).expect("grow");

        assert_eq!(grown, (Bytes::mib(128), false), "{safety}");
        assert_eq!(was_ever_in_metadata(&disk, &snapshot_of(&volume)), taken, "{safety}");
        assert_eq!(volumes_of("vg0").len(), 1, "{safety}");
        rig.calls.show(&volume);
        assert!(holds(&volume.file("content"), CONTENT), "{safety}");
        rig.calls.hide(&volume);
        rig.calls.delete(&volume).expect("delete");
    }
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn without_room_for_a_snapshot_only_best_effort_grows() {
    // 59 extents of 4 MiB: 64 MiB grown to 232 MiB leave one, and a snapshot takes seven.
    let disk = Disk::of(253 << 20);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    for (safety, node_step) in [("Required", true), ("BestEffort", false)] {
        let parameters = format!("resizeSnapshot={safety}");
        let volume = rig.calls.create(safety, Bytes::mib(64), EXT4, &parameters).expect("create");
        rig.calls.show(&volume);
        fill(&volume.file("content"), CONTENT);
        rig.calls.hide(&volume);

        let grown = rig.calls.grow(&volume, Bytes::mib(232)).expect("grow");

        assert_eq!(grown, (Bytes::mib(232), node_step), "{safety}");
        assert!(!was_ever_in_metadata(&disk, &snapshot_of(&volume)), "{safety}");
        // What is mounted grows through its journal: that needs no snapshot.
        rig.calls.show(&volume);
        assert!(rig.calls.shown_size(&volume) > Bytes::mib(190), "{safety}");
        assert!(holds(&volume.file("content"), CONTENT), "{safety}");
        rig.calls.hide(&volume);
        rig.calls.delete(&volume).expect("delete");
    }
}

fn snapshot_of(volume: &Volume) -> String {
    volume.lv("vg0").replace("vg0/", "") + ".resize"
}

/// Old texts stay in the ring of the metadata area for long: whether one names this.
fn was_ever_in_metadata(disk: &Disk, name: &str) -> bool {
    let file = File::open(disk.device()).expect("disk");
    let mut ring = vec![0; 16 << 20];
    file.read_exact_at(&mut ring, 0).expect("read");
    ring.windows(name.len()).any(|window| window == name.as_bytes())
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_damaged_file_system_is_not_grown_and_stays_as_it_was() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = rig.calls.create("damaged", Bytes::mib(64), EXT4, "").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file("content"), CONTENT);
    rig.calls.hide(&volume);
    let lv = volume.lv("vg0");
    run("lvchange", &["-ay", &lv]);
    let device = device_of(&lv);
    // Two files that claim the same blocks: no checker decides that alone.
    let damage = "set_inode_field <11> block[0] 1";
    let path = device.to_string_lossy().into_owned();
    run("debugfs", &["-w", "-R", damage, &path]);
    run("debugfs", &["-w", "-R", "clri <2>", &path]);
    assert!(attempt("e2fsck", &["-f", "-n", &path]).is_err());
    run("blockdev", &["--flushbufs", &path]);
    let before = first_bytes(&device, 64);

    let grown = rig.calls.grow(&volume, Bytes::mib(128)).expect("the device grows");

    assert_eq!(grown, (Bytes::mib(128), true));
    assert_eq!(volumes_of("vg0").len(), 1);
    run("lvchange", &["-ay", &lv]);
    assert!(first_bytes(&device_of(&lv), 64) == before, "not a byte may differ");
    run("lvchange", &["-an", &lv]);
    rig.calls.delete(&volume).expect("delete");
}

/// The SHA-256 of the first MiB of a device.
fn first_bytes(device: &Path, mib: u64) -> String {
    let copy = Path::new("/tmp/first-bytes");
    let (from, to) = (format!("if={}", device.display()), format!("of={}", copy.display()));
    run("dd", &[&from, &to, "bs=1M", &format!("count={mib}"), "iflag=direct"]);
    let sum = sha256(copy);
    std::fs::remove_file(copy).expect("remove");
    sum
}
