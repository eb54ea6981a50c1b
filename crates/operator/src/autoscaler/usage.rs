//! How full a volume is.

use k8s_openapi::jiff::Timestamp;

use crate::api::VolumeUsage;
use crate::bytes::Bytes;

/// Usage of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampledUsage {
    /// Time of the observation.
    pub at: Timestamp,
    /// Capacity for files.
    pub size: Bytes,
    pub used: Bytes,
    pub inodes: u64,
    pub inodes_used: u64,
    /// Usage at the previous report.
    pub before: Option<UsedBefore>,
}

/// Earlier usage of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UsedBefore {
    pub at: Timestamp,
    pub used: Bytes,
    pub inodes_used: u64,
}

impl From<&VolumeUsage> for SampledUsage {
    fn from(told: &VolumeUsage) -> SampledUsage {
        let count = |inodes: Option<i64>| inodes.unwrap_or_default().unsigned_abs();
        let usage = &told.usage;
        SampledUsage {
            at: told.observed_time.0,
            size: usage.used.0 + usage.available.0,
            used: usage.used.0,
            inodes: count(usage.inodes),
            inodes_used: count(usage.inodes_used),
            before: told.previous.as_ref().map(|before| UsedBefore {
                at: before.observed_time.0,
                used: before.used.0,
                inodes_used: count(before.inodes_used),
            }),
        }
    }
}
