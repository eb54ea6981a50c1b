//! Operations on one entry of the target that make it equal to the source.

use std::ffi::{CStr, CString};

use rustix::io::Errno;

use super::dir::{Dir, DirNames, EntryKind, Meta, Stamp};
use super::needs::Reserved;
use super::outcome::{At, CopyError};
use super::target::{Hand, OpenEntry};
use super::walk::Descent;
use super::xattr::{Attributes, attributes, is_for_administrators};

/// Sets owner, mode and attributes of a target entry to those of the source; values that are equal
/// are not set again. The times are not set: they come last.
///
/// # Errors
/// An error of the system on either.
pub fn dress(
    hand: &Hand,
    (want, wanted): (&Attributes, &Meta),
    to: &OpenEntry,
    path: &[u8],
) -> Result<(), CopyError> {
    let has = to.meta().at("reading", path)?;
    if (has.uid, has.gid) != (wanted.uid, wanted.gid) {
        hand.set_owner(to, wanted.uid, wanted.gid).at("setting the owner of", path)?;
    }
    let there = attributes(to).at("reading", path)?;
    for name in there.keys().filter(|name| !want.contains_key(*name)) {
        hand.remove_attribute(to, name).at("removing an attribute from", path)?;
    }
    // After the owner, because a new one takes setuid away; after a removed ACL, because that has a part
    // in the mode; and before an ACL is set, for the same reason.
    if wanted.kind != EntryKind::Symlink {
        let has = to.meta().at("reading", path)?;
        if has.mode != wanted.mode {
            hand.set_mode(to, wanted.mode).at("setting the mode of", path)?;
        }
    }
    for (name, value) in want.iter().filter(|(name, value)| there.get(*name) != Some(value)) {
        set_attribute(hand, to, (name, value), path)?;
    }
    Ok(())
}

/// Sets an extended attribute, and names it in the error.
///
/// # Errors
/// [`CopyError::Refused`] for one that only an administrator may set, and errors of the system.
pub fn set_attribute(
    hand: &Hand,
    to: &OpenEntry,
    (name, value): (&[u8], &[u8]),
    path: &[u8],
) -> Result<(), CopyError> {
    let set = hand.set_attribute(to, name, value);
    if set == Err(Errno::PERM) && is_for_administrators(name) {
        return Err(Reserved { path: path.to_vec(), name: name.to_vec() }.refusal());
    }
    // Both stand in one text, each escaped.
    let what = [path, b" (", name, b")"].concat();
    set.at("setting an attribute of", &what)
}

/// Sets both times of an entry, if they differ.
///
/// # Errors
/// An error of the system.
pub fn stamp(
    hand: &Hand,
    to: &OpenEntry,
    times: (Stamp, Stamp),
    path: &[u8],
) -> Result<(), CopyError> {
    let has = to.meta().at("reading", path)?;
    if (has.read, has.modified) == times {
        return Ok(());
    }
    hand.set_times(to, times.0, times.1).at("setting the times of", path)
}

/// Removes an entry, with everything below it.
///
/// # Errors
/// An error of the system; another file system that is mounted below is not entered, and refused.
pub fn remove_all(hand: &Hand, dir: &Dir, name: &CStr) -> rustix::io::Result<u64> {
    let Some(meta) = dir.find(name)? else { return Ok(0) };
    if meta.kind != EntryKind::Directory {
        hand.remove(dir, name)?;
        return Ok(1);
    }
    let count = remove_below(hand, enter(dir, name, &meta)?)?;
    hand.remove_dir(dir, name)?;
    Ok(count + 1)
}

/// Removes everything in a directory.
///
/// # Errors
/// As for [`remove_all`].
pub fn remove_below(hand: &Hand, top: Dir) -> rustix::io::Result<u64> {
    let mut levels: Vec<(DirNames, CString)> = vec![(top.names()?, CString::default())];
    let mut way = Descent::from(top)?;
    let mut count = 0;
    while let Some((names, _)) = levels.last_mut() {
        let Some(name) = names.take().map(CStr::to_owned) else {
            way.leave()?;
            let (_, name) = levels.pop().unwrap_or_default();
            if !levels.is_empty() {
                hand.remove_dir(way.here(), &name)?;
                count += 1;
            }
            continue;
        };
        let meta = way.here().meta(&name)?;
        if meta.kind == EntryKind::Directory {
            let below = enter(way.here(), &name, &meta)?;
            levels.push((below.names()?, name));
            way.enter(below, meta.id);
        } else {
            hand.remove(way.here(), &name)?;
            count += 1;
        }
    }
    Ok(count)
}

fn enter(dir: &Dir, name: &CStr, meta: &Meta) -> rustix::io::Result<Dir> {
    if meta.is_mount {
        return Err(Errno::BUSY);
    }
    dir.enter(name)
}
