//! Devices, here images of them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use pliant_copy::copy::{CopyError, CopySummary, Hand, Pass, ProgressReporter, copy_device};

use crate::rounds::Meddler;
use crate::world::{World, sparse};

const SIZE: u64 = 8 << 20;

type Copied = Result<CopySummary, CopyError>;

fn carry(world: &World, hand: &Hand) -> Result<CopySummary, CopyError> {
    world.copy_disk(hand)
}

fn world(room: u64) -> World {
    let world = World::new();
    sparse(&world.source().join("disk"), SIZE);
    File::create(world.target().join("disk")).unwrap().set_len(room).unwrap();
    world
}

#[test]
fn a_device_arrives_and_zeroes_take_no_room() {
    let world = world(SIZE + 4096);
    let (source, target) = (world.source().join("disk"), world.target().join("disk"));
    File::options().write(true).open(&target).unwrap().write_all_at(b"old", SIZE - 5).unwrap();
    let file = File::options().write(true).open(&source).unwrap();
    file.write_all_at(&vec![0; 4 << 20], 4 << 20).unwrap();
    let outcome = carry(&world, &Hand::default()).unwrap();
    // Eight pieces with data, and the one with the old bytes.
    assert_eq!(outcome.bytes, 9 * (256 << 10));
    assert_eq!(fs::read(&source).unwrap(), fs::read(&target).unwrap()[..8 << 20]);
    assert!(fs::metadata(&target).unwrap().blocks() * 512 <= 9 * (256 << 10));
    assert_eq!(carry(&world, &Hand::default()).unwrap().bytes, 0);
}

/// Images of three MiB without a hole.
fn full() -> World {
    let world = World::new();
    fs::write(world.source().join("disk"), vec![1; 3 << 20]).unwrap();
    fs::write(world.target().join("disk"), vec![0; 3 << 20]).unwrap();
    world
}

fn meddled(world: &World, side: &Path, phase: &'static str, round: Pass) -> Copied {
    Meddler::meets(side.join("disk"), phase, |tell| {
        world.copy_disk_telling(&Hand::default(), round, tell)
    })
}

#[test]
fn a_device_that_changes_while_it_is_read_is_left_to_the_next_round() {
    let world = full();
    let hot = meddled(&world, &world.source(), "copy", Pass::PreCopy).unwrap();
    assert_eq!((hot.bytes, hot.digest), (3 << 20, None));
    // The piece that was meddled with, and no other.
    let silent = &mut ProgressReporter::silent();
    let hot = world.copy_disk_telling(&Hand::default(), Pass::PreCopy, silent).unwrap();
    assert_eq!((hot.bytes, hot.digest), (256 << 10, None));
    let last = carry(&world, &Hand::default()).unwrap();
    assert!(last.bytes == 0 && last.digest.is_some());
    let [source, target] = [world.source(), world.target()].map(|dir| fs::read(dir.join("disk")));
    assert_eq!(source.unwrap(), target.unwrap());
}

#[test]
fn a_device_that_changes_in_a_final_round_is_an_error() {
    let world = full();
    let error = meddled(&world, &world.source(), "copy", Pass::Final).unwrap_err();
    assert_eq!((error.code(), error.word()), (4, "source-changed"), "{error}");
    carry(&world, &Hand::default()).unwrap();
}

#[test]
fn a_device_that_does_not_keep_what_was_written_is_told() {
    let world = full();
    let error = meddled(&world, &world.target(), "copy", Pass::Final).unwrap_err();
    assert_eq!((error.code(), error.word()), (3, "mismatch"), "{error}");
    carry(&world, &Hand::default()).unwrap();
}

/// What an earlier round has written is read back too.
#[test]
fn a_device_that_has_lost_what_a_round_has_written_gets_it_again() {
    let world = full();
    let silent = &mut ProgressReporter::silent();
    world.copy_disk_telling(&Hand::default(), Pass::PreCopy, silent).unwrap();
    let target = File::options().write(true).open(world.target().join("disk")).unwrap();
    target.write_all_at(b"lost", (1 << 20) + 7).unwrap();
    assert_eq!(carry(&world, &Hand::default()).unwrap().bytes, 256 << 10);
}

#[test]
fn a_copy_that_died_is_carried_on() {
    let whole = Hand::default();
    let world = world(SIZE);
    let digest = carry(&world, &whole).unwrap().digest;
    for calls in 0..whole.calls() {
        let target = File::create(world.target().join("disk")).unwrap();
        target.set_len(SIZE).unwrap();
        carry(&world, &Hand::dying_after(calls)).unwrap_err();
        assert_eq!(carry(&world, &Hand::default()).unwrap().digest, digest);
    }
}

#[test]
fn a_target_that_is_too_small_is_refused_with_numbers() {
    let world = world(SIZE - (1 << 20));
    let error = carry(&world, &Hand::default()).unwrap_err();
    let expected = "is too small: it has 7 MiB and the source has 8 MiB, 1 MiB more; make it at \
                    least that much larger";
    assert!(error.to_string().ends_with(expected), "{error}");
    assert_eq!(error.code(), 2);
    assert_eq!(fs::metadata(world.target().join("disk")).unwrap().blocks(), 0);
}

#[test]
fn a_directory_is_no_device() {
    let world = World::new();
    let copied = copy_device(
        &world.source(),
        &world.target(),
        Pass::Final,
        &Hand::default(),
        &mut ProgressReporter::silent(),
    );
    assert!(matches!(copied, Err(CopyError::Refused(_))), "{copied:?}");
}
