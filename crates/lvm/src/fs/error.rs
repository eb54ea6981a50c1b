//! How an operation on a file system fails.

use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::host::HostError;
use crate::volume::FsKind;

/// Error of an operation on a file system.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The device does not carry the file system that it should; nothing was changed.
    #[error("{} carries {found}, not {wanted}", device.display())]
    Unexpected {
        /// The device.
        device: PathBuf,
        /// Content of the device, as far as it is known.
        found: String,
        /// Expected content.
        wanted: FsKind,
    },
    /// The device is smaller than the smallest file system of the kind.
    #[error("{kind} needs at least {smallest}, {} has {size}", device.display())]
    TooSmall {
        /// The device.
        device: PathBuf,
        /// The kind.
        kind: FsKind,
        /// The device's size.
        size: Bytes,
        /// The smallest that is made.
        smallest: Bytes,
    },
    /// The check found errors that it may not repair: they have to be repaired manually.
    #[error("the file system on {} has errors: {meaning}; unmount it and run `{repair}`", device.display())]
    Damaged {
        /// The device.
        device: PathBuf,
        /// Result of the check.
        meaning: String,
        /// Command for the repair.
        repair: String,
    },
    /// It cannot grow while it is mounted.
    #[error("the file system on {} can only grow while it is not mounted; stop the workload, and it grows before the next use", device.display())]
    OnlyUnmounted {
        /// The device.
        device: PathBuf,
    },
    /// The growth has gone through and the file system still does not use its device.
    #[error("the file system on {} covers {covers} of {size} after growing", device.display())]
    NotFilled {
        /// The device.
        device: PathBuf,
        /// Size that the file system covers.
        covers: Bytes,
        /// The device's size.
        size: Bytes,
    },
    /// It cannot shrink so far, or not now; it is unchanged.
    #[error("the file system on {} cannot shrink to {to}: {why}", device.display())]
    CannotShrink {
        /// The device.
        device: PathBuf,
        /// The size that was asked for.
        to: Bytes,
        /// Reason.
        why: String,
    },
    /// A program ended without success.
    #[error("`{command}` exited with {code}: {stderr}")]
    Failed {
        /// The command as one would type it.
        command: String,
        /// Exit code of the command.
        code: i32,
        /// The tail of its standard error.
        stderr: String,
    },
    /// A call to the host failed.
    #[error(transparent)]
    Host(#[from] HostError),
}
