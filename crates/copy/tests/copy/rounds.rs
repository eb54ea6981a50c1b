//! Rounds under a writer, and what a final round finds.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pliant_copy::copy::{CopyError, Hand, Pass, ProgressReporter};

use crate::world::World;

const MIB: usize = 1 << 20;

/// Writes into a file when the progress is told: that is in the midst of it.
pub struct Meddler {
    file: PathBuf,
    /// The phase of the progress in which it does so.
    phase: &'static str,
    told: Arc<AtomicBool>,
}

impl Meddler {
    /// Have it meet a copy at one MiB a second; of three MiB the progress is told while the second one waits.
    pub fn meets<T>(
        file: PathBuf,
        phase: &'static str,
        copy: impl FnOnce(&mut ProgressReporter) -> T,
    ) -> T {
        let told = Arc::new(AtomicBool::new(false));
        let meddler = Meddler { file, phase, told: told.clone() };
        let mut tell = ProgressReporter::new(Box::new(meddler), Some(MIB as u64), Arc::default());
        let ended = copy(&mut tell);
        assert!(told.load(Ordering::Relaxed), "nobody has meddled");
        ended
    }
}

impl Write for Meddler {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !String::from_utf8_lossy(line).contains(self.phase) {
            return Ok(line.len());
        }
        let file = File::options().write(true).open(&self.file)?;
        file.write_all_at(b"meddled", 10)?;
        self.told.store(true, Ordering::Relaxed);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn meddled(world: &World, round: Pass) -> Result<pliant_copy::copy::CopySummary, CopyError> {
    Meddler::meets(world.source().join("f"), "", |tell| {
        world.copy_telling(&Hand::default(), round, tell)
    })
}

#[test]
fn a_file_that_changes_while_it_is_read_is_left_to_the_next_round() {
    let world = World::new();
    fs::write(world.source().join("f"), vec![1; 3 * MIB]).unwrap();
    fs::write(world.source().join("other"), "still").unwrap();
    let hot = meddled(&world, Pass::PreCopy).unwrap();
    assert_eq!((hot.changing, hot.files, hot.digest), (1, 2, None));
    let next = world.copy(Pass::Final).unwrap();
    // The piece that was meddled with, and no other.
    assert_eq!((next.bytes, next.changing), (256 << 10, 0));
    world.assert_same();
}

#[test]
fn a_file_that_changes_in_a_final_round_is_an_error() {
    let world = World::new();
    fs::write(world.source().join("f"), vec![1; 3 * MIB]).unwrap();
    let error = meddled(&world, Pass::Final).unwrap_err();
    assert!(error.to_string().starts_with("f changed while it was read"), "{error}");
    assert_eq!((error.code(), error.word()), (4, "source-changed"));
    world.copy(Pass::Final).unwrap();
    world.assert_same();
}

fn until_all_is_believed(world: &World, files: u64) {
    let rounds = (0..100).map(|_| world.copy(Pass::PreCopy).unwrap().kept);
    assert!(rounds.into_iter().any(|kept| kept == files));
}

#[test]
fn a_round_reads_only_what_has_changed() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        fs::write(world.source().join(name), vec![7; 100]).unwrap();
    }
    world.copy(Pass::PreCopy).unwrap();
    // A file that was copied within the tick of the clock in which it was made is compared once more.
    until_all_is_believed(&world, 3);
    // The same size and the same time of change, as a program may set it.
    let meta = fs::metadata(world.source().join("b")).unwrap();
    fs::write(world.source().join("b"), vec![8; 100]).unwrap();
    let times = fs::FileTimes::new().set_modified(meta.modified().unwrap());
    File::options().write(true).open(world.source().join("b")).unwrap().set_times(times).unwrap();
    let round = world.copy(Pass::PreCopy).unwrap();
    assert_eq!((round.kept, round.bytes), (2, 100));
    world.assert_same();
}

/// What no time tells: a whole directory in the place of another, all of it older than the copy.
#[test]
fn a_final_round_does_not_believe_times_when_contents_differ() {
    let world = World::new();
    world.make_twins();
    until_all_is_believed(&world, 2);
    world.exchange_twins();
    let hot = world.copy(Pass::PreCopy).unwrap();
    assert_eq!((hot.kept, hot.bytes), (2, 0), "or there is nothing to find");
    let last = world.copy(Pass::Final).unwrap();
    assert_eq!(last.bytes, 6);
    world.assert_same();
}

#[test]
fn what_goes_away_during_a_round_is_no_error() {
    let world = World::new();
    for number in 0..200 {
        fs::create_dir(world.source().join(format!("d{number}"))).unwrap();
        fs::write(world.source().join(format!("d{number}/f")), vec![1; 10_000]).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (source, stopped) = (world.source(), stop.clone());
    let writer = std::thread::spawn(move || {
        let mut number = 0;
        while !stopped.load(Ordering::Relaxed) {
            let dir = source.join(format!("d{}", number % 200));
            let _ = fs::remove_dir_all(&dir);
            let _ = fs::write(&dir, "a file in its place");
            let _ = fs::remove_file(&dir);
            let _ = fs::create_dir(&dir);
            let _ = fs::write(dir.join("f"), vec![2; 5000]);
            number += 1;
        }
    });
    let rounds: Vec<_> = (0..20).map(|_| world.copy(Pass::PreCopy)).collect();
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    for round in rounds {
        round.unwrap();
    }
    world.copy(Pass::Final).unwrap();
    world.assert_same();
}
