//! The changing calls of the protocol on one volume, and what a driver answers.

use std::path::PathBuf;
use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::csi::parse::Defaults;
use pliant::csi::pb::controller_client::ControllerClient;
use pliant::csi::pb::controller_server::Controller as _;
use pliant::csi::pb::node_client::NodeClient;
use pliant::csi::pb::node_server::Node as _;
use pliant::csi::pb::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode,
};
use pliant::csi::{self, Controller, Node, RpcObserver, ServeError, pb};
use pliant::in_flight::InFlight;
use pliant::testing::FakeHost;
use pliant::volume::Mode;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::machine::{Setup, id_of, until_wiped};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Create,
    Delete,
    Stage,
    Unstage,
    Publish,
    Unpublish,
    Expand,
    NodeExpand,
    /// Changes nothing.
    Get,
}

impl Verb {
    /// All that change something.
    pub const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::Stage,
        Verb::Unstage,
        Verb::Publish,
        Verb::Unpublish,
        Verb::Expand,
        Verb::NodeExpand,
    ];

    /// Whether it waits for other work on its volume, instead of being turned away at once.
    pub fn waits(self) -> bool {
        matches!(self, Verb::Expand | Verb::NodeExpand)
    }
}

/// A call on the volume of this name; `mib` is the size of one that is made or grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    pub name: &'static str,
    pub mode: Mode,
    pub mib: u64,
}

/// What a caller builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The volume's size in bytes.
    Size(i64),
    /// Its size, and whether the node's step is to follow.
    Grown(i64, bool),
    Refused(Code),
}

/// Make a call on a pair of services or of clients.
macro_rules! ask {
    ($controller:expr, $node:expr, $call:expr) => {{
        let call = $call;
        match call.verb {
            Verb::Create => {
                said($controller.create_volume(Request::new(call.create())).await, |created| {
                    Answer::Size(created.volume.unwrap_or_default().capacity_bytes)
                })
            }
            Verb::Delete => {
                said($controller.delete_volume(Request::new(call.delete())).await, done)
            }
            Verb::Expand => {
                let request = Request::new(call.expand());
                said($controller.controller_expand_volume(request).await, |grown| {
                    Answer::Grown(grown.capacity_bytes, grown.node_expansion_required)
                })
            }
            Verb::Get => {
                said($controller.controller_get_volume(Request::new(call.get())).await, |found| {
                    Answer::Size(found.volume.unwrap_or_default().capacity_bytes)
                })
            }
            Verb::Stage => said($node.node_stage_volume(Request::new(call.stage())).await, done),
            Verb::Unstage => {
                said($node.node_unstage_volume(Request::new(call.unstage())).await, done)
            }
            Verb::Publish => {
                said($node.node_publish_volume(Request::new(call.publish())).await, done)
            }
            Verb::Unpublish => {
                said($node.node_unpublish_volume(Request::new(call.unpublish())).await, done)
            }
            Verb::NodeExpand => {
                let request = Request::new(call.node_expand());
                said($node.node_expand_volume(request).await, |grown| {
                    Answer::Size(grown.capacity_bytes)
                })
            }
        }
    }};
}

fn said<T>(answer: Result<Response<T>, Status>, read: impl Fn(T) -> Answer) -> Answer {
    match answer {
        Ok(response) => read(response.into_inner()),
        Err(status) => Answer::Refused(status.code()),
    }
}

fn done<T>(_: T) -> Answer {
    Answer::Done
}

/// The services of a driver, asked without a socket.
#[derive(Debug, Clone)]
pub struct Services {
    machine: Arc<pliant::node::Node>,
    controller: Controller,
    node: Node,
}

impl Services {
    pub async fn start(host: &FakeHost, setup: &Setup) -> Services {
        let (machine, busy) = (setup.start(host).await, InFlight::new());
        let volumes: Arc<pliant::node::Node> = machine.clone();
        Services {
            machine: machine.clone(),
            controller: Controller::new(volumes, busy.clone(), Defaults::default()),
            node: Node::new(machine, busy),
        }
    }

    /// The answer, when what goes on behind it has ended.
    pub async fn ask(&self, call: Call) -> Answer {
        let answer = self.ask_only(call).await;
        if matches!(answer, Answer::Size(_)) {
            self.settle().await;
        }
        answer
    }

    /// The answer, at once.
    pub async fn ask_only(&self, call: Call) -> Answer {
        ask!(self.controller, self.node, call)
    }

    /// Wait for what goes on behind the answers.
    pub async fn settle(&self) {
        until_wiped(&self.machine).await;
    }

    /// Serve them on a socket.
    pub async fn serve(self, observer: Arc<dyn RpcObserver>) -> (Client, Served) {
        let place = tempfile::tempdir().expect("a directory");
        let socket = place.path().join("csi.sock");
        let (stop, stopped) = oneshot::channel();
        let at = socket.clone();
        let services = csi::Services {
            identity: csi::Identity,
            controller: Some(self.controller),
            node: Some(self.node),
        };
        let served = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            csi::serve(&at, services, observer, stopped).await
        });
        while !socket.exists() {
            tokio::task::yield_now().await;
        }
        let address = Endpoint::from_shared(format!("unix:{}", socket.display()));
        let channel = address.expect("an address").connect().await.expect("a driver");
        let (controller, node) = (ControllerClient::new(channel.clone()), NodeClient::new(channel));
        (Client { controller, node }, Served { stop, ended: served, _place: place })
    }
}

/// A driver that serves a socket.
pub struct Served {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServeError>>,
    _place: tempfile::TempDir,
}

impl Served {
    /// End it, when its clients have gone.
    pub async fn stop(self) {
        self.stop.send(()).expect("it serves");
        self.ended.await.expect("no panic").expect("served to its end");
    }
}

/// A client of a driver behind a socket.
#[derive(Debug, Clone)]
pub struct Client {
    pub controller: ControllerClient<Channel>,
    pub node: NodeClient<Channel>,
}

impl Client {
    pub async fn ask(&mut self, call: Call) -> Answer {
        ask!(self.controller, self.node, call)
    }
}

impl Call {
    fn volume_id(self) -> String {
        id_of(self.name).to_string()
    }

    fn staging(self) -> String {
        format!("/var/lib/kubelet/staging/{}", self.name)
    }

    fn target(self) -> String {
        format!("/var/lib/kubelet/pods/{}", self.name)
    }

    /// The path that has to be gone when it was done.
    pub fn leaves_nothing_at(self) -> Option<PathBuf> {
        match self.verb {
            Verb::Unstage => Some(self.staging().into()),
            Verb::Unpublish => Some(self.target().into()),
            _ => None,
        }
    }

    fn size(self) -> pb::CapacityRange {
        pb::CapacityRange { required_bytes: Bytes::mib(self.mib).to_i64(), limit_bytes: 0 }
    }

    fn capability(self) -> pb::VolumeCapability {
        let access_type = match self.mode {
            Mode::Block => AccessType::Block(BlockVolume {}),
            Mode::Filesystem(kind) => {
                AccessType::Mount(MountVolume { fs_type: kind.to_string(), ..Default::default() })
            }
        };
        let mode = access_mode::Mode::SingleNodeSingleWriter.into();
        pb::VolumeCapability {
            access_type: Some(access_type),
            access_mode: Some(AccessMode { mode }),
        }
    }

    fn create(self) -> pb::CreateVolumeRequest {
        pb::CreateVolumeRequest {
            name: self.name.to_owned(),
            capacity_range: Some(self.size()),
            volume_capabilities: vec![self.capability()],
            ..Default::default()
        }
    }

    fn delete(self) -> pb::DeleteVolumeRequest {
        pb::DeleteVolumeRequest { volume_id: self.volume_id(), ..Default::default() }
    }

    fn expand(self) -> pb::ControllerExpandVolumeRequest {
        pb::ControllerExpandVolumeRequest {
            volume_id: self.volume_id(),
            capacity_range: Some(self.size()),
            volume_capability: Some(self.capability()),
            ..Default::default()
        }
    }

    fn get(self) -> pb::ControllerGetVolumeRequest {
        pb::ControllerGetVolumeRequest { volume_id: self.volume_id() }
    }

    fn stage(self) -> pb::NodeStageVolumeRequest {
        pb::NodeStageVolumeRequest {
            volume_id: self.volume_id(),
            staging_target_path: self.staging(),
            volume_capability: Some(self.capability()),
            ..Default::default()
        }
    }

    fn unstage(self) -> pb::NodeUnstageVolumeRequest {
        let staging_target_path = self.staging();
        pb::NodeUnstageVolumeRequest { volume_id: self.volume_id(), staging_target_path }
    }

    fn publish(self) -> pb::NodePublishVolumeRequest {
        pb::NodePublishVolumeRequest {
            volume_id: self.volume_id(),
            staging_target_path: self.staging(),
            target_path: self.target(),
            volume_capability: Some(self.capability()),
            ..Default::default()
        }
    }

    fn unpublish(self) -> pb::NodeUnpublishVolumeRequest {
        let target_path = self.target();
        pb::NodeUnpublishVolumeRequest { volume_id: self.volume_id(), target_path }
    }

    fn node_expand(self) -> pb::NodeExpandVolumeRequest {
        pb::NodeExpandVolumeRequest {
            volume_id: self.volume_id(),
            volume_path: self.target(),
            staging_target_path: self.staging(),
            capacity_range: Some(self.size()),
            volume_capability: Some(self.capability()),
            ..Default::default()
        }
    }
}
