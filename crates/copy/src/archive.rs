//! Unpacks an archive into an empty volume: tar, and tar in gzip or zstd, from a file or a URL.
//!
//! The archive is unpacked while it is read, into a hidden directory of the target. Its content is
//! moved into place only after its checksum was verified, which needs no extra space. Hashing first
//! would need space for the archive as well, or a second download, which might deliver other bytes.
//! A wrong checksum leaves nothing.

mod absolute;
mod fetch;
mod reach;
mod route;
mod stream;
mod unpack;

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::bytes::Bytes;
use crate::copy::{
    At, CopyError, CopySummary, Digest, Dir, Hand, LOST_AND_FOUND, OpenEntry, ProgressReporter,
    Totals, attributes, dress, remove_all,
};

pub use fetch::HttpUrl;
pub use reach::{HostName, Network, Reach};
pub use route::{Bundle, Proxies, Route};
use stream::{Guard, Raw, decode};
use unpack::{STAGE, Unpacker};

const TREE: &CStr = c"tree";
/// Is there when the sum is known to be right: from then on a run that was interrupted is carried
/// on.
const VERIFIED: &CStr = c"verified";
/// The attribute of the target that says what was unpacked there, so that doing it again is nothing.
const UNPACKED: &[u8] = b"user.pliant.unpacked";
/// How much may follow the end of an archive in its file.
const TRAILING: u64 = 16 << 20;

/// Source of an archive.
#[derive(Debug, Clone)]
pub enum ArchiveSource<'a> {
    /// A file on this host.
    File(&'a Path),
    /// An http or https address, and how its server is reached.
    Address(&'a HttpUrl, &'a Route),
}

/// What to unpack, and how.
#[derive(Debug, Clone)]
pub struct UnpackOptions<'a> {
    /// Source of the archive.
    pub origin: ArchiveSource<'a>,
    /// The SHA-256 that the archive has, as it is read.
    pub sum: Digest,
    /// The directory that gets it, empty but for a `lost+found`.
    pub target: &'a Path,
    /// True if files get the owners named in the archive; otherwise they belong to the user of this
    /// process.
    pub owners: bool,
    /// Maximum number of bytes to unpack. `None`: limited only by the free space of the target.
    pub max_size: Option<Bytes>,
}

/// Unpacks an archive. A repeated call with the same checksum changes nothing.
///
/// # Errors
/// [`CopyError::Refused`] for a target that is not empty or too small and for an archive that is
/// hostile, [`CopyError::WrongSum`], and errors of the system. The target is then as it was.
pub fn unpack(
    order: &UnpackOptions,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    let path = order.target.as_os_str().as_bytes();
    let target = Dir::open(order.target).at("opening", path)?;
    let sum = order.sum.to_string();
    let mut outcome = CopySummary::default();
    if !is_unpacked(&target, &sum)? {
        if !is_verified(&target, &sum)? {
            must_be_empty(&target)?;
            remove_all(hand, &target, STAGE).at("removing", STAGE.to_bytes())?;
            let staged = stage(order, &target, hand, tell);
            if staged.is_err() {
                // Why it failed is what counts; the next run clears up too.
                let _ = remove_all(hand, &target, STAGE);
            }
            outcome = staged?;
        }
        show(&target, &sum, hand)?;
    }
    remove_all(hand, &target, STAGE).at("removing", STAGE.to_bytes())?;
    hand.flush_all(&target).at("flushing", path)?;
    Ok(CopySummary { digest: Some(order.sum), ..outcome })
}

fn is_unpacked(target: &Dir, sum: &str) -> Result<bool, CopyError> {
    let node = OpenEntry::open(target.again().at("reading", b"")?);
    let found = attributes(&node).at("reading", b"")?;
    Ok(found.get(UNPACKED).is_some_and(|said| said == sum.as_bytes()))
}

fn is_verified(target: &Dir, sum: &str) -> Result<bool, CopyError> {
    let Ok(stage) = target.enter(STAGE) else { return Ok(false) };
    let mut said = String::new();
    match stage.read(VERIFIED) {
        Ok(file) => file.take(100).read_to_string(&mut said).at("reading", VERIFIED.to_bytes())?,
        Err(_) => return Ok(false),
    };
    Ok(said == sum)
}

fn must_be_empty(target: &Dir) -> Result<(), CopyError> {
    let names = target.names_at_the_top().at("reading", b"")?;
    match names.iter().find(|name| *name != STAGE) {
        None => Ok(()),
        Some(name) => Err(CopyError::Refused(format!(
            "the target is not empty: it contains {}; use an empty target, or remove its content",
            name.to_bytes().escape_ascii()
        ))),
    }
}

/// Unpacks it all into the hidden directory, and say durably that it is right.
fn stage(
    order: &UnpackOptions,
    target: &Dir,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    let (mut raw, name) = open(&order.origin)?;
    hand.make_dir(target, STAGE).at("making", STAGE.to_bytes())?;
    let stage = target.enter(STAGE).at("entering", STAGE.to_bytes())?;
    hand.make_dir(&stage, TREE).at("making", TREE.to_bytes())?;
    let tree = stage.enter(TREE).at("entering", TREE.to_bytes())?;
    tell.begin("unpack", Totals { bytes: raw.length.unwrap_or_default(), files: 0 });
    let outcome = read_all(order, &tree, &mut raw, hand, tell)?;
    raw.drain(TRAILING).map_err(|error| stream::refused(error, "reading", &name))?;
    if raw.digest() != order.sum {
        return Err(CopyError::WrongSum { name, wanted: order.sum });
    }
    hand.flush_all(target).at("flushing", b"")?;
    let file = hand.make_file(&stage, VERIFIED).at("making", VERIFIED.to_bytes())?;
    hand.write(&file, order.sum.to_string().as_bytes(), 0).at("writing", VERIFIED.to_bytes())?;
    hand.flush_all(target).at("flushing", b"")?;
    Ok(outcome)
}

fn open(origin: &ArchiveSource) -> Result<(Raw, String), CopyError> {
    match origin {
        ArchiveSource::File(path) => {
            let name = path.as_os_str().as_bytes();
            let file = File::open(path).at("opening", name)?;
            let length = file.metadata().at("reading", name)?.len();
            Ok((Raw::new(Box::new(file), Some(length)), path.display().to_string()))
        }
        ArchiveSource::Address(address, route) => {
            let (body, length) = fetch::fetch(address, route)?;
            Ok((Raw::new(Box::new(body), length), address.to_string()))
        }
    }
}

fn read_all(
    order: &UnpackOptions,
    tree: &Dir,
    raw: &mut Raw,
    hand: &Hand,
    tell: &mut ProgressReporter,
) -> Result<CopySummary, CopyError> {
    let is_read = raw.count.clone();
    let refused = |error| stream::refused(error, "reading", "the archive");
    let guard = Guard::new(decode(raw).map_err(refused)?);
    let gate = guard.gate();
    let mut archive = tar::Archive::new(guard);
    let mut put = Unpacker::into(tree, order.owners, order.max_size, hand)?;
    let mut entries = archive.entries().map_err(refused)?;
    let mut told = 0;
    loop {
        gate.names();
        let Some(entry) = entries.next() else { break };
        let entry = entry.map_err(refused)?;
        gate.content();
        put.entry(entry, &mut || {
            let moved = is_read.get() - std::mem::replace(&mut told, is_read.get());
            tell.moved(moved)
        })?;
        tell.file_done()?;
    }
    put.finish()
}

/// Moves what was unpacked into place.
fn show(target: &Dir, sum: &str, hand: &Hand) -> Result<(), CopyError> {
    let stage = target.enter(STAGE).at("entering", STAGE.to_bytes())?;
    let tree = stage.enter(TREE).at("entering", TREE.to_bytes())?;
    for name in tree.names().at("reading", TREE.to_bytes())?.iter() {
        if name == LOST_AND_FOUND {
            remove_all(hand, target, name).at("removing", name.to_bytes())?;
        }
        hand.rename((&tree, name), (target, name)).at("moving", name.to_bytes())?;
    }
    let top = OpenEntry::open(target.again().at("reading", b"")?);
    let from = OpenEntry::open(tree);
    let meta = from.meta().at("reading", TREE.to_bytes())?;
    let has = attributes(&from).at("reading", TREE.to_bytes())?;
    dress(hand, (&has, &meta), &top, b"")?;
    // The names are durable before the word that they are there.
    hand.flush_all(target).at("flushing", b"")?;
    hand.set_attribute(&top, UNPACKED, sum.as_bytes()).at("marking", b"")
}
