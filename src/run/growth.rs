//! Counts how growths end, between the protocol and those who can do it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::metrics::{Expanded, Metrics};
use crate::volume::{
    Capacity, CapacityQuery, Grown, Growth, NewVolume, Volume, VolumeError, VolumeId, Volumes,
};

/// Volumes whose growths are counted.
pub struct CountedGrowth {
    volumes: Arc<dyn Volumes>,
    metrics: Metrics,
}

impl CountedGrowth {
    /// Count the growths of these volumes.
    pub fn new(volumes: Arc<dyn Volumes>, metrics: Metrics) -> Self {
        CountedGrowth { volumes, metrics }
    }
}

#[async_trait]
impl Volumes for CountedGrowth {
    async fn grow(&self, id: &VolumeId, growth: Growth) -> Result<Grown, VolumeError> {
        let grown = self.volumes.grow(id, growth).await;
        match &grown {
            Ok(Grown { node_expansion_required: false, .. }) => {
                self.metrics.expansion(Expanded::Whole);
            }
            Ok(_) => self.metrics.expansion(Expanded::VolumeOnly),
            Err(VolumeError::Working { .. }) => {} // It has not ended.
            Err(_) => self.metrics.expansion(Expanded::Failed),
        }
        grown
    }

    async fn ensure(&self, want: &NewVolume) -> Result<Volume, VolumeError> {
        self.volumes.ensure(want).await
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        self.volumes.remove(id).await
    }

    async fn find(&self, id: &VolumeId) -> Result<Option<Volume>, VolumeError> {
        self.volumes.find(id).await
    }

    async fn list(&self) -> Result<Vec<Volume>, VolumeError> {
        self.volumes.list().await
    }

    async fn capacity(&self, query: &CapacityQuery) -> Result<Capacity, VolumeError> {
        self.volumes.capacity(query).await
    }
}
