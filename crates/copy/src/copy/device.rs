//! Copies a block device into another that is as large or larger.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use rustix::fs::OFlags;

use crate::bytes::Bytes;

use super::checksum::Summing;
use super::content::{Goal, Porter};
use super::digest::Digest;
use super::local::{LocalDisk, open};
use super::options::Pass;
use super::outcome::{At, CopyError, CopySummary, Difference};
use super::progress::{ProgressReporter, Totals};
use super::source::SourceDisk;
use super::sum::{forget, sum};
use super::target::Hand;

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
    round: Pass,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    copy_disk(&LocalDisk(source), target, round, hand, tell)
}

/// The same from anywhere.
///
/// # Errors
/// As for [`copy_device`].
pub fn copy_disk<D: SourceDisk>(
    source: &D,
    target: &Path,
    round: Pass,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
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
    porter.source = (round == Pass::Final).then(Summing::begin);
    porter.carry(&mut from, Goal { target: &to, size, before: size, path })?;
    let (bytes, was) = (porter.written, porter.source.take());
    hand.flush(&to).at("flushing", path)?;
    let mut outcome = CopySummary { bytes, files: 1, ..CopySummary::default() };
    if let Some(was) = was.map(|was| was.end(size)) {
        tell.begin("verify", totals);
        compare(source, (&to, target), (size, was), tell)?;
        outcome.digest = Some(was);
    }
    tell.file_done()?;
    Ok(outcome)
}

/// Reads both and compare them with what the source was when it was carried.
fn compare<D: SourceDisk>(
    source: &D,
    target: (&File, &Path),
    (size, was): (u64, Digest),
    tell: &mut ProgressReporter,
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
