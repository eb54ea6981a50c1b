//! The index of what an earlier pass has compared, so that the last pass need not read it again.
//!
//! It is a file at the top of the target, from the first pass that compares to the end of the last
//! one. For each file that was the same on both sides it has the identity of both files, the change
//! time of each, and the checksum of their content. A side that is still that file, with that
//! change time, is not read again; the other one is, if it is not.
//!
//! What makes that a proof is the time of change, which the kernel sets at each write and no one
//! else can:
//! - A page that a program has mapped is written without a new time for as long as it is dirty. So the source is
//!   flushed before it is read: the first store after that sets the time.
//! - A write may take a while after it has set the time. So what changed shortly before is not kept here.
//! - A directory that is moved leaves the times of its files alone. So the things are reported, not
//!   only their paths.
//! - A power cut may leave what was written without the time of it. So nothing of this counts after
//!   a start of the host.

use std::ffi::CStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use super::digest::Digest;
use super::dir::{Dir, EntryKind, Meta, Stamp};
use super::entry::{Entry, FileIdentity};
use super::mirror::{remove_all, stamp};
use super::options::ChangeTimes;
use super::outcome::{At, CopyError};
use super::sum::Sum;
use super::target::{Hand, OpenEntry};
use super::walk::is_before;

/// Where it is, at the top of the target.
const NAME: &CStr = c".pliant-compared";
/// Where the next one is written.
const NEXT: &CStr = c".pliant-compared.next";
/// The first word of it; a change of the form changes it.
const HEADER: &str = "pliant-compared-1";
/// Ends each record: no path has it.
const END: u8 = 0;
/// How much is written at a time.
const WRITTEN_AT_ONCE: usize = 256 << 10;
/// What `statfs` calls them; ext4 includes ext2 and ext3. Source: `linux/magic.h`.
const EXT4: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683e;
/// Says which start of the host this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Returns whether a name at the top of a target is that of an index.
pub fn is_index(name: &[u8]) -> bool {
    name == NAME.to_bytes() || name == NEXT.to_bytes()
}

/// The index of a copy on one host.
#[derive(Debug)]
pub struct Index<'a> {
    /// Source of the copy.
    pub source: &'a Dir,
    boot: String,
    /// What has changed less than so long before it was compared is compared once more.
    still_for: Duration,
}

/// One side of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileSide {
    thing: FileIdentity,
    stored: u64,
}

/// A file that is the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IndexRecord {
    path: Vec<u8>,
    source: FileSide,
    target: FileSide,
    modified: Stamp,
    size: u64,
    content: Digest,
}

impl Index<'_> {
    /// The index of a copy. `None` if the times of the source cannot be relied on, if the source
    /// has a file with the name of the index, or if the host does not report its start time: then
    /// everything is compared.
    ///
    /// # Errors
    /// An error of the system on the source.
    pub fn of(source: &Dir, changed: ChangeTimes) -> Result<Option<Index<'_>>, CopyError> {
        let ChangeTimes { still_for, anywhere } = changed;
        if !anywhere && !sets_times(source).at("measuring", b"")? {
            return Ok(None);
        }
        for name in [NAME, NEXT] {
            if source.find(name).at("reading", name.to_bytes())?.is_some() {
                return Ok(None);
            }
        }
        let boot = std::fs::read_to_string(BOOT).map(|boot| boot.trim().to_owned());
        let boot = boot.ok().filter(|boot| !boot.is_empty());
        Ok(boot.map(|boot| Index { source, boot, still_for }))
    }

    /// Opens the list of what was compared; `None` if no pass has done so since the host was
    /// started.
    pub fn known(&self, target: &Dir) -> Option<IndexReader> {
        let mut records = BufReader::new(target.read(NAME).ok()?);
        let mut header = Vec::new();
        records.read_until(END, &mut header).ok()?;
        (header == self.header()).then(|| IndexReader { records, next: None })
    }

    fn header(&self) -> Vec<u8> {
        format!("{HEADER} {}\0", self.boot).into_bytes()
    }

    /// Begins a new index. First, all data of the source in memory is written to its disk.
    ///
    /// # Errors
    /// An error of the system, and [`CopyError::Refused`] if the target is full.
    pub fn begin<'w>(&self, target: &'w Dir, hand: &'w Hand) -> Result<IndexWriter<'w>, CopyError> {
        let before = Stamp::now().earlier(self.still_for);
        rustix::fs::syncfs(self.source).at("flushing", b"")?;
        take_away(target, hand, NEXT)?;
        let file = hand.make_file(target, NEXT).at("making", NEXT.to_bytes())?;
        Ok(IndexWriter { hand, target, file, text: self.header(), written: 0, before })
    }
}

/// Removes the index of a target, and leaves its top as it was: the times of the top are those of
/// the source.
///
/// # Errors
/// An error of the system.
pub fn remove_index(target: &Dir, hand: &Hand) -> Result<(), CopyError> {
    let top = OpenEntry::open(target.again().at("reading", b"")?);
    let was = top.meta().at("reading", b"")?;
    [NAME, NEXT].iter().try_for_each(|name| take_away(target, hand, name))?;
    stamp(hand, &top, (was.read, was.modified), b"")
}

/// Also what an earlier round has carried under that name.
fn take_away(target: &Dir, hand: &Hand, name: &CStr) -> Result<(), CopyError> {
    remove_all(hand, target, name).map(drop).at("removing", name.to_bytes())
}

/// Returns whether the kernel sets the time of change at each write, and no one but this host writes:
/// elsewhere a page that is mapped may change without it, or a server may set it by another clock.
fn sets_times(dir: &Dir) -> rustix::io::Result<bool> {
    let kind = rustix::fs::fstatfs(dir)?.f_type;
    Ok([EXT4, XFS, BTRFS].iter().any(|known| i128::from(kind) == i128::from(*known)))
}

/// Writes an index.
pub struct IndexWriter<'a> {
    hand: &'a Hand,
    target: &'a Dir,
    file: File,
    text: Vec<u8>,
    written: u64,
    /// What has changed after this time is not added.
    pub before: Stamp,
}

impl IndexWriter<'_> {
    /// Adds a file that is the same on both sides; skips other entries.
    ///
    /// # Errors
    /// An error of the system, and [`CopyError::Refused`] if the target is full.
    pub fn keep(&mut self, source: &Entry, target: &Entry) -> Result<(), CopyError> {
        if let Some(record) = IndexRecord::of(source, target, self.before) {
            record.write(&mut self.text);
        }
        if self.text.len() >= WRITTEN_AT_ONCE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), CopyError> {
        self.hand.write(&self.file, &self.text, self.written).at("writing", NEXT.to_bytes())?;
        self.written += self.text.len() as u64;
        self.text.clear();
        Ok(())
    }

    /// Puts the index into the place of the one before. It is not made durable: it counts only
    /// until the host stops.
    ///
    /// # Errors
    /// As for [`Self::keep`].
    pub fn end(mut self) -> Result<(), CopyError> {
        self.write()?;
        take_away(self.target, self.hand, NAME)?;
        let moved = self.hand.rename((self.target, NEXT), (self.target, NAME));
        moved.at("renaming", NEXT.to_bytes())
    }
}

/// Reads an index, in the order of a walk.
#[derive(Debug)]
pub struct IndexReader {
    records: BufReader<File>,
    next: Option<IndexRecord>,
}

impl IndexReader {
    /// Returns the checksum of a file, if this file was compared and has not changed since. Call it
    /// in the order of a walk.
    pub fn sum(&mut self, is_target: bool, path: &[u8], meta: &Meta) -> Option<Sum> {
        while self.next.as_ref().is_none_or(|record| is_before(&record.path, path)) {
            self.next = Some(self.read()?);
        }
        let record = self.next.as_ref().filter(|record| record.path == path)?;
        let half = if is_target { record.target } else { record.source };
        let is_it = half.thing == FileIdentity::of(meta)
            && (record.modified, record.size) == (meta.modified, meta.size);
        is_it.then_some(Sum { digest: record.content, stored: half.stored })
    }

    /// Nothing at the end, or if it makes no sense.
    fn read(&mut self) -> Option<IndexRecord> {
        let mut text = Vec::new();
        self.records.read_until(END, &mut text).ok()?;
        IndexRecord::read(text.strip_suffix(&[END])?)
    }
}

impl IndexRecord {
    fn of(source: &Entry, target: &Entry, before: Stamp) -> Option<IndexRecord> {
        let is_the_same = (source.kind, target.kind) == (EntryKind::File, EntryKind::File)
            && (source.modified, source.size) == (target.modified, target.size)
            && source.content == target.content;
        let thing = source.thing.filter(|thing| is_the_same && thing.changed < before)?;
        Some(IndexRecord {
            path: source.path.clone(),
            source: FileSide { thing, stored: source.stored },
            target: FileSide { thing: target.thing?, stored: target.stored },
            modified: source.modified,
            size: source.size,
            content: source.content?,
        })
    }

    fn write(&self, text: &mut Vec<u8>) {
        for half in [self.source, self.target] {
            let FileSide { thing: FileIdentity { inode, changed }, stored } = half;
            text.extend_from_slice(format!("{inode} {changed} {stored} ").as_bytes());
        }
        let rest = format!("{} {} {} ", self.modified, self.size, self.content);
        text.extend_from_slice(rest.as_bytes());
        text.extend_from_slice(&self.path);
        text.push(END);
    }

    fn read(text: &[u8]) -> Option<IndexRecord> {
        let mut words = text.splitn(10, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let mut half = || {
            let thing =
                FileIdentity { inode: word()?.parse().ok()?, changed: word()?.parse().ok()? };
            Some(FileSide { thing, stored: word()?.parse().ok()? })
        };
        let (source, target) = (half()?, half()?);
        let (modified, size) = (word()?.parse().ok()?, word()?.parse().ok()?);
        let content = word()?.parse().ok()?;
        Some(IndexRecord { path: words.next()?.to_vec(), source, target, modified, size, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let half = |inode, seconds| {
            let changed = Stamp { seconds, nanos: 5 };
            FileSide { thing: FileIdentity { inode, changed }, stored: inode + 1 }
        };
        let record = IndexRecord {
            path: b"a b\nc\xff".to_vec(),
            source: half(7, -3),
            target: half(u64::MAX - 1, 1_600_000_000),
            modified: Stamp { seconds: i64::MIN, nanos: 999_999_999 },
            size: 3,
            content: Digest([0xab; 32]),
        };
        let mut text = Vec::new();
        record.write(&mut text);
        let whole = text.strip_suffix(&[END]).unwrap();
        assert_eq!(IndexRecord::read(whole), Some(record));
        for length in 0..whole.len() - 6 {
            assert_eq!(IndexRecord::read(&whole[..length]), None, "{length}");
        }
    }
}
