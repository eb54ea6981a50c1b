//! Copies a block device into another that is as large or larger.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::bytes::Bytes;

use super::content::{Goal, Porter, forget, sum};
use super::hand::Hand;
use super::local::LocalDisk;
use super::manifest::Digest;
use super::order::Round;
use super::origin::Disk;
use super::outcome::{At, CopyError, Outcome};
use super::progress::{Progress, Totals};
use super::summing::Summing;
use super::verify::Difference;

/// Makes the beginning of the target equal to the source, durably. Only blocks that differ are
/// written, so that zeroes take no space in a thin volume, and an interrupted run is resumed. After
/// a final pass both are read again, at the same time, and compared. The source, because nothing
/// else shows that something was written to a device meanwhile. The target, because its content has
/// to come from the disk after everything was written.
///
/// # Errors
/// [`CopyError::Refused`] with numbers if the target is smaller, or another process has it open;
/// [`CopyError::Changed`] and [`CopyError::Mismatch`] after a final round; errors of the system.
pub fn copy_device(
    source: &Path,
    target: &Path,
    round: Round,
    hand: &Hand,
    tell: &mut Progress,
) -> Result<Outcome, CopyError> {
    copy_disk(&LocalDisk(source), target, round, hand, tell)
}

/// The same from anywhere.
///
/// # Errors
/// As for [`copy_device`].
pub fn copy_disk<D: Disk>(
    source: &D,
    target: &Path,
    round: Round,
    hand: &Hand,
    tell: &mut Progress,
) -> Result<Outcome, CopyError> {
    let (mut from, size) = source.open()?;
    let (to, room) = open(target, OFlags::EXCL, true)?;
    if room < size {
        let (has, needs) = (Bytes::new(room), Bytes::new(size));
        let short = needs - has;
        return Err(CopyError::Refused(format!(
            "{} is too small: it has {has} and the source has {needs}, {short} more; make it at \
             least that much larger",
            target.display()
        )));
    }
    let totals = Totals { bytes: size, files: 1 };
    tell.begin("copy", totals);
    let path = target.as_os_str().as_bytes();
    let mut porter = Porter::new(hand, tell);
    porter.source = (round == Round::Final).then(Summing::begin);
    porter.carry(&mut from, Goal { target: &to, size, before: size, path })?;
    let (bytes, was) = (porter.written, porter.source.take());
    hand.flush(&to).at("flushing", path)?;
    let mut outcome = Outcome { bytes, files: 1, ..Outcome::default() };
    if let Some(was) = was.map(|was| was.end(size)) {
        tell.begin("verify", totals);
        compare(source, (&to, target), (size, was), tell)?;
        outcome.digest = Some(was);
    }
    tell.file_done()?;
    Ok(outcome)
}

/// Opens a block device, or an image of one; returns the file and its size.
///
/// # Errors
/// [`CopyError::Refused`] for another kind of thing, and for a device that is in use.
pub fn open(path: &Path, flags: OFlags, write: bool) -> Result<(File, u64), CopyError> {
    let name = path.as_os_str().as_bytes();
    let kind = std::fs::metadata(path).at("opening", name)?.file_type();
    // `O_EXCL` without `O_CREAT` means something for block devices alone: no one else has claimed
    // it.
    let flags = if kind.is_block_device() { flags } else { OFlags::empty() };
    if !kind.is_block_device() && !kind.is_file() {
        return Err(CopyError::Refused(format!(
            "{} is neither a block device nor an image of one; leave --device out to copy a tree",
            path.display()
        )));
    }
    let bits = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).write(write).custom_flags(bits).open(path);
    let mut file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => CopyError::Refused(format!(
            "{} is in use: it is mounted, or part of a volume group or of a device-mapper device",
            path.display()
        )),
        _ => Err::<(), _>(error).at("opening", name).unwrap_err(),
    })?;
    let size = file.seek(SeekFrom::End(0)).at("measuring", name)?;
    Ok((file, size))
}

/// Reads both and compare them with what the source was when it was carried.
fn compare<D: Disk>(
    source: &D,
    target: (&File, &Path),
    (size, was): (u64, Digest),
    tell: &mut Progress,
) -> Result<(), CopyError> {
    let (limit, path) = (tell.limit(), target.1.as_os_str().as_bytes());
    forget(target.0);
    let (theirs, ours) = thread::scope(|scope| {
        let mut beside = tell.beside();
        let theirs = scope.spawn(move || source.sum(size, limit, &mut |bytes| beside.moved(bytes)));
        let mut tick = |bytes| tell.moved(bytes);
        let ours = sum((target.0, size), path, &mut Vec::new(), &mut tick);
        (theirs.join().unwrap_or(Err(CopyError::Stopped)), ours)
    });
    let (theirs, ours) = (theirs?, ours?);
    if theirs.digest != was {
        return Err(CopyError::Changed { path: source.name() });
    }
    if ours.digest != was {
        let what = format!("its sha256 is {} and that of the source {was}", ours.digest);
        let first = vec![Difference { path: target.1.display().to_string(), what }];
        return Err(CopyError::Mismatch { count: 1, first });
    }
    Ok(())
}
