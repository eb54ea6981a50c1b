//! The Controller service: creates, finds, expands and deletes volumes of any [`Volumes`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status, async_trait};
use tracing::Instrument;

use crate::in_flight::InFlight;
use crate::parse::{self, Defaults, Enlargement, Validation, WantedSnapshots};
use crate::rpc::open;
use crate::status::{of_operation, of_volume};
use crate::volume::{SnapshotListing, VolumeError, VolumeId, VolumeStatus, Volumes};
use crate::{pb, reply};

/// Time that an expansion waits for other operations on its volume: half of what its caller waits.
/// An error would double that caller's pause each time, up to minutes.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The Controller service.
#[derive(Clone)]
pub struct Controller {
    volumes: Arc<dyn Volumes>,
    busy: InFlight,
    defaults: Defaults,
}

impl Controller {
    /// Serves these volumes. `busy` is shared with all who work on them.
    pub fn new(volumes: Arc<dyn Volumes>, busy: InFlight, defaults: Defaults) -> Self {
        Controller { volumes, busy, defaults }
    }

    async fn find(&self, id: &VolumeId) -> Result<VolumeStatus, VolumeError> {
        let volume = self.volumes.find(id).await?;
        volume.ok_or_else(|| VolumeError::NotFound { id: id.to_string() })
    }

    async fn wanted(&self, wanted: WantedSnapshots) -> Result<SnapshotListing, VolumeError> {
        match wanted {
            WantedSnapshots::One(id) => {
                let snapshots = self.volumes.find_snapshot(&id).await?.into_iter().collect();
                Ok(SnapshotListing { snapshots, next: None })
            }
            WantedSnapshots::Page(page) => self.volumes.list_snapshots(&page).await,
            WantedSnapshots::None => Ok(SnapshotListing::default()),
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").finish_non_exhaustive()
    }
}

#[async_trait]
impl pb::controller_server::Controller for Controller {
    /// Creates the volume and returns its topology. A repeated call returns the same volume.
    async fn create_volume(
        &self,
        request: Request<pb::CreateVolumeRequest>,
    ) -> Result<Response<pb::CreateVolumeResponse>, Status> {
        let want = parse::new_volume(&open(request), &self.defaults)?;
        let (key, volumes) = (want.key(), self.volumes.clone());
        let source = want.source.clone();
        let work = async move { volumes.ensure(&want).await }.in_current_span();
        let volume = self.busy.run(key.as_str(), work).await.map_err(of_operation)?;
        Ok(Response::new(reply::created(&volume, source.as_ref())))
    }

    /// Deletes the volume. Success if it does not exist, also for an id that is not of this driver.
    async fn delete_volume(
        &self,
        request: Request<pb::DeleteVolumeRequest>,
    ) -> Result<Response<pb::DeleteVolumeResponse>, Status> {
        let gone = Response::new(pb::DeleteVolumeResponse {});
        let Some(id) = parse::removed(&open(request))? else {
            return Ok(gone);
        };
        let (key, volumes) = (id.key().clone(), self.volumes.clone());
        let work = async move { volumes.remove(&id).await }.in_current_span();
        self.busy.run(key.as_str(), work).await.map_err(of_operation)?;
        Ok(gone)
    }

    /// Returns whether the volume can be used as the capabilities describe.
    async fn validate_volume_capabilities(
        &self,
        request: Request<pb::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<pb::ValidateVolumeCapabilitiesResponse>, Status> {
        let validation = Validation::parse(open(request), &self.defaults)?;
        let found = self.find(&validation.id).await.map_err(of_volume)?;
        Ok(Response::new(reply::validated(validation, &found.volume)))
    }

    /// Lists the volumes, in pages, in the order of their ids.
    async fn list_volumes(
        &self,
        request: Request<pb::ListVolumesRequest>,
    ) -> Result<Response<pb::ListVolumesResponse>, Status> {
        let page = parse::page_of_volumes(request.get_ref())?;
        Ok(Response::new(reply::listed(&self.volumes.list(&page).await.map_err(of_volume)?)))
    }

    /// Returns one volume.
    async fn controller_get_volume(
        &self,
        request: Request<pb::ControllerGetVolumeRequest>,
    ) -> Result<Response<pb::ControllerGetVolumeResponse>, Status> {
        let id = parse::held(&open(request).volume_id)?;
        let volume = self.find(&id).await.map_err(of_volume)?;
        Ok(Response::new(reply::found(&volume)))
    }

    /// Lists what is wrong with volumes, in pages; healthy ones are left out.
    async fn controller_list_volume_health(
        &self,
        request: Request<pb::ControllerListVolumeHealthRequest>,
    ) -> Result<Response<pb::ControllerListVolumeHealthResponse>, Status> {
        let page = parse::page_of_health(request.get_ref())?;
        Ok(Response::new(reply::listed_health(&self.volumes.list(&page).await.map_err(of_volume)?)))
    }

    /// Returns the health of one volume.
    async fn controller_get_volume_health(
        &self,
        request: Request<pb::ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<pb::ControllerGetVolumeHealthResponse>, Status> {
        let id = parse::held(&open(request).volume_id)?;
        let volume = self.find(&id).await.map_err(of_volume)?;
        Ok(Response::new(reply::controller_health(&volume)))
    }

    /// Returns the available capacity.
    async fn get_capacity(
        &self,
        request: Request<pb::GetCapacityRequest>,
    ) -> Result<Response<pb::GetCapacityResponse>, Status> {
        let query = parse::capacity_query(request.get_ref(), &self.defaults)?;
        let capacity = self.volumes.capacity(&query).await.map_err(of_volume)?;
        Ok(Response::new(reply::capacity(capacity)))
    }

    /// Grows the volume, and its file system where that can be done from here.
    async fn controller_expand_volume(
        &self,
        request: Request<pb::ControllerExpandVolumeRequest>,
    ) -> Result<Response<pb::ControllerExpandVolumeResponse>, Status> {
        let Enlargement { id, growth } = Enlargement::parse(&open(request))?;
        let (key, volumes) = (id.key().clone(), self.volumes.clone());
        let work = async move { volumes.grow(&id, growth).await }.in_current_span();
        let grown =
            self.busy.run_within(PATIENCE, key.as_str(), work).await.map_err(of_operation)?;
        Ok(Response::new(reply::grown(grown)))
    }

    /// Takes the snapshot. A repeated call returns the same snapshot, with the same time.
    async fn create_snapshot(
        &self,
        request: Request<pb::CreateSnapshotRequest>,
    ) -> Result<Response<pb::CreateSnapshotResponse>, Status> {
        let want = parse::new_snapshot(&open(request))?;
        let (key, volumes) = (want.source.key().clone(), self.volumes.clone());
        let work = async move { volumes.ensure_snapshot(&want).await }.in_current_span();
        let taken =
            self.busy.run_within(PATIENCE, key.as_str(), work).await.map_err(of_operation)?;
        let snapshot = Some(reply::snapshot(&taken));
        Ok(Response::new(pb::CreateSnapshotResponse { snapshot }))
    }

    /// Deletes the snapshot. Success if it does not exist, also for an id that is not of this driver.
    async fn delete_snapshot(
        &self,
        request: Request<pb::DeleteSnapshotRequest>,
    ) -> Result<Response<pb::DeleteSnapshotResponse>, Status> {
        let gone = Response::new(pb::DeleteSnapshotResponse {});
        let Some(id) = parse::removed_snapshot(&open(request))? else {
            return Ok(gone);
        };
        let (key, volumes) = (id.source().key().clone(), self.volumes.clone());
        let work = async move { volumes.remove_snapshot(&id).await }.in_current_span();
        self.busy.run_within(PATIENCE, key.as_str(), work).await.map_err(of_operation)?;
        Ok(gone)
    }

    /// Lists the snapshots, in pages, in the order of their ids.
    async fn list_snapshots(
        &self,
        request: Request<pb::ListSnapshotsRequest>,
    ) -> Result<Response<pb::ListSnapshotsResponse>, Status> {
        let wanted = parse::wanted_snapshots(request.get_ref())?;
        let listing = self.wanted(wanted).await.map_err(of_volume)?;
        Ok(Response::new(reply::listed_snapshots(&listing)))
    }

    /// Returns one snapshot.
    async fn get_snapshot(
        &self,
        request: Request<pb::GetSnapshotRequest>,
    ) -> Result<Response<pb::GetSnapshotResponse>, Status> {
        let id = parse::held_snapshot(&open(request).snapshot_id)?;
        let found = self.volumes.find_snapshot(&id).await.map_err(of_volume)?;
        let missing = || VolumeError::SnapshotNotFound { id: id.to_string() };
        let found = found.ok_or_else(missing).map_err(of_volume)?;
        let snapshot = Some(reply::snapshot(&found));
        Ok(Response::new(pb::GetSnapshotResponse { snapshot }))
    }

    /// Returns the capabilities of this service.
    async fn controller_get_capabilities(
        &self,
        _: Request<pb::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<pb::ControllerGetCapabilitiesResponse>, Status> {
        Ok(Response::new(reply::controller_capabilities()))
    }
}
