//! What callers of the protocol are told when the volumes are those of a cluster: each answer of a node
//! comes through with its code.

use std::sync::Arc;
use std::time::Duration;

use pliant::csi::parse::Defaults;
use pliant::csi::pb::controller_client::ControllerClient;
use pliant::csi::pb::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode};
use pliant::csi::{self, Controller, Identity, RpcObserver, Services, pb};
use pliant::in_flight::InFlight;
use pliant::volume::{NodeVolumes, TOPOLOGY};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::world::{Machine, World, device, stage_raw};

struct Nobody;

impl RpcObserver for Nobody {
    fn observe(&self, _: &str, _: &'static str, _: Duration) {}
}

/// A driver on a socket of its own, over a cluster.
struct Driver {
    client: ControllerClient<Channel>,
    world: World,
    machine: Machine,
    _cluster: crate::world::Controller,
    _served: JoinSet<()>,
    _place: tempfile::TempDir,
}

/// Connect to a socket as soon as it is there.
pub async fn connect(socket: &std::path::Path) -> Channel {
    while !socket.exists() {
        tokio::task::yield_now().await;
    }
    let address = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    address.connect().await.unwrap()
}

impl Driver {
    async fn start() -> Driver {
        let (world, cluster, machine) = World::with_a_node().await;
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("csi.sock");
        let controller = Controller::new(cluster.clone(), InFlight::new(), Defaults::default());
        let services = Services { identity: Identity, controller: Some(controller), node: None };
        let (mut served, at) = (JoinSet::new(), socket.clone());
        served.spawn(async move {
            csi::serve(&at, services, Arc::new(Nobody), std::future::pending()).await.unwrap();
        });
        let client = ControllerClient::new(connect(&socket).await);
        Driver { client, world, machine, _cluster: cluster, _served: served, _place: place }
    }

    async fn create(&mut self, name: &str, mib: i64) -> Result<pb::Volume, Status> {
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: range(mib),
            volume_capabilities: vec![pb::VolumeCapability {
                access_type: Some(AccessType::Block(BlockVolume::default())),
                access_mode: Some(AccessMode { mode: access_mode::Mode::SingleNodeWriter.into() }),
            }],
            ..Default::default()
        };
        let made = self.client.create_volume(request).await?;
        Ok(made.into_inner().volume.expect("a volume"))
    }

    async fn expand(&mut self, volume_id: &str, mib: i64) -> Result<i64, Status> {
        let request = pb::ControllerExpandVolumeRequest {
            volume_id: volume_id.to_owned(),
            capacity_range: range(mib),
            ..Default::default()
        };
        let grown = self.client.controller_expand_volume(request).await?;
        Ok(grown.into_inner().capacity_bytes)
    }

    async fn delete(&mut self, volume_id: &str) -> Result<(), Status> {
        let volume_id = volume_id.to_owned();
        let request = pb::DeleteVolumeRequest { volume_id, ..Default::default() };
        self.client.delete_volume(request).await.map(drop)
    }
}

#[allow(clippy::unnecessary_wraps)] // The field is optional.
fn range(mib: i64) -> Option<pb::CapacityRange> {
    Some(pb::CapacityRange { required_bytes: mib << 20, limit_bytes: 0 })
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, word: &str) {
    let status = answer.expect_err("it is refused");
    assert_eq!(status.code(), code, "{}", status.message());
    assert!(status.message().contains(word), "{word} is not in: {}", status.message());
}

#[tokio::test(start_paused = true)]
async fn each_answer_of_a_node_has_its_code_on_the_socket() {
    let mut driver = Driver::start().await;
    let made = driver.create("pvc-1", 100).await.unwrap();
    assert_eq!(made.accessible_topology[0].segments[TOPOLOGY], "alpha");
    let id = made.volume_id.as_str();
    assert_eq!(driver.expand(id, 200).await.unwrap(), 200 << 20);
    refused(driver.create("pvc-2", 5000).await, Code::ResourceExhausted, "Mi or less");
    refused(driver.expand(id, 5000).await, Code::OutOfRange, "Mi or less");
    refused(driver.create("pvc-1", 300).await, Code::AlreadyExists, "differs");
    driver.machine.node.stage(&stage_raw("pvc-1")).await.unwrap();
    let opened = device(&driver.machine, "pvc-1");
    driver.machine.host.open(&opened);
    refused(driver.delete(id).await, Code::FailedPrecondition, "has /dev/dm-");
    driver.machine.host.close(&opened);
    driver.delete(id).await.unwrap();
    driver.delete(id).await.unwrap();
    refused(driver.expand(id, 300).await, Code::NotFound, "does not exist");
    driver.delete("a volume of another driver").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_is_away_is_unavailable_on_the_socket() {
    let mut driver = Driver::start().await;
    let made = driver.create("pvc-1", 100).await.unwrap();
    driver.world.api.go_down();
    refused(driver.create("pvc-2", 100).await, Code::Unavailable, "the API server");
    driver.world.api.come_back();
    let host = driver.machine.host.after_crash();
    driver.machine = driver.world.node("beta").await; // Alpha's node plugin is gone with its machine.
    refused(driver.expand(&made.volume_id, 200).await, Code::Unavailable, "has not started");
    driver.machine = driver.world.restart("alpha", host).await;
    assert_eq!(driver.expand(&made.volume_id, 200).await.unwrap(), 200 << 20);
}
