//! `lvcreate`, `lvextend`, `lvreduce`, `lvchange`, `lvremove` of linear volumes.

use pliant_lvm::host::at_least;
use pliant_lvm::lvm::group::{Group, Lv};

use super::snapshots::{below, is_snapshot, origin_of, real_of, snapshots_of};
use super::steps::{Step, commit};
use super::thin::thin_table;
use super::{Line, Plan, Refusal, World, no};
use crate::device::{Layer, dm_name, linear};
use crate::groups::{allocate, append, set, truncate};

impl World {
    pub(super) fn lvcreate(&mut self, line: &Line) -> Plan {
        line.only(
            &["-y", "-Wn", "-Zn", "--setautoactivation", "-l", "-n"],
            &["-ay", "-an", "--addtag"],
        );
        let mut group = self.changeable(line.target().0)?;
        let mut lv = self.new_lv(&group, line)?;
        lv.flags.extend(["NOAUTOACTIVATE"]);
        let pieces = allocate(&group, line.extents(), &line.pieces(&group)?, None);
        append(&mut lv, pieces.ok_or_else(|| no_room(&group, line.extents()))?);
        group.lvs.insert(lv.name.clone(), lv.clone());
        let mut steps = commit(group.clone());
        if !line.has("-an") {
            steps.extend(self.activate(&group, &lv));
        }
        Ok(steps)
    }

    pub(super) fn new_lv(&mut self, group: &Group, line: &Line) -> Result<Lv, Refusal> {
        let name = line.value("-n");
        if group.lvs.contains_key(&name) {
            let exists = format!("Logical Volume \"{name}\" already exists in volume group");
            return Err(no(exists));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(Refusal(3, format!("Logical volume name \"{name}\" is invalid.")));
        }
        let tags = line.all("--addtag");
        let plain = |c: char| c.is_ascii_alphanumeric() || "_+.-/=!:&#".contains(c);
        if let Some(tag) = tags.iter().find(|tag| !tag.chars().all(plain)) {
            return Err(Refusal(3, format!("Invalid tag \"{tag}\".")));
        }
        Ok(Lv {
            name,
            uuid: self.uuid(),
            flags: set(&["READ", "WRITE", "VISIBLE"]),
            tags: tags.into_iter().collect(),
            segments: Vec::new(),
        })
    }

    pub(super) fn lvextend(&mut self, line: &Line) -> Plan {
        let (group, mut lv) = self.changeable_lv(line)?;
        if lv.is_thin_pool() {
            return self.extend_thin_pool(line, group, &lv);
        }
        line.only(&["-y", "-l"], &[]);
        let (wanted, now) = (line.extents(), lv.extents());
        if wanted == now {
            let same =
                format!("New size ({wanted} extents) matches existing size ({now} extents).");
            return Err(no(same));
        }
        if wanted < now {
            return Err(no("New size given not larger than existing size"));
        }
        let active = self.devices.contains_key(&group.dm_uuid(&lv));
        if active && !snapshots_of(&group, &lv.name).is_empty() {
            return Err(no("Snapshot origin volumes can be resized only while inactive"));
        }
        if lv.thin_pool().is_some() {
            lv.segments[0].extents = wanted;
            return Ok(self.resized(group, lv));
        }
        let last = lv.segments.last().and_then(|segment| segment.pieces.last());
        let pieces = allocate(&group, wanted - now, &line.pieces(&group)?, last);
        append(&mut lv, pieces.ok_or_else(|| no_room(&group, wanted - now))?);
        Ok(self.resized(group, lv))
    }

    /// Commit a volume that has another size, and put its new table into use if it is active.
    fn resized(&self, mut group: Group, lv: Lv) -> Vec<Step> {
        let uuid = group.dm_uuid(&lv);
        let table = || thin_table(&group, &lv).unwrap_or_else(|| linear(&group, &lv));
        let table = self.devices.contains_key(&uuid).then(table);
        group.lvs.insert(lv.name.clone(), lv);
        let Some(table) = table else { return commit(group) };
        let mut steps =
            vec![Step::Load { uuid: uuid.clone(), table }, Step::Suspend { uuid: uuid.clone() }];
        steps.extend(commit(group));
        steps.push(Step::Resume { uuid });
        steps
    }

    pub(super) fn lvreduce(&mut self, line: &Line) -> Plan {
        line.only(&["-y", "-l"], &["--fs"]);
        match (at_least(self.lvm_version, [2, 3, 17]), line.has("--fs")) {
            (true, false) => return Err(no("Failed to get LV path")),
            (false, true) => return Err(Refusal(3, "unrecognized option '--fs'".to_owned())),
            (true, true) => assert_eq!(line.value("--fs"), "ignore", "{}", line.typed),
            (false, false) => {}
        }
        let (group, mut lv) = self.changeable_lv(line)?;
        let (wanted, now) = (line.extents(), lv.extents());
        if wanted == 0 || wanted >= now {
            return Err(no(format!(
                "New size given ({wanted} extents) not less than existing size"
            )));
        }
        if !snapshots_of(&group, &lv.name).is_empty() {
            return Err(no("Snapshot origin volumes cannot be reduced in size yet."));
        }
        self.may_reduce(&group, &lv, wanted);
        if lv.thin_pool().is_some() {
            lv.segments[0].extents = wanted;
        } else {
            truncate(&mut lv, wanted);
        }
        Ok(self.resized(group, lv))
    }

    /// Alone of all commands that change a group, LVM takes it also while a disk is away.
    pub(super) fn lvchange(&mut self, line: &Line) -> Plan {
        let (group, lv) = find_lv(self.writable(line.target().0)?, line)?;
        if line.has("-an") {
            line.only(&["-y", "-an"], &[]);
            return self.deactivate(&group, &lv);
        }
        if line.has("-ay") || line.has("--refresh") {
            if is_partial(&group, &lv) {
                let name = &lv.name;
                return Err(no(format!(
                    "Refusing activation of partial LV {}/{name}.",
                    group.name
                )));
            }
            if line.has("-ay") {
                line.only(&["-y", "-ay"], &["--poll", "-K"]);
                return Ok(self.activate(&group, &lv));
            }
            line.only(&["-y", "--refresh"], &["--poll"]);
            return Ok(self.refresh(&group, &lv));
        }
        if line.has("--setautoactivation") {
            line.only(&["-y", "--setautoactivation"], &[]);
            return Ok(commit(never_by_itself(group, lv)));
        }
        if line.has("--errorwhenfull") {
            line.only(&["-y", "--errorwhenfull"], &[]);
            return Ok(commit(fails_when_full(group, lv, line.value("--errorwhenfull") == "y")));
        }
        line.only(&["-y"], &["--addtag", "--deltag"]);
        Ok(commit(retagged(group, lv, line)))
    }

    pub(super) fn lvremove(&mut self, line: &Line) -> Plan {
        line.only(&["-y", "-f"], &[]);
        let (mut group, lv) = self.changeable_lv(line)?;
        if group.lvs.values().any(|other| is_snapshot(other, "cow_store", &lv.name)) {
            return self.remove_snapshot(group, &lv);
        }
        if lv.thin_pool().is_some() {
            return self.remove_thin(group, &lv);
        }
        let mut steps = Vec::new();
        for (link, cow) in snapshots_of(&group, &lv.name) {
            group.lvs.remove(&link);
            if let Some(cow) = group.lvs.remove(&cow) {
                steps.extend(self.deactivate(&group, &cow)?);
            }
        }
        steps.extend(self.deactivate(&group, &lv)?);
        group.lvs.remove(&lv.name);
        steps.extend(commit(group));
        Ok(steps)
    }

    pub(super) fn changeable_lv(&self, line: &Line) -> Result<(Group, Lv), Refusal> {
        find_lv(self.changeable(line.volume().0)?, line)
    }

    /// Make the device of a volume, or finish making it.
    fn activate(&mut self, group: &Group, lv: &Lv) -> Vec<Step> {
        if let Some(origin) = origin_of(group, lv) {
            return self.activate_origin(group, &origin);
        }
        if !snapshots_of(group, &lv.name).is_empty() {
            return self.activate_origin(group, lv);
        }
        let uuid = group.dm_uuid(lv);
        if self.is_live(&uuid) {
            return Vec::new();
        }
        if let Some(steps) = self.activate_thin(group, lv) {
            return steps;
        }
        let name = dm_name(group, &lv.name);
        let table = linear(group, lv);
        vec![
            Step::Make { name, uuid: uuid.clone() },
            Step::Load { uuid: uuid.clone(), table },
            Step::Resume { uuid },
        ]
    }

    /// Remove the device of a volume and the layers below it.
    pub(super) fn deactivate(&mut self, group: &Group, lv: &Lv) -> Plan {
        let uuid = group.dm_uuid(lv);
        let Some(device) = self.devices.get(&uuid) else {
            return Ok(Vec::new());
        };
        if self.open_count(device) > 0 {
            let name = &lv.name;
            let used =
                format!("Logical volume {}/{name} contains a filesystem in use.", group.name);
            return Err(no(used));
        }
        let layers = ["", "-real", "-cow"].map(|layer| format!("{uuid}{layer}"));
        let there = layers.into_iter().filter(|uuid| self.devices.contains_key(uuid));
        let mut steps: Vec<Step> = there.map(|uuid| Step::Remove { uuid }).collect();
        if lv.thin_pool().is_some() || lv.is_thin_pool() {
            steps.extend(self.deactivate_thin_pool(group, lv));
        }
        Ok(steps)
    }

    /// Load the table that the metadata says; on a device that hangs suspended with a waiting table,
    /// LVM makes that one live, right or wrong.
    fn refresh(&mut self, group: &Group, lv: &Lv) -> Vec<Step> {
        if lv.is_thin_pool() {
            return self.reload_thin_pool(group, Vec::new());
        }
        let uuid = group.dm_uuid(lv);
        let Some(device) = self.devices.get(&uuid) else {
            return Vec::new();
        };
        let resume = Step::Resume { uuid: uuid.clone() };
        if device.suspended && device.waiting.is_some() {
            return vec![resume];
        }
        let mut table = thin_table(group, lv).unwrap_or_else(|| linear(group, lv));
        let mut steps = Vec::new();
        if !snapshots_of(group, &lv.name).is_empty() {
            steps = below(group, lv);
            table.layer = Layer::Origin(real_of(group, lv));
        }
        let suspend = Step::Suspend { uuid: uuid.clone() };
        steps.extend([Step::Load { uuid, table }, suspend, resume]);
        steps
    }

    pub(super) fn is_live(&self, uuid: &str) -> bool {
        let device = self.devices.get(uuid);
        device.is_some_and(|device| device.live.is_some())
    }
}

fn find_lv(group: Group, line: &Line) -> Result<(Group, Lv), Refusal> {
    let (_, name) = line.volume();
    let lv = group.lvs.get(name).cloned();
    let lv = lv.ok_or_else(|| no(format!("Failed to find logical volume \"{name}\"")))?;
    Ok((group, lv))
}

/// Whether a part of it lies on a disk that is away.
fn is_partial(group: &Group, lv: &Lv) -> bool {
    let mut pieces = lv.segments.iter().flat_map(|segment| &segment.pieces);
    pieces.any(|piece| group.pvs[&piece.pv].device.is_none())
}

/// A disk that is away is marked as missing by whoever commits without it, and stays so when it is back.
fn retagged(mut group: Group, mut lv: Lv, line: &Line) -> Group {
    for tag in line.all("--deltag") {
        lv.tags.remove(&tag);
    }
    lv.tags.extend(line.all("--addtag"));
    group.lvs.insert(lv.name.clone(), lv);
    for pv in group.pvs.values_mut().filter(|pv| pv.device.is_none()) {
        pv.flags.extend(["MISSING"]);
    }
    group
}

/// No host makes it active by itself.
fn never_by_itself(mut group: Group, mut lv: Lv) -> Group {
    lv.flags.extend(["NOAUTOACTIVATE"]);
    group.lvs.insert(lv.name.clone(), lv);
    group
}

fn fails_when_full(mut group: Group, mut lv: Lv, fails: bool) -> Group {
    if fails {
        lv.flags.extend(["ERROR_WHEN_FULL"]);
    } else {
        lv.flags.remove("ERROR_WHEN_FULL");
    }
    group.lvs.insert(lv.name.clone(), lv);
    group
}

fn no_room(group: &Group, extents: u64) -> Refusal {
    let free = group.free_extents();
    let name = &group.name;
    no(format!(
        "Volume group \"{name}\" has insufficient free space ({free} extents): {extents} required."
    ))
}
