//! The job of a connection, and its message types.

use std::io;

use super::message::{MessageReader, MessageWriter, nonsense};

/// Job that the receiver requests for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Counts the space that the tree needs: [`word::TICK`] for entries that were read, then
    /// [`word::NEEDS`].
    Count {
        /// True if the source may be written to.
        live: bool,
        /// Bytes of a block of the target.
        block: u64,
    },
    /// Walk through the tree: [`word::ENTER`] with its [`word::NAMES`], [`word::THING`] and [`word::LEAVE`],
    /// then [`word::END`].
    Walk {
        /// True if the source may be written to.
        live: bool,
    },
    /// Read contents, request by request.
    Read,
    /// Read all of the tree: [`word::TICK`] for bytes that were read, [`word::ENTRY`], then [`word::END`].
    Entries {
        /// Bytes a second.
        limit: Option<u64>,
    },
    /// Sum up the beginning of the device: [`word::TICK`], then [`word::SUM`].
    Sum {
        /// Number of bytes.
        size: u64,
        /// Bytes a second.
        limit: Option<u64>,
    },
}

/// Message types of frames.
pub mod word {
    /// From the receiver: the job.
    pub const JOB: u8 = 1;
    /// The answer to it: the time at the source.
    pub const CLOCK: u8 = 2;
    /// The request failed.
    pub const ERROR: u8 = 3;
    /// There is no more.
    pub const END: u8 = 4;
    /// Number of further bytes that are done.
    pub const TICK: u8 = 5;
    /// Space that a tree needs.
    pub const NEEDS: u8 = 6;
    /// A directory begins.
    pub const ENTER: u8 = 7;
    /// Names in it.
    pub const NAMES: u8 = 8;
    /// Anything else.
    pub const THING: u8 = 9;
    /// A directory ends.
    pub const LEAVE: u8 = 10;
    /// An entry of a manifest.
    pub const ENTRY: u8 = 11;
    /// The sum of a device.
    pub const SUM: u8 = 12;
    /// Open a file, by its path and which it was.
    pub const OPEN: u8 = 13;
    /// The file is open.
    pub const OPENED: u8 = 14;
    /// Open the device.
    pub const DISK: u8 = 15;
    /// Request for the data ranges from here on.
    pub const MAP: u8 = 16;
    /// There.
    pub const MAPPED: u8 = 17;
    /// Read a piece.
    pub const PIECE: u8 = 18;
    /// This is it.
    pub const DATA: u8 = 19;
    /// The piece is equal to what the target has.
    pub const SAME: u8 = 20;
    /// Has the file changed since?
    pub const AFTER: u8 = 21;
    /// Whether the file is unchanged.
    pub const STATE: u8 = 22;
}

impl Job {
    /// Writes it down.
    pub fn put(self, put: &mut MessageWriter) {
        match self {
            Job::Count { live, block } => {
                put.byte(0);
                put.byte(live.into());
                put.u64(block);
            }
            Job::Walk { live } => {
                put.byte(1);
                put.byte(live.into());
            }
            Job::Read => put.byte(2),
            Job::Entries { limit } => {
                put.byte(3);
                put.u64(limit.unwrap_or_default());
            }
            Job::Sum { size, limit } => {
                put.byte(4);
                put.u64(size);
                put.u64(limit.unwrap_or_default());
            }
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn take(take: &mut MessageReader) -> io::Result<Job> {
        let number = take.byte()?;
        Ok(match number {
            0 => Job::Count { live: take.flag()?, block: take.u64()?.max(1) },
            1 => Job::Walk { live: take.flag()? },
            2 => Job::Read,
            3 => Job::Entries { limit: take.u64().map(limit_of)? },
            4 => Job::Sum { size: take.u64()?, limit: take.u64().map(limit_of)? },
            _ => return Err(nonsense("an invalid job")),
        })
    }
}

/// None is written as nothing.
fn limit_of(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let jobs = [
            Job::Count { live: true, block: 4096 },
            Job::Walk { live: false },
            Job::Read,
            Job::Entries { limit: None },
            Job::Entries { limit: Some(7) },
            Job::Sum { size: 9, limit: Some(8) },
        ];
        for job in jobs {
            let mut put = MessageWriter::default();
            job.put(&mut put);
            assert_eq!(Job::take(&mut MessageReader(&put.0)).unwrap(), job);
        }
        assert!(Job::take(&mut MessageReader(&[9])).is_err());
        assert!(Job::take(&mut MessageReader(&[])).is_err());
    }
}
