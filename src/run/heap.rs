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

/// Returns free memory between used memory to the kernel, periodically. A list of ten thousand
/// objects leaves its pages between those of the objects that are retained, where no limit of
/// mallopt(3) finds them. A run takes some milliseconds. See malloc_trim(3).
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

/// Makes all threads share one heap of the C library, and allocates large blocks outside of it. A
/// repeated call changes nothing.
///
/// By default each thread gets a heap of its own, up to eight a processor, and each keeps the
/// maximum that its thread ever needed: a volume group of a thousand volumes, read by whichever
/// thread is free, would be stored many times over. Our threads wait for disks, not for the heap.
/// By default, too, the threshold for large blocks rises to the largest that was ever freed, and
/// the texts of such volume groups leave holes in the heap. If that threshold is set, the trim
/// threshold has to be set as well, which would rise with it: else each call faults in again what
/// the one before freed. See mallopt(3).
pub(super) fn share_one() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes integers and no memory of ours. Called before there is a second thread.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGE);
        nix::libc::mallopt(nix::libc::M_TRIM_THRESHOLD, KEPT);
    }
}
