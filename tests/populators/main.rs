//! Claims that are filled: the operator, an API server in memory, and what of Kubernetes has to do with
//! claims: a controller of volumes, a provisioner, a scheduler and kubelets that are played.

mod conditions;
mod crash_points;
#[path = "../tally/exhaustive.rs"]
mod exhaustive;
mod faults;
mod fences;
mod fills;
#[allow(dead_code)] // Each of the two programs plays something that the other does not.
#[path = "../play/mod.rs"]
mod play;
#[path = "../tally/mod.rs"]
mod tally;
mod tenants;
mod validator;
mod world;

/// Run `work` in a time of its own, which passes when all wait.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(work)
}
