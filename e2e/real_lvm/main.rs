//! Tests on real LVM. They make and break disks, so they are ignored unless the throw-away kernel
//! runs them: `e2e/real-lvm`, or all with `make test`.

#![allow(
    clippy::cast_precision_loss,
    clippy::cloned_ref_to_slice_refs,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::many_single_char_names,
    clippy::needless_pass_by_value,
    clippy::similar_names
)] // Matters of taste that make tests longer, not clearer.
#![expect(
    clippy::disallowed_methods,
    reason = "plain commands are what the driver is compared with"
)]

mod bench;
mod copies;
mod csi;
mod driver;
mod faults;
mod formats;
mod groups;
mod growth;
mod isolation;
mod kill_points;
mod log_writes;
mod machine;
mod pools;
mod power_cuts;
mod power_cuts_of_the_driver;
mod promises;
mod scale;
mod scenarios;
mod script;
mod swaps;
mod thin_pools;
mod torn_commits;
mod udev;
mod xfs_copies;

#[path = "../../tests/tally/dice.rs"]
mod dice;
#[path = "../../tests/tally/exhaustive.rs"]
mod exhaustive;
/// Copies here are from one group to another of one machine.
const IS_FAR: bool = false;
#[path = "../../crates/copy/tests/copy/sender.rs"]
mod sender;
#[path = "../../crates/copy/tests/copy/world.rs"]
#[allow(dead_code)] // Of its trees only some are for here.
mod world;
