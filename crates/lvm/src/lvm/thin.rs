//! Thin pools: what the metadata tells of them, and how much more their volumes may be promised. Pure.
//!
//! A thin volume takes its space when it is written, so what is promised to it is not in use yet. Two rules make
//! each size true: all thin volumes together are promised at most what the pool can grow to (times the overcommit
//! that an administrator allows), and no other volume takes the extents that the pool needs for that.

use crate::bytes::Bytes;
use crate::lvm::group::{Group, Lv, ThinPoolSegment};
use crate::volume::{Layout, ThinSettings, percent_of};

/// The name of the thin pool of this driver in a volume group.
pub const THIN_POOL: &str = "pliant-thinpool";

/// Bytes of metadata for each chunk that a volume has. Snapshots have their own, so twice as much is made.
const OF_A_CHUNK: u64 = 64;
/// LVM makes and uses no less, and no more.
const LEAST_METADATA: Bytes = Bytes::mib(4);
pub(super) const MOST_METADATA: Bytes = Bytes::mib(15 << 10);
/// Up to this limit of a pool a chunk has [`SMALLEST_CHUNK`]; beyond it so much more that the metadata stays the same.
const LIMIT_OF_SMALLEST: Bytes = Bytes::gib(1024);
const SMALLEST_CHUNK: Bytes = Bytes::kib(64);

/// A thin pool as the metadata describes it.
#[derive(Debug, Clone, Copy)]
pub struct ThinPool<'a> {
    pub(super) group: &'a Group,
    /// Its logical volume.
    pub lv: &'a Lv,
    /// What only its segment has.
    pub segment: &'a ThinPoolSegment,
}

impl Lv {
    /// Returns the name of the thin pool that it is in; `None` for a logical volume with extents of its own.
    pub fn thin_pool(&self) -> Option<&str> {
        let thin = self.segments.iter().find(|segment| segment.kind == "thin")?;
        thin.volumes.get("thin_pool").map(String::as_str)
    }

    /// Returns how it lies on its disks.
    pub fn layout(&self) -> Layout {
        if self.thin_pool().is_some() { Layout::Thin } else { Layout::Linear }
    }

    /// Returns whether it is a thin pool.
    pub fn is_thin_pool(&self) -> bool {
        self.segments.iter().any(|segment| segment.thin_pool.is_some())
    }
}

impl Group {
    /// The thin pool of this driver.
    pub fn thin_pool(&self) -> Option<ThinPool<'_>> {
        let lv = self.lvs.get(THIN_POOL)?;
        let segment = lv.segments.iter().find_map(|segment| segment.thin_pool.as_ref())?;
        Some(ThinPool { group: self, lv, segment })
    }
}

/// How many free extents the thin pool still needs for what its volumes are promised. Nothing else takes these.
pub fn owed(group: &Group, thin: Option<&ThinSettings>) -> u64 {
    let Some(pool) = group.thin_pool() else { return 0 };
    let most = thin.map_or(u64::MAX, |thin| most_data(group, thin));
    pool.promised().min(most).saturating_sub(pool.lv.extents())
}

/// The most extents that the settings let the data of the thin pool have, if all are free.
fn most_data(group: &Group, thin: &ThinSettings) -> u64 {
    let all = group.size_of(group.extents());
    let size = thin.size.of(all);
    let most = size.saturating_sub(thin.reserve.of(size));
    most.get() / group.extent_size.get().max(1)
}

/// The extents that the data of the thin pool may grow to by itself, with `reserve` left free in the group: also
/// before there is a pool.
pub fn limit(group: &Group, thin: &ThinSettings, reserve: Bytes) -> u64 {
    let free = group.free_extents().saturating_sub(reserve.div_ceil(group.extent_size));
    let most = most_data(group, thin);
    match group.thin_pool() {
        Some(pool) => most.min(pool.lv.extents() + free),
        // LVM makes the metadata twice: the second is for a repair.
        None => most.min(free.saturating_sub(2 * first_metadata(group, thin))),
    }
}

/// How many extents one more thin volume, or the growth of one, may be promised while nothing of the pool is short.
pub fn room(group: &Group, thin: &ThinSettings, reserve: Bytes) -> u64 {
    let most = most_promised(group, thin, reserve);
    most.saturating_sub(group.thin_pool().map_or(0, |pool| pool.promised()))
}

/// The most extents that the settings let all thin volumes and snapshots have together.
pub fn most_promised(group: &Group, thin: &ThinSettings, reserve: Bytes) -> u64 {
    let limit = group.size_of(limit(group, thin, reserve));
    percent_of(thin.max_overcommit, limit).get() / group.extent_size.get().max(1)
}

/// The extents of the metadata of a thin pool that is about to be made.
pub fn first_metadata(group: &Group, thin: &ThinSettings) -> u64 {
    let most = group.size_of(most_data(group, thin));
    metadata_of(most, chunk(group, thin)).div_ceil(group.extent_size)
}

/// The size of a chunk of a thin pool that is about to be made.
pub fn chunk(group: &Group, thin: &ThinSettings) -> Bytes {
    let most = group.size_of(most_data(group, thin));
    thin.chunk.unwrap_or_else(|| {
        let times = most.div_ceil(LIMIT_OF_SMALLEST).next_power_of_two();
        Bytes::new(SMALLEST_CHUNK.get() * times)
    })
}

/// The extents of data that a thin pool begins with.
pub fn first_data(group: &Group, thin: &ThinSettings, reserve: Bytes) -> u64 {
    limit(group, thin, reserve).div_ceil(4)
}

impl ThinPool<'_> {
    /// The volumes and snapshots in it.
    pub fn volumes(&self) -> impl Iterator<Item = &Lv> {
        let name = self.lv.name.as_str();
        self.group.lvs.values().filter(move |lv| lv.thin_pool() == Some(name))
    }

    /// The extents of all volumes and snapshots in it together: what it holds if each of them is full.
    pub fn promised(&self) -> u64 {
        self.volumes().map(Lv::extents).fold(0, u64::saturating_add)
    }

    /// The extents of its metadata.
    pub fn metadata_extents(&self) -> u64 {
        self.part("metadata").map_or(0, Lv::extents)
    }

    /// The device-mapper uuid of the pool itself, on which its volumes are.
    pub fn device(&self) -> String {
        format!("{}-tpool", self.group.dm_uuid(self.lv))
    }

    /// The device-mapper uuid of the device that has the pool's name. While it is there, the pool stays active.
    pub fn top(&self) -> String {
        format!("{}-pool", self.group.dm_uuid(self.lv))
    }

    /// The device-mapper uuids of its hidden devices, none before one that it is on.
    pub fn hidden_devices(&self) -> Vec<String> {
        self.sizes().into_iter().map(|(uuid, _)| uuid).collect()
    }

    /// The device-mapper uuids that its parts have while they are active without it; `is_down` if it is not active.
    pub(super) fn parts_alone(&self, is_down: bool) -> Vec<String> {
        let parts = ["metadata", "pool"].into_iter().filter_map(|key| self.part(key));
        let own = parts.map(|lv| self.group.dm_uuid(lv));
        let below = self.hidden_devices().into_iter().filter(|uuid| *uuid != self.device());
        own.chain(below.filter(|_| is_down)).collect()
    }

    /// As [`ThinPool::hidden_devices`], with their sizes in extents.
    pub(super) fn sizes(&self) -> Vec<(String, u64)> {
        let part = |key, layer| {
            let lv = self.part(key)?;
            Some((self.group.dm_uuid(lv) + layer, lv.extents()))
        };
        let own = (self.device(), self.lv.extents());
        let parts = [part("metadata", "-tmeta"), part("pool", "-tdata"), Some(own)];
        parts.into_iter().flatten().collect()
    }

    /// The logical volume with its data or its metadata.
    fn part(&self, key: &str) -> Option<&Lv> {
        let name = self.lv.segments.iter().find_map(|segment| segment.volumes.get(key))?;
        self.group.lvs.get(name)
    }
}

/// The metadata for a pool that can have so much data: twice what its chunks need.
fn metadata_of(data: Bytes, chunk: Bytes) -> Bytes {
    let chunks = data.div_ceil(chunk);
    Bytes::new(chunks.saturating_mul(2 * OF_A_CHUNK)).clamp(LEAST_METADATA, MOST_METADATA)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lvm::metadata::parse_group;
    use crate::volume::Part;

    /// A group of 1,000 extents of 4 MiB: a pool of 100 and twice 2 for its metadata, a volume of 300 and a snapshot
    /// of 300 in it, a linear volume of 96.
    pub const TEXT: &str = r#"g { id = "Group0-0000-0000-0000-0000-0000-000000" seqno = 1 extent_size = 8192
        status = ["RESIZEABLE", "READ", "WRITE"]
        physical_volumes { pv0 { id = "Disk00-0000-0000-0000-0000-0000-000000" status = ["ALLOCATABLE"]
            dev_size = 8194048 pe_start = 2048 pe_count = 1000 } }
        logical_volumes {
            pliant-thinpool { id = "Pool00-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 100 type = "thin-pool" metadata = "m" pool = "d" transaction_id = 2
                chunk_size = 128 discards = "passdown" zero_new_blocks = 1 } }
            a { id = "Volume-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 300 type = "thin" thin_pool = "pliant-thinpool" transaction_id = 1
                device_id = 1 } }
            s { id = "Snap00-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 300 type = "thin" thin_pool = "pliant-thinpool" origin = "a"
                transaction_id = 2 device_id = 2 } }
            other { id = "Other0-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 300 type = "thin" thin_pool = "s" transaction_id = 2 device_id = 2 } }
            linear { id = "Linear-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 96 type = "striped" stripes = ["pv0", 0] } }
            spare { id = "Spare0-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 2 type = "striped" stripes = ["pv0", 96] } }
            m { id = "Meta00-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 2 type = "striped" stripes = ["pv0", 98] } }
            d { id = "Data00-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 100 type = "striped" stripes = ["pv0", 100] } }
        } }"#;

    pub fn group() -> Group {
        let mut group = parse_group(TEXT.as_bytes()).unwrap();
        group.pvs.values_mut().for_each(|pv| pv.device = Some("/dev/sda".into()));
        group
    }

    fn blank() -> Group {
        Group { lvs: [].into(), ..group() }
    }

    pub const HALF: ThinSettings = ThinSettings {
        size: Part::Percent(50),
        max_overcommit: 100,
        grow_at: 70,
        metadata_grow_at: 70,
        reserve: Part::Percent(0),
        when_full: crate::volume::WhenFull::Error,
        discards: crate::volume::Discards::PassDown,
        chunk: None,
    };

    #[test]
    fn a_pool_is_promised_at_most_what_it_can_grow_to() {
        let group = group();
        let pool = group.thin_pool().unwrap();
        assert_eq!((pool.lv.extents(), pool.promised(), pool.metadata_extents()), (100, 600, 2));
        let segment = ThinPoolSegment {
            chunk: Bytes::kib(64),
            transaction: 2,
            zeroes: true,
            messages: Vec::new(),
        };
        assert_eq!(*pool.segment, segment);
        let kinds = ["a", "s", "linear", "pliant-thinpool"].map(|name| {
            let lv = &group.lvs[name];
            (lv.layout(), lv.is_thin_pool())
        });
        let (thin, linear) = ((Layout::Thin, false), (Layout::Linear, false));
        assert_eq!(kinds, [thin, thin, linear, (Layout::Linear, true)]);

        let with = |change: fn(&mut ThinSettings)| {
            let mut thin = HALF;
            change(&mut thin);
            (limit(&group, &thin, Bytes::ZERO), room(&group, &thin, Bytes::ZERO))
        };
        assert_eq!(group.free_extents(), 800);
        assert_eq!(with(|_| {}), (500, 0), "600 are promised");
        assert_eq!(with(|thin| thin.max_overcommit = 150), (500, 150));
        assert_eq!(with(|thin| thin.size = Part::Percent(70)), (700, 100));
        assert_eq!(with(|thin| thin.size = Part::Percent(100)), (900, 300), "the rest is not free");
        assert_eq!(with(|thin| thin.size = Part::Size(Bytes::gib(1))), (256, 0));
        assert_eq!(
            with(|thin| (thin.size, thin.reserve) = (Part::Percent(80), Part::Percent(10))),
            (720, 120)
        );
        let whole = ThinSettings { size: Part::Percent(100), ..HALF };
        assert_eq!(limit(&group, &whole, Bytes::mib(401)), 900 - 101, "in whole extents");
        assert_eq!(room(&group, &whole, Bytes::mib(401)), 199);
    }

    #[test]
    fn what_is_promised_is_taken_by_no_other() {
        let group = group();
        assert_eq!(owed(&group, Some(&ThinSettings { size: Part::Percent(90), ..HALF })), 500);
        assert_eq!(owed(&group, Some(&HALF)), 400, "up to its limit");
        assert_eq!(owed(&group, None), 500, "also where no new ones are made");
        let tiny = ThinSettings { size: Part::Size(Bytes::mib(4)), ..HALF };
        assert_eq!(owed(&group, Some(&tiny)), 0);
        assert_eq!(owed(&blank(), Some(&HALF)), 0);
    }

    #[test]
    fn a_new_pool_leaves_room_for_its_metadata_twice() {
        let group = blank();
        let whole = ThinSettings { size: Part::Percent(100), ..HALF };
        assert_eq!(first_metadata(&group, &whole), 2, "64,000 chunks");
        assert_eq!(limit(&group, &whole, Bytes::ZERO), 996);
        assert_eq!(first_data(&group, &whole, Bytes::ZERO), 249, "a quarter");
        assert_eq!(room(&group, &HALF, Bytes::ZERO), 500);
        let narrow = ThinSettings { chunk: Some(Bytes::mib(1)), ..whole };
        assert_eq!((first_metadata(&group, &narrow), chunk(&group, &narrow)), (1, Bytes::mib(1)));
    }

    #[test]
    fn the_metadata_of_a_large_pool_stays_small() {
        let gib = Bytes::gib;
        for (data, chunk, metadata) in [
            (Bytes::mib(1), Bytes::kib(64), LEAST_METADATA),
            (gib(10), Bytes::kib(64), Bytes::mib(20)),
            (gib(1024), Bytes::kib(64), gib(2)),
            (gib(1 << 20), Bytes::kib(64), MOST_METADATA),
        ] {
            assert_eq!(metadata_of(data, chunk), metadata, "{data}");
        }
        let mut large = blank();
        large.extent_size = Bytes::gib(16); // 16,000 GiB.
        assert_eq!(
            chunk(&large, &ThinSettings { size: Part::Percent(100), ..HALF }),
            Bytes::mib(1)
        );
        assert_eq!(
            chunk(&large, &ThinSettings { size: Part::Size(gib(1024)), ..HALF }),
            Bytes::kib(64)
        );
    }
}
