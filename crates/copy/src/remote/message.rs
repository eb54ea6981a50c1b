//! Encoding of numbers, texts and entries of a tree for the other side, the lowest byte first.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::time::UNIX_EPOCH;

use crate::bytes::Bytes;
use crate::copy::{Attributes, Digest, Entry, EntryKind, Meta, Needs, Reserved, Stamp, Totals};

/// The longest name that a kernel takes.
const LONGEST_NAME: usize = 255;

/// Buffer that is written to.
#[derive(Debug, Default)]
pub struct MessageWriter(pub Vec<u8>);

/// Buffer that is read, piece by piece.
#[derive(Debug)]
pub struct MessageReader<'a>(pub &'a [u8]);

/// Returns the error that the other side sent something invalid.
pub fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other side sent {what}"))
}

/// A name in a directory: never one that leads elsewhere.
pub fn name(name: &[u8]) -> io::Result<CString> {
    let is_none =
        matches!(name, b"" | b"." | b"..") || name.len() > LONGEST_NAME || name.contains(&b'/');
    if is_none {
        return Err(nonsense("an invalid name"));
    }
    CString::new(name).map_err(|_| nonsense("an invalid name"))
}

/// Returns the current time of this host.
pub fn now() -> Stamp {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    Stamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos(),
    }
}

impl MessageWriter {
    /// Writes a byte.
    pub fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Writes four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    /// Writes eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Bytes with their length before them; none here are longer than a frame.
    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value);
    }

    /// Writes a time.
    pub fn stamp(&mut self, value: Stamp) {
        self.0.extend(value.seconds.to_le_bytes());
        self.u32(value.nanos);
    }

    /// Writes a digest.
    pub fn digest(&mut self, value: &Digest) {
        self.0.extend(value.0);
    }

    /// Writes attributes.
    pub fn attributes(&mut self, value: &Attributes) {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        for (name, value) in value {
            self.bytes(name);
            self.bytes(value);
        }
    }

    /// Writes the metadata of an entry.
    pub fn meta(&mut self, meta: &Meta) {
        self.byte(number_of(meta.kind));
        for value in [meta.mode, meta.uid, meta.gid, meta.links, meta.device.0, meta.device.1] {
            self.u32(value);
        }
        for value in [meta.size, meta.allocated, meta.id.0, meta.id.1] {
            self.u64(value);
        }
        for value in [meta.read, meta.modified, meta.changed] {
            self.stamp(value);
        }
        self.byte(meta.is_mount.into());
    }

    /// Writes what a tree takes.
    pub fn requirements(&mut self, needs: &Needs) {
        for value in [needs.bytes.get(), needs.inodes, needs.totals.bytes, needs.totals.files] {
            self.u64(value);
        }
        self.byte(needs.reserved.is_some().into());
        if let Some(reserved) = &needs.reserved {
            self.bytes(&reserved.path);
            self.bytes(&reserved.name);
        }
    }

    /// Writes an entry of a manifest.
    pub fn entry(&mut self, entry: &Entry) {
        self.bytes(&entry.path);
        self.byte(number_of(entry.kind));
        for value in [entry.mode, entry.owner.0, entry.owner.1] {
            self.u32(value);
        }
        self.stamp(entry.modified);
        for value in [entry.size, entry.stored, entry.allocated] {
            self.u64(value);
        }
        self.byte(entry.content.is_some().into());
        self.digest(&entry.content.unwrap_or(Digest([0; 32])));
        let (major, minor) = entry.device.unwrap_or_default();
        self.byte(entry.device.is_some().into());
        self.u32(major);
        self.u32(minor);
        self.byte(entry.same_as.is_some().into());
        self.bytes(entry.same_as.as_deref().unwrap_or_default());
        self.u32(u32::try_from(entry.attributes.len()).unwrap_or(u32::MAX));
        for (name, digest) in &entry.attributes {
            self.bytes(name);
            self.digest(digest);
        }
    }
}

impl<'a> MessageReader<'a> {
    fn some(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| nonsense("less than it announced"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.some(N)?);
        Ok(array)
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> io::Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads whether.
    pub fn flag(&mut self) -> io::Result<bool> {
        self.byte().map(|byte| byte != 0)
    }

    /// Reads four bytes.
    pub fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes.
    pub fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads bytes with their length before them.
    pub fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = self.u32()?;
        self.some(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Reads a name in a directory: never one that leads elsewhere.
    pub fn name(&mut self) -> io::Result<CString> {
        name(self.bytes()?)
    }

    /// Reads a time.
    pub fn stamp(&mut self) -> io::Result<Stamp> {
        let seconds = i64::from_le_bytes(self.array()?);
        let nanos = self.u32()?;
        if nanos >= 1_000_000_000 {
            return Err(nonsense("an invalid time"));
        }
        Ok(Stamp { seconds, nanos })
    }

    /// Reads a digest.
    pub fn digest(&mut self) -> io::Result<Digest> {
        self.array().map(Digest)
    }

    /// Reads attributes.
    pub fn attributes(&mut self) -> io::Result<Attributes> {
        let count = self.u32()?;
        (0..count).map(|_| Ok((self.bytes()?.to_vec(), self.bytes()?.to_vec()))).collect()
    }

    /// Reads the metadata of an entry.
    pub fn meta(&mut self) -> io::Result<Meta> {
        Ok(Meta {
            kind: self.kind()?,
            mode: self.u32()? & 0o7777,
            uid: self.u32()?,
            gid: self.u32()?,
            links: self.u32()?,
            device: (self.u32()?, self.u32()?),
            size: self.u64()?,
            allocated: self.u64()?,
            id: (self.u64()?, self.u64()?),
            read: self.stamp()?,
            modified: self.stamp()?,
            changed: self.stamp()?,
            is_mount: self.flag()?,
        })
    }

    fn kind(&mut self) -> io::Result<EntryKind> {
        let number = usize::from(self.byte()?);
        KINDS.get(number).copied().ok_or_else(|| nonsense("an invalid type"))
    }

    /// Reads what a tree takes.
    pub fn requirements(&mut self) -> io::Result<Needs> {
        Ok(Needs {
            bytes: Bytes::new(self.u64()?),
            inodes: self.u64()?,
            totals: Totals { bytes: self.u64()?, files: self.u64()? },
            reserved: if self.flag()? { Some(self.reserved()?) } else { None },
        })
    }

    fn reserved(&mut self) -> io::Result<Reserved> {
        Ok(Reserved { path: self.bytes()?.to_vec(), name: self.bytes()?.to_vec() })
    }

    /// Reads an entry of a manifest.
    pub fn entry(&mut self) -> io::Result<Entry> {
        Ok(Entry {
            path: self.bytes()?.to_vec(),
            kind: self.kind()?,
            mode: self.u32()?,
            owner: (self.u32()?, self.u32()?),
            modified: self.stamp()?,
            size: self.u64()?,
            stored: self.u64()?,
            allocated: self.u64()?,
            content: (self.flag()?, self.digest()?).into_option(),
            device: (self.flag()?, (self.u32()?, self.u32()?)).into_option(),
            same_as: (self.flag()?, self.bytes()?.to_vec()).into_option(),
            attributes: self.digests()?,
            thing: None,
        })
    }

    fn digests(&mut self) -> io::Result<BTreeMap<Vec<u8>, Digest>> {
        let count = self.u32()?;
        (0..count).map(|_| Ok((self.bytes()?.to_vec(), self.digest()?))).collect()
    }
}

trait IntoOption<T> {
    fn into_option(self) -> Option<T>;
}

impl<T> IntoOption<T> for (bool, T) {
    fn into_option(self) -> Option<T> {
        self.0.then_some(self.1)
    }
}

const KINDS: [EntryKind; 7] = [
    EntryKind::File,
    EntryKind::Directory,
    EntryKind::Symlink,
    EntryKind::Fifo,
    EntryKind::Character,
    EntryKind::Block,
    EntryKind::Socket,
];

fn number_of(kind: EntryKind) -> u8 {
    let place = KINDS.iter().position(|one| *one == kind).unwrap_or_default();
    u8::try_from(place).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_the_other_side_never_leads_elsewhere() {
        let read = |name: &[u8]| {
            let mut put = MessageWriter::default();
            put.bytes(name);
            MessageReader(&put.0).name()
        };
        let long = vec![b'x'; 256];
        for name in [b"".as_slice(), b".", b"..", b"a/b", b"/", b"a\0b", &long] {
            assert_eq!(read(name).unwrap_err().kind(), io::ErrorKind::InvalidData, "{name:?}");
        }
        for name in [b"...".as_slice(), b"..x", b" ", b"a\nb", b"\xff", &long[1..]] {
            assert_eq!(read(name).unwrap().as_bytes(), name);
        }
    }

    #[test]
    fn what_says_more_than_it_has_is_refused_before_room_is_made_for_it() {
        let mut put = MessageWriter::default();
        put.u32(u32::MAX);
        assert!(MessageReader(&put.0).bytes().is_err());
        assert!(MessageReader(&put.0).attributes().is_err());
        assert!(MessageReader(&put.0).entry().is_err());
        assert!(MessageReader(&[]).meta().is_err());
    }

    #[test]
    fn what_is_written_is_read() {
        let stamp = |seconds| Stamp { seconds, nanos: 999_999_999 };
        for kind in KINDS {
            let meta = Meta {
                kind,
                mode: 0o4755,
                uid: 1,
                gid: 2,
                size: 3,
                allocated: 4,
                links: 5,
                id: (6, 7),
                device: (8, 9),
                read: stamp(-10),
                modified: stamp(11),
                changed: stamp(12),
                is_mount: true,
            };
            let mut put = MessageWriter::default();
            put.meta(&meta);
            let mut take = MessageReader(&put.0);
            assert_eq!((take.meta().unwrap(), take.0), (meta, [].as_slice()));
        }
        let reserved = Reserved { path: b"a/b".to_vec(), name: b"security.x".to_vec() };
        for reserved in [None, Some(reserved)] {
            let totals = Totals { bytes: 3, files: 4 };
            let needs = Needs { bytes: Bytes::new(1), inodes: 2, totals, reserved };
            let mut put = MessageWriter::default();
            put.requirements(&needs);
            let mut take = MessageReader(&put.0);
            assert_eq!((take.requirements().unwrap(), take.0), (needs, [].as_slice()));
        }
        let entry = Entry {
            path: b"a/b".to_vec(),
            kind: EntryKind::Block,
            mode: 0o600,
            owner: (1, 2),
            modified: stamp(-3),
            size: 4,
            content: Some(Digest([5; 32])),
            device: Some((6, 7)),
            same_as: Some(b"a/a".to_vec()),
            attributes: BTreeMap::from([(b"user.x".to_vec(), Digest([8; 32]))]),
            stored: 9,
            allocated: 10,
            thing: None,
        };
        let bare = Entry { content: None, device: None, same_as: None, ..entry.clone() };
        for entry in [entry, bare] {
            let mut put = MessageWriter::default();
            put.entry(&entry);
            let mut take = MessageReader(&put.0);
            assert_eq!((take.entry().unwrap(), take.0), (entry, [].as_slice()));
        }
    }
}
