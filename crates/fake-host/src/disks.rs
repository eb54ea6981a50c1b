//! Disks with a volatile write cache.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::libc::{EIO, EOPNOTSUPP, EROFS};

use crate::groups::{METADATA_END, Told};
use crate::{FakeHost, World};
use pliant_lvm::host::{HostError, Source};
use pliant_lvm::lvm::Group;
use pliant_volume::bytes::Bytes;

const PAGE: u64 = 4096;
/// What a disk writes whole or not at all, and the grain in which a cut tears long zeroes.
const SECTOR: usize = 512;
const ZERO_GRAIN: u64 = 64 << 10;

pub(super) fn system(what: impl Into<String>, errno: i32) -> HostError {
    HostError::System { what: what.into(), source: io::Error::from_raw_os_error(errno) }
}

pub(super) fn timed_out(what: impl Into<String>) -> HostError {
    HostError::TimedOut { what: what.into(), limit: Duration::from_secs(60) }
}

/// Sparse content; what was never written is zeroes. Copies share their pages until they are written.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Pages(BTreeMap<u64, Arc<Vec<u8>>>);

impl Pages {
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let range = offset..offset + length;
        let mut bytes = vec![0; usize::try_from(length).expect("it fits in memory")];
        for (page, content) in self.0.range(range.start / PAGE..range.end.div_ceil(PAGE)) {
            let (start, end) = ((page * PAGE).max(range.start), ((page + 1) * PAGE).min(range.end));
            let (_, within) = locate(&(start..end));
            let at = usize::try_from(start - range.start).expect("it fits in memory");
            bytes[at..at + within.len()].copy_from_slice(&content[within]);
        }
        bytes
    }

    pub fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        for part in pages(offset..offset + bytes.len() as u64) {
            let (page, within) = locate(&part);
            let (now, rest) = bytes.split_at(within.len());
            let blank = || Arc::new(vec![0; within_page(PAGE)]);
            let content = Arc::make_mut(self.0.entry(page).or_insert_with(blank));
            content[within].copy_from_slice(now);
            bytes = rest;
        }
    }

    /// What was ever written in a range: where, and the bytes.
    pub fn known(&self, range: &Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let pages = self.0.range(range.start / PAGE..range.end.div_ceil(PAGE));
        let parts = pages.map(|(page, _)| {
            let start = (page * PAGE).max(range.start);
            let end = ((page + 1) * PAGE).min(range.end);
            (start, self.read(start, end - start))
        });
        parts.collect()
    }

    pub fn zero(&mut self, range: &Range<u64>) {
        let known: Vec<u64> = self
            .0
            .range(range.start / PAGE..range.end.div_ceil(PAGE))
            .map(|(page, _)| *page)
            .collect();
        for page in known {
            let start = (page * PAGE).max(range.start);
            let end = ((page + 1) * PAGE).min(range.end);
            if end - start == PAGE {
                self.0.remove(&page);
            } else if let Some(content) = self.0.get_mut(&page) {
                let part = within_page(start - page * PAGE)..within_page(end - page * PAGE);
                Arc::make_mut(content)[part].fill(0);
            }
        }
    }
}

/// Cut a range at the borders of pages.
fn pages(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let start = next;
        next = range.end.min((start / PAGE + 1) * PAGE);
        (start < range.end).then_some(start..next)
    })
}

fn locate(part: &Range<u64>) -> (u64, Range<usize>) {
    let page = part.start / PAGE;
    let base = page * PAGE;
    (page, within_page(part.start - base)..within_page(part.end - base))
}

fn within_page(offset: u64) -> usize {
    usize::try_from(offset).expect("at most a page")
}

#[derive(Clone)]
enum Write {
    Bytes(u64, Vec<u8>),
    Zeroes(Range<u64>),
    /// All or nothing.
    Together(Vec<Write>),
}

impl Write {
    /// The first byte that it touches.
    fn start(&self) -> u64 {
        match self {
            Write::Bytes(offset, _) => *offset,
            Write::Zeroes(range) => range.start,
            Write::Together(writes) => writes.iter().map(Write::start).min().unwrap_or(u64::MAX),
        }
    }

    fn apply(&self, pages: &mut Pages) {
        match self {
            Write::Bytes(offset, bytes) => pages.write(*offset, bytes),
            Write::Zeroes(range) => pages.zero(range),
            Write::Together(writes) => writes.iter().for_each(|write| write.apply(pages)),
        }
    }

    /// The parts that reach the disk each on its own.
    fn parts(self) -> Vec<Write> {
        match self {
            Write::Bytes(offset, bytes) => bytes
                .chunks(SECTOR)
                .zip((offset..).step_by(SECTOR))
                .map(|(sector, offset)| Write::Bytes(offset, sector.to_vec()))
                .collect(),
            Write::Zeroes(range) => range
                .clone()
                .step_by(within_page(ZERO_GRAIN))
                .map(|start| Write::Zeroes(start..range.end.min(start + ZERO_GRAIN)))
                .collect(),
            together @ Write::Together(_) => vec![together],
        }
    }
}

/// Which of the writes that were not flushed outlive a power cut.
pub(super) enum Survivors {
    None,
    /// Those that a generator with this state picks.
    Some(u64),
}

impl Survivors {
    /// splitmix64, one bit at a time.
    fn pick(&mut self) -> bool {
        let Survivors::Some(state) = self else {
            return false;
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }
}

/// What is wrong with a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Errors,
    Hangs,
    Gone,
}

#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is a way in which disks differ.
pub(super) struct FakeDisk {
    pub minor: u32,
    pub size: Bytes,
    pub source: Source,
    /// Whether what it says of LVM is not what LVM of this machine has written.
    pub forged: bool,
    pub read_only: bool,
    pub discard_zeroes: bool,
    pub no_discard: bool,
    pub logical_block: Bytes,
    pub optimal_io: Bytes,
    pub fault: Option<Fault>,
    /// Whether another one shows what is on it.
    pub is_below: bool,
    content: Pages,
    durable: Pages,
    unflushed: Vec<Write>,
    /// What the content says of LVM: reading it anew at each look would take most of a test's time.
    told: OnceCell<Arc<Told>>,
}

impl FakeDisk {
    pub fn new(minor: u32, size: Bytes) -> Self {
        FakeDisk {
            minor,
            size,
            source: Source::Local,
            forged: false,
            read_only: false,
            discard_zeroes: false,
            no_discard: false,
            logical_block: Bytes::new(SECTOR as u64),
            optimal_io: Bytes::ZERO,
            fault: None,
            is_below: false,
            content: Pages::default(),
            durable: Pages::default(),
            unflushed: Vec::new(),
            told: OnceCell::new(),
        }
    }

    /// What the content says of LVM.
    pub fn told(&self) -> &Told {
        self.told.get_or_init(|| Arc::new(Told::by(&self.content)))
    }

    /// The bytes, whatever fault it has.
    pub fn content(&self) -> &Pages {
        &self.content
    }

    pub fn may_read(&self, what: &str) -> Result<(), HostError> {
        match self.fault {
            Some(Fault::Hangs) => Err(timed_out(what)),
            Some(Fault::Errors | Fault::Gone) => Err(system(what, EIO)),
            None => Ok(()),
        }
    }

    pub fn may_write(&self, what: &str) -> Result<(), HostError> {
        self.may_read(what)?;
        if self.read_only {
            return Err(system(what, EROFS));
        }
        Ok(())
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.put(Write::Bytes(offset, bytes.to_vec()));
    }

    /// Write what a power cut keeps or loses as a whole.
    ///
    /// A commit of LVM is played so: LVM sends no flush between its text and its header, so a cache that
    /// turns them round loses the group, and no order of calls by a driver can prevent that.
    pub fn write_together(&mut self, writes: Vec<(u64, Vec<u8>)>) {
        let writes = writes.into_iter();
        let writes = writes.map(|(offset, bytes)| Write::Bytes(offset, bytes));
        self.put(Write::Together(writes.collect()));
    }

    pub fn zero(&mut self, range: Range<u64>) {
        self.put(Write::Zeroes(range));
    }

    fn put(&mut self, write: Write) {
        if write.start() < METADATA_END {
            self.told.take();
        }
        write.apply(&mut self.content);
        self.unflushed.push(write);
    }

    pub fn flush(&mut self) {
        for write in self.unflushed.drain(..) {
            write.apply(&mut self.durable);
        }
    }

    pub fn lose_power(&mut self, survivors: &mut Survivors) {
        if matches!(survivors, Survivors::Some(_)) {
            let parts = self.unflushed.drain(..).flat_map(Write::parts);
            for part in parts.filter(|_| survivors.pick()) {
                part.apply(&mut self.durable);
            }
        }
        self.unflushed.clear();
        self.content = self.durable.clone();
        self.told.take();
    }
}

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
        let shown = FakeDisk { minor, ..world.disks[disk].clone() };
        world.disks.insert(top.clone(), shown);
        world.disks.entry(disk.to_owned()).and_modify(|disk| disk.is_below = true);
        top
    }

    /// Let a disk be one whose bytes are elsewhere.
    pub fn set_source(&self, disk: &Path, source: Source) {
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
        let mut bytes = Vec::new();
        for (disk, part) in self.places(device, range, &what)? {
            let disk = &self.disks[&disk];
            disk.may_read(&what)?;
            bytes.append(&mut disk.content().read(part.start, part.end - part.start));
        }
        Ok(bytes)
    }

    pub fn write(&mut self, device: &Path, offset: u64, mut bytes: &[u8]) -> Result<(), HostError> {
        let what = format!("write {}", device.display());
        if let Some(frozen) = self.frozen_of_mut(device) {
            frozen.write(offset, bytes);
            return Ok(());
        }
        for (disk, part) in self.places(device, offset..offset + bytes.len() as u64, &what)? {
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
        for (disk, part) in self.places(device, range, what)? {
            let disk = self.disks.get_mut(&disk).expect("a place is on a disk");
            disk.may_write(what)?;
            disk.zero(part);
        }
        Ok(())
    }

    pub fn discard(&mut self, device: &Path, range: Range<u64>) -> Result<(), HostError> {
        let what = format!("BLKDISCARD {}", device.display());
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
        for (disk, _) in self.places(device, 0..size, &what)? {
            let disk = self.disks.get_mut(&disk).expect("a place is on a disk");
            disk.may_read(&what)?;
            disk.flush();
        }
        Ok(())
    }
}
