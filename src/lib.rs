//! Pliant: an LVM storage driver for Kubernetes whose volumes grow, shrink and move while they are
//! in use. The map of the house, in the direction of its arrows:
//!
//! `csi` → (`node` | `cluster`) and `controllers` → `lvm`, `fs`, `mount` → `host`

pub mod cli; // subcommands are roles
pub mod config; // the settings file and the flags, checked
pub mod controllers; // the loops: each observes, plans, applies
pub mod metrics; // names, units, help
pub mod run; // the wiring; sees every room
pub mod self_test;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfers; // content between the node plugins // an API server and a host in memory // what `pliant self-test` does, as a client of the driver

// The crates, under the names that the modules here call them by.
pub use pliant_copy::{archive, certificates, copy, remote};
pub use pliant_csi as csi;
pub use pliant_k8s::{api, cluster, error_chain};
pub use pliant_kubectl::commands;
pub use pliant_lvm::{fs, host, lvm, mount};
pub use pliant_node::{doctor, node};
pub use pliant_operator::{autoscaler, claims, populators, webhook};
pub use pliant_volume as volume;
pub use pliant_volume::{bytes, in_flight, panics};
