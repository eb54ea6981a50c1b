//! Samples the usage of volumes; only what matters of it is published.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::controllers::storage::StorageRecord;
use crate::error_chain;
use crate::node::Node;
use crate::panics::{AFTER_PANIC, caught};

/// Shortest period between two samples: the object is written at most once in each.
pub const SHORTEST_PERIOD: Duration = Duration::from_secs(10);

/// Samples the file systems of a node every `period`, and publishes in its NodeStorage what
/// matters, until `stop`.
pub async fn report(
    node: Arc<Node>,
    storage: Arc<StorageRecord>,
    period: Duration,
    stop: CancellationToken,
) {
    let asked = async {
        storage.until_published().await;
        let mut ticks = tokio::time::interval(period.max(SHORTEST_PERIOD));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let told = async {
                match node.sample_usages().await {
                    Ok(usages) => storage.tell_usages(&usages).await,
                    Err(error) => {
                        let error = error_chain::in_full(&error);
                        tracing::warn!(error, "failed to read volume usage");
                    }
                }
            };
            if let Err(panicked) = caught("usages", told).await {
                tracing::error!(%panicked, "failed to publish volume usage; retrying");
                tokio::time::sleep(AFTER_PANIC).await;
            }
        }
    };
    stop.run_until_cancelled(asked).await;
}
