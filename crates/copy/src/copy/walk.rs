//! A walk through a tree, without recursion and with few open files, however deep it is.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};

use rustix::io::Errno;

use super::dir::{Dir, DirNames, EntryKind, Meta};
use super::outcome::{At, CopyError, shown};

/// How many directories of the way down stay open; the others are found again by `..`.
const OPEN: usize = 32;

/// A way down into a tree.
#[derive(Debug)]
pub struct Descent {
    open: VecDeque<Dir>,
    /// Of each directory of the way, which it is.
    ids: Vec<(u64, u64)>,
}

impl Descent {
    /// Begins at the top.
    pub fn from(top: Dir) -> rustix::io::Result<Descent> {
        let id = top.own_meta()?.id;
        Ok(Descent { open: VecDeque::from([top]), ids: vec![id] })
    }

    /// The current directory.
    pub fn here(&self) -> &Dir {
        &self.open[self.open.len() - 1]
    }

    /// Depth of the current directory; 1 at the top.
    pub fn depth(&self) -> usize {
        self.ids.len()
    }

    /// Go down by one.
    pub fn enter(&mut self, dir: Dir, id: (u64, u64)) {
        if self.open.len() == OPEN {
            self.open.pop_front();
        }
        self.open.push_back(dir);
        self.ids.push(id);
    }

    /// Goes up by one; does nothing at the top.
    ///
    /// # Errors
    /// `ESTALE` if the directory was moved elsewhere meanwhile.
    pub fn leave(&mut self) -> rustix::io::Result<()> {
        let [.., above, _] = self.ids[..] else { return Ok(()) };
        if self.open.len() == 1 {
            let dir = self.here().enter(c"..")?;
            if dir.own_meta()?.id != above {
                return Err(Errno::STALE);
            }
            self.open.push_front(dir);
        }
        self.open.pop_back();
        self.ids.pop();
        Ok(())
    }
}

/// Returns whether a walk reaches the first of two paths before the other one.
pub fn is_before(path: &[u8], other: &[u8]) -> bool {
    in_a_walk(path).lt(in_a_walk(other))
}

/// A path as the walk orders it: what is in a directory comes right after it.
pub fn in_a_walk(path: &[u8]) -> impl Iterator<Item = u8> + '_ {
    path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte })
}

/// Kind of a step of a walk.
#[derive(Debug)]
pub enum WalkStepKind {
    /// A directory; what is in it follows. The first is the top itself.
    Enter,
    /// Anything else, and a directory on which another file system is mounted.
    Thing,
    /// The end of a directory, which is still where the walk is.
    Leave,
}

/// One step of a walk.
#[derive(Debug)]
pub struct WalkStep {
    /// Kind of the step.
    pub step: WalkStepKind,
    /// The last name of its path; empty for the top.
    pub name: CString,
    /// Metadata from the time when the walk reached it.
    pub meta: Meta,
}

#[derive(Debug)]
struct Level {
    names: DirNames,
    name: CString,
    meta: Meta,
    /// Where its path ends.
    length: usize,
}

/// Walks through a tree in an order that only its names determine.
#[derive(Debug)]
pub struct Walk {
    way: Descent,
    levels: Vec<Level>,
    path: Vec<u8>,
    /// Whether someone may be writing: then what is gone is no error.
    live: bool,
    begun: bool,
    leaving: bool,
    /// Number of entries that had vanished when the walk reached them.
    pub vanished: u64,
}

impl Walk {
    /// Begins at the top of a tree; `live` if it may be written to.
    ///
    /// # Errors
    /// An error of the system on the top.
    pub fn over(top: Dir, live: bool) -> Result<Walk, CopyError> {
        let meta = top.own_meta().at("reading", b"")?;
        let names = top.names_at_the_top().at("reading", b"")?;
        let way = Descent::from(top).at("reading", b"")?;
        let top = Level { names, name: CString::default(), meta, length: 0 };
        let (levels, path) = (vec![top], Vec::new());
        Ok(Walk { way, levels, path, live, begun: false, leaving: false, vanished: 0 })
    }

    /// The directory where the walk is.
    pub fn here(&self) -> &Dir {
        self.way.here()
    }

    /// The path of what was met last, from the top; empty for the top itself.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The names in the directory where the walk is.
    pub fn names(&self) -> &DirNames {
        &self.levels[self.levels.len() - 1].names
    }

    /// Returns the next step; `None` at the end.
    ///
    /// # Errors
    /// Errors of the system, and [`CopyError::Changed`] if the tree should be at rest and is not.
    pub fn step(&mut self) -> Result<Option<WalkStep>, CopyError> {
        if !self.begun {
            self.begun = true;
            return Ok(Some(self.found(WalkStepKind::Enter)));
        }
        if std::mem::take(&mut self.leaving) && !self.go_up()? {
            return Ok(None);
        }
        while let Some(name) = self.next_name() {
            match self.look(&name) {
                Ok(found) => return Ok(Some(found)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) if self.live => {
                    self.vanished += 1;
                }
                Err(Errno::NOENT | Errno::STALE) => return Err(self.changed()),
                error => return error.map(Some).at("reading", &self.path),
            }
        }
        self.leaving = true;
        Ok(Some(self.found(WalkStepKind::Leave)))
    }

    /// Returns the error that the last entry has changed.
    pub fn changed(&self) -> CopyError {
        CopyError::Changed { path: shown(&self.path) }
    }

    fn go_up(&mut self) -> Result<bool, CopyError> {
        self.way.leave().map_err(|error| match error {
            Errno::STALE => self.changed(),
            error => Err::<(), _>(error).at("reading", &self.path).unwrap_err(),
        })?;
        self.levels.pop();
        Ok(!self.levels.is_empty())
    }

    fn next_name(&mut self) -> Option<CString> {
        let level = self.levels.last_mut()?;
        self.path.truncate(level.length);
        let name = level.names.take()?.to_owned();
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
        Some(name)
    }

    fn look(&mut self, name: &CStr) -> rustix::io::Result<WalkStep> {
        let meta = self.here().meta(name)?;
        if meta.kind != EntryKind::Directory || meta.is_mount {
            return Ok(WalkStep { step: WalkStepKind::Thing, name: name.to_owned(), meta });
        }
        let dir = self.here().enter(name)?;
        if dir.own_meta()?.id != meta.id {
            return Err(Errno::STALE);
        }
        let names = dir.names()?;
        self.way.enter(dir, meta.id);
        let (name, length) = (name.to_owned(), self.path.len());
        self.levels.push(Level { names, name, meta, length });
        Ok(self.found(WalkStepKind::Enter))
    }

    /// A step of the directory where the walk is.
    fn found(&mut self, step: WalkStepKind) -> WalkStep {
        let level = &self.levels[self.levels.len() - 1];
        self.path.truncate(level.length);
        WalkStep { step, name: level.name.clone(), meta: level.meta.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_ordered_as_a_walk_meets_them() {
        let mut paths = ["a", "a/b", "a/b/c", "a.b", "a0", "b"];
        let walked = paths;
        paths.sort_by(|one, other| in_a_walk(one.as_bytes()).cmp(in_a_walk(other.as_bytes())));
        assert_eq!(paths, walked);
        assert!(is_before(b"a/b", b"a.b") && !is_before(b"a", b"a"));
    }
}
