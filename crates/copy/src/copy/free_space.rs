//! Checks the free space of the target before a byte is written.

use std::collections::HashSet;

use crate::bytes::Bytes;

use super::dir::{Dir, EntryKind, Meta};
use super::needs::{Needs, Reserved};
use super::outcome::{At, CopyError};
use super::progress::ProgressReporter;
use super::source::{SourceTree, Steps};
use super::walk::{Walk, WalkStep, WalkStepKind};
use super::xattr::is_for_administrators;

/// What stays free besides: for what a file system needs for itself that no one can foretell.
const MARGIN: Bytes = Bytes::mib(1);
/// One part in so many, on top of that.
const MARGIN_PART: u64 = 50;

/// What a file system can hold beside what is in the way.
#[derive(Debug, Clone, Copy)]
struct FreeSpace {
    bytes: Bytes,
    /// None where inodes are made as they are needed.
    inodes: Option<u64>,
}

/// Counts what the source needs.
///
/// # Errors
/// [`CopyError::Refused`], with numbers, if the target has not enough free space. Existing content
/// of the target is replaced and counts as free.
pub fn room_for<O: SourceTree>(
    source: &O,
    target: &Dir,
    live: bool,
    tell: &mut ProgressReporter,
) -> Result<Needs, CopyError> {
    let has = rustix::fs::fstatvfs(target).at("measuring", b"")?;
    let block = has.f_frsize.max(1);
    let needs = source.space_needed(live, block, tell)?;
    if let Some(reserved) = needs.reserved.as_ref().filter(|_| !may_administrate()) {
        return Err(reserved.refusal());
    }
    let held = Needs::of(target, false, block, &mut || tell.file_done())?;
    let room = FreeSpace {
        bytes: Bytes::new(has.f_bavail.saturating_mul(block)) + held.bytes,
        inodes: (has.f_files > 0).then(|| has.f_favail + held.inodes),
    };
    fits(&needs, &room).map(|()| needs)
}

impl Needs {
    /// Counts what a tree needs; `tick` is called for each entry that is not a directory.
    ///
    /// # Errors
    /// Errors of the system and of `tick`.
    pub fn of(
        top: &Dir,
        live: bool,
        block: u64,
        tick: &mut dyn FnMut() -> Result<(), CopyError>,
    ) -> Result<Needs, CopyError> {
        let mut walk = Walk::over(top.again().at("reading", b"")?, live)?;
        let (mut needs, mut linked) = (Needs::default(), HashSet::new());
        while let Some(found) = walk.step()? {
            let meta = &found.meta;
            needs.look_for_reserved(&mut walk, &found);
            match found.step {
                WalkStepKind::Leave => {}
                WalkStepKind::Enter => needs.add(meta, block),
                WalkStepKind::Thing => {
                    needs.totals.files += 1;
                    tick()?;
                    if meta.links == 1 || linked.insert(meta.id) {
                        needs.add(meta, block);
                    }
                }
            }
        }
        Ok(needs)
    }

    /// What goes away meanwhile, or cannot be read, is for the copy to tell.
    fn look_for_reserved(&mut self, walk: &mut Walk, found: &WalkStep) {
        let attributes = match (&found.step, found.meta.kind) {
            _ if self.reserved.is_some() => return,
            (WalkStepKind::Enter, _)
            | (WalkStepKind::Thing, EntryKind::Socket | EntryKind::Directory) => return,
            (WalkStepKind::Thing, _) => walk.look(found).map(|(attributes, _)| attributes),
            (WalkStepKind::Leave, _) => walk.leaving().map(|(_, attributes)| attributes),
        };
        let names = attributes.unwrap_or_default().into_keys();
        let name = names.filter(|name| is_for_administrators(name)).min();
        self.reserved = name.map(|name| Reserved { path: walk.path().to_vec(), name });
    }

    fn add(&mut self, meta: &Meta, block: u64) {
        self.inodes += 1;
        let bytes = match meta.kind {
            EntryKind::File => {
                // Holes are no work.
                self.totals.bytes = self.totals.bytes.saturating_add(meta.stored());
                meta.size.min(meta.allocated.max(block))
            }
            EntryKind::Directory => meta.size.max(1),
            EntryKind::Symlink => meta.size,
            _ => 0,
        };
        self.bytes = self.bytes + Bytes::new(bytes.next_multiple_of(block));
    }
}

/// Returns whether this process may set attributes of security modules, as the kernel tells of it.
fn may_administrate() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    // Where that cannot be read, the copy itself will tell.
    bits.is_none_or(|bits| bits & SYS_ADMIN != 0)
}

fn fits(needs: &Needs, room: &FreeSpace) -> Result<(), CopyError> {
    let with_margin = needs.bytes + MARGIN + Bytes::new(needs.bytes.get() / MARGIN_PART);
    if with_margin > room.bytes {
        let (bytes, has, short) = (needs.bytes, room.bytes, with_margin - room.bytes);
        return Err(CopyError::Refused(format!(
            "the target is too small: the source has {bytes}, the target has {has} of free space, \
             and with a margin of {} it is {short} short; make it at least that much larger",
            with_margin - bytes
        )));
    }
    match room.inodes {
        Some(has) if has < needs.inodes => Err(CopyError::Refused(format!(
            "the target has too few inodes: the source needs {} and the target has {has}; make it \
             larger, or create its file system with more inodes",
            needs.inodes
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(mib: u64, inodes: u64) -> Needs {
        Needs { bytes: Bytes::mib(mib), inodes, ..Needs::default() }
    }

    fn said(needs: &Needs, mib: u64, inodes: Option<u64>) -> String {
        let room = FreeSpace { bytes: Bytes::mib(mib), inodes };
        fits(needs, &room).map_or_else(|error| error.to_string(), |()| "fits".to_owned())
    }

    #[test]
    fn what_has_no_room_is_told_with_numbers() {
        assert_eq!(said(&needs(100, 9), 103, Some(9)), "fits");
        assert_eq!(said(&needs(0, 1), 1, None), "fits");
        assert_eq!(
            said(&needs(100, 9), 102, None),
            "the target is too small: the source has 100 MiB, the target has 102 MiB of free \
             space, and with a margin of 3 MiB it is 1 MiB short; make it at least that much \
             larger"
        );
        assert_eq!(
            said(&needs(100, 9), 200, Some(8)),
            "the target has too few inodes: the source needs 9 and the target has 8; make it \
             larger, or create its file system with more inodes"
        );
    }
}
