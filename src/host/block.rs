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

/// Bytes of a device.
pub(super) fn size(device: &Path) -> io::Result<u64> {
    ioctl::size(&File::open(device)?)
}

/// Read past the page cache, which may hold what another node or LVM has since written over.
pub(super) fn read_at(device: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(device)
        .and_then(|device| read_aligned(&device, offset, length));
    match direct {
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
            read_aligned(&File::open(device)?, offset, length)
        }
        other => other,
    }
}

/// Write zeroes over a range of whole sectors.
pub(super) fn write_zeroes(device: &Path, range: &Range<u64>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(device)?;
    let length = length(range)?;
    match ioctl::zero_out(&file, range.start, length) {
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {
            write_pieces(&file, range)
        }
        other => other,
    }
}

/// Discard a range of whole sectors.
pub(super) fn discard(device: &Path, range: &Range<u64>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(device)?;
    ioctl::discard(&file, range.start, length(range)?)
}

/// Write back the page cache of a device and its own.
pub(super) fn flush(device: &Path) -> io::Result<()> {
    File::open(device)?.sync_all()
}

fn length(range: &Range<u64>) -> io::Result<u64> {
    let length = range.end.checked_sub(range.start);
    length.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Read the whole blocks around a range into aligned memory and cut the range out.
fn read_aligned(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let before = usize::try_from(offset % ALIGN as u64).unwrap_or_default();
    let start = offset - before as u64;
    let blocks = before
        .checked_add(length)
        .and_then(|end| end.checked_next_multiple_of(ALIGN))
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut memory = vec![0; blocks + ALIGN];
    let shift = memory.as_ptr().align_offset(ALIGN);
    let aligned = &mut memory[shift..shift + blocks];
    let read = read_full(file, aligned, start)?;
    let end = read.min(before + length);
    Ok(aligned.get(before..end).unwrap_or_default().to_vec())
}

/// Read until the buffer is full or the device ends.
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
