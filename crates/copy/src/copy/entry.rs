//! One entry of a tree, and its line in a manifest.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::dir::{EntryKind, Meta, Stamp};
use super::outcome::shown;

/// One entry of a tree: everything that a copy has to preserve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path from the top; empty for the top itself.
    pub path: Vec<u8>,
    /// Type of the entry.
    pub kind: EntryKind,
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
    #[serde(skip)]
    pub thing: Option<FileIdentity>,
}

/// Identity of a file in its file system, and its change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The number of its inode.
    pub inode: u64,
    /// Time of the last change.
    pub changed: Stamp,
}

impl FileIdentity {
    /// The file that this metadata belongs to.
    pub fn of(meta: &Meta) -> FileIdentity {
        FileIdentity { inode: meta.id.1, changed: meta.changed }
    }
}

impl Entry {
    /// What the metadata say of it.
    pub(super) fn of(path: &[u8], meta: &Meta) -> Entry {
        let (is_link, is_file) = (meta.kind == EntryKind::Symlink, meta.kind == EntryKind::File);
        let is_device = matches!(meta.kind, EntryKind::Character | EntryKind::Block);
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
            thing: Some(FileIdentity::of(meta)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_stable_and_no_name_makes_a_line_or_a_field() {
        let mut entry = Entry {
            path: b"a b\nc\xff".to_vec(),
            kind: EntryKind::File,
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
