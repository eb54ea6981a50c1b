//! Whether the target has room for the source, before a byte is written.

use std::collections::HashSet;

use crate::bytes::Bytes;

use super::dir::{Dir, Kind, Meta};
use super::origin::Origin;
use super::outcome::{At, CopyError};
use super::progress::{Progress, Totals};
use super::walk::{Step, Walk};

/// What stays free besides: for what a file system needs for itself that nobody can foretell.
const MARGIN: Bytes = Bytes::mib(1);
/// One part in so many, on top of that.
const MARGIN_PART: u64 = 50;

/// What a tree takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes that its files hold, each in whole blocks of the file system that they are for.
    pub bytes: Bytes,
    /// Files, directories and all else.
    pub inodes: u64,
    /// What there is to carry.
    pub totals: Totals,
}

/// What a file system can hold beside what is in the way.
#[derive(Debug, Clone, Copy)]
struct Room {
    bytes: Bytes,
    /// None where inodes are made as they are needed.
    inodes: Option<u64>,
}

/// Count what the source needs.
///
/// # Errors
/// [`CopyError::Refused`], with numbers, if the target has no room for it; what the target has already is
/// replaced and counts as room.
pub fn room_for<O: Origin>(
    source: &O,
    target: &Dir,
    live: bool,
    tell: &mut Progress,
) -> Result<Needs, CopyError> {
    let has = rustix::fs::fstatvfs(target).at("measuring", b"")?;
    let block = has.f_frsize.max(1);
    let needs = source.needs(live, block, tell)?;
    let held = Needs::of(target, false, block, &mut || tell.file_done())?;
    let room = Room {
        bytes: Bytes::new(has.f_bavail.saturating_mul(block)) + held.bytes,
        inodes: (has.f_files > 0).then(|| has.f_favail + held.inodes),
    };
    fits(&needs, &room).map(|()| needs)
}

impl Needs {
    /// Count what a tree takes; `tick` hears of each thing that is no directory.
    ///
    /// # Errors
    /// What the system says, and what `tick` says.
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
            match found.step {
                Step::Leave => {}
                Step::Enter => needs.add(meta, block),
                Step::Thing => {
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

    fn add(&mut self, meta: &Meta, block: u64) {
        self.inodes += 1;
        let bytes = match meta.kind {
            Kind::File => {
                self.totals.bytes = self.totals.bytes.saturating_add(meta.size);
                meta.size.min(meta.allocated.max(block))
            }
            Kind::Directory => meta.size.max(1),
            Kind::Symlink => meta.size,
            _ => 0,
        };
        self.bytes = self.bytes + Bytes::new(bytes.next_multiple_of(block));
    }
}

fn fits(needs: &Needs, room: &Room) -> Result<(), CopyError> {
    let with_margin = needs.bytes + MARGIN + Bytes::new(needs.bytes.get() / MARGIN_PART);
    if with_margin > room.bytes {
        let (bytes, has, short) = (needs.bytes, room.bytes, with_margin - room.bytes);
        return Err(CopyError::Refused(format!(
            "the target is too small: the source holds {bytes}, the target has room for {has}, and \
             with a margin of {} that is {short} short; make it at least that much larger",
            with_margin - bytes
        )));
    }
    match room.inodes {
        Some(has) if has < needs.inodes => Err(CopyError::Refused(format!(
            "the target has too few inodes: the source needs {} and the target has {has}; make it \
             larger, or make its file system with more inodes",
            needs.inodes
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(mib: u64, inodes: u64) -> Needs {
        Needs { bytes: Bytes::mib(mib), inodes, totals: Totals::default() }
    }

    fn said(needs: &Needs, mib: u64, inodes: Option<u64>) -> String {
        let room = Room { bytes: Bytes::mib(mib), inodes };
        fits(needs, &room).map_or_else(|error| error.to_string(), |()| "fits".to_owned())
    }

    #[test]
    fn what_has_no_room_is_told_with_numbers() {
        assert_eq!(said(&needs(100, 9), 103, Some(9)), "fits");
        assert_eq!(said(&needs(0, 1), 1, None), "fits");
        assert_eq!(
            said(&needs(100, 9), 102, None),
            "the target is too small: the source holds 100 MiB, the target has room for 102 MiB, and \
             with a margin of 3 MiB that is 1 MiB short; make it at least that much larger"
        );
        assert_eq!(
            said(&needs(100, 9), 200, Some(8)),
            "the target has too few inodes: the source needs 9 and the target has 8; make it larger, \
             or make its file system with more inodes"
        );
    }
}
