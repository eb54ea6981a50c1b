//! Thin pools and thin volumes: `lvcreate --type thin-pool`, `lvcreate --thinpool`, and what they do to devices.

use std::collections::BTreeMap;

use pliant_lvm::lvm::group::{Group, Lv, Segment, ThinPoolSegment};
use pliant_lvm::lvm::{THIN_POOL, Words};
use pliant_volume::bytes::Bytes;

use super::steps::{Step, commit};
use super::{Line, Plan, Refusal, World, no};
use crate::device::{Layer, Table, dm_name, linear};
use crate::groups::{allocate, append, set};

impl World {
    pub(super) fn create_thin_pool(&mut self, line: &Line) -> Plan {
        line.only(
            &["-y", "-Zy", "--type", "-l", "--poolmetadatasize", "-c", "--discards", "-n"],
            &[],
        );
        assert_eq!(line.value("--type"), "thin-pool", "{}", line.typed);
        let mut group = self.changeable(line.target().0)?;
        let mut pool = self.new_lv(&group, line)?;
        let metadata = bytes(line, "--poolmetadatasize").div_ceil(group.extent_size);
        let parts = [("_tdata", line.extents()), ("_tmeta", metadata)];
        for (suffix, extents) in parts {
            self.add_hidden(&mut group, &format!("{}{suffix}", pool.name), extents)?;
        }
        if !group.lvs.contains_key("lvol0_pmspare") {
            self.add_hidden(&mut group, "lvol0_pmspare", metadata)?;
        }
        let named = |key: &str, suffix: &str| (key.to_owned(), format!("{}{suffix}", pool.name));
        pool.segments.push(Segment {
            start: 0,
            extents: line.extents(),
            kind: "thin-pool".to_owned(),
            pieces: Vec::new(),
            volumes: [named("metadata", "_tmeta"), named("pool", "_tdata")].into(),
            thin_pool: Some(ThinPoolSegment {
                chunk: bytes(line, "-c"),
                transaction: 0,
                zeroes: true,
                messages: Vec::new(),
            }),
        });
        group.lvs.insert(pool.name.clone(), pool.clone());
        let mut steps = commit(group.clone());
        steps.extend(self.activate_thin_pool(&group, false));
        steps.extend(load_new(&group, &pool, "-pool", top_of(&group, &pool)));
        Ok(steps)
    }

    fn add_hidden(&mut self, group: &mut Group, name: &str, extents: u64) -> Result<(), Refusal> {
        let mut lv = Lv {
            name: name.to_owned(),
            uuid: self.uuid(),
            flags: set(&["READ", "WRITE"]),
            tags: Words::default(),
            segments: Vec::new(),
        };
        let pieces = allocate(group, extents, &[], None);
        append(&mut lv, pieces.ok_or_else(|| no("insufficient free space"))?);
        group.lvs.insert(lv.name.clone(), lv);
        Ok(())
    }

    pub(super) fn create_thin(&mut self, line: &Line) -> Plan {
        line.only(&["-y", "-an", "-Wn", "-ky", "-V", "--thinpool", "-n"], &["--addtag"]);
        let mut group = self.changeable(line.target().0)?;
        assert_eq!(line.value("--thinpool"), THIN_POOL, "{}", line.typed);
        if group.thin_pool().is_none() {
            return Err(no(format!("Thin pool {THIN_POOL} not found.")));
        }
        let mut lv = self.new_lv(&group, line)?;
        lv.flags.extend(["ACTIVATION_SKIP"]);
        let extents = bytes(line, "-V").div_ceil(group.extent_size);
        lv.segments.push(thin_segment(extents, None));
        group.lvs.insert(lv.name.clone(), lv);
        Ok(commit(group))
    }

    pub(super) fn thin_snapshot(&mut self, line: &Line, mut group: Group, origin: &Lv) -> Plan {
        line.only(&["-y", "-s", "-ky", "-n"], &["--addtag"]);
        let mut lv = self.new_lv(&group, line)?;
        lv.flags.extend(["ACTIVATION_SKIP"]);
        lv.segments.push(thin_segment(origin.extents(), Some(&origin.name)));
        let share =
            Step::Share { pool: pool_of(&group), from: origin.uuid.clone(), to: lv.uuid.clone() };
        group.lvs.insert(lv.name.clone(), lv);
        let mut steps = vec![share];
        steps.extend(commit(group));
        Ok(steps)
    }

    /// The snapshot takes the place of its origin.
    pub(super) fn merge_thin(&mut self, line: &Line, mut group: Group, snapshot: &Lv) -> Plan {
        let origin =
            snapshot.segments[0].volumes.get("origin").and_then(|name| group.lvs.get(name));
        let Some(origin) = origin.cloned() else {
            return Err(no(format!("{} is not a mergeable logical volume.", snapshot.name)));
        };
        if self.devices.contains_key(&group.dm_uuid(&origin)) {
            line.unknown("a merge that waits for the next activation");
        }
        let dropped = Step::DropThin { pool: pool_of(&group), volume: origin.uuid.clone() };
        group.lvs.remove(&snapshot.name);
        let merged = Lv {
            segments: vec![thin_segment(snapshot.extents(), None)],
            uuid: snapshot.uuid.clone(),
            ..origin
        };
        group.lvs.insert(merged.name.clone(), merged);
        let mut steps = commit(group);
        steps.push(dropped);
        Ok(steps)
    }

    /// Make the hidden devices of the pool, the lowest first.
    fn activate_thin_pool(&mut self, group: &Group, anew: bool) -> Vec<Step> {
        let Some(pool) = group.thin_pool() else { return Vec::new() };
        let device = pool.device();
        if self.is_live(&device) && !anew {
            return Vec::new();
        }
        let part = |key: &str| group.lvs[&pool.lv.segments[0].volumes[key]].clone();
        let (meta, data) = (part("metadata"), part("pool"));
        let layer = Layer::Pool {
            meta: group.dm_uuid(&meta) + "-tmeta",
            data: group.dm_uuid(&data) + "-tdata",
        };
        let mut steps = Vec::new();
        steps.extend(load_new(group, &meta, "-tmeta", linear(group, &meta)));
        steps.extend(load_new(group, &data, "-tdata", linear(group, &data)));
        let table = Table { layer, rows: linear(group, &data).rows };
        // The kernel reads, or makes, its metadata as it takes the table.
        steps.push(Step::StartThinPool {
            pool: device,
            chunk: pool.segment.chunk.get(),
            zeroes: pool.segment.zeroes,
            mark: self.thin_mark(&group.name),
        });
        steps.extend(load_new(group, pool.lv, "-tpool", table));
        steps
    }

    fn thin_mark(&self, lane: &str) -> u32 {
        self.thin_marks.get(lane).copied().unwrap_or(100)
    }

    /// More data or metadata for the pool.
    pub(super) fn extend_thin_pool(&mut self, line: &Line, mut group: Group, pool: &Lv) -> Plan {
        let (key, wanted) = if line.has("-l") {
            line.only(&["-y", "-l"], &[]);
            ("pool", line.extents())
        } else {
            line.only(&["-y", "--poolmetadatasize"], &[]);
            ("metadata", bytes(line, "--poolmetadatasize").div_ceil(group.extent_size))
        };
        let part = pool.segments[0].volumes[key].clone();
        let spare = (key == "metadata").then(|| "lvol0_pmspare".to_owned());
        for name in [Some(part), spare].into_iter().flatten() {
            let mut lv = group.lvs[&name].clone();
            let more = wanted.saturating_sub(lv.extents());
            let last = lv.segments.last().and_then(|segment| segment.pieces.last());
            let pieces = allocate(&group, more, &[], last);
            append(&mut lv, pieces.ok_or_else(|| no("insufficient free space"))?);
            group.lvs.insert(name, lv);
        }
        if key == "pool" {
            let mut pool = pool.clone();
            pool.segments[0].extents = wanted;
            group.lvs.insert(pool.name.clone(), pool);
        }
        let mut steps = Vec::new();
        let thin = group.thin_pool().expect("a pool");
        if self.is_live(&thin.device()) {
            steps.extend(self.reload_thin_pool(&group, commit(group.clone())));
            steps.extend(self.resize_top(&group));
        } else {
            steps.extend(commit(group));
        }
        Ok(steps)
    }

    /// Load the tables that the metadata says, and commit while the devices are suspended.
    pub(super) fn reload_thin_pool(&mut self, group: &Group, committed: Vec<Step>) -> Vec<Step> {
        let Some(thin) = group.thin_pool() else { return Vec::new() };
        if !self.is_live(&thin.device()) {
            return Vec::new();
        }
        let tables = self.activate_thin_pool(group, true);
        let mut steps: Vec<Step> =
            tables.into_iter().filter(|step| matches!(step, Step::Load { .. })).collect();
        let uuids = thin.hidden_devices();
        steps.extend(uuids.iter().rev().map(|uuid| Step::Suspend { uuid: uuid.clone() }));
        steps.extend(committed);
        steps.extend(uuids.into_iter().map(|uuid| Step::Resume { uuid }));
        steps.push(Step::Mark { pool: thin.device(), mark: self.thin_mark(&group.name) });
        steps
    }

    fn resize_top(&self, group: &Group) -> Vec<Step> {
        let pool = &group.lvs[THIN_POOL];
        let uuid = format!("{}-pool", group.dm_uuid(pool));
        if !self.is_live(&uuid) {
            return Vec::new();
        }
        let load = Step::Load { uuid: uuid.clone(), table: top_of(group, pool) };
        vec![load, Step::Suspend { uuid: uuid.clone() }, Step::Resume { uuid }]
    }

    /// Make the device of a thin volume or of a thin pool, and all below it; `None` for another.
    pub(super) fn activate_thin(&mut self, group: &Group, lv: &Lv) -> Option<Vec<Step>> {
        let table = thin_table(group, lv)?;
        let mut steps = self.activate_thin_pool(group, false);
        let layer = if lv.is_thin_pool() { "-pool" } else { "" };
        if !self.is_live(&format!("{}{layer}", group.dm_uuid(lv))) {
            steps.extend(load_new(group, lv, layer, table));
        }
        Some(steps)
    }

    /// Remove the devices of the pool if no volume and nobody else has it active after `gone`.
    pub(super) fn deactivate_thin_pool(&self, group: &Group, gone: &Lv) -> Vec<Step> {
        let Some(pool) = group.thin_pool() else { return Vec::new() };
        let others = pool.volumes().filter(|lv| lv.name != gone.name);
        let others = others.map(|lv| group.dm_uuid(lv)).chain([pool.top()]);
        if others.into_iter().any(|uuid| self.devices.contains_key(&uuid)) {
            return Vec::new();
        }
        let there = pool.hidden_devices().into_iter().rev();
        let there = there.filter(|uuid| self.devices.contains_key(uuid));
        there.map(|uuid| Step::Remove { uuid }).collect()
    }

    pub(super) fn remove_thin(&mut self, mut group: Group, lv: &Lv) -> Plan {
        let mut steps = self.deactivate(&group, lv)?;
        let dropped = Step::DropThin { pool: pool_of(&group), volume: lv.uuid.clone() };
        group.lvs.remove(&lv.name);
        steps.extend(commit(group));
        steps.push(dropped); // A message of the metadata that is committed by then.
        Ok(steps)
    }
}

/// The table of a thin volume, or of the top of a thin pool; `None` for another.
pub(super) fn thin_table(group: &Group, lv: &Lv) -> Option<Table> {
    if lv.is_thin_pool() {
        return Some(top_of(group, lv));
    }
    lv.thin_pool()?;
    let size = group.size_of(lv.extents()).get();
    let layer = Layer::Thin { pool: pool_of(group), volume: lv.uuid.clone(), size };
    Some(Table { layer, rows: Vec::new() })
}

fn top_of(group: &Group, pool: &Lv) -> Table {
    let size = group.size_of(pool.extents()).get();
    Table {
        layer: Layer::OverPool { pool: format!("{}-tpool", group.dm_uuid(pool)), size },
        rows: Vec::new(),
    }
}

/// The dm uuid of the pool.
fn pool_of(group: &Group) -> String {
    group.thin_pool().expect("a thin pool").device()
}

fn thin_segment(extents: u64, origin: Option<&String>) -> Segment {
    let mut volumes = BTreeMap::from([("thin_pool".to_owned(), THIN_POOL.to_owned())]);
    volumes.extend(origin.map(|origin| ("origin".to_owned(), origin.clone())));
    Segment {
        start: 0,
        extents,
        kind: "thin".to_owned(),
        pieces: Vec::new(),
        volumes,
        thin_pool: None,
    }
}

fn load_new(group: &Group, lv: &Lv, layer: &str, table: Table) -> [Step; 3] {
    let uuid = format!("{}{layer}", group.dm_uuid(lv));
    let name = format!("{}{layer}", dm_name(group, &lv.name));
    [
        Step::Make { name, uuid: uuid.clone() },
        Step::Load { uuid: uuid.clone(), table },
        Step::Resume { uuid },
    ]
}

fn bytes(line: &Line, option: &str) -> Bytes {
    let text = line.value(option);
    let number = text.strip_suffix('b').and_then(|number| number.parse().ok());
    Bytes::new(number.unwrap_or_else(|| line.unknown(&format!("`{option} {text}`"))))
}
