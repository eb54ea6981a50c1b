//! The content of a file: copied with its holes, and its checksum.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::hand::Hand;
use super::manifest::Digest;
use super::origin::{Content, Piece};
use super::outcome::{At, CopyError};
use super::progress::Progress;
use super::summing::Summing;

/// Number of bytes read and written at a time. This size stays in the cache of a processor, and a
/// larger one is no faster.
pub const PIECE: usize = 256 << 10;
/// The grain of sums and of holes. No file system that Pliant makes has larger blocks, so the same
/// content touches the same grains on each of them.
pub const GRAIN: usize = 64 << 10;
static ZEROES: [u8; GRAIN] = [0; GRAIN];

/// The next range of a file with data in it, up to `size`: the kernel's word, and where it has none
/// the whole rest.
pub fn next_data(file: &File, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if from >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => return Ok(Some(from..size)),
        other => other?,
    };
    let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        Err(Errno::NXIO) => size, // It was made shorter since.
        other => other?,
    };
    Ok((start < size).then(|| start..end.min(size)))
}

/// Carries contents from file to file, and from device to device.
pub struct Porter<'a> {
    hand: &'a Hand,
    /// Receiver of the progress.
    pub tell: &'a mut Progress,
    /// Bytes that were written.
    pub written: u64,
    /// Sums up what the source has, for who wants to know whether that changes.
    pub source: Option<Summing>,
    /// Whether the kernel copies between these two file systems by itself.
    kernel_copies: bool,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

/// A target file to be made equal to its source.
#[derive(Clone, Copy)]
pub struct Goal<'a> {
    /// The target file.
    pub target: &'a File,
    /// Bytes of the source.
    pub size: u64,
    /// Bytes that the target had before.
    pub before: u64,
    /// The path of both, for people.
    pub path: &'a [u8],
}

impl<'a> Porter<'a> {
    /// Has not carried anything yet.
    pub fn new(hand: &'a Hand, tell: &'a mut Progress) -> Porter<'a> {
        let ours = vec![0; PIECE];
        let (kernel_copies, theirs) = (true, Vec::new());
        Porter { hand, tell, written: 0, source: None, kernel_copies, ours, theirs }
    }

    /// Makes the content of the target equal to that of the source: data as data, holes as holes.
    /// Where the target has content already, only pieces that differ are written.
    ///
    /// # Errors
    /// An error of the system on either.
    pub fn carry<C: Content>(&mut self, source: &mut C, goal: Goal) -> Result<(), CopyError> {
        let mut at = 0;
        if goal.before > goal.size {
            self.hand.set_size(goal.target, goal.size).at("cutting", goal.path)?;
        }
        while let Some(data) = source.next_data(at, goal.size).at("reading", goal.path)? {
            self.leave_out(goal, at..data.start)?;
            at = self.carry_range(source, goal, data)?;
        }
        self.leave_out(goal, at..goal.size)?;
        if at.max(goal.before.min(goal.size)) != goal.size {
            self.hand.set_size(goal.target, goal.size).at("writing", goal.path)?;
        }
        Ok(())
    }

    /// Have a hole in the target where the source has one.
    fn leave_out(&mut self, goal: Goal, hole: Range<u64>) -> Result<(), CopyError> {
        let there = next_data(goal.target, hole.start, hole.end.min(goal.before));
        if there.at("reading", goal.path)?.is_some() {
            let length = hole.end - hole.start;
            self.hand.punch(goal.target, hole.start, length).at("punching a hole in", goal.path)?;
        }
        self.tell.passed(0) // Holes are no work, and may be of any size.
    }

    /// Carries a range; returns where it ended, which is before its end if the source was cut.
    fn carry_range<C: Content>(
        &mut self,
        source: &mut C,
        goal: Goal,
        data: Range<u64>,
    ) -> Result<u64, CopyError> {
        let mut at = data.start;
        while at < data.end {
            let length = usize::try_from(data.end - at).map_or(PIECE, |left| left.min(PIECE));
            let carried = match self.by_the_kernel(source.file(), goal, at, length)? {
                0 => self.by_hand(source, goal, at, length)?,
                carried => carried,
            };
            if carried == 0 {
                return Ok(data.end); // The source was cut meanwhile, as its change time will say.
            }
            at += carried as u64;
            self.tell.moved(carried as u64)?;
        }
        Ok(at)
    }

    /// Nothing if the kernel does not copy here.
    fn by_the_kernel(
        &mut self,
        source: Option<&File>,
        goal: Goal,
        at: u64,
        length: usize,
    ) -> Result<usize, CopyError> {
        let Some(source) = source.filter(|_| self.kernel_copies && at >= goal.before) else {
            return Ok(0);
        };
        match self.hand.copy(source, goal.target, at, length) {
            Ok(copied) => {
                self.written += copied as u64;
                Ok(copied)
            }
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                self.kernel_copies = false;
                Ok(0)
            }
            Err(error) => Err(error).at("writing", goal.path),
        }
    }

    /// Through our memory, and only if it is not there already.
    fn by_hand<C: Content>(
        &mut self,
        source: &mut C,
        goal: Goal,
        at: u64,
        length: usize,
    ) -> Result<usize, CopyError> {
        let there = (goal.target, goal.before);
        let piece = source.piece(&mut self.ours[..length], at, there).at("reading", goal.path)?;
        let read = match piece {
            Piece::Same(length) => {
                self.sum_up_target(goal, at, length).at("reading back", goal.path)?;
                return Ok(length);
            }
            Piece::Read(read) => read,
        };
        if let Some(sum) = &mut self.source {
            sum.add(&self.ours[..read], at);
        }
        if !self.compare_with_target(goal, at, read).at("reading back", goal.path)? {
            self.hand.write(goal.target, &self.ours[..read], at).at("writing", goal.path)?;
            self.written += read as u64;
        }
        Ok(read)
    }

    /// Of a piece that the source did not send: it has the same.
    fn sum_up_target(&mut self, goal: Goal, at: u64, length: usize) -> io::Result<()> {
        let Some(sum) = &mut self.source else { return Ok(()) };
        let read = read_full(goal.target, &mut self.ours[..length], at)?;
        sum.add(&self.ours[..read], at);
        Ok(())
    }

    fn compare_with_target(&mut self, goal: Goal, at: u64, length: usize) -> io::Result<bool> {
        if at + length as u64 > goal.before {
            return Ok(false);
        }
        self.theirs.resize(PIECE, 0);
        let read = read_full(goal.target, &mut self.theirs[..length], at)?;
        Ok(self.theirs[..read] == self.ours[..length])
    }
}

/// Reads until the buffer is full or the file ends.
pub fn read_full(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], start + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Checksum of the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// The same for the same bytes: a hole and zeroes that were written are the same content.
    pub digest: Digest,
    /// Bytes that are stored, in whole grains.
    pub stored: u64,
}

/// Computes the checksum of the first `size` bytes of a file or a device. Holes are not read.
///
/// The checksum is a SHA-256 over each grain that is not all zeroes, with its number before it, and
/// over the size at the end.
///
/// # Errors
/// Errors of the system, and of `tick`, which receives the number of bytes read.
pub fn sum(
    (file, size): (&File, u64),
    path: &[u8],
    buffer: &mut Vec<u8>,
    tick: &mut dyn FnMut(u64) -> Result<(), CopyError>,
) -> Result<Sum, CopyError> {
    buffer.resize(PIECE, 0);
    let (mut hash, mut stored, mut at) = (Sha256::new(), 0, 0);
    while let Some(data) = next_data(file, at, size).at("reading", path)? {
        at = at.max(data.start - data.start % GRAIN as u64);
        tick(0)?;
        let end = data.end.next_multiple_of(GRAIN as u64).min(size);
        while at < end {
            let length = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
            let read = read_full(file, &mut buffer[..length], at).at("reading", path)?;
            if read == 0 {
                return Ok(ended(hash, at, stored)); // Cut meanwhile: the sum of what there is.
            }
            add(&mut hash, &buffer[..read], at);
            stored += (read as u64).next_multiple_of(GRAIN as u64);
            at += read as u64;
            tick(read as u64)?;
        }
    }
    tick(0)?;
    Ok(ended(hash, size, stored))
}

/// Adds what begins there, at a grain.
pub(super) fn add(hash: &mut Sha256, bytes: &[u8], at: u64) {
    for (number, grain) in bytes.chunks(GRAIN).enumerate() {
        if *grain != ZEROES[..grain.len()] {
            hash.update((at / GRAIN as u64 + number as u64).to_le_bytes());
            hash.update(grain);
        }
    }
}

/// The sum of so many bytes.
pub(super) fn ended(mut hash: Sha256, size: u64, stored: u64) -> Sum {
    hash.update(size.to_le_bytes());
    Sum { digest: Digest(hash.finalize().into()), stored }
}

/// Have what is read next come from the disk, not from memory; what has not been written back stays.
pub fn forget(file: &File) {
    // A wish: what cannot be forgotten is compared as it is.
    let _ = rustix::fs::fadvise(file, 0, None::<NonZeroU64>, Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of(write: impl FnOnce(&File)) -> Sum {
        let file = tempfile::tempfile().unwrap();
        write(&file);
        let size = file.metadata().unwrap().len();
        sum((&file, size), b"", &mut Vec::new(), &mut |_| Ok(())).unwrap()
    }

    #[test]
    fn a_hole_and_zeroes_are_the_same_content() {
        let size = 5 * GRAIN as u64 + 17;
        let hole = sum_of(|file| {
            file.set_len(size).unwrap();
            file.write_all_at(b"x", 2 * GRAIN as u64).unwrap();
        });
        let zeroes = sum_of(|file| {
            file.write_all_at(&vec![0; usize::try_from(size).unwrap()], 0).unwrap();
            file.write_all_at(b"x", 2 * GRAIN as u64).unwrap();
        });
        assert_eq!(hole.digest, zeroes.digest);
        assert_eq!((hole.stored, zeroes.stored), (GRAIN as u64, 6 * GRAIN as u64));
    }

    #[test]
    fn holes_are_no_work() {
        let size = 40 << 30;
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"0123456789", size - 10).unwrap();
        let mut read = 0;
        let mut tick = |bytes| {
            read += bytes;
            Ok(())
        };
        sum((&file, size), b"", &mut Vec::new(), &mut tick).unwrap();
        assert!(read <= GRAIN as u64, "{read}");
        let target = tempfile::tempfile().unwrap();
        let (hand, mut tell) = (Hand::default(), Progress::silent());
        let mut source = super::super::local::LocalFile::of(file).unwrap();
        let goal = Goal { target: &target, size, before: 0, path: b"" };
        Porter::new(&hand, &mut tell).carry(&mut source, goal).unwrap();
        assert!(tell.done().bytes <= GRAIN as u64, "{:?}", tell.done());
    }

    #[test]
    fn each_byte_its_place_and_the_size_count() {
        let of = |at: u64, size: u64, byte: &[u8]| {
            sum_of(|file| {
                file.set_len(size).unwrap();
                file.write_all_at(byte, at).unwrap();
            })
            .digest
        };
        let grain = GRAIN as u64;
        let seen = [
            of(0, 3 * grain, b"x"),
            of(1, 3 * grain, b"x"),
            of(0, 3 * grain, b"y"),
            of(grain, 3 * grain, b"x"),
            of(0, 3 * grain + 1, b"x"),
            of(0, 2 * grain, b"x"),
        ];
        for (number, one) in seen.iter().enumerate() {
            assert!(!seen[..number].contains(one), "{number}");
        }
    }
}
