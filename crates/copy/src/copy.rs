//! Copies bytes from one volume into another and verifies the copy: both sides are read again and
//! compared before the copy counts as complete.
//!
//! Both trees may be hostile. Nothing is ever accessed by a path: each step goes by one name from
//! an open directory and follows no link, so that no `..`, no link and no rename leads out of the
//! tree.
//!
//! # What tells whether a file has to be carried again
//!
//! No list is stored, neither in memory nor in a file: the target is the list. A file gets the
//! times of its source as the last step. So one with the same size and modification time was copied
//! completely, and its own change time, which no one can set, says when. What has changed in the
//! source since has a later change time. That takes no memory and no space, and outlives any
//! process and any pod. What it cannot detect, such as an old directory moved into the place of
//! another, a final pass finds by comparing all contents, and copies again. If wanted, an index of
//! what was compared makes that cheaper, see `index.rs`.

mod checksum;
mod content;
mod device;
mod digest;
mod dir;
mod entry;
mod free_space;
mod index;
mod local;
mod manifest;
mod mirror;
mod needs;
mod options;
mod outcome;
mod ownership;
mod progress;
mod source;
mod sum;
mod target;
mod tree;
mod verify;
mod walk;
mod xattr;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::OFlags;

use index::{Index, remove_index};
use ownership::Mark;
use verify::compare_ahead;

pub use device::{copy_device, copy_disk};
pub use digest::Digest;
pub use dir::{Dir, DirNames, EntryKind, LOST_AND_FOUND, Meta, Stamp};
pub use entry::{Entry, FileIdentity};
pub use free_space::room_for;
pub use index::IndexReader;
pub use local::{LocalDisk, LocalFile};
pub use manifest::Manifest;
pub use mirror::{dress, remove_all, set_attribute};
pub use needs::{Needs, Reserved};
pub use options::{ChangeTimes, Compare, CopyOptions, CopyStats, Pass, Sockets, TreeOptions};
pub use outcome::{At, CopyError, CopySummary, Difference, Verified, shown};
pub use progress::{ProgressReporter, Totals};
pub use source::{Content, ContentPiece, Opened, SourceDisk, SourceTree, Steps, Take, Tick};
pub use sum::{GRAIN, PIECE, Sum, next_data, read_full, sum};
pub use target::{Hand, OpenEntry};
pub use tree::{copy_tree, is_whole};
pub use verify::verify;
pub use walk::{Descent, Walk, WalkStep, WalkStepKind};
pub use xattr::{Attributes, attributes, is_carried};

/// Copies a tree: checks the free space and whether the target may be changed, copies, and after a
/// final pass compares. If the comparison finds a difference in what an earlier pass had copied,
/// all contents are compared, copied again where they differ, and compared once more.
///
/// # Errors
/// Each kind of [`CopyError`].
pub fn copy(
    order: CopyOptions,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    let (source, target) = open_both(order.source, order.target)?;
    let index = match order.compare {
        Compare::All => None,
        Compare::Changed(changed) => Index::of(&source, changed)?,
    };
    fill(&source, &target, (order.round, order.sockets), index.as_ref(), hand, tell)
}

/// The same from anywhere, and all is compared in the end.
///
/// # Errors
/// As for [`copy`].
pub fn copy_from<O: SourceTree>(
    source: &O,
    target: &Path,
    asked: (Pass, Sockets),
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    fill(source, &open(target)?, asked, None, hand, tell)
}

/// Checks whether a target can be opened as a copy would, and changes nothing.
///
/// # Errors
/// [`CopyError::Refused`] for a device that is in use; errors of the system.
pub fn probe(target: &Path, is_device: bool) -> Result<CopySummary, CopyError> {
    if is_device {
        local::open(target, OFlags::EXCL, true)?;
    } else {
        open(target)?;
    }
    Ok(CopySummary::default())
}

fn fill<O: SourceTree>(
    source: &O,
    target: &Dir,
    (round, sockets): (Pass, Sockets),
    index: Option<&Index>,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    tell.begin("count", Totals::default());
    let needs = room_for(source, target, round == Pass::PreCopy, tell)?;
    let mut how = TreeOptions { round, sockets, trust: true, has_index: index.is_some() };
    if ownership::mark(target, hand)? == Mark::Done {
        return done_before(source, target, round, needs.totals, tell);
    }
    tell.begin("copy", needs.totals);
    let mut carried = copy_tree(source, target, how, hand, tell);
    if index.is_some() && matches!(carried, Err(CopyError::Refused(_))) {
        // The index takes room, too, and there is enough without it.
        remove_index(target, hand)?;
        tell.begin("copy", needs.totals);
        carried = copy_tree(source, target, how, hand, tell);
    }
    let carried = carried?;
    let mut outcome = carried.outcome();
    if round == Pass::PreCopy {
        if let Some(index) = index {
            tell.begin("verify", needs.totals);
            compare_ahead(index, target, hand, tell)?;
        }
        return Ok(outcome);
    }
    tell.begin("verify", needs.totals);
    let mut verified = verify(source, target, index, tell);
    if carried.kept > 0 && matches!(verified, Err(CopyError::Mismatch { .. })) {
        how.trust = false;
        tell.begin("copy", needs.totals);
        let again = copy_tree(source, target, how, hand, tell)?;
        let bytes = carried.bytes + again.bytes;
        outcome = CopyStats { bytes, removed: carried.removed + again.removed, ..again }.outcome();
        // Nor is what was compared before: it did not see this.
        if index.is_some() {
            remove_index(target, hand)?;
        }
        tell.begin("verify", needs.totals);
        verified = verify(source, target, index, tell);
    }
    let Verified { digest, known } = verified?;
    if index.is_some() {
        remove_index(target, hand)?;
    }
    ownership::mark_done(target, hand)?;
    Ok(CopySummary { digest: Some(digest), known, ..outcome })
}

/// Again, after a copy whose end may not have been heard of: it is done if both are the same.
fn done_before<O: SourceTree>(
    source: &O,
    target: &Dir,
    round: Pass,
    totals: Totals,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    if round == Pass::PreCopy {
        return Err(ownership::lived_in());
    }
    tell.begin("verify", totals);
    match verify(source, target, None, tell) {
        Ok(same) => Ok(CopySummary { digest: Some(same.digest), ..CopySummary::default() }),
        Err(CopyError::Mismatch { .. }) => Err(ownership::lived_in()),
        Err(error) => Err(error),
    }
}

fn open(path: &Path) -> Result<Dir, CopyError> {
    Dir::open(path).at("opening", path.as_os_str().as_bytes())
}

fn open_both(source: &Path, target: &Path) -> Result<(Dir, Dir), CopyError> {
    let both = (open(source)?, open(target)?);
    if lies_in(&both.0, &both.1)? || lies_in(&both.1, &both.0)? {
        let (source, target) = (source.display(), target.display());
        return Err(CopyError::Refused(format!(
            "{source} and {target} are the same directory, or one contains the other; use two \
             separate trees"
        )));
    }
    Ok(both)
}

/// Returns whether a directory is another one, or somewhere below it.
fn lies_in(dir: &Dir, top: &Dir) -> Result<bool, CopyError> {
    let top = top.own_meta().at("reading", b"")?.id;
    let mut here = dir.again().at("reading", b"")?;
    loop {
        let id = here.own_meta().at("reading", b"")?.id;
        let above = here.enter(c"..").at("reading", b"..")?;
        if id == top {
            return Ok(true);
        }
        if above.own_meta().at("reading", b"..")?.id == id {
            return Ok(false);
        }
        here = above;
    }
}
