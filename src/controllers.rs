//! The loops: each observes, plans and applies, and asks nobody whether it is its turn.
//!
//! On a node, [`agent`] carries out the requests for it, [`storage`] tells what it has, [`usage`] how
//! full that is, and [`pools::follow`] makes its pools those that the administrator wants. In the
//! controller, [`pools`] says which nodes a pool is for, [`cleaner`] removes requests that have ended,
//! [`nodes`] the records of nodes that are gone, and [`events`] tells people what has happened. In the
//! operator, which watches claims, [`nudge`] wakes the resizer for edits that it has missed, and [`topology`]
//! says on claims that no node fits their class. Every replica of the controller runs its loops: an effect that another one had already is none.

use std::time::Duration;

use tracing::Instrument;

use crate::causes;
use crate::cluster::{caught_in_time, reconcile};

pub mod agent;
pub mod cleaner;
mod conditions;
pub mod events;
pub mod nodes;
pub mod nudge;
pub mod pools;
pub mod storage;
pub mod topology;
pub mod usage;

/// Do the work for one object of a loop; true if it is done. An error, a panic or a call that hangs is that object's:
/// the loop goes on with the others.
async fn is_done(
    in_loop: &'static str,
    object: &str,
    work: impl Future<Output = Result<(), kube::Error>>,
) -> bool {
    let told = async {
        let error = match caught_in_time(in_loop, work).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => causes::in_full(&error),
            Err(why) => why.to_string(),
        };
        tracing::warn!(error, "the work for an object is not done yet");
        false
    };
    told.instrument(reconcile(in_loop, object)).await
}

/// Wait so long; without a time, for ever.
async fn until(next: Option<Duration>) {
    match next {
        Some(next) => tokio::time::sleep(next).await,
        None => std::future::pending().await,
    }
}
