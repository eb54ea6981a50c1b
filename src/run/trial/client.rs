//! A small CSI client.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::bytes::Bytes;
use crate::csi::pb;
use crate::csi::pb::controller_client::ControllerClient;
use crate::csi::pb::identity_client::IdentityClient;
use crate::csi::pb::node_client::NodeClient;
use crate::volume::{Mode, PoolName};

/// How often a call that is answered with ABORTED is made again; each waits inside the driver.
const REPEATS: usize = 100;

/// How long a driver may take to start.
const START: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Speaks to one driver.
pub(super) struct Client {
    identity: IdentityClient<Channel>,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

/// The answer to a growth.
pub(super) struct Grown {
    pub size: Bytes,
    pub node_expansion_required: bool,
}

impl Client {
    /// Connect to the driver; one that is still starting is waited for.
    ///
    /// # Errors
    /// If nobody listens there within [`START`], or at once if we may not connect.
    pub async fn connect(socket: &Path) -> Result<Client> {
        let nobody = || {
            format!("no driver answers at {}; start `pliant standalone` first", socket.display())
        };
        wait_for(socket).await.with_context(nobody)?;
        let path: PathBuf = socket.to_owned();
        let connect = service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is not used: the connector knows the socket.
        let channel = Endpoint::from_static("http://pliant").connect_with_connector(connect).await;
        let channel = channel.with_context(nobody)?;
        Ok(Client {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
        })
    }

    /// Who answers, in a line.
    pub async fn describe(&mut self) -> Result<String> {
        let info = self.identity.get_plugin_info(pb::GetPluginInfoRequest {}).await;
        let info = info.map_err(said("GetPluginInfo"))?.into_inner();
        let node = self.node.node_get_info(pb::NodeGetInfoRequest {}).await;
        let node = node.map_err(said("NodeGetInfo"))?.into_inner();
        Ok(format!("{} {} on node {}", info.name, info.vendor_version, node.node_id))
    }

    pub async fn create(
        &mut self,
        name: &str,
        size: Bytes,
        mode: Mode,
        pool: Option<&PoolName>,
    ) -> Result<(String, Bytes)> {
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(at_least(size)),
            volume_capabilities: vec![capability(mode)],
            parameters: parameters(pool),
            ..Default::default()
        };
        let mut repeats = 0;
        let answer = loop {
            match self.controller.create_volume(request.clone()).await {
                Err(status) if is_at_work(&status, &mut repeats) => {}
                answer => break answer.map_err(said("CreateVolume"))?.into_inner(),
            }
        };
        let volume = answer.volume.context("CreateVolume answered no volume")?;
        Ok((volume.volume_id, Bytes::from_i64(volume.capacity_bytes).unwrap_or_default()))
    }

    pub async fn delete(&mut self, id: &str) -> Result<()> {
        let request = pb::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        let mut repeats = 0;
        loop {
            match self.controller.delete_volume(request.clone()).await {
                Err(status) if is_at_work(&status, &mut repeats) => {}
                answer => return answer.map(|_| ()).map_err(said("DeleteVolume")),
            }
        }
    }

    pub async fn grow(&mut self, id: &str, size: Bytes, mode: Mode) -> Result<Grown> {
        let request = pb::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(at_least(size)),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        let mut repeats = 0;
        let answer = loop {
            match self.controller.controller_expand_volume(request.clone()).await {
                Err(status) if is_at_work(&status, &mut repeats) => {}
                answer => break answer.map_err(said("ControllerExpandVolume"))?.into_inner(),
            }
        };
        Ok(Grown {
            size: Bytes::from_i64(answer.capacity_bytes).unwrap_or_default(),
            node_expansion_required: answer.node_expansion_required,
        })
    }

    /// The ids of all volumes.
    pub async fn list(&mut self) -> Result<Vec<String>> {
        let answer = self.controller.list_volumes(pb::ListVolumesRequest::default()).await;
        let entries = answer.map_err(said("ListVolumes"))?.into_inner().entries;
        Ok(entries.into_iter().filter_map(|entry| Some(entry.volume?.volume_id)).collect())
    }

    pub async fn free(&mut self, pool: Option<&PoolName>) -> Result<Bytes> {
        let request = pb::GetCapacityRequest { parameters: parameters(pool), ..Default::default() };
        let answer = self.controller.get_capacity(request).await;
        let free = answer.map_err(said("GetCapacity"))?.into_inner().available_capacity;
        Ok(Bytes::from_i64(free).unwrap_or_default())
    }

    pub async fn stage(&mut self, id: &str, staging: &Path, mode: Mode) -> Result<()> {
        let request = pb::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        let answer = self.node.node_stage_volume(request).await;
        answer.map(|_| ()).map_err(said("NodeStageVolume"))
    }

    pub async fn unstage(&mut self, id: &str, staging: &Path) -> Result<()> {
        let request = pb::NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
        };
        let answer = self.node.node_unstage_volume(request).await;
        answer.map(|_| ()).map_err(said("NodeUnstageVolume"))
    }

    pub async fn publish(
        &mut self,
        id: &str,
        staging: &Path,
        target: &Path,
        mode: Mode,
    ) -> Result<()> {
        let request = pb::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
            target_path: text(target),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        let answer = self.node.node_publish_volume(request).await;
        answer.map(|_| ()).map_err(said("NodePublishVolume"))
    }

    pub async fn unpublish(&mut self, id: &str, target: &Path) -> Result<()> {
        let request =
            pb::NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path: text(target) };
        let answer = self.node.node_unpublish_volume(request).await;
        answer.map(|_| ()).map_err(said("NodeUnpublishVolume"))
    }

    pub async fn node_expand(
        &mut self,
        id: &str,
        path: &Path,
        staging: &Path,
        size: Bytes,
        mode: Mode,
    ) -> Result<()> {
        let request = pb::NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            staging_target_path: text(staging),
            capacity_range: Some(at_least(size)),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        let answer = self.node.node_expand_volume(request).await;
        answer.map(|_| ()).map_err(said("NodeExpandVolume"))
    }

    /// Total, and used where there is a file system.
    pub async fn stats(&mut self, id: &str, path: &Path) -> Result<(Bytes, Option<Bytes>)> {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            ..Default::default()
        };
        let answer = self.node.node_get_volume_stats(request).await;
        let usage = answer.map_err(said("NodeGetVolumeStats"))?.into_inner().usage;
        let in_bytes = i32::from(pb::volume_usage::Unit::Bytes);
        let bytes = usage.into_iter().find(|usage| usage.unit == in_bytes);
        let bytes = bytes.context("NodeGetVolumeStats answered no bytes")?;
        let total = Bytes::from_i64(bytes.total).unwrap_or_default();
        Ok((total, Bytes::from_i64(bytes.used).filter(|used| *used > Bytes::ZERO)))
    }
}

/// Wait until somebody listens.
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

/// Whether the driver says that the work goes on, and it was not asked too often yet.
fn is_at_work(status: &Status, repeats: &mut usize) -> bool {
    *repeats += 1;
    status.code() == tonic::Code::Aborted && *repeats < REPEATS
}

fn said(call: &'static str) -> impl Fn(Status) -> anyhow::Error {
    move |status| anyhow!("{call}: {:?}: {}", status.code(), status.message())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn at_least(size: Bytes) -> pb::CapacityRange {
    pb::CapacityRange { required_bytes: size.to_i64(), limit_bytes: 0 }
}

fn parameters(pool: Option<&PoolName>) -> BTreeMap<String, String> {
    pool.map(|pool| ("pool".to_owned(), pool.to_string())).into_iter().collect()
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
