//! Trees that were made to lead out of themselves.

use std::fs;
use std::os::unix::fs::symlink;

use pliant_copy::copy::{
    Compare, CopyError, CopyOptions, Hand, Pass, ProgressReporter, Sockets, copy,
};
use rustix::fs::FileType;

use crate::world::{World, is_root, make_node, odd, snapshot};

#[test]
fn no_link_in_the_target_is_followed() {
    let world = World::new();
    let (source, target, outside) = (world.source(), world.target(), world.outside());
    fs::create_dir_all(outside.join("dir")).unwrap();
    fs::write(outside.join("file"), "not ours").unwrap();
    fs::write(outside.join("dir/kept"), "not ours").unwrap();
    let before = snapshot(&outside);
    // Where the source has directories and files, the target has links that lead out.
    world.mark_target();
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/kept"), "ours").unwrap();
    fs::write(source.join("file"), "ours").unwrap();
    fs::write(source.join("name"), "ours").unwrap();
    fs::hard_link(source.join("name"), source.join("other")).unwrap();
    symlink(outside.join("dir"), target.join("dir")).unwrap();
    symlink(outside.join("file"), target.join("file")).unwrap();
    symlink(outside.join("file"), target.join("other")).unwrap();
    symlink(outside.join("dir"), target.join("gone")).unwrap();
    symlink(outside.join("dir"), target.join("lost+found")).unwrap();
    world.copy(Pass::Final).unwrap();
    world.assert_same();
    assert_eq!(snapshot(&outside), before);
}

#[test]
fn links_in_the_source_are_carried_and_not_followed() {
    let world = World::new();
    fs::write(world.outside().join("secret"), "secret").unwrap();
    for (number, to) in
        ["../outside", "/etc/passwd", "../outside/secret", ".", "..", "/"].into_iter().enumerate()
    {
        symlink(to, world.source().join(format!("l{number}"))).unwrap();
    }
    symlink("x".repeat(4000), world.source().join("long")).unwrap();
    let outcome = world.copy(Pass::Final).unwrap();
    assert_eq!((outcome.files, outcome.bytes), (7, 0));
    world.assert_same();
}

#[test]
fn fifos_and_devices_are_made_anew_and_never_opened() {
    if !is_root() {
        return;
    }
    let world = World::new();
    make_node(&world.source().join("fifo"), FileType::Fifo, (0, 0));
    make_node(&world.source().join("disk"), FileType::BlockDevice, (7, 250));
    make_node(&world.source().join("null"), FileType::CharacterDevice, (1, 3));
    // In the way, of another kind.
    make_node(&world.target().join("fifo"), FileType::CharacterDevice, (1, 3));
    make_node(&world.target().join("disk"), FileType::BlockDevice, (7, 251));
    fs::create_dir_all(world.target().join("null/full/of")).unwrap();
    make_node(&world.target().join("gone"), FileType::Fifo, (0, 0));
    world.mark_target();
    world.copy(Pass::Final).unwrap();
    world.assert_same();
}

#[test]
fn names_that_look_like_something_else_are_names() {
    let world = World::new();
    let names: [&[u8]; 7] = [b"...", b" ", b"-rf", b"a\nb", b"\xff\xfe", b"..x", b"\\x2e\\x2e"];
    for name in names {
        fs::write(world.source().join(odd(name)), name).unwrap();
        fs::create_dir(world.source().join(odd(&[name, b".d"].concat()))).unwrap();
    }
    fs::write(world.source().join(odd(&[b'x'; 255])), "long").unwrap();
    world.copy(Pass::Final).unwrap();
    world.assert_same();
}

/// Source and target were taken for each other, or another volume is mounted there.
#[test]
fn a_target_that_no_copy_has_filled_is_left_as_it_is() {
    let world = World::new();
    fs::write(world.source().join("new"), "new").unwrap();
    fs::write(world.target().join("kept"), "kept").unwrap();
    for round in [Pass::PreCopy, Pass::Final] {
        let said = world.copy(round).unwrap_err();
        assert!(matches!(said, CopyError::Refused(_)), "{said:?}");
        assert!(said.to_string().contains("it contains kept"), "{said}");
        assert_eq!(fs::read(world.target().join("kept")).unwrap(), b"kept");
    }
}

/// Once a copy was completed somebody may live on it: another run only compares.
#[test]
fn a_target_that_was_completed_is_left_as_it_is() {
    let world = World::new();
    let (source, target) = (world.source(), world.target());
    let again = |round| {
        let order = CopyOptions {
            source: &source,
            target: &target,
            round,
            sockets: Sockets::Skip,
            compare: Compare::All,
        };
        copy(order, &Hand::default(), &mut ProgressReporter::silent())
    };
    fs::write(source.join("data"), "data").unwrap();
    let digest = again(Pass::Final).unwrap().digest;
    assert_eq!(again(Pass::Final).unwrap().digest, digest);

    fs::write(target.join("new"), "written since").unwrap();
    for round in [Pass::PreCopy, Pass::Final] {
        let said = again(round).unwrap_err();
        assert!(matches!(said, CopyError::Refused(_)), "{said:?}");
        assert!(said.to_string().contains("setfattr --remove user.pliant.copied"), "{said}");
        assert_eq!(fs::read(target.join("new")).unwrap(), b"written since");
    }
}
