//! Volume groups as they are on the disks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pliant_lvm::lvm::group::{ExtentRun, Group, Lv, PhysicalVolume, Segment};
use pliant_lvm::lvm::metadata::{self};
use pliant_lvm::lvm::{Words, before_extents};
use pliant_volume::bytes::Bytes;

use crate::World;
use crate::render;

const SECTOR: u64 = metadata::SECTOR as u64;
const EXTENT: Bytes = Bytes::mib(4);

impl World {
    /// The groups on the disks at their highest sequence numbers, each physical volume with its disk.
    /// What is forged does not count. With `pinned`: as LVM commands see them, which look at those disks only, if they can be read.
    pub fn groups(&self, pinned: Option<&BTreeSet<PathBuf>>) -> BTreeMap<String, Group> {
        let seen = self.disks.iter().filter(|(path, disk)| match pinned {
            Some(pinned) => pinned.contains(*path) && disk.fault.is_none(),
            None => !disk.forged && !disk.is_below,
        });
        let mut carriers = BTreeMap::new();
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for (path, disk) in seen {
            let Some(label) = &disk.told().label else {
                continue;
            };
            carriers.insert(label.pv_uuid.clone(), path.clone());
            if let Some(group) = &disk.told().group {
                let newest = groups.get(&group.name);
                if newest.is_none_or(|newest| newest.seqno < group.seqno) {
                    groups.insert(group.name.clone(), group.clone());
                }
            }
        }
        for pv in groups.values_mut().flat_map(|group| group.pvs.values_mut()) {
            pv.device = carriers.get(&pv.uuid).cloned();
        }
        groups
    }

    /// The group and the volume of a logical volume's device.
    pub fn volume_at(&self, device: &Path) -> Option<(Group, Lv)> {
        let uuid = &self.device_at(device)?.uuid;
        self.groups(None).into_values().find_map(|group| {
            let lv = group.lvs.values().find(|lv| group.dm_uuid(lv) == *uuid);
            lv.cloned().map(|lv| (group, lv))
        })
    }

    /// The sequence number that a disk's own copy of the metadata has.
    pub fn seqno_on(&self, disk: &Path) -> Option<u64> {
        self.disks.get(disk)?.told().group.as_ref().map(|group| group.seqno)
    }

    /// A new physical volume on a disk; its label is written by [`World::label`].
    pub fn new_pv(&mut self, disk: &Path) -> PhysicalVolume {
        let size = self.disks[disk].size;
        let before = before_extents(self.disks[disk].optimal_io);
        let data = size.saturating_sub(before).get();
        PhysicalVolume {
            uuid: self.uuid(),
            device: Some(disk.to_owned()),
            pe_start: before.get() / SECTOR,
            pe_count: data / EXTENT.get(),
            size,
            flags: set(&["ALLOCATABLE"]),
            tags: Words::default(),
        }
    }

    /// The physical volume that a label has made of a disk.
    pub fn labelled_pv(&mut self, disk: &Path) -> Option<PhysicalVolume> {
        let uuid = self.disks[disk].told().label.as_ref()?.pv_uuid.clone();
        Some(PhysicalVolume { uuid, ..self.new_pv(disk) })
    }

    pub fn new_group(&mut self, name: &str, tags: &[String]) -> Group {
        Group {
            name: name.to_owned(),
            uuid: self.uuid(),
            seqno: 0,
            extent_size: EXTENT,
            flags: set(&["RESIZEABLE", "READ", "WRITE"]),
            tags: tags.iter().cloned().collect(),
            system_id: None,
            lock_type: None,
            max_lv: None,
            max_pv: None,
            allocation: None,
            metadata_full: false,
            pvs: BTreeMap::new(),
            lvs: BTreeMap::new(),
        }
    }

    pub fn make_group(&mut self, name: &str, disks: &[PathBuf], tags: &[String]) {
        let mut group = self.new_group(name, tags);
        group.seqno = 1;
        for (i, disk) in disks.iter().enumerate() {
            let pv = self.new_pv(disk);
            self.label(disk, &pv);
            group.pvs.insert(format!("pv{i}"), pv);
        }
        for disk in disks {
            self.commit(disk, &group);
        }
    }

    /// Write a physical volume's label and an empty metadata area.
    pub fn label(&mut self, disk: &Path, pv: &PhysicalVolume) {
        let disk = self.disks.get_mut(disk).expect("a known disk");
        disk.write_together(render::empty_pv(pv));
    }

    /// Write a group to one of its disks: first the text, then the sector that makes it the group.
    pub fn commit(&mut self, path: &Path, group: &Group) {
        let disk = self.disks.get_mut(path).expect("a known disk");
        let header = disk.told().header.as_ref().expect("a label was written before");
        disk.write_together(render::commit(header, group));
    }
}

pub(super) fn set(names: &[&str]) -> Words {
    names.iter().collect()
}

/// Take `extents` free extents: behind `after` if they are free there, else where they come first.
/// With `only`: in that order from those ranges.
pub(super) fn allocate(
    group: &Group,
    mut extents: u64,
    only: &[ExtentRun],
    after: Option<&ExtentRun>,
) -> Option<Vec<ExtentRun>> {
    let mut free = group.free();
    if let Some(last) = after {
        free.sort_by_key(|piece| piece.pv != last.pv || piece.range.start != last.range.end);
    }
    if !only.is_empty() {
        free = only
            .iter()
            .flat_map(|wanted| free.iter().filter_map(|piece| overlap(piece, wanted)))
            .collect();
    }
    let mut taken = Vec::new();
    for mut piece in free {
        piece.range.end = piece.range.end.min(piece.range.start + extents);
        extents -= piece.range.end - piece.range.start;
        if !piece.range.is_empty() {
            taken.push(piece);
        }
    }
    (extents == 0).then_some(taken)
}

fn overlap(piece: &ExtentRun, wanted: &ExtentRun) -> Option<ExtentRun> {
    let range = piece.range.start.max(wanted.range.start)..piece.range.end.min(wanted.range.end);
    (piece.pv == wanted.pv && !range.is_empty()).then(|| ExtentRun { pv: piece.pv.clone(), range })
}

/// Append pieces to a volume, joining what is adjacent as LVM does.
/// Take away all extents of a linear volume behind the first so many.
pub(super) fn truncate(lv: &mut Lv, extents: u64) {
    lv.segments.retain(|segment| segment.start < extents);
    for segment in &mut lv.segments {
        segment.extents = segment.extents.min(extents - segment.start);
        for piece in &mut segment.pieces {
            piece.range.end = piece.range.start + segment.extents;
        }
    }
}

pub(super) fn append(lv: &mut Lv, pieces: Vec<ExtentRun>) {
    for piece in pieces {
        let length = piece.range.end - piece.range.start;
        let start = lv.extents();
        if let Some(last) = lv.segments.last_mut()
            && let [joint] = last.pieces.as_mut_slice()
            && joint.pv == piece.pv
            && joint.range.end == piece.range.start
        {
            joint.range.end = piece.range.end;
            last.extents += length;
            continue;
        }
        lv.segments.push(Segment {
            start,
            extents: length,
            kind: "striped".to_owned(),
            pieces: vec![piece],
            volumes: BTreeMap::new(),
            thin_pool: None,
        });
    }
}

/// `prefix` and the first number that makes it a new name.
pub(super) fn new_name<T>(prefix: &str, taken: &BTreeMap<String, T>) -> String {
    let names = (0..=taken.len()).map(|number| format!("{prefix}{number}"));
    let free = names.into_iter().find(|name| !taken.contains_key(name));
    free.expect("one more name than are taken")
}
