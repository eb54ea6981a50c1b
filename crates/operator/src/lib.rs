//! What the operator does in a cluster: it populates claims, keeps the claims of workloads as their templates have them,
//! and gives pods their claims as they are made.

pub mod autoscaler; // how large a claim should be, by its usage
pub mod claims; // keeps the claims of workloads as their templates have them
pub mod populators;
pub mod webhook; // gives pods their claims as they are made // fills claims from what they name

// The crates, under the names that the modules here call them by.
use pliant_copy::{certificates, remote};
use pliant_k8s::{api, cluster, error_chain};
use pliant_volume as volume;
use pliant_volume::{bytes, panics};
