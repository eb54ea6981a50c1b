//! Writes the entries of an archive into a directory, and nowhere else.

use std::ffi::{CStr, CString};
use std::io::Read;

use tar::{Entry, EntryType};

use crate::archive::stream::{Guard, refused};
use crate::bytes::Bytes;
use crate::copy::{
    At, CopyError, CopySummary, Dir, EntryKind, Hand, Meta, OpenEntry, Stamp, is_carried,
    remove_all, set_attribute, shown,
};

/// The hidden directory of the target; the tree is in a directory in it.
pub(super) const STAGE: &CStr = c".pliant-unpack";

const PIECE: usize = 1 << 20;
/// The longest path, as long as a kernel takes one in a call.
const LONGEST_PATH: usize = 4096;
/// How deep a path may lead.
const DEEPEST: usize = 1000;
/// How many bytes the names and attributes of all directories may take, which are kept until the end: a pod
/// that unpacks has 512 MiB.
const DIRECTORIES: usize = 192 << 20;
/// What a directory takes besides.
const DIRECTORY: usize = 128;
/// What tools write before the name of an extended attribute.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

type UnpackTick<'a> = &'a mut dyn FnMut() -> Result<(), CopyError>;

/// What an archive says of a thing besides its content.
#[derive(Debug, Clone)]
struct EntryHeader {
    path: Vec<CString>,
    mode: u32,
    owner: Option<(u32, u32)>,
    modified: Stamp,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A directory until the end.
struct Directory {
    /// In one piece, which takes less memory than its names.
    path: Vec<u8>,
    /// Without the path.
    said: EntryHeader,
}

/// Writes entries below one directory.
pub struct Unpacker<'a> {
    top: Dir,
    owners: bool,
    hand: &'a Hand,
    /// Bytes that may still come.
    left: u64,
    limit: Bytes,
    /// Directories get theirs at the end, when nothing is put into them any more.
    directories: Vec<Directory>,
    /// Bytes that they may still take.
    left_for_directories: usize,
    buffer: Vec<u8>,
    done: CopySummary,
}

impl<'a> Unpacker<'a> {
    /// Writes into a directory, at most as much as there is free space for, and at most `max_size`.
    pub fn into(
        top: &Dir,
        owners: bool,
        max_size: Option<Bytes>,
        hand: &'a Hand,
    ) -> Result<Unpacker<'a>, CopyError> {
        let has = rustix::fs::fstatvfs(top).at("measuring", b"")?;
        let room = Bytes::new(has.f_bavail.saturating_mul(has.f_frsize));
        let limit = max_size.map_or(room, |max| max.min(room));
        let (left, buffer, done) = (limit.get(), vec![0; PIECE], CopySummary::default());
        let top = top.again().at("reading", b"")?;
        Ok(Unpacker {
            top,
            owners,
            hand,
            left,
            limit,
            directories: Vec::new(),
            left_for_directories: DIRECTORIES,
            buffer,
            done,
        })
    }

    /// Writes one entry. It replaces an earlier entry of the archive with the same name.
    pub fn entry(&mut self, mut entry: Entry<Guard>, tick: UnpackTick) -> Result<(), CopyError> {
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let said = self.said(&mut entry)?;
        let Some((name, above)) = said.path.split_last() else {
            // The top itself.
            return self.keep(said);
        };
        let dir = self.descend(above)?;
        if kind.is_dir() {
            return self.directory(&dir, name, said.clone());
        }
        remove_all_but_directories(self.hand, &dir, name, &said)?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(&dir, name, &said, entry, tick)?;
            }
            EntryType::Symlink => {
                let to = entry.link_name_bytes().unwrap_or_default();
                self.hand.make_link(&dir, name, &to).at_names("linking", &said.path)?;
                let node = OpenEntry::bare(&dir, name).at_names("reading", &said.path)?;
                self.dress(&node, &said, false)?;
            }
            EntryType::Link => self.one_more_name(&dir, name, &said, &entry)?,
            EntryType::Fifo => self.fifo(&dir, name, &said)?,
            EntryType::Char | EntryType::Block => {
                return Err(hostile(
                    &said.path,
                    "is a device; an archive must not contain devices",
                ));
            }
            _ => return Err(hostile(&said.path, "is of an unknown type")),
        }
        self.done.files += 1;
        tick()
    }

    /// Sets owners, modes and times of the directories, and returns what was written.
    pub fn finish(mut self) -> Result<CopySummary, CopyError> {
        for Directory { path, said } in std::mem::take(&mut self.directories) {
            let said = EntryHeader { path: names(&path)?, ..said };
            let node = OpenEntry::open(self.descend(&said.path)?);
            self.dress(&node, &said, true)?;
        }
        Ok(self.done)
    }

    fn said(&self, entry: &mut Entry<Guard>) -> Result<EntryHeader, CopyError> {
        let path = names(&entry.path_bytes())?;
        if path.first().is_some_and(|name| name.as_c_str() == STAGE) {
            let why = "has the name of the directory into which the archive is unpacked; leave it \
                       out of the archive";
            return Err(hostile(&path[..1], why));
        }
        let broken = |error| refused(error, "reading", "the archive");
        let header = entry.header();
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        let mode = header.mode().map_err(broken)? & 0o7777;
        let seconds = i64::try_from(header.mtime().map_err(broken)?).unwrap_or_default();
        let owner = if self.owners {
            let owner = id(header.uid().map_err(broken)?).zip(id(header.gid().map_err(broken)?));
            Some(owner.ok_or_else(|| hostile(&path, "has an invalid owner"))?)
        } else {
            None
        };
        let modified = Stamp { seconds, nanos: 0 };
        let mut said = EntryHeader { path, mode, owner, modified, attributes: Vec::new() };
        for extension in entry.pax_extensions().map_err(broken)?.into_iter().flatten() {
            let extension = extension.map_err(broken)?;
            let (key, value) = (extension.key_bytes(), extension.value_bytes());
            if key == b"mtime" {
                said.modified = stamp(value).unwrap_or(said.modified);
            } else if let Some(name) = key.strip_prefix(ATTRIBUTE).filter(|name| is_carried(name)) {
                said.attributes.push((name.to_vec(), value.to_vec()));
            }
        }
        Ok(said)
    }

    /// The directory of a path; what is missing on the way is made, and no link is followed.
    fn descend(&self, path: &[CString]) -> Result<Dir, CopyError> {
        let mut dir = self.top.again().at("reading", b"")?;
        for (depth, name) in path.iter().enumerate() {
            let so_far = &path[..=depth];
            match dir.find(name).at_names("reading", so_far)? {
                None => {
                    self.hand.make_dir(&dir, name).at_names("making", so_far)?;
                    let made = OpenEntry::open(dir.enter(name).at_names("entering", so_far)?);
                    self.hand.set_mode(&made, 0o755).at_names("making", so_far)?;
                }
                Some(meta) if meta.kind == EntryKind::Directory => {}
                Some(_) => {
                    return Err(hostile(path, "has a parent that is not a directory"));
                }
            }
            dir = dir.enter(name).at_names("entering", so_far)?;
        }
        Ok(dir)
    }

    fn directory(&mut self, dir: &Dir, name: &CStr, said: EntryHeader) -> Result<(), CopyError> {
        match dir.find(name).at_names("reading", &said.path)? {
            None => self.hand.make_dir(dir, name).at_names("making", &said.path)?,
            Some(meta) if meta.kind == EntryKind::Directory => {}
            Some(_) => return Err(hostile(&said.path, "appears twice with different types")),
        }
        self.keep(said)
    }

    /// Stores what is said of a directory until the end.
    fn keep(&mut self, mut said: EntryHeader) -> Result<(), CopyError> {
        let path = joined(&std::mem::take(&mut said.path));
        let attributes = said.attributes.iter().map(|(name, value)| name.len() + value.len());
        let takes = DIRECTORY + path.len() + attributes.sum::<usize>();
        let left = self.left_for_directories.checked_sub(takes);
        self.left_for_directories = left.ok_or_else(|| {
            CopyError::Refused(format!(
                "the names and attributes of the directories in the archive need more than {}; \
                 pack fewer directories, or leave their attributes out",
                Bytes::new(DIRECTORIES as u64)
            ))
        })?;
        self.directories.push(Directory { path, said });
        Ok(())
    }

    fn file(
        &mut self,
        dir: &Dir,
        name: &CStr,
        said: &EntryHeader,
        mut entry: Entry<Guard>,
        tick: UnpackTick,
    ) -> Result<(), CopyError> {
        let size = entry.size();
        if size > self.left {
            return Err(CopyError::Refused(format!(
                "the archive is larger than {}, the free space of the target or the limit of \
                 --max-size",
                self.limit
            )));
        }
        self.left -= size;
        let file = self.hand.make_file(dir, name).at_names("making", &said.path)?;
        let (mut at, mut end) = (0, 0);
        while at < size {
            let length = usize::try_from(size - at).map_or(PIECE, |left| left.min(PIECE));
            let piece = &mut self.buffer[..length];
            let read = entry.read_exact(piece);
            read.map_err(|error| refused(error, "reading", "the archive"))?;
            at += length as u64;
            // Zeroes need no space.
            if piece.iter().any(|byte| *byte != 0) {
                self.hand
                    .write(&file, piece, at - length as u64)
                    .at_names("writing", &said.path)?;
                self.done.bytes += length as u64;
                end = at;
            }
            tick()?;
        }
        if end < size {
            self.hand.set_size(&file, size).at_names("writing", &said.path)?;
        }
        self.dress(&OpenEntry::open(file), said, true)
    }

    fn one_more_name(
        &self,
        dir: &Dir,
        name: &CStr,
        said: &EntryHeader,
        entry: &Entry<Guard>,
    ) -> Result<(), CopyError> {
        let first = names(&entry.link_name_bytes().unwrap_or_default())?;
        let Some((last, above)) = first.split_last() else {
            return Err(hostile(&said.path, "is a hard link to the top directory"));
        };
        let from = self.descend(above)?;
        match from.find(last).at_names("reading", &first)? {
            Some(meta) if meta.kind != EntryKind::Directory => {
                self.hand.add_name((&from, last), (dir, name)).at_names("linking", &said.path)
            }
            _ => Err(hostile(&said.path, "is a hard link to a file that is not in the archive")),
        }
    }

    fn fifo(&self, dir: &Dir, name: &CStr, said: &EntryHeader) -> Result<(), CopyError> {
        let meta =
            Meta { kind: EntryKind::Fifo, ..dir.own_meta().at_names("reading", &said.path)? };
        self.hand.make_node(dir, name, &meta).at_names("making", &said.path)?;
        self.dress(&OpenEntry::bare(dir, name).at_names("reading", &said.path)?, said, true)
    }

    fn dress(&self, node: &OpenEntry, said: &EntryHeader, has_mode: bool) -> Result<(), CopyError> {
        if let Some((uid, gid)) = said.owner {
            self.hand.set_owner(node, uid, gid).at_names("setting the owner of", &said.path)?;
        }
        if has_mode {
            self.hand.set_mode(node, said.mode).at_names("setting the mode of", &said.path)?;
        }
        for (name, value) in &said.attributes {
            set_attribute(self.hand, node, (name, value), &joined(&said.path))?;
        }
        let times = self.hand.set_times(node, said.modified, said.modified);
        times.at_names("setting the times of", &said.path)
    }
}

fn remove_all_but_directories(
    hand: &Hand,
    dir: &Dir,
    name: &CStr,
    said: &EntryHeader,
) -> Result<(), CopyError> {
    match dir.find(name).at_names("reading", &said.path)? {
        Some(meta) if meta.kind == EntryKind::Directory => {
            Err(hostile(&said.path, "appears twice with different types"))
        }
        _ => remove_all(hand, dir, name).map(drop).at_names("removing", &said.path),
    }
}

/// The names of a path, of which none leads up or starts again.
fn names(path: &[u8]) -> Result<Vec<CString>, CopyError> {
    let refuse = |why| Err(CopyError::Refused(format!("{} {why}", shown(path))));
    if path.starts_with(b"/") {
        return refuse("in the archive is an absolute path; pack it from within its directory");
    }
    if path.len() > LONGEST_PATH {
        let (start, length) = (shown(&path[..100]), path.len());
        return Err(CopyError::Refused(format!(
            "{start}… in the archive is a path of {length} bytes; at most {LONGEST_PATH} are \
             allowed"
        )));
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let mut names = Vec::new();
    for part in parts {
        match CString::new(part) {
            Ok(name) if part != b".." => names.push(name),
            _ => return refuse("in the archive points outside of it"),
        }
    }
    if names.len() > DEEPEST {
        return refuse("in the archive is more than 1000 directories deep");
    }
    Ok(names)
}

/// Says of a failure what was tried with which path; it is put together only then.
trait AtNames<T> {
    fn at_names(self, doing: &'static str, path: &[CString]) -> Result<T, CopyError>;
}

impl<T, E: Into<std::io::Error>> AtNames<T> for Result<T, E> {
    fn at_names(self, doing: &'static str, path: &[CString]) -> Result<T, CopyError> {
        self.or_else(|error| Err(error).at(doing, &joined(path)))
    }
}

fn joined(path: &[CString]) -> Vec<u8> {
    path.iter().map(CString::as_bytes).collect::<Vec<_>>().join(&b'/')
}

fn hostile(path: &[CString], why: &str) -> CopyError {
    CopyError::Refused(format!("{} in the archive {why}", shown(&joined(path))))
}

/// Seconds and a fraction, `1700000000.123456789`.
fn stamp(text: &[u8]) -> Option<Stamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos = format!("{fraction:0<9.9}").parse().ok()?;
    let seconds: i64 = seconds.parse().ok()?;
    // Before 1970 a fraction goes back in time, and the kernel's goes on.
    Some(match (text.starts_with('-'), nanos) {
        (true, 1..) => Stamp { seconds: seconds - 1, nanos: 1_000_000_000 - nanos },
        _ => Stamp { seconds, nanos },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_stay_below_are_taken() {
        for (path, depth) in [("a/b", 2), ("./a//b/.", 2), ("./", 0), ("...", 1), ("a..", 1)] {
            assert_eq!(names(path.as_bytes()).unwrap().len(), depth, "{path}");
        }
        for path in ["/a", "..", "a/../b", "a/..", "//", "a\0b"] {
            assert!(names(path.as_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn paths_are_bounded_in_length_and_depth() {
        let refused = |path: &str| names(path.as_bytes()).unwrap_err().to_string();
        assert_eq!(names("a/".repeat(DEEPEST).as_bytes()).unwrap().len(), DEEPEST);
        assert!(refused(&"a/".repeat(DEEPEST + 1)).contains("more than 1000 directories deep"));
        assert!(names("a".repeat(LONGEST_PATH).as_bytes()).is_ok());
        let said = refused(&"a/".repeat(500_000));
        assert!(said.ends_with("is a path of 1000000 bytes; at most 4096 are allowed"), "{said}");
    }

    #[test]
    fn what_directories_say_is_bounded_together() {
        let (dir, hand) = (tempfile::tempdir().unwrap(), Hand::default());
        let top = Dir::open(dir.path()).unwrap();
        let mut put = Unpacker::into(&top, false, None, &hand).unwrap();
        let said = |bytes| EntryHeader {
            path: vec![c"d".to_owned()],
            mode: 0o755,
            owner: None,
            modified: Stamp { seconds: 0, nanos: 0 },
            attributes: vec![(b"user.x".to_vec(), vec![0; bytes])],
        };
        for _ in 0..191 {
            put.keep(said(1 << 20)).unwrap();
        }
        let error = put.keep(said(1 << 20)).unwrap_err().to_string();
        assert!(error.contains("need more than 192 MiB"), "{error}");
        put.keep(said(1)).unwrap();
    }

    #[test]
    fn fractions_of_seconds_are_nanoseconds() {
        let of = |text: &str| stamp(text.as_bytes()).map(|stamp| (stamp.seconds, stamp.nanos));
        assert_eq!(of("17.5"), Some((17, 500_000_000)));
        assert_eq!(of("17"), Some((17, 0)));
        assert_eq!(of("17.0000000019"), Some((17, 1)));
        assert_eq!(of("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(of("-0.25"), Some((-1, 750_000_000)));
        assert_eq!(of("x"), None);
    }
}
