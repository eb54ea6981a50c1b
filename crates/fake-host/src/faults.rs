//! Which calls fail, and how often.

use std::time::Duration;

/// Which calls fail.
#[derive(Clone, Default)]
pub(super) struct Faults {
    pub(super) failing: Option<(String, Failing)>,
    pub(super) panicking: Option<String>,
    /// What the kernel says to it, if that is not EIO.
    pub(super) errno: Option<i32>,
    pub(super) slow: Option<(String, Duration)>,
    pub(super) lvm_dies_after: Option<usize>,
    pub(super) uninstalled: Option<String>,
    pub(super) outlives: Option<String>,
}

/// How often a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The next time only.
    Once,
    /// Each time, until [`FakeHost::mend`](crate::FakeHost::mend).
    Always,
}
