//! Thick snapshots: `lvcreate -s`, `lvconvert --merge`, and what they do to their origin.
//!
//! The content of a snapshot is the origin's, copied when it is made: how it overflows is not played.

use pliant_lvm::lvm::Words;
use pliant_lvm::lvm::group::{Group, Lv, Segment};

use super::steps::{Step, commit};
use super::{Line, Plan, World, no};
use crate::device::{Layer, Table, dm_name, linear};
use crate::groups::{allocate, append, new_name, set};

impl World {
    pub(super) fn snapshot(&mut self, line: &Line) -> Plan {
        let (mut group, origin) = self.changeable_lv(line)?;
        if origin.thin_pool().is_some() {
            return self.thin_snapshot(line, group, &origin);
        }
        line.only(&["-y", "-s", "-l", "-n"], &["--addtag"]);
        let mut cow = self.new_lv(&group, line)?;
        // Beyond the origin's size there are only the exceptions to store: LVM takes no more.
        let most = origin.extents() + 1 + origin.extents() / 250;
        let pieces = allocate(&group, line.extents().min(most), &[], None);
        append(&mut cow, pieces.ok_or_else(|| no("insufficient free space"))?);
        group.lvs.insert(cow.name.clone(), cow.clone());
        let mut steps = commit(group.clone());
        group.seqno += 1;
        self.link(&mut group, &origin, &cow);
        let hidden = |lv: &mut Lv| lv.flags.remove("VISIBLE");
        group.lvs.get_mut(&cow.name).map(hidden);
        let top = group.dm_uuid(&origin);
        let freeze = Step::Freeze { volume: cow.uuid.clone(), origin: linear(&group, &origin) };
        if !self.devices.contains_key(&top) {
            steps.push(freeze);
            steps.extend(commit(group));
            return Ok(steps);
        }
        steps.extend(self.freeze_active(&group, &origin, &cow, freeze));
        Ok(steps)
    }

    /// Put the devices of a snapshot under and beside its active origin.
    fn freeze_active(&self, group: &Group, origin: &Lv, cow: &Lv, freeze: Step) -> Vec<Step> {
        let (top, real) = (group.dm_uuid(origin), real_of(group, origin));
        let first = !self.devices.contains_key(&real);
        let uuid = top.clone();
        let mut steps = Vec::new();
        if first {
            let table = layered(group, origin, Layer::Origin(real.clone()));
            steps.push(make(group, origin, "-real"));
            steps.push(Step::Load { uuid, table });
        }
        steps.push(Step::Suspend { uuid: top.clone() });
        steps.push(freeze);
        steps.extend(commit(group.clone()));
        if first {
            steps.extend(load(&real, linear(group, origin)));
        }
        steps.extend(above(group, origin, cow));
        steps.push(Step::Resume { uuid: top });
        steps
    }

    fn link(&mut self, group: &mut Group, origin: &Lv, cow: &Lv) {
        let name = new_name("snapshot", &group.lvs);
        let volumes = [("origin", origin), ("cow_store", cow)];
        let segment = Segment {
            start: 0,
            extents: origin.extents(),
            kind: "snapshot".to_owned(),
            pieces: Vec::new(),
            volumes: volumes.map(|(key, lv)| (key.to_owned(), lv.name.clone())).into(),
            thin_pool: None,
        };
        let link = Lv {
            name: name.clone(),
            uuid: self.uuid(),
            flags: set(&["READ", "WRITE", "VISIBLE"]),
            tags: Words::default(),
            segments: vec![segment],
        };
        group.lvs.insert(name, link);
    }

    pub(super) fn merge(&mut self, line: &Line) -> Plan {
        line.only(&["-y", "--merge", "-i"], &[]);
        let (group, cow) = self.changeable_lv(line)?;
        if cow.thin_pool().is_some() {
            return self.merge_thin(line, group, &cow);
        }
        let Some(origin) = origin_of(&group, &cow) else {
            return Err(no(format!("{} is not a mergeable logical volume.", cow.name)));
        };
        let uuid = group.dm_uuid(&origin);
        let idle = self.devices.get(&uuid).is_some_and(|device| self.open_count(device) == 0);
        if !idle {
            line.unknown("a merge that waits for the next activation");
        }
        let mut steps =
            vec![Step::Thaw { volume: cow.uuid.clone(), origin: linear(&group, &origin) }];
        steps.extend(self.remove_snapshot(group, &cow)?);
        Ok(steps)
    }

    /// Take a snapshot off its origin: suspend both with their layers, commit, resume what stays.
    pub(super) fn remove_snapshot(&mut self, mut group: Group, cow: &Lv) -> Plan {
        let origin = origin_of(&group, cow).ok_or_else(|| no("no origin"))?;
        let (top, own) = (group.dm_uuid(&origin), group.dm_uuid(cow));
        if let Some(device) = self.devices.get(&own)
            && self.open_count(device) > 0
        {
            return Err(no(format!("Logical volume {} is used.", cow.name)));
        }
        group.lvs.retain(|_, lv| !is_snapshot(lv, "cow_store", &cow.name));
        group.lvs.remove(&cow.name);
        let active = self.devices.contains_key(&top);
        let last = snapshots_of(&group, &origin.name).is_empty();
        let mut gone = vec![own.clone(), format!("{own}-cow")];
        if last {
            gone.push(real_of(&group, &origin));
        }
        gone.retain(|uuid| self.devices.contains_key(uuid));
        let mut steps = Vec::new();
        if active {
            let layer = if last { Layer::Linear } else { Layer::Origin(real_of(&group, &origin)) };
            let table = layered(&group, &origin, layer);
            let uuid = top.clone();
            steps.push(Step::Load { uuid, table });
            steps.push(Step::Suspend { uuid: top.clone() });
            steps.extend(gone.iter().map(|uuid| Step::Suspend { uuid: uuid.clone() }));
        }
        steps.extend(commit(group.clone()));
        if active {
            steps.push(Step::Resume { uuid: top });
        }
        steps.extend(gone.into_iter().map(|uuid| Step::Remove { uuid }));
        Ok(steps)
    }

    /// Make all devices of an origin and its snapshots.
    pub(super) fn activate_origin(&mut self, group: &Group, origin: &Lv) -> Vec<Step> {
        let top = group.dm_uuid(origin);
        if self.is_live(&top) {
            return Vec::new();
        }
        let mut steps = below(group, origin);
        let layer = Layer::Origin(real_of(group, origin));
        steps.push(make(group, origin, ""));
        steps.extend(load(&top, layered(group, origin, layer)));
        steps
    }

    pub(super) fn freeze(&mut self, volume: String, origin: &Table) {
        let kept = self.frozen.entry(volume).or_default();
        for row in &origin.rows {
            let end = row.at + row.range.end - row.range.start;
            for (offset, bytes) in self.disks[&row.disk].content().known(&(row.at..end)) {
                kept.write(offset - row.at + row.range.start, &bytes);
            }
        }
    }

    pub(super) fn thaw(&mut self, volume: &str, origin: &Table) {
        let kept = &self.frozen[volume];
        for row in &origin.rows {
            let disk = self.disks.get_mut(&row.disk).expect("a known disk");
            disk.zero(row.at..row.at + row.range.end - row.range.start);
            for (offset, bytes) in kept.known(&row.range) {
                disk.write(offset - row.range.start + row.at, &bytes);
            }
        }
    }
}

/// The volume that a cow store belongs to.
pub(super) fn origin_of(group: &Group, cow: &Lv) -> Option<Lv> {
    let mut links = group.lvs.values().filter(|lv| is_snapshot(lv, "cow_store", &cow.name));
    let origin = links.next()?.segments[0].volumes.get("origin")?;
    group.lvs.get(origin).cloned()
}

/// Make what an origin and its snapshots consist of, but for the origin's own device.
pub(super) fn below(group: &Group, origin: &Lv) -> Vec<Step> {
    let mut steps = vec![make(group, origin, "-real")];
    steps.extend(load(&real_of(group, origin), linear(group, origin)));
    for (_, cow) in snapshots_of(group, &origin.name) {
        steps.extend(above(group, origin, &group.lvs[&cow]));
    }
    steps
}

/// The dm uuid of the hidden device that an origin's bytes lie on.
pub(super) fn real_of(group: &Group, origin: &Lv) -> String {
    format!("{}-real", group.dm_uuid(origin))
}

fn layered(group: &Group, origin: &Lv, layer: Layer) -> Table {
    Table { layer, ..linear(group, origin) }
}

fn make(group: &Group, lv: &Lv, layer: &str) -> Step {
    Step::Make {
        name: format!("{}{layer}", dm_name(group, &lv.name)),
        uuid: format!("{}{layer}", group.dm_uuid(lv)),
    }
}

fn load(uuid: &str, table: Table) -> [Step; 2] {
    let uuid = uuid.to_owned();
    let load = Step::Load { uuid: uuid.clone(), table };
    [load, Step::Resume { uuid }]
}

/// The devices of a snapshot: its cow store, and what shows its content.
fn above(group: &Group, origin: &Lv, cow: &Lv) -> Vec<Step> {
    let own = group.dm_uuid(cow);
    let store = format!("{own}-cow");
    let layer = Layer::Snapshot(real_of(group, origin), store.clone(), cow.uuid.clone());
    let mut steps = vec![make(group, cow, "-cow")];
    steps.extend(load(&store, linear(group, cow)));
    steps.push(make(group, cow, ""));
    steps.extend(load(&own, layered(group, origin, layer)));
    steps
}

/// Whether this volume is the link of a thick snapshot that names `lv` as `key`.
pub(super) fn is_snapshot(link: &Lv, key: &str, lv: &str) -> bool {
    let names = |segment: &pliant_lvm::lvm::Segment| {
        segment.kind == "snapshot" && segment.volumes.get(key).is_some_and(|name| name == lv)
    };
    link.segments.iter().any(names)
}

/// The thick snapshots of a volume: their links and their cow stores.
pub(super) fn snapshots_of(group: &Group, origin: &str) -> Vec<(String, String)> {
    let links = group.lvs.values().filter(|lv| is_snapshot(lv, "origin", origin));
    let pairs =
        links.map(|link| (link.name.clone(), link.segments[0].volumes["cow_store"].clone()));
    pairs.collect()
}
