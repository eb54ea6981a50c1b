//! Faults of disks and groups: what cannot be done says so, what can be done goes on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use pliant::bytes::Bytes;
use pliant::volume::Mode;
use tonic::Code;

use crate::csi::{Calls, EXT4, Rig, Volume, fill, group, group_of, holds, volumes_of};
use crate::machine::{Disk, attempt, figure, run, sha256};

const POOLS: [&str; 4] = ["--pool", "bad=vg0", "--pool", "good=vg1"];
const SMALL: Bytes = Bytes::mib(8);

/// Two pools of one disk each.
fn two_pools() -> [Disk; 2] {
    let disks = [Disk::of(256 << 20), Disk::of(256 << 20)];
    group("vg0", &[&disks[0]]);
    group("vg1", &[&disks[1]]);
    disks
}

/// A disk under a device-mapper device, which can be made to fail.
struct Layer<'a> {
    disk: &'a Disk,
    name: &'static str,
    sectors: String,
}

impl<'a> Layer<'a> {
    fn over(disk: &'a Disk, name: &'static str) -> Layer<'a> {
        let sectors = run("blockdev", &["--getsz", disk.device()]).trim().to_owned();
        let layer = Layer { disk, name, sectors };
        run("dmsetup", &["create", name, "--table", &layer.table("linear", "")]);
        layer
    }

    fn device(&self) -> String {
        let node = run("dmsetup", &["info", "-c", "--noheadings", "-o", "blkdevname", self.name]);
        format!("/dev/{}", node.trim())
    }

    fn table(&self, kind: &str, more: &str) -> String {
        format!("0 {} {kind} {} 0 {more}", self.sectors, self.disk.device())
    }

    /// Makes it another kind of device under whoever uses it.
    fn becomes(&self, table: &str) {
        run("dmsetup", &["suspend", "--noflush", "--nolockfs", self.name]);
        run("dmsetup", &["load", self.name, "--table", table]);
        run("dmsetup", &["resume", self.name]);
    }

    fn heals(&self) {
        self.becomes(&self.table("linear", ""));
    }
}

/// A layer that answers nothing until this is dropped, also by a test that fails: a driver that waits
/// for it could not even be killed.
struct Suspended(&'static str);

impl Suspended {
    fn now(layer: &Layer) -> Suspended {
        run("dmsetup", &["suspend", "--noflush", "--nolockfs", layer.name]);
        Suspended(layer.name)
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let _ = attempt("dmsetup", &["resume", self.0]);
    }
}

/// The other pool makes and removes a volume.
fn good_serves(rig: &mut Rig) {
    let volume = rig.calls.create("elsewhere", SMALL, EXT4, "pool=good").expect("create");
    rig.calls.show(&volume);
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
}

/// What a call on the bad pool's volume answers, for each call that a caller makes.
fn codes(rig: &mut Rig, volume: &Volume) -> [Code; 4] {
    let create = rig.calls.create("new", SMALL, Mode::Block, "pool=bad").map(drop);
    let grow = rig.calls.grow(volume, Bytes::mib(200)).map(drop);
    let stage = rig.calls.stage(volume);
    let delete = rig.calls.delete(volume);
    [create, grow, stage, delete].map(|answer| {
        answer.map_or_else(
            |error| {
                println!("{error}");
                error.code
            },
            |()| Code::Ok,
        )
    })
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn the_room_that_is_told_is_there_to_the_extent() {
    let disk = Disk::of(256 << 20);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let (extent, whole) = (Bytes::mib(4), Bytes::mib(59 * 4));
    assert_eq!(rig.calls.room("").expect("room"), (whole, whole));

    let first = rig.calls.create("first", Bytes::mib(64), Mode::Block, "").expect("create");
    let (free, largest) = rig.calls.room("").expect("room");
    let refused = rig.calls.create("large", largest + Bytes::new(1), Mode::Block, "");
    let refused = refused.expect_err("one byte too many");
    let too_far = rig.calls.grow(&first, Bytes::mib(64) + largest + Bytes::new(1));
    let too_far = too_far.expect_err("one byte too many");
    let all = rig.calls.create("large", largest, Mode::Block, "").expect("the largest possible");

    assert_eq!((free, largest), (whole - Bytes::mib(64), whole - Bytes::mib(64)));
    assert_eq!(refused.code, Code::ResourceExhausted, "{refused}");
    assert_eq!(too_far.code, Code::OutOfRange, "{too_far}");
    for (error, most) in [(&refused, largest), (&too_far, largest + Bytes::mib(64))] {
        for number in [free.to_string(), most.to_string(), most.exact()] {
            assert!(error.message.contains(&number), "{number} is not in: {error}");
        }
    }
    assert_eq!(rig.calls.room("").expect("room"), (Bytes::ZERO, Bytes::ZERO));
    rig.calls.delete(&all).expect("delete");
    let grown = rig.calls.grow(&first, whole - extent).expect("grow");
    assert_eq!(grown, (whole - extent, false));
    assert_eq!(rig.calls.room("").expect("room"), (extent, extent));
    rig.calls.delete(&first).expect("delete");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_machine_with_none_of_the_groups_that_are_named_ends_with_the_reason() {
    let _disks = two_pools();
    let said = attempt(
        env!("CARGO_BIN_EXE_pliant"),
        &["standalone", "--node-id=n1", "--endpoint=unix:///run/nope/csi.sock", "--pool=fast=nope"],
    )
    .expect_err("it serves nothing");
    let words = "nothing to serve: no disk of this node carries volume group nope; the node has vg0 and vg1";
    assert!(said.contains(words), "{said}");
    assert!(!Path::new("/run/nope/csi.sock").exists(), "it has served");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_lost_disk_is_unavailable_and_never_not_found() {
    let disks = [Disk::of(128 << 20), Disk::of(128 << 20), Disk::of(256 << 20)];
    group("vg0", &[&disks[0], &disks[1]]);
    group("vg1", &[&disks[2]]);
    let mut rig = Rig::with(&POOLS);
    // 54 extents of two disks: the volume lies on both.
    let volume = rig.calls.create("v", Bytes::mib(180), EXT4, "pool=bad").expect("create");
    rig.calls.show(&volume);
    rig.calls.hide(&volume);

    let [one, two, _other] = disks;
    drop(two);
    assert_eq!(codes(&mut rig, &volume), [Code::Unavailable; 4]);
    assert!(rig.calls.ids().contains(&volume.id));
    good_serves(&mut rig);

    drop(one);
    assert_eq!(codes(&mut rig, &volume), [Code::Unavailable; 4]);
    good_serves(&mut rig);
    rig.crash();
    assert_eq!(codes(&mut rig, &volume), [Code::Unavailable; 4]);
    good_serves(&mut rig);
}

/// The live tables of the devices of a volume, the hidden ones too.
fn tables_of(volume: &Volume) -> Vec<String> {
    let name = volume.lv("vg0").replace('-', "--").replace("vg0/", "vg0-");
    let tables = run("dmsetup", &["table"]);
    let own = tables.lines().filter(|line| line.starts_with(&name));
    own.map(str::to_owned).collect()
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_disk_that_comes_back_under_another_number_gets_what_is_unused_and_not_what_is_open() {
    let mut disk = Disk::of(512 << 20);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let mut made = |name: &str, mode| {
        let volume = rig.calls.create(name, Bytes::mib(48), mode, "").expect("create");
        rig.calls.show(&volume);
        fill(&volume.file("content"), 0..8);
        volume
    };
    let open = [made("open", EXT4), made("open-origin", EXT4)];
    let unused = [made("unused", Mode::Block), made("unused-origin", Mode::Block)];
    for volume in &unused {
        rig.calls.hide(volume);
        run("lvchange", &["-ay", &volume.lv("vg0")]);
    }
    // The bytes of these are behind hidden devices.
    for (origin, snapshot) in [(&open[1], "first"), (&unused[1], "second")] {
        run("lvcreate", &["-y", "-s", "-L", "8m", "-n", snapshot, &origin.lv("vg0")]);
        assert_eq!(tables_of(origin).len(), 2, "{snapshot}");
    }
    let before = open.each_ref().map(tables_of);
    let old = disk.number();
    disk.come_back_elsewhere();
    let new = disk.number();
    assert_ne!(old, new);

    for again in [false, true] {
        for volume in &open {
            let staged = rig.calls.stage(volume).expect_err("its device is dead");
            let grown = rig.calls.grow(volume, Bytes::mib(56)).expect_err("its device is dead");
            for said in [staged, grown] {
                assert_eq!(said.code, Code::Unavailable, "{said}");
                let is_named = [&old, &new].iter().all(|number| said.to_string().contains(*number));
                assert!(is_named, "{said}");
            }
            let stats = rig.calls.stats(volume).expect("stats");
            let condition = stats.volume_condition.expect("condition");
            assert!(condition.abnormal && condition.message.contains(&new), "{condition:?}");
        }
        for volume in unused.iter().filter(|_| !again) {
            rig.calls.show(volume);
            assert!(holds(&volume.file(""), 0..8), "its bytes are where they were");
            let tables = tables_of(volume);
            assert!(tables.iter().any(|table| table.contains(&new)), "{tables:?}");
            assert!(!tables.iter().any(|table| table.contains(&old)), "{tables:?}");
        }
        assert_eq!(open.each_ref().map(tables_of), before, "{again}");
        rig.crash(); // Healing at the start leaves it too.
    }
    for volume in &open {
        rig.calls.hide(volume);
        rig.calls.show(volume);
        assert!(holds(&volume.file("content"), 0..8), "its bytes are where they were");
        assert!(tables_of(volume).iter().any(|table| table.contains(&new)));
    }
    run("lvremove", &["-y", "vg0/first", "vg0/second"]);
    for volume in open.iter().chain(&unused) {
        rig.calls.hide(volume);
        rig.calls.delete(volume).expect("delete");
    }
    assert_eq!(volumes_of("vg0"), [""; 0]);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_read_only_disk_changes_nothing_and_stops_nobody_else() {
    let disks = two_pools();
    let mut rig = Rig::with(&POOLS);
    let volume = rig.calls.create("v", Bytes::mib(64), EXT4, "pool=bad").expect("create");
    rig.calls.show(&volume);
    rig.calls.hide(&volume);
    run("blockdev", &["--setro", disks[0].device()]);
    let before = sha256(Path::new(disks[0].device()));

    let create = rig.calls.create("new", SMALL, Mode::Block, "pool=bad").map(drop);
    let grow = rig.calls.grow(&volume, Bytes::mib(128)).map(drop);
    let delete = rig.calls.delete(&volume);
    for answer in [create, grow, delete] {
        let refused = answer.expect_err("the disk is read-only");
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        assert!(refused.message.contains(disks[0].device()), "{refused}");
    }
    assert_eq!(sha256(Path::new(disks[0].device())), before);
    good_serves(&mut rig);

    run("blockdev", &["--setrw", disks[0].device()]);
    rig.calls.show(&volume);
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
}

/// Damage is refused; nothing is initialised anew, and what was there comes back with the bytes.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn damaged_metadata_is_refused_and_never_made_anew() {
    let disks = two_pools();
    let mut rig = Rig::with(&POOLS);
    let volume = rig.calls.create("v", Bytes::mib(64), EXT4, "pool=bad").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file("content"), 0..4);
    rig.calls.hide(&volume);
    rig.stop();

    // A byte of the label, of the metadata area's header, and of all texts.
    for damaged in [512 + 40..512 + 41, 4096 + 8..4096 + 9, 4608..(1 << 20)] {
        let original = damage(&disks[0], &damaged);
        let before = sha256(Path::new(disks[0].device()));
        let made = format!("made=create:{}", disks[0].device());
        let made = ["--pool", &made, "--pool", "good=vg1"];
        // A permission to wipe it was given before there were volumes on it.
        let given_away = [&made[..], &["--allow-wipe-disk", disks[0].device()]].concat();
        for arguments in [&POOLS[..], &made, &given_away] {
            rig = Rig::with(arguments);
            let name = &arguments[1][..4].trim_end_matches('=');
            let refused = rig.calls.create("new", SMALL, Mode::Block, &format!("pool={name}"));
            let refused = refused.expect_err("it is damaged");
            assert_eq!(refused.code, Code::Unavailable, "{damaged:?} {refused}");
            println!("{refused}");
            let lost = rig.calls.stage(&volume).expect_err("it can not be seen");
            assert_eq!(lost.code, Code::Unavailable, "{damaged:?} {lost}");
            good_serves(&mut rig);
            rig.stop();
        }
        assert_eq!(sha256(Path::new(disks[0].device())), before, "{damaged:?}");
        write_through(&disks[0], damaged.start, &original);
    }
    rig = Rig::with(&POOLS);
    rig.calls.show(&volume);
    assert!(holds(&volume.file("content"), 0..4));
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
}

/// Turns the bits of a range; returns what was there.
fn damage(disk: &Disk, range: &std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("length")];
    run("blockdev", &["--flushbufs", disk.device()]);
    File::open(disk.device()).expect("open").read_exact_at(&mut bytes, range.start).expect("read");
    let turned: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    write_through(disk, range.start, &turned);
    bytes
}

fn write_through(disk: &Disk, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(disk.device()).expect("open");
    file.write_all_at(bytes, at).expect("write");
    file.sync_all().expect("fsync");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn groups_and_disks_that_can_not_be_told_apart_are_named() {
    let disks = two_pools();
    let twin = Disk::of(256 << 20);
    let only = format!("devices {{ filter=[\"a|^{}$|\", \"r|.*|\"] }}", twin.device());
    run("vgcreate", &["-y", "--config", &only, "vg0", twin.device()]);
    let mut rig = Rig::with(&POOLS);
    let both = [disks[0].device(), twin.device()];

    let same_name = rig.calls.create("v", SMALL, Mode::Block, "pool=bad").expect_err("two groups");
    assert_eq!(same_name.code, Code::Unavailable, "{same_name}");
    assert!(both.iter().all(|device| same_name.message.contains(device)), "{same_name}");
    good_serves(&mut rig);

    let (from, to) = (format!("if={}", disks[0].device()), format!("of={}", twin.device()));
    run("dd", &[&from, &to, "bs=1M", "count=17", "conv=fsync"]);
    let same_disk = rig.calls.create("v", SMALL, Mode::Block, "pool=bad").expect_err("two disks");
    assert_eq!(same_disk.code, Code::Unavailable, "{same_disk}");
    assert!(both.iter().all(|device| same_disk.message.contains(device)), "{same_disk}");
    good_serves(&mut rig);

    drop(twin);
    let volume = rig.calls.create("v", SMALL, Mode::Block, "pool=bad").expect("the twin is gone");
    rig.calls.delete(&volume).expect("delete");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_an_administrator_changes_is_seen_at_once() {
    let disk = Disk::of(256 << 20);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = rig.calls.create("v", Bytes::mib(64), EXT4, "").expect("create");
    let (free, _) = rig.calls.room("").expect("room");

    run("lvcreate", &["-y", "-an", "-Zn", "-Wn", "-L", "16m", "-n", "theirs", "vg0"]);
    assert_eq!(rig.calls.room("").expect("room").0, free - Bytes::mib(16));
    run("lvextend", &["-L", "+16m", &volume.lv("vg0")]);
    assert_eq!(rig.calls.room("").expect("room").0, free - Bytes::mib(32));
    run("lvremove", &["-y", "-f", &volume.lv("vg0")]);
    assert_eq!(rig.calls.room("").expect("room").0, free + Bytes::mib(48));

    assert_eq!(rig.calls.ids(), [""; 0]);
    let gone = rig.calls.grow(&volume, Bytes::mib(128)).expect_err("it is gone");
    assert_eq!(gone.code, Code::NotFound, "{gone}");
    let again = rig.calls.create("v", Bytes::mib(64), EXT4, "").expect("create");
    assert_eq!(again.id, volume.id);
    rig.calls.show(&again);
    rig.calls.hide(&again);
    rig.calls.delete(&again).expect("delete");
    run("vgrename", &["vg0", "renamed"]);
    let renamed = rig.calls.create("v", SMALL, Mode::Block, "").expect_err("no such group");
    assert_eq!(renamed.code, Code::Unavailable, "{renamed}");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_hung_disk_stops_only_its_own_group() {
    let disks = [Disk::of(256 << 20), Disk::of(256 << 20)];
    let layer = Layer::over(&disks[0], "hanging");
    group_of("vg0", &["--metadatasize", "16m", &layer.device()]);
    group("vg1", &[&disks[1]]);
    let mut rig = Rig::with(&POOLS);
    let volume = rig.calls.create("v", Bytes::mib(64), Mode::Block, "pool=bad").expect("create");
    let shells = shells(&rig);
    let began = Instant::now();
    good_serves(&mut rig);
    let alone = began.elapsed();

    let suspended = Suspended::now(&layer);
    let hung = volume.clone();
    let caller = std::thread::spawn(move || Calls::connect().grow(&hung, Bytes::mib(128)));
    let began = Instant::now();
    good_serves(&mut rig);
    let beside = began.elapsed();
    assert!(!caller.is_finished(), "the disk hangs, and a call on it has come back");
    let first = caller.join().expect("the caller").expect_err("the disk hangs");
    assert_eq!(first.code, Code::Unavailable, "{first}");
    assert_eq!(codes(&mut rig, &volume), [Code::Unavailable; 4]);
    good_serves(&mut rig);
    assert_eq!(self::shells(&rig)[..1], shells[..1], "an lvm process was killed");

    drop(suspended);
    let begin = Instant::now();
    let grown = loop {
        match rig.calls.grow(&volume, Bytes::mib(128)) {
            Ok(grown) => break grown,
            Err(error) => assert_eq!(error.code, Code::Unavailable, "{error}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not recover");
    };
    assert_eq!(grown, (Bytes::mib(128), false));
    rig.calls.delete(&volume).expect("delete");
    figure("healthy_group_seconds_alone", alone.as_secs_f64());
    figure("healthy_group_seconds_beside_a_hung_one", beside.as_secs_f64());
    rig.stop();
    drop(rig);
    run("vgremove", &["-y", "-f", "vg0"]);
    run("dmsetup", &["remove", layer.name]);
}

/// The process ids of the driver's lvm shells, the oldest first.
fn shells(rig: &Rig) -> Vec<String> {
    let pid = rig.driver.as_ref().expect("a driver").pid().to_string();
    let found = attempt("pgrep", &["-P", &pid, "-x", "lvm"]).unwrap_or_default();
    found.split_whitespace().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn errors_of_a_disk_are_unavailable_and_pass() {
    let disks = [Disk::of(256 << 20), Disk::of(256 << 20)];
    let layer = Layer::over(&disks[0], "failing");
    group_of("vg0", &["--metadatasize", "16m", &layer.device()]);
    group("vg1", &[&disks[1]]);
    let mut rig = Rig::with(&POOLS);
    let volume = rig.calls.create("v", Bytes::mib(64), EXT4, "pool=bad").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file("content"), 0..4);
    rig.calls.hide(&volume);

    // Reads and writes fail, and what lies below stays hidden.
    layer.becomes(&layer.table("flakey", "0 3600"));
    assert_eq!(codes(&mut rig, &volume), [Code::Unavailable; 4]);
    good_serves(&mut rig);
    layer.heals();

    rig.calls.show(&volume);
    assert!(holds(&volume.file("content"), 0..4));
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
    rig.stop();
    drop(rig);
    run("vgremove", &["-y", "-f", "vg0"]);
    run("dmsetup", &["remove", layer.name]);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_file_system_that_refuses_writes_is_told() {
    let disk = Disk::of(256 << 20);
    let layer = Layer::over(&disk, "flaky");
    group_of("vg0", &["--metadatasize", "16m", &layer.device()]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = rig.calls.create("v", Bytes::mib(64), EXT4, "").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file("content"), 0..4);
    let sound = rig.calls.stats(&volume).expect("stats").volume_condition.expect("condition");
    assert!(!sound.abnormal, "{sound:?}");

    layer.becomes(&layer.table("flakey", "0 3600 1 error_writes"));
    // Bytes of files that cannot be written concern the writer alone. A name that cannot be ends the
    // journal, and the next change turns the file system.
    for name in ["first", "next"] {
        let named = fs::create_dir(volume.target().join(name))
            .and_then(|()| File::open(volume.target())?.sync_all());
        named.expect_err("the disk takes no writes");
    }

    let ailing = rig.calls.stats(&volume).expect("stats").volume_condition.expect("condition");
    assert!(ailing.abnormal && ailing.message.contains("read-only"), "{ailing:?}");
    layer.heals();
    rig.calls.hide(&volume);
    rig.calls.show(&volume);
    assert!(holds(&volume.file("content"), 0..4));
    let sound = rig.calls.stats(&volume).expect("stats").volume_condition.expect("condition");
    assert!(!sound.abnormal, "{sound:?}");
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
    rig.stop();
    drop(rig);
    run("vgremove", &["-y", "-f", "vg0"]);
    run("dmsetup", &["remove", layer.name]);
}

/// A metadata area cannot be enlarged, and a full one could not even take the text of a removal.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_full_metadata_area_is_told_before_it_is_too_late() {
    let disk = Disk::of(512 << 20);
    group_of(
        "vg0",
        &["--metadatasize", "64k", "--dataalignment", "64k", "-s", "1m", disk.device()],
    );
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let mut volumes = Vec::new();
    let refused = loop {
        let name = format!("v{}", volumes.len());
        match rig.calls.create(&name, Bytes::mib(1), Mode::Block, "") {
            Ok(volume) => volumes.push(volume),
            Err(refused) => break refused,
        }
    };

    assert_eq!(refused.code, Code::ResourceExhausted, "{refused}");
    assert!(refused.message.contains("metadata area"), "{refused}");
    assert!(volumes.len() > 20, "only {} volumes fit", volumes.len());
    assert_eq!(rig.calls.room("").expect("room").1, Bytes::ZERO);
    for volume in &volumes {
        let grown = rig.calls.grow(volume, Bytes::mib(2)).expect("what is there still grows");
        assert_eq!(grown, (Bytes::mib(2), false));
    }
    for volume in &volumes {
        rig.calls.delete(volume).expect("delete");
    }
    assert_eq!(volumes_of("vg0"), [""; 0]);
    assert!(rig.calls.room("").expect("room").1 > Bytes::mib(400));
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_driver_that_lost_everything_finds_its_volumes_again() {
    let disk = Disk::of(512 << 20);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let mut volumes = Vec::new();
    for name in ["a", "b", "c", "d"] {
        volumes.push(rig.calls.create(name, Bytes::mib(64), EXT4, "").expect("create"));
    }
    rig.calls.show(&volumes[0]);
    fill(&volumes[0].file("content"), 0..4);
    let ids = rig.calls.ids();
    let killed = rig.driver.take().expect("a driver").kill().expect("wait");
    assert_eq!(killed.code(), None);
    fs::remove_dir_all("/run/pliant").expect("remove the state directory");

    let begin = Instant::now();
    rig.restart();
    assert_eq!(rig.calls.ids(), ids);
    let took = begin.elapsed();
    figure("found_again_seconds", took.as_secs_f64());

    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(holds(&volumes[0].file("content"), 0..4));
    rig.calls.grow(&volumes[0], Bytes::mib(128)).expect("grow");
    rig.calls.hide(&volumes[0]);
    for volume in &volumes {
        rig.calls.delete(volume).expect("delete");
    }
    assert_eq!(volumes_of("vg0"), [""; 0]);
}
