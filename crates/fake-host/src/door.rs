//! What no caller may ever do: the checks that panic.
//!
//! They hold the rules that protect data against the code above the door: a file system is made only
//! on a volume of this driver that was never shown, and bytes are wiped only where a volume comes
//! or goes, or behind the end of its file system.

use std::ops::Range;
use std::path::Path;

use pliant_lvm::lvm::{Group, Lv};

use crate::World;
use crate::superblocks::{FakeFs, HEAD};

impl World {
    /// Panic unless a file system may be made on this device.
    pub fn may_format(&self, device: &Path, command: &str) {
        let Some((_, lv)) = self.volume_at(device) else {
            panic!("`{command}`: no logical volume");
        };
        let own = lv.tags.iter().any(|tag| tag.starts_with("pliant.id="));
        assert!(own, "`{command}`: {} is not ours", lv.name);
        assert!(is_new(&lv), "`{command}`: {} may hold data", lv.name);
        let mounted = self.device_at(device).is_some_and(|found| self.used_count(found) > 0);
        assert!(!mounted, "`{command}`: {} is in use", lv.name);
    }

    /// Panic unless these bytes of the device may be wiped.
    pub fn may_wipe(&self, device: &Path, range: &Range<u64>, call: &str) {
        if self.disks.contains_key(device) {
            return self.may_give_away(device, call);
        }
        let Some((_, lv)) = self.volume_at(device) else {
            panic!("{call}: no logical volume");
        };
        let lost = ["copying", "deleting"].map(|state| format!("pliant.state={state}"));
        if is_new(&lv) || lost.iter().any(|tag| lv.tags.contains(tag)) {
            let used = self.device_at(device).is_some_and(|found| self.used_count(found) > 0);
            assert!(!used, "{call}: {} is in use", lv.name);
            return;
        }
        let head = self.read(device, 0, HEAD).unwrap_or_default();
        let Some(fs) = FakeFs::read(&head) else {
            panic!("{call}: {range:?} of {} is guarded by no file system", lv.name);
        };
        let behind = fs.covers.get() <= range.start;
        assert!(behind, "{call}: {range:?} of {} is in its file system", lv.name);
    }

    /// Panic unless the device is to be filled, and nobody counts on what it has.
    pub fn may_copy_to(&self, device: &Path, call: &str) {
        let Some((_, lv)) = self.volume_at(device) else {
            panic!("{call}: no logical volume");
        };
        assert!(lv.tags.contains("pliant.state=copying"), "{call}: {} may hold data", lv.name);
        let used = self.device_at(device).is_some_and(|found| self.used_count(found) > 0);
        assert!(!used, "{call}: {} is in use", lv.name);
    }

    /// Panic unless the file system on the device is a copy that nobody has used.
    pub fn may_rename(&self, device: &Path, command: &str) {
        let Some((_, lv)) = self.volume_at(device) else {
            panic!("`{command}`: no logical volume");
        };
        assert!(lv.tags.contains("pliant.state=restored"), "`{command}`: {} is in use", lv.name);
        let mounted = self.device_at(device).is_some_and(|found| self.used_count(found) > 0);
        assert!(!mounted, "`{command}`: {} is mounted", lv.name);
    }

    /// Panic if the file system of a volume counts on what is behind its first so many extents.
    pub fn may_reduce(&self, group: &Group, lv: &Lv, extents: u64) {
        if is_new(lv) {
            return;
        }
        let device = self.devices.get(&group.dm_uuid(lv)).map(crate::device::Device::path);
        let Some(device) = device else {
            panic!("lvreduce: whether {} can lose what is behind is not seen", lv.name);
        };
        let head = self.read(&device, 0, HEAD).unwrap_or_default();
        let covers = FakeFs::read(&head).map(|fs| fs.covers);
        assert!(covers <= Some(group.size_of(extents)), "lvreduce: {} needs {covers:?}", lv.name);
    }

    /// Panic if a volume of ours is in the group on the disk, or somebody has the disk open.
    fn may_give_away(&self, disk: &Path, call: &str) {
        let open = self.openers.get(disk).is_some_and(|openers| *openers > 0);
        assert!(!open, "{call}: {} is in use", disk.display());
        let on_it = |group: &Group| group.pvs.values().any(|pv| pv.device.as_deref() == Some(disk));
        let groups = self.groups(None).into_values().filter(on_it);
        let ours = |lv: &Lv| lv.tags.iter().any(|tag| tag.starts_with("pliant."));
        let lost = groups.flat_map(|group| group.lvs.into_values()).find(ours);
        assert_eq!(lost.map(|lv| lv.name), None, "{call}: a volume of ours is on the disk");
    }
}

fn is_new(lv: &Lv) -> bool {
    lv.tags.contains("pliant.state=new")
}
