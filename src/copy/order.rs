//! What is asked of a copy of a tree, and what it did.

use std::path::Path;
use std::time::Duration;

use super::outcome::Outcome;

/// What is copied, and how.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The directory whose content is copied.
    pub source: &'a Path,
    /// The directory that gets it.
    pub target: &'a Path,
    /// Which copy of several.
    pub round: Round,
    /// What is done about sockets.
    pub sockets: Sockets,
    /// What is compared.
    pub compare: Compare,
}

/// What is compared of contents; all else is compared always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// All of them, in the end.
    All,
    /// In each round those that have changed since the one before.
    Changed(Changed),
}

/// What is believed of times of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// What had changed less than so long before it was compared is compared once more.
    pub still_for: Duration,
    /// Whether they are believed also on file systems of which it is not known that each write sets them.
    pub anywhere: bool,
}

impl Compare {
    /// With the time that each write is given to reach the file after it has set the time of change.
    pub const CHANGED: Compare =
        Compare::Changed(Changed { still_for: Duration::from_secs(60), anywhere: false });
}

/// Which copy of several it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// One while somebody may be writing: what changes is left to the next.
    Hot,
    /// The last, of a source that nobody writes to: a change is an error.
    Final,
}

/// What is done about sockets, which mean nothing without the process that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// They are left out and counted.
    Skip,
    /// The copy is refused.
    Refuse,
}

/// How a tree is copied.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Which copy of several.
    pub round: Round,
    /// What is done about sockets.
    pub sockets: Sockets,
    /// Whether times and size of an earlier copy are believed, or its content is compared.
    pub trust: bool,
    /// Whether the target has an index at its top, which is no part of the tree.
    pub has_index: bool,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes written.
    pub bytes: u64,
    /// Everything but directories.
    pub files: u64,
    /// Files of these that were believed to be there already.
    pub kept: u64,
    /// Names taken away.
    pub removed: u64,
    /// What changed or went away while it was read.
    pub changing: u64,
    /// Sockets and mounts.
    pub skipped: u64,
}

impl Carried {
    /// How it ended.
    pub fn outcome(self) -> Outcome {
        let Carried { bytes, files, kept, removed, changing, skipped } = self;
        Outcome { bytes, files, kept, removed, changing, skipped, ..Outcome::default() }
    }
}
