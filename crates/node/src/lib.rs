//! What one machine does with its volumes: makes, stages, publishes, grows, shrinks, wipes and removes them, and reports
//! them and its pools. [`doctor`] looks at a machine and changes nothing.
//!
//! [`node::Node`] is the trait [`Volumes`](pliant_volume::Volumes) of one machine, and what only a machine can do. It knows
//! neither CSI nor Kubernetes, and touches the machine through [`pliant_lvm`] alone.

pub mod doctor; // looks at a host, changes nothing
pub mod node; // what this host can do with a volume

// Under the names that the modules here call them by.
use pliant_lvm::{fs, host, lvm, mount};
use pliant_volume as volume;
use pliant_volume::{bytes, panics};
