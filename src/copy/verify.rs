//! Reads both trees and tells where they differ.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::fmt;
use std::sync::atomic::{self, AtomicBool};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::content::GRAIN;
use super::dir::{Dir, Kind};
use super::manifest::{Digest, Entry, Manifest, Side};
use super::origin::Origin;
use super::outcome::{CopyError, shown};
use super::progress::Progress;

/// How many differences are told.
const TOLD: usize = 8;
/// How far the reader of the source may be ahead.
const AHEAD: usize = 256;

/// One thing that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its path, as it is shown to people.
    pub path: String,
    /// What differs, and how.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// Compare two trees: content, mode, owner, modification times, extended attributes with ACLs, links and
/// holes. Returns the digest of both, which another machine gets from the same tree.
///
/// A target may be less dense than its source, never denser: each file system that Pliant makes has holes.
///
/// # Errors
/// [`CopyError::Mismatch`] with the first differences, [`CopyError::Changed`] if somebody writes, and what
/// the system says.
pub fn verify<O: Origin>(
    source: &O,
    target: &Dir,
    tell: &mut Progress,
) -> Result<Digest, CopyError> {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, entries) = sync_channel(AHEAD);
        let mut beside = tell.beside();
        let read = scope.spawn(move || send_all(source, &sender, &mut beside, over));
        let compared = compare(&entries, target, tell);
        over.store(true, atomic::Ordering::Relaxed);
        drop(entries);
        let theirs = read.join().unwrap_or(Err(CopyError::Stopped));
        // What the reader of the source met is why the comparison found nothing, or too much.
        let is_compared = matches!(compared, Ok(_) | Err(CopyError::Mismatch { .. }));
        match theirs {
            Err(error) if is_compared => Err(error),
            _ => compared,
        }
    })
}

fn send_all<O: Origin>(
    source: &O,
    sender: &SyncSender<Entry>,
    beside: &mut Progress,
    over: &AtomicBool,
) -> Result<(), CopyError> {
    let limit = beside.limit();
    let mut tick = |bytes| {
        let is_over = over.load(atomic::Ordering::Relaxed);
        if is_over { Err(CopyError::Stopped) } else { beside.moved(bytes) }
    };
    let mut take = |entry| sender.send(entry).map_err(|_| CopyError::Stopped);
    source.entries(limit, &mut tick, &mut take)
}

fn compare(
    theirs: &Receiver<Entry>,
    target: &Dir,
    tell: &mut Progress,
) -> Result<Digest, CopyError> {
    let tell = RefCell::new(tell);
    let mut tick = |bytes| tell.borrow_mut().moved(bytes);
    let mut ours = Manifest::of(target, Side::Target, &mut tick)?;
    let mut seen = Differences::default();
    let (mut source, mut target) = (theirs.recv().ok(), ours.next_entry()?);
    loop {
        let order = match (&source, &target) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => in_a_walk(&one.path).cmp(in_a_walk(&other.path)),
        };
        match (order, &source, &target) {
            (Ordering::Less, Some(entry), _) => seen.add(&entry.path, "is not in the target"),
            (Ordering::Greater, _, Some(entry)) => seen.add(&entry.path, "is not in the source"),
            (_, Some(one), Some(other)) => seen.compare(one, other),
            _ => {}
        }
        if order != Ordering::Greater {
            source = theirs.recv().ok();
        }
        if order != Ordering::Less {
            if target.is_some_and(|entry| entry.kind != Kind::Directory) {
                tell.borrow_mut().file_done()?;
            }
            target = ours.next_entry()?;
        }
    }
    seen.none().map(|()| ours.digest())
}

/// A path as the walk orders it: what is in a directory comes right after it.
fn in_a_walk(path: &[u8]) -> impl Iterator<Item = u8> + '_ {
    path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte })
}

#[derive(Debug, Default)]
struct Differences {
    count: u64,
    first: Vec<Difference>,
}

impl Differences {
    fn none(self) -> Result<(), CopyError> {
        match self.count {
            0 => Ok(()),
            count => Err(CopyError::Mismatch { count, first: self.first }),
        }
    }

    fn add(&mut self, path: &[u8], what: impl Into<String>) {
        self.count += 1;
        if self.first.len() < TOLD {
            self.first.push(Difference { path: shown(path), what: what.into() });
        }
    }

    fn compare(&mut self, source: &Entry, target: &Entry) {
        for what in differences(source, target) {
            self.add(&source.path, what);
        }
    }
}

fn differences(source: &Entry, target: &Entry) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, one: String, other: String| {
        if one != other {
            found.push(format!("{what} is {other} in the target and {one} in the source"));
        }
    };
    differ("kind", source.kind.word().to_owned(), target.kind.word().to_owned());
    differ("mode", format!("{:04o}", source.mode), format!("{:04o}", target.mode));
    let owner = |entry: &Entry| format!("{}:{}", entry.owner.0, entry.owner.1);
    differ("owner", owner(source), owner(target));
    differ("time", source.modified.to_string(), target.modified.to_string());
    differ("size", source.size.to_string(), target.size.to_string());
    differ("device", format!("{:?}", source.device), format!("{:?}", target.device));
    let first = |entry: &Entry| entry.same_as.as_deref().map_or("none".to_owned(), shown);
    differ("earlier name", first(source), first(target));
    if source.content != target.content && source.same_as == target.same_as {
        found.push("the content differs".to_owned());
    }
    for name in source.attributes.keys().chain(target.attributes.keys()) {
        let text = format!("attribute {} differs", shown(name));
        if source.attributes.get(name) != target.attributes.get(name) && !found.contains(&text) {
            found.push(text);
        }
    }
    if is_denser(target, source) {
        let (ours, theirs) = (target.stored, source.stored);
        found.push(format!("holes are filled: {ours} bytes are stored, {theirs} in the source"));
    }
    found
}

/// Both the kernel's map of the data and what is held for it have to say so: blocks that were reserved and
/// never written show as data or as a hole, by what happens to be in memory.
fn is_denser(target: &Entry, source: &Entry) -> bool {
    target.stored > source.stored
        && target.allocated > source.allocated.next_multiple_of(GRAIN as u64)
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
    }
}
