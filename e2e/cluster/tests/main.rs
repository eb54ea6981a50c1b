//! Claims on a real Kubernetes: grown, filled, moved out of the way of failures. `e2e/cluster/test`
//! starts the cluster, installs the chart and runs this.
//!
//! Each test has a namespace of its own, waits on what the API server tells, and shows the events of
//! its namespace and the logs of the driver when it fails.

#![allow(
    clippy::disallowed_methods, // kubectl is a program, and no part of the product.
    clippy::large_futures // They run once each.
)]

mod autoscaler;
mod bench;
mod calls;
mod claim;
mod deaths;
#[path = "../../../tests/tally/dice.rs"]
mod dice;
#[path = "../../../tests/tally/exhaustive.rs"]
mod exhaustive;
mod expansion;
mod faults;
mod fetches;
#[path = "../../../tests/tally/figures.rs"]
mod figures;
mod foreign;
mod hazards;
mod hostile;
mod in_place;
mod metrics;
mod moves;
mod nodes;
mod outages;
mod people;
mod pools;
mod populators;
mod postgresql;
mod registry;
#[path = "../../../tests/repository/mod.rs"]
mod repository;
mod room;
mod sizes;
mod snapshots;
mod storm;
mod swap_storm;
mod thin;
mod tutorials;
mod two_templates;
mod upgrade;
mod webhook;
mod workloads;
mod world;
