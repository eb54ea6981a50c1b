//! Each way in which a target can differ is found and told.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use pliant_copy::copy::{CopyError, Dir, Pass, ProgressReporter, verify};
use rustix::fs::FileType;

use crate::world::{World, acl, give, is_root, make_node, set_attribute, set_time, sparse};

fn build(source: &Path) {
    fs::create_dir(source.join("d")).unwrap();
    fs::write(source.join("d/f"), vec![7; 200_000]).unwrap();
    fs::write(source.join("other"), vec![7; 10]).unwrap();
    fs::hard_link(source.join("other"), source.join("second")).unwrap();
    sparse(&source.join("sparse"), 4 << 20);
    symlink("d/f", source.join("l")).unwrap();
    for name in ["d/f", "d"] {
        set_attribute(&source.join(name), "user.note", b"one");
        set_attribute(&source.join(name), "system.posix_acl_access", &acl(77));
    }
    if is_root() {
        make_node(&source.join("null"), FileType::CharacterDevice, (1, 3));
    }
}

/// Does something to a target; what is told after it, as `path: what`.
fn told(change: impl FnOnce(&Path)) -> String {
    let world = World::new();
    build(&world.source());
    world.copy(Pass::Final).unwrap();
    change(&world.target());
    // Each change below changes the times of the directories around it.
    for dir in ["d", ""] {
        let times = fs::metadata(world.source().join(dir)).unwrap().modified().unwrap();
        let file = File::open(world.target().join(dir)).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(times)).unwrap();
    }
    let (source, target) =
        (Dir::open(&world.source()).unwrap(), Dir::open(&world.target()).unwrap());
    match verify(&source, &target, None, &mut ProgressReporter::silent()) {
        Err(CopyError::Mismatch { first, count }) => {
            assert_eq!(count, first.len() as u64);
            first.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        other => format!("{other:?}"),
    }
}

/// The same, where the times of the file are put back: nobody shall be told of those alone.
fn told_of_file(name: &'static str, change: impl FnOnce(&Path)) -> String {
    told(|target| {
        let path = target.join(name);
        let times = fs::metadata(&path).unwrap().modified().unwrap();
        change(&path);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(times)).unwrap();
    })
}

#[test]
fn nothing_is_found_where_nothing_was_done() {
    assert!(told(|_| {}).starts_with("Ok("));
}

#[test]
fn contents_sizes_and_holes_are_compared() {
    let byte = told_of_file("d/f", |path| {
        File::options().write(true).open(path).unwrap().write_all_at(b"x", 150_000).unwrap();
    });
    assert_eq!(byte, "d/f: the content differs");
    let longer = told_of_file("other", |path| {
        File::options().write(true).open(path).unwrap().set_len(11).unwrap();
    });
    let size = "other: size is 11 in the target and 10 in the source; other: the content differs";
    assert!(longer.starts_with(size), "{longer}");
    let filled = told_of_file("sparse", |path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, bytes).unwrap();
        // Where the data lies is known for sure when it has been written.
        File::open(path).unwrap().sync_all().unwrap();
    });
    let holes = "sparse: holes are allocated: 4194304 bytes are stored, 524288 in the source";
    assert_eq!(filled, holes);
}

#[test]
fn modes_times_owners_and_attributes_are_compared() {
    let mode = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o4711)).unwrap();
    let said = told(|target| mode(&target.join("other")));
    let what = "mode is 4711 in the target and 0644 in the source";
    assert!(said.starts_with(&format!("other: {what}")), "{said}");
    let said = told(|target| set_time(&target.join("other"), 5, 6));
    assert!(said.contains("other: time is 5.000000006 in the target and "), "{said}");
    let said = told(|target| set_time(&target.join("l"), 5, 6));
    assert!(said.starts_with("l: time is 5.000000006"), "{said}");
    for (name, attribute) in [("d/f", "user.note"), ("d", "user.new"), ("d", "user.note")] {
        let said = told(|target| set_attribute(&target.join(name), attribute, b"two"));
        assert_eq!(said, format!("{name}: attribute {attribute} differs"));
    }
    let acl_name = "system.posix_acl_access";
    let said = told(|target| set_attribute(&target.join("d/f"), acl_name, &acl(78)));
    assert_eq!(said, format!("d/f: attribute {acl_name} differs"));
    if is_root() {
        let said = told(|target| give(&target.join("d/f"), 5, 6));
        assert_eq!(said, "d/f: owner is 5:6 in the target and 0:0 in the source");
    }
}

#[test]
fn names_kinds_links_and_devices_are_compared() {
    let gone = told(|target| fs::remove_file(target.join("l")).unwrap());
    assert_eq!(gone, "l: is not in the target");
    let more = told(|target| symlink("x", target.join("more")).unwrap());
    assert_eq!(more, "more: is not in the source");
    let link = told(|target| {
        fs::remove_file(target.join("l")).unwrap();
        symlink("d/g", target.join("l")).unwrap();
    });
    assert!(link.contains("l: the content differs"), "{link}");
    let kind = told(|target| {
        fs::remove_file(target.join("l")).unwrap();
        fs::create_dir(target.join("l")).unwrap();
    });
    assert!(
        kind.starts_with("l: kind is directory in the target and link in the source"),
        "{kind}"
    );
    let apart = told(|target| {
        let times = fs::metadata(target.join("other")).unwrap().modified().unwrap();
        fs::copy(target.join("other"), target.join("new")).unwrap();
        fs::rename(target.join("new"), target.join("second")).unwrap();
        let file = File::options().write(true).open(target.join("second")).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(times)).unwrap();
    });
    assert_eq!(apart, "second: earlier name is none in the target and other in the source");
    if is_root() {
        let device = told(|target| {
            fs::remove_file(target.join("null")).unwrap();
            make_node(&target.join("null"), FileType::CharacterDevice, (1, 5));
        });
        assert!(device.contains("null: device is Some((1, 5)) in the target"), "{device}");
    }
}
