//! Puts the things of an archive into a directory, and nowhere else.

use std::ffi::{CStr, CString};
use std::io::Read;

use tar::{Entry, EntryType};

use crate::archive::stream::{Guard, refused};
use crate::bytes::Bytes;
use crate::copy::{
    At, CopyError, Dir, Hand, Kind, Meta, Node, Outcome, Stamp, is_carried, remove_all, shown,
};

const PIECE: usize = 1 << 20;
/// What tools write before the name of an extended attribute.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

type Tick<'a> = &'a mut dyn FnMut() -> Result<(), CopyError>;

/// What an archive says of a thing besides its content.
#[derive(Debug, Clone)]
struct Said {
    path: Vec<CString>,
    mode: u32,
    owner: Option<(u32, u32)>,
    modified: Stamp,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Puts things below one directory.
pub struct Put<'a> {
    top: Dir,
    owners: bool,
    hand: &'a Hand,
    /// Bytes that may still come.
    left: u64,
    limit: Bytes,
    /// Directories get theirs at the end, when nothing is put into them any more.
    directories: Vec<Said>,
    buffer: Vec<u8>,
    done: Outcome,
}

impl<'a> Put<'a> {
    /// Put into a directory no more than there is room for, and than `max_size` if that is less.
    pub fn into(
        top: &Dir,
        owners: bool,
        max_size: Option<Bytes>,
        hand: &'a Hand,
    ) -> Result<Put<'a>, CopyError> {
        let has = rustix::fs::fstatvfs(top).at("measuring", b"")?;
        let room = Bytes::new(has.f_bavail.saturating_mul(has.f_frsize));
        let limit = max_size.map_or(room, |max| max.min(room));
        let (left, buffer, done) = (limit.get(), vec![0; PIECE], Outcome::default());
        let top = top.again().at("reading", b"")?;
        Ok(Put { top, owners, hand, left, limit, directories: Vec::new(), buffer, done })
    }

    /// Put one thing in its place; one that the archive had before under this name goes.
    pub fn entry(&mut self, mut entry: Entry<Guard>, tick: Tick) -> Result<(), CopyError> {
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let said = self.said(&mut entry)?;
        let Some((name, above)) = said.path.split_last() else {
            // The top itself.
            self.directories.push(said);
            return Ok(());
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
                self.hand.make_link(&dir, name, &to).at("linking", &joined(&said.path))?;
                let node = Node::bare(&dir, name).at("reading", &joined(&said.path))?;
                self.dress(&node, &said, false)?;
            }
            EntryType::Link => self.one_more_name(&dir, name, &said, &entry)?,
            EntryType::Fifo => self.fifo(&dir, name, &said)?,
            EntryType::Char | EntryType::Block => {
                return Err(hostile(&said.path, "is a device, which no archive may bring"));
            }
            _ => return Err(hostile(&said.path, "is of a kind that is not known")),
        }
        self.done.files += 1;
        tick()
    }

    /// Give the directories theirs, and say what was put.
    pub fn finish(mut self) -> Result<Outcome, CopyError> {
        for said in std::mem::take(&mut self.directories) {
            let node = Node::open(self.descend(&said.path)?);
            self.dress(&node, &said, true)?;
        }
        Ok(self.done)
    }

    fn said(&self, entry: &mut Entry<Guard>) -> Result<Said, CopyError> {
        let path = names(&entry.path_bytes())?;
        let broken = |error| refused(error, "reading", "the archive");
        let header = entry.header();
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        let mode = header.mode().map_err(broken)? & 0o7777;
        let seconds = i64::try_from(header.mtime().map_err(broken)?).unwrap_or_default();
        let owner = if self.owners {
            let owner = id(header.uid().map_err(broken)?).zip(id(header.gid().map_err(broken)?));
            Some(owner.ok_or_else(|| hostile(&path, "has an owner that cannot be"))?)
        } else {
            None
        };
        let modified = Stamp { seconds, nanos: 0 };
        let mut said = Said { path, mode, owner, modified, attributes: Vec::new() };
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
            match dir.find(name).at("reading", &joined(so_far))? {
                None => {
                    self.hand.make_dir(&dir, name).at("making", &joined(so_far))?;
                    let made = Node::open(dir.enter(name).at("entering", &joined(so_far))?);
                    self.hand.set_mode(&made, 0o755).at("making", &joined(so_far))?;
                }
                Some(meta) if meta.kind == Kind::Directory => {}
                Some(_) => {
                    return Err(hostile(path, "leads through something that is no directory"));
                }
            }
            dir = dir.enter(name).at("entering", &joined(so_far))?;
        }
        Ok(dir)
    }

    fn directory(&mut self, dir: &Dir, name: &CStr, said: Said) -> Result<(), CopyError> {
        match dir.find(name).at("reading", &joined(&said.path))? {
            None => self.hand.make_dir(dir, name).at("making", &joined(&said.path))?,
            Some(meta) if meta.kind == Kind::Directory => {}
            Some(_) => return Err(hostile(&said.path, "is twice in it, as different things")),
        }
        self.directories.push(said);
        Ok(())
    }

    fn file(
        &mut self,
        dir: &Dir,
        name: &CStr,
        said: &Said,
        mut entry: Entry<Guard>,
        tick: Tick,
    ) -> Result<(), CopyError> {
        let (size, path) = (entry.size(), joined(&said.path));
        if size > self.left {
            return Err(CopyError::Refused(format!(
                "the archive holds more than {}, which is what the target has room for or --max-size \
                 allows",
                self.limit
            )));
        }
        self.left -= size;
        let file = self.hand.make_file(dir, name).at("making", &path)?;
        let (mut at, mut end) = (0, 0);
        while at < size {
            let length = usize::try_from(size - at).map_or(PIECE, |left| left.min(PIECE));
            let piece = &mut self.buffer[..length];
            let read = entry.read_exact(piece);
            read.map_err(|error| refused(error, "reading", "the archive"))?;
            at += length as u64;
            // Zeroes need no room.
            if piece.iter().any(|byte| *byte != 0) {
                self.hand.write(&file, piece, at - length as u64).at("writing", &path)?;
                self.done.bytes += length as u64;
                end = at;
            }
            tick()?;
        }
        if end < size {
            self.hand.set_size(&file, size).at("writing", &path)?;
        }
        self.dress(&Node::open(file), said, true)
    }

    fn one_more_name(
        &self,
        dir: &Dir,
        name: &CStr,
        said: &Said,
        entry: &Entry<Guard>,
    ) -> Result<(), CopyError> {
        let first = names(&entry.link_name_bytes().unwrap_or_default())?;
        let Some((last, above)) = first.split_last() else {
            return Err(hostile(&said.path, "is a name of the top"));
        };
        let from = self.descend(above)?;
        match from.find(last).at("reading", &joined(&first))? {
            Some(meta) if meta.kind != Kind::Directory => {
                self.hand.add_name((&from, last), (dir, name)).at("linking", &joined(&said.path))
            }
            _ => Err(hostile(&said.path, "is a name of something that is not in it")),
        }
    }

    fn fifo(&self, dir: &Dir, name: &CStr, said: &Said) -> Result<(), CopyError> {
        let path = joined(&said.path);
        let meta = Meta { kind: Kind::Fifo, ..dir.own_meta().at("reading", &path)? };
        self.hand.make_node(dir, name, &meta).at("making", &path)?;
        self.dress(&Node::bare(dir, name).at("reading", &path)?, said, true)
    }

    fn dress(&self, node: &Node, said: &Said, has_mode: bool) -> Result<(), CopyError> {
        let path = joined(&said.path);
        if let Some((uid, gid)) = said.owner {
            self.hand.set_owner(node, uid, gid).at("setting the owner of", &path)?;
        }
        if has_mode {
            self.hand.set_mode(node, said.mode).at("setting the mode of", &path)?;
        }
        for (name, value) in &said.attributes {
            self.hand.set_attribute(node, name, value).at("setting an attribute of", &path)?;
        }
        let times = self.hand.set_times(node, said.modified, said.modified);
        times.at("setting the times of", &path)
    }
}

fn remove_all_but_directories(
    hand: &Hand,
    dir: &Dir,
    name: &CStr,
    said: &Said,
) -> Result<(), CopyError> {
    let path = joined(&said.path);
    match dir.find(name).at("reading", &path)? {
        Some(meta) if meta.kind == Kind::Directory => {
            Err(hostile(&said.path, "is twice in it, as different things"))
        }
        _ => remove_all(hand, dir, name).map(drop).at("removing", &path),
    }
}

/// The names of a path, of which none leads up or begins anew.
fn names(path: &[u8]) -> Result<Vec<CString>, CopyError> {
    let refuse = |why| Err(CopyError::Refused(format!("{} {why}", shown(path))));
    if path.starts_with(b"/") {
        return refuse("in the archive is an absolute path; pack it from within its directory");
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let mut names = Vec::new();
    for part in parts {
        match CString::new(part) {
            Ok(name) if part != b".." => names.push(name),
            _ => return refuse("in the archive leads out of it"),
        }
    }
    Ok(names)
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
