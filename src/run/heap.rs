//! The heap of the process.

#![allow(unsafe_code)]

use std::time::Duration;

/// What is larger gets pages of its own, which go back to the kernel with it.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 128 << 10;

/// What is kept at the end of the heap: a call needs it, and the next one again.
#[cfg(target_env = "gnu")]
const KEPT: i32 = 1 << 20;

/// How long what was freed stays with the process at most: less than a look at the figures of it is apart.
const GIVEN_BACK_EVERY: Duration = Duration::from_secs(10);

/// Give back to the kernel what is free between what is used, again and again: a list of ten thousand objects leaves
/// its pages between those of the objects that are kept, where no limit of mallopt(3) finds them. A round takes some
/// milliseconds. See malloc_trim(3).
pub(super) async fn keep_small() {
    let mut rounds = tokio::time::interval(GIVEN_BACK_EVERY);
    loop {
        rounds.tick().await;
        #[cfg(target_env = "gnu")]
        // SAFETY: takes an integer and no memory of ours.
        unsafe {
            nix::libc::malloc_trim(KEPT as usize);
        }
    }
}

/// Let all threads share one heap of the C library, and keep what is large out of it; again changes
/// nothing.
///
/// By default each thread gets one of its own, up to eight a processor, and each keeps the most that
/// its thread ever needed: a group of a thousand volumes, read by whichever thread is free, would be
/// kept many times over. Our threads wait for disks, not for the heap. By default, too, what counts as
/// large grows to the largest that was ever given back, and the texts of such groups leave holes in the
/// heap. Who sets that has to set what is kept as well, which would grow with it: else each call faults in
/// anew what the one before gave back. See mallopt(3).
pub(super) fn share_one() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes integers and no memory of ours. Called before there is a second thread.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGE);
        nix::libc::mallopt(nix::libc::M_TRIM_THRESHOLD, KEPT);
    }
}
