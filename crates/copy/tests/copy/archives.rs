//! Archives: whole ones, wrong ones, and those that were made to lead out of the volume.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use flate2::Compression;
use flate2::write::GzEncoder;
use pliant_copy::archive::{ArchiveSource, UnpackOptions, unpack};
use pliant_copy::copy::{CopyError, CopySummary, Digest, Hand, ProgressReporter};
use pliant_volume::bytes::Bytes;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Builder, EntryType};

use crate::tarballs::{Thing, good, is_as_it_was, plain_header, tar, thing};
use crate::world::{World, is_root, snapshot};

struct Unpacking {
    sum: Option<Digest>,
    owners: bool,
    max_size: Option<Bytes>,
    hand: Hand,
}

impl Default for Unpacking {
    fn default() -> Unpacking {
        Unpacking { sum: None, owners: is_root(), max_size: None, hand: Hand::default() }
    }
}

impl Unpacking {
    fn of(self, world: &World, archive: &[u8]) -> Result<CopySummary, CopyError> {
        let (file, target) = (world.outside().join("archive"), world.target());
        fs::write(&file, archive).unwrap();
        let sum = self.sum.unwrap_or_else(|| Digest::of(archive));
        let Unpacking { owners, max_size, hand, .. } = self;
        let order = UnpackOptions {
            origin: ArchiveSource::File(&file),
            sum,
            target: &target,
            owners,
            max_size,
        };
        unpack(&order, &hand, &mut ProgressReporter::silent())
    }
}

fn unpacked(world: &World, archive: &[u8]) -> Result<CopySummary, CopyError> {
    Unpacking::default().of(world, archive)
}

#[test]
fn any_packing_arrives_with_owners_modes_and_times() {
    let tar = good();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar).unwrap();
    // Two frames, and one between them that holds nothing.
    let (one, two) = tar.split_at(700_000);
    let zstd = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let zstd = [zstd(one), skipped, zstd(two)].concat();
    let mut seen = Vec::new();
    for archive in [tar, gzip.finish().unwrap(), zstd] {
        let world = World::new();
        let outcome = unpacked(&world, &archive).unwrap();
        assert_eq!((outcome.files, outcome.bytes), (7, 2_500_010));
        let target = world.target();
        let meta = fs::metadata(target.join("d/f")).unwrap();
        assert_eq!(
            (meta.mode() & 0o7777, meta.mtime(), meta.len()),
            (0o4640, 1_600_000_000, 2_500_000)
        );
        assert_eq!(meta.ino(), fs::metadata(target.join("name")).unwrap().ino());
        if is_root() {
            assert_eq!((meta.uid(), meta.gid()), (1000, 7));
        }
        let dir = fs::metadata(target.join("d")).unwrap();
        assert_eq!((dir.mode() & 0o7777, dir.mtime()), (0o2750, 1_600_000_000));
        let noted = fs::metadata(target.join("noted")).unwrap();
        assert_eq!((noted.mtime(), noted.mtime_nsec()), (1_500_000_000, 250_000_000));
        assert!(target.join("l/".repeat(80) + "long").exists());
        let top = fs::metadata(&target).unwrap();
        assert_eq!(top.permissions().mode() & 0o7777, 0o2750);
        let mut found = snapshot(&target);
        found.remove(std::path::Path::new("")); // It has the time of now and the sum.
        for made in ["not", "not/said", "l"] {
            found.remove(std::path::Path::new(made));
        }
        found.retain(|path, _| !path.starts_with("l") || path.ends_with("long"));
        seen.push(found);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn again_is_nothing_and_something_else_is_refused() {
    let world = World::new();
    unpacked(&world, &good()).unwrap();
    let before = snapshot(&world.target());
    assert_eq!(unpacked(&world, &good()).unwrap().bytes, 0);
    assert_eq!(snapshot(&world.target()), before);
    let other = tar(&[(EntryType::Regular, b"x", b"", b"x")]);
    let error = unpacked(&world, &other).unwrap_err();
    assert!(error.to_string().starts_with("the target is not empty: it contains d;"), "{error}");
    assert_eq!(snapshot(&world.target()), before);
}

#[test]
fn a_wrong_sum_leaves_nothing() {
    let world = World::new();
    let sum = Some(Digest::of(b"another"));
    let error = Unpacking { sum, ..Unpacking::default() }.of(&world, &good()).unwrap_err();
    assert_eq!((error.code(), error.word()), (3, "mismatch"));
    // The sum that was asked for, and not that of what was read.
    assert!(error.to_string().contains(&Digest::of(b"another").to_string()), "{error}");
    assert!(!error.to_string().contains(&Digest::of(&good()).to_string()), "{error}");
    assert!(is_as_it_was(&world));
    // One bit behind the end of the tar counts too.
    let longer = [good(), vec![1]].concat();
    let sum = Some(Digest::of(&good()));
    Unpacking { sum, ..Unpacking::default() }.of(&world, &longer).unwrap_err();
    assert!(is_as_it_was(&world));
}

#[test]
fn hostile_archives_are_refused_and_leave_nothing() {
    use EntryType::{Block, Char, Directory, Link, Regular, Symlink};
    let file = |path: &'static [u8]| (Regular, path, &b""[..], &b"x"[..]);
    let cases: Vec<(&str, Vec<Thing>)> = vec![
        ("is an absolute path", vec![file(b"/etc/passwd")]),
        ("points outside of it", vec![file(b"../x")]),
        ("points outside of it", vec![file(b"a/../../x")]),
        ("not a directory", vec![(Symlink, b"l", b"../outside", b""), file(b"l/x")]),
        ("not a directory", vec![(Symlink, b"l", b"/", b""), file(b"l/tmp/x")]),
        ("appears twice", vec![(Symlink, b"l", b"..", b""), (Directory, b"l", b"", b"")]),
        ("not a directory", vec![file(b"f"), file(b"f/x")]),
        ("points outside of it", vec![(Link, b"n", b"../outside/archive", b"")]),
        ("is an absolute path", vec![(Link, b"n", b"/etc/passwd", b"")]),
        ("not in the archive", vec![(Link, b"n", b"nothing", b"")]),
        (
            "not a directory",
            vec![(Symlink, b"l", b"../outside", b""), (Link, b"n", b"l/archive", b"")],
        ),
        ("is a device", vec![(Block, b"sda", b"", b"")]),
        ("is a device", vec![(Char, b"null", b"", b"")]),
        ("unknown type", vec![(EntryType::new(b'Z'), b"odd", b"", b"")]),
    ];
    for (why, things) in cases {
        let world = World::new();
        let before = fs::read_dir(world.outside()).unwrap().count();
        let error = unpacked(&world, &tar(&things)).unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
        assert_eq!(error.code(), 2, "{error}");
        assert!(is_as_it_was(&world), "{why}");
        assert_eq!(fs::read_dir(world.outside()).unwrap().count(), before + 1, "the archive");
    }
    // A link that leads out is a link, and what it names stays as it is.
    let world = World::new();
    let things = [(Symlink, &b"l"[..], &b"../outside/archive"[..], &b""[..]), file(b"l")];
    unpacked(&world, &tar(&things)).unwrap();
    assert!(fs::symlink_metadata(world.target().join("l")).unwrap().is_file());
    assert!(fs::metadata(world.outside().join("archive")).unwrap().len() > 1000);
}

#[test]
fn bombs_are_bounded() {
    let zeroes = vec![0; 3 << 20];
    let archive = tar(&[(EntryType::Regular, b"zeroes", b"", &zeroes)]);
    let world = World::new();
    let max_size = Some(Bytes::mib(2));
    let error = Unpacking { max_size, ..Unpacking::default() }.of(&world, &archive).unwrap_err();
    assert!(error.to_string().starts_with("the archive is larger than 2 MiB"), "{error}");
    assert!(is_as_it_was(&world));
    // A size that nothing follows, more than any disk has.
    let mut header = plain_header(1 << 60);
    header.set_path("huge").unwrap();
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, &b""[..]).unwrap();
    let error = unpacked(&world, &builder.into_inner().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("the archive is larger than "), "{error}");
    // A name that would be kept in memory.
    let mut builder = Builder::new(Vec::new());
    let name = vec![b'x'; 3 << 20];
    thing(&mut builder, EntryType::GNULongName, b"././@LongLink", b"", &name);
    thing(&mut builder, EntryType::Regular, b"x", b"", b"");
    let error = unpacked(&world, &builder.into_inner().unwrap()).unwrap_err();
    assert!(error.to_string().contains("longer than 1 MiB"), "{error}");
    // What follows the end of the archive.
    let endless = [good(), vec![0; 20 << 20]].concat();
    let error = unpacked(&world, &endless).unwrap_err();
    assert!(error.to_string().contains("follows the end of the archive"), "{error}");
    assert!(is_as_it_was(&world));
}

#[test]
fn the_name_of_the_directory_that_is_unpacked_into_is_refused_for_good_before_the_end() {
    for path in [&b".pliant-unpack"[..], b"./.pliant-unpack/x"] {
        let world = World::new();
        let archive = tar(&[
            (EntryType::Regular, b"before", b"", b"x"),
            (EntryType::Regular, path, b"", b"x"),
            (EntryType::Char, b"not/reached", b"", b""),
        ]);
        let error = unpacked(&world, &archive).unwrap_err();
        assert_eq!(error.code(), 2, "{error}");
        assert!(
            error.to_string().starts_with(".pliant-unpack in the archive has the name"),
            "{error}"
        );
        assert!(is_as_it_was(&world));
    }
    // Elsewhere it is a name like any.
    let world = World::new();
    unpacked(&world, &tar(&[(EntryType::Regular, b"d/.pliant-unpack", b"", b"x")])).unwrap();
    assert!(world.target().join("d/.pliant-unpack").exists());
}

#[test]
fn a_path_of_a_mebibyte_is_refused_at_once() {
    let world = World::new();
    let mut builder = Builder::new(Vec::new());
    let path = [b"path=".to_vec(), b"a/".repeat(499_000), b"\n".to_vec()].concat();
    let record = [format!("{} ", path.len() + 7).into_bytes(), path].concat();
    let mut header = plain_header(record.len() as u64);
    header.set_entry_type(EntryType::XHeader);
    header.set_path("long").unwrap();
    header.set_cksum();
    builder.append(&header, &record[..]).unwrap();
    thing(&mut builder, EntryType::Regular, b"x", b"", b"x");
    let error = unpacked(&world, &builder.into_inner().unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("at most 4096 are allowed"), "{error}");
    assert!(is_as_it_was(&world));
}

#[test]
fn cut_archives_and_nonsense_are_refused() {
    let whole = good();
    let world = World::new();
    for length in [0, 1, 100, 700, 2_000_000] {
        let cut = &whole[..length];
        let ended = unpacked(&world, cut);
        assert!(ended.is_err() || length == 0, "{length}: {ended:?}");
        if length == 0 {
            // Nothing is the archive of nothing, if that is what was asked for.
            assert_eq!(ended.unwrap().files, 0);
            world.clear();
        }
        assert!(is_as_it_was(&world), "{length}");
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&whole).unwrap();
    let gzip = gzip.finish().unwrap();
    unpacked(&world, &gzip[..gzip.len() / 2]).unwrap_err();
    unpacked(&world, &[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3, 4, 5]).unwrap_err();
    unpacked(&world, &vec![0x55; 4096]).unwrap_err();
    assert!(is_as_it_was(&world));
}

#[test]
fn an_unpacking_that_died_anywhere_is_carried_on_to_the_same_end() {
    let world = World::new();
    let archive = good();
    let whole = Hand::default();
    let file = world.outside().join("archive");
    let target = world.target();
    fs::write(&file, &archive).unwrap();
    let order = |owners| UnpackOptions {
        origin: ArchiveSource::File(&file),
        sum: Digest::of(&archive),
        target: &target,
        owners,
        max_size: None,
    };
    // Directories that the archive does not name have the time of now.
    let seen = || {
        let mut seen = snapshot(&target);
        seen.retain(|path, _| !target.join(path).is_dir());
        seen
    };
    unpack(&order(is_root()), &whole, &mut ProgressReporter::silent()).unwrap();
    let expected = seen();
    for calls in 0..whole.calls() {
        world.clear();
        let dying = Hand::dying_after(calls);
        unpack(&order(is_root()), &dying, &mut ProgressReporter::silent()).unwrap_err();
        unpack(&order(is_root()), &Hand::default(), &mut ProgressReporter::silent()).unwrap();
        assert_eq!(seen(), expected, "{calls}");
        assert!(!target.join(".pliant-unpack").exists());
    }
}
