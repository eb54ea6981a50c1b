//! Which trees a copy may change: what a target has beside its source is removed.

use rustix::io::Errno;

use super::dir::Dir;
use super::hand::{Hand, Node};
use super::outcome::{At, CopyError};

/// The attribute of a target that a copy has begun to fill, or has filled. It is not carried: a copy of a copy
/// has its own.
pub const COPIED: &[u8] = b"user.pliant.copied";
/// What it says once all was compared: from then on somebody may live on the target.
const DONE: &[u8] = b"done";

/// How far earlier copies to a target are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It is ours to change.
    Begun,
    /// It was filled and compared, and is nobody's to change but its owner's.
    Done,
}

/// Mark a target as one of ours before anything in it is changed; again changes nothing.
///
/// # Errors
/// [`CopyError::Refused`] for one that has content and no mark: it may be what somebody lives on, as the
/// source is where the two were taken for each other.
pub fn mark(target: &Dir, hand: &Hand) -> Result<Mark, CopyError> {
    if let Some(mark) = find(target)? {
        return Ok(mark);
    }
    if let Some(name) = target.names_at_the_top().at("reading", b"")?.iter().next() {
        return Err(CopyError::Refused(format!(
            "the target is not empty, and no copy was made to it before: it has {}; name an empty one, or \
             take away what it has",
            name.to_bytes().escape_ascii()
        )));
    }
    say(target, hand, b"begun")?;
    Ok(Mark::Begun)
}

/// Mark a target as filled and compared.
///
/// # Errors
/// What the system says.
pub fn mark_done(target: &Dir, hand: &Hand) -> Result<(), CopyError> {
    say(target, hand, DONE)?;
    hand.flush_all(target).at("flushing", b"")
}

/// Why nothing is copied to a target that was filled before.
pub fn lived_in() -> CopyError {
    let (mark, why) = (String::from_utf8_lossy(COPIED), "so somebody may live on it since");
    CopyError::Refused(format!(
        "an earlier copy to the target was completed, {why}, and it is not what the source is; name an \
         empty one, or take the mark away if all of it may go: setfattr --remove {mark} TARGET"
    ))
}

fn say(target: &Dir, hand: &Hand, what: &[u8]) -> Result<(), CopyError> {
    let node = Node::open(target.again().at("reading", b"")?);
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
