//! Device-mapper devices and their tables.

use std::ops::Range;
use std::path::Path;

use nix::libc::{EBUSY, EINVAL, EIO, ENOENT, ENXIO};
use pliant_lvm::host::{DeviceNumber, DmDevice, DmInfo, DmTarget, HostError};
use pliant_volume::bytes::Bytes;

use crate::World;
use crate::device::{DISK_MAJOR, Device, Layer, Row, SECTOR, Table};
use crate::disk::{Fault, system, timed_out};
use crate::disks::Place;
use crate::pages::Pages;

impl World {
    /// A new device without a table.
    pub fn new_device(&mut self, name: String, uuid: String) -> &mut Device {
        let taken = |minor: &u32| self.devices.values().any(|device| device.minor == *minor);
        let minor = (0..u32::MAX).find(|minor| !taken(minor)).expect("few devices");
        let device =
            Device { name, uuid: uuid.clone(), minor, live: None, waiting: None, suspended: false };
        self.devices.entry(uuid).or_insert(device)
    }

    pub fn device_at(&self, path: &Path) -> Option<&Device> {
        self.devices.values().find(|device| device.path() == path)
    }

    /// The number of a disk or device by its node's path.
    pub fn number_of(&self, path: &Path) -> Option<DeviceNumber> {
        let disk =
            self.disks.get(path).map(|disk| DeviceNumber { major: DISK_MAJOR, minor: disk.minor });
        disk.or_else(|| self.device_at(path).map(Device::number))
    }

    pub fn size_of(&self, path: &Path) -> Result<Bytes, HostError> {
        let absent = || system(format!("open {}", path.display()), ENOENT);
        if let Some(disk) = self.disks.get(path) {
            let there = disk.fault != Some(Fault::Gone);
            return there.then_some(disk.size).ok_or_else(absent);
        }
        let device = self.device_at(path).ok_or_else(absent)?;
        Ok(Bytes::new(device.live.as_ref().map_or(0, Table::size)))
    }

    /// Where a range of a disk or device lies.
    pub fn places(
        &self,
        path: &Path,
        range: Range<u64>,
        what: &str,
    ) -> Result<Vec<Place>, HostError> {
        if range.end > self.size_of(path)?.get() {
            return Err(system(what, EINVAL));
        }
        let Some(device) = self.device_at(path) else {
            return Ok(vec![(path.to_owned(), range)]);
        };
        if self.waits(device) {
            return Err(timed_out(what));
        }
        let table = device.live.as_ref().ok_or_else(|| system(what, EIO))?;
        let has_moved =
            |row: &Row| row.minor.is_some_and(|minor| minor != self.disks[&row.disk].minor);
        if table.rows.iter().any(has_moved) {
            return Err(system(what, EIO));
        }
        let parts = table.rows.iter().filter_map(|row| {
            let part = row.range.start.max(range.start)..row.range.end.min(range.end);
            let shift = |offset: u64| offset - row.range.start + row.at;
            (part.start < part.end).then(|| (row.disk.clone(), shift(part.start)..shift(part.end)))
        });
        Ok(parts.collect())
    }

    /// Whether what is sent to it waits: it or a layer below it is suspended.
    fn waits(&self, device: &Device) -> bool {
        let below = device.live.iter().flat_map(|table| table.layer.below());
        device.suspended || below.filter_map(|uuid| self.devices.get(uuid)).any(|b| self.waits(b))
    }

    fn frozen_uuid(&self, path: &Path) -> Option<String> {
        match self.device_at(path)?.live.as_ref()?.layer {
            Layer::Snapshot(_, _, ref uuid) => Some(uuid.clone()),
            _ => None,
        }
    }

    /// The content of a snapshot's device.
    pub fn frozen_of(&self, path: &Path) -> Option<&Pages> {
        self.frozen.get(&self.frozen_uuid(path)?)
    }

    pub fn frozen_of_mut(&mut self, path: &Path) -> Option<&mut Pages> {
        let uuid = self.frozen_uuid(path)?;
        self.frozen.get_mut(&uuid)
    }

    /// How many hold it: processes, layers above, and its file system if it is mounted at all.
    pub fn open_count(&self, device: &Device) -> u32 {
        self.used_count(device) + self.held.get(&device.path()).copied().unwrap_or(0)
    }

    /// How many hold it open but the driver itself.
    pub fn used_count(&self, device: &Device) -> u32 {
        let mounted = self.mounts.iter().any(|mount| mount.device == device.number());
        let above = self.devices.values().any(|other| {
            let tables = other.live.iter().chain(&other.waiting);
            tables.into_iter().any(|table| table.layer.below().contains(&&device.uuid))
        });
        let processes = self.openers.get(&device.path()).copied().unwrap_or(0);
        let stacked = self.holders.get(&device.path()).map_or(0, |_| 1);
        processes + u32::from(mounted) + u32::from(above) + stacked
    }

    pub fn dm_devices(&self) -> Vec<DmDevice> {
        let devices = self.devices.values().map(|device| DmDevice {
            name: device.name.clone(),
            uuid: device.uuid.clone(),
            number: device.number(),
        });
        devices.collect()
    }

    pub fn dm_info(&self, uuid: &str) -> Option<DmInfo> {
        let device = self.devices.get(uuid)?;
        Some(DmInfo {
            number: device.number(),
            open_count: self.open_count(device),
            suspended: device.suspended,
            live_table: device.live.is_some(),
            inactive_table: device.waiting.is_some(),
            read_only: false,
            events: self.thin_pools.get(uuid).map_or(0, |pool| pool.events),
        })
    }

    /// The live table as the kernel prints it.
    pub fn dm_table(&self, uuid: &str) -> Vec<DmTarget> {
        let live = self.devices.get(uuid).and_then(|device| device.live.as_ref());
        let Some(table) = live else {
            return Vec::new();
        };
        let whole = |kind: &str, params: String| {
            vec![DmTarget {
                start: 0,
                length: table.size() / SECTOR,
                kind: kind.to_owned(),
                params,
            }]
        };
        let number =
            |uuid| self.devices.get(uuid).map_or_else(String::new, |d| d.number().to_string());
        match &table.layer {
            Layer::Origin(real) => whole("snapshot-origin", number(real)),
            Layer::Snapshot(real, cow, _) => {
                whole("snapshot", format!("{} {} P 8", number(real), number(cow)))
            }
            Layer::Linear => table.rows.iter().map(|row| self.linear_target(row)).collect(),
            Layer::Pool { meta, data } => {
                let (chunk, low_water) = self.low_water(uuid);
                let parts = format!("{} {}", number(meta), number(data));
                whole("thin-pool", format!("{parts} {} {low_water} 0", chunk / SECTOR))
            }
            Layer::OverPool { pool, .. } => whole("linear", format!("{} 0", number(pool))),
            Layer::Thin { pool, .. } => whole("thin", format!("{} 1", number(pool))),
        }
    }

    /// The state of the targets as the kernel prints it; of thin pools only.
    pub fn dm_status(&self, uuid: &str) -> Vec<DmTarget> {
        let params = self.thin_status(uuid);
        let table = self.dm_table(uuid).into_iter();
        table.filter_map(|row| Some(DmTarget { params: params.clone()?, ..row })).collect()
    }

    fn linear_target(&self, row: &Row) -> DmTarget {
        let minor = row.minor.unwrap_or(self.disks[&row.disk].minor);
        DmTarget {
            start: row.range.start / SECTOR,
            length: (row.range.end - row.range.start) / SECTOR,
            kind: "linear".to_owned(),
            params: format!("{DISK_MAJOR}:{minor} {}", row.at / SECTOR),
        }
    }

    pub fn dm_clear(&mut self, uuid: &str) -> Result<(), HostError> {
        let device = self.devices.get_mut(uuid);
        device
            .map(|device| device.waiting = None)
            .ok_or_else(|| system(format!("DM_TABLE_CLEAR {uuid}"), ENXIO))
    }

    pub fn dm_resume(&mut self, uuid: &str) -> Result<(), HostError> {
        match self.devices.get_mut(uuid) {
            Some(device) => device.resume(),
            None => Err(system(format!("DM_DEV_SUSPEND {uuid}"), ENXIO)),
        }
    }

    pub fn dm_remove(&mut self, uuid: &str) -> Result<(), HostError> {
        let open = |device| self.open_count(device) > 0;
        if self.devices.get(uuid).is_some_and(open) {
            return Err(system(format!("DM_DEV_REMOVE {uuid}"), EBUSY));
        }
        self.devices.remove(uuid);
        Ok(())
    }
}
