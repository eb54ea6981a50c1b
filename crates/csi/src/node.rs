//! The Node service: volumes for the workloads of this host.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tonic::{Request, Response, Status, async_trait};
use tracing::Instrument;

use crate::KubeletDir;
use crate::controller::PATIENCE;
use crate::in_flight::InFlight;
use crate::parse::{self, Expansion, ParseError, StatsArgs, Unpublish, Unstage};
use crate::rpc::open;
use crate::status::{of_operation, of_volume};
use crate::volume::NodeVolumes;
use crate::{pb, reply};

/// The Node service.
#[derive(Clone)]
pub struct Node {
    machine: Arc<dyn NodeVolumes>,
    busy: InFlight,
    kubelet: Option<KubeletDir>,
}

impl Node {
    /// Creates the service. `busy` is shared with everything else that operates on its volumes.
    pub fn new(machine: Arc<dyn NodeVolumes>, busy: InFlight) -> Self {
        Node { machine, busy, kubelet: None }
    }

    /// Serves this kubelet, which names places in its directory alone. Without one any path is taken.
    #[must_use]
    pub fn of_kubelet(self, dir: KubeletDir) -> Self {
        Node { kubelet: Some(dir), ..self }
    }

    /// Where a path of the caller is here.
    fn here(&self, field: &str, path: PathBuf) -> Result<PathBuf, ParseError> {
        match &self.kubelet {
            Some(dir) => dir.here(field, path),
            None => Ok(path),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

#[async_trait]
impl pb::node_server::Node for Node {
    /// Stages the volume.
    async fn node_stage_volume(
        &self,
        request: Request<pb::NodeStageVolumeRequest>,
    ) -> Result<Response<pb::NodeStageVolumeResponse>, Status> {
        let mut stage = parse::stage(&open(request))?;
        stage.staging = self.here("staging_target_path", stage.staging)?;
        let (key, machine) = (stage.id.key().clone(), self.machine.clone());
        let work = async move { machine.stage(&stage).await }.in_current_span();
        self.busy.run(key.as_str(), work).await.map_err(of_operation)?;
        Ok(Response::new(pb::NodeStageVolumeResponse {}))
    }

    /// Undoes the staging. Not staged is success.
    async fn node_unstage_volume(
        &self,
        request: Request<pb::NodeUnstageVolumeRequest>,
    ) -> Result<Response<pb::NodeUnstageVolumeResponse>, Status> {
        let Unstage { id, staging } = Unstage::parse(&open(request))?;
        let staging = self.here("staging_target_path", staging)?;
        let (key, machine) = (id.key().clone(), self.machine.clone());
        let work = async move { machine.unstage(&id, &staging).await }.in_current_span();
        self.busy.run(key.as_str(), work).await.map_err(of_operation)?;
        Ok(Response::new(pb::NodeUnstageVolumeResponse {}))
    }

    /// Publishes a staged volume to a workload.
    async fn node_publish_volume(
        &self,
        request: Request<pb::NodePublishVolumeRequest>,
    ) -> Result<Response<pb::NodePublishVolumeResponse>, Status> {
        let mut publish = parse::publish(&open(request))?;
        publish.staging = self.here("staging_target_path", publish.staging)?;
        publish.target = self.here("target_path", publish.target)?;
        let (key, machine) = (publish.id.key().clone(), self.machine.clone());
        let work = async move { machine.publish(&publish).await }.in_current_span();
        self.busy.run(key.as_str(), work).await.map_err(of_operation)?;
        Ok(Response::new(pb::NodePublishVolumeResponse {}))
    }

    /// Undoes the publishing. Not published is success.
    async fn node_unpublish_volume(
        &self,
        request: Request<pb::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<pb::NodeUnpublishVolumeResponse>, Status> {
        let Unpublish { id, target } = Unpublish::parse(&open(request))?;
        let target = self.here("target_path", target)?;
        let (key, machine) = (id.key().clone(), self.machine.clone());
        let work = async move { machine.unpublish(&id, &target).await }.in_current_span();
        self.busy.run(key.as_str(), work).await.map_err(of_operation)?;
        Ok(Response::new(pb::NodeUnpublishVolumeResponse {}))
    }

    /// Returns the usage of a volume.
    async fn node_get_volume_stats(
        &self,
        request: Request<pb::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<pb::NodeGetVolumeStatsResponse>, Status> {
        let StatsArgs { id, path } = StatsArgs::parse(&open(request))?;
        let path = self.here("volume_path", path)?;
        let stats = self.machine.stats(&id, &path).await.map_err(of_volume)?;
        Ok(Response::new(reply::stats(&stats)))
    }

    /// Returns the health of a volume, as seen from this node.
    async fn node_get_volume_health(
        &self,
        request: Request<pb::NodeGetVolumeHealthRequest>,
    ) -> Result<Response<pb::NodeGetVolumeHealthResponse>, Status> {
        let id = parse::held(&open(request).volume_id)?;
        let ailments = self.machine.volume_health(&id).await.map_err(of_volume)?;
        Ok(Response::new(reply::node_health(&id.to_string(), &ailments)))
    }

    /// Returns the health of the pools of this node.
    async fn node_get_storage_health(
        &self,
        _: Request<pb::NodeGetStorageHealthRequest>,
    ) -> Result<Response<pb::NodeGetStorageHealthResponse>, Status> {
        let ailments = self.machine.storage_health().await;
        Ok(Response::new(reply::storage_health(&ailments)))
    }

    /// Grows the file system to its volume.
    async fn node_expand_volume(
        &self,
        request: Request<pb::NodeExpandVolumeRequest>,
    ) -> Result<Response<pb::NodeExpandVolumeResponse>, Status> {
        let Expansion { id, path, growth } = Expansion::parse(&open(request))?;
        let path = self.here("volume_path", path)?;
        let (key, machine) = (id.key().clone(), self.machine.clone());
        let work = async move { machine.expand(&id, &path, growth).await }.in_current_span();
        let size =
            self.busy.run_within(PATIENCE, key.as_str(), work).await.map_err(of_operation)?;
        Ok(Response::new(reply::expanded(size)))
    }

    /// Returns the capabilities of this service.
    async fn node_get_capabilities(
        &self,
        _: Request<pb::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<pb::NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(reply::node_capabilities()))
    }

    /// Returns the information about this node, from memory.
    async fn node_get_info(
        &self,
        _: Request<pb::NodeGetInfoRequest>,
    ) -> Result<Response<pb::NodeGetInfoResponse>, Status> {
        Ok(Response::new(reply::node_info(self.machine.info())))
    }
}
