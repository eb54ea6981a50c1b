//! A small CSI client with the calls of the kubelet and the sidecars.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Response, Status};
use tower::service_fn;

use crate::bytes::Bytes;
use crate::csi::pb;
use crate::csi::pb::controller_client::ControllerClient;
use crate::csi::pb::identity_client::IdentityClient;
use crate::csi::pb::node_client::NodeClient;
use crate::volume::Mode;

/// How often a call that returns ABORTED is retried; each call waits inside the driver.
const REPEATS: usize = 100;

/// How long a driver may take to start.
const START: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
/// Largest answer in bytes: a list of all volumes of a large node.
const ANSWER: usize = 64 << 20;

/// A call that the driver rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {code:?}: {message}")]
pub struct CallError {
    /// Name of the call.
    pub call: &'static str,
    /// Status code of the response.
    pub code: Code,
    /// Message of the response.
    pub message: String,
}

/// CSI client of one driver.
#[derive(Debug, Clone)]
pub struct Client {
    identity: IdentityClient<Channel>,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

impl Client {
    /// Connects to the driver at this socket; waits up to ten seconds for one that is starting.
    ///
    /// # Errors
    /// UNAVAILABLE if no driver listens for ten seconds, or at once if connecting is not permitted.
    pub async fn connect(socket: &Path) -> Result<Client, CallError> {
        let nobody = |cause: &dyn std::fmt::Display| CallError {
            call: "connect",
            code: Code::Unavailable,
            message: format!(
                "no driver answers at {}: {cause}; start `pliant standalone` first",
                socket.display()
            ),
        };
        wait_for(socket).await.map_err(|error| nobody(&error))?;
        let path: PathBuf = socket.to_owned();
        let connect = service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is not used: the connector knows the socket.
        let channel = Endpoint::from_static("http://pliant").connect_with_connector(connect).await;
        let channel = channel.map_err(|error| nobody(&error))?;
        Ok(Client {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()).max_decoding_message_size(ANSWER),
            node: NodeClient::new(channel),
        })
    }

    /// Describes the driver in one line: name, version and node.
    pub async fn describe(&mut self) -> Result<String, CallError> {
        let info = self.identity.get_plugin_info(pb::GetPluginInfoRequest {}).await;
        let info = said("GetPluginInfo", info)?;
        let node = self.node.node_get_info(pb::NodeGetInfoRequest {}).await;
        let node = said("NodeGetInfo", node)?;
        Ok(format!("{} {} on node {}", info.name, info.vendor_version, node.node_id))
    }

    /// Creates a volume with these class parameters; returns its ID and real size.
    pub async fn create(
        &mut self,
        name: &str,
        size: Bytes,
        mode: Mode,
        parameters: &BTreeMap<String, String>,
    ) -> Result<(String, Bytes), CallError> {
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(at_least(size)),
            volume_capabilities: vec![capability(mode)],
            parameters: parameters.clone(),
            ..Default::default()
        };
        let mut repeats = 0;
        let answer = loop {
            match self.controller.create_volume(request.clone()).await {
                Err(status) if count_if_at_work(&status, &mut repeats) => {}
                answer => break said("CreateVolume", answer)?,
            }
        };
        let volume = answer.volume.unwrap_or_default();
        Ok((volume.volume_id, Bytes::from_i64(volume.capacity_bytes).unwrap_or_default()))
    }

    /// Deletes a volume.
    pub async fn delete(&mut self, id: &str) -> Result<(), CallError> {
        let request = pb::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        let mut repeats = 0;
        loop {
            match self.controller.delete_volume(request.clone()).await {
                Err(status) if count_if_at_work(&status, &mut repeats) => {}
                answer => return said("DeleteVolume", answer).map(drop),
            }
        }
    }

    /// Expands a volume; returns its new size, and true if the node has to expand the file system.
    pub async fn grow(
        &mut self,
        id: &str,
        size: Bytes,
        mode: Mode,
    ) -> Result<(Bytes, bool), CallError> {
        let request = pb::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(at_least(size)),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        let mut repeats = 0;
        let answer = loop {
            match self.controller.controller_expand_volume(request.clone()).await {
                Err(status) if count_if_at_work(&status, &mut repeats) => {}
                answer => break said("ControllerExpandVolume", answer)?,
            }
        };
        let size = Bytes::from_i64(answer.capacity_bytes).unwrap_or_default();
        Ok((size, answer.node_expansion_required))
    }

    /// Lists all volumes with their condition.
    pub async fn list(&mut self) -> Result<Vec<pb::list_volumes_response::Entry>, CallError> {
        let answer = self.controller.list_volumes(pb::ListVolumesRequest::default()).await;
        Ok(said("ListVolumes", answer)?.entries)
    }

    /// Returns the capacity for these class parameters.
    pub async fn capacity(
        &mut self,
        parameters: &BTreeMap<String, String>,
    ) -> Result<pb::GetCapacityResponse, CallError> {
        let parameters = parameters.clone();
        let request = pb::GetCapacityRequest { parameters, ..Default::default() };
        said("GetCapacity", self.controller.get_capacity(request).await)
    }

    /// Stages a volume on the node.
    pub async fn stage(&mut self, id: &str, staging: &Path, mode: Mode) -> Result<(), CallError> {
        let request = pb::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        said("NodeStageVolume", self.node.node_stage_volume(request).await).map(drop)
    }

    /// Unstages a volume.
    pub async fn unstage(&mut self, id: &str, staging: &Path) -> Result<(), CallError> {
        let request = pb::NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
        };
        said("NodeUnstageVolume", self.node.node_unstage_volume(request).await).map(drop)
    }

    /// Publishes a volume to a workload.
    pub async fn publish(
        &mut self,
        id: &str,
        staging: &Path,
        target: &Path,
        mode: Mode,
    ) -> Result<(), CallError> {
        let request = pb::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
            target_path: text(target),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        said("NodePublishVolume", self.node.node_publish_volume(request).await).map(drop)
    }

    /// Unpublishes a volume.
    pub async fn unpublish(&mut self, id: &str, target: &Path) -> Result<(), CallError> {
        let request =
            pb::NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path: text(target) };
        said("NodeUnpublishVolume", self.node.node_unpublish_volume(request).await).map(drop)
    }

    /// Expands the file system of a volume that is published at `path`.
    pub async fn node_expand(
        &mut self,
        id: &str,
        path: &Path,
        staging: &Path,
        size: Bytes,
        mode: Mode,
    ) -> Result<(), CallError> {
        let request = pb::NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            staging_target_path: text(staging),
            capacity_range: Some(at_least(size)),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        said("NodeExpandVolume", self.node.node_expand_volume(request).await).map(drop)
    }

    /// Returns the usage and the condition of a volume.
    pub async fn stats(
        &mut self,
        id: &str,
        path: &Path,
    ) -> Result<pb::NodeGetVolumeStatsResponse, CallError> {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            ..Default::default()
        };
        said("NodeGetVolumeStats", self.node.node_get_volume_stats(request).await)
    }
}

/// Waits until a server listens on the socket.
async fn wait_for(socket: &Path) -> io::Result<()> {
    let begin = Instant::now();
    let mut tries = tokio::time::interval(BETWEEN_TRIES);
    loop {
        tries.tick().await;
        match UnixStream::connect(socket).await {
            Ok(_) => return Ok(()),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused if begin.elapsed() < START => {}
                _ => return Err(error),
            },
        }
    }
}

/// True if the operation is still in progress, and may be retried.
fn count_if_at_work(status: &Status, repeats: &mut usize) -> bool {
    *repeats += 1;
    status.code() == Code::Aborted && *repeats < REPEATS
}

fn said<T>(call: &'static str, answer: Result<Response<T>, Status>) -> Result<T, CallError> {
    answer.map(Response::into_inner).map_err(|status| CallError {
        call,
        code: status.code(),
        message: status.message().to_owned(),
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn at_least(size: Bytes) -> pb::CapacityRange {
    pb::CapacityRange { required_bytes: size.to_i64(), limit_bytes: 0 }
}

fn capability(mode: Mode) -> pb::VolumeCapability {
    use pb::volume_capability::access_mode::Mode as Access;
    use pb::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
    let access_type = match mode {
        Mode::Block => AccessType::Block(BlockVolume {}),
        Mode::Filesystem(kind) => {
            AccessType::Mount(MountVolume { fs_type: kind.to_string(), ..Default::default() })
        }
    };
    pb::VolumeCapability {
        access_mode: Some(AccessMode { mode: Access::SingleNodeWriter.into() }),
        access_type: Some(access_type),
    }
}
