//! How a copy ends.

use std::io;

use rustix::io::Errno;
use serde::Serialize;

use super::manifest::Digest;
use super::verify::Difference;

/// Why a copy was not done. Each kind has an exit code of its own, because its caller does something
/// else about it.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It cannot be done like this, and will not be the next time: there is no room, or what was asked
    /// for makes no sense.
    #[error("{0}")]
    Refused(String),
    /// Source and target differ although all was carried.
    #[error("{}", told(*count, first))]
    Mismatch {
        /// How many things differ.
        count: u64,
        /// The first of them.
        first: Vec<Difference>,
    },
    /// An archive is not the one that was asked for. Which sum it has is not told: who may name an address
    /// may not be who may read it, and a sum confirms a guess of what is there.
    #[error("{name} does not have the sha256 {wanted} that was asked for; nothing of it is kept")]
    WrongSum {
        /// Where it comes from.
        name: String,
        /// What was asked for.
        wanted: Digest,
    },
    /// Somebody writes to the source, which was said to be still.
    #[error(
        "{path} changed while it was read: somebody writes to the source; stop the writer, or make \
         it a round that is not the last with --round"
    )]
    Changed {
        /// What changed, from the top of the tree.
        path: String,
    },
    /// The system refused something; it may work another time.
    #[error("{doing} {path}")]
    Failed {
        /// What was tried, as in "reading".
        doing: &'static str,
        /// With what, from the top of the tree.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It was told to stop; what is there is carried on by the next run.
    #[error("stopped before it was done; the next run carries on")]
    Stopped,
}

fn told(count: u64, first: &[Difference]) -> String {
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

/// What a copy that was done says at its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
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
    /// Files that changed while they were read, and things that went away: for the next round.
    #[serde(skip_serializing_if = "is_zero")]
    pub changing: u64,
    /// Sockets and other file systems, which are not carried.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Files that were not read again in the end, because an earlier round had compared them.
    #[serde(skip_serializing_if = "is_zero")]
    pub known: u64,
    /// Of all that both sides hold, if they were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Says of a failure what was tried, with what.
pub trait At<T> {
    /// # Errors
    /// [`CopyError::Refused`] if there is no room, because no other try makes any; else
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
