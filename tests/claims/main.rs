//! Claims of workloads: the operator, an API server in memory, and what of Kubernetes has to do with
//! claims and with StatefulSets, played.

mod admitted;
mod bad_objects;
mod crash_points;
mod deleted;
#[path = "../tally/exhaustive.rs"]
mod exhaustive;
mod fences;
mod go_back;
mod hot;
mod in_place;
mod keeps;
mod many;
mod meddled;
#[allow(dead_code)] // Each of the two programs plays something that the other does not.
#[path = "../play/mod.rs"]
mod play;
mod preflight;
mod same_name;
mod sizes;
mod stalled;
mod swaps;
#[path = "../tally/mod.rs"]
mod tally;
mod workloads;
mod world;

/// Run `work` in a time of its own, which passes when all wait.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(work)
}
