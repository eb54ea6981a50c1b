//! What the kernel's devices are.

use std::ops::Range;
use std::path::PathBuf;

use nix::libc::EINVAL;
use pliant_lvm::host::{DeviceNumber, HostError};
use pliant_lvm::lvm::{Group, Lv};

use crate::disk::system;

/// The driver number of device-mapper on this machine.
pub(super) const DM_MAJOR: u32 = 254;

/// The driver number of its disks.
pub(super) const DISK_MAJOR: u32 = 259;

pub(super) const SECTOR: u64 = 512;

/// The minor number of devtmpfs; file systems without a disk have the major number 0.
pub(super) const DEVTMPFS: u32 = 5;

/// A device of the kernel.
#[derive(Clone)]
pub(super) struct Device {
    pub name: String,
    pub uuid: String,
    pub minor: u32,
    pub live: Option<Table>,
    pub waiting: Option<Table>,
    pub suspended: bool,
}

/// Where the bytes of a device are, and what the kernel calls that.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub layer: Layer,
    pub rows: Vec<Row>,
}

/// Consecutive bytes of a device on one disk.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub range: Range<u64>,
    pub disk: PathBuf,
    /// The number that the disk had when the table was loaded.
    pub minor: Option<u32>,
    pub at: u64,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Layer {
    Linear,
    /// Over the device `-real` with this dm uuid.
    Origin(String),
    /// Over `-real` and `-cow`; shows the content frozen for the volume with the last uuid.
    Snapshot(String, String, String),
    /// A thin pool over the devices with its metadata and its data.
    Pool {
        meta: String,
        data: String,
    },
    /// The top of a thin pool, which nobody reads.
    OverPool {
        pool: String,
        size: u64,
    },
    /// A thin volume with this uuid in the pool with this dm uuid.
    Thin {
        pool: String,
        volume: String,
        size: u64,
    },
}

impl Layer {
    /// The dm uuids of the devices that it is over.
    pub fn below(&self) -> Vec<&String> {
        match self {
            Layer::Linear => Vec::new(),
            Layer::Origin(real) => vec![real],
            Layer::Snapshot(real, cow, _) => vec![real, cow],
            Layer::Pool { meta, data } => vec![meta, data],
            Layer::OverPool { pool, .. } | Layer::Thin { pool, .. } => vec![pool],
        }
    }
}

impl Table {
    pub fn size(&self) -> u64 {
        match self.layer {
            Layer::OverPool { size, .. } | Layer::Thin { size, .. } => size,
            _ => self.rows.last().map_or(0, |row| row.range.end),
        }
    }
}

impl Device {
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/dm-{}", self.minor))
    }

    pub fn number(&self) -> DeviceNumber {
        DeviceNumber { major: DM_MAJOR, minor: self.minor }
    }

    /// Resume: what waits becomes live.
    pub fn resume(&mut self) -> Result<(), HostError> {
        if let Some(waiting) = self.waiting.take() {
            self.live = Some(waiting);
        }
        if self.live.is_none() {
            return Err(system(format!("DM_DEV_SUSPEND {}", self.name), EINVAL));
        }
        self.suspended = false;
        Ok(())
    }
}

/// The dm name of a logical volume: hyphens doubled.
pub(super) fn dm_name(group: &Group, lv: &str) -> String {
    format!("{}-{}", group.name.replace('-', "--"), lv.replace('-', "--"))
}

/// The table of a logical volume by its segments.
pub(super) fn linear(group: &Group, lv: &Lv) -> Table {
    let extent = group.extent_size.get();
    let rows = lv.segments.iter().map(|segment| {
        let [piece] = segment.pieces.as_slice() else {
            panic!("the fake maps linear volumes only, not {} ({})", lv.name, segment.kind);
        };
        let pv = &group.pvs[&piece.pv];
        let disk = pv.device.clone();
        Row {
            range: segment.start * extent..(segment.start + segment.extents) * extent,
            disk: disk.expect("a group with a missing disk is not activated"),
            minor: None,
            at: pv.pe_start * SECTOR + piece.range.start * extent,
        }
    });
    Table { layer: Layer::Linear, rows: rows.collect() }
}
