//! Marks the trees that a copy may change: what a target has in addition to its source is removed.

use rustix::io::Errno;

use super::dir::Dir;
use super::outcome::{At, CopyError};
use super::target::{Hand, OpenEntry};

/// The attribute of a target to which a copy has begun or was completed. It is not copied: a copy
/// of a copy has its own.
pub const COPIED: &[u8] = b"user.pliant.copied";
/// What it says once all was compared: from then on someone may live on the target.
const DONE: &[u8] = b"done";

/// Progress of earlier copies to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A copy has begun: the target may be changed.
    Begun,
    /// A copy was completed and verified: only its owner may change the target.
    Done,
}

/// Marks a target before anything in it is changed. A repeated call changes nothing.
///
/// # Errors
/// [`CopyError::Refused`] for a target that has content and no mark. Its content may be in use, for
/// example if source and target were confused.
pub fn mark(target: &Dir, hand: &Hand) -> Result<Mark, CopyError> {
    if let Some(mark) = find(target)? {
        return Ok(mark);
    }
    if let Some(name) = target.names_at_the_top().at("reading", b"")?.iter().next() {
        return Err(CopyError::Refused(format!(
            "the target is not empty, and no earlier copy was made to it: it contains {}; use an \
             empty target, or remove its content",
            name.to_bytes().escape_ascii()
        )));
    }
    say(target, hand, b"begun")?;
    Ok(Mark::Begun)
}

/// Marks a target as completed and verified.
///
/// # Errors
/// An error of the system.
pub fn mark_done(target: &Dir, hand: &Hand) -> Result<(), CopyError> {
    say(target, hand, DONE)?;
    hand.flush_all(target).at("flushing", b"")
}

/// The error for a target to which an earlier copy was completed.
pub fn lived_in() -> CopyError {
    let (mark, why) = (String::from_utf8_lossy(COPIED), "so its content may be in use");
    CopyError::Refused(format!(
        "an earlier copy to the target was completed, {why}, and it differs from the source; use \
         an empty target, or, if all of its content may be overwritten, remove the mark: setfattr \
         --remove {mark} TARGET"
    ))
}

fn say(target: &Dir, hand: &Hand, what: &[u8]) -> Result<(), CopyError> {
    let node = OpenEntry::open(target.again().at("reading", b"")?);
    hand.set_attribute(&node, COPIED, what).at("marking", b"")
}

fn find(target: &Dir) -> Result<Option<Mark>, CopyError> {
    let mut said = [0; 16];
    match rustix::fs::fgetxattr(target, COPIED, &mut said) {
        Ok(length) if said[..length] == *DONE => Ok(Some(Mark::Done)),
        Ok(_) => Ok(Some(Mark::Begun)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error).at("reading", b""),
    }
}
