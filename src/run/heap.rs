//! The heap of the process.

#![allow(unsafe_code)]

/// Let all threads share one heap of the C library; again changes nothing.
///
/// By default each thread gets one of its own, up to eight a processor, and each keeps the most that
/// its thread ever needed: a group of a thousand volumes, read by whichever thread is free, would be
/// kept many times over. Our threads wait for disks, not for the heap. See mallopt(3).
pub(super) fn share_one() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes two integers and no memory of ours. Called before there is a second thread.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}
