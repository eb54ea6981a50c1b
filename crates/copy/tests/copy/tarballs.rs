//! Archives to unpack.

use std::fs;

use tar::{Builder, EntryType, Header};

use crate::world::World;

/// One thing of an archive, exactly as it is said.
pub fn thing(
    builder: &mut Builder<Vec<u8>>,
    kind: EntryType,
    path: &[u8],
    to: &[u8],
    content: &[u8],
) {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.as_old_mut().linkname[..to.len()].copy_from_slice(to);
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(if kind.is_dir() { 0o2750 } else { 0o4640 });
    header.set_uid(1000);
    header.set_gid(7);
    header.set_mtime(1_600_000_000);
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

pub fn plain_header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

pub type Thing<'a> = (EntryType, &'a [u8], &'a [u8], &'a [u8]);

pub fn tar(things: &[Thing]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, path, to, content) in things {
        thing(&mut builder, *kind, path, to, content);
    }
    builder.into_inner().unwrap()
}

pub fn good() -> Vec<u8> {
    let long = vec![7; 2_500_000];
    let mut builder = Builder::new(Vec::new());
    for (kind, path, to, content) in [
        (EntryType::Directory, &b"./"[..], &b""[..], &b""[..]),
        (EntryType::Directory, b"./d/", b"", b""),
        (EntryType::Regular, b"./d/f", b"", &long),
        (EntryType::Regular, b"not/said/before", b"", b"x"),
        (EntryType::Link, b"name", b"./d/f", b""),
        (EntryType::Symlink, b"link", b"../../out", b""),
        (EntryType::Fifo, b"fifo", b"", b""),
    ] {
        thing(&mut builder, kind, path, to, content);
    }
    let attributes = [("mtime", &b"1500000000.25"[..]), ("SCHILY.xattr.user.note", b"kept")];
    builder.append_pax_extensions(attributes).unwrap();
    thing(&mut builder, EntryType::Regular, b"noted", b"", b"noted");
    // Longer than a header takes.
    let mut header = plain_header(4);
    builder.append_data(&mut header, "l/".repeat(80) + "long", &b"long"[..]).unwrap();
    builder.into_inner().unwrap()
}

/// Whether nothing came into the target.
pub fn is_as_it_was(world: &World) -> bool {
    fs::read_dir(world.target()).unwrap().count() == 0
}
