//! The calls that are measured, as a sidecar or the kubelet makes them: over the socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use pliant::bytes::Bytes;
use pliant::csi::pb;
use pliant::csi::pb::controller_client::ControllerClient;
use pliant::csi::pb::node_client::NodeClient;
use pliant::volume::Mode;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Where the driver tells its counts.
pub const METRICS: &str = "127.0.0.1:9808";

/// Speaks to one driver and waits for each answer; an error of the driver is a panic.
pub struct Client {
    runtime: Runtime,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

/// What the driver has spent since its start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    pub processes: f64,
    pub lvm_commands: f64,
    pub fsyncs: f64,
    pub device_reads: f64,
}

impl Client {
    pub fn connect(socket: &Path) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("runtime");
        let path: PathBuf = socket.to_owned();
        let connect = service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is not used: the connector knows the socket.
        let endpoint = Endpoint::from_static("http://pliant");
        let channel = runtime.block_on(endpoint.connect_with_connector(connect)).expect("driver");
        let controller = ControllerClient::new(channel.clone());
        Client { runtime, controller, node: NodeClient::new(channel) }
    }

    /// Makes a volume and returns its id.
    pub fn create(&mut self, name: &str, size: Bytes, mode: Mode) -> String {
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(at_least(size)),
            volume_capabilities: vec![capability(mode)],
            ..Default::default()
        };
        let answer = self.runtime.block_on(self.controller.create_volume(request));
        answer.expect("CreateVolume").into_inner().volume.expect("volume").volume_id
    }

    /// Makes a volume with these parameters, of a snapshot if one is named, and returns its id once its content is there.
    pub fn create_from(
        &mut self,
        name: &str,
        size: Bytes,
        mode: Mode,
        parameters: &[(&str, &str)],
        snapshot: Option<&str>,
    ) -> String {
        use pb::volume_content_source::{SnapshotSource, Type};
        let parameters =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let of = |id: &str| Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() });
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(at_least(size)),
            volume_capabilities: vec![capability(mode)],
            parameters: parameters.collect(),
            volume_content_source: snapshot
                .map(|id| pb::VolumeContentSource { r#type: Some(of(id)) }),
            ..Default::default()
        };
        loop {
            match self.runtime.block_on(self.controller.create_volume(request.clone())) {
                Ok(made) => return made.into_inner().volume.expect("volume").volume_id,
                // It is copied; the call waits for a while.
                Err(status) if status.code() == tonic::Code::Aborted => {}
                Err(status) => panic!("CreateVolume: {status}"),
            }
        }
    }

    /// Takes a snapshot and returns its id, and whether it is ready.
    pub fn snapshot(&mut self, name: &str, volume: &str) -> (String, bool) {
        let request = pb::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: volume.to_owned(),
            ..Default::default()
        };
        let taken = self.runtime.block_on(self.controller.create_snapshot(request));
        let taken = taken.expect("CreateSnapshot").into_inner().snapshot.expect("snapshot");
        (taken.snapshot_id, taken.ready_to_use)
    }

    /// Asks for the snapshot until its content is independent of its volume.
    pub fn snapshot_when_ready(&mut self, name: &str, volume: &str) -> String {
        loop {
            let (id, ready) = self.snapshot(name, volume);
            if ready {
                return id;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    }

    pub fn delete_snapshot(&mut self, id: &str) {
        let request =
            pb::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        self.runtime.block_on(self.controller.delete_snapshot(request)).expect("DeleteSnapshot");
    }

    pub fn delete(&mut self, id: &str) {
        let request = pb::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.runtime.block_on(self.controller.delete_volume(request)).expect("DeleteVolume");
    }

    /// Grows a volume; its file system has to be grown when this returns.
    pub fn grow(&mut self, id: &str, size: Bytes, mode: Mode) {
        let request = pb::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(at_least(size)),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        let answer = self.runtime.block_on(self.controller.controller_expand_volume(request));
        let answer = answer.expect("ControllerExpandVolume").into_inner();
        assert!(!answer.node_expansion_required, "the file system was left to the node");
    }

    /// Lists all volumes and says how many there are.
    pub fn list(&mut self) -> usize {
        let request = pb::ListVolumesRequest::default();
        let answer = self.runtime.block_on(self.controller.list_volumes(request));
        answer.expect("ListVolumes").into_inner().entries.len()
    }

    pub fn stage(&mut self, id: &str, staging: &Path, mode: Mode) {
        let request = pb::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
            volume_capability: Some(capability(mode)),
            ..Default::default()
        };
        self.runtime.block_on(self.node.node_stage_volume(request)).expect("NodeStageVolume");
    }

    pub fn unstage(&mut self, id: &str, staging: &Path) {
        let request = pb::NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: text(staging),
        };
        self.runtime.block_on(self.node.node_unstage_volume(request)).expect("NodeUnstageVolume");
    }

    /// Asks how full a mounted volume is and returns how many figures came.
    pub fn stats(&mut self, id: &str, path: &Path) -> usize {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            ..Default::default()
        };
        let answer = self.runtime.block_on(self.node.node_get_volume_stats(request));
        answer.expect("NodeGetVolumeStats").into_inner().usage.len()
    }
}

impl Spent {
    /// Asks the driver's metrics.
    pub fn until_now() -> Spent {
        let mut stream = TcpStream::connect(METRICS).expect("metrics");
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {METRICS}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("ask for metrics");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("metrics");
        let count = |call: &str| {
            let name = format!("pliant_host_operations_total{{operation=\"{call}\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&name));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
        };
        Spent {
            processes: count("processes"),
            lvm_commands: count("lvm_commands"),
            fsyncs: count("fsyncs"),
            device_reads: count("device_reads"),
        }
    }

    /// What each of so many equal calls has spent since `before`.
    pub fn each(self, before: Spent, calls: f64) -> Spent {
        Spent {
            processes: (self.processes - before.processes) / calls,
            lvm_commands: (self.lvm_commands - before.lvm_commands) / calls,
            fsyncs: (self.fsyncs - before.fsyncs) / calls,
            device_reads: (self.device_reads - before.device_reads) / calls,
        }
    }
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
