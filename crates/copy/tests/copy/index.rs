//! Rounds that compare what they have copied, and last ones that do not read it again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use pliant_copy::copy::{
    ChangeTimes, Compare, CopyError, CopySummary, Hand, Pass, ProgressReporter,
};

use crate::world::{Maker, World, not_tried};

const INDEX: &str = ".pliant-compared";

fn copy(world: &World, round: Pass) -> CopySummary {
    copy_by(&Hand::default(), world, round).unwrap()
}

/// What has changed at any time before it was compared is believed.
fn copy_by(hand: &Hand, world: &World, round: Pass) -> Result<CopySummary, CopyError> {
    let compare = Compare::Changed(ChangeTimes { still_for: Duration::ZERO, anywhere: true });
    world.copy_as(round, compare, hand, &mut ProgressReporter::silent())
}

/// Nothing of the index is left where a workload will be.
#[track_caller]
fn is_same_and_clean(world: &World) {
    world.assert_same();
    let names = fs::read_dir(world.target()).unwrap().map(|name| name.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(".pliant")).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn three_files() -> World {
    let world = World::new();
    fs::create_dir(world.source().join("d")).unwrap();
    for name in ["a", "d/b", "c"] {
        fs::write(world.source().join(name), [name.as_bytes(), &[7; 100]].concat()).unwrap();
    }
    world
}

/// Write other content of the same size, and set the time of modification back.
fn change_unseen(file: &Path) {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    let open = File::options().write(true).open(file).unwrap();
    open.write_all_at(b"other", 20).unwrap();
    open.set_times(fs::FileTimes::new().set_modified(modified)).unwrap();
}

#[test]
fn what_a_round_has_compared_is_not_read_again() {
    let world = three_files();
    assert_eq!(copy(&world, Pass::PreCopy).known, 0);
    assert!(world.target().join(INDEX).exists());
    let last = copy(&world, Pass::Final);
    assert_eq!(last.known, 3);
    is_same_and_clean(&world);
    // The digest is that of the tree, however it was come by.
    world.clear();
    assert_eq!(world.copy(Pass::Final).unwrap().digest, last.digest);
}

#[test]
fn what_has_changed_on_either_side_is_read_again() {
    let world = three_files();
    copy(&world, Pass::PreCopy);
    change_unseen(&world.source().join("a"));
    change_unseen(&world.target().join("d/b"));
    let last = copy(&world, Pass::Final);
    assert_eq!(
        last.known, 0,
        "the comparison has found what nobody knew of, so nothing was believed"
    );
    is_same_and_clean(&world);

    let world = three_files();
    copy(&world, Pass::PreCopy);
    change_unseen(&world.source().join("a"));
    assert_eq!(copy(&world, Pass::PreCopy).bytes, 101);
    change_unseen(&world.source().join("c"));
    assert_eq!(copy(&world, Pass::Final).known, 2, "of two rounds");
    is_same_and_clean(&world);
}

/// The times of their files are those of before.
#[test]
fn a_directory_in_the_place_of_another_is_seen() {
    let world = World::new();
    world.make_twins();
    copy(&world, Pass::PreCopy);
    let compared = (0..100).map(|_| copy(&world, Pass::PreCopy).kept);
    assert!(compared.into_iter().any(|kept| kept == 2), "or there is nothing to be seen");
    world.exchange_twins();
    let last = copy(&world, Pass::Final);
    assert_eq!(last.bytes, 6);
    is_same_and_clean(&world);
}

#[test]
fn what_has_changed_shortly_before_is_compared_once_more() {
    let world = three_files();
    let changed = ChangeTimes { still_for: Duration::from_secs(60), anywhere: true };
    let compare = Compare::Changed(changed);
    let copy = |round| {
        let mut silent = ProgressReporter::silent();
        world.copy_as(round, compare, &Hand::default(), &mut silent).unwrap()
    };
    copy(Pass::PreCopy);
    assert_eq!(copy(Pass::Final).known, 0);
    is_same_and_clean(&world);
}

/// In memory a page that is mapped may change without it.
#[test]
fn times_are_believed_only_where_each_write_sets_them() {
    let world = three_files();
    let is_in_memory = world.source().starts_with("/dev/shm");
    let changed = ChangeTimes { still_for: Duration::ZERO, anywhere: false };
    let copy = |round| {
        let (compare, mut silent) = (Compare::Changed(changed), ProgressReporter::silent());
        world.copy_as(round, compare, &Hand::default(), &mut silent).unwrap()
    };
    copy(Pass::PreCopy);
    let known = copy(Pass::Final).known;
    assert!(known == 0 || !is_in_memory, "{known}");
    is_same_and_clean(&world);
}

#[test]
fn who_only_reads_has_nothing_compared_again() {
    let world = three_files();
    copy(&world, Pass::PreCopy);
    let read = |name| {
        let accessed = || fs::metadata(world.source().join(name)).unwrap().accessed().unwrap();
        let before = accessed();
        fs::read(world.source().join(name)).unwrap();
        accessed() > before
    };
    if !["a", "d/b", "c"].map(read).iter().all(|is_noted| *is_noted) {
        return not_tried("nobody notes here when a file is read");
    }
    copy(&world, Pass::PreCopy);
    assert_eq!(copy(&world, Pass::Final).known, 3);
    is_same_and_clean(&world);
}

/// A power cut may have kept what was written, and not the time of it.
#[test]
fn nothing_is_known_after_another_start_of_the_machine() {
    let world = three_files();
    copy(&world, Pass::PreCopy);
    let index = world.target().join(INDEX);
    let text = fs::read(&index).unwrap();
    let header = text.iter().position(|byte| *byte == 0).unwrap();
    let other = b"pliant-compared-1 6e2a1f57-0000-4000-8000-000000000000";
    fs::write(&index, [&other[..], &text[header..]].concat()).unwrap();
    assert_eq!(copy(&world, Pass::Final).known, 0);
    is_same_and_clean(&world);
}

#[test]
fn an_index_that_makes_no_sense_is_not_believed() {
    let world = three_files();
    copy(&world, Pass::PreCopy);
    let index = world.target().join(INDEX);
    let text = fs::read(&index).unwrap();
    for length in 0..text.len() {
        fs::write(&index, &text[..length]).unwrap();
        world.copy(Pass::PreCopy).unwrap_or_default();
        assert!(!index.exists(), "a round that compares nothing takes it away");
        fs::write(&index, &text[..length]).unwrap();
        assert!(copy(&world, Pass::Final).known < 3, "{length}");
        is_same_and_clean(&world);
        world.mark_target();
    }
}

#[test]
fn a_source_with_that_name_keeps_what_it_has() {
    let world = three_files();
    fs::write(world.source().join(INDEX), "mine").unwrap();
    copy(&world, Pass::PreCopy);
    assert_eq!(copy(&world, Pass::Final).known, 0);
    world.assert_same();
    // Also one that was carried goes when the source has it no longer.
    let world = three_files();
    fs::create_dir(world.source().join(INDEX)).unwrap();
    fs::write(world.source().join(INDEX).join("f"), "mine").unwrap();
    copy(&world, Pass::PreCopy);
    fs::remove_dir_all(world.source().join(INDEX)).unwrap();
    copy(&world, Pass::PreCopy);
    copy(&world, Pass::Final);
    is_same_and_clean(&world);
    // One that comes by it later is met by the next round.
    let world = three_files();
    copy(&world, Pass::PreCopy);
    fs::create_dir(world.source().join(INDEX)).unwrap();
    copy(&world, Pass::PreCopy);
    copy(&world, Pass::Final);
    world.assert_same();
}

#[test]
fn rounds_that_die_anywhere_are_carried_on_to_the_same_end() {
    let stirred = || {
        let world = World::new();
        let mut maker = Maker::of(7);
        maker.fill(&world.source(), 12);
        copy(&world, Pass::PreCopy);
        maker.stir(&world.source());
        world
    };
    let mut points = 0;
    for round in [Pass::PreCopy, Pass::Final] {
        for calls in 0.. {
            let world = stirred();
            let cut = copy_by(&Hand::dying_after(calls), &world, round);
            copy(&world, Pass::Final);
            is_same_and_clean(&world);
            if cut.is_ok() {
                break;
            }
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 50, "{points}");
}

#[test]
fn rounds_under_a_writer_end_with_what_it_has_left() {
    for seed in 0..20 {
        let world = World::new();
        let mut maker = Maker::of(seed);
        maker.fill(&world.source(), 30);
        for _ in 0..4 {
            copy(&world, Pass::PreCopy);
            maker.stir(&world.source());
        }
        copy(&world, Pass::Final);
        is_same_and_clean(&world);
    }
}
