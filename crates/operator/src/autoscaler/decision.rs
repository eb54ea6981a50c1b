//! A claim whose size is decided, and the decision.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::{AutoscaledSize, PeakUsage, Quantity, Span};
use crate::autoscaler::usage::SampledUsage;

/// Decision about the size of a claim with its reason. The sentence is stable until the decision
/// changes: the status is written only then.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// `None` if it stays as it is.
    pub resize: Option<SizeDecision>,
    pub why: String,
}

/// Desired size of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeDecision {
    /// Expand: it is full, or soon would be.
    Grow(Quantity),
    /// Lower the request: there was not enough free space for it.
    Lower(Quantity),
    /// Shrink: it has been nearly empty for long.
    Shrink(Quantity),
}

/// A claim whose size is decided.
#[derive(Debug, Clone, Copy)]
pub struct Sized<'a> {
    /// Requested size.
    pub requested: Quantity,
    /// Present capacity.
    pub capacity: Quantity,
    /// Last automatic size.
    pub grown: Option<&'a AutoscaledSize>,
    /// Usage that its node reported.
    pub usage: Option<SampledUsage>,
    /// Node that has not reported since, because its node plugin does not respond.
    pub silent: Option<&'a str>,
    /// Reason why the request is not met.
    pub refusal: Option<&'a str>,
    /// The largest size of the other claims of the workload.
    pub others: Quantity,
    /// Recent maximum of the usage.
    pub peak: Option<&'a PeakUsage>,
    /// Minimum size of a shrink.
    pub least: Quantity,
}

impl Decision {
    /// Decides that it stays as it is, for this reason.
    pub fn stay(why: String) -> Decision {
        Decision { resize: None, why }
    }
}

/// Returns the most used resource, in percent: bytes or inodes. A file system without an inode limit has
/// no inodes.
pub(super) fn fullest(usage: SampledUsage) -> (u64, &'static str) {
    let percent = |used: u64, of: u64| {
        let percent = u128::from(used) * 100 / u128::from(of.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    };
    let bytes = percent(usage.used.get(), usage.size.get());
    match usage.inodes {
        0 => (bytes, "bytes"),
        inodes => {
            let inodes = percent(usage.inodes_used, inodes);
            if inodes > bytes { (inodes, "inodes") } else { (bytes, "bytes") }
        }
    }
}

/// Adds a span to a time; a time beyond the calendar is never.
pub(super) fn after(at: Timestamp, span: Span) -> Timestamp {
    let span = SignedDuration::try_from(span.0).unwrap_or(SignedDuration::MAX);
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
