//! The steps of LVM commands: between two of them a killed command stops.

use std::fmt;
use std::path::PathBuf;

use pliant_lvm::lvm::group::{Group, PhysicalVolume};

use crate::World;
use crate::device::Table;

/// One change that an LVM command makes.
pub(super) enum Step {
    /// Initialise a physical volume.
    Label { disk: PathBuf, pv: PhysicalVolume },
    /// Write a group to one of its disks.
    Commit { disk: PathBuf, group: Group },
    /// Make a device without a table.
    Make { name: String, uuid: String },
    /// Load a table that waits.
    Load { uuid: String, table: Table },
    /// Hold back I/O.
    Suspend { uuid: String },
    /// Let I/O go on, with the table that waits.
    Resume { uuid: String },
    /// Remove a device.
    Remove { uuid: String },
    /// Keep what an origin's bytes are now, for a snapshot's volume.
    Freeze { volume: String, origin: Table },
    /// Put back what was kept.
    Thaw { volume: String, origin: Table },
    /// Let a thin pool work.
    StartThinPool { pool: String, chunk: u64, zeroes: bool, mark: u32 },
    /// Let a thin snapshot have all chunks of its origin.
    Share { pool: String, from: String, to: String },
    /// Let a thin pool send an event again.
    Mark { pool: String, mark: u32 },
    /// Take back all chunks of a thin volume.
    DropThin { pool: String, volume: String },
}

impl Step {
    pub fn apply(self, world: &mut World) {
        match self {
            Step::Label { disk, pv } => world.label(&disk, &pv),
            Step::Commit { disk, group } => world.commit(&disk, &group),
            Step::Make { name, uuid } => {
                world.new_device(name, uuid);
            }
            Step::Load { uuid, mut table } => {
                for row in &mut table.rows {
                    row.minor = Some(world.disks[&row.disk].minor);
                }
                let device = world.devices.get_mut(&uuid);
                device.expect("a device is made first").waiting = Some(table);
            }
            Step::Suspend { uuid } => {
                let device = world.devices.get_mut(&uuid);
                device.expect("a device is made first").suspended = true;
            }
            Step::Resume { uuid } => {
                let device = world.devices.get_mut(&uuid);
                let resumed = device.map(crate::device::Device::resume);
                assert!(matches!(resumed, Some(Ok(()))), "{uuid} has no table");
            }
            Step::Remove { uuid } => {
                world.devices.remove(&uuid);
            }
            Step::Freeze { volume, origin } => world.freeze(volume, &origin),
            Step::Thaw { volume, origin } => world.thaw(&volume, &origin),
            Step::StartThinPool { pool, chunk, zeroes, mark } => {
                let its = world.thin_pools.entry(pool.clone()).or_default();
                (its.chunk, its.zeroes) = (chunk, zeroes);
                world.renew_mark(&pool, mark);
            }
            Step::Share { pool, from, to } => world.share_thin(&pool, &from, &to),
            Step::Mark { pool, mark } => world.renew_mark(&pool, mark),
            Step::DropThin { pool, volume } => world.drop_thin(&pool, &volume),
        }
    }
}

/// A commit: one step for each disk of the group.
pub(super) fn commit(mut group: Group) -> Vec<Step> {
    group.seqno += 1;
    let disks: Vec<PathBuf> = group.pvs.values().filter_map(|pv| pv.device.clone()).collect();
    let commit = |disk| Step::Commit { disk, group: group.clone() };
    disks.into_iter().map(commit).collect()
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Label { disk, .. } => write!(f, "label {}", disk.display()),
            Step::Commit { disk, .. } => write!(f, "commit on {}", disk.display()),
            Step::Make { name, .. } => write!(f, "make device {name}"),
            Step::Load { .. } => f.write_str("load table"),
            Step::Suspend { .. } => f.write_str("suspend"),
            Step::Resume { .. } => f.write_str("resume"),
            Step::Remove { .. } => f.write_str("remove device"),
            Step::Freeze { .. } => f.write_str("begin snapshot"),
            Step::Thaw { .. } => f.write_str("copy back"),
            Step::StartThinPool { .. } => f.write_str("start thin pool"),
            Step::Share { .. } => f.write_str("begin thin snapshot"),
            Step::Mark { .. } => f.write_str("set the mark of the thin pool"),
            Step::DropThin { .. } => f.write_str("drop thin volume"),
        }
    }
}
