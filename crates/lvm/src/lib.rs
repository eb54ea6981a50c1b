//! What a machine does with volumes, and the only code that touches one: `lvm`, `fs` and `mount` decide what to run and
//! what an answer means; [`host`] runs it, one command or system call at a time.
//!
//! Everything goes through the trait [`Host`](host::Host). The real one is the machine; the crate `pliant-fake-host` is one
//! in memory.

pub mod fs; // probe, make, check, grow file systems
pub mod host; // the only interface to the host
pub mod lvm; // volume groups and logical volumes
pub mod mount; // the mount table

// Under the names that the modules here call them by.
use pliant_volume as volume;
use pliant_volume::bytes;
