//! Which trees a copy may change: what a target has beside its source is removed.

use rustix::io::Errno;

use super::dir::Dir;
use super::hand::{Hand, Node};
use super::outcome::{At, CopyError};

/// The attribute of a target that an earlier copy has filled, wholly or in part. It is not carried: a copy of
/// a copy has its own.
pub const COPIED: &[u8] = b"user.pliant.copied";

/// Mark a target as one of ours before anything in it is changed; again changes nothing.
///
/// # Errors
/// [`CopyError::Refused`] for one that has content and no mark: it may be what somebody lives on, as the
/// source is where the two were taken for each other.
pub fn mark(target: &Dir, hand: &Hand) -> Result<(), CopyError> {
    if is_marked(target)? {
        return Ok(());
    }
    if let Some(name) = target.names_at_the_top().at("reading", b"")?.iter().next() {
        return Err(CopyError::Refused(format!(
            "the target is not empty, and no copy was made to it before: it has {}; name an empty one, or \
             take away what it has",
            name.to_bytes().escape_ascii()
        )));
    }
    let node = Node::open(target.again().at("reading", b"")?);
    hand.set_attribute(&node, COPIED, b"1").at("marking", b"")
}

fn is_marked(target: &Dir) -> Result<bool, CopyError> {
    match rustix::fs::fgetxattr(target, COPIED, &mut [0; 8]) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error).at("reading", b""),
    }
}
