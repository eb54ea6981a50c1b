//! One disk: its content, what is durable of it, and how it fails.

use std::cell::OnceCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nix::libc::{EIO, EROFS};
use pliant_lvm::host::{DiskBacking, HostError};
use pliant_volume::bytes::Bytes;

use crate::pages::{Pages, within_page};
use crate::told::{METADATA_END, Told};

/// What a disk writes whole or not at all, and the grain in which a cut tears long zeroes.
const SECTOR: usize = 512;

const ZERO_GRAIN: u64 = 64 << 10;

pub(super) fn system(what: impl Into<String>, errno: i32) -> HostError {
    HostError::System { what: what.into(), source: io::Error::from_raw_os_error(errno) }
}

pub(super) fn timed_out(what: impl Into<String>) -> HostError {
    HostError::TimedOut { what: what.into(), limit: Duration::from_secs(60) }
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
    pub source: DiskBacking,
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
            source: DiskBacking::Local,
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
