//! The manifest of a tree, one line an entry, so that two hosts can compare trees without their
//! files.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::content::{forget, sum};
use super::dir::{Dir, Kind, Meta, Stamp};
use super::hand::Node;
use super::index::{Reader, Thing, is_index};
use super::outcome::{At, CopyError, shown};
use super::tree::is_gone;
use super::verify::Verified;
use super::walk::{Found, Step, Walk};
use super::xattr::attributes;

/// The first line of the text; a change of the form changes it.
pub const HEADER: &str = "pliant-manifest 1";

/// A SHA-256, printed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

/// One entry of a tree: everything that a copy has to preserve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path from the top; empty for the top itself.
    pub path: Vec<u8>,
    /// Type of the entry.
    pub kind: Kind,
    /// The twelve bits of its mode; those of a link mean nothing.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Time of the last change of the content.
    pub modified: Stamp,
    /// Size in bytes of a file or of the target of a link; zero for the others.
    pub size: u64,
    /// Checksum of the content of a file, or of the target of a link.
    pub content: Option<Digest>,
    /// The device that it stands for.
    pub device: Option<(u32, u32)>,
    /// The first path of the same file, if this is a further hard link to it.
    pub same_as: Option<Vec<u8>>,
    /// The extended attributes, ACLs among them, each with the digest of its value.
    pub attributes: BTreeMap<Vec<u8>, Digest>,
    /// Bytes of a file that are data and no hole, in whole grains; not part of the text, because it is a
    /// matter of the file system.
    pub stored: u64,
    /// Bytes that the file system holds for it; not part of the text either.
    pub allocated: u64,
    /// Identity of the file on this host. Not part of the text, and not sent to other hosts.
    pub thing: Option<Thing>,
}

/// Reads a tree, entry by entry, in an order that only its names determine.
pub struct Manifest<'a> {
    walk: Walk,
    reading: Reading,
    /// How many files were not read for that.
    known: u64,
    /// Of things with several names: the first, and how many have not been met yet.
    links: HashMap<(u64, u64), (Vec<u8>, u32)>,
    buffer: Vec<u8>,
    hash: Sha256,
    tick: &'a mut dyn FnMut(u64) -> Result<(), CopyError>,
}

/// What to read of a tree.
#[derive(Debug)]
pub struct Reading {
    /// Side of the copy.
    pub side: Side,
    /// Index of what need not be read, because it was compared before.
    pub index: Option<Reader>,
    /// Contents that have changed since are not read; none are without this.
    pub before: Option<Stamp>,
}

/// A side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The source, at rest.
    Source,
    /// The source while it may be written to: what vanishes or changes meanwhile is left out.
    Live,
    /// The target: what is on the disk, and not what memory still holds of it.
    Target {
        /// True if a file with the name of an index is one, and not part of the tree.
        has_index: bool,
    },
}

impl<'a> Manifest<'a> {
    /// Begins to read; `tick` receives the number of bytes that are done.
    ///
    /// # Errors
    /// An error of the system on the top.
    pub fn of(
        top: &Dir,
        reading: Reading,
        tick: &'a mut dyn FnMut(u64) -> Result<(), CopyError>,
    ) -> Result<Manifest<'a>, CopyError> {
        let walk = Walk::over(top.again().at("reading", b"")?, reading.side == Side::Live)?;
        let mut hash = Sha256::new();
        hash.update(HEADER);
        hash.update("\n");
        let (links, buffer) = (HashMap::new(), Vec::new());
        Ok(Manifest { walk, reading, known: 0, links, buffer, hash, tick })
    }

    /// Returns the next entry; `None` at the end.
    ///
    /// # Errors
    /// An error of the system, and [`CopyError::Changed`] if someone writes there.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, CopyError> {
        while let Some(found) = self.walk.step()? {
            if self.is_left_out(&found) {
                continue;
            }
            let entry = match self.entry(&found) {
                Err(error) if self.reading.side == Side::Live && is_no_longer(&error) => continue,
                entry => entry?,
            };
            self.hash.update(entry.to_string());
            self.hash.update("\n");
            return Ok(Some(entry));
        }
        Ok(None)
    }

    fn is_left_out(&self, found: &Found) -> bool {
        match found.step {
            Step::Leave => true,
            Step::Enter => false,
            Step::Thing => match (found.meta.kind, self.reading.side) {
                // Sockets and other file systems are not carried.
                (Kind::Socket | Kind::Directory, _) => true,
                (_, Side::Target { has_index }) => has_index && is_index(self.walk.path()),
                _ => false,
            },
        }
    }

    /// Returns the result for everything read until now.
    pub fn verified(self) -> Verified {
        Verified { digest: Digest(self.hash.finalize().into()), known: self.known }
    }

    fn entry(&mut self, found: &Found) -> Result<Entry, CopyError> {
        let same_as = self.first_name(&found.meta);
        let mut entry = Entry::of(self.walk.path(), &found.meta);
        if same_as.is_some() {
            return Ok(Entry { same_as, ..entry });
        }
        let node = match found.meta.kind {
            Kind::Directory => Node::open(self.walk.here().again().at("reading", b"")?),
            Kind::File => self.read(&found.name, &mut entry, &found.meta)?,
            _ => Node::bare(self.walk.here(), &found.name).at("reading", self.walk.path())?,
        };
        if entry.kind == Kind::Symlink {
            let says = self.walk.here().link(&found.name).at("reading", self.walk.path())?;
            entry.content = Some(Digest::of(&says));
        }
        let found = attributes(&node).at("reading", self.walk.path())?;
        entry.attributes =
            found.into_iter().map(|(name, value)| (name, Digest::of(&value))).collect();
        Ok(entry)
    }

    /// The path under which a thing with several names was met first, if it was.
    fn first_name(&mut self, meta: &Meta) -> Option<Vec<u8>> {
        if meta.kind == Kind::Directory || meta.links < 2 {
            return None;
        }
        let Some((first, left)) = self.links.get_mut(&meta.id) else {
            self.links.insert(meta.id, (self.walk.path().to_vec(), meta.links - 1));
            return None;
        };
        *left -= 1;
        let first = if *left == 0 { std::mem::take(first) } else { return Some(first.clone()) };
        self.links.remove(&meta.id);
        Some(first)
    }

    fn read(&mut self, name: &CStr, entry: &mut Entry, meta: &Meta) -> Result<Node, CopyError> {
        let path = self.walk.path();
        let file = self.walk.here().read(name).at("reading", path)?;
        let is_target = matches!(self.reading.side, Side::Target { .. });
        // A target has the time of modification of its source, and another one of change.
        let since = if is_target { meta.modified } else { meta.changed };
        if self.reading.before.is_some_and(|before| since >= before) {
            (self.tick)(meta.stored())?;
            return Ok(Node::open(file));
        }
        let known = self.reading.index.as_mut();
        let known = known.and_then(|index| index.sum(is_target, path, meta));
        self.known += u64::from(known.is_some());
        let summed = if let Some(known) = known {
            (self.tick)(0)?;
            known
        } else {
            if is_target {
                forget(&file);
            }
            sum((&file, meta.size), path, &mut self.buffer, self.tick)?
        };
        let node = Node::open(file);
        let now = node.meta().at("reading", path)?;
        if (now.id, now.changed, now.kind) != (meta.id, meta.changed, meta.kind) {
            return Err(self.walk.changed());
        }
        (entry.content, entry.stored) = (Some(summed.digest), summed.stored);
        Ok(node)
    }
}

impl Entry {
    fn of(path: &[u8], meta: &Meta) -> Entry {
        let (is_link, is_file) = (meta.kind == Kind::Symlink, meta.kind == Kind::File);
        let is_device = matches!(meta.kind, Kind::Character | Kind::Block);
        Entry {
            path: path.to_vec(),
            kind: meta.kind,
            mode: if is_link { 0o777 } else { meta.mode },
            owner: (meta.uid, meta.gid),
            modified: meta.modified,
            size: if is_file || is_link { meta.size } else { 0 },
            content: None,
            device: is_device.then_some(meta.device),
            same_as: None,
            attributes: BTreeMap::new(),
            stored: 0,
            allocated: if is_file { meta.allocated } else { 0 },
            thing: Some(Thing::of(meta)),
        }
    }
}

/// Returns whether an entry has changed since the walk reached it, or is gone.
fn is_no_longer(error: &CopyError) -> bool {
    match error {
        CopyError::Changed { .. } => true,
        CopyError::Failed { source, .. } => is_gone(source),
        _ => false,
    }
}

/// The text of one thing, without an end of line: fields in a fixed order with a space between, `-` for
/// what it does not have, the path last, and everything that is not printable ASCII escaped.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uid, gid) = self.owner;
        write!(f, "{} {:04o} {uid}:{gid} {}", self.kind.word(), self.mode, self.modified)?;
        write!(f, " {}", self.size)?;
        match (self.content, self.device, &self.same_as) {
            (_, _, Some(first)) => write!(f, " ={}", field(first))?,
            (Some(content), ..) => write!(f, " {content}")?,
            (_, Some((major, minor)), _) => write!(f, " {major},{minor}")?,
            _ => write!(f, " -")?,
        }
        if self.attributes.is_empty() {
            write!(f, " -")?;
        }
        for (number, (name, digest)) in self.attributes.iter().enumerate() {
            let between = if number == 0 { ' ' } else { ',' };
            write!(f, "{between}{}={digest}", field(name).replace(',', "\\x2c"))?;
        }
        write!(f, " {}", shown(&self.path))
    }
}

/// A path or a name that other fields follow.
fn field(bytes: &[u8]) -> String {
    shown(bytes).replace(' ', "\\x20")
}

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Digest, String> {
        let wrong = || format!("`{text}` is not a SHA-256: write 64 hexadecimal digits");
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let (pairs, []) = hex.as_chunks::<2>() else { return Err(wrong()) };
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok())
            .collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Digest).ok_or_else(wrong)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("sha256:{self}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = Digest::of(b"x");
        for text in [digest.to_string(), digest.to_string().to_uppercase()] {
            assert_eq!(text.parse(), Ok(digest));
        }
        assert_eq!(format!("sha256:{digest}").parse(), Ok(digest));
        for text in ["", "ab", &"a".repeat(63), &"a".repeat(66), &"g".repeat(64)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_text_is_stable_and_no_name_makes_a_line_or_a_field() {
        let mut entry = Entry {
            path: b"a b\nc\xff".to_vec(),
            kind: Kind::File,
            mode: 0o4755,
            owner: (1000, 7),
            modified: Stamp { seconds: -1, nanos: 5 },
            size: 3,
            content: Some(Digest([0xab; 32])),
            device: None,
            same_as: None,
            attributes: BTreeMap::from([(b"user.a b,c".to_vec(), Digest([1; 32]))]),
            stored: 65536,
            allocated: 4096,
            thing: None,
        };
        let (content, value) = ("ab".repeat(32), "01".repeat(32));
        let expected = format!(
            r"file 4755 1000:7 -1.000000005 3 {content} user.a\x20b\x2cc={value} a b\nc\xff"
        );
        assert_eq!(entry.to_string(), expected);
        entry.same_as = Some(b"x y".to_vec());
        entry.attributes.clear();
        let expected = r"file 4755 1000:7 -1.000000005 3 =x\x20y - a b\nc\xff";
        assert_eq!(entry.to_string(), expected);
    }
}
