//! A copy that dies before any of its changing calls is carried on by the next one.

use std::fs;

use pliant_copy::copy::{Compare, CopyOptions, Hand, Pass, ProgressReporter, Sockets, copy};

use crate::world::{Maker, World, snapshot};

#[test]
fn a_copy_that_died_anywhere_is_carried_on_to_the_same_end() {
    let world = World::new();
    let mut maker = Maker::of(5);
    maker.fill(&world.source(), 24);
    let old = World::new();
    let mut points = 0;
    for stirred in [false, true] {
        if stirred {
            copy_tree(&world, &old);
            maker.stir(&world.source());
        }
        let prepare = || {
            world.clear();
            if stirred {
                copy_tree(&old, &world);
            }
        };
        prepare();
        let whole = Hand::default();
        let digest = world.copy_by(&whole, Pass::Final).unwrap().digest;
        for calls in 0..whole.calls() {
            prepare();
            let cut = world.copy_by(&Hand::dying_after(calls), Pass::Final);
            assert!(cut.is_err(), "{calls}: {cut:?}");
            let again = world.copy(Pass::Final).unwrap();
            assert_eq!(again.digest, digest, "{calls}");
            world.assert_same();
            points += 1;
        }
    }
    println!("{points} points");
    assert!(points > 200, "{points}");
}

/// The target of one becomes that of the other.
fn copy_tree(from: &World, to: &World) {
    let (source, target) = (from.target(), to.target());
    let (round, sockets, compare) = (Pass::Final, Sockets::Skip, Compare::All);
    let order = CopyOptions { source: &source, target: &target, round, sockets, compare };
    copy(order, &Hand::default(), &mut ProgressReporter::silent()).unwrap();
    assert_eq!(snapshot(&source).len(), snapshot(&target).len());
    assert!(fs::read_dir(&target).unwrap().count() > 0);
}
