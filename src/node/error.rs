//! From the troubles of the rooms below to what a caller can do about them.

use std::error::Error;

use crate::fs::FsError;
use crate::host::HostError;
use crate::lvm::LvmError;
use crate::volume::VolumeError;

/// A group's trouble: away, hanging or damaged is *unavailable*, a refused command is a failure.
pub(super) fn unavailable(error: LvmError) -> VolumeError {
    match error {
        LvmError::Absent(ref group)
        | LvmError::Unusable { ref group, .. }
        | LvmError::Hung { ref group, .. }
        | LvmError::Damaged { ref group, .. }
        | LvmError::Host { ref group, .. } => VolumeError::Unavailable {
            what: format!("volume group {group}"),
            reason: chain(&error),
        },
        LvmError::Refused { .. } => {
            VolumeError::Failed { what: "LVM refused a step".to_owned(), source: Box::new(error) }
        }
    }
}

/// A failed step on a device.
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(HostError) -> VolumeError {
    let what = what.into();
    move |source| VolumeError::Failed { what, source: Box::new(source) }
}

/// A failed step on a file system; refused where its state forbids the step.
pub(super) fn fs_failed(what: impl Into<String>) -> impl FnOnce(FsError) -> VolumeError {
    let what = what.into();
    move |source| match source {
        FsError::OnlyUnmounted { .. } | FsError::Damaged { .. } => {
            VolumeError::Refused { reason: format!("{what}: {source}") }
        }
        source => VolumeError::Failed { what, source: Box::new(source) },
    }
}

/// An error and its causes in one line.
pub(super) fn chain<E: Error>(error: &E) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
