//! Where a copy comes from: a tree or a device of this machine, or one that another machine sends.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;

use super::content::Sum;
use super::dir::{Dir, Meta, Names, Stamp};
use super::index::Reader;
use super::manifest::Entry;
use super::order::How;
use super::outcome::CopyError;
use super::progress::Progress;
use super::room::Needs;
use super::walk::Found;
use super::xattr::Attributes;

/// Hears how many bytes are behind, and says when to stop.
pub type Tick<'a> = &'a mut dyn FnMut(u64) -> Result<(), CopyError>;
/// Takes the things of a tree, one after the other.
pub type Take<'a> = &'a mut dyn FnMut(Entry) -> Result<(), CopyError>;

/// A tree that is copied.
pub trait Origin: Sync {
    /// One walk through it.
    type Steps: Steps;

    /// Count what it takes on a file system with blocks of so many bytes; `live` if somebody may be
    /// writing.
    ///
    /// # Errors
    /// What the system says.
    fn needs(&self, live: bool, block: u64, tell: &mut Progress) -> Result<Needs, CopyError>;

    /// Begin a walk. The target is for who wants to know ahead which contents it will be asked for.
    ///
    /// # Errors
    /// What the system says of the top.
    fn steps(&self, how: How, target: &Dir) -> Result<Self::Steps, CopyError>;

    /// Read all of it, contents too, and hand over what it holds, at most `limit` bytes a second. What was
    /// compared before need not be read again.
    ///
    /// # Errors
    /// What the system says and what is said of an entry or a tick, and [`CopyError::Changed`] if somebody
    /// writes there.
    fn entries(
        &self,
        known: Option<Reader>,
        limit: Option<u64>,
        tick: Tick,
        take: Take,
    ) -> Result<(), CopyError>;
}

/// A walk through a tree, in an order that only its names determine.
pub trait Steps {
    /// A file of it.
    type File: Opened;

    /// The next step; none at the end.
    ///
    /// # Errors
    /// What the system says, and [`CopyError::Changed`] where the tree was to be still and is not.
    fn next(&mut self) -> Result<Option<Found>, CopyError>;

    /// The path of what was met last, from the top; empty for the top itself.
    fn path(&self) -> &[u8];

    /// Those of these names that the directory does not have which was entered by the last step.
    ///
    /// # Errors
    /// What the system says.
    fn gone(&mut self, theirs: &Names) -> Result<Vec<CString>, CopyError>;

    /// The directory that is left by the last step, as it is now.
    ///
    /// # Errors
    /// What the system says.
    fn leaving(&mut self) -> io::Result<(Meta, Attributes)>;

    /// The attributes of the thing of the last step, which is no file, and what it says if it is a link.
    ///
    /// # Errors
    /// What the system says.
    fn look(&mut self, found: &Found) -> io::Result<(Attributes, Vec<u8>)>;

    /// The file of the last step.
    ///
    /// # Errors
    /// What the system says.
    fn open(&mut self, found: &Found) -> io::Result<Self::File>;

    /// What was gone when the walk came there.
    fn vanished(&self) -> u64;

    /// That what was met last is not as it was.
    fn changed(&self) -> CopyError;

    /// The time by the clocks of the source until which its changes were there to be read at this time of
    /// the target; none if nobody can say.
    fn as_of(&self, target: Stamp) -> Option<Stamp>;
}

/// Bytes that are copied.
pub trait Content {
    /// The file itself, if it is one of this machine: the kernel may copy it.
    fn file(&self) -> Option<&File>;

    /// The next range with data in it, up to `size`.
    ///
    /// # Errors
    /// What the system says.
    fn next_data(&mut self, from: u64, size: u64) -> io::Result<Option<Range<u64>>>;

    /// Read a piece until the buffer is full or the content ends. Who has to send it may first look what
    /// the target has, of which so many bytes were there before.
    ///
    /// # Errors
    /// What the system says.
    fn piece(&mut self, buffer: &mut [u8], at: u64, there: (&File, u64)) -> io::Result<Piece>;
}

/// A piece of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes were read.
    Read(usize),
    /// The target has these bytes already, so many.
    Same(usize),
}

/// A file that is copied.
pub trait Opened: Content {
    /// Have its content at hand, of the thing that the walk has met; until then it may be the walk that
    /// knows the rest.
    ///
    /// # Errors
    /// What the system says; `ESTALE` if another thing is in its place.
    fn begin(&mut self) -> io::Result<()>;

    /// What was said of it when it was opened.
    fn meta(&self) -> &Meta;

    /// Its attributes.
    ///
    /// # Errors
    /// What the system says.
    fn attributes(&mut self) -> io::Result<Attributes>;

    /// Whether nothing of it has changed since it was opened.
    ///
    /// # Errors
    /// What the system says.
    fn is_as_it_was(&mut self) -> io::Result<bool>;
}

/// A block device that is copied, or an image of one.
pub trait Disk: Sync {
    /// Its bytes.
    type Bytes: Content;

    /// Open it; its bytes, and how many they are.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self) -> Result<(Self::Bytes, u64), CopyError>;

    /// Sum up its first bytes, reading at most `limit` a second.
    ///
    /// # Errors
    /// What the system says and what is said of a tick.
    fn sum(&self, size: u64, limit: Option<u64>, tick: Tick) -> Result<Sum, CopyError>;

    /// What it is called.
    fn name(&self) -> String;
}
