//! Copies a tree into another that is empty, or was left by an earlier run.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::fs::File;

use rustix::io::Errno;

use super::content::{Goal, Porter};
use super::dir::{Dir, EntryKind, LOST_AND_FOUND, Meta, Stamp};
use super::index::is_index;
use super::mirror::{dress, remove_all, remove_below, stamp};
use super::options::{CopyStats, Pass, Sockets, TreeOptions};
use super::outcome::{At, CopyError, is_gone, shown};
use super::progress::ProgressReporter;
use super::source::{Opened, SourceTree, Steps};
use super::target::{Hand, OpenEntry};
use super::walk::{Descent, WalkStep, WalkStepKind};
use super::xattr::Attributes;

/// A thing with several names, while not all of them have been met.
struct Linked {
    /// The first that was met.
    path: Vec<u8>,
    /// The thing in the target.
    id: (u64, u64),
    /// Names that have not been met yet.
    left: u32,
}

struct Tree<'a, S> {
    walk: S,
    target: Dir,
    way: Descent,
    how: TreeOptions,
    hand: &'a Hand,
    porter: Porter<'a>,
    links: HashMap<(u64, u64), Linked>,
    /// Things of the target that stand for one of several names, for good.
    taken: HashSet<(u64, u64)>,
    done: CopyStats,
}

/// Makes the target equal to the source, durably. An interrupted run is resumed by the next one.
/// What the source does not have is removed.
///
/// # Errors
/// [`CopyError::Changed`] if the source changes in a final pass, [`CopyError::Refused`] if there is
/// not enough space, and errors of the system.
pub fn copy_tree<O: SourceTree>(
    source: &O,
    target: &Dir,
    how: TreeOptions,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopyStats, CopyError> {
    let again = |dir: &Dir| dir.again().at("reading", b"");
    let mut tree = Tree {
        walk: source.steps(how, target)?,
        target: again(target)?,
        way: Descent::from(again(target)?).at("reading", b"")?,
        how,
        hand,
        porter: Porter::new(hand, tell),
        links: HashMap::new(),
        taken: HashSet::new(),
        done: CopyStats::default(),
    };
    while let Some(found) = tree.walk.next()? {
        match found.step {
            WalkStepKind::Enter => tree.enter(&found)?,
            WalkStepKind::Thing => tree.thing(&found)?,
            WalkStepKind::Leave => tree.leave(&found)?,
        }
    }
    hand.flush_all(target).at("flushing", b"")?;
    let changing = tree.done.changing + tree.walk.vanished();
    Ok(CopyStats { bytes: tree.porter.written, changing, ..tree.done })
}

impl<S: Steps> Tree<'_, S> {
    /// The directory of the target that matches the one where the walk is, or is about to leave.
    fn here(&self) -> &Dir {
        self.way.here()
    }

    fn path(&self) -> &[u8] {
        self.walk.path()
    }

    fn is_at_the_top(&self) -> bool {
        self.way.depth() == 1
    }

    /// Returns whether a name here is not part of the tree, but ours.
    fn is_index(&self, name: &CStr) -> bool {
        self.how.has_index && self.is_at_the_top() && is_index(name.to_bytes())
    }

    fn is_hot(&self) -> bool {
        self.how.round == Pass::PreCopy
    }

    fn enter(&mut self, found: &WalkStep) -> Result<(), CopyError> {
        self.keep_index_apart(found)?;
        if !found.name.is_empty() {
            let there = self.here().find(&found.name).at("reading", self.walk.path())?;
            match there {
                Some(meta) if meta.kind == EntryKind::Directory && !meta.is_mount => {}
                Some(_) => {
                    self.remove(&found.name)?;
                    self.make_dir(&found.name)?;
                }
                None => self.make_dir(&found.name)?,
            }
            let below = self.here().enter(&found.name).at("entering", self.walk.path())?;
            let id = below.own_meta().at("reading", self.walk.path())?.id;
            self.way.enter(below, id);
        }
        self.remove_what_is_not_there()
    }

    fn make_dir(&self, name: &CStr) -> Result<(), CopyError> {
        self.hand.make_dir(self.here(), name).at("making", self.path())
    }

    fn remove(&mut self, name: &CStr) -> Result<(), CopyError> {
        let removed = remove_all(self.hand, self.way.here(), name);
        self.done.removed += removed.at("removing", self.walk.path())?;
        Ok(())
    }

    fn remove_what_is_not_there(&mut self) -> Result<(), CopyError> {
        let theirs = self.here().names().at("reading", self.path())?;
        for name in self.walk.gone(&theirs)? {
            if self.is_at_the_top() && *name == *LOST_AND_FOUND {
                self.empty_lost_and_found()?;
            } else if !self.is_index(&name) {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// The directory belongs to the file system; what an earlier round put there does not.
    fn empty_lost_and_found(&mut self) -> Result<(), CopyError> {
        let meta = self.here().meta(LOST_AND_FOUND).at("reading", LOST_AND_FOUND.to_bytes())?;
        if meta.kind != EntryKind::Directory {
            return self.remove(LOST_AND_FOUND);
        }
        let removed = self.here().enter(LOST_AND_FOUND);
        let removed = removed.and_then(|dir| remove_below(self.hand, dir));
        self.done.removed += removed.at("removing", LOST_AND_FOUND.to_bytes())?;
        Ok(())
    }

    /// Directories get theirs when nothing will be changed in them any more.
    fn leave(&mut self, found: &WalkStep) -> Result<(), CopyError> {
        let (now, attributes) = self.leaving()?;
        let path = self.walk.path();
        let target = OpenEntry::open(self.here().again().at("reading", path)?);
        if now.changed != found.meta.changed {
            if !self.is_hot() {
                return Err(self.walk.changed());
            }
            self.done.changing += 1;
        }
        dress(self.hand, (&attributes, &now), &target, path)?;
        stamp(self.hand, &target, (now.read, now.modified), path)?;
        self.way.leave().at("leaving", path)
    }

    fn leaving(&mut self) -> Result<(Meta, Attributes), CopyError> {
        let leaving = self.walk.leaving();
        leaving.at("reading", self.walk.path())
    }

    /// The source had nothing of that name when this began.
    fn keep_index_apart(&self, found: &WalkStep) -> Result<(), CopyError> {
        if self.is_index(&found.name) { Err(self.walk.changed()) } else { Ok(()) }
    }

    fn thing(&mut self, found: &WalkStep) -> Result<(), CopyError> {
        self.keep_index_apart(found)?;
        self.porter.tell.file_done()?;
        let meta = &found.meta;
        match meta.kind {
            EntryKind::Directory => return self.leave_out(found), // Another file system lies there.
            EntryKind::Socket if self.how.sockets == Sockets::Skip => return self.leave_out(found),
            EntryKind::Socket => return Err(refuse_socket(self.path())),
            _ => {}
        }
        self.done.files += 1;
        if meta.links > 1 && self.link_again(found)? {
            return Ok(());
        }
        match self.carry(found) {
            Err(CopyError::Failed { source, .. }) if self.is_hot() && is_gone(&source) => {
                self.done.changing += 1;
                return Ok(());
            }
            Err(CopyError::Failed { source, .. }) if is_another(&source) => {
                return Err(self.walk.changed());
            }
            other => other?,
        }
        if meta.links > 1 {
            let id = self.here().meta(&found.name).at("reading", self.walk.path())?.id;
            let linked = Linked { path: self.walk.path().to_vec(), id, left: meta.links - 1 };
            self.links.insert(meta.id, linked);
            self.taken.insert(id);
        }
        Ok(())
    }

    fn leave_out(&mut self, found: &WalkStep) -> Result<(), CopyError> {
        self.done.skipped += 1;
        self.remove(&found.name)
    }

    fn carry(&mut self, found: &WalkStep) -> Result<(), CopyError> {
        let there = self.here().find(&found.name).at("reading", self.path())?;
        if found.meta.kind == EntryKind::File {
            return self.carry_file(found, there);
        }
        let looked = self.walk.look(found);
        let (attributes, says) = looked.at("reading", self.walk.path())?;
        let is_the_same = there.is_some_and(|there| self.is_same(found, &there, &says));
        if !is_the_same {
            self.remove(&found.name)?;
            let made = match found.meta.kind {
                EntryKind::Symlink => self.hand.make_link(self.here(), &found.name, &says),
                _ => self.hand.make_node(self.here(), &found.name, &found.meta),
            };
            made.at("making", self.walk.path())?;
        }
        let target = OpenEntry::bare(self.here(), &found.name).at("reading", self.walk.path())?;
        dress(self.hand, (&attributes, &found.meta), &target, self.walk.path())?;
        let times = (found.meta.read, found.meta.modified);
        stamp(self.hand, &target, times, self.walk.path())
    }

    fn is_same(&self, found: &WalkStep, there: &Meta, says: &[u8]) -> bool {
        there.kind == found.meta.kind
            && there.device == found.meta.device
            && self.may_stay(&found.meta, there)
            && (there.kind != EntryKind::Symlink
                || self.here().link(&found.name).is_ok_and(|said| said == says))
    }

    /// Returns whether the file under this name has no other hard link that belongs to another entry.
    fn may_stay(&self, wanted: &Meta, there: &Meta) -> bool {
        there.links == 1 || wanted.links > 1 && !self.taken.contains(&there.id)
    }

    fn carry_file(&mut self, found: &WalkStep, there: Option<Meta>) -> Result<(), CopyError> {
        let opened = self.walk.open(found);
        let mut source = opened.at("reading", self.walk.path())?;
        let now = source.meta();
        let there =
            there.filter(|there| there.kind == EntryKind::File && self.may_stay(now, there));
        let is_there = there.as_ref().is_some_and(|there| self.is_whole(now, there));
        if !is_there {
            source.begin().at("reading", self.walk.path())?;
        }
        let target = self.open_or_make(&found.name, there.is_some())?;
        if is_there {
            self.done.kept += 1;
            self.porter.tell.passed(source.meta().stored())?;
        } else {
            let before = there.map_or(0, |there| there.size);
            let (size, path) = (source.meta().size, self.walk.path());
            self.porter.carry(&mut source, Goal { target: &target, size, before, path })?;
        }
        self.finish_file(source, target, is_there)
    }

    /// Returns whether a file was carried whole, and the source has not changed since: see [`super`].
    fn is_whole(&self, source: &Meta, target: &Meta) -> bool {
        self.how.trust && is_whole(source, target, |at| self.walk.as_of(at))
    }

    fn open_or_make(&mut self, name: &CString, is_there: bool) -> Result<File, CopyError> {
        if is_there {
            return self.here().change(name).at("opening", self.walk.path());
        }
        match self.hand.make_file(self.here(), name) {
            Err(Errno::EXIST) => {
                self.remove(name)?;
                self.hand.make_file(self.here(), name).at("making", self.walk.path())
            }
            made => made.at("making", self.walk.path()),
        }
    }

    /// A file that changed while it was read keeps no time by which it would be believed.
    fn finish_file(
        &mut self,
        mut source: S::File,
        target: File,
        is_kept: bool,
    ) -> Result<(), CopyError> {
        let (target, path) = (OpenEntry::open(target), self.walk.path());
        let attributes = source.attributes().at("reading", path)?;
        let was = source.meta();
        dress(self.hand, (&attributes, was), &target, path)?;
        if is_kept {
            // To note that someone has read it would have all of it compared again.
            if !self.how.has_index {
                stamp(self.hand, &target, (was.read, was.modified), path)?;
            }
        } else {
            // Also where they are right already: this is when the content was known to be.
            let set = self.hand.set_times(&target, was.read, was.modified);
            set.at("setting the times of", path)?;
        }
        if source.check_unchanged().at("reading", path)? {
            return Ok(());
        }
        let unknown = self.hand.set_times(&target, Stamp::default(), Stamp::default());
        unknown.at("setting the times of", path)?;
        self.note_change()
    }

    fn note_change(&mut self) -> Result<(), CopyError> {
        if !self.is_hot() {
            return Err(self.walk.changed());
        }
        self.done.changing += 1;
        Ok(())
    }

    /// Gives what was carried under another name this one too.
    fn link_again(&mut self, found: &WalkStep) -> Result<bool, CopyError> {
        let Some(first) = self.links.get_mut(&found.meta.id) else { return Ok(false) };
        first.left = first.left.saturating_sub(1);
        let (path, id, is_last) = (first.path.clone(), first.id, first.left == 0);
        let there = self.here().find(&found.name).at("reading", self.path())?;
        if there.is_none_or(|there| there.id != id) {
            self.remove(&found.name)?;
            let (dir, name) = self.find_again(&path).at("finding", &path)?;
            let added = self.hand.add_name((&dir, &name), (self.here(), &found.name));
            added.at("linking", self.path())?;
        }
        if is_last {
            self.links.remove(&found.meta.id);
        }
        Ok(true)
    }

    /// The directory of a path in the target, name by name, and the last name.
    fn find_again(&self, path: &[u8]) -> rustix::io::Result<(Dir, CString)> {
        let mut names = path.split(|byte| *byte == b'/').map(CString::new);
        let last = names.next_back().and_then(Result::ok).ok_or(Errno::INVAL)?;
        let mut dir = self.target.again()?;
        for name in names {
            dir = dir.enter(&name.map_err(|_| Errno::INVAL)?)?;
        }
        Ok((dir, last))
    }
}

/// Returns whether a file was copied completely, and the source has not changed since: see
/// [`super`]. Two hosts have two clocks; `as_of` converts.
pub fn is_whole(source: &Meta, target: &Meta, as_of: impl FnOnce(Stamp) -> Option<Stamp>) -> bool {
    (source.size, source.modified) == (target.size, target.modified)
        && as_of(target.changed).is_some_and(|then| source.changed < then)
}

/// Returns whether another entry is in the place of the one that the walk reached.
fn is_another(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::STALE.raw_os_error())
}

fn refuse_socket(path: &[u8]) -> CopyError {
    CopyError::Refused(format!(
        "{} is a socket; remove it, or leave sockets out with --sockets skip",
        shown(path)
    ))
}
