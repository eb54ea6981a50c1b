//! Any tree, copied into nothing and onto an older copy.

use std::fs;
use std::os::unix::fs::MetadataExt;

use pliant_copy::copy::{
    Compare, CopyError, CopyOptions, Dir, Hand, Pass, ProgressReporter, Sockets, copy,
};

use crate::world::{Maker, World, snapshot, sparse};

#[test]
fn any_tree_arrives_as_it_is_and_again_costs_nothing() {
    for seed in 1..=12 {
        let world = World::new();
        let mut maker = Maker::of(seed);
        maker.fill(&world.source(), 60);
        let first = world.copy(Pass::Final).unwrap();
        assert!(first.digest.is_some(), "{first:?}");
        world.assert_same();
        // A file counts as new within the tick of the clock in which it was made.
        world.copy(Pass::Final).unwrap();
        let again = world.copy(Pass::Final).unwrap();
        assert_eq!((again.bytes, again.removed), (0, 0), "seed {seed}");
        assert_eq!(again.digest, first.digest);

        maker.stir(&world.source());
        let changed = world.copy(Pass::Final).unwrap();
        world.assert_same();
        assert_ne!(changed.digest, first.digest, "seed {seed}");
    }
}

#[test]
fn holes_stay_holes_and_grow_where_the_source_has_new_ones() {
    let world = World::new();
    let (source, target) = (world.source().join("f"), world.target().join("f"));
    sparse(&source, 64 << 20);
    world.copy(Pass::Final).unwrap();
    let held = |path| fs::metadata(path).unwrap().blocks() * 512;
    assert!(held(&target) <= held(&source), "{} {}", held(&target), held(&source));
    assert!(held(&target) < 1 << 20);
    // Full, and then sparse again.
    fs::write(&source, vec![1; 8 << 20]).unwrap();
    world.copy(Pass::Final).unwrap();
    assert!(held(&target) >= 8 << 20);
    sparse(&source, 8 << 20);
    world.copy(Pass::Final).unwrap();
    assert!(held(&target) < 1 << 20, "{}", held(&target));
    world.assert_same();
}

#[test]
fn times_are_kept_to_the_nanosecond_also_of_reading() {
    let world = World::new();
    fs::create_dir(world.source().join("d")).unwrap();
    fs::write(world.source().join("d/f"), "x").unwrap();
    for name in ["d/f", "d", ""] {
        crate::world::set_time(&world.source().join(name), -5, 123_456_789);
    }
    world.copy(Pass::Final).unwrap();
    for name in ["d/f", "d", ""] {
        let meta = fs::metadata(world.target().join(name)).unwrap();
        let times = (meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec());
        // Reading a directory here has set its time of reading; it was before the year 1970.
        assert_eq!((times.2, times.3), (-5, 123_456_789), "{name}");
        if name == "d/f" {
            assert_eq!((times.0, times.1), (-5, 123_456_789), "{name}");
        }
    }
}

#[test]
fn names_of_one_thing_stay_names_of_one_thing_and_others_do_not_become_so() {
    let world = World::new();
    let (source, target) = (world.source(), world.target());
    for name in ["a", "x", "lone"] {
        fs::write(source.join(name), "same size").unwrap();
    }
    for (from, to) in [("a", "b"), ("a", "c"), ("x", "y")] {
        fs::hard_link(source.join(from), source.join(to)).unwrap();
    }
    // As an older copy may have left it: all names of one thing, and one of its own.
    fs::write(target.join("a"), "SAME SIZE").unwrap();
    for name in ["x", "lone", "y"] {
        fs::hard_link(target.join("a"), target.join(name)).unwrap();
    }
    fs::write(target.join("b"), "same size").unwrap();
    world.mark_target();
    for _ in 0..2 {
        world.copy(Pass::Final).unwrap();
        world.assert_same();
    }
    let first = world.copy(Pass::Final).unwrap();
    fs::remove_file(source.join("b")).unwrap();
    fs::write(source.join("b"), "same size").unwrap();
    let second = world.copy(Pass::Final).unwrap();
    world.assert_same();
    assert_ne!(first.digest, second.digest);
}

#[test]
fn an_empty_lost_and_found_belongs_to_its_file_system_and_a_full_one_is_data() {
    let world = World::new();
    let (ours, theirs) = (world.source().join("lost+found"), world.target().join("lost+found"));
    for dir in [&ours, &theirs] {
        fs::create_dir(dir).unwrap();
    }
    let before = snapshot(&theirs);
    let without = world.copy(Pass::Final).unwrap().digest;
    assert_eq!(snapshot(&theirs), before);
    fs::remove_dir(&ours).unwrap();
    crate::world::set_time(&world.source(), 1_700_000_000, 0);
    world.copy(Pass::Final).unwrap();
    assert!(theirs.exists());
    fs::create_dir(&ours).unwrap();
    fs::write(ours.join("#12"), "found").unwrap();
    let with = world.copy(Pass::Final).unwrap().digest;
    assert_ne!(with, without);
    world.assert_same();
    fs::remove_file(ours.join("#12")).unwrap();
    world.copy(Pass::Final).unwrap();
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
}

#[test]
fn sockets_are_left_out_or_refused() {
    let world = World::new();
    let _listens = std::os::unix::net::UnixListener::bind(world.source().join("s")).unwrap();
    let outcome = world.copy(Pass::Final).unwrap();
    assert_eq!((outcome.skipped, outcome.files), (1, 0));
    world.assert_same();
    let (source, target) = (world.source(), world.target());
    let sockets = Sockets::Refuse;
    world.mark_target();
    let order = CopyOptions {
        source: &source,
        target: &target,
        round: Pass::Final,
        sockets,
        compare: Compare::All,
    };
    let error = copy(order, &Hand::default(), &mut ProgressReporter::silent()).unwrap_err();
    assert!(error.to_string().starts_with("s is a socket; "), "{error}");
}

#[test]
fn a_tree_is_not_copied_into_itself() {
    let world = World::new();
    fs::create_dir_all(world.source().join("a/b")).unwrap();
    let (source, below) = (world.source(), world.source().join("a/b"));
    for (source, target) in [(&source, &below), (&below, &source), (&source, &source)] {
        let order = CopyOptions {
            source,
            target,
            round: Pass::PreCopy,
            sockets: Sockets::Skip,
            compare: Compare::All,
        };
        let refused = copy(order, &Hand::default(), &mut ProgressReporter::silent());
        assert!(matches!(refused, Err(CopyError::Refused(_))), "{refused:?}");
    }
    assert!(below.exists());
}

/// Some thousand levels, more than there are descriptors, and paths longer than the kernel takes.
#[test]
fn a_tree_of_any_depth_is_copied_with_few_open_files() {
    let world = World::new();
    let mut top = Dir::open(&world.source()).unwrap();
    for level in 0..3000 {
        let name = c"a-directory";
        rustix::fs::mkdirat(&top, name, rustix::fs::Mode::RWXU).unwrap();
        let below = top.enter(name).unwrap();
        if level % 500 == 499 {
            Hand::default().make_file(&below, c"file").unwrap();
            let link = Hand::default().add_name((&below, c"file"), (&below, c"name"));
            link.unwrap();
        }
        top = below;
    }
    let outcome = world.copy(Pass::Final).unwrap();
    assert_eq!((outcome.files, outcome.kept), (12, 0));
    // And taken away again.
    fs::remove_dir_all(world.source().join("a-directory")).unwrap();
    assert_eq!(world.copy(Pass::Final).unwrap().removed, 3012);
}
