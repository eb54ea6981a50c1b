//! Power cuts: what a disk holds after every write up to some point, and no later one, has reached it.
//!
//! The kernel's dm-log-writes target passes everything on to a disk and writes a log of it to
//! another. This module reads such a log and plays any part of it onto a third disk.
//!
//! A write enters the log when a flush has covered it or, with FUA, when it completes. So every
//! prefix of the log is what a disk holds that loses its whole cache, and the writes between a
//! prefix and the next flush are those of which a disk may keep any part.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};

use crate::machine::{Disk, attempt, run};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;

const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// Bytes of an entry before its mark.
const ENTRY: usize = 32;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// First byte on the disk.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What it is.
    pub kind: Kind,
    /// What completed before it is durable, or it is durable itself.
    pub durable: bool,
}

/// What a line of the log stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Bytes written, none for a mere flush; they lie in the log from this byte on.
    Write(u64),
    /// Bytes given back.
    Discard,
    /// A word that [`Recorder::mark`] put there.
    Mark(String),
}

/// Records what is written to its device, from its making until [`Recorder::finish`].
pub struct Recorder<'a> {
    name: String,
    log: &'a Disk,
}

impl<'a> Recorder<'a> {
    /// Puts a device over `disk` that passes everything on to it and logs it on `log`.
    pub fn over(disk: &Disk, log: &'a Disk) -> Recorder<'a> {
        let device = disk.device();
        let sectors = run("blockdev", &["--getsz", device]);
        let name = format!("recorded-{}", device.replace('/', ""));
        let table = format!("0 {} log-writes {device} {}", sectors.trim(), log.device());
        run("dmsetup", &["create", &name, "--table", &table]);
        Recorder { name, log }
    }

    /// The path of the device to write to, `/dev/dm-0`.
    pub fn device(&self) -> String {
        mapped(&self.name)
    }

    /// Puts a word into the log: "from here on this is promised".
    pub fn mark(&self, word: &str) {
        run("dmsetup", &["message", &self.name, "0", &format!("mark {word}")]);
    }

    /// Ends the recording and reads the log.
    ///
    /// What was not flushed by then stands after all that was.
    pub fn finish(self) -> io::Result<Log> {
        run("dmsetup", &["remove", &self.name]);
        Log::read(Path::new(self.log.device()))
    }
}

/// A device over a disk whose writes are forgotten when it is dropped.
///
/// One disk can so be played forward once while each cut is healed and looked at on its own.
pub struct Throwaway {
    name: String,
    _changes: Disk,
}

impl Throwaway {
    /// Puts it over a disk, which must not change meanwhile.
    pub fn over(disk: &Disk) -> Throwaway {
        let sectors = run("blockdev", &["--getsz", disk.device()]);
        let sectors = sectors.trim();
        let bytes: u64 = sectors.parse::<u64>().expect("sectors") * 512;
        let changes = Disk::of(bytes + (16 << 20));
        let name = format!("throwaway-{}", disk.device().replace('/', ""));
        let table = format!("0 {sectors} snapshot {} {} N 8", disk.device(), changes.device());
        run("dmsetup", &["create", &name, "--table", &table]);
        Throwaway { name, _changes: changes }
    }

    /// The path of its device, `/dev/dm-1`.
    pub fn device(&self) -> String {
        mapped(&self.name)
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        // In a test that has failed already, only that failure counts.
        let _ = attempt("dmsetup", &["remove", "--force", &self.name]);
    }
}

fn mapped(name: &str) -> String {
    let node = run("dmsetup", &["info", "-c", "--noheadings", "-o", "blkdevname", name]);
    format!("/dev/{}", node.trim())
}

/// A log, read.
pub struct Log {
    file: File,
    /// Its lines, the oldest first.
    pub entries: Vec<Entry>,
}

impl Log {
    /// Reads the log that lies on a device.
    ///
    /// # Source
    ///
    /// Kernel documentation, admin-guide/device-mapper/log-writes: a sector with magic, version,
    /// number of entries and sector size; then each entry in a sector of its own, with its bytes after it.
    pub fn read(device: &Path) -> io::Result<Log> {
        let file = File::open(device)?;
        let mut head = [0; ENTRY];
        file.read_exact_at(&mut head, 0)?;
        if number(&head, 0) != MAGIC || number(&head, 8) != VERSION {
            return Err(io::Error::other("no log of dm-log-writes"));
        }
        let sector = number(&head, 24) & u64::from(u32::MAX);
        let mut entries = Vec::new();
        let mut at = sector;
        for _ in 0..number(&head, 16) {
            let entry = Self::entry(&file, at, sector)?;
            at += sector;
            if matches!(entry.kind, Kind::Write(_)) {
                at += entry.length;
            }
            entries.push(entry);
        }
        Ok(Log { file, entries })
    }

    fn entry(file: &File, at: u64, sector: u64) -> io::Result<Entry> {
        let mut line = vec![0; usize::try_from(sector).map_err(io::Error::other)?];
        file.read_exact_at(&mut line, at)?;
        let flags = number(&line, 16);
        let kind = if flags & MARK != 0 {
            let word = line[ENTRY..].split(|byte| *byte == 0).next().unwrap_or_default();
            Kind::Mark(String::from_utf8_lossy(word).into_owned())
        } else if flags & DISCARD != 0 {
            Kind::Discard
        } else {
            Kind::Write(at + sector)
        };
        Ok(Entry {
            offset: number(&line, 0) * sector,
            length: number(&line, 8) * sector,
            kind,
            durable: flags & (FLUSH | FUA) != 0,
        })
    }

    /// How many entries there are up to a mark, with it; the cut right after the promise.
    pub fn cut_at(&self, mark: &str) -> Option<usize> {
        let is_it = |entry: &Entry| matches!(&entry.kind, Kind::Mark(word) if word == mark);
        self.entries.iter().position(is_it).map(|at| at + 1)
    }

    /// The entries after a cut of which a disk may hold any part: all before the next durable one.
    pub fn unflushed(&self, cut: usize) -> Range<usize> {
        let rest = &self.entries[cut..];
        let length = rest.iter().position(|entry| entry.durable).unwrap_or(rest.len());
        cut..cut + length
    }

    /// Whether an entry goes on where the one before it ended, as the pieces of a long write do.
    pub fn goes_on(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).map(|before| &self.entries[before]) else {
            return false;
        };
        before.length > 0 && before.offset + before.length == self.entries[at].offset
    }

    /// Does to a device what the entries with these numbers did, in their order.
    pub fn play(&self, which: impl IntoIterator<Item = usize>, device: &Path) -> io::Result<()> {
        let target = OpenOptions::new().write(true).open(device)?;
        for entry in which.into_iter().map(|number| &self.entries[number]) {
            match entry.kind {
                Kind::Write(data) => self.copy(data, entry, &target)?,
                Kind::Discard => punch(entry, &target)?,
                Kind::Mark(_) => {}
            }
        }
        target.sync_all()
    }

    fn copy(&self, data: u64, entry: &Entry, target: &File) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(entry.length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, data)?;
        target.write_all_at(&bytes, entry.offset)
    }
}

/// Empties a range: what is read after a discard is zeroes, as on most disks.
fn punch(entry: &Entry, target: &File) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let offset = i64::try_from(entry.offset).map_err(io::Error::other)?;
    let length = i64::try_from(entry.length).map_err(io::Error::other)?;
    Ok(fallocate(target, flags, offset, length)?)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Chooses parts of ranges at random; the same seed chooses the same.
pub struct Chooser(pub u64);

impl Chooser {
    /// Returns a random half of a range, in its order.
    pub fn half_of(&mut self, range: Range<usize>) -> Vec<usize> {
        range.filter(|_| self.next() & 1 == 0).collect()
    }

    /// The next number of the generator splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
