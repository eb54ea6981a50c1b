//! `vgcreate`, `vgextend`, `vgchange`, `vgck`.

use std::path::PathBuf;

use super::super::groups::{BEHIND_16_MIB, BEHIND_DEFAULT, new_name};
use super::steps::{Step, commit};
use super::{Line, Plan, Refusal, World, no};
use crate::lvm::group::Group;

impl World {
    pub(super) fn vgcreate(&mut self, line: &Line) -> Plan {
        line.only(&["-y", "--metadatasize"], &["--addtag"]);
        if line.value("--metadatasize") != "16m" {
            line.unknown("another size than `16m`");
        }
        let name = line.target().0;
        if self.groups(Some(&self.pinned(name))).contains_key(name) {
            return Err(no(format!("A volume group called {name} already exists.")));
        }
        let group = self.new_group(name, &line.all("--addtag"));
        self.with_disks(group, &line.names[1..], BEHIND_16_MIB)
    }

    pub(super) fn vgextend(&mut self, line: &Line) -> Plan {
        line.only(&["-y"], &[]);
        let group = self.changeable(line.target().0)?;
        self.with_disks(group, &line.names[1..], BEHIND_DEFAULT)
    }

    fn with_disks(&mut self, mut group: Group, disks: &[String], pe_start: u64) -> Plan {
        let mut steps = Vec::new();
        for disk in disks.iter().map(PathBuf::from) {
            self.may_become_pv(&group.name, &disk)?;
            let pv = self.new_pv(&disk, pe_start);
            group.pvs.insert(new_name("pv", &group.pvs), pv.clone());
            steps.push(Step::Label { disk, pv });
        }
        steps.extend(commit(group));
        Ok(steps)
    }

    fn may_become_pv(&self, lane: &str, disk: &PathBuf) -> Result<(), Refusal> {
        let found = self.disks.get(disk);
        let usable =
            found.filter(|found| found.fault.is_none() && self.pinned(lane).contains(disk));
        if usable.is_none_or(|usable| usable.read_only) {
            return Err(no(format!("Cannot use {}: device not found", disk.display())));
        }
        let mut pvs = self.groups(None).into_values().flat_map(|group| group.pvs);
        if pvs.any(|(_, pv)| pv.device.as_ref() == Some(disk)) {
            return Err(no(format!("{} is already in a volume group", disk.display())));
        }
        Ok(())
    }

    pub(super) fn vgchange(&mut self, line: &Line) -> Plan {
        line.only(&["-y"], &["--addtag", "--deltag"]);
        let mut group = self.changeable(line.target().0)?;
        for tag in line.all("--deltag") {
            group.tags.remove(&tag);
        }
        group.tags.extend(line.all("--addtag"));
        Ok(commit(group))
    }

    pub(super) fn vgck(&mut self, line: &Line) -> Plan {
        line.only(&["--updatemetadata"], &["-y"]);
        Ok(commit(self.changeable(line.target().0)?))
    }
}
