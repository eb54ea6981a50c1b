//! Power cuts under the driver: every write below a volume group is recorded while the driver takes
//! a script, with a mark at each acknowledgement. Then the disk is made as it was at a cut, a driver is
//! started on it as after a boot, and everything that was acknowledged must be there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Whence, lseek};
use pliant::host::{DmDevice, Host};
use pliant::mount::MountTable;
use pliant::volume::FsKind;
use tokio::runtime::Runtime;

use crate::exhaustive::exhaustive;
use crate::log_writes::{Chooser, Kind, Log, Recorder};
use crate::machine::{Disk, figure, run};
use crate::promises::{GROUP, Machine};
use crate::script::{self, Step, World};

/// A cut: how much of the log has reached the disk for sure, and which seed chooses what else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cut {
    at: usize,
    seed: Option<u64>,
}

#[derive(Debug, Default)]
struct Sums {
    cuts: usize,
    lost: usize,
    canaries: usize,
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_was_acknowledged_survives_every_power_cut() {
    let mut sums = Sums::default();
    let scripts: [(&str, u64, Vec<Step>, usize); 3] = [
        ("block and ext4", 160, script::BLOCK_AND_EXT4.to_vec(), 40),
        ("xfs", 384, script::life_of(FsKind::Xfs, 300), 9),
        ("btrfs", 384, script::life_of(FsKind::Btrfs, 256), 9),
    ];
    for (what, mib, steps, few) in scripts.into_iter().filter(|(what, ..)| what.contains(&only())) {
        let log_disk = Disk::of(mib << 22);
        let log = record(mib << 20, &steps, &log_disk);
        let cuts = choose(&log, if exhaustive() { usize::MAX } else { few });
        println!("{what}: {} writes, {} cuts", log.entries.len(), cuts.len());
        try_cuts(&log, mib << 20, &steps, &cuts, &mut sums);
    }
    figure("power_cuts", number(sums.cuts));
    figure("power_cut_states_lost", number(sums.lost));
    figure("canary_bytes_readable_power_cuts", number(sums.canaries * script::BLOCK));
    assert_eq!((sums.lost, sums.canaries), (0, 0));
}

pub fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}

/// Part of the name of what is tried; all without it.
pub fn only() -> String {
    std::env::var("ONLY").unwrap_or_default()
}

/// Lets a driver take the steps, and marks each when it is acknowledged.
fn record(bytes: u64, steps: &[Step], log: &Disk) -> Log {
    let disk = Disk::of(bytes);
    let recorder = Recorder::over(&disk, log);
    run("vgcreate", &["--metadatasize", "16m", GROUP, &recorder.device()]);
    // LVM does not flush, and what was not flushed would enter the log after the first mark.
    run("sync", &[&recorder.device()]);
    recorder.mark("0");
    let dir = PathBuf::from("/tmp/recorded");
    let runtime = Runtime::new().expect("runtime");
    let host = runtime.block_on(async {
        let machine = Machine::start(&dir).await;
        for (number, step) in steps.iter().enumerate() {
            machine.take(*step).await.unwrap_or_else(|words| panic!("{words}"));
            recorder.mark(&(number + 1).to_string());
        }
        let verdict = machine.compare(&World::after(steps), None).await;
        assert!(verdict.broken.is_empty() && verdict.canaries == 0, "{verdict:?}");
        machine.host
    });
    power_off(runtime, host.as_ref());
    recorder.finish().expect("log")
}

/// The cuts to try: at each acknowledgement, and at both sides of each flush, each once with nothing
/// else and once or more with a random half of what was not flushed. `few` limits the number of places.
/// The exhaustive choice is at both sides of every write that does not merely go on where the one before
/// it ended: within a long wipe or a file's data one place is like the next.
fn choose(log: &Log, few: usize) -> Vec<Cut> {
    let first = log.cut_at("0").expect("the first mark");
    let mut places: Vec<usize> = (1..).map_while(|n| log.cut_at(&n.to_string())).collect();
    let mut others: Vec<usize> = (first..log.entries.len())
        .filter(|at| log.entries[*at].durable || exhaustive() && !log.goes_on(*at))
        .flat_map(|at| [at, at + 1])
        .filter(|at| !places.contains(at))
        .collect();
    others.dedup();
    let room = few.saturating_sub(places.len()).max(1);
    let stride = others.len().div_ceil(room).max(1);
    places.extend(others.into_iter().step_by(stride));
    places.sort_unstable();
    let seeds = if exhaustive() { 0..2 } else { 0..1 };
    let with = |at: usize| {
        let none = Cut { at, seed: None };
        // What is written after the next acknowledgement belongs to a cut after that.
        let rest = &log.entries[log.unflushed(at)];
        let open = !rest.is_empty() && !rest.iter().any(|e| matches!(e.kind, Kind::Mark(_)));
        let some = seeds.clone().filter(move |_| open);
        std::iter::once(none).chain(some.map(move |seed| Cut { at, seed: Some(seed) }))
    };
    places.into_iter().flat_map(with).collect()
}

fn try_cuts(log: &Log, bytes: u64, steps: &[Step], cuts: &[Cut], sums: &mut Sums) {
    let base = PathBuf::from("/tmp/played");
    File::create(&base).and_then(|file| file.set_len(bytes)).expect("base");
    let disk = Disk::of(bytes);
    let mut played = 0;
    for cut in cuts {
        log.play(played..cut.at, &base).expect("play");
        played = cut.at;
        copy_data(&base, disk.file()).expect("copy");
        if let Some(seed) = cut.seed {
            let mut chooser = Chooser(seed ^ (cut.at as u64) << 8);
            log.play(chooser.half_of(log.unflushed(cut.at)), disk.file()).expect("play");
        }
        let acknowledged = (1..).take_while(|n| log.cut_at(&n.to_string()) <= Some(cut.at));
        let acknowledged = acknowledged.take(steps.len()).count();
        try_cut(*cut, steps, acknowledged, sums);
    }
    fs::remove_file(base).expect("base");
}

/// Boots on the disk as it is and compares; then takes the step that was under way again.
fn try_cut(cut: Cut, steps: &[Step], acknowledged: usize, sums: &mut Sums) {
    let dir = PathBuf::from(format!("/tmp/cut-{}-{:?}", cut.at, cut.seed));
    let runtime = Runtime::new().expect("runtime");
    let next = steps.get(acknowledged).copied();
    let (broken, canaries, host) = runtime.block_on(async {
        let machine = Machine::start(&dir).await;
        let before = World::after(&steps[..acknowledged]);
        let mut verdict = machine.compare(&before, next).await;
        if let Some(step) = next {
            match machine.take(step).await {
                Ok(()) => {
                    let after = World::after(&steps[..=acknowledged]);
                    let again = machine.compare(&after, None).await;
                    verdict.canaries += again.canaries;
                    verdict.broken.extend(again.broken.iter().map(|w| format!("again: {w}")));
                }
                Err(words) => verdict.broken.push(format!("again: {words}")),
            }
        }
        (verdict.broken, verdict.canaries, machine.host)
    });
    power_off(runtime, host.as_ref());
    sums.cuts += 1;
    sums.canaries += canaries;
    sums.lost += usize::from(!broken.is_empty());
    if !broken.is_empty() || canaries > 0 {
        let step = next.map_or_else(String::new, |step| step.to_string());
        println!(
            "{cut:?} after {acknowledged} steps, before {step:?}: {broken:?}, {canaries} blocks"
        );
    }
}

/// Ends a driver with all that its runtime does, and takes away what a machine without power has not: mounts and
/// device-mapper devices. First the driver, which may make devices behind its answers.
pub fn power_off(driver: Runtime, host: &dyn Host) {
    driver.shutdown_timeout(Duration::from_secs(60));
    Runtime::new().expect("runtime").block_on(async {
        unmount_all(host).await;
        // Nodes of devices that are gone confuse the next group of the same name.
        let _ = fs::remove_dir_all(Path::new("/dev").join(GROUP));
        for node in fs::read_dir("/dev/mapper").expect("/dev/mapper").flatten() {
            if node.file_name().to_string_lossy().starts_with(&format!("{GROUP}-")) {
                fs::remove_file(node.path()).expect("node");
            }
        }
        // A device goes after those that lie on it.
        for _ in 0..4 {
            for device in logical_volumes(host).await {
                let _ = host.dm_clear(&device.uuid).await;
                let _ = host.dm_resume(&device.uuid).await;
                let _ = host.dm_remove(&device.uuid).await;
            }
        }
        // One that stays would go on writing under whatever is put on the disk next.
        let left = logical_volumes(host).await;
        assert!(left.is_empty(), "still there without power: {left:?}");
    });
}

async fn unmount_all(host: &dyn Host) {
    let mounts = MountTable::read(host).await.expect("mounts");
    for device in host.dm_list().await.expect("dm") {
        let node = format!("dm-{}", device.number.minor);
        let held: Vec<_> = mounts.of(device.number).chain(mounts.of_node(&node)).collect();
        for mount in held.iter().rev() {
            let _ = host.unmount(&mount.target).await;
        }
    }
}

async fn logical_volumes(host: &dyn Host) -> Vec<DmDevice> {
    let mut devices = host.dm_list().await.expect("dm");
    devices.retain(|device| device.uuid.starts_with("LVM-"));
    devices
}

/// Copies what is not a hole, and makes holes of the rest.
pub fn copy_data(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create(true).truncate(true).open(to)?;
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while let Ok(start) = lseek(source.as_fd(), at, Whence::SeekData) {
        let end = lseek(source.as_fd(), start, Whence::SeekHole)?;
        source.seek(SeekFrom::Start(start.unsigned_abs()))?;
        target.seek(SeekFrom::Start(start.unsigned_abs()))?;
        let mut bytes = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
        io::Read::read_exact(&mut source, &mut bytes)?;
        target.write_all(&bytes)?;
        at = end;
    }
    Ok(())
}
