//! How full a thin pool is, by the kernel, how much it is to grow, and when it holds no more. Pure.

use crate::bytes::Bytes;
use crate::lvm::group::Group;
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

/// Returns the number of changes to its volumes that a pool counts, from its status line; `None` for another line.
pub fn transaction(status: &str) -> Option<u64> {
    status.split_whitespace().next()?.parse().ok()
}

/// A pool whose data in use are so many percent of the most that it can have is nearly full.
pub const DATA_NEARLY_FULL: u64 = 90;
/// The same of its metadata, whose end costs much more.
pub const METADATA_NEARLY_FULL: u64 = 80;

/// What is in use, and of how much.
type UsedOf = (u64, u64);

impl ThinUsage {
    /// Returns what is in use of a pool after its last steady usage: the same until a percent of its data or its metadata
    /// has come or went, or something else has changed.
    ///
    /// What follows from it so does not change with each write, and not back and forth at a limit.
    pub fn steady(self, before: Option<ThinUsage>) -> ThinUsage {
        let Some(before) = before else { return self };
        let is_near = |now: UsedOf, before: UsedOf| {
            let moved = u128::from(now.0.abs_diff(before.0)) * 100 >= u128::from(now.1);
            let is_at_the_end = now.0 >= now.1 && now.0 != before.0;
            now.1 == before.1 && !is_at_the_end && (!moved || now.0 == before.0)
        };
        let same = (self.state, self.needs_check) == (before.state, before.needs_check);
        let near = is_near(self.data, before.data) && is_near(self.metadata, before.metadata);
        if same && near { before } else { self }
    }
}

/// Why a thin pool takes nothing more, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThinShortage {
    /// The kernel refuses all of it, or takes no writes, until it is repaired.
    Damaged,
    /// Its metadata are nearly full, and cannot be expanded enough.
    Metadata,
    /// Its data are nearly full and cannot be expanded, and more is promised than there is.
    Data,
}

/// Returns whether the live table of a thin pool of so many chunks makes the kernel send its event when so many percent of
/// them are in use. LVM rounds to whole chunks.
///
/// # Source
/// `Documentation/admin-guide/device-mapper/thin-provisioning.rst`, the table of a pool; LVM's
/// `activation/thin_pool_autoextend_threshold`.
pub fn is_armed_at(table: &str, chunks: u64, percent: u32) -> bool {
    let free = u128::from(chunks) * u128::from(100_u32.saturating_sub(percent)) / 100;
    let low_water = table.split_whitespace().nth(3).and_then(|word| word.parse::<u64>().ok());
    low_water.is_some_and(|low_water| u128::from(low_water).abs_diff(free) <= 1)
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

    /// Returns the most extents that its data can have, as the volume group is now.
    pub fn most_data(&self, settings: &ThinSettings) -> u64 {
        thin::limit(self.group, settings, Bytes::ZERO).max(self.lv.extents())
    }

    /// Returns the most extents that its metadata can have, as the volume group is now: LVM expands the spare one with it.
    pub fn most_metadata(&self) -> u64 {
        let (now, half) = (self.metadata_extents(), self.group.free_extents() / 2);
        (thin::MOST_METADATA.get() / self.group.extent_size.get().max(1)).min(now + half).max(now)
    }

    /// Returns whether its data in use are nearly all that it can have.
    pub fn is_nearly_full(&self, usage: &ThinUsage, settings: &ThinSettings) -> bool {
        is_at(usage.data, (self.lv.extents(), self.most_data(settings)), DATA_NEARLY_FULL)
    }

    /// Returns why the pool takes nothing more; `None` while it does.
    pub fn shortage(&self, usage: &ThinUsage, settings: &ThinSettings) -> Option<ThinShortage> {
        if usage.needs_check || matches!(usage.state, ThinState::Failed | ThinState::ReadOnly) {
            return Some(ThinShortage::Damaged);
        }
        let metadata = (self.metadata_extents(), self.most_metadata());
        if is_at(usage.metadata, metadata, METADATA_NEARLY_FULL) {
            return Some(ThinShortage::Metadata);
        }
        let lacks = self.promised() > self.most_data(settings);
        (lacks && self.is_nearly_full(usage, settings)).then_some(ThinShortage::Data)
    }

    /// Returns whether writes that it has no space for are to fail at once: while it can still be expanded they wait
    /// for that.
    pub fn fails_when_full(&self, settings: &ThinSettings) -> bool {
        let limit = thin::limit(self.group, settings, Bytes::ZERO);
        settings.when_full == WhenFull::Error && self.lv.extents() >= limit
    }
}

/// How many extents one more thin volume, or the growth of one, may be promised, if so much of the pool is in use.
///
/// A pool that is nearly full is promised no more than there is, whatever the overcommit; one that lacks metadata or is
/// damaged is promised nothing.
pub fn room(
    group: &Group,
    settings: &ThinSettings,
    reserve: Bytes,
    usage: Option<&ThinUsage>,
) -> u64 {
    let usual = thin::room(group, settings, reserve);
    let Some((pool, usage)) = group.thin_pool().zip(usage) else { return usual };
    match pool.shortage(usage, settings) {
        Some(ThinShortage::Damaged | ThinShortage::Metadata) => 0,
        Some(ThinShortage::Data) | None if pool.is_nearly_full(usage, settings) => {
            thin::limit(group, settings, reserve).saturating_sub(pool.promised())
        }
        Some(ThinShortage::Data) | None => usual,
    }
}

/// Returns whether what is in use, of a whole that has so many extents now, is so many percent of the most that it can have.
fn is_at((used, all): UsedOf, (now, most): (u64, u64), percent: u64) -> bool {
    let (used, all) = (u128::from(used) * u128::from(now), u128::from(all) * u128::from(most));
    all > 0 && used * 100 >= all * u128::from(percent)
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
    use crate::lvm::thin::tests::{HALF, group};
    use crate::volume::Part;

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

    const USAGE: ThinUsage = ThinUsage {
        metadata: (100, 1000),
        data: (500, 1000),
        state: ThinState::Writable,
        needs_check: false,
    };

    #[test]
    fn the_mark_in_the_table_of_a_pool_is_the_one_that_was_set() {
        let table = |low_water: u64| format!("252:1 252:2 128 {low_water} 1 skip_block_zeroing");
        for low_water in [1919, 1920, 1921] {
            assert!(is_armed_at(&table(low_water), 6400, 70), "{low_water}");
        }
        for low_water in [0, 1918, 1922] {
            assert!(!is_armed_at(&table(low_water), 6400, 70), "{low_water}");
        }
        assert!(!is_armed_at(&table(1920), 6400, 80) && is_armed_at(&table(1280), 6400, 80));
        assert!(!is_armed_at("252:1 252:2 128", 6400, 70));
    }

    #[test]
    fn a_steady_usage_moves_in_steps_of_a_percent() {
        let with =
            |data, metadata| ThinUsage { data: (data, 1000), metadata: (metadata, 1000), ..USAGE };
        assert_eq!(with(509, 109).steady(None), with(509, 109), "the first is as it is");
        assert_eq!(with(509, 109).steady(Some(USAGE)), USAGE);
        assert_eq!(with(491, 91).steady(Some(USAGE)), USAGE);
        for moved in [with(510, 100), with(490, 100), with(500, 110), with(500, 90)] {
            assert_eq!(moved.steady(Some(USAGE)), moved);
        }
        let full = with(1000, 100);
        assert_eq!(full.steady(Some(with(995, 100))), full, "the end is always told");
        assert_eq!(full.steady(Some(full)), full);
        let larger = ThinUsage { data: (500, 2000), ..USAGE };
        let read_only = ThinUsage { state: ThinState::ReadOnly, ..USAGE };
        let checked = ThinUsage { needs_check: true, ..USAGE };
        for changed in [larger, read_only, checked] {
            assert_eq!(changed.steady(Some(USAGE)), changed);
        }
        let small = ThinUsage { data: (2, 10), metadata: (0, 0), ..USAGE };
        assert_eq!(small.steady(Some(small)), small, "of a whole that has few, or none");
    }

    #[test]
    fn what_is_nearly_full_is_so_of_the_most_that_it_can_have() {
        assert!(!is_at((899, 1000), (100, 100), 90));
        assert!(is_at((900, 1000), (100, 100), 90));
        assert!(!is_at((1000, 1000), (100, 200), 90), "it can be twice as large");
        assert!(is_at((1000, 1000), (180, 200), 90));
        assert!(!is_at((0, 0), (100, 100), 90), "of a pool that has failed nothing is known");
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

    #[test]
    fn a_pool_that_runs_short_is_promised_less() {
        let group = group();
        let pool = group.thin_pool().unwrap();
        let thin = ThinSettings { max_overcommit: 300, ..HALF }; // Up to 500 extents.
        let usage = ThinUsage {
            metadata: (10, 1000),
            data: (449, 100),
            state: ThinState::Writable,
            needs_check: false,
        };
        let told = |usage: ThinUsage, thin: &ThinSettings| {
            (pool.shortage(&usage, thin), room(&group, thin, Bytes::ZERO, Some(&usage)))
        };
        assert_eq!(room(&group, &thin, Bytes::ZERO, None), 900, "1,500 without 600");
        assert_eq!(told(usage, &thin), (None, 900));
        let nearly_full = ThinUsage { data: (450, 100), ..usage };
        assert_eq!(told(nearly_full, &thin), (Some(ThinShortage::Data), 0));
        // What is promised is there: nothing is short, and no more than that is promised.
        let most = ThinSettings { size: Part::Percent(90), ..thin };
        let nearly_full = ThinUsage { data: (890, 100), ..usage };
        assert_eq!(told(nearly_full, &most), (None, 300), "900 without 600");
        // The metadata have 2 extents, and can have 400 more.
        assert_eq!(pool.most_metadata(), 402);
        let metadata = |used| ThinUsage { metadata: (used, 1000), ..usage };
        assert_eq!(told(metadata(160_799), &thin).0, None);
        assert_eq!(told(metadata(160_800), &thin), (Some(ThinShortage::Metadata), 0));
        for damaged in [
            ThinUsage { state: ThinState::ReadOnly, ..usage },
            ThinUsage { state: ThinState::Failed, ..usage },
            ThinUsage { needs_check: true, ..usage },
        ] {
            assert_eq!(told(damaged, &thin), (Some(ThinShortage::Damaged), 0));
        }
    }
}
