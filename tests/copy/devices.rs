//! Devices, here images of them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use pliant::copy::{CopyError, Hand, Outcome, Progress, Round, copy_device};

use crate::world::{World, sparse};

const SIZE: u64 = 8 << 20;

fn carry(world: &World, hand: &Hand) -> Result<Outcome, CopyError> {
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
        Round::Final,
        &Hand::default(),
        &mut Progress::silent(),
    );
    assert!(matches!(copied, Err(CopyError::Refused(_))), "{copied:?}");
}
