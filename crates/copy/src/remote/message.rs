//! What the two ends say to each other: each message is a value, written by postcard into one frame. What comes from
//! the other side is parsed into types that cannot hold what would lead elsewhere.

use std::ffi::{CStr, CString};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::UNIX_EPOCH;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::copy::{Attributes, CopyError, Digest, Meta, Stamp, shown};

/// The longest name that a kernel takes.
const LONGEST_NAME: usize = 255;

/// Job that the receiver requests for a connection: its first message. The source answers with its own time, a
/// [`Stamp`], and then with what each job says here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// Count the space that the tree needs: [`Streamed`] until its [`Needs`](crate::copy::Needs); ticks are entries.
    Count {
        /// True if the source may be written to.
        live: bool,
        /// Bytes of a block of the target.
        block: NonZeroU64,
    },
    /// Walk through the tree: [`Streamed`] parts of a [`WalkPart`], until its end.
    Walk {
        /// True if the source may be written to.
        live: bool,
    },
    /// Read contents: a [`Request`] after the other.
    Read,
    /// Read all of the tree: [`Streamed`] entries, until there is none; ticks are bytes.
    Entries {
        /// Bytes a second.
        limit: Option<NonZeroU64>,
    },
    /// Sum up the beginning of the device: [`Streamed`] until its [`Sum`](crate::copy::Sum); ticks are bytes.
    Sum {
        /// Number of bytes.
        size: u64,
        /// Bytes a second.
        limit: Option<NonZeroU64>,
    },
}

/// What is sent without being asked for, part by part.
#[derive(Debug, Serialize, Deserialize)]
pub enum Streamed<P> {
    /// So much more is done.
    Tick(u64),
    /// The next part, or the last one.
    Part(P),
    /// It failed: nothing follows.
    Failed(SourceFailure),
}

/// A part of a walk.
#[derive(Debug, Serialize, Deserialize)]
pub enum WalkPart {
    /// A directory begins. The top alone has no name.
    Enter(Option<Name>, Meta),
    /// Names in it; none end them.
    Names(Vec<Name>),
    /// Anything else, with its attributes and the target of a link.
    Entry(Name, Meta, Result<(Attributes, Vec<u8>), SystemError>),
    /// A directory ends.
    Leave(Meta, Attributes),
    /// The top has ended; so many entries vanished while they were read.
    End(u64),
}

/// A request for contents. The answer to each is a `Result` of what it says here, or of a [`SystemError`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Open the device: its size, or the [`SourceFailure`].
    OpenDevice,
    /// Open a file, by its path from the top, and which it was: an [`OpenedFile`].
    Open {
        /// Path from the top.
        #[serde(borrow, with = "serde_bytes")]
        path: &'a [u8],
        /// Device and inode.
        id: (u64, u64),
    },
    /// The ranges with data of what is open: some [`Range`]s, in their order. An empty one at the size ends them.
    Ranges {
        /// Where they begin.
        from: u64,
        /// Where it ends.
        size: u64,
    },
    /// A piece of what is open: a [`Piece`].
    Piece {
        /// Where it begins.
        at: u64,
        /// How long it is at most.
        length: u32,
        /// Digest of what the target has there.
        has: Option<Digest>,
    },
    /// Whether the file is as it was when it was opened.
    CheckUnchanged,
}

/// Ranges of bytes.
pub type Ranges = Vec<Range<u64>>;

/// A file as it was opened.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenedFile {
    /// Its metadata.
    pub meta: Meta,
    /// Its extended attributes.
    pub attributes: Attributes,
    /// All of a small one.
    pub whole: Option<WholeFile>,
}

/// A small file.
#[derive(Debug, Serialize, Deserialize)]
pub struct WholeFile {
    /// Its content.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// True if it was as before when its content had been read.
    pub is_unchanged: bool,
}

/// A piece of a content.
#[derive(Debug, Serialize, Deserialize)]
pub enum Piece<'a> {
    /// Its bytes.
    Data(#[serde(borrow, with = "serde_bytes")] &'a [u8]),
    /// So many bytes are what the target has.
    Same(u32),
}

/// A name in a directory: never one that leads elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(CString);

impl Name {
    /// Parses a name.
    ///
    /// # Errors
    /// `InvalidData` for what is no name of one entry.
    pub fn parse(name: &[u8]) -> io::Result<Name> {
        let is_none =
            matches!(name, b"" | b"." | b"..") || name.len() > LONGEST_NAME || name.contains(&b'/');
        let name = (!is_none).then(|| CString::new(name).ok()).flatten();
        name.map(Name).ok_or_else(|| nonsense("an invalid name"))
    }

    /// Returns the name as the kernel takes it.
    pub fn into_c(self) -> CString {
        self.0
    }

    /// Returns the name as the kernel takes it.
    pub fn as_c(&self) -> &CStr {
        &self.0
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        Name::parse(<&serde_bytes::Bytes>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// How a copy failed at the source.
#[derive(Debug, Serialize, Deserialize)]
pub enum SourceFailure {
    /// An entry changed while it was read.
    Changed {
        /// Its path, as it is shown.
        path: String,
    },
    /// A call of the system failed.
    System {
        /// The path of what it was for, as it is shown.
        path: String,
        /// What the system said.
        error: SystemError,
    },
    /// Anything else, in words.
    Other(String),
}

impl From<&CopyError> for SourceFailure {
    fn from(error: &CopyError) -> SourceFailure {
        match error {
            CopyError::Changed { path } => SourceFailure::Changed { path: path.clone() },
            CopyError::Failed { path, source, .. } => {
                SourceFailure::System { path: path.clone(), error: source.into() }
            }
            other => SourceFailure::Other(other.to_string()),
        }
    }
}

impl From<SourceFailure> for CopyError {
    fn from(failure: SourceFailure) -> CopyError {
        match failure {
            SourceFailure::Changed { path } => CopyError::Changed { path: harmless(path) },
            SourceFailure::System { path, error } => CopyError::Failed {
                doing: "reading at the source",
                path: harmless(path),
                source: error.into(),
            },
            SourceFailure::Other(words) => {
                CopyError::Refused(format!("the source reports: {}", harmless(words)))
            }
        }
    }
}

/// It was made to be shown at the source; who sends anything else gets it escaped once more.
fn harmless(text: String) -> String {
    if text.is_ascii() { text } else { shown(text.as_bytes()) }
}

/// An error of the system of the source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SystemError {
    /// Its number; none for what was found out otherwise.
    code: Option<i32>,
    /// Its words.
    words: String,
}

impl From<&io::Error> for SystemError {
    fn from(error: &io::Error) -> SystemError {
        SystemError { code: error.raw_os_error(), words: error.to_string() }
    }
}

impl From<SystemError> for io::Error {
    /// That the source is full is nothing to the target.
    fn from(error: SystemError) -> io::Error {
        use rustix::io::Errno;
        let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
        match error.code {
            Some(code) if code > 0 && !full.contains(&code) => io::Error::from_raw_os_error(code),
            _ => io::Error::other(shown(error.words.as_bytes())),
        }
    }
}

/// Returns a result as it is sent.
pub fn sendable<T>(result: io::Result<T>) -> Result<T, SystemError> {
    result.map_err(|error| SystemError::from(&error))
}

/// Returns the error that the other side sent something invalid.
pub fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other side sent {what}"))
}

/// Returns the current time of this host.
pub fn now() -> Stamp {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    Stamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos(),
    }
}

/// Appends a message to a buffer.
///
/// # Errors
/// What cannot be written; the buffer is then lost.
pub fn encode(message: &impl Serialize, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    postcard::to_extend(message, buffer).map_err(io::Error::other)
}

/// Reads the one message of a frame.
///
/// # Errors
/// `InvalidData` for what is no such message, and for what follows it.
pub fn decode<'b, M: Deserialize<'b>>(frame: &'b [u8]) -> io::Result<M> {
    match postcard::take_from_bytes(frame) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(nonsense("more than a message")),
        Err(error) => Err(nonsense(&format!("no message of this protocol: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use proptest::prelude::*;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::bytes::Bytes;
    use crate::copy::{Entry, EntryKind, Needs, Reserved, Sum, Totals};

    const KINDS: [EntryKind; 7] = [
        EntryKind::File,
        EntryKind::Directory,
        EntryKind::Symlink,
        EntryKind::Fifo,
        EntryKind::Character,
        EntryKind::Block,
        EntryKind::Socket,
    ];

    fn is_read_as_it_was_written<M: Serialize + DeserializeOwned + PartialEq + Debug>(message: &M) {
        let frame = encode(message, Vec::new()).unwrap();
        assert_eq!(&decode::<M>(&frame).unwrap(), message);
        // Each byte is needed, and none may follow.
        assert!(decode::<M>(&frame[..frame.len() - 1]).is_err(), "{message:?}");
        assert!(decode::<M>(&[&frame[..], &[0]].concat()).is_err(), "{message:?}");
    }

    fn stamp(seconds: i64) -> Stamp {
        Stamp { seconds, nanos: 999_999_999 }
    }

    fn meta(kind: EntryKind) -> Meta {
        Meta {
            kind,
            mode: 0o4755,
            uid: 1,
            gid: 2,
            size: 3,
            allocated: 4,
            links: 5,
            id: (6, 7),
            device: (8, 9),
            read: stamp(-10),
            modified: stamp(11),
            changed: stamp(12),
            is_mount: true,
        }
    }

    #[test]
    fn a_name_from_the_other_side_never_leads_elsewhere() {
        let read = |name: &[u8]| {
            let frame = encode(&serde_bytes::Bytes::new(name), Vec::new()).unwrap();
            decode::<Name>(&frame)
        };
        let long = vec![b'x'; 256];
        for name in [b"".as_slice(), b".", b"..", b"a/b", b"/", b"a\0b", &long] {
            assert_eq!(read(name).unwrap_err().kind(), io::ErrorKind::InvalidData, "{name:?}");
        }
        for name in [b"...".as_slice(), b"..x", b" ", b"a\nb", b"\xff", &long[1..]] {
            assert_eq!(read(name).unwrap().as_c().to_bytes(), name);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (some, limit) = (NonZeroU64::MIN, NonZeroU64::new(7));
        for job in [
            Job::Count { live: true, block: some },
            Job::Walk { live: false },
            Job::Read,
            Job::Entries { limit: None },
            Job::Entries { limit },
            Job::Sum { size: 9, limit },
        ] {
            is_read_as_it_was_written(&job);
        }
        for kind in KINDS {
            is_read_as_it_was_written(&meta(kind));
        }
        let reserved = Reserved { path: b"a/b".to_vec(), name: b"security.x".to_vec() };
        for reserved in [None, Some(reserved)] {
            let totals = Totals { bytes: 3, files: 4 };
            is_read_as_it_was_written(&Needs { bytes: Bytes::new(1), inodes: 2, totals, reserved });
        }
        let entry = Entry {
            path: b"a/b".to_vec(),
            kind: EntryKind::Block,
            mode: 0o600,
            owner: (1, 2),
            modified: stamp(-3),
            size: 4,
            content: Some(Digest([5; 32])),
            device: Some((6, 7)),
            same_as: Some(b"a/a".to_vec()),
            attributes: BTreeMap::from([(b"user.x".to_vec(), Digest([8; 32]))]),
            stored: 9,
            allocated: 10,
            thing: None,
        };
        let bare = Entry { content: None, device: None, same_as: None, ..entry.clone() };
        for entry in [Some(entry), Some(bare), None] {
            is_read_as_it_was_written(&entry);
        }
        is_read_as_it_was_written(&Sum { digest: Digest([1; 32]), stored: 2 });
    }

    #[test]
    fn what_no_kernel_has_is_refused_or_cut() {
        let frame = encode(&(1_i64, 1_000_000_000_u32), Vec::new()).unwrap();
        assert!(decode::<Stamp>(&frame).is_err());
        let odd = Meta { mode: 0o100_644, ..meta(EntryKind::File) };
        let frame = encode(&odd, Vec::new()).unwrap();
        assert_eq!(decode::<Meta>(&frame).unwrap().mode, 0o644);
        // No block, and no limit of nothing: who divides by them need not look.
        assert!(decode::<Job>(&[0, 1, 0]).is_err());
        assert!(decode::<Job>(&[3, 1, 0]).is_err());
        assert!(decode::<Job>(&[9]).is_err());
    }

    #[test]
    fn an_error_of_the_source_is_no_full_target_and_no_order_to_the_terminal() {
        let far = |error: io::Error| io::Error::from(SystemError::from(&error));
        let of = |errno: rustix::io::Errno| far(errno.into()).raw_os_error();
        assert_eq!(of(rustix::io::Errno::STALE), Some(rustix::io::Errno::STALE.raw_os_error()));
        assert_eq!(of(rustix::io::Errno::NOSPC), None);
        assert_eq!(far(io::Error::other("\u{1b}[2J")).to_string(), r"\x1b[2J");
        let path = "\u{1b}\u{9b}2J".to_owned();
        let said = CopyError::from(SourceFailure::Changed { path }).to_string();
        assert!(said.is_ascii(), "{said}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Job>(&bytes);
            let _ = decode::<Streamed<WalkPart>>(&bytes);
            let _ = decode::<Streamed<Option<Entry>>>(&bytes);
            let _ = decode::<Streamed<Needs>>(&bytes);
            let _ = decode::<Streamed<Sum>>(&bytes);
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Result<OpenedFile, SystemError>>(&bytes);
            let _ = decode::<Result<Ranges, SystemError>>(&bytes);
            let _ = decode::<Result<Piece, SystemError>>(&bytes);
        }
    }

    /// A length is only what the other side says: no memory is reserved for more than has come.
    #[test]
    fn what_says_more_than_it_has_is_refused_before_room_is_made_for_it() {
        let most = encode(&u64::MAX, Vec::new()).unwrap();
        assert!(decode::<Ranges>(&most).is_err());
        assert!(decode::<Attributes>(&most).is_err());
        assert!(decode::<Vec<Name>>(&most).is_err());
        assert!(decode::<WholeFile>(&most).is_err());
        assert!(decode::<Vec<u8>>(&most).is_err());
    }
}
