//! The manifest of a tree, one line an entry, so that two hosts can compare trees without their
//! files.

use std::collections::HashMap;
use std::ffi::CStr;

use sha2::{Digest as _, Sha256};

use super::digest::Digest;
use super::dir::{Dir, EntryKind, Meta, Stamp};
use super::entry::Entry;
use super::index::{IndexReader, is_index};
use super::outcome::{At, CopyError, Verified, is_gone};
use super::sum::{forget, sum};
use super::target::OpenEntry;
use super::walk::{Walk, WalkStep, WalkStepKind};
use super::xattr::attributes;

/// The first line of the text; a change of the form changes it.
pub const HEADER: &str = "pliant-manifest 1";

/// Reads a tree, entry by entry, in an order that only its names determine.
pub struct Manifest<'a> {
    walk: Walk,
    reading: ReadScope,
    /// How many files were not read for that.
    known: u64,
    /// Of things with several names: the first, and how many have not been met yet.
    links: HashMap<(u64, u64), (Vec<u8>, u32)>,
    buffer: Vec<u8>,
    hash: Sha256,
    tick: &'a mut dyn FnMut(u64) -> Result<(), CopyError>,
}

/// What to read of a tree.
#[derive(Debug)]
pub struct ReadScope {
    /// Side of the copy.
    pub side: Side,
    /// Index of what need not be read, because it was compared before.
    pub index: Option<IndexReader>,
    /// Contents that have changed since are not read; none are without this.
    pub before: Option<Stamp>,
}

/// A side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The source, at rest.
    Source,
    /// The source while it may be written to: what vanishes or changes meanwhile is left out.
    Live,
    /// The target: what is on the disk, and not what memory still holds of it.
    Target {
        /// True if a file with the name of an index is one, and not part of the tree.
        has_index: bool,
    },
}

impl<'a> Manifest<'a> {
    /// Begins to read; `tick` receives the number of bytes that are done.
    ///
    /// # Errors
    /// An error of the system on the top.
    pub fn of(
        top: &Dir,
        reading: ReadScope,
        tick: &'a mut dyn FnMut(u64) -> Result<(), CopyError>,
    ) -> Result<Manifest<'a>, CopyError> {
        let walk = Walk::over(top.again().at("reading", b"")?, reading.side == Side::Live)?;
        let mut hash = Sha256::new();
        hash.update(HEADER);
        hash.update("\n");
        let (links, buffer) = (HashMap::new(), Vec::new());
        Ok(Manifest { walk, reading, known: 0, links, buffer, hash, tick })
    }

    /// Returns the next entry; `None` at the end.
    ///
    /// # Errors
    /// An error of the system, and [`CopyError::Changed`] if someone writes there.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, CopyError> {
        while let Some(found) = self.walk.step()? {
            if self.is_left_out(&found) {
                continue;
            }
            let entry = match self.entry(&found) {
                Err(error) if self.reading.side == Side::Live && is_no_longer(&error) => continue,
                entry => entry?,
            };
            self.hash.update(entry.to_string());
            self.hash.update("\n");
            return Ok(Some(entry));
        }
        Ok(None)
    }

    fn is_left_out(&self, found: &WalkStep) -> bool {
        match found.step {
            WalkStepKind::Leave => true,
            WalkStepKind::Enter => false,
            WalkStepKind::Thing => match (found.meta.kind, self.reading.side) {
                // Sockets and other file systems are not carried.
                (EntryKind::Socket | EntryKind::Directory, _) => true,
                (_, Side::Target { has_index }) => has_index && is_index(self.walk.path()),
                _ => false,
            },
        }
    }

    /// Returns the result for everything read until now.
    pub fn verified(self) -> Verified {
        Verified { digest: Digest(self.hash.finalize().into()), known: self.known }
    }

    fn entry(&mut self, found: &WalkStep) -> Result<Entry, CopyError> {
        let same_as = self.first_name(&found.meta);
        let mut entry = Entry::of(self.walk.path(), &found.meta);
        if same_as.is_some() {
            return Ok(Entry { same_as, ..entry });
        }
        let node = match found.meta.kind {
            EntryKind::Directory => OpenEntry::open(self.walk.here().again().at("reading", b"")?),
            EntryKind::File => self.read(&found.name, &mut entry, &found.meta)?,
            _ => OpenEntry::bare(self.walk.here(), &found.name).at("reading", self.walk.path())?,
        };
        if entry.kind == EntryKind::Symlink {
            let says = self.walk.here().link(&found.name).at("reading", self.walk.path())?;
            entry.content = Some(Digest::of(&says));
        }
        let found = attributes(&node).at("reading", self.walk.path())?;
        entry.attributes =
            found.into_iter().map(|(name, value)| (name, Digest::of(&value))).collect();
        Ok(entry)
    }

    /// The path under which a thing with several names was met first, if it was.
    fn first_name(&mut self, meta: &Meta) -> Option<Vec<u8>> {
        if meta.kind == EntryKind::Directory || meta.links < 2 {
            return None;
        }
        let Some((first, left)) = self.links.get_mut(&meta.id) else {
            self.links.insert(meta.id, (self.walk.path().to_vec(), meta.links - 1));
            return None;
        };
        *left -= 1;
        let first = if *left == 0 { std::mem::take(first) } else { return Some(first.clone()) };
        self.links.remove(&meta.id);
        Some(first)
    }

    fn read(
        &mut self,
        name: &CStr,
        entry: &mut Entry,
        meta: &Meta,
    ) -> Result<OpenEntry, CopyError> {
        let path = self.walk.path();
        let file = self.walk.here().read(name).at("reading", path)?;
        let is_target = matches!(self.reading.side, Side::Target { .. });
        // A target has the time of modification of its source, and another one of change.
        let since = if is_target { meta.modified } else { meta.changed };
        if self.reading.before.is_some_and(|before| since >= before) {
            (self.tick)(meta.stored())?;
            return Ok(OpenEntry::open(file));
        }
        let known = self.reading.index.as_mut();
        let known = known.and_then(|index| index.sum(is_target, path, meta));
        self.known += u64::from(known.is_some());
        let summed = if let Some(known) = known {
            (self.tick)(0)?;
            known
        } else {
            if is_target {
                forget(&file);
            }
            sum((&file, meta.size), path, &mut self.buffer, self.tick)?
        };
        let node = OpenEntry::open(file);
        let now = node.meta().at("reading", path)?;
        if (now.id, now.changed, now.kind) != (meta.id, meta.changed, meta.kind) {
            return Err(self.walk.changed());
        }
        (entry.content, entry.stored) = (Some(summed.digest), summed.stored);
        Ok(node)
    }
}

/// Returns whether an entry has changed since the walk reached it, or is gone.
fn is_no_longer(error: &CopyError) -> bool {
    match error {
        CopyError::Changed { .. } => true,
        CopyError::Failed { source, .. } => is_gone(source),
        _ => false,
    }
}
