//! What a claim says of itself.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::runtime::{WatchStreamExt, watcher};
use tokio_stream::StreamExt;

use crate::world::World;

/// The size that it has, as the API server tells it.
pub fn capacity(claim: &PersistentVolumeClaim) -> String {
    let capacity =
        claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    capacity.map(|size| size.0.clone()).unwrap_or_default()
}

/// The conditions that hold.
pub fn conditions(claim: &PersistentVolumeClaim) -> Vec<String> {
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|one| one.status == "True").map(|one| one.type_.clone()).collect()
}

/// What is told of the resize under way, such as `ControllerResizeInfeasible`.
pub fn resize(claim: &PersistentVolumeClaim) -> Option<String> {
    claim.status.as_ref()?.allocated_resource_statuses.as_ref()?.get("storage").cloned()
}

/// What a claim tells of its growth, in the order in which it is told: its size, how far the growth is,
/// and the conditions that hold.
pub type Told = (String, Option<String>, Vec<String>);

/// Edit the size of a claim, and see all that it tells until it has it.
pub async fn told_while_it_grows(world: &World, name: &str, size: &str) -> Vec<Told> {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let claims = watcher(world.api::<PersistentVolumeClaim>(), only).applied_objects();
    let mut claims = std::pin::pin!(claims.default_backoff());
    let mut told: Vec<Told> = Vec::new();
    while let Some(claim) = claims.next().await {
        let claim = claim.expect("nobody disturbs the API server");
        let now = (capacity(&claim), resize(&claim), conditions(&claim));
        if told.is_empty() {
            world.resize(name, size).await.unwrap();
        }
        if told.last() != Some(&now) {
            told.push(now);
        }
        if capacity(&claim) == size && resize(&claim).is_none() && conditions(&claim).is_empty() {
            return told;
        }
    }
    unreachable!("the watch has ended")
}

/// The same, as it is written in a test.
pub fn told(size: &str, resize: &str, conditions: &[&str]) -> Told {
    let resize = (!resize.is_empty()).then(|| resize.to_owned());
    (size.to_owned(), resize, conditions.iter().map(|one| (*one).to_owned()).collect())
}
