//! Runs the reconcilers of claims until the operator stops.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::claims::context::ClaimsController;
use crate::claims::queue::WorkloadReconciles;
use crate::claims::reconcile::PAUSE;
use crate::claims::unreferenced::clean_up_unreferenced;
use crate::cluster::begun_again;

impl ClaimsController {
    /// Reconciles claims until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let kept = begun_again("pvcautoscalers", async || {
            self.watches.known().await;
            tokio::join!(self.autoscalers.known(), self.sets.known(), self.deployments.known());
            tokio::join!(self.sources.known(), self.cluster.known());
            let mut looks = WorkloadReconciles::of(&self);
            loop {
                looks.begin(&self);
                tokio::time::sleep(PAUSE).await;
                looks.wait().await;
            }
        });
        let both = async { tokio::join!(kept, clean_up_unreferenced(&self)) };
        stop.run_until_cancelled(Box::pin(both)).await;
    }
}
