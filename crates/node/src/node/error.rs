//! Converts errors of the modules below to what a caller can do about them.

use crate::fs::FsError;
use crate::host::HostError;
use crate::mount::MountError;
use crate::volume::{VolumeError, error_chain};

/// A failed step on a device; *unavailable* where it hangs, and so may still come to its end, or where
/// its disk fails.
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(HostError) -> VolumeError {
    let what = what.into();
    move |source| {
        let hangs_or_fails =
            matches!(source, HostError::TimedOut { .. }) || source.errno() == Some(nix::libc::EIO);
        let words = format!("{what}: {}", error_chain::in_full(&source));
        if hangs_or_fails {
            VolumeError::Unavailable { reason: words }
        } else {
            VolumeError::Failed { what: words }
        }
    }
}

/// A failed step on a file system; refused where its state forbids the step.
pub(super) fn fs_failed(what: impl Into<String>) -> impl FnOnce(FsError) -> VolumeError {
    let what = what.into();
    move |source| match source {
        FsError::OnlyUnmounted { .. } | FsError::Damaged { .. } => {
            VolumeError::PreconditionFailed { reason: format!("{what}: {source}") }
        }
        FsError::CannotShrink { .. } => {
            VolumeError::SizeOutOfRange { reason: format!("{what}: {source}") }
        }
        FsError::Host(source) => failed(what)(source),
        source => {
            VolumeError::Failed { what: format!("{what}: {}", error_chain::in_full(&source)) }
        }
    }
}

/// A failed step on a mount.
pub(super) fn mount_failed(what: impl Into<String>) -> impl FnOnce(MountError) -> VolumeError {
    let what = what.into();
    move |source| match source {
        MountError::Host(source) => failed(what)(source),
        source => {
            VolumeError::Failed { what: format!("{what}: {}", error_chain::in_full(&source)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;

    fn hung() -> HostError {
        HostError::TimedOut { what: "mount /dev/dm-3".to_owned(), limit: Duration::from_secs(600) }
    }

    fn errno(errno: i32) -> HostError {
        let source = io::Error::from_raw_os_error(errno);
        HostError::System { what: "fsync /dev/dm-3".to_owned(), source }
    }

    #[test]
    fn what_may_still_come_to_its_end_is_never_told_as_ended() {
        for error in [
            failed("step")(hung()),
            failed("step")(errno(nix::libc::EIO)),
            fs_failed("step")(FsError::Host(hung())),
            mount_failed("step")(MountError::Host(hung())),
        ] {
            assert!(matches!(error, VolumeError::Unavailable { .. }), "{error:?}");
            assert!(error.to_string().contains("step: "), "{error}");
        }
        for error in [
            failed("step")(errno(nix::libc::EINVAL)),
            fs_failed("step")(FsError::Host(errno(nix::libc::EROFS))),
            mount_failed("step")(MountError::Host(errno(nix::libc::EBUSY))),
        ] {
            assert!(matches!(error, VolumeError::Failed { .. }), "{error:?}");
        }
    }
}
