//! Disks with a volatile write cache.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use nix::libc::EOPNOTSUPP;
use pliant_lvm::host::{DiskBacking, HostError};
use pliant_lvm::lvm::Group;
use pliant_volume::bytes::Bytes;

use crate::device::{Layer, Table};
use crate::disk::{FakeDisk, Fault, system};
use crate::{FakeHost, World};

impl FakeHost {
    /// Let every read and write of the disk fail with EIO until [`FakeHost::heal_disk`].
    pub fn fail_disk(&self, disk: &Path) {
        self.disk(disk, |disk| disk.fault = Some(Fault::Errors));
    }

    /// Let every call that touches the disk run into its limit, with nothing done.
    pub fn hang_disk(&self, disk: &Path) {
        self.disk(disk, |disk| disk.fault = Some(Fault::Hangs));
    }

    /// Pull the disk out: it is not listed any more, volumes on it fail with EIO.
    pub fn remove_disk(&self, disk: &Path) {
        self.disk(disk, |disk| disk.fault = Some(Fault::Gone));
    }

    /// End what [`FakeHost::fail_disk`], [`FakeHost::hang_disk`], [`FakeHost::remove_disk`] began.
    pub fn heal_disk(&self, disk: &Path) {
        self.disk(disk, |disk| disk.fault = None);
    }

    /// Put a disk back that was pulled out, under another number. What lay on it before stays on the
    /// number that is gone, and fails.
    pub fn move_disk(&self, disk: &Path, minor: u32) {
        self.disk(disk, |disk| (disk.minor, disk.fault) = (minor, None));
    }

    /// Let something take a disk and show what is on it, as multipath does with the paths of one: the disk
    /// itself can still be read, and is no longer listed. Says where it is now.
    pub fn stack_on_disk(&self, disk: &Path) -> PathBuf {
        let top = self.add_disk(Bytes::ZERO);
        let mut world = self.lock();
        let minor = world.disks[&top].minor;
        let mut shown = world.disks[disk].clone();
        shown.minor = minor;
        world.disks.insert(top.clone(), shown);
        world.disks.entry(disk.to_owned()).and_modify(|disk| disk.is_below = true);
        top
    }

    /// Let a disk be one whose bytes are elsewhere.
    pub fn set_source(&self, disk: &Path, source: DiskBacking) {
        self.disk(disk, |disk| disk.source = source);
    }

    /// Write onto a disk, as whoever can write to it may, that it alone carries the group of this name,
    /// at a sequence number that none has reached and without volumes; `change` makes it what it is to
    /// say.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn forge(&self, disk: &Path, name: &str, change: impl FnOnce(&mut Group)) {
        let mut world = self.lock();
        let mut group = world.groups(None).remove(name).expect("a group");
        let pv = world.new_pv(disk);
        world.label(disk, &pv);
        group.seqno = 999_999;
        group.lvs.clear();
        group.pvs = BTreeMap::from([("pv0".to_owned(), pv)]);
        change(&mut group);
        world.commit(disk, &group);
        let disk = world.disks.get_mut(disk).expect("a known disk");
        disk.forged = true;
        disk.flush();
    }

    /// Let the kernel refuse writes to the disk with EROFS, or take them again.
    pub fn set_read_only(&self, disk: &Path, read_only: bool) {
        self.disk(disk, |disk| disk.read_only = read_only);
    }

    /// Say whether discarded bytes read as zeroes; they stay as they were unless this says so.
    pub fn set_discard_zeroes(&self, disk: &Path, zeroes: bool) {
        self.disk(disk, |disk| disk.discard_zeroes = zeroes);
    }

    /// Let the disk know no discard, as most that turn do not.
    pub fn set_no_discard(&self, disk: &Path) {
        self.disk(disk, |disk| disk.no_discard = true);
    }

    /// Say what the disk reads and writes at least, and what it prefers to write at once.
    pub fn set_blocks(&self, disk: &Path, logical_block: Bytes, optimal_io: Bytes) {
        self.disk(disk, |disk| (disk.logical_block, disk.optimal_io) = (logical_block, optimal_io));
    }

    fn disk(&self, disk: &Path, change: impl FnOnce(&mut FakeDisk)) {
        let mut world = self.lock();
        let found = world.disks.get_mut(disk);
        change(found.unwrap_or_else(|| panic!("there is no disk {}", disk.display())));
    }
}

/// A run of bytes of a disk.
pub(super) type Place = (PathBuf, Range<u64>);

impl World {
    /// Read through a disk or a device; short only at its end.
    pub fn read(&self, device: &Path, offset: u64, length: u64) -> Result<Vec<u8>, HostError> {
        let what = format!("read {}", device.display());
        let size = self.size_of(device)?.get();
        let range = offset.min(size)..offset.saturating_add(length).min(size);
        if let Some(frozen) = self.frozen_of(device) {
            return Ok(frozen.read(range.start, range.end - range.start));
        }
        if let Some(bytes) = self.read_thin(device, &range, &what)? {
            return Ok(bytes);
        }
        let mut bytes = Vec::new();
        for (disk, part) in self.places(device, range, &what)? {
            let disk = &self.disks[&disk];
            disk.may_read(&what)?;
            bytes.append(&mut disk.content().read(part.start, part.end - part.start));
        }
        Ok(bytes)
    }

    /// The parts of a range that hold more than zeroes: where in the device, and their bytes. The rest is not read.
    pub fn held_in(
        &self,
        device: &Path,
        range: &Range<u64>,
    ) -> Result<BTreeMap<u64, Vec<u8>>, HostError> {
        let what = format!("read {}", device.display());
        let known = if let Some(frozen) = self.frozen_of(device) {
            frozen.known(range)
        } else if let Some(known) = self.known_of_thin(device, range) {
            known
        } else {
            let (mut known, mut next) = (Vec::new(), range.start);
            for (disk, part) in self.places(device, range.clone(), &what)? {
                let disk = &self.disks[&disk];
                disk.may_read(&what)?;
                let bytes = disk.content().known(&part).into_iter();
                known.extend(bytes.map(|(at, bytes)| (at - part.start + next, bytes)));
                next += part.end - part.start;
            }
            known
        };
        let holds = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        Ok(known.into_iter().filter(|(_, bytes)| holds(bytes)).collect())
    }

    pub fn write(&mut self, device: &Path, offset: u64, mut bytes: &[u8]) -> Result<(), HostError> {
        let what = format!("write {}", device.display());
        if let Some(frozen) = self.frozen_of_mut(device) {
            frozen.write(offset, bytes);
            return Ok(());
        }
        for (disk, part) in
            self.places_to_write(device, offset..offset + bytes.len() as u64, &what)?
        {
            let disk = self.disks.get_mut(&disk).expect("a place is on a disk");
            disk.may_write(&what)?;
            let length = usize::try_from(part.end - part.start).expect("part of a slice");
            let (now, rest) = bytes.split_at(length);
            disk.write(part.start, now);
            bytes = rest;
        }
        Ok(())
    }

    pub fn zero(&mut self, device: &Path, range: Range<u64>, what: &str) -> Result<(), HostError> {
        for (disk, part) in self.places_to_write(device, range, what)? {
            let disk = self.disks.get_mut(&disk).expect("a place is on a disk");
            disk.may_write(what)?;
            disk.zero(part);
        }
        Ok(())
    }

    pub fn discard(&mut self, device: &Path, range: Range<u64>) -> Result<(), HostError> {
        let what = format!("BLKDISCARD {}", device.display());
        if self.discard_thin(device, &range) {
            return Ok(());
        }
        for (disk, part) in self.places(device, range, &what)? {
            let disk = self.disks.get_mut(&disk).expect("a place is on a disk");
            disk.may_write(&what)?;
            if disk.no_discard {
                return Err(system(what, EOPNOTSUPP));
            }
            if disk.discard_zeroes {
                disk.zero(part);
            }
        }
        Ok(())
    }

    pub fn flush(&mut self, device: &Path) -> Result<(), HostError> {
        let what = format!("fsync {}", device.display());
        let size = self.size_of(device)?.get();
        let below = match self.device_at(device).and_then(|device| device.live.as_ref()) {
            Some(Table { layer: Layer::Thin { pool, .. }, .. }) => self.devices.get(pool),
            _ => None,
        };
        let (device, size) = match below {
            Some(pool) => (pool.path(), pool.live.as_ref().map_or(0, Table::size)),
            None => (device.to_owned(), size),
        };
        for (disk, _) in self.places(&device, 0..size, &what)? {
            let disk = self.disks.get_mut(&disk).expect("a place is on a disk");
            disk.may_read(&what)?;
            disk.flush();
        }
        self.commit_thin();
        Ok(())
    }

    /// Where a range of a disk or device is written.
    fn places_to_write(
        &mut self,
        device: &Path,
        range: Range<u64>,
        what: &str,
    ) -> Result<Vec<Place>, HostError> {
        let places = self.places(device, range.clone(), what)?; // Whether it may be written at all.
        Ok(self.give_thin(device, &range, what)?.unwrap_or(places))
    }
}
