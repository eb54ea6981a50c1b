//! The changing calls of the protocol on one volume, and what a driver answers.

use std::path::PathBuf;
use std::sync::Arc;

use pliant::busy::Busy;
use pliant::bytes::Bytes;
use pliant::csi::parse::Defaults;
use pliant::csi::pb::controller_server::Controller as _;
use pliant::csi::pb::node_server::Node as _;
use pliant::csi::pb::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode,
};
use pliant::csi::{Controller, Node, pb};
use pliant::testing::FakeHost;
use pliant::volume::Mode;
use tonic::{Code, Request, Response, Status};

use crate::machine::{Setup, id_of};

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
}

impl Verb {
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
    controller: Controller,
    node: Node,
}

impl Services {
    pub async fn start(host: &FakeHost, setup: &Setup) -> Services {
        let (machine, busy) = (setup.start(host).await, Busy::new());
        let volumes: Arc<pliant::node::Node> = machine.clone();
        Services {
            controller: Controller::new(volumes, busy.clone(), Defaults::default()),
            node: Node::new(machine, busy),
        }
    }

    pub async fn ask(&self, call: Call) -> Answer {
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

    fn size(self) -> Option<pb::CapacityRange> {
        let required_bytes = Bytes::mib(self.mib).to_i64();
        Some(pb::CapacityRange { required_bytes, limit_bytes: 0 })
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
            capacity_range: self.size(),
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
            capacity_range: self.size(),
            volume_capability: Some(self.capability()),
            ..Default::default()
        }
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
            capacity_range: self.size(),
            volume_capability: Some(self.capability()),
            ..Default::default()
        }
    }
}
