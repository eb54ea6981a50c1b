//! `pvcreate`, `vgcreate`, `vgextend`, `vgchange`, `vgck`.

use std::path::PathBuf;

use pliant_lvm::lvm::group::Group;

use super::steps::{Step, commit};
use super::{Line, Plan, Refusal, World, no};
use crate::groups::new_name;

impl World {
    pub(super) fn pvcreate(&mut self, group: &str, line: &Line) -> Plan {
        line.only(&["-y", "--metadatasize"], &[]);
        if line.value("--metadatasize") != "16m" {
            line.unknown("another size than `16m`");
        }
        let disks: Vec<PathBuf> = line.names.iter().map(PathBuf::from).collect();
        disks
            .into_iter()
            .map(|disk| {
                self.may_become_pv(group, &disk)?;
                let pv = self.new_pv(&disk);
                Ok(Step::Label { disk, pv })
            })
            .collect()
    }

    pub(super) fn vgcreate(&mut self, line: &Line) -> Plan {
        line.only(&["-y"], &["--addtag"]);
        let name = line.target().0;
        if self.groups(Some(&self.pinned(name))).contains_key(name) {
            return Err(no(format!("A volume group called {name} already exists.")));
        }
        let group = self.new_group(name, &line.all("--addtag"));
        self.with_disks(group, &line.names[1..])
    }

    pub(super) fn vgextend(&mut self, line: &Line) -> Plan {
        line.only(&["-y"], &[]);
        let group = self.changeable(line.target().0)?;
        self.with_disks(group, &line.names[1..])
    }

    fn with_disks(&mut self, mut group: Group, disks: &[String]) -> Plan {
        for disk in disks.iter().map(PathBuf::from) {
            self.may_become_pv(&group.name, &disk)?;
            let block = |disk: &PathBuf| self.disks.get(disk).map(|disk| disk.logical_block);
            let mut others = group.pvs.values().filter_map(|pv| pv.device.as_ref());
            if others.any(|other| block(other) != block(&disk)) {
                return Err(no("Devices have inconsistent logical block sizes"));
            }
            let Some(pv) = self.labelled_pv(&disk) else {
                return Err(no(format!("{} is no physical volume", disk.display())));
            };
            group.pvs.insert(new_name("pv", &group.pvs), pv);
        }
        Ok(commit(group))
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
