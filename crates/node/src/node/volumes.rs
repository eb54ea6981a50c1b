//! The operations on volumes, one line each.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::node::Node;
use crate::node::create::ensure_volume;
use crate::node::fence::fence_volume;
use crate::node::find::must_find;
use crate::node::free_space::capacity_of;
use crate::node::grow::grow_volume;
use crate::node::inspect::inspect_volume;
use crate::node::publish::{expand_volume, publish_volume, unpublish_volume};
use crate::node::remove::remove_volume;
use crate::node::shrink::{release_volume, shrink_volume};
use crate::node::snapshots::{
    ensure_snapshot, find_snapshot, list_snapshots, remove_snapshot, snapshot,
};
use crate::node::stage::{stage_volume, unstage_volume};
use crate::node::stats::{
    describe, health_of, health_of_pools, list_volumes, look, stats_of, volume,
};
use crate::node::transfers::{Peers, RemoteSource};
use crate::volume::{
    Capacity, CapacityQuery, Fence, Grown, Growth, Inspection, Listing, NewSnapshot, NewVolume,
    NodeInfo, NodeVolumes, Page, PoolAilment, Publish, Snapshot, SnapshotId, SnapshotListing,
    SnapshotPage, Snapshots, Stage, Stats, Volume, VolumeCondition, VolumeError, VolumeId,
    VolumeStatus, Volumes,
};

/// Says once how the node plugins of other nodes are reached.
pub fn join_peers(node: &Node, peers: Arc<dyn Peers>) {
    let _ = node.peers.set(peers);
}

/// How the node plugins of other nodes are reached; `None` if they are not.
pub fn peers(node: &Node) -> Option<&Arc<dyn Peers>> {
    node.peers.get()
}

/// As [`Volumes::ensure`] of a node, with the content of what another node has.
///
/// # Errors
/// As there; [`VolumeError::Unavailable`] if the content did not come: a repeated call goes on.
pub async fn receive(
    node: &Node,
    want: &NewVolume,
    source: &RemoteSource,
) -> Result<Volume, VolumeError> {
    Ok(volume(node, &ensure_volume(node, want, Some(source)).await?))
}

#[async_trait]
impl Volumes for Node {
    async fn ensure(&self, want: &NewVolume) -> Result<Volume, VolumeError> {
        Ok(volume(self, &ensure_volume(self, want, None).await?))
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        remove_volume(self, id).await
    }

    async fn grow(&self, id: &VolumeId, growth: Growth) -> Result<Grown, VolumeError> {
        let grown = grow_volume(self, id, growth).await;
        self.outcomes.count(&grown);
        grown
    }

    async fn shrink(&self, id: &VolumeId, to: Bytes) -> Result<Bytes, VolumeError> {
        shrink_volume(self, id, to).await
    }

    async fn release(&self, id: &VolumeId) -> Result<(), VolumeError> {
        release_volume(self, id).await
    }

    async fn fence(&self, id: &VolumeId, fence: Fence) -> Result<(), VolumeError> {
        fence_volume(self, id, fence).await
    }

    async fn inspect(&self, id: &VolumeId) -> Result<Option<Inspection>, VolumeError> {
        inspect_volume(self, id).await
    }

    async fn find(&self, id: &VolumeId) -> Result<Option<VolumeStatus>, VolumeError> {
        match must_find(self, id).await {
            Ok(found) => Ok(Some(describe(self, &found, &look(self).await?))),
            Err(VolumeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, page: &Page) -> Result<Listing, VolumeError> {
        Ok(page.cut(list_volumes(self).await?))
    }

    async fn capacity(&self, query: &CapacityQuery) -> Result<Capacity, VolumeError> {
        capacity_of(self, query).await
    }
}

#[async_trait]
impl Snapshots for Node {
    async fn ensure_snapshot(&self, want: &NewSnapshot) -> Result<Snapshot, VolumeError> {
        Ok(snapshot(self, &ensure_snapshot(self, want).await?))
    }

    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError> {
        remove_snapshot(self, id).await
    }

    async fn find_snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, VolumeError> {
        Ok(find_snapshot(self, id).await?.map(|found| snapshot(self, &found)))
    }

    async fn list_snapshots(&self, page: &SnapshotPage) -> Result<SnapshotListing, VolumeError> {
        Ok(page.cut(list_snapshots(self).await?))
    }
}

#[async_trait]
impl NodeVolumes for Node {
    async fn stage(&self, stage: &Stage) -> Result<(), VolumeError> {
        stage_volume(self, stage).await
    }

    async fn unstage(&self, id: &VolumeId, staging: &Path) -> Result<(), VolumeError> {
        unstage_volume(self, id, staging).await
    }

    async fn publish(&self, publish: &Publish) -> Result<(), VolumeError> {
        publish_volume(self, publish).await
    }

    async fn unpublish(&self, id: &VolumeId, target: &Path) -> Result<(), VolumeError> {
        unpublish_volume(self, id, target).await
    }

    async fn expand(
        &self,
        id: &VolumeId,
        path: &Path,
        growth: Option<Growth>,
    ) -> Result<Bytes, VolumeError> {
        expand_volume(self, id, path, growth).await
    }

    async fn stats(&self, id: &VolumeId, path: &Path) -> Result<Stats, VolumeError> {
        stats_of(self, id, path).await
    }

    async fn volume_health(&self, id: &VolumeId) -> Result<Vec<VolumeCondition>, VolumeError> {
        health_of(self, id).await
    }

    async fn storage_health(&self) -> Vec<PoolAilment> {
        health_of_pools(self).await
    }

    fn info(&self) -> NodeInfo {
        NodeInfo {
            name: self.settings.name.clone(),
            max_volumes_per_node: self.settings.max_volumes_per_node,
        }
    }
}
