//! How full a thin pool is, by the kernel, and how much it is to grow. Pure.

use crate::bytes::Bytes;
use crate::lvm::thin::{self, ThinPool};
use crate::volume::{ThinSettings, WhenFull};

/// How full a thin pool is.
///
/// # Source
/// `Documentation/admin-guide/device-mapper/thin-provisioning.rst`, the status of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinUsage {
    /// Blocks of metadata in use, and in all.
    pub metadata: (u64, u64),
    /// Chunks of data in use, and in all.
    pub data: (u64, u64),
    /// What it does with writes.
    pub state: ThinState,
    /// True if it has to be checked before it is written again.
    pub needs_check: bool,
}

/// What a thin pool does with writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinState {
    /// It takes them.
    Writable,
    /// Its data is full: they wait, or fail.
    OutOfData,
    /// It refuses them.
    ReadOnly,
    /// It refuses everything.
    Failed,
}

/// Returns the usage that a status line of the kernel has; `None` for a line that is not one of a pool.
pub fn parse(status: &str) -> Option<ThinUsage> {
    if status.trim() == "Fail" {
        let (metadata, data) = ((0, 0), (0, 0));
        return Some(ThinUsage { metadata, data, state: ThinState::Failed, needs_check: true });
    }
    let mut words = status.split_whitespace().skip(1); // The transaction id.
    let mut of = || {
        let (used, all) = words.next()?.split_once('/')?;
        Some((used.parse().ok()?, all.parse().ok()?))
    };
    let (metadata, data) = (of()?, of()?);
    let mut words = words.skip(1); // A snapshot of the metadata that is held.
    let state = match words.next()? {
        "rw" => ThinState::Writable,
        "ro" => ThinState::ReadOnly,
        "out_of_data_space" => ThinState::OutOfData,
        _ => return None,
    };
    let needs_check = words.any(|word| word == "needs_check");
    Some(ThinUsage { metadata, data, state, needs_check })
}

/// What a thin pool is to be expanded to, in extents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThinGrowth {
    /// Its data; `None`: as it is.
    pub data: Option<u64>,
    /// Its metadata; `None`: as it is.
    pub metadata: Option<u64>,
}

impl ThinPool<'_> {
    /// Returns what the pool is to be expanded to, which is nothing while it is below its marks or at its limit.
    pub fn growth(&self, usage: &ThinUsage, settings: &ThinSettings) -> ThinGrowth {
        let (data, metadata) = (self.lv.extents(), self.metadata_extents());
        let limit = thin::limit(self.group, settings, Bytes::ZERO);
        let wanted = grown(data, usage.data, settings.grow_at, limit / 8).min(limit);
        // LVM expands the spare one with it.
        let room = self.group.free_extents().saturating_sub(wanted.saturating_sub(data)) / 2;
        let most =
            (thin::MOST_METADATA.get() / self.group.extent_size.get().max(1)).min(metadata + room);
        let step = (metadata / 4).max(1);
        let more = grown(metadata, usage.metadata, settings.metadata_grow_at, step).min(most);
        ThinGrowth {
            data: (wanted > data).then_some(wanted),
            metadata: (more > metadata).then_some(more),
        }
    }

    /// Returns whether writes that it has no space for are to fail at once: while it can still be expanded they wait
    /// for that.
    pub fn fails_when_full(&self, settings: &ThinSettings) -> bool {
        let limit = thin::limit(self.group, settings, Bytes::ZERO);
        settings.when_full == WhenFull::Error && self.lv.extents() >= limit
    }
}

/// So many extents, and as many steps more as bring what is in use below the mark.
fn grown(extents: u64, (used, all): (u64, u64), mark: u32, step: u64) -> u64 {
    let is_above = |size: u64| {
        let (used, all) =
            (u128::from(used) * u128::from(extents), u128::from(all) * u128::from(size));
        used * 100 >= all * u128::from(mark)
    };
    let mut size = extents;
    while all > 0 && is_above(size) && size < extents.saturating_mul(1 << 10) {
        size = size.saturating_add(step.max(1));
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_the_kernel_is_read() {
        let usage = ThinUsage {
            metadata: (215, 2048),
            data: (1, 6400),
            state: ThinState::Writable,
            needs_check: false,
        };
        let line = "2 215/2048 1/6400 - rw discard_passdown queue_if_no_space - 512";
        assert_eq!(parse(line), Some(usage));
        for (word, state) in
            [("out_of_data_space", ThinState::OutOfData), ("ro", ThinState::ReadOnly)]
        {
            let line = line.replace("rw", word).replace("- 512", "needs_check 512");
            assert_eq!(parse(&line), Some(ThinUsage { state, needs_check: true, ..usage }));
        }
        assert_eq!(parse("Fail").map(|usage| usage.state), Some(ThinState::Failed));
        for line in ["", "2", "2 1/2", "2 1/2 3", "2 1/2 3/x - rw", "2 1/2 3/4 - odd", "Error"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_pool_grows_until_it_is_below_its_mark() {
        assert_eq!(grown(100, (69, 100), 70, 10), 100);
        assert_eq!(grown(100, (70, 100), 70, 10), 110);
        assert_eq!(grown(100, (100, 100), 70, 10), 150, "100 of 150 are 67 %");
        assert_eq!(grown(100, (100, 100), 70, 0), 143);
        assert_eq!(grown(100, (0, 0), 70, 10), 100, "of a pool that has failed nothing is known");
        assert!(grown(1, (u64::MAX, 1), 1, 1) <= 1 << 10, "what makes no sense ends");
    }
}
