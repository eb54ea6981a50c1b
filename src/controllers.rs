//! The control loops: each observes, plans and applies, without leader election.
//!
//! On a node, [`node_plugin`] executes the VolumeRequests for it, [`storage`] publishes its storage,
//! [`sampling`] the usage of its volumes, [`sends`] permits other nodes to read volumes of it, and [`pools::follow`] applies the StoragePools for it. In
//! the controller, [`pools`] computes the nodes of each pool, [`request_gc`] deletes finished
//! VolumeRequests, [`nodes`] deletes the NodeStorage objects of removed nodes, and [`events`]
//! writes events. In the operator, which watches claims, [`resync`] notifies the resizer of edits
//! that it missed, and [`topology`] reports claims whose class fits no node. Every replica of the
//! controller runs its loops, as a repeated effect changes nothing.

use std::time::Duration;

use tracing::Instrument;

use crate::cluster::{caught_in_time, reconcile};
use crate::error_chain;

mod conditions;
pub mod events;
pub mod node_plugin;
pub mod nodes;
pub mod pools;
pub mod request_gc;
pub mod resync;
pub mod sampling;
pub mod sends;
pub mod storage;
pub mod topology;
mod usage;

/// Does the work for one object of a loop; true if it is done. An error, a panic or a call that hangs is that object's:
/// the loop goes on with the others.
async fn is_done(
    in_loop: &'static str,
    object: &str,
    work: impl Future<Output = Result<(), kube::Error>>,
) -> bool {
    let told = async {
        let error = match caught_in_time(in_loop, work).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error_chain::in_full(&error),
            Err(why) => why.to_string(),
        };
        tracing::warn!(error, "failed to reconcile an object; retrying");
        false
    };
    told.instrument(reconcile(in_loop, object)).await
}

/// Waits so long; without a time, for ever.
async fn until(next: Option<Duration>) {
    match next {
        Some(next) => tokio::time::sleep(next).await,
        None => std::future::pending().await,
    }
}
