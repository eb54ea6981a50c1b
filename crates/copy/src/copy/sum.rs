//! Reads contents, and sums them up.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::digest::Digest;
use super::outcome::{At, CopyError};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
