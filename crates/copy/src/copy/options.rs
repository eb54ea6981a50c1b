//! The parameters of a copy of a tree, and its result.

use std::path::Path;
use std::time::Duration;

use super::outcome::CopySummary;

/// What to copy, and how.
#[derive(Debug, Clone, Copy)]
pub struct CopyOptions<'a> {
    /// The directory whose content is copied.
    pub source: &'a Path,
    /// The directory that gets it.
    pub target: &'a Path,
    /// Pass of the copy.
    pub round: Pass,
    /// Handling of sockets.
    pub sockets: Sockets,
    /// What to compare.
    pub compare: Compare,
}

/// Which contents to compare; everything else is always compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// All of them, in the end.
    All,
    /// In each round those that have changed since the one before.
    Changed(ChangeTimes),
}

/// Trust in change times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeTimes {
    /// A file that had changed less than this time before it was compared is compared again.
    pub still_for: Duration,
    /// True if change times are trusted on all file systems, also on those that may not set them at
    /// each write.
    pub anywhere: bool,
}

impl Compare {
    /// The default, with the time that each write is given to reach the file after it has set the
    /// change time.
    pub const CHANGED: Compare =
        Compare::Changed(ChangeTimes { still_for: Duration::from_secs(60), anywhere: false });
}

/// Pass of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// A pass while the source may be written to: changes are left to the next pass.
    PreCopy,
    /// The last pass, of a source at rest: a change is an error.
    Final,
}

/// Handling of sockets, which have no meaning without the process that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// Sockets are left out and counted.
    Skip,
    /// The copy is refused.
    Refuse,
}

/// Options of a copy of a tree.
#[derive(Debug, Clone, Copy)]
pub struct TreeOptions {
    /// Pass of the copy.
    pub round: Pass,
    /// Handling of sockets.
    pub sockets: Sockets,
    /// True if times and size of an earlier copy are trusted; otherwise its content is compared.
    pub trust: bool,
    /// True if the target has an index at its top, which is not part of the tree.
    pub has_index: bool,
}

/// Counts of what was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// Bytes written.
    pub bytes: u64,
    /// Everything but directories.
    pub files: u64,
    /// Files of these that were believed to be there already.
    pub kept: u64,
    /// Number of names removed.
    pub removed: u64,
    /// Number of entries that changed or vanished while they were read.
    pub changing: u64,
    /// Sockets and mounts.
    pub skipped: u64,
}

impl CopyStats {
    /// The result of the copy.
    pub fn outcome(self) -> CopySummary {
        let CopyStats { bytes, files, kept, removed, changing, skipped } = self;
        CopySummary { bytes, files, kept, removed, changing, skipped, ..CopySummary::default() }
    }
}
