//! File systems: probe, create, check, grow, shrink. One table lists the tool for each operation
//! and file system.
//!
//! The content of a device and the size of its file system are read from its superblock, never from
//! a cache, an exit code or the text of a tool. A tool only acts, and its success is what a second
//! look sees.

mod check;
mod error;
mod grow;
mod identity;
mod kernel;
mod make;
mod probe;
mod read;
mod run;
mod shrink;
mod stale_signatures;
pub mod superblock;
mod tools;

pub use check::{Check, check};
pub use error::FsError;
pub use grow::{Grew, fills, grow_mounted, grow_unmounted, leave};
pub use identity::give_uuid;
pub use kernel::{Switch, made_without, refusal, switches};
pub use make::{Tried, known_of, make, taken_without, tried};
pub use probe::{Probe, probe};
pub use read::superblock_of;
pub use shrink::{covers, shrink_mounted, shrink_unmounted};
pub use superblock::{FsFacts, Superblock};
pub use tools::{always_mounted_with, driver, grows_online};
