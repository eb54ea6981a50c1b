//! The volumes of a cluster: a controller, node plugins on machines in memory, and an API server in memory
//! between them.

mod api_server;
mod bad_objects;
mod bad_watches;
mod bounds;
mod capacities;
mod commands;
mod costs;
mod crash_points;
mod edits;
mod events;
mod gone;
mod joins;
mod leads;
mod life;
mod node_plugins;
mod nudges;
mod outage;
mod panics;
mod people;
mod pools;
mod registration;
mod snapshots;
mod socket;
mod swaps;
#[path = "../tally/mod.rs"]
mod tally;
mod topologies;
mod transfers;
mod unknown;
mod usages;
mod world;

/// Run `work` in a time of its own, which passes when all wait.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(work)
}
