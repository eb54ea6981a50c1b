//! What a machine looks like, to compare it with the one of a run without a fault.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pliant_lvm::lvm::{Group, Words};

use crate::device::Device;
use crate::{FakeHost, World};

/// Everything that a repeated run must make equal: no sequence numbers, uuids, device numbers or
/// places on disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineState {
    /// The volume groups by name, as the disks have them now.
    pub groups: BTreeMap<String, GroupState>,
    /// The device-mapper devices by name.
    pub devices: BTreeMap<String, DeviceState>,
    /// Target, type, source and all options of each mount, in order; devices by their dm names.
    pub mounts: Vec<(PathBuf, String, String, Vec<String>)>,
    /// Directories (`true`) and files (`false`).
    pub paths: BTreeMap<PathBuf, bool>,
}

/// A volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// Its tags.
    pub tags: Words,
    /// Extents in all.
    pub extents: u64,
    /// Whether all its disks have the same metadata.
    pub level: bool,
    /// Its volumes by name.
    pub volumes: BTreeMap<String, VolumeState>,
}

/// A logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeState {
    /// Its tags.
    pub tags: Words,
    /// Its size.
    pub extents: u64,
    /// Its flags.
    pub flags: Words,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceState {
    /// Bytes of its live table; `None` without one.
    pub size: Option<u64>,
    /// I/O waits.
    pub suspended: bool,
    /// A table waits.
    pub waiting: bool,
    /// Who holds it open.
    pub open_count: u32,
}

impl FakeHost {
    /// What the machine looks like now.
    pub fn state(&self) -> MachineState {
        let world = self.lock();
        let groups = world.groups(None).into_iter();
        let devices = world.devices.values();
        MachineState {
            groups: groups.map(|(name, group)| (name, world.group_state(&group))).collect(),
            devices: devices
                .map(|device| (device.name.clone(), world.device_state(device)))
                .collect(),
            mounts: world.mount_states(),
            paths: world.paths.clone(),
        }
    }
}

impl World {
    fn group_state(&self, group: &Group) -> GroupState {
        let disks = group.pvs.values().filter_map(|pv| pv.device.as_ref());
        let volumes = group.lvs.values().map(|lv| {
            let state = VolumeState {
                tags: lv.tags.clone(),
                extents: lv.extents(),
                flags: lv.flags.clone(),
            };
            (lv.name.clone(), state)
        });
        GroupState {
            tags: group.tags.clone(),
            extents: group.extents(),
            level: disks.into_iter().all(|disk| self.seqno_on(disk) == Some(group.seqno)),
            volumes: volumes.collect(),
        }
    }

    fn device_state(&self, device: &Device) -> DeviceState {
        DeviceState {
            size: device.live.as_ref().map(crate::device::Table::size),
            suspended: device.suspended,
            waiting: device.waiting.is_some(),
            open_count: self.open_count(device),
        }
    }

    fn mount_states(&self) -> Vec<(PathBuf, String, String, Vec<String>)> {
        let named = |text: String| {
            let device = self
                .devices
                .values()
                .find(|device| text.ends_with(&format!("/dm-{}", device.minor)));
            device.map_or(text, |device| device.name.clone())
        };
        let states = self.mounts.iter().map(|mount| {
            let node = mount.kind == "devtmpfs";
            let root = mount.root.to_string_lossy().into_owned();
            let source = named(if node { root } else { mount.source.clone() });
            let options = mount.mount_options.iter().chain(&mount.super_options);
            (mount.target.clone(), mount.kind.clone(), source, options.cloned().collect())
        });
        states.collect()
    }
}
