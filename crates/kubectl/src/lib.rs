//! `kubectl pliant`: the commands for people. They explain the state of a cluster, change claims, and recover volumes.
//!
//! A client of the API server, as `kubectl` is one: it decides nothing that the operator decides, and touches no host.

pub mod commands; // what people ask of a cluster

// The crates, under the names that the modules here call them by.
use pliant_k8s::{api, cluster, error_chain};
use pliant_node::doctor;
use pliant_operator::{autoscaler, claims, populators};
use pliant_volume as volume;
use pliant_volume::bytes;
