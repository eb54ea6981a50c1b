//! Block devices: read, wipe, flush, measure.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

use super::ioctl;

/// What `O_DIRECT` wants addresses, offsets and lengths to be a multiple of, on every disk.
const ALIGN: usize = 4096;
/// How much is zeroed by one write where the kernel has no call for it.
const PIECE: usize = 1 << 20;
/// How much is compared with zeroes at a time: fresh memory can cost more than the read into it.
const GLANCE: u64 = 64 << 10;

/// Bytes of a device.
pub(super) fn size(device: &Path) -> io::Result<u64> {
    ioctl::size(&File::open(device)?)
}

/// Reads past the page cache, which may hold what another node or LVM has since written over.
pub(super) fn read_at(device: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    past_the_cache(device, |file| {
        let mut memory = Vec::new();
        read_aligned(file, offset, length, &mut memory).map(<[u8]>::to_vec)
    })
}

/// Returns whether a range contains only zeroes, read past the page cache; bytes beyond the
/// device's end do not count.
pub(super) fn is_zero(device: &Path, range: &Range<u64>) -> io::Result<bool> {
    past_the_cache(device, |file| {
        let mut memory = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let length = usize::try_from(GLANCE.min(range.end - at)).unwrap_or_default();
            let piece = read_aligned(file, at, length, &mut memory)?;
            if piece.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += length as u64;
        }
        Ok(true)
    })
}

/// How much is copied or compared at a time.
const COPIED: usize = 1 << 20;

/// Copies a range, past the page cache on both sides. Blocks of zeroes may be left as they are.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    range: &Range<u64>,
    leave_zeroes: bool,
) -> io::Result<()> {
    let direct = |options: &mut OpenOptions, path| options.custom_flags(libc::O_DIRECT).open(path);
    let from = direct(OpenOptions::new().read(true), from)?;
    let to = direct(OpenOptions::new().write(true), to)?;
    let mut memory = Vec::new();
    for_pieces(range, |at, length| {
        let piece = read_aligned(&from, at, length, &mut memory)?;
        if piece.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_zero = piece.iter().all(|byte| *byte == 0);
        if is_zero && leave_zeroes {
            return Ok(true);
        }
        // Less to write, where the disk can take it back.
        if is_zero && ioctl::zero_out(&to, at, length as u64).is_ok() {
            return Ok(true);
        }
        to.write_all_at(piece, at).map(|()| true)
    })
    .map(drop)
}

/// Writes whole blocks past the page cache, and where a device does not know that, through it.
pub(super) fn write_at(device: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(device);
    let mut memory = vec![0; bytes.len() + ALIGN];
    let shift = memory.as_ptr().align_offset(ALIGN);
    let aligned = &mut memory[shift..shift + bytes.len()];
    aligned.copy_from_slice(bytes);
    match direct.and_then(|file| file.write_all_at(aligned, offset)) {
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
            OpenOptions::new().write(true).open(device)?.write_all_at(bytes, offset)
        }
        other => other,
    }
}

/// Returns whether two devices have the same bytes in a range, read past the page cache.
pub(super) fn is_same(one: &Path, other: &Path, range: &Range<u64>) -> io::Result<bool> {
    past_the_cache(one, |one| {
        past_the_cache(other, |other| {
            let (mut left, mut right) = (Vec::new(), Vec::new());
            for_pieces(range, |at, length| {
                let left = read_aligned(one, at, length, &mut left)?;
                let right = read_aligned(other, at, length, &mut right)?;
                Ok(left.len() == length && left == right)
            })
        })
    })
}

/// Calls for the pieces of a range, with the offset and the length of each, until one says `false`.
fn for_pieces(
    range: &Range<u64>,
    mut call: impl FnMut(u64, usize) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut at = range.start;
    while at < range.end {
        let length = usize::try_from(range.end - at).map_or(COPIED, |left| left.min(COPIED));
        if !call(at, length)? {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}

/// Reads with `O_DIRECT`, and where a device does not know it, without.
fn past_the_cache<T>(device: &Path, read: impl Fn(&File) -> io::Result<T>) -> io::Result<T> {
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(device);
    match direct.and_then(|file| read(&file)) {
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
            read(&File::open(device)?)
        }
        other => other,
    }
}

/// Writes zeroes over a range of whole sectors.
pub(super) fn write_zeroes(device: &Path, range: &Range<u64>) -> io::Result<()> {
    write_zeroes_to(&OpenOptions::new().write(true).open(device)?, range)
}

/// The same through an open device.
pub(super) fn write_zeroes_to(file: &File, range: &Range<u64>) -> io::Result<()> {
    let length = length(range)?;
    match ioctl::zero_out(file, range.start, length) {
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {
            write_pieces(file, range)
        }
        other => other,
    }
}

/// Discards a range of whole sectors.
pub(super) fn discard(device: &Path, range: &Range<u64>) -> io::Result<()> {
    discard_of(&OpenOptions::new().write(true).open(device)?, range)
}

/// The same through an open device.
pub(super) fn discard_of(file: &File, range: &Range<u64>) -> io::Result<()> {
    ioctl::discard(file, range.start, length(range)?)
}

/// Returns whether the kernel has claimed a device for exclusive use: it is then not opened
/// exclusively.
pub(super) fn is_claimed(device: &Path) -> io::Result<bool> {
    match OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device) {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Writes back the page cache of a device and its own.
pub(super) fn flush(device: &Path) -> io::Result<()> {
    File::open(device)?.sync_all()
}

fn length(range: &Range<u64>) -> io::Result<u64> {
    let length = range.end.checked_sub(range.start);
    length.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Reads the whole blocks around a range into memory, which is used again, and cut the range out.
fn read_aligned<'a>(
    file: &File,
    offset: u64,
    length: usize,
    memory: &'a mut Vec<u8>,
) -> io::Result<&'a [u8]> {
    let before = usize::try_from(offset % ALIGN as u64).unwrap_or_default();
    let start = offset - before as u64;
    let blocks = before
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(ALIGN))
        .ok_or(io::ErrorKind::InvalidInput)?;
    memory.resize(memory.len().max(blocks + ALIGN), 0);
    let shift = memory.as_ptr().align_offset(ALIGN);
    let aligned = &mut memory[shift..shift + blocks];
    let read = read_full(file, aligned, start)?;
    let end = read.min(before + length);
    Ok(aligned.get(before..end).unwrap_or_default())
}

/// Reads until the buffer is full or the device ends.
fn read_full(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
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

fn write_pieces(file: &File, range: &Range<u64>) -> io::Result<()> {
    let zeroes = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        let piece = usize::try_from(range.end - at).map_or(PIECE, |left| left.min(PIECE));
        file.write_all_at(&zeroes[..piece], at)?;
        at += piece as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn any_range_is_read_and_only_the_end_makes_it_short() {
        let bytes: Vec<u8> = (0..9728_u32).map(|at| (at % 251) as u8).collect();
        let file = file_of(&bytes);
        for (offset, length) in [(0, 512), (1, 1), (4095, 2), (512, 9000), (9000, 4096), (4096, 0)]
        {
            let end = (offset + length).min(bytes.len());
            let read = read_at(file.path(), offset as u64, length).unwrap();
            assert_eq!(read, bytes[offset..end], "{offset} {length}");
        }
        assert_eq!(read_at(file.path(), 100_000, 512).unwrap(), Vec::<u8>::new());
    }

    #[test]
    fn bytes_are_written_at_their_place_and_nowhere_else() {
        let file = file_of(&[7; 3 * ALIGN]);
        write_at(file.path(), ALIGN as u64, &[8; ALIGN]).unwrap();
        let mut expected = vec![7; 3 * ALIGN];
        expected[ALIGN..2 * ALIGN].fill(8);
        assert_eq!(std::fs::read(file.path()).unwrap(), expected);
        // Less than a block, as the last one of a device may be.
        write_at(file.path(), 0, &[9; 512]).unwrap();
        expected[..512].fill(9);
        assert_eq!(std::fs::read(file.path()).unwrap(), expected);
    }

    #[test]
    fn one_byte_anywhere_in_a_range_is_not_zero() {
        let glance = usize::try_from(GLANCE).unwrap();
        let size = 2 * glance + 512;
        for at in [0, 511, 512, glance - 1, glance, 2 * glance, size - 1] {
            let mut bytes = vec![0; size];
            bytes[at] = 1;
            let file = file_of(&bytes);
            let zero =
                |from: usize, to: usize| is_zero(file.path(), &(from as u64..to as u64)).unwrap();
            assert!(!zero(0, size) && !zero(at, at + 1) && !zero(at, size + 4096), "{at}");
            assert!(zero(0, at) && zero(at + 1, size) && zero(at, at), "{at}");
        }
    }

    #[test]
    fn zeroes_by_writing_cover_exactly_the_range() {
        let file = file_of(&vec![7; 2 * PIECE + 1024]);
        let device = OpenOptions::new().write(true).open(file.path()).unwrap();
        let range = 512..2 * PIECE as u64 + 512;
        write_pieces(&device, &range).unwrap();
        let after = std::fs::read(file.path()).unwrap();
        let mut expected = vec![7; 2 * PIECE + 1024];
        expected[512..2 * PIECE + 512].fill(0);
        assert!(after == expected);
    }

    #[test]
    fn a_range_that_ends_before_it_starts_is_refused() {
        let file = file_of(&[7; 512]);
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        let error = write_zeroes(file.path(), &(512..0)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
