//! Reads both trees and reports their differences.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicBool};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::dir::{Dir, EntryKind};
use super::entry::Entry;
use super::index::{Index, remove_index};
use super::manifest::{Manifest, ReadScope, Side};
use super::outcome::{CopyError, Difference, Verified, shown};
use super::progress::ProgressReporter;
use super::source::{SourceTree, Take, Tick};
use super::sum::GRAIN;
use super::target::Hand;
use super::walk::in_a_walk;

/// How many differences are reported.
const TOLD: usize = 8;
/// How far the reader of the source may be ahead.
const AHEAD: usize = 256;

/// Compares two trees: content, mode, owner, modification times, extended attributes with ACLs,
/// links and holes. Contents that an earlier pass has compared are not read again, if there is an
/// index of them.
///
/// A target may be less dense than its source, never denser: each file system that Pliant makes has holes.
///
/// # Errors
/// [`CopyError::Mismatch`] with the first differences, [`CopyError::Changed`] if the source is
/// written to, and errors of the system.
pub fn verify<O: SourceTree>(
    source: &O,
    target: &Dir,
    index: Option<&Index>,
    tell: &mut ProgressReporter,
) -> Result<Verified, CopyError> {
    let known = || index.and_then(|index| index.known(target));
    let (limit, of_source) = (tell.limit(), known());
    let read = |tick: Tick, take: Take| source.entries(of_source, limit, tick, take);
    let side = Side::Target { has_index: index.is_some() };
    let ours = ReadScope { side, index: known(), before: None };
    let mut seen = Differences::default();
    let verified = meet(read, target, ours, tell, &mut |pair| {
        seen.see(pair);
        Ok(())
    })?;
    seen.none().map(|()| verified)
}

/// Compares contents while the source may be written to, and adds those that are equal to the
/// index, so that the last pass need not read them again. Differences are left to the last pass,
/// and so is everything if there can be no index, which is not an error.
///
/// # Errors
/// [`CopyError::Stopped`] if that was demanded, and errors of the system of the index.
pub fn compare_ahead(
    index: &Index,
    target: &Dir,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<(), CopyError> {
    match kept_while_compared(index, target, hand, tell) {
        Err(CopyError::Stopped) => Err(CopyError::Stopped),
        Err(_) => remove_index(target, hand),
        Ok(()) => Ok(()),
    }
}

fn kept_while_compared(
    index: &Index,
    target: &Dir,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<(), CopyError> {
    let mut writer = index.begin(target, hand)?;
    let before = Some(writer.before);
    let of_source = ReadScope { side: Side::Live, index: index.known(target), before };
    let read = |tick: Tick, take: Take| {
        let mut manifest = Manifest::of(index.source, of_source, tick)?;
        while let Some(entry) = manifest.next_entry()? {
            take(entry)?;
        }
        Ok(())
    };
    let side = Side::Target { has_index: true };
    let ours = ReadScope { side, index: index.known(target), before };
    meet(read, target, ours, tell, &mut |pair| match pair {
        EntryPair::Both(source, target) => writer.keep(source, target),
        EntryPair::Source(_) | EntryPair::Target(_) => Ok(()),
    })?;
    writer.end()
}

/// What both sides have, or one of them.
#[derive(Clone, Copy)]
enum EntryPair<'a> {
    Both(&'a Entry, &'a Entry),
    Source(&'a Entry),
    Target(&'a Entry),
}

/// Reads both at the same time, and see each thing of either.
fn meet(
    read: impl FnOnce(Tick, Take) -> Result<(), CopyError> + Send,
    target: &Dir,
    ours: ReadScope,
    tell: &mut ProgressReporter,
    see: &mut dyn FnMut(EntryPair) -> Result<(), CopyError>,
) -> Result<Verified, CopyError> {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, entries) = sync_channel(AHEAD);
        let mut beside = tell.beside();
        let read = scope.spawn(move || send_all(read, &sender, &mut beside, over));
        let met = meet_all(&entries, target, ours, tell, see);
        over.store(true, atomic::Ordering::Relaxed);
        drop(entries);
        let theirs = read.join().unwrap_or(Err(CopyError::Stopped));
        // What the reader of the source met is why nothing was found of it.
        match theirs {
            Err(error) if met.is_ok() => Err(error),
            _ => met,
        }
    })
}

fn send_all(
    read: impl FnOnce(Tick, Take) -> Result<(), CopyError>,
    sender: &SyncSender<Entry>,
    beside: &mut ProgressReporter,
    over: &AtomicBool,
) -> Result<(), CopyError> {
    let mut tick = |bytes| {
        let is_over = over.load(atomic::Ordering::Relaxed);
        if is_over { Err(CopyError::Stopped) } else { beside.moved(bytes) }
    };
    let mut take = |entry| sender.send(entry).map_err(|_| CopyError::Stopped);
    read(&mut tick, &mut take)
}

fn meet_all(
    theirs: &Receiver<Entry>,
    target: &Dir,
    ours: ReadScope,
    tell: &mut ProgressReporter,
    see: &mut dyn FnMut(EntryPair) -> Result<(), CopyError>,
) -> Result<Verified, CopyError> {
    let tell = RefCell::new(tell);
    let mut tick = |bytes| tell.borrow_mut().moved(bytes);
    let mut ours = Manifest::of(target, ours, &mut tick)?;
    let (mut source, mut target) = (theirs.recv().ok(), ours.next_entry()?);
    loop {
        let order = match (&source, &target) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => in_a_walk(&one.path).cmp(in_a_walk(&other.path)),
        };
        match (order, &source, &target) {
            (Ordering::Less, Some(entry), _) => see(EntryPair::Source(entry))?,
            (Ordering::Greater, _, Some(entry)) => see(EntryPair::Target(entry))?,
            (_, Some(one), Some(other)) => see(EntryPair::Both(one, other))?,
            _ => {}
        }
        if order != Ordering::Greater {
            source = theirs.recv().ok();
        }
        if order != Ordering::Less {
            if target.is_some_and(|entry| entry.kind != EntryKind::Directory) {
                tell.borrow_mut().file_done()?;
            }
            target = ours.next_entry()?;
        }
    }
    Ok(ours.verified())
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

    fn see(&mut self, pair: EntryPair) {
        match pair {
            EntryPair::Source(entry) => self.add(&entry.path, "is not in the target"),
            EntryPair::Target(entry) => self.add(&entry.path, "is not in the source"),
            EntryPair::Both(source, target) => {
                for what in differences(source, target) {
                    self.add(&source.path, what);
                }
            }
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
        found.push(format!("holes are allocated: {ours} bytes are stored, {theirs} in the source"));
    }
    found
}

/// Both the kernel's map of the data and what is held for it have to say so: blocks that were reserved and
/// never written show as data or as a hole, by what happens to be in memory.
fn is_denser(target: &Entry, source: &Entry) -> bool {
    target.stored > source.stored
        && target.allocated > source.allocated.next_multiple_of(GRAIN as u64)
}
