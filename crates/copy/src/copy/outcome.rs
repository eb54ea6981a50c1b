//! The result of a copy.

use std::fmt;
use std::io;

use rustix::io::Errno;
use serde::Serialize;

use super::digest::Digest;

/// Error of a copy. Each kind has its own exit code, because its caller handles it differently.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It cannot be done like this, and a retry cannot change that: there is not enough space, or
    /// the request is invalid.
    #[error("{0}")]
    Refused(String),
    /// Source and target differ although all was carried.
    #[error("{}", describe(*count, first))]
    Mismatch {
        /// Number of differences.
        count: u64,
        /// The first of them.
        first: Vec<Difference>,
    },
    /// An archive does not have the requested checksum. Its actual checksum is not reported: a user
    /// who may name an address may not be allowed to read it, and a checksum would confirm a guess
    /// of its content.
    #[error("{name} does not have the requested sha256 {wanted}; its content was discarded")]
    WrongSum {
        /// Source of the archive.
        name: String,
        /// Requested checksum.
        wanted: Digest,
    },
    /// The source was written to, although it should be at rest.
    #[error(
        "{path} changed while it was read: the source is being written to; stop the writer, or run \
         a pass that is not the last with --pre-copy"
    )]
    Changed {
        /// Path of the changed entry, from the top of the tree.
        path: String,
    },
    /// The system refused something; it may work another time.
    #[error("{doing} {path}")]
    Failed {
        /// Operation, such as "reading".
        doing: &'static str,
        /// Path of the entry, from the top of the tree.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// It was stopped; the next run resumes it.
    #[error("stopped before it was complete; the next run resumes it")]
    Stopped,
}

fn describe(count: u64, first: &[Difference]) -> String {
    let list: Vec<String> = first.iter().map(ToString::to_string).collect();
    format!("source and target differ in {count} places: {}", list.join("; "))
}

impl CopyError {
    /// The word for programs.
    pub fn word(&self) -> &'static str {
        match self {
            CopyError::Refused(_) => "refused",
            CopyError::Mismatch { .. } | CopyError::WrongSum { .. } => "mismatch",
            CopyError::Changed { .. } => "source-changed",
            CopyError::Failed { .. } => "failed",
            CopyError::Stopped => "stopped",
        }
    }

    /// The exit code. 2 is also what is answered to a command line that makes no sense.
    pub fn code(&self) -> u8 {
        match self {
            CopyError::Refused(_) => 2,
            CopyError::Mismatch { .. } | CopyError::WrongSum { .. } => 3,
            CopyError::Changed { .. } => 4,
            CopyError::Failed { .. } | CopyError::Stopped => 5,
        }
    }
}

/// Summary that a completed copy prints at its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CopySummary {
    /// Bytes that were written into the target.
    pub bytes: u64,
    /// Files that were carried, those among them whose content was there already too.
    pub files: u64,
    /// Files whose content was there already.
    #[serde(skip_serializing_if = "is_zero")]
    pub kept: u64,
    /// Names that the source no longer had.
    #[serde(skip_serializing_if = "is_zero")]
    pub removed: u64,
    /// Number of files that changed while they were read, and of entries that vanished: for the
    /// next pass.
    #[serde(skip_serializing_if = "is_zero")]
    pub changing: u64,
    /// Sockets and other file systems, which are not carried.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Files that were not read again in the end, because an earlier round had compared them.
    #[serde(skip_serializing_if = "is_zero")]
    pub known: u64,
    /// Checksum of everything that both sides have, if they were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Adds operation and path to a system error.
pub trait At<T> {
    /// # Errors
    /// [`CopyError::Refused`] if there is not enough space, because no other try makes any; else
    /// [`CopyError::Failed`].
    fn at(self, doing: &'static str, path: &[u8]) -> Result<T, CopyError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, doing: &'static str, path: &[u8]) -> Result<T, CopyError> {
        self.map_err(|error| {
            let (source, path) = (error.into(), shown(path));
            let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
            if source.raw_os_error().is_some_and(|code| full.contains(&code)) {
                CopyError::Refused(format!("the target is full: {doing} {path}: {source}"))
            } else {
                CopyError::Failed { doing, path, source }
            }
        })
    }
}

/// A path for people and for manifests: what is not printable ASCII is escaped, so that no name can
/// look like another, or like two lines.
pub fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { path.escape_ascii().to_string() }
}

/// One difference between the two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Path of the entry, as printed for people.
    pub path: String,
    /// What differs, with both values.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// Result of a comparison without differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Checksum of both sides: another host computes the same for the same tree.
    pub digest: Digest,
    /// Files of the target that were not read, because an earlier round had compared them.
    pub known: u64,
}

/// Returns whether the error means that an entry no longer exists.
pub fn is_gone(error: &std::io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::STALE, Errno::LOOP, Errno::NXIO, Errno::NOTDIR];
    error.raw_os_error().is_some_and(|code| gone.iter().any(|one| one.raw_os_error() == code))
}
