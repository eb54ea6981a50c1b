//! The content of a file: copied with its holes, and its checksum.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::io::Errno;

use super::checksum::Summing;
use super::outcome::{At, CopyError};
use super::progress::ProgressReporter;
use super::source::{Content, ContentPiece};
use super::sum::{PIECE, next_data, read_full};
use super::target::Hand;

/// Carries contents from file to file, and from device to device.
pub struct Porter<'a> {
    hand: &'a Hand,
    /// Receiver of the progress.
    pub tell: &'a mut ProgressReporter,
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
    pub fn new(hand: &'a Hand, tell: &'a mut ProgressReporter) -> Porter<'a> {
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
            ContentPiece::Same(length) => {
                self.sum_up_target(goal, at, length).at("reading back", goal.path)?;
                return Ok(length);
            }
            ContentPiece::Read(read) => read,
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::copy::{GRAIN, sum};

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
        let (hand, mut tell) = (Hand::default(), ProgressReporter::silent());
        let mut source = super::super::local::LocalFile::of(file).unwrap();
        let goal = Goal { target: &target, size, before: 0, path: b"" };
        Porter::new(&hand, &mut tell).carry(&mut source, goal).unwrap();
        assert!(tell.done().bytes <= GRAIN as u64, "{:?}", tell.done());
    }
}
