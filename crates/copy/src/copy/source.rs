//! Sources of a copy: a tree or a device on this host, or one that another host sends.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;

use super::dir::{Dir, DirNames, Meta, Stamp};
use super::entry::Entry;
use super::index::IndexReader;
use super::needs::Needs;
use super::options::TreeOptions;
use super::outcome::CopyError;
use super::progress::ProgressReporter;
use super::sum::Sum;
use super::walk::WalkStep;
use super::xattr::Attributes;

/// Receives the number of bytes done, and decides when to stop.
pub type Tick<'a> = &'a mut dyn FnMut(u64) -> Result<(), CopyError>;
/// Receives the entries of a tree, one after the other.
pub type Take<'a> = &'a mut dyn FnMut(Entry) -> Result<(), CopyError>;

/// A tree that is copied.
pub trait SourceTree: Sync {
    /// One walk through the tree.
    type Steps: Steps;

    /// Counts the space it needs on a file system with this block size; `live` if it may be written
    /// to.
    ///
    /// # Errors
    /// An error of the system.
    fn space_needed(
        &self,
        live: bool,
        block: u64,
        tell: &mut ProgressReporter,
    ) -> Result<Needs, CopyError>;

    /// Begins a walk. A source that prefetches contents reads in the target which ones are needed.
    ///
    /// # Errors
    /// An error of the system on the top.
    fn steps(&self, how: TreeOptions, target: &Dir) -> Result<Self::Steps, CopyError>;

    /// Reads everything, including contents, and passes on each entry, at most `limit` bytes a
    /// second. What was compared before need not be read again.
    ///
    /// # Errors
    /// Errors of the system, of `take` and of `tick`, and [`CopyError::Changed`] if the source is
    /// written to.
    fn entries(
        &self,
        known: Option<IndexReader>,
        limit: Option<u64>,
        tick: Tick,
        take: Take,
    ) -> Result<(), CopyError>;
}

/// A walk through a tree, in an order that only its names determine.
pub trait Steps {
    /// A file of it.
    type File: Opened;

    /// Returns the next step; `None` at the end.
    ///
    /// # Errors
    /// Errors of the system, and [`CopyError::Changed`] if the tree should be at rest and is not.
    fn next(&mut self) -> Result<Option<WalkStep>, CopyError>;

    /// The path of what was met last, from the top; empty for the top itself.
    fn path(&self) -> &[u8];

    /// Returns those of these names that are not in the directory that the last step entered.
    ///
    /// # Errors
    /// An error of the system.
    fn gone(&mut self, theirs: &DirNames) -> Result<Vec<CString>, CopyError>;

    /// Reads the current state of the directory that the last step leaves.
    ///
    /// # Errors
    /// An error of the system.
    fn leaving(&mut self) -> io::Result<(Meta, Attributes)>;

    /// Reads the attributes of the entry of the last step, which is not a file, and the target of a
    /// link.
    ///
    /// # Errors
    /// An error of the system.
    fn look(&mut self, found: &WalkStep) -> io::Result<(Attributes, Vec<u8>)>;

    /// Opens the file of the last step.
    ///
    /// # Errors
    /// An error of the system.
    fn open(&mut self, found: &WalkStep) -> io::Result<Self::File>;

    /// Number of entries that had vanished when the walk reached them.
    fn vanished(&self) -> u64;

    /// Returns the error that the last entry has changed.
    fn changed(&self) -> CopyError;

    /// Converts a time of the target to the clock of the source, up to which changes were visible
    /// there; `None` if it is unknown.
    fn as_of(&self, target: Stamp) -> Option<Stamp>;
}

/// Bytes that are copied.
pub trait Content {
    /// Returns the file itself, if it is on this host: then the kernel may copy it.
    fn file(&self) -> Option<&File>;

    /// Returns the next range with data in it, up to `size`.
    ///
    /// # Errors
    /// An error of the system.
    fn next_data(&mut self, from: u64, size: u64) -> io::Result<Option<Range<u64>>>;

    /// Reads a piece until the buffer is full or the content ends. A sender may first check what
    /// the target has, which had this many bytes before.
    ///
    /// # Errors
    /// An error of the system.
    fn piece(
        &mut self,
        buffer: &mut [u8],
        at: u64,
        there: (&File, u64),
    ) -> io::Result<ContentPiece>;
}

/// A piece of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentPiece {
    /// Number of bytes that were read.
    Read(usize),
    /// The target has these bytes already, so many.
    Same(usize),
}

/// A file that is copied.
pub trait Opened: Content {
    /// Prepares the content of the entry that the walk has reached. Until then the walk may know
    /// the rest.
    ///
    /// # Errors
    /// Errors of the system; `ESTALE` if another file is in its place.
    fn begin(&mut self) -> io::Result<()>;

    /// Metadata from the time when it was opened.
    fn meta(&self) -> &Meta;

    /// Reads its attributes.
    ///
    /// # Errors
    /// An error of the system.
    fn attributes(&mut self) -> io::Result<Attributes>;

    /// Looks again, and returns true if nothing of it has changed since it was opened.
    ///
    /// # Errors
    /// An error of the system.
    fn check_unchanged(&mut self) -> io::Result<bool>;
}

/// A block device that is copied, or an image of one.
pub trait SourceDisk: Sync {
    /// Content of the device.
    type Bytes: Content;

    /// Opens the device; returns its content and its size in bytes.
    ///
    /// # Errors
    /// An error of the system.
    fn open(&self) -> Result<(Self::Bytes, u64), CopyError>;

    /// Computes the checksum of its first bytes, reading at most `limit` a second.
    ///
    /// # Errors
    /// Errors of the system and of `tick`.
    fn sum(&self, size: u64, limit: Option<u64>, tick: Tick) -> Result<Sum, CopyError>;

    /// Name of the device, for messages.
    fn name(&self) -> String;
}
