//! A volume group as its metadata text describes it, and the arithmetic of its extents.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::bytes::Bytes;
use crate::lvm::Words;

/// A volume group at one sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Name of the volume group.
    pub name: String,
    /// Uuid of the volume group as LVM prints it, with dashes.
    pub uuid: String,
    /// Grows by one at each change.
    pub seqno: u64,
    /// Size of an extent.
    pub extent_size: Bytes,
    /// Status flags such as `RESIZEABLE`, `EXPORTED`.
    pub flags: Words,
    /// Tags of the group.
    pub tags: Words,
    /// The LVM system ID of the host that owns it; `None` where it has none.
    pub system_id: Option<String>,
    /// Lock type of a volume group that hosts share, such as `sanlock`; `None` if it is not shared.
    pub lock_type: Option<String>,
    /// Maximum number of logical volumes; `None`: no limit.
    pub max_lv: Option<u64>,
    /// Maximum number of physical volumes; `None`: no limit.
    pub max_pv: Option<u64>,
    /// Allocation policy, if it has its own, such as `contiguous`.
    pub allocation: Option<String>,
    /// True if the metadata area of a disk has no space for the text of one more volume. Set by the
    /// reader, not by the text.
    pub metadata_full: bool,
    /// Physical volumes by the name that the text gives them (`pv0`).
    pub pvs: BTreeMap<String, PhysicalVolume>,
    /// Logical volumes by name, including hidden ones.
    pub lvs: BTreeMap<String, Lv>,
}

/// A physical volume of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// Uuid of the physical volume, with dashes.
    pub uuid: String,
    /// The device that carries it now; `None` while it is missing. Set by the reader, not by the
    /// text.
    pub device: Option<PathBuf>,
    /// First sector of the first extent.
    pub pe_start: u64,
    /// Extents in all.
    pub pe_count: u64,
    /// Size of the device when it was last written.
    pub size: Bytes,
    /// Status flags such as `ALLOCATABLE`, `MISSING`.
    pub flags: Words,
    /// Tags.
    pub tags: Words,
}

/// A logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lv {
    /// Name of the logical volume.
    pub name: String,
    /// Uuid of the logical volume, with dashes.
    pub uuid: String,
    /// Status flags such as `READ`, `WRITE`, `VISIBLE`, `LOCKED`.
    pub flags: Words,
    /// Tags.
    pub tags: Words,
    /// Segments in order.
    pub segments: Vec<Segment>,
}

/// A run of extents of a logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// First extent within the logical volume.
    pub start: u64,
    /// Number of extents of the logical volume.
    pub extents: u64,
    /// The type: `striped` (one stripe is linear), `snapshot`, `thin`, `raid1`, …
    pub kind: String,
    /// The physical extents that it takes: one entry a stripe.
    pub pieces: Vec<ExtentRun>,
    /// Other logical volumes that it names: origin, cow store, images, pool.
    pub volumes: BTreeMap<String, String>,
    /// What only the segment of a thin pool has; `None` for any other type.
    pub thin_pool: Option<ThinPoolSegment>,
}

/// A change to the volumes of a thin pool of which LVM tells the kernel next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThinMessage {
    /// The kernel is to make the volume of this logical volume.
    Create(String),
    /// The kernel is to delete the volume with this id.
    Delete(u64),
}

/// What only the segment of a thin pool has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinPoolSegment {
    /// Size of a chunk: space is given to volumes in whole chunks.
    pub chunk: Bytes,
    /// Number of changes to the volumes in it. The kernel counts them too.
    pub transaction: u64,
    /// True if a chunk is zeroed when a volume gets it. Without that a volume shows what its chunks held before.
    pub zeroes: bool,
    /// What a command that did not come to its end has left to tell, in order; none if the kernel knows all.
    pub messages: Vec<ThinMessage>,
}

/// Consecutive extents of one physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentRun {
    /// The text's name of the physical volume.
    pub pv: String,
    /// The extents.
    pub range: Range<u64>,
}

impl Lv {
    /// Returns the size in extents.
    pub fn extents(&self) -> u64 {
        self.segments.iter().map(|segment| segment.extents).sum()
    }
}

/// The name of a disk that has not joined yet; LVM gives none with a space.
const JOINING: &str = "a joining disk";

impl Group {
    /// Extents free on usable physical volumes, as ranges in the order of the disks.
    pub fn free(&self) -> Vec<ExtentRun> {
        let mut used: BTreeMap<&str, Vec<Range<u64>>> = BTreeMap::new();
        let segments = self.lvs.values().flat_map(|lv| &lv.segments);
        for piece in segments.flat_map(|segment| &segment.pieces) {
            used.entry(&piece.pv).or_default().push(piece.range.clone());
        }
        let mut free = Vec::new();
        for (name, pv) in &self.pvs {
            if pv.device.is_none() || !pv.flags.contains("ALLOCATABLE") {
                continue;
            }
            let mut used = used.remove(name.as_str()).unwrap_or_default();
            used.sort_by_key(|range| range.start);
            let mut next = 0;
            for range in used.into_iter().chain(std::iter::once(pv.pe_count..pv.pe_count)) {
                if range.start > next {
                    free.push(ExtentRun { pv: name.clone(), range: next..range.start });
                }
                next = next.max(range.end);
            }
        }
        free
    }

    /// Returns the number of free extents.
    pub fn free_extents(&self) -> u64 {
        self.free().iter().map(|piece| piece.range.end - piece.range.start).sum()
    }

    /// Returns the total number of extents.
    pub fn extents(&self) -> u64 {
        self.pvs.values().map(|pv| pv.pe_count).sum()
    }

    /// Returns the volume group as it will be when a disk with so much space for extents has joined it.
    #[must_use]
    pub fn with_disk(&self, room: Bytes) -> Group {
        let mut group = self.clone();
        let disk = PhysicalVolume {
            uuid: String::new(),
            device: Some(PathBuf::new()),
            pe_start: 0,
            pe_count: room.get() / self.extent_size.get().max(1),
            size: room,
            flags: ["ALLOCATABLE"].map(str::to_owned).into_iter().collect(),
            tags: Words::default(),
        };
        group.pvs.insert(JOINING.to_owned(), disk);
        group
    }

    /// The size of this many extents.
    pub fn size_of(&self, extents: u64) -> Bytes {
        Bytes::new(self.extent_size.get().saturating_mul(extents))
    }

    /// The names of the thick snapshots of this logical volume.
    pub fn snapshots_of<'a>(&'a self, lv: &'a Lv) -> impl Iterator<Item = &'a String> {
        let of_it = |volumes: &&BTreeMap<_, _>| volumes.get("origin") == Some(&lv.name);
        self.snapshots().filter(of_it).filter_map(|volumes| volumes.get("cow_store"))
    }

    /// Returns whether a thick snapshot of this logical volume exists.
    pub fn has_snapshot(&self, lv: &Lv) -> bool {
        self.snapshots().any(|volumes| volumes.get("origin") == Some(&lv.name))
    }

    /// Returns whether this logical volume is the store of a thick snapshot.
    pub fn is_snapshot(&self, lv: &Lv) -> bool {
        self.snapshots().any(|volumes| volumes.get("cow_store") == Some(&lv.name))
    }

    /// The logical volume of which this one is the store of a thick snapshot.
    pub fn origin_of(&self, lv: &Lv) -> Option<&Lv> {
        let snapshot = self.snapshots().find(|volumes| volumes.get("cow_store") == Some(&lv.name));
        self.lvs.get(snapshot?.get("origin")?)
    }

    fn snapshots(&self) -> impl Iterator<Item = &BTreeMap<String, String>> {
        let segments = self.lvs.values().flat_map(|lv| &lv.segments);
        segments.filter(|segment| segment.kind == "snapshot").map(|segment| &segment.volumes)
    }

    /// The physical volumes that no device carries now.
    pub fn missing(&self) -> impl Iterator<Item = &PhysicalVolume> {
        self.pvs.values().filter(|pv| pv.device.is_none() || pv.flags.contains("MISSING"))
    }

    /// Returns why LVM would refuse to change it, and what to do; `None` if it would not.
    pub fn frozen(&self) -> Option<String> {
        let away: Vec<&str> =
            self.missing().filter(|pv| pv.device.is_none()).map(|pv| pv.uuid.as_str()).collect();
        if !away.is_empty() {
            return Some(format!(
                "the disk of its physical volume {} is missing, so LVM cannot change it; reattach \
                 the disk, see `pvs` and the kernel log",
                away.join(", ")
            ));
        }
        if let Some(device) = self.missing().find_map(|pv| pv.device.as_ref()) {
            return Some(format!(
                "its disk {} is back, but the volume group was changed while it was missing; run \
                 `vgextend --restoremissing {} {}`",
                device.display(),
                self.name,
                device.display()
            ));
        }
        if self.flags.contains("EXPORTED") {
            return Some(format!("it is exported; run `vgimport {}`", self.name));
        }
        if !self.flags.contains("RESIZEABLE") {
            return Some(format!("it is not resizeable; run `vgchange -x y {}`", self.name));
        }
        self.foreign()
    }

    /// Why LVM without a system ID and without locks of a cluster would refuse to change it, and what to
    /// do.
    fn foreign(&self) -> Option<String> {
        let name = &self.name;
        if let Some(id) = &self.system_id {
            return Some(format!(
                "it belongs to the host with the LVM system ID {id}, and LVM changes it only on \
                 that host; see `vgchange --systemid \"\" {name}`"
            ));
        }
        if let Some(kind) = &self.lock_type {
            return Some(format!(
                "it is shared between hosts with locks of the type {kind}, which this driver does \
                 not support; see `vgchange --lock-type none {name}`"
            ));
        }
        if self.flags.contains("CLUSTERED") {
            return Some(format!(
                "it is clustered; see `vgchange --lock-type none --lock-opt force {name}`, once no \
                 cluster uses it"
            ));
        }
        // What has an owner or locks is written as `WRITE_LOCKED`, so that older versions keep off.
        let writable = ["WRITE", "WRITE_LOCKED"].iter().any(|flag| self.flags.contains(flag));
        (!writable).then(|| {
            format!(
                "its status lacks WRITE, so it is read-only; see `vgcfgbackup {name}`, and \
                 `vgcfgrestore {name}` with WRITE added"
            )
        })
    }

    /// Returns whether LVM would change it: no disk is missing, it is not exported, and it is
    /// writable here.
    pub fn changeable(&self) -> bool {
        self.frozen().is_none()
    }

    /// Returns what prevents a new volume in a volume group that can be changed, however much is
    /// free, and what to do; `None` if nothing does.
    pub fn hindrance(&self) -> Option<String> {
        let name = &self.name;
        if self.metadata_full {
            return Some(format!(
                "the metadata area of volume group {name} is full and cannot be enlarged: delete \
                 volumes, or add a volume group that is created with a larger --metadatasize"
            ));
        }
        if self.has_most_volumes() {
            return Some(format!(
                "volume group {name} has reached its maximum number of logical volumes; run \
                 `vgchange --logicalvolume 0 {name}`"
            ));
        }
        self.allocates_narrowly().then(|| {
            format!(
                "volume group {name} has the allocation policy {}, with which a volume cannot use \
                 all free space; run `vgchange --alloc normal {name}`",
                self.allocation.as_deref().unwrap_or_default()
            )
        })
    }

    /// Returns whether it has its maximum number of logical volumes: LVM counts the visible ones.
    pub fn has_most_volumes(&self) -> bool {
        let count = self.lvs.values().filter(|lv| lv.flags.contains("VISIBLE")).count();
        self.max_lv.is_some_and(|most| most <= count as u64)
    }

    /// Returns how many more physical volumes it may have.
    pub fn more_disks(&self) -> usize {
        let most =
            self.max_pv.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        most.saturating_sub(self.pvs.len())
    }

    /// Returns whether its allocation policy may restrict a volume to less than the free space.
    pub fn allocates_narrowly(&self) -> bool {
        self.allocation.as_deref().is_some_and(|policy| !["normal", "anywhere"].contains(&policy))
    }

    /// Returns the prefix of the device-mapper uuids of its logical volumes.
    pub fn dm_prefix(&self) -> String {
        format!("LVM-{}", self.uuid.replace('-', ""))
    }

    /// The device-mapper uuid of a logical volume's top layer.
    pub fn dm_uuid(&self, lv: &Lv) -> String {
        self.dm_prefix() + &lv.uuid.replace('-', "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lvm::{layout, metadata};
    use crate::volume::Layout;
    use crate::volume::Terms;

    const TEXT: &[u8] = include_bytes!("../../tests/fixtures/metadata/linear-and-snapshot.txt");

    type Change = fn(&mut Group);

    /// A group on two disks that are there.
    fn group() -> Group {
        let mut group = metadata::parse_group(TEXT).unwrap();
        for (name, pv) in &mut group.pvs {
            pv.device = Some(format!("/dev/{name}").into());
        }
        group
    }

    fn pv(group: &mut Group) -> &mut PhysicalVolume {
        group.pvs.get_mut("pv1").unwrap()
    }

    #[test]
    fn free_is_what_lvm_would_allocate() {
        let whole = group();
        assert_eq!((whole.extents(), whole.free_extents()), (140, 107));
        assert_eq!(layout::largest_new(&whole, Layout::Linear, &Terms::default(), None), 107);
        for change in [
            |group: &mut Group| pv(group).device = None,
            |group: &mut Group| pv(group).flags = Words::default(),
        ] {
            let mut less = group();
            change(&mut less);
            assert_eq!(less.free_extents(), 70 - 26);
        }
    }

    #[test]
    fn a_group_that_lvm_would_not_change_says_why_and_has_no_room() {
        let table: [(Change, &str); 8] = [
            (|group| group.system_id = Some("alpha".to_owned()), "vgchange --systemid \"\" a"),
            (|group| group.lock_type = Some("dlm".to_owned()), "vgchange --lock-type none a"),
            (|group| group.flags.extend(["CLUSTERED"]), "--lock-type none --lock-opt force a"),
            (|group| assert!(group.flags.remove("WRITE")), "vgcfgrestore a"),
            (|group| pv(group).device = None, "is missing, so LVM cannot change it"),
            (|group| pv(group).flags.extend(["MISSING"]), "vgextend --restoremissing a"),
            (|group| group.flags.extend(["EXPORTED"]), "vgimport a"),
            (|group| assert!(group.flags.remove("RESIZEABLE")), "vgchange -x y a"),
        ];
        for (change, words) in table {
            let mut frozen = group();
            change(&mut frozen);
            let why = frozen.frozen().unwrap();
            assert!(why.contains(words), "{why}");
            assert_eq!(
                layout::largest(&frozen, Layout::Linear, &Terms::default(), None),
                0,
                "{why}"
            );
        }
        assert_eq!(group().frozen(), None);
    }

    #[test]
    fn a_group_with_its_most_volumes_takes_growth_alone() {
        let visible = group().lvs.values().filter(|lv| lv.flags.contains("VISIBLE")).count() as u64;
        for (most, is_free) in [(None, true), (Some(visible + 1), true), (Some(visible), false)] {
            let group = Group { max_lv: most, ..group() };
            let free = group.free_extents();
            let new = layout::largest_new(&group, Layout::Linear, &Terms::default(), None);
            assert_eq!(new, if is_free { free } else { 0 }, "{most:?}");
            assert_eq!(
                layout::largest(&group, Layout::Linear, &Terms::default(), None),
                free,
                "{most:?}"
            );
            assert_eq!(group.hindrance().is_none(), is_free, "{most:?}");
        }
    }

    #[test]
    fn a_policy_that_does_not_give_all_that_is_free_gives_nothing() {
        for (policy, is_free) in
            [("normal", true), ("anywhere", true), ("contiguous", false), ("cling", false)]
        {
            let group = Group { allocation: Some(policy.to_owned()), ..group() };
            for largest in [
                layout::largest(&group, Layout::Linear, &Terms::default(), None),
                layout::largest_new(&group, Layout::Linear, &Terms::default(), None),
            ] {
                assert_eq!(largest > 0, is_free, "{policy}");
            }
            let why = group.hindrance();
            assert!(why.is_none_or(|why| why.contains("vgchange --alloc normal a")), "{policy}");
            assert_eq!(group.frozen(), None, "what is there can be changed and deleted");
        }
    }

    #[test]
    fn a_full_metadata_area_has_room_for_growth_alone() {
        let full = Group { metadata_full: true, ..group() };
        assert_eq!(layout::largest_new(&full, Layout::Linear, &Terms::default(), None), 0);
        assert_eq!(
            layout::largest(&full, Layout::Linear, &Terms::default(), None),
            full.free_extents()
        );
    }
}
