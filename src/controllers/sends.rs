//! Permits other nodes to read volumes and snapshots of this node, as long as a VolumeRequest says so.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::{Operation, Phase, VolumeRequest};
use crate::cluster::{self, Watched};
use crate::controllers::storage::StorageRecord;
use crate::error_chain;
use crate::node::{Node, SendPermit, set_sends};
use crate::panics::{AFTER_PANIC, caught};
use crate::volume::VolumeId;

/// After a cut that could not be removed.
const AGAIN: Duration = Duration::from_secs(10);

/// Brings the permits in line with the requests for this node, which `watched` has, until `stop`. It begins when the
/// storage was published for the first time: before that, what was made for a request is not seen.
pub async fn follow(
    watched: &Watched<VolumeRequest>,
    node: &Arc<Node>,
    storage: &StorageRecord,
    stop: CancellationToken,
) {
    let followed = async {
        storage.until_published().await;
        watched.known().await;
        let mut news = watched.changes();
        loop {
            news.mark_unchanged();
            let permits = watched.all().iter().filter_map(|request| permit(request)).collect();
            let pause = match caught("sends", set_sends(node, permits)).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => {
                    let error = error_chain::in_full(&error);
                    tracing::warn!(error, "failed to remove a snapshot that was sent; retrying");
                    Some(AGAIN)
                }
                Err(panicked) => {
                    tracing::error!(%panicked, "failed to permit other nodes to read; retrying");
                    Some(AFTER_PANIC)
                }
            };
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = crate::controllers::until(pause) => {}
            }
        }
    };
    stop.run_until_cancelled(followed).await;
}

/// What a request permits. One that has failed permits nothing.
fn permit(request: &VolumeRequest) -> Option<SendPermit> {
    let Operation::Send(send) = &request.spec.operation else { return None };
    let is_refused = request.status_or_default().phase == Phase::Failed;
    if is_refused || request.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let id: VolumeId = request.spec.volume_handle.parse().ok()?;
    // Else it is refused, with the reason.
    let (source, target, _) = cluster::sent(&id, send).ok()?;
    Some(SendPermit { target, source, peer: send.certificate_fingerprint.clone() })
}
