//! Sums up beside the work that reads.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use sha2::{Digest as _, Sha256};

use super::digest::Digest;
use super::sum::{add, ended};

/// How many pieces may wait to be added.
const WAITING: usize = 4;

/// A sum that is made by a thread of its own, so that no disk waits for it.
pub struct Summing {
    pieces: SyncSender<(Vec<u8>, u64)>,
    /// What was added, to be filled again.
    used: Receiver<Vec<u8>>,
    thread: JoinHandle<Sha256>,
}

impl Summing {
    /// Nothing is added yet.
    pub fn begin() -> Summing {
        let (pieces, waiting) = sync_channel::<(Vec<u8>, u64)>(WAITING);
        let (back, used) = sync_channel(WAITING);
        let thread = thread::spawn(move || {
            let mut hash = Sha256::new();
            for (piece, at) in waiting {
                add(&mut hash, &piece, at);
                let _ = back.try_send(piece);
            }
            hash
        });
        Summing { pieces, used, thread }
    }

    /// Adds what comes next and begins there; it waits if that thread is far behind.
    pub fn add(&mut self, bytes: &[u8], at: u64) {
        let mut piece = self.used.try_recv().unwrap_or_default();
        piece.clear();
        piece.extend_from_slice(bytes);
        // It takes all that comes, for as long as anything may come.
        let _ = self.pieces.send((piece, at));
    }

    /// The digest of so many bytes, the same as [`super::sum`] has of them.
    pub fn end(self, size: u64) -> Digest {
        drop(self.pieces);
        ended(self.thread.join().unwrap_or_default(), size, 0).digest
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::copy::{PIECE, sum};

    #[test]
    fn it_is_the_sum_of_the_same_bytes() {
        let file = tempfile::tempfile().unwrap();
        let bytes = [vec![1; 9 * PIECE], vec![0; 2 * PIECE], vec![2; PIECE + 17]].concat();
        file.write_all_at(&bytes, 0).unwrap();
        let mut summing = Summing::begin();
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            summing.add(piece, (number * PIECE) as u64);
        }
        let size = bytes.len() as u64;
        let expected = sum((&file, size), b"", &mut Vec::new(), &mut |_| Ok(())).unwrap();
        assert_eq!(summing.end(size), expected.digest);
    }
}
