//! SIGKILL at each system call by which a command changes something, and at random moments of the
//! driver itself. After each: the driver is asked again, gives the answer of an undisturbed run, and
//! nothing is suspended, leaked or lost.
//!
//! A killed command leaves the same state whoever has started it, so the commands are started here,
//! under strace, in the words that the driver uses.

use std::fs::{self, File};
use std::mem;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pliant::host::Cmd;
use pliant::lvm::THIN_POOL;
use pliant::node::lv_tags::{self, StoredState, VolumeTags};
use pliant::volume::{FsKind, Mode, NewVolume, NodeKey, Source, VolumeKey};
use tokio::runtime::Runtime;

use crate::exhaustive::exhaustive;
use crate::machine::{Disk, figure, run};
use crate::power_cuts_of_the_driver::{copy_data, number, only, power_off};
use crate::promises::{GROUP, Machine, NODE, id, new_volume};
use crate::script::{Part, Step, World};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);
const XFS: Mode = Mode::Filesystem(FsKind::Xfs);
const BTRFS: Mode = Mode::Filesystem(FsKind::Btrfs);
/// Points of a command that are tried unless all are.
const FEW: usize = 4;

/// What LVM makes for a moment before it makes a thin pool: 4 MiB each, without a name or a tag that says so. It may be
/// anyone's, so that nobody but its administrator removes it.
const LVM_LEAVES: [&str; 3] = [
    "logical volume lvol0 is left",
    "logical volume lvol1_pmspare is left",
    "device vg0-lvol0 is half-changed",
];

/// A command to be killed half-way.
struct Case {
    /// What was done and acknowledged before.
    before: &'static [Step],
    /// What else the driver has done of the step when it comes to the command.
    half: fn() -> Vec<Cmd>,
    /// The command; `DEVICE` stands for the volume's device.
    command: fn() -> Cmd,
    /// The step that the driver is asked for, again.
    step: Step,
}

const FILE: Step = Step::Write("c", Part::File("one", 2048));
const WRITTEN: &[Step] = &[Step::Create("c", EXT4, 40), Step::Stage("c"), FILE];
const UNSTAGED: &[Step] =
    &[Step::Create("c", EXT4, 40), Step::Stage("c"), FILE, Step::Unstage("c")];
const CLONE: Step = Step::Clone("k", "c", 40);
const THIN_FILE: Step = Step::Write("thin", Part::File("one", 2048));
const THIN_WRITTEN: &[Step] = &[Step::Create("thin", EXT4, 40), Step::Stage("thin"), THIN_FILE];
const RAW: &[Step] =
    &[Step::Create("a", Mode::Block, 16), Step::Stage("a"), Step::Write("a", Part::Mib(0, 16))];

const CASES: &[(&str, Case)] = &[
    (
        "lvcreate",
        Case {
            before: WRITTEN,
            half: Vec::new,
            command: || create("a", Mode::Block, 4),
            step: Step::Create("a", Mode::Block, 16),
        },
    ),
    (
        "lvchange of a tag",
        Case {
            before: &[Step::Create("a", Mode::Block, 16), Step::Stage("a")],
            half: || vec![retag("a", "shown", "new")],
            command: || retag("a", "new", "shown"),
            step: Step::Stage("a"),
        },
    ),
    (
        "lvextend under a mounted file system",
        Case {
            before: WRITTEN,
            half: Vec::new,
            command: || extend("c", 14),
            step: Step::Grow("c", 56),
        },
    ),
    (
        "lvextend of a raw device",
        Case { before: RAW, half: Vec::new, command: || extend("a", 6), step: Step::Grow("a", 24) },
    ),
    (
        "lvcreate of extents to be wiped",
        Case { before: RAW, half: Vec::new, command: || more("a", 2), step: Step::Grow("a", 24) },
    ),
    (
        "lvremove of wiped extents",
        Case {
            before: RAW,
            half: || vec![more("a", 2)],
            command: || Cmd::new("lvremove").args(["-y", "-f"]).arg(path("a", ".extend")),
            step: Step::Grow("a", 24),
        },
    ),
    (
        "lvremove",
        Case {
            before: &[
                Step::Create("a", Mode::Block, 16),
                Step::Stage("a"),
                Step::Write("a", Part::Mib(0, 16)),
                Step::Unstage("a"),
            ],
            half: || vec![change("a", &["-ay"])],
            command: || Cmd::new("lvremove").args(["-y", "-f"]).arg(path("a", "")),
            step: Step::Delete("a"),
        },
    ),
    (
        "lvchange -ay",
        Case {
            before: UNSTAGED,
            half: Vec::new,
            command: || change("c", &["-ay", "--poll", "n"]),
            step: Step::Stage("c"),
        },
    ),
    (
        "lvchange -an",
        Case {
            before: UNSTAGED,
            half: || vec![change("c", &["-ay"])],
            command: || change("c", &["-an"]),
            step: Step::Unstage("c"),
        },
    ),
    (
        "lvcreate of a safety snapshot",
        Case {
            before: UNSTAGED,
            half: || vec![change("c", &["-ay"]), extend("c", 14)],
            command: || snapshot("c"),
            step: Step::Grow("c", 56),
        },
    ),
    (
        "lvremove of a safety snapshot",
        Case {
            before: UNSTAGED,
            half: || vec![change("c", &["-ay"]), extend("c", 14), snapshot("c")],
            command: || Cmd::new("lvremove").args(["-y", "-f"]).arg(path("c", ".resize")),
            step: Step::Grow("c", 56),
        },
    ),
    (
        "e2fsck under a safety snapshot",
        Case {
            before: UNSTAGED,
            half: || vec![change("c", &["-ay"]), extend("c", 14), snapshot("c")],
            command: || Cmd::new("e2fsck").args(["-f", "-p", "DEVICE"]),
            step: Step::Grow("c", 56),
        },
    ),
    (
        "resize2fs under a safety snapshot",
        Case {
            before: UNSTAGED,
            half: || {
                let check = Cmd::new("e2fsck").args(["-f", "-p", "DEVICE"]);
                vec![change("c", &["-ay"]), extend("c", 14), snapshot("c"), check]
            },
            command: || Cmd::new("resize2fs").arg("DEVICE"),
            step: Step::Grow("c", 56),
        },
    ),
    (
        "resize2fs that shrinks under a safety snapshot",
        Case {
            before: UNSTAGED,
            half: || {
                let check = Cmd::new("e2fsck").args(["-f", "-p", "DEVICE"]);
                vec![change("c", &["-ay"]), limit("c", 36), snapshot("c"), check]
            },
            command: || Cmd::new("resize2fs").args(["DEVICE", "36864K"]),
            step: Step::Shrink("c", 36),
        },
    ),
    (
        "lvreduce",
        Case {
            before: UNSTAGED,
            half: || {
                let check = Cmd::new("e2fsck").args(["-f", "-p", "DEVICE"]);
                let shrink = Cmd::new("resize2fs").args(["DEVICE", "36864K"]);
                vec![change("c", &["-ay"]), limit("c", 36), check, shrink]
            },
            command: || Cmd::new("lvreduce").args(["-y", "-l", "9"]).arg(path("c", "")),
            step: Step::Shrink("c", 36),
        },
    ),
    (
        "lvcreate of a clone",
        Case { before: WRITTEN, half: Vec::new, command: || clone("k", "c", 10), step: CLONE },
    ),
    (
        "lvcreate of a cut under a mounted file system",
        Case {
            before: WRITTEN,
            half: || vec![clone("k", "c", 10)],
            command: || cut("k", "c"),
            step: CLONE,
        },
    ),
    (
        "lvcreate of a cut of an inactive volume",
        Case {
            before: UNSTAGED,
            half: || vec![clone("k", "c", 10)],
            command: || cut("k", "c"),
            step: CLONE,
        },
    ),
    (
        "lvchange -ay of a cut",
        Case {
            before: UNSTAGED,
            half: || vec![clone("k", "c", 10), cut("k", "c"), change("c", &["-an"])],
            command: || {
                Cmd::new("lvchange").args(["-y", "-ay", "-K", "--poll", "n"]).arg(path("k", ".cut"))
            },
            step: CLONE,
        },
    ),
    (
        "lvremove of a cut",
        Case {
            before: WRITTEN,
            half: || vec![clone("k", "c", 10), cut("k", "c")],
            command: || Cmd::new("lvremove").args(["-y", "-f"]).arg(path("k", ".cut")),
            step: CLONE,
        },
    ),
    (
        "lvcreate of a thin pool",
        Case {
            before: WRITTEN,
            half: Vec::new,
            command: || {
                Cmd::new("lvcreate")
                    .args(["-y", "-Zy", "--type", "thin-pool", "-l", "28", "-c", "65536b"])
                    .args(["--poolmetadatasize", "4194304b", "--discards", "passdown"])
                    .args(["-n", THIN_POOL, GROUP])
            },
            step: Step::Create("thin", EXT4, 40),
        },
    ),
    (
        "lvcreate of a thin volume",
        Case {
            before: THIN_WRITTEN,
            half: Vec::new,
            command: || thin("thin-2", EXT4, 40),
            step: Step::Create("thin-2", EXT4, 40),
        },
    ),
    (
        "lvcreate of a thin snapshot under a mounted file system",
        Case {
            before: THIN_WRITTEN,
            half: Vec::new,
            command: || share("thin-2", "thin"),
            step: Step::Clone("thin-2", "thin", 40),
        },
    ),
    (
        "lvextend of a thin pool",
        Case {
            before: THIN_WRITTEN,
            half: Vec::new,
            command: || {
                let pool = format!("{GROUP}/{THIN_POOL}");
                Cmd::new("lvextend").args(["-y", "-l", "40"]).arg(pool)
            },
            step: Step::Create("thin-2", EXT4, 40),
        },
    ),
    (
        "mkfs.ext4",
        Case {
            before: &[Step::Create("c", EXT4, 40)],
            half: || vec![change("c", &["-ay"])],
            command: || {
                let words = ["-F", "-q", "-b", "4096", "-E", "nodiscard", "DEVICE"];
                Cmd::new("mkfs.ext4").args(words)
            },
            step: Step::Stage("c"),
        },
    ),
    (
        "mkfs.xfs",
        Case {
            before: &[Step::Create("e", XFS, 300)],
            half: || vec![change("e", &["-ay"])],
            command: || Cmd::new("mkfs.xfs").args(["-f", "-q", "-K", "DEVICE"]),
            step: Step::Stage("e"),
        },
    ),
    (
        "mkfs.btrfs",
        Case {
            before: &[Step::Create("e", BTRFS, 256)],
            half: || vec![change("e", &["-ay"])],
            command: || Cmd::new("mkfs.btrfs").args(["-f", "-q", "-K", "DEVICE"]),
            step: Step::Stage("e"),
        },
    ),
];

fn path(name: &str, suffix: &str) -> String {
    format!("{GROUP}/pliant-{}{suffix}", VolumeKey::of(name).as_str())
}

fn create(name: &str, mode: Mode, extents: u64) -> Cmd {
    let new = new_volume(name, mode, extents * 4);
    lvcreate(&VolumeTags::new(&NodeKey::of(NODE), &new), extents)
}

/// What a clone is copied to.
fn clone(name: &str, of: &str, extents: u64) -> Cmd {
    let source = Some(Source::Volume(id(of)));
    let new = NewVolume { source, ..new_volume(name, EXT4, extents * 4) };
    let record = VolumeTags::new(&NodeKey::of(NODE), &new);
    lvcreate(&VolumeTags { life: StoredState::Copying, ..record }, extents)
}

/// What it is copied from: a snapshot with room for all of its origin.
fn cut(name: &str, of: &str) -> Cmd {
    Cmd::new("lvcreate")
        .args(["-y", "-s", "-l", "11", "-n"])
        .arg(format!("pliant-{}.cut", VolumeKey::of(name).as_str()))
        .args(["--addtag", "pliant.state=shown"])
        .arg(path(of, ""))
}

fn thin(name: &str, mode: Mode, mib: u64) -> Cmd {
    let record = VolumeTags::new(&NodeKey::of(NODE), &new_volume(name, mode, mib));
    Cmd::new("lvcreate")
        .args(["-y", "-an", "-Wn", "-ky", "-V", &format!("{}b", mib << 20)])
        .args(["--thinpool", THIN_POOL, "-n", &record.lv_name()])
        .args(record.tags().iter().flat_map(|tag| ["--addtag", tag]))
        .arg(GROUP)
}

/// A thin volume that shares the chunks of another.
fn share(name: &str, of: &str) -> Cmd {
    let new = NewVolume { source: Some(Source::Volume(id(of))), ..new_volume(name, EXT4, 40) };
    let record = VolumeTags::new(&NodeKey::of(NODE), &new);
    let record = VolumeTags { life: StoredState::Copying, ..record };
    Cmd::new("lvcreate")
        .args(["-y", "-s", "-ky", "-n", &record.lv_name()])
        .args(record.tags().iter().flat_map(|tag| ["--addtag", tag]))
        .arg(path(of, ""))
}

fn lvcreate(record: &VolumeTags, extents: u64) -> Cmd {
    Cmd::new("lvcreate")
        .args(["-y", "-Wn", "-Zn", "--setautoactivation", "n", "-an"])
        .args(["-l", &extents.to_string(), "-n", &record.lv_name()])
        .args(record.tags().iter().flat_map(|tag| ["--addtag", tag]))
        .arg(GROUP)
}

fn more(name: &str, extents: u64) -> Cmd {
    Cmd::new("lvcreate")
        .args(["-y", "-Wn", "-Zn", "--setautoactivation", "n", "-an"])
        .args(["-l", &extents.to_string(), "-n", &lv_tags::more_name(&VolumeKey::of(name))])
        .args(["--addtag", "pliant.state=new", GROUP])
}

fn snapshot(name: &str) -> Cmd {
    Cmd::new("lvcreate")
        .args(["-y", "-s", "-l", "4", "-n", &lv_tags::safety_name(&VolumeKey::of(name))])
        .args(["--addtag", "pliant.state=shown"])
        .arg(path(name, ""))
}

fn retag(name: &str, from: &str, to: &str) -> Cmd {
    let [from, to] = [from, to].map(|state| format!("pliant.state={state}"));
    Cmd::new("lvchange").args(["-y", "--deltag", &from, "--addtag", &to]).arg(path(name, ""))
}

fn extend(name: &str, extents: u64) -> Cmd {
    Cmd::new("lvextend").args(["-y", "-l", &extents.to_string()]).arg(path(name, ""))
}

fn limit(name: &str, mib: u64) -> Cmd {
    let tag = format!("pliant.max-size={}", mib << 20);
    Cmd::new("lvchange").args(["-y", "--addtag", &tag]).arg(path(name, ""))
}

fn change(name: &str, how: &[&str]) -> Cmd {
    Cmd::new("lvchange").arg("-y").args(how).arg(path(name, ""))
}

/// A system call of a command: the `count`-th of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Point {
    call: String,
    count: usize,
    words: String,
}

#[derive(Debug, Default)]
struct Sums {
    points: usize,
    survived: usize,
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_command_may_be_killed_at_every_change_it_makes() {
    let mut sums = Sums::default();
    for (what, case) in CASES.iter().filter(|(what, _)| what.contains(&only())) {
        let start = Instant::now();
        let before = sums.points;
        kill_everywhere(what, case, &mut sums);
        println!("{what}: {} points, {:?}", sums.points - before, start.elapsed());
    }
    figure("kill_points", number(sums.points));
    figure("kill_points_survived", number(sums.survived));
    assert_eq!(sums.survived, sums.points);
}

/// The snapshot is there and not counted. Whatever is asked for next ends, and no volume gets the chunks of a deleted one.
#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_half_made_snapshot_gives_no_volume_what_another_held() {
    const DELETED: &str = "thin-deleted";
    const CLONE: Step = Step::Clone("thin-2", "thin", 40);
    let case = Case {
        before: &[
            Step::Create("thin", EXT4, 40),
            Step::Create(DELETED, Mode::Block, 40),
            Step::Stage("thin"),
            Step::Stage(DELETED),
            THIN_FILE,
            Step::Write(DELETED, Part::Mib(0, 40)),
            Step::Unstage(DELETED),
        ],
        half: Vec::new,
        command: || share("thin-2", "thin"),
        step: CLONE,
    };
    let (base, disk) = (PathBuf::from("/tmp/prepared"), Disk::of(512 << 20));
    prepare(case.before, &disk);
    copy_data(disk.file(), &base).expect("copy");
    let dry = Bench::on(&disk, &case, "dry");
    let messages: Vec<Point> = dry.points().into_iter().filter(Point::is_message).collect();
    dry.clear();
    assert_eq!(messages.len(), 2, "the snapshot, and its count: {messages:?}");
    for restart in [false, true] {
        copy_data(&base, disk.file()).expect("copy");
        let mut bench = Bench::on(&disk, &case, &format!("half-{restart}"));
        bench.kill_at(&messages[1]);
        if restart {
            bench.restart();
        }
        let raw = Step::Create("thin-raw", Mode::Block, 40);
        let steps = [Step::Delete(DELETED), CLONE, raw, Step::Stage("thin-raw")];
        bench.runtime.block_on(async {
            for step in steps {
                bench.machine.take(step).await.unwrap_or_else(|words| panic!("{restart}: {words}"));
            }
            let all: Vec<Step> = case.before.iter().copied().chain(steps).collect();
            let compared = bench.machine.compare(&World::after(&all), None).await;
            assert_eq!((&compared.broken, compared.canaries), (&vec![], 0), "restart {restart}");
        });
        bench.clear();
    }
    let _ = fs::remove_file(base);
}

fn kill_everywhere(what: &str, case: &Case, sums: &mut Sums) {
    let bytes = 512 << 20;
    let (base, disk) = (PathBuf::from("/tmp/prepared"), Disk::of(bytes));
    prepare(case.before, &disk);
    copy_data(disk.file(), &base).expect("copy");
    let points = {
        let bench = Bench::on(&disk, case, "dry");
        let points = bench.points();
        bench.clear();
        points
    };
    let stride = if exhaustive() { 1 } else { points.len().div_ceil(FEW).max(1) };
    // From the end, because the last changes are the richest. After a message a thin pool is ahead of its metadata.
    let last = points.iter().rev().enumerate();
    let chosen = last.filter(|(at, point)| at % stride == 0 || point.is_message());
    for (number, (_, point)) in chosen.enumerate() {
        copy_data(&base, disk.file()).expect("copy");
        let mut bench = Bench::on(&disk, case, &format!("{number}"));
        bench.kill_at(point);
        // A driver that lives on, and one that is started on what is left.
        let restart = number % 2 == 1;
        if restart {
            bench.restart();
        }
        let mut broken = bench.broken();
        broken.retain(|words| !LVM_LEAVES.iter().any(|left| words.contains(left)));
        bench.clear();
        sums.points += 1;
        sums.survived += usize::from(broken.is_empty());
        if !broken.is_empty() {
            println!("{what}, restart {restart}, killed at {point:?}: {broken:?}");
        }
    }
    let _ = fs::remove_file(base);
}

/// Makes the group and takes the first steps.
fn prepare(before: &[Step], disk: &Disk) {
    run("vgcreate", &["--metadatasize", "16m", GROUP, disk.device()]);
    let runtime = Runtime::new().expect("runtime");
    let host = runtime.block_on(async {
        let machine = Machine::start(Path::new("/tmp/prepare")).await;
        for step in before {
            machine.take(*step).await.unwrap_or_else(|words| panic!("{words}"));
        }
        machine.host
    });
    power_off(runtime, host.as_ref());
}

/// A machine on which the case is about to happen.
struct Bench<'a> {
    case: &'a Case,
    dir: PathBuf,
    runtime: Runtime,
    machine: Machine,
}

impl<'a> Bench<'a> {
    fn on(disk: &Disk, case: &'a Case, name: &str) -> Bench<'a> {
        let dir = PathBuf::from(format!("/tmp/bench-{name}"));
        let _ = fs::remove_dir_all(&dir);
        let runtime = Runtime::new().expect("runtime");
        let machine = runtime.block_on(async {
            let machine = Machine::start(&dir).await;
            let devices = [PathBuf::from(disk.device())];
            machine.host.pin_devices(GROUP, &devices).await.expect("pin");
            for (name, promised) in &World::after(case.before).volumes {
                if promised.staged {
                    machine.take(Step::Stage(name)).await.expect("stage");
                }
            }
            machine
        });
        let bench = Bench { case, dir, runtime, machine };
        for cmd in (case.half)() {
            let status = bench.start(&[], cmd.clone());
            assert!(status.success() || cmd.program == "e2fsck", "{cmd}: {status}");
        }
        bench
    }

    /// Runs a command as the driver does, under a tracer if `tracer` has words.
    fn start(&self, tracer: &[&str], cmd: Cmd) -> std::process::ExitStatus {
        let mut words: Vec<String> = tracer.iter().map(|word| (*word).to_owned()).collect();
        if cmd.program.starts_with("lv") {
            words.push("lvm".to_owned());
        }
        words.push(cmd.program.to_owned());
        for arg in &cmd.args {
            let arg = arg.to_string_lossy();
            words.push(match arg.as_ref() {
                "DEVICE" => self.device(),
                other => other.to_owned(),
            });
        }
        Command::new(&words[0])
            .args(&words[1..])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .env("LVM_SYSTEM_DIR", self.dir.join("state/lvm").join(GROUP))
            .stdin(Stdio::null())
            .stdout(File::create("/tmp/printed").expect("printed"))
            .stderr(File::create("/tmp/said").expect("said"))
            .status()
            .expect("command")
    }

    fn device(&self) -> String {
        let name = self.case.step.volume();
        let device = self.runtime.block_on(async {
            if self.machine.device(name).await.is_err() {
                let _ = self.machine.host.lvm(GROUP, change(name, &["-ay"])).await;
            }
            self.machine.device(name).await
        });
        device.expect("device").to_string_lossy().into_owned()
    }

    /// Runs the command to its end and returns the calls by which it changes something, in order.
    fn points(&self) -> Vec<Point> {
        let trace = "/tmp/trace";
        let calls = "trace=ioctl,write,pwrite64,fsync,fallocate,exit_group";
        let status = self.start(&["strace", "-y", "-o", trace, "-e", calls], (self.case.command)());
        let said = fs::read_to_string("/tmp/said").unwrap_or_default();
        assert!(status.code().is_some_and(|code| code <= 1), "{status}: {said}");
        let mut counts = std::collections::BTreeMap::new();
        let text = fs::read_to_string(trace).expect("trace");
        let lines = text.lines().filter_map(|line| {
            let (call, words) = line.split_once('(')?;
            let count = counts.entry(call.to_owned()).or_insert(0);
            *count += 1;
            let words = words.chars().take(60).collect();
            Some(Point { call: call.to_owned(), count: *count, words })
        });
        lines.filter(Point::changes).collect()
    }

    fn kill_at(&self, point: &Point) {
        let calls = format!("trace={}", point.call);
        let inject = format!("inject={}:signal=SIGKILL:when={}", point.call, point.count);
        let tracer = ["strace", "-o", "/dev/null", "-e", &calls, "-e", &inject];
        let status = self.start(&tracer, (self.case.command)());
        let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
        let said = fs::read_to_string("/tmp/said").unwrap_or_default();
        let printed = fs::read_to_string("/tmp/printed").unwrap_or_default();
        assert!(killed, "{point:?}: {status}: {said}{printed}");
    }

    /// Starts another driver on what is there, as after a crash.
    fn restart(&mut self) {
        let dead = mem::replace(&mut self.runtime, Runtime::new().expect("runtime"));
        dead.shutdown_timeout(Duration::from_secs(60));
        self.machine = self.runtime.block_on(Machine::start(&self.dir));
    }

    /// Asks for the step again and compares with the undisturbed outcome.
    fn broken(&self) -> Vec<String> {
        self.runtime.block_on(async {
            let taken = self.machine.take(self.case.step).await;
            let steps: Vec<Step> =
                self.case.before.iter().copied().chain([self.case.step]).collect();
            let mut broken = self.machine.compare(&World::after(&steps), None).await.broken;
            broken.extend(taken.err());
            broken
        })
    }

    fn clear(self) {
        power_off(self.runtime, self.machine.host.as_ref());
    }
}

impl Point {
    const MESSAGE: &str = "DM_TARGET_MSG";

    fn is_message(&self) -> bool {
        self.words.contains(Point::MESSAGE)
    }

    /// Whether something is different after it: a device-mapper change, bytes of a disk, the end.
    fn changes(&self) -> bool {
        const DM: [&str; 7] = [
            "DM_DEV_CREATE",
            "DM_DEV_REMOVE",
            "DM_DEV_SUSPEND",
            "DM_TABLE_LOAD",
            "DM_TABLE_CLEAR",
            "DM_DEV_RENAME",
            Point::MESSAGE,
        ];
        match self.call.as_str() {
            "ioctl" => DM.iter().any(|change| self.words.contains(change)),
            "exit_group" => true,
            _ => self.words.contains("/dev/"),
        }
    }
}
