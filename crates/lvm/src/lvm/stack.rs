//! The live devices that a logical volume consists of, and the disks that these are on.
//!
//! The disk need not be in the volume's own table: below the device of a snapshot's origin, of a mirror or
//! of a volume that is being moved are hidden devices, and several volumes share one.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use crate::host::{DeviceNumber, DmTarget};
use crate::lvm::group::{Group, Lv};

const SECTOR: u64 = 512;

/// A live device of a volume group.
#[derive(Debug, Clone)]
pub(super) struct LiveDevice {
    pub uuid: String,
    pub number: DeviceNumber,
    pub table: Vec<DmTarget>,
}

/// Current disks of the physical volumes of a volume group, by the names that its text gives them.
pub(super) type Disks = BTreeMap<String, (DeviceNumber, PathBuf)>;

/// The devices of a logical volume, with all that share a device with it.
#[derive(Debug, Default)]
pub(super) struct Stack(Vec<LiveDevice>);

impl LiveDevice {
    /// Returns whether it is the device of the volume with this device-mapper uuid, or a hidden one of it.
    fn is_of(&self, uuid: &str) -> bool {
        let layer = self.uuid.strip_prefix(uuid);
        layer.is_some_and(|layer| layer.is_empty() || layer.starts_with('-'))
    }

    fn numbers(&self) -> impl Iterator<Item = DeviceNumber> {
        self.table.iter().flat_map(DmTarget::devices)
    }

    /// Returns whether its own table names only disks of the volume group.
    pub fn is_on(&self, disks: &Disks) -> bool {
        self.numbers().all(|number| disks.values().any(|(now, _)| *now == number))
    }

    fn stands_on(&self, other: &LiveDevice) -> bool {
        self.numbers().any(|number| number == other.number)
    }
}

impl Stack {
    /// The devices around the volume with this uuid, of all live devices of its group.
    pub fn around(uuid: &str, devices: Vec<LiveDevice>) -> Stack {
        let (mut stack, mut rest): (Vec<_>, Vec<_>) =
            devices.into_iter().partition(|device| device.is_of(uuid));
        loop {
            let touches = |other: &LiveDevice| {
                stack.iter().any(|device| device.stands_on(other) || other.stands_on(device))
            };
            let (joined, apart): (Vec<_>, Vec<_>) = rest.into_iter().partition(touches);
            if joined.is_empty() {
                return Stack(stack);
            }
            stack.extend(joined);
            rest = apart;
        }
    }

    /// Returns why one of the devices is on another disk than the metadata describes; `None` if
    /// none is.
    pub fn find_elsewhere(&self, group: &Group, disks: &Disks) -> Option<String> {
        let own: HashSet<DeviceNumber> = self.0.iter().map(|device| device.number).collect();
        let targets = self
            .0
            .iter()
            .flat_map(|device| device.table.iter().map(move |target| (device, target)));
        targets.into_iter().find_map(|(device, target)| {
            let mut outside = target.devices().filter(|number| !own.contains(number)).peekable();
            outside.peek()?;
            let wanted = disks_of(device, target, group, disks)?;
            let number = outside.find(|number| wanted.iter().all(|(now, _)| now != number))?;
            let (now, path) = wanted.first()?;
            Some(format!(
                "its device /dev/dm-{} is on the disk with the number {number}, but the volume is \
                 on {} with the number {now}; see `dmsetup table` and `lsblk`, and stop what uses \
                 the device, so that it is created again",
                device.number.minor,
                path.display()
            ))
        })
    }

    /// The uuids of the devices that no other of them stands on: who holds one of these holds all.
    pub fn tops(&self) -> impl Iterator<Item = &str> {
        let is_top = |device: &&LiveDevice| !self.0.iter().any(|other| other.stands_on(device));
        self.0.iter().filter(is_top).map(|device| device.uuid.as_str())
    }

    /// The uuids of all devices, none before one that stands on it.
    pub fn into_order_of_removal(mut self) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            let tops: HashSet<String> = self.tops().map(str::to_owned).collect();
            if tops.is_empty() {
                return order;
            }
            self.0.retain(|device| !tops.contains(&device.uuid));
            order.extend(tops);
        }
    }
}

/// The disks that the metadata has for a row of a device's table; `None` where one of them is not here.
fn disks_of<'a>(
    device: &LiveDevice,
    row: &DmTarget,
    group: &Group,
    disks: &'a Disks,
) -> Option<Vec<&'a (DeviceNumber, PathBuf)>> {
    let sectors = group.extent_size.get() / SECTOR;
    let owner = group.lvs.values().find(|lv| device.is_of(&group.dm_uuid(lv)));
    let segment = owner.and_then(|lv| {
        lv.segments.iter().find(|segment| {
            let start = segment.start * sectors;
            (start..start + segment.extents * sectors).contains(&row.start)
        })
    });
    match segment.filter(|segment| !segment.pieces.is_empty()) {
        Some(segment) => segment.pieces.iter().map(|piece| disks.get(&piece.pv)).collect(),
        // What the metadata does not know any more is on one of its disks at least.
        None => group.pvs.keys().map(|pv| disks.get(pv)).collect(),
    }
}

impl Group {
    /// Returns whether the bytes of a logical volume are behind hidden devices, or are those of
    /// another one.
    pub(super) fn has_layers(&self, lv: &Lv) -> bool {
        let names_others = lv.segments.iter().any(|segment| !segment.volumes.is_empty());
        names_others || self.has_snapshot(lv) || self.is_snapshot(lv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lvm::metadata::parse_group;

    const OLD: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
    const NEW: DeviceNumber = DeviceNumber { major: 8, minor: 16 };
    const OTHER: DeviceNumber = DeviceNumber { major: 8, minor: 32 };

    /// A group with a mirror, a snapshot and its origin, a volume of two stripes, a plain one, and one that
    /// is being moved, on `pv0` and `pv1`.
    const TEXT: &str = r#"g { id = "Group0-0000-0000-0000-0000-0000-000000" seqno = 1 extent_size = 8192
        status = ["RESIZEABLE", "READ", "WRITE"]
        physical_volumes {
            pv0 { id = "Disk00-0000-0000-0000-0000-0000-000000" status = ["ALLOCATABLE"]
                dev_size = 819200 pe_start = 2048 pe_count = 99 }
            pv1 { id = "Disk11-0000-0000-0000-0000-0000-000000" status = ["ALLOCATABLE"]
                dev_size = 819200 pe_start = 2048 pe_count = 99 }
        }
        logical_volumes {
            mirror { id = "Mirror-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "raid1" raids = ["m_0", "i_0", "m_1", "i_1"] } }
            m_0 { id = "Meta00-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pv0", 0] } }
            m_1 { id = "Meta11-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pv1", 0] } }
            i_0 { id = "Image0-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pv0", 1] } }
            i_1 { id = "Image1-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pv1", 1] } }
            origin { id = "Origin-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pv1", 2] } }
            cow { id = "Store0-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pv0", 2] } }
            snapshot0 { id = "Snap00-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "snapshot" origin = "origin" cow_store = "cow" } }
            striped { id = "Stripe-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 2 type = "striped" stripes = ["pv0", 3, "pv1", 3] } }
            plain { id = "Plain0-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pv0", 4] } }
            moved { id = "Moved0-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "striped" stripes = ["pvmove0", 0] } }
            pvmove0 { id = "Pvmove-0000-0000-0000-0000-0000-000000" segment1 { start_extent = 0
                extent_count = 1 type = "mirror" mirrors = ["pv0", 5, "pv1", 5] } }
        } }"#;

    fn group() -> Group {
        parse_group(TEXT.as_bytes()).unwrap()
    }

    /// The live devices of the group, where `pv0` and `pv1` have these numbers.
    fn devices(pv0: DeviceNumber, pv1: DeviceNumber) -> Vec<LiveDevice> {
        let rows = [
            ("mirror", "", "raid", "raid1 3 0 region_size 1024 2 253:1 253:2 253:3 253:4".into()),
            ("m_0", "-rmeta", "linear", format!("{pv0} 2048")),
            ("i_0", "-rimage", "linear", format!("{pv0} 10240")),
            ("m_1", "-rmeta", "linear", format!("{pv1} 2048")),
            ("i_1", "-rimage", "linear", format!("{pv1} 10240")),
            ("origin", "", "snapshot-origin", "253:6".to_owned()),
            ("origin", "-real", "linear", format!("{pv1} 18432")),
            ("cow", "", "snapshot", "253:6 253:8 P 8".to_owned()),
            ("cow", "-cow", "linear", format!("{pv0} 18432")),
            ("striped", "", "striped", format!("2 128 {pv0} 26624 {pv1} 26624")),
            ("plain", "", "linear", format!("{pv0} 34816")),
            ("moved", "", "linear", "253:12 0".to_owned()),
            ("pvmove0", "", "mirror", format!("core 1 1024 2 {pv0} 43008 {pv1} 43008")),
        ];
        let group = group();
        let device = |(minor, (lv, layer, kind, params)): (u32, (&str, &str, &str, String))| {
            let row = DmTarget { start: 0, length: 8192, kind: kind.to_owned(), params };
            LiveDevice {
                uuid: format!("{}{layer}", group.dm_uuid(&group.lvs[lv])),
                number: DeviceNumber { major: 253, minor },
                table: vec![row],
            }
        };
        (0..).zip(rows).map(device).collect()
    }

    fn stack(lv: &str, devices: Vec<LiveDevice>) -> Stack {
        let group = group();
        Stack::around(&group.dm_uuid(&group.lvs[lv]), devices)
    }

    fn disks() -> Disks {
        let at = |number, path: &str| (number, PathBuf::from(path));
        [("pv0", at(NEW, "/dev/new")), ("pv1", at(OTHER, "/dev/other"))]
            .map(|(name, place)| (name.to_owned(), place))
            .into()
    }

    const VOLUMES: [&str; 6] = ["mirror", "origin", "cow", "striped", "plain", "moved"];

    #[test]
    fn a_disk_is_told_below_each_kind_of_hidden_device() {
        for lv in VOLUMES {
            let right = stack(lv, devices(NEW, OTHER)).find_elsewhere(&group(), &disks());
            assert_eq!(right, None, "{lv}");
            let wrong = stack(lv, devices(OLD, OTHER)).find_elsewhere(&group(), &disks());
            let wrong = wrong.unwrap_or_else(|| panic!("{lv}: it is not told"));
            assert!(
                ["8:0,", "8:16;", "/dev/new"].iter().all(|word| wrong.contains(word)),
                "{wrong}"
            );
        }
        // The disk of another physical volume of the group is another disk too.
        for lv in ["mirror", "origin", "plain"] {
            let swapped = stack(lv, devices(OTHER, NEW)).find_elsewhere(&group(), &disks());
            assert!(swapped.is_some(), "{lv}");
        }
    }

    #[test]
    fn what_is_on_a_disk_that_is_missing_is_told_otherwise() {
        let mut away = disks();
        away.remove("pv0");
        for lv in VOLUMES {
            let told = stack(lv, devices(OLD, OTHER)).find_elsewhere(&group(), &away);
            assert_eq!(told, None, "{lv}");
        }
    }

    #[test]
    fn a_stack_is_all_that_shares_a_device_and_begins_at_its_tops() {
        for (lv, tops, all) in
            [("plain", 1, 1), ("mirror", 1, 5), ("origin", 2, 4), ("cow", 2, 4), ("moved", 1, 2)]
        {
            let stack = stack(lv, devices(OLD, OTHER));
            assert_eq!((stack.tops().count(), stack.0.len()), (tops, all), "{lv}");
            let by_uuid: BTreeMap<String, LiveDevice> =
                stack.0.iter().map(|device| (device.uuid.clone(), device.clone())).collect();
            let order = stack.into_order_of_removal();
            assert_eq!(order.len(), all, "{lv}");
            for (at, uuid) in order.iter().enumerate() {
                let later =
                    order[at..].iter().any(|other| by_uuid[other].stands_on(&by_uuid[uuid]));
                assert!(!later, "{lv}: {order:?}");
            }
        }
    }

    #[test]
    fn the_numbers_in_a_table_are_its_devices() {
        let devices = |params: &str| {
            let row =
                DmTarget { start: 0, length: 1, kind: String::new(), params: params.to_owned() };
            row.devices().map(|number| number.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(devices("8:16 2048"), ["8:16"]);
        assert_eq!(devices("raid1 1 128 2 - 253:1 - 253:2"), ["253:1", "253:2"]);
        assert_eq!(devices("aes-xts-plain64 :64:logon:key 0 8:0 4096"), ["8:0"]);
        assert_eq!(devices(""), [""; 0]);
    }
}
